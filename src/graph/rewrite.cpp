// Structure-keeping rewriting, at construction: local rules that lower the number of flops or nodes whatever loop is around
// them. Each is a few lines that look at one node and its arguments; tests/graph/rewrite_test.cpp has a property test for
// each, in the same order. The value of a rewritten expression is that of the original up to rounding, as long as no
// intermediate value comes within a factor 2^64 of the largest or smallest number: factors written as numbers move outwards
// when they are that small. x · 0 is not rewritten: it would turn a NaN into a number.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "graph/rules.h"

namespace onestep {
namespace {

Expr as_vector(const Expr& e) { return reshape(e, {e.shape().size()}); }

// A factor that is the same all over (a number), along each row, or along each column of what it multiplies.
enum class Scale { none, number, by_row, by_column };
Scale scale_kind(const Expr& e) {
  if (e.shape().rank() == 0 || literal(e)) return Scale::number;
  if (!is(e, Op::broadcast)) return Scale::none;
  const Shape from = arg(e, 0).shape(), to = e.shape();
  if (from.size() == 1) return Scale::number;
  if (to.rank() == 2 && from == Shape{to[0], 1}) return Scale::by_row;
  return to.rank() == 2 && (from == Shape{to[1]} || from == Shape{1, to[1]}) ? Scale::by_column : Scale::none;
}
// The factor itself as a vector with an entry for each row (or column), numbers repeated.
Expr scale_vector(const Expr& e, std::int64_t n) {
  if (const auto value = literal(e)) return broadcast(*value, {n});
  const Expr from = e.shape().rank() == 0 ? e : arg(e, 0);
  return from.shape().size() == 1 ? broadcast(reshape(from, {}), {n}) : as_vector(from);
}
// A factor that is one number, as such.
Expr scale_number(const Expr& e) { return reshape(scale_vector(e, 1), {}); }
// e = diag(d) · matrix  (or matrix · diag(d) for by_column); d = 1 when there is no factor.
struct Scaled {
  Expr d, matrix;
};
Scaled split_scale(const Expr& e, Scale kind) {
  const std::int64_t n = e.shape()[kind == Scale::by_row ? 0 : 1];
  const Scale found = is(e, Op::mul) ? scale_kind(arg(e, 0)) : Scale::none;
  if (found == Scale::none || (found != kind && found != Scale::number)) return {broadcast(1.0, {n}), e};
  return {scale_vector(arg(e, 0), n), arg(e, 1)};
}

bool is_identity(const Expr& e) { return is(e, Op::eye) && node(e).attr.i == 0 && e.shape()[0] == e.shape()[1]; }
// The diagonal of a matrix kept as a diagonal.
Maybe diagonal_of(const Expr& e) {
  if (is(e, Op::diag)) return arg(e, 0);
  return is_identity(e) ? Maybe(broadcast(1.0, {e.shape()[0]})) : std::nullopt;
}

// Whether every term of a sum has a property. Looks no deeper than this, so that construction stays linear.
template <class Property> bool every_term(const Expr& e, const Property& holds, int depth = 6) {
  const auto in = [&](int i) { return every_term(arg(e, i), holds, depth - 1); };
  if (depth == 0) return false;
  if (holds(e)) return true;
  if (is(e, Op::add, Op::sub)) return in(0) && in(1);
  return is(e, Op::neg) ? in(0) : is(e, Op::mul) && scale_kind(arg(e, 0)) == Scale::number && in(1);
}
// Products with it cost less than forming it.
bool is_implicit(const Expr& e) {
  return every_term(e, [](const Expr& t) { return is(t, Op::outer, Op::diag, Op::gram) || is_identity(t); });
}
bool is_symmetric(const Expr& e) {
  return e.shape().rank() == 2 && every_term(e, [](const Expr& t) {
           return is(t, Op::diag, Op::gram) || is_identity(t) || (is(t, Op::outer) && same(arg(t, 0), arg(t, 1)));
         });
}

// A sign moves outwards, where it meets others, and disappears in an even function.
constexpr Op passes_sign[] = {Op::mul,   Op::div, Op::square, Op::abs,     Op::matmul, Op::transpose, Op::sum,
                              Op::slice, Op::pad, Op::gather, Op::scatter, Op::cumsum, Op::solve};
Maybe move_sign(const Site& s) {
  for (std::size_t i = 0; i < s.args.size(); ++i) {
    if (!is(s[i], Op::neg)) continue;
    std::vector<Expr> args = s.args;
    args[i] = arg(s[i], 0);
    const Expr y = build(s.op, args, s.attr, s.shape);
    return s.op == Op::square || s.op == Op::abs ? y : -y;
  }
  return std::nullopt;
}

// elementwise

// All arguments written as numbers: compute it. All repeated from the same smaller shape, or reshaped from it: do so after.
Maybe fold_or_lift(const Site& s) {
  double values[3] = {0, 0, 0};
  const Expr* source = nullptr;
  for (std::size_t i = 0; i < s.args.size(); ++i) {
    if (const auto v = literal(s[i])) {
      values[i] = *v;
      continue;
    }
    if (!is(s[i], Op::broadcast, Op::reshape)) return std::nullopt;
    if (source && !(is(*source, node(s[i]).op) && arg(*source, 0).shape() == arg(s[i], 0).shape())) return std::nullopt;
    source = &s[i];
  }
  if (!source) return broadcast(info(s.op).value(values), s.shape);
  std::vector<Expr> inner;
  for (const Expr& a : s.args) inner.push_back(literal(a) ? broadcast(*literal(a), arg(*source, 0).shape()) : arg(a, 0));
  return build(node(*source).op, {build(s.op, inner)}, {}, s.shape);
}

// Commutative operations have one order: numbers, then repeated values, then the rest by age, diagonals last.
bool in_order(const Expr& a, const Expr& b) {
  const auto key = [](const Expr& e) { return literal(e) ? 0 : scale_kind(e) != Scale::none ? 1 : diagonal_of(e) ? 3 : 2; };
  return key(a) != key(b) ? key(a) < key(b) : id_of(a) <= id_of(b);
}

Maybe rewrite_add(const Expr& a, const Expr& b) {
  if (!in_order(a, b)) return add(b, a);
  if (is_literal(a, 0.0)) return b;
  if (is(b, Op::neg)) return sub(a, arg(b, 0));
  if (is(a, Op::neg)) return sub(b, arg(a, 0));
  const Maybe d = diagonal_of(b);
  if (!d) return std::nullopt;
  if (const Maybe c = diagonal_of(a)) return diag(*c + *d);
  if (is(a, Op::add) && is(arg(a, 1), Op::diag)) return arg(a, 0) + diag(arg(arg(a, 1), 0) + *d);
  return is(b, Op::diag) ? std::nullopt : Maybe(a + diag(*d));
}

Maybe rewrite_sub(const Expr& a, const Expr& b) {
  if (is_literal(b, 0.0)) return a;
  if (is_literal(a, 0.0)) return -b;
  if (is(b, Op::neg)) return a + arg(b, 0);
  if (is(a, Op::neg)) return -(arg(a, 0) + b);
  const Maybe d = diagonal_of(b);
  return d ? Maybe(a + diag(-*d)) : std::nullopt;
}

Maybe rewrite_neg(const Expr& a) {
  if (is(a, Op::neg)) return arg(a, 0);
  if (is(a, Op::sub)) return arg(a, 1) - arg(a, 0);
  if (const Maybe d = diagonal_of(a)) return diag(-*d);
  const auto factor = is(a, Op::mul) ? literal(arg(a, 0)) : std::nullopt;
  return factor ? Maybe(Expr(-*factor) * arg(a, 1)) : std::nullopt;
}

Maybe rewrite_mul(const Site& s) {
  const Expr &a = s[0], &b = s[1];
  if (!in_order(a, b)) return mul(b, a);
  if (same(a, b)) return square(a);
  if (is_literal(a, 1.0)) return b;
  if (is_literal(a, -1.0)) return -b;
  // Numbers move outwards and meet, unless their product would leave the range.
  for (const auto& [x, y] : {std::tie(a, b), std::tie(b, a)}) {
    if (!is(x, Op::mul) || !literal(arg(x, 0))) continue;
    const double inner = *literal(arg(x, 0)), product = inner * literal(y).value_or(1.0);
    if (literal(y) && std::isnormal(product)) return Expr(product) * arg(x, 1);
    if (!literal(y) && may_move(inner)) return Expr(inner) * (arg(x, 1) * y);
  }
  const Scale kind = scale_kind(a);
  if (kind == Scale::none || s.shape.rank() != 2) return std::nullopt;
  // Row (or column) factors of a matrix meet in one vector.
  const Scale inner = is(b, Op::mul) ? scale_kind(arg(b, 0)) : Scale::none, both = kind == Scale::number ? inner : kind;
  if (inner != Scale::none && both != Scale::number && (inner == both || inner == Scale::number)) {
    const std::int64_t n = s.shape[both == Scale::by_row ? 0 : 1];
    const Expr d = scale_vector(a, n) * scale_vector(arg(b, 0), n);
    return (both == Scale::by_row ? by_row(d, s.shape) : broadcast(d, s.shape)) * arg(b, 1);
  }
  const Expr vector = scale_vector(a, s.shape[kind == Scale::by_column ? 1 : 0]);
  if (const Maybe d = diagonal_of(b)) return diag(vector * *d);
  if (!is(b, Op::outer)) return std::nullopt;
  return kind == Scale::by_column ? outer(arg(b, 0), vector * arg(b, 1)) : outer(vector * arg(b, 0), arg(b, 1));
}

Maybe rewrite_pow(const Site& s) {
  if (is_literal(s[1], 2.0)) return square(s[0]);
  if (is_literal(s[1], 1.0)) return s[0];
  if (is_literal(s[1], 0.0)) return broadcast(1.0, s.shape);
  return is_literal(s[1], -1.0) ? Maybe(1.0 / s[0]) : std::nullopt;
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
  return same(x.matrix, b) ? Maybe(gram(flip(b, !ta), x.d)) : std::nullopt;
}

Maybe rewrite_matmul(const Site& s) {
  const Expr &a = s[0], &b = s[1];
  const bool ta = s.attr.i != 0, tb = s.attr.j != 0, vector = b.shape().rank() == 1;
  if (is(a, Op::transpose)) return product(arg(a, 0), b, !ta, tb);
  if (is(b, Op::transpose)) return product(a, arg(b, 0), ta, !tb);
  if (ta && is_symmetric(a)) return product(a, b, false, tb);
  if (tb && (vector || is_symmetric(b))) return product(a, b, ta, false);
  if (is_identity(a)) return flip(b, tb);
  if (is_identity(b)) return flip(a, ta);
  if (is(a, Op::diag)) return (vector ? arg(a, 0) : by_row(arg(a, 0), s.shape)) * flip(b, tb);
  if (is(b, Op::diag)) return broadcast(arg(b, 0), s.shape) * flip(a, ta);
  if (is(a, Op::outer)) {
    const Expr u = arg(a, ta ? 1 : 0), v = arg(a, ta ? 0 : 1);
    return vector ? u * sum(v * b) : outer(u, product(b, v, !tb, false));
  }
  if (is(b, Op::outer)) return outer(product(a, arg(b, tb ? 1 : 0), ta, false), arg(b, tb ? 0 : 1));
  if (const Maybe g = gram_of(a, b, ta, tb)) return g;
  const bool narrow = 4 * (vector ? 1 : s.shape[1]) <= a.shape()[0];
  if (narrow && is(a, Op::gram)) {
    const Expr ab = product(arg(a, 0), b, false, tb);
    return product(arg(a, 0), (vector ? arg(a, 1) : by_row(arg(a, 1), ab.shape())) * ab, true, false);
  }
  // (X ± Y) b and A (X ± Y) where neither X nor Y need be formed; s X b likewise.
  const auto left = [&](int i) { return product(arg(a, i), b, ta, tb); };
  const auto right = [&](int i) { return product(a, arg(b, i), ta, tb); };
  if (narrow && is(a, Op::add, Op::sub, Op::mul) && is_implicit(a))
    return is(a, Op::mul) ? scale_number(arg(a, 0)) * left(1) : build(node(a).op, {left(0), left(1)});
  if (!vector && is(b, Op::add, Op::sub) && is(arg(b, 0), Op::outer) && is(arg(b, 1), Op::outer))
    return build(node(b).op, {right(0), right(1)});
  return std::nullopt;
}

Maybe rewrite_transpose(const Expr& a) {
  if (is(a, Op::transpose)) return arg(a, 0);
  if (is_symmetric(a)) return a;
  if (is(a, Op::eye)) return eye(a.shape()[1], a.shape()[0], -node(a).attr.i);
  if (is(a, Op::outer)) return outer(arg(a, 1), arg(a, 0));
  if (!is(a, Op::matmul) || arg(a, 1).shape().rank() != 2) return std::nullopt;
  return product(arg(a, 1), arg(a, 0), node(a).attr.j == 0, node(a).attr.i == 0);
}

Maybe rewrite_diagonal(const Expr& a) {
  if (const Maybe d = diagonal_of(a)) return d;
  if (is(a, Op::outer)) return arg(a, 0) * arg(a, 1);
  // Only the products of rows with their own columns.
  if (is(a, Op::matmul)) return sum(flip(arg(a, 0), node(a).attr.i != 0) * flip(arg(a, 1), node(a).attr.j == 0), 1);
  return is(a, Op::gram) ? Maybe(matmul(transpose(square(arg(a, 0))), arg(a, 1))) : std::nullopt;
}

// sums and shapes

Maybe rewrite_sum(const Site& s) {
  const Expr& a = s[0];
  const Shape from = a.shape();
  const auto axis = static_cast<int>(s.attr.i);
  const double repeated = static_cast<double>(axis < 0 ? from.size() : from[axis]);
  if (from.rank() == 0) return a;
  if (from.size() == 0) return broadcast(0.0, s.shape);
  if (is(a, Op::broadcast)) {
    const Expr x = arg(a, 0);
    if (x.shape().size() == 1) return broadcast(repeated * reshape(x, {}), s.shape);
    if (axis < 0) return repeated / static_cast<double>(x.shape().size()) * sum(x);
    const bool along = (scale_kind(a) == Scale::by_row) == (axis == 1);
    return along ? repeated * as_vector(x) : broadcast(sum(x), s.shape);
  }
  if (const Maybe d = diagonal_of(a)) return axis < 0 ? sum(*d) : *d;
  if (is(a, Op::outer)) {
    const Expr u = arg(a, 0), v = arg(a, 1);
    return axis < 0 ? sum(u) * sum(v) : axis == 0 ? v * sum(u) : u * sum(v);
  }
  if (!is(a, Op::mul)) return std::nullopt;
  for (const auto& [x, m] : {std::pair{arg(a, 0), arg(a, 1)}, std::pair{arg(a, 1), arg(a, 0)}}) {
    const Scale kind = scale_kind(x);
    if (kind == Scale::number && may_move(x)) return scale_number(x) * build(Op::sum, {m}, s.attr);
    // Σⱼ uᵢ vⱼ mᵢⱼ = uᵢ (M v)ᵢ, and the same down the columns.
    if (is(x, Op::outer)) {
      const Expr u = arg(x, 0), v = arg(x, 1);
      if (axis == 0) return v * matmul(transpose(m), u);
      return axis == 1 ? u * matmul(m, v) : sum(u * matmul(m, v));
    }
    if (axis < 0 || kind == Scale::none || kind == Scale::number) continue;
    const Expr d = scale_vector(x, from[kind == Scale::by_row ? 0 : 1]);
    if ((kind == Scale::by_row) == (axis == 1)) return d * sum(m, axis);
    return matmul(axis == 0 ? transpose(m) : m, d);
  }
  return std::nullopt;
}

Maybe rewrite_slice(const Site& s) {
  const Expr& a = s[0];
  const auto axis = static_cast<int>(s.attr.i);
  const std::int64_t begin = s.attr.j, end = begin + s.shape[axis];
  if (a.shape() == s.shape) return a;
  if (const auto c = literal(a)) return broadcast(*c, s.shape);
  if (is(a, Op::eye)) return eye(s.shape[0], s.shape[1], node(a).attr.i + (axis == 0 ? begin : -begin));
  if (is(a, Op::diag)) {
    const Expr ones = eye(s.shape[0], s.shape[1], axis == 0 ? begin : -begin), d = slice(arg(a, 0), begin, end);
    return (axis == 0 ? by_row(d, s.shape) : broadcast(d, s.shape)) * ones;
  }
  if (!is(a, Op::slice, Op::pad, Op::concat) || node(a).attr.i != axis) return std::nullopt;
  if (is(a, Op::slice)) return slice(arg(a, 0), begin + node(a).attr.j, end + node(a).attr.j, axis);
  std::int64_t at = is(a, Op::pad) ? node(a).attr.j : 0;
  for (const Expr& part : site_of(a).args) {
    const std::int64_t next = at + part.shape()[axis];
    if (begin >= at && end <= next) return slice(part, begin - at, end - at, axis);
    at = next;
  }
  return std::nullopt;
}

Maybe rewrite_pad(const Site& s) {
  if (s[0].shape() == s.shape) return s[0];
  if (is_literal(s[0], 0.0)) return broadcast(0.0, s.shape);
  // Rows of a scaled identity put back where they came from: a diagonal again.
  if (s.attr.i != 0 || s.shape.rank() != 2 || s.shape[0] != s.shape[1]) return std::nullopt;
  const Scaled scaled = split_scale(s[0], Scale::by_row);
  if (!is(scaled.matrix, Op::eye) || node(scaled.matrix).attr.i != s.attr.j) return std::nullopt;
  return diag(pad(scaled.d, s.attr.j, s.shape[0]));
}

Maybe rewrite_gather(const Site& s) {
  const auto c = literal(s[0]);
  return c ? Maybe(broadcast(*c, s.shape)) : std::nullopt;
}

Maybe rewrite_scatter(const Site& s) {
  if (is_literal(s[0], 0.0)) return broadcast(0.0, s.shape);
  // Rows of the identity, chosen and scaled, put back where they came from: a diagonal again.
  if (s.attr.i != 0 || s.shape.rank() != 2 || s.shape[0] != s.shape[1]) return std::nullopt;
  const Scaled scaled = split_scale(s[0], Scale::by_row);
  const bool chosen = is(scaled.matrix, Op::gather) && node(scaled.matrix).attr.i == 0 &&
                      is_identity(arg(scaled.matrix, 0)) && same(arg(scaled.matrix, 1), s[1]);
  return chosen ? Maybe(diag(build(Op::scatter, {scaled.d, s[1]}, {}, {s.shape[0]}))) : std::nullopt;
}

Maybe rewrite_reshape(const Site& s) {
  if (s[0].shape() == s.shape) return s[0];
  if (is(s[0], s.op)) return build(s.op, {arg(s[0], 0)}, {}, s.shape);
  const bool repeats_number = is(s[0], Op::broadcast) && arg(s[0], 0).shape().size() == 1;
  return repeats_number ? Maybe(broadcast(reshape(arg(s[0], 0), {}), s.shape)) : std::nullopt;
}

}  // namespace

Maybe rewrite(const Site& s) {
  const auto only_if = [](bool applies, const auto& make) { return applies ? Maybe(make()) : std::nullopt; };
  if (is_elementwise(s.op) && s.op != Op::stop_gradient && s.op != Op::arbitrary)
    if (const Maybe e = fold_or_lift(s)) return e;
  if (std::ranges::count(passes_sign, s.op) > 0)
    if (const Maybe e = move_sign(s)) return e;
  switch (s.op) {
    case Op::add: return rewrite_add(s[0], s[1]);
    case Op::sub: return rewrite_sub(s[0], s[1]);
    case Op::neg: return rewrite_neg(s[0]);
    case Op::mul: return rewrite_mul(s);
    case Op::div: return only_if(is_literal(s[1], 1.0), [&] { return s[0]; });
    case Op::pow: return rewrite_pow(s);
    case Op::not_equal: return only_if(is_literal(s[1], 0.0) && is_comparison(node(s[0]).op), [&] { return s[0]; });
    case Op::where: return only_if(same(s[1], s[2]) || literal(s[0]), [&] { return literal(s[0]) == 0.0 ? s[2] : s[1]; });
    case Op::matmul: return rewrite_matmul(s);
    case Op::transpose: return rewrite_transpose(s[0]);
    case Op::diagonal: return rewrite_diagonal(s[0]);
    case Op::sum: return rewrite_sum(s);
    case Op::broadcast:
    case Op::reshape: return rewrite_reshape(s);
    case Op::slice: return rewrite_slice(s);
    case Op::pad: return rewrite_pad(s);
    case Op::gather: return rewrite_gather(s);
    case Op::scatter: return rewrite_scatter(s);
    case Op::solve: return only_if(s.attr.i != 0 && !is(s[0], Op::lu), [&] { return build(Op::solve, {s[0], s[1]}); });
    case Op::concat: return only_if(s.args.size() == 1, [&] { return s[0]; });
    default: return std::nullopt;
  }
}

}  // namespace onestep
