// Newton's method without the Hessian: x - H⁻¹g by conjugate gradients on products with H. The loop cuts the linear solves
// short; the step that is differentiated is the exact one. With d = H⁻¹g held constant and S(x, θ) = H(x, θ) d,
//
//   B = -H⁻¹ ∂(g - S)/∂θ,   A = H⁻¹ ∂S/∂x
//
// so that all derivatives of the step are those of g and of S, and one linear system each.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linear/krylov.h"
#include "linear/random.h"
#include "onestep/diff.h"
#include "solve/line_search.h"
#include "solve/monitor.h"
#include "solve/newton_cg_map.h"
#include "solve/recipe.h"
#include "solve/traced_map.h"
#include "solve/trial.h"

namespace onestep::detail {
namespace {

// Eisenstat and Walker's second choice: a residual of γ (‖g‖ / ‖g before‖)^α leaves the next step as good as this one makes
// it, and does not fall faster than its own power while it is large.
constexpr double forcing_gamma = 0.9, forcing_alpha = 1.618033988749895, least_exact = 0.5, forcing_matters = 0.1;
// No step is solved to more than this: a step that is a millionth of the last is fast enough. The last one is solved to no
// less, so that its length can be believed.
constexpr double most_exact = 1e-6;
// A short step is taken in full even where rounding of f hides that it is good, but not more often than this: the next
// steps tell more about it than a line search does.
constexpr int unsearched_allowed = 10;
class NewtonCgMethod final : public Method {
 public:
  std::unique_ptr<Loop> loop() const override;
  std::shared_ptr<Method> with_data(const std::vector<Array>& data) const override {
    auto copy = std::make_shared<NewtonCgMethod>(*this);
    copy->step = copy->map = map->with(data);
    if (!users_equation) copy->equation = copy->map->gradient;
    copy->objective->bind(data);
    return copy;
  }
  std::shared_ptr<const NewtonCgMap> map;  // the step
  std::optional<TrialFunction> objective;
};

class NewtonCgLoop final : public Loop {
 public:
  explicit NewtonCgLoop(const NewtonCgMethod& method)
      : first_residual_(method.map->how.first_residual),
        point_(*method.map),
        objective_(*method.objective, method.step->size(), method.step->parameters),
        trial_(method.step->size()) {}

  void solve(std::span<const Array> theta, const SolveOptions& options, Run& run) override {
    Monitor monitor(options, run);
    point_.bind(theta);
    point_.follow(options.tolerance);
    objective_.bind(theta);
    run.controls.clear();
    run.x = run.start;
    run.previous = run.start;
    run_ = &run;
    monitor.evaluate_with([this](ConstVector x, Vector next) { return point_.apply(x, {}, next); });
    const int products = point_.work().products;
    iterate(monitor, options);
    run.statistics.products = point_.work().products - products;
  }

  // The last step was made at x_{k-1}; where the loop ended for another reason, that has to be gone back to.
  Point& last() override {
    if (!std::ranges::equal(point_.where(), run_->previous)) point_.apply(run_->previous, {}, trial_);
    return point_;
  }
  Work work() const override { return point_.work(); }

