// Certificates: what is known about the error of a derivative.
#pragma once

#include "estimate/state.h"

namespace onestep::detail {

Certificate certify_vjp(SolutionState& s, ConstVector c);
Certificate certify_jvp(SolutionState& s, std::span<const Array> v);

/// A superlinear method multiplies errors by less than this near its solution, unless that is degenerate.
inline constexpr double superlinear_rate = 0.1;

/// Norms of a step's derivatives at a point, measured or given.
struct Norms {
  double rho = 0;  ///< ‖A‖, or ‖A^power‖
  int power = 1;
  double inverse = 1;  ///< ‖(I - A)⁻¹‖ is at most this; infinite: no bound
  double norm_B = 0;
  int products = 0;
  std::string reason;  ///< why there is no bound
};
Norms measure_norms(const Method& method, Point& p);

}  // namespace onestep::detail
