// Gradient descent: x - α∇f(x), with α given, measured, or found by backtracking, and with or without momentum.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "onestep/diff.h"
#include "solve/descent.h"
#include "solve/loops.h"
#include "solve/monitor.h"
#include "solve/recipe.h"
#include "solve/traced_map.h"

namespace onestep::detail {
namespace {

/// α is decided once, from the eigenvalues of the Hessian at the start.
class ConstantDescent final : public FixedPointLoop {
 public:
  explicit ConstantDescent(const DescentMethod& method)
      : FixedPointLoop(*method.step, {method.size.alpha}), method_(method), curvature_(method) {
    if (measures()) curvature_.prepare();
  }
  void solve(std::span<const Array> theta, const SolveOptions& options, Run& run) override {
    descend(theta, options, run);
    if (curvature_.leave_stationary_start(theta, run)) {
      descend(theta, options, run);
      note_left_start(run);
    }
    curvature_.refuse_lost_steps(theta, options.tolerance, run);
    check_domain(theta, run);
  }

 private:
  void descend(std::span<const Array> theta, const SolveOptions& options, Run& run) {
    if (method_.size.kind != GradientStep::Kind::fixed) controls_[0] = step_size(theta, run);
    FixedPointLoop::solve(theta, options, run);
    run.statistics.evaluations += measured_;
  }
  bool measures() const {
    const GradientStep& s = method_.size;
    return (s.kind == GradientStep::Kind::inverse_smoothness && s.L == 0) ||
           (s.kind == GradientStep::Kind::optimal && (s.L == 0 || s.mu == 0));
  }
  double step_size(std::span<const Array> theta, const Run& run) {
    double mu = method_.size.mu, L = method_.size.L;
    measured_ = 0;
    if (measures()) {
      const Extremes e = curvature_.at_start(theta, run);
      measured_ = e.products;
      if (L == 0) L = std::max(e.largest, -e.smallest);
      if (mu == 0) mu = std::max(e.smallest, 0.0);
    }
    // A function without curvature at the start gives no scale; the loop then says that it diverges.
    if (!(L > 0)) return 1;
    return method_.size.kind == GradientStep::Kind::optimal ? 2 / (mu + L) : 1 / L;
  }

  /// The gradient of log(x) is finite where the logarithm is not: steps may leave the domain unseen.
  void check_domain(std::span<const Array> theta, Run& run) {
    if (!is_solution(run.status)) return;
    const std::size_t n = method_.gradient->size();
    if (!objective_) objective_.emplace(*method_.objective, n, method_.step->parameters);
    objective_->bind(theta);
    ++run.statistics.evaluations;
    if (std::isfinite((*objective_)(ConstVector(run.x).first(n)))) return;
    run.status = Status::not_finite;
    run.about = "the objective at x is not finite: the steps left its domain; take shorter ones, or backtracking";
  }

