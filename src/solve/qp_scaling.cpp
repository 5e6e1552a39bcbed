#include "solve/qp_scaling.h"

#include <algorithm>
#include <cmath>

namespace onestep::detail {
namespace {

double power_of_two(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return std::ldexp(1.0, fraction < 0.70710678118654752 ? exponent - 1 : exponent);
}

/// max_j |a_j| x_j, and y_j = max(y_j, factor |a_j|).
double row_pass(std::size_t n, const double* a, const double* x, double factor, double* y) {
  double largest = 0;
  for (std::size_t j = 0; j < n; ++j) {
    const double size = std::fabs(a[j]);
    largest = std::max(largest, size * x[j]);
    y[j] = std::max(y[j], factor * size);
  }
  return largest;
}

double row_largest(std::size_t n, const double* a, const double* x) {
  double largest = 0;
  for (std::size_t j = 0; j < n; ++j) largest = std::max(largest, std::fabs(a[j]) * x[j]);
  return largest;
}

}  // namespace

void QpScaling::prepare(std::size_t n, std::size_t rows) {
  d.assign(n, 1.0);
  e.assign(rows, 1.0);
  column_norm_.assign(n, 0.0);
  row_norm_.assign(rows, 0.0);
}

void QpScaling::compute(const QpData& data) {
  constexpr int most_sweeps = 10;
  constexpr double least = 1e-12, most = 1e12;  // beyond this a norm is taken for rounding, or for a zero row
  const std::size_t n = data.n;
  std::fill(d.begin(), d.end(), 1.0);
  std::fill(e.begin(), e.end(), 1.0);
  c = 1;
  for (int sweep = 0; sweep < most_sweeps; ++sweep) {
    std::fill(column_norm_.begin(), column_norm_.end(), 0.0);
    for (std::size_t i = 0; i < data.m + data.p; ++i) {
      const double* row = i < data.m ? data.A + i * n : data.G + (i - data.m) * n;
      row_norm_[i] = e[i] * row_pass(n, row, d.data(), e[i], column_norm_.data());
    }
    if (data.Q != nullptr) {
      for (std::size_t j = 0; j < n; ++j)
        column_norm_[j] = std::max(column_norm_[j], row_largest(n, data.Q + j * n, d.data()));
    }
    double off = 1;
    const auto update = [&](double norm, double& factor) {
      if (!(norm > least && norm < most)) return;
      off = std::max({off, norm, 1 / norm});
      factor /= std::sqrt(norm);
    };
    for (std::size_t j = 0; j < n; ++j) update(d[j] * column_norm_[j], d[j]);
    for (std::size_t i = 0; i < data.m + data.p; ++i) update(row_norm_[i], e[i]);
    if (off < 4) break;
  }
  for (double& x : d) x = power_of_two(x);
  for (double& x : e) x = power_of_two(x);
  double largest = 0;
  for (std::size_t j = 0; data.q != nullptr && j < n; ++j) largest = std::max(largest, d[j] * std::fabs(data.q[j]));
  double quadratic = 0;
  for (std::size_t j = 0; data.Q != nullptr && j < n; ++j)
    quadratic = std::max(quadratic, d[j] * row_largest(n, data.Q + j * n, d.data()));
  largest = std::max(largest, quadratic);
  if (largest > least && largest < most) c = power_of_two(1 / largest);
}

}  // namespace onestep::detail
