// Quadratic programs as a solver: data that are traced functions of θ, the interior point method, and its derivatives. The
// state is x, the multipliers of the equalities, of the rows and of the bounds.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "graph/graph.h"
#include "graph/rules.h"
#include "onestep/diff.h"
#include "qp/data.h"
#include "qp/derivative.h"
#include "qp/interior_point.h"
#include "qp/point.h"
#include "qp/traced_program.h"
#include "solve/monitor.h"
#include "solve/recipe.h"

namespace onestep::detail {
namespace {

class QpMap final : public Map {
 public:
  std::unique_ptr<Point> point(bool) const override {
    throw MisuseError(
        "[quadratic_program] a step of the interior point method cannot be evaluated at another point than where the "
        "solve made it: OneStep, Implicit and Auto differentiate it, KStep{1} too");
  }
};

class QpMethod final : public Method {
 public:
  std::unique_ptr<Loop> loop() const override;
  std::shared_ptr<Method> with_data(const std::vector<Array>& other) const override {
    auto copy = std::make_shared<QpMethod>(*this);
    copy->data.constants = other;
    return copy;
  }

  QpDataPlan data;
};

class QpLoop final : public Loop, public NativeSolution, private AtSolution {
 public:
  explicit QpLoop(const QpMethod& method)
      : data_(method.data),
        solver_(data_.data().n, data_.data().m, data_.data().p),
        derivative_(solver_),
        last_(derivative_, QpDerivativeAt::previous_iterate, data_, method.data.sizes, 1),
        here_(derivative_, QpDerivativeAt::solution, data_, method.data.sizes, 1),
        equation_(derivative_, QpDerivativeAt::solution, data_, method.data.sizes, -1) {}

  void solve(std::span<const Array> theta, const SolveOptions& options, Run& run) override {
    Monitor monitor(options, run);
    run.controls.clear();
    derivative_.forget();
    options_.relative = options.tolerance;
    options_.step = small_step;
    options_.iteration_limit = options.max_iterations;
    options_.time_limit = options.time_limit;
    if (options.callback || options.log != nullptr || options.history)
      options_.callback = [&](const QpProgress& p) {
        const double error = std::max({p.primal.relative, p.dual.relative, p.gap.relative});
        if (options.history) run.statistics.history.push_back(error);
        return tell(options,
                    {p.iteration + 1, error, 1, p.objective, std::min(p.primal_step, p.dual_step), monitor.seconds()});
      };
    else
      options_.callback = {};
    const auto n = data_.data().n, m = data_.data().m, p = data_.data().p;
    const ConstVector start = run.start;
    const bool warm = std::ranges::any_of(start, [](double e) { return e != 0; });
    const QpStart from =
        warm ? QpStart{start.first(n), start.subspan(n, m), start.subspan(n + m, p), start.subspan(n + m + p, n)}
             : QpStart{};
    const QpSolution& found = solver_.solve(data_.bind(theta), options_, from);
    // Where the method never began there is no point.
    const bool began = !found.x.empty() && found.status != Status::not_convex;
    if (began)
      join({found.x, found.y, found.z, found.bound_multipliers}, run.x);
    else
      run.x = run.start;
    run.previous = run.x;
    run.last_step = found.last_change;
    run.proof.clear();
    if (!found.infeasible_bounds.empty()) {
      run.proof.resize(run.x.size());
      join({found.infeasible_y, found.infeasible_z, found.infeasible_bounds}, Vector(run.proof).subspan(n));
    } else if (!found.unbounded_direction.empty()) {
      run.proof.resize(run.x.size());
      join({found.unbounded_direction}, run.proof);
    }
    run.trajectory.record(run.x, run.controls);
    run.statistics.iterations = found.iterations;
    run.statistics.evaluations = found.iterations;
    run.statistics.factorisations = found.factorisations;
    std::string about;
    if (found.culprit != nullptr) about = fmt::format("{}, entry {}", found.culprit, found.culprit_index);
    monitor.end(found.status, std::move(about));
  }
  Point& last() override { return last_; }
  AtSolution* at_solution() override { return this; }
  void measure_units(std::span<double> values, std::span<double> multipliers) override {
    solver_.measure_units(values, multipliers);
  }
  void write_optimum(std::span<double> state) override { solver_.write_optimum(state); }

