// Newton's method for minimisers and for roots: full steps x - H⁻¹g wherever they are good enough, shorter ones by Armijo's
// rule where they are not, and a shifted H where it is not positive definite.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "onestep/diff.h"
#include "solve/armijo.h"
#include "solve/method.h"
#include "solve/traced_map.h"

namespace onestep::detail {
namespace {

class NewtonMethod final : public Method {
 public:
  std::unique_ptr<Loop> loop() const override;
  std::shared_ptr<Method> with_data(const std::vector<Array>& data) const override {
    auto copy = std::make_shared<NewtonMethod>(*this);
    copy->bind(data);
    copy->merit->bind(data);
    if (copy->hessian_scale) copy->hessian_scale->bind(data);
    return copy;
  }

  std::optional<TrialFunction> merit;          // f, or ‖G‖²/2
  std::optional<TrialFunction> hessian_scale;  // the largest entry of H; none for roots, which are not shifted
};

class NewtonLoop final : public Loop {
 public:
  explicit NewtonLoop(const NewtonMethod& method)
      : method_(method),
        point_(method.step->point(true)),
        merit_(*method.merit, method.step->size(), method.step->parameters),
        full_(method.step->size()),
        direction_(method.step->size()),
        trial_(method.step->size()) {}

  void solve(std::span<const Array> theta, const SolveOptions& options, Run& run) override {
    Monitor monitor(options, run);
    point_->bind(theta);
    merit_.bind(theta);
    theta_ = theta;
    const int factorisations = point_->factorisations();
    run.controls.assign({1, 0});  // the full step, whatever the line search took
    run.x = run.start;
    run.previous = run.start;
    run_ = &run;
    iterate(monitor, options);
    run.statistics.factorisations = point_->factorisations() - factorisations;
  }

  // The last step was made at x_{k-1}; where the loop ended for another reason, that has to be gone back to.
  Point& last() override {
    if (!std::ranges::equal(point_->where(), run_->previous)) point_->apply(run_->previous, run_->controls, full_);
    return *point_;
  }

  int factorisations() const override { return point_->factorisations(); }

 private:
  void iterate(Monitor& monitor, const SolveOptions& options) {
    Run& run = *run_;
    switch (evaluate(run.x)) {
      case Found::no_value: return monitor.end(Status::not_finite, "the objective has no finite value at the start");
      case Found::no_step: return monitor.end(Status::singular, why_no_step());
      case Found::step: break;
    }
    for (;;) {
      // At x: value, slope and the full step d = H⁻¹g.
      const double value = point_->extra(0)[0], slope = point_->extra(1)[0];
      controls_ = {1, shift_};
      std::ranges::copy(run.x, run.previous.begin());
      std::ranges::transform(run.x, full_, direction_.begin(), std::minus<>());
      const double full_step = norm(direction_);
      if (monitor.is_small(full_step, norm(full_))) {
        run.trajectory.record(run.previous, controls_);
        std::ranges::copy(full_, run.x.begin());
        monitor.ends(full_step, norm(run.x), value, 1);
        if (controls_[1] > 0)
          monitor.end(Status::singular,
                      fmt::format("at the solution the matrix needs {:.1e} on its diagonal", controls_[1]));
        return;
      }
      // Most often the full step is good, and the next iteration needs all there is at its end.
      std::ranges::copy(full_, trial_.begin());
      const bool is_last = run.statistics.iterations + 1 >= options.max_iterations;
      Found found = Found::no_value;
      double& length = controls_[0];
      double reached = 0;
      if (is_last) {
        reached = merit(trial_);
      } else {
        found = evaluate(trial_);
        reached = point_->extra(0)[0];
      }
      const Armijo armijo(value, slope);
      const bool full_is_good = armijo.enough(length, reached);
      const bool found_length = armijo.shorten(length, reached, [&](double shorter) {
        for (std::size_t i = 0; i < trial_.size(); ++i) trial_[i] = run.previous[i] - shorter * direction_[i];
        ++run.statistics.backtracks;
        return merit(trial_);
      });
      if (!found_length) {
        std::ranges::copy(run.previous, run.x.begin());
        return monitor.end(Status::line_search_failed, fmt::format("in iteration {}", run.statistics.iterations + 1));
      }
      run.trajectory.record(run.previous, controls_);
      std::ranges::copy(trial_, run.x.begin());
      if (monitor.ends(length * full_step, norm(run.x), reached, length)) return;
      if (!full_is_good) found = evaluate(run.x);
      if (found == Found::no_step) return monitor.end(Status::singular, why_no_step());
      if (found == Found::no_value) return monitor.end(Status::not_finite, "the derivatives at an iterate are not finite");
    }
  }

