// Newton's method on weighted logistic regression: how fast its iterates and their Jacobians converge by each method, and
// with which order.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "onestep/onestep.h"
#include "paper/items/kinds.h"
#include "paper/items/support.h"

namespace onestep::app::paper {
namespace {

struct Curve {
  const char *label, *method;
  Estimator estimator;
};
const std::array<Curve, 3>& curves() {
  static const std::array<Curve, 3> all{Curve{"Jacobian, unrolled", "unrolled", Unrolled{}},
                                        Curve{"Jacobian, implicit", "implicit", Implicit{.tolerance = 1e-14}},
                                        Curve{"Jacobian, one step", "one_step", OneStep{}}};
  return all;
}

/// After k = 1, 2, … steps.
struct Errors {
  std::array<std::vector<double>, 4> relative;  ///< of the iterate, then of each Jacobian
  std::vector<double> before, one_step;         ///< ‖x_{k-1} - x̄‖, and the spectral norm of the one-step error
};

Errors errors_from(const Solver& fit, const Array& x0, const Array& w, const Array& x_bar, const Array& J_bar, int steps,
                   const Watch& watch) {
  Errors errors;
  Array x = x0;
  for (int k = 1; k <= steps && !watch.cancelled(); ++k) {
    const Solver stopped = fit.with(SolveOptions{.tolerance = 0, .max_iterations = k});
    errors.before.push_back(norm(minus(x, x_bar)));
    for (std::size_t i = 0; i < curves().size(); ++i) {
      const Solution s = solve(stopped, x0, w, curves()[i].estimator);
      const Array J = s.even_if_unconverged().jacobian();
      errors.relative[i + 1].push_back(relative_error(J, J_bar));
      if (curves()[i].method == std::string_view("one_step")) errors.one_step.push_back(spectral_norm(minus(J, J_bar)));
      x = s.x();
    }
    errors.relative[0].push_back(relative_error(x, x_bar));
  }
  return errors;
}

struct Change {
  double by_both = 0, by_theta = 0;
};
/// The corollary's L_J from below: how fast the derivative of the Newton step by x and θ together changes, in the spectral
/// norm, between random points not farther than `radius` from x̄ and from each other. The proof needs that by θ only.
Change largest_change(const Samples& data, Random& random, const Array& x_bar, double radius, int pairs,
                      const Watch& watch) {
  const std::int64_t N = data.A.shape()[0], n = data.A.shape()[1];
  const Function derivative = traced(
      [&](Expr x, Expr w) {
        const Expr f = logistic_loss(data, x, w), next = x - solve(cholesky(hessian(f, x)), grad(f, x));
        const Expr by_theta = jacobian(next, w);
        return std::pair{concat({jacobian(next, x), by_theta}, 1), by_theta};
      },
      Shape{n}, Shape{N});
  const auto away = [&](const Array& from) {
    const Array direction = random.vector(n);
    return plus(from, times(radius * std::pow(10.0, random.uniform(-3, 0)) / norm(direction), direction));
  };
  Change most;
  for (int i = 0; i < pairs && !watch.cancelled(); ++i) {
    const Array from = i % 2 == 0 ? x_bar : away(x_bar), to = away(from), w = ones(N);
    const std::vector<Array> here = evaluate(derivative, {from, w}), there = evaluate(derivative, {to, w});
    const double distance = norm(minus(to, from));
    most.by_both = std::max(most.by_both, spectral_norm(minus(there[0], here[0])) / distance);
    most.by_theta = std::max(most.by_theta, spectral_norm(minus(there[1], here[1])) / distance);
  }
  return most;
}

// Errors between these say with which power one follows from the one before: below is rounding, above is not yet the end.
constexpr double noise_floor = 1e-11, near = 1e-1;

struct Pairs {
  std::vector<double> before, after;
  void add(std::span<const double> errors) {
    for (std::size_t k = 0; k + 1 < errors.size(); ++k)
      if (errors[k] < near && errors[k + 1] > noise_floor && errors[k + 1] < errors[k]) {
        before.push_back(errors[k]);
        after.push_back(errors[k + 1]);
      }
  }
};
/// The regression and its solution.
struct Fit {
  std::int64_t N, n;
  Samples data;
  Solver solver;
  Array w, x_bar, J_bar;
};

Fit solved_fit(const ItemOptions& options, Random& random, const Watch& watch) {
  const std::int64_t N = choose<std::int64_t>(options, 200, 1000, 4000), n = choose<std::int64_t>(options, 5, 20, 50);
  const Samples data = two_classes(random, N, n);
  const Solver solver = logistic_regression(data);
  const Array w = ones(N);

  watch.progress(fmt::format("newton, N = {}, n = {}", N, n));
  const Array x_bar = solve(solver, zeros(n), w).x();
  const Array J_bar = solve(solver, x_bar, w, Implicit{.tolerance = 1e-14}).jacobian();
  return {N, n, data, solver, w, x_bar, J_bar};
}

/// Far from the solution, so that the way to it can be seen.
Errors errors_from_afar(const ItemOptions& options, const Fit& fit, Random& random, const Watch& watch) {
  const Array x0 = times(3 * norm(fit.x_bar) / std::sqrt(static_cast<double>(fit.n)), random.vector(fit.n));
  const int steps = choose(options, 9, 10, 11);
  return errors_from(fit.solver, x0, fit.w, fit.x_bar, fit.J_bar, steps, watch);
}

/// From several starts around the solution.
struct Runs {
  int starts = 0;
  std::array<Pairs, 4> pairs;            ///< of the iterates, then of each Jacobian
  std::vector<double> before, one_step;  ///< as in Errors, without those that are rounding
  std::array<double, 4> orders{};        ///< fitted to the pairs
};

Runs runs_near_solution(const ItemOptions& options, const Fit& fit, Random& random, const Watch& watch) {
  Runs runs;
  runs.starts = choose(options, 8, 12, 20);
  const double size = norm(fit.x_bar);
  for (int start = 0; start < runs.starts && !watch.cancelled(); ++start) {
    watch.progress(fmt::format("newton, start {} of {}", start + 1, runs.starts));
    const double radius = std::pow(10.0, random.uniform(-1, 0)) * size;
    const Array direction = random.vector(fit.n);
    const Errors errors = errors_from(fit.solver, plus(fit.x_bar, times(radius / norm(direction), direction)), fit.w,
                                      fit.x_bar, fit.J_bar, 5, watch);
    for (std::size_t i = 0; i < runs.pairs.size(); ++i) runs.pairs[i].add(errors.relative[i]);
    for (std::size_t k = 0; k < errors.before.size() && errors.before[k] > noise_floor * size; ++k) {
      runs.before.push_back(errors.before[k]);
      runs.one_step.push_back(errors.one_step[k]);
    }
  }
  for (std::size_t i = 0; i < runs.pairs.size(); ++i)
    runs.orders[i] = fitted_exponent(runs.pairs[i].before, runs.pairs[i].after);
  return runs;
}

/// The error of one step beside the bound of the paper's corollary.
struct Corollary {
  int points = 0;  ///< pairs of them that L_J is the largest over
  Change L_J;
  Checked checked;
  double closest_by_theta() const { return checked.closest * L_J.by_both / L_J.by_theta; }
};

Corollary check_corollary(const ItemOptions& options, const Fit& fit, const Runs& runs, Random& random, const Watch& watch) {
  watch.progress("newton, the constant of the corollary");
  Corollary corollary;
  corollary.points = choose(options, 100, 200, 200);
  corollary.L_J = largest_change(fit.data, random, fit.x_bar, norm(fit.x_bar), corollary.points, watch);
  for (std::size_t i = 0; i < runs.before.size(); ++i)
    corollary.checked.add(runs.one_step[i], corollary.L_J.by_both * runs.before[i]);
  return corollary;
}

Panel convergence_panel(const Errors& shown) {
  Panel panel;
  panel.x = {"iteration", false};
  panel.y = {"relative error", true};
  // What is below rounding is drawn there.
  const auto draw = [&](const std::vector<double>& errors, Series series) {
    for (std::size_t k = 0; k < errors.size(); ++k)
      add_point(series, static_cast<double>(k + 1), std::max(errors[k], 1e-17));
    panel.series.push_back(std::move(series));
  };
  draw(shown.relative[0], line("iterates", "iterates", "dotted"));
  for (std::size_t i = 0; i < curves().size(); ++i) draw(shown.relative[i + 1], line(curves()[i].label, curves()[i].method));
  return panel;
}

void add_newton_figure(const Fit& fit, const Errors& shown, const Runs& runs, Item& item) {
  const std::array<double, 4>& orders = runs.orders;
  item.figures.push_back(
      {"newton",
       "Newton's method: the derivative converges as fast as the iterates",
       fmt::format("Weighted logistic regression, N = {} samples, n = {} coefficients, the intercept not penalised, λ = {}, "
                   "Newton's method with line search. Errors of the iterate and of the whole {} × {} Jacobian by the "
                   "weights, relative to the solution's. Fitted orders over {} starts, from errors below {} down to {}: "
                   "iterates {:.2f}, unrolled {:.2f}, implicit {:.2f}, one step {:.2f}. The curves are from one "
                   "start; one step at iteration k is taken at x_{{k-1}}, hence one iteration later.",
                   fit.N, fit.n, logistic_lambda, fit.n, fit.N, runs.starts, number(near), number(noise_floor), orders[0],
                   orders[1], orders[2], orders[3]),
       {convergence_panel(shown)}});
}

void add_newton_data(const Errors& shown, const Runs& runs, const Corollary& corollary, Item& item) {
  const std::array<std::string, 4> names{"iterates", "unrolled", "implicit", "one_step"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    item.data["orders"][names[i]] = runs.orders[i];
    item.data["pairs"][names[i]] = runs.pairs[i].before.size();
    item.data["last_error"][names[i]] = shown.relative[i].back();
  }
  item.data["corollary"] = corollary.checked.data();
  item.data["corollary"]["closest_by_theta"] = corollary.closest_by_theta();
}

void add_newton_claims(const Runs& runs, const Corollary& corollary, Item& item) {
  const std::array<double, 4>& orders = runs.orders;
  const auto quadratic = [](double order) { return std::fabs(order - 2) <= 0.2; };
  item.claims = {
      {"Newton's iterates converge quadratically", fmt::format("order {:.2f}", orders[0]), yes_if(quadratic(orders[0]))},
      {"The Jacobians of the iterates by unrolled, implicit and one-step differentiation converge quadratically too",
       fmt::format("orders {:.2f}, {:.2f} and {:.2f}", orders[1], orders[2], orders[3]),
       yes_if(quadratic(orders[1]) && quadratic(orders[2]) && quadratic(orders[3]))},
      {"The one-step Jacobian of x_k is within L_J‖x_{k-1} - x̄‖ of that of the solution",
       fmt::format("along {} runs {}, or {:.2f} where L_J is that of ∂F/∂θ alone; L_J = {} is the largest change of the "
                   "derivative of the Newton step between {} pairs of random points around the solution",
                   runs.starts, corollary.checked.text(), corollary.closest_by_theta(), number(corollary.L_J.by_both),
                   corollary.points),
       yes_if(corollary.checked.all())}};
}

}  // namespace

void compute_newton(const ItemOptions& options, const Watch& watch, Item& item) {
  Random random(options.seed, 1);
  const Fit fit = solved_fit(options, random, watch);
  const Errors shown = errors_from_afar(options, fit, random, watch);
  const Runs runs = runs_near_solution(options, fit, random, watch);
  const Corollary corollary = check_corollary(options, fit, runs, random, watch);
  add_newton_figure(fit, shown, runs, item);
  if (watch.cancelled()) return;
  add_newton_data(shown, runs, corollary, item);
  add_newton_claims(runs, corollary, item);
}

}  // namespace onestep::app::paper
