// Dense linear algebra in long double: LU, singular values, spectral radius, and Newton's method for roots.
#include "certificate/truth.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace onestep::bench {
namespace {

constexpr Real epsilon = std::numeric_limits<Real>::epsilon();

// LU with partial pivoting, in place; false where a pivot vanishes.
bool factor(RealMatrix& m, std::vector<std::size_t>& order) {
  const std::size_t n = m.rows;
  order.resize(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = i;
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t best = k;
    for (std::size_t i = k + 1; i < n; ++i)
      if (std::fabs(m(i, k)) > std::fabs(m(best, k))) best = i;
    if (!(std::fabs(m(best, k)) > 0)) return false;
    if (best != k) {
      std::swap(order[k], order[best]);
      for (std::size_t j = 0; j < n; ++j) std::swap(m(k, j), m(best, j));
    }
    for (std::size_t i = k + 1; i < n; ++i) {
      const Real l = m(i, k) / m(k, k);
      m(i, k) = l;
      if (l == 0) continue;
      for (std::size_t j = k + 1; j < n; ++j) m(i, j) -= l * m(k, j);
    }
  }
  return true;
}

RealMatrix back_solve(const RealMatrix& lu, const std::vector<std::size_t>& order, const RealMatrix& b) {
  const std::size_t n = lu.rows;
  RealMatrix x(n, b.columns);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t c = 0; c < b.columns; ++c) x(i, c) = b(order[i], c);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t k = 0; k < i; ++k)
      for (std::size_t c = 0; c < b.columns; ++c) x(i, c) -= lu(i, k) * x(k, c);
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k)
      for (std::size_t c = 0; c < b.columns; ++c) x(i, c) -= lu(i, k) * x(k, c);
    for (std::size_t c = 0; c < b.columns; ++c) x(i, c) /= lu(i, i);
  }
  return x;
}

RealMatrix column(const std::vector<Real>& v) {
  RealMatrix result(v.size(), 1);
  result.entries = v;
  return result;
}

bool all_finite(const std::vector<Real>& v) {
  return std::ranges::all_of(v, [](Real e) { return std::isfinite(e); });
}

// M = I - A, or nothing to say where the solver iterates no map.
RealMatrix map_derivative(const RealMatrix& by_x) {
  RealMatrix A = by_x;
  for (Real& e : A.entries) e = -e;
  for (std::size_t i = 0; i < A.rows; ++i) A(i, i) += 1;
  return A;
}

}  // namespace

Real norm_of(std::span<const Real> v) {
  Real total = 0;
  for (const Real e : v) total += e * e;
  return std::sqrt(total);
}

std::optional<RealMatrix> solve_dense(const RealMatrix& M, const RealMatrix& B, Real* condition) {
  RealMatrix lu = M;
  std::vector<std::size_t> order;
  if (!factor(lu, order)) return std::nullopt;
  RealMatrix x = back_solve(lu, order, B);
  RealMatrix residual = B;
  for (std::size_t i = 0; i < M.rows; ++i)
    for (std::size_t k = 0; k < M.columns; ++k)
      for (std::size_t c = 0; c < B.columns; ++c) residual(i, c) -= M(i, k) * x(k, c);
  const RealMatrix correction = back_solve(lu, order, residual);
  for (std::size_t i = 0; i < x.entries.size(); ++i) x.entries[i] += correction.entries[i];
  if (!all_finite(x.entries)) return std::nullopt;
  if (condition != nullptr) {
    RealMatrix unit(M.rows, M.rows);
    for (std::size_t i = 0; i < M.rows; ++i) unit(i, i) = 1;
    *condition = norm_of(M.entries) * norm_of(back_solve(lu, order, unit).entries);
  }
  return x;
}

double spectral_norm(const RealMatrix& A) {
  std::vector<Real> v(A.columns), w(A.rows);
  for (std::size_t j = 0; j < v.size(); ++j) v[j] = std::cos(static_cast<Real>(3 * j * j + j + 1));
  Real result = 0;
  for (int i = 0; i < 200; ++i) {
    const Real size = norm_of(v);
    if (!(size > 0)) return 0;
    for (Real& e : v) e /= size;
    std::ranges::fill(w, Real(0));
    for (std::size_t r = 0; r < A.rows; ++r)
      for (std::size_t c = 0; c < A.columns; ++c) w[r] += A(r, c) * v[c];
    const Real next = norm_of(w);
    std::ranges::fill(v, Real(0));
    for (std::size_t r = 0; r < A.rows; ++r)
      for (std::size_t c = 0; c < A.columns; ++c) v[c] += A(r, c) * w[r];
    const bool settled = std::fabs(next - result) <= Real(1e-6) * next;
    result = next;
    if (i > 10 && settled) break;
  }
  return static_cast<double>(result);
}

