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

// Both sides are computed in double precision.
constexpr double slack = 1 + 1e-10;

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

struct Checked {
  int count = 0, held = 0;
  double closest = 0;  ///< the largest error as a share of its bound
  void add(double error, double bound) {
    ++count;
    held += error <= bound * slack ? 1 : 0;
    closest = std::max(closest, error / bound);
  }
  bool all() const { return held == count; }
  std::string text() const {
    return fmt::format("below the bound {} of {} times, at most {:.2f} of it", held, count, closest);
  }
  Json data() const { return {{"count", count}, {"held", held}, {"closest", closest}}; }
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
         one_bound = line(fmt::format("bound, k = {}", k), "bound", "dashed"),
         rest_error = line("error at rest", "one_step"), rest_bound = line("bound at rest", "bound"),
         implicit_error = line(fmt::format("error, k = {}", k), "implicit"),
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
           "of one step is {}; for ρ up to 0.1 it grows at rest with the power {:.2f} of ρ. That of implicit is {}.",
           n, m, of_one.text(), power, of_implicit.text()),
       {one, implicit}});
  if (watch.cancelled()) return;
  item.data["one_step"] = of_one.data();
  item.data["implicit"] = of_implicit.data();
  item.data["power_of_rho"] = power;
  item.claims.push_back({"The one-step Jacobian is within ρL_F/(1-ρ) + L_J‖x_{k-1} - x̄‖", of_one.text(), of_one.all()});
  item.claims.push_back({"The error of one step is asymptotically proportional to ρ", fmt::format("power {:.2f}", power),
                         std::fabs(power - 1) <= 0.1});
  item.claims.push_back(
      {"The implicit Jacobian is within (L_J L_F/(1-ρ)² + L_J/(1-ρ))‖x_k - x̄‖", of_implicit.text(), of_implicit.all()});
}

/// The bound on the hypergradient at each point of a bilevel run with the one-step hypergradient.
void bilevel_run(const ItemOptions& options, const Watch& watch, Item& item) {
  const std::int64_t n = choose<std::int64_t>(options, 6, 20, 30), m = choose<std::int64_t>(options, 4, 10, 20);
  const int k = 8, outer = choose(options, 15, 40, 60);
  const double rho = 0.5, alpha = 0.2;
  Random random(options.seed, 8);
  const Contraction c(random.with_norm(n, 1), random.matrix(n, m, 1 / std::sqrt(static_cast<double>(n))), random.vector(n),
                      rho);
  const Array a = random.vector(n, 1 / std::sqrt(static_cast<double>(n)));
  double l_nabla = 0;
  for (const double e : a.values()) l_nabla = std::max(l_nabla, std::fabs(e));
  const double l_g = norm(a);
  const Function g = trace(
      [&](Expr x) {
        const Expr value = sum(a * sin(x));
        return std::pair{value, grad(value, x)};
      },
      Shape{n});
  Series error = line("error", "one_step"), bound = line("bound", "bound", "dashed"),
         size = line("size of the hypergradient", "exact", "dotted");
  Checked checked;
  Array theta = random.vector(m);
  double first = 0, last = 0;
  for (int i = 0; i <= outer && !watch.cancelled(); ++i) {
    watch.progress(fmt::format("bounds, bilevel step {} of {}", i, outer));
    const Solution rest = c.at_rest(theta), one = c.after(k, theta, OneStep{});
    const Array x_bar = rest.x(), x = one.x();
    const std::vector<Array> at_rest = evaluate(g, {x_bar}), here = evaluate(g, {x});
    const Array exact = rest.vjp(at_rest[1]), h = one.vjp(here[1]);
    const double wrong = norm(minus(h, exact));
    const double most = rho * c.L_F * l_g / (1 - rho) + c.L_J * l_g * norm(minus(c.iterate(k - 1, theta), x_bar)) +
                        c.L_F * l_nabla * norm(minus(x_bar, x));
    checked.add(wrong, most);
    add_point(error, i, wrong);
    add_point(bound, i, most);
    add_point(size, i, norm(exact));
    last = at_rest[0].item();
    if (i == 0) first = last;
    theta = minus(theta, times(alpha, h));
  }
  item.figures.push_back(
      {"hypergradient",
       "The hypergradient along a bilevel run",
       fmt::format("Minimise g(x(θ)) = aᵀ sin(x(θ)) over θ, x(θ) the fixed point of the map above with ρ = {}; "
                   "{} inner iterations, step {} along the one-step hypergradient. Its error is {}. The objective "
                   "went from {:.3f} to {:.3f}.",
                   rho, k, alpha, checked.text(), first, last),
       {{"ρ = 0.5", {"outer iteration", false}, {"norm", true}, {error, bound, size}, {}}}});
  if (watch.cancelled()) return;
  item.data["hypergradient"] = checked.data();
  item.data["objective"] = {{"first", first}, {"last", last}};
  item.claims.push_back({"The one-step hypergradient is within the bound of the corollary, along a bilevel run",
                         fmt::format("{}; objective from {:.3f} to {:.3f}", checked.text(), first, last),
                         checked.all() && last < first});
}

