// The paper's bounds beside what they bound: the one-step and the implicit Jacobian as ρ varies, the hypergradient along a
// bilevel run, and approximate critical points, where the printed bound misses a factor.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "onestep/onestep.h"
#include "paper/items/kinds.h"
#include "paper/items/support.h"

namespace onestep::app::paper {
namespace {

/// F(x, θ) = A sin(x + Cθ) + Cθ with ‖A‖ = ρ. Then ‖∂F/∂x‖ ≤ ρ, ‖∂F/∂θ‖ ≤ (1 + ρ)‖C‖ = L_F, and both change with x by at
/// most L_J = ρ max(1, ‖C‖).
struct Contraction {
  Array A, C, x0;
  double rho, L_F, L_J;

  /// `direction` has norm 1.
  Contraction(const Array& direction, Array its_C, Array start, double its_rho)
      : A(times(its_rho, direction)), C(std::move(its_C)), x0(std::move(start)), rho(its_rho) {
    const double size = spectral_norm(C);
    L_F = (1 + rho) * size;
    L_J = rho * std::max(1.0, size);
  }
  Solver iterations(int k) const {
    return fixed_point(
        [*this](Expr x, Expr t) {
          const Expr moved = matmul(C, t);
          return matmul(A, sin(x + moved)) + moved;
        },
        {.tolerance = 0, .max_iterations = k});
  }
  Solution after(int k, const Array& theta, const Estimator& estimator) const {
    return solve(iterations(k), x0, theta, estimator).even_if_unconverged();
  }
  Array iterate(int k, const Array& theta) const { return k == 0 ? x0 : after(k, theta, OneStep{}).x(); }
  /// At rest, whatever ρ.
  Solution at_rest(const Array& theta) const {
    return after(static_cast<int>(40 / (1 - rho)) + 100, theta, Implicit{.how = Implicit::dense, .tolerance = 1e-15});
  }
};

/// Errors and bounds of the Jacobians as ρ varies.
void vary_rho(const ItemOptions& options, const Watch& watch, Item& item) {
  const std::int64_t n = choose<std::int64_t>(options, 6, 20, 30), m = choose<std::int64_t>(options, 4, 10, 20);
  const int k = 2;
  const std::vector<double> rhos{0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99};
  Random random(options.seed, 7);
  const Array direction = random.with_norm(n, 1), C = random.matrix(n, m, 1 / std::sqrt(static_cast<double>(n))),
              x0 = random.vector(n), theta = random.vector(m);
  Panel one{"one step", {"ρ", false}, {"error", true}, {}, {}}, implicit{"implicit", {"ρ", false}, {"error", true}, {}, {}};
  Series one_error = line(fmt::format("error, k = {}", k), "one_step", "points"),
         one_bound = line(fmt::format("bound, k = {}", k), "bound", "dashed"), rest_error = line("error, k → ∞", "one_step"),
         rest_bound = line("bound, k → ∞", "bound"), implicit_error = line(fmt::format("error, k = {}", k), "implicit"),
         implicit_bound = line(fmt::format("bound, k = {}", k), "bound", "dashed");
  Checked of_one, of_implicit;
  std::vector<double> small, small_errors;
  for (const double rho : rhos) {
    if (watch.cancelled()) break;
    watch.progress(fmt::format("bounds, ρ = {}", rho));
    const Contraction c(direction, C, x0, rho);
    const Solution rest = c.at_rest(theta);
    const Array x_bar = rest.x(), J_bar = rest.jacobian();
    const auto error = [&](const Array& J) { return spectral_norm(minus(J, J_bar)); };
    const double gap = 1 - rho, before = norm(minus(c.iterate(k - 1, theta), x_bar)),
                 now = norm(minus(c.iterate(k, theta), x_bar));

    const double at_k = error(c.after(k, theta, OneStep{}).jacobian()), bound_k = rho * c.L_F / gap + c.L_J * before;
    const double at_rest = error(Contraction(direction, C, x_bar, rho).after(1, theta, OneStep{}).jacobian());
    const double by_implicit = error(c.after(k, theta, Implicit{.how = Implicit::dense, .on_step = true}).jacobian());
    const double by_implicit_bound = (c.L_J * c.L_F / (gap * gap) + c.L_J / gap) * now;
    of_one.add(at_k, bound_k);
    of_one.add(at_rest, rho * c.L_F / gap);
    of_implicit.add(by_implicit, by_implicit_bound + 1e-13 * norm(J_bar));
    add_point(one_error, rho, at_k);
    add_point(one_bound, rho, bound_k);
    add_point(rest_error, rho, at_rest);
    add_point(rest_bound, rho, rho * c.L_F / gap);
    add_point(implicit_error, rho, std::max(by_implicit, 1e-17));
    add_point(implicit_bound, rho, by_implicit_bound);
    if (rho <= 0.1) {
      small.push_back(rho);
      small_errors.push_back(at_rest);
    }
  }
  const double power = fitted_exponent(small, small_errors);
  one.series = {rest_error, rest_bound, one_error, one_bound};
  implicit.series = {implicit_error, implicit_bound};
  item.figures.push_back(
      {"bounds",
       "The bounds as ρ varies",
       fmt::format(
           "x ← A sin(x + Cθ) + Cθ with n = {}, m = {} and ‖A‖ = ρ; spectral norm of the error of the Jacobian. That "
           "of one step is {}; for ρ up to 0.1 and k → ∞ it grows with the power {:.2f} of ρ. That of implicit is {}.",
           n, m, of_one.text(), power, of_implicit.text()),
       {one, implicit}});
  if (watch.cancelled()) return;
  item.data["one_step"] = of_one.data();
  item.data["implicit"] = of_implicit.data();
  item.data["power_of_rho"] = power;
  item.claims.push_back(
      {"The one-step Jacobian is within ρL_F/(1-ρ) + L_J‖x_{k-1} - x̄‖", of_one.text(), yes_if(of_one.all())});
  item.claims.push_back({"The error of one step is asymptotically proportional to ρ", fmt::format("power {:.2f}", power),
                         yes_if(std::fabs(power - 1) <= 0.1)});
  item.claims.push_back({"The implicit Jacobian is within (L_J L_F/(1-ρ)² + L_J/(1-ρ))‖x_k - x̄‖", of_implicit.text(),
                         yes_if(of_implicit.all())});
}

/// A bilevel run with the one-step hypergradient, and the bound at each of its points.
struct BilevelRun {
  Panel panel;
  Checked checked;
  int points = 0, vacuous = 0;  ///< vacuous: where the bound is above the hypergradient itself
  double first = 0, last = 0;   ///< the objective
};

constexpr int inner_iterations = 8;
constexpr double outer_step = 0.2;

BilevelRun bilevel_run(const ItemOptions& options, double rho, const Watch& watch) {
  const std::int64_t n = choose<std::int64_t>(options, 6, 20, 30), m = choose<std::int64_t>(options, 4, 10, 20);
  const int k = inner_iterations, outer = choose(options, 15, 40, 60);
  Random random(options.seed, 8);
  const Contraction c(random.with_norm(n, 1), random.matrix(n, m, 1 / std::sqrt(static_cast<double>(n))), random.vector(n),
                      rho);
  const Array a = random.vector(n, 1 / std::sqrt(static_cast<double>(n)));
  double l_nabla = 0;
  for (const double e : a.values()) l_nabla = std::max(l_nabla, std::fabs(e));
  const double l_g = norm(a);
  const Function g = traced(
      [&](Expr x) {
        const Expr value = sum(a * sin(x));
        return std::pair{value, grad(value, x)};
      },
      Shape{n});
  Series error = line("error", "one_step"), bound = line("bound", "bound", "dashed"),
         size = line("size of the hypergradient", "exact", "dotted");
  BilevelRun run;
  Array theta = random.vector(m);
  for (int i = 0; i <= outer && !watch.cancelled(); ++i) {
    watch.progress(fmt::format("bounds, ρ = {}, bilevel step {} of {}", rho, i, outer));
    const Solution rest = c.at_rest(theta), one = c.after(k, theta, OneStep{});
    const Array x_bar = rest.x(), x = one.x();
    const std::vector<Array> at_rest = evaluate(g, {x_bar}), here = evaluate(g, {x});
    const Array exact = rest.vjp(at_rest[1]), h = one.vjp(here[1]);
    const double wrong = norm(minus(h, exact));
    const double most = rho * c.L_F * l_g / (1 - rho) + c.L_J * l_g * norm(minus(c.iterate(k - 1, theta), x_bar)) +
                        c.L_F * l_nabla * norm(minus(x_bar, x));
    run.checked.add(wrong, most);
    ++run.points;
    run.vacuous += most >= norm(exact) ? 1 : 0;
    add_point(error, i, wrong);
    add_point(bound, i, most);
    add_point(size, i, norm(exact));
    run.last = at_rest[0].item();
    if (i == 0) run.first = run.last;
    theta = minus(theta, times(outer_step, h));
  }
  run.panel = {fmt::format("ρ = {}", rho), {"outer iteration", false}, {"norm", true}, {error, bound, size}, {}};
  return run;
}

void bilevel_runs(const ItemOptions& options, const Watch& watch, Item& item) {
  std::vector<Panel> panels;
  std::string came_out, measured;
  bool all = true;
  Json data = Json::array();
  for (const double rho : {0.05, 0.5}) {
    BilevelRun run = bilevel_run(options, rho, watch);
    came_out += fmt::format(
        " With ρ = {} the error is {}, and the bound is above the hypergradient itself at {} of {} points; the objective "
        "went from {:.3f} to {:.3f}.",
        rho, run.checked.text(), run.vacuous, run.points, run.first, run.last);
    measured += fmt::format("{}ρ = {}: {}", measured.empty() ? "" : "; ", rho, run.checked.text());
    all = all && run.checked.all() && run.last < run.first;
    data.push_back(run.checked.data());
    data.back().update({{"rho", rho}, {"vacuous", run.vacuous}, {"first", run.first}, {"last", run.last}});
    panels.push_back(std::move(run.panel));
  }
  item.figures.push_back(
      {"hypergradient", "The hypergradient along a bilevel run",
       fmt::format(
           "Minimise g(x(θ)) = aᵀ sin(x(θ)) over θ, x(θ) the fixed point of the map above; {} inner iterations, step "
           "{} along the one-step hypergradient.{} Where ρ/(1-ρ) is 1 or more the bound cannot tell the one-step "
           "hypergradient from zero: it is of use for small ρ only.",
           inner_iterations, outer_step, came_out),
       std::move(panels)});
  if (watch.cancelled()) return;
  item.data["hypergradient"] = std::move(data);
  item.claims.push_back(
      {"The one-step hypergradient is within the bound of the corollary, along a bilevel run", measured, yes_if(all)});
}

/// min ‖∇f(x_k)‖² over k ≤ K with its two bounds.
struct CriticalPoints {
  Series least = line("smallest ‖∇f‖²", "one_step"), corrected = line("bound, corrected", "bound"),
         printed = line("bound, as printed", "unrolled", "dashed");
  Checked of_corrected;
  double smallest = std::numeric_limits<double>::infinity();

