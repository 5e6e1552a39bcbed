// The hypergradient that `minimise` ends with, and its bound: g(x(θ), θ) over an inner problem whose x̄ and dx̄/dθ the truth
// gives. A few outer iterations only, so that the hypergradient is not zero.
#include <fmt/core.h>
#include <fmt/ostream.h>

#include <cmath>

#include "certificate/trial.h"

namespace onestep::bench {
namespace {

struct InnerProblem {
  std::string text;
  Solver solver;
  RootFunctions functions;
  std::size_t n, p;
  bool positive;
};

// Penalties t on the coefficients of a regression, by Newton's method or gradient descent; or a network with inputs t.
InnerProblem random_inner(Random& random, const SolveOptions& options) {
  const std::size_t n = 2 + random.below(8);
  if (random.chance(0.4)) {
    const std::size_t p = 1 + random.below(5);
    const Array W = scaled_to_norm(random.matrix(n, n), random.uniform(0.1, 0.95)), U = random.matrix(n, p),
                b = random.vector(n);
    const auto step = [=](auto x, auto t) { return tanh(matmul(W, x) + matmul(U, t) + b); };
    return {"fixed point of tanh(W x + U t + b)", fixed_point(step, options), map_functions(step), n, p, false};
  }
  const std::size_t N = n + random.below(20);
  const Array A = random.matrix(N, n);
  const auto value = [=](Expr x, Expr t) { return sum(softplus(-matmul(A, x))) + 0.5 * sum(t * square(x)); };
  const auto gradient = [=](auto x, auto t) { return t * x - matmul(transpose(decltype(x)(A)), sigmoid(-matmul(A, x))); };
  if (random.chance(0.6)) return {"logistic loss by newton", newton(value, options), root_functions(gradient), n, n, true};
  double squares = 0;
  for (const double e : A.values()) squares += e * e;
  const double alpha = 1 / (0.25 * squares + 10);
  return {"logistic loss by gradient descent",
          gradient_descent(value, {.step = GradientStep::fixed(alpha)}, options),
          root_functions(gradient),
          n,
          n,
          true};
}

Trial run_minimise(Random& random, std::ostream* log) {
  Trial trial;
  trial.family = Family::bilevel;
  trial.tolerance = random.scale(1e-12, 1e-3);
  const InnerProblem inner = random_inner(random, {.tolerance = trial.tolerance, .max_iterations = 20000});
  const ChosenEstimator chosen = random_estimator(random);
  trial.estimator = chosen.text;
  trial.size = inner.n;
  trial.parameters = inner.p;
  const Array C = random.matrix(3, inner.n), d = random.vector(3);
  // Keeps t from growing until tanh saturates, or from vanishing.
  const double weight = random.scale(0.01, 0.3);
  const auto g = [=](Expr x, Expr t) { return 0.5 * sum(square(matmul(C, x) - d)) + weight * sum(square(t - 1.0)); };
  std::vector<double> start(inner.p);
  for (double& e : start) e = inner.positive ? random.uniform(0.5, 2) : random.gaussian();
  const Parameter parameter = inner.positive ? Parameter::positive(array_of(start)) : Parameter::real(array_of(start));
  Outcome o;
  try {
    o = minimise({Inner(inner.solver, zeros(inner.n), g, chosen.estimator)}, {parameter}, Lbfgs{},
                 {.tolerance = 1e-9,
                  .max_iterations = 1 + static_cast<int>(random.below(6)),
                  .warm = random.chance(0.5),
                  .adaptive = random.chance(0.5)});
  } catch (const Error& problem) {
    trial.outcome = Trial::Outcome::not_solved;
    trial.status = problem.what();
    if (log != nullptr) fmt::print(*log, "  threw {}\n", trial.status);
    return trial;
  }
  trial.status = to_string(o.status);
  const std::vector<Real> theta = flat(o.theta);
  const Truth truth = find_root(inner.functions, flat(o.x.at(0)), theta);
  if (!truth.reliable) return trial;
  if (!is_solution(o.status) && o.status != Status::iteration_limit) {
    trial.outcome = Trial::Outcome::not_solved;
    return trial;
  }
  trial.outcome = Trial::Outcome::done;
  trial.rho = truth.radius;
  const Field<Real> x = detail::vector_field(truth.x);
  const Field<Real> slope = matmul(transpose(Field<Real>(C)), matmul(C, x) - d);
  Query q;
  std::vector<Real> difference(inner.p), right(inner.p);
  for (std::size_t j = 0; j < inner.p; ++j) {
    Real total = 2 * static_cast<Real>(weight) * (theta[j] - 1);
    for (std::size_t i = 0; i < inner.n; ++i) total += truth.J(i, j) * slope[i];
    // The bound is on the derivative by what is moved: the logarithm of a positive parameter.
    const Real by = inner.positive ? theta[j] : Real(1);
    right[j] = total * by;
    difference[j] = (static_cast<Real>(o.hypergradient[0].values()[j]) - total) * by;
  }
  q.error = static_cast<double>(norm_of(difference));
  q.value = static_cast<double>(norm_of(right));
  q.bound = o.bound;
  q.estimate = NAN;
  if (!std::isfinite(o.bound)) q.kind = Query::Kind::refused, q.reason = o.bound_rests_on;
  if (log != nullptr) {
    fmt::print(*log, "  {}, {}, inner tolerance {:.1e}, n {}, parameters {}: {}\n", inner.text, chosen.text, trial.tolerance,
               inner.n, inner.p, o.message());
    fmt::print(*log, "  error {:.3e}  bound {:.3e}{}  |hypergradient| {:.3e}  |x - truth| {:.2e}\n  {}\n", q.error, q.bound,
               q.kind == Query::Kind::bound && !(q.error <= q.bound) ? fmt::format("  FALSE by {:.3g}", q.factor()) : "",
               q.value, static_cast<double>(norm_of((detail::vector_field(flat(o.x[0])) - x).entries())), o.bound_rests_on);
  }
  trial.queries.push_back(std::move(q));
  return trial;
}

}  // namespace

std::vector<ProblemClass> bilevel_classes() { return {{"minimise", 2, nullptr, run_minimise}}; }

}  // namespace onestep::bench