  const DescentMethod& method_;
  Curvature curvature_;
  std::optional<Trial> objective_;
  int measured_ = 0;
};

}  // namespace

std::unique_ptr<Loop> DescentMethod::loop() const {
  if (size.kind == GradientStep::Kind::backtracking) return backtracking_descent(*this);
  return std::make_unique<ConstantDescent>(*this);
}

namespace {

void check(const GradientDescent& method) {
  const GradientStep& s = method.step;
  const bool needs_alpha = s.kind == GradientStep::Kind::fixed || s.kind == GradientStep::Kind::backtracking;
  if (needs_alpha && !(s.alpha > 0 && std::isfinite(s.alpha)))
    throw MisuseError(fmt::format("[gradient_descent] the step is {}; it must be positive", s.alpha));
  if (!(s.mu >= 0 && s.L >= 0 && (s.L == 0 || s.mu <= s.L)))
    throw MisuseError(fmt::format("[gradient_descent] mu = {} and L = {}: 0 <= mu <= L is needed (0: measured)", s.mu, s.L));
  const Momentum& m = method.momentum;
  if (m.kind != Momentum::Kind::none && !(m.beta >= 0 && m.beta < 1))
    throw MisuseError(fmt::format("[gradient_descent] momentum {} is not in [0, 1)", m.beta));
  if (m.kind != Momentum::Kind::none && s.kind == GradientStep::Kind::backtracking)
    throw MisuseError("[gradient_descent] backtracking has no momentum here; give a fixed or a measured step");
}

}  // namespace

Solver make_gradient_descent(const Body& objective, const GradientDescent& how, const SolveOptions& options) {
  detail::check(options);
  check(how);
  Recipe recipe;
  recipe.name = "gradient_descent";
  recipe.orders = 2;
  recipe.lambda = objective;
  recipe.options = options;
  const bool has_momentum = how.momentum.kind != Momentum::Kind::none;
  recipe.remembers = has_momentum;
  // With momentum the state is x and what x was before, part by part.
  recipe.lambda_state = [has_momentum](const std::vector<Shape>& state) {
    if (!has_momentum) return state;
    const auto half = state.begin() + static_cast<std::ptrdiff_t>(state.size() / 2);
    if (state.size() % 2 != 0 || !std::equal(state.begin(), half, half))
      throw MisuseError("[gradient_descent] with momentum the start is x0, or x0 and what it was before: {x0, x0}");
    return std::vector<Shape>(state.begin(), half);
  };
  recipe.make = [x_parts_of = recipe.lambda_state, has_momentum, how](const Problem& problem) {
    auto method = std::make_shared<DescentMethod>();
    method->size = how.step;
    method->remembers = has_momentum;
    const std::vector<Shape> x_parts = x_parts_of(problem.state);
    const auto f = [lambda = problem.lambda, x_parts](const Expr& x, std::span<const Expr> theta) {
      return call_objective("gradient_descent", lambda, x, x_parts, theta);
    };
    // Traced alone: parts of a slice of the state are slices of the state itself, and f is then not made from the slice.
    const auto gradient_at = [&f](const Expr& at, std::span<const Expr> theta) {
      std::vector<Input> inputs{at.shape()};
      std::vector<Expr> arguments{at};
      for (const Expr& t : theta) {
        inputs.emplace_back(t.shape());
        arguments.push_back(t);
      }
      const Function gradient(
          inputs, [&](std::span<const Expr> in) { return std::vector<Expr>{grad(f(in[0], in.subspan(1)), in[0])}; });
      return gradient(arguments).front();
    };
    const auto n = static_cast<std::int64_t>(flat_size(x_parts));
    const bool backtracks = how.step.kind == GradientStep::Kind::backtracking;
    method->step = std::make_shared<TracedMap>(
        problem.state, problem.parameters, problem.data,
        std::vector<Control>{backtracks ? Control::within_step : Control::per_solve},
        [&](const Expr& s, std::span<const Expr> theta, std::span<const Expr> controls) {
          const Expr alpha = reshape(controls[0], {});
          if (!has_momentum) {
            const Expr value = f(s, theta), g = grad(value, s);
            return TracedStep{
                s - alpha * g, backtracks ? std::vector<Expr>{value, sum(square(g))} : std::vector<Expr>{}, {}};
          }
          const Expr x = slice(s, 0, n), before = slice(s, n, 2 * n), inertia = how.momentum.beta * (x - before);
          const Expr at = how.momentum.kind == Momentum::Kind::nesterov ? x + inertia : x;
          const Expr next = x + inertia - alpha * gradient_at(at, theta);
          return TracedStep{concat({next, x}), {}, {}};
        },
        !has_momentum, problem.context);
    method->gradient =
        LazyMap([f, x_parts, parameters = problem.parameters, data = problem.data, context = problem.context] {
          return std::make_shared<const TracedMap>(
              x_parts, parameters, data, std::vector<Control>{},
              [&](const Expr& x, std::span<const Expr> theta, std::span<const Expr>) {
                return TracedStep{grad(f(x, theta), x), {}, {}};
              },
              true, context);
        });
    if (!has_momentum) method->equation = method->gradient;
    method->objective.emplace(static_cast<std::size_t>(n), problem.parameters, problem.data, problem.context, f);
    if (how.step.L > 0 && how.step.mu > 0 && !has_momentum) {
      const double alpha = how.step.kind == GradientStep::Kind::fixed     ? how.step.alpha
                           : how.step.kind == GradientStep::Kind::optimal ? 2 / (how.step.mu + how.step.L)
                                                                          : 1 / how.step.L;
      if (!backtracks) method->known.rho = std::max(std::fabs(1 - alpha * how.step.mu), std::fabs(1 - alpha * how.step.L));
    }
    return method;
  };
  return solver_of(std::move(recipe));
}

}  // namespace onestep::detail