  void add(int K, double gradient, double L, double epsilon, double above) {
    smallest = std::min(smallest, gradient * gradient);
    if (K < 1) return;
    const double right = L * L * epsilon * epsilon + 2 * L * above / (K + 1),
                 wrong = epsilon * epsilon + 2 * above / (L * K);
    add_point(least, K, smallest);
    add_point(corrected, K, right);
    add_point(printed, K, wrong);
    of_corrected.add(smallest, right);
  }
  Panel panel(std::string title) const {
    return {std::move(title), {"K", true}, {"‖∇f‖²", true}, {least, corrected, printed}, {}};
  }
};

/// f(θ) = ‖x(θ) - t‖²/2 where x is the fixed point of Ax + Cθ, linear in θ, so that L and f* are known. With fewer
/// parameters than unknowns t is not reached, and the error of the hypergradient does not vanish.
struct LinearBilevel {
  Array direction, C, t, theta;
  LinearBilevel(Random& random, std::int64_t n, std::int64_t m)
      : direction(random.with_norm(n, 1)),
        C(random.matrix(n, m, 1 / std::sqrt(static_cast<double>(n)))),
        t(random.vector(n)),
        theta(random.vector(m)) {}
};

struct Descent {
  CriticalPoints points;
  double L = 0, epsilon = 0, least = 0;  ///< least: f*
};

/// With step 1/L along the one-step hypergradient.
Descent descend(const LinearBilevel& problem, double rho, int steps, const Watch& watch) {
  const std::int64_t n = problem.C.shape()[0], m = problem.C.shape()[1];
  const Array A = times(rho, problem.direction);
  const Solver inner = fixed_point([&](Expr x, Expr theta) { return matmul(A, x) + matmul(problem.C, theta); },
                                   {.tolerance = 0, .max_iterations = 60});
  Prepared one_step(inner, zeros(n), zeros(m), OneStep{}),
      exact(inner, zeros(n), zeros(m), Implicit{.how = Implicit::dense});
  const Array J = exact.solve(zeros(n), zeros(m)).even_if_unconverged().jacobian();
  Descent descent;
  descent.L = std::pow(spectral_norm(J), 2);
  const auto objective = [](const Array& residual) { return 0.5 * std::pow(norm(residual), 2); };
  const Function nearest =
      traced([](Expr j, Expr t) { return matmul(j, solve(cholesky(matmul(transpose(j), j)), matmul(transpose(j), t))); },
             J.shape(), problem.t.shape());
  descent.least = objective(minus(evaluate(nearest, {J, problem.t})[0], problem.t));

  // ε is the largest error along the run, so the run comes first.
  std::vector<double> gradients;
  Array theta = problem.theta;
  double above = 0;
  for (int i = 0; i <= steps && !watch.cancelled(); ++i) {
    const Solution& s = one_step.solve(zeros(n), theta);
    const Array h = s.even_if_unconverged().vjp(minus(s.x(), problem.t));
    const Solution& e = exact.solve(zeros(n), theta);
    const Array r = minus(e.x(), problem.t), gradient = e.even_if_unconverged().vjp(r);
    if (i == 0) above = objective(r) - descent.least;
    gradients.push_back(norm(gradient));
    descent.epsilon = std::max(descent.epsilon, norm(minus(h, gradient)) / descent.L);
    theta = minus(theta, times(1 / descent.L, h));
  }
  for (std::size_t K = 0; K < gradients.size(); ++K)
    descent.points.add(static_cast<int>(K), gradients[K], descent.L, descent.epsilon, above);
  return descent;
}

/// Hypergradient descent for some ρ, and the counterexample.
void critical_points(const ItemOptions& options, const Watch& watch, Item& item) {
  const std::int64_t n = choose<std::int64_t>(options, 6, 10, 20), m = n / 2;
  const int steps = choose(options, 300, 1000, 2000);
  Random random(options.seed, 9);
  const LinearBilevel problem(random, n, m);
  std::vector<Panel> panels;
  std::string came_out;
  Checked of_all;
  std::vector<double> small, floors;
  for (const double rho : {0.0125, 0.025, 0.05, 0.1, 0.2, 0.5}) {
    watch.progress(fmt::format("bounds, approximate critical points with ρ = {}", rho));
    const Descent descent = descend(problem, rho, steps, watch);
    if (watch.cancelled()) break;
    const CriticalPoints& run = descent.points;
    for (std::size_t i = 0; i < run.least.y.size(); ++i) of_all.add(run.least.y[i], run.corrected.y[i]);
    if (rho <= 0.1) {
      small.push_back(rho);
      floors.push_back(std::sqrt(run.smallest));
    }
    if (rho != 0.05 && rho != 0.2 && rho != 0.5) continue;
    panels.push_back(run.panel(fmt::format("ρ = {}", rho)));
    came_out += fmt::format(" ρ = {}: L = {:.3g}, ε = {}, f* = {:.3g}, smallest squared gradient {}, L²ε² = {}.", rho,
                            descent.L, number(descent.epsilon), descent.least, number(run.smallest),
                            number(std::pow(descent.L * descent.epsilon, 2)));
  }
  const double power = fitted_exponent(small, floors);

  CriticalPoints counter;
  const double big_L = 100;
  double x = 1;
  for (int K = 0; K <= 200; ++K) {
    counter.add(K, x, big_L, 0, 0.5);
    x -= x / big_L;
  }
  const double at_1 = counter.least.y.front(), printed_1 = counter.printed.y.front();
  panels.push_back(counter.panel("counterexample to the printed bound"));
  item.figures.push_back(
      {"critical_points", "Approximate critical points",
       fmt::format(
           "Descent on f(θ) = ‖x(θ) - t‖²/2 along the one-step hypergradient, x the fixed point of Ax + Cθ with ‖A‖ = ρ, n "
           "= {}, m = {}, step 1/L; ε is the largest error of a step and f* the least value.{} For ρ up to 0.1 the norm of "
           "the gradient that is left grows with the power {:.2f} of ρ. The bound here is L²ε² + 2L(f(x₀) - f*)/(K+1); the "
           "paper prints ε² + 2(f(x₀) - f*)/(LK), where the proof loses a factor 1/L². Last: f = x²/2 with L = {} and exact "
           "steps (ε = 0) from 1: at K = 1 the smallest squared gradient is {:.4f}, the printed bound {:.4f}.",
           n, m, came_out, power, big_L, at_1, printed_1),
       std::move(panels)});
  if (watch.cancelled()) return;
  item.data["critical_points"] = of_all.data();
  item.data["power_of_rho_left"] = power;
  item.data["counterexample"] = {{"least", at_1}, {"printed", printed_1}, {"corrected", counter.corrected.y.front()}};
  const bool corrected = of_all.all() && counter.of_corrected.all();
  item.claims.push_back(
      {"Descent with errors up to ε finds min ‖∇f‖² ≤ ε² + 2(f(x₀) - f*)/(LK)",
       fmt::format("a misprint: f = x²/2 with L = {}, ε = 0 has {:.4f} at K = 1, above {:.4f}. The proof gives L²ε² + "
                   "2L(f(x₀) - f*)/(K+1)",
                   big_L, at_1, printed_1),
       at_1 > printed_1 && corrected ? "differs" : "no"});
  item.claims.push_back({"Along the one-step hypergradient it finds min ‖∇f‖² ≤ L²ε² + 2L(f(x₀) - f*)/(K+1)",
                         of_all.text() + ", over six ρ", yes_if(corrected), "ours"});
  item.claims.push_back({"With many inner steps the gradient that is left is essentially proportional to ρ",
                         fmt::format("power {:.2f} of ρ, up to 0.1", power), yes_if(std::fabs(power - 1) <= 0.1)});
}

}  // namespace

void compute_bounds(const ItemOptions& options, const Watch& watch, Item& item) {
  for (const auto part : {vary_rho, bilevel_runs, critical_points}) {
    part(options, watch, item);
    if (watch.cancelled()) return;
  }
}

}  // namespace onestep::app::paper
