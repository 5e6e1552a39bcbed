// Solvers as values: recipes, the methods they become once shapes and data are known, and the calls of users' lambdas.
#include "solve/method.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "solve/foreign_map.h"
#include "solve/model.h"
#include "solve/traced_map.h"

namespace onestep {

std::size_t Parts::checked(std::size_t i) const {
  if (i < parts_.size()) return i;
  throw MisuseError(fmt::format("[Parts] part {} of {}; they are counted from 0", i, parts_.size()));
}

const Array& Parts::only() const {
  if (parts_.size() != 1)
    throw MisuseError(fmt::format("[Parts] {} arrays where one is asked for; take them by their index", parts_.size()));
  return parts_.front();
}

std::ostream& operator<<(std::ostream& out, const Parts& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) out << (i == 0 ? "" : "\n") << parts[i];
  return out;
}

namespace detail {

namespace {
void check_arguments(const char* who, const Body& body, std::size_t parts, std::size_t parameters) {
  if (body.arguments != parts + parameters)
    throw MisuseError(
        fmt::format("[{}] the lambda takes {} arguments; {} parts of the state and {} parameters were given (braces list "
                    "several: a vector is Array{{…}})",
                    who, body.arguments, parts, parameters));
}
}  // namespace

std::vector<Expr> call_body(const char* who, const Body& body, const Expr& x, std::span<const Shape> parts,
                            std::span<const Expr> theta) {
  check_arguments(who, body, parts.size(), theta.size());
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

void Method::bind(const std::vector<Array>& data) {
  if (const std::shared_ptr<const Map> other = step->with_data(data)) step = other;
  if (!users_equation) equation = equation.with_data(data);
}

namespace {

using Traces = Recipe::Traces;

std::vector<Input> named(std::span<const Shape> theta) {
  std::vector<Input> parameters;
  for (std::size_t i = 0; i < theta.size(); ++i)
    parameters.emplace_back(theta.size() == 1 ? "theta" : fmt::format("theta{}", i), theta[i]);
  return parameters;
}

std::vector<Array> copy_of(std::span<const Array> arrays) { return {arrays.begin(), arrays.end()}; }

std::vector<Shape> shapes_of(std::span<const Expr> expressions) {
  std::vector<Shape> shapes;
  for (const Expr& e : expressions) shapes.push_back(e.shape());
  return shapes;
}

Parts zeros_of(std::span<const Shape> shapes) {
  std::vector<Array> zero;
  for (const Shape& s : shapes) zero.push_back(zeros(s));
  return zero;
}

// Each part, and each once more behind them.
template <class Part> std::vector<Part> twice(std::vector<Part> parts) {
  const std::vector<Part> once = parts;
  parts.insert(parts.end(), once.begin(), once.end());
  return parts;
}

Function trace_start(const Recipe& recipe, const std::vector<Input>& parameters) {
  return Function(parameters, [&](std::span<const Expr> theta) {
    std::vector<Expr> parts = call_start(recipe.start, theta);
    return recipe.leaves_out_memory(parts.size(), theta.size()) ? twice(parts) : parts;
  });
}

// A lambda of parts of a state and of the parameters.
Function trace_lambda(const char* who, const Body& body, std::span<const Shape> state,
                      const std::vector<Input>& parameters) {
  check_arguments(who, body, state.size(), parameters.size());
  std::vector<Input> inputs;
  inputs.reserve(state.size() + parameters.size());
  for (const Shape& s : state) inputs.emplace_back("x", s);
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  return Function(std::move(inputs), body.call);
}

}  // namespace

Body traced_alone(const char* who, const Body& body, std::span<const Shape> parts, std::span<const Expr> theta) {
  std::vector<Input> parameters;
  for (const Expr& t : theta) parameters.emplace_back(t.shape());
  return {[function = trace_lambda(who, body, parts, parameters)](std::span<const Expr> in) { return function(in); },
          body.arguments};
}

namespace {

bool all_agree(const Traces& a, const Traces& b, bool (*agree)(const Function&, const Function&)) {
  const auto both = [&](const std::optional<Function>& one, const std::optional<Function>& other) {
    return one.has_value() == other.has_value() && (!one || agree(*one, *other));
  };
  return both(a.lambda, b.lambda) && both(a.start, b.start) && both(a.equation, b.equation);
}

Constants merged(const Constants& given, const Constants& found) {
  const auto pick = [](double one, double other) { return one >= 0 ? one : other; };
  return {pick(given.rho, found.rho), pick(given.L_A, found.L_A), pick(given.L_J, found.L_J),
          pick(given.norm_B, found.norm_B)};
}

}  // namespace

bool Recipe::leaves_out_memory(std::size_t parts, std::size_t parameters) const {
  return remembers && parts > 0 && parts + parameters == lambda.arguments;
}
Parts Recipe::completed(const Parts& given, std::size_t parameters) const {
  if (!leaves_out_memory(given.size(), parameters)) return given;
  return twice(std::vector<Array>(given.begin(), given.end()));
}

Recipe::Ready Recipe::ready(const Parts* given, std::span<const Shape> theta) const {
  const std::vector<Input> parameters = named(theta);
  Ready ready;
  Traces traces;
  std::vector<Shape> state;
  {
    const std::lock_guard lock(*tracing);
    if (state_of) traces.lambda.emplace(trace_lambda(name, lambda, {}, parameters));
    if (start.call) traces.start.emplace(trace_start(*this, parameters));
    if (given != nullptr)
      ready.start = completed(*given, theta.size());
    else if (x0)
      ready.start = completed(*x0, theta.size());
    else if (state_of)
      ready.start = zeros_of(state_of(traces.lambda->outputs()));
    else if (traces.start)
      ready.start = zeros_of(shapes_of(traces.start->outputs()));
    else
      throw MisuseError("[solve] no start: give one in the call, or to the solver with from(x0)");
    for (const Array& a : ready.start) state.push_back(a.shape());
    if (lambda.call && !traces.lambda)
      traces.lambda.emplace(trace_lambda(name, lambda, lambda_state ? lambda_state(state) : state, parameters));
    if (equation.call) traces.equation.emplace(trace_lambda("equation", equation, state, parameters));
  }
  if (traces.equation) check_parts("equation", shapes_of(traces.equation->outputs()), state);
  for (const std::optional<Function>* traced : {&traces.lambda, &traces.start, &traces.equation})
    ready.has_views = ready.has_views || (*traced && has_views(**traced));
  ready.method = method_for(state, parameters, std::move(traces));
  return ready;
}

std::shared_ptr<const Method> Recipe::method_for(const std::vector<Shape>& state, const std::vector<Input>& parameters,
                                                 Traces traces) const {
  std::vector<Shape> shapes = state;
  for (const Input& p : parameters) shapes.push_back(p.shape);
  const std::lock_guard lock(cache->mutex);
  std::vector<Entry>& entries = cache->entries;
  const auto found = std::ranges::find_if(entries, [&](const Entry& e) {
    return e.state_parts == state.size() && e.shapes == shapes && all_agree(e.traces, traces, same_graph);
  });
  if (found != entries.end()) {
    std::rotate(entries.begin(), found, found + 1);
    Entry& entry = entries.front();
    if (all_agree(entry.traces, traces, same_data)) return entry.latest;
    entry.traces = std::move(traces);
    return entry.latest = bound(entry);
  }

  const auto problem_of = [&](const std::optional<Function>& traced, Inside inside = Inside::as_it_is) {
    Problem problem{{}, {}, state, parameters};
    if (traced) problem.lambda = with_data_as_arguments(*traced, inside);
    if (traced) problem.data = copy_of(data_of(*traced));
    return problem;
  };
  const std::shared_ptr<Method> made = make(problem_of(traces.lambda));
  made->known = merged(known, made->known);
  if (traces.lambda && has_solves(*traces.lambda)) {
    made->inside_left_out = left_out_inside(*traces.lambda);
    made->lacks_orders = lacks_orders_inside(*traces.lambda, orders);
    made->precise =
        Lazy<Method>([from = make, p = problem_of(traces.lambda, Inside::precise)]() -> std::shared_ptr<const Method> {
          return from(p);
        });
  }
  made->users_equation = equation.call || foreign_equation;
  if (foreign_equation)
    made->equation = std::make_shared<const ForeignMap>("equation", *foreign_equation, made->step->state, parameters);
  if (traces.equation)
    made->equation = LazyMap([p = problem_of(traces.equation)] {
      return std::make_shared<const TracedMap>(
          p.state, p.parameters, p.data, std::vector<Control>{},
          [&](const Expr& x, std::span<const Expr> t, std::span<const Expr>) {
            return TracedStep{joined("equation", call_body("equation", p.lambda, x, p.state, t), p.state), {}, {}};
          },
          false);
    });
  if (traces.start) {
    const Problem p = problem_of(traces.start);
    made->start = std::make_shared<const TracedMap>(
        made->step->state, parameters, p.data, std::vector<Control>{},
        [&](const Expr&, std::span<const Expr> t, std::span<const Expr>) {
          return TracedStep{joined("from", p.lambda.call(t), made->step->state), {}, {}};
        },
        false, TracedMap::Derivatives::when_asked);
  }
  entries.insert(entries.begin(), Entry{std::move(shapes), state.size(), std::move(traces), made, made});
  if (entries.size() > Cache::most_entries) entries.pop_back();
  return made;
}

// From the first method, so that the way back to its plans does not grow with the number of calls.
std::shared_ptr<const Method> Recipe::bound(const Entry& entry) const {
  const Traces& t = entry.traces;
  const std::shared_ptr<Method> method =
      entry.first->with_data(t.lambda ? copy_of(data_of(*t.lambda)) : std::vector<Array>{});
  if (t.lambda) method->precise = entry.first->precise.with_data(copy_of(data_of(*t.lambda)));
  if (t.equation) method->equation = entry.first->equation.with_data(copy_of(data_of(*t.equation)));
  if (t.start) method->start = entry.first->start.with_data(copy_of(data_of(*t.start)));
  return method;
}

Parts Recipe::start_for(std::span<const Shape> theta) const {
  if (x0) return completed(*x0, theta.size());
  const std::vector<Input> inputs(theta.begin(), theta.end());
  const std::lock_guard lock(*tracing);
  if (state_of) return zeros_of(state_of(trace_lambda(name, lambda, {}, inputs).outputs()));
  if (start.call) return zeros_of(shapes_of(trace_start(*this, inputs).outputs()));
  throw MisuseError("[solve] no start: give one in the call, or to the solver with from(x0)");
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

TrialFunction::TrialFunction(std::size_t n, std::vector<Input> parameters, std::vector<Array> data, Value value)
    : shared_(std::make_shared<Shared>()), data_(std::move(data)) {
  shared_->inputs.emplace_back("x", Shape{static_cast<std::int64_t>(n)});
  shared_->levels.push_back(2);
  for (Input& p : parameters) shared_->inputs.push_back(std::move(p));
  shared_->levels.resize(shared_->inputs.size(), 1);
  for (const Array& a : data_) shared_->inputs.emplace_back("data", a.shape());
  shared_->levels.resize(shared_->inputs.size(), 0);
  shared_->value = std::move(value);
}
const Plan& TrialFunction::plan() const {
  std::call_once(shared_->once, [&] {
    const Function function(
        shared_->inputs, [&](std::span<const Expr> in) { return std::vector<Expr>{shared_->value(in[0], in.subspan(1))}; });
    shared_->plan.emplace(function, PlanOptions{.levels = shared_->levels});
  });
  return *shared_->plan;
}

Trial::Trial(const TrialFunction& function, std::size_t n, const std::vector<Input>& parameters)
    : plan_(function.plan()), workspace_(plan_.workspace()), x_(n), inputs_{Array::view(x_)} {
  for (const Input& p : parameters) inputs_.push_back(zeros(p.shape));
  inputs_.insert(inputs_.end(), function.data().begin(), function.data().end());
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
  detail::Recipe copy = recipe().start.call ? recipe().changed() : recipe();
  copy.start = {};
  copy.x0 = std::move(x0);
  return made_from(std::move(copy));
}
Solver Solver::from_body(detail::Body start) const {
  detail::Recipe copy = recipe().changed();
  copy.start = std::move(start);
  copy.x0.reset();
  return made_from(std::move(copy));
}
Solver Solver::with(SolveOptions options) const {
  detail::check(options);
  detail::Recipe copy = recipe();
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
  detail::Recipe copy = recipe().changed();
  copy.known = constants;
  return made_from(std::move(copy));
}
Solver Solver::with_equation(detail::Body residual) const {
  detail::Recipe copy = recipe().changed();
  copy.equation = std::move(residual);
  copy.foreign_equation.reset();
  return made_from(std::move(copy));
}
Solver Solver::equation(ForeignStep residual) const {
  if (!residual.apply) throw MisuseError("[equation] a foreign equation needs its apply callback");
  detail::Recipe copy = recipe().changed();
  copy.equation = {};
  copy.foreign_equation = std::move(residual);
  return made_from(std::move(copy));
}

}  // namespace onestep