/// min ‖∇f(x_k)‖² over k ≤ K with its two bounds.
struct CriticalPoints {
  Series least = line("smallest ‖∇f‖²", "one_step"), corrected = line("bound, corrected", "bound"),
         printed = line("bound, as printed", "unrolled", "dashed");
  Checked of_corrected, of_printed;
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
    of_printed.add(smallest, wrong);
  }
};

/// Hypergradient descent on f(θ) = ‖x(θ) - t‖²/2 where x is linear in θ, so that L is known; and the counterexample.
void critical_points(const ItemOptions& options, const Watch& watch, Item& item) {
  const std::int64_t n = choose<std::int64_t>(options, 5, 10, 20), m = n;
  const int steps = choose(options, 50, 300, 1000), k = 30;
  const double rho = 0.3;
  Random random(options.seed, 9);
  const Array A = random.with_norm(n, rho), C = random.matrix(n, m, 1 / std::sqrt(static_cast<double>(n))),
              t = random.vector(n);
  const Solver inner = fixed_point([&](Expr x, Expr theta) { return matmul(A, x) + matmul(C, theta); },
                                   {.tolerance = 0, .max_iterations = k});
  Prepared one_step(inner, zeros(n), zeros(m), OneStep{}),
      exact(inner, zeros(n), zeros(m), Implicit{.how = Implicit::dense});
  watch.progress("bounds, approximate critical points");
  const Solution& at_zero = exact.solve(zeros(n), zeros(m));
  const double L = std::pow(spectral_norm(at_zero.even_if_unconverged().jacobian()), 2);

  // ε is the largest error along the run, so the run comes first.
  std::vector<double> gradients;
  double epsilon = 0;
  Array theta = random.vector(m);
  double above = 0;
  for (int i = 0; i <= steps && !watch.cancelled(); ++i) {
    const Solution& s = one_step.solve(zeros(n), theta);
    const Array h = s.even_if_unconverged().vjp(minus(s.x(), t));
    const Solution& e = exact.solve(zeros(n), theta);
    const Array r = minus(e.x(), t), gradient = e.even_if_unconverged().vjp(r);
    if (i == 0) above = 0.5 * std::pow(norm(r), 2);
    gradients.push_back(norm(gradient));
    epsilon = std::max(epsilon, norm(minus(h, gradient)) / L);
    theta = minus(theta, times(1 / L, h));
  }
  CriticalPoints run, counter;
  for (std::size_t K = 0; K < gradients.size(); ++K) run.add(static_cast<int>(K), gradients[K], L, epsilon, above);

  const double big_L = 100;
  double x = 1;
  for (int K = 0; K <= 200; ++K) {
    counter.add(K, x, big_L, 0, 0.5);
    x -= x / big_L;
  }
  const double at_1 = counter.least.y.front(), printed_1 = counter.printed.y.front();
  const auto panel = [](std::string title, const CriticalPoints& c) {
    return Panel{std::move(title), {"K", true}, {"‖∇f‖²", true}, {c.least, c.corrected, c.printed}, {}};
  };
  item.figures.push_back(
      {"critical_points",
       "Approximate critical points",
       fmt::format(
           "Left: descent on f(θ) = ‖x(θ) - t‖²/2 along the one-step hypergradient, x the fixed point of Ax + Cθ with "
           "ρ = {}, n = m = {}, step 1/L with L = {:.3g}; the largest error of a step is ε = {}. The smallest squared "
           "gradient is {}. The bound here is L²ε² + 2L(f(x₀) - f*)/(K+1); the paper prints ε² + 2(f(x₀) - f*)/(LK), "
           "where the proof loses a factor 1/L². Right: f = x²/2 with L = {} and exact steps (ε = 0) from 1: at K = 1 "
           "the smallest squared gradient is {:.4f}, the printed bound {:.4f}.",
           rho, n, L, number(epsilon), run.of_corrected.text(), big_L, at_1, printed_1),
       {panel("hypergradient descent", run), panel("counterexample to the printed bound", counter)}});
  if (watch.cancelled()) return;
  item.data["critical_points"] = run.of_corrected.data();
  item.data["counterexample"] = {{"least", at_1}, {"printed", printed_1}, {"corrected", counter.corrected.y.front()}};
  item.claims.push_back(
      {"Hypergradient descent finds approximate critical points, min ‖∇f‖² ≤ L²ε² + 2L(f(x₀) - f*)/(K+1) "
       "(corrected)",
       run.of_corrected.text(), run.of_corrected.all() && counter.of_corrected.all()});
  item.claims.push_back({"The bound as printed, ε² + 2(f(x₀) - f*)/(LK), is a misprint (ours: a counterexample)",
                         fmt::format("f = x²/2, L = 100, K = 1: {:.4f} is above {:.4f}", at_1, printed_1),
                         at_1 > printed_1});
}

}  // namespace

void compute_bounds(const ItemOptions& options, const Watch& watch, Item& item) {
  for (const auto part : {vary_rho, bilevel_run, critical_points}) {
    part(options, watch, item);
    if (watch.cancelled()) return;
  }
}

}  // namespace onestep::app::paper
