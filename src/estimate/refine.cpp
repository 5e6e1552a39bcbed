// Steps of Newton's method, with GMRES inside, from x_k towards the solution, until they are rounding.
#include "estimate/refine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "estimate/certify.h"
#include "estimate/corners.h"
#include "linear/random.h"
#include "linear/vector.h"

namespace onestep::detail {
namespace {

// A step of zero counts as this long, relative to x: x_k itself is rounded.
constexpr double zero_step = 4 * epsilon;
// Relative residual to which the linear systems are solved, and the most products for all of them.
constexpr double rough = 0.02;
constexpr int most_products = 4;
// Steps shorter than this, relative to x, that do not shrink are taken for rounding; longer ones mean that x_k is not near a
// solution.
constexpr double may_be_rounding = 1e-7;
constexpr std::size_t usual_stages = 3, most_stages = 5;
constexpr double much_nearer = 0.05;
// Newton's method shortens the step by more than this near a solution, unless that is degenerate.
constexpr double slow = 0.2;
// The estimate of rounding in x is an upper one: where the next step is shorter than this fraction of a step, that step was
// no rounding, however short it is.
constexpr double really_shorter = 0.3;

}  // namespace

Refinement::Refinement(SolutionState& s) : s_(s), map_(s.method->best_step()) {
  scale_ = std::max(norm(s.run.x), norm(s.run.previous));
  noise_ = zero_step * scale_;
  const bool superlinear = s.method->superlinear;
  // Where the derivatives do not depend on x, one stage tells how far the solution is.
  const bool is_constant = map_.is_constant();
  Stage first;
  first.x = s.run.x;
  step_.resize(first.x.size());
  first.point = s.method->precise ? &new_point() : &s.here();
  if (!evaluate(*first.point, s.method->precise ? ConstVector(first.x) : ConstVector(), step_)) {
    if (trouble_.empty()) trouble_ = "the step from x_k is not finite";
    stages_.push_back(std::move(first));
    return;
  }
  first.step = norm(step_);
  stages_.push_back(std::move(first));
  if (superlinear && best().step > noise_ && !s.method->precise && measures_rounding(s))
    look_below(std::min(rounding_of_x(s, products_), may_be_rounding * scale_));
  while (best().step > noise_ && stages_.size() < most_stages) {
    // Of a superlinear method one further step is made: each costs a factorisation. Other methods go on as long as each
    // Newton step is longer than the one before, that is, while the distance was underestimated.
    const std::size_t done = stages_.size();
    const bool goes_farther = done >= 2 && best().moved > stages_[done - 2].moved && stages_[done - 2].moved > 0;
    // One is enough where the derivatives are smooth and it led much nearer.
    const bool is_near = done >= 2 && map_.smooth && best().step <= much_nearer * stages_[done - 2].step;
    const bool is_last = superlinear || is_constant || is_near;
    const bool is_usual = done >= usual_stages || products_ >= most_products;
    if (done >= 2 && (is_last || (is_usual && !goes_farther && !slow_))) break;
    Stage& from = stages_.back();
    const double step = from.step;
    std::vector<double> x = from.x;
    const bool plain = superlinear || !map_.no_jvp.empty();
    add(x, plain ? step_ : newton_step(from, std::max(1, most_products - products_)));
    std::vector<double> one_step_on = from.x;
    add(one_step_on, step_);
    if (advance(std::move(x), plain ? step : 0.5 * step)) {
      slow_ = !plain && best().step > std::max(slow * step, 3 * left_);
      continue;
    }
    if (!trouble_.empty()) return;
    if (!plain && advance(std::move(one_step_on), step)) continue;
    measure_noise();
    if (step <= noise_) return;
    noise_is_measured_ = false;
    if (step <= may_be_rounding * scale_)
      noise_ = std::max(noise_, step);
    else if (trouble_.empty())
      trouble_ =
          fmt::format("x_k is not near a solution: its next step, of length {:.1e}, is not followed by a shorter one", step);
    return;
  }
  measure_noise();
  if (slow_ && best().step > noise_)
    trouble_ = "Newton's method converges slowly from x_k: the solution is degenerate, or not near";
}

// Of a superlinear method, whose step from x_k is longer than rounding of x alone.
void Refinement::look_below(double rounding) {
  if (best().step <= rounding) {
    std::vector<double> x = best().x;
    add(x, step_);
    if (!advance(std::move(x), really_shorter * best().step)) trouble_.clear();
  }
  noise_ = std::max(noise_, rounding);
}

// Terms that cancel inside a step may leave it a far larger rounding error than that of x. It is seen beside the best point
// from F(x ± d) - F(x) ∓ A d, where d is far too short for curvature, and x ± d is exact. Superlinear methods measure theirs
// with their equation, inner solves are as accurate as they are, and beside a kink that is seen instead.
void Refinement::measure_noise() {
  constexpr int shift = 30;  // of exponents: |d| is about 1e-9 |x|
  constexpr double least = 1e-3, safety = 2, farthest = 4;
  const std::vector<double>& x = best().x;
  const double size = norm(x);
  if (s_.method->superlinear || s_.method->precise || !map_.no_jvp.empty() || !(size > 0)) return;
  const double smallest = least * size / std::sqrt(static_cast<double>(x.size()));
  std::vector<double> d(x.size()), image(x.size()), y(x.size()), beside(x.size());
  for (std::size_t i = 0; i < d.size(); ++i)
    d[i] = std::scalbn(random_sign(i), std::ilogb(std::max(std::fabs(x[i]), smallest)) - shift);
  const auto go = [&](double side) -> const std::vector<double>& {
    beside = x;
    add(beside, d, side);
    return beside;
  };
  if (!map_.smooth) {
    const std::unique_ptr<Switches> switches = map_.switches();
    if (!switches) return;
    const std::vector<double> here = switches->at(x, s_.theta, s_.run.controls);
    for (const double side : {farthest, -farthest})
      if (may_switch(here, switches->at(go(side), s_.theta, s_.run.controls))) return;
  }
  best().point->jvp_x(d, image);
  ++products_;
  for (const double side : {1.0, -1.0, farthest, -farthest}) {  // one alone may be small by luck
    if (!s_.scratch_point().apply(go(side), s_.run.controls, y) || !all_finite(y)) continue;
    add(y, x, -1);
    add(y, step_, -1);
    add(y, image, -side);
    noise_ = std::max(noise_, safety * norm(y));
  }
}

bool Refinement::noise_is_large() const {
  constexpr double far_more = 4;
  return !s_.method->superlinear && noise_ > far_more * zero_step * scale_;
}

double Refinement::covered() const {
  double moved = 0;
  for (const Stage& stage : stages_) moved += stage.moved;
  return moved;
}

double Refinement::distance() const {
  constexpr double safety = 2;  // for the rest of the way
  return 1.1 * covered() + safety * inverse_ * std::max(best().step, noise_);
}

// F(x) - x; with an empty x, at x_k, where the point already is.
bool Refinement::evaluate(Point& p, ConstVector x, std::vector<double>& step) {
  const ConstVector at = x.empty() ? ConstVector(s_.run.x) : x;
  bool made = true;
  if (x.empty())
    std::ranges::copy(s_.next(), step.begin());
  else
    made = p.apply(x, s_.run.controls, step);
  InnerSolve* const inside = p.inner_solve();
  if (inside != nullptr && made) {
    if (!std::isfinite(inside->solve_precisely())) {
      trouble_ =
          "the distance to the solution is not known: the linear system of the next step was not solved accurately enough";
      return false;
    }
    made = p.control(s_.run.controls, step);
  }
  add(step, at, -1);
  return made && all_finite(step);
}

Point& Refinement::new_point() {
  if (used_ == s_.of_refinement.size()) s_.of_refinement.push_back(map_.point(true));
  Point& point = *s_.of_refinement[used_++];
  point.bind(s_.theta);
  return point;
}

bool Refinement::advance(std::vector<double> x, double most_step) {
  std::vector<double> step(x.size());
  Point& point = new_point();
  if (!all_finite(x) || !evaluate(point, x, step)) return false;
  Stage next;
  next.step = norm(step);
  if (!(next.step <= std::max(most_step, noise_)) || !(next.step < best().step)) return false;
  std::vector<double> moved = x;
  add(moved, best().x, -1);
  next.moved = norm(moved);
  next.point = &point;
  next.x = std::move(x);
  stages_.push_back(std::move(next));
  step_ = std::move(step);
  return true;
}

// (I - A)⁻¹ (F(x) - x), roughly.
std::vector<double> Refinement::newton_step(Stage& from, int most) {
  std::vector<double> delta = step_;
  left_ = 0;
  if (s_.differentiator->factor_of() == Differentiator::FactorOf::step) {
    s_.differentiator->solve_by_factor(false, delta);
    if (all_finite(delta)) return delta;
    delta = step_;
  }
  LinearSystem system;
  system.product = [&](ConstVector v, Vector out) {
    from.point->jvp_x(v, out);
    for (std::size_t i = 0; i < v.size(); ++i) out[i] = v[i] - out[i];
  };
  gmres_.begin(step_);
  products_ += gmres_.run(system, rough * from.step, most);
  gmres_.solution(system, delta);
  left_ = gmres_.residual();
  inverse_ = std::max(inverse_, gmres_.inverse());
  s_.repels = s_.repels || gmres_.has_negative_eigenvalue();
  return delta;
}

double probe_inverse(SolutionState& s, const LinearSystem& system, int most) {
  constexpr double enough = 1e-3;
  if (most < 1) return 1;
  s.probed = true;
  std::vector<double> b(s.size());
  fill_random(b);
  Gmres gmres;
  gmres.begin(b);
  gmres.run(system, enough * norm(b), most);
  s.note_inverse(gmres.inverse());
  s.repels = s.repels || gmres.has_negative_eigenvalue();
  return gmres.inverse();
}

}  // namespace onestep::detail
