// When a solve stops, whom it tells, and what it cost.
#pragma once

#include <functional>
#include <iosfwd>
#include <limits>
#include <vector>

#include "onestep/export.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// What an iteration tells the callback and the log.
///
///     SolveOptions impatient{.callback = [](const Iteration& i) { return i.seconds < 1 || i.step < 1e-3 * i.scale; }};
struct Iteration {
  int number = 0;      ///< 1 for the first
  double step = 0;     ///< how far the state moved (Euclidean norm); of a quadratic program its largest relative residual
  double scale = 0;    ///< what the tolerance is relative to
  double value = 0;    ///< objective or residual norm where the solver has one, else NaN
  double length = 1;   ///< of the step, relative to the full one
  double seconds = 0;  ///< since the start
};

/// When a solve stops, and whom it tells. Newton and fixed points stop on the length of the step, since that is what the
/// derivative's error depends on: a gradient test can be met with half the digits of x missing.
///
///     SolveOptions options{.tolerance = 1e-12, .max_iterations = 50};
struct SolveOptions {
  /// The length of the last step relative to the larger of |x_k| and |x_{k-1}| (Euclidean norms), so that neither the start
  /// nor the units of x matter. A short step counts only where the steps were seen to contract, since a short step next to
  /// a barrier, or of a gradient descent with a tiny step size, says nothing about the distance to the solution; the step is
  /// evaluated once beyond the solution that it leads to. Newton squares its error with each step: after a step of 1e-10 it
  /// stands at about 1e-20, that is, at rounding; it goes on while entries far smaller than |x| change visibly. The error of
  /// a linearly convergent iteration is about ρ/(1-ρ) times its last step, with ρ its rate; Certificate::distance says so.
  double tolerance = 1e-10;
  /// The norm of x below which its relative accuracy does not matter: the tolerance is relative to this where |x| is
  /// smaller. Needed where the solution is zero and the iteration converges linearly to it, since each of its steps is then
  /// about as long as x: without this option such a solve goes on until x underflows, or to the iteration limit.
  double typical_x = 0;
  /// Enough for any Newton iteration that works (it takes 5 to 30); fixed points and gradient descent may need more.
  int max_iterations = 10000;
  /// Seconds; looked at after each iteration.
  double time_limit = std::numeric_limits<double>::infinity();
  /// Called after each iteration; false cancels. What it throws goes through to the caller of solve.
  std::function<bool(const Iteration&)> callback = {};
  /// Where to write a line for each iteration; none by default.
  std::ostream* log = nullptr;
  /// Whether Statistics::history is filled.
  bool history = false;
};

/// What a solve cost.
///
///     const Statistics cost = s.statistics();
///     std::cout << cost.iterations << " iterations, " << cost.seconds << " s" << '\n';
struct Statistics {
  int iterations = 0;
  int evaluations = 0;  ///< of the objective or the map, line search included
  int factorisations = 0;
  int products = 0;    ///< with the Hessian, by methods that do not form it
  int shifts = 0;      ///< times a matrix had to be made positive definite, or was found not to be by newton_cg
  int backtracks = 0;  ///< times the line search shortened a step
  /// Times newton_root left a minimum of ‖G‖ that is not a root, or gradient_descent a start that is stationary but no
  /// minimum.
  int restarts = 0;
  double step_flops = 0;  ///< multiply-adds of one step, linear systems inside that are solved by an iteration not counted
  double seconds = 0;
  std::vector<double> history = {};  ///< lengths of the steps, when asked for
};

}  // namespace onestep
ONESTEP_EXPORT_END
