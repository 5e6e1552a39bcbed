// What a loop hands back, with as much of its way as an estimator asked for.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "onestep/solver.h"
#include "onestep/status.h"
#include "solve/trajectory.h"

namespace onestep::detail {

/// What a solver hands back.
struct Run {
  Status status = Status::iteration_limit;
  std::string about;  ///< details for the message of the status, where there are any
  Statistics statistics;
  std::vector<double> start, previous, x;  ///< x_0, x_{k-1}, x_k
  double last_step = 0;                    ///< ‖x_k - x_{k-1}‖
  double step_before = 0;                  ///< the length of the step before that; 0: there was none
  bool steps_vanish = false;               ///< linear convergence down to a step of 0: the solution is degenerate
  double slowness = 0;                     ///< 1/(1 - ρ), ρ being the rate at which steps became shorter; 0: not seen
  std::vector<double> controls;            ///< with which the last step is differentiated: undamped
  /// That a program is infeasible or unbounded (a Farkas ray or a direction), in the form of a state.
  std::vector<double> proof;
  std::vector<double> anchor, scratch;       ///< the monitor's
  std::array<std::vector<double>, 2> older;  ///< x_{k-2} and x_{k-3}, where the monitor decides from lengths of steps
  Trajectory trajectory;
};

}  // namespace onestep::detail
