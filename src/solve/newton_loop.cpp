// Newton's iteration: full steps x - H⁻¹g wherever they are good enough, shorter ones by Armijo's rule where they are not,
// and a shifted H where it is not positive definite. newton_root leaves minima of ‖G‖ that are not roots by restarting.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "solve/line_search.h"
#include "solve/monitor.h"
#include "solve/newton_method.h"
#include "solve/traced_map.h"

namespace onestep::detail {
namespace {

// A short step is taken in full even where rounding of the merit function hides its decrease, but at most this often: the
// next steps tell more about it than a line search does.
constexpr int unsearched_allowed = 10;
// newton_root: a line search that shortens its steps below this so many times in a row approaches a minimum of ‖G‖.
constexpr double shortened = 0x1p-10;
constexpr int shortened_allowed = 8;
// A new start lies beside the point that is left, alternately on both sides, farther out by this factor for each pair.
constexpr int restarts_allowed = 16;
constexpr double farther = 2.25;
// ‖G‖ falls by ((m - 1)/m)^m < 1/e with each step towards a root of multiplicity m: by this at least with two of them.
constexpr double falls = 0.14;
// Beside a root, so many units in the last place of x away, G points to opposite sides, or is far larger than at it.
constexpr double beside = 16, far_smaller = 0.1;

class NewtonLoop final : public Loop {
 public:
  explicit NewtonLoop(const NewtonMethod& method)
      : method_(method),
        point_(point_with_extras(*method.step)),
        merit_(*method.merit, method.step->size(), method.step->parameters),
        full_(method.step->size()),
        direction_(method.step->size()),
        trial_(method.step->size()) {}

  void solve(std::span<const Array> theta, const SolveOptions& options, Run& run) override {
    Monitor monitor(options, run);
    point_->bind(theta);
    merit_.bind(theta);
    theta_ = theta;
    const int factorisations = point_->work().factorisations;
    run.controls = *method_.undamped;  // the full step, whatever the line search took
    run.x = run.start;
    run.previous = run.start;
    run_ = &run;
    monitor.evaluate_with([this](ConstVector x, Vector next) { return point_->apply(x, run_->controls, next); });
    is_checked_ = false;
    iterate(monitor, options);
    if (is_solution(run.status) && !is_checked_ && !is_root(run.x, 0))
      monitor.end(Status::line_search_failed, "the steps make no progress, and the residual is not zero");
    run.statistics.factorisations = point_->work().factorisations - factorisations;
  }

  // The last step was made at x_{k-1}; where the loop ended with its point elsewhere, the step is evaluated there again.
  Point& last() override {
    if (!std::ranges::equal(point_->where(), run_->previous)) point_->apply(run_->previous, run_->controls, full_);
    return *point_;
  }

  Work work() const override { return point_->work(); }

  bool read_data_again() override {
    point_->read_data_again();
    merit_.read_data_again();
    return true;
  }

