// Certificates: what is known about the error of a derivative.
#pragma once

#include "estimate/state.h"
#include "linear/krylov.h"

namespace onestep::detail {

Certificate certify_vjp(SolutionState& s, ConstVector c);
Certificate certify_jvp(SolutionState& s, std::span<const Array> v);

/// The derivative that the user was given, with its report in s.report: kept, or, in another direction, computed again,
/// which adds to `products`.
std::vector<std::vector<double>> returned_vjp(SolutionState& s, ConstVector v, int& products);
std::vector<double> returned_jvp(SolutionState& s, std::span<const Array> v, int& products);

/// Why there is no certificate, and what to do about it.
struct Refusal {
  std::string reason, advice;
};
/// Reasons known before any computation. `missing`: why the step lacks the derivative `which`; empty: it has it.
std::optional<Refusal> why_not(SolutionState& s, const std::string& missing, const char* which);
/// When the derivative does not exist; `value` is the norm of what was returned for it.
std::optional<Refusal> why_no_derivative(const SolutionState& s, double value);

/// A solve to more than this tolerance may be so far from its solution that nothing seen at x_k tells about it.
inline constexpr double loose_tolerance = 1e-5;
/// When the refinement does not converge, starts too far from the solution, or contradicts the contraction factor given.
/// `rho`: the next step over the last.
std::optional<Refusal> why_not_from_there(const SolutionState& s, const Refinement& way, double rho);
/// Where steps lead past the solution that is nearest, as far as linear solves near it have told.
std::optional<Refusal> why_not_here(SolutionState& s);

/// Where a superlinear method multiplies errors by this.
Refusal why_not_superlinear(double rate);

/// Looks for vectors that I - A shortens, by at most so many products with a random one. Returns and notes ‖(I - A)⁻¹‖.
double probe_inverse(SolutionState& s, const LinearSystem& system, int most);

/// A superlinear method multiplies errors by less than this near its solution, unless that is degenerate.
inline constexpr double superlinear_rate = 0.1;

/// The absolute error that rounding causes in x and in a derivative g of a superlinear step: from the linear solve, and from
/// the rounding of x_k. Zero when the step has no linear system: it is not measured then. `products` is incremented by each
/// product with the step's derivatives.
bool measures_rounding(const SolutionState& s);
double rounding_of_x(SolutionState& s, int& products);
double rounding_of_vjp(SolutionState& s, ConstVector v, const Parameters& g, int& products);
double rounding_of_jvp(SolutionState& s, std::span<const Array> v, ConstVector g, int& products);

/// a / b; zero where a is.
inline double ratio(double a, double b) { return a == 0 ? 0 : a / b; }

/// Two digits, never below x.
std::string rounded_up(double x);

}  // namespace onestep::detail
