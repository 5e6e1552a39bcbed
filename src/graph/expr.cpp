// The public operations: broadcasting, axes and conveniences around build().
#include "onestep/expr.h"

#include "graph/fail.h"
#include "graph/rules.h"

namespace onestep {

Expr::Expr(const Array& array) {
  if (array.shape().rank() == 0) {
    literal_ = array.item();
    return;
  }
  graph_ = std::make_shared<Graph>();
  id_ = graph_->add_constant(array);
}

// A copy: a reference into the graph would dangle as soon as the next node is added.
Shape Expr::shape() const {
  if (id_ == moved_from) detail::fail_moved_from("Expr");
  return graph_ ? graph_->node(id_).shape : Shape{};
}

namespace {

// NumPy's rule: the arguments of an elementwise operation are repeated to one shape.
Expr elementwise(Op op, std::initializer_list<Expr> args) {
  Shape shape = args.begin()->shape();
  for (const Expr& a : args)
    if (a.shape() != shape) shape = broadcast_shape(name(op), shape, a.shape());
  std::vector<Expr> same_shape = unify(name(op), {args.begin(), args.size()});
  for (Expr& a : same_shape) {
    if (is_factor(node(a).op)) fail(name(op), "takes arrays, not a factor; use solve or logdet");
    if (a.shape() != shape) a = broadcast(a, shape);
  }
  return build_unified(op, std::move(same_shape));
}

// Negative axes count from the end.
int checked_axis(const char* operation, const Shape& shape, int axis) {
  const int counted = axis < 0 ? axis + shape.rank() : axis;
  if (counted >= 0 && counted < shape.rank()) return counted;
  fail(operation, "axis {} of shape {}, which has rank {}", axis, shape, shape.rank());
}

}  // namespace

#define ONESTEP_UNARY(name, ...) \
  Expr name(const Expr& a) { return elementwise(Op::name, {a}); }
#define ONESTEP_BINARY(name, ...) \
  Expr name(const Expr& a, const Expr& b) { return elementwise(Op::name, {a, b}); }
#define ONESTEP_TERNARY(name, ...) \
  Expr name(const Expr& a, const Expr& b, const Expr& c) { return elementwise(Op::name, {a, b, c}); }
#include "onestep/operations.def"

Expr matmul(const Expr& a, const Expr& b) {
  if (a.shape().rank() != 1 || b.shape().rank() == 0) return build(Op::matmul, {a, b});
  if (a.shape()[0] != b.shape()[0]) fail("matmul", "inner dimensions differ: {} and {}", a.shape(), b.shape());
  return b.shape().rank() == 1 ? sum(a * b) : build(Op::matmul, {b, a}, {.i = 1});
}
Expr gram(const Expr& a, const Expr& d) { return build(Op::gram, {a, d}); }
Expr outer(const Expr& u, const Expr& v) { return build(Op::outer, {u, v}); }
Expr transpose(const Expr& a) { return a.shape().rank() < 2 ? a : build(Op::transpose, {a}); }
Expr reshape(const Expr& a, const Shape& shape) { return build(Op::reshape, {a}, {}, shape); }
Expr broadcast(const Expr& a, const Shape& shape) { return build(Op::broadcast, {a}, {}, shape); }
Expr diag(const Expr& a) { return build(Op::diag, {a}); }
Expr diagonal(const Expr& a) { return build(Op::diagonal, {a}); }
Expr eye(std::int64_t n) { return eye(n, n, 0); }
Expr eye(std::int64_t rows, std::int64_t columns, std::int64_t offset) {
  return build(Op::eye, std::span<const Expr>(), {.i = offset}, {rows, columns});
}

Expr concat(std::span<const Expr> parts, int axis) {
  if (parts.empty()) fail("concat", "nothing to join");
  return build(Op::concat, parts, {.i = checked_axis("concat", parts.front().shape(), axis)});
}
Expr concat(std::initializer_list<Expr> parts, int axis) { return concat({parts.begin(), parts.size()}, axis); }

Expr slice(const Expr& a, std::int64_t begin, std::int64_t end, int axis) {
  axis = checked_axis("slice", a.shape(), axis);
  const std::int64_t n = a.shape()[axis];
  if (begin < 0) begin += n;
  if (end < 0) end += n;
  if (begin < 0 || begin > end || end > n) fail("slice", "[{}, {}) is outside axis {} of {}", begin, end, axis, a.shape());
  return build(Op::slice, {a}, {.i = axis, .j = begin}, resized(a.shape(), axis, end - begin));
}
Expr pad(const Expr& a, std::int64_t begin, std::int64_t size, int axis) {
  axis = checked_axis("pad", a.shape(), axis);
  if (begin < 0 || begin > size - a.shape()[axis])
    fail("pad", "{} at {} does not fit in {} along axis {}", a.shape(), begin, size, axis);
  return build(Op::pad, {a}, {.i = axis, .j = begin}, resized(a.shape(), axis, size));
}

namespace {

// Whole numbers as an argument of the graph, those that count from the end counted from the beginning.
Expr indices_within(const char* operation, std::span<const std::int64_t> indices, const Shape& shape, int axis) {
  const std::int64_t n = shape[axis];
  std::vector<double> from_begin;
  for (const std::int64_t given : indices) {
    const std::int64_t i = given < 0 ? given + n : given;
    if (i < 0 || i >= n) fail(operation, "index {} is outside axis {} of {}", given, axis, shape);
    from_begin.push_back(static_cast<double>(i));
  }
  return Array(Shape{static_cast<std::int64_t>(indices.size())}, std::move(from_begin));
}

}  // namespace

Expr gather(const Expr& a, std::span<const std::int64_t> indices, int axis) {
  axis = checked_axis("gather", a.shape(), axis);
  return build(Op::gather, {a, indices_within("gather", indices, a.shape(), axis)}, {.i = axis});
}
Expr gather(const Expr& a, std::initializer_list<std::int64_t> indices, int axis) {
  return gather(a, std::span(indices.begin(), indices.size()), axis);
}
Expr reverse(const Expr& a, int axis) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = a.shape()[checked_axis("reverse", a.shape(), axis)]; i-- > 0;) indices.push_back(i);
  return gather(a, indices, axis);
}

