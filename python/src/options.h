// Options of solvers as keyword arguments of Python; estimators; and what lets Ctrl-C stop a solve.
#pragma once

#include "common.h"

// The keyword arguments of SolveOptions in signatures, for the stubs.
#define ONESTEP_PYTHON_OPTIONS                                                                                              \
  "max_iterations: int = ..., time_limit: float = ..., typical_x: float = ..., "                                            \
  "callback: collections.abc.Callable[[Iteration], typing.Any] | None = None, history: bool = False, estimator: Estimator " \
  "| None = None"

namespace onestep::python {

/// The options of a solver, with the Python objects that the library's copies of them borrow.
struct Options {
  SolveOptions values;
  nb::object callback = nb::none();
  nb::object estimator = nb::none();

  /// Changes those that are named. Throws Python's TypeError for an unknown one, naming `who`.
  void change(const char* who, const nb::kwargs& named);
  /// Those for the library: each iteration looks for Ctrl-C at most every 50 ms, and calls the callback.
  SolveOptions for_library() const;
  /// As they are written in a call, those that are not the defaults.
  std::string text(const SolveOptions& defaults) const;
};

/// None is that of the solver, or of its method.
Estimator estimator_of(nb::handle object);

/// Throws KeyboardInterrupt, or what another handler of signals raised, at most every 50 ms. Takes the GIL only then.
void check_signals();

}  // namespace onestep::python
