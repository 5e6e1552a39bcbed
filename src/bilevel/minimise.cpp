// The outer loop: hypergradient, direction, search, and a state that can be saved between any two iterations.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <ostream>
#include <utility>

#include "bilevel/checkpoint.h"
#include "bilevel/moved.h"
#include "bilevel/objective.h"
#include "bilevel/outer.h"
#include "estimate/certify.h"
#include "linear/random.h"
#include "solve/monitor.h"

namespace onestep {
namespace detail {
namespace {

constexpr double loosest = 1e-3;            // of inner tolerances
constexpr double share_of_progress = 0.01;  // inner tolerance over what the outer test has reached
constexpr double armijo = 1e-4;
constexpr int most_trials = 40;

struct SavedIteration : OuterIteration {
  template <class Archive> void fields(Archive& a) {
    a(number), a(value), a(critical), a(norm), a(length), a(inner_tolerance), a(inner_iterations), a(seconds), a(theta);
  }
};

// All that the next iteration depends on, and what is reported. The method's memory is beside it.
struct State {
  int iteration = 0;
  std::vector<double> u, gradient;            // gradient: with respect to u
  std::vector<std::vector<double>> by_theta;  // and to the parameters
  double value = 0, first_value = 0, noise = 0, tolerance = 0;
  States x;
  InnerWork work;
  double seconds = 0;
  std::vector<SavedIteration> history;

  template <class Archive> void fields(Archive& a) {
    a(iteration), a(u), a(gradient), a(by_theta), a(value), a(first_value), a(noise), a(tolerance), a(x), a(work),
        a(seconds), a(history);
  }
};

void verify(const BilevelOptions& options) {
  if (!(options.tolerance >= 0 && std::isfinite(options.tolerance)))
    throw MisuseError(fmt::format("[minimise] tolerance = {}: zero or more", options.tolerance));
  if (options.max_iterations < 0)
    throw MisuseError(fmt::format("[minimise] max_iterations = {}: zero or more", options.max_iterations));
  if (!(options.time_limit > 0))
    throw MisuseError(fmt::format("[minimise] time_limit = {}: above zero", options.time_limit));
  if (!(options.checkpoint_share > 0 && options.checkpoint_share <= 1))
    throw MisuseError(fmt::format("[minimise] checkpoint_share = {}: above 0, at most 1", options.checkpoint_share));
}

class Minimiser {
 public:
  Minimiser(const std::vector<Inner>& inner, const std::vector<Parameter>& parameters, const OuterMethod& method,
            const BilevelOptions& options)
      : options_(options),
        moved_(parameters),
        outer_(make_outer(method)),
        objective_(inner, moved_.theta(moved_.start()), [this] { return stops(); }) {
    if (options.checkpoint.empty()) return;
    file_.emplace(options.checkpoint);
    fingerprint_ = fingerprint(parameters);
  }

  Outcome run() {
    if (!resume()) begin();
    while (!status_ && !ends()) iterate();
    // There is nothing to go on from before the first hypergradient, nor from one that is not a number.
    if (file_ && !state_.gradient.empty() && status_ != Status::not_finite) save();
    return outcome();
  }

 private:
  // ---- the loop ----

  void begin() {
    state_.u = moved_.start();
    state_.tolerance = options_.adaptive ? std::max(loosest, objective_.tightest()) : objective_.tightest();
    state_.x = objective_.starts();
    if (!solve(state_.u)) return end_with_inner();
    state_.first_value = objective_.value();
    accept(state_.u);
    remember();
    tell(0);
  }

  // True when the loop is to end, with the status set. At a point that seems critical inner problems are solved as
  // accurately as they were meant to be before it is believed.
  bool ends() {
    if (critical() <= options_.tolerance) {
      if (state_.tolerance > objective_.tightest()) {
        tighten();
        return status_ || ends();
      }
      if (state_.iteration > 0 && !is_exactly_zero()) return end(Status::converged);
      if (state_.iteration >= options_.max_iterations) return end(Status::iteration_limit);
      look_around();
      return status_ || ends();
    }
    if (state_.iteration >= options_.max_iterations) return end(Status::iteration_limit);
    if (stops()) return end(timed_out() ? Status::time_limit : Status::cancelled);
    return false;
  }

  bool is_exactly_zero() const {
    return std::ranges::all_of(state_.gradient, [](double g) { return g == 0; });
  }

