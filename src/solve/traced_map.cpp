// The plan of a traced map. Its inputs change at different rates, and the plan keeps what does not change: data (level
// 0), θ (1), the iterate (2), the length of the step (3). Level 4 is what only derivatives need of a point; each derivative
// is a branch above it.
#include "solve/traced_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "graph/rules.h"
#include "onestep/diff.h"
#include "plan/bound_plan.h"

namespace onestep::detail {
std::vector<Expr> parts_of(const Expr& x, std::span<const Shape> parts) {
  if (parts.size() == 1) return {reshape(x, parts[0])};
  std::vector<Expr> result;
  std::int64_t begin = 0;
  for (const Shape& s : parts) {
    result.push_back(reshape(slice(x, begin, begin + s.size()), s));
    begin += s.size();
  }
  return result;
}

void check_parts(const char* who, std::span<const Shape> returned, std::span<const Shape> state) {
  if (returned.size() != state.size())
    throw MisuseError(
        fmt::format("[{}] the function returns {} arrays, the state has {} parts", who, returned.size(), state.size()));
  for (std::size_t i = 0; i < state.size(); ++i)
    if (returned[i] != state[i])
      throw MisuseError(fmt::format("[{}] part {} of the state has shape {}, the function returns {}", who, i,
                                    to_string(state[i]), to_string(returned[i])));
}

Expr joined(const char* who, std::span<const Expr> parts, std::span<const Shape> shapes) {
  std::vector<Shape> returned;
  for (const Expr& e : parts) returned.push_back(e.shape());
  check_parts(who, returned, shapes);
  std::vector<Expr> flat;
  for (std::size_t i = 0; i < parts.size(); ++i) flat.push_back(reshape(parts[i], {shapes[i].size()}));
  return flat.size() == 1 ? flat.front() : concat(flat);
}

TracedMap::TracedMap(std::vector<Shape> state_parts, std::vector<Input> its_parameters, std::vector<Array> data,
                     std::vector<Control> controls, const StepBody& body, bool is_symmetric, const Context& context,
                     Derivatives derivatives)
    : shared_(std::make_shared<Shared>()), data_(std::move(data)) {
  state = std::move(state_parts);
  parameters = std::move(its_parameters);
  symmetric = is_symmetric;
  shared_->context = context;
  shared_->controls = std::move(controls);

  const Shape n = vector_shape(size());
  const std::size_t thetas = parameters.size() + data_.size();
  std::vector<Input> inputs = step_inputs();
  inputs.insert(inputs.end(), {Input{"r", n}, Input{"r_transposed", n}});
  shared_->step.emplace(inputs, [&](std::span<const Expr> in) {
    const TracedStep step = body(in[0], in.subspan(1, thetas), in.subspan(1 + thetas, shared_->controls.size()));
    std::vector<Expr> results{step.next};
    results.insert(results.end(), step.extras.begin(), step.extras.end());
    for (const Expr& e : step.extras) shared_->extras.push_back(e.shape());
    shared_->has_factor = step.factor.has_value();
    if (!shared_->has_factor) return results;
    shared_->symmetric_factor = !is(node_of(*step.factor), Op::lu);
    results.push_back(solve(*step.factor, in[in.size() - 2]));
    if (!shared_->symmetric_factor) results.push_back(solve_transposed(*step.factor, in[in.size() - 1]));
    return results;
  });

  // A derivative that cannot be taken (a foreign function without it) leaves its branch out and says why.
  const auto why_not = [&](bool with_vjp, bool with_jvp) -> std::string {
    try {
      shared_->family.emplace(differentiate(with_vjp, with_jvp));
      return "";
    } catch (const Error& e) { return e.what(); }
  };
  if (!why_not(true, true).empty()) {
    no_vjp = why_not(true, false);
    no_jvp = why_not(false, true);
    shared_->family.emplace(differentiate(no_vjp.empty(), no_jvp.empty()));
  }
  note_structure(no_vjp.empty(), no_jvp.empty());
  if (derivatives == Derivatives::when_asked) return;
  const Plan& family = family_plan();
  const auto cost = [&](int branch) { return family.flops(branch) - family.flops(branch + 1); };
  costs = {.apply = family.flops(x_level, step_level),
           .jvp_x = cost(jvp_x_branch),
           .vjp_x = cost(vjp_x_branch),
           .jvp_theta = cost(jvp_theta_branch),
           .vjp_theta = cost(vjp_theta_branch),
           .precondition = cost(solve_branch)};
}

std::shared_ptr<const TracedMap> TracedMap::with(const std::vector<Array>& data) const {
  auto copy = std::make_shared<TracedMap>(*this);
  copy->data_ = data;
  return copy;
}

std::optional<Function> TracedMap::graph(ConstVector controls) const {
  std::vector<Input> inputs{{"x", vector_shape(size())}};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  return Function(inputs, [&](std::span<const Expr> in) {
    std::vector<Expr> all(in.begin(), in.end());
    for (const Array& a : data_) all.emplace_back(a);
    for (const double control : controls) all.emplace_back(Array(Shape{1}, {control}));
    all.resize(all.size() + 2, broadcast(0.0, vector_shape(size())));  // right-hand sides
    return std::vector<Expr>{(*shared_->step)(all).front()};
  });
}

std::string TracedMap::not_finite_constant() const {
  const Graph& graph = *graph_of(*shared_->step);
  const Indexed<bool> used = graph.reachable(ids_of(shared_->step->outputs()));
  for (std::size_t i = 0; i < data_.size(); ++i)
    if (used[1 + parameters.size() + i] && first_not_finite({&data_[i], 1}) == 0)
      return fmt::format("constant of shape {}", to_string(data_[i].shape()));
  return {};
}

// Of the step alone: a graph begins with its inputs, so these are the numbers of their nodes too.
std::vector<Input> TracedMap::step_inputs() const {
  std::vector<Input> inputs{{"x", vector_shape(size())}};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  for (const Array& a : data_) inputs.emplace_back("data", a.shape());
  inputs.resize(inputs.size() + shared_->controls.size(), Input{"control", {1}});
  return inputs;
}
std::vector<int> TracedMap::step_levels() const {
  std::vector<int> levels{x_level};
  levels.resize(1 + parameters.size(), theta_level);
  levels.resize(levels.size() + data_.size(), data_level);
  for (const Control c : shared_->controls) levels.push_back(static_cast<int>(c));
  return levels;
}

Function TracedMap::differentiate(bool with_vjp, bool with_jvp) const {
  const Shape n = vector_shape(size());
  const std::size_t thetas = parameters.size();
  std::vector<Input> inputs = step_inputs();
  const std::size_t of_step = inputs.size();
  inputs.insert(inputs.end(), {Input{"c_theta", n}, Input{"c_x", n}});
  for (const Input& p : parameters) inputs.emplace_back("d_" + p.name, p.shape);
  inputs.insert(inputs.end(), {Input{"d_x", n}, Input{"r", n}, Input{"r_transposed", n}});
  return Function(inputs, [&](std::span<const Expr> in) {
    const Expr& x = in[0];
    const std::span<const Expr> theta = in.subspan(1, thetas), directions = in.subspan(of_step);
    const std::span<const Expr> d_theta = directions.subspan(2, thetas);
    const Expr &c_theta = directions[0], &c_x = directions[1], &d_x = directions[2 + thetas];
    std::vector<Expr> of_the_step(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(of_step));
    of_the_step.insert(of_the_step.end(), in.end() - 2, in.end());
    const std::vector<Expr> step = (*shared_->step)(of_the_step);
    const auto solves = step.begin() + static_cast<std::ptrdiff_t>(1 + shared_->extras.size());
    const Expr& y = step.front();
    std::vector<Expr> results(step.begin(), solves);
    if (with_vjp) {
      const std::vector<Expr> of_theta = vjp({&y, 1}, theta, {&c_theta, 1});
      results.insert(results.end(), of_theta.begin(), of_theta.end());
      results.push_back(vjp(y, x, c_x));
    }
    if (with_jvp) {
      results.push_back(thetas == 0 ? broadcast(0.0, n) : jvp({&y, 1}, theta, d_theta).front());
      results.push_back(jvp(y, x, d_x));
    }
    results.insert(results.end(), solves, step.end());
    return results;
  });
}

// Whether A and B are the same everywhere, and whether there can be kinks, is read off the graph.
void TracedMap::note_structure(bool with_vjp, bool with_jvp) {
  const Graph& graph = *graph_of(*shared_->family);
  const std::vector<Id> results = ids_of(shared_->family->outputs());
  const Id x = 0;
  const Indexed<bool> moves = graph.between({&x, 1}, results);
  const std::size_t first = 1 + shared_->extras.size(), of_theta = with_vjp ? parameters.size() : 1;
  if (with_vjp || with_jvp) {
    constant_b =
        std::none_of(results.begin() + static_cast<std::ptrdiff_t>(first),
                     results.begin() + static_cast<std::ptrdiff_t>(first + of_theta), [&](Id id) { return moves[id]; });
    affine = !moves[results[first + of_theta]];
  }
  // Kinks in x, and in the parameters: at either the solution has no derivative.
  std::vector<Id> moving(1 + parameters.size());
  std::iota(moving.begin(), moving.end(), x);
  smooth = graph.kinks_between(moving, {results.data(), 1}).empty();
}

const Plan& TracedMap::value_plan() const {
  return shared_->value_plan.made([&] {
    const Function value(step_inputs(), [&](std::span<const Expr> in) {
      std::vector<Expr> all(in.begin(), in.end());
      all.resize(in.size() + 2, broadcast(0.0, vector_shape(size())));
      std::vector<Expr> results = (*shared_->step)(all);
      results.resize(1 + shared_->extras.size());
      return results;
    });
    return Plan(value, {.levels = step_levels(), .loop = x_level, .context = shared_->context});
  });
}

const Plan& TracedMap::family_plan() const {
  return shared_->family_plan.made([&] {
    std::vector<int> levels = step_levels();
    levels.insert(levels.end(), {vjp_theta_branch, vjp_x_branch});
    levels.resize(levels.size() + parameters.size(), jvp_theta_branch);
    levels.insert(levels.end(), {jvp_x_branch, solve_branch, solve_transposed_branch});
    return Plan(*shared_->family,
                {.levels = levels, .loop = x_level, .branches = vjp_theta_branch, .context = shared_->context});
  });
}

/// One thread's memory for a traced map.
class TracedPoint final : public ExtraPoint, private Inverse {
 public:
  TracedPoint(std::shared_ptr<const TracedMap> map, bool derivatives)
      : map_(std::move(map)),
        plan_(derivatives ? map_->family_plan() : map_->value_plan()),
        memory_(map_->size() * 6 + map_->shared_->controls.size()) {
    const std::size_t n = map_->size(), thetas = map_->parameters.size();
    Vector rest = memory_;
    const auto add = [&](std::size_t count) {
      const Vector mine = rest.first(count);
      rest = rest.subspan(count);
      inputs_.push_back(Array::view(mine));
      return mine;
    };
    x_ = add(n);
    for (const Input& p : map_->parameters) inputs_.push_back(zeros(p.shape));
    inputs_.insert(inputs_.end(), map_->data_.begin(), map_->data_.end());
    for (std::size_t i = 0; i < map_->shared_->controls.size(); ++i) controls_.push_back(add(1));
    std::size_t result = 1;
    for (const Shape& s : map_->shared_->extras) extras_.emplace_back(static_cast<std::size_t>(s.size()));
    result += extras_.size();
    if (derivatives) {
      c_theta_ = add(n);
      c_x_ = add(n);
      d_theta_ = inputs_.size();
      for (std::size_t i = 0; i < thetas; ++i) inputs_.push_back(zeros(map_->parameters[i].shape));
      d_x_ = add(n);
      r_ = add(n);
      r_transposed_ = add(n);
      // In the order in which TracedMap::differentiate makes them.
      const auto results = [&](bool there, std::size_t count) {
        const std::size_t at = result;
        result += there ? count : 0;
        return at;
      };
      vjp_theta_ = results(map_->no_vjp.empty(), thetas);
      vjp_x_ = results(map_->no_vjp.empty(), 1);
      jvp_theta_ = results(map_->no_jvp.empty(), 1);
      jvp_x_ = results(map_->no_jvp.empty(), 1);
      solve_ = results(map_->shared_->has_factor, 1);
      solve_transposed_ = results(map_->shared_->has_factor && !map_->shared_->symmetric_factor, 1);
    }
    values_.resize(1 + extras_.size());
    std::ranges::copy(extras_, values_.begin() + 1);
    for (std::size_t i = 0; i < inputs_.size(); ++i) plan_.bind(i, inputs_[i]);
  }

