// The outer loop: hypergradient, direction, search, and a state that can be saved between any two iterations.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "bilevel/free_parameters.h"
#include "bilevel/objective.h"
#include "bilevel/outcome.h"
#include "bilevel/outer.h"
#include "bilevel/saved_run.h"
#include "linear/random.h"
#include "solve/monitor.h"

namespace onestep {
namespace detail {
namespace {

constexpr double loosest = 1e-3;            // of inner tolerances
constexpr double share_of_progress = 0.01;  // inner tolerance over what the outer test has reached
constexpr double armijo = 1e-4;
constexpr int most_trials = 40;

class Minimiser {
 public:
  Minimiser(const std::vector<Inner>& inner, const std::vector<Parameter>& parameters, const OuterMethod& method,
            const BilevelOptions& options)
      : options_(options),
        parameters_(parameters),
        outer_(make_outer(method)),
        objective_(inner, parameters_.theta(parameters_.start()), [this] { return stops(); }) {
    if (options.checkpoint.empty()) return;
    saved_.emplace(options.checkpoint, fingerprint(parameters));
  }

  Outcome run() {
    if (!resume()) begin();
    do {
      while (!status_ && !check_stop()) iterate();
    } while (solve_again_and_reopen());
    // There is nothing to go on from before the first hypergradient, nor from one that is not a number.
    if (saved_ && !state_.gradient.empty() && status_ != Status::not_finite) saved_->save(state_);
    return outcome();
  }

 private:
  // ---- the loop ----

  void begin() {
    state_.u = parameters_.start();
    state_.tolerance = options_.adaptive ? std::max(loosest, objective_.tightest()) : objective_.tightest();
    state_.x = objective_.starts();
    if (!solve(state_.u)) return end_with_inner();
    state_.first_value = objective_.value();
    accept(state_.u);
    if (saved_) saved_->remember(*outer_);
    tell(0);
  }

  // True when the loop is to end, with the status set. At a point that seems critical inner problems are solved as
  // accurately as they were meant to be before it is believed.
  bool check_stop() {
    if (critical() <= options_.tolerance) {
      if (state_.tolerance > objective_.tightest()) {
        tighten();
        return status_ || check_stop();
      }
      if (state_.iteration > 0 && largest(state_.gradient) > 0) return end(Status::converged);
      if (state_.iteration >= options_.max_iterations) return end(Status::iteration_limit);
      look_around();
      return status_ || check_stop();
    }
    if (state_.iteration >= options_.max_iterations) return end(Status::iteration_limit);
    if (stops()) return end(timed_out() ? Status::time_limit : Status::cancelled);
    return false;
  }

  // What was found critical is solved once more; where the hypergradient is another then, the iteration goes on from it.
  // Else the state stays as it was, so that a run that is resumed ends with the same bits.
  bool solve_again_and_reopen() {
    constexpr int most = 5;
    if (*status_ != Status::converged || state_.iteration == 0) return false;
    OuterState found = state_;
    state_.tolerance = objective_.tightest();
    if (!solve(state_.u)) {
      state_ = std::move(found);
      if (!stops()) end_with_inner();
      return false;
    }
    accept(state_.u);
    if (*status_ != Status::converged) return false;
    if (critical() <= options_.tolerance) {
      state_ = std::move(found);
      return false;
    }
    status_.reset();
    outer_->reset();
    if (saved_) saved_->remember(*outer_);
    const bool is_many = ++refuted_ > most;
    if (!is_many && state_.iteration < options_.max_iterations) return true;
    end(is_many ? Status::rounding_reached : Status::iteration_limit,
        "the hypergradient changes from one solve of the inner problems to the next");
    return false;
  }

