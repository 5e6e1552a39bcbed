// The solution of a program that is given as data: what the interior point method found, in arrays of the user's.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "onestep/error.h"
#include "onestep/quadratic_program.h"
#include "qp/derivative.h"
#include "qp/interior_point.h"
#include "qp/program_data.h"

namespace onestep {

using detail::QpResidual;

struct ProgramSolution::State {
  explicit State(const QuadraticProgram& given)
      : program(given), data(program), solver(data.data().n, data.data().m, data.data().p), derivative(solver) {}

  QuadraticProgram program;  // whose memory `data` points into
  detail::ProgramData data;
  detail::InteriorPoint solver;
  detail::QpDerivative derivative;
};

namespace {

Array copied(std::span<const double> values) {
  return {Shape{static_cast<std::int64_t>(values.size())}, std::vector<double>(values.begin(), values.end())};
}

ProgramResidual copied(const QpResidual& r) { return {r.absolute, r.relative}; }

void check(const ProgramOptions& o) {
  const auto require = [](bool holds, const char* what, double value) {
    if (!holds) throw MisuseError(fmt::format("[solve] {} = {}: it must be positive", what, value));
  };
  require(o.tolerance > 0, "tolerance", o.tolerance);
  require(o.absolute_tolerance > 0, "absolute_tolerance", o.absolute_tolerance);
  require(o.iteration_limit > 0, "iteration_limit", o.iteration_limit);
  require(o.time_limit > 0, "time_limit", o.time_limit);
}

std::vector<double> outer(double factor, std::span<const double> u, std::span<const double> v) {
  std::vector<double> product;
  product.reserve(u.size() * v.size());
  for (const double a : u)
    for (const double b : v) product.push_back(factor * a * b);
  return product;
}

// Raising a bound by t changes the optimal value by its multiplier, which is that of the side it is active on.
Array of_side(std::span<const double> multipliers, bool lower) {
  std::vector<double> result;
  for (const double m : multipliers) result.push_back((m < 0) == lower ? -m : 0);
  return copied(result);
}

}  // namespace

ProgramSolution solve(const QuadraticProgram& program, const ProgramOptions& options) {
  check(options);
  ProgramSolution result;
  result.state_ = std::make_shared<ProgramSolution::State>(program);
  detail::InteriorPointOptions how;
  how.relative = options.tolerance;
  how.absolute = options.absolute_tolerance;
  how.step = detail::small_step;
  how.iteration_limit = options.iteration_limit;
  how.time_limit = options.time_limit;
  if (options.callback)
    how.callback = [&](const detail::QpProgress& at) {
      return options.callback({at.iteration, at.objective, copied(at.primal), copied(at.dual), copied(at.gap)});
    };
  detail::InteriorPoint& solver = result.state_->solver;
  const detail::QpData& data = result.state_->data.data();
  if (solver.solve(data, how).status == Status::line_search_failed) {
    // Where the solution is not unique the last step need not become short.
    how.step = std::numeric_limits<double>::infinity();
    how.time_limit -= solver.solution().seconds;
    solver.solve(data, how);
  }
  const detail::QpSolution& found = solver.solution();
  result.status = found.status;
  result.x = copied(found.x);
  result.y = copied(found.y);
  result.z = copied(found.z);
  result.bound_multipliers = copied(found.bound_multipliers);
  result.objective = found.objective;
  result.primal = copied(found.primal);
  result.dual = copied(found.dual);
  result.gap = copied(found.gap);
  result.iterations = found.iterations;
  result.factorisations = found.factorisations;
  result.seconds = found.seconds;
  result.infeasibility = {copied(found.infeasible_y), copied(found.infeasible_z), copied(found.infeasible_bounds)};
  result.unbounded_direction = copied(found.unbounded_direction);
  if (found.culprit != nullptr) result.about = fmt::format("{}[{}]", found.culprit, found.culprit_index);
  return result;
}

ProgramSolution::State& ProgramSolution::state(const char* who) const {
  if (state_ && is_solution(status)) return *state_;
  throw NotConvergedError(
      fmt::format("[{}] the program has no solution to differentiate: its status is {}", who, to_string(status)), status,
      iterations);
}

QuadraticProgram ProgramSolution::gradient_of_objective() const {
  (void)state("gradient_of_objective");
  const std::int64_t n = x.size();
  QuadraticProgram g;
  g.Q = Array(Shape{n, n}, outer(0.5, x.values(), x.values()));
  g.q = x;
  g.A = Array(Shape{y.size(), n}, outer(1.0, y.values(), x.values()));
  g.G = Array(Shape{z.size(), n}, outer(1.0, z.values(), x.values()));
  std::vector<double> b(y.values().begin(), y.values().end());
  for (double& e : b) e = -e;
  g.b = copied(b);
  g.l = of_side(z.values(), true);
  g.u = of_side(z.values(), false);
  g.lo = of_side(bound_multipliers.values(), true);
  g.hi = of_side(bound_multipliers.values(), false);
  g.constant = 1;
  return g;
}

QuadraticProgram ProgramSolution::vjp(const Array& x_bar, double* residual) const {
  State& s = state("vjp");
  const std::int64_t n = x.size(), m = y.size(), p = z.size();
  if (x_bar.shape() != Shape{n})
    throw MisuseError(
        fmt::format("[vjp] the cotangent has shape {}, x has {}", to_string(x_bar.shape()), to_string(Shape{n})));
  const auto size = [](std::int64_t rows, std::int64_t columns = 1) { return static_cast<std::size_t>(rows * columns); };
  std::vector<double> Q(size(n, n)), q(size(n)), A(size(m, n)), b(size(m)), G(size(p, n)), l(size(p)), u(size(p)),
      lo(size(n)), hi(size(n));
  s.derivative.linearise(detail::QpDerivativeAt::solution);
  const Array dense = x_bar.contiguous();
  const double reached =
      s.derivative.vjp(dense.values(), {}, {}, {},
                       {Q.data(), q.data(), A.data(), b.data(), G.data(), l.data(), u.data(), lo.data(), hi.data()});
  if (residual != nullptr) *residual = reached;
  QuadraticProgram g;
  g.Q = Array(Shape{n, n}, std::move(Q));
  g.q = Array(Shape{n}, std::move(q));
  g.A = Array(Shape{m, n}, std::move(A));
  g.b = Array(Shape{m}, std::move(b));
  g.G = Array(Shape{p, n}, std::move(G));
  g.l = Array(Shape{p}, std::move(l));
  g.u = Array(Shape{p}, std::move(u));
  g.lo = Array(Shape{n}, std::move(lo));
  g.hi = Array(Shape{n}, std::move(hi));
  return g;
}

ProgramDegeneracy ProgramSolution::degeneracy() const {
  State& s = state("degeneracy");
  // Which slacks and multipliers are rounding of 0 is seen in extended precision alone.
  s.derivative.active_set();
  s.derivative.forget();
  s.derivative.linearise(detail::QpDerivativeAt::solution);
  const detail::QpDegeneracy found = s.derivative.find_degeneracy();
  return {found.undecided, found.dependent, found.not_unique, found.residual, found.solved};
}

}  // namespace onestep
