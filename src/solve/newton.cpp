// Newton's method for minimisers and for roots: what is traced for each. The iteration is newton_loop.cpp.
#include "onestep/diff.h"
#include "solve/monitor.h"
#include "solve/newton_method.h"
#include "solve/recipe.h"
#include "solve/traced_map.h"

namespace onestep::detail {
namespace {

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

Solver make(const char* name, int orders, NewtonKind (*kind_of)(const Body& lambda), const Body& lambda,
            const SolveOptions& options) {
  check(options);
  Recipe recipe;
  recipe.name = name;
  recipe.lambda = lambda;
  recipe.options = options;
  recipe.superlinear = true;
  recipe.orders = orders;
  recipe.steps_in_node = 2;
  recipe.undamped = [name, kind_of, lambda](const std::vector<Shape>& state, const Expr& x, std::span<const Expr> theta) {
    return kind_of(traced_alone(name, lambda, state, theta)).step(state, x, theta, 1.0, 0.0).next;
  };
  recipe.make = [kind_of](const Problem& problem) {
    const NewtonKind kind = kind_of(problem.lambda);
    const std::vector<Shape>& state = problem.state;
    auto method = std::make_shared<NewtonMethod>();
    const auto number = [](const Expr& control) { return reshape(control, {}); };
    const auto trial = [&](const Value& value) {
      return TrialFunction(flat_size(state), problem.parameters, problem.data, problem.context,
                           [state, value](const Expr& x, std::span<const Expr> theta) { return value(state, x, theta); });
    };
    method->step = std::make_shared<TracedMap>(
        state, problem.parameters, problem.data, newton_controls,
        [&](const Expr& x, std::span<const Expr> theta, std::span<const Expr> controls) {
          return kind.step(state, x, theta, number(controls[0]), number(controls[1]));
        },
        false, problem.context);
    const bool is_minimiser = kind.scale != nullptr;
    method->equation = LazyMap([=] {
      return std::make_shared<const TracedMap>(
          problem.state, problem.parameters, problem.data, std::vector<Control>{},
          [&](const Expr& x, std::span<const Expr> theta, std::span<const Expr>) {
            return TracedStep{kind.equation(problem.state, x, theta), {}, {}};
          },
          is_minimiser, problem.context);
    });
    method->residual = method->equation;
    method->merit.emplace(trial(kind.merit));
    if (is_minimiser) method->hessian_scale.emplace(trial(kind.scale));
    method->superlinear = true;
    method->undamped = {1, 0};
    return method;
  };
  return solver_of(std::move(recipe));
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
  return make("newton", 2, for_minimisers, objective, options);
}
Solver make_newton_root(const Body& residual, const SolveOptions& options) {
  return make("newton_root", 1, for_roots, residual, options);
}

}  // namespace onestep::detail
