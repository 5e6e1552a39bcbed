// What the library adds to the paper: for a derivative it returns, an estimate and a bound of the error; and Auto, which
// takes the cheapest derivative that is good enough.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "onestep/onestep.h"
#include "paper/items/kinds.h"
#include "paper/items/support.h"

namespace onestep::app::paper {
namespace {

/// x ← A tanh(x + Bθ/10) + Bθ + c with ‖A‖ = ρ. Near zero, where tanh changes least, so that ρ is nearly attained where A is
/// symmetric.
struct Problem {
  Array A, B, c, theta, v;

  Problem(Random& random, std::int64_t n, std::int64_t m, double rho, bool symmetric)
      : A(random.with_norm(n, rho, symmetric)),
        B(random.matrix(n, m)),
        c(random.vector(n, 0.001)),
        theta(random.vector(m, 0.001)),
        v(random.vector(n)) {}
  Solver solver(double tolerance) const {
    return fixed_point(
        [*this](Expr x, Expr t) {
          const Expr moved = matmul(B, t);
          return matmul(A, tanh(x + 0.1 * moved)) + moved + c;
        },
        {.tolerance = tolerance, .max_iterations = 100000});
  }
  Array start() const { return zeros(A.shape()[0]); }
  /// Where the iteration has come to rest.
  Array exact() const {
    return solve(solver(0), start(), theta, Implicit{.how = Implicit::dense, .tolerance = 1e-15}).vjp(v);
  }
};

// Errors below this share of the derivative are rounding.
constexpr double rounding = 1e-12;

/// Certificates beside true errors.
struct Certified {
  int count = 0, held = 0, refused = 0, in_rounding = 0;
  std::string why_refused;                ///< the first of them
  std::vector<double> bounds, estimates;  ///< over the error, where that is above rounding

