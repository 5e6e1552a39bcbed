// Quadratic and linear programs made backwards from their solution, multipliers and slacks, the smallest of which is chosen
// between 1e-12 and 1e-2. The active set is known, so the truth is one KKT system in long double.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "certificate/problem.h"

namespace onestep::bench {
namespace {

enum class Redundant { none, inactive_row, active_row, equality };

// min ½xᵀ(Q + sQ₁)x + qᵀx, Ax = b, (G + sG₁)x ≤ u, x ≥ lo, with θ = (q, b, u, s), s = 0; or θ = q alone.
struct Program {
  std::size_t n = 0, m = 0, p = 0;
  std::vector<double> Q, Q1, A, G, G1, q, b, u, lo;
  std::vector<std::size_t> rows, bounds;  // that hold with equality, each needed
  std::vector<std::size_t> equalities;    // that are needed
  bool only_q = false;

  std::size_t parameters() const { return only_q ? n : n + m + p + 1; }
};

Array matrix_array(const std::vector<double>& v, std::size_t rows, std::size_t columns) {
  return Array(Shape{as_size(rows), as_size(columns)}, v);
}

double row_times(const std::vector<double>& M, std::size_t row, const std::vector<double>& x) {
  double total = 0;
  for (std::size_t j = 0; j < x.size(); ++j) total += M[row * x.size() + j] * x[j];
  return total;
}

Program random_program(Random& random, bool linear, double margin, Redundant redundant) {
  Program P;
  P.n = 2 + random.below(random.chance(0.05) ? 60 : 12);
  const std::size_t n = P.n;
  P.m = random.below(n / 2 + 1);
  if (redundant == Redundant::equality) P.m = std::max<std::size_t>(P.m, 1);
  std::size_t active = linear ? n - P.m : random.below(n - P.m + 1);
  const std::size_t at_bounds = active > 1 && random.chance(0.5) ? random.below(active) : 0;
  std::size_t active_rows = active - at_bounds;
  if (redundant == Redundant::active_row && active_rows == 0) active_rows = 1, active = std::max<std::size_t>(active, 1);
  P.p = active_rows + 1 + random.below(n);
  const std::vector<double> x = random.gaussians(n);
  P.A = random.gaussians(P.m * n);
  P.G = random.gaussians(P.p * n);
  P.Q.assign(n * n, 0);
  if (!linear) {
    std::vector<double> curvatures(n);
    for (double& e : curvatures) e = random.scale(0.05, 5);
    const Array Q = symmetric_with(random, curvatures);
    P.Q.assign(Q.values().begin(), Q.values().end());
  }
  // The smallest of all multipliers and slacks is `margin`; where it is, is random.
  std::vector<double> z(P.p), w(n), y = random.gaussians(P.m);
  P.u.resize(P.p);
  P.lo.assign(n, -10);
  const std::size_t smallest = random.below(P.p);
  for (std::size_t i = 0; i < P.p; ++i) {
    const double size = i == smallest ? margin : random.uniform(0.2, 1);
    P.u[i] = row_times(P.G, i, x);
    if (i < active_rows)
      z[i] = size, P.rows.push_back(i);
    else
      P.u[i] += size;
  }
  for (std::size_t j = 0; j < at_bounds; ++j) P.lo[j] = x[j], w[j] = -random.uniform(0.2, 1), P.bounds.push_back(j);
  for (std::size_t i = 0; i < P.m; ++i) P.b.push_back(row_times(P.A, i, x)), P.equalities.push_back(i);
  P.q.resize(n);
  for (std::size_t j = 0; j < n; ++j) {
    double total = row_times(P.Q, j, x) + w[j];
    for (std::size_t i = 0; i < P.m; ++i) total += P.A[i * n + j] * y[i];
    for (std::size_t i = 0; i < P.p; ++i) total += P.G[i * n + j] * z[i];
    P.q[j] = -total;
  }
  // A row more that follows from the others.
  const auto copy_row = [n](std::vector<double>& M, std::size_t from, double factor) {
    for (std::size_t j = 0; j < n; ++j) M.push_back(factor * M[from * n + j]);
  };
  if (redundant == Redundant::inactive_row && P.p > 1) {
    for (std::size_t j = 0; j < n; ++j) P.G.push_back(P.G[j] + P.G[n + j]);
    P.u.push_back(P.u[0] + P.u[1] + random.uniform(0.1, 1));
    ++P.p;
  } else if (redundant == Redundant::active_row) {
    // By a power of two, so that rounding does not make one of them redundant and the other not.
    copy_row(P.G, 0, 2);
    P.u.push_back(2 * P.u[0]);
    ++P.p;
    P.only_q = true;
  } else if (redundant == Redundant::equality) {
    copy_row(P.A, 0, -0.5);
    P.b.push_back(-0.5 * P.b[0]);
    ++P.m;
    P.only_q = true;
  }
  P.Q1.assign(n * n, 0);
  if (!linear)
    for (std::size_t i = 0; i < n; ++i) P.Q1[i * n + i] = random.uniform(0, 1);
  P.G1 = random.gaussians(P.p * n, 0.3);
  return P;
}

// The KKT system of the active set, x̄ from it, and J in the order x, y, z, multipliers of the bounds.
Truth program_truth(const Program& P) {
  const std::size_t n = P.n, e = P.equalities.size(), r = P.rows.size(), size = n + e + r + P.bounds.size();
  RealMatrix K(size, size), right(size, 1);
  for (std::size_t i = 0; i < n * n; ++i) K(i / n, i % n) = P.Q[i];
  for (std::size_t i = 0; i < n; ++i) right(i, 0) = -static_cast<Real>(P.q[i]);
  const auto constraint = [&](std::size_t at, const double* row, double value) {
    for (std::size_t j = 0; j < n; ++j) K(at, j) = K(j, at) = row[j];
    right(at, 0) = value;
  };
  for (std::size_t i = 0; i < e; ++i) constraint(n + i, P.A.data() + P.equalities[i] * n, P.b[P.equalities[i]]);
  for (std::size_t i = 0; i < r; ++i) constraint(n + e + i, P.G.data() + P.rows[i] * n, P.u[P.rows[i]]);
  for (std::size_t i = 0; i < P.bounds.size(); ++i) {
    K(n + e + r + i, P.bounds[i]) = K(P.bounds[i], n + e + r + i) = 1;
    right(n + e + r + i, 0) = P.lo[P.bounds[i]];
  }
  Truth truth;
  const std::optional<RealMatrix> point = solve_dense(K, right, &truth.condition);
  if (!point || truth.condition > Real(1e13)) return truth;
  // Rounding of the data may have made another set active where the margin is small.
  for (std::size_t i = 0; i < r; ++i)
    if (!((*point)(n + e + i, 0) > 0)) return truth;
  for (std::size_t i = 0; i < P.p; ++i) {
    if (std::ranges::find(P.rows, i) != P.rows.end()) continue;
    Real value = P.u[i], size_of_terms = std::fabs(value);
    for (std::size_t j = 0; j < n; ++j)
      value -= P.G[i * n + j] * (*point)(j, 0), size_of_terms += std::fabs(P.G[i * n + j] * (*point)(j, 0));
    const bool copy_of_active = P.only_q && i + 1 == P.p && value > Real(-1e-17) * size_of_terms;
    if (!(value > 0) && !copy_of_active) return truth;
  }
  const std::size_t parameters = P.parameters(), states = n + P.m + P.p + n;
  RealMatrix moved(size, parameters);
  for (std::size_t i = 0; i < n; ++i) moved(i, i) = -1;
  if (!P.only_q) {
    for (std::size_t i = 0; i < e; ++i) moved(n + i, n + P.equalities[i]) = 1;
    for (std::size_t i = 0; i < r; ++i) moved(n + e + i, n + P.m + P.rows[i]) = 1;
    for (std::size_t i = 0; i < n; ++i) {
      Real total = 0;
      for (std::size_t j = 0; j < n; ++j) total += P.Q1[i * n + j] * (*point)(j, 0);
      for (std::size_t k = 0; k < r; ++k) total += P.G1[P.rows[k] * n + i] * (*point)(n + e + k, 0);
      moved(i, parameters - 1) = -total;
    }
    for (std::size_t k = 0; k < r; ++k)
      for (std::size_t j = 0; j < n; ++j) moved(n + e + k, parameters - 1) -= P.G1[P.rows[k] * n + j] * (*point)(j, 0);
  }
  const std::optional<RealMatrix> derivative = solve_dense(K, moved);
  if (!derivative) return truth;
  truth.x.assign(states, 0);
  truth.J = RealMatrix(states, parameters);
  const auto place = [&](std::size_t from, std::size_t to) {
    truth.x[to] = (*point)(from, 0);
    for (std::size_t j = 0; j < parameters; ++j) truth.J(to, j) = (*derivative)(from, j);
  };
  for (std::size_t i = 0; i < n; ++i) place(i, i);
  for (std::size_t i = 0; i < e; ++i) place(n + i, n + P.equalities[i]);
  for (std::size_t i = 0; i < r; ++i) place(n + e + i, n + P.m + P.rows[i]);
  for (std::size_t i = 0; i < P.bounds.size(); ++i) place(n + e + r + i, n + P.m + P.p + P.bounds[i]);
  truth.uncertain = std::numeric_limits<Real>::epsilon() * truth.condition * norm_of(truth.J.entries);
  truth.reliable = true;
  return truth;
}

Problem program_problem(std::string text, const Program& P, double margin) {
  Problem problem;
  problem.text = std::move(text);
  // Below this the active set is decided by digits that a solve to 1e-6 does not have.
  problem.family = margin >= 1e-3 ? Family::program : Family::degenerate_program;
  problem.has_start = false;
  problem.max_iterations = 200;
  if (P.only_q) problem.visible = P.n;
  std::vector<double> theta = P.q;
  if (!P.only_q) {
    theta.insert(theta.end(), P.b.begin(), P.b.end());
    theta.insert(theta.end(), P.u.begin(), P.u.end());
    theta.push_back(0);
  }
  problem.theta = array_of(theta);
  problem.start = zeros(P.n + P.m + P.p + P.n);
  problem.solver = [P](const SolveOptions& options) {
    return quadratic_program(
        [P](Expr t) {
          const auto n = as_size(P.n), m = as_size(P.m), p = as_size(P.p);
          TracedProgram program{.Q = matrix_array(P.Q, P.n, P.n),
                                .q = slice(t, 0, n),
                                .G = matrix_array(P.G, P.p, P.n),
                                .u = array_of(P.u),
                                .lo = array_of(P.lo)};
          if (P.m > 0) program.A = matrix_array(P.A, P.m, P.n), program.b = array_of(P.b);
          if (P.only_q) return program;
          const Expr s = reshape(slice(t, n + m + p, n + m + p + 1), {});
          program.Q = program.Q + s * matrix_array(P.Q1, P.n, P.n);
          program.G = program.G + s * matrix_array(P.G1, P.p, P.n);
          if (P.m > 0) program.b = slice(t, n, n + m);
          program.u = slice(t, n + m, n + m + p);
          return program;
        },
        options);
  };
  problem.truth = [P](const std::vector<Real>&) { return program_truth(P); };
  return problem;
}

double random_margin(Random& random) { return random.scale(1e-12, 1e-2); }

Problem quadratic(Random& random) {
  const double margin = random.chance(0.5) ? random_margin(random) : 0.2;
  return program_problem(fmt::format("quadratic program, smallest multiplier or slack {:.1e}", margin),
                         random_program(random, false, margin, Redundant::none), margin);
}
Problem linear(Random& random) {
  const double margin = random.chance(0.5) ? random_margin(random) : 0.2;
  return program_problem(fmt::format("linear program, smallest multiplier or slack {:.1e}", margin),
                         random_program(random, true, margin, Redundant::none), margin);
}
Problem redundant(Random& random) {
  const double margin = random.scale(1e-6, 0.2);
  const auto how = static_cast<Redundant>(1 + random.below(3));
  const char* const text = how == Redundant::inactive_row ? "a row that follows"
                           : how == Redundant::active_row ? "an active row twice"
                                                          : "an equality twice";
  Problem p = program_problem(fmt::format("quadratic program with {}, smallest multiplier or slack {:.1e}", text, margin),
                              random_program(random, false, margin, how), margin);
  if (how != Redundant::inactive_row) p.family = Family::degenerate_program;
  return p;
}

}  // namespace

std::vector<ProblemClass> program_classes() {
  return {{"quadratic program", 2, quadratic}, {"linear program", 1, linear}, {"redundant rows", 1, redundant}};
}

}  // namespace onestep::bench
