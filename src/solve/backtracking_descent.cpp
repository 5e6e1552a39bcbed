// Gradient descent whose step is found by backtracking.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "solve/descent.h"
#include "solve/monitor.h"
#include "solve/traced_map.h"

namespace onestep::detail {
namespace {

// An iteration may need a much shorter step than the last: from far away, or where the first α is that of another scale.
// Backtracking ends when x no longer changes; this is tested once α is below this fraction of the first one tried.
constexpr double looked_at = 0x1p-40, changes_nothing = 4 * std::numeric_limits<double>::epsilon();
// A decrease of f smaller than this, relative to f, is looked for in the slope.
constexpr double visible = 1e-9;
// Steps within the rounding of x end a backtracking descent near a solution. So many in a row do not lead to one.
constexpr int lost_allowed = 64;
// Why a backtracking descent ends where no gradient vanishes.
constexpr const char* kink =
    "the steps became short and the gradient did not: the objective has a kink there; smooth it, or take a proximal step";

/// The last steps of a backtracking descent. At a kink of f they become short because α falls and not because the gradient
/// does, which is no convergence.
class StepSizes {
 public:
  void clear() { count_ = 0; }
  void add(double alpha, double step) {
    seen_[count_ % seen_.size()] = {alpha, step / alpha};
    last_ = seen_[count_ % seen_.size()];
    ++count_;
  }
  double last_gradient() const { return last_.gradient; }
  bool fall_at_a_kink() const {
    constexpr double much = 1.0 / 16;
    const auto end = seen_.begin() + static_cast<std::ptrdiff_t>(std::min(count_, seen_.size()));
    const Seen& longest =
        *std::max_element(seen_.begin(), end, [](const Seen& a, const Seen& b) { return a.alpha < b.alpha; });
    const double shrunk = last_.alpha / longest.alpha;
    return count_ > 0 && shrunk <= much && last_.gradient >= std::sqrt(shrunk) * longest.gradient;
  }

 private:
  struct Seen {
    double alpha, gradient;
  };
  std::array<Seen, 48> seen_{};
  Seen last_{};
  std::size_t count_ = 0;
};

/// α is halved until f decreases enough (Armijo), and doubled after each success.
class BacktrackingDescent final : public Loop {
 public:
  explicit BacktrackingDescent(const DescentMethod& method)
      : first_(method.size.alpha),
        curvature_(method),
        point_(point_with_extras(*method.step)),
        gradient_(method.gradient->point(false)),
        objective_(*method.objective, method.step->size(), method.step->parameters),
        difference_(method.step->size()),
        slope_there_(method.step->size()) {}

  void solve(std::span<const Array> theta, const SolveOptions& options, Run& run) override {
    descend(theta, options, run);
    if (!curvature_.leave_stationary_start(theta, run)) return;
    descend(theta, options, run);
    note_left_start(run);
  }
  Point& last() override { return *point_; }