Expr Expr::entry(std::int64_t i) const {
  const std::int64_t n = shape()[0], at = i < 0 ? i + n : i;
  if (shape().rank() == 0) fail("[]", "a number has no entry {}", i);
  if (at < 0 || at >= n) fail("[]", "{} is outside {}", i, shape());
  return reshape(slice(*this, at, at + 1), shape().rank() == 1 ? Shape{} : Shape{shape()[1]});
}
Expr Expr::operator[](const Range& range) const {
  if (shape().rank() == 0) fail("[]", "a number has no range of entries");
  return slice(*this, range.begin(), range.end(shape()[0]));
}

Expr sum(const Expr& a) { return build(Op::sum, {a}, {.i = -1}); }
Expr sum(const Expr& a, int axis) { return build(Op::sum, {a}, {.i = checked_axis("sum", a.shape(), axis)}); }
Expr max(const Expr& a) { return a.shape().rank() == 0 ? a : build(Op::max, {a}, {.i = -1}); }
Expr max(const Expr& a, Axis axis) { return build(Op::max, {a}, {.i = checked_axis("max", a.shape(), axis.number)}); }

Expr min(const Expr& a) { return -max(-a); }
Expr min(const Expr& a, Axis axis) { return -max(-a, axis); }
Expr norm(const Expr& a) { return build(Op::norm, {a}, {.i = -1}); }
Expr norm(const Expr& a, Axis axis) { return build(Op::norm, {a}, {.i = checked_axis("norm", a.shape(), axis.number)}); }
Expr cumsum(const Expr& a) {
  if (a.shape().rank() != 1) fail("cumsum", "shape {} is no vector; name an axis: cumsum(a, 0)", a.shape());
  return cumsum(a, 0);
}
Expr cumsum(const Expr& a, int axis) { return build(Op::cumsum, {a}, {.i = checked_axis("cumsum", a.shape(), axis)}); }

Factor::Factor(Expr node) : node_(std::move(node)) {
  if (!graph_of(node_) || !is_factor(onestep::node(node_).op))
    fail("Factor", "needs a factorisation, not an array of shape {}; make one with cholesky, lu or ldlt", node_.shape());
}
Factor cholesky(const Expr& h) { return factor_of(build(Op::cholesky, {h})); }
Factor lu(const Expr& m) { return factor_of(build(Op::lu, {m})); }
Factor ldlt(const Expr& h) { return factor_of(build(Op::ldlt, {h})); }
Expr solve(const Factor& factor, const Expr& b) { return build(Op::solve, {node_of(factor), b}); }
Expr solve_transposed(const Factor& factor, const Expr& b) { return build(Op::solve, {node_of(factor), b}, {.i = 1}); }
Expr logdet(const Factor& factor) { return build(Op::logdet, {node_of(factor)}); }
Expr det(const Expr& m) { return build(Op::det, {m}); }

void Foreign::jvp(std::span<const std::span<const double>>, std::span<const std::span<const double>>,
                  std::span<double>) const {
  fail("call", "{} has no jvp; override jvp and has_jvp, or differentiate in reverse", name());
}
void Foreign::vjp(std::span<const std::span<const double>>, std::span<const double>, std::size_t, std::span<double>) const {
  fail("call", "{} has no vjp; override vjp and has_vjp, or differentiate forward", name());
}

Expr call(std::shared_ptr<const Foreign> function, std::span<const Expr> arguments) {
  if (!function) fail("call", "no function was given");
  if (arguments.empty()) fail("call", "{} needs at least one argument", function->name());
  const std::vector<Expr> args = unify("call", arguments);
  std::vector<Shape> shapes;
  for (const Expr& a : args) shapes.push_back(a.shape());
  const Shape result = function->shape(shapes);
  return build(Op::call, args, {.i = graph_of(args.front())->add_foreign(std::move(function))}, result);
}
Expr call(std::shared_ptr<const Foreign> function, std::initializer_list<Expr> arguments) {
  return call(std::move(function), {arguments.begin(), arguments.size()});
}

}  // namespace onestep
