// The same problems by plain loops, to hold contenders to.
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
    for (std::size_t j = 0; j < data.n; ++j) Hp[j] += data.penalty(j) * p[j];
    const double step = rr / dot(p, Hp), before = rr;
    for (std::size_t j = 0; j < data.n; ++j) u[j] += step * p[j], r[j] -= step * Hp[j];
    rr = dot(r, r);
    for (std::size_t j = 0; j < data.n; ++j) p[j] = r[j] + rr / before * p[j];
  }
  return u;
}

}  // namespace

double difference(std::span<const double> actual, std::span<const double> expected) {
  double scale = 0, largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    scale = std::max(scale, std::fabs(expected[i]));
    const double d = std::fabs(actual[i] - expected[i]);
    largest = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(largest, d);
  }
  return largest == 0 ? 0 : largest / scale;
}

void must_agree(std::string_view what, std::span<const double> actual, std::span<const double> expected, double tolerance) {
  const double off = difference(actual, expected);
  if (!(off <= tolerance))
    throw std::runtime_error(fmt::format("{} is wrong: off by {:.2g} of its largest entry", what, off));
}

void must_solve(const DenseQp& qp, std::span<const double> x, std::span<const double> y, std::span<const double> z,
                double tolerance) {
  double primal = 0, primal_size = 0, dual = 0, dual_size = 0, sign = 0, gap = 0, gap_size = 0;
  Vector Qx(qp.n), Aty(qp.n), Gtz(qp.n);
  double xQx = 0, qx = 0, by = 0, hz = 0;
  for (std::size_t i = 0; i < qp.n; ++i) {
    for (std::size_t j = 0; j < qp.n; ++j) Qx[i] += qp.Q[i * qp.n + j] * x[j];
    xQx += x[i] * Qx[i];
    qx += qp.q[i] * x[i];
  }
  for (std::size_t i = 0; i < qp.m; ++i) {
    double value = 0;
    for (std::size_t j = 0; j < qp.n; ++j) value += qp.A[i * qp.n + j] * x[j], Aty[j] += qp.A[i * qp.n + j] * y[i];
    primal = std::max(primal, std::fabs(value - qp.b[i]));
    primal_size = std::max({primal_size, std::fabs(value), std::fabs(qp.b[i])});
    by += qp.b[i] * y[i];
  }
  for (std::size_t i = 0; i < qp.p; ++i) {
    double value = 0;
    for (std::size_t j = 0; j < qp.n; ++j) value += qp.G[i * qp.n + j] * x[j], Gtz[j] += qp.G[i * qp.n + j] * z[i];
    primal = std::max(primal, value - qp.h[i]);
    primal_size = std::max({primal_size, std::fabs(value), std::fabs(qp.h[i])});
    sign = std::max(sign, -z[i]);
    hz += qp.h[i] * z[i];
  }
  for (std::size_t j = 0; j < qp.n; ++j) {
    dual = std::max(dual, std::fabs(Qx[j] + qp.q[j] + Aty[j] + Gtz[j]));
    dual_size = std::max({dual_size, std::fabs(Qx[j]), std::fabs(qp.q[j]), std::fabs(Aty[j]), std::fabs(Gtz[j])});
  }
  gap = std::fabs(xQx + qx + by + hz);
  gap_size = std::max({std::fabs(xQx), std::fabs(qx), std::fabs(by), std::fabs(hz)});
  const double worst = std::max({primal / (1 + primal_size), dual / (1 + dual_size), gap / (1 + gap_size), sign});
  if (!(worst <= tolerance))
    throw std::runtime_error(fmt::format(
        "the solution of the quadratic program is wrong: primal {:.2g}, dual {:.2g}, gap {:.2g}", primal, dual, gap));
}

DescentReference descent_reference(const Logistic& data, double lambda, double alpha, int steps, std::span<const double> v) {
  const std::size_t n = data.n;
  Vector H(n * n), b(n), dH(n * n), db(n);
  for (std::size_t i = 0; i < data.N; ++i) {
    const double* const a = data.A.data() + i * n;
    for (std::size_t j = 0; j < n; ++j) {
      b[j] += data.w[i] * data.y[i] * a[j];
      db[j] += v[i] * data.y[i] * a[j];
      for (std::size_t k = 0; k < n; ++k) H[j * n + k] += data.w[i] * a[j] * a[k], dH[j * n + k] += v[i] * a[j] * a[k];
    }
  }
  for (std::size_t j = 0; j < n; ++j) H[j * n + j] += lambda;
  DescentReference at{Vector(n), Vector(n)};
  for (int step = 0; step < steps; ++step) {
    DescentReference next = at;
    for (std::size_t j = 0; j < n; ++j) {
      double g = -b[j], dg = -db[j];
      for (std::size_t k = 0; k < n; ++k) {
        g += H[j * n + k] * at.x[k];
        dg += H[j * n + k] * at.dx[k] + dH[j * n + k] * at.x[k];
      }
      next.x[j] -= alpha * g;
      next.dx[j] -= alpha * dg;
    }
    at = next;
  }
  return at;
}

NewtonReference newton_reference(const Logistic& data) {
  const Vector t = times_A(data, data.x);
  Vector slope(data.N), r(data.N), h(data.N), curvature(data.N);
  double value = 0;
  for (std::size_t j = 0; j < data.n; ++j) value += 0.5 * data.penalty(j) * data.x[j] * data.x[j];
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
  for (std::size_t j = 0; j < data.n; ++j) g[j] += data.penalty(j) * data.x[j];
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
