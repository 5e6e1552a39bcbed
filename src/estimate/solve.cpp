// Solving: a solver becomes a method, the method a Solution; and Prepared, which keeps both.
#include <fmt/format.h>

#include "estimate/state.h"
#include "solve/monitor.h"

namespace onestep {
namespace {

using detail::SolutionState;

std::vector<Shape> shapes_of(const Parts& parts) {
  std::vector<Shape> shapes;
  for (const Array& a : parts) shapes.push_back(a.shape());
  return shapes;
}

// Where none is named: the solver's own, or what suits the method.
Estimator resolved(const Estimator& estimator, const detail::Recipe& recipe) {
  if (!estimator.by_method()) return estimator;
  if (recipe.estimator) return *recipe.estimator;
  return recipe.superlinear ? Estimator(OneStep{}) : Estimator(Auto{});
}

bool is_named(const Estimator& estimator, const detail::Recipe& recipe) {
  return !estimator.by_method() || recipe.estimator != nullptr;
}

Solution solve_from(const Solver& solver, const Parts* start, const Parts& theta, const Estimator& named) {
  const detail::Settled settled = detail::settle(solver, start, theta, named);
  Solution solution = settled.make();
  detail::check_shapes(detail::state_of(solution), settled.start, theta);
  detail::state_of(solution).solve({settled.start.begin(), settled.start.end()}, {theta.begin(), theta.end()});
  return solution;
}

Prepared prepared_from(const Solver& solver, const Parts* start, const Parts& theta, const Estimator& named) {
  const detail::Settled settled = detail::settle(solver, start, theta, named);
  return detail::SolutionAccess::prepared(start != nullptr ? *start : settled.start, settled.make());
}

}  // namespace

Solver Solver::with(const Estimator& estimator) const {
  detail::Recipe copy = detail::recipe_of(*this);
  copy.estimator = estimator.by_method() ? nullptr : std::make_shared<const Estimator>(estimator);
  return detail::solver_of(std::move(copy));
}

detail::Settled detail::settle(const Solver& solver, const Parts* start, const Parts& theta, const Estimator& named) {
  const Recipe& recipe = recipe_of(solver);
  const Estimator estimator = resolved(named, recipe);
  Recipe::Ready made = ready(recipe, start, shapes_of(theta), estimator);
  return {std::move(made.method), std::move(made.start), recipe.options, recipe.context, estimator, is_named(named, recipe)};
}

Solution detail::Settled::make() const {
  auto state = std::make_shared<SolutionState>();
  state->method = method;
  state->options = options;
  state->context = context;
  state->estimator = estimator;
  state->estimator_is_named = estimator_is_named;
  state->differentiator = std::visit([](const auto& kind) { return detail::make(kind); }, estimator.kind());
  const parallel::UsePool use = state->on_its_threads();
  state->loop = state->method->take_loop();
  state->differentiator->prepare(*state);
  return SolutionAccess::make(std::move(state));
}

void detail::check_shapes(const SolutionState& state, const Parts& x0, const Parts& theta) {
  const Map& step = *state.method->step;
  // Solvers that start by themselves may have parts the caller does not know of.
  const std::span<const Array> x_parts(x0.begin(), x0.end()), thetas(theta.begin(), theta.end());
  if (!state.method->starts_itself) check_shapes("solve", "part of the start", x_parts, step.state);
  if (thetas.size() != step.parameters.size())
    throw MisuseError(fmt::format("[solve] {} parameters given, the step has {}", thetas.size(), step.parameters.size()));
  for (std::size_t i = 0; i < thetas.size(); ++i)
    if (thetas[i].shape() != step.parameters[i].shape)
      throw MisuseError(fmt::format("[solve] {} has shape {}, the step was traced for {}", step.parameters[i].name,
                                    to_string(thetas[i].shape()), to_string(step.parameters[i].shape)));
}

detail::Recipe::Ready detail::ready(const Recipe& recipe, const Parts* x0, std::span<const Shape> theta,
                                    const Estimator& estimator) {
  const bool other = recipe.for_unrolling && facts_of(estimator).goes_over_steps;  // which start by themselves
  return other ? recipe.for_unrolling->ready(nullptr, theta) : recipe.ready(x0, theta);
}

Solution solve(const Solver& solver, const Parts& x0, const Parts& theta, const Estimator& estimator) {
  return solve_from(solver, &x0, theta, estimator);
}

Solution solve(const Solver& solver, const Parts& theta, const Estimator& estimator) {
  return solve_from(solver, nullptr, theta, estimator);
}

Prepared::Prepared(const Solver& solver, const Parts& theta, const Estimator& estimator)
    : Prepared(prepared_from(solver, nullptr, theta, estimator)) {}

Prepared::Prepared(const Solver& solver, const Parts& x0, const Parts& theta, const Estimator& estimator)
    : Prepared(prepared_from(solver, &x0, theta, estimator)) {}

Prepared::Prepared(Parts x0, Solution made)
    : x0_(std::move(x0)), options_(made.internals().options), solution_(std::move(made)) {}

const Solution& Prepared::solve(const Parts& theta) & { return solve(x0_, theta); }

const Solution& Prepared::solve(const Parts& x0, const Parts& theta) & {
  if (!solution_.state_) detail::fail_moved_from("Prepared");
  detail::check(options_);
  if (const detail::Method& method = *solution_.internals().method;
      method.remembers && 2 * x0.size() == method.step->state.size()) {
    std::vector<Array> completed(x0.begin(), x0.end());
    completed.insert(completed.end(), x0.begin(), x0.end());
    return solve(completed, theta);
  }
  detail::check_shapes(solution_.internals(), x0, theta);
  // The caller kept a copy of the last Solution, which must not change.
  if (const SolutionState& kept = solution_.internals(); solution_.is_shared())
    solution_ = detail::Settled{kept.method, {}, options_, kept.context, kept.estimator, kept.estimator_is_named}.make();
  SolutionState& state = solution_.internals();
  state.options = options_;
  state.solve({x0.begin(), x0.end()}, {theta.begin(), theta.end()});
  return solution_;
}

const Solution& Prepared::solution() const& { return solution_; }
Solution Prepared::solution() const&& { return solution_; }

}  // namespace onestep
