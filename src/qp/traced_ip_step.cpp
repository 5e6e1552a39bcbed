// Traces predictor and corrector by one factorisation.
#include "qp/traced_ip_step.h"

#include "onestep/diff.h"

namespace onestep::detail {
namespace {

constexpr double equality_shift = 1e-13;  // keeps dependent equalities from making K singular

// Controls as numbers.
Expr number(const Expr& control) { return reshape(control, {}); }

}  // namespace

TracedStep trace_ip_step(const TracedProgram& program, const Sizes& z, const Expr& w, std::span<const Expr> controls) {
  const std::vector<Expr> d = full_blocks(program, z);
  const Expr &Q = d[0], &q = d[1], &A = d[2], &b = d[3], &G = d[4];
  const std::int64_t n = z.n, m = z.m, p = z.p, all = 2 * p + 2 * n, at_s = n + m + p + n;
  const Expr x = slice(w, 0, n), y = slice(w, n, n + m), s = slice(w, at_s, at_s + all),
             l = slice(w, at_s + all, at_s + 2 * all);
  const std::int64_t at_weight = at_s + 2 * all, at_unit = at_weight + all, size = n + m;
  const Expr weight = stop_gradient(slice(w, at_weight, at_unit)), unit = stop_gradient(slice(w, at_unit, at_unit + size));
  const Expr bound = concat({d[6], -d[5], d[8], -d[7]});
  // A side that is not there has s = 1, λ = 0 and moves neither.
  const Expr has = stop_gradient(less(abs(bound), infinity)), h = where(has, bound, 0.0);
  const auto stack = [&](const Expr& v) {
    const Expr rows = matmul(G, v);
    return concat({rows, -rows, v, -v});
  };
  const auto rows_of = [&](const Expr& v) { return slice(v, 0, p) - slice(v, p, 2 * p); };
  const auto bounds_of = [&](const Expr& v) { return slice(v, 2 * p, 2 * p + n) - slice(v, 2 * p + n, all); };
  const auto stack_transposed = [&](const Expr& v) { return matmul(transpose(G), rows_of(v)) + bounds_of(v); };

  const Expr Qs = 0.5 * (Q + transpose(Q));
  const Expr r_dual = matmul(Qs, x) + q + matmul(transpose(A), y) + stack_transposed(l), r_equal = matmul(A, x) - b;
  const Expr r_side = where(has, stack(x) + s - h, 0.0), W = where(has, l / s, 0.0);
  const auto both = [&](const Expr& v, std::int64_t begin, std::int64_t count) {
    return slice(v, begin, begin + count) + slice(v, begin + count, begin + 2 * count);
  };
  const Expr H = Qs + gram(G, both(W, 0, p)) + diag(both(W, 2 * p, n));
  const Expr K = m == 0 ? H : concat({concat({H, transpose(A)}, 1), concat({A, zeros({m, m})}, 1)}, 0);
  const Expr in_units = K * (reshape(unit, {size, 1}) * reshape(unit, {1, size}));
  const Factor factor = ldlt(m == 0 ? in_units : in_units - equality_shift * diag(concat({zeros({n}), ones({m})})));
  const auto solve_factored = [&](const Expr& r) { return unit * solve(factor, unit * r); };
  const auto top_of = [&](const Expr& v) { return slice(v, 0, n); };
  const auto bottom_of = [&](const Expr& v) { return slice(v, n, n + m); };
  // Large weights cost the factor digits; the residual of the system as it stands, without them summed up, wins them back.
  const auto solve_refined = [&](const Expr& r) {
    const Expr v = solve_factored(r), vx = top_of(v);
    const Expr top = matmul(Qs, vx) + stack_transposed(W * stack(vx)) + matmul(transpose(A), bottom_of(v));
    return v + solve_factored(r - (m == 0 ? top : concat({top, matmul(A, vx)})));
  };
  struct Direction {
    Expr x, y, s, l;
  };
  const auto solve_for = [&](const Expr& target) {
    const Expr known = where(has, (l * r_side - target) / s, 0.0);
    const Expr top = -(r_dual + stack_transposed(known));
    const Expr both_parts = solve_refined(m == 0 ? top : concat({top, -r_equal}));
    const Expr dx = top_of(both_parts), ds = where(has, -(r_side + stack(dx)), 0.0);
    return Direction{dx, bottom_of(both_parts), ds, known + W * stack(dx)};
  };
  const Direction affine = solve_for(s * l);
  const Direction full =
      solve_for(s * l + number(controls[corrects]) * affine.s * affine.l - number(controls[barrier]) * weight);
  const Expr primal = number(controls[primal_length]), dual = number(controls[dual_length]);
  const Expr next_l = l + dual * full.l;
  const Expr next = concat({x + primal * full.x, y + dual * full.y, rows_of(next_l), bounds_of(next_l), s + primal * full.s,
                            next_l, weight, unit});
  const Expr objective = reshape(sum(x * (0.5 * matmul(Qs, x) + q)), {1});
  return {next, {concat({objective, r_dual, r_equal}), s, l, affine.s, affine.l, has, r_side, h}, {}};
}

}  // namespace onestep::detail
