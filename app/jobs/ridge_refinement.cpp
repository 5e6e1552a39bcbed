// Iterative refinement of least squares by residuals in extended precision.
#include "jobs/ridge_refinement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "jobs/leave_one_out.h"
#include "jobs/standard_errors.h"

namespace onestep::app::jobs {

namespace {

// Aᵀ(y - Ax) - λx, the negative gradient.
std::vector<double> descent(const Samples& train, const Array& penalty, const std::vector<double>& x) {
  const std::size_t n = x.size();
  const std::span<const double> a = train.A.values(), y = train.y.values();
  std::vector<long double> sum(n);
  for (std::size_t i = 0; i < y.size(); ++i) {
    long double residual = y[i];
    for (std::size_t j = 0; j < n; ++j) residual -= static_cast<long double>(a[i * n + j]) * x[j];
    for (std::size_t j = 0; j < n; ++j) sum[j] += residual * a[i * n + j];
  }
  std::vector<double> result(n);
  for (std::size_t j = 0; j < n; ++j) {
    if (j + 1 < n) sum[j] -= static_cast<long double>(penalty.values()[j]) * x[j];
    result[j] = static_cast<double>(sum[j]);
  }
  return result;
}

}  // namespace

std::optional<Array> refined_ridge(const Samples& train, const Array& penalty, const Array& x) {
  constexpr int most_steps = 10;
  constexpr double contraction = 0.5, accurate = 1e-9;  // of the largest coefficient
  const auto n = static_cast<std::size_t>(x.size());
  const Array gram = sum_of_blocks(train.A, ones({train.count(), 1}), 1);
  std::vector<double> H(gram.values().begin(), gram.values().end()), size(n);
  for (std::size_t j = 0; j < n; ++j) {
    if (j + 1 < n) H[j * n + j] += penalty.values()[j];
    size[j] = std::sqrt(H[j * n + j]);
  }
  const Array inverse = inverse_of(std::move(H), static_cast<std::int64_t>(n));
  std::vector<double> at(x.values().begin(), x.values().end()), step(n);
  double last = std::numeric_limits<double>::infinity();
  for (int number = 0; number < most_steps && last > 0; ++number) {
    const std::vector<double> g = descent(train, penalty, at);
    double length = 0;
    for (std::size_t j = 0; j < n; ++j) {
      step[j] = 0;
      for (std::size_t k = 0; k < n; ++k) step[j] += inverse.values()[j * n + k] * g[k];
      length = std::max(length, std::fabs(step[j]) * size[j]);
    }
    if (!(length <= contraction * last)) break;
    for (std::size_t j = 0; j < n; ++j) at[j] += step[j];
    last = length;
  }
  double largest = 0;
  for (std::size_t j = 0; j < n; ++j) largest = std::max(largest, std::fabs(at[j]) * size[j]);
  if (!(last <= accurate * largest)) return std::nullopt;
  return Array(x.shape(), std::move(at));
}

}  // namespace onestep::app::jobs
