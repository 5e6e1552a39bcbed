// A primal-dual interior point method for convex quadratic programs: Mehrotra's predictor-corrector on the proximally
// regularised problem (IP-PMM), in scaled variables, and a jump to the optimum of the active set once that has settled.
// Tolerances and results are in the units of the data.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "onestep/status.h"
#include "qp/kkt.h"
#include "qp/row_matrix.h"
#include "qp/scaling.h"

namespace onestep::detail {

/// How far a point is from optimal, in one respect. Absolute: the largest entry, in the units of the data. Relative: the
/// largest entry of the normalised problem (qp/scaling.h), divided by the largest entry among the terms of the sums there: x
/// and Cx; q, Qx, Cᵀλ and the multipliers of bounds; for the gap by the product of these two sizes, or by its largest term.
/// It does not depend on the units of the data. A solution has small residuals in every row, too, each against the terms of
/// that row: variables may differ in size by many orders of magnitude.
struct QpResidual {
  double absolute = 0, relative = 0;
};

struct QpProgress {
  int iteration = 0;
  double objective = 0;
  double barrier = 0;  ///< mean of s z, in scaled units
  double primal_step = 0, dual_step = 0;
  QpResidual primal, dual, gap;
};

/// How short the last step is asked to be where the solution is differentiated: the derivative has the error of the iterate
/// before it. It is also what makes small multipliers right.
constexpr double small_step = 1e-9;

struct InteriorPointOptions {
  /// A residual is small enough when it is at most `relative` in the relative measure and, where that is asked for as well,
  /// at most `absolute` in the units of the data.
  double relative = 1e-9, absolute = std::numeric_limits<double>::infinity();
  /// The last step may also be asked to be short: no entry of x changes by more than this times its own size, or what its
  /// rows see of it. A derivative taken at the iterate before is as good as that step was short.
  double step = std::numeric_limits<double>::infinity();
  int iteration_limit = 200;
  double time_limit = std::numeric_limits<double>::infinity();  ///< seconds
  /// Called at each iterate; true cancels. What it throws leaves solve(), and the solver can be used again.
  std::function<bool(const QpProgress&)> callback;
};

/// A point to start from, signed as in QpSolution; what is empty is made by the solver. Without x the rest is not used.
struct QpStart {
  std::span<const double> x, y, z, bound_multipliers;
};

/// What solve() found, signed so that Qx + q + Aᵀy + Gᵀz + bound_multipliers = 0. The spans belong to the solver and last
/// until its next solve.
struct QpSolution {
  Status status = Status::not_finite;
  std::span<const double> x, y, z, bound_multipliers;
  double objective = 0;
  int iterations = 0, factorisations = 0;
  double seconds = 0;
  QpResidual primal, dual, gap;
  double last_step = 0;  ///< the largest change of an entry of x in the last step, relative to the largest entry of x and Cx
  double last_change = 0;  ///< the length of the last step in x, in the units of the data
  /// infeasible: y, z and bound multipliers with Aᵀy + Gᵀz + bounds = 0 and bᵀy + uᵀz⁺ - lᵀz⁻ + (the same of lo, hi) = -1.
  /// Empty where a lower bound is above its upper bound or a row of zeros has to be another number, which needs no other
  /// proof.
  std::span<const double> infeasible_y, infeasible_z, infeasible_bounds;
  /// unbounded: a direction v with Qv = 0, Av = 0, Gv and v within what finite bounds allow, qᵀv = -1.
  std::span<const double> unbounded_direction;
  /// not_finite: the array that holds a NaN or an infinity; none where entries are so large or so small that what is
  /// computed from them is not finite. infeasible: the array whose bounds cross, or that asks a row of zeros not to be 0.
  const char* culprit = nullptr;
  std::size_t culprit_index = 0;
};

/// One side of all constraints, which are counted through: rows of A, rows of G, then the variables. A side that is there
/// has a slack s > 0 and a multiplier z > 0; one that is not has has = 0, s = 1, z = 0. Outside [begin, end) none is there,
/// and everything else is 0 and stays so.
struct QpSide {
  std::size_t begin = 0, end = 0;
  double *has = nullptr, *bound = nullptr, *s = nullptr, *z = nullptr;
  double* residual = nullptr;                    // value ± s - bound
  double *weight = nullptr, *inverse = nullptr;  // z / (s + δ z) and 1 / (s + δ z)
  double* target = nullptr;                      // what s dz + z ds shall be
  double *ds = nullptr, *dz = nullptr;
  double *previous_s = nullptr, *previous_z = nullptr;  // of the iterate the last step was made from
  double *best_s = nullptr, *best_z = nullptr;
};

class QpActiveSet;

/// On which of its sides a constraint is active.
enum class QpActive : std::int8_t { lower = -1, none = 0, upper = 1, equality = 2 };

class InteriorPoint {
 public:
  /// Allocates for n variables, m equalities, p inequalities; solve() then allocates nothing, but for the first problem
  /// that is so degenerate that it needs the augmented form (kkt.h), and for those whose active set it has to look at.
  InteriorPoint(std::size_t n, std::size_t m, std::size_t p);
  ~InteriorPoint();
  InteriorPoint(const InteriorPoint&) = delete;
  InteriorPoint& operator=(const InteriorPoint&) = delete;

