// Quadratic programs for tests, and what it means to solve one, computed without any code of the solver.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "qp/interior_point.h"
#include "support/random.h"

namespace onestep::test {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// A quadratic program that owns its entries.
struct Qp {
  std::size_t n = 0, m = 0, p = 0;
  std::vector<double> Q, q, A, b, G, l, u, lo, hi;
  double constant = 0;

  Qp(std::size_t variables, std::size_t equalities, std::size_t inequalities)
      : n(variables),
        m(equalities),
        p(inequalities),
        Q(n * n),
        q(n),
        A(m * n),
        b(m),
        G(p * n),
        l(p, -infinity),
        u(p, infinity),
        lo(n, -infinity),
        hi(n, infinity) {}

  detail::QpData data() const {
    return {n, m, p, Q.data(), q.data(), A.data(), b.data(), G.data(), l.data(), u.data(), lo.data(), hi.data(), constant};
  }
};

/// Strictly convex where `rank` = n, feasible by construction, with a mix of one-sided, two-sided and free rows and bounds.
inline Qp random_qp(Random& random, std::size_t n, std::size_t m, std::size_t p, std::size_t rank, bool bounds) {
  Qp qp(n, m, p);
  const auto fill = [&](std::vector<double>& v) {
    for (double& x : v) x = random.uniform(-1, 1);
  };
  std::vector<double> factor(rank * n), point(n);
  fill(factor);
  fill(point);
  fill(qp.q);
  fill(qp.A);
  fill(qp.G);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t k = 0; k < rank; ++k) qp.Q[i * n + j] += factor[k * n + i] * factor[k * n + j];
    if (rank == n) qp.Q[i * n + i] += 0.1;
  }
  const auto row_value = [&](const std::vector<double>& matrix, std::size_t i) {
    double sum = 0;
    for (std::size_t j = 0; j < n; ++j) sum += matrix[i * n + j] * point[j];
    return sum;
  };
  for (std::size_t i = 0; i < m; ++i) qp.b[i] = row_value(qp.A, i);
  const auto limits = [&](double value, double& low, double& high) {
    const std::int64_t kind = random.integer(0, 4);
    if (kind != 1 && kind != 4) low = value - (random.flip() ? 0.0 : random.uniform(0, 1));
    if (kind != 2 && kind != 4) high = value + random.uniform(0.01, 1);
  };
  for (std::size_t i = 0; i < p; ++i) limits(row_value(qp.G, i), qp.l[i], qp.u[i]);
  for (std::size_t j = 0; bounds && j < n; ++j) limits(point[j], qp.lo[j], qp.hi[j]);
  return qp;
}

/// Absolute and relative residuals as the solver's header defines them.
struct Optimality {
  double primal = 0, dual = 0, gap = 0, relative_primal = 0, relative_dual = 0, relative_gap = 0;
  double worst() const { return std::max({primal, dual, gap}); }
  double worst_relative() const { return std::max({relative_primal, relative_dual, relative_gap}); }
};

inline Optimality optimality(const Qp& qp, const detail::QpSolution& s) {
  const std::size_t n = qp.n;
  long double xQx = 0, qx = 0, by = 0, rows = 0, bounds = 0;
  double primal = 0, primal_terms = 0, dual = 0, dual_terms = 0;
  bool wrong_sign = false;
  const auto constrain = [&](long double value, double multiplier, double low, double high, long double& sum) {
    const double v = static_cast<double>(value);
    primal = std::max({primal, low - v, v - high});
    primal_terms = std::max(
        {primal_terms, std::fabs(v), std::isfinite(low) ? std::fabs(low) : 0, std::isfinite(high) ? std::fabs(high) : 0});
    const double bound = multiplier > 0 ? high : low;
    if (multiplier == 0) return;
    wrong_sign = wrong_sign || !std::isfinite(bound);
    sum += static_cast<long double>(bound) * multiplier;
  };
  std::vector<long double> Qx(n), Ay(n), Gz(n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) Qx[i] += static_cast<long double>(qp.Q[i * n + j]) * s.x[j];
  const auto block = [&](const std::vector<double>& matrix, std::size_t count, std::span<const double> multipliers,
                         const std::vector<double>& low, const std::vector<double>& high, std::vector<long double>& sum,
                         long double& support) {
    for (std::size_t i = 0; i < count; ++i) {
      long double value = 0;
      for (std::size_t j = 0; j < n; ++j) {
        value += static_cast<long double>(matrix[i * n + j]) * s.x[j];
        sum[j] += static_cast<long double>(matrix[i * n + j]) * multipliers[i];
      }
      constrain(value, multipliers[i], low[i], high[i], support);
    }
  };
  block(qp.A, qp.m, s.y, qp.b, qp.b, Ay, by);
  block(qp.G, qp.p, s.z, qp.l, qp.u, Gz, rows);
  for (std::size_t j = 0; j < n; ++j) {
    constrain(s.x[j], s.bound_multipliers[j], qp.lo[j], qp.hi[j], bounds);
    xQx += Qx[j] * s.x[j];
    qx += static_cast<long double>(qp.q[j]) * s.x[j];
    dual = std::max(dual, static_cast<double>(fabsl(Qx[j] + qp.q[j] + Ay[j] + Gz[j] + s.bound_multipliers[j])));
    for (const long double term :
         {Qx[j], static_cast<long double>(qp.q[j]), Ay[j], Gz[j], static_cast<long double>(s.bound_multipliers[j])})
      dual_terms = std::max(dual_terms, static_cast<double>(fabsl(term)));
  }
  const double gap = wrong_sign ? infinity : static_cast<double>(fabsl(xQx + qx + by + rows + bounds));
  const double gap_terms = static_cast<double>(std::max({fabsl(xQx), fabsl(qx), fabsl(by), fabsl(rows), fabsl(bounds)}));
  return {primal, dual, gap, primal / (1 + primal_terms), dual / (1 + dual_terms), gap / (1 + gap_terms)};
}

}  // namespace onestep::test