double spectral_radius(const RealMatrix& A) {
  const std::size_t n = A.rows;
  if (n == 0) return 0;
  std::vector<double> power(n * n), next(n * n);
  for (std::size_t i = 0; i < power.size(); ++i) power[i] = static_cast<double>(A.entries[i]);
  double log_norm = 0;  // of A^(2^k), whose entries are scaled to norm 1
  const int squarings = 9;
  for (int k = 0; k <= squarings; ++k) {
    double size = 0;
    for (const double e : power) size += e * e;
    size = std::sqrt(size);
    if (!(size > 0)) return 0;
    for (double& e : power) e /= size;
    log_norm += std::log(size);
    if (k == squarings) break;
    std::ranges::fill(next, 0.0);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t l = 0; l < n; ++l)
        for (std::size_t j = 0; j < n; ++j) next[i * n + j] += power[i * n + l] * power[l * n + j];
    std::swap(power, next);
    log_norm *= 2;
  }
  return std::exp(log_norm / (1 << squarings));
}

std::optional<RealMatrix> derivative_at(const RootFunctions& f, const std::vector<Real>& x, const std::vector<Real>& theta,
                                        Real* condition) {
  RealMatrix right = f.by_theta(x, theta);
  for (Real& e : right.entries) e = -e;
  return solve_dense(f.by_x(x, theta), right, condition);
}

Truth find_root(const RootFunctions& f, std::vector<Real> x, const std::vector<Real>& theta) {
  Truth truth;
  if (f.step) {
    for (int i = 0; i < 300; ++i) {
      std::vector<Real> next = f.step(x, theta);
      if (!all_finite(next)) return truth;
      Real moved = 0;
      for (std::size_t j = 0; j < x.size(); ++j) moved = std::max(moved, std::fabs(next[j] - x[j]));
      x = std::move(next);
      if (moved <= Real(1e-12) * norm_of(x)) break;
    }
  }
  Real before = std::numeric_limits<Real>::infinity();
  for (int i = 0; i < 60; ++i) {
    const std::vector<Real> r = f.residual(x, theta);
    if (!all_finite(r)) return truth;
    Real condition = 0;
    const std::optional<RealMatrix> step = solve_dense(f.by_x(x, theta), column(r), i == 0 ? nullptr : &condition);
    if (!step) return truth;
    const Real moved = norm_of(step->entries), size = norm_of(x);
    // A step as long as rounding makes them, and no shorter than the last: the rounding level.
    const bool rounding = i > 0 && moved <= Real(64) * epsilon * condition * size && moved >= before / 4;
    if (moved <= 4 * epsilon * size || rounding) {
      truth.reliable = true;
      truth.condition = condition;
      break;
    }
    // Halved while the residual does not fall, as far from the solution Newton's method needs.
    Real length = 1;
    std::vector<Real> trial = x;
    const Real level = norm_of(r);
    for (int halving = 0; halving < 30; ++halving, length /= 2) {
      for (std::size_t j = 0; j < x.size(); ++j) trial[j] = x[j] - length * step->entries[j];
      const std::vector<Real> there = f.residual(trial, theta);
      if (all_finite(there) && (norm_of(there) < level || moved <= Real(1e-8) * size)) break;
    }
    x = trial;
    before = moved;
  }
  if (!truth.reliable) return truth;
  truth.x = x;
  const std::optional<RealMatrix> J = derivative_at(f, x, theta, &truth.condition);
  if (!J || truth.condition > Real(1e16)) {
    truth.reliable = false;
    return truth;
  }
  truth.J = *J;
  // By rounding of ∂R/∂x, which the elimination enlarges by the condition, and by what the last step would change.
  truth.uncertain = epsilon * truth.condition * norm_of(J->entries);
  const RealMatrix by_x = f.by_x(x, theta);
  if (const std::optional<RealMatrix> last = solve_dense(by_x, column(f.residual(x, theta)))) {
    std::vector<Real> beside = x;
    for (std::size_t j = 0; j < x.size(); ++j) beside[j] -= last->entries[j] * 2;
    if (const std::optional<RealMatrix> other = derivative_at(f, beside, theta)) {
      Real change = 0;
      for (std::size_t i = 0; i < J->entries.size(); ++i)
        change = std::max(change, std::fabs(other->entries[i] - J->entries[i]));
      truth.uncertain += change;
    }
  }
  if (f.step) {
    const RealMatrix A = map_derivative(by_x);
    truth.norm = spectral_norm(A);
    truth.radius = std::min(spectral_radius(A), truth.norm);
  }
  return truth;
}

}  // namespace onestep::bench