 private:
  void iterate(Monitor& monitor, const SolveOptions& options) {
    Run& run = *run_;
    unsearched_ = shortened_ = 0;
    residual_before_ = 0;
    limit_ = options.max_iterations;
    switch (evaluate(run.x)) {
      case Found::no_value: return monitor.end(Status::not_finite, "the objective has no finite value at the start");
      case Found::no_step:
        if (!restart(monitor, Status::singular, why_no_step())) return;
        break;
      case Found::step: break;
    }
    for (;;) {
      // At x: value, slope and the full step d = H⁻¹g.
      const double value = point_->extra(0)[0], slope = point_->extra(1)[0];
      controls_ = {1, shift_};
      std::ranges::copy(run.x, run.previous.begin());
      std::ranges::transform(run.x, full_, direction_.begin(), std::minus<>());
      const double full_step = norm(direction_);
      // dᵀHd / ‖d‖², or ‖Jd‖ / ‖d‖.
      const double along = is_minimiser() ? slope / full_step : std::sqrt(slope);
      const Monitor::NewtonStep newton{full_step, norm(full_), along / full_step};
      if (monitor.check_last(newton, direction_, full_) && is_root(full_, std::max(residual_before_, std::sqrt(slope)))) {
        run.trajectory.record(run.previous, controls_);
        std::ranges::copy(full_, run.x.begin());
        monitor.record_and_check(full_step, newton.size, value, 1, Monitor::Converged::yes);
        if (controls_[1] > 0)
          monitor.end(Status::singular,
                      fmt::format("at the solution the Hessian is positive definite only with {:.1e} added to its diagonal",
                                  controls_[1]));
        return;
      }
      // The full step is usually accepted, and the next iteration needs value, slope and step at its end.
      std::ranges::copy(full_, trial_.begin());
      const bool is_last = run.statistics.iterations + 1 >= options.max_iterations;
      Found found = Found::no_value;
      double& length = controls_[0];
      double reached = 0;
      if (is_last) {
        reached = merit(trial_);
      } else {
        found = evaluate(trial_);
        reached = point_->extra(0)[0];
      }
      const Armijo armijo(value, slope);
      // The slope is the square of the gradient's length, as H⁻¹ measures it.
      bool full_is_good =
          armijo.enough(length, reached) || (is_minimiser() && found == Found::step && shift_ == 0 &&
                                             full_step <= hides_change * newton.size && point_->extra(1)[0] <= 0.25 * slope);
      if (!full_is_good && found == Found::step && monitor.is_negligible(full_step, newton.size)) {
        full_is_good = ++unsearched_ <= unsearched_allowed;
        if (!full_is_good && monitor.is_rounding(full_step) && is_root(run.x, 0))
          return monitor.end_at_rounding(full_step, newton.size);
      }
      const bool found_length = full_is_good || armijo.shorten(length, reached, [&](double shorter) {
        for (std::size_t i = 0; i < trial_.size(); ++i) trial_[i] = run.previous[i] - shorter * direction_[i];
        ++run.statistics.backtracks;
        return merit(trial_);
      });
      const bool is_lost = !full_is_good && monitor.is_lost(length * full_step, norm(trial_));
      shortened_ = length < shortened ? shortened_ + 1 : 0;
      if (!found_length || is_lost || (shortened_ > shortened_allowed && !is_minimiser())) {
        if (!end_or_restart(monitor, newton)) continue;
        return;
      }
      run.trajectory.record(run.previous, controls_);
      std::ranges::copy(trial_, run.x.begin());
      monitor.record_newton_step(newton, length);
      residual_before_ = std::sqrt(slope);
      if (monitor.record_and_check(length * full_step, norm(run.x), reached, length, Monitor::Converged::no)) return;
      if (!full_is_good || monitor.take_left_point()) found = evaluate(run.x);
      if (found == Found::no_step) {
        if (!restart(monitor, Status::singular, why_no_step())) return;
      } else if (found == Found::no_value) {
        return monitor.end(Status::not_finite, "the derivatives at an iterate are not finite");
      }
    }
  }

  bool is_minimiser() const { return method_.hessian_scale.has_value(); }

  // Whether x is a root as far as rounding allows, and not a point from where Newton's step is short beside |x| alone: at a
  // minimum of ‖G‖, where the Jacobian is singular, such steps are as irregular as if they were rounding. `before` is the
  // larger residual before the last two steps to x; 0: not known.
  bool is_root(ConstVector x, double before) {
    if (is_minimiser()) return true;
    const double residual = std::sqrt(2 * merit(x));
    is_checked_ = residual == 0 || residual <= falls * before || is_zero_beside(x, residual);
    return is_checked_;
  }
  bool is_zero_beside(ConstVector x, double residual) {
    if (!equation_) equation_ = method_.residual->point(false);
    equation_->bind(theta_);
    const std::size_t n = x.size();
    std::vector<double>&at = beside_[0], &above = beside_[1], &below = beside_[2];
    for (std::vector<double>& v : beside_) v.resize(n);
    const double size = norm(x) / std::sqrt(static_cast<double>(n));
    const auto evaluate_beside = [&](double side, Vector value) {
      for (std::size_t i = 0; i < n; ++i) {
        const double sign = (i * 2654435761U >> 7U) % 2 == 0 ? side : -side;
        at[i] = x[i] + sign * beside * std::numeric_limits<double>::epsilon() * std::max(std::fabs(x[i]), size);
      }
      equation_->apply(at, {}, value);
    };
    evaluate_beside(1, above);
    evaluate_beside(-1, below);
    if (dot(above, below) <= 0) return true;
    for (std::size_t i = 0; i < n; ++i) at[i] = 0.5 * above[i] - 0.5 * below[i];
    return residual <= far_smaller * norm(at);
  }

  // The line search found no length, or only tiny ones. False where the solve goes on from another point.
  bool end_or_restart(Monitor& monitor, const Monitor::NewtonStep& newton) {
    Run& run = *run_;
    std::ranges::copy(run.previous, run.x.begin());
    if (monitor.is_rounding(newton.step) && is_root(run.x, 0)) {
      monitor.end_at_rounding(newton.step, newton.size);
      return true;
    }
    return !restart(monitor, Status::line_search_failed, fmt::format("in iteration {}", run.statistics.iterations + 1));
  }

