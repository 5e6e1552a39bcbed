// The time of a solve, and of a solve with the gradient of ‖x(θ)‖²/2 by each method.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "onestep/estimate.h"
#include "paper/items.h"
#include "paper/items/support.h"

namespace onestep::app::paper {

/// One problem whose solves are timed.
struct TimedProblem {
  Solver solver;
  Parts x0, theta;
};
struct TimedSize {
  std::string text;       ///< such as "n = 100"
  double parameters = 0;  ///< that describe the problem
  std::function<TimedProblem(int instance)> make;
};
struct TimingOptions {
  std::string item;
  int instances = 3;
  double seconds_a_size = 1;     ///< for all methods and instances together, roughly; where it is short there are fewer
  double autodiff_limit = 1;     ///< seconds: no unrolled run is started that would take longer
  double autodiff_growth = 1;    ///< with which power of the number of parameters its time grows, for telling that before
  double autodiff_memory = 1e9;  ///< bytes of heap: the same for memory
  bool traced_solve = false;     ///< autodiff goes over another version of the solver: its solve is timed alone as well
};
struct TimingRow {
  std::string text;
  double parameters = 0;
  Quartiles none, unrolled, implicit, one_step;           ///< seconds; unrolled is 0 where it was not run
  Quartiles unrolled_over, implicit_over, one_step_over;  ///< time over that of the solve alone
  Quartiles traced;                                       ///< seconds of the solve that autodiff goes over, where asked for
  double difference = 0;                                  ///< of one step from implicit, the largest over the instances
  double unrolled_difference = 0;                         ///< of unrolled from implicit
  int iterations = 0, instances = 0;
  /// The median time of a method over that of the solve alone: as they are drawn.
  double over(Quartiles TimingRow::*method) const { return (this->*method).median / none.median; }
};
struct Timing {
  std::vector<TimingRow> rows;
  std::vector<std::string> notes;
  bool complete = true;  ///< not cancelled
  double largest(double TimingRow::*difference) const;
  /// The largest of `over`.
  double most_over(Quartiles TimingRow::*method) const;
  /// At how many sizes the median of one step is not above that of implicit.
  int one_step_ahead() const;
  /// The largest size at which unrolled was run; none: nowhere.
  const TimingRow* last_with_autodiff() const;
};
/// As both timed items choose them by scale.
TimingOptions timing_options(const ItemOptions& options, std::string item, double seconds_a_size, double autodiff_growth);
Timing time_methods(std::span<const TimedSize> sizes, const TimingOptions& options, const Watch& watch);
/// That one step and implicit have a marginal overhead and autodiff has not, by the medians. There is a size with autodiff.
Claim overhead_claim(const Timing& timing);
/// "3 of each size", or fewer from some size on.
std::string instances_text(const Timing& timing);
/// None, Autodiff, Implicit and One step against the number of parameters.
Panel timing_panel(const Timing& timing);
Json timing_data(const Timing& timing);

}  // namespace onestep::app::paper
