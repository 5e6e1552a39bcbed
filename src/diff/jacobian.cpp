// Whole Jacobians: a block of directions at once where only vectors move, one direction after another otherwise.
#include <algorithm>

#include "diff/rules.h"
#include "onestep/diff.h"

namespace onestep {
namespace {

Expr column(const Expr& d, const Shape& to) { return broadcast(reshape(d, {d.shape()[0], 1}), to); }

// What `n` directions at once make of one operation on vectors and numbers: the tangent of a vector (m) is a matrix (m, n),
// that of a number a vector (n). None for operations that have no such form (anything with a moving matrix).
std::optional<Expr> block_forward(const Expr& y, const Site& s, std::span<const std::optional<Expr>> tangents,
                                  std::int64_t n) {
  const auto block = [&](const Shape& shape) { return shape.rank() == 0 ? Shape{n} : Shape{shape[0], n}; };
  // The value e repeated for each direction.
  const auto repeat = [&](const Expr& e) { return e.shape().rank() == 0 ? broadcast(e, {n}) : column(e, block(e.shape())); };
  if (y.shape().rank() == 2) return std::nullopt;
  if (info(s.op).elementwise) {
    std::optional<Expr> total;
    for (std::size_t i = 0; i < s.args.size(); ++i)
      if (tangents[i])
        if (const auto d = info(s.op).derivative(s, y, static_cast<int>(i)))
          accumulate(total, chain(repeat(*d), *tangents[i]));
    return total ? *total : broadcast(0.0, block(y.shape()));
  }
  switch (s.op) {
    case Op::matmul:  // a matrix that does not move, times a vector
      return tangents[0] ? std::nullopt : std::optional(build(Op::matmul, {s[0], *tangents[1]}, {.i = s.attr.i}));
    case Op::solve: return tangents[0] ? std::nullopt : std::optional(build(Op::solve, {s[0], *tangents[1]}, s.attr));
    case Op::sum: return sum(*tangents[0], 0);
    case Op::slice: return slice(*tangents[0], s.attr.j, s.attr.j + y.shape()[0]);
    case Op::pad: return pad(*tangents[0], s.attr.j, y.shape()[0]);
    case Op::broadcast:
      return s[0].shape().rank() == 0 ? broadcast(*tangents[0], block(y.shape()))
                                      : broadcast(reshape(*tangents[0], {1, n}), block(y.shape()));
    case Op::reshape: return reshape(*tangents[0], block(y.shape()));
    case Op::concat: {
      std::vector<Expr> parts;
      for (std::size_t i = 0; i < s.args.size(); ++i)
        parts.push_back(tangents[i] ? *tangents[i] : broadcast(0.0, block(s[i].shape())));
      return concat(parts);
    }
    default: return std::nullopt;
  }
}

// ∂y/∂x · I in one pass, or none when a matrix would move.
std::optional<Expr> block_jacobian(const Expr& y, const Expr& x) {
  Graph& graph = *y.graph();
  const Id from = x.id(), to = y.id();
  std::vector<bool> active = graph.dependents({&from, 1}, to);
  const std::vector<bool> needed = graph.reachable({&to, 1});
  std::vector<std::optional<Expr>> tangent(active.size());
  const std::int64_t n = x.shape()[0];
  tangent[static_cast<std::size_t>(from)] = unify("jacobian", std::vector<Expr>{x, eye(n)})[1];
  std::vector<std::optional<Expr>> of_args;
  for (Id id = from + 1; id <= to; ++id) {
    const auto i = static_cast<std::size_t>(id);
    if (!active[i] || !needed[i]) continue;
    of_args.clear();
    bool moves = false;
    for (const Id a : graph.args(id)) {
      of_args.push_back(tangent[static_cast<std::size_t>(a)]);
      moves = moves || of_args.back();
    }
    if (!moves) continue;
    const Expr node_y = graph.expr(id);
    tangent[i] = block_forward(node_y, site_of(node_y), of_args, n);
    if (!tangent[i]) return std::nullopt;
  }
  const auto& result = tangent[static_cast<std::size_t>(to)];
  return result ? *result : broadcast(0.0, {y.shape()[0], n});
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
    if (const auto block = block_jacobian(y, x)) return *block;
  std::vector<Expr> parts;
  if (m < n) {
    for (std::int64_t i = 0; i < m; ++i) parts.push_back(reshape(vjp(y, x, unit(y.shape(), i)), {1, n}));
    return concat(parts, 0);
  }
  for (std::int64_t j = 0; j < n; ++j) parts.push_back(reshape(jvp(y, x, unit(x.shape(), j)), {m, 1}));
  return concat(parts, 1);
}

}  // namespace onestep
