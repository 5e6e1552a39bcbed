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
#include "solve/recipe.h"
#include "solve/traced_map.h"
#include "solve/trial.h"

namespace onestep::detail {
namespace {

void zero(Vector v) { std::ranges::fill(v, 0.0); }

// Eisenstat and Walker's second choice: a residual of γ (‖g‖ / ‖g before‖)^α leaves the next step as good as this one makes
// it, and does not fall faster than its own power while it is large.
constexpr double forcing_gamma = 0.9, forcing_alpha = 1.618033988749895, least_exact = 0.5, forcing_matters = 0.1;
// No step is solved to more than this: a step that is a millionth of the last is as fast as anybody wants. The last one is
// solved to no less, so that its length can be believed.
constexpr double most_exact = 1e-6;
constexpr double out_of_sight = 100;
// A derivative's linear system over the tolerance of the solve: the derivative of the step is no more exact than the step is
// short.
constexpr double derivatives_over_solve = 0.1, roughest_derivative = 0.01;
// A short step is taken in full even where rounding of f hides that it is good, but not more often than this: the next
// steps tell more about it than a line search does.
constexpr int unsearched_allowed = 10;
// What rounding leaves, about.
constexpr double as_exact_as_possible = 1e-15;

class NewtonCgMap final : public Map {
 public:
  std::unique_ptr<Point> point(bool derivatives) const override;
  std::string not_finite_constant() const override { return gradient->not_finite_constant(); }
  std::shared_ptr<const Map> with_data(const std::vector<Array>& data) const override { return with(data); }
  std::shared_ptr<const NewtonCgMap> with(const std::vector<Array>& data) const {
    auto copy = std::make_shared<NewtonCgMap>(*this);
    copy->gradient = gradient->with(data);
    copy->curvature = curvature->with(data);
    return copy;
  }

  std::shared_ptr<const TracedMap> gradient;   // g, with f beside it
  std::shared_ptr<const TracedMap> curvature;  // S; its last parameter is d
  NewtonCgOptions how;
};

/// The exact step at a point: g and products with H there, d as exactly as it has been solved for, and the derivatives.
class NewtonCgPoint final : public Point, private Inverse, private InnerSolve {
 public:
  explicit NewtonCgPoint(const NewtonCgMap& map)
      : map_(map),
        gradient_(point_with_extras(*map.gradient)),
        tolerance_(map.how.derivative_tolerance),
        g_(map.size()),
        d_(map.size()),
        u_(map.size()),
        w_(map.size()),
        rhs_(map.size()),
        with_d_(map.parameters.size() + 1) {
    system_.product = [this](ConstVector v, Vector out) { product(v, out); };
    system_.symmetric = true;
    system_.precondition = map.how.preconditioner;
    for (const Input& p : map.parameters) more_.emplace_back(static_cast<std::size_t>(p.shape.size()));
    more_spans_.assign(more_.begin(), more_.end());
    more_spans_.emplace_back();  // that of d is not wanted
  }

  void bind(std::span<const Array> theta) override {
    gradient_->bind(theta);
    std::ranges::copy(theta, with_d_.begin());
    forget();
  }

  // What the loop needs: f and g at x; then d with H d = g to so much, going on from what was reached.
  void evaluate(ConstVector x) {
    gradient_->apply(x, {}, g_);
    forget();
    began_ = exact_ = false;
  }
  double value() const { return gradient_->extra(0)[0]; }
  ConstVector gradient() const { return g_; }
  ConstVector direction() const { return d_; }

  /// False where H was found not to be positive definite: d is then what was found before that, or along g.
  bool solve_direction(double to) {
    const double size = norm(g_);
    if (size == 0) {
      zero(d_);
      exact_ = true;
      return is_convex_somewhere();
    }
    if (!began_) cg_.begin(g_, d_);
    began_ = true;
    const auto ended = cg_.run(system_, to * size, map_.how.max_products, false, d_);
    left_ = cg_.residual() / size;
    forget();
    if (ended != ConjugateGradients::Ended::not_positive && ended != ConjugateGradients::Ended::broken) return true;
    if (cg_.products() > 1) return false;
    // Along g, as far as it would be if the curvature had the other sign, but not out of sight where there is almost none.
    const double farthest = out_of_sight * (1 + norm(where()));
    const double wanted = size * size * size / std::fabs(cg_.curvature());
    const double scale = (wanted < farthest ? wanted : farthest) / size;
    std::ranges::transform(g_, d_.begin(), [&](double e) { return e * scale; });
    return false;
  }