  double merit(ConstVector x) {
    ++run_->statistics.evaluations;
    return merit_(x);
  }

  enum class Found { step, no_step, no_value };

  // Value, slope and full step at x, with as small a shift as makes H positive definite.
  Found evaluate(ConstVector x) {
    ++run_->statistics.evaluations;
    shift_ = 0;
    std::array<double, 2> controls{1, 0};
    const bool factored = point_->apply(x, controls, full_);
    if (!std::isfinite(point_->extra(0)[0])) return Found::no_value;
    if (factored && all_finite(full_)) return Found::step;
    if (!method_.hessian_scale) return Found::no_step;
    const double scale = hessian_scale(x);
    if (!std::isfinite(scale)) return Found::no_value;
    for (double shift = 1e-10; shift < 1e3; shift *= 10) {
      controls[1] = shift_ = shift * std::max(scale, std::numeric_limits<double>::min());
      ++run_->statistics.shifts;
      if (point_->control(controls, full_) && all_finite(full_)) return Found::step;
    }
    return Found::no_step;
  }

  // Few solves ever ask: the memory for a whole Hessian is taken when one does.
  double hessian_scale(ConstVector x) {
    if (!scale_) scale_.emplace(*method_.hessian_scale, method_.step->size(), method_.step->parameters);
    scale_->bind(theta_);
    return (*scale_)(x);
  }

  std::string why_no_step() const {
    return shift_ == 0 ? std::string("the matrix of the step is singular")
                       : fmt::format("no shift up to {:.1e} makes the matrix positive definite", shift_);
  }

