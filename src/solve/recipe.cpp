// Recipes become methods: users' lambdas are called and traced, and what was made of the same graph is used again.
#include "solve/recipe.h"

#include <fmt/format.h>

#include <algorithm>

#include "solve/foreign_map.h"
#include "solve/lambda.h"
#include "solve/traced_map.h"

namespace onestep::detail {

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

// The memory of a loop is kept where making it takes as long as a solve.
void set_loop_reuse(Method& method, std::span<const Shape> shapes, std::size_t state_parts, const Traces& traces) {
  constexpr std::size_t most_entries = 1 << 14;
  const std::size_t n = flat_size(shapes.first(state_parts));
  std::size_t entries = n * n + flat_size(shapes);
  method.data_may_change = false;
  for (const std::optional<Function>* traced : {&traces.lambda, &traces.start, &traces.equation}) {
    if (!*traced) continue;
    method.data_may_change = method.data_may_change || has_views(**traced);
    for (const Array& a : data_of(**traced)) entries += static_cast<std::size_t>(a.shape().size());
  }
  method.keeps_loop = entries <= most_entries;
}

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
    const auto turn = tracing->hold();
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
  const auto held = cache->hold();
  std::vector<Entry>& entries = held->entries;
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
    Problem problem{{}, {}, state, parameters, context_of_plans()};
    if (traced) problem.lambda = with_data_as_arguments(*traced, inside);
    if (traced) problem.data = copy_of(data_of(*traced));
    return problem;
  };
  const std::shared_ptr<Method> made = make(problem_of(traces.lambda));
  made->known = merged(known, made->known);
  set_loop_reuse(*made, shapes, state.size(), traces);
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
          false, p.context);
    });
  if (traces.start) {
    const Problem p = problem_of(traces.start);
    made->start = std::make_shared<const TracedMap>(
        made->step->state, parameters, p.data, std::vector<Control>{},
        [&](const Expr&, std::span<const Expr> t, std::span<const Expr>) {
          return TracedStep{joined("from", p.lambda.call(t), made->step->state), {}, {}};
        },
        false, p.context, TracedMap::Derivatives::when_asked);
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
  set_loop_reuse(*method, entry.shapes, entry.state_parts, t);
  return method;
}

Parts Recipe::start_for(std::span<const Shape> theta) const {
  if (x0) return completed(*x0, theta.size());
  const std::vector<Input> inputs(theta.begin(), theta.end());
  const auto turn = tracing->hold();
  if (state_of) return zeros_of(state_of(trace_lambda(name, lambda, {}, inputs).outputs()));
  if (start.call) return zeros_of(shapes_of(trace_start(*this, inputs).outputs()));
  throw MisuseError("[solve] no start: give one in the call, or to the solver with from(x0)");
}

// Plans for the standard backend run on the threads of whoever runs them, so that solvers in several contexts share them.
Context Recipe::context_of_plans() const { return context.backend() == Context().backend() ? Context() : context; }

Recipe Recipe::changed() const {
  Recipe copy = *this;
  copy.cache = std::make_shared<parallel::Shared<Cache>>();
  return copy;
}

}  // namespace onestep::detail
