// What an outcome says of its end, of its hypergradient and of the error of that.
#include "bilevel/outcome.h"

#include <fmt/format.h>

#include <cmath>
#include <ostream>

#include "estimate/certify.h"
#include "onestep/bilevel.h"

namespace onestep {

void detail::describe(Outcome& o, const FreeParameters& parameters, const OuterState& state) {
  o.norm = norm(parameters.free_gradient(state.u, state.gradient));
  std::vector<Array> hypergradient;
  for (std::size_t p = 0; p < o.theta.size(); ++p) hypergradient.emplace_back(o.theta[p].shape(), state.by_theta[p]);
  o.hypergradient = std::move(hypergradient);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (state.u[i] <= parameters.low()[i]) o.at_low.push_back(i);
    if (state.u[i] >= parameters.high()[i]) o.at_high.push_back(i);
  }
}

void detail::describe(Outcome& o, const InnerWork& work) {
  o.evaluations = work.evaluations;
  o.hypergradients = work.hypergradients;
  o.fell_short = work.fell_short;
  o.inner_iterations = work.iterations;
  o.inner_factorisations = work.factorisations;
  o.inner_seconds = work.solving;
  o.hypergradient_seconds = work.differentiating;
}

detail::SavedIteration detail::iteration_of(const OuterState& state) {
  SavedIteration iteration;
  iteration.number = state.iteration;
  iteration.value = state.value;
  iteration.inner_tolerance = state.tolerance;
  iteration.inner_iterations = state.work.iterations;
  iteration.seconds = state.seconds;
  return iteration;
}

void detail::note_bound(Outcome& o, Objective& objective, double stretch) {
  const auto [bound, rests_on] = objective.gradient_bound();
  o.bound = bound * stretch;
  o.bound_rests_on = rests_on;
}

bool detail::note_shortfall(Outcome& o, const Objective& objective) {
  const auto [status, why] = objective.gradient_status();
  if (is_solution(status)) return true;
  if (is_solution(o.status)) o.status = status;
  if (o.about != why) o.about = o.about.empty() ? why : fmt::format("{}; {}", o.about, why);
  return false;
}

void detail::note_uncertain_hypergradient(Outcome& o, double tolerance) {
  constexpr double plainly = 10;
  if (o.status != Status::converged || !(o.norm > 0) || !std::isfinite(o.bound) || !o.about.empty()) return;
  o.uncertain = o.bound > plainly * o.norm && o.critical * (o.bound / o.norm) > plainly * tolerance;
  if (o.uncertain)
    o.about = fmt::format(
        "but the hypergradient may be wrong by {}, which is far more than it is: with Implicit{{}} or "
        "Auto{{}} for the inner problem it vanishes where the true one does",
        rounded_up(o.bound));
}

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

}  // namespace onestep
