// The rules. Each is a few lines that look at one node and its arguments; tests/graph/rewrite_test.cpp has a property test
// for each, in the same order. The value of a rewritten expression is that of the original up to rounding. x · 0 is not
// rewritten: it would turn a NaN into a number.
#include "graph/rewrite.h"

#include <cmath>

namespace onestep {
namespace {

using Maybe = std::optional<Expr>;

Expr column(const Expr& d, const Shape& to) { return broadcast(reshape(d, {d.shape()[0], 1}), to); }
Expr as_vector(const Expr& e) { return reshape(e, {e.shape().size()}); }

// A factor that is the same all over (a number), along each row, or along each column of what it multiplies.
enum class Scale { none, number, by_row, by_column };
Scale scale_kind(const Expr& e) {
  if (e.shape().rank() == 0 || literal(e)) return Scale::number;
  if (!is(e, Op::broadcast)) return Scale::none;
  const Shape from = arg(e, 0).shape(), to = e.shape();
  if (from.size() == 1) return Scale::number;
  if (to.rank() == 2 && from == Shape{to[0], 1}) return Scale::by_row;
  if (to.rank() == 2 && (from == Shape{to[1]} || from == Shape{1, to[1]})) return Scale::by_column;
  return Scale::none;
}
// The factor itself as a vector with an entry for each row (or column), numbers repeated.
Expr scale_vector(const Expr& e, std::int64_t n) {
  if (const auto value = literal(e)) return broadcast(*value, {n});
  const Expr from = e.shape().rank() == 0 ? e : arg(e, 0);
  return from.shape().size() == 1 ? broadcast(reshape(from, {}), {n}) : as_vector(from);
}

struct Scaled {
  Expr d;  // a vector
  Expr matrix;
};
// e = diag(d) · matrix  (or matrix · diag(d) for by_column); d = 1 when there is no factor.
Scaled split_scale(const Expr& e, Scale kind) {
  const std::int64_t n = e.shape()[kind == Scale::by_row ? 0 : 1];
  if (is(e, Op::mul)) {
    const Scale found = scale_kind(arg(e, 0));
    if (found == kind || found == Scale::number) return {scale_vector(arg(e, 0), n), arg(e, 1)};
  }
  return {broadcast(1.0, {n}), e};
}

bool is_identity(const Expr& e) { return is(e, Op::eye) && node(e).attr.i == 0 && e.shape()[0] == e.shape()[1]; }
// The diagonal of a matrix kept as a diagonal.
Maybe diagonal_of(const Expr& e) {
  if (is(e, Op::diag)) return arg(e, 0);
  if (is_identity(e)) return broadcast(1.0, {e.shape()[0]});
  return std::nullopt;
}

// The two walks below look through sums only, and no deeper than this, so that construction stays linear.
constexpr int look_depth = 6;

// Products with it cost less than forming it.
bool is_implicit(const Expr& e, int depth = look_depth) {
  if (depth == 0) return false;
  if (is(e, Op::outer) || is(e, Op::diag) || is(e, Op::gram) || is_identity(e)) return true;
  if (is(e, Op::add) || is(e, Op::sub)) return is_implicit(arg(e, 0), depth - 1) && is_implicit(arg(e, 1), depth - 1);
  if (is(e, Op::neg)) return is_implicit(arg(e, 0), depth - 1);
  if (is(e, Op::mul)) return scale_kind(arg(e, 0)) == Scale::number && is_implicit(arg(e, 1), depth - 1);
  return false;
}
bool is_symmetric(const Expr& e, int depth = look_depth) {
  if (depth == 0 || e.shape().rank() != 2) return false;
  if (is(e, Op::diag) || is(e, Op::gram) || is_identity(e)) return true;
  if (is(e, Op::outer)) return same(arg(e, 0), arg(e, 1));
  if (is(e, Op::add) || is(e, Op::sub)) return is_symmetric(arg(e, 0), depth - 1) && is_symmetric(arg(e, 1), depth - 1);
  if (is(e, Op::neg)) return is_symmetric(arg(e, 0), depth - 1);
  if (is(e, Op::mul)) return scale_kind(arg(e, 0)) == Scale::number && is_symmetric(arg(e, 1), depth - 1);
  return false;
}

// elementwise

// All arguments written as numbers: compute it. All repeated from the same smaller shape, or reshaped from it: do so after.
Maybe fold_or_lift(const Site& s, const Shape& result) {
  double values[3] = {0, 0, 0};
  const Expr* source = nullptr;
  bool all_literal = true, liftable = true;
  for (std::size_t i = 0; i < s.args.size(); ++i) {
    if (const auto v = literal(s[i])) {
      values[i] = *v;
      continue;
    }
    all_literal = false;
    const bool lifts = is(s[i], Op::broadcast) || is(s[i], Op::reshape);
    liftable =
        liftable && lifts && (!source || (is(*source, node(s[i]).op) && arg(*source, 0).shape() == arg(s[i], 0).shape()));
    source = &s[i];
  }
  if (all_literal) return broadcast(info(s.op).value(values), result);
  if (!liftable) return std::nullopt;
  std::vector<Expr> inner;
  for (const Expr& a : s.args) inner.push_back(literal(a) ? broadcast(*literal(a), arg(*source, 0).shape()) : arg(a, 0));
  const Expr value = build(s.op, inner);
  return is(*source, Op::broadcast) ? broadcast(value, result) : reshape(value, result);
}

// Commutative operations have one order: numbers, then repeated values, then the rest by age, diagonals last.
bool in_order(const Expr& a, const Expr& b) {
  const auto key = [](const Expr& e) { return literal(e) ? 0 : scale_kind(e) != Scale::none ? 1 : diagonal_of(e) ? 3 : 2; };
  return key(a) != key(b) ? key(a) < key(b) : a.id() <= b.id();
}

Maybe rewrite_add(const Site& s) {
  const Expr &a = s[0], &b = s[1];
  if (!in_order(a, b)) return add(b, a);
  if (is_literal(a, 0.0)) return b;
  if (is(b, Op::neg)) return sub(a, arg(b, 0));
  if (is(a, Op::neg)) return sub(b, arg(a, 0));
  if (const Maybe d = diagonal_of(b)) {
    if (const Maybe c = diagonal_of(a)) return diag(*c + *d);
    if (is(a, Op::add) && is(arg(a, 1), Op::diag)) return arg(a, 0) + diag(arg(arg(a, 1), 0) + *d);
    if (!is(b, Op::diag)) return a + diag(*d);
  }
  return std::nullopt;
}

Maybe rewrite_sub(const Site& s) {
  const Expr &a = s[0], &b = s[1];
  if (is_literal(b, 0.0)) return a;
  if (is_literal(a, 0.0)) return -b;
  if (is(b, Op::neg)) return a + arg(b, 0);
  if (is(a, Op::neg)) return -(arg(a, 0) + b);
  if (const Maybe d = diagonal_of(b)) return a + diag(-*d);
  return std::nullopt;
}

Maybe rewrite_neg(const Site& s) {
  const Expr& a = s[0];
  if (is(a, Op::neg)) return arg(a, 0);
  if (is(a, Op::sub)) return arg(a, 1) - arg(a, 0);
  if (const Maybe d = diagonal_of(a)) return diag(-*d);
  if (is(a, Op::mul))
    if (const auto c = literal(arg(a, 0))) return Expr(-*c) * arg(a, 1);
  return std::nullopt;
}

Maybe rewrite_mul(const Site& s, const Shape& result) {
  const Expr &a = s[0], &b = s[1];
  if (!in_order(a, b)) return mul(b, a);
  if (same(a, b)) return square(a);
  const auto c = literal(a);
  if (c == 1.0) return b;
  if (c == -1.0) return -b;
  if (is(a, Op::neg)) return -(arg(a, 0) * b);
  if (is(b, Op::neg)) return -(a * arg(b, 0));
  // Numbers move outwards and meet, unless their product would leave the range.
  for (const auto& [x, y] : {std::pair{a, b}, std::pair{b, a}})
    if (is(x, Op::mul))
      if (const auto inner = literal(arg(x, 0))) {
        const auto outer_value = literal(y);
        if (!outer_value) return Expr(*inner) * (arg(x, 1) * y);
        if (std::isnormal(*inner * *outer_value)) return Expr(*inner * *outer_value) * arg(x, 1);
      }
  const Scale kind = scale_kind(a);
  if (kind == Scale::none || result.rank() != 2) return std::nullopt;
  // Row (or column) factors of a matrix meet in one vector.
  if (is(b, Op::mul)) {
    const Scale inner = scale_kind(arg(b, 0));
    const Scale both = kind == Scale::number ? inner : kind;
    if (inner != Scale::none && both != Scale::number && (inner == both || inner == Scale::number)) {
      const std::int64_t n = result[both == Scale::by_row ? 0 : 1];
      const Expr d = scale_vector(a, n) * scale_vector(arg(b, 0), n);
      return (both == Scale::by_row ? column(d, result) : broadcast(d, result)) * arg(b, 1);
    }
  }
  const auto vector = [&](int axis) { return scale_vector(a, result[axis]); };
  if (const Maybe d = diagonal_of(b)) return diag(vector(kind == Scale::by_row ? 0 : 1) * *d);
  if (is(b, Op::outer)) {
    if (kind == Scale::by_column) return outer(arg(b, 0), vector(1) * arg(b, 1));
    return outer(vector(0) * arg(b, 0), arg(b, 1));
  }
  return std::nullopt;
}

Maybe rewrite_div(const Site& s) {
  if (is_literal(s[1], 1.0)) return s[0];
  if (is(s[0], Op::neg)) return -(arg(s[0], 0) / s[1]);
  if (is(s[1], Op::neg)) return -(s[0] / arg(s[1], 0));
  return std::nullopt;
}

Maybe rewrite_pow(const Site& s, const Shape& result) {
  if (is_literal(s[1], 2.0)) return square(s[0]);
  if (is_literal(s[1], 1.0)) return s[0];
  if (is_literal(s[1], 0.0)) return broadcast(1.0, result);
  if (is_literal(s[1], -1.0)) return 1.0 / s[0];
  return std::nullopt;
}

// products

Expr product(const Expr& a, const Expr& b, bool ta, bool tb) { return build(Op::matmul, {a, b}, {.i = ta, .j = tb}); }
Expr flip(const Expr& e, bool transposed) { return transposed ? transpose(e) : e; }

// op(A) op(B) with both factors scaled from one matrix: AᵀDA, or A D Aᵀ as the gram of the transpose.
Maybe gram_of(const Expr& a, const Expr& b, bool ta, bool tb) {
  if (ta == tb || b.shape().rank() != 2) return std::nullopt;
  const Scale kind = ta ? Scale::by_row : Scale::by_column;
  const Scaled x = split_scale(a, kind), y = split_scale(b, kind);
  if (same(x.matrix, y.matrix)) return gram(flip(x.matrix, !ta), x.d * y.d);
  if (same(a, y.matrix)) return gram(flip(a, !ta), y.d);
  if (same(x.matrix, b)) return gram(flip(b, !ta), x.d);
  return std::nullopt;
}

Maybe rewrite_matmul(const Site& s) {
  const Expr &a = s[0], &b = s[1];
  const bool ta = s.attr.i != 0, tb = s.attr.j != 0, vector = b.shape().rank() == 1;
  if (is(a, Op::transpose)) return product(arg(a, 0), b, !ta, tb);
  if (is(b, Op::transpose)) return product(a, arg(b, 0), ta, !tb);
  if (ta && is_symmetric(a)) return product(a, b, false, tb);
  if (tb && is_symmetric(b)) return product(a, b, ta, false);
  if (vector && tb) return product(a, b, ta, false);
  if (is(a, Op::neg)) return -product(arg(a, 0), b, ta, tb);
  if (is(b, Op::neg)) return -product(a, arg(b, 0), ta, tb);
  if (is_identity(a)) return flip(b, tb);
  if (is_identity(b)) return flip(a, ta);
  if (is(a, Op::diag)) {
    const Expr right = flip(b, tb);
    return (vector ? arg(a, 0) : column(arg(a, 0), right.shape())) * right;
  }
  if (is(b, Op::diag)) {
    const Expr left = flip(a, ta);
    return broadcast(arg(b, 0), left.shape()) * left;
  }
  if (is(a, Op::outer)) {
    const Expr u = arg(a, ta ? 1 : 0), v = arg(a, ta ? 0 : 1);
    return vector ? u * sum(v * b) : outer(u, product(b, v, !tb, false));
  }
  if (is(b, Op::outer)) return outer(product(a, arg(b, tb ? 1 : 0), ta, false), arg(b, tb ? 0 : 1));
  if (Maybe g = gram_of(a, b, ta, tb)) return g;
  const std::int64_t columns = vector ? 1 : b.shape()[tb ? 0 : 1];
  if (is(a, Op::gram) && 4 * columns <= a.shape()[0]) {
    const Expr ab = product(arg(a, 0), b, false, tb);
    return product(arg(a, 0), vector ? arg(a, 1) * ab : column(arg(a, 1), ab.shape()) * ab, true, false);
  }
  // (X ± Y) b where neither X nor Y need be formed; s X b likewise.
  const auto distributes = [&](const Expr& e, bool narrow) {
    return (is(e, Op::add) || is(e, Op::sub) || is(e, Op::mul)) && narrow && is_implicit(e);
  };
  if (distributes(a, 4 * columns <= a.shape()[0])) {
    const Expr y = product(arg(a, 1), b, ta, tb);
    if (is(a, Op::mul)) return broadcast(reshape(scale_vector(arg(a, 0), 1), {}), y.shape()) * y;
    const Expr x = product(arg(a, 0), b, ta, tb);
    return is(a, Op::add) ? x + y : x - y;
  }
  if (!vector && (is(b, Op::add) || is(b, Op::sub)) && is(arg(b, 0), Op::outer) && is(arg(b, 1), Op::outer)) {
    const Expr x = product(a, arg(b, 0), ta, tb), y = product(a, arg(b, 1), ta, tb);
    return is(b, Op::add) ? x + y : x - y;
  }
  return std::nullopt;
}

Maybe rewrite_transpose(const Site& s) {
  const Expr& a = s[0];
  if (is(a, Op::transpose)) return arg(a, 0);
  if (is_symmetric(a)) return a;
  if (is(a, Op::eye)) return eye(a.shape()[1], a.shape()[0], -node(a).attr.i);
  if (is(a, Op::outer)) return outer(arg(a, 1), arg(a, 0));
  if (is(a, Op::neg)) return -transpose(arg(a, 0));
  if (is(a, Op::matmul) && arg(a, 1).shape().rank() == 2)
    return product(arg(a, 1), arg(a, 0), node(a).attr.j == 0, node(a).attr.i == 0);
  return std::nullopt;
}

Maybe rewrite_diagonal(const Site& s) {
  const Expr& a = s[0];
  if (Maybe d = diagonal_of(a)) return d;
  if (is(a, Op::outer)) return arg(a, 0) * arg(a, 1);
  if (is(a, Op::gram)) return matmul(transpose(square(arg(a, 0))), arg(a, 1));
  return std::nullopt;
}

// sums and shapes

Maybe rewrite_sum(const Site& s, const Shape& result) {
  const Expr& a = s[0];
  const Shape from = a.shape();
  const std::int64_t axis = s.attr.i;
  const auto again = [&](const Expr& e) { return axis < 0 ? sum(e) : sum(e, static_cast<int>(axis)); };
  if (from.rank() == 0) return a;
  if (from.size() == 0) return broadcast(0.0, result);
  if (is(a, Op::neg)) return -again(arg(a, 0));
  if (is(a, Op::broadcast)) {
    const Expr x = arg(a, 0);
    if (x.shape().size() == 1) {
      const std::int64_t repeated = axis < 0 ? from.size() : from[static_cast<int>(axis)];
      return broadcast(static_cast<double>(repeated) * reshape(x, {}), result);
    }
    const bool by_row = scale_kind(a) == Scale::by_row;
    if (axis < 0) return static_cast<double>(from[by_row ? 1 : 0]) * sum(x);
    if (by_row == (axis == 1)) return static_cast<double>(from[static_cast<int>(axis)]) * as_vector(x);
    return broadcast(sum(x), result);
  }
  if (const Maybe d = diagonal_of(a)) return axis < 0 ? sum(*d) : *d;
  if (is(a, Op::outer)) {
    const Expr u = arg(a, 0), v = arg(a, 1);
    return axis < 0 ? sum(u) * sum(v) : axis == 0 ? v * sum(u) : u * sum(v);
  }
  if (!is(a, Op::mul)) return std::nullopt;
  for (const auto& [x, m] : {std::pair{arg(a, 0), arg(a, 1)}, std::pair{arg(a, 1), arg(a, 0)}}) {
    const Scale kind = scale_kind(x);
    if (kind == Scale::number) return broadcast(reshape(scale_vector(x, 1), {}), result) * again(m);
    // Σⱼ uᵢ vⱼ mᵢⱼ = uᵢ (M v)ᵢ, and the same down the columns.
    if (is(x, Op::outer)) {
      const Expr u = arg(x, 0), v = arg(x, 1);
      if (axis == 0) return v * matmul(transpose(m), u);
      const Expr rows = u * matmul(m, v);
      return axis == 1 ? rows : sum(rows);
    }
    if (kind == Scale::by_row && axis >= 0) {
      const Expr d = scale_vector(x, from[0]);
      return axis == 0 ? matmul(transpose(m), d) : d * sum(m, 1);
    }
    if (kind == Scale::by_column && axis >= 0) {
      const Expr d = scale_vector(x, from[1]);
      return axis == 1 ? matmul(m, d) : d * sum(m, 0);
    }
  }
  return std::nullopt;
}

Maybe rewrite_broadcast(const Site& s, const Shape& result) {
  if (s[0].shape() == result) return s[0];
  if (is(s[0], Op::broadcast)) return broadcast(arg(s[0], 0), result);
  return std::nullopt;
}

Maybe rewrite_reshape(const Site& s, const Shape& result) {
  if (s[0].shape() == result) return s[0];
  if (is(s[0], Op::reshape)) return reshape(arg(s[0], 0), result);
  if (is(s[0], Op::broadcast) && arg(s[0], 0).shape().size() == 1) return broadcast(reshape(arg(s[0], 0), {}), result);
  return std::nullopt;
}

Maybe rewrite_slice(const Site& s, const Shape& result) {
  const Expr& a = s[0];
  const auto axis = static_cast<int>(s.attr.i);
  const std::int64_t begin = s.attr.j, end = begin + result[axis];
  if (a.shape() == result) return a;
  if (const auto c = literal(a)) return broadcast(*c, result);
  if (is(a, Op::neg)) return -slice(arg(a, 0), begin, end, axis);
  if (is(a, Op::slice) && node(a).attr.i == axis)
    return slice(arg(a, 0), begin + node(a).attr.j, end + node(a).attr.j, axis);
  if (is(a, Op::pad) && node(a).attr.i == axis && node(a).attr.j == begin && arg(a, 0).shape() == result) return arg(a, 0);
  if (is(a, Op::eye)) return eye(result[0], result[1], node(a).attr.i + (axis == 0 ? begin : -begin));
  if (is(a, Op::diag)) {
    const Expr ones = eye(result[0], result[1], axis == 0 ? begin : -begin), d = slice(arg(a, 0), begin, end);
    return (axis == 0 ? column(d, result) : broadcast(d, result)) * ones;
  }
  if (is(a, Op::concat) && node(a).attr.i == axis) {
    std::int64_t at = 0;
    for (const Id part : a.graph()->args(a.id())) {
      const std::int64_t next = at + a.graph()->node(part).shape[axis];
      if (begin >= at && end <= next) return slice(a.graph()->expr(part), begin - at, end - at, axis);
      at = next;
    }
  }
  return std::nullopt;
}

Maybe rewrite_pad(const Site& s, const Shape& result) {
  const Expr& a = s[0];
  const auto axis = static_cast<int>(s.attr.i);
  if (a.shape() == result) return a;
  if (is_literal(a, 0.0)) return broadcast(0.0, result);
  if (is(a, Op::neg)) return -pad(arg(a, 0), s.attr.j, result[axis], axis);
  // Rows of a scaled identity put back where they came from: a diagonal again.
  if (axis == 0 && result.rank() == 2 && result[0] == result[1]) {
    const Scaled scaled = split_scale(a, Scale::by_row);
    if (is(scaled.matrix, Op::eye) && node(scaled.matrix).attr.i == s.attr.j)
      return diag(pad(scaled.d, s.attr.j, result[0]));
  }
  return std::nullopt;
}

Maybe rewrite_solve(const Site& s) {
  if (is(s[1], Op::neg)) return -build(Op::solve, {s[0], arg(s[1], 0)}, s.attr);
  if (s.attr.i != 0 && !is(s[0], Op::lu)) return build(Op::solve, {s[0], s[1]});
  return std::nullopt;
}

}  // namespace

Maybe rewrite(const Site& s, const Shape& result) {
  if (is_elementwise(s.op) && s.op != Op::stop_gradient)
    if (Maybe e = fold_or_lift(s, result)) return e;
  switch (s.op) {
    case Op::add: return rewrite_add(s);
    case Op::sub: return rewrite_sub(s);
    case Op::neg: return rewrite_neg(s);
    case Op::mul: return rewrite_mul(s, result);
    case Op::div: return rewrite_div(s);
    case Op::pow: return rewrite_pow(s, result);
    case Op::square:
    case Op::abs: return is(s[0], Op::neg) ? Maybe(build(s.op, {arg(s[0], 0)})) : std::nullopt;
    case Op::not_equal: return is_literal(s[1], 0.0) && is_comparison(node(s[0]).op) ? Maybe(s[0]) : std::nullopt;
    case Op::where:
      return same(s[1], s[2]) ? Maybe(s[1]) : literal(s[0]) ? Maybe(*literal(s[0]) != 0.0 ? s[1] : s[2]) : std::nullopt;
    case Op::matmul: return rewrite_matmul(s);
    case Op::transpose: return rewrite_transpose(s);
    case Op::diagonal: return rewrite_diagonal(s);
    case Op::sum: return rewrite_sum(s, result);
    case Op::broadcast: return rewrite_broadcast(s, result);
    case Op::reshape: return rewrite_reshape(s, result);
    case Op::slice: return rewrite_slice(s, result);
    case Op::pad: return rewrite_pad(s, result);
    case Op::solve: return rewrite_solve(s);
    case Op::concat: return s.args.size() == 1 ? Maybe(s[0]) : std::nullopt;
    default: return std::nullopt;
  }
}

}  // namespace onestep
