// When a loop ends: the tests are relative to the scale of the problem, and say so when rounding is in the way.
#include <fmt/format.h>
#include <fmt/ostream.h>

#include <chrono>
#include <cmath>

#include "solve/method.h"

namespace onestep::detail {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

namespace {

// Steps this small, relative to the scale and to √n, are rounding when they do not shrink any more.
constexpr double rounding = 64 * std::numeric_limits<double>::epsilon();
constexpr int stalls_allowed = 3;
// A solution at zero gives no scale. There it is the value that stands still to rounding, while steps do not get shorter.
constexpr int standstills_allowed = 10;
// Grown by this much, and still growing, an iteration is not coming back.
constexpr double blow_up = 1e20;
// What is not a number after growth by this much has overflowed.
constexpr double overflow_after = 1e8;

}  // namespace

void check(const SolveOptions& options) {
  if (!(options.tolerance >= 0 && std::isfinite(options.tolerance)))
    throw MisuseError(fmt::format("[solve] tolerance = {}: it must be zero or more", options.tolerance));
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

Monitor::Monitor(const SolveOptions& options, Run& run)
    : options_(options), run_(run), begin_(now()), first_size_(norm(run.start)) {
  run.status = Status::iteration_limit;
  run.about.clear();
  run.statistics.iterations = run.statistics.evaluations = run.statistics.factorisations = 0;
  run.statistics.shifts = run.statistics.backtracks = run.statistics.products = 0;
  run.statistics.seconds = 0;
  run.statistics.history.clear();
  run.trajectory.clear(run.start.size());
}

double Monitor::scale(double step, double size) const { return std::max({largest_, step, size}); }
double Monitor::seconds() const { return now() - begin_; }

void Monitor::end(Status status, std::string about) {
  run_.status = status;
  run_.about = std::move(about);
  run_.statistics.seconds = seconds();
}

bool Monitor::ends(double step, double size, double value, double length) {
  const int k = ++run_.statistics.iterations;
  run_.last_step = step;
  if (options_.history) run_.statistics.history.push_back(step);
  if (!std::isfinite(step)) {
    // An iteration that had been growing has overflowed; another has left the domain of a function.
    const bool grew = k > 1 && (std::isinf(step) || largest_ > overflow_after * std::max(first_size_, best_));
    end(grew ? Status::diverged : Status::not_finite, fmt::format("in iteration {}", k));
    return true;
  }
  const double problem_scale = scale(step, size);
  largest_ = std::max(largest_, step);
  // The clock is looked at only for those who want to know: it costs as much as a small iteration's arithmetic.
  const bool tells = options_.log != nullptr || options_.callback;
  const bool stops = tells && tell(options_, {k, step, problem_scale, value, length, seconds()});
  if (step <= options_.tolerance * problem_scale) {
    end(Status::converged);
    return true;
  }
  const double floor = rounding * std::sqrt(static_cast<double>(run_.start.size())) * problem_scale;
  stalls_ = step <= floor && step >= 0.5 * best_ ? stalls_ + 1 : 0;
  const bool stands_still = std::fabs(value - last_value_) <= rounding * std::fabs(value);
  standstills_ = stands_still && step >= best_ ? standstills_ + 1 : 0;
  last_value_ = value;
  best_ = std::min(best_, step);
  if (stalls_ >= stalls_allowed || standstills_ >= standstills_allowed) {
    end(Status::rounding_reached,
        fmt::format("steps of {:.1e}, the tolerance is {:.1e} relative to {:.1e}", step, options_.tolerance, problem_scale));
    return true;
  }
  if (size > blow_up * std::max(first_size_, run_.statistics.iterations == 1 ? step : best_) && step > 0.9 * largest_ &&
      k > 10) {
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
    end(Status::iteration_limit, fmt::format("{} iterations, the last step was {:.1e} relative", k, step / problem_scale));
    return true;
  }
  return false;
}

}  // namespace onestep::detail
