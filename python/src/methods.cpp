// newton, newton_root, newton_cg, gradient_descent and fixed_point of traced functions.
#include "errors.h"
#include "foreign.h"
#include "records.h"
#include "solver.h"

namespace onestep::python {
namespace {

nb::list list_of(nb::handle object) {
  nb::list list;
  list.append(object);
  return list;
}

std::string name_of(nb::handle function) {
  const nb::object name = nb::getattr(function, "__name__", nb::none());
  return name.is_none() ? nb::cast<std::string>(function.type().attr("__name__")) : nb::cast<std::string>(name);
}

// A solver of a traced function, by one of the library's make_… functions.
template <class Make> PySolver of_function(const char* who, nb::handle function, const nb::kwargs& named, const Make& make) {
  PySolver made =
      make_solver(who, list_of(function), named, {}, [&](const SolveOptions& o) { return make(body_of(function), o); });
  made.text = std::string(who) + "(" + name_of(function);
  made.text += ")";
  return made;
}

GradientStep step_of(nb::handle step) {
  if (step.is_none()) return {};
  if (is_number(step)) return GradientStep::fixed(number_of(step));
  GradientStep given;
  if (nb::try_cast(step, given)) return given;
  throw nb::type_error("step must be a number or one of GradientStep's: fixed, inverse_smoothness, optimal, backtracking");
}

Momentum momentum_of(nb::handle momentum) {
  if (momentum.is_none()) return {};
  Momentum given;
  if (nb::try_cast(momentum, given)) return given;
  throw nb::type_error("momentum must be Momentum.heavy_ball(beta), Momentum.nesterov(beta) or None");
}

PySolver newton_cg(nb::handle objective, double derivative_tolerance, double first_residual, int max_products,
                   const nb::kwargs& named) {
  const NewtonCgOptions how{
      .derivative_tolerance = derivative_tolerance, .first_residual = first_residual, .max_products = max_products};
  return of_function("newton_cg", objective, named,
                     [&](const detail::Body& body, const SolveOptions& o) { return detail::make_newton_cg(body, how, o); });
}

PySolver gradient_descent(nb::handle objective, nb::handle step, nb::handle momentum, const nb::kwargs& named) {
  const GradientDescent how{.step = step_of(step), .momentum = momentum_of(momentum)};
  return of_function("gradient_descent", objective, named, [&](const detail::Body& body, const SolveOptions& o) {
    return detail::make_gradient_descent(body, how, o);
  });
}

PySolver fixed_point(nb::handle step, const nb::kwargs& named) {
  const PyForeignStep* foreign = nullptr;
  if (!nb::try_cast<const PyForeignStep*>(step, foreign, false) || foreign == nullptr)
    return of_function("fixed_point", step, named, detail::make_fixed_point);
  PySolver made = make_solver("fixed_point", list_of(step), named, {},
                              [&](const SolveOptions& o) { return onestep::fixed_point(library_step(*foreign), o); });
  made.text = "fixed_point(ForeignStep)";
  return made;
}

void bind_step_lengths(nb::module_& m) {
  Record<GradientStep> step(m, "GradientStep", "How long gradient descent's steps are.");
  nb::enum_<GradientStep::Kind>(step.type, "Kind")
      .value("fixed", GradientStep::Kind::fixed)
      .value("inverse_smoothness", GradientStep::Kind::inverse_smoothness)
      .value("optimal", GradientStep::Kind::optimal)
      .value("backtracking", GradientStep::Kind::backtracking);
  step.field("kind", &GradientStep::kind, "Which rule.")
      .field("alpha", &GradientStep::alpha, "fixed: the step; backtracking: the first one tried.")
      .field("mu", &GradientStep::mu, "Smallest eigenvalue of the Hessian; 0: measured at the start.")
      .field("L", &GradientStep::L, "Largest eigenvalue of the Hessian; 0: measured at the start.");
  step.type.def_static("fixed", GradientStep::fixed, "alpha"_a, "Steps of this length.")
      .def_static("inverse_smoothness", GradientStep::inverse_smoothness, "L"_a = 0.0, "1/L.")
      .def_static("optimal", GradientStep::optimal, "mu"_a = 0.0, "L"_a = 0.0, "2/(mu + L), the fastest constant step.")
      .def_static("backtracking", GradientStep::backtracking, "first"_a = 1.0,
                  "Halved until the objective decreases enough.");

  Record<Momentum> momentum(m, "Momentum", "How gradient descent remembers its last step.");
  nb::enum_<Momentum::Kind>(momentum.type, "Kind")
      .value("none", Momentum::Kind::none)
      .value("heavy_ball", Momentum::Kind::heavy_ball)
      .value("nesterov", Momentum::Kind::nesterov);
  momentum.field("kind", &Momentum::kind, "Which rule.").field("beta", &Momentum::beta, "How much of the last step.");
  momentum.type.def_static("heavy_ball", Momentum::heavy_ball, "beta"_a, "x - a grad f(x) + beta (x - x_before)")
      .def_static("nesterov", Momentum::nesterov, "beta"_a, "y - a grad f(y) with y = x + beta (x - x_before)");
}

}  // namespace

void bind_methods(nb::module_& m) {
  bind_step_lengths(m);
  m.def(
      "newton", [](nb::handle f, const nb::kwargs& named) { return of_function("newton", f, named, detail::make_newton); },
      "objective"_a, "options"_a,
      nb::sig("def newton(objective: collections.abc.Callable[..., typing.Any], *, tolerance: float = "
              "1e-10, " ONESTEP_PYTHON_OPTIONS ") -> Solver"),
      "Newton's method for a minimiser of f(x, theta), traced from a function of the parts of x and the parameters.");
  m.def(
      "newton_root",
      [](nb::handle f, const nb::kwargs& named) { return of_function("newton_root", f, named, detail::make_newton_root); },
      "residual"_a, "options"_a,
      nb::sig("def newton_root(residual: collections.abc.Callable[..., typing.Any], *, tolerance: float = "
              "1e-10, " ONESTEP_PYTHON_OPTIONS ") -> Solver"),
      "Newton's method for a root of G(x, theta) = 0, with as many equations as unknowns.");
  m.def(
      "newton_cg", newton_cg, "objective"_a, "derivative_tolerance"_a = NewtonCgOptions{}.derivative_tolerance,
      "first_residual"_a = NewtonCgOptions{}.first_residual, "max_products"_a = NewtonCgOptions{}.max_products, "options"_a,
      nb::sig("def newton_cg(objective: collections.abc.Callable[..., typing.Any], *, derivative_tolerance: float = 1e-10, "
              "first_residual: float = 0.5, max_products: int = 5000, tolerance: float = 1e-10, " ONESTEP_PYTHON_OPTIONS
              ") -> Solver"),
      "Newton's method for thousands of unknowns: products with the Hessian only.");
  m.def("gradient_descent", gradient_descent, "objective"_a, "step"_a = nb::none(), "momentum"_a = nb::none(), "options"_a,
        nb::sig("def gradient_descent(objective: collections.abc.Callable[..., typing.Any], *, step: float | GradientStep | "
                "None = None, momentum: Momentum | None = None, tolerance: float = 1e-10, " ONESTEP_PYTHON_OPTIONS
                ") -> Solver"),
        "Gradient descent on f(x, theta). A number as `step` is its fixed length; 1/L where none is given.");
  m.def("fixed_point", fixed_point, "step"_a, "options"_a,
        nb::sig("def fixed_point(step: collections.abc.Callable[..., typing.Any] | ForeignStep, *, tolerance: float = "
                "1e-10, " ONESTEP_PYTHON_OPTIONS ") -> Solver"),
        "x <- F(x, theta) until it stands still; a traced function returns the parts of the state.");
}

}  // namespace onestep::python
