// When a loop ends: the stopping tests, the callback, the log and the clock, the same for all loops.
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <utility>

#include "solve/run.h"

namespace onestep::detail {

/// Writes an iteration to the log and calls the callback. True when it wants to stop.
bool tell(const SolveOptions& options, const Iteration& iteration);

/// Seconds, by a clock that never goes back.
double now();

/// Throws MisuseError for options out of range.
void check(const SolveOptions& options);

/// The stopping tests, the callback, the log and the clock: the same for all loops.
///
/// A step is short when it is within the tolerance of |x| at its ends. A short step ends the solve only where the steps
/// contract: of a linearly convergent loop where the distance left, extrapolated from the rate of the last steps, is small
/// too, and the step changes as that rate says when x moves on; of a Newton iteration where its full step is a fraction of
/// the last one and the matrix did not become much stiffer on the way, as it does next to a barrier.
class Monitor {
 public:
  Monitor(const SolveOptions& options, Run& run);
  /// Evaluates F at some x, for measuring its rounding level; false where it cannot.
  using Evaluate = std::function<bool(ConstVector x, Vector next)>;
  void evaluate_with(Evaluate evaluate) { evaluate_ = std::move(evaluate); }

  /// Whether a step as long as this, to an x as large as that, is within the tolerance.
  bool is_short(double step, double size) const { return step <= options_.tolerance * scale(size); }

  /// Whether the step changes from here to beyond the solution as it has to if that is near. `step` is F(from) - from;
  /// `rate` is how steps contract, 0 for superlinear methods. Next to a barrier or a jump, and far out on a plateau, it does
  /// not. Evaluates F.
  bool is_affine_beside(ConstVector from, ConstVector step, double rate);

  /// Whether a step is short, or within rounding of x.
  bool is_negligible(double step, double size) const;
  /// Whether a step is within rounding of x: a line search that ends with such a step has failed.
  bool is_lost(double step, double size) const;

  /// Who decides whether the step that is recorded was the last.
  enum class Converged {
    from_step_lengths,  ///< the monitor, from the lengths of the steps: loops that converge linearly
    yes,                ///< the loop: it was
    no,                 ///< the loop: it was not, a line search may have shortened it
    not_yet,            ///< the same as from_step_lengths, but the steps are short for another reason than a solution
  };
  /// After each step, with run.x where it ended. True when the loop is to end, with run.status set.
  bool record_and_check(double step, double size, double value, double length,
                        Converged converged = Converged::from_step_lengths);
  /// Whether F was evaluated elsewhere since this was asked last: the loop must then evaluate its point again.
  bool take_left_point() { return std::exchange(left_point_, false); }

  /// A full Newton step before it is made. Its stiffness is a norm of the matrix along the step.
  struct NewtonStep {
    double step = 0, size = 0, stiffness = 0;
  };
  /// Whether it leads to the solution: it is short, and was seen to contract. (Newton's method may converge only linearly
  /// there, where the matrix is singular at the solution.) Entries that are small beside others may have a step that is not
  /// small beside them: further steps are made as long as that shortens them. `to` is where the step, `by`, leads.
  bool check_last(const NewtonStep& newton, ConstVector by, ConstVector to);
  /// Records that the step was taken with this step length, 1 being the full step.
  void record_newton_step(const NewtonStep& newton, double length);

  /// Whether a step as long as this is within the rounding of x, or of F at run.x, seen by evaluating F around it.
  bool is_rounding(double step);
  /// Ends because steps as long as this are: converged where they are within the tolerance too.
  void end_at_rounding(double step, double within);
  /// The loop goes on from run.start, which is another point: what was seen of the steps so far is forgotten.
  void start_again();

  /// Ends for a reason of the solver's own, or because a solver within says so.
  void end(Status status, std::string about = {});
  double seconds() const;  ///< since the start

 private:
  /// Steps shorter than this count as zero: their squares underflow. Iterations that converge to zero end here.
  static constexpr double tiny = 0x1p-511;
  /// Largest distance to the solution, relative to |x|, that the rate of the last steps may predict at convergence.
  static constexpr double near = 0.1;

  double scale(double size) const;
  void observe(double step, double scale);
  bool is_near(double step, double within) const;
  bool contracts_to_end(const NewtonStep& newton) const;
  double distance_of_two() const;
  bool is_confirmed(double step, double within);
  bool reached_rounding(double step, double scale, double value, double length);

  const SolveOptions& options_;
  Run& run_;
  Evaluate evaluate_;
  bool left_point_ = false;
  double begin_, first_size_, size_before_, largest_ = 0, smallest_ = std::numeric_limits<double>::infinity();
  // Ratios of the lengths of successive steps, how they creep towards 1, and how many iterations the length takes to halve:
  // the last three times.
  double step_before_ = 0, ratio_ = 0, ratio_before_ = 0, creep_ = 0, creep_before_ = 0;
  bool sees_creep_ = false;  // or rounding hides it
  int contractions_ = 0, since_halving_ = 0;
  double halved_from_ = 0;
  std::array<double, 3> halving_times_{};
  // The last full Newton step; how many in a row were between a third and nine tenths of the one before; how many above a
  // third.
  NewtonStep newton_before_;
  bool was_full_ = false;
  int linear_ = 0, not_superlinear_ = 0;
  // Steps made for the sake of small entries, and dᵀHd of the last of them.
  int for_entries_ = 0;
  double decrement_before_ = 0;
  // Iterations in which no step was half as long as the shortest before them.
  double stall_from_ = 0, stall_longest_ = 0, path_ = 0, value_before_ = 0;
  int stalled_ = 0, window_ = 0;
  bool values_stand_still_ = false;
};

}  // namespace onestep::detail
