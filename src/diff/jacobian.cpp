// Whole Jacobians: a block of directions at once where only vectors move, one direction after another otherwise.
#include "diff/rules.h"
#include "onestep/diff.h"

namespace onestep {
namespace {

// What `n` directions at once make of one operation on vectors and numbers: the tangent of a vector (m) is a matrix (m, n),
// that of a number a vector (n). None for operations that have no such form (anything with a moving matrix).
Maybe block_forward(const Expr& y, const Site& s, Tangents tangents, std::int64_t n) {
  const auto block = [&](const Shape& shape) { return shape.rank() == 0 ? Shape{n} : Shape{shape[0], n}; };
  // The value e repeated for each direction.
  const auto repeat = [&](const Expr& e) { return e.shape().rank() == 0 ? broadcast(e, {n}) : by_row(e, block(e.shape())); };
  const Shape to = block(y.shape());
  if (y.shape().rank() == 2) return std::nullopt;
  if (is_elementwise(s.op)) {
    Maybe total;
    for (std::size_t i = 0; i < s.args.size(); ++i)
      if (tangents[i])
        if (const Maybe d = info(s.op).derivative(s, y, i)) accumulate(total, chain(repeat(*d), *tangents[i]));
    return or_zero(total, to);
  }
  switch (s.op) {
    case Op::matmul:  // a matrix or factor that does not move, and a vector
    case Op::solve: return tangents[0] ? std::nullopt : Maybe(build(s.op, {s[0], *tangents[1]}, {.i = s.attr.i}));
    case Op::sum: return sum(*tangents[0], 0);
    case Op::slice: return slice(*tangents[0], s.attr.j, s.attr.j + y.shape()[0]);
    case Op::pad: return pad(*tangents[0], s.attr.j, y.shape()[0]);
    case Op::norm: return matmul(transpose(*tangents[0]), *backward(y, s, 0, 1.0));
    case Op::cumsum: return build(s.op, {*tangents[0]}, s.attr);
    case Op::gather: return build(s.op, {*tangents[0], s[1]}, s.attr);
    case Op::scatter: return build(s.op, {*tangents[0], s[1]}, s.attr, to);
    case Op::broadcast: return broadcast(*tangents[0], to);
    case Op::reshape: return reshape(*tangents[0], to);
    case Op::concat: {
      std::vector<Expr> parts;
      for (std::size_t i = 0; i < s.args.size(); ++i) parts.push_back(or_zero(tangents[i], block(s[i].shape())));
      return concat(parts);
    }
    default: return std::nullopt;
  }
}

// ∂y/∂x · I in one pass, or none when a matrix would move.
Maybe block_jacobian(const Expr& y, const Expr& x) {
  const Id from = id_of(x), to = id_of(y);
  const std::int64_t n = x.shape()[0];
  const Indexed<bool> active = graph_of(y)->between({&from, 1}, {&to, 1});
  Indexed<Maybe> tangent(active.size());
  tangent[from] = graph_of(y)->adopt(eye(n));
  bool possible = true;
  sweep(*graph_of(y), active, tangent, [&](const Expr& node, const Site& site, Tangents of_args) {
    const Maybe block = possible ? block_forward(node, site, of_args, n) : std::nullopt;
    possible = block.has_value();
    return block;
  });
  return possible ? Maybe(or_zero(tangent[to], {y.shape()[0], n})) : std::nullopt;
}

// A 1 at entry `i` of the given shape.
Expr unit(const Shape& shape, std::int64_t i) { return reshape(pad(broadcast(1.0, {1}), i, shape.size()), shape); }

}  // namespace

Expr jacobian(const Expr& y_given, const Expr& x_given) {
  const std::vector<Expr> both = unify("jacobian", std::vector<Expr>{y_given, x_given});
  const Expr &y = both[0], &x = both[1];
  const std::int64_t m = y.shape().size(), n = x.shape().size();
  if (y.shape().rank() == 0) return reshape(grad(y, x), x.shape().rank() == 0 ? Shape{} : Shape{n});
  if (x.shape().rank() == 0) return reshape(jvp(y, x, 1.0), {m});
  if (m == 0 || n == 0) return broadcast(0.0, {m, n});
  if (y.shape().rank() == 1 && x.shape().rank() == 1)
    if (const Maybe block = block_jacobian(y, x)) return *block;
  std::vector<Expr> parts;
  for (std::int64_t i = 0; i < std::min(m, n); ++i)
    parts.push_back(m < n ? reshape(vjp(y, x, unit(y.shape(), i)), {1, n}) : reshape(jvp(y, x, unit(x.shape(), i)), {m, 1}));
  return concat(parts, m < n ? 0 : 1);
}

}  // namespace onestep
