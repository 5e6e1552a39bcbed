// Solvers as values: recipes, the methods they become once shapes are known, and the calls of users' lambdas.
#include "solve/method.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "solve/foreign_map.h"
#include "solve/traced_map.h"

namespace onestep {

Parts::operator Array() const {
  if (parts_.size() != 1)
    throw MisuseError(fmt::format("[Parts] {} arrays where one is asked for; take them by their index", parts_.size()));
  return parts_.front();
}

namespace detail {

std::vector<Expr> call_body(const char* who, const Body& body, const Expr& x, std::span<const Shape> parts,
                            std::span<const Expr> theta) {
  if (body.arguments != parts.size() + theta.size())
    throw MisuseError(fmt::format("[{}] the lambda takes {} arguments; {} parts of the state and {} parameters were given",
                                  who, body.arguments, parts.size(), theta.size()));
  std::vector<Expr> all = parts_of(x, parts);
  all.insert(all.end(), theta.begin(), theta.end());
  return body.call(all);
}

Expr call_objective(const char* who, const Body& body, const Expr& x, std::span<const Shape> parts,
                    std::span<const Expr> theta) {
  const std::vector<Expr> value = call_body(who, body, x, parts, theta);
  if (value.size() != 1 || value[0].shape().size() != 1)
    throw MisuseError(fmt::format("[{}] the objective must be one number, it has shape {}; use sum", who,
                                  value.empty() ? "nothing" : to_string(value[0].shape())));
  return reshape(value[0], {});
}

namespace {
std::vector<Expr> call_start(const Body& start, std::span<const Expr> theta) {
  if (start.arguments != theta.size())
    throw MisuseError(
        fmt::format("[from] the start is a lambda of {} arguments, there are {} parameters", start.arguments, theta.size()));
  return start.call(theta);
}
}  // namespace

std::shared_ptr<const Method> Recipe::method(std::span<const Array> x_parts, std::span<const Array> theta) const {
  std::vector<Shape> key;
  for (const Array& a : x_parts) key.push_back(a.shape());
  key.push_back({0, 0});  // between the state and the parameters
  for (const Array& a : theta) key.push_back(a.shape());
  const std::lock_guard lock(cache->mutex);
  for (const auto& [shapes, method] : cache->methods)
    if (shapes == key) return method;
  const std::vector<Shape> state(key.begin(), key.begin() + static_cast<std::ptrdiff_t>(x_parts.size()));
  std::vector<Input> parameters;
  for (std::size_t i = 0; i < theta.size(); ++i)
    parameters.emplace_back(theta.size() == 1 ? "theta" : fmt::format("theta{}", i), theta[i].shape());
  const std::shared_ptr<Method> made = make(state, parameters);
  // What the user knows goes before what the method worked out, field by field.
  for (double Constants::*field : {&Constants::rho, &Constants::L_A, &Constants::L_J, &Constants::norm_B})
    if (known.*field >= 0) made->known.*field = known.*field;
  if (equation.call)
    made->equation = std::make_shared<TracedMap>(
        made->step->state, parameters, std::vector<Control>{},
        [&](const Expr& x, std::span<const Expr> t, std::span<const Expr>) {
          return TracedStep{
              joined("equation", call_body("equation", equation, x, made->step->state, t), made->step->state), {}, {}};
        },
        false);
  made->users_equation = equation.call || foreign_equation;
  if (foreign_equation)
    made->equation = std::make_shared<ForeignMap>("equation", *foreign_equation, made->step->state, parameters);
  if (start.call)
    made->start = std::make_shared<TracedMap>(
        made->step->state, parameters, std::vector<Control>{},
        [&](const Expr&, std::span<const Expr> t, std::span<const Expr>) {
          return TracedStep{joined("from", call_start(start, t), made->step->state), {}, {}};
        },
        false);
  cache->methods.emplace_back(std::move(key), made);
  return made;
}

Parts Recipe::start_for(std::span<const Shape> theta) const {
  if (x0) return *x0;
  const std::vector<Input> inputs(theta.begin(), theta.end());
  std::vector<Shape> state;
  if (state_of) {
    state = state_of(inputs);
  } else if (start.call) {
    const Function traced(inputs, [&](std::span<const Expr> t) { return call_start(start, t); });
    for (const Expr& e : traced.outputs()) state.push_back(e.shape());
  } else {
    throw MisuseError("[solve] no start: give one in the call, or to the solver with from(x0)");
  }
  std::vector<Array> zero;
  for (const Shape& s : state) zero.push_back(zeros(s));
  return zero;
}

Recipe Recipe::changed() const {
  Recipe copy = *this;
  copy.cache = std::make_shared<Cache>();
  return copy;
}

void Trajectory::keep_last(std::size_t count) { last_ = count; }
void Trajectory::keep_first(std::size_t entries) {
  first_entries_ = entries;
  keeps_controls_ = true;
}

void Trajectory::clear(std::size_t n) {
  n_ = n;
  steps_ = kept_ = 0;
  controls_.clear();
  controls_from_.clear();
}

void Trajectory::release() {
  kept_ = 0;
  chunks_.clear();
}

void Trajectory::record(ConstVector x, ConstVector controls) {
  control_count_ = controls.size();
  if (last_ > 0) {
    std::ranges::copy(x, place(static_cast<std::size_t>(steps_) % last_).begin());
    kept_ = std::min(kept_ + 1, static_cast<int>(last_));
  } else if (keeps_controls_) {
    if (kept_ == steps_ && (static_cast<std::size_t>(kept_) + 1) * n_ <= first_entries_)
      std::ranges::copy(x, place(static_cast<std::size_t>(kept_++)).begin());
    // They are the same for all steps, or for all near the solution: only changes are kept.
    if (controls_from_.empty() || !std::ranges::equal(controls, ConstVector(controls_).last(control_count_))) {
      controls_.insert(controls_.end(), controls.begin(), controls.end());
      controls_from_.push_back(steps_);
    }
  }
  ++steps_;
}

// In chunks, which never move: a vector that grows would need twice the memory for a moment.
Vector Trajectory::place(std::size_t index) {
  const std::size_t in_chunk = std::max<std::size_t>(1, 4096 / std::max<std::size_t>(n_, 1));
  while (chunks_.size() <= index / in_chunk) chunks_.emplace_back(in_chunk * n_);
  return Vector(chunks_[index / in_chunk]).subspan(index % in_chunk * n_, n_);
}

bool Trajectory::keeps(int step) const { return last_ > 0 ? step >= steps_ - kept_ : step < kept_; }
Vector Trajectory::state(int step) {
  return place(last_ > 0 ? static_cast<std::size_t>(step) % last_ : static_cast<std::size_t>(step));
}
ConstVector Trajectory::controls(int step) const {
  const auto behind = std::ranges::upper_bound(controls_from_, step);
  const auto index = static_cast<std::size_t>(behind - controls_from_.begin()) - 1;
  return ConstVector(controls_).subspan(index * control_count_, control_count_);
}

Plan plan_trial(std::size_t n, const std::vector<Input>& parameters,
                const std::function<Expr(const Expr& x, std::span<const Expr> theta)>& value) {
  std::vector<Input> inputs{{"x", Shape{static_cast<std::int64_t>(n)}}};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  std::vector<int> levels(inputs.size(), 1);
  levels[0] = 2;
  return Plan(Function(inputs, [&](std::span<const Expr> in) { return std::vector<Expr>{value(in[0], in.subspan(1))}; }),
              {.levels = levels});
}

Trial::Trial(const Plan& plan, std::size_t n, const std::vector<Input>& parameters)
    : plan_(plan), workspace_(plan.workspace()), x_(n), inputs_{Array::view(x_)} {
  for (const Input& p : parameters) inputs_.push_back(zeros(p.shape));
}
void Trial::bind(std::span<const Array> theta) {
  std::ranges::copy(theta, inputs_.begin() + 1);
  changed_ = 1;
}
double Trial::operator()(ConstVector x) {
  std::ranges::copy(x, x_.begin());
  double value = 0;
  const Vector out(&value, 1);
  plan_.run(workspace_, inputs_, {&out, 1}, changed_);
  changed_ = 2;
  return value;
}

}  // namespace detail

namespace {
Solver made_from(detail::Recipe recipe) { return Solver(std::make_shared<const detail::Recipe>(std::move(recipe))); }
}  // namespace

Solver Solver::from(Parts x0) const {
  detail::Recipe copy = recipe_->start.call ? recipe_->changed() : *recipe_;
  copy.start = {};
  copy.x0 = std::move(x0);
  return made_from(std::move(copy));
}
Solver Solver::from_body(detail::Body start) const {
  detail::Recipe copy = recipe_->changed();
  copy.start = std::move(start);
  copy.x0.reset();
  return made_from(std::move(copy));
}
Solver Solver::with(SolveOptions options) const {
  detail::check(options);
  detail::Recipe copy = *recipe_;
  if (copy.by_steps) {
    detail::Recipe steps = *copy.by_steps;
    steps.options = options;
    copy.by_steps = std::make_shared<const detail::Recipe>(std::move(steps));
  }
  copy.options = std::move(options);
  return made_from(std::move(copy));
}
Solver Solver::knowing(Constants constants) const {
  for (const auto& [name, value] :
       {std::pair{"rho", constants.rho}, {"L_A", constants.L_A}, {"L_J", constants.L_J}, {"norm_B", constants.norm_B}})
    if (std::isnan(value)) throw MisuseError(fmt::format("[knowing] {} is not a number; leave out what is not known", name));
  detail::Recipe copy = recipe_->changed();
  copy.known = constants;
  return made_from(std::move(copy));
}
Solver Solver::with_equation(detail::Body residual) const {
  detail::Recipe copy = recipe_->changed();
  copy.equation = std::move(residual);
  copy.foreign_equation.reset();
  return made_from(std::move(copy));
}
Solver Solver::equation(ForeignStep residual) const {
  if (!residual.apply) throw MisuseError("[equation] a foreign equation needs its apply callback");
  detail::Recipe copy = recipe_->changed();
  copy.equation = {};
  copy.foreign_equation = std::move(residual);
  return made_from(std::move(copy));
}

}  // namespace onestep
