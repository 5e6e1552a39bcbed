// The interior point method as a loop of traced steps (traced_ip_step.h), for derivatives that go over its iterates
// (unrolled, K steps). The native method (interior_point.h) cannot stand in: its regularisation and its refinement of linear
// solves are decided by the data, so that its iterates are not a function that can be differentiated step by step. It is
// asked first, and what it found is what residuals and distances are compared with, row by row, and where the loop starts:
// steps are the same in whatever units the data are given.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linear/vector.h"
#include "qp/traced_ip_step.h"
#include "qp/traced_program.h"
#include "solve/monitor.h"
#include "solve/recipe.h"
#include "solve/traced_map.h"

namespace onestep::detail {
namespace {

// Where the residual is this small and not halved any more, the loop ends.
constexpr double near_enough = 1e-6, slow = 0.5;
constexpr int user_parts = 4;          // x and the multipliers; behind them s and λ
constexpr int least_iterations = 200;  // to find out whether there is a solution
constexpr double precise = 1e-9;       // and where

class TracedIpMethod final : public Method {
 public:
  std::unique_ptr<Loop> loop() const override;
  std::shared_ptr<Method> with_data(const std::vector<Array>& data) const override {
    auto copy = std::make_shared<TracedIpMethod>(*this);
    copy->bind(data);
    copy->native = native->with_data(data);
    return copy;
  }
  Sizes sizes;
  std::shared_ptr<const Method> native;
};

class TracedIpLoop final : public Loop {
 public:
  explicit TracedIpLoop(const TracedIpMethod& method)
      : method_(method),
        native_(method.native->loop()),
        point_(point_with_extras(*method.step)),
        next_(method.step->size()) {
    const auto count = [](std::int64_t of) { return static_cast<std::size_t>(of); };
    n_ = count(method.sizes.n), m_ = count(method.sizes.m), p_ = count(method.sizes.p);
    all_ = 2 * (p_ + n_), at_slacks_ = 2 * n_ + m_ + p_, at_multipliers_ = at_slacks_ + all_;
    values_.assign(m_ + p_ + n_, 1.0);
    multipliers_ = values_;
  }

  void solve(std::span<const Array> theta, const SolveOptions& options, Run& run) override {
    Monitor monitor(options, run);
    run_ = &run;
    if (!has_solution(theta, options, run)) return;
    point_->bind(theta);
    read_native_solution();
    const auto has_arrived = [&] { return is_solution(run.status) && reached_the_same(options, run); };
    // Any start will do, since none is differentiated.
    if (is_solution(native_run_.status)) {
      start_near_solution(run);
      follow(options, run, monitor);
      if (run.status == Status::cancelled || run.status == Status::time_limit || has_arrived()) return;
      monitor.start_again();
    }
    start_at_zero(run);
    follow(options, run, monitor);
    if (is_solution(run.status) && !has_arrived())
      monitor.end(Status::line_search_failed,
                  "the steps that are differentiated did not reach the solution; OneStep and Implicit need no steps");
  }

  // Each entry of x in its own unit: the steps' end is compared with the native solution.
  bool reached_the_same(const SolveOptions& options, const Run& run) const {
    return distance(run) <= std::max(1e-7, 10 * options.tolerance);
  }
  double distance(const Run& run) const {
    double most = 0;
    for (std::size_t j = 0; j < n_; ++j)
      most = std::max(most, std::fabs(run.x[j] - native_run_.x[j]) / values_[m_ + p_ + j]);
    return most;
  }
  // The worst residual or product of slack and multiplier, each relative to what its own row is measured in.
  double error() const {
    const ConstVector r = point_->extra(residuals).subspan(1), off = point_->extra(side_residuals),
                      bound = point_->extra(side_bounds), s = point_->extra(slack), l = point_->extra(multiplier),
                      has = point_->extra(sides);
    double worst = 0;
    const auto see = [&](double e) { worst = std::isnan(worst) || e <= worst ? worst : e; };
    for (std::size_t j = 0; j < n_; ++j) see(std::fabs(r[j]) / multipliers_[m_ + p_ + j]);
    for (std::size_t i = 0; i < m_; ++i) see(std::fabs(r[n_ + i]) / values_[i]);
    for (std::size_t i = 0; i < all_; ++i) {
      if (has[i] == 0) continue;
      const std::size_t c = constraint(i);
      const double value = std::max(values_[c], std::fabs(bound[i]));
      see(std::fabs(off[i]) / value);
      see(s[i] / value * (l[i] / multipliers_[c]));
    }
    return worst;
  }

