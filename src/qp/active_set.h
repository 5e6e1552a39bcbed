// The optimum of a quadratic program as the solution of one linear system: that of its active constraints, factored densely
// and refined with residuals in extended precision. Decides which constraints are active, and says how sure that is; solves
// the systems of derivatives there, and says how exact they are. In the normalised units of the interior point method.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "qp/interior_point.h"

namespace onestep::detail {

/// A solution of Q dx + Cᵀdλ + dw = r_x, value_i(dx) = r_i for active constraints, dλ_i = 0 for the others.
struct QpPrecise {
  std::vector<long double> dx, dlambda;
  /// Estimate of what is wrong with them, relative to the largest entry in the units of the active set's system; infinite:
  /// not solved.
  double error = 0;
};

/// Units of the unknowns of [Q_FF C_RFᵀ; C_RF 0] in which the largest entry of each of its rows is near 1: x_j = x[j] x̂_j,
/// λ_i = lambda[i] λ̂_i. Curvatures may differ by any factor: a program that is separable is well-conditioned in these units.
/// Powers of two.
struct QpUnits {
  std::vector<double> x, lambda;
  void compute(const RowMatrix& Q, const RowMatrix& C, std::span<const std::size_t> free, std::span<const std::size_t> rows);
};

class QpActiveSet {
 public:
  explicit QpActiveSet(InteriorPoint& solver) : solver_(solver) {}

  /// Finds x and λ from a guess of the active set, which is corrected where slacks or multipliers come out negative.
  /// `strength` says of each constraint how likely it is active: where the guess has dependent constraints the weaker ones
  /// are left out. False when the system is singular all the same, or no set was found for which no sign is wrong.
  bool decide(std::span<const QpActive> guess, std::span<const double> strength);

  std::span<const QpActive> active() const { return active_; }
  const QpPrecise& optimum() const { return optimum_; }
  /// Constraints whose slack or multiplier is not larger than its uncertainty.
  const std::vector<std::size_t>& undecided() const { return undecided_; }
  double slack(std::size_t i) const;
  double multiplier(std::size_t i) const { return static_cast<double>(optimum_.dlambda[i]); }
  bool is_singular() const { return singular_; }
  /// Whether decide() found an optimum.
  bool is_decided() const { return decided_; }
  /// Whether it leaves no doubt that there is a derivative.
  bool is_settled() const { return decided_ && undecided_.empty() && growth_ <= 1e9; }
  /// Estimate of the norm of the inverse, from below, in the system's units: entries of solutions for right-hand sides of
  /// size 1.
  double growth() const { return growth_; }
  /// What an error relative to the largest entry of a solution, in the system's units, is of each of its entries.
  void spread_error(const QpPrecise& solution, double error, std::span<double> of_x, std::span<double> of_lambda) const;
  int factorisations() const { return factorisations_; }

  /// Refines until nothing is gained, or for the number of sweeps given.
  void solve(std::span<const double> r_x, std::span<const double> r, QpPrecise& result, int most_sweeps = 12) const;

 private:
  bool factor();
  bool leave_out_dependent(std::span<const double> strength);
  void find_errors();
  bool correct_guess();
  void find_undecided();

  InteriorPoint& solver_;
  std::vector<QpActive> active_;
  std::vector<std::size_t> free_, rows_;  // the system's variables: free variables, active rows
  mutable std::vector<double> matrix_, scratch_, system_, size_;
  mutable std::vector<long double> residual_;
  std::vector<int> pivots_;
  QpUnits units_;
  QpPrecise optimum_;
  std::vector<double> error_;  // of the optimum: of the slacks of inactive constraints, of the multipliers of active ones
  std::vector<std::size_t> undecided_;
  bool singular_ = false, decided_ = false;
  double growth_ = 0;
  int factorisations_ = 0;
};

}  // namespace onestep::detail
