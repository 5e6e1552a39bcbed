#include "reference.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace onestep::bench {
namespace {

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Vector times_A(const Logistic& data, const Vector& x) {
  Vector t(data.N);
  for (std::size_t i = 0; i < data.N; ++i) {
    for (std::size_t j = 0; j < data.n; ++j) t[i] += data.A[i * data.n + j] * x[j];
  }
  return t;
}

Vector times_At(const Logistic& data, const Vector& r) {
  Vector g(data.n);
  for (std::size_t i = 0; i < data.N; ++i) {
    for (std::size_t j = 0; j < data.n; ++j) g[j] += data.A[i * data.n + j] * r[i];
  }
  return g;
}

// u with (Aᵀ diag(h) A + 0.2 I) u = b.
Vector solve(const Logistic& data, const Vector& h, const Vector& b) {
  Vector u(data.n), r = b, p = b;
  double rr = dot(r, r);
  const double enough = 1e-28 * rr;
  for (std::size_t k = 0; k < 20 * data.n && rr > enough; ++k) {
    Vector t = times_A(data, p);
    for (std::size_t i = 0; i < data.N; ++i) t[i] *= h[i];
    Vector Hp = times_At(data, t);
    for (std::size_t j = 0; j < data.n; ++j) Hp[j] += 0.2 * p[j];
    const double step = rr / dot(p, Hp), before = rr;
    for (std::size_t j = 0; j < data.n; ++j) u[j] += step * p[j], r[j] -= step * Hp[j];
    rr = dot(r, r);
    for (std::size_t j = 0; j < data.n; ++j) p[j] = r[j] + rr / before * p[j];
  }
  return u;
}

}  // namespace

void must_agree(std::string_view what, std::span<const double> actual, std::span<const double> expected) {
  double scale = 0, difference = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    scale = std::max(scale, std::fabs(expected[i]));
    const double d = std::fabs(actual[i] - expected[i]);
    difference = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(difference, d);
  }
  if (difference > 1e-10 * scale)
    throw std::runtime_error(
        fmt::format("{} is wrong: off by {:.2g}, its largest entry is {:.2g}", what, difference, scale));
}

NewtonReference newton_reference(const Logistic& data) {
  const Vector t = times_A(data, data.x);
  Vector slope(data.N), r(data.N), h(data.N), curvature(data.N);
  double value = 0.1 * dot(data.x, data.x);
  for (std::size_t i = 0; i < data.N; ++i) {
    const double z = -data.y[i] * t[i];
    const double sigmoid = 1 / (1 + std::exp(-z));
    value += data.w[i] * (std::max(z, 0.0) + std::log1p(std::exp(-std::fabs(z))));
    slope[i] = -data.y[i] * sigmoid;
    curvature[i] = sigmoid * (1 / (1 + std::exp(z)));
    r[i] = data.w[i] * slope[i];
    h[i] = data.w[i] * curvature[i];
  }
  Vector g = times_At(data, r);
  for (std::size_t j = 0; j < data.n; ++j) g[j] += 0.2 * data.x[j];
  const Vector s = solve(data, h, g), u = solve(data, h, data.v);

  // d(x - H⁻¹g)/dwᵢ = -H⁻¹(slopeᵢ aᵢ - curvatureᵢ aᵢ aᵢᵀ s)
  NewtonReference result{value, data.x, Vector(data.N)};
  for (std::size_t j = 0; j < data.n; ++j) result.x_next[j] -= s[j];
  const Vector As = times_A(data, s), Au = times_A(data, u);
  for (std::size_t i = 0; i < data.N; ++i) result.w_bar[i] = -Au[i] * (slope[i] - curvature[i] * As[i]);
  return result;
}

std::vector<double> ridge_reference(const Logistic& data, double lambda, double alpha) {
  Vector r = times_A(data, data.x);
  for (std::size_t i = 0; i < data.N; ++i) r[i] -= data.y[i];
  Vector g = times_At(data, r);
  Vector x = data.x;
  for (std::size_t j = 0; j < data.n; ++j) x[j] -= alpha * (g[j] + lambda * data.x[j]);
  return x;
}

std::vector<double> chain_reference(double a, double b, std::span<const double> x) {
  Vector y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double s = std::tanh(a * x[i] + b);
    y[i] = std::sqrt(1 + s * s) * std::exp(x[i]);
  }
  return y;
}

}  // namespace onestep::bench
