// Proofs that there is no solution. Both are the minimiser of a piecewise quadratic function, found by Newton's method on
// its pieces, and then refined until what should vanish is at the rounding level:
//
//   infeasible   min ½ Σ dist(value_i, [low_i, high_i])²: the residuals r of a minimiser that is not 0 are multipliers with
//                Cᵀr + r_bounds = 0 and a support of -|r|² (Farkas).
//   unbounded    min qᵀv + ½ vᵀQv + ½ρ|v|² + ½W Σ dist(value_i(v), recession cone)²: as ρ → 0 the minimiser grows along a
//                direction with Qv = 0 that no constraint stops.
//
// The proof excludes solutions within a radius; it is accepted when that is so large that only rounding limits it.
#include <algorithm>
#include <cmath>

#include "linear/vector.h"
#include "qp/interior_point.h"

namespace onestep::detail {
namespace {

constexpr double rounding = 64 * std::numeric_limits<double>::epsilon();
constexpr double least_radius = 1e4;  // in units of the solution's size
// Data that are themselves rounded contradict each other by this much, relative to the terms of the contradiction.
constexpr double least_contradiction = 1e-12;
constexpr double vanishing = 1e-20;  // beside the contradiction: no point makes up for it
constexpr int most_steps = 50, most_refinements = 6;

}  // namespace

/// Distances of the values (C x, x) to [low, high], signed; and their sum of squares.
long double InteriorPoint::distances(const double* x, const double* low, const double* high, double* distance) {
  C_.multiply(x, exact_value_.data());
  long double squares = 0;
  for (std::size_t i = 0; i < all_; ++i) {
    const long double value = i < rows_ ? exact_value_[i] : static_cast<long double>(x[i - rows_]);
    const long double off = value > high[i] ? value - high[i] : value < low[i] ? value - low[i] : 0;
    distance[i] = static_cast<double>(off);
    squares += off * off;
  }
  return squares;
}

/// The matrix Q + ρ + W Cᵀ C over the constraints at a distance, and those that leave one value only.
bool InteriorPoint::factor_violated(const double* distance, double rho, double weight) {
  for (std::size_t i = 0; i < rows_; ++i) weight_[i] = distance[i] != 0 || proof_low_[i] == proof_high_[i] ? weight : 0;
  for (std::size_t j = 0; j < n_; ++j) {
    const bool counts = distance[rows_ + j] != 0 || proof_low_[rows_ + j] == proof_high_[rows_ + j];
    weight_[rows_ + j] = is_equality(rows_ + j) ? Kkt::fixing : counts ? weight : 0;
    diagonal_[j] = rho + weight_[rows_ + j];
  }
  has_factor_ = false;
  return kkt_.factor(diagonal_, weight_);
}

bool InteriorPoint::find_proof_of_infeasibility() {
  constexpr double rho = 1e-6, weight = 1e6;
  double *x = proof_x_, *trial = proof_trial_, *distance = proof_distance_, *low = proof_low_, *high = proof_high_;
  for (std::size_t i = 0; i < all_; ++i) {
    low[i] = lower_.has[i] > 0 || is_equality(i) ? lower_.bound[i] : -infinity;
    high[i] = upper_.has[i] > 0 || is_equality(i) ? upper_.bound[i] : infinity;
  }
  for (std::size_t j = 0; j < n_; ++j) x[j] = is_equality(rows_ + j) ? lower_.bound[rows_ + j] : 0;
  long double squares = distances(x, low, high, distance);
  const auto gradient = [&](const double* multipliers) {  // Cᵀ multipliers + those of the bounds; 0 for fixed variables
    std::fill(exact_Ctl_.begin(), exact_Ctl_.end(), 0.0L);
    C_.add_transposed(multipliers, exact_Ctl_.data());
    double size = 0;
    for (std::size_t j = 0; j < n_; ++j) {
      exact_Ctl_[j] = is_equality(rows_ + j) ? 0 : exact_Ctl_[j] + multipliers[rows_ + j];
      size = std::max(size, std::fabs(static_cast<double>(exact_Ctl_[j])));
    }
    return size;
  };
  std::fill_n(h_, all_, 0.0);
  for (int step = 0; step < most_steps && squares > 0; ++step) {
    if (gradient(distance) <= rounding * std::sqrt(static_cast<double>(squares)) || !factor_violated(distance, rho, weight))
      break;
    for (std::size_t j = 0; j < n_; ++j) r_[j] = -weight * static_cast<double>(exact_Ctl_[j]);
    kkt_.solve(r_, h_, direction_, 0, Kkt::no_refinement);
    long double next = squares;
    for (double length = 1; length > 1e-20 && !(next < squares); length /= 2) {
      for (std::size_t j = 0; j < n_; ++j) trial[j] = x[j] + length * direction_.dx[j];
      next = distances(trial, low, high, proof_);
    }
    if (!(next < squares)) break;
    const bool slow = next > (1 - 1e-12L) * squares;
    std::copy_n(trial, n_, x);
    std::copy_n(proof_, all_, distance);
    squares = next;
    if (slow) break;
  }
  // Rounding of x limits the residuals as they stand; as multipliers they can be made as exact as their own digits allow.
  if (!(squares > 0) || !factor_violated(distance, rho, weight)) return false;
  double last = infinity;
  for (int k = 0; k < most_refinements; ++k) {
    const double size = gradient(distance);
    if (!(size < 0.5 * last)) break;
    last = size;
    for (std::size_t j = 0; j < n_; ++j) r_[j] = -weight * static_cast<double>(exact_Ctl_[j]);
    kkt_.solve(r_, h_, direction_, 0, Kkt::no_refinement);
    for (std::size_t i = 0; i < all_; ++i) {
      if (weight_[i] == 0 || (i >= rows_ && is_equality(i))) continue;
      const double moved = distance[i] + direction_.Cdx[i];
      const bool may = is_equality(i) || (moved > 0 ? high[i] < infinity : low[i] > -infinity);
      distance[i] = may ? moved : 0;
    }
  }
  return is_proof_of_infeasibility(distance, low, high, x);
}

/// What is left of Cᵀλ goes into the multipliers of the bounds where there is a bound to take it; of the rest only rounding
/// may be left, and no point within the radius may make up for it.
bool InteriorPoint::is_proof_of_infeasibility(double* multiplier, const double* low, const double* high, const double* x) {
  long double support = 0, rest = 0, terms_of_support = 0;
  std::fill(exact_Ctl_.begin(), exact_Ctl_.end(), 0.0L);
  C_.add_transposed(multiplier, exact_Ctl_.data());
  for (std::size_t j = 0; j < n_; ++j) {
    double terms = 0;
    for (std::size_t i = 0; i < rows_; ++i) terms = std::max(terms, std::fabs(C_.entries()[i * n_ + j] * multiplier[i]));
    const std::size_t i = rows_ + j;
    const double w = static_cast<double>(-exact_Ctl_[j]);
    const bool takes = w > 0 ? high[i] < infinity : low[i] > -infinity;
    // A bound that is far away is no help against rounding.
    const bool is_rounding = std::fabs(w) <= rounding * terms * std::sqrt(static_cast<double>(rows_ + 1));
    multiplier[i] = takes && !is_rounding ? w : 0;
    if (!takes && !is_rounding) return false;
    rest += std::fabs(static_cast<long double>(w) - multiplier[i]);
  }
  for (std::size_t i = 0; i < all_; ++i) {
    if (multiplier[i] == 0) continue;
    const long double term = static_cast<long double>(multiplier[i]) * (multiplier[i] > 0 ? high[i] : low[i]);
    support += term;
    terms_of_support += std::fabs(term);
  }
  const double size = std::max(1.0, largest({x, n_}));
  if (!(-support > least_contradiction * terms_of_support) || !(rest * least_radius * size < -support)) return false;
  for (std::size_t i = 0; i < all_; ++i) proof_[i] = static_cast<double>(multiplier[i] / unit_[i] / -support);
  return true;
}

bool InteriorPoint::find_proof_of_unboundedness() {
  constexpr double rho = 1e-10, weight = 1e2;
  double *v = proof_x_, *trial = proof_trial_, *distance = proof_distance_, *low = proof_low_, *high = proof_high_;
  for (std::size_t i = 0; i < all_; ++i) {
    low[i] = lower_.has[i] > 0 || is_equality(i) ? 0 : -infinity;
    high[i] = upper_.has[i] > 0 || is_equality(i) ? 0 : infinity;
  }
  std::fill_n(v, n_, 0.0);
  std::fill_n(distance, all_, 0.0);
  std::fill_n(h_, all_, 0.0);
  const auto value_at = [&](const double* at, double* off) {
    long double total = 0.5L * weight * distances(at, low, high, off);
    Q_.multiply(at, exact_Qx_.data());
    for (std::size_t j = 0; j < n_; ++j)
      total += (q_[j] + 0.5L * exact_Qx_[j] + 0.5L * rho * at[j]) * static_cast<long double>(at[j]);
    return total;
  };
  const auto gradient = [&](double linear) {  // of the function above, with q times `linear`
    Q_.multiply(v, exact_Qx_.data());
    std::fill(exact_Ctl_.begin(), exact_Ctl_.end(), 0.0L);
    C_.add_transposed(distance, exact_Ctl_.data());
    double size = 0;
    for (std::size_t j = 0; j < n_; ++j) {
      exact_Ctl_[j] = exact_Qx_[j] + weight * (exact_Ctl_[j] + distance[rows_ + j]) + linear * (q_[j] + rho * v[j]);
      if (is_equality(rows_ + j)) exact_Ctl_[j] = 0;
      size = std::max(size, std::fabs(static_cast<double>(exact_Ctl_[j])));
      r_[j] = -static_cast<double>(exact_Ctl_[j]);
    }
    return size;
  };
  long double value = 0;
  for (int step = 0; step < most_steps; ++step) {
    if (gradient(1) == 0 || !factor_violated(distance, rho, weight)) break;
    kkt_.solve(r_, h_, direction_, 0, Kkt::no_refinement);
    long double next = value;
    for (double length = 1; length > 1e-20 && !(next < value); length /= 2) {
      for (std::size_t j = 0; j < n_; ++j) trial[j] = is_equality(rows_ + j) ? 0 : v[j] + length * direction_.dx[j];
      next = value_at(trial, proof_);
    }
    if (!(next < value)) break;
    const bool slow = value < 0 && next > value * (1 - 1e-12L);
    std::copy_n(trial, n_, v);
    std::copy_n(proof_, all_, distance);
    value = next;
    if (slow) break;
  }
  if (!(value < 0) || !factor_violated(distance, rho, weight)) return false;
  // The part that Q and the constraints at a distance see is taken away; they then hold with 0.
  for (std::size_t i = 0; i < all_; ++i) proof_[i] = distance[i] != 0 || low[i] == high[i] ? 1 : 0;
  double last = infinity;
  for (int k = 0; k < most_refinements; ++k) {
    C_.multiply(v, exact_value_.data());
    for (std::size_t i = 0; i < all_; ++i)
      distance[i] = proof_[i] == 0 ? 0 : i < rows_ ? static_cast<double>(exact_value_[i]) : v[i - rows_];
    const double size = gradient(0);
    if (!(size < 0.5 * last)) break;
    last = size;
    kkt_.solve(r_, h_, direction_, 0, Kkt::no_refinement);
    for (std::size_t j = 0; j < n_; ++j) v[j] = proof_[rows_ + j] != 0 ? 0 : v[j] + direction_.dx[j];
  }
  return is_proof_of_unboundedness(v, low, high);
}

bool InteriorPoint::is_proof_of_unboundedness(const double* v, const double* low, const double* high) {
  long double slope = 0, terms_of_slope = 0, off = 0;
  for (std::size_t j = 0; j < n_; ++j) {
    slope += static_cast<long double>(q_[j]) * v[j];
    terms_of_slope += std::fabs(static_cast<long double>(q_[j]) * v[j]);
  }
  if (!(-slope > least_contradiction * terms_of_slope)) return false;
  const auto is_rounding = [&](long double sum, const double* row) {
    double terms = 0;
    for (std::size_t k = 0; k < n_; ++k) terms = std::max(terms, std::fabs(row[k] * v[k]));
    return std::fabs(sum) <=
           std::max(static_cast<double>(-slope) * vanishing, rounding * terms * std::sqrt(static_cast<double>(n_)));
  };
  Q_.multiply(v, exact_Qx_.data());
  for (std::size_t j = 0; j < n_; ++j) {
    if (is_equality(rows_ + j)) continue;
    if (!is_rounding(exact_Qx_[j], Q_.entries() + j * n_)) return false;
    off += std::fabs(exact_Qx_[j]);
  }
  C_.multiply(v, exact_value_.data());
  for (std::size_t i = 0; i < all_; ++i) {
    const long double value = i < rows_ ? exact_value_[i] : static_cast<long double>(v[i - rows_]);
    if (value <= high[i] && value >= low[i]) continue;
    if (i >= rows_ || !is_rounding(value, C_.entries() + i * n_)) return false;
    off += std::fabs(value);
  }
  if (!(off * least_radius < -slope)) return false;
  for (std::size_t j = 0; j < n_; ++j) proof_[j] = static_cast<double>(v[j] * unit_[rows_ + j] * scaling_.c / -slope);
  return true;
}

}  // namespace onestep::detail
