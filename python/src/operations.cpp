// The operations of the library on expressions, as functions of the module: rows of the table under their own names, and
// those with axes, shapes and factors. python/onestep/_numpy.py gives them the names of NumPy.
#include <nanobind/stl/optional.h>

#include "errors.h"
#include "tracing.h"

namespace onestep::python {
namespace {

using Dims = std::vector<std::int64_t>;
using OptionalAxis = std::optional<int>;

Shape shape_of(const Dims& dims) {
  switch (dims.size()) {
    case 0: return {};
    case 1: return {dims[0]};
    case 2: return {dims[0], dims[1]};
    default: throw MisuseError("an expression has at most two axes, not " + std::to_string(dims.size()));
  }
}

// A reduction of all entries, or along an axis.
template <class Of> auto reduction(Of of) {
  return [of](nb::handle a, OptionalAxis axis) { return of(expr_of(a), axis); };
}
#define ONESTEP_PYTHON_REDUCTION(name) \
  reduction([](const Expr& a, OptionalAxis axis) { return axis ? name(a, Axis{*axis}) : name(a); })

#define ONESTEP_PYTHON_ONE(name, meaning) \
  m.def(                                  \
      #name, [](nb::handle a) { return name(expr_of(a)); }, "a"_a, meaning, nb::sig("def " #name "(a: ExprLike) -> Expr"));

// Those of the table, entry by entry, and what is made of them.
void bind_elementwise(nb::module_& m) {
#define ONESTEP_UNARY(name, kink, flops, meaning, ...) \
  m.def(                                               \
      #name, [](nb::handle a) { return name(expr_of(a)); }, "a"_a, meaning, nb::sig("def " #name "(a: ExprLike) -> Expr"));
#define ONESTEP_BINARY(name, kink, flops, meaning, ...)                                                      \
  m.def(                                                                                                     \
      #name, [](nb::handle a, nb::handle b) { return name(expr_of(a), expr_of(b)); }, "a"_a, "b"_a, meaning, \
      nb::sig("def " #name "(a: ExprLike, b: ExprLike) -> Expr"));
#define ONESTEP_TERNARY(name, kink, flops, meaning, ...)                                                               \
  m.def(                                                                                                               \
      #name, [](nb::handle a, nb::handle b, nb::handle c) { return name(expr_of(a), expr_of(b), expr_of(c)); }, "a"_a, \
      "b"_a, "c"_a, meaning, nb::sig("def " #name "(a: ExprLike, b: ExprLike, c: ExprLike) -> Expr"));
#include <onestep/operations.def>

  m.def("constant", expr_of, "a"_a, "An array or a number as an expression.", nb::sig("def constant(a: ExprLike) -> Expr"));
  ONESTEP_PYTHON_ONE(relu, "max(a, 0), entry by entry; the derivative at 0 is 0.")
  m.def(
      "clip", [](nb::handle a, nb::handle low, nb::handle high) { return clip(expr_of(a), expr_of(low), expr_of(high)); },
      "a"_a, "low"_a, "high"_a, "a, or the bound it exceeds; the derivative at a bound is that of a.",
      nb::sig("def clip(a: ExprLike, low: ExprLike, high: ExprLike) -> Expr"));
}

void bind_reductions(nb::module_& m) {
#define ONESTEP_PYTHON_ALONG(name, meaning)                                           \
  m.def(#name, ONESTEP_PYTHON_REDUCTION(name), "a"_a, "axis"_a = nb::none(), meaning, \
        nb::sig("def " #name "(a: ExprLike, axis: int | None = None) -> Expr"));
  ONESTEP_PYTHON_ALONG(sum, "The sum of all entries, or along an axis.")
  ONESTEP_PYTHON_ALONG(mean, "The mean of all entries, or along an axis.")
  ONESTEP_PYTHON_ALONG(prod,
                       "The product of all entries, or along an axis; its derivatives are exact where entries are zero.")
  ONESTEP_PYTHON_ALONG(max, "The largest entry, or along an axis. Entries that attain it share the derivative.")
  ONESTEP_PYTHON_ALONG(min, "The smallest entry, or along an axis. Entries that attain it share the derivative.")
  ONESTEP_PYTHON_ALONG(norm, "The Euclidean norm of all entries, or along an axis.")
  ONESTEP_PYTHON_ALONG(cumsum, "Running sums of a vector, or along an axis of a matrix.")
  ONESTEP_PYTHON_ALONG(log_sum_exp, "log(sum(exp(a))) without overflow, of all entries or along an axis.")
}

void bind_shapes(nb::module_& m) {
  ONESTEP_PYTHON_ONE(transpose, "Rows and columns exchanged; a vector stays as it is.")
  m.def(
      "reshape", [](nb::handle a, const Dims& shape) { return reshape(expr_of(a), shape_of(shape)); }, "a"_a, "shape"_a,
      "The same entries, row by row, in another shape of the same size.",
      nb::sig("def reshape(a: ExprLike, shape: collections.abc.Sequence[int]) -> Expr"));
  m.def(
      "broadcast", [](nb::handle a, const Dims& shape) { return broadcast(expr_of(a), shape_of(shape)); }, "a"_a, "shape"_a,
      "Repeated to a larger shape by NumPy's rule.",
      nb::sig("def broadcast(a: ExprLike, shape: collections.abc.Sequence[int]) -> Expr"));
  m.def(
      "concat", [](nb::handle parts, int axis) { return concat(exprs_of(parts), axis); }, "parts"_a, "axis"_a = 0,
      "Joined along an axis.", nb::sig("def concat(parts: collections.abc.Iterable[ExprLike], axis: int = 0) -> Expr"));
  m.def(
      "stack", [](nb::handle parts, int axis) { return stack(exprs_of(parts), axis); }, "parts"_a, "axis"_a = 0,
      "Numbers as a vector, or vectors as the rows (axis 0) or columns (axis 1) of a matrix.",
      nb::sig("def stack(parts: collections.abc.Iterable[ExprLike], axis: int = 0) -> Expr"));
  m.def(
      "slice",
      [](nb::handle a, std::int64_t begin, std::int64_t end, int axis) { return slice(expr_of(a), begin, end, axis); },
      "a"_a, "begin"_a, "end"_a, "axis"_a = 0, "The range [begin, end) along an axis.",
      nb::sig("def slice(a: ExprLike, begin: int, end: int, axis: int = 0) -> Expr"));
  m.def(
      "pad",
      [](nb::handle a, std::int64_t begin, std::int64_t size, int axis) { return pad(expr_of(a), begin, size, axis); },
      "a"_a, "begin"_a, "size"_a, "axis"_a = 0, "The opposite of slice: zero outside [begin, begin + its size) of an axis.",
      nb::sig("def pad(a: ExprLike, begin: int, size: int, axis: int = 0) -> Expr"));
  m.def(
      "gather", [](nb::handle a, const Dims& indices, int axis) { return gather(expr_of(a), indices, axis); }, "a"_a,
      "indices"_a, "axis"_a = 0, "The entries, rows or columns with these numbers.",
      nb::sig("def gather(a: ExprLike, indices: collections.abc.Sequence[int], axis: int = 0) -> Expr"));
  m.def(
      "reverse", [](nb::handle a, int axis) { return reverse(expr_of(a), axis); }, "a"_a, "axis"_a = 0,
      "In the opposite order along an axis.", nb::sig("def reverse(a: ExprLike, axis: int = 0) -> Expr"));
}

void bind_linear_algebra(nb::module_& m) {
#define ONESTEP_PYTHON_TWO(name, meaning)                                                                    \
  m.def(                                                                                                     \
      #name, [](nb::handle a, nb::handle b) { return name(expr_of(a), expr_of(b)); }, "a"_a, "b"_a, meaning, \
      nb::sig("def " #name "(a: ExprLike, b: ExprLike) -> Expr"));
  ONESTEP_PYTHON_TWO(matmul, "The matrix product; of two vectors the dot product.")
  ONESTEP_PYTHON_TWO(gram, "AᵀDA with D the diagonal matrix of the second argument, as one symmetric product.")
  ONESTEP_PYTHON_TWO(outer, "The outer product of two vectors, which is kept as such.")
  ONESTEP_PYTHON_TWO(dot, "The dot product of two vectors.")
  ONESTEP_PYTHON_ONE(diag, "The matrix with this diagonal.")
  ONESTEP_PYTHON_ONE(diagonal, "The diagonal of a matrix.")
  ONESTEP_PYTHON_ONE(trace, "The sum of the diagonal of a square matrix.")
  ONESTEP_PYTHON_ONE(det, "The determinant of a square matrix.")
  ONESTEP_PYTHON_ONE(inverse, "The inverse of a square matrix; solve(lu(M), b) is faster and more accurate.")
  m.def(
      "eye",
      [](std::int64_t rows, std::optional<std::int64_t> columns, std::int64_t offset) {
        return eye(rows, columns.value_or(rows), offset);
      },
      "rows"_a, "columns"_a = nb::none(), "offset"_a = 0,
      "The identity, or ones where column = row + offset: known to be that, never multiplied out.");

  nb::class_<Factor>(m, "Factor", "A factorisation of a matrix, which all solves with it share.");
#define ONESTEP_PYTHON_FACTOR(name, meaning)                                \
  m.def(                                                                    \
      #name, [](nb::handle a) { return name(expr_of(a)); }, "a"_a, meaning, \
      nb::sig("def " #name "(a: ExprLike) -> Factor"));
  ONESTEP_PYTHON_FACTOR(cholesky, "Factor of a positive definite matrix; reads the lower triangle.")
  ONESTEP_PYTHON_FACTOR(lu, "Factor of a square matrix, with pivoting.")
  ONESTEP_PYTHON_FACTOR(ldlt, "Factor of a symmetric matrix, with pivoting; reads the lower triangle.")
  m.def(
      "solve_factored",
      [](const Factor& factor, nb::handle b, bool transposed) {
        return transposed ? solve_transposed(factor, expr_of(b)) : solve(factor, expr_of(b));
      },
      "factor"_a, "b"_a, "transposed"_a = false,
      "x with M x = b (or the transpose of M) for a vector or each column of a matrix.",
      nb::sig("def solve_factored(factor: Factor, b: ExprLike, transposed: bool = False) -> Expr"));
  m.def(
      "logdet", [](const Factor& factor) { return logdet(factor); }, "factor"_a, "log |det M| of a factored matrix.");
}

void bind_derivatives(nb::module_& m) {
  m.def(
      "grad", [](const Expr& y, const Expr& x) { return grad(y, x); }, "y"_a, "x"_a,
      "The gradient of a number, as an expression like any other.");
  m.def(
      "jacobian", [](const Expr& y, const Expr& x) { return jacobian(y, x); }, "y"_a, "x"_a,
      "The derivative of y by x as a matrix.");
  m.def(
      "hessian", [](const Expr& y, const Expr& x) { return hessian(y, x); }, "y"_a, "x"_a,
      "The second derivative of a number, as a matrix.");
  m.def(
      "hvp", [](const Expr& y, const Expr& x, nb::handle v) { return hvp(y, x, expr_of(v)); }, "y"_a, "x"_a, "v"_a,
      "The Hessian times v, without the Hessian.", nb::sig("def hvp(y: Expr, x: Expr, v: ExprLike) -> Expr"));
  m.def(
      "jvp", [](const Expr& y, const Expr& x, nb::handle v) { return jvp(y, x, expr_of(v)); }, "y"_a, "x"_a, "v"_a,
      "How y moves when x moves along v.", nb::sig("def jvp(y: Expr, x: Expr, v: ExprLike) -> Expr"));
  m.def(
      "vjp", [](const Expr& y, const Expr& x, nb::handle c) { return vjp(y, x, expr_of(c)); }, "y"_a, "x"_a, "c"_a,
      "How the number <c, y> depends on x.", nb::sig("def vjp(y: Expr, x: Expr, c: ExprLike) -> Expr"));
}

}  // namespace

void bind_operations(nb::module_& m) {
  bind_elementwise(m);
  bind_reductions(m);
  bind_shapes(m);
  bind_linear_algebra(m);
  bind_derivatives(m);
}

}  // namespace onestep::python
