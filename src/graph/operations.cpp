// Operations made of others.
#include "onestep/operations.h"

#include <limits>

#include "graph/fail.h"
#include "graph/rules.h"

namespace onestep {

Expr stack(std::span<const Expr> parts, int axis) {
  if (parts.empty()) fail("stack", "nothing to join");
  const Shape first = parts.front().shape();
  const int rank = first.rank() + 1, counted = axis < 0 ? axis + rank : axis;
  if (rank > 2) fail("stack", "takes numbers or vectors, got shape {}; concat joins matrices", first);
  if (counted < 0 || counted >= rank) fail("stack", "axis {} of a result with rank {}", axis, rank);
  std::vector<Expr> lines;
  for (const Expr& part : parts) {
    if (part.shape() != first) fail("stack", "shapes differ: {} and {}", first, part.shape());
    lines.push_back(reshape(part, rank == 1 ? Shape{1} : counted == 0 ? Shape{1, first[0]} : Shape{first[0], 1}));
  }
  return concat(lines, counted);
}
Expr stack(std::initializer_list<Expr> parts, int axis) { return stack({parts.begin(), parts.size()}, axis); }

Expr dot(const Expr& u, const Expr& v) {
  if (u.shape().rank() != 1 || v.shape().rank() != 1)
    fail("dot", "takes two vectors, got {} and {}; matmul is the product of matrices", u.shape(), v.shape());
  if (u.shape() != v.shape()) fail("dot", "lengths differ: {} and {}", u.shape(), v.shape());
  return sum(u * v);
}

namespace {
// The extent of an axis, negative ones counted from the end; throws where there is none.
std::int64_t extent(const char* operation, const Shape& shape, int axis) {
  const int counted = axis < 0 ? axis + shape.rank() : axis;
  if (counted < 0 || counted >= shape.rank())
    fail(operation, "axis {} of shape {}, which has rank {}", axis, shape, shape.rank());
  return shape[counted];
}
Expr mean_of(const Expr& total, std::int64_t count, const Shape& shape) {
  if (count == 0) fail("mean", "shape {} has no entries to take the mean of", shape);
  return total / static_cast<double>(count);
}
}  // namespace

Expr mean(const Expr& a) { return mean_of(sum(a), a.shape().size(), a.shape()); }
Expr mean(const Expr& a, int axis) { return mean_of(sum(a, axis), extent("mean", a.shape(), axis), a.shape()); }

// The first half times the second, until one is left; what has no partner waits.
Expr prod(const Expr& a, int axis) {
  extent("prod", a.shape(), axis);
  const bool rows = axis == 1 || (axis == -1 && a.shape().rank() == 2);
  const int along = rows ? 1 : 0;
  const Shape result = a.shape().rank() == 1 ? Shape{} : Shape{a.shape()[1 - along]};
  Expr left = a, total = broadcast(1.0, resized(a.shape(), along, 1));
  for (std::int64_t n = a.shape()[along]; n > 0; n /= 2) {
    if (n % 2 == 1) total = total * slice(left, n - 1, n, along);
    if (n > 1) left = slice(left, 0, n / 2, along) * slice(left, n / 2, n / 2 * 2, along);
  }
  return reshape(total, result);
}
Expr prod(const Expr& a) { return prod(reshape(a, {a.shape().size()}), 0); }

Expr clip(const Expr& a, const Expr& low, const Expr& high) {
  if (const auto least = literal(low), most = literal(high); least && most && *least > *most)
    fail("clip", "the bounds {} and {} are in the wrong order", *least, *most);
  return minimum(maximum(a, low), high);
}

namespace {
// Where the largest entry is not finite there is nothing to shift by.
Expr shift_by(const Expr& largest) {
  return arbitrary(where(abs(largest) < std::numeric_limits<double>::infinity(), largest, 0.0));
}
}  // namespace

Expr log_sum_exp(const Expr& a) {
  const Expr shift = shift_by(max(a));
  return shift + log(sum(exp(a - shift)));
}
Expr log_sum_exp(const Expr& a, int axis) {
  const Expr shift = shift_by(max(a, Axis{axis}));
  const bool along_rows = a.shape().rank() == 2 && (axis == 1 || axis == -1);
  return shift + log(sum(exp(a - (along_rows ? reshape(shift, {a.shape()[0], 1}) : shift)), axis));
}

Expr trace(const Expr& a) {
  if (a.shape().rank() != 2 || a.shape()[0] != a.shape()[1]) fail("trace", "needs a square matrix, got shape {}", a.shape());
  return sum(diagonal(a));
}
Expr inverse(const Expr& m) {
  if (m.shape().rank() != 2 || m.shape()[0] != m.shape()[1])
    fail("inverse", "needs a square matrix, got shape {}", m.shape());
  return inverse(lu(m));
}
Expr inverse(const Factor& factor) { return solve(factor, eye(node_of(factor).shape()[0])); }

}  // namespace onestep