 private:
  void iterate(Monitor& monitor, const SolveOptions& options) {
    Run& run = *run_;
    const std::size_t n = run.x.size();
    if (!evaluate(run.x)) return monitor.end(Status::not_finite, "the objective has no finite value at the start");
    double forcing = first_residual_, gradient_before = 0;
    int unsearched = 0;
    for (;;) {
      const double value = point_.value(), gradient = norm(point_.gradient());
      std::ranges::copy(run.x, run.previous.begin());
      if (gradient_before > 0) forcing = next_forcing(forcing, gradient, gradient_before);
      gradient_before = gradient;
      bool is_convex = point_.solve_direction(forcing);
      const ConstVector direction = point_.direction();
      const auto go = [&](double length) {
        for (std::size_t i = 0; i < n; ++i) trial_[i] = run.previous[i] - length * direction[i];
      };
      go(1);
      double full_step = norm(direction);
      if (is_convex && forcing > most_exact && monitor.is_short(full_step, norm(trial_))) {
        is_convex = point_.solve_direction(most_exact);
        go(1);
        full_step = norm(direction);
      }
      if (!is_convex) ++run.statistics.shifts;
      double slope = dot(point_.gradient(), direction);
      Monitor::NewtonStep newton{full_step, norm(trial_), slope / full_step / full_step};
      // Steps that are cut short converge linearly whatever the Hessian is. A short one may have missed variables in which
      // the objective is flat beside others: what conjugate gradients would do next tells.
      const bool may_end = monitor.check_last(newton, direction, trial_);
      const bool ends = may_end && monitor.is_short(point_.go_on(), newton.size);
      go(1);
      if (may_end && !ends) {
        full_step = norm(direction);
        slope = dot(point_.gradient(), direction);
        newton = {full_step, norm(trial_), slope / full_step / full_step};
      }
      if (ends) {
        run.trajectory.record(run.previous, {});
        std::ranges::copy(trial_, run.x.begin());
        monitor.record_and_check(full_step, newton.size, value, 1, Monitor::Converged::yes);
        if (!is_convex) monitor.end(Status::singular, "at the solution the Hessian is not positive definite");
        return;
      }
      // Most often the full step is good, and the next iteration needs the gradient at its end.
      const bool is_last = run.statistics.iterations + 1 >= options.max_iterations;
      bool is_evaluated = false;
      double length = 1, reached = 0;
      if (is_last) {
        reached = objective(trial_);
      } else {
        is_evaluated = evaluate(trial_);
        reached = point_.value();
      }
      const Armijo armijo(value, slope);
      bool full_is_good =
          armijo.enough(length, reached) || (is_evaluated && is_convex && full_step <= hides_change * newton.size &&
                                             norm(point_.gradient()) <= 0.5 * gradient);
      if (!full_is_good && is_evaluated && monitor.is_negligible(full_step, newton.size)) {
        full_is_good = ++unsearched <= unsearched_allowed;
        if (!full_is_good && monitor.is_rounding(full_step)) return monitor.end_at_rounding(full_step, newton.size);
      }
      const bool found_length = full_is_good || armijo.shorten(length, reached, [&](double shorter) {
        go(shorter);
        ++run.statistics.backtracks;
        return objective(trial_);
      });
      if (!found_length || (!full_is_good && monitor.is_lost(length * full_step, norm(trial_)))) {
        std::ranges::copy(run.previous, run.x.begin());
        if (monitor.is_rounding(full_step)) return monitor.end_at_rounding(full_step, newton.size);
        return monitor.end(Status::line_search_failed, fmt::format("in iteration {}", run.statistics.iterations + 1));
      }
      run.trajectory.record(run.previous, {});
      std::ranges::copy(trial_, run.x.begin());
      monitor.record_newton_step(newton, length);
      if (monitor.record_and_check(length * full_step, norm(run.x), reached, length, Monitor::Converged::no)) return;
      if (!full_is_good || monitor.take_left_point()) is_evaluated = evaluate(run.x);
      if (!is_evaluated) return monitor.end(Status::not_finite, "the derivatives at an iterate are not finite");
    }
  }

  static double next_forcing(double forcing, double gradient, double gradient_before) {
    const double before = forcing_gamma * std::pow(forcing, forcing_alpha);
    forcing = forcing_gamma * std::pow(gradient / gradient_before, forcing_alpha);
    if (before > forcing_matters) forcing = std::max(forcing, before);
    return std::clamp(forcing, most_exact, least_exact);
  }
  bool evaluate(ConstVector x) {
    ++run_->statistics.evaluations;
    point_.evaluate(x);
    return std::isfinite(point_.value()) && all_finite(point_.gradient());
  }
  double objective(ConstVector x) {
    ++run_->statistics.evaluations;
    return objective_(x);
  }