  bool apply(ConstVector x, ConstVector, Vector y) override {
    evaluate(x);
    return control({}, y);
  }
  // The exact step. How exact d is matters only as much as the step is long.
  bool control(ConstVector, Vector y) override {
    const ConstVector x = gradient_->where();
    const double length = norm(d_);
    exact_ = exact_ || (began_ && left_ * length <= tolerance_ * std::max(length, norm(x)));
    if (!exact_) {
      linear(g_, d_, tolerance_);
      began_ = false;
      exact_ = true;
      forget();
    }
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i] - d_[i];
    return all_finite(y);
  }
  ConstVector where() const override { return gradient_->where(); }

  void jvp_x(ConstVector dx, Vector out) override {
    if (!has_curvature()) return zero(out);
    curvature_->jvp_x(dx, w_);
    solve(w_, out);
  }
  void vjp_x(ConstVector c, Vector out) override {
    if (!has_curvature()) return zero(out);
    solve(c, w_);
    curvature_->vjp_x(w_, out);
  }
  void jvp_theta(std::span<const Array> dtheta, Vector out) override {
    gradient_->jvp_theta(dtheta, w_);
    if (has_curvature()) {
      std::ranges::copy(dtheta, d_theta_.begin());
      curvature_->jvp_theta(d_theta_, out);
      for (std::size_t i = 0; i < w_.size(); ++i) w_[i] -= out[i];
    }
    for (double& e : w_) e = -e;
    solve(w_, out);
  }
  void vjp_theta(ConstVector c, std::span<const Vector> out) override {
    solve(c, w_);
    gradient_->vjp_theta(w_, out);
    const bool more = has_curvature();
    if (more) curvature_->vjp_theta(w_, more_spans_);
    for (std::size_t p = 0; p < out.size(); ++p)
      for (std::size_t i = 0; i < out[p].size(); ++i) out[p][i] = (more ? more_[p][i] : 0) - out[p][i];
  }

  Inverse* inverse() override { return this; }
  InnerSolve* inner_solve() override { return this; }
  Work work() const override { return {.products = products_}; }

  void solve(bool, Vector r, double residual) override {
    if (residual == 0) return solve(r, r);
    solved_ = false;
    std::ranges::copy(r, rhs_.begin());
    linear(rhs_, u_, residual);
    std::ranges::copy(u_, r.begin());
  }
  bool is_factored() const override { return false; }
  double residual() const override { return residual_; }
  double tolerance() const override { return tolerance_; }
  // A small residual says little about d where H is ill-conditioned. What a second solve makes of the residual is seen to be
  // small beside d, and added to it; the rest shrinks as it did. The residual is spread over the directions that matter, so
  // that the second solve may be rough.
  double solve_precisely() override {
    constexpr double trusted = 0.5, rough = 1e-3;
    tolerance_ = as_exact_as_possible;
    const Status first = linear(g_, d_, tolerance_).status;
    product(d_, w_);
    for (std::size_t i = 0; i < w_.size(); ++i) w_[i] = g_[i] - w_[i];
    const Status second = linear(w_, u_, rough).status;
    for (std::size_t i = 0; i < d_.size(); ++i) d_[i] += u_[i];
    began_ = false;
    exact_ = true;
    forget();
    const double length = norm(d_), correction = norm(u_);
    if (norm(w_) == 0) return length;
    return is_solution(first) && is_solution(second) && correction <= trusted * length
               ? length + correction / (1 - correction / length)
               : std::numeric_limits<double>::infinity();
  }

  /// Derivatives from now on: as exact as was asked for, but not more than a tenth of what the step's length is to be.
  void follow(double tolerance) {
    const double wanted =
        std::max(map_.how.derivative_tolerance, std::min(derivatives_over_solve * tolerance, roughest_derivative));
    if (wanted != tolerance_) forget();
    tolerance_ = wanted;
  }

  void product(ConstVector v, Vector out) {
    ++products_;
    if (map_.gradient->no_jvp.empty())
      gradient_->jvp_x(v, out);
    else
      gradient_->vjp_x(v, out);
  }

 private:
  // x or d is another: what was derived from it is not valid any more.
  void forget() {
    solved_ = false;
    curvature_ready_ = false;
  }

  LinearResult linear(ConstVector b, Vector x, double tolerance) {
    system_.tolerance = tolerance;
    system_.max_iterations = map_.how.max_products;
    return linear_.solve(system_, b, x);
  }

