// The last step, to the optimum of an active set: once that has settled, by one factorisation in place of the iterations
// that would bring the barrier parameter down to rounding; in extended precision where no better point is to be had.
#include <algorithm>
#include <cmath>
#include <utility>

#include "linear/vector.h"
#include "qp/active_set.h"
#include "qp/interior_point.h"

namespace onestep::detail {

/// Whether the active set that the last step points to is the one of the step before, too.
bool InteriorPoint::prepare_jump(const InteriorPointOptions& options, int iterations) {
  constexpr int first = 2;  // iterates that steps were made to
  if (sides_ == 0 || iterations < first) return false;
  guess_age_ = update_guess() ? guess_age_ + 1 : 0;
  return guess_age_ > 0 && iterations < options.iteration_limit && !augmented_ && !pulled_ &&
         n_ >= all_ - static_cast<std::size_t>(std::ranges::count(guess_, QpActive::none));
}

/// A side counts as active where its slack shrank more than its multiplier (Tapia's indicators, which have no unit). Whether
/// the guess stays as it was.
bool InteriorPoint::update_guess() {
  bool same = true;
  for (std::size_t i = 0; i < all_; ++i) {
    QpActive now = is_equality(i) ? QpActive::equality : QpActive::none;
    double most = 0;
    for (const QpSide* side : {&lower_, &upper_}) {
      if (side->has[i] == 0 || !(side->s[i] * side->previous_z[i] < side->z[i] * side->previous_s[i])) continue;
      const double weight = side->z[i] / side->s[i];
      if (weight > most) now = side == &upper_ ? QpActive::upper : QpActive::lower;
      most = std::max(most, weight);
    }
    same = same && guess_[i] == now;
    guess_[i] = now;
  }
  return same;
}

/// Newton's method on the optimality conditions with the active constraints as equations; what rounding and the proximal
/// terms leave is corrected by the same factor. True where this ends at a solution, in every component, with slacks and
/// multipliers that have the right signs by a margin. Otherwise the iteration goes on from where it was.
bool InteriorPoint::jump(const InteriorPointOptions& options) {
  constexpr int least_corrections = 2, most_corrections = 3, patience = 2;
  constexpr double contraction = 0.1, rounding = 1e-13;
  const auto is_active = [&](std::size_t i) { return guess_[i] != QpActive::none; };
  const auto bound = [&](std::size_t i) { return (guess_[i] == QpActive::lower ? lower_ : upper_).bound[i]; };
  for (std::size_t i = 0; i < all_; ++i) {
    weight_[i] = !is_active(i) ? 0 : i < rows_ ? 1 / least_condensed : Kkt::fixing;
    if (!is_active(i)) lambda_[i] = 0;
  }
  for (std::size_t j = 0; j < n_; ++j) {
    diagonal_[j] = least_condensed * proximal(j) + weight_[rows_ + j];
    if (is_active(rows_ + j)) x_[j] = bound(rows_ + j);
  }
  bool goes_on = kkt_.factor(diagonal_, weight_), found = false, settles = false;
  for (int correction = 0; goes_on; ++correction) {
    evaluate();
    for (std::size_t j = 0; j < n_; ++j) {
      if (!is_active(rows_ + j)) continue;
      lambda_[rows_ + j] -= dual_residual_[j];
      dual_residual_[j] = 0;
    }
    found = correction >= least_corrections && settles && is_strict_solution(options);
    goes_on = !found && correction < most_corrections;
    if (!goes_on) break;
    for (std::size_t i = 0; i < rows_; ++i) h_[i] = is_active(i) ? weight_[i] * (value_[i] - bound(i)) : 0;
    for (std::size_t j = 0; j < n_; ++j) r_[j] = -dual_residual_[j];
    kkt_.solve(r_, h_, direction_, 0, Kkt::no_refinement);
    double squares = 0, change = 0;
    for (std::size_t j = 0; j < n_; ++j) {
      if (is_active(rows_ + j)) continue;
      const double dx = direction_.dx[j], in_data = dx * unit_[rows_ + j];
      x_[j] += dx;
      change = std::max(change, std::fabs(dx));
      squares += in_data * in_data;
    }
    for (std::size_t i = 0; i < rows_; ++i)
      if (is_active(i)) lambda_[i] += direction_.dlambda[i];
    // Where nothing but the proximal terms holds x in some direction, corrections do not get shorter.
    change /= x_size_;
    settles = correction == 0 || change <= std::max(contraction * last_step_, rounding);
    last_step_ = change;
    last_change_ = std::sqrt(squares);
  }
  if (found) {
    settle_sides();
    has_factor_ = true;
  } else {
    return_to_best();
    evaluate();
    guess_age_ = -patience;
  }
  return found;
}

/// Whether all residuals are small where the jump has led, the last correction too, and strict complementarity holds by a
/// margin. By terms of the multipliers it is not asked: where they are not unique the iteration shortens them.
bool InteriorPoint::is_strict_solution(const InteriorPointOptions& options) {
  constexpr double margin = 1e-9;
  double merit = 0;
  if (!small_enough(options, merit) || !(worst_component(options, false) <= 1)) return false;
  for (std::size_t j = 0; j < n_; ++j)
    if (guess_[rows_ + j] == QpActive::none && !(std::fabs(direction_.dx[j]) <= options.step * primal_terms_[rows_ + j]))
      return false;
  for (std::size_t i = 0; i < all_; ++i) {
    const double slack = margin * primal_terms_[i];
    switch (guess_[i]) {
      case QpActive::equality: break;
      case QpActive::none:
        if (lower_.has[i] > 0 && !(value_[i] - lower_.bound[i] > slack)) return false;
        if (upper_.has[i] > 0 && !(upper_.bound[i] - value_[i] > slack)) return false;
        break;
      case QpActive::lower:
        if (!(-lambda_[i] * multiplier_weight_[i] > margin)) return false;
        break;
      case QpActive::upper:
        if (!(lambda_[i] * multiplier_weight_[i] > margin)) return false;
        break;
    }
  }
  return true;
}

/// Returns to the best point, and moves on to the optimum of its active set if that is a solution.
bool InteriorPoint::polish_best(const InteriorPointOptions& options) {
  return_to_best();
  if (polish(options)) return true;
  set_is_current_ = false;
  evaluate();
  return false;
}

/// Moves to the optimum of the active set, if there the residuals are small in every component.
bool InteriorPoint::polish(const InteriorPointOptions& options) {
  const QpActiveSet& set = active_set();
  if (!set.is_decided()) return false;
  for (std::size_t j = 0; j < n_; ++j) x_[j] = static_cast<double>(set.optimum().dx[j]);
  for (std::size_t i = 0; i < all_; ++i) lambda_[i] = static_cast<double>(set.optimum().dlambda[i]);
  closely_ = true;
  evaluate();
  double merit = 0;
  const bool before = std::exchange(shortened_, true);  // multipliers of independent constraints are what they are
  if (small_enough(options, merit) && worst_component(options, false) <= 1) {
    std::ranges::copy(set.active(), guess_.begin());
    settle_sides(set.undecided());
    return true;
  }
  shortened_ = before;
  return_to_best();
  return false;
}

/// Slacks and multipliers as an iteration with μ → 0 would end with, for this iterate and the one before: a further step
/// would have no length. Where both vanish they stay what they are.
void InteriorPoint::settle_sides(std::span<const std::size_t> undecided) {
  constexpr double vanished = 1e-20;
  for (QpSide* side : {&lower_, &upper_}) {
    const bool is_lower = side == &lower_;
    for (std::size_t i = side->begin; i < side->end; ++i) {
      if (side->has[i] == 0 || std::ranges::find(undecided, i) != undecided.end()) continue;
      const double inside = is_lower ? value_[i] - side->bound[i] : side->bound[i] - value_[i];
      const bool active = guess_[i] == (is_lower ? QpActive::lower : QpActive::upper);
      side->s[i] = active ? vanished * primal_terms_[i] : inside;
      side->z[i] = active ? std::fabs(lambda_[i]) : multiplier_weight_[i] > 0 ? vanished / multiplier_weight_[i] : vanished;
    }
  }
  begin_step();
  progress_.primal_step = progress_.dual_step = 1;
  progress_.barrier = 0;
}

}  // namespace onestep::detail
