// The table of operations as the library sees it: for each row of include/onestep/operations.def its shape rule, its
// derivative or transpose, its flop count and its printing. Elementwise rows carry all of that in the row, the others are
// Rules<Op::name> in rules.cpp. Derivatives of what is neither elementwise nor linear are in src/diff/rules.cpp.
#pragma once

#include <string>

#include "graph/graph.h"

namespace onestep {

/// The column `linear` of the table: bit i is set where the operation is linear in argument i.
namespace linear_in {
inline constexpr unsigned none = 0, first = 1, second = 2, every = 255, leaf = 256;
}  // namespace linear_in

struct OpInfo {
  const char* name;
  bool has_kink;    ///< the value or its derivative may jump inside the domain
  unsigned linear;  ///< one of linear_in
  Shape (*shape)(const Site&);
  double (*flops)(const Site&);
  std::string (*attributes)(const Site&);
  /// Linear: the cotangent of argument `which`.
  Expr (*transposed)(const Site&, std::size_t which, const Expr& cotangent);
  /// Elementwise: the derivative by each argument, from the arguments and the result y; none where it is zero.
  Maybe (*derivative)(const Site&, const Expr& y, std::size_t which);
  /// Elementwise: an expression that is zero at the kink; none where there is none.
  Maybe (*kink)(const Site&, const Expr& y);
  /// Elementwise: the value, from three entries whatever the number of arguments.
  double (*value)(const double* args);
};
const OpInfo& info(Op op);
inline const char* name(Op op) { return info(op).name; }
inline bool has_kink(Op op) { return info(op).has_kink; }
inline bool is_elementwise(Op op) { return info(op).value != nullptr; }
inline bool is_comparison(Op op) { return op >= Op::less && op <= Op::not_equal; }
inline bool is_factor(Op op) { return op == Op::cholesky || op == Op::lu || op == Op::ldlt; }
inline double flops(const Site& site) { return info(site.op).flops(site); }

/// The shape both broadcast to; throws Error naming the operation.
Shape broadcast_shape(const char* operation, const Shape& a, const Shape& b);
/// The shape with another extent along an axis.
Shape resized(const Shape& shape, std::int64_t axis, std::int64_t extent);
/// A vector with an entry for each row of `to`, repeated along the rows.
inline Expr by_row(const Expr& d, const Shape& to) { return broadcast(reshape(d, {d.shape()[0], 1}), to); }

/// A simpler expression for the same value, if a rule of rewrite.cpp applies.
Maybe rewrite(const Site& site);

}  // namespace onestep