  // A hypergradient of zero at the start, or of exactly zero, may be that of a kink, where it is one of many, or of a
  // maximum. What it is beside the point, on both sides, tells. Parameters that are held at bounds stay there.
  void look_around() {
    constexpr double nearest = 0x1p-26, farthest = 0.5, apart = 64;
    constexpr double shrinks = 8;  // a smooth g has a derivative `apart` times as large `apart` times as far away
    std::vector<double> towards(parameters_.size());
    fill_random(towards);
    for (std::size_t i = 0; i < towards.size(); ++i)
      towards[i] *= parameters_.is_held(i, state_.u, state_.gradient) ? 0 : std::max(1.0, std::fabs(state_.u[i]));
    if (norm(towards) == 0) return void(end(Status::converged));
    bool has_kink = false;
    for (const double side : {1.0, -1.0}) {
      const Beside near = beside(towards, side * nearest), far = beside(towards, side * apart * nearest);
      if (status_) return;
      if (near.slope < 0 && far.slope < 0) return leave(towards, side, farthest);
      has_kink = has_kink || (near.critical > options_.tolerance && near.slope > far.slope / shrinks);
    }
    if (has_kink)
      end(Status::line_search_failed,
          "g has a kink here and rises on all sides that were looked at: no hypergradient is zero");
    else
      end(Status::converged);
  }

  struct Beside {
    double slope = 0, critical = 0;  // slope: of g, away from here
  };
  // Where the inner problems are not solved nothing is known.
  Beside beside(std::span<const double> towards, double length) {
    const std::vector<double> u = shifted(towards, length);
    if (!solve(u)) {
      if (stops()) end_with_inner();
      return {};
    }
    const std::vector<double> gradient = parameters_.pulled_back(u, objective_.gradient());
    const double moved = std::fabs(length) * norm(towards);
    return {slope(gradient, state_.u, u) / moved, critical(u, gradient, objective_.value())};
  }

  // g falls away from here: the iteration goes on from a point where it does so visibly.
  void leave(std::span<const double> towards, double side, double farthest) {
    for (double length = 0x1p-20; length < farthest; length *= 8) {
      const Beside there = beside(towards, side * length);
      if (status_) return;
      if (!(there.slope < 0 && there.critical > 10 * options_.tolerance)) continue;
      accept(shifted(towards, side * length));
      ++state_.iteration;
      if (saved_) saved_->remember(*outer_);
      return tell(length);
    }
    end(Status::converged);
  }

  void tighten() {
    const double loose = std::exchange(state_.tolerance, objective_.tightest());
    if (!solve(state_.u)) {
      state_.tolerance = loose;
      return end_with_inner();
    }
    accept(state_.u);
  }

  void iterate() {
    std::vector<double> step(parameters_.size());
    outer_->direction(parameters_, state_.u, state_.gradient, step);
    std::optional<double> length = outer_->searches() ? search(step) : full_step(step);
    if (status_) return;
    if (!length) return give_up(step);
    const std::vector<double> before = state_.u, old_gradient = state_.gradient;
    accept(shifted(step, *length));
    std::vector<double> moved = state_.u, change = state_.gradient;
    for (std::size_t i = 0; i < moved.size(); ++i) {
      moved[i] -= before[i];
      change[i] -= old_gradient[i];
    }
    outer_->learn_from_step(moved, change, *length);
    if (saved_) saved_->remember(*outer_);
    ++state_.iteration;
    if (options_.adaptive)
      state_.tolerance = std::clamp(share_of_progress * critical(), objective_.tightest(), state_.tolerance);
    tell(*length);
    if (saved_ && saved_->is_due(options_.checkpoint_share * (now() - begin_))) saved_->save(state_);
  }

  std::optional<double> full_step(std::span<const double> step) {
    if (!solve(shifted(step, 1))) end_with_inner();
    return 1.0;
  }

