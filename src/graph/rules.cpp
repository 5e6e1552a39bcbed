// Rules of each operation, gathered into one table. Elementwise operations get theirs from the rows of operations.def, the
// others from Rules<Op::name> below; the table at the end does not compile when one is missing.
#include "graph/rules.h"

#include <cmath>

#include "graph/fail.h"

namespace onestep {

Shape broadcast_shape(const char* operation, const Shape& a, const Shape& b) {
  const Shape &longer = a.rank() >= b.rank() ? a : b, &shorter = a.rank() >= b.rank() ? b : a;
  Shape result = longer;
  for (int axis = 0; axis < longer.rank(); ++axis) {
    const int there = axis - (longer.rank() - shorter.rank());
    const std::int64_t m = longer[axis], n = there < 0 ? 1 : shorter[there];
    if (m != n && m != 1 && n != 1)
      fail(operation, "shapes do not fit: {} and {}; a size must be equal or 1, counted from the last axis", a, b);
    result = resized(result, axis, m == 1 ? n : m);
  }
  return result;
}

Shape resized(const Shape& shape, std::int64_t axis, std::int64_t extent) {
  if (shape.rank() == 1) return {extent};
  return axis == 0 ? Shape{extent, shape[1]} : Shape{shape[0], extent};
}

namespace {

double count(const Shape& shape) { return static_cast<double>(shape.size()); }
double extent(const Shape& shape, int axis) { return static_cast<double>(shape[axis]); }

// The shape of an argument, or its extents, when it has this rank.
Shape of_rank(int rank, const Site& s, std::size_t which, const char* what) {
  if (s[which].shape().rank() != rank) fail(name(s.op), "needs {}, got shape {}", what, s[which].shape());
  return s[which].shape();
}
Shape matrix(const Site& s, const char* what = "a matrix") { return of_rank(2, s, 0, what); }
std::int64_t vector(const Site& s, std::size_t which, const char* what) { return of_rank(1, s, which, what)[0]; }
std::int64_t square_matrix(const Site& s) {
  const Shape a = matrix(s, "a square matrix");
  if (a[0] != a[1]) fail(name(s.op), "needs a square matrix, got shape {}", a);
  return a[0];
}

// What a row says of itself that is the same for many: each row that is not elementwise has all four of shape, flops,
// attributes and transposed, from here or as members of its own. One that is forgotten does not compile.
struct ShapeAsAsked {
  static Shape shape(const Site& s) { return s.shape; }
};
struct Free {
  static double flops(const Site&) { return 0; }
};
struct NoAttributes {
  static std::string attributes(const Site&) { return ""; }
};
struct NotLinear {
  static constexpr decltype(OpInfo::transposed) transposed = nullptr;
};
template <Op> struct Rules;

template <> struct Rules<Op::input> : ShapeAsAsked, Free, NoAttributes, NotLinear {};
template <> struct Rules<Op::constant> : ShapeAsAsked, Free, NoAttributes, NotLinear {};
template <> struct Rules<Op::scalar> : ShapeAsAsked, Free, NotLinear {
  static std::string attributes(const Site& s) { return fmt::format("{}", s.attr.value()); }
};
template <> struct Rules<Op::eye> : ShapeAsAsked, Free, NotLinear {
  static std::string attributes(const Site& s) { return s.attr.i == 0 ? "" : fmt::format("offset {}", s.attr.i); }
};

template <> struct Rules<Op::matmul> {
  static Shape shape(const Site& s) {
    const Shape a = s[0].shape(), b = s[1].shape();
    const bool ta = s.attr.i != 0, tb = s.attr.j != 0 && b.rank() == 2;
    if (a.rank() != 2 || b.rank() < 1) fail("matmul", "needs a matrix or vector, got {} and {}", a, b);
    if (a[ta ? 0 : 1] != b[tb ? 1 : 0])
      fail("matmul", "inner dimensions differ: {}{} and {}{}", a, ta ? "ᵀ" : "", b, tb ? "ᵀ" : "");
    return b.rank() == 1 ? Shape{a[ta ? 1 : 0]} : Shape{a[ta ? 1 : 0], b[tb ? 0 : 1]};
  }
  static double flops(const Site& s) { return count(s.shape) * extent(s[0].shape(), s.attr.i != 0 ? 0 : 1); }
  static std::string attributes(const Site& s) {
    return s.attr.i != 0 && s.attr.j != 0 ? "AᵀBᵀ" : s.attr.i != 0 ? "AᵀB" : s.attr.j != 0 ? "ABᵀ" : "";
  }
  // y = op(A) op(B):  op(A) gets ȳ op(B)ᵀ, op(B) gets op(A)ᵀ ȳ.
  static Expr transposed(const Site& s, std::size_t which, const Expr& c) {
    const bool ta = s.attr.i != 0, tb = s.attr.j != 0;
    if (which == 1 && tb) return transpose(build(Op::matmul, {s[0], c}, {.i = !ta}));
    if (which == 1) return build(Op::matmul, {s[0], c}, {.i = !ta});
    if (s[1].shape().rank() == 1) return ta ? outer(s[1], c) : outer(c, s[1]);
    return ta ? build(Op::matmul, {s[1], c}, {.i = tb, .j = 1}) : build(Op::matmul, {c, s[1]}, {.j = !tb});
  }
};

template <> struct Rules<Op::gram> : NoAttributes {
  static Shape shape(const Site& s) {
    const Shape a = matrix(s);
    const std::int64_t weights = vector(s, 1, "a vector of weights");
    if (a[0] != weights) fail("gram", "{} weights for {} rows: {} and {}", weights, a[0], a, s[1].shape());
    return {a[1], a[1]};
  }
  // One triangle, and the rows scaled.
  static double flops(const Site& s) { return count(s[0].shape()) * ((extent(s.shape, 0) + 1) / 2 + 1); }
  // d̄ᵢ = aᵢᵀ M aᵢ
  static Expr transposed(const Site& s, std::size_t, const Expr& c) { return sum(matmul(s[0], c) * s[0], 1); }
};

template <> struct Rules<Op::outer> : NoAttributes {
  static Shape shape(const Site& s) { return {vector(s, 0, "two vectors"), vector(s, 1, "two vectors")}; }
  static double flops(const Site& s) { return count(s.shape); }
  static Expr transposed(const Site& s, std::size_t which, const Expr& c) {
    return which == 0 ? matmul(c, s[1]) : matmul(transpose(c), s[0]);
  }
};

template <> struct Rules<Op::transpose> : Free, NoAttributes {
  static Shape shape(const Site& s) { return {matrix(s)[1], matrix(s)[0]}; }
  static Expr transposed(const Site&, std::size_t, const Expr& c) { return transpose(c); }
};

template <> struct Rules<Op::reshape> : Free, NoAttributes {
  static Shape shape(const Site& s) {
    const Shape from = s[0].shape(), to = s.shape;
    if (from.size() != to.size()) fail("reshape", "{} has {} entries, {} has {}", from, from.size(), to, to.size());
    return to;
  }
  static Expr transposed(const Site& s, std::size_t, const Expr& c) { return reshape(c, s[0].shape()); }
};

template <> struct Rules<Op::diag> : Free, NoAttributes {
  static Shape shape(const Site& s) { return {vector(s, 0, "a vector"), vector(s, 0, "a vector")}; }
  static Expr transposed(const Site&, std::size_t, const Expr& c) { return diagonal(c); }
};
template <> struct Rules<Op::diagonal> : Free, NoAttributes {
  static Shape shape(const Site& s) { return {square_matrix(s)}; }
  static Expr transposed(const Site&, std::size_t, const Expr& c) { return diag(c); }
};

std::string axis_of(const Site& s) { return s.attr.i < 0 ? "" : fmt::format("axis {}", s.attr.i); }

template <> struct Rules<Op::max> : NotLinear {
  static Shape shape(const Site& s) {
    return s.attr.i < 0 || s[0].shape().rank() == 1 ? Shape{} : Shape{s[0].shape()[s.attr.i == 0 ? 1 : 0]};
  }
  static double flops(const Site& s) { return count(s[0].shape()); }
  static std::string attributes(const Site& s) { return axis_of(s); }
};
template <> struct Rules<Op::sum> : Rules<Op::max> {
  static Expr transposed(const Site& s, std::size_t, const Expr& c) {
    return s.attr.i == 1 ? by_row(c, s[0].shape()) : broadcast(c, s[0].shape());
  }
};

template <> struct Rules<Op::norm> : Rules<Op::max> {
  static double flops(const Site& s) { return 2 * count(s[0].shape()); }
};
// attr.j: from the end.
template <> struct Rules<Op::cumsum> {
  static Shape shape(const Site& s) { return s[0].shape(); }
  static double flops(const Site& s) { return count(s.shape); }
  static std::string attributes(const Site& s) { return axis_of(s) + (s.attr.j != 0 ? " from the end" : ""); }
  static Expr transposed(const Site& s, std::size_t, const Expr& c) {
    return build(Op::cumsum, {c}, {.i = s.attr.i, .j = s.attr.j == 0});
  }
};

template <> struct Rules<Op::broadcast> : Free, NoAttributes {
  static Shape shape(const Site& s) {
    if (s[0].shape().rank() > s.shape.rank() || broadcast_shape("broadcast", s[0].shape(), s.shape) != s.shape)
      fail("broadcast", "{} cannot be repeated to {}", s[0].shape(), s.shape);
    return s.shape;
  }
  // Sums over the axes that were repeated.
  static Expr transposed(const Site& s, std::size_t, const Expr& c) {
    const Shape from = s[0].shape(), to = s.shape;
    const bool columns = from.size() == 1 || (from.rank() == 2 && from[1] == 1 && to[1] != 1);
    const bool rows = from.rank() < 2 ? to.rank() == 2 || columns : from[0] == 1 && to[0] != 1;
    return reshape(rows && columns ? sum(c) : rows ? sum(c, 0) : columns ? sum(c, 1) : c, from);
  }
};

template <> struct Rules<Op::concat> : Free {
  static Shape shape(const Site& s) {
    const Shape first = s[0].shape();
    const int axis = static_cast<int>(s.attr.i);
    Shape total = resized(first, axis, 0);
    for (const Expr& a : s.args) {
      if (a.shape().rank() != first.rank() || resized(a.shape(), axis, first[axis]) != first)
        fail("concat", "along axis {}: {} and {} differ elsewhere", axis, first, a.shape());
      total = resized(total, axis, total[axis] + a.shape()[axis]);  // throws before it overflows
    }
    return total;
  }
  static std::string attributes(const Site& s) { return axis_of(s); }
  static Expr transposed(const Site& s, std::size_t which, const Expr& c) {
    const int axis = static_cast<int>(s.attr.i);
    std::int64_t begin = 0;
    for (std::size_t k = 0; k < which; ++k) begin += s[k].shape()[axis];
    return slice(c, begin, begin + s[which].shape()[axis], axis);
  }
};

// slice and pad: attr.i is the axis, attr.j where the range begins, the wanted shape says where it ends.
std::int64_t along(const Site& s, const Shape& shape) { return shape[static_cast<int>(s.attr.i)]; }

template <> struct Rules<Op::slice> : ShapeAsAsked, Free {
  static std::string attributes(const Site& s) {
    return fmt::format("{} [{}, {})", axis_of(s), s.attr.j, s.attr.j + along(s, s.shape));
  }
  static Expr transposed(const Site& s, std::size_t, const Expr& c) {
    return pad(c, s.attr.j, along(s, s[0].shape()), static_cast<int>(s.attr.i));
  }
};
template <> struct Rules<Op::pad> : ShapeAsAsked, Free {
  static std::string attributes(const Site& s) {
    return fmt::format("{} at {} of {}", axis_of(s), s.attr.j, along(s, s.shape));
  }
  static Expr transposed(const Site& s, std::size_t, const Expr& c) {
    return slice(c, s.attr.j, s.attr.j + along(s, s[0].shape()), static_cast<int>(s.attr.i));
  }
};

// gather and scatter: attr.i is the axis, the second argument a constant vector of whole numbers within the axis.
template <> struct Rules<Op::gather> : Free {
  static Shape shape(const Site& s) { return resized(s[0].shape(), s.attr.i, vector(s, 1, "a vector of indices")); }
  static std::string attributes(const Site& s) { return axis_of(s); }
  static Expr transposed(const Site& s, std::size_t, const Expr& c) {
    return build(Op::scatter, {c, s[1]}, s.attr, s[0].shape());
  }
};
template <> struct Rules<Op::scatter> : ShapeAsAsked {
  static double flops(const Site& s) { return count(s[0].shape()); }
  static std::string attributes(const Site& s) { return fmt::format("{} of {}", axis_of(s), along(s, s.shape)); }
  static Expr transposed(const Site& s, std::size_t, const Expr& c) { return build(Op::gather, {c, s[1]}, s.attr); }
};

template <int divisor> struct Factorisation : NoAttributes, NotLinear {  // n³ / divisor multiply-adds
  static Shape shape(const Site& s) { return {square_matrix(s), square_matrix(s)}; }
  static double flops(const Site& s) { return count(s.shape) * extent(s.shape, 0) / divisor; }
};
template <> struct Rules<Op::cholesky> : Factorisation<6> {};
template <> struct Rules<Op::ldlt> : Factorisation<6> {};
template <> struct Rules<Op::lu> : Factorisation<3> {};

template <> struct Rules<Op::solve> {
  static Shape shape(const Site& s) {
    const Shape m = s[0].shape(), b = s[1].shape();
    if (b.rank() < 1 || b[0] != m[0]) fail("solve", "matrix {} and right-hand side {} do not fit", m, b);
    return b;
  }
  static double flops(const Site& s) { return count(s.shape) * extent(s[0].shape(), 0); }
  static std::string attributes(const Site& s) { return s.attr.i != 0 ? "transposed" : ""; }
  static Expr transposed(const Site& s, std::size_t, const Expr& c) {
    return build(Op::solve, {s[0], c}, {.i = s.attr.i == 0});
  }
};

template <> struct Rules<Op::logdet> : NoAttributes, NotLinear {
  static Shape shape(const Site&) { return {}; }
  static double flops(const Site& s) { return extent(s[0].shape(), 0); }
};

template <> struct Rules<Op::det> : NoAttributes, NotLinear {
  static Shape shape(const Site& s) { return square_matrix(s), Shape{}; }
  static double flops(const Site& s) { return count(s[0].shape()) * extent(s[0].shape(), 0) / 3; }
};

// attr.j: 0 the value; 1 the jvp (arguments, then tangents); 2 + i the vjp for argument i (arguments, then the cotangent).
template <> struct Rules<Op::call> : ShapeAsAsked, NotLinear {
  static double flops(const Site& s) { return count(s.shape); }
  static std::string attributes(const Site& s) {
    const std::string f = graph_of(s[0])->foreign(s.attr.i)->name();
    return s.attr.j == 0 ? f : s.attr.j == 1 ? f + " jvp" : fmt::format("{} vjp {}", f, s.attr.j - 2);
  }
};

// Elementwise: everything but the row's formulas is the same for all. Not every formula uses every name in scope.
Shape elementwise_shape(const Site& s) {
  for (const Expr& a : s.args)
    if (a.shape() != s[0].shape()) fail(name(s.op), "shapes differ: {} and {}", s[0].shape(), a.shape());
  return s[0].shape();
}
template <int entry_flops> double elementwise_flops(const Site& s) {
  // Adding a diagonal touches the diagonal only.
  if (s.op == Op::add && (is(s[0], Op::diag) || is(s[1], Op::diag))) return extent(s.shape, 0);
  return entry_flops * count(s.shape);
}
constexpr std::nullopt_t nothing = std::nullopt;

constexpr std::nullopt_t smooth = std::nullopt;  // in the column `kink` of elementwise operations

#define ELEMENTWISE(op_name, kink, formula, da, db, dc)                                                               \
  double value_##op_name(const double* v) {                                                                           \
    [[maybe_unused]] const double a = v[0], b = v[1], c = v[2];                                                       \
    return formula;                                                                                                   \
  }                                                                                                                   \
  Maybe kink_##op_name([[maybe_unused]] const Site& s, [[maybe_unused]] const Expr& y) {                              \
    [[maybe_unused]] const Expr one = 1.0, zero = 0.0, a = s[0], b = s[s.args.size() > 1 ? 1 : 0], c = s.args.back(); \
    return kink;                                                                                                      \
  }                                                                                                                   \
  Maybe derivative_##op_name(const Site& s, [[maybe_unused]] const Expr& y, std::size_t which) {                      \
    [[maybe_unused]] const Expr one = 1.0, zero = 0.0, a = s[0], b = s[s.args.size() > 1 ? 1 : 0], c = s.args.back(); \
    if (which == 0) return da;                                                                                        \
    if (which == 1) return db;                                                                                        \
    return dc;                                                                                                        \
  }
