// The active set in place of the weights: derivatives by its own factor, and what errors of the optimum and of the linear
// system do to them.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "linear/vector.h"
#include "qp/derivative.h"

namespace onestep::detail {

/// Where it decides the matter, the active set takes the place of the weights; of constraints whose slack and multiplier
/// both vanish the weights stay.
bool QpDerivative::use_active_set() {
  const QpActiveSet& set = solver_.active_set();
  if (!set.is_decided()) return false;
  for (std::size_t j = 0; j < n_; ++j) x_[j] = static_cast<double>(set.optimum().dx[j]);
  for (std::size_t i = 0; i < all_; ++i) lambda_[i] = static_cast<double>(set.optimum().dlambda[i]);
  for (std::size_t i = 0; i < all_; ++i) {
    const QpActive side = set.active()[i];
    if (side == QpActive::equality || std::ranges::find(set.undecided(), i) != set.undecided().end()) continue;
    flexibility_[i] = side == QpActive::none ? infinity : 0;
    if (side != QpActive::none) share_[i] = side == QpActive::upper ? 1 : 0;
  }
  undecided_ = set.undecided();
  by_set_ = undecided_.empty();
  return by_set_;
}

/// Of constraints whose slack and multiplier both vanish those count as active that are in the active set: the derivative is
/// that of one side. False where no active set was found.
bool QpDerivative::take_one_side() {
  const QpActiveSet& set = solver_.active_set();
  if (!set.is_decided()) return false;
  for (const std::size_t i : set.undecided()) {
    const QpActive side = set.active()[i];
    flexibility_[i] = side == QpActive::none ? infinity : 0;
    if (side != QpActive::none) share_[i] = side == QpActive::upper ? 1 : 0;
  }
  return by_set_ = true;
}

double QpDerivative::solve_by_active_set() {
  if (rhs_x_ != precise_rhs_x_ || rhs_ != precise_rhs_) {
    solver_.active_set().solve(rhs_x_, rhs_, precise_);
    precise_rhs_x_ = rhs_x_;
    precise_rhs_ = rhs_;
  }
  for (std::size_t j = 0; j < n_; ++j) dx_[j] = static_cast<double>(precise_.dx[j]);
  for (std::size_t i = 0; i < all_; ++i) dlambda_[i] = static_cast<double>(precise_.dlambda[i]);
  return precise_.error;
}

/// Units in which the system is measured: growth from one unknown to another of a smaller curvature is no degeneracy.
QpUnits QpDerivative::units_of_system() const {
  std::vector<std::size_t> variables(n_), rows;
  std::iota(variables.begin(), variables.end(), std::size_t{0});
  for (std::size_t i = 0; i < rows_; ++i)
    if (flexibility_[i] < infinity) rows.push_back(i);
  QpUnits units;
  units.compute(solver_.Q_, solver_.C_, variables, rows);
  return units;
}

/// Moves the solution and the optimum at random.
void QpDerivative::perturb(double perturbation) {
  std::uint32_t state = 7;
  const auto sign = [&state] {
    state = state * 1664525U + 1013904223U;
    return (state & 0x80000000U) != 0 ? 1.0 : -1.0;
  };
  // Rounding of the entries too, which may be large beside that of the result where its terms cancel.
  const auto move = [&](std::vector<double>& v, const std::vector<double>& errors) {
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] += v[i] == 0 ? 0 : (errors[i] + std::numeric_limits<double>::epsilon() * std::fabs(v[i])) * sign();
  };
  std::vector<double> of_x(n_), of_lambda(all_);
  const QpActiveSet& set = solver_.active_set();
  set.spread_error(precise_, perturbation, of_x, of_lambda);
  move(dx_, of_x);
  move(dlambda_, of_lambda);
  set.spread_error(set.optimum(), perturbation, of_x, of_lambda);
  move(x_, of_x);
  move(lambda_, of_lambda);
}

template <class Write> double QpDerivative::write_precisely(Write write) {
  solve_by_active_set();
  const double error = precise_.error + solver_.active_set().optimum().error;
  kept_x_ = x_;
  kept_lambda_ = lambda_;
  kept_dx_ = dx_;
  kept_dlambda_ = dlambda_;
  write(false);
  dx_ = kept_dx_;  // what is written may be scaled in place
  dlambda_ = kept_dlambda_;
  perturb(error);
  write(true);
  x_ = kept_x_;
  lambda_ = kept_lambda_;
  return error;
}

double QpDerivative::jvp_precisely(const QpData& t, const QpTangents& precise, const QpTangents& moved) {
  use_active_set();
  set_rhs_of_jvp(t);
  return write_precisely([&](bool is_moved) {
    const QpTangents& to = is_moved ? moved : precise;
    write_tangents(to.x, to.y, to.z, to.bounds);
  });
}

double QpDerivative::vjp_precisely(std::span<const double> x, std::span<const double> y, std::span<const double> z,
                                   std::span<const double> bounds, const QpCotangents& precise, const QpCotangents& moved) {
  use_active_set();
  set_rhs_of_vjp(x, y, z, bounds);
  return write_precisely([&](bool is_moved) { write_cotangents(is_moved ? moved : precise); });
}

}  // namespace onestep::detail
