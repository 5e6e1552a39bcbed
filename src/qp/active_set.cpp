// Decides which constraints are active by solving for a guess and correcting its signs, in extended precision.
#include "qp/active_set.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/blas.h"
#include "backend/cpu/dense.h"
#include "linear/vector.h"

namespace onestep::detail {
namespace {

// Of the residuals that refinement goes by: it can do no better than this times the condition of the system.
constexpr double extended_rounding = std::numeric_limits<long double>::epsilon();

// Four sums, which do not wait for each other.
long double exact_dot(const double* a, const long double* b, std::size_t n) {
  long double sums[4] = {};
  std::size_t k = 0;
  for (; k + 4 <= n; k += 4)
    for (std::size_t lane = 0; lane < 4; ++lane) sums[lane] += a[k + lane] * b[k + lane];
  for (; k < n; ++k) sums[0] += a[k] * b[k];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

}  // namespace

const QpActiveSet& InteriorPoint::active_set() {
  if (set_is_current_) return *set_;
  if (!set_) set_ = std::make_unique<QpActiveSet>(*this);
  std::vector<QpActive> guess(all_);
  std::vector<double> strength(all_);
  measure_terms();
  for (std::size_t i = 0; i < all_; ++i) {
    const double unit = primal_terms_[i] * multiplier_weight_[i];
    const double at_upper = unit * upper_.z[i] / upper_.s[i], at_lower = unit * lower_.z[i] / lower_.s[i];
    strength[i] = std::max(at_upper, at_lower);
    guess[i] = is_equality(i)                         ? QpActive::equality
               : at_upper > 1 && at_upper >= at_lower ? QpActive::upper
               : at_lower > 1                         ? QpActive::lower
                                                      : QpActive::none;
  }
  set_->decide(guess, strength);
  set_is_current_ = true;
  return *set_;
}

void InteriorPoint::write_optimum(std::span<double> x_and_multipliers) {
  const QpActiveSet& set = active_set();
  if (!set.is_decided()) return;
  const auto& [x, lambda, error] = set.optimum();
  for (std::size_t j = 0; j < n_; ++j) x_and_multipliers[j] = static_cast<double>(x[j]) * unit_[rows_ + j];
  for (std::size_t i = 0; i < all_; ++i) x_and_multipliers[n_ + i] = static_cast<double>(lambda[i]) / unit_[i] / scaling_.c;
}

bool QpActiveSet::decide(std::span<const QpActive> guess, std::span<const double> strength) {
  constexpr int most_rounds = 20;
  active_.assign(guess.begin(), guess.end());
  undecided_.clear();
  decided_ = false;
  const std::size_t n = solver_.n_, all = solver_.all_;
  std::vector<double> r_x(n), r(all);
  for (std::size_t j = 0; j < n; ++j) r_x[j] = -solver_.q_[j];
  for (int round = 0; round < most_rounds; ++round) {
    if (!factor() && (!leave_out_dependent(strength) || !factor())) return false;
    for (std::size_t i = 0; i < all; ++i) {
      const QpActive side = active_[i];
      r[i] = side == QpActive::none ? 0 : side == QpActive::lower ? solver_.lower_.bound[i] : solver_.upper_.bound[i];
    }
    solve(r_x, r, optimum_);
    if (!(optimum_.error < 1)) {
      singular_ = true;
      return false;
    }
    if (correct_guess()) {
      decided_ = true;
      find_undecided();
      return true;
    }
  }
  return false;
}

/// Equalities first, then by strength; what lies in the span of those before it is left out. True when something was.
bool QpActiveSet::leave_out_dependent(std::span<const double> strength) {
  constexpr double independent = 1e-9;
  const std::size_t n = solver_.n_, rows = solver_.rows_, all = solver_.all_;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < all; ++i)
    if (active_[i] != QpActive::none) order.push_back(i);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    const bool a_first = active_[a] == QpActive::equality, b_first = active_[b] == QpActive::equality;
    return a_first != b_first ? a_first : strength[a] > strength[b];
  });
  std::vector<std::vector<double>> basis;
  bool changed = false;
  for (const std::size_t i : order) {
    std::vector<double> v(n, 0.0);
    if (i < rows)
      std::copy_n(solver_.C_.entries() + i * n, n, v.begin());
    else
      v[i - rows] = 1;
    const double before = norm(v);
    for (int twice = 0; twice < 2; ++twice) {
      for (const std::vector<double>& b : basis) {
        double along = 0;
        for (std::size_t j = 0; j < n; ++j) along += b[j] * v[j];
        for (std::size_t j = 0; j < n; ++j) v[j] -= along * b[j];
      }
    }
    const double after = norm(v);
    if (after > independent * before) {
      for (double& e : v) e /= after;
      basis.push_back(std::move(v));
    } else if (active_[i] != QpActive::equality) {
      active_[i] = QpActive::none;
      changed = true;
    }
  }
  return changed;
}

