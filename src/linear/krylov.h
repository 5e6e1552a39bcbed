// Linear systems with matrices known by their products: what implicit differentiation and Newton-CG solve.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "linear/vector.h"
#include "onestep/status.h"

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
  double inverse = 0;  ///< ‖M⁻¹‖ as GMRES saw it, an underestimate; 0: not known
};

/// Products after which GMRES begins again.
constexpr std::size_t krylov_restart = 60;

/// M x = b by conjugate gradients, as far as wanted: an iteration that can be gone on with. Keeps its memory.
class ConjugateGradients {
 public:
  enum class Ended : std::uint8_t { reached, at_the_limit, not_positive, broken };
  /// x = 0.
  void begin(ConstVector b, Vector x);
  /// Goes on until the residual, as updated along the way, is at most `target`, or for so many products. Where the curvature
  /// of a direction is not positive it ends before going there, unless `through_any`; broken: zero or not a number.
  Ended run(const LinearSystem& system, double target, int most, bool through_any, Vector x);
  double residual() const;
  int products() const { return products_; }       ///< since begin
  double curvature() const { return curvature_; }  ///< of the last direction, pᵀMp

 private:
  std::vector<double> r_, z_, p_, mp_;
  double rz_ = 0, curvature_ = 0, steepest_ = 0;
  int products_ = 0;
};

/// M x = b by GMRES from zero, as far as wanted: an iteration that can be gone on with until its memory of `krylov_restart`
/// vectors is used up. Preconditioned from the right, so that its residual is that of the system.
class Gmres {
 public:
  void begin(ConstVector b);
  /// Goes on until the residual, as updated along the way, is at most `target`, for so many products, or until the memory
  /// is used up. Returns the products it made.
  int run(const LinearSystem& system, double target, int most);
  /// The x that was reached.
  void solution(const LinearSystem& system, Vector x) const;
  double residual() const { return std::fabs(g_.back()); }
  /// No further product will shrink the residual: begin again with it.
  bool exhausted() const { return exhausted_; }
  /// The largest ‖x‖ / ‖M x‖ over all x in the space it has searched: an underestimate of ‖M⁻¹‖.
  double inverse() const;
  /// Whether M, on the space it has searched, has an odd number of negative eigenvalues, as one that is positive definite,
  /// or I less a contraction, never has; false where the space is not yet one that M maps nearly into itself.
  bool has_negative_eigenvalue() const;

 private:
  std::vector<std::vector<double>> basis_, r_;  // r_: columns of the triangular matrix
  std::vector<double> g_{0}, cosine_, sine_;
  bool exhausted_ = false;
};

/// x with M x = b, from zero: conjugate gradients where M is symmetric, else restarted GMRES. Ends when
/// the true residual is small enough, when it does not shrink any more (rounding_reached below 1e-6, singular above), or at
/// the limit. Solving again with conjugate gradients allocates nothing.
class LinearSolver {
 public:
  LinearResult solve(const LinearSystem& system, ConstVector b, Vector x);

 private:
  ConjugateGradients cg_;
  Gmres gmres_;
  std::vector<double> r_, dx_, best_;
};

}  // namespace onestep::detail
