// Where a point stands: residuals in the units of the data, proofs that there is no solution, and what is handed back.
#include <algorithm>
#include <cmath>

#include "linear/vector.h"
#include "qp/interior_point.h"
#include "solve/monitor.h"

namespace onestep::detail {
namespace {

/// max_k |row_k x_k|, four at a time: the maximum of one chain would have to wait for itself.
double largest_term(std::size_t n, const double* row, const double* x) {
  double most[4] = {0, 0, 0, 0};
  std::size_t k = 0;
  for (; k + 4 <= n; k += 4)
    for (std::size_t l = 0; l < 4; ++l) {
      const double term = std::fabs(row[k + l] * x[k + l]);
      most[l] = term > most[l] ? term : most[l];
    }
  for (; k < n; ++k) most[0] = std::max(most[0], std::fabs(row[k] * x[k]));
  return std::max({most[0], most[1], most[2], most[3]});
}

// In normalised units a solution has a size of about 1. One that is 0 is found to this size times the tolerance.
constexpr double least_size = 1e-8, least_gap_size = 1e-6;

// How far out a point would have to be to contradict what looks like a proof, in units of the solution's size.
constexpr double screen_radius = 1e4;

}  // namespace

void InteriorPoint::evaluate() {
  if (closely_) {
    measure(exact_Qx_.data(), exact_value_.data(), exact_Ctl_.data());
    return;
  }
  measure(Qx_, value_, Ctl_);
}

/// Number: double, or long double where rounding of the sums would hide what is left of the residuals.
template <class Number> void InteriorPoint::measure(Number* Qx, Number* value, Number* Ctl) {
  Q_.multiply(x_, Qx);
  C_.multiply(x_, value);
  std::fill_n(Ctl, n_, Number{0});
  C_.add_transposed(lambda_, Ctl);
  const double c = scaling_.c;
  double dual = 0, dual_in_data = 0, dual_size = least_size;
  Number xQx = 0, qx = 0;
  for (std::size_t j = 0; j < n_; ++j) {
    const Number sum = Qx[j] + q_[j] + Ctl[j];
    double& w = lambda_[rows_ + j];
    if (is_equality(rows_ + j)) w = static_cast<double>(-sum);
    dual_residual_[j] = static_cast<double>(sum + w);
    Qx_[j] = static_cast<double>(Qx[j]);
    Ctl_[j] = static_cast<double>(Ctl[j]);
    xQx += Qx[j] * x_[j];
    qx += Number{q_[j]} * x_[j];
    const double to_data = 1 / unit_[rows_ + j];
    dual = std::max(dual, std::fabs(dual_residual_[j]));
    dual_in_data = std::max(dual_in_data, to_data * std::fabs(dual_residual_[j]));
    dual_size = std::max({dual_size, std::fabs(q_[j]), std::fabs(Qx_[j]), std::fabs(Ctl_[j]), std::fabs(w)});
  }
  double primal = 0, primal_in_data = 0, primal_size = least_size, complementarity = 0;
  Number support[2] = {0, 0};  // of the rows, of the bounds
  for (std::size_t i = 0; i < all_; ++i) {
    const Number exact = i < rows_ ? value[i] : Number{value_[i]};
    const double below = static_cast<double>(lower_.bound[i] - exact), above = static_cast<double>(exact - upper_.bound[i]);
    value_[i] = static_cast<double>(exact);
    lower_.residual[i] = lower_.has[i] * (-below - lower_.s[i]);
    upper_.residual[i] = upper_.has[i] * (above + upper_.s[i]);
    const double outside = is_equality(i) ? std::fabs(above) : std::max(lower_.has[i] * below, upper_.has[i] * above);
    equality_residual_[i] = above;
    primal = std::max(primal, outside);
    primal_in_data = std::max(primal_in_data, unit_[i] * outside);
    primal_size = std::max(primal_size, std::fabs(value_[i]));
    complementarity += lower_.s[i] * lower_.z[i] + upper_.s[i] * upper_.z[i];
    support[i < rows_ ? 0 : 1] += Number{lambda_[i]} * (lambda_[i] > 0 ? upper_.bound[i] : lower_.bound[i]);
  }
  mu_ = sides_ > 0 ? complementarity / sides_ : 0;
  const double gap = std::fabs(static_cast<double>(xQx + qx + support[0] + support[1]));
  const double gap_size =
      std::max(static_cast<double>(std::max({std::fabs(xQx), std::fabs(qx), std::fabs(support[0]), std::fabs(support[1])})),
               least_gap_size * primal_size * dual_size);
  x_size_ = primal_size;
  gap_size_ = gap_size;
  dual_size_ = dual_size;
  progress_.objective = static_cast<double>(xQx / 2 + qx) / c + constant_;
  progress_.barrier = mu_;
  progress_.primal = {primal_in_data, primal / primal_size};
  progress_.dual = {dual_in_data / c, dual / dual_size};
  progress_.gap = {gap / c, gap / gap_size};
}

/// merit: how many times too large the worst residual is.
bool InteriorPoint::small_enough(const InteriorPointOptions& options, double& merit) const {
  constexpr double tiny = std::numeric_limits<double>::min();
  merit = 0;
  for (const QpResidual& r : {progress_.primal, progress_.dual, progress_.gap}) {
    const double excess =
        std::max(r.absolute / std::max(options.absolute, tiny), r.relative / std::max(options.relative, tiny));
    merit = excess <= merit ? merit : excess;  // NaN is kept
  }
  return merit <= 1;
}

/// What counts as small in each row: the largest of its terms. What cannot be told from 0 in normalised units counts as 0.
void InteriorPoint::measure_terms() {
  constexpr double least_x = 1e-8, least_dual = 1e-12, tiny = 1e-200;
  const double *Q = Q_.entries(), *C = C_.entries();
  has_terms_ = true;
  for (std::size_t j = 0; j < n_; ++j) {
    const double curvature = Q[j * n_ + j], q = std::fabs(q_[j]);
    dual_terms_[j] = std::max({q, largest_term(n_, Q + j * n_, x_), std::fabs(lambda_[rows_ + j]), least_x * curvature,
                               q == 0 && curvature == 0 ? least_dual * dual_size_ : tiny});
  }
  double objective = 0;
  for (std::size_t j = 0; j < n_; ++j) objective = std::max({objective, std::fabs(q_[j]), std::fabs(Qx_[j])});
  for (std::size_t j = 0; j < n_; ++j)
    own_terms_[j] = q_[j] == 0 && Q[j * n_ + j] == 0 ? std::max(dual_terms_[j], objective) : dual_terms_[j];
  for (std::size_t i = 0; i < rows_; ++i)
    for (std::size_t j = 0; j < n_; ++j) dual_terms_[j] = std::max(dual_terms_[j], std::fabs(C[i * n_ + j] * lambda_[i]));
  // How much of one of its rows' terms a variable is when it moves by 1.
  double* share = r_;
  for (std::size_t j = 0; j < n_; ++j) {
    multiplier_weight_[rows_ + j] = 1 / dual_terms_[j];
    share[j] = std::max(0.0, Q[j * n_ + j]) * multiplier_weight_[rows_ + j];
  }
  for (std::size_t i = 0; i < rows_; ++i) {
    const double* row = C + i * n_;
    primal_terms_[i] = std::max({least_x * x_size_, std::fabs(value_[i]), is_equality(i) ? std::fabs(upper_.bound[i]) : 0,
                                 largest_term(n_, row, x_)});
    multiplier_weight_[i] = largest_term(n_, row, multiplier_weight_ + rows_);
    const double inverse = 1 / primal_terms_[i];
    for (std::size_t j = 0; j < n_; ++j) share[j] = std::max(share[j], std::fabs(row[j]) * inverse);
  }
  for (std::size_t j = 0; j < n_; ++j) {
    const double room = share[j] * x_size_ > 1 ? 1 / share[j] : x_size_;
    primal_terms_[rows_ + j] = std::max({std::fabs(x_[j]), room, least_x * x_size_});
  }
}

void InteriorPoint::measure_units(std::span<double> values, std::span<double> multipliers) {
  measure_terms();
  for (std::size_t i = 0; i < all_; ++i) {
    values[i] = primal_terms_[i] * unit_[i];
    multipliers[i] = 1 / (multiplier_weight_[i] * unit_[i] * scaling_.c);
  }
}

/// How many times too large the worst residual, the worst product s z or (where that is asked for) the worst step is, each
/// against the terms of its own row. A point that is no iterate has neither products nor a last step.
double InteriorPoint::worst_component(const InteriorPointOptions& options, bool of_iterate) {
  measure_terms();
  return worst_by_terms(options, of_iterate, shortened_);
}

/// The same against the terms as they were measured last. Those of the rows' multipliers count only where these have been
/// `shortened` as far as they can be: large ones that cancel would allow anything.
double InteriorPoint::worst_by_terms(const InteriorPointOptions& options, bool of_iterate, bool shortened) const {
  constexpr double tiny = std::numeric_limits<double>::min();
  const double tolerance = std::max(options.relative, tiny), step = std::max(options.step, tiny);
  double worst = 0;
  const auto see = [&](double excess) { worst = std::isnan(worst) || excess <= worst ? worst : excess; };
  for (std::size_t j = 0; j < n_; ++j) {
    const std::size_t i = rows_ + j;
    if (is_equality(i)) continue;
    // A curvature that is negative, and taken for rounding of 0, must not count for an x of normal size.
    const double curvature = Q_.entries()[j * n_ + j];
    if (curvature < 0) see(-curvature * std::max(1.0, x_size_) / dual_terms_[j] / tolerance);
    see(std::fabs(dual_residual_[j]) / (shortened ? dual_terms_ : own_terms_)[j] / tolerance);
    if (of_iterate) see(progress_.primal_step * std::fabs(direction_.dx[j]) / primal_terms_[i] / step);
  }
  for (std::size_t i = 0; i < all_; ++i) {
    const double terms = primal_terms_[i];
    const double outside = is_equality(i) ? std::fabs(equality_residual_[i])
                                          : std::max(lower_.has[i] * (lower_.bound[i] - value_[i]),
                                                     upper_.has[i] * (value_[i] - upper_.bound[i]));
    see(outside / terms / tolerance);
  }
  for (const QpSide* side : {&lower_, &upper_}) {
    if (!of_iterate) break;
    for (std::size_t i = side->begin; i < side->end; ++i) {
      const double s = side->has[i] * side->s[i] / std::max(primal_terms_[i], std::fabs(side->bound[i]));
      see(s * side->z[i] * multiplier_weight_[i] / tolerance);
    }
  }
  // Multipliers of both sides that are large and cancel make both slacks small, as if the bounds were not apart.
  for (std::size_t i = 0; of_iterate && i < all_; ++i) {
    const double both = std::min(lower_.z[i], upper_.z[i]) * multiplier_weight_[i];
    if (both == 0) continue;
    const double low = lower_.bound[i], high = upper_.bound[i];
    see(both * (high - low) / std::max({primal_terms_[i], std::fabs(low), std::fabs(high)}) / tolerance);
  }
  return worst;
}

/// Whether what rounding adds to a sum is not small against what the residual may be. (Terms: from the two measures.)
bool InteriorPoint::noise_matters(const InteriorPointOptions& options) const {
  constexpr double rounding = 1e-15, part = 0.1, near = 1e-7;
  for (const QpResidual& r : {progress_.primal, progress_.dual, progress_.gap}) {
    const double terms = r.relative > 0 ? r.absolute / r.relative : 1;
    const double allowed = std::min(options.absolute, options.relative * terms);
    if (r.relative < near && rounding * terms > part * allowed) return true;
  }
  return false;
}

/// Whether the multipliers have become so large that the objective no longer counts: what is left of Cᵀλ where no bound
/// takes it is small beside the support. Cheap; the proof is another matter.
bool InteriorPoint::looks_infeasible() const {
  double support = 0, rest = 0;
  for (std::size_t i = 0; i < rows_; ++i) support += lambda_[i] * (lambda_[i] > 0 ? upper_.bound[i] : lower_.bound[i]);
  for (std::size_t j = 0; j < n_; ++j) {
    const std::size_t i = rows_ + j;
    const double w = -Ctl_[j];
    const bool takes = is_equality(i) || (w > 0 ? upper_.has[i] : lower_.has[i]) > 0;
    if (takes) {
      support += w * (w > 0 ? upper_.bound[i] : lower_.bound[i]);
    } else {
      rest = std::max(rest, std::fabs(w));
    }
  }
  return support < 0 && rest * screen_radius * x_size_ < -support;
}

/// The same of a direction v given with Qv and all values (Cv, v).
bool InteriorPoint::looks_unbounded(const double* direction, const double* Q_direction, const double* values) const {
  const double slope = dot({q_, n_}, {direction, n_});
  if (!(slope < 0)) return false;
  double off = largest({Q_direction, n_});
  if (!(off * screen_radius < -slope)) return false;
  for (std::size_t i = 0; i < all_; ++i) {
    const double blocked =
        is_equality(i) ? std::fabs(values[i]) : std::max(-lower_.has[i] * values[i], upper_.has[i] * values[i]);
    off = std::max(off, blocked);
  }
  return off * screen_radius < -slope;
}

void InteriorPoint::keep_best() {
  std::copy_n(x_, n_, best_x_);
  std::copy_n(lambda_, all_, best_lambda_);
  for (QpSide* side : {&lower_, &upper_}) {
    std::copy(side->s + side->begin, side->s + side->end, side->best_s + side->begin);
    std::copy(side->z + side->begin, side->z + side->end, side->best_z + side->begin);
  }
  best_progress_ = progress_;
}

void InteriorPoint::return_to_best() {
  std::copy_n(best_x_, n_, x_);
  std::copy_n(best_lambda_, all_, lambda_);
  for (QpSide* side : {&lower_, &upper_}) {
    std::copy(side->best_s + side->begin, side->best_s + side->end, side->s + side->begin);
    std::copy(side->best_z + side->begin, side->best_z + side->end, side->z + side->begin);
  }
  progress_ = best_progress_;
}

void InteriorPoint::report(Status status, Clock::time_point begin, int iterations) {
  QpSolution& s = solution_;
  s.status = status;
  for (std::size_t j = 0; j < n_; ++j) out_x_[j] = x_[j] * unit_[rows_ + j];
  for (std::size_t i = 0; i < all_; ++i) out_lambda_[i] = lambda_[i] / unit_[i] / scaling_.c;
  s.x = {out_x_, n_};
  s.y = {out_lambda_, m_};
  s.z = {out_lambda_ + m_, p_};
  s.bound_multipliers = {out_lambda_ + rows_, n_};
  if (status == Status::infeasible) {
    s.infeasible_y = {proof_, m_};
    s.infeasible_z = {proof_ + m_, p_};
    s.infeasible_bounds = {proof_ + rows_, n_};
  }
  if (status == Status::unbounded) s.unbounded_direction = {proof_, n_};
  s.objective = progress_.objective;
  s.primal = progress_.primal;
  s.dual = progress_.dual;
  s.gap = progress_.gap;
  s.iterations = iterations;
  s.last_step = iterations > 0 ? last_step_ : 0;
  s.last_change = iterations > 0 ? last_change_ : 0;
  s.factorisations = kkt_.factorisations();
  s.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace onestep::detail
