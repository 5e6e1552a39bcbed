// The optimum of a traced quadratic program as the solution of one linear system, that of the constraints active at a point
// that is known to be near it. Its derivatives of every order are those of the solution map: this is the step that nested
// programs are differentiated through when more than first derivatives are wanted.
#include <limits>

#include "graph/graph.h"
#include "linear/vector.h"
#include "onestep/diff.h"
#include "qp/traced_program.h"

namespace onestep::detail {
namespace {

/// Which sides of low ≤ value ≤ high are active: where the multiplier, signed as upper minus lower, is larger than the
/// slack, each in its own unit. 1 or 0; no derivative.
struct Sides {
  Expr active, bound;
};

Sides active_sides(const Expr& value, const Expr& multiplier, const Expr& low, const Expr& high, const Expr& value_unit,
                   const Expr& multiplier_unit) {
  const Expr pull = multiplier * value_unit, weight = multiplier_unit;
  const Expr upper = less(weight * (high - value), pull) * less(abs(high), infinity),
             lower = less(weight * (value - low), -pull) * less(abs(low), infinity);
  const Expr fixed = stop_gradient(1.0 - maximum(less(low, high), less(high, low)));
  const Expr at_upper = stop_gradient(maximum(upper, fixed)), at_lower = stop_gradient(lower * (1.0 - at_upper));
  return {at_upper + at_lower, where(at_upper, high, 0.0) + where(at_lower, low, 0.0)};
}

Expr largest(const Expr& v) { return v.shape().size() == 0 ? Expr(0.0) : max(abs(v)); }

}  // namespace

Expr solve_active_set(const TracedProgram& program, const Sizes& z, const Expr& w) {
  const std::vector<Expr> d = full_blocks(program, z);
  const Expr &q = d[1], &A = d[2], &b = d[3], &G = d[4];
  const Expr Q = 0.5 * (d[0] + transpose(d[0]));
  const std::int64_t n = z.n, m = z.m, p = z.p;
  const auto fixed_part = [&](std::int64_t begin, std::int64_t end) { return stop_gradient(slice(w, begin, end)); };
  const Expr x = fixed_part(0, n), rows = fixed_part(n + m, n + m + p), bounds = fixed_part(n + m + p, n + m + p + n);
  const Expr Gx = stop_gradient(matmul(G, x));
  const Expr x_size = maximum(largest(x), std::numeric_limits<double>::min());
  const Expr dual_size =
      stop_gradient(maximum(maximum(largest(q), largest(matmul(Q, x))),
                            maximum(maximum(largest(bounds), largest(rows)), std::numeric_limits<double>::min())));
  const Sides at_bounds = active_sides(x, bounds, d[7], d[8], x_size, dual_size);
  const Expr held = at_bounds.active, loose = 1.0 - held;
  // Rows of held variables read x = bound, those of inactive constraints z = 0.
  const auto block = [&](const Expr& of_rows, const Expr& matrix) {
    return reshape(of_rows, {of_rows.shape()[0], 1}) * matrix;
  };
  std::vector<Expr> columns{block(loose, Q) + diag(held)};
  std::vector<Expr> right{where(held, at_bounds.bound, -q)};
  if (m > 0) columns.push_back(block(loose, transpose(A)));
  if (p > 0) columns.push_back(block(loose, transpose(G)));
  std::vector<Expr> all{concat(columns, 1)};
  if (m > 0) {
    std::vector<Expr> of_A{A, zeros({m, m})};
    if (p > 0) of_A.emplace_back(zeros({m, p}));
    all.push_back(concat(of_A, 1));
    right.push_back(b);
  }
  if (p > 0) {
    const Expr row_size = stop_gradient(max(abs(G), Axis{1}));
    const Sides at_rows = active_sides(Gx, rows, d[5], d[6], x_size * square(row_size), dual_size);
    std::vector<Expr> of_G{block(at_rows.active, G)};
    if (m > 0) of_G.emplace_back(zeros({p, m}));
    of_G.push_back(diag(1.0 - at_rows.active));
    all.push_back(concat(of_G, 1));
    right.push_back(at_rows.bound);
  }
  const Expr rhs = right.size() == 1 ? right[0] : concat(right), K = all.size() == 1 ? all[0] : concat(all, 0);
  const Expr v = solve(lu(K), rhs), vx = slice(v, 0, n);
  Expr gradient = matmul(Q, vx) + q;
  if (m > 0) gradient = gradient + matmul(transpose(A), slice(v, n, n + m));
  if (p > 0) gradient = gradient + matmul(transpose(G), slice(v, n + m, n + m + p));
  const Expr found = concat({v, -held * gradient});
  // Where the system is singular the point stays and has no derivative: that of a square root at 0.
  const Expr is_regular = stop_gradient(less(max(abs(found)), infinity));
  const Expr nothing = sum(rhs - stop_gradient(rhs)) + sum(matmul(Q, x) - stop_gradient(matmul(Q, x)));
  const Expr no_derivative = sqrt(where(is_regular, 1.0, nothing));
  return where(broadcast(is_regular, found.shape()), found, stop_gradient(w) + broadcast(no_derivative, found.shape()));
}

}  // namespace onestep::detail
