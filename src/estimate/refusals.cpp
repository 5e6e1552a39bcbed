// Why there is no certificate: what can be told before anything is computed for it, and after the way to the solution is
// known.
#include <fmt/format.h>

#include <cmath>

#include "estimate/certify.h"
#include "estimate/refine.h"
#include "linear/vector.h"

namespace onestep::detail {

std::optional<Refusal> why_not(SolutionState& s, const std::string& missing, const char* which) {
  if (!is_solution(s.run.status)) {
    return Refusal{fmt::format("the solve ended with status {}{}", to_string(s.run.status),
                               s.run.about.empty() ? "" : fmt::format(" ({})", s.run.about)),
                   explain(s.run.status)};
  }
  AtSolution* const known = s.loop->reference();
  if (std::string why = known != nullptr ? known->degeneracy() : ""; !why.empty()) {
    return Refusal{std::move(why), "the solution has no derivative there; change the data, or smooth the problem"};
  }
  if (std::string why = no_contraction(s); !why.empty()) { return Refusal{std::move(why), "take Implicit{}"}; }
  if (s.method->lacks_orders) {
    return Refusal{"the solve inside is differentiated by one step, which has the right first derivative alone",
                   "give that solver KStep{2}, by Solver::with, or no estimator"};
  }
  if (!s.method->inside_left_out.empty()) {
    return Refusal{s.method->inside_left_out + ": what that leaves out is not known here",
                   "give that solver Implicit{} or Auto{}, by Solver::with"};
  }
  if (s.method->precise && known != nullptr) {
    return Refusal{"the data of the program contain a solve, the error of which is not known here",
                   "solve outside, and give the program the result as a parameter"};
  }
  if (!missing.empty()) {
    return Refusal{fmt::format("the certificate needs the {} of the step, which is missing", which),
                   "give the step its other derivative"};
  }
  return std::nullopt;
}

std::optional<Refusal> why_no_derivative(const SolutionState& s, double value) {
  if (s.degenerate.value_or(false)) {
    return Refusal{"the method converges only linearly there: the solution is degenerate, its linear system singular",
                   "the solution may not be unique: regularise the problem"};
  }
  if (!std::isfinite(value) || s.report.status == Status::singular) {
    return Refusal{
        fmt::format("there is no derivative: the linear system is singular, or its relative residual stayed at {:.1e}",
                    s.report.residual),
        "the solution may not be unique: regularise the problem"};
  }
  return std::nullopt;
}

std::optional<Refusal> why_not_from_there(const SolutionState& s, const Refinement& way, double rho) {
  constexpr double growing = 1.02, settled = 1e-5, far = 0.1;
  const char* const solve_better = "solve with a smaller SolveOptions::tolerance";
  if (!way.trouble().empty()) return Refusal{way.trouble(), solve_better};
  const double given = s.method->known.rho;
  if (given >= 0 && rho > given * (1 + 1e-6) && way.stages()[0].step > 100 * way.noise())
    return Refusal{fmt::format("the next step is {:.4g} times as long as the last, which contradicts the contraction factor "
                               "given, {}",
                               rho, given),
                   "leave out Constants::rho, or give one that holds for these parameters"};
  if (!s.method->superlinear && rho > growing && s.run.last_step > settled * way.scale())
    return Refusal{fmt::format("the next step is {:.3g} times as long as the last: the iteration has not settled", rho),
                   solve_better};
  if (!s.method->best_step().is_constant() && s.options.tolerance > loose_tolerance && way.distance() > far * way.scale())
    return Refusal{
        fmt::format("the solution is {:.1e} away from an x of size {:.1e}: too far to tell what changes on the way",
                    way.distance(), way.scale()),
        solve_better};
  if (given >= 1)
    return Refusal{fmt::format("the contraction factor given is {}, not below 1", given), "leave out Constants::rho"};
  return std::nullopt;
}

// An iteration may pass a saddle slowly, attracted in all but a few directions, and be stopped there. A solve that began at
// its solution, or by a loop whose iterates are not x_k = F(x_{k-1}), may want just that one.
std::optional<Refusal> why_not_here(SolutionState& s) {
  constexpr double rounding = 1e-8;
  constexpr int few = 3;
  const Run& run = s.run;
  const bool began_there = run.statistics.iterations < few && s.options.tolerance <= loose_tolerance;
  if (!s.repels || began_there || s.method->superlinear || s.method->best_step().is_constant()) return std::nullopt;
  std::vector<double> next(s.size());
  if (!s.scratch_point().apply(run.previous, run.controls, next)) return std::nullopt;
  add(next, run.x, -1);
  if (!(norm(next) <= rounding * norm(run.x))) return std::nullopt;
  return Refusal{"steps lead away from the solution that is nearest to x_k, to another one",
                 "solve with a smaller SolveOptions::tolerance"};
}

Refusal why_not_superlinear(double rate) {
  return {
      fmt::format("the step multiplies errors by {:.2g}, that of a superlinear method should by almost 0: the solution is "
                  "degenerate, or not near",
                  rate),
      "solve with a smaller tolerance; where that does not help, the matrix of the step is singular at the solution"};
}

}  // namespace onestep::detail