  // How far the constraints are from being active or not: the worst ratio of slack and multiplier.
  double indecision() const {
    const ConstVector s = point_->extra(slack), l = point_->extra(multiplier), has = point_->extra(sides);
    double most = 0;
    for (std::size_t i = 0; i < all_; ++i) {
      const std::size_t c = constraint(i);
      const double a = s[i] / values_[c], b = l[i] / multipliers_[c];
      if (has[i] != 0) most = std::max(most, std::min(a, b) / std::max(a, b));
    }
    return most;
  }

  void follow(const SolveOptions& options, Run& run, Monitor& monitor) {
    // A small complementarity gap leaves x far from the solution where the objective is flat, or where strict
    // complementarity nearly fails: steps go on until it is near, or for so many that none has halved the error or the
    // distance.
    constexpr int patience = 5;
    // Rounding of x is rounding of 1 / indecision of a multiplier.
    const double decided = std::max(1e-8, 1e-15 / least_margin_);
    const double near_native = std::max(1e-8, 10 * options.tolerance);
    const int made = run.statistics.iterations;  // from another start
    run.controls.assign({1, 0, 1, 1});
    run.previous = run.x = run.start;
    std::array<double, 4> controls{};
    double least_error = infinity, least_distance = infinity, total = 0;
    double last_indecision = 1;
    int stalled = 0;
    for (std::size_t i = 0; i < all_; ++i) total += weight(run, i);
    if (total == 0) total = 1;
    for (int k = 1;; ++k) {
      // The predictor, and how far it can go.
      controls = {0, 0, 1, 1};
      const bool factored = point_->apply(run.x, controls, next_);
      ++run.statistics.evaluations;
      ++run.statistics.factorisations;
      const ConstVector s = point_->extra(slack), l = point_->extra(multiplier), has = point_->extra(sides);
      const double mu = product(s, l, has) / total, objective = point_->extra(residuals)[0], error = this->error();
      if (!std::isfinite(error))
        return monitor.end(k == 1 ? Status::not_finite : Status::diverged, fmt::format("in iteration {}", k));
      const double distance = this->distance(run);
      const bool near = distance <= near_native && last_indecision <= decided,
                 gains = error <= slow * least_error || distance <= slow * least_distance;
      last_indecision = indecision();
      stalled = gains ? 0 : stalled + 1;
      least_error = std::min(least_error, error);
      if (k > 1) least_distance = std::min(least_distance, distance);
      // One more step would use a nearly singular matrix without improving the residual.
      const bool ends = k > 1 && (near || !factored || stalled > patience);
      if (ends && error <= options.tolerance) return monitor.end(Status::converged);
      if (ends && error <= near_enough && !gains)
        return monitor.end(Status::rounding_reached, fmt::format("the residual is {:.1e}", error));
      if (!factored) return monitor.end(Status::singular, fmt::format("in iteration {}", k));
      std::ranges::copy(run.x, run.previous.begin());
      const double affine_primal = longest(s, point_->extra(slack_step), has, 1),
                   affine_dual = longest(l, point_->extra(multiplier_step), has, 1);
      double reached = 0;
      for (std::size_t i = 0; i < s.size(); ++i)
        if (has[i] != 0)
          reached += (s[i] + affine_primal * point_->extra(slack_step)[i]) *
                     (l[i] + affine_dual * point_->extra(multiplier_step)[i]);
      const double sigma = mu > 0 ? std::pow(reached / total / mu, 3) : 0;
      // The corrector; the fraction to the boundary nears 1 with the end.
      controls = {1, sigma * mu, 1, 1};
      point_->control(controls, next_);
      const auto step_of = [&](std::size_t at) {
        step_.assign(next_.begin() + static_cast<std::ptrdiff_t>(at),
                     next_.begin() + static_cast<std::ptrdiff_t>(at + s.size()));
        for (std::size_t i = 0; i < s.size(); ++i) step_[i] -= run.previous[at + i];
        return ConstVector(step_);
      };
      const double fraction = std::clamp(1 - mu, 0.99, 1 - 1e-10);
      controls[primal_length] = longest(s, step_of(at_slacks_), has, fraction);
      controls[dual_length] = longest(l, step_of(at_multipliers_), has, fraction);
      point_->control(controls, run.x);
      run.trajectory.record(run.previous, controls);
      run.statistics.iterations = made + k;
      std::ranges::transform(run.x, run.previous, next_.begin(), std::minus<>());
      run.step_before = k > 1 ? run.last_step : 0;
      run.last_step = norm(next_);
      if (options.history) run.statistics.history.push_back(error);
      if (error <= options.tolerance && k == 1) return monitor.end(Status::converged);  // one step all the same
      if (tell(options, {made + k, run.last_step, 1, objective, std::min(controls[2], controls[3]), 0}))
        return monitor.end(Status::cancelled);
      if (monitor.seconds() > options.time_limit)
        return monitor.end(Status::time_limit, fmt::format("{} s, after {} iterations", options.time_limit, k));
      if (k >= options.max_iterations)  // from this start
        return monitor.end(Status::iteration_limit, fmt::format("{} iterations, the residual is {:.1e}", k, error));
    }
  }
  // The native method has solved the same program.
  AtSolution* reference() override { return native_->at_solution(); }
  // The loop ends at x_k; the last step was made at x_{k-1}.
  Point& last() override {
    if (!std::ranges::equal(point_->where(), run_->previous)) point_->apply(run_->previous, run_->controls, next_);
    return *point_;
  }