  /// Sizes of the data must be those the solver was made for. Numerical trouble is a status.
  const QpSolution& solve(const QpData& data, const InteriorPointOptions& options = {}, const QpStart& start = {});
  const QpSolution& solution() const { return solution_; }
  /// The optimum and its active set in extended precision, made when first asked for after a solve.
  const QpActiveSet& active_set();
  /// What changes of values and of multipliers are compared with near the point that was found last, in the units of the
  /// data, of all constraints: as a solution is judged row by row.
  void measure_units(std::span<double> values, std::span<double> multipliers);
  /// x and the multipliers of all constraints at the optimum of the active set, in the units of the data, if that is
  /// decided.
  void write_optimum(std::span<double> x_and_multipliers);
  /// Of the last solve and of what was differentiated since.
  int factorisations() const { return kkt_.factorisations(); }

 private:
  friend class QpDerivative;
  friend class QpActiveSet;
  using Clock = std::chrono::steady_clock;
  static constexpr double least_condensed = 1e-8;  // the least proximal term in condensed systems
  static constexpr double least_proximal = 1e-12;  // of what proximal terms are relative to

  // start.cpp
  bool check_data(const QpData& data);
  void load(const QpData& data);
  void load_quadratic(const double* Q);
  void load_bounds(const QpData& data);
  bool start_cold();
  void start_warm(const QpStart& start);
  void shift_into_interior();
  // measure.cpp
  void evaluate();
  template <class Number> void measure(Number* Qx, Number* value, Number* Ctl);
  bool small_enough(const InteriorPointOptions& options, double& merit) const;
  bool noise_matters(const InteriorPointOptions& options) const;
  bool looks_infeasible() const;
  bool looks_unbounded(const double* direction, const double* Q_direction, const double* values) const;
  void report(Status status, Clock::time_point begin, int iterations);
  void measure_terms();
  double worst_component(const InteriorPointOptions& options, bool of_iterate);
  double worst_by_terms(const InteriorPointOptions& options, bool of_iterate, bool shortened) const;
  void keep_best();
  void return_to_best();
  // proof.cpp
  bool find_proof_of_infeasibility();
  bool find_proof_of_unboundedness();
  bool is_proof_of_infeasibility(double* multiplier, const double* low, const double* high, const double* x);
  bool is_proof_of_unboundedness(const double* v, const double* low, const double* high);
  long double distances(const double* x, const double* low, const double* high, double* distance);
  bool factor_violated(const double* distance, double rho, double weight);
  // jump.cpp
  bool prepare_jump(const InteriorPointOptions& options, int iterations);
  bool update_guess();
  bool jump(const InteriorPointOptions& options);
  bool is_strict_solution(const InteriorPointOptions& options);
  void settle_sides(std::span<const std::size_t> undecided = {});
  // interior_point.cpp
  std::optional<Status> status_without_solution();
  bool polish(const InteriorPointOptions& options);
  Status end_short(const InteriorPointOptions& options, Status otherwise);
  Status iterate(const InteriorPointOptions& options, Clock::time_point begin, int& iterations);
  static bool time_is_up(const InteriorPointOptions& options, Clock::time_point begin);
  bool keep_if_best(bool small, double& merit, const InteriorPointOptions& options);
  bool polish_best(const InteriorPointOptions& options);
  void begin_pulling(const InteriorPointOptions& options);
  bool is_worth_pulling(double shrunk) const;
  void pull_multipliers();
  double sum_of_row_multipliers() const;
  void regularise(double last_mu);
  bool factor();
  void solve_direction(double tolerance, int most_sweeps);
  double predicted_mu(double primal, double dual) const;
  void step_lengths(double& primal, double& dual) const;
  bool make_step(const InteriorPointOptions& options);
  void move(double primal, double dual);
  void set_multipliers();
  void need_factor();
  void begin_step();

