// Sets up, solves and checks the derivative's system, at the optimum or with the weights of the last iterates.
#include "qp/derivative.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/blas.h"
#include "linear/vector.h"

namespace onestep::detail {
namespace {
constexpr double unsolved = 1e-9;  // a relative residual above this is that of a system that was not solved
}

QpDerivative::QpDerivative(InteriorPoint& solver) : solver_(solver), n_(solver.n_), rows_(solver.rows_), all_(solver.all_) {
  for (std::vector<double>* v : {&x_, &rhs_x_, &dx_, &Qdx_, &Ctdl_, &e_x_, &r_, &work_x_, &work_Q_, &best_dx_})
    v->assign(n_, 0.0);
  for (std::vector<double>* v : {&flexibility_, &share_, &lambda_, &rhs_, &dlambda_, &e_, &best_dlambda_})
    v->assign(all_, 0.0);
  for (std::vector<double>* v : {&value_, &h_, &work_rows_, &work_C_}) v->assign(rows_, 0.0);
  undecided_.reserve(all_);
}

void QpDerivative::linearise(QpDerivativeAt at) {
  if (at_ == at) return;
  solver_.need_factor();
  undecided_.clear();
  at_ = at;
  has_point_ = at == QpDerivativeAt::solution;
  by_set_ = false;
  if (at == QpDerivativeAt::solution) {
    weigh_at_solution();
    if (!solver_.set_is_current_ || !use_active_set()) move_to_optimum();
  } else {
    weigh_at_previous_iterate();
  }
}

/// A constraint is active or not when one of slack and multiplier outweighs the other, or when in the last step one of them
/// stayed while the other vanished (Tapia's indicator). Otherwise both vanish.
void QpDerivative::weigh_at_solution() {
  constexpr double decisive = 1e3, stayed = 0.5, vanished = 0.1;
  std::copy_n(solver_.x_, n_, x_.data());
  std::copy_n(solver_.lambda_, all_, lambda_.data());
  for (std::size_t i = 0; i < all_; ++i) {
    const QpSide &low = solver_.lower_, &high = solver_.upper_;
    const double w_low = low.z[i] / low.s[i], w_high = high.z[i] / high.s[i], weight = w_low + w_high;
    share_[i] = solver_.is_equality(i) || weight == 0 ? 1 : w_high / weight;
    if (solver_.is_equality(i)) {
      flexibility_[i] = 0;
      continue;
    }
    const QpSide& side = w_high > w_low ? high : low;
    const double slack_ratio = side.s[i] / side.previous_s[i], multiplier_ratio = side.z[i] / side.previous_z[i];
    if (weight >= decisive || (multiplier_ratio > stayed && slack_ratio < vanished && weight > 1 / decisive)) {
      flexibility_[i] = 0;
      share_[i] = &side == &high ? 1 : 0;
    } else if (weight <= 1 / decisive || (slack_ratio > stayed && multiplier_ratio < vanished)) {
      flexibility_[i] = infinity;
    } else {
      flexibility_[i] = 1 / weight;
      undecided_.push_back(i);
    }
  }
}

/// The system of the active set, solved for q and the bounds themselves, has the optimum for its solution.
void QpDerivative::move_to_optimum() {
  constexpr double solved = 1e-14;
  std::size_t active = 0;
  for (const double f : flexibility_) active += f == 0 ? 1 : 0;
  if (undecided_.empty() && active <= n_) {
    for (std::size_t j = 0; j < n_; ++j) rhs_x_[j] = -solver_.q_[j];
    for (std::size_t i = 0; i < all_; ++i)
      rhs_[i] = flexibility_[i] > 0 ? 0 : share_[i] > 0 ? solver_.upper_.bound[i] : solver_.lower_.bound[i];
    if (solve_scaled() <= solved && signs_are_right()) {
      x_ = dx_;
      lambda_ = dlambda_;
      return;
    }
  }
  use_active_set();
}

/// By a margin that leaves no doubt, of x = dx_ and λ = dlambda_.
bool QpDerivative::signs_are_right() {
  constexpr double margin = 1e-9;
  solver_.C_.multiply(dx_.data(), value_.data());
  const double primal = margin * std::max(largest(dx_), largest(value_)), dual = margin * largest(dlambda_);
  for (std::size_t i = 0; i < all_; ++i) {
    if (solver_.is_equality(i)) continue;
    const double value = i < rows_ ? value_[i] : dx_[i - rows_];
    const bool inside = (solver_.upper_.has[i] == 0 || value < solver_.upper_.bound[i] - primal) &&
                        (solver_.lower_.has[i] == 0 || value > solver_.lower_.bound[i] + primal);
    const bool pulls = (share_[i] > 0 ? dlambda_[i] : -dlambda_[i]) > dual;
    if (flexibility_[i] > 0 ? !inside : !pulls) return false;
  }
  return true;
}

/// Relative residual of the solution of the derivative's system, or where the active set's factor solved it the error.
double QpDerivative::solve_system() {
  constexpr double solved = 1e-12;
  if (by_set_) return solve_by_active_set();
  const double reached = solve_scaled();
  if (at_ != QpDerivativeAt::solution || reached <= solved) return reached;
  return use_active_set() || (!(reached <= unsolved) && take_one_side()) ? solve_by_active_set() : reached;
}

/// Where no refinement solves the system with the weights of the iterate before, that of the solution takes its place.
template <class SetRhs> double QpDerivative::solve_for(bool with_matrices, const SetRhs& set_rhs) {
  const auto solve = [&] {
    set_rhs();
    const bool was_by_set = by_set_;
    double reached = solve_system();
    if (by_set_ != was_by_set) {  // another active set: the optimum has moved, and other multipliers are 0
      set_rhs();
      reached = solve_system();
    }
    return reached;
  };
  const double of_point = with_matrices ? need_point() : 0, reached = std::max(of_point, solve());
  if (at_ == QpDerivativeAt::solution || reached <= unsolved) return reached;
  linearise(QpDerivativeAt::solution);
  return solve();
}

/// The step from there was short, in x; where multipliers went a longer way those of the iterate that was returned are
/// nearer to the solution, and the step is the one that would follow.
void QpDerivative::weigh_at_previous_iterate() {
  constexpr double far = 1e-9;  // relative to the terms of a multiplier's row
  const QpSide &low = solver_.lower_, &high = solver_.upper_;
  from_returned_ = false;
  if (!solver_.has_terms_) solver_.measure_terms();
  for (const QpSide* side : {&low, &high})
    for (std::size_t i = side->begin; i < side->end; ++i)
      from_returned_ =
          from_returned_ || !(std::fabs(side->z[i] - side->previous_z[i]) * solver_.multiplier_weight_[i] <= far);
  for (std::size_t i = 0; i < all_; ++i) {
    const double w_low = from_returned_ ? low.z[i] / low.s[i] : low.previous_z[i] / low.previous_s[i];
    const double w_high = from_returned_ ? high.z[i] / high.s[i] : high.previous_z[i] / high.previous_s[i];
    const double weight = w_low + w_high;
    const bool equality = solver_.is_equality(i);
    share_[i] = equality || weight == 0 ? 1 : w_high / weight;
    flexibility_[i] = equality ? 0 : weight == 0 ? infinity : 1 / weight;
  }
}

/// The point that the undamped step with μ = 0 leads to has multipliers z⁺ = (z/s)(value⁺ - (bound - s)) for an upper side:
/// it solves the system for r_x = -q and these bounds. Matrices are differentiated there; vectors need no point.
double QpDerivative::need_point() {
  if (has_point_) return 0;
  const QpSide &low = solver_.lower_, &high = solver_.upper_;
  const double *above = from_returned_ ? high.s : high.previous_s, *below = from_returned_ ? low.s : low.previous_s;
  for (std::size_t i = 0; i < all_; ++i)
    rhs_[i] = solver_.is_equality(i) ? high.bound[i]
                                     : share_[i] * (high.bound[i] - high.has[i] * above[i]) +
                                           (1 - share_[i]) * (low.bound[i] + low.has[i] * below[i]);
  for (std::size_t j = 0; j < n_; ++j) rhs_x_[j] = -solver_.q_[j];
  const double reached = solve_scaled();
  x_ = dx_;
  lambda_ = dlambda_;
  has_point_ = true;
  return reached;
}

/// Multipliers that follow from dx are set first: those of soft constraints by their own equation, those of hard bounds by
/// the equation of their variable, which then holds exactly.
void QpDerivative::update_residual() {
  for (std::size_t i = 0; i < rows_; ++i)
    if (!is_hard(i)) dlambda_[i] = (value_[i] - rhs_[i]) / flexibility_[i];
  std::fill(Ctdl_.begin(), Ctdl_.end(), 0.0);
  if (std::any_of(dlambda_.begin(), dlambda_.end(), [](double e) { return e != 0; }))
    solver_.C_.add_transposed(dlambda_.data(), Ctdl_.data());
  for (std::size_t i = 0; i < rows_; ++i) e_[i] = is_hard(i) ? rhs_[i] - value_[i] + flexibility_[i] * dlambda_[i] : 0;
  for (std::size_t j = 0; j < n_; ++j) {
    const std::size_t i = rows_ + j;
    const double rest = rhs_x_[j] - Qdx_[j] - Ctdl_[j];
    dlambda_[i] = is_hard(i) ? rest : (dx_[j] - rhs_[i]) / flexibility_[i];
    e_x_[j] = is_hard(i) ? 0 : rest - dlambda_[i];
    e_[i] = is_hard(i) ? rhs_[i] - dx_[j] + flexibility_[i] * dlambda_[i] : 0;
  }
}

double QpDerivative::solve_scaled(bool keeps_best) {
  constexpr int most_sweeps = 30;
  constexpr double slow = 0.7;
  // A step is not nearer to the solution than it is long, and not so short that more digits of its derivative would count.
  const double enough = at_ == QpDerivativeAt::solution ? 1e-17 : 1e-12;
  const parallel::BlasSerial serial;
  const KktDirection step{work_x_.data(), work_rows_.data(), work_Q_.data(), work_C_.data(), work_Q_.data()};
  const double *weight = solver_.kkt_.weight(), *diagonal = solver_.kkt_.diagonal();
  for (std::vector<double>* v : {&dx_, &dlambda_, &value_, &Qdx_}) std::fill(v->begin(), v->end(), 0.0);
  double size = largest(rhs_x_);
  for (std::size_t i = 0; i < all_; ++i)
    if (flexibility_[i] < infinity) size = std::max(size, std::fabs(rhs_[i]));
  if (size == 0) size = 1;
  double last = infinity;
  for (int sweep = 0;; ++sweep) {
    update_residual();
    const double reached = std::max(largest(e_x_), largest(e_)) / size;
    if (keeps_best && reached > last) {
      dx_ = best_dx_;
      dlambda_ = best_dlambda_;
      return last;
    }
    if (reached <= enough || sweep == most_sweeps || !(reached < slow * last)) return reached;
    last = reached;
    best_dx_ = dx_;
    best_dlambda_ = dlambda_;
    for (std::size_t i = 0; i < rows_; ++i) h_[i] = -weight[i] * e_[i];
    for (std::size_t j = 0; j < n_; ++j) r_[j] = e_x_[j] + diagonal[j] * e_[rows_ + j];
    solver_.kkt_.solve(r_.data(), h_.data(), step, 0, Kkt::no_refinement);
    bool held = false;
    for (std::size_t j = 0; j < n_; ++j) {
      if (flexibility_[rows_ + j] == 0) {
        dx_[j] = rhs_[rows_ + j];
        held = true;
      } else {
        dx_[j] += work_x_[j];
      }
    }
    if (held)
      solver_.C_.multiply(dx_.data(), value_.data());
    else
      for (std::size_t i = 0; i < rows_; ++i) value_[i] += work_C_[i];
    solver_.Q_.multiply(dx_.data(), Qdx_.data());
    for (std::size_t i = 0; i < rows_; ++i)
      if (is_hard(i)) dlambda_[i] += work_rows_[i];
  }
}

/// With a right-hand side that has a part of everything, a singular system is not solved, and refinement goes on adding to
/// what it cannot see: directions dx with Q dx = 0 that no active constraint stops, multipliers with Cᵀdλ + dw = 0.
QpDegeneracy QpDerivative::find_degeneracy() {
  constexpr double solved = 1e-9, hopeless = 1e9, grown = 1e4, part = 1e-3;
  QpDegeneracy found;
  found.undecided = undecided_;
  for (const std::size_t i : undecided_) {
    const QpSide& side = solver_.upper_.z[i] * solver_.lower_.s[i] > solver_.lower_.z[i] * solver_.upper_.s[i]
                             ? solver_.upper_
                             : solver_.lower_;
    const bool decided = solver_.set_is_current_ && solver_.set_->is_decided();
    const double slack = decided ? solver_.set_->slack(i) : side.s[i],
                 multiplier = decided ? solver_.set_->multiplier(i) : side.z[i];
    found.margins.push_back(
        {std::fabs(slack) * solver_.unit_[i], std::fabs(multiplier) / solver_.unit_[i] / solver_.scaling_.c});
  }
  // The active set's system is solved, and grows little: nothing is left to be found.
  if (undecided_.empty() && solver_.set_is_current_ && solver_.set_->is_settled()) {
    found.residual = solver_.set_->optimum().error;
    return found;
  }
  std::uint32_t state = 1;
  const auto next = [&state] {  // between ½ and 1, either sign
    state = state * 1664525U + 1013904223U;
    const double size = 0.5 + 0.5 * (state >> 16) / 65536.0;
    return (state & 0x8000U) != 0 ? size : -size;
  };
  const QpUnits units = units_of_system();
  const auto unit = [&](std::size_t i) { return i < rows_ ? units.lambda[i] : 1 / units.x[i - rows_]; };  // of a multiplier
  for (std::size_t j = 0; j < n_; ++j) rhs_x_[j] = next() / units.x[j];
  for (std::size_t i = 0; i < all_; ++i) rhs_[i] = next() / unit(i);
  solve_scaled(false);
  double most_x = 0, most_lambda = 0;
  for (std::size_t j = 0; j < n_; ++j) {
    dx_[j] /= units.x[j];
    most_x = std::max(most_x, std::fabs(dx_[j]));
    found.residual = std::max(found.residual, std::fabs(e_x_[j]) * units.x[j]);
  }
  for (std::size_t i = 0; i < all_; ++i) {
    dlambda_[i] /= unit(i);
    if (is_hard(i)) most_lambda = std::max(most_lambda, std::fabs(dlambda_[i]));
    found.residual = std::max(found.residual, std::fabs(e_[i]) * unit(i));
  }
  found.solved = found.residual <= solved;
  if (found.solved && std::max(most_x, most_lambda) <= hopeless) return found;
  for (std::size_t j = 0; most_x > grown && j < n_; ++j)
    if (std::fabs(dx_[j]) > part * most_x) found.not_unique.push_back(j);
  for (std::size_t i = 0; most_lambda > grown && i < all_; ++i)
    if (is_hard(i) && std::fabs(dlambda_[i]) > part * most_lambda) found.dependent.push_back(i);
  return found;
}

double QpDerivative::jvp(const QpData& t, std::span<double> dx, std::span<double> dy, std::span<double> dz,
                         std::span<double> dbounds) {
  const double reached = solve_for(t.Q != nullptr || t.A != nullptr || t.G != nullptr, [&] { set_rhs_of_jvp(t); });
  write_tangents(dx, dy, dz, dbounds);
  return reached;
}

void QpDerivative::set_rhs_of_jvp(const QpData& t) {
  const double c = solver_.scaling_.c;
  const double *unit = solver_.unit_, *d = unit + rows_;
  const std::size_t m = solver_.m_;
  // r_x = -(dQ x + dq + dCᵀλ), r = d(bound) - dC x, in scaled units: x_data = d x, λ_data = λ / (c unit).
  for (std::size_t j = 0; j < n_; ++j) r_[j] = d[j] * x_[j];
  for (std::size_t j = 0; j < n_; ++j) {
    double sum = t.q == nullptr ? 0 : t.q[j];
    for (std::size_t k = 0; t.Q != nullptr && k < n_; ++k) sum += 0.5 * (t.Q[j * n_ + k] + t.Q[k * n_ + j]) * r_[k];
    rhs_x_[j] = -sum * c * d[j];
  }
  const auto bound = [](const double* tangent, std::size_t i) { return tangent == nullptr ? 0 : tangent[i]; };
  const auto row = [&](const double* tangent, std::size_t k, std::size_t i) {
    if (tangent == nullptr) return 0.0;
    double change = 0;
    for (std::size_t j = 0; j < n_; ++j) {
      change -= tangent[k * n_ + j] * r_[j];
      rhs_x_[j] -= d[j] * tangent[k * n_ + j] * lambda_[i] / unit[i];
    }
    return change;
  };
  for (std::size_t i = 0; i < m; ++i) rhs_[i] = (bound(t.b, i) + row(t.A, i, i)) / unit[i];
  const auto between = [&](std::size_t i, double low, double high) { return share_[i] * high + (1 - share_[i]) * low; };
  for (std::size_t i = m, k = 0; i < rows_; ++i, ++k)
    rhs_[i] = (between(i, bound(t.l, k), bound(t.u, k)) + row(t.G, k, i)) / unit[i];
  for (std::size_t i = rows_, k = 0; i < all_; ++i, ++k) rhs_[i] = between(i, bound(t.lo, k), bound(t.hi, k)) / unit[i];
}

void QpDerivative::write_tangents(std::span<double> dx, std::span<double> dy, std::span<double> dz,
                                  std::span<double> dbounds) const {
  const double c = solver_.scaling_.c;
  const double *unit = solver_.unit_, *d = unit + rows_;
  const auto hand_out = [&](std::span<double> to, std::size_t at) {
    for (std::size_t k = 0; k < to.size(); ++k) to[k] = dlambda_[at + k] / unit[at + k] / c;
  };
  for (std::size_t j = 0; j < dx.size(); ++j) dx[j] = dx_[j] * d[j];
  hand_out(dy, 0);
  hand_out(dz, solver_.m_);
  hand_out(dbounds, rows_);
}

double QpDerivative::vjp(std::span<const double> x, std::span<const double> y, std::span<const double> z,
                         std::span<const double> bounds, const QpCotangents& out) {
  const double reached =
      solve_for(out.Q != nullptr || out.A != nullptr || out.G != nullptr, [&] { set_rhs_of_vjp(x, y, z, bounds); });
  write_cotangents(out);
  return reached;
}

void QpDerivative::set_rhs_of_vjp(std::span<const double> x, std::span<const double> y, std::span<const double> z,
                                  std::span<const double> bounds) {
  const double c = solver_.scaling_.c;
  const double *unit = solver_.unit_, *d = unit + rows_;
  const std::size_t m = solver_.m_;
  for (std::size_t j = 0; j < n_; ++j) rhs_x_[j] = x.empty() ? 0 : x[j] * d[j];
  std::fill(rhs_.begin(), rhs_.end(), 0.0);
  const auto take_in = [&](std::span<const double> from, std::size_t at) {
    for (std::size_t k = 0; k < from.size(); ++k) rhs_[at + k] = from[k] / unit[at + k] / c;
  };
  take_in(y, 0);
  take_in(z, m);
  take_in(bounds, rows_);
  for (std::size_t i = 0; i < all_; ++i)
    if (flexibility_[i] == infinity) rhs_[i] = 0;
}

void QpDerivative::write_cotangents(const QpCotangents& out) {
  const double c = solver_.scaling_.c;
  const double *unit = solver_.unit_, *d = unit + rows_;
  const std::size_t m = solver_.m_;
  // p_x and p in the units of the data; x of the data beside them.
  for (std::size_t j = 0; j < n_; ++j) {
    dx_[j] *= c * d[j];
    r_[j] = d[j] * x_[j];
  }
  for (std::size_t i = 0; i < all_; ++i) dlambda_[i] /= unit[i];
  // -(p_x xᵀ + x p_xᵀ)/2 for Q, -(λ p_xᵀ + p xᵀ) for rows.
  const auto row = [&](double* to, double of_dx, double of_x) {
    for (std::size_t j = 0; j < n_; ++j) to[j] = -(of_dx * dx_[j] + of_x * r_[j]);
  };
  const auto rows = [&](double* to, std::size_t first, std::size_t end) {
    if (to == nullptr) return;
    for (std::size_t i = first; i < end; ++i) row(to + (i - first) * n_, lambda_[i] / unit[i] / c, dlambda_[i]);
  };
  for (std::size_t j = 0; out.Q != nullptr && j < n_; ++j) row(out.Q + j * n_, 0.5 * r_[j], 0.5 * dx_[j]);
  rows(out.A, 0, m);
  rows(out.G, m, rows_);
  for (std::size_t j = 0; out.q != nullptr && j < n_; ++j) out.q[j] = -dx_[j];
  std::copy_n(dlambda_.begin(), out.b == nullptr ? 0 : m, out.b);
  const auto bound = [&](double* low, double* high, std::size_t first, std::size_t end) {
    for (std::size_t i = first; high != nullptr && i < end; ++i) high[i - first] = share_[i] * dlambda_[i];
    for (std::size_t i = first; low != nullptr && i < end; ++i) low[i - first] = (1 - share_[i]) * dlambda_[i];
  };
  bound(out.l, out.u, m, rows_);
  bound(out.lo, out.hi, rows_, all_);
}

}  // namespace onestep::detail
