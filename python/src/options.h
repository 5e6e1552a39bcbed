// Options of solvers as keyword arguments of Python; estimators; and what lets Ctrl-C stop a solve.
#pragma once

#include <atomic>
#include <memory>

#include "common.h"

// The keyword arguments of SolveOptions in signatures, for the stubs.
#define ONESTEP_PYTHON_OPTIONS                                                                                              \
  "max_iterations: int = ..., time_limit: float = ..., typical_x: float = ..., "                                            \
  "callback: collections.abc.Callable[[Iteration], typing.Any] | None = None, history: bool = False, estimator: Estimator " \
  "| None = None"

namespace onestep::python {

/// Whether a signal has stopped one of many problems that are solved together, so that the others stop, too.
using Interrupted = std::shared_ptr<std::atomic<bool>>;

/// The options of a solver. Python objects are borrowed: those who have options keep them alive, where Python's collector
/// sees them.
struct Options {
  SolveOptions values;
  nb::handle callback = Py_None;
  nb::handle estimator = Py_None;

  /// Changes those that are named. Throws Python's TypeError for an unknown one, naming `who`.
  void change(const char* who, const nb::kwargs& named);
  /// Those for the library: each iteration looks for Ctrl-C at most every 50 ms, and calls the callback.
  SolveOptions for_library(const Interrupted& interrupted = {}) const;
  /// As they are written in a call, those that are not the defaults.
  std::string text(const SolveOptions& defaults) const;
};

/// None is that of the solver, or of its method.
Estimator estimator_of(nb::handle object);

/// What Python's if would make of it.
bool is_true(nb::handle object);

/// Throws KeyboardInterrupt, or what another handler of signals raised, at most every 50 ms. Takes the GIL only then.
void check_signals();

}  // namespace onestep::python