  // The length along the projected direction with which the value falls enough; the objective stands there then. A first
  // step, of which only the direction means something, is also made longer as long as that pays.
  std::optional<double> search(std::span<const double> step) {
    const bool may_grow = !outer_->remembers();
    double length = 1;
    std::optional<double> found;
    double least = std::numeric_limits<double>::infinity();
    for (int trial = 0; trial < most_trials; ++trial) {
      const std::vector<double> u = shifted(step, length);
      const double fall = -slope(state_.gradient, state_.u, u);
      if (u == state_.u || !(fall > 0)) break;
      const bool solved = solve(u);
      if (!solved && stops()) {
        end_with_inner();
        return std::nullopt;
      }
      const double value = solved ? objective_.value() : std::numeric_limits<double>::infinity();
      const bool falls = value <= state_.value - armijo * fall + state_.noise + (solved ? objective_.noise() : 0);
      if (falls && value < least) {
        found = length;
        least = value;
        if (!may_grow) return found;
        length *= 2;
      } else if (found) {
        // Back to the best.
        if (!solve(shifted(step, *found))) end_with_inner();
        return found;
      } else {
        // The minimum of the parabola through what is known, within limits.
        const double rise = value - state_.value + fall;
        length *= solved && rise > 0 ? std::clamp(fall / (2 * rise), 0.1, 0.5) : 0.25;
      }
    }
    if (found && !solve(shifted(step, *found))) end_with_inner();
    return found;
  }

  // No length helps: with more accurate inner solves it may, or without what the method remembers.
  void give_up(std::span<const double> step) {
    if (state_.tolerance > objective_.tightest()) return tighten();
    if (outer_->remembers()) return outer_->reset();
    const double expected = -slope(state_.gradient, state_.u, shifted(step, 1));
    if (expected <= 4 * state_.noise)
      end(Status::rounding_reached, "g changes by less than the inner problems' accuracy");
    else if (!is_solution(inner_status_))
      end(Status::line_search_failed,
          fmt::format("no step along the hypergradient leads to inner problems that are solved; the last: {}",
                      objective_.about()));
    else if (is_within_its_error())
      end(Status::rounding_reached, "the hypergradient is smaller than its error");
    else if (!status_)
      end(Status::line_search_failed, "no step along the hypergradient lowers g");
  }

  // At a start that is the solution no value tells that g cannot fall: it may be as small as its rounding.
  bool is_within_its_error() {
    if (!solve(state_.u)) return false;
    accept(state_.u);
    const double bound = status_ ? 0 : objective_.gradient_bound().first * parameters_.stretch(state_.u);
    return std::isfinite(bound) && bound >= norm(parameters_.free_gradient(state_.u, state_.gradient));
  }

  // ---- its parts ----

  bool timed_out() const { return elapsed() > options_.time_limit; }
  bool stops() const { return (options_.cancelled && options_.cancelled()) || timed_out(); }
  double elapsed() const { return earlier_ + now() - begin_; }

  std::vector<double> shifted(std::span<const double> step, double length) const {
    return parameters_.shifted(state_.u, step, length);
  }

  bool solve(std::span<const double> u) {
    inner_status_ = objective_.solve(parameters_.theta(u), options_.warm ? state_.x : objective_.starts(), state_.tolerance);
    return is_solution(inner_status_);
  }

  // The objective stands at u: it becomes the state.
  void accept(const std::vector<double>& u) {
    state_.u = u;
    state_.by_theta = objective_.gradient();
    state_.gradient = parameters_.pulled_back(u, state_.by_theta);
    state_.value = objective_.value();
    state_.noise = objective_.noise();
    state_.x = objective_.states();
    if (std::ranges::all_of(state_.gradient, [](double g) { return std::isfinite(g); })) return;
    const auto [status, why] = objective_.gradient_status();
    is_solution(status) ? end(Status::not_finite, "in the hypergradient") : end(status, why);
  }

  double critical() const { return critical(state_.u, state_.gradient, state_.value); }
  double critical(std::span<const double> u, std::span<const double> gradient, double value) const {
    const double largest = parameters_.largest_free(u, gradient);
    return largest == 0 ? 0 : largest / std::max(std::fabs(value), 1e-6 * std::fabs(state_.first_value));
  }

  void tell(double length) {
    state_.work = objective_.work;
    state_.seconds = elapsed();
    SavedIteration now = iteration_of(state_);
    now.critical = critical();
    now.norm = norm(parameters_.free_gradient(state_.u, state_.gradient));
    now.length = length;
    if (options_.path) now.theta = parameters_.entries(state_.u);
    state_.history.push_back(now);
    if (options_.callback && !options_.callback(now) && !status_) end(Status::cancelled);
  }

