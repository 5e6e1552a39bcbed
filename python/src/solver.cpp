// The class Solver: solving, and solvers made of others.
#include "solver.h"

#include "errors.h"
#include "records.h"

namespace onestep::python {
namespace {

PySolution solve_once(PySolver& self, const nb::args& arguments, nb::handle start, nb::handle named) {
  const Arguments given = arguments_of_solve(self, arguments, start);
  const Estimator estimator = estimator_of(named);
  const nb::list kept = kept_of(self.kept);
  const Tracing tracing(self.data, kept);
  Solution solution = [&] {
    const WithoutGil no_gil;
    return given.start ? solve(self.solver, *given.start, given.theta, estimator)
                       : solve(self.solver, given.theta, estimator);
  }();
  return {std::move(solution), tracing.needed()};
}

// A node of a traced function.
Expr as_node(const PySolver& self, const nb::args& arguments) {
  const std::vector<Expr> theta = exprs_of(arguments);
  if (Tracing* tracing = Tracing::current()) tracing->keep(kept_of(self.kept));
  const WithoutGil no_gil;
  return detail::solve_node(self.solver, theta);
}

PySolver from(const PySolver& self, nb::handle start) {
  PySolver made = PyCallable_Check(start.ptr()) ? self.changed(self.solver.from(body_of(start)), start)
                                                : self.changed(self.solver.from(parts_of(start)));
  made.has_start = true;
  return made;
}

PySolver with_options(const PySolver& self, const nb::kwargs& named) {
  Options options = self.options;
  options.change("with_options", named);
  PySolver made =
      self.changed(self.solver.with(options.for_library()).with(estimator_of(options.estimator)), options.callback);
  nb::borrow<nb::list>(made.kept).append(options.estimator);
  made.options = options;
  return made;
}

PySolver equation(const PySolver& self, nb::handle residual) {
  return self.changed(self.solver.equation(body_of(residual)), residual);
}

PySolver knowing(const PySolver& self, double rho, double L_A, double L_J, double norm_B) {
  return self.changed(self.solver.knowing({.rho = rho, .L_A = L_A, .L_J = L_J, .norm_B = norm_B}));
}

}  // namespace

PySolver PySolver::changed(Solver to, nb::handle needs) const {
  PySolver made = *this;
  made.solver = std::move(to);
  nb::list all;
  for (const nb::handle object : kept_of(kept)) all.append(object);
  if (needs.is_valid()) all.append(needs);
  made.kept = all;
  return made;
}

Arguments arguments_of_solve(const PySolver& solver, const nb::args& arguments, nb::handle start) {
  Arguments given;
  std::size_t first = 0;
  if (!start.is_none()) {
    given.start = parts_of(start);
  } else if (!solver.has_start) {
    if (arguments.size() == 0)
      throw MisuseError("[solve] no start: solve(x0, *parameters), or give the solver one with from_(x0)");
    given.start = parts_of(arguments[0]);
    first = 1;
  }
  std::vector<Array> theta;
  for (std::size_t i = first; i < arguments.size(); ++i) theta.push_back(array_of(arguments[i]));
  given.theta = std::move(theta);
  return given;
}

void bind_solver(nb::module_& m) {
  nb::class_<PySolver> solver(m, "Solver", nb::type_slots(slots_of_kept<PySolver>()),
                              "An algorithm and its options, ready for any start and parameters. Threads may share it.");
  add_prepare(solver);
  solver
      .def("solve", solve_once, "arguments"_a, "start"_a = nb::none(), "estimator"_a = nb::none(),
           nb::sig(
               "def solve(self, *arguments: ArrayOrParts, start: ArrayOrParts | None = None, estimator: Estimator | None = "
               "None) -> Solution"),
           "solve(x0, *parameters): calls the traced function again, so that what it closes over may have changed, and "
           "solves from x0, an array or a tuple of the parts of the state. A solver that has a start (from_), and a "
           "quadratic program, take the parameters alone; `start` begins elsewhere.")
      .def("__call__", as_node, "theta"_a, nb::sig("def __call__(self, *theta: ExprLike) -> Expr"),
           "Inside a traced function: what the solver converges to, as an expression. It needs a start (from_).")
      .def("from_", from, "start"_a,
           nb::sig("def from_(self, start: ArrayOrParts | collections.abc.Callable[..., typing.Any]) -> Solver"),
           "The same, starting from these arrays, or from a traced function of the parameters, where no start is given.")
      .def("with_options", with_options, "options"_a,
           nb::sig("def with_options(self, *, tolerance: float = ..., " ONESTEP_PYTHON_OPTIONS ") -> Solver"),
           "The same with some options changed.")
      .def("equation", equation, "residual"_a,
           nb::sig("def equation(self, residual: collections.abc.Callable[..., typing.Any]) -> Solver"),
           "The same with the equation G(x, theta) = 0 that implicit differentiation is to use.")
      .def("knowing", knowing, "rho"_a = -1.0, "L_A"_a = -1.0, "L_J"_a = -1.0, "norm_B"_a = -1.0,
           "The same with constants of its step for certificates; negative ones are not known.")
      .def(
          "on", [](const PySolver& self, const Context& context) { return self.changed(self.solver.on(context)); },
          "context"_a, "The same, computing on the threads of this context.")
      .def("__reduce__",
           cannot_be_pickled<PySolver>("a Solver holds the functions it was made of and cannot be pickled; a function of a "
                                       "module that makes it can, by its name, and so can estimators and other options"),
           nb::sig("def __reduce__(self) -> typing.Any"))
      .def("__repr__", [](const PySolver& self) {
        return "<Solver " + self.text + (self.kept.is_valid() ? self.options.text(self.defaults) : "") + ">";
      });
}

}  // namespace onestep::python
