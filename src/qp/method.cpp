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
#include "qp/traced_program.h"
#include "solve/monitor.h"
#include "solve/recipe.h"

namespace onestep::detail {
namespace {

class QpMap final : public Map {
 public:
  std::unique_ptr<Point> point(bool) const override {
    throw MisuseError(
        "[quadratic_program] a step of the interior point method stands only where the solve made it: OneStep, "
        "Implicit and Auto differentiate it, KStep{1} too");
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

// Relative length of the last step where it is differentiated: the derivative has the error of the iterate before it.
constexpr double small_step = 1e-9;

/// The derivative of the solved program: of the last step, or of its solution. As an equation it reads w - S(θ) = 0, with
/// the linear solve inside S: its derivative by w is the identity.
class QpPoint final : public SolutionPoint, private InnerSolve {
 public:
  QpPoint(QpDerivative& derivative, QpDerivativeAt at, QpDataAt& data, const Sizes& sizes, double sign)
      : derivative_(derivative), at_(at), data_(data), sizes_(sizes), sign_(sign) {}

  void bind(std::span<const Array>) override {}
  bool apply(ConstVector, ConstVector, Vector) override { return true; }
  bool control(ConstVector, Vector) override { return true; }
  ConstVector where() const override { return {}; }
  void jvp_x(ConstVector dx, Vector out) override { identity(dx, out); }
  void vjp_x(ConstVector c, Vector out) override { identity(c, out); }
  void jvp_theta(std::span<const Array> dtheta, Vector out) override {
    derivative_.linearise(at_);
    const auto n = static_cast<std::size_t>(sizes_.n), m = static_cast<std::size_t>(sizes_.m),
               p = static_cast<std::size_t>(sizes_.p);
    residual_ = derivative_.jvp(data_.push_forward(dtheta), out.first(n), out.subspan(n, m), out.subspan(n + m, p),
                                out.subspan(n + m + p, n));
    for (double& e : out) e *= sign_;
    data_.owner = this;
    last_is_jvp_ = true;
    last_.assign(out.begin(), out.end());
    doubt_.reset();
  }
  void vjp_theta(ConstVector c, std::span<const Vector> out) override {
    derivative_.linearise(at_);
    const auto n = static_cast<std::size_t>(sizes_.n), m = static_cast<std::size_t>(sizes_.m),
               p = static_cast<std::size_t>(sizes_.p);
    residual_ =
        derivative_.vjp(c.first(n), c.subspan(n, m), c.subspan(n + m, p), c.subspan(n + m + p, n), data_.cotangents());
    data_.pull_back(out);
    for (const Vector o : out)
      for (double& e : o) e *= sign_;
    data_.owner = this;
    last_is_jvp_ = false;
    last_.assign(c.begin(), c.end());
    last_size_ = norm(out);
    doubt_.reset();
  }
  InnerSolve* inner_solve() override { return this; }
  Doubt doubt() override {
    if (!doubt_) doubt_ = measure_doubt();
    return *doubt_;
  }

 private:
  double residual() const override { return residual_; }
  double tolerance() const override { return 1e-10; }

  // Of the step (sign 1) A is zero at the solution; of the equation (sign -1) it is the identity.
  void identity(ConstVector v, Vector out) const {
    if (sign_ < 0)
      std::ranges::copy(v, out.begin());
    else
      std::ranges::fill(out, 0.0);
  }

  /// The last derivative against the one by the active set's own factor at the optimum, both in extended precision; and what
  /// the error that is left in these two, and rounding of the result, do to it.
  Doubt measure_doubt() {
    constexpr double safety = 4, rounding = 8 * std::numeric_limits<double>::epsilon();
    Doubt doubt;
    doubt.reason = reason();
    if (doubt.reason.empty() && data_.owner != this) doubt.reason = "another derivative was taken since";
    if (!doubt.reason.empty()) {
      doubt.left_out = std::numeric_limits<double>::infinity();
      return doubt;
    }
    derivative_.linearise(at_);
    const auto n = static_cast<std::size_t>(sizes_.n), m = static_cast<std::size_t>(sizes_.m),
               p = static_cast<std::size_t>(sizes_.p);
    const auto parts = [&](auto w) {
      return std::array{w.first(n), w.subspan(n, m), w.subspan(n + m, p), w.subspan(n + m + p, n)};
    };
    double error = 0;
    if (last_is_jvp_) {
      std::vector<double> precise(last_.size()), moved(last_.size());
      const auto tangents = [&](Vector w) {
        const auto part = parts(w);
        return QpTangents{part[0], part[1], part[2], part[3]};
      };
      error = derivative_.jvp_precisely(data_.tangents(), tangents(precise), tangents(moved));
      doubt.rounding = rounding * norm(precise);
      for (std::size_t i = 0; i < last_.size(); ++i) {
        moved[i] -= precise[i];
        precise[i] -= sign_ * last_[i];
      }
      doubt.left_out = norm(precise);
      doubt.from_distance = safety * norm(moved);
      if (!data_.is_smooth()) {
        const std::vector<Array> direction = data_.direction();
        look_for_kinks(doubt, norm(last_), [&] {
          std::vector<double> out(last_.size());
          const auto part = parts(Vector(out));
          derivative_.jvp(data_.push_forward(direction), part[0], part[1], part[2], part[3]);
          return out;
        });
      }
    } else {
      std::vector<std::vector<double>> returned = data_.bars(), precise = returned, moved = returned;
      const auto c = parts(ConstVector(last_));
      error = derivative_.vjp_precisely(c[0], c[1], c[2], c[3], QpDataAt::view_of(precise), QpDataAt::view_of(moved));
      doubt.left_out = returned == precise ? 0 : norm_of_pulled_back(returned, precise);
      doubt.from_distance = safety * norm_of_pulled_back(moved, precise);
      // Rounding of the sums that θ̄ is made of, and of each cotangent of the data.
      for (std::size_t i = 0; i < blocks; ++i)
        for (std::size_t k = 0; k < precise[i].size(); ++k) moved[i][k] = precise[i][k] * (k % 2 == 0 ? 2 : 0);
      doubt.rounding = rounding * (last_size_ + doubt.left_out + norm_of_pulled_back(moved, precise));
      if (!data_.is_smooth()) {
        look_for_kinks(doubt, last_size_, [&] {
          data_.bars() = precise;
          return data_.pulled_back();
        });
      }
    }
    if (!(error < 1e-3)) {
      doubt.left_out = std::numeric_limits<double>::infinity();
      doubt.reason = fmt::format("the linear system of the derivative was solved to {:.1e} only", error);
    }
    return doubt;
  }
  /// At a kink of the data the solution has no derivative: where they may have one, the derivative is taken with parameters
  /// beside those given, and its change counts.
  template <class Derivative> void look_for_kinks(Doubt& doubt, double size, const Derivative& derivative) {
    constexpr double visible = 0.1;
    const std::vector<double> here = derivative();
    double most = 0;
    const bool goes_on = data_.look_beside([&] {
      std::vector<double> there = derivative();
      for (std::size_t i = 0; i < there.size(); ++i) there[i] -= here[i];
      const double change = norm(there);
      most = std::isnan(most) || change <= most ? most : change;
    });
    doubt.from_distance += most;
    if (!goes_on)
      doubt.reason = "the data of the program jump at these parameters, or within rounding of them";
    else if (!(most <= visible * size))
      doubt.reason = "the data of the program have a kink at these parameters, or within rounding of them";
    if (!doubt.reason.empty()) doubt.left_out = std::numeric_limits<double>::infinity();
  }
  std::string reason();
  double norm_of_pulled_back(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
    for (std::size_t i = 0; i < blocks; ++i)
      for (std::size_t k = 0; k < a[i].size(); ++k) data_.bars()[i][k] = a[i][k] - b[i][k];
    data_.owner = nullptr;
    return norm(data_.pulled_back());
  }

  QpDerivative& derivative_;
  QpDerivativeAt at_;
  QpDataAt& data_;
  const Sizes& sizes_;
  double sign_;
  double residual_ = 0;
  bool last_is_jvp_ = false;
  std::vector<double> last_;  // what jvp returned, or the cotangent vjp was given
  double last_size_ = 0;      // of what vjp returned
  std::optional<Doubt> doubt_;
};

std::string constraint_name(const QpData& data, std::size_t i) {
  if (i < data.m) return fmt::format("equality {}", i);
  return i < data.m + data.p ? fmt::format("row {}", i - data.m) : fmt::format("variable {}", i - data.m - data.p);
}

std::string describe(const QpDegeneracy& found, const QpData& data) {
  if (found.none()) return "";
  std::string text;
  const auto list = [&](const char* what, const std::vector<std::size_t>& which, const auto& about) {
    if (which.empty()) return;
    text += text.empty() ? "" : "; ";
    text += what;
    for (std::size_t i = 0; i < std::min<std::size_t>(which.size(), 8); ++i)
      text += (i == 0 ? " " : ", ") + constraint_name(data, which[i]) + about(i);
    if (which.size() > 8) text += fmt::format(" and {} more", which.size() - 8);
  };
  const auto nothing = [](std::size_t) { return std::string(); };
  list("strict complementarity fails at", found.undecided, [&](std::size_t i) {
    return i < found.margins.size()
               ? fmt::format(" (slack {:.1e}, multiplier {:.1e})", found.margins[i].slack, found.margins[i].multiplier)
               : std::string();
  });
  list("active constraints are dependent:", found.dependent, nothing);
  std::vector<std::size_t> variables;
  for (const std::size_t j : found.not_unique) variables.push_back(data.m + data.p + j);
  list("the solution is not unique in", variables, nothing);
  if (text.empty()) text = fmt::format("the linear system of the derivative was solved to {:.1e} only", found.residual);
  return text;
}

/// Why there is no derivative at the solution, or none that can be trusted; empty: there is.
std::string QpPoint::reason() {
  derivative_.linearise(QpDerivativeAt::solution);
  const QpActiveSet& set = derivative_.active_set();
  if (set.is_decided() && set.undecided().empty()) return "";
  const std::string text = describe(derivative_.degeneracy(), data_.data());
  if (!text.empty()) return text;
  return set.is_singular() ? "the linear system of the active constraints is singular: they are linearly dependent, or the "
                             "solution is not unique"
                           : "no set of active constraints was found for which slacks and multipliers have the right signs";
}

/// Whether an active set leaves no doubt that there is a derivative.
bool is_settled(const QpActiveSet& set) {
  constexpr double most_growth = 1e9;
  return set.is_decided() && set.undecided().empty() && set.growth() <= most_growth;
}

class QpLoop final : public Loop, private AtSolution {
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

 private:
  SolutionPoint& step() override { return here_; }
  SolutionPoint& equation() override { return equation_; }
  std::string degeneracy() override {
    if (is_settled(derivative_.active_set())) return "";
    derivative_.linearise(QpDerivativeAt::solution);
    return describe(derivative_.degeneracy(), data_.data());
  }
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
  recipe.make = [](const Problem& problem) {
    auto method = std::make_shared<QpMethod>();
    const std::vector<Input>& parameters = problem.parameters;
    const std::size_t thetas = parameters.size();
    method->data.constants = problem.data;
    method->data.parameters = parameters;
    std::vector<Input> of_values = parameters;
    for (const Array& a : problem.data) of_values.emplace_back("data", a.shape());
    const Function values(of_values, [&](std::span<const Expr> in) {
      const TracedProgram traced = program_of(problem.lambda.call(in));
      method->data.sizes = sizes_of(traced);
      return full_blocks(traced, method->data.sizes);
    });
    const Sizes& s = method->data.sizes;
    std::vector<Id> ids(thetas);  // a graph begins with its inputs
    std::iota(ids.begin(), ids.end(), 0);
    const Indexed<bool> moves = values.graph()->between(ids, ids_of(values.outputs()));
    bool& smooth = method->data.smooth;
    for (Id id = 0; id < values.graph()->size(); ++id)
      smooth = smooth && !(moves[id] && has_kink(values.graph()->node(id).op));
    const std::array<Shape, blocks> shapes = shapes_of(s);
    std::vector<Input> inputs = parameters;
    std::vector<int> levels(thetas, QpDataPlan::theta_level);
    for (std::size_t i = 0; i < blocks; ++i) {
      method->data.moves[i] = moves[values.outputs()[i].id()];
      if (method->data.moves[i]) inputs.emplace_back(fmt::format("{}_bar", block_names[i]), shapes[i]);
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
        if (method->data.moves[i]) moving.push_back(results[i]);
      const auto append = [&](const std::vector<Expr>& more) { results.insert(results.end(), more.begin(), more.end()); };
      append(vjp(moving, theta, bars));
      append(jvp(moving, theta, dtheta));
      return results;
    });
    method->data.plan.emplace(
        family, PlanOptions{.levels = levels, .loop = QpDataPlan::theta_level, .branches = QpDataPlan::pull_back_branch});
    auto step = std::make_shared<QpMap>(), equation = std::make_shared<QpMap>();
    for (QpMap* map : {step.get(), equation.get()}) {
      map->state = {{s.n}, {s.m}, {s.p}, {s.n}};
      map->parameters = parameters;
      map->infinite_parameters = true;
      map->smooth = smooth;
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
  };
  recipe.undamped = [lambda = recipe.lambda](const std::vector<Shape>& state, const Expr& w, std::span<const Expr> theta) {
    const Sizes s{state[0][0], state[1][0], state[2][0]};
    return solve_active_set(program_of(lambda.call(theta)), s, w);
  };
  recipe.by_steps = std::make_shared<const Recipe>(traced_interior_point(recipe));
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