 private:
  // What has no solution, or none that is a minimum, the solver that looks for proofs finds out.
  bool has_solution(std::span<const Array> theta, const SolveOptions& options, Run& run) {
    SolveOptions quietly;
    quietly.tolerance = std::min(options.tolerance, precise);
    quietly.max_iterations = std::max(options.max_iterations, least_iterations);
    quietly.time_limit = options.time_limit;
    Run& found = native_run_;
    found.start.assign(method_.native->step->size(), 0.0);
    found.x.resize(found.start.size());
    native_->solve(theta, quietly, found);
    if (found.status != Status::infeasible && found.status != Status::unbounded && found.status != Status::not_convex &&
        found.status != Status::not_finite)
      return true;
    run.x = run.previous = run.start;
    std::ranges::copy(found.x, run.x.begin());
    run.proof = found.proof;
    run.status = found.status;
    run.about = found.about;
    run.statistics.iterations = 0;
    return false;
  }

  std::size_t constraint(std::size_t side) const { return side < 2 * p_ ? m_ + side % p_ : m_ + p_ + (side - 2 * p_) % n_; }
  std::size_t opposite(std::size_t side) const {
    if (side < 2 * p_) return side < p_ ? side + p_ : side - p_;
    return side < 2 * p_ + n_ ? side + n_ : side - n_;
  }
  void read_native_solution() {
    auto& native = dynamic_cast<NativeSolution&>(*native_);
    native.measure_units(values_, multipliers_);
    if (is_solution(native_run_.status)) native.write_optimum(native_run_.x);
    constexpr double least = 1e-150, most = 1e150;
    for (std::vector<double>* units : {&values_, &multipliers_})
      for (double& e : *units) e = e >= least && e <= most ? e : 1;
  }
  double weight(const Run& run, std::size_t side) const { return run.start[at_multipliers_ + all_ + side]; }