  /// What a proximal term is relative to: entries of Q and q may be graded. Where there are none the variable is held by
  /// rows alone, if at all.
  double proximal(std::size_t j) const {
    const double own = std::max(std::fabs(q_[j]), Q_.entries()[j * n_ + j]);
    return std::max(least_proximal, own > 0 ? own : smallest_cost_);
  }
  bool is_equality(std::size_t i) const { return equal_[i] != 0; }

  std::size_t n_, m_, p_, rows_, all_;
  QpScaling scaling_;
  RowMatrix Q_, C_;
  Kkt kkt_;
  std::vector<double> arena_;
  std::vector<long double> exact_Qx_, exact_value_, exact_Ctl_;
  bool closely_ = false;                     // residuals are computed in higher precision
  bool pulled_ = false;                      // the next step shall shorten multipliers, or the last one did
  bool shortened_ = false;                   // such steps were made: multipliers are no larger than they need be
  int pulls_ = 0;                            // how many
  bool only_multipliers_excuse_it_ = false;  // the last iterate passes only relative to the multipliers' terms
  bool by_components_ = false;               // the merit of a point is its worst component
  std::vector<QpActive> guess_;              // of the active set, at the last iterate
  int guess_age_ = 0;                        // for how many iterates it has stayed as it is
  std::vector<unsigned char> equal_;         // of all constraints: lower bound = upper bound
  double* unit_ = nullptr;                   // of all constraints: what a value is multiplied with to be in the data's units
  double* q_ = nullptr;
  double *dual_terms_ = nullptr, *primal_terms_ = nullptr;  // of each variable's row; of all constraints
  double* own_terms_ = nullptr;                             // of each variable's row, without those of rows of C
  double* multiplier_weight_ = nullptr;  // of all constraints: what a multiplier of 1 is, relative to the terms it adds to
  double *value_ = nullptr, *x_ = nullptr;  // C x, and behind it x
  double* lambda_ = nullptr;                // multipliers of all constraints, upper minus lower
  double *Qx_ = nullptr, *Ctl_ = nullptr, *dual_residual_ = nullptr, *equality_residual_ = nullptr;
  double *r_ = nullptr, *h_ = nullptr, *diagonal_ = nullptr, *weight_ = nullptr;
  double *best_x_ = nullptr, *best_lambda_ = nullptr, *out_x_ = nullptr, *out_lambda_ = nullptr, *proof_ = nullptr;
  double *proof_x_ = nullptr, *proof_trial_ = nullptr, *proof_distance_ = nullptr, *proof_low_ = nullptr,
         *proof_high_ = nullptr;
  KktDirection direction_{};
  QpSide lower_{}, upper_{};
  double sides_ = 0, mu_ = 0, rho_ = 0, delta_ = 0;
  bool augmented_ = false, has_factor_ = false;  // a factor of a step, not only of the start
  bool has_terms_ = false;                       // of the last solve: measure_terms() was called
  double constant_ = 0, least_d_ = 1;
  double smallest_cost_ = 1;                          // of all variables that have one in q or Q
  double x_size_ = 1, dual_size_ = 1, gap_size_ = 1;  // what residuals are relative to
  double linear_residual_ = 0, best_merit_ = 0, last_step_ = 0, last_change_ = 0;
  std::unique_ptr<QpActiveSet> set_;
  bool set_is_current_ = false;  // decided for the last solve
  QpProgress progress_, best_progress_;
  QpSolution solution_;
};

}  // namespace onestep::detail