 private:
  SolutionPoint& step() override { return here_; }
  SolutionPoint& equation() override { return equation_; }
  std::string degeneracy() override {
    if (derivative_.active_set().is_settled()) return "";
    derivative_.linearise(QpDerivativeAt::solution);
    return describe(derivative_.find_degeneracy(), data_.data());
  }
  void settle() override { degeneracy(); }
  static void join(std::initializer_list<ConstVector> parts, Vector to) {
    auto at = to.begin();
    for (const ConstVector part : parts) at = std::ranges::copy(part, at).out;
  }
  QpDataAt data_;
  InteriorPoint solver_;
  QpDerivative derivative_;
  QpPoint last_, here_, equation_;
  InteriorPointOptions options_;
};

std::unique_ptr<Loop> QpMethod::loop() const { return std::make_unique<QpLoop>(*this); }

// The program's data as functions of the parameters, with the derivatives of those that depend on them.
QpDataPlan plan_data(const Problem& problem) {
  const std::vector<Input>& parameters = problem.parameters;
  const std::size_t thetas = parameters.size();
  QpDataPlan result;
  result.constants = problem.data;
  result.parameters = parameters;
  std::vector<Input> of_values = parameters;
  for (const Array& a : problem.data) of_values.emplace_back("data", a.shape());
  const Function values(of_values, [&](std::span<const Expr> in) {
    const TracedProgram traced = program_of(problem.lambda.call(in));
    result.sizes = sizes_of(traced);
    return full_blocks(traced, result.sizes);
  });
  const Sizes& s = result.sizes;
  std::vector<Id> ids(thetas);  // a graph begins with its inputs
  std::iota(ids.begin(), ids.end(), 0);
  const Indexed<bool> moves = graph_of(values)->between(ids, ids_of(values.outputs()));
  result.smooth = graph_of(values)->kinks_between(ids, ids_of(values.outputs())).empty();
  const std::array<Shape, blocks> shapes = shapes_of(s);
  std::vector<Input> inputs = parameters;
  std::vector<int> levels(thetas, QpDataPlan::theta_level);
  for (std::size_t i = 0; i < blocks; ++i) {
    result.moves[i] = moves[id_of(values.outputs()[i])];
    if (result.moves[i]) inputs.emplace_back(fmt::format("{}_bar", block_names[i]), shapes[i]);
  }
  levels.resize(inputs.size(), QpDataPlan::pull_back_branch);
  const std::size_t bar_count = inputs.size() - thetas;
  for (const Input& p : parameters) inputs.emplace_back("d_" + p.name, p.shape);
  levels.resize(inputs.size(), QpDataPlan::push_forward_branch);
  inputs.insert(inputs.end(), of_values.begin() + static_cast<std::ptrdiff_t>(thetas), of_values.end());
  levels.resize(inputs.size(), QpDataPlan::constants_level);
  const Function family(inputs, [&](std::span<const Expr> in) {
    const std::span<const Expr> theta = in.first(thetas), bars = in.subspan(thetas, bar_count),
                                dtheta = in.subspan(thetas + bar_count, thetas);
    std::vector<Expr> of_both(theta.begin(), theta.end());
    of_both.insert(of_both.end(), in.end() - static_cast<std::ptrdiff_t>(problem.data.size()), in.end());
    std::vector<Expr> results = values(of_both), moving;
    for (std::size_t i = 0; i < blocks; ++i)
      if (result.moves[i]) moving.push_back(results[i]);
    const auto append = [&](const std::vector<Expr>& more) { results.insert(results.end(), more.begin(), more.end()); };
    append(vjp(moving, theta, bars));
    append(jvp(moving, theta, dtheta));
    return results;
  });
  result.plan.emplace(family, PlanOptions{.levels = levels,
                                          .loop = QpDataPlan::theta_level,
                                          .branches = QpDataPlan::pull_back_branch,
                                          .context = problem.context});
  return result;
}

std::shared_ptr<Method> make_method(const Problem& problem) {
  auto method = std::make_shared<QpMethod>();
  method->data = plan_data(problem);
  const Sizes& s = method->data.sizes;
  auto step = std::make_shared<QpMap>(), equation = std::make_shared<QpMap>();
  for (QpMap* map : {step.get(), equation.get()}) {
    map->state = {{s.n}, {s.m}, {s.p}, {s.n}};
    map->parameters = problem.parameters;
    map->infinite_parameters = true;
    map->smooth = method->data.smooth;
  }
  equation->symmetric = equation->identity = true;
  if (problem.state != step->state)
    throw MisuseError(
        fmt::format("[quadratic_program] a start has four parts, x ({}), y ({}), z ({}) and bound multipliers ({})", s.n,
                    s.m, s.p, s.n));
  method->step = step;
  method->equation = equation;
  method->superlinear = true;
  return method;
}

}  // namespace

Solver make_quadratic_program(const ProgramBody& program, const SolveOptions& options) {
  check(options);
  Recipe recipe;
  recipe.name = "quadratic_program";
  recipe.lambda = body_of(program);
  recipe.options = options;
  recipe.superlinear = true;
  recipe.state_of = [](std::span<const Expr> given) {
    const Sizes s = sizes_of(program_of(given));
    return std::vector<Shape>{{s.n}, {s.m}, {s.p}, {s.n}};
  };
  recipe.make = make_method;
  recipe.undamped = [lambda = recipe.lambda](const std::vector<Shape>& state, const Expr& w, std::span<const Expr> theta) {
    const Sizes s{state[0][0], state[1][0], state[2][0]};
    return solve_active_set(program_of(lambda.call(theta)), s, w);
  };
  recipe.for_unrolling = std::make_shared<const Recipe>(traced_interior_point(recipe));
  return solver_of(std::move(recipe));
}

}  // namespace onestep::detail

namespace onestep {

Solver quadratic_program(const SolveOptions& options) {
  return quadratic_program([](Expr Q, Expr q, Expr A, Expr b, Expr G, Expr l, Expr u, Expr lo,
                              Expr hi) { return TracedProgram{Q, q, A, b, G, l, u, lo, hi}; },
                           options);
}

Parts parts_of(const QuadraticProgram& program) {
  const QuadraticProgramSizes s = sizes_of(program);
  const std::array<std::pair<const Array*, Shape>, 9> all{{{&program.Q, {s.variables, s.variables}},
                                                           {&program.q, {s.variables}},
                                                           {&program.A, {s.equalities, s.variables}},
                                                           {&program.b, {s.equalities}},
                                                           {&program.G, {s.inequalities, s.variables}},
                                                           {&program.l, {s.inequalities}},
                                                           {&program.u, {s.inequalities}},
                                                           {&program.lo, {s.variables}},
                                                           {&program.hi, {s.variables}}}};
  std::vector<Array> parts;
  for (const auto& [array, shape] : all) parts.push_back(array->shape() == shape ? *array : full(shape, array->item()));
  return parts;
}

}  // namespace onestep
