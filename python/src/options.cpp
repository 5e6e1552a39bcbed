// Options of solvers as keyword arguments of Python; estimators; and what lets Ctrl-C stop a solve.
#include "options.h"

#include "errors.h"
#include "gil.h"

namespace onestep::python {
namespace {

const char* const option_names = "tolerance, max_iterations, time_limit, typical_x, callback, history and estimator";

void check_callable(nb::handle callback) {
  if (!callback.is_none() && !PyCallable_Check(callback.ptr()))
    throw nb::type_error("callback must be a function of an Iteration, or None");
}

// Python's, or NumPy's, which is no subclass of it.
bool bool_of(nb::handle object) {
  const auto type = nb::cast<std::string>(object.type().attr("__name__"));
  return type == "bool_" || type == "bool" ? is_true(object) : nb::cast<bool>(object);
}

}  // namespace

void check_signals() {
  if (!SignalClock::is_due()) return;
  SignalClock::restart();
  with_gil([] {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  });
}

bool is_true(nb::handle object) {
  const int is = PyObject_IsTrue(object.ptr());
  if (is < 0) throw nb::python_error();
  return is != 0;
}

void Options::change(const char* who, const nb::kwargs& named) {
  for (const auto [key, value] : named) {
    const std::string name = nb::cast<std::string>(key);
    try {
      if (name == "tolerance") {
        values.tolerance = nb::cast<double>(value);
      } else if (name == "max_iterations") {
        values.max_iterations = nb::cast<int>(value);
      } else if (name == "time_limit") {
        values.time_limit = nb::cast<double>(value);
      } else if (name == "typical_x") {
        values.typical_x = nb::cast<double>(value);
      } else if (name == "history") {
        values.history = bool_of(value);
      } else if (name == "callback") {
        check_callable(value);
        callback = value;
      } else if (name == "estimator") {
        estimator_of(value);
        estimator = value;
      } else {
        throw nb::type_error((std::string(who) + "() has no option '" + name + "'; there are " + option_names).c_str());
      }
    } catch (const nb::cast_error&) {
      throw nb::type_error(
          (std::string(who) + "(): " + name + " cannot be " + nb::cast<std::string>(nb::repr(value))).c_str());
    }
  }
}

SolveOptions Options::for_library(const Interrupted& interrupted) const {
  SolveOptions options = values;
  const auto goes_on = [interrupted](const Iteration&) {
    if (interrupted && *interrupted) return false;
    try {
      check_signals();
    } catch (...) {
      if (interrupted) *interrupted = true;
      throw;
    }
    return true;
  };
  options.callback = goes_on;
  if (callback.is_none()) return options;
  options.callback = [goes_on, borrowed = callback](const Iteration& i) {
    if (!goes_on(i)) return false;
    return with_gil([&] {
      const nb::object answer = borrowed(i);
      return answer.is_none() || is_true(answer);
    });
  };
  return options;
}

std::string Options::text(const SolveOptions& defaults) const {
  std::string text;
  const auto add = [&](const char* name, nb::handle value) {
    text += std::string(", ") + name + "=" + nb::cast<std::string>(nb::repr(value));
  };
  if (values.tolerance != defaults.tolerance) add("tolerance", nb::cast(values.tolerance));
  if (values.max_iterations != defaults.max_iterations) add("max_iterations", nb::cast(values.max_iterations));
  if (values.time_limit != defaults.time_limit) add("time_limit", nb::cast(values.time_limit));
  if (values.typical_x != defaults.typical_x) add("typical_x", nb::cast(values.typical_x));
  if (values.history != defaults.history) add("history", nb::cast(values.history));
  if (!callback.is_none()) add("callback", callback);
  if (!estimator.is_none()) add("estimator", estimator);
  return text;
}

Estimator estimator_of(nb::handle object) {
  if (object.is_none()) return {};
  if (nb::isinstance<OneStep>(object)) return nb::cast<OneStep>(object);
  if (nb::isinstance<KStep>(object)) return nb::cast<KStep>(object);
  if (nb::isinstance<Implicit>(object)) return nb::cast<Implicit>(object);
  if (nb::isinstance<Unrolled>(object)) return nb::cast<Unrolled>(object);
  if (nb::isinstance<Auto>(object)) return nb::cast<Auto>(object);
  throw nb::type_error(
      "estimator must be OneStep(), KStep(K), Implicit(), Unrolled(), Auto(tolerance) or None: an object, not a "
      "class or a name");
}

void bind_options(nb::module_& m) {
  m.def("set_threads", set_threads, "threads"_a, "How many threads computations may use, the calling one included.");
  m.def("threads", threads, "How many threads computations may use.");
  nb::class_<Context>(m, "Context", "Threads of its own: computations in two contexts run side by side.")
      .def(
          "__init__", [](Context* self, int number) { new (self) Context({.threads = number}); }, "threads"_a = 1)
      .def_prop_ro("threads", &Context::threads, "How many threads it has, the calling one included.")
      .def("__repr__", [](const Context& c) { return "Context(threads=" + std::to_string(c.threads()) + ")"; });
}

}  // namespace onestep::python
