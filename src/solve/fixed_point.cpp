// x ← F(x, θ): the plain loop, for traced and for foreign steps.
#include <algorithm>

#include "solve/foreign_map.h"
#include "solve/loops.h"
#include "solve/monitor.h"
#include "solve/recipe.h"
#include "solve/traced_map.h"

namespace onestep::detail {
namespace {

class FixedPointMethod final : public Method {
 public:
  std::unique_ptr<Loop> loop() const override { return std::make_unique<FixedPointLoop>(*step, std::vector<double>{}); }
  std::shared_ptr<Method> with_data(const std::vector<Array>& data) const override {
    auto copy = std::make_shared<FixedPointMethod>(*this);
    copy->bind(data);
    return copy;
  }
};

}  // namespace

FixedPointLoop::FixedPointLoop(const Map& step, std::vector<double> controls)
    : controls_(std::move(controls)), point_(step.point(true)), next_(step.size()) {}

void FixedPointLoop::solve(std::span<const Array> theta, const SolveOptions& options, Run& run) {
  Monitor monitor(options, run);
  point_->bind(theta);
  const int factorisations = point_->work().factorisations;
  monitor.evaluate_with([this](ConstVector x, Vector next) { return point_->apply(x, controls_, next); });
  run.x = run.start;
  run.controls = controls_;
  for (;;) {
    run.previous = run.x;
    point_->apply(run.previous, controls_, run.x);
    ++run.statistics.evaluations;
    run.trajectory.record(run.previous, controls_);
    std::ranges::transform(run.x, run.previous, next_.begin(), std::minus<>());
    if (monitor.record_and_check(norm(next_), norm(run.x), std::numeric_limits<double>::quiet_NaN(), 1)) break;
  }
  if (monitor.take_left_point()) point_->apply(run.previous, controls_, next_);
  run.statistics.factorisations = point_->work().factorisations - factorisations;
}

Solver make_fixed_point(const Body& step, const SolveOptions& options) {
  check(options);
  Recipe recipe;
  recipe.name = "fixed_point";
  recipe.lambda = step;
  recipe.options = options;
  const auto call = [](const Body& body, const std::vector<Shape>& state, const Expr& x, std::span<const Expr> theta) {
    return joined("fixed_point", call_body("fixed_point", body, x, state, theta), state);
  };
  recipe.undamped = [call, step](const std::vector<Shape>& state, const Expr& x, std::span<const Expr> theta) {
    return call(traced_alone("fixed_point", step, state, theta), state, x, theta);
  };
  recipe.make = [call](const Problem& problem) {
    auto method = std::make_shared<FixedPointMethod>();
    method->step = std::make_shared<TracedMap>(
        problem.state, problem.parameters, problem.data, std::vector<Control>{},
        [&](const Expr& x, std::span<const Expr> theta, std::span<const Expr>) {
          return TracedStep{call(problem.lambda, problem.state, x, theta), {}, {}};
        },
        false, problem.context);
    method->undamped.emplace();
    return method;
  };
  return solver_of(std::move(recipe));
}

}  // namespace onestep::detail

namespace onestep {

Solver fixed_point(ForeignStep step, const SolveOptions& options) {
  if (!step.apply) throw MisuseError("[fixed_point] a foreign step needs its apply callback");
  detail::check(options);
  detail::Recipe recipe;
  recipe.options = options;
  recipe.make = [step = std::move(step)](const detail::Problem& problem) {
    auto method = std::make_shared<detail::FixedPointMethod>();
    method->step = std::make_shared<detail::ForeignMap>("step", step, problem.state, problem.parameters);
    method->undamped.emplace();
    return method;
  };
  return detail::solver_of(std::move(recipe));
}

}  // namespace onestep