  // x = 0, slacks that fit it where it is inside, multipliers that make each product its unit.
  void start_at_zero(Run& run) {
    least_margin_ = 1;
    begin_start(run, false);
    const ConstVector has = point_->extra(sides), bound = point_->extra(side_bounds);
    for (std::size_t i = 0; i < all_; ++i) {
      if (has[i] == 0) continue;
      const double s = std::max(bound[i], values_[constraint(i)]);
      run.start[at_slacks_ + i] = s;
      run.start[at_multipliers_ + i] = weight(run, i) / s;
    }
  }
  // At the solution of the native method, with the smaller of slack and multiplier of each constraint not quite 0: so far
  // from it that the first steps contract errors, so near that none leads elsewhere, however small the larger one is.
  void start_near_solution(Run& run) {
    constexpr double away = 1e-2, least = 1e-10;
    least_margin_ = 1;
    begin_start(run, true);
    const ConstVector has = point_->extra(sides), residual = point_->extra(side_residuals),
                      bound = point_->extra(side_bounds);
    const double* const z = native_run_.x.data() + n_ + m_;
    for (std::size_t i = 0; i < all_; ++i) {
      if (has[i] == 0) continue;
      const std::size_t c = constraint(i);
      const double sign = (i < 2 * p_ ? i < p_ : i < 2 * p_ + n_) ? 1 : -1;
      double s = (1 - residual[i]) / values_[c], l = sign * z[c - m_] / multipliers_[c];
      if (bound[i] == -bound[opposite(i)] && has[opposite(i)] != 0) {
        l = 1 + std::max(0.0, l);  // both sides push: what one has more is the multiplier of the equality
        s = away;
      } else {
        double &larger = s >= l ? s : l, &smaller = s >= l ? l : s;
        larger = std::max(larger, least);
        least_margin_ = std::min(least_margin_, larger);
        smaller = away * std::min(larger, 1 / larger);
      }
      run.start[at_slacks_ + i] = s * values_[c];
      run.start[at_multipliers_ + i] = l * multipliers_[c];
      run.start[at_multipliers_ + all_ + i] = s * l * values_[c] * multipliers_[c];
    }
  }
  // Weights and units; x and multipliers of the native solution or zeros; s = 1, λ = 0.
  void begin_start(Run& run, bool at_solution) {
    std::ranges::fill(run.start, 0.0);
    if (at_solution) std::ranges::copy(native_run_.x, run.start.begin());
    const Vector slacks = Vector(run.start).subspan(at_slacks_, all_),
                 weights = Vector(run.start).subspan(at_multipliers_ + all_, all_), units = Vector(run.start).last(n_ + m_);
    std::ranges::fill(slacks, 1.0);
    const auto unit = [](double square) { return std::exp2(std::round(0.5 * std::log2(square))); };
    for (std::size_t j = 0; j < n_; ++j) units[j] = unit(values_[m_ + p_ + j] / multipliers_[m_ + p_ + j]);
    for (std::size_t i = 0; i < m_; ++i) units[n_ + i] = unit(multipliers_[i] / values_[i]);
    point_->apply(run.start, std::array<double, 4>{0, 0, 1, 1}, next_);
    const ConstVector has = point_->extra(sides);
    for (std::size_t i = 0; i < all_; ++i) weights[i] = has[i] * values_[constraint(i)] * multipliers_[constraint(i)];
  }
  static double product(ConstVector a, ConstVector b, ConstVector has) {
    double total = 0;
    for (std::size_t i = 0; i < a.size(); ++i) total += has[i] * a[i] * b[i];
    return total;
  }
  // The longest step up to 1 that keeps v + step dv positive, but for a fraction of the way.
  static double longest(ConstVector v, ConstVector dv, ConstVector has, double fraction) {
    double most = 1;
    for (std::size_t i = 0; i < v.size(); ++i)
      if (has[i] != 0 && dv[i] < 0) most = std::min(most, -fraction * v[i] / dv[i]);
    return most;
  }

  const TracedIpMethod& method_;
  std::unique_ptr<Loop> native_;
  Run native_run_;
  std::unique_ptr<ExtraPoint> point_;
  Run* run_ = nullptr;
  std::size_t n_, m_, p_, all_, at_slacks_, at_multipliers_;  // all sides; where s and λ begin in the state
  std::vector<double> values_, multipliers_;                  // what those of each constraint are measured in
  double least_margin_ = 1;                                   // by which a constraint is active or not, as far as is known
  std::vector<double> next_, step_;
};

std::unique_ptr<Loop> TracedIpMethod::loop() const { return std::make_unique<TracedIpLoop>(*this); }

std::vector<Shape> state_shapes(const Sizes& s) {
  const std::int64_t all = 2 * s.p + 2 * s.n;
  return {{s.n}, {s.m}, {s.p}, {s.n}, {all}, {all}, {all}, {s.n + s.m}};
}

}  // namespace

Recipe traced_interior_point(const Recipe& native) {
  Recipe recipe;
  recipe.name = native.name;
  recipe.lambda = native.lambda;
  recipe.tracing = native.tracing;
  recipe.options = native.options;
  recipe.state_of = [](std::span<const Expr> given) { return state_shapes(sizes_of(program_of(given))); };
  recipe.make = [make_native = native.make](const Problem& problem) {
    auto method = std::make_shared<TracedIpMethod>();
    Problem of_native = problem;
    of_native.state.resize(user_parts);
    method->native = make_native(of_native);
    method->shown = user_parts;
    auto step = std::make_shared<TracedMap>(
        problem.state, problem.parameters, problem.data,
        std::vector<Control>{Control::within_step, Control::within_step, Control::within_step, Control::within_step},
        [&](const Expr& w, std::span<const Expr> theta, std::span<const Expr> controls) {
          const TracedProgram program = program_of(problem.lambda.call(theta));
          method->sizes = sizes_of(program);
          return trace_ip_step(program, method->sizes, w, controls);
        },
        false, problem.context);
    step->infinite_parameters = true;
    method->step = step;
    method->superlinear = true;
    method->starts_itself = true;
    return method;
  };
  return recipe;
}

}  // namespace onestep::detail
