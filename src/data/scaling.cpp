// Standardised features, and the way back for what was fitted to them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "onestep/dataset.h"

namespace onestep {
namespace {

[[noreturn]] void wrong(std::string_view who, std::string_view what) {
  throw MisuseError(fmt::format("[{}] {}", who, what));
}

std::size_t unsigned_size(std::int64_t n) { return static_cast<std::size_t>(n); }

// Throws unless the scaling is one of `features` features.
void check_features(std::string_view who, std::int64_t features, const Scaling& scaling) {
  if (scaling.mean.shape() != Shape{features} || scaling.scale.shape() != Shape{features})
    wrong(who, fmt::format("{} features, but means and scales of shape {} and {}", features, to_string(scaling.mean.shape()),
                           to_string(scaling.scale.shape())));
}

}  // namespace

Scaling standardisation(const Array& A) {
  constexpr std::string_view who = "standardisation";
  if (A.shape().rank() != 2 || A.shape()[0] == 0)
    wrong(who, fmt::format("features are a matrix with a row for each sample, not of shape {}", to_string(A.shape())));
  const Array rows = A.contiguous();
  const std::size_t N = unsigned_size(A.shape()[0]), n = unsigned_size(A.shape()[1]);
  const double* const a = rows.data();
  std::vector<double> mean(n), scale(n), low(a, a + n), high(a, a + n), furthest(n);
  // Means of a part of each, which do not overflow; then deviations relative to the largest, which do not either.
  const double part = 1 / static_cast<double>(N);
  for (std::size_t i = 0; i < N; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      const double e = a[i * n + j];
      mean[j] += part * e;
      low[j] = std::min(low[j], e);
      high[j] = std::max(high[j], e);
    }
  for (std::size_t j = 0; j < n; ++j) furthest[j] = std::max(high[j] - mean[j], mean[j] - low[j]);
  for (std::size_t i = 0; i < N; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      const double d = furthest[j] > 0 ? (a[i * n + j] - mean[j]) / furthest[j] : 0;
      scale[j] += d * d;
    }
  for (std::size_t j = 0; j < n; ++j) {
    if (std::isfinite(mean[j]) && low[j] == high[j]) {  // exactly, where the sum above may have been rounded
      mean[j] = low[j];
      scale[j] = 1;
    } else {
      scale[j] = furthest[j] * std::sqrt(part * scale[j]);
    }
    if (!std::isfinite(mean[j]) || !std::isfinite(scale[j]))
      wrong(who, fmt::format("feature {} has values that are not finite, or too far apart", j + 1));
  }
  const Shape shape{A.shape()[1]};
  return {Array(shape, std::move(mean)), Array(shape, std::move(scale))};
}

Array scaled(const Array& A, const Scaling& scaling) {
  if (A.shape().rank() != 2) wrong("scaled", fmt::format("features are a matrix, not of shape {}", to_string(A.shape())));
  check_features("scaled", A.shape()[1], scaling);
  const std::size_t n = unsigned_size(A.shape()[1]);
  std::vector<double> entries(unsigned_size(A.size()));
  A.copy_to(entries);
  const Array mean = scaling.mean.contiguous(), scale = scaling.scale.contiguous();
  for (std::size_t first = 0; first < entries.size(); first += n)
    for (std::size_t j = 0; j < n; ++j) {
      double& e = entries[first + j];
      e = (e - mean.data()[j]) / scale.data()[j];
    }
  return {A.shape(), std::move(entries)};
}

LinearModel unscaled(const LinearModel& model, const Scaling& scaling) {
  constexpr std::string_view who = "unscaled";
  const Shape shape = model.x.shape(), predictions = model.intercept.shape();
  if (!(shape.rank() == 1 && predictions == Shape{}) && !(shape.rank() == 2 && predictions == Shape{shape[1]}))
    wrong(who,
          fmt::format("coefficients of shape {} with intercepts of shape {}; a vector goes with a number, a matrix with "
                      "one for each column",
                      to_string(shape), to_string(predictions)));
  check_features(who, shape[0], scaling);
  const std::size_t n = unsigned_size(shape[0]), K = unsigned_size(shape[1]);
  std::vector<double> x(n * K), intercept(K);
  model.x.copy_to(x);
  model.intercept.copy_to(intercept);
  // x·(a - m)/s + b = (x/s)·a + (b - (x/s)·m)
  for (std::size_t j = 0; j < n; ++j)
    for (std::size_t k = 0; k < K; ++k) {
      x[j * K + k] /= scaling.scale(static_cast<std::int64_t>(j));
      intercept[k] -= x[j * K + k] * scaling.mean(static_cast<std::int64_t>(j));
    }
  return {Array(shape, std::move(x)), Array(predictions, std::move(intercept))};
}

}  // namespace onestep
