// Maps with kinks: lasso by proximal gradient steps and by coordinate descent, ADMM on lasso and on box-constrained
// quadratics. Their data are made from a solution whose distance to the nearest kink is chosen, 1e-12 to 1.
#include <algorithm>
#include <cmath>
#include <utility>

#include "certificate/problem.h"

namespace onestep::bench {
namespace {

// ½xᵀQx - (B t + q)ᵀx + λ|x|₁, or with -1 ≤ x ≤ 1 instead of the last term.
struct Sparse {
  std::size_t n, p;
  double L, lambda;
  Array Q, B, q, t;
  template <class X> X soft(const X& z, double by) const { return maximum(z - by, 0.0) - maximum(-z - by, 0.0); }
  template <class X> X right_side(const X& theta) const { return matmul(B, theta) + q; }
};

std::vector<double> times(const Array& M, std::span<const double> x) {
  const auto rows = static_cast<std::size_t>(M.shape()[0]);
  std::vector<double> y(rows);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < x.size(); ++j) y[i] += M.values()[i * x.size() + j] * x[j];
  return y;
}

Sparse sparse_problem(Random& random, bool box, double large_share = 0) {
  const std::size_t n = random_size(random, 24, large_share), p = 1 + random.below(8);
  const double condition = random.scale(1.5, 100), lambda = box ? 0 : random.scale(0.05, 1);
  std::vector<double> curvatures(n);
  for (double& e : curvatures) e = random.scale(1 / condition, 1);
  Sparse s{n, p, 1, lambda, symmetric_with(random, curvatures), random.matrix(n, p), Array(), random.vector(p)};
  // Half of the problems lie close to a kink in one entry.
  const double margin = random.chance(0.5) ? random.scale(1e-12, 1e-2) : random.uniform(0.1, 0.5);
  const std::size_t close = random.below(n);
  std::vector<double> x(n), slope(n);  // slope: of the term with kinks
  for (std::size_t i = 0; i < n; ++i) {
    const double sign = random.chance(0.5) ? 1 : -1;
    const double apart = i == close ? margin : random.uniform(0.1, 0.9);
    const bool at_kink = random.chance(0.5);
    if (box) {
      x[i] = sign * (at_kink ? 1 : 1 - apart);
      slope[i] = at_kink ? sign * apart : 0;
    } else {
      x[i] = at_kink ? 0 : sign * apart;
      slope[i] = lambda * (at_kink ? sign * (1 - apart) : sign);
    }
  }
  const std::vector<double> Qx = times(s.Q, x), Bt = times(s.B, s.t.values());
  std::vector<double> q(n);
  for (std::size_t i = 0; i < n; ++i) q[i] = Qx[i] + slope[i] - Bt[i];
  s.q = array_of(q);
  return s;
}

Problem kinked(Problem p) {
  p.family = Family::kinked_map;
  return p;
}

Problem proximal_gradient(Random& random) {
  const Sparse s = sparse_problem(random, false, 0.02);
  const double alpha = random.uniform(0.5, 1.0);
  return kinked(map_problem(
      "proximal gradient steps on lasso",
      [=](auto x, auto t) { return s.soft(x - alpha * (matmul(s.Q, x) - s.right_side(t)), alpha * s.lambda); },
      random.vector(s.n), s.t));
}

Problem lasso_sweep(Random& random) {
  Sparse s = sparse_problem(random, false);
  while (s.n < 2 || s.n > 12) s = sparse_problem(random, false);
  return kinked(map_problem(
      "cyclic coordinate descent on lasso",
      [=](auto x, auto t) {
        const auto n = as_size(s.n);
        const auto right = s.right_side(t);
        for (std::int64_t i = 0; i < n; ++i) {
          const auto from = s.Q.values().begin() + i * n;
          const Array row(Shape{n}, std::vector<double>(from, from + n));
          const double own = row(i);
          auto now = slice(x, i, i + 1);
          auto moved = s.soft(now - (matmul(row, x) - slice(right, i, i + 1)) * (1 / own), s.lambda / own);
          auto next = i == 0 ? moved : join(slice(x, 0, i), moved);
          x = i + 1 == n ? next : join(next, slice(x, i + 1, n));
        }
        return x;
      },
      random.vector(s.n), s.t));
}

// (Q + ρI)⁻¹, as data of the map: the truth uses the same numbers.
Array shifted_inverse(const Array& Q, double rho, std::size_t n) {
  RealMatrix M(n, n), unit(n, n);
  for (std::size_t i = 0; i < n * n; ++i) M.entries[i] = Q.values()[i];
  for (std::size_t i = 0; i < n; ++i) M(i, i) += rho, unit(i, i) = 1;
  const RealMatrix inverse = solve_dense(M, unit).value();
  return Array(Shape{as_size(n), as_size(n)}, std::vector<double>(inverse.entries.begin(), inverse.entries.end()));
}

// The state is (z, u), or (x, z, u) with x as a read-out.
Problem admm(Random& random, bool box) {
  const Sparse s = sparse_problem(random, box);
  const double rho = random.scale(0.1, 3);
  const Array M = shifted_inverse(s.Q, rho, s.n);
  const bool read_out = random.chance(0.5);
  const auto n = as_size(s.n);
  return kinked(map_problem(
      box ? "ADMM on a quadratic in a box" : "ADMM on lasso",
      [=](auto state, auto t) {
        const std::int64_t from = read_out ? n : 0;
        const auto z = slice(state, from, from + n), u = slice(state, from + n, from + 2 * n);
        const auto x = matmul(M, s.right_side(t) + rho * (z - u));
        const auto next = box ? minimum(maximum(x + u, -1.0), 1.0) : s.soft(x + u, s.lambda / rho);
        const auto both = join(next, u + x - next);
        return read_out ? join(x, both) : both;
      },
      random.vector((read_out ? 3 : 2) * s.n), s.t));
}
Problem admm_lasso(Random& random) { return admm(random, false); }
Problem admm_box(Random& random) { return admm(random, true); }

}  // namespace

std::vector<ProblemClass> kinked_classes() {
  return {{"lasso proximal", 1, proximal_gradient},
          {"lasso coordinates", 0.7, lasso_sweep},
          {"admm lasso", 1, admm_lasso},
          {"admm box", 1, admm_box}};
}

}  // namespace onestep::bench