/// Distance to the nearest finite bound; infinite if there is none.
double QpActiveSet::slack(std::size_t i) const {
  const std::size_t n = solver_.n_, rows = solver_.rows_;
  const long double value =
      i < rows ? exact_dot(solver_.C_.entries() + i * n, optimum_.dx.data(), n) : optimum_.dx[i - rows];
  long double slack = infinity;
  if (solver_.upper_.has[i] > 0) slack = std::min(slack, solver_.upper_.bound[i] - value);
  if (solver_.lower_.has[i] > 0) slack = std::min(slack, value - solver_.lower_.bound[i]);
  return static_cast<double>(slack);
}

void QpActiveSet::spread_error(const QpPrecise& solution, double error, std::span<double> of_x,
                               std::span<double> of_lambda) const {
  const std::size_t n = solver_.n_, rows = solver_.rows_;
  const double *Q = solver_.Q_.entries(), *C = solver_.C_.entries();
  long double most = 0;
  for (const std::size_t j : free_) most = std::max(most, std::fabs(solution.dx[j]) / units_.x[j]);
  for (const std::size_t i : rows_) most = std::max(most, std::fabs(solution.dlambda[i]) / units_.lambda[i]);
  const double size = most > 0 ? error * static_cast<double>(most) : 0;
  std::ranges::fill(of_x, 0.0);
  std::ranges::fill(of_lambda, 0.0);
  for (const std::size_t j : free_) of_x[j] = size * units_.x[j];
  for (const std::size_t i : rows_) of_lambda[i] = size * units_.lambda[i];
  // The multiplier of a held variable is what its row leaves.
  for (std::size_t j = 0; j < n; ++j) {
    if (active_[rows + j] == QpActive::none) continue;
    for (const std::size_t k : free_) of_lambda[rows + j] += std::fabs(Q[j * n + k]) * of_x[k];
    for (const std::size_t i : rows_) of_lambda[rows + j] += std::fabs(C[i * n + j]) * of_lambda[i];
  }
}

/// How wrong slacks and multipliers can be by the error of the linear solve.
void QpActiveSet::find_errors() {
  const std::size_t n = solver_.n_, rows = solver_.rows_, all = solver_.all_;
  std::vector<double> of_x(n);
  error_.assign(all, 0.0);
  spread_error(optimum_, optimum_.error, of_x, error_);
  for (std::size_t i = 0; i < all; ++i) {
    if (active_[i] != QpActive::none) continue;
    if (i >= rows) error_[i] = of_x[i - rows];
    for (std::size_t j = 0; i < rows && j < n; ++j) error_[i] += std::fabs(solver_.C_.entries()[i * n + j]) * of_x[j];
  }
}