  const NewtonMethod& method_;
  std::unique_ptr<Point> point_;
  Trial merit_;
  std::optional<Trial> scale_;
  std::span<const Array> theta_;  // during a solve
  Run* run_ = nullptr;
  std::vector<double> full_, direction_, trial_;
  std::array<double, 2> controls_{1, 0};
  double shift_ = 0;
};

std::unique_ptr<Loop> NewtonMethod::loop() const { return std::make_unique<NewtonLoop>(*this); }

// The length of the step enters it last, so that another length needs no other factorisation; the shift enters H.
const std::vector<Control> newton_controls{Control::within_step, Control::per_step};

using Value = std::function<Expr(const std::vector<Shape>& state, const Expr& x, std::span<const Expr> theta)>;

/// What makes Newton's method one for minimisers or one for roots.
struct NewtonKind {
  Value equation;  // ∇f or G, zero at the solution
  Value merit;     // f or ‖G‖²/2
  Value scale;     // the largest entry of the Hessian; none for roots, which are not shifted
  /// The step from value and equation at x, with its slope: x - length (H + shift)⁻¹ g.
  std::function<TracedStep(const std::vector<Shape>& state, const Expr& x, std::span<const Expr> theta, const Expr& length,
                           const Expr& shift)>
      step;
};

Solver make(const char* name, NewtonKind (*kind_of)(const Body& lambda), const Body& lambda, const SolveOptions& options) {
  check(options);
  Recipe recipe;
  recipe.name = name;
  recipe.lambda = lambda;
  recipe.options = options;
  recipe.superlinear = true;
  recipe.steps_in_node = 2;
  recipe.undamped = [kind = kind_of(lambda)](const std::vector<Shape>& state, const Expr& x, std::span<const Expr> theta) {
    return kind.step(state, x, theta, 1.0, 0.0).next;
  };
  recipe.make = [kind_of](const Problem& problem) {
    const NewtonKind kind = kind_of(problem.lambda);
    const std::vector<Shape>& state = problem.state;
    auto method = std::make_shared<NewtonMethod>();
    const auto number = [](const Expr& control) { return reshape(control, {}); };
    const auto trial = [&](const Value& value) {
      return TrialFunction(
          flat_size(state), problem.parameters, problem.data,
          [state, value](const Expr& x, std::span<const Expr> theta) { return value(state, x, theta); });
    };
    method->step = std::make_shared<TracedMap>(
        state, problem.parameters, problem.data, newton_controls,
        [&](const Expr& x, std::span<const Expr> theta, std::span<const Expr> controls) {
          return kind.step(state, x, theta, number(controls[0]), number(controls[1]));
        },
        false);
    const bool is_minimiser = kind.scale != nullptr;
    method->equation = LazyMap([=] {
      return std::make_shared<const TracedMap>(
          problem.state, problem.parameters, problem.data, std::vector<Control>{},
          [&](const Expr& x, std::span<const Expr> theta, std::span<const Expr>) {
            return TracedStep{kind.equation(problem.state, x, theta), {}, {}};
          },
          is_minimiser);
    });
    method->merit.emplace(trial(kind.merit));
    if (is_minimiser) method->hessian_scale.emplace(trial(kind.scale));
    method->superlinear = true;
    return method;
  };
  return Solver(std::make_shared<const Recipe>(std::move(recipe)));
}

NewtonKind for_minimisers(const Body& objective) {
  const Value f = [objective](const std::vector<Shape>& state, const Expr& x, std::span<const Expr> theta) {
    return call_objective("newton", objective, x, state, theta);
  };
  NewtonKind kind;
  kind.merit = f;
  kind.equation = [f](const auto& state, const Expr& x, auto theta) { return grad(f(state, x, theta), x); };
  kind.scale = [f](const auto& state, const Expr& x, auto theta) { return max(abs(hessian(f(state, x, theta), x))); };
  kind.step = [f](const auto& state, const Expr& x, auto theta, const Expr& length, const Expr& shift) {
    const Expr value = f(state, x, theta), g = grad(value, x);
    const Factor factor = cholesky(jacobian(g, x) + shift * eye(x.shape()[0]));
    const Expr d = solve(factor, g);
    return TracedStep{x - length * d, {value, sum(g * d)}, factor};
  };
  return kind;
}

NewtonKind for_roots(const Body& residual) {
  const Value g = [residual](const std::vector<Shape>& state, const Expr& x, std::span<const Expr> theta) {
    return joined("newton_root", call_body("newton_root", residual, x, state, theta), state);
  };
  NewtonKind kind;
  kind.equation = g;
  kind.merit = [g](const auto& state, const Expr& x, auto theta) { return 0.5 * sum(square(g(state, x, theta))); };
  kind.step = [g](const auto& state, const Expr& x, auto theta, const Expr& length, const Expr& shift) {
    const Expr value = g(state, x, theta), square_norm = sum(square(value));
    const Factor factor = lu(jacobian(value, x) + shift * eye(x.shape()[0]));
    return TracedStep{x - length * solve(factor, value), {0.5 * square_norm, square_norm}, factor};
  };
  return kind;
}

}  // namespace

Solver make_newton(const Body& objective, const SolveOptions& options) {
  return make("newton", for_minimisers, objective, options);
}
Solver make_newton_root(const Body& residual, const SolveOptions& options) {
  return make("newton_root", for_roots, residual, options);
}

}  // namespace onestep::detail