  bool end(Status status, std::string about = {}) {
    status_ = ending_.status = status;
    ending_.about = std::move(about);
    ending_.inner_failed = false;
    return true;
  }
  // Because an inner problem was not solved: at the caller's wish, in time, or for a reason of its own.
  void end_with_inner() {
    if (stops()) return void(end(timed_out() ? Status::time_limit : Status::cancelled));
    end(inner_status_, objective_.about());
    ending_.inner_failed = true;
  }

  // ---- checkpoints ----

  // What decides the way that is taken: a checkpoint of another problem is told by it.
  std::string fingerprint(const std::vector<Parameter>& parameters) const {
    return fmt::format("{}; {} {}; {}{}{}", outer_->text(), options_.warm, options_.adaptive, options_.identity,
                       objective_.text(), text_of(parameters, parameters_.start()));
  }

  bool resume() {
    if (!saved_ || !saved_->load(state_, *outer_)) return false;
    // The same shapes with other data would go on silently.
    if (!solve(state_.u)) return end_with_inner(), true;
    if (std::fabs(objective_.value() - state_.value) > 1e-6 * std::fabs(state_.value) + 100 * state_.noise)
      saved_->refuse(fmt::format("is of other data: g is {} there and {} here", state_.value, objective_.value()));
    objective_.work = state_.work;
    earlier_ = state_.seconds;
    begin_ = now();
    ending_.resumed = true;
    return true;
  }

  // ---- what came out ----

  Outcome outcome() {
    Outcome o = ending_;
    o.iterations = state_.iteration;
    o.history.assign(state_.history.begin(), state_.history.end());
    const bool begun = !state_.gradient.empty();
    bool is_known = true;  // the hypergradient
    o.bound_rests_on = "it was not asked for";
    if (begun && *status_ != Status::cancelled && *status_ != Status::time_limit) {
      // Again, as accurately as can be and whatever was tried last, so that a resumed run ends with the same bits.
      state_.tolerance = objective_.tightest();
      if (solve(state_.u)) {
        accept(state_.u);
        is_known = note_shortfall(o, objective_);
        if (options_.certified) note_bound(o, objective_, parameters_.stretch(state_.u));
      } else {
        // What was accepted rests on a solve that was less accurate.
        o.bound_rests_on = objective_.about();
        end_with_inner();
        o.status = ending_.status, o.about = ending_.about, o.inner_failed = ending_.inner_failed;
      }
    } else {
      o.bound_rests_on = "the run was stopped before it was computed";
    }
    o.theta = parameters_.theta(begun ? state_.u : parameters_.start());
    o.x = objective_.parts_of(begun ? state_.x : objective_.states());
    o.value = begun ? state_.value : std::numeric_limits<double>::quiet_NaN();
    o.critical = begun ? critical() : std::numeric_limits<double>::infinity();
    if (begun) describe(o, parameters_, state_);
    if (!is_known) o.norm = o.critical = std::numeric_limits<double>::quiet_NaN();
    note_uncertain_hypergradient(o, options_.tolerance);
    describe(o, objective_.work);
    o.checkpoint_seconds = saved_ ? saved_->seconds() : 0;
    o.seconds = elapsed();
    return o;
  }

  const BilevelOptions& options_;
  const FreeParameters parameters_;
  const std::unique_ptr<Outer> outer_;
  Objective objective_;
  std::optional<SavedRun> saved_;
  OuterState state_;
  std::optional<Status> status_;
  Status inner_status_ = Status::converged;
  Outcome ending_;  // what is known of the outcome while the run goes on: its end, and whether it was resumed
  int refuted_ = 0;
  double begin_ = now(), earlier_ = 0;
};

}  // namespace
}  // namespace detail

Outcome minimise(const std::vector<Inner>& inner, const std::vector<Parameter>& parameters, const OuterMethod& method,
                 const BilevelOptions& options) {
  detail::verify(options);
  return detail::Minimiser(inner, parameters, method, options).run();
}

}  // namespace onestep
