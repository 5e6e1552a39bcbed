// Outer problems: minimise g(x(theta), theta) over theta.
#include "records.h"
#include "solver.h"

#include <sstream>

#include "words.h"

namespace onestep::python {
namespace {

// An inner problem, with the Python objects that it borrows.
struct PyInner {
  Inner inner;
  nb::object kept;
};

PyInner inner_of(const PySolver& solver, nb::handle start, nb::handle objective, nb::handle named) {
  const Parts x0 = start.is_none() ? Parts() : parts_of(start);
  nb::list kept;
  kept.append(kept_of(solver.kept));
  kept.append(objective);
  return {Inner(solver.solver, x0, body_of(objective), estimator_of(named)), kept};
}

OuterMethod method_of(nb::handle object) {
  if (object.is_none()) return Lbfgs{};
  if (nb::isinstance<Lbfgs>(object)) return nb::cast<Lbfgs>(object);
  if (nb::isinstance<Descent>(object)) return nb::cast<Descent>(object);
  if (nb::isinstance<Adam>(object)) return nb::cast<Adam>(object);
  throw nb::type_error("method must be Lbfgs(), Descent() or Adam()");
}

struct Arguments {
  std::vector<Inner> inner;
  std::vector<Parameter> parameters;
  nb::list kept;  // the inner problems: an iterator may give out the only references to them
};

Arguments collected(nb::handle inner, nb::handle parameters) {
  Arguments all;
  if (nb::isinstance<PyInner>(inner)) {
    all.inner.push_back(nb::cast<const PyInner&>(inner).inner);
    all.kept.append(inner);
  } else {
    for (const nb::handle one : inner) {
      all.inner.push_back(nb::cast<const PyInner&>(one).inner);
      all.kept.append(one);
    }
  }
  if (nb::isinstance<Parameter>(parameters)) {
    all.parameters.push_back(nb::cast<Parameter>(parameters));
  } else {
    for (const nb::handle one : parameters) all.parameters.push_back(nb::cast<Parameter>(one));
  }
  return all;
}

Outcome minimise_python(nb::handle inner, nb::handle parameters, nb::handle method, double tolerance, int max_iterations,
                        double time_limit, nb::object callback, bool warm, bool adaptive, bool certified,
                        const std::string& checkpoint, const std::string& identity) {
  const Arguments given = collected(inner, parameters);
  const OuterMethod how = method_of(method);
  BilevelOptions options{.tolerance = tolerance, .max_iterations = max_iterations, .time_limit = time_limit};
  options.warm = warm;
  options.adaptive = adaptive;
  options.certified = certified;
  options.checkpoint = checkpoint;
  options.identity = identity;
  // Asked by all threads that solve inner problems, of which one sees the signal.
  options.cancelled = [interrupted = std::make_shared<std::atomic<bool>>()] {
    if (*interrupted) return true;
    try {
      check_signals();
    } catch (...) {
      *interrupted = true;
      throw;
    }
    return false;
  };
  options.callback = [callback = nb::handle(callback)](const OuterIteration& i) {
    check_signals();
    if (callback.is_none()) return true;
    return with_gil([&] {
      const nb::object answer = callback(i);
      return answer.is_none() || is_true(answer);
    });
  };
  std::shared_ptr<const CopiedData> none;
  const Tracing tracing(none, nb::list());
  const WithoutGil no_gil;
  return minimise(given.inner, given.parameters, how, options);
}

using OfParameter = Pickling<&Parameter::start, &Parameter::kind, &Parameter::low, &Parameter::high>;
using OfOutcome =
    Pickling<&Outcome::status, &Outcome::about, &Outcome::inner_failed, &Outcome::uncertain, &Outcome::theta, &Outcome::x,
             &Outcome::value, &Outcome::hypergradient, &Outcome::critical, &Outcome::norm, &Outcome::bound,
             &Outcome::bound_rests_on, &Outcome::at_low, &Outcome::at_high, &Outcome::iterations, &Outcome::evaluations,
             &Outcome::hypergradients, &Outcome::fell_short, &Outcome::inner_iterations, &Outcome::inner_factorisations,
             &Outcome::seconds, &Outcome::inner_seconds, &Outcome::hypergradient_seconds, &Outcome::checkpoint_seconds,
             &Outcome::resumed, &Outcome::history>;

void bind_parameters(nb::module_& m) {
  const auto made = [](Parameter (*make)(Array)) { return [make](nb::handle start) { return make(array_of(start)); }; };
  nb::class_<Parameter>(m, "Parameter", "A parameter that is optimised: where it starts, where it may lie, how it is moved.")
      .def_static("real", made(Parameter::real), "start"_a, nb::sig("def real(start: ArrayOrParts) -> Parameter"),
                  "Moved as it is.")
      .def_static("positive", made(Parameter::positive), "start"_a,
                  nb::sig("def positive(start: ArrayOrParts) -> Parameter"), "Its logarithm is moved.")
      .def_static("unit", made(Parameter::unit), "start"_a, nb::sig("def unit(start: ArrayOrParts) -> Parameter"),
                  "In (0, 1): its logit is moved.")
      .def_static("fixed", made(Parameter::fixed), "start"_a, nb::sig("def fixed(start: ArrayOrParts) -> Parameter"),
                  "Not moved.")
      .def("within", &Parameter::within, "lowest"_a, "highest"_a, "The same with bounds.")
      .def("__getstate__", [](const Parameter& p) { return OfParameter::state(p); })
      .def("__setstate__",
           [](Parameter& self, const nb::tuple& values) {
             OfParameter::restore(*new (&self) Parameter{.start = Array(0.0)}, values);
           })
      .def("__repr__", [](const Parameter& p) {
        std::ostringstream text;
        text << "<Parameter of shape " << p.start.shape() << ">";
        return text.str();
      });
  Record<Lbfgs> lbfgs(m, "Lbfgs", "L-BFGS with bounds.");
  lbfgs.field("memory", &Lbfgs::memory, "Steps remembered.")
      .type.def(
          "__init__", [](Lbfgs* self, int memory) { new (self) Lbfgs{memory}; }, "memory"_a = Lbfgs{}.memory);
  Record<Descent> descent(m, "Descent", "Steps against the hypergradient; a length of 0 is searched for.");
  descent.field("step", &Descent::step, "Their length.")
      .type.def(
          "__init__", [](Descent* self, double step) { new (self) Descent{step}; }, "step"_a = 0.0);
  Record<Adam> adam(m, "Adam", "Adam (Kingma and Ba 2015).");
  adam.field("step", &Adam::step, "The length of steps.")
      .type.def(
          "__init__", [](Adam* self, double step) { new (self) Adam{.step = step}; }, "step"_a = Adam{}.step);
  Record<OuterIteration>(m, "OuterIteration", "An outer iteration, as the callback and the history have it.")
      .field("number", &OuterIteration::number, "0 for the start.")
      .field("value", &OuterIteration::value, "Of g.")
      .field("critical", &OuterIteration::critical, "What the tolerance is compared with.")
      .field("norm", &OuterIteration::norm, "Of the hypergradient.")
      .field("length", &OuterIteration::length, "Of the step, relative to the full one.")
      .field("inner_iterations", &OuterIteration::inner_iterations, "Of all inner problems, since the start.")
      .field("seconds", &OuterIteration::seconds, "Since the start.");
}

}  // namespace

void bind_bilevel(nb::module_& m) {
  bind_parameters(m);
  nb::class_<PyInner>(
      m, "Inner", nb::type_slots(slots_of_kept<PyInner>()),
      "An inner problem and what its solution is judged by: a solver, its start, and g as a traced function of x "
      "(and of the parameters if it depends on them).")
      .def(
          "__init__",
          [](PyInner* self, const PySolver& solver, nb::handle start, nb::handle objective, nb::handle estimator) {
            new (self) PyInner(inner_of(solver, start, objective, estimator));
          },
          "solver"_a, "start"_a.none(), "objective"_a, "estimator"_a = nb::none(),
          nb::sig("def __init__(self, solver: Solver, start: ArrayOrParts | None, objective: collections.abc.Callable[..., "
                  "typing.Any], estimator: Estimator | None = None) -> None"));

  nb::class_<Outcome>(m, "Outcome", "What minimise ended with.")
      .def_ro("status", &Outcome::status, "How it ended.")
      .def_prop_ro(
          "message", [](const Outcome& o) { return in_python_words(o.message()); }, "The status in a sentence.")
      .def_prop_ro(
          "theta", [](const Outcome& o) { return numpy_tuple(o.theta); },
          nb::sig("def theta(self) -> tuple[numpy.typing.NDArray[numpy.float64], ...]"), "All parameters.")
      .def_prop_ro(
          "hypergradient", [](const Outcome& o) { return numpy_tuple(o.hypergradient); },
          nb::sig("def hypergradient(self) -> tuple[numpy.typing.NDArray[numpy.float64], ...]"),
          "With respect to the parameters.")
      .def_prop_ro(
          "x",
          [](const Outcome& o) {
            nb::list all;
            for (const Parts& p : o.x) all.append(numpy_parts(p));
            return all;
          },
          nb::sig("def x(self) -> list[typing.Any]"), "The states of the inner problems.")
      .def_ro("value", &Outcome::value, "Of g.")
      .def_ro("norm", &Outcome::norm, "Of the hypergradient, less what pushes against bounds.")
      .def_ro("bound", &Outcome::bound, "On the error of that, as the certificates observed it.")
      .def_ro("bound_rests_on", &Outcome::bound_rests_on, "observed, or why there is no bound.")
      .def_ro("iterations", &Outcome::iterations, "Outer ones.")
      .def_ro("seconds", &Outcome::seconds, "In all.")
      .def_ro("resumed", &Outcome::resumed, "Whether it went on from a checkpoint.")
      .def_ro("history", &Outcome::history, "All outer iterations.")
      .def("__getstate__", [](const Outcome& o) { return OfOutcome::state(o); })
      .def("__setstate__",
           [](Outcome& self, const nb::tuple& values) { OfOutcome::restore(*new (&self) Outcome{}, values); })
      .def("__repr__",
           [](const Outcome& o) {
             std::ostringstream text;
             text << o;
             return "<Outcome: " + text.str() + ">";
           })
      .def(
          "_repr_html_", [](nb::handle self) { return html_of("of_outcome", self); },
          nb::sig("def _repr_html_(self) -> str"));

  const BilevelOptions defaults;
  m.def("minimise", minimise_python, "inner"_a, "parameters"_a, "method"_a = nb::none(), "tolerance"_a = defaults.tolerance,
        "max_iterations"_a = defaults.max_iterations, "time_limit"_a = defaults.time_limit, "callback"_a = nb::none(),
        "warm"_a = true, "adaptive"_a = true, "certified"_a = true, "checkpoint"_a = "", "identity"_a = "",
        nb::sig("def minimise(inner: Inner | collections.abc.Iterable[Inner], parameters: Parameter | "
                "collections.abc.Iterable[Parameter], method: Lbfgs | Descent | Adam | None = None, tolerance: float = "
                "1e-5, max_iterations: int = 200, time_limit: float = ..., callback: "
                "collections.abc.Callable[[OuterIteration], typing.Any] | None = None, warm: bool = True, adaptive: bool = "
                "True, certified: bool = True, checkpoint: str = '', identity: str = '') -> Outcome"),
        "Minimises the sum of g_i(x_i(theta), theta) over theta, where x_i(theta) is what the solver of the i-th inner "
        "problem converges to.");
}

}  // namespace onestep::python