  void add(const Certificate& c, double error, double size) {
    ++count;
    if (c.basis == Certificate::Basis::refused) {
      if (refused++ == 0) why_refused = c.reason;
      return;
    }
    held += error <= c.bound ? 1 : 0;
    if (!(error > rounding * size)) {
      ++in_rounding;
      return;
    }
    bounds.push_back(c.bound / error);
    if (std::isfinite(c.estimate)) estimates.push_back(c.estimate / error);
  }
  void add(const Certified& other) {
    count += other.count;
    held += other.held;
    if (refused == 0) why_refused = other.why_refused;
    refused += other.refused;
    in_rounding += other.in_rounding;
    bounds.insert(bounds.end(), other.bounds.begin(), other.bounds.end());
    estimates.insert(estimates.end(), other.estimates.begin(), other.estimates.end());
  }
  std::string text() const {
    const auto over = [](const std::vector<double>& ratios) {
      const Quartiles q = quartiles(ratios);
      return fmt::format("{:.2f} times the error in the median (quartiles {:.2f} to {:.2f})", q.median, q.low, q.high);
    };
    return fmt::format(
        "{} of {} certificates have a bound. The bounds are observed: each derivative is compared with one computed by "
        "GMRES at a point nearer to the solution, with safety factors. {} of {} are at or above the true error. Where that "
        "is above rounding the bound is {}, the estimate {}.",
        count - refused, count, held, count - refused, over(bounds), over(estimates));
  }
};

/// Estimate, bound and error of K steps, for some ρ.
Certified against_K(const ItemOptions& options, const Watch& watch, Item& item) {
  const std::int64_t n = choose<std::int64_t>(options, 8, 30, 50), m = choose<std::int64_t>(options, 5, 20, 40);
  const std::vector<double> rhos{0.3, 0.6, 0.9, 0.97};
  const std::vector<int> Ks =
      choose<std::vector<int>>(options, {1, 2, 4, 8, 16}, {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 28, 32},
                               {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 28, 32, 48, 64});
  Certified certified;
  std::vector<Panel> panels;
  for (const double rho : rhos) {
    if (watch.cancelled()) break;
    Random random(options.seed, static_cast<std::uint64_t>(10000 + std::lround(1000 * rho)));
    const Problem problem(random, n, m, rho, true);
    const Array exact = problem.exact();
    Panel panel{fmt::format("ρ = {}", rho), {"K", false}, {"error, relative to the derivative", true}, {}, {}};
    Series error = line("true error", "exact"), estimate = line("estimate", "estimate", "dashed"),
           bound = line("bound", "bound");
    for (const int K : Ks) {
      if (watch.cancelled()) break;
      watch.progress(fmt::format("certificate, ρ = {}, K = {}", rho, K));
      const Solution s = solve(problem.solver(1e-13), problem.start(), problem.theta, KStep{K});
      // Steps from far away say nothing about the end.
      if (2 * K > s.statistics().iterations) {
        panel.notes.push_back(
            fmt::format("K stops here: {} is more than half of the {} iterations.", K, s.statistics().iterations));
        break;
      }
      const double size = norm(exact), wrong = norm(minus(s.vjp(problem.v), exact));
      const Certificate certificate = s.certificate(problem.v);
      certified.add(certificate, wrong, size);
      const double least = 1e-17;
      add_point(error, K, std::max(wrong / size, least));
      if (std::isfinite(certificate.estimate)) add_point(estimate, K, std::max(certificate.estimate / size, least));
      add_point(bound, K, certificate.bound / size);
    }
    panel.series = {error, estimate, bound};
    panels.push_back(std::move(panel));
  }
  item.figures.push_back(
      {"certificate", "How wrong is the derivative? Estimate, bound and truth",
       fmt::format("Derivative of the last K steps of x ← A tanh(x + Bθ/10) + Bθ + c, n = {}, m = {}, A symmetric with "
                   "‖A‖ = ρ, in a random direction. {}",
                   n, m, certified.text()),
       panels});
  return certified;
}

/// Random problems by three methods: how far the bound is above the error.
Certified over_random_problems(const ItemOptions& options, const Watch& watch, Item& item) {
  const int cases = choose(options, 20, 200, 1000), largest = 100;
  Random random(options.seed, 11);
  std::array<Series, 3> points{line("one step", "one_step", "points"), line("K steps", "k_step", "points"),
                               line("implicit", "implicit", "points")};
  Series equal = line("bound = error", "bound", "dashed");
  Certified certified;
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (int i = 0; i < cases && !watch.cancelled(); ++i) {
    if (i % 10 == 0) watch.progress(fmt::format("certificate, random problem {} of {}", i, cases));
    const auto n = static_cast<std::int64_t>(random.uniform(2, largest + 1)),
               m = static_cast<std::int64_t>(random.uniform(1, 20));
    const Problem problem(random, n, m, random.uniform(0, 0.98), i % 2 == 0);
    const Array exact = problem.exact();
    const Estimator estimator = i % 3 == 0   ? Estimator(OneStep{})
                                : i % 3 == 1 ? Estimator(KStep{1 + static_cast<int>(random.uniform(0, 10))})
                                             : Estimator(Implicit{.how = Implicit::matrix_free, .tolerance = 1e-5});
    const Solution s = solve(problem.solver(1e-10), problem.start(), problem.theta, estimator);
    const double wrong = norm(minus(s.vjp(problem.v), exact)), size = norm(exact);
    const Certificate certificate = s.certificate(problem.v);
    certified.add(certificate, wrong, size);
    if (!(wrong > rounding * size) || !std::isfinite(certificate.bound)) continue;
    add_point(points.at(static_cast<std::size_t>(i % 3)), wrong / size, certificate.bound / size);
    least = std::min(least, wrong / size);
    most = std::max(most, wrong / size);
  }
  if (most == 0) return certified;
  std::string left_out;
  if (certified.in_rounding > 0)
    left_out = fmt::format("{} with errors below {}, which is rounding", certified.in_rounding, number(rounding));
  if (certified.refused > 0)
    left_out +=
        fmt::format("{}{} without a bound ({})", left_out.empty() ? "" : ", and ", certified.refused, certified.why_refused);
  add_point(equal, least, least);
  add_point(equal, most, most);
  item.figures.push_back(
      {"certificate_cases",
       "The bound over random problems",
       fmt::format(
           "{} random problems of the same kind, A symmetric or not, n from 2 to {}, ρ uniform up to 0.98; one step, K "
           "steps with K up to 10, and implicit with a linear solve to 1e-5. Bound against true error, both relative "
           "to the derivative; a point below the line would be an error above its bound. {} {}",
           certified.count, largest, certified.text(),
           left_out.empty() ? "All are drawn." : fmt::format("Not drawn are {}.", left_out)),
       {{"", {"true error", true}, {"bound", true}, {points[0], points[1], points[2], equal}, {}}}});
  return certified;
}

/// What Auto takes for a tolerance, what that costs and how good it is.
void what_auto_takes(const ItemOptions& options, const Watch& watch, Item& item) {
  const std::int64_t n = choose<std::int64_t>(options, 8, 30, 50), m = choose<std::int64_t>(options, 5, 20, 40);
  const std::vector<double> rhos{0.05, 0.3, 0.6, 0.9, 0.97}, tolerances{1e-8, 1e-6, 1e-4, 1e-2, 1e-1};
  Table table;
  table.id = "auto";
  table.title = "What Auto takes";
  table.columns = {
      "ρ", "tolerance", "taken", "GMRES iterations", "derivatives of the step", "multiply-adds over implicit", "true error"};
  double worst = 0, dearest = 0;
  int count = 0;
  std::map<std::string, int> taken;
  std::vector<Series> curves;
  for (const double rho : rhos) {
    Random random(options.seed, static_cast<std::uint64_t>(20000 + std::lround(1000 * rho)));
    const Problem problem(random, n, m, rho, true);
    const Array exact = problem.exact();
    const Solution implicit = solve(problem.solver(1e-13), problem.start(), problem.theta, Implicit{.how = Implicit::dense});
    (void)implicit.vjp(problem.v);
    Series curve = line(fmt::format("ρ = {}", rho), "auto");
    for (const double tolerance : tolerances) {
      if (watch.cancelled()) return;
      watch.progress(fmt::format("certificate, Auto to {} with ρ = {}", number(tolerance), rho));
      const Solution s = solve(problem.solver(1e-13), problem.start(), problem.theta, Auto{.tolerance = tolerance});
      const Array g = s.vjp(problem.v);
      const double error = norm(minus(g, exact)) / norm(g), cost = s.report().flops / implicit.report().flops;
      worst = std::max(worst, error / tolerance);
      dearest = std::max(dearest, cost);
      ++count;
      ++taken[s.report().method];
      add_point(curve, tolerance, cost);
      table.rows.push_back({fmt::format("{}", rho), number(tolerance), s.report().method,
                            fmt::format("{}", s.report().terms), fmt::format("{}", s.report().products),
                            fmt::format("{:.2f}", cost), number(error)});
    }
    // The table has all of them; as curves they would hide each other.
    if (rho == 0.05 || rho == 0.6 || rho == 0.97) curves.push_back(std::move(curve));
  }
  std::string choices;
  for (const auto& [method, times] : taken)
    choices +=
        fmt::format("{}{} {}", choices.empty() ? "" : ", ", method, times == 1 ? "once" : fmt::format("{} times", times));
  table.caption = fmt::format(
      "The same maps, n = {}, m = {}. Auto takes one step where that meets the tolerance, else it solves the linear system "
      "of implicit differentiation by GMRES, from one step on, until its estimate of the error meets the tolerance. "
      "Tolerance and error are relative to the norm of the derivative. Auto took {}. Its error was at most {:.2f} of the "
      "tolerance, its cost at most {:.2f} times that of implicit differentiation with the matrix formed.",
      n, m, choices, worst, dearest);
  item.figures.push_back(
      {"auto",
       "What Auto costs",
       table.caption,
       {{"", {"tolerance, relative", true}, {"multiply-adds over those of implicit", true}, curves, {}}}});
  item.tables.push_back(std::move(table));

  // Newton's step needs nothing more.
  Random random(options.seed, 12);
  const Samples data = two_classes(random, 200, 10);
  const Solution newton = solve(logistic_regression(data), zeros(10), ones(200), Auto{.tolerance = 1e-8});
  (void)newton.vjp(newton.x());

  item.data["auto"] = {{"count", count}, {"worst", worst}, {"dearest", dearest}, {"newton", newton.report().method}};
  for (const auto& [method, times] : taken) item.data["auto"]["taken"][method] = times;
  item.claims.push_back({"Auto stays within its tolerance",
                         fmt::format("error at most {:.2f} of the tolerance in {} cases; it took {}", worst, count, choices),
                         yes_if(worst <= 1), "ours"});
  item.claims.push_back({"Auto costs at most twice implicit differentiation, and takes one step for Newton's method",
                         fmt::format("at most {:.2f} times; for Newton it took {}", dearest, newton.report().method),
                         yes_if(dearest <= 2 && newton.report().method == "one step"), "ours"});
}

}  // namespace

void compute_certificate(const ItemOptions& options, const Watch& watch, Item& item) {
  Certified certified = against_K(options, watch, item);
  certified.add(over_random_problems(options, watch, item));
  if (watch.cancelled()) return;
  const Quartiles bound = quartiles(certified.bounds), estimate = quartiles(certified.estimates);
  item.data["bounds"] = {{"count", certified.count},
                         {"held", certified.held},
                         {"refused", certified.refused},
                         {"median_ratio", bound.median},
                         {"median_estimate", estimate.median}};
  item.claims.push_back(
      {"The bound of the certificate is never below the true error",
       fmt::format("{} of {} times, and {} times there is no bound; over the error the bound is {:.2f} in the median, the "
                   "estimate {:.2f}",
                   certified.held, certified.count - certified.refused, certified.refused, bound.median, estimate.median),
       yes_if(certified.held == certified.count - certified.refused), "ours"});
  what_auto_takes(options, watch, item);
}

}  // namespace onestep::app::paper
