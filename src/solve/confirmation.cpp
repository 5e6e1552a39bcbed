// Whether steps that became short lead to a solution: how the step changes beyond it, and what slow components are hidden.
#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>

#include "solve/monitor.h"

namespace onestep::detail {
namespace {

// A solution is looked for by going on from x_{k-1}, in the direction of the last step, by so many times the
// distance that is left: far enough to be seen beside rounding. The step from there has to differ from the last one by at
// least this fraction of what it does where F is affine, and may not point the same way.
constexpr double overshoot = 100, visibly = 1e4 * epsilon, as_predicted = 0.1, same_way = 0.5;

}  // namespace

bool Monitor::is_affine_beside(ConstVector from, ConstVector step, double rate) {
  const std::size_t n = from.size();
  const double length = norm(step);
  if (length <= tiny || !evaluate_) return true;
  const double distance = length / (1 - rate), far = std::max(overshoot * distance, visibly * norm(from));
  run_.scratch.resize(4 * n);
  const Vector beside = Vector(run_.scratch).subspan(n, n), there = Vector(run_.scratch).subspan(2 * n, n);
  std::ranges::copy(from, beside.begin());
  add(beside, step, far / length);
  left_point_ = true;
  try {
    if (!evaluate_(beside, there) || !all_finite(there)) return false;
  } catch (const std::logic_error&) {
    return true;  // a step from outside that is not defined there: nothing can be seen
  } catch (const std::runtime_error&) { return true; }
  add(there, beside, -1);
  const double along = dot(there, step), most = same_way * norm(there) * length;
  add(there, step, -1);
  return norm(there) >= as_predicted * (far / distance) * length && along <= most;
}

// The distance to the solution where the last steps consist of two components that contract by different rates: the point
// x_{k-1} + p d₁ + q d₂ is sought from which the step is shortest, d₁, d₂ and d₃ being the last three steps. A slow
// component shows although it is hidden behind a fast one in the lengths of steps. 0 where rounding hides it.
double Monitor::distance_of_two() const {
  constexpr double seen = 32 * epsilon;
  const std::size_t n = run_.x.size();
  if (run_.statistics.iterations < 4 || run_.older[0].size() != n) return 0;
  const std::vector<double>&x3 = run_.x, &x2 = run_.previous, &x1 = run_.older[0], &x0 = run_.older[1];
  // How the step changes along d₁ is a, along d₂ it is b.
  const auto a = [&](std::size_t i) { return (x2[i] - x1[i]) - (x1[i] - x0[i]); };
  const auto b = [&](std::size_t i) { return (x3[i] - x2[i]) - (x2[i] - x1[i]); };
  double aa = 0, ab = 0, a3 = 0;
  for (std::size_t i = 0; i < n; ++i) aa += a(i) * a(i), ab += a(i) * b(i), a3 += a(i) * (x3[i] - x2[i]);
  const double share = ab / aa;
  double cc = 0, c3 = 0, noise = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double c = b(i) - share * a(i);
    cc += c * c, c3 += c * (x3[i] - x2[i]), noise += std::fabs(c * x3[i]);
  }
  if (!(cc > seen * noise)) return 0;
  const double q = -c3 / cc, p = -a3 / aa - share * q;
  double squares = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double moved = p * (x1[i] - x0[i]) + q * (x2[i] - x1[i]);
    squares += moved * moved;
  }
  return std::sqrt(squares);
}

// Whether the rate that was seen is that of steps towards a solution.
bool Monitor::is_confirmed(double step, double within) {
  constexpr double fastest = 0.5, slowest = 1 - 1e-6;
  if (step <= tiny || run_.previous.size() != run_.x.size()) return true;
  if (distance_of_two() > std::max(near, options_.tolerance) * within) return false;
  run_.scratch.resize(4 * run_.x.size());
  const Vector last = Vector(run_.scratch).first(run_.x.size());
  std::ranges::transform(run_.x, run_.previous, last.begin(), std::minus<>());
  return is_affine_beside(run_.previous, last, std::clamp(std::max(ratio_, ratio_before_), fastest, slowest)) ||
         is_rounding(step);
}

}  // namespace onestep::detail
