// Why there is no certificate: what can be told before anything is computed for it.
#include <fmt/format.h>

#include <cmath>

#include "estimate/certify.h"

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

}  // namespace onestep::detail
