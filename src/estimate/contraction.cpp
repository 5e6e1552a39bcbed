// Tests whether steps contract, which estimators that differentiate steps require.
#include <fmt/format.h>

#include <cmath>

#include "estimate/state.h"
#include "linear/random.h"

namespace onestep::detail {

double growth(SolutionState& state) {
  constexpr int first = 10, last = 640;  // products
  const Map& map = *state.method->step;
  Point& p = state.here();
  std::vector<double>&v = state.power, &w = state.next_power;
  v.resize(state.size());
  w.resize(state.size());
  fill_random(v);
  double rate = 0;
  // Transients may last long where A is not normal: what grows is watched for longer, the second half of it counts.
  for (int end = 2 * first, k = 0; end <= last; end *= 2) {
    double log_growth = 0;
    for (; k < end; ++k) {
      const double size = norm(v);
      if (!(size > 0)) return 0;
      for (double& e : v) e /= size;
      if (2 * k >= end) log_growth += 2 * std::log(size) / end;
      if (map.no_jvp.empty())
        p.jvp_x(v, w);
      else
        p.vjp_x(v, w);
      v.swap(w);
    }
    rate = std::exp(log_growth);
    if (rate < 1) break;
  }
  return rate;
}

// A few iterations that converged are evidence enough; a solve that began at its solution has none, so growth is measured.
std::string no_contraction(SolutionState& state) {
  if (!state.differentiator->needs_contraction() || state.method->superlinear || state.allow_unconverged || state.contracts)
    return "";
  constexpr int shrinking_steps = 3;
  constexpr double rounding = 1e-10;
  const Map& map = *state.method->step;
  const bool is_known = state.method->known.rho >= 0 && state.method->known.rho < 1;
  const bool measures = map.no_jvp.empty() || map.no_vjp.empty();
  const double rho = is_known || !measures || state.run.statistics.iterations >= shrinking_steps ? 0 : growth(state);
  if (rho >= 1 - rounding)
    return fmt::format(
        "the step does not contract at the solution (differences are multiplied by {:.10g}), so derivatives of steps do not "
        "converge to that of the solution; Implicit{{}} needs no contraction",
        rho);
  state.contracts = true;
  return "";
}

}  // namespace onestep::detail
