// Statuses, estimators, statistics, reports and certificates.
#include "records.h"

#include "words.h"

#include <nanobind/stl/optional.h>

#include <sstream>

namespace onestep::python {
namespace {

void bind_status(nb::module_& m) {
  nb::enum_<Status>(m, "Status", "How a solve ended. Numerical trouble is a status, never an exception.")
      .value("converged", Status::converged, "The tolerance is met.")
      .value("rounding_reached", Status::rounding_reached, "Rounding stopped all progress just above the tolerance.")
      .value("iteration_limit", Status::iteration_limit, "The iterations allowed were used up.")
      .value("time_limit", Status::time_limit, "The time allowed was used up.")
      .value("cancelled", Status::cancelled, "The callback asked to stop.")
      .value("diverged", Status::diverged, "The iterates grow without limit.")
      .value("not_finite", Status::not_finite, "A NaN or an infinity in the data, or in what was computed from it.")
      .value("line_search_failed", Status::line_search_failed, "No step along the search direction made progress.")
      .value("singular", Status::singular, "A matrix could not be factored, nor made regular by a shift.")
      .value("infeasible", Status::infeasible, "No point satisfies the constraints; a proof is returned (Solution.proof).")
      .value("unbounded", Status::unbounded, "The objective decreases without limit; a proof is returned (Solution.proof).")
      .value("not_convex", Status::not_convex, "A quadratic program whose Q has a negative eigenvalue.")
      .def_prop_ro(
          "is_solution", [](Status s) { return is_solution(s); },
          "Whether the point returned is as good as was asked for, or as good as rounding allows.")
      .def_prop_ro(
          "explanation", [](Status s) { return in_python_words(explain(s)); }, "What happened and what to try.");
}

void bind_estimators(nb::module_& m) {
  Record<OneStep>(m, "OneStep",
                  "The derivative of the last step alone: for superlinear methods, or as a cheap approximation.")
      .hashable()
      .type.def(nb::init<>());
  Record<KStep> k_step(m, "KStep",
                       "The derivative of the last K steps: its error falls with the K-th power of the contraction factor.");
  k_step.field("K", &KStep::K, "How many steps.").hashable();
  k_step.type.def(
      "__init__", [](KStep* self, int K) { new (self) KStep{K}; }, "K"_a);

  Record<Implicit> implicit(m, "Implicit", "The derivative of the equation at the solution, by a linear solve.");
  nb::enum_<Implicit::How>(implicit.type, "How", "How the linear system is solved.")
      .value("automatic", Implicit::automatic)
      .value("dense", Implicit::dense)
      .value("matrix_free", Implicit::matrix_free);
  implicit.field("how", &Implicit::how, "dense, matrix_free, or automatic.")
      .field("tolerance", &Implicit::tolerance, "The residual of the linear system, relative to its right-hand side.")
      .field("max_iterations", &Implicit::max_iterations, "Of the iterative linear solver.")
      .field("on_step", &Implicit::on_step, "Use x - F(x, theta) = 0 whatever equation the solver knows.")
      .hashable();
  implicit.type.def(
      "__init__",
      [](Implicit* self, Implicit::How how, double tolerance, int max_iterations, bool on_step) {
        new (self) Implicit{.how = how, .tolerance = tolerance, .max_iterations = max_iterations, .on_step = on_step};
      },
      "how"_a = Implicit::automatic, "tolerance"_a = 1e-12, "max_iterations"_a = 1000, "on_step"_a = false);

  Record<Unrolled> unrolled(m, "Unrolled",
                            "The derivative of the iterates actually made, as automatic differentiation gives it.");
  nb::enum_<Unrolled::Mode>(unrolled.type, "Mode", "In which direction the derivative goes over the steps.")
      .value("automatic", Unrolled::automatic)
      .value("forward", Unrolled::forward)
      .value("reverse", Unrolled::reverse);
  unrolled.field("mode", &Unrolled::mode, "forward, reverse, or automatic: jvp forward, vjp in reverse.")
      .field("memory", &Unrolled::memory, "Bytes for states; others are computed again from checkpoints.")
      .hashable();
  unrolled.type.def(
      "__init__",
      [](Unrolled* self, Unrolled::Mode mode, std::size_t memory) { new (self) Unrolled{.mode = mode, .memory = memory}; },
      "mode"_a = Unrolled::automatic, "memory"_a = std::size_t{1} << 30);

  Record<Auto> automatic(m, "Auto",
                         "One step where that meets the tolerance, else implicit differentiation by a Krylov method.");
  automatic.field("tolerance", &Auto::tolerance, "Relative to the norm of what is returned.").hashable();
  automatic.type.def(
      "__init__", [](Auto* self, double tolerance) { new (self) Auto{tolerance}; }, "tolerance"_a = 1e-6);
}

void bind_reports(nb::module_& m) {
  Record<Statistics>(m, "Statistics", "What a solve cost.")
      .field("iterations", &Statistics::iterations, "That the solve made.")
      .field("evaluations", &Statistics::evaluations, "Of the objective or the map, line search included.")
      .field("factorisations", &Statistics::factorisations, "Of matrices.")
      .field("products", &Statistics::products, "With the Hessian, by methods that do not form it.")
      .field("shifts", &Statistics::shifts, "Times a matrix had to be made positive definite.")
      .field("backtracks", &Statistics::backtracks, "Times the line search shortened a step.")
      .field("restarts", &Statistics::restarts, "Times a method started again elsewhere.")
      .field("step_flops", &Statistics::step_flops, "Multiply-adds of one step.")
      .field("seconds", &Statistics::seconds, "Of the solve.")
      .field("history", &Statistics::history, "Lengths of the steps, where history=True asked for them.");

  Record<DerivativeReport>(m, "DerivativeReport", "How the last derivative was computed, and what it cost.")
      .field("method", &DerivativeReport::method, "The estimator that gave it; of Auto the one it chose.")
      .field("status", &DerivativeReport::status, "Of the linear solve.")
      .field("residual", &DerivativeReport::residual, "Reached by the linear solve, relative.")
      .field("products", &DerivativeReport::products, "Derivatives of the step or the equation that were evaluated.")
      .field("factorisations", &DerivativeReport::factorisations, "Made for it.")
      .field("steps", &DerivativeReport::steps, "Steps that were computed again.")
      .field("further", &DerivativeReport::further, "Steps beyond those the solve made.")
      .field("terms", &DerivativeReport::terms, "Iterations of the GMRES of Auto.")
      .field("flops", &DerivativeReport::flops, "Where the costs are known.")
      .field("met_tolerance", &DerivativeReport::met_tolerance,
             "Of Auto: its estimate of the error is within its tolerance.");

  Record<Iteration>(m, "Iteration", "What an iteration tells the callback.")
      .field("number", &Iteration::number, "1 for the first.")
      .field("step", &Iteration::step, "How far the state moved; of a quadratic program its largest relative residual.")
      .field("scale", &Iteration::scale, "What the tolerance is relative to.")
      .field("value", &Iteration::value, "Objective or residual norm where the solver has one, else NaN.")
      .field("length", &Iteration::length, "Of the step, relative to the full one.")
      .field("seconds", &Iteration::seconds, "Since the start.");
}

void bind_certificate(nb::module_& m) {
  Record<Certificate> record(m, "Certificate",
                             "What is known about the error of a derivative, in the Euclidean norm of what was returned.");
  nb::enum_<Certificate::Basis>(record.type, "Basis", "What a bound rests on.")
      .value("proven", Certificate::Basis::proven)
      .value("observed", Certificate::Basis::observed)
      .value("refused", Certificate::Basis::refused);
  nb::enum_<Certificate::Term>(record.type, "Term", "The terms of a bound.")
      .value("left_out", Certificate::Term::left_out)
      .value("distance", Certificate::Term::distance)
      .value("rounding", Certificate::Term::rounding);
  record.field("basis", &Certificate::basis, "observed (a heuristic with safety factors) or refused.")
      .field("dominant", &Certificate::dominant, "The largest of the three terms.")
      .field("bound", &Certificate::bound, "On the error; infinite where refused.")
      .field("relative", &Certificate::relative, "The bound over the norm of the derivative.")
      .field("estimate", &Certificate::estimate, "What the error most likely is; NaN: cannot be told.")
      .field("value", &Certificate::value, "Norm of the derivative it is about.")
      .field("left_out", &Certificate::left_out, "The term of what the estimator does not compute.")
      .field("from_distance", &Certificate::from_distance, "The term of the distance to the solution.")
      .field("rounding", &Certificate::rounding, "The term of rounding.")
      .field("rho", &Certificate::rho, "Contraction, as observed or given.")
      .field("distance", &Certificate::distance, "From the last iterate to the solution, at most, as observed.")
      .field("L_J", &Certificate::L_J, "Change of the derivative over change of x, as observed.")
      .field("norm_B", &Certificate::norm_B, "Norm of dF/dtheta as observed.")
      .field("products", &Certificate::products, "Derivatives of the step that it cost.")
      .field("reason", &Certificate::reason, "Why there is no bound, or what the bound is based on.")
      .field("advice", &Certificate::advice, "What would lower the bound, or give one.");
  record.type.def("json", &Certificate::json, "One JSON object.");
  record.type.def("__str__", [](const Certificate& c) {
    std::ostringstream text;
    text << c;
    return text.str();
  });
  record.type.def(
      "_repr_html_", [](nb::handle self) { return html_of("of_certificate", self); },
      nb::sig("def _repr_html_(self) -> str"));
}

}  // namespace

void bind_records(nb::module_& m) {
  bind_status(m);
  bind_estimators(m);
  bind_reports(m);
  bind_certificate(m);
}

}  // namespace onestep::python