  double first_residual_;
  NewtonCgPoint point_;
  Trial objective_;
  Run* run_ = nullptr;
  std::vector<double> trial_;
};

std::unique_ptr<Loop> NewtonCgMethod::loop() const { return std::make_unique<NewtonCgLoop>(*this); }

void check(const NewtonCgOptions& how) {
  const auto is_part = [](double part) { return part > 0 && part < 1; };
  if (!is_part(how.derivative_tolerance))
    throw MisuseError(
        fmt::format("[newton_cg] derivative_tolerance = {}: it must be between 0 and 1", how.derivative_tolerance));
  if (!is_part(how.first_residual))
    throw MisuseError(fmt::format("[newton_cg] first_residual = {}: it must be between 0 and 1", how.first_residual));
  if (how.max_products < 1)
    throw MisuseError(fmt::format("[newton_cg] max_products = {}: at least one is needed", how.max_products));
}

}  // namespace

Solver make_newton_cg(const Body& objective, const NewtonCgOptions& how, const SolveOptions& options) {
  detail::check(options);
  check(how);
  Recipe recipe;
  recipe.name = "newton_cg";
  recipe.orders = 2;
  recipe.lambda = objective;
  recipe.options = options;
  recipe.superlinear = true;
  recipe.make = [how](const Problem& problem) {
    const std::vector<Shape>& state = problem.state;
    const std::vector<Input>& parameters = problem.parameters;
    const auto f = [lambda = problem.lambda, state](const Expr& x, std::span<const Expr> theta) {
      return call_objective("newton_cg", lambda, x, state, theta);
    };
    auto map = std::make_shared<NewtonCgMap>();
    map->state = state;
    map->parameters = parameters;
    map->how = how;
    const auto gradient = std::make_shared<TracedMap>(
        state, parameters, problem.data, std::vector<Control>{},
        [&](const Expr& x, std::span<const Expr> theta, std::span<const Expr>) {
          const Expr value = f(x, theta);
          return TracedStep{grad(value, x), {value}, {}};
        },
        true, problem.context);
    if (!gradient->no_jvp.empty() && !gradient->no_vjp.empty())
      throw MisuseError(fmt::format("[newton_cg] products with the Hessian are missing: {}", gradient->no_jvp));
    std::vector<Input> with_d = parameters;
    with_d.emplace_back("d", Shape{static_cast<std::int64_t>(map->size())});
    const auto curvature = std::make_shared<TracedMap>(
        state, with_d, problem.data, std::vector<Control>{},
        [&](const Expr& x, std::span<const Expr> theta, std::span<const Expr>) {
          std::vector<Expr> of_f(theta.begin(), theta.end());  // all but d, which stands between parameters and data
          of_f.erase(of_f.begin() + static_cast<std::ptrdiff_t>(parameters.size()));
          const Expr g = grad(f(x, of_f), x), &d = theta[parameters.size()];
          return TracedStep{gradient->no_jvp.empty() ? jvp(g, x, d) : vjp(g, x, d), {}, {}};
        },
        true, problem.context);
    map->no_jvp = gradient->no_jvp.empty() ? curvature->no_jvp : gradient->no_jvp;
    map->no_vjp = gradient->no_vjp.empty() ? curvature->no_vjp : gradient->no_vjp;
    map->smooth = gradient->smooth;
    map->costs = {.apply = gradient->costs.apply,
                  .jvp_x = curvature->costs.jvp_x,
                  .vjp_x = curvature->costs.vjp_x,
                  .jvp_theta = gradient->costs.jvp_theta + curvature->costs.jvp_theta,
                  .vjp_theta = gradient->costs.vjp_theta + curvature->costs.vjp_theta,
                  .product = gradient->costs.jvp_x};
    map->gradient = gradient;
    map->curvature = curvature;
    auto method = std::make_shared<NewtonCgMethod>();
    method->map = map;
    method->step = map;
    method->equation = gradient;
    method->objective.emplace(map->size(), parameters, problem.data, problem.context, f);
    method->superlinear = true;
    method->not_unrolled =
        "the steps of newton_cg are cut short by its linear solver and have no derivative of their own; KStep{K} "
        "differentiates the last K as exact Newton steps, OneStep{} the last one, Implicit{} the solution";
    return method;
  };
  return solver_of(std::move(recipe));
}

}  // namespace onestep::detail