 private:
  void descend(std::span<const Array> theta, const SolveOptions& options, Run& run) {
    Monitor monitor(options, run);
    point_->bind(theta);
    objective_.bind(theta);
    gradient_->bind(theta);
    run.x = run.start;
    run.controls.assign(1, first_);
    monitor.evaluate_with([this, &run](ConstVector x, Vector next) { return point_->apply(x, run.controls, next); });
    double alpha[1] = {first_};
    int lost = 0;  // steps in a row that were within the rounding of x
    bool is_kink = false;
    sizes_.clear();
    for (;;) {
      const double last = run.controls[0];
      run.previous = run.x;
      point_->apply(run.previous, alpha, run.x);
      run.statistics.evaluations += 2;
      const double value = point_->extra(0)[0], slope = point_->extra(1)[0];
      if (!std::isfinite(value)) return monitor.end(Status::not_finite, "the objective at an iterate");
      // A step that is lost in the rounding of x tells nothing: the first α may be that of another scale.
      while (slope > 0 && std::isfinite(2 * alpha[0]) && std::ranges::equal(run.x, run.previous)) {
        alpha[0] *= 2;
        point_->control(alpha, run.x);
      }
      double reached = objective_(run.x);
      const double first_tried = alpha[0];
      const bool is_visible = 0.5 * first_tried * slope > visible * std::fabs(value);
      while (!decreases_enough(value, reached, 0.5 * alpha[0] * slope, is_visible, run)) {
        alpha[0] /= 2;
        if (alpha[0] < looked_at * first_tried && changes_no_more(run)) {
          run.x = run.previous;
          if (is_at_kink(run)) return monitor.end(Status::line_search_failed, kink);
          return monitor.end(Status::line_search_failed, fmt::format("in iteration {}", run.statistics.iterations + 1));
        }
        point_->control(alpha, run.x);
        reached = objective_(run.x);
        ++run.statistics.evaluations;
        ++run.statistics.backtracks;
      }
      // A step of 0 says nothing about α, which is differentiated: it is made with the last one that did.
      if (std::ranges::equal(run.x, run.previous)) alpha[0] = last;
      run.trajectory.record(run.previous, alpha);
      run.controls.assign(alpha, alpha + 1);
      std::ranges::transform(run.x, run.previous, difference_.begin(), std::minus<>());
      const double step = norm(difference_);
      if (step > 0) sizes_.add(alpha[0], step);
      // Once steps are as short as they can be α does not fall any more.
      is_kink = monitor.is_negligible(step, norm(run.x)) && (is_kink || is_at_kink(run));
      if (monitor.record_and_check(step, norm(run.x), reached, alpha[0],
                                   is_kink ? Monitor::Converged::not_yet : Monitor::Converged::from_step_lengths)) {
        if (is_kink && is_solution(run.status)) monitor.end(Status::line_search_failed, kink);
        if (monitor.take_left_point()) point_->apply(run.previous, alpha, difference_);
        return;
      }
      lost = monitor.is_lost(step, norm(run.x)) ? lost + 1 : 0;
      if (lost > lost_allowed && is_kink) return monitor.end(Status::line_search_failed, kink);
      alpha[0] *= 2;
    }
  }

  // Armijo's rule with 1/2. Near the solution rounding hides the decrease; the mean of the slopes at both ends tells it
  // there: it is at most half the slope here as long as the gradients at both ends do not point against each other.
  bool decreases_enough(double value, double reached, double wanted, bool is_visible, Run& run) {
    if (is_visible) return reached <= value - wanted;
    std::ranges::transform(run.previous, run.x, difference_.begin(), std::minus<>());
    gradient_->apply(run.x, {}, slope_there_);
    ++run.statistics.evaluations;
    return dot(difference_, slope_there_) >= 0;
  }

  // Whether steps are short because α is, and not for rounding: the gradient is then not far smaller than it is some way
  // before and behind x.
  bool is_at_kink(const Run& run) {
    constexpr double some_way = 1e-3, far_smaller = 1e-4;
    if (!sizes_.fall_at_a_kink()) return false;
    std::ranges::transform(run.x, run.start, difference_.begin(), std::minus<>());
    const double way = norm(difference_), away = some_way * std::max(norm(run.x), way);
    if (!(way > 0)) return false;
    double steepest = 0;
    for (const double side : {away / way, -away / way}) {
      beside_.assign(run.x.begin(), run.x.end());
      add(beside_, difference_, side);
      gradient_->apply(beside_, {}, slope_there_);
      const double steep = norm(slope_there_);
      steepest = std::isfinite(steep) ? std::max(steepest, steep) : steepest;
    }
    return sizes_.last_gradient() >= far_smaller * steepest;
  }

  bool changes_no_more(const Run& run) {
    std::ranges::transform(run.previous, run.x, difference_.begin(), std::minus<>());
    return norm(difference_) <= changes_nothing * norm(run.previous);
  }

  double first_;
  Curvature curvature_;
  std::unique_ptr<ExtraPoint> point_;
  std::unique_ptr<Point> gradient_;
  Trial objective_;
  std::vector<double> difference_, slope_there_, beside_;
  StepSizes sizes_;
};

}  // namespace

std::unique_ptr<Loop> backtracking_descent(const DescentMethod& method) {
  return std::make_unique<BacktrackingDescent>(method);
}

}  // namespace onestep::detail
