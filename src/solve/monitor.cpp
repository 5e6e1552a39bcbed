// When a loop ends: stopping tests relative to the scale of x, and detection of rounding, divergence and limits.
#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "solve/monitor.h"

namespace onestep::detail {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

namespace {

constexpr double not_seen = std::numeric_limits<double>::quiet_NaN();

// Error of the length of a step, relative to |x|.
constexpr double length_error = epsilon;
// Steps whose lengths fall like a power of the iteration number k, k^-p, have ratios that creep towards 1: a fraction 1/p of
// what the logarithm of the length loses, that of 1 - ratio loses too. They are told from geometric ones where they are
// slow, by this much of creep; the distance left has to be within the tolerance itself then, since no rate of
// convergence is known.
constexpr double slow_ratio = 0.9, sublinear = 0.1;
// Ratios tell creep where their rounding errors are less than this times (1 - ratio)².
constexpr double resolution = 0.05;
constexpr int slow_halving = 7;
// A step shorter than this fraction of the one before says nothing about the rate of convergence.
constexpr double abrupt = 0.05;

// Ratio of the lengths of successive full Newton steps: below the first where convergence is superlinear, between the two
// where it is linear, as at a singular matrix. That many linear steps in a row are enough to say so.
constexpr double superlinear = 1.0 / 3, contracting = 0.9;
constexpr int linear_steps = 3;
// A short Newton step tells the distance to the solution only where the matrix changes slowly: the residual must have fallen
// to this fraction, and the curvature along the step must not have grown by more than this factor.
constexpr double residual_left = 0.3, stiffer = 1e3;
// Two successive Newton steps of at most so many units in the last place, the second not longer, have reached rounding.
constexpr double last_places = 8, not_longer = 1.1;

// Steps shorter than this times √n |x| are rounding when they make no progress.
constexpr double rounding = 64 * epsilon;
// No progress: so many steps in a row, none shorter than half the first, whose sum is at most this fraction of the path.
constexpr int first_window = 8;
constexpr double leads_nowhere = 0.5;
// F is evaluated at x displaced by so many units in the last place; a step up to so many times the irregularity is rounding.
// One sample may underestimate the irregularity, so several are taken.
constexpr double beside = 16, irregular = 16;
constexpr std::size_t samples = 5;
// A step longer than this, relative to |x|, is never taken for rounding.
constexpr double longest_rounding = 1e-3;

// An iteration that grew by this factor and still grows has diverged; one whose value falls all the way, beyond this size.
constexpr double blow_up = 1e20, endless = 1e100;
// A NaN after growth by this factor is an overflow.
constexpr double overflow_after = 1e8;

}  // namespace

void check(const SolveOptions& options) {
  if (!(options.tolerance >= 0 && options.tolerance < 1))
    throw MisuseError(
        fmt::format("[solve] tolerance = {}: it is relative to |x|, zero or more and below 1", options.tolerance));
  if (!(options.typical_x >= 0 && std::isfinite(options.typical_x)))
    throw MisuseError(
        fmt::format("[solve] typical_x = {}: it must be zero (not known) or a positive norm of x", options.typical_x));
  if (options.max_iterations < 1)
    throw MisuseError(fmt::format("[solve] max_iterations = {}: at least one step is needed", options.max_iterations));
  if (!(options.time_limit > 0))
    throw MisuseError(fmt::format("[solve] time_limit = {}: it must be positive", options.time_limit));
}

bool tell(const SolveOptions& options, const Iteration& i) {
  if (options.log != nullptr)
    fmt::print(*options.log, "{:5d}  step {:.3e}  scale {:.3e}  value {:.10e}  length {:.3g}\n", i.number, i.step, i.scale,
               i.value, i.length);
  return options.callback && !options.callback(i);
}

Monitor::Monitor(const SolveOptions& options, Run& run) : options_(options), run_(run), begin_(now()) {
  run.status = Status::iteration_limit;
  run.about.clear();
  run.statistics.iterations = run.statistics.evaluations = run.statistics.factorisations = 0;
  run.statistics.shifts = run.statistics.backtracks = run.statistics.restarts = run.statistics.products = 0;
  run.statistics.seconds = 0;
  run.statistics.history.clear();
  start_again();
}

void Monitor::start_again() {
  for (std::vector<double>& x : run_.older) x.clear();
  run_.trajectory.clear(run_.start.size());
  first_size_ = size_before_ = norm(run_.start);
  largest_ = 0;
  smallest_ = infinity;
  step_before_ = ratio_ = ratio_before_ = halved_from_ = not_seen;
  contractions_ = since_halving_ = 0;
  creep_ = creep_before_ = infinity;
  sees_creep_ = false;
  halving_times_.fill(infinity);
  was_full_ = false;
  linear_ = not_superlinear_ = for_entries_ = 0;
  stall_from_ = value_before_ = not_seen;
  stalled_ = 0;
  window_ = first_window;
}

double Monitor::scale(double size) const { return std::max({size, size_before_, options_.typical_x}); }
double Monitor::seconds() const { return now() - begin_; }

void Monitor::end(Status status, std::string about) {
  run_.status = status;
  const double halving_time = std::isfinite(halving_times_[0]) ? halving_times_[0] : halving_times_[1];
  run_.slowness = std::isfinite(halving_time) ? halving_time / std::log(2.0) : 0;
  run_.about = std::move(about);
  run_.statistics.seconds = seconds();
}

// How fast the steps contract, from the last two ratios of their lengths and, since single ratios oscillate and are lost in
// rounding, from the iterations in which they halve.
void Monitor::observe(double step, double scale) {
  const double error = length_error * scale;
  ratio_before_ = ratio_;
  ratio_ = step_before_ > error ? (step + error) / (step_before_ - error) : infinity;
  creep_before_ = creep_;
  // As little as rounding allows: 1 - ratio is at least this before, and at most that now.
  const double gap_before = 1 - ratio_before_, gap = 1 - (step - error) / (step_before_ + error);
  sees_creep_ = gap - (1 - ratio_) <= resolution * gap * gap;
  if (!std::isfinite(ratio_before_))
    creep_ = infinity;  // not known
  else
    creep_ = gap > 0 && gap_before > gap ? std::log(gap_before / gap) / std::log(step_before_ / step) : 0;
  const double expected = std::min(ratio_before_, 1.0);
  contractions_ = ratio_ < 1 && !(ratio_ < 0.01 * expected * expected) ? contractions_ + 1 : 0;
  ++since_halving_;
  const auto count_from_here = [&](double halving_time) {
    halving_times_ = {halving_time, halving_times_[0], halving_times_[1]};
    halved_from_ = step;
    since_halving_ = 0;
  };
  if (step + error <= 0.5 * (halved_from_ - error))
    count_from_here(step < abrupt * step_before_ ? infinity : since_halving_);
  else if (!(step <= 2 * halved_from_))
    count_from_here(infinity);
  step_before_ = step;
}

// Whether the distance left is small, by either estimate of the rate ρ: it is step · ρ/(1-ρ), and more where the rate creeps
// towards 1. Not where no contraction was seen.
bool Monitor::is_near(double step, double within) const {
  const auto is_small = [&](double distance, double creep, bool is_slow) {
    if (!(creep < 1)) return false;
    const double allowed = is_slow && creep > sublinear ? 0 : near;
    return distance / (1 - creep) <= std::max(allowed, options_.tolerance) * within;
  };
  const auto [last, before, first] = halving_times_;
  const double ratio = std::max(ratio_, ratio_before_), creep = std::min(creep_, creep_before_);
  if (contractions_ >= 2 && (sees_creep_ || !std::isfinite(first)) &&
      is_small(step * ratio / (1 - ratio), creep, ratio > slow_ratio))
    return true;
  // Steps that go on far longer without halving than before are those of another, slower component.
  constexpr double longer = 4, at_least = 8;
  if (since_halving_ > at_least + longer * last) return false;
  // Times are whole numbers: the creep of the last three, less what counting may have added.
  const auto growth = [](double now, double then) { return std::log2(std::max(now - 1, 1.0) / (then + 1)); };
  const double time = std::max<double>(last, since_halving_);
  const double of_times = std::isfinite(first) ? std::min(growth(time, before), growth(before, first)) : 0;
  return is_small(step * time / std::log(2.0), std::max(std::isfinite(creep) ? creep : 0, of_times), time > slow_halving);
}

void Monitor::end_at_rounding(double step, double within) {
  if (step <= options_.tolerance * within)
    end(Status::converged);
  else
    end(Status::rounding_reached,
        fmt::format("steps of {:.1e}, the tolerance is {:.1e} relative to {:.1e}", step, options_.tolerance, within));
}

bool Monitor::is_negligible(double step, double size) const {
  return step <= std::max(options_.tolerance, rounding * std::sqrt(static_cast<double>(run_.start.size()))) * scale(size);
}

bool Monitor::is_lost(double step, double size) const {
  return step <= rounding * std::sqrt(static_cast<double>(run_.start.size())) * scale(size);
}

bool Monitor::contracts_to_end(const NewtonStep& newton) const {
  const double within = scale(newton.size);
  const double before = was_full_ ? newton_before_.step : 0;
  const bool is_linear =
      linear_ >= linear_steps && newton.step > superlinear * before && newton.step <= contracting * before;
  if (newton.step <= tiny) return true;
  if (!is_short(newton.step, newton.size) || newton.stiffness > stiffer * newton_before_.stiffness) return false;
  const double residual = newton.step * newton.stiffness, residual_before = before * newton_before_.stiffness;
  if (newton.step + epsilon * within <= superlinear * before && residual <= residual_left * residual_before) return true;
  const double last_place = last_places * epsilon * std::sqrt(static_cast<double>(run_.start.size())) * within;
  if (before <= last_place && newton.step <= not_longer * before) return true;
  return is_linear;
}

bool Monitor::check_last(const NewtonStep& newton, ConstVector by, ConstVector to) {
  constexpr double small = 1e-6;  // relative change of an entry
  constexpr double falls = 0.5;
  if (!contracts_to_end(newton) && !(for_entries_ > 0 && is_short(newton.step, newton.size))) return false;
  double entry = 0;
  for (std::size_t i = 0; i < by.size(); ++i) {
    const double size = std::max(std::fabs(to[i]), std::fabs(to[i] + by[i]));
    if (size > 0) entry = std::max(entry, std::fabs(by[i]) / size);
  }
  const double decrement = newton.stiffness * newton.step * newton.step;
  const bool is_small = entry <= std::max(small, options_.tolerance);
  if (is_small || (for_entries_ > 0 && decrement > falls * decrement_before_)) return true;
  decrement_before_ = decrement;
  ++for_entries_;
  return false;
}

void Monitor::record_newton_step(const NewtonStep& newton, double length) {
  const double before = was_full_ ? newton_before_.step : 0;
  linear_ = newton.step > superlinear * before && newton.step <= contracting * before ? linear_ + 1 : 0;
  not_superlinear_ = before > 0 && newton.step > superlinear * before ? not_superlinear_ + 1 : 0;
  newton_before_ = newton;
  was_full_ = length == 1;
}

// Rounding makes F irregular in the last places of x: the second difference of a smooth F over a few of them is zero.
bool Monitor::is_rounding(double step) {
  const std::size_t n = run_.x.size();
  const double size = norm(run_.x);
  if (step <= rounding * std::sqrt(static_cast<double>(n)) * size) return true;
  if (!evaluate_ || step > longest_rounding * size) return false;
  run_.scratch.resize(4 * n);
  const Vector all = run_.scratch, at = all.first(n), here = all.subspan(n, n), there = all.subspan(2 * n, n),
               opposite = all.subspan(3 * n, n);
  left_point_ = true;
  const auto evaluate = [&](std::size_t sample, double side, Vector next) {
    for (std::size_t i = 0; i < n; ++i) {
      const double sign = ((i + 5 * sample) * 2654435761U >> 7U) % 2 == 0 ? side : -side;
      at[i] = run_.x[i] * (1 + sign * (beside + static_cast<double>(i % 7 + 9 * sample)) * epsilon);
    }
    return evaluate_(at, next) && all_finite(next);
  };
  if (!evaluate(0, 0, here)) return false;
  for (std::size_t sample = 0; sample < samples; ++sample) {
    if (!evaluate(sample, 1, there) || !evaluate(sample, -1, opposite)) return false;
    for (std::size_t i = 0; i < n; ++i) at[i] = 0.5 * (there[i] - here[i]) + 0.5 * (opposite[i] - here[i]);
    if (step <= irregular * norm(at)) return true;
  }
  return false;
}

// Whether rounding keeps the last steps from making progress: they are about as short as the last places of x, or the value
// does not change, or F is irregular on the scale of their lengths.
bool Monitor::reached_rounding(double step, double scale, double value, double length) {
  const bool stands_still = std::fabs(value - value_before_) <= rounding * std::fabs(value);
  value_before_ = value;
  const auto begin = [&] {
    stall_from_ = step;
    stall_longest_ = path_ = 0;
    stalled_ = 0;
    values_stand_still_ = true;
    run_.anchor.assign(run_.x.begin(), run_.x.end());
  };
  if (length < 1 || !(step > 0.5 * stall_from_)) {
    begin();
    return false;
  }
  ++stalled_;
  path_ += step;
  stall_longest_ = std::max(stall_longest_, step);
  values_stand_still_ = values_stand_still_ && stands_still;
  if (stalled_ < window_) return false;
  for (std::size_t i = 0; i < run_.x.size(); ++i) run_.anchor[i] = run_.x[i] - run_.anchor[i];
  if (norm(run_.anchor) <= leads_nowhere * path_) {
    if (stall_longest_ <= rounding * std::sqrt(static_cast<double>(run_.x.size())) * scale || values_stand_still_ ||
        is_rounding(stall_longest_))
      return true;
    window_ *= 2;
  }
  begin();
  return false;
}

bool Monitor::record_and_check(double step, double size, double value, double length, Converged converged) {
  const int k = ++run_.statistics.iterations;
  run_.step_before = k > 1 ? run_.last_step : 0;
  run_.last_step = step;
  // After steps of another kind a step of 0 is exact: x is in a piece in which what is solved is affine.
  run_.steps_vanish = not_superlinear_ >= linear_steps && step <= tiny && run_.step_before <= epsilon * largest_;
  if (options_.history) run_.statistics.history.push_back(step);
  if (!std::isfinite(step)) {
    if (all_finite(run_.previous)) run_.x = run_.previous;
    // If the iterates had been growing this is an overflow, otherwise x has left the domain of a function.
    const bool grew = k > 1 && (std::isinf(step) || largest_ > overflow_after * std::max(first_size_, smallest_));
    end(grew ? Status::diverged : Status::not_finite, fmt::format("in iteration {}", k));
    return true;
  }
  const double within = scale(size);
  size_before_ = size;
  largest_ = std::max(largest_, step);
  // The clock is read only for a log or a callback: it costs as much as the arithmetic of a small iteration.
  const bool tells = options_.log != nullptr || options_.callback;
  const bool stops = tells && tell(options_, {k, step, within, value, length, seconds()});
  if (converged == Converged::from_step_lengths || converged == Converged::not_yet) {
    observe(step, within);
    const bool is_within = converged == Converged::from_step_lengths && step <= options_.tolerance * within;
    if (step <= tiny || (is_within && is_near(step, within) && is_confirmed(step, within))) converged = Converged::yes;
    std::swap(run_.older[0], run_.older[1]);
    run_.older[0].assign(run_.previous.begin(), run_.previous.end());
    length = 1;  // a descent that halves its α is not damped: α is part of the step
  }
  if (converged == Converged::yes) {
    end(Status::converged);
    return true;
  }
  const bool shrinks = step < smallest_;
  smallest_ = std::min(smallest_, step);
  // Where the value falls the steps are those of a descent, however long the way is.
  const bool descends = std::isfinite(value) && value < value_before_;
  if (reached_rounding(step, within, value, length)) {
    end_at_rounding(step, within);
    return true;
  }
  if (size > blow_up * std::max(first_size_, k == 1 ? step : smallest_) && step > 0.9 * largest_ && k > 10 &&
      !(descends && size < endless)) {
    end(Status::diverged, fmt::format("after {} iterations |x| is {:.1e}", k, size));
    return true;
  }
  if (stops) {
    end(Status::cancelled, fmt::format("in iteration {}", k));
    return true;
  }
  if (std::isfinite(options_.time_limit) && seconds() > options_.time_limit) {
    end(Status::time_limit, fmt::format("{} s, after {} iterations", options_.time_limit, k));
    return true;
  }
  if (k >= options_.max_iterations) {
    const char* why = "";
    if (step <= options_.tolerance * within)
      why = ", but the steps were not seen to contract";
    else if (size < 1e-3 * largest_ && step > 1e-4 * size)
      why = "; where the solution is zero give SolveOptions::typical_x";
    else if (!shrinks)
      why = ", and the steps do not become shorter: damp them, or take shorter ones";
    end(Status::iteration_limit, fmt::format("{} iterations, the last step was {:.1e} relative{}", k, step / within, why));
    return true;
  }
  return false;
}

}  // namespace onestep::detail