  // H⁻¹b. Of one cotangent several derivatives are asked for: the last system is kept.
  void solve(ConstVector b, Vector out) {
    if (!solved_ || !std::ranges::equal(b, rhs_)) {
      std::ranges::copy(b, rhs_.begin());
      residual_ = linear(rhs_, u_, tolerance_).residual;
      solved_ = true;
    }
    std::ranges::copy(u_, out.begin());
  }

  // S at x with this d; false where d is zero, and S with it.
  bool has_curvature() {
    if (!curvature_) {
      curvature_ = map_.curvature->point(true);
      for (const Input& p : map_.parameters) d_theta_.push_back(zeros(p.shape));
      d_theta_.push_back(zeros({static_cast<std::int64_t>(d_.size())}));
      with_d_.back() = Array::view(d_);
      at_.resize(d_.size());
    }
    if (!curvature_ready_) {
      curved_ = std::ranges::any_of(d_, [](double e) { return e != 0; });
      if (curved_) {
        curvature_->bind(with_d_);
        curvature_->apply(gradient_->where(), {}, at_);
      }
      curvature_ready_ = true;
    }
    return curved_;
  }

  // Where the gradient is zero it says nothing about H: a direction with a part of every eigenvector does.
  bool is_convex_somewhere() {
    constexpr int enough = 100;
    constexpr double seen_all = 1e-8;  // a rougher solve may end before it meets a single negative eigenvalue
    fill_random(rhs_);
    solved_ = false;
    began_ = false;
    cg_.begin(rhs_, u_);
    const auto ended = cg_.run(system_, seen_all * norm(rhs_), enough, false, u_);
    return ended == ConjugateGradients::Ended::reached || ended == ConjugateGradients::Ended::at_the_limit;
  }

  const NewtonCgMap& map_;
  std::unique_ptr<ExtraPoint> gradient_;
  std::unique_ptr<Point> curvature_;
  double tolerance_, left_ = 1, residual_ = 0;
  bool began_ = false, exact_ = false;  // cg_ is at d_; d_ is as exact as the derivatives need it
  bool solved_ = false, curvature_ready_ = false, curved_ = false;
  int products_ = 0;
  LinearSystem system_;
  ConjugateGradients cg_;
  LinearSolver linear_;
  std::vector<double> g_, d_, u_, w_, rhs_, at_;  // H u = rhs when solved_
  std::vector<Array> with_d_, d_theta_;
  std::vector<std::vector<double>> more_;
  std::vector<Vector> more_spans_;
};

std::unique_ptr<Point> NewtonCgMap::point(bool) const { return std::make_unique<NewtonCgPoint>(*this); }

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
      if (gradient_before > 0) {
        const double before = forcing_gamma * std::pow(forcing, forcing_alpha);
        forcing = forcing_gamma * std::pow(gradient / gradient_before, forcing_alpha);
        if (before > forcing_matters) forcing = std::max(forcing, before);
        forcing = std::clamp(forcing, most_exact, least_exact);
      }
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
      const double slope = dot(point_.gradient(), direction);
      const Monitor::NewtonStep newton{full_step, norm(trial_), slope / full_step / full_step};
      // Steps that are cut short converge linearly whatever the Hessian is.
      if (monitor.is_last(newton)) {
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
      if (!found_length || (!full_is_good && monitor.is_lost(length * full_step, newton.size))) {
        std::ranges::copy(run.previous, run.x.begin());
        if (monitor.is_rounding(full_step)) return monitor.end_at_rounding(full_step, newton.size);
        return monitor.end(Status::line_search_failed, fmt::format("in iteration {}", run.statistics.iterations + 1));
      }
      run.trajectory.record(run.previous, {});
      std::ranges::copy(trial_, run.x.begin());
      monitor.took(newton, length);
      if (monitor.record_and_check(length * full_step, norm(run.x), reached, length, Monitor::Converged::no)) return;
      if (!full_is_good || monitor.has_left_point()) is_evaluated = evaluate(run.x);
      if (!is_evaluated) return monitor.end(Status::not_finite, "the derivatives at an iterate are not finite");
    }
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
        true);
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
        true);
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
    method->objective.emplace(map->size(), parameters, problem.data, f);
    method->superlinear = true;
    method->not_unrolled =
        "the steps of newton_cg are cut short by its linear solver and have no derivative of their own; KStep{K} "
        "differentiates the last K as exact Newton steps, OneStep{} the last one, Implicit{} the solution";
    return method;
  };
  return solver_of(std::move(recipe));
}

}  // namespace onestep::detail
