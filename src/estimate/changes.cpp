// Derivatives at further points, each compared with the best one, and what they say about the rest of the way.
#include "estimate/changes.h"

#include <algorithm>
#include <cmath>

#include "estimate/certify.h"
#include "estimate/corners.h"
#include "linear/random.h"
#include "linear/vector.h"

namespace onestep::detail {
namespace {

constexpr double remainder_safety = 4;   // factor on what is extrapolated
constexpr double slowest = 0.9;          // largest ratio with which changes are extrapolated
constexpr double smallest_cube = 1e-12;  // where kinks are looked for, relative to x

}  // namespace

Changes::Changes(SolutionState& s, const BetterSystem& system, JacobianProducts best,
                 std::function<JacobianProducts(Point&)> look)
    : s_(s), map_(s.method->best_step()), system_(system), look_(std::move(look)), best_(std::move(best)) {}

int Changes::products(const SolutionState& s) {
  const std::size_t stages = s.refinement->stages().size();
  const int by_rounding = s.refinement->noise_is_large() ? 1 : 0;
  return s.method->best_step().is_constant() ? 1 : 2 + by_rounding + static_cast<int>(std::min(stages - 1, looked_at));
}

void Changes::follow() {
  const std::span<const Refinement::Stage> stages = s_.refinement->stages();
  for (std::size_t i = 0; i + 1 < stages.size(); ++i)
    if (i == 0 || i + looked_at >= stages.size()) seen_.push_back(look_(*stages[i].point));
  seen_.push_back(std::move(best_));
  if (s_.method->precise)
    on_the_way_ = difference(look_(s_.here()), seen_.back());  // solves inside are at a distance, too
  else if (seen_.size() > 1)
    on_the_way_ = difference(seen_[0], seen_.back());
  beyond_ = extrapolated();
}

// Upper estimate of the difference of the derivatives at two points.
double Changes::difference(const JacobianProducts& a, const JacobianProducts& b) const {
  std::vector<double> state = a.state;
  Parameters theta = a.theta;
  add(state, b.state, -1);
  add_to(theta, b.theta, -1);
  return norm(theta) + (s_.method->superlinear ? 1 : system_.inverse()) * system_.size_of_b() * detail::norm(state);
}

double Changes::extrapolated() {
  const std::span<const Refinement::Stage> stages = s_.refinement->stages();
  const std::size_t steps = stages.size() - 1;
  if (steps == 0) return 0;
  const auto back = [this](std::size_t i) -> const JacobianProducts& { return seen_[seen_.size() - 1 - i]; };
  const double change = difference(back(0), back(1));
  double before = 0;
  if (steps >= 2)
    before = difference(back(1), back(2));
  else if (s_.method->superlinear && s_.run.last_step > 0)
    before = difference(back(1), look_(s_.last()));
  const double of_steps = ratio(stages[steps].step, stages[steps - 1].step);
  const double q = std::clamp(before > 0 ? std::max(change / before, of_steps) : of_steps, 0.0, slowest);
  return remainder_safety * change * q / (1 - q);
}

// From a displacement in a random direction, in which each coordinate has a share of 1/√n.
double Changes::rate() {
  constexpr double displacement = 1e-6;
  const double length = displacement * s_.refinement->scale();
  return length == 0 ? 0 : beside(length) / length;
}

double Changes::beside(double displacement) {
  const std::size_t n = s_.size();
  std::vector<double> y(n);
  for (const double side : {1.0, -1.0}) {  // next to the end of a domain the step may be finite on one side only
    std::vector<double> x = s_.refinement->best().x;
    for (std::size_t i = 0; i < n; ++i) x[i] += side * random_sign(i) * displacement;
    Point& point = scratch_point();
    if (point.apply(x, s_.run.controls, y) && all_finite(y)) return difference(look_(point), seen_.back());
  }
  return infinity;
}

Point& Changes::scratch_point() {
  if (!s_.method->precise) return s_.scratch_point();
  if (!scratch_point_) scratch_point_ = map_.point(true);
  scratch_point_->bind(s_.theta);
  return *scratch_point_;
}

double Changes::in_corners(double distance) {
  const double scale = s_.refinement->scale();
  const double floor = smallest_cube * (scale > 0 ? scale : 1) / std::sqrt(static_cast<double>(s_.size()));
  double largest = 0;
  Corners corners(s_, map_, s_.refinement->best().x);
  const bool finite = corners.visit(corner_radius * std::max(distance, floor), s_.refinement->noise(),
                                    [&](Point& at) { largest = std::max(largest, difference(look_(at), seen_.back())); });
  return finite ? largest : infinity;
}

}  // namespace onestep::detail