/// True when no slack and no multiplier is negative; otherwise those that are change sides. One that cannot be told from 0
/// stays where it is, or it would change sides for ever.
bool QpActiveSet::correct_guess() {
  const std::size_t all = solver_.all_;
  find_errors();
  bool right = true;
  for (std::size_t i = 0; i < all; ++i) {
    const QpActive side = active_[i];
    if (side == QpActive::equality) continue;
    if (side == QpActive::none) {
      if (!(slack(i) < -error_[i])) continue;
      right = false;
      const bool has_both = solver_.upper_.has[i] > 0 && solver_.lower_.has[i] > 0;
      bool upper = solver_.upper_.has[i] > 0;
      if (has_both) {
        const std::size_t n = solver_.n_, rows = solver_.rows_;
        const long double value =
            i < rows ? exact_dot(solver_.C_.entries() + i * n, optimum_.dx.data(), n) : optimum_.dx[i - rows];
        upper = value > solver_.upper_.bound[i];
      }
      active_[i] = upper ? QpActive::upper : QpActive::lower;
      continue;
    }
    const long double multiplier = optimum_.dlambda[i] * (side == QpActive::upper ? 1 : -1);
    if (multiplier < -error_[i]) {
      right = false;
      active_[i] = QpActive::none;
    }
  }
  return right;
}

/// The data are taken for rounded: a slack or a multiplier counts when it is larger than what rounding of the terms of each
/// row, and the error of the linear solve, can make of 0.
void QpActiveSet::find_undecided() {
  constexpr double safety = 4;
  constexpr int trials = 2;
  const parallel::BlasSerial serial;
  const std::size_t n = solver_.n_, rows = solver_.rows_, all = solver_.all_;
  std::vector<double> uncertain(all), x(n), lambda(rows), value(rows), gradient(n);
  for (std::size_t i = 0; i < all; ++i)
    uncertain[i] = error_[i] + (active_[i] == QpActive::none ? epsilon * solver_.primal_terms_[i] : 0);
  std::uint32_t state = 3;
  const auto sign = [&state] {
    state = state * 1664525U + 1013904223U;
    return (state & 0x80000000U) != 0 ? epsilon : -epsilon;
  };
  const std::size_t f = free_.size(), size = f + rows_.size();
  for (int trial = 0; trial < trials; ++trial) {
    for (std::size_t k = 0; k < f; ++k) system_[k] = sign() * solver_.dual_terms_[free_[k]] * units_.x[free_[k]];
    for (std::size_t k = f; k < size; ++k)
      system_[k] = sign() * solver_.primal_terms_[rows_[k - f]] * units_.lambda[rows_[k - f]];
    if (size > 0) cpu::solve(Op::lu, false, size, matrix_.data(), pivots_.data(), system_.data(), 1);
    for (std::size_t k = 0; k < f; ++k) x[free_[k]] = system_[k] * units_.x[free_[k]];
    for (std::size_t k = f; k < size; ++k) lambda[rows_[k - f]] = system_[k] * units_.lambda[rows_[k - f]];
    solver_.C_.multiply(x.data(), value.data());
    solver_.Q_.multiply(x.data(), gradient.data());
    solver_.C_.add_transposed(lambda.data(), gradient.data());
    for (std::size_t i = 0; i < all; ++i) {
      const bool is_active = active_[i] != QpActive::none;
      const double change = i < rows ? (is_active ? lambda[i] : value[i]) : (is_active ? gradient : x)[i - rows];
      uncertain[i] = std::max(uncertain[i], std::fabs(change));
    }
  }
  for (std::size_t i = 0; i < all; ++i) {
    if (active_[i] == QpActive::equality) continue;
    const double margin = active_[i] == QpActive::none ? slack(i) : std::fabs(multiplier(i));
    if (!(margin > safety * trials * uncertain[i])) undecided_.push_back(i);
  }
}

