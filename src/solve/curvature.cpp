// Curvatures of the objective of a descent, and what they tell where it ended at once.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linear/random.h"
#include "solve/descent.h"

namespace onestep::detail {
namespace {

constexpr int lanczos_steps = 80;
// A start that is stationary and not a minimum is left by a displacement of this size, relative to x.
constexpr double displacement = 0x1p-26;
// Differences for curvatures are taken over this length, relative to x.
constexpr double difference = 1e-6;
// Negative curvature is less than this, relative to the largest.
constexpr double negative = -1e-8;

}  // namespace

void Curvature::prepare() {
  if (!gradient_) gradient_ = method_.gradient->point(true);
}

Extremes Curvature::at(std::span<const Array> theta, ConstVector x) {
  prepare();
  const std::size_t n = method_.gradient->size();
  gradient_at_.resize(n);
  gradient_->bind(theta);
  at_ = x.first(n);
  gradient_->apply(at_, {}, gradient_at_);
  return lanczos(
      n, lanczos_steps, [this](ConstVector v, Vector out) { product(v, out); }, memory_);
}

bool Curvature::leave_stationary_start(std::span<const Array> theta, Run& run) {
  if (run.status != Status::converged || run.statistics.iterations > 1 || run.last_step != 0) return false;
  const Extremes e = at_start(theta, run);
  if (!(e.smallest < negative * std::max(e.largest, -e.smallest))) return false;
  const std::size_t n = method_.gradient->size();
  const double size = norm(ConstVector(run.start).first(n));
  std::vector<double> away(n);
  fill_random(away);
  for (std::size_t i = 0; i < run.start.size(); ++i)  // with momentum both parts of the state
    run.start[i] += displacement * (size > 0 ? size : 1) * away[i % n];
  return true;
}

void Curvature::refuse_lost_steps(std::span<const Array> theta, double tolerance, Run& run) {
  constexpr double surely = 1e-6, beyond = 100;
  if (run.status != Status::converged || run.last_step != 0) return;
  const Extremes e = at(theta, run.x);
  const double size = norm(at_), steep = norm(gradient_at_);
  if (!(steep > std::max(surely, beyond * tolerance) * size * std::max(e.largest, -e.smallest)) || size == 0) return;
  run.status = Status::line_search_failed;
  run.about = fmt::format("the step, {:.1e} times the gradient, is below the rounding error of x: use a larger step size",
                          run.controls.empty() ? 0 : run.controls[0]);
}

// H v; by differences where the gradient cannot be differentiated, as where f contains a solve.
void Curvature::product(ConstVector v, Vector out) {
  if (method_.gradient->no_jvp.empty()) return gradient_->jvp_x(v, out);
  const double size = norm(at_), by = difference * (size > 0 ? size : 1);
  beside_.assign(at_.begin(), at_.end());
  for (std::size_t i = 0; i < v.size(); ++i) beside_[i] += by * v[i];
  gradient_->apply(beside_, {}, out);
  for (std::size_t i = 0; i < v.size(); ++i) out[i] = (out[i] - gradient_at_[i]) / by;
}

void note_left_start(Run& run) {
  run.statistics.restarts = 1;
  if (is_solution(run.status)) run.about = "the start is a stationary point and no minimum: the descent began beside it";
}

}  // namespace onestep::detail