#define ONESTEP_UNARY(op_name, kink, flops, meaning, formula, da) \
  ELEMENTWISE(op_name, (kink), (formula), (da), nothing, nothing)
#define ONESTEP_BINARY(op_name, kink, flops, meaning, formula, da, db) \
  ELEMENTWISE(op_name, (kink), (formula), (da), (db), nothing)
#define ONESTEP_TERNARY(op_name, kink, flops, meaning, formula, da, db, dc) \
  ELEMENTWISE(op_name, (kink), (formula), (da), (db), (dc))
#include "onestep/operations.def"

constexpr bool is_kinked(std::string_view column) { return column != "smooth"; }
template <class R, unsigned linear> constexpr OpInfo structural(const char* op_name, bool has_kink) {
  using namespace linear_in;
  constexpr decltype(OpInfo::transposed) transposed = R::transposed;
  static_assert((transposed == nullptr) == (linear == none || linear == leaf),
                "an operation that is linear in an argument needs its transpose");
  return {op_name, has_kink, linear, R::shape, R::flops, R::attributes, transposed, nullptr, nullptr, nullptr};
}
constexpr OpInfo table[] = {
#define ONESTEP_UNARY(op_name, kink, flops, ...)                          \
  {#op_name,          is_kinked(#kink),         0,                        \
   elementwise_shape, elementwise_flops<flops>, NoAttributes::attributes, \
   nullptr,           derivative_##op_name,     kink_##op_name,           \
   value_##op_name},
#define ONESTEP_BINARY ONESTEP_UNARY
#define ONESTEP_TERNARY ONESTEP_UNARY
#define ONESTEP_STRUCTURAL(op_name, kink, linear, ...) \
  structural<Rules<Op::op_name>, linear_in::linear>(#op_name, is_kinked(#kink)),
#include "onestep/operations.def"
};

}  // namespace

const OpInfo& info(Op op) { return table[static_cast<std::size_t>(op)]; }

}  // namespace onestep
