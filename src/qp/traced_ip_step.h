// A step of the interior point method, traced. All sides of all constraints are one stack Cx + s = h, (rows up; rows down;
// bounds up; bounds down), s ≥ 0, λ ≥ 0. The step is Mehrotra's:
//
//   predictor   K (Δx, Δy) = -(residuals), s∘Δλ + λ∘Δs = -s∘λ
//   corrector   the same matrix, s∘Δλ + λ∘Δs = σμω - s∘λ - Δs∘Δλ
//
// with K = [Q + CᵀWC, Aᵀ; A, -δ], W = λ/s. σμ and the lengths of the step are controls: decided outside, not differentiated.
// The state is that of quadratic_program, and behind it s and λ, the weights ω, and the units that K is factored in, which
// stay what the start makes them and have no derivative.
#pragma once

#include "qp/traced_program.h"
#include "solve/traced_map.h"

namespace onestep::detail {

/// What the loop is told beside the step. residuals: the objective, then those of the dual rows and of the equalities.
enum TracedIpExtra : std::size_t {
  residuals,
  slack,
  multiplier,
  slack_step,
  multiplier_step,
  sides,
  side_residuals,
  side_bounds
};
enum TracedIpControl : std::size_t { corrects, barrier, primal_length, dual_length };

TracedStep trace_ip_step(const TracedProgram& program, const Sizes& z, const Expr& w, std::span<const Expr> controls);

}  // namespace onestep::detail
