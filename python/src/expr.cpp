// The class Expr: operators, shape, and what is refused because an expression has no value while it is traced. What NumPy's
// functions do with it is in python/onestep/_numpy.py.
#include "errors.h"
#include "tracing.h"

namespace onestep::python {
namespace {

nb::tuple dims_of(const Expr& e) {
  const Shape shape = e.shape();
  if (shape.rank() == 0) return nb::make_tuple();
  return shape.rank() == 1 ? nb::make_tuple(shape[0]) : nb::make_tuple(shape[0], shape[1]);
}

template <Expr (*op)(const Expr&, const Expr&)> nb::object left(const Expr& a, nb::handle b) {
  const std::optional<Expr> other = operand_of(b);
  return other ? nb::cast(op(a, *other)) : nb::borrow(nb::handle(Py_NotImplemented));
}
template <Expr (*op)(const Expr&, const Expr&)> nb::object right(const Expr& a, nb::handle b) {
  const std::optional<Expr> other = operand_of(b);
  return other ? nb::cast(op(*other, a)) : nb::borrow(nb::handle(Py_NotImplemented));
}

[[noreturn]] void refuse_value(const char* what, const char* instead) {
  throw TracingError(std::string(what) + " needs the value of an expression, which has none while it is traced: " + instead);
}

}  // namespace

void bind_expr(nb::module_& m) {
  nb::class_<Expr> expr(
      m, "Expr",
      "A node of a traced expression: its shape is known, its value is not. Operators and the functions of "
      "NumPy that onestep traces make further nodes of it.");

#define ONESTEP_PYTHON_OPERATOR(name, operation)                                                              \
  expr.def("__" #name "__", left<operation>, nb::sig("def __" #name "__(self, other: ExprLike, /) -> Expr")); \
  expr.def("__r" #name "__", right<operation>, nb::sig("def __r" #name "__(self, other: ExprLike, /) -> Expr"));
  ONESTEP_PYTHON_OPERATOR(add, add)
  ONESTEP_PYTHON_OPERATOR(sub, sub)
  ONESTEP_PYTHON_OPERATOR(mul, mul)
  ONESTEP_PYTHON_OPERATOR(truediv, div)
  ONESTEP_PYTHON_OPERATOR(matmul, matmul)
  ONESTEP_PYTHON_OPERATOR(pow, pow)
#undef ONESTEP_PYTHON_OPERATOR
#define ONESTEP_PYTHON_COMPARISON(name, operation) \
  expr.def("__" #name "__", left<operation>, nb::sig("def __" #name "__(self, other: ExprLike, /) -> Expr"));
  ONESTEP_PYTHON_COMPARISON(lt, less)
  ONESTEP_PYTHON_COMPARISON(le, less_equal)
  ONESTEP_PYTHON_COMPARISON(gt, greater)
  ONESTEP_PYTHON_COMPARISON(ge, greater_equal)
  ONESTEP_PYTHON_COMPARISON(eq, equal)
  ONESTEP_PYTHON_COMPARISON(ne, not_equal)
#undef ONESTEP_PYTHON_COMPARISON
  expr.attr("__hash__") = nb::none();

  expr.def("__neg__", [](const Expr& a) { return neg(a); });
  expr.def("__pos__", [](const Expr& a) { return a; });
  expr.def("__abs__", [](const Expr& a) { return abs(a); });

  expr.def_prop_ro("shape", dims_of, nb::sig("def shape(self) -> tuple[int, ...]"), "The extent along each axis.");
  expr.def_prop_ro(
      "ndim", [](const Expr& a) { return a.shape().rank(); }, "The number of axes: 0, 1 or 2.");
  expr.def_prop_ro(
      "size", [](const Expr& a) { return a.shape().size(); }, "The number of entries.");
  expr.def_prop_ro(
      "T", [](const Expr& a) { return transpose(a); }, "The transpose; a vector stays as it is.");
  expr.def("__len__", [](const Expr& a) {
    if (a.shape().rank() == 0) throw TracingError("a number has no length");
    return a.shape()[0];
  });
  expr.def("__repr__", [](const Expr& a) {
    return "<Expr of shape " + nb::cast<std::string>(nb::repr(dims_of(a))) + ", traced: it has no value>";
  });
  expr.def(
      "text", [](const Expr& a) { return to_string(a); }, "What it is made of, a line for each node.");

  expr.def("__bool__",
           [](const Expr&) -> bool { refuse_value("a branch (if, and, or, not)", "np.where(condition, a, b) chooses"); });
  expr.def("__float__", [](const Expr&) -> double {
    refuse_value("float() or a function of math", "use the function of NumPy, or onestep.traced(f, ...) for values");
  });
  expr.def("__int__", [](const Expr&) -> int { refuse_value("int()", "an index must be known while tracing"); });
  expr.def("__index__", [](const Expr&) -> int { refuse_value("an index", "np.where(condition, a, b) chooses"); });
  expr.def("item", [](const Expr&) -> double { refuse_value(".item()", "use the expression as it is"); });
  expr.def("tolist", [](const Expr&) -> double { refuse_value(".tolist()", "use the expression as it is"); });
  expr.def("astype", [](const Expr&, const nb::args&, const nb::kwargs&) -> double {
    throw TracingError(".astype() is not traced: all expressions are of dtype float64");
  });
  expr.def("__array__", [](const Expr&, const nb::args&, const nb::kwargs&) -> double {
    throw TracingError(
        "an expression has no value while it is traced, so it cannot become a NumPy array: use the functions that onestep "
        "traces (onestep.traced_functions() lists them), A @ x for A.dot(x), np.stack to join expressions, and A.toarray() "
        "for a sparse matrix of SciPy");
  });
  expr.def("__setitem__", [](const Expr&, nb::handle, nb::handle) {
    throw TracingError(
        "an entry of an expression cannot be changed: make the whole anew, with np.where, np.concatenate or np.stack");
  });
}

}  // namespace onestep::python