  // At a minimum of ‖G‖ that is not a root the Jacobian is singular and Newton's step points along its null space: farther
  // out on either side ‖G‖ may decrease towards a root. False, with the status set, when the restarts are used up.
  bool restart(Monitor& monitor, Status status, const std::string& about) {
    Run& run = *run_;
    if (is_minimiser()) {
      monitor.end(status, about);
      return false;
    }
    int& count = run.statistics.restarts;
    if (count == 0) {
      left_.assign(run.x.begin(), run.x.end());
      away_.assign(direction_.begin(), direction_.end());
      double size = norm(away_);
      if (status == Status::singular || !std::isfinite(size) || size == 0) {
        for (std::size_t i = 0; i < away_.size(); ++i) away_[i] = std::cos(static_cast<double>(i));
        size = norm(away_);
      }
      const double distance = std::max(norm(left_), norm(run.start));
      for (double& e : away_) e *= (distance > 0 ? distance : 1) / size;
    }
    shortened_ = unsearched_ = 0;
    residual_before_ = 0;
    while (count < restarts_allowed && run.statistics.iterations < limit_) {
      const double side = (count % 2 == 0 ? 1 : -1) * std::pow(farther, count / 2);
      ++count;
      for (std::size_t i = 0; i < left_.size(); ++i) run.x[i] = left_[i] - side * away_[i];
      std::ranges::copy(run.x, run.start.begin());
      monitor.start_again();
      if (evaluate(run.x) == Found::step) return true;
    }
    std::ranges::copy(left_, run.x.begin());
    std::ranges::copy(left_, run.previous.begin());
    monitor.end(status, fmt::format("{}; {} restarts found no root either", about, count));
    return false;
  }

  double merit(ConstVector x) {
    ++run_->statistics.evaluations;
    return merit_(x);
  }

  enum class Found { step, no_step, no_value };

  // Value, slope and full step at x, with as small a shift as makes H positive definite.
  Found evaluate(ConstVector x) {
    ++run_->statistics.evaluations;
    shift_ = 0;
    std::array<double, 2> controls{1, 0};
    const bool factored = point_->apply(x, controls, full_);
    if (!std::isfinite(point_->extra(0)[0])) return Found::no_value;
    if (factored && all_finite(full_)) return Found::step;
    if (!is_minimiser()) return Found::no_step;
    const double scale = hessian_scale(x);
    if (!std::isfinite(scale)) return Found::no_value;
    const auto is_enough = [&](double shift) {
      controls[1] = shift_ = shift;
      ++run_->statistics.shifts;
      return point_->control(controls, full_) && all_finite(full_);
    };
    for (double shift = 1e-10; shift < 1e3 && scale > 0; shift *= 10)
      if (is_enough(shift * scale)) return Found::step;
    return is_enough(1) && is_enough(steepness_without_curvature(x)) ? Found::step : Found::no_step;
  }

  // Where the Hessian vanishes a step along the gradient is as long as x or the start, or 1. full_ is x - ∇f.
  double steepness_without_curvature(ConstVector x) {
    const std::size_t n = x.size();
    run_->scratch.resize(4 * n);
    const Vector difference = Vector(run_->scratch).first(n);
    std::ranges::transform(x, full_, difference.begin(), std::minus<>());
    const double gradient = norm(difference), size = std::max(norm(x), norm(run_->start));
    return std::max(gradient / (size > 0 ? size : 1), std::numeric_limits<double>::min());
  }

  // Few solves need it: the memory for a whole Hessian is allocated when one does.
  double hessian_scale(ConstVector x) {
    if (!scale_) scale_.emplace(*method_.hessian_scale, method_.step->size(), method_.step->parameters);
    scale_->bind(theta_);
    return (*scale_)(x);
  }

  std::string why_no_step() const {
    return shift_ == 0 ? std::string("the matrix of the step is singular")
                       : fmt::format("no shift up to {:.1e} makes the matrix positive definite", shift_);
  }

  const NewtonMethod& method_;
  std::unique_ptr<ExtraPoint> point_;
  std::unique_ptr<Point> equation_;
  Trial merit_;
  std::optional<Trial> scale_;
  std::span<const Array> theta_;  // during a solve
  Run* run_ = nullptr;
  std::vector<double> full_, direction_, trial_;
  std::array<std::vector<double>, 3> beside_;  // memory for is_root
  std::vector<double> left_, away_;            // where newton_root restarted first, and the direction of its restarts
  int unsearched_ = 0, shortened_ = 0, limit_ = 0;
  double residual_before_ = 0;  // of a root, before the last step
  bool is_checked_ = false;     // the last point is_root was asked about is one
  std::array<double, 2> controls_{1, 0};
  double shift_ = 0;
};

}  // namespace

std::unique_ptr<Loop> NewtonMethod::loop() const { return std::make_unique<NewtonLoop>(*this); }

}  // namespace onestep::detail
