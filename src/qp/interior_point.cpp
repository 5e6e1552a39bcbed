// The iteration: predictor, corrector, step lengths, regularisation, and when to stop.
#include "qp/interior_point.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/cpu/blas.h"
#include "linear/vector.h"
#include "qp/active_set.h"
#include "solve/monitor.h"

namespace onestep::detail {
namespace {

double largest_relative(const QpProgress& p) { return std::max({p.primal.relative, p.dual.relative, p.gap.relative}); }

// Proximal terms, in scaled units. Condensed, weights of 1/δ meet rounding of 1e-16: ρ δ may not be smaller than that.
constexpr double first_rho = 1e-6, first_delta = 1e-4, least_augmented = 1e-12;

// Number of multiplier-reducing steps that also move away from the boundary.
constexpr int centring_pulls = 3;

}  // namespace

const QpSolution& InteriorPoint::solve(const QpData& data, const InteriorPointOptions& options, const QpStart& start) {
  const Clock::time_point begin = Clock::now();
  const parallel::BlasSerial serial;
  solution_ = {};
  set_is_current_ = has_terms_ = false;
  if (!check_data(data)) return solution_;
  load(data);
  if (!scaling_.in_range) {
    report(Status::not_finite, begin, 0);
    return solution_;
  }
  int iterations = 0;
  progress_ = {};
  augmented_ = has_factor_ = closely_ = false;
  rho_ = first_rho;
  delta_ = first_delta;
  Status status = Status::not_convex;
  if (kkt_.is_convex()) {
    const bool warm = !start.x.empty();
    if (warm) {
      start_warm(start);
      status = iterate(options, begin, iterations);
    }
    // A start far from any solution is no reason to fail.
    if (!warm || status == Status::line_search_failed || status == Status::singular) {
      rho_ = first_rho;
      delta_ = first_delta;
      augmented_ = false;
      status = start_cold() ? iterate(options, begin, iterations) : Status::singular;
    }
  }
  report(status, begin, iterations);
  return solution_;
}

Status InteriorPoint::iterate(const InteriorPointOptions& options, Clock::time_point begin, int& iterations) {
  // Without a better point for so many iterations there will be none; longer while far from a solution.
  constexpr int patience_near = 3, patience = 12, patience_far = 30;
  constexpr double near = 1e-12, far = 1e-7, too_far_to_pull = 1e-5;
  double last_mu = 0, multipliers = 0;
  int since_best = 0, next_proof = 1;
  by_components_ = set_is_current_ = pulled_ = shortened_ = false;
  pulls_ = 0;
  guess_age_ = -1;  // the guess is of another solve
  progress_.primal_step = progress_.dual_step = last_step_ = 0;
  best_merit_ = std::numeric_limits<double>::infinity();
  for (;; ++iterations) {
    evaluate();
    last_step_ /= x_size_;
    progress_.iteration = iterations;
    double merit = 0;
    const bool small = small_enough(options, merit);
    closely_ = closely_ || noise_matters(options);
    if (options.callback && options.callback(progress_)) return Status::cancelled;
    const bool finite = merit <= std::numeric_limits<double>::max();
    if (pulled_) {
      const double before = std::exchange(multipliers, sum_of_row_multipliers());
      pulled_ = finite && is_worth_pulling(multipliers / before);
    } else {
      since_best = finite && keep_if_best(small, merit, options) ? 0 : since_best + 1;
      if (small && merit <= 1) return Status::converged;
    }
    if (finite && iterations >= next_proof &&
        (looks_infeasible() || looks_unbounded(x_, Qx_, value_) ||
         looks_unbounded(direction_.dx, direction_.Qdx, direction_.Cdx))) {
      if (const auto status = status_without_solution()) return *status;
      next_proof = 2 * iterations;
    }
    if (prepare_jump(options, iterations) && finite && since_best == 0 && jump(options)) {
      progress_.iteration = ++iterations;
      return options.callback && options.callback(progress_) ? Status::cancelled : Status::converged;
    }
    // Where all is 0 at a solution, so may residuals be at the start, whatever its slacks and multipliers.
    const double best = best_progress_.iteration > 0 ? largest_relative(best_progress_) : 1;
    const bool stuck = since_best > (best <= near ? patience_near : best <= far ? patience : patience_far);
    const bool may_pull = stuck && finite && rows_ > 0 && pulls_ == 0 && best <= too_far_to_pull;
    if (may_pull && (augmented_ || only_multipliers_excuse_it_) && polish_best(options)) return Status::converged;
    if (stuck && !augmented_) {
      augmented_ = true;
      since_best = 0;
    } else if (may_pull) {
      begin_pulling(options);
      multipliers = sum_of_row_multipliers();
      since_best = -patience_near;
    } else if (stuck || !finite) {
      if (best_merit_ == std::numeric_limits<double>::infinity()) return Status::not_finite;
      return end_short(options, Status::line_search_failed);
    }
    if (iterations >= options.iteration_limit) {
      return_to_best();
      return Status::iteration_limit;
    }
    if (time_is_up(options, begin)) {
      return_to_best();
      return Status::time_limit;
    }
    regularise(last_mu);
    last_mu = mu_;
    if (pulled_) {
      ++pulls_;
      pull_multipliers();
    }
    if (!make_step(options)) return end_short(options, Status::singular);
  }
}

bool InteriorPoint::time_is_up(const InteriorPointOptions& options, Clock::time_point begin) {
  return options.time_limit < std::numeric_limits<double>::infinity() &&
         std::chrono::duration<double>(Clock::now() - begin).count() > options.time_limit;
}

/// The best point so far is judged by the terms of its multipliers from now on, as those to come will be.
void InteriorPoint::begin_pulling(const InteriorPointOptions& options) {
  pulled_ = shortened_ = true;
  if (by_components_) best_merit_ = worst_component(options, true);
}

/// shrunk: the sum of multipliers, relative to that before the last step.
bool InteriorPoint::is_worth_pulling(double shrunk) const {
  constexpr int most_pulls = 15;
  constexpr double whole_step = 0.9, visibly = 0.5;
  return pulls_ < most_pulls && (pulls_ <= centring_pulls || progress_.dual_step < whole_step || shrunk < visibly);
}

double InteriorPoint::sum_of_row_multipliers() const {
  double sum = 0;
  for (std::size_t i = 0; i < rows_; ++i) sum += std::fabs(lambda_[i]);
  return sum;
}

/// Keeps the iterate if it is better than all before. merit: that of small_enough(); where all residuals are small it
/// becomes that of the worst component, or of the last step where that is too long whatever the components are.
bool InteriorPoint::keep_if_best(bool small, double& merit, const InteriorPointOptions& options) {
  constexpr double behind_all_short_ones = 1e100;
  only_multipliers_excuse_it_ = false;
  if (small) {
    if (last_step_ > options.step && options.step > 0) {
      merit = behind_all_short_ones * (last_step_ / options.step);
    } else {
      merit = worst_component(options, true);
      if (merit > 1 && !shortened_) only_multipliers_excuse_it_ = worst_by_terms(options, true, true) <= 1;
    }
    if (!by_components_) best_merit_ = std::numeric_limits<double>::infinity();
    by_components_ = true;
  } else if (by_components_) {
    merit = std::numeric_limits<double>::max();
  }
  if (!(merit < 0.9 * best_merit_)) return false;
  best_merit_ = merit;
  keep_best();
  return true;
}

/// Moves the proximal centre of the multipliers of rows to 0 for the next step. Multipliers that are not unique (of rows
/// that are linearly dependent, of rows of zeros) may grow until their rounding error exceeds the tolerance. These steps
/// reduce them, and move x off the constraints by δ λ; later steps restore feasibility.
void InteriorPoint::pull_multipliers() {
  for (std::size_t i = 0; i < rows_; ++i) {
    upper_.residual[i] -= delta_ * upper_.z[i];
    lower_.residual[i] += delta_ * lower_.z[i];
    equality_residual_[i] -= delta_ * lambda_[i];
  }
}

/// Where no better point is to be had: the best one, the optimum of its active set, or why there is none.
Status InteriorPoint::end_short(const InteriorPointOptions& options, Status otherwise) {
  constexpr double rounding_at_most = 1e-8, of_component_at_most = 1e-6;
  if (best_merit_ == std::numeric_limits<double>::infinity()) return otherwise;
  return_to_best();
  if (polish(options)) return Status::converged;
  if (const auto status = status_without_solution()) return *status;
  if (!(largest_relative(progress_) <= rounding_at_most)) return otherwise;
  InteriorPointOptions of_rounding;
  of_rounding.relative = of_component_at_most;
  progress_.primal_step = 0;
  begin_step();
  evaluate();
  return worst_component(of_rounding, true) <= 1 ? Status::rounding_reached : otherwise;
}

std::optional<Status> InteriorPoint::status_without_solution() {
  if (find_proof_of_infeasibility()) return Status::infeasible;
  if (find_proof_of_unboundedness()) return Status::unbounded;
  return std::nullopt;
}

/// ρ and δ shrink with μ.
void InteriorPoint::regularise(double last_mu) {
  constexpr double fastest = 0.01, without_sides = 0.1;
  const double rate = sides_ == 0 ? without_sides : last_mu > 0 ? std::clamp(mu_ / last_mu, fastest, 1.0) : 1;
  const double least = augmented_ ? least_augmented : least_condensed;
  rho_ = augmented_ ? least : std::max(least, rho_ * rate);
  delta_ = augmented_ ? least : std::max(least, delta_ * rate);
}

bool InteriorPoint::factor() {
  for (QpSide* side : {&lower_, &upper_}) {
    const std::size_t of_rows = std::min(side->end, rows_);
    for (std::size_t i = side->begin; i < of_rows; ++i) side->inverse[i] = 1 / (side->s[i] + delta_ * side->z[i]);
    for (std::size_t i = std::max(side->begin, rows_); i < side->end; ++i) side->inverse[i] = 1 / side->s[i];
    for (std::size_t i = side->begin; i < side->end; ++i) side->weight[i] = side->z[i] * side->inverse[i];
  }
  for (std::size_t i = 0; i < rows_; ++i) weight_[i] = is_equality(i) ? 1 / delta_ : lower_.weight[i] + upper_.weight[i];
  for (std::size_t i = rows_; i < all_; ++i) weight_[i] = is_equality(i) ? Kkt::fixing : lower_.weight[i] + upper_.weight[i];
  for (std::size_t j = 0; j < n_; ++j) diagonal_[j] = rho_ * proximal(j) + weight_[rows_ + j];
  return kkt_.factor(diagonal_, weight_, augmented_);
}

/// Newton's direction for the targets of both sides, in condensed form
///     dz_u = weight_u (dv + residual_u) + inverse_u target_u,   dz_l = inverse_l target_l - weight_l (dv + residual_l),
/// with dv = C dx for rows and dx for bounds.
void InteriorPoint::solve_direction(double tolerance, int most_sweeps) {
  std::fill_n(h_, all_, 0.0);
  for (std::size_t i = std::min(lower_.begin, upper_.begin); i < std::max(lower_.end, upper_.end); ++i) {
    h_[i] = upper_.weight[i] * upper_.residual[i] + upper_.inverse[i] * upper_.target[i] +
            lower_.weight[i] * lower_.residual[i] - lower_.inverse[i] * lower_.target[i];
  }
  for (std::size_t i = 0; i < rows_; ++i)
    if (is_equality(i)) h_[i] = equality_residual_[i] / delta_;
  for (std::size_t j = 0; j < n_; ++j) r_[j] = is_equality(rows_ + j) ? 0 : -dual_residual_[j] - h_[rows_ + j];
  linear_residual_ = kkt_.solve(r_, h_, direction_, tolerance, most_sweeps);
  const double* dv = direction_.Cdx;
  for (std::size_t i = upper_.begin; i < upper_.end; ++i)
    upper_.dz[i] = upper_.weight[i] * (dv[i] + upper_.residual[i]) + upper_.inverse[i] * upper_.target[i];
  for (std::size_t i = lower_.begin; i < lower_.end; ++i)
    lower_.dz[i] = lower_.inverse[i] * lower_.target[i] - lower_.weight[i] * (dv[i] + lower_.residual[i]);
  for (QpSide* side : {&lower_, &upper_}) {
    for (std::size_t i = side->begin; i < side->end; ++i)
      side->ds[i] = side->has[i] > 0 ? (side->target[i] - side->s[i] * side->dz[i]) / side->z[i] : 0;
  }
}

/// To the boundary.
void InteriorPoint::step_lengths(double& primal, double& dual) const {
  constexpr double tiny = 1e-300;
  double shrink_s = tiny, shrink_z = tiny;
  for (const QpSide* side : {&lower_, &upper_}) {
    for (std::size_t i = side->begin; i < side->end; ++i) {
      shrink_s = std::max(shrink_s, -side->ds[i] / side->s[i]);
      shrink_z = std::max(shrink_z, -side->dz[i] / std::max(side->z[i], tiny));
    }
  }
  primal = 1 / shrink_s;
  dual = 1 / shrink_z;
}

double InteriorPoint::predicted_mu(double primal, double dual) const {
  double sum = 0;
  for (const QpSide* side : {&lower_, &upper_}) {
    for (std::size_t i = side->begin; i < side->end; ++i)
      sum += side->has[i] * (side->s[i] + primal * side->ds[i]) * (side->z[i] + dual * side->dz[i]);
  }
  return sum / sides_;
}

/// False when no factor could be made.
bool InteriorPoint::make_step(const InteriorPointOptions& options) {
  constexpr int most_sweeps = 5;
  constexpr double most_rho = 1, least_mu = 1e-60, room = 1e-4;
  constexpr double boundary = 0.99,
                   last_boundary = 0.999;  // how much of the way to the boundary, the second when μ is small
  const double dual_size = largest({dual_residual_, n_});
  const double tolerance =
      std::max(0.01 * dual_size, 0.1 * std::min(options.relative * dual_size_, options.absolute * scaling_.c * least_d_));
  // Where the last step shall be short, or each component right, the barrier parameter has to go on falling.
  const double enough = 0.1 * std::min(options.relative * gap_size_, options.absolute * scaling_.c);
  const double least_gap = pulled_ && pulls_ <= centring_pulls                      ? enough
                           : by_components_ || shortened_                           ? 0
                           : options.step < std::numeric_limits<double>::infinity() ? 1e-22 * gap_size_
                                                                                    : enough;
  // Steps that shorten multipliers need room to the boundary; what they do to x is of the size of δ.
  const double least_aim = pulled_ ? std::max(least_mu, room * delta_ * dual_size_ * dual_size_) : least_mu;
  begin_step();
  for (bool again = true; again;) {
    again = false;
    while (!factor()) {
      rho_ *= augmented_ ? 100 : 1;
      augmented_ = true;
      if (rho_ > most_rho) return false;
    }
    double primal = 1, dual = 1;
    if (sides_ > 0) {
      for (QpSide* side : {&lower_, &upper_})
        for (std::size_t i = side->begin; i < side->end; ++i) side->target[i] = -side->s[i] * side->z[i];
      solve_direction(0, Kkt::no_refinement);
      step_lengths(primal, dual);
      const double ratio = predicted_mu(std::min(primal, 1.0), std::min(dual, 1.0)) / mu_;
      const double sigma = std::pow(std::clamp(ratio, 0.0, 1.0), 3);
      const double aim = std::max({sigma * mu_, least_gap / sides_, least_aim});
      for (QpSide* side : {&lower_, &upper_}) {
        for (std::size_t i = side->begin; i < side->end; ++i)
          side->target[i] = side->has[i] * (aim - side->s[i] * side->z[i] - side->ds[i] * side->dz[i]);
      }
    }
    solve_direction(tolerance, most_sweeps);
    again = !augmented_ && linear_residual_ > std::max(0.5 * dual_size, 10 * tolerance);
    augmented_ = augmented_ || again;
  }
  has_factor_ = true;
  double primal = 1, dual = 1;
  step_lengths(primal, dual);
  const double keep = std::clamp(1 - 10 * mu_, boundary, last_boundary);
  move(std::min(1.0, keep * primal), std::min(1.0, keep * dual));
  return true;
}

void InteriorPoint::move(double primal, double dual) {
  progress_.primal_step = primal;
  progress_.dual_step = dual;
  double change = 0, squares = 0;
  for (std::size_t j = 0; j < n_; ++j) {
    if (is_equality(rows_ + j)) continue;
    const double dx = primal * direction_.dx[j], in_data = dx * unit_[rows_ + j];
    x_[j] += dx;
    change = std::max(change, std::fabs(dx));
    squares += in_data * in_data;
  }
  last_step_ = change;  // made relative by evaluate()
  last_change_ = std::sqrt(squares);
  for (QpSide* side : {&lower_, &upper_}) {
    for (std::size_t i = side->begin; i < side->end; ++i) {
      side->s[i] += primal * side->ds[i];
      side->z[i] += dual * side->dz[i];
    }
  }
  for (std::size_t i = 0; i < rows_; ++i)
    if (is_equality(i)) lambda_[i] += dual * direction_.dlambda[i];
  set_multipliers();
}

/// Where the start was the solution no step was made: this makes the factor it would have made.
void InteriorPoint::need_factor() {
  if (has_factor_) return;
  const parallel::BlasSerial serial;
  begin_step();
  has_factor_ = factor();
}

/// From here: where no step follows, the iterate's own slacks and multipliers are those of one without length.
void InteriorPoint::begin_step() {
  for (QpSide* side : {&lower_, &upper_}) {
    std::copy(side->s + side->begin, side->s + side->end, side->previous_s + side->begin);
    std::copy(side->z + side->begin, side->z + side->end, side->previous_z + side->begin);
  }
}

void InteriorPoint::set_multipliers() {
  for (std::size_t i = 0; i < all_; ++i)
    if (!is_equality(i)) lambda_[i] = upper_.z[i] - lower_.z[i];
}

}  // namespace onestep::detail
