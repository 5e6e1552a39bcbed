// Linear systems with matrices known by their products: what implicit differentiation solves.
#pragma once

#include <functional>

#include "onestep/status.h"
#include "solve/map.h"

namespace onestep::detail {

using Product = std::function<void(ConstVector v, Vector out)>;
using InPlace = std::function<void(Vector r)>;

struct LinearSystem {
  Product product;
  InPlace precondition;  ///< r ← M⁻¹r; empty: none
  bool symmetric = false;
  double tolerance = 1e-12;
  int max_iterations = 1000;
};

struct LinearResult {
  Status status = Status::converged;
  double residual = 0;  ///< relative to the right-hand side
  int products = 0;
};

/// Implicit differentiation makes the matrix and factors it up to this size when it may choose.
constexpr std::size_t dense_up_to = 200;
/// Products after which GMRES begins again.
constexpr std::size_t krylov_restart = 60;

/// x with M x = b, from zero: conjugate gradients where M is symmetric, else restarted GMRES. Ends when
/// the true residual is small enough, when it does not shrink any more (rounding_reached below 1e-6, singular above), or at
/// the limit.
LinearResult solve_linear(const LinearSystem& system, ConstVector b, Vector x);

}  // namespace onestep::detail