  // A hypergradient of zero at the start, or of exactly zero, may be that of a kink, where it is one of many, or of a
  // maximum. What it is beside the point, on both sides, tells. Parameters that are held at bounds stay there.
  void look_around() {
    constexpr double nearest = 0x1p-26, farthest = 0.5, apart = 64;
    constexpr double shrinks = 8;  // a smooth g has a derivative `apart` times as large `apart` times as far away
    std::vector<double> towards(moved_.size());
    fill_random(towards);
    for (std::size_t i = 0; i < towards.size(); ++i)
      towards[i] *= moved_.is_held(i, state_.u, state_.gradient) ? 0 : std::max(1.0, std::fabs(state_.u[i]));
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
    const std::vector<double> gradient = moved_.pulled_back(u, objective_.gradient());
    double slope = 0;
    for (std::size_t i = 0; i < u.size(); ++i) slope += gradient[i] * (u[i] - state_.u[i]);
    const double moved = std::fabs(length) * norm(towards);
    return {slope / moved, critical(u, gradient, objective_.value())};
  }

  // g falls away from here: the iteration goes on from a point where it does so visibly.
  void leave(std::span<const double> towards, double side, double farthest) {
    for (double length = 0x1p-20; length < farthest; length *= 8) {
      const Beside there = beside(towards, side * length);
      if (status_) return;
      if (!(there.slope < 0 && there.critical > 10 * options_.tolerance)) continue;
      accept(shifted(towards, side * length));
      ++state_.iteration;
      remember();
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
    std::vector<double> step(moved_.size());
    outer_->direction(moved_, state_.u, state_.gradient, step);
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
    outer_->made(moved, change, *length);
    remember();
    ++state_.iteration;
    if (options_.adaptive)
      state_.tolerance = std::clamp(share_of_progress * critical(), objective_.tightest(), state_.tolerance);
    tell(*length);
    if (file_ && write_is_due()) save();
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
      const double slope = slope_to(u);
      if (u == state_.u || !(slope < 0)) break;
      const bool solved = solve(u);
      if (!solved && stops()) {
        end_with_inner();
        return std::nullopt;
      }
      const double value = solved ? objective_.value() : std::numeric_limits<double>::infinity();
      const bool falls = value <= state_.value + armijo * slope + state_.noise + (solved ? objective_.noise() : 0);
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
        const double fall = -slope, rise = value - state_.value + fall;
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
    const double expected = -slope_to(shifted(step, 1));
    if (expected <= 4 * state_.noise)
      end(Status::rounding_reached, "g changes by less than the inner problems' accuracy");
    else if (!is_solution(inner_status_))
      end(Status::line_search_failed,
          fmt::format("no step along the hypergradient leads to inner problems that are solved; the last: {}",
                      objective_.about()));
    else
      end(Status::line_search_failed, "no step along the hypergradient lowers g");
  }

  // ---- its parts ----

  bool timed_out() const { return elapsed() > options_.time_limit; }
  bool stops() const { return (options_.cancelled && options_.cancelled()) || timed_out(); }
  double elapsed() const { return earlier_ + now() - begin_; }

  std::vector<double> shifted(std::span<const double> step, double length) const {
    std::vector<double> u = state_.u;
    add(u, step, length);
    moved_.project(u);
    return u;
  }
  double slope_to(std::span<const double> u) const {
    double sum = 0;
    for (std::size_t i = 0; i < u.size(); ++i) sum += state_.gradient[i] * (u[i] - state_.u[i]);
    return sum;
  }

  bool solve(std::span<const double> u) {
    inner_status_ = objective_.solve(moved_.theta(u), options_.warm ? state_.x : objective_.starts(), state_.tolerance);
    return is_solution(inner_status_);
  }

  // The objective stands at u: it becomes the state.
  void accept(const std::vector<double>& u) {
    state_.u = u;
    state_.by_theta = objective_.gradient();
    state_.gradient = moved_.pulled_back(u, state_.by_theta);
    state_.value = objective_.value();
    state_.noise = objective_.noise();
    state_.x = objective_.states();
    if (!std::ranges::all_of(state_.gradient, [](double g) { return std::isfinite(g); }))
      end(Status::not_finite, "in the hypergradient");
  }

  double critical() const { return critical(state_.u, state_.gradient, state_.value); }
  double critical(std::span<const double> u, std::span<const double> gradient, double value) const {
    const std::vector<double> free = moved_.free_gradient(u, gradient);
    double largest = 0;
    for (std::size_t i = 0; i < free.size(); ++i)
      largest = std::max(largest, std::fabs(free[i]) * std::max(1.0, std::fabs(u[i])));
    const double scale = std::max(std::fabs(value), 1e-6 * std::fabs(state_.first_value));
    const bool known = std::ranges::all_of(free, [](double g) { return std::isfinite(g); });
    return !known ? std::numeric_limits<double>::infinity() : largest == 0 ? 0 : largest / scale;
  }

  void tell(double length) {
    state_.work = objective_.work;
    state_.seconds = elapsed();
    SavedIteration now;
    now.number = state_.iteration;
    now.value = state_.value;
    now.critical = critical();
    now.norm = norm(moved_.free_gradient(state_.u, state_.gradient));
    now.length = length;
    now.inner_tolerance = state_.tolerance;
    now.inner_iterations = state_.work.iterations;
    now.seconds = state_.seconds;
    if (options_.path) now.theta = moved_.entries(state_.u);
    state_.history.push_back(now);
    if (options_.callback && !options_.callback(now) && !status_) end(Status::cancelled);
  }

  bool end(Status status, std::string about = {}) {
    status_ = status;
    about_ = std::move(about);
    return true;
  }
  // Because an inner problem was not solved: at the caller's wish, in time, or for a reason of its own.
  void end_with_inner() {
    if (stops())
      end(timed_out() ? Status::time_limit : Status::cancelled);
    else
      end(inner_status_, objective_.about());
  }

  // ---- checkpoints ----

  // What decides the way that is taken: a checkpoint of another problem is told by it.
  std::string fingerprint(const std::vector<Parameter>& parameters) const {
    std::string text = fmt::format("{}; {} {}; {}{}", outer_->text(), options_.warm, options_.adaptive, options_.identity,
                                   objective_.text());
    for (const Parameter& p : parameters) {
      text += fmt::format("; {} {} [{}, {}]", static_cast<int>(p.kind), to_string(p.start.shape()), p.low, p.high);
      if (p.kind == Parameter::Kind::fixed) text += fmt::format(" {:08x}", checksum(p.start));
    }
    for (const double u : moved_.start()) text += fmt::format(" {:a}", u);
    return text;
  }

  bool resume() {
    if (!file_) return false;
    const std::optional<std::string> bytes = file_->read();
    if (!bytes) return false;
    Reader reader(*bytes);
    std::string its_fingerprint;
    reader(its_fingerprint);
    if (its_fingerprint != fingerprint_)
      file_->refuse("is of another problem: parameters, estimators, method or options differ");
    reader(state_);
    reader(outer_bytes_);
    Reader of_the_method(outer_bytes_);
    outer_->load(of_the_method);
    // The same shapes with other data would go on silently.
    if (!solve(state_.u)) return end_with_inner(), true;
    if (std::fabs(objective_.value() - state_.value) > 1e-6 * std::fabs(state_.value) + 100 * state_.noise)
      file_->refuse(fmt::format("is of other data: g is {} there and {} here", state_.value, objective_.value()));
    objective_.work = state_.work;
    earlier_ = state_.seconds;
    begin_ = now();
    resumed_ = true;
    return true;
  }

  // The method as it was after the last iteration that was made: what it learns within one that is stopped is learned again.
  void remember() {
    if (!file_) return;
    Writer writer;
    outer_->save(writer);
    outer_bytes_ = writer.take();
  }

  void save() {
    const double begin = now();
    Writer writer;
    writer(fingerprint_);
    writer(state_);
    writer(outer_bytes_);
    file_->write(writer.take());
    const double took = now() - begin;
    longest_write_ = std::max(longest_write_, took);
    writing_ += took;
  }
  // All that was written in this run, this write and the last one, which is made whatever it costs, keep to the share.
  bool write_is_due() const { return writing_ + 2 * longest_write_ <= options_.checkpoint_share * (now() - begin_); }

  // ---- what came out ----

  Outcome outcome() {
    Outcome o;
    o.status = *status_;
    o.about = about_;
    o.resumed = resumed_;
    o.iterations = state_.iteration;
    o.history.assign(state_.history.begin(), state_.history.end());
    const bool begun = !state_.gradient.empty();
    bool is_known = true;  // the hypergradient
    if (begun && *status_ != Status::cancelled && *status_ != Status::time_limit) {
      // Again, as accurately as can be and whatever was tried last, so that a resumed run ends with the same bits.
      state_.tolerance = objective_.tightest();
      if (solve(state_.u)) {
        accept(state_.u);
        is_known = note_shortfall(o);
        bound_hypergradient(o);
      } else {
        // What was accepted rests on a solve that was less accurate.
        o.bound_rests_on = objective_.about();
        end_with_inner();
        o.status = *status_;
        o.about = about_;
      }
    } else {
      o.bound_rests_on = "the run was stopped before it was computed";
    }
    o.theta = moved_.theta(begun ? state_.u : moved_.start());
    o.x = objective_.parts_of(begun ? state_.x : objective_.states());
    o.value = begun ? state_.value : std::numeric_limits<double>::quiet_NaN();
    o.critical = begun ? critical() : std::numeric_limits<double>::infinity();
    if (begun) describe(o);
    if (!is_known) o.norm = o.critical = std::numeric_limits<double>::quiet_NaN();
    note_doubt(o);
    const InnerWork& work = objective_.work;
    o.evaluations = work.evaluations;
    o.hypergradients = work.hypergradients;
    o.fell_short = work.fell_short;
    o.inner_iterations = work.iterations;
    o.inner_factorisations = work.factorisations;
    o.inner_seconds = work.solving;
    o.hypergradient_seconds = work.differentiating;
    o.checkpoint_seconds = writing_;
    o.seconds = elapsed();
    return o;
  }

  void bound_hypergradient(Outcome& o) {
    o.bound_rests_on = "it was not asked for";
    if (!options_.certified) return;
    const auto [bound, rests_on] = objective_.gradient_bound();
    o.bound = bound * moved_.stretch(state_.u);
    o.bound_rests_on = rests_on;
  }

  // A hypergradient that vanishes by an inexact estimator need not be one that vanishes.
  void note_doubt(Outcome& o) const {
    constexpr double plainly = 10;
    if (o.status != Status::converged || !(o.norm > 0) || !std::isfinite(o.bound) || !o.about.empty()) return;
    if (o.bound > plainly * o.norm && o.critical * (o.bound / o.norm) > plainly * options_.tolerance)
      o.about = fmt::format(
          "but the hypergradient may be wrong by {}, which is far more than it is: with Implicit{{}} or "
          "Auto{{}} for the inner problem it vanishes where the true one does",
          rounded_up(o.bound));
  }

  // What the last hypergradient says of the point is believed only where its linear systems were solved.
  bool note_shortfall(Outcome& o) const {
    const auto [status, why] = objective_.gradient_status();
    if (is_solution(status)) return true;
    if (is_solution(o.status)) o.status = status;
    o.about = o.about.empty() ? why : fmt::format("{}; {}", o.about, why);
    return false;
  }

  void describe(Outcome& o) const {
    o.norm = norm(moved_.free_gradient(state_.u, state_.gradient));
    std::vector<Array> hypergradient;
    for (std::size_t p = 0; p < o.theta.size(); ++p) hypergradient.emplace_back(o.theta[p].shape(), state_.by_theta[p]);
    o.hypergradient = std::move(hypergradient);
    for (std::size_t i = 0; i < moved_.size(); ++i) {
      if (state_.u[i] <= moved_.low()[i]) o.at_low.push_back(i);
      if (state_.u[i] >= moved_.high()[i]) o.at_high.push_back(i);
    }
  }

  const BilevelOptions& options_;
  const Moved moved_;
  const std::unique_ptr<Outer> outer_;
  Objective objective_;
  std::optional<CheckpointFile> file_;
  std::string fingerprint_;
  State state_;
  std::optional<Status> status_;
  Status inner_status_ = Status::converged;
  std::string about_, outer_bytes_;
  bool resumed_ = false;
  double begin_ = now(), earlier_ = 0, longest_write_ = 0, writing_ = 0;
};

}  // namespace
}  // namespace detail

std::string Outcome::message() const {
  return about.empty() ? explain(status) : fmt::format("{} [{}]", explain(status), about);
}

std::ostream& operator<<(std::ostream& out, const Outcome& o) {
  out << fmt::format("{} in {} iteration{}: {:.6g}, hypergradient {:.2g}", to_string(o.status), o.iterations,
                     o.iterations == 1 ? "" : "s", o.value, o.norm);
  if (std::isfinite(o.bound))
    return out << fmt::format(", wrong by at most {} ({})", detail::rounded_up(o.bound), o.bound_rests_on);
  return out << fmt::format(", no bound on its error ({})", o.bound_rests_on);
}

Outcome minimise(const std::vector<Inner>& inner, const std::vector<Parameter>& parameters, const OuterMethod& method,
                 const BilevelOptions& options) {
  detail::verify(options);
  return detail::Minimiser(inner, parameters, method, options).run();
}

}  // namespace onestep