  void bind(std::span<const Array> theta) override {
    bind_from(1, theta);
    changed_ = std::min(changed_, theta_level);
    applied_ = false;
  }

  bool apply(ConstVector x, ConstVector controls, Vector y) override {
    std::ranges::copy(x, x_.begin());
    changed_ = std::min<int>(changed_, x_level);
    factorisations_ += map_->shared_->has_factor ? 1 : 0;
    applied_ = true;
    return run_value(controls, y);
  }

  bool control(ConstVector controls, Vector y) override {
    int level = step_level;
    for (std::size_t i = 0; i < controls.size(); ++i)
      if (controls_[i][0] != controls[i]) level = std::min(level, static_cast<int>(map_->shared_->controls[i]));
    changed_ = std::min(changed_, level);
    if (level < step_level && map_->shared_->has_factor) ++factorisations_;
    return run_value(controls, y);
  }
  void read_data_again() override {
    bind_from(1 + map_->parameters.size(), map_->data_);
    changed_ = data_level;
  }
  ConstVector where() const override { return applied_ ? ConstVector(x_) : ConstVector(); }

  void jvp_x(ConstVector dx, Vector out) override {
    require(map_->no_jvp);
    std::ranges::copy(dx, d_x_.begin());
    run_branch(jvp_x_branch, jvp_x_, {&out, 1});
  }
  void vjp_x(ConstVector c, Vector out) override {
    require(map_->no_vjp);
    std::ranges::copy(c, c_x_.begin());
    run_branch(vjp_x_branch, vjp_x_, {&out, 1});
  }
  void jvp_theta(std::span<const Array> dtheta, Vector out) override {
    require(map_->no_jvp);
    bind_from(d_theta_, dtheta);
    run_branch(jvp_theta_branch, jvp_theta_, {&out, 1});
  }
  void vjp_theta(ConstVector c, std::span<const Vector> out) override {
    require(map_->no_vjp);
    std::ranges::copy(c, c_theta_.begin());
    run_branch(vjp_theta_branch, vjp_theta_, out);
  }
  Inverse* inverse() override { return map_->shared_->has_factor ? this : nullptr; }
  Work work() const override { return {.factorisations = factorisations_}; }
  ConstVector extra(std::size_t i) const override { return extras_[i]; }

