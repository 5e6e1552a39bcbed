// Derivatives of a solved quadratic program with respect to all its data, by the factor the solve already has: one linear
// system for each direction, symmetric, so that jvp and vjp are the same solve between different products.
//
//     Q dx + Cᵀdλ + dw = r_x                    C: the rows of A and G; w: the multipliers of the bounds
//     value_i(dx) - dλ_i / weight_i = r_i       of every constraint; active: weight ∞, inactive: weight 0, so dλ_i = 0
//
// The factor is of the regularised system at the last iterate but one; it only preconditions. What is solved is the system
// above, unregularised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "qp/active_set.h"
#include "qp/interior_point.h"

namespace onestep::detail {

/// Where the derivative is taken.
enum class QpDerivativeAt : std::uint8_t {
  /// Implicit: the optimality conditions at the point returned, active constraints as equations.
  solution,
  /// One step: the undamped Newton step with μ → 0 from the iterate before, its slacks and multipliers held constant.
  previous_iterate,
};

/// Where the derivative with respect to each part is written; a null pointer is not wanted. Shapes as in QpData.
struct QpCotangents {
  double *Q = nullptr, *q = nullptr, *A = nullptr, *b = nullptr, *G = nullptr, *l = nullptr, *u = nullptr, *lo = nullptr,
         *hi = nullptr;
};

/// Where tangents of the solution are written.
struct QpTangents {
  std::span<double> x, y, z, bounds;
};

/// Where the solution map is not differentiable, or the solution is not unique. Constraints are counted through: rows of A,
/// rows of G, variables (for their bounds).
struct QpDegeneracy {
  std::vector<std::size_t> undecided;  ///< constraints whose slack and multiplier both vanish
  struct Margin {
    double slack, multiplier;  // in the units of the data
  };
  std::vector<Margin> margins;          ///< of the undecided ones
  std::vector<std::size_t> dependent;   ///< active constraints whose gradients are linearly dependent: no unique multipliers
  std::vector<std::size_t> not_unique;  ///< variables that may move without changing the objective: no unique solution
  double residual = 0;                  ///< to which the linear system could be solved, relative
  bool solved = true;                   ///< that it is small enough to be one
  bool none() const { return solved && undecided.empty() && dependent.empty() && not_unique.empty(); }
};

class QpDerivative {
 public:
  /// Allocates for the sizes of the solver, which must outlive this.
  explicit QpDerivative(InteriorPoint& solver);

  /// A new solve has been made.
  void forget() {
    at_.reset();
    by_set_ = false;
    precise_rhs_.clear();
  }
  /// Takes the derivative of what the solver found last. At the solution the point is first moved to the optimum of its
  /// active set, and signs of slacks and multipliers are checked there. Makes no factorisation unless the solve had none to
  /// make, or the active set is in doubt, or the factor of the last step is too far from that of the active set to refine
  /// with. Where the conditions for a derivative fail (find_degeneracy() says so) what follows is finite: an undecided
  /// constraint counts with the ratio of its multiplier to its slack, between active and inactive, and of the directions
  /// that nothing determines a small one is taken.
  void linearise(QpDerivativeAt at);
  QpDegeneracy find_degeneracy();
  const QpActiveSet& active_set() { return solver_.active_set(); }

  /// Tangents of the solution for tangents of the data (null: zero; Q is read as the mean of its triangles). Returns the
  /// relative residual that the linear system was solved to.
  double jvp(const QpData& tangents, std::span<double> dx, std::span<double> dy, std::span<double> dz,
             std::span<double> dbounds);
  /// Writes the cotangents of the data for cotangents of the solution (empty: zero). Returns the same.
  double vjp(std::span<const double> x, std::span<const double> y, std::span<const double> z, std::span<const double> bounds,
             const QpCotangents& out);

  /// The same derivatives by the active set's own factor, whose error they return as an estimate relative to the largest
  /// entry of the linear system's solution. `moved`: with each entry of that and of the optimum moved at random by as much
  /// of the largest one, up or down, which shows what such errors do to the derivative.
  double jvp_precisely(const QpData& tangents, const QpTangents& precise, const QpTangents& moved);
  double vjp_precisely(std::span<const double> x, std::span<const double> y, std::span<const double> z,
                       std::span<const double> bounds, const QpCotangents& precise, const QpCotangents& moved);

 private:
  void set_rhs_of_jvp(const QpData& tangents);
  void set_rhs_of_vjp(std::span<const double> x, std::span<const double> y, std::span<const double> z,
                      std::span<const double> bounds);
  void write_tangents(std::span<double> dx, std::span<double> dy, std::span<double> dz, std::span<double> dbounds) const;
  void write_cotangents(const QpCotangents& out);
  double solve_system();
  template <class SetRhs> double solve_for(bool with_matrices, const SetRhs& set_rhs);
  double solve_by_active_set();
  void perturb(double perturbation);
  template <class Write> double write_precisely(Write write);
  void move_to_optimum();
  bool use_active_set();
  bool take_one_side();
  bool signs_are_right();
  void weigh_at_solution();
  void weigh_at_previous_iterate();
  /// Returns the relative residual of the system that it solves for that.
  double need_point();
  /// Refines until nothing is gained; returns to the best unless it is wanted how far what cannot be solved grows.
  double solve_scaled(bool keeps_best = true);
  void update_residual();
  QpUnits units_of_system() const;
  bool is_hard(std::size_t i) const { return flexibility_[i] < 1; }

  InteriorPoint& solver_;
  std::optional<QpDerivativeAt> at_;  // what the weights below are for
  bool has_point_ = false;            // x_ and lambda_
  bool from_returned_ = false;        // one step: from the iterate that was returned
  std::size_t n_, rows_, all_;
  // flexibility: 1 / weight, infinite for an inactive constraint; share: how much of the weight is the upper side's.
  std::vector<double> flexibility_, share_, x_, lambda_;
  std::vector<double> rhs_x_, rhs_, dx_, dlambda_, value_, Qdx_, Ctdl_, e_x_, e_, r_, h_;
  std::vector<double> work_x_, work_rows_, work_Q_, work_C_, best_dx_, best_dlambda_;
  std::vector<std::size_t> undecided_;
  bool by_set_ = false;                              // derivatives at the solution are solved for by its factor
  QpPrecise precise_;                                // what the active set's factor solved last
  std::vector<double> precise_rhs_x_, precise_rhs_;  // and for which right-hand sides
  std::vector<double> kept_x_, kept_lambda_, kept_dx_, kept_dlambda_;
};

}  // namespace onestep::detail