/// Ruiz's symmetric sweeps. Rows of Q without curvature, but for rounding, have none of its entries.
void QpUnits::compute(const RowMatrix& Q, const RowMatrix& C, std::span<const std::size_t> free,
                      std::span<const std::size_t> rows) {
  constexpr int most_sweeps = 12;
  constexpr double enough = 2, least = 0x1p-400, most = 0x1p400;
  const std::size_t n = Q.columns();
  const double *q = Q.entries(), *c = C.entries();
  x.assign(n, 1.0);
  lambda.assign(C.rows(), 1.0);
  std::vector<double> of_x(n), of_lambda(C.rows());
  double off = infinity;
  for (int sweep = 0; off > enough && sweep < most_sweeps; ++sweep) {
    std::ranges::fill(of_x, 0.0);
    for (const std::size_t j : free) {
      if (!(q[j * n + j] > 0)) continue;
      for (const std::size_t k : free) of_x[j] = std::max(of_x[j], x[j] * std::fabs(q[j * n + k]) * x[k]);
    }
    for (const std::size_t i : rows) {
      of_lambda[i] = 0;
      for (const std::size_t j : free) {
        const double entry = lambda[i] * std::fabs(c[i * n + j]) * x[j];
        of_lambda[i] = std::max(of_lambda[i], entry);
        of_x[j] = std::max(of_x[j], entry);
      }
    }
    off = 1;
    const auto update = [&](double size, double& unit) {
      if (!(size > 0)) return;
      off = std::max({off, size, 1 / size});
      unit = std::clamp(std::exp2(std::round(std::log2(unit / std::sqrt(size)))), least, most);
    };
    for (const std::size_t j : free) update(of_x[j], x[j]);
    for (const std::size_t i : rows) update(of_lambda[i], lambda[i]);
  }
}

/// [Q_FF C_RFᵀ; C_RF 0] of the free variables F and the active rows R, in units_.
bool QpActiveSet::factor() {
  constexpr double most_growth = 1e14;
  const parallel::BlasSerial serial;
  const std::size_t n = solver_.n_, rows = solver_.rows_;
  free_.clear();
  rows_.clear();
  for (std::size_t j = 0; j < n; ++j)
    if (active_[rows + j] == QpActive::none) free_.push_back(j);
  for (std::size_t i = 0; i < rows; ++i)
    if (active_[i] != QpActive::none) rows_.push_back(i);
  const std::size_t f = free_.size(), size = f + rows_.size();
  singular_ = rows_.size() > f;
  growth_ = infinity;
  if (singular_) return false;
  matrix_.assign(size * size, 0.0);
  const double *Q = solver_.Q_.entries(), *C = solver_.C_.entries();
  units_.compute(solver_.Q_, solver_.C_, free_, rows_);
  const auto unit = [&](std::size_t a) { return units_.x[free_[a]]; };
  for (std::size_t a = 0; a < f; ++a)
    for (std::size_t b = 0; b < f; ++b) matrix_[a * size + b] = unit(a) * Q[free_[a] * n + free_[b]] * unit(b);
  for (std::size_t k = 0; k < rows_.size(); ++k) {
    for (std::size_t a = 0; a < f; ++a)
      matrix_[(f + k) * size + a] = matrix_[a * size + f + k] =
          units_.lambda[rows_[k]] * C[rows_[k] * n + free_[a]] * unit(a);
  }
  pivots_.assign(std::max<std::size_t>(size, 1), 0);
  scratch_.assign(cpu::factor_scratch(Op::lu, size), 0.0);
  system_.assign(size, 0.0);
  ++factorisations_;
  growth_ = 0;
  if (size == 0) return true;
  if (!cpu::factor(Op::lu, size, matrix_.data(), pivots_.data(), scratch_.data())) {
    singular_ = true;
    return false;
  }
  // The entries of right-hand sides differ in size: two equal rows would be consistent with equal entries.
  std::uint32_t state = 1;
  for (int trial = 0; trial < 2; ++trial) {
    for (double& e : system_) {
      state = state * 1664525U + 1013904223U;
      e = std::copysign(0.5 + 0.5 * (state >> 16) / 65536.0, (state & 0x8000U) != 0 ? 1 : -1);
    }
    cpu::solve(Op::lu, trial == 1, size, matrix_.data(), pivots_.data(), system_.data(), 1);
    for (const double e : system_) growth_ = std::isnan(growth_) || std::fabs(e) <= growth_ ? growth_ : std::fabs(e);
  }
  singular_ = !(growth_ <= most_growth);
  return !singular_;
}

