// The table of operations as the library sees it: for each row of include/onestep/operations.def its shape rule, its
// derivative or transpose, its flop count and its printing. Elementwise rows carry all of that in the row; for the others it
// is Rules<Op::name> in rules.cpp. Rules that are neither elementwise nor linear have their derivative in
// src/diff/special.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace onestep {

/// An operation with its arguments, before it is a node (or read back from one).
struct Site {
  Op op{};
  std::vector<Expr> args;
  Attr attr;
  Shape shape;  ///< as asked for: by reshape, broadcast, slice, pad and eye; the others find theirs

  const Expr& operator[](std::size_t i) const { return args[i]; }
  Shape result_shape() const;
  Expr make(const Shape& result) const;
};
Site site_of(const Expr& e);

struct OpInfo {
  const char* name;
  const char* meaning;
  bool elementwise;
  unsigned linear;     ///< bit i: linear in argument i
  double entry_flops;  ///< of an elementwise operation, for one entry
  Shape (*shape)(const Site&);
  double (*flops)(const Site&, const Shape&);
  std::string (*attributes)(const Site&, const Shape&);
  /// Elementwise: the derivative by each argument, from the arguments and the result y; none where it is zero.
  std::optional<Expr> (*derivative)(const Site&, const Expr& y, int which);
  /// Linear: the cotangent of argument `which`.
  Expr (*transpose)(const Site&, int which, const Expr& cotangent);
  /// Elementwise: the value, for constants and the naive interpreter.
  double (*value)(const double* args);
};
const OpInfo& info(Op op);
inline const char* name(Op op) { return info(op).name; }
inline bool is_elementwise(Op op) { return info(op).elementwise; }
inline bool is_comparison(Op op) { return op >= Op::less && op <= Op::not_equal; }
inline bool is_factor(Op op) { return op == Op::cholesky || op == Op::lu || op == Op::ldlt; }

/// The shape both broadcast to; throws Error naming the operation.
Shape broadcast_shape(const char* operation, const Shape& a, const Shape& b);

}  // namespace onestep