 private:
  bool is_factored() const override { return true; }
  void solve(bool transposed, Vector r, double) override {
    const bool other = transposed && !map_->shared_->symmetric_factor;
    std::ranges::copy(r, (other ? r_transposed_ : r_).begin());
    run_branch(other ? solve_transposed_branch : solve_branch, other ? solve_transposed_ : solve_, {&r, 1});
  }
  static void require(const std::string& missing) {
    if (!missing.empty()) throw MisuseError(missing);
  }

  bool run_value(ConstVector controls, Vector y) {
    for (std::size_t i = 0; i < controls.size(); ++i) controls_[i][0] = controls[i];
    values_[0] = y;
    plan_.run(0, values_, changed_, step_level);
    changed_ = step_level;
    return !plan_.failed();
  }

  void run_branch(int branch, std::size_t first, std::span<const Vector> out) { plan_.run(first, out, branch, branch); }

  void bind_from(std::size_t first, std::span<const Array> arrays) {
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      inputs_[first + i] = arrays[i];
      plan_.bind(first + i, arrays[i]);
    }
  }

  std::shared_ptr<const TracedMap> map_;
  BoundPlan plan_;
  std::vector<double> memory_;
  std::vector<Array> inputs_;                          // kept for the plan
  std::vector<Vector> values_;                         // where the next run puts the step and the extras
  Vector x_, c_theta_, c_x_, d_x_, r_, r_transposed_;  // the memory of the inputs
  std::vector<Vector> controls_;
  std::size_t d_theta_ = 0;  // where inputs begin
  std::size_t vjp_theta_ = 0, vjp_x_ = 0, jvp_theta_ = 0, jvp_x_ = 0, solve_ = 0, solve_transposed_ = 0;  // and results
  std::vector<std::vector<double>> extras_;
  int changed_ = theta_level;
  bool applied_ = false;
  int factorisations_ = 0;
};

std::unique_ptr<Point> TracedMap::point(bool derivatives) const {
  return std::make_unique<TracedPoint>(shared_from_this(), derivatives);
}

std::unique_ptr<ExtraPoint> point_with_extras(const Map& map) {
  return std::make_unique<TracedPoint>(dynamic_cast<const TracedMap&>(map).shared_from_this(), true);
}

}  // namespace onestep::detail