void QpActiveSet::solve(std::span<const double> r_x, std::span<const double> r, QpPrecise& result, int most_sweeps) const {
  constexpr long double enough = 1e-18L;
  const parallel::BlasSerial serial;
  const std::size_t n = solver_.n_, rows = solver_.rows_, all = solver_.all_, f = free_.size(), size = f + rows_.size();
  const double *Q = solver_.Q_.entries(), *C = solver_.C_.entries();
  result.dx.assign(n, 0);
  result.dlambda.assign(all, 0);
  for (std::size_t j = 0; j < n; ++j)
    if (active_[rows + j] != QpActive::none) result.dx[j] = r[rows + j];
  residual_.assign(n, 0);
  const auto gradient_residual = [&] {  // r_x - Q dx - Cᵀdλ, of all variables
    for (std::size_t j = 0; j < n; ++j) residual_[j] = r_x[j] - exact_dot(Q + j * n, result.dx.data(), n);
    for (const std::size_t i : rows_)
      for (std::size_t j = 0; j < n; ++j) residual_[j] -= C[i * n + j] * result.dlambda[i];
  };
  long double last = infinity, contraction = 0, correction = 0, total = 0;
  result.error = 0;
  for (int sweep = 0; sweep < most_sweeps && size > 0; ++sweep) {
    gradient_residual();
    for (std::size_t a = 0; a < f; ++a) system_[a] = static_cast<double>(residual_[free_[a]]) * units_.x[free_[a]];
    for (std::size_t k = 0; k < rows_.size(); ++k) {
      const long double missing = r[rows_[k]] - exact_dot(C + rows_[k] * n, result.dx.data(), n);
      system_[f + k] = static_cast<double>(missing) * units_.lambda[rows_[k]];
    }
    cpu::solve(Op::lu, false, size, matrix_.data(), pivots_.data(), system_.data(), 1);
    correction = 0;
    for (const double e : system_) {
      if (!std::isfinite(e)) {
        result.error = infinity;
        return;
      }
      correction = std::max(correction, std::fabs(static_cast<long double>(e)));
    }
    if (sweep > 0 && !(correction < 0.5L * last)) {  // no longer contracts: the digits are used up, or it never did
      contraction = sweep == 1 ? 1 : contraction;
      break;
    }
    if (sweep > 0 && last > 0) contraction = std::max(contraction, correction / last);
    last = correction;
    for (std::size_t a = 0; a < f; ++a) result.dx[free_[a]] += system_[a] * units_.x[free_[a]];
    for (std::size_t k = 0; k < rows_.size(); ++k) result.dlambda[rows_[k]] += system_[f + k] * units_.lambda[rows_[k]];
    total = 0;
    for (const std::size_t j : free_) total = std::max(total, std::fabs(result.dx[j]) / units_.x[j]);
    for (const std::size_t i : rows_) total = std::max(total, std::fabs(result.dlambda[i]) / units_.lambda[i]);
    if (correction <= enough * total) break;
  }
  gradient_residual();
  for (std::size_t j = 0; j < n; ++j)
    if (active_[rows + j] != QpActive::none) result.dlambda[rows + j] = residual_[j];
  if (contraction >= 1)
    result.error = infinity;
  else
    result.error =
        total > 0 ? std::max(static_cast<double>(correction / total), extended_rounding * std::max(1.0, growth_)) : 0;
}

}  // namespace onestep::detail
