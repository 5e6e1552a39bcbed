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

/// Relative errors after k = 1, 2, … steps: of the iterate, then of each Jacobian.
using Errors = std::array<std::vector<double>, 4>;

Errors errors_from(const Solver& fit, const Array& x0, const Array& w, const Array& x_bar, const Array& J_bar, int steps,
                   const Watch& watch) {
  Errors errors;
  for (int k = 1; k <= steps && !watch.cancelled(); ++k) {
    const Solver stopped = fit.with(SolveOptions{.tolerance = 0, .max_iterations = k});
    for (std::size_t i = 0; i < curves().size(); ++i) {
      const Solution s = solve(stopped, x0, w, curves()[i].estimator);
      errors[i + 1].push_back(relative_error(s.even_if_unconverged().jacobian(), J_bar));
      if (i == 0) errors[0].push_back(relative_error(s.x(), x_bar));
    }
  }
  return errors;
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

}  // namespace

void compute_newton(const ItemOptions& options, const Watch& watch, Item& item) {
  const std::int64_t N = choose<std::int64_t>(options, 200, 1000, 4000), n = choose<std::int64_t>(options, 5, 20, 50);
  const int starts = choose(options, 8, 12, 20);
  Random random(options.seed, 1);
  const Samples data = two_classes(random, N, n);
  const Solver fit = logistic_regression(data);
  const Array w = ones(N);

  watch.progress(fmt::format("newton, N = {}, n = {}", N, n));
  const Array x_bar = solve(fit, zeros(n), w).x();
  const Array J_bar = solve(fit, x_bar, w, Implicit{.tolerance = 1e-14}).jacobian();

  // Far from the solution, so that the way to it can be seen.
  const Array x0 = times(3 * norm(x_bar) / std::sqrt(static_cast<double>(n)), random.vector(n));
  const int steps = choose(options, 9, 10, 11);
  const Errors shown = errors_from(fit, x0, w, x_bar, J_bar, steps, watch);

  std::array<Pairs, 4> pairs;
  for (int start = 0; start < starts && !watch.cancelled(); ++start) {
    watch.progress(fmt::format("newton, start {} of {}", start + 1, starts));
    const double radius = std::pow(10.0, random.uniform(-1, 0)) * norm(x_bar);
    const Array direction = random.vector(n);
    const Errors errors =
        errors_from(fit, plus(x_bar, times(radius / norm(direction), direction)), w, x_bar, J_bar, 5, watch);
    for (std::size_t i = 0; i < pairs.size(); ++i) pairs[i].add(errors[i]);
  }

  const std::array<std::string, 4> names{"iterates", "unrolled", "implicit", "one_step"};
  std::array<double, 4> orders{};
  for (std::size_t i = 0; i < pairs.size(); ++i) orders[i] = fitted_exponent(pairs[i].before, pairs[i].after);

  Panel panel;
  panel.x = {"iteration", false};
  panel.y = {"relative error", true};
  // What is below rounding is drawn there.
  const auto draw = [&](const std::vector<double>& errors, Series series) {
    for (std::size_t k = 0; k < errors.size(); ++k)
      add_point(series, static_cast<double>(k + 1), std::max(errors[k], 1e-17));
    panel.series.push_back(std::move(series));
  };
  draw(shown[0], line("iterates", "iterates", "dotted"));
  for (std::size_t i = 0; i < curves().size(); ++i) draw(shown[i + 1], line(curves()[i].label, curves()[i].method));
  item.figures.push_back(
      {"newton",
       "Newton's method: the derivative converges as fast as the iterates",
       fmt::format("Weighted logistic regression, N = {} samples, n = {} coefficients, the intercept not penalised, λ = {}, "
                   "Newton's method with line search. Errors of the iterate and of the whole {} × {} Jacobian by the "
                   "weights, relative to the solution's. Fitted orders over {} starts, from errors below {} down to {}: "
                   "iterates {:.2f}, unrolled {:.2f}, implicit {:.2f}, one step {:.2f}. The curves are from one "
                   "start; one step at iteration k is taken at x_{{k-1}}, hence one iteration later.",
                   N, n, logistic_lambda, n, N, starts, number(near), number(noise_floor), orders[0], orders[1], orders[2],
                   orders[3]),
       {panel}});
  if (watch.cancelled()) return;

  for (std::size_t i = 0; i < names.size(); ++i) {
    item.data["orders"][names[i]] = orders[i];
    item.data["pairs"][names[i]] = pairs[i].before.size();
    item.data["last_error"][names[i]] = shown[i].back();
  }
  const auto quadratic = [](double order) { return std::fabs(order - 2) <= 0.2; };
  item.claims.push_back(
      {"Newton's iterates converge quadratically", fmt::format("order {:.2f}", orders[0]), quadratic(orders[0])});
  item.claims.push_back(
      {"The Jacobians of the iterates by unrolled, implicit and one-step differentiation converge quadratically too",
       fmt::format("orders {:.2f}, {:.2f} and {:.2f}", orders[1], orders[2], orders[3]),
       quadratic(orders[1]) && quadratic(orders[2]) && quadratic(orders[3])});
}

}  // namespace onestep::app::paper
