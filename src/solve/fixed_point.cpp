// x ← F(x, θ): the plain loop, for traced and for foreign steps.
#include <algorithm>

#include "solve/loops.h"
#include "solve/traced_map.h"

namespace onestep::detail {
namespace {

class FixedPointMethod final : public Method {
 public:
  std::unique_ptr<Loop> loop(bool derivatives) const override {
    return std::make_unique<FixedPointLoop>(*step, derivatives, std::vector<double>{});
  }
};

/// A map of callbacks.
class ForeignMap final : public Map, public std::enable_shared_from_this<ForeignMap> {
 public:
  ForeignMap(ForeignStep callbacks, const std::vector<Shape>& state_parts, const std::vector<Input>& its_parameters)
      : step(std::move(callbacks)) {
    state = state_parts;
    parameters = its_parameters;
    if (!step.jvp) no_jvp = "the step has no jvp callback";
    if (!step.vjp) no_vjp = "the step has no vjp callback";
  }
  std::unique_ptr<Point> point(bool derivatives) const override;
  ForeignStep step;
};

class ForeignPoint final : public Point {
 public:
  explicit ForeignPoint(std::shared_ptr<const ForeignMap> map) : map_(std::move(map)) { x_.reserve(map_->size()); }
  void bind(std::span<const Array> theta) override {
    theta_.assign(theta.begin(), theta.end());
    x_.clear();
  }
  bool apply(ConstVector x, ConstVector, Vector y) override {
    x_.assign(x.begin(), x.end());
    map_->step.apply(x_, theta_, y);
    return true;
  }
  bool control(ConstVector, Vector y) override {
    map_->step.apply(x_, theta_, y);
    return true;
  }
  ConstVector where() const override { return x_; }
  void jvp_x(ConstVector dx, Vector out) override { map_->step.jvp(x_, theta_, dx, {}, out); }
  void vjp_x(ConstVector c, Vector out) override { map_->step.vjp(x_, theta_, c, out, {}); }
  void jvp_theta(std::span<const Array> dtheta, Vector out) override { map_->step.jvp(x_, theta_, {}, dtheta, out); }
  void vjp_theta(ConstVector c, std::span<const Vector> out) override { map_->step.vjp(x_, theta_, c, {}, out); }

 private:
  std::shared_ptr<const ForeignMap> map_;
  std::vector<double> x_;
  std::vector<Array> theta_;
};

std::unique_ptr<Point> ForeignMap::point(bool) const { return std::make_unique<ForeignPoint>(shared_from_this()); }

}  // namespace

FixedPointLoop::FixedPointLoop(const Map& step, bool derivatives, std::vector<double> controls)
    : controls_(std::move(controls)), point_(step.point(derivatives)), next_(step.size()) {}

void FixedPointLoop::solve(std::span<const Array> theta, const SolveOptions& options, Run& run) {
  Monitor monitor(options, run);
  point_->bind(theta);
  const int factorisations = point_->factorisations();
  run.x = run.start;
  run.controls = controls_;
  for (;;) {
    run.previous = run.x;
    point_->apply(run.previous, controls_, run.x);
    ++run.statistics.evaluations;
    run.trajectory.record(run.previous, controls_);
    std::ranges::transform(run.x, run.previous, next_.begin(), std::minus<>());
    if (monitor.ends(norm(next_), norm(run.x), std::numeric_limits<double>::quiet_NaN(), 1)) break;
  }
  run.statistics.factorisations = point_->factorisations() - factorisations;
}

Solver make_fixed_point(Body step, SolveOptions options) {
  check(options);
  Recipe recipe;
  recipe.options = std::move(options);
  recipe.undamped = [step](const std::vector<Shape>& state, const Expr& x, std::span<const Expr> theta) {
    return joined("fixed_point", call_body("fixed_point", step, x, state, theta), state);
  };
  recipe.make = [map = recipe.undamped](const std::vector<Shape>& state, const std::vector<Input>& parameters) {
    auto method = std::make_shared<FixedPointMethod>();
    method->step = std::make_shared<TracedMap>(
        state, parameters, std::vector<Control>{},
        [&](const Expr& x, std::span<const Expr> theta, std::span<const Expr>) {
          return TracedStep{map(state, x, theta), {}, {}};
        },
        false);
    return method;
  };
  return Solver(std::make_shared<const Recipe>(std::move(recipe)));
}

}  // namespace onestep::detail

namespace onestep {

Solver fixed_point(ForeignStep step, SolveOptions options) {
  if (!step.apply) throw Error("[fixed_point] a foreign step needs its apply callback");
  detail::check(options);
  detail::Recipe recipe;
  recipe.options = std::move(options);
  recipe.make = [step = std::move(step)](const std::vector<Shape>& state, const std::vector<Input>& parameters) {
    auto method = std::make_shared<detail::FixedPointMethod>();
    method->step = std::make_shared<detail::ForeignMap>(step, state, parameters);
    return method;
  };
  return Solver(std::make_shared<const detail::Recipe>(std::move(recipe)));
}

}  // namespace onestep
