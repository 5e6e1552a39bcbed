// Solvers as Python has them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "options.h"
#include "solution.h"

namespace onestep::python {

/// A Solver, with what it borrows from Python: its functions and callbacks live in the list `kept`, which Python's collector
/// can see. Solvers made of it have lists of their own.
struct PySolver {
  Solver solver;
  nb::object kept;
  Options options;
  SolveOptions defaults;   ///< of its kind, for repr
  std::string text;        ///< how it was made, for repr
  bool has_start = false;  ///< so that all arguments of solve are parameters
  std::shared_ptr<const CopiedData> data = std::make_shared<const CopiedData>();

  /// The same solver changed, with another Python object that it needs, if any.
  PySolver changed(Solver to, nb::handle needs = {}) const;
};

/// A solver that `make` makes of its options, which are the defaults changed by what is named.
template <class Make>
PySolver make_solver(const char* who, nb::list kept, const nb::kwargs& named, const SolveOptions& defaults,
                     const Make& make) {
  Options options{.values = defaults};
  options.change(who, named);
  kept.append(options.callback);
  kept.append(options.estimator);
  Solver solver = make(options.for_library()).with(estimator_of(options.estimator));
  return {std::move(solver), std::move(kept), std::move(options), defaults, who};
}

/// The start, if there is one among the arguments of a solve, and the parameters.
struct Arguments {
  std::optional<Parts> start;
  Parts theta;
};
Arguments arguments_of_solve(const PySolver& solver, const nb::args& arguments, nb::handle start);

/// Adds Solver.prepare.
void add_prepare(nb::class_<PySolver>& solver);

}  // namespace onestep::python
