// The linear system of an interior point step, condensed to the variables and factored by Cholesky:
//
//     (Q + diag) dx + Cᵀ dλ = r          (H = Q + diag + Cᵀ diag(weight) C) dx = r - Cᵀ h
//     dλ = weight ∘ (C dx) + h
//
// Weights near 1/δ for equalities make H badly scaled; what the factor loses, refinement on the system as it stands wins
// back.
#pragma once

#include <cstddef>
#include <vector>

#include "qp/row_matrix.h"

namespace onestep::detail {

/// A solution of the system with the products that are needed to go on from it.
struct KktDirection {
  double *dx, *dlambda;      // n, rows of C
  double *Qdx, *Cdx, *Ctdl;  // n, rows of C, n
};

class Kkt {
 public:
  static constexpr double fixing = 1e30;    ///< a diagonal entry that keeps a variable where it is
  static constexpr int no_refinement = -1;  ///< for most_sweeps: not even the residual is computed, nor Q dx and Cᵀdλ

  /// Room for n variables and `rows` rows of C, of which the first `equalities` always have the same weight. Nothing below
  /// allocates.
  void prepare(std::size_t n, std::size_t rows, std::size_t equalities);
  /// The matrices of the systems to come; they must stay as they are until the next call.
  void begin(const RowMatrix& Q, const RowMatrix& C);

  /// Whether Q is positive semidefinite, up to rounding. To be asked after begin().
  bool is_convex();

  /// False when H is not positive definite in rounding; there is then no factor.
  /// In the `augmented` form only rows with small weights are condensed; the others stay, and the matrix is indefinite:
  /// slower by far, but rounding is then that of the entries and not that of the weights. (Allocates the first time.)
  bool factor(const double* diagonal, const double* weight, bool augmented = false);
  int factorisations() const { return factorisations_; }

  /// Refines until the first equation holds to `tolerance` (an absolute one, on its largest entry) or no longer improves.
  /// Returns what was reached.
  double solve(const double* r, const double* h, const KktDirection& d, double tolerance, int most_sweeps);

  const double* diagonal() const { return diagonal_.data(); }
  const double* weight() const { return weight_.data(); }

 private:
  void assemble(double equality_weight);
  bool factor_condensed();
  bool factor_augmented();
  void apply_inverse(double* t) const;
  double solve_condensed(const double* r, const double* h, const KktDirection& d, double tolerance, int most_sweeps);
  double solve_augmented(const double* r, const double* h, const KktDirection& d, double tolerance, int most_sweeps);

  const RowMatrix* Q_ = nullptr;
  const RowMatrix* C_ = nullptr;
  std::size_t n_ = 0, rows_ = 0, equalities_ = 0;
  bool gram_kept_ = false;
  int factorisations_ = 0;
  bool augmented_ = false;
  std::vector<double> augmented_factor_, augmented_scratch_, system_;  // of the augmented form
  std::vector<int> pivots_;
  std::vector<std::size_t> kept_rows_;
  std::vector<double> cholesky_scratch_, factor_, equality_gram_, diagonal_, weight_, scratch_, t_, product_, correction_;
};

}  // namespace onestep::detail
