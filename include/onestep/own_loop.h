// Loops of your own around a solver's step. The step says what is differentiated, the loop how its fixed point is found:
// with a trust region, with a schedule, with your own stopping rule. All estimators and certificates work on what it finds.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "onestep/export.h"
#include "onestep/solver.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

namespace detail {
class ONESTEP_HIDDEN OwnLoopState;
}

/// Where a loop stands, and how it goes on: at x, with the step F(x, θ) of its solver at hand. A step may have controls,
/// which the loop decides and nothing differentiates: those of newton and newton_root are {length, shift}, for x - length (H
/// + shift I)⁻¹ g; fixed_point has none.
///
///     Solver plain = with_loop(fixed_point([](Expr x, Expr t) { return 0.5 * x + t; }), [] {
///       return [next = std::vector<double>()](Iterates& at) mutable {
///         next.resize(at.x().size());
///         do at.propose({}, next);
///         while (!at.accept());
///       };
///     });
class Iterates {
 public:
  /// The state, its parts one behind the other: the start, until the first step is accepted.
  std::span<const double> x() const;
  std::span<const Array> theta() const;
  const SolveOptions& options() const;

  /// y = F(x, θ) with these controls. False where a factorisation failed; y is NaN then. Throws MisuseError where y or the
  /// controls have another size than they should.
  bool propose(std::span<const double> controls, std::span<double> y);
  bool propose(std::initializer_list<double> controls, std::span<double> y) {
    return propose(std::span(controls.begin(), controls.size()), y);
  }
  /// Of newton and newton_root: f or ‖G‖²/2 at x, and how fast it falls along the full step that was proposed, gᵀ(H + shift
  /// I)⁻¹g. NaN before the first proposal, and for fixed_point.
  double value() const;
  double slope() const;
  /// The same value elsewhere. Throws MisuseError for fixed_point, which has none.
  double value_at(std::span<const double> y);

  /// Goes where the last proposal led. True when the loop is to end: the tolerance is met, or a limit is reached.
  bool accept();
  /// Ends for a reason of the loop's own. `converged` is believed only where a full step from x is short.
  void end(Status status, const std::string& about = {});
  bool is_over() const;

 private:
  friend class detail::OwnLoopState;
  explicit Iterates(detail::OwnLoopState& state) : state_(state) {}
  detail::OwnLoopState& state_;
};

/// One thread's loop: called for each solve. Keep memory in it between solves.
///
///     OwnLoop loop = [](Iterates& at) { at.end(Status::converged); };
using OwnLoop = std::function<void(Iterates& at)>;

/// The solver `of`, one of newton, newton_root and fixed_point, with a loop of yours instead of its own; `make` is called
/// for each thread that solves. What comes out is differentiated as that of `of` is. A loop that returns before it is over
/// has ended with iteration_limit. Throws MisuseError for solvers whose steps are not to be had.
///
///     Solver mine = with_loop(fit, [] { return OwnLoop([](Iterates& at) { at.end(Status::converged); }); });
Solver with_loop(const Solver& of, std::function<OwnLoop()> make);

}  // namespace onestep
ONESTEP_EXPORT_END
