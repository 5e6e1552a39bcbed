// Gradient descent on weighted ridge regression: errors of the iterates and of the whole Jacobian by each method, for two
// condition numbers and two steps, against iterations and against time.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "onestep/data.h"
#include "onestep/onestep.h"
#include "paper/items/kinds.h"
#include "paper/items/piggyback.h"
#include "paper/items/support.h"

namespace onestep::app::paper {
namespace {

struct Data {
  Array A, y;
  std::string text;
};

/// Prescribed spectrum: the eigenvalues of AᵀA/N fall evenly from 1 to 1e-4 on a logarithmic scale, so that λ can bring the
/// condition number down to 1000. All eigenvectors have the same share in what made y.
Data made_data(Random& random, std::int64_t N, std::int64_t n) {
  const Array U = random.orthonormal(N, n), V = random.orthonormal(n, n);
  std::vector<double> singular(static_cast<std::size_t>(n)), x(static_cast<std::size_t>(n));
  for (std::size_t j = 0; j < singular.size(); ++j) {
    const double place = static_cast<double>(j) / static_cast<double>(n - 1);
    singular[j] = std::sqrt(static_cast<double>(N)) * std::pow(10.0, -2 * place);
    x[j] = j % 2 == 0 ? 1 : -1;
  }
  const Function make = traced(
      [](Expr u, Expr s, Expr v, Expr c) {
        return std::pair{matmul(u * s, transpose(v)), matmul(u, s * c)};
      },
      U.shape(), Shape{n}, V.shape(), Shape{n});
  const std::vector<Array> made = evaluate(make, {U, Array({n}, std::move(singular)), V, Array({n}, std::move(x))});
  return {made[0], plus(made[1], random.vector(N, 0.1)),
          fmt::format("made data of the shape of cpusmall, {} × {}, with a prescribed spectrum", N, n)};
}

/// Columns divided by their largest entry, as their scales differ by six orders of magnitude. They are not centred: that
/// would leave a condition number of 44.
Data scaled(const std::string& path) {
  const Dataset file = read_libsvm(path);
  const Function make = traced(
      [](Expr a) { return a / maximum(max(abs(a), onestep::Axis{0}), std::numeric_limits<double>::min()); }, file.A.shape());
  return {evaluate(make, {file.A})[0], file.y,
          fmt::format("the data of --cpusmall, {} × {}, columns divided by their largest entry", file.A.shape()[0],
                      file.A.shape()[1])};
}

auto objective(const Data& data, double lambda) {
  return [A = data.A, y = data.y, lambda](Expr x, Expr w) {
    return 0.5 * sum(w * square(y - matmul(A, x))) + 0.5 * lambda * sum(square(x));
  };
}

/// A prepared solver that makes as many steps as it is told.
class Counted {
 public:
  /// `make` gets the options to make the solver with.
  template <class Make>
  Counted(const Make& make, Parts x0, Parts theta, const Estimator& estimator)
      : theta_(std::move(theta)), prepared_(make(options()), x0, theta_, estimator) {}

  Solution run(const Parts& x0, int steps) {
    *goal_ = steps;
    return prepared_.solve(x0, theta_).even_if_unconverged();
  }

 private:
  SolveOptions options() const {
    return {.tolerance = 0, .max_iterations = 10000000, .callback = [goal = goal_](const Iteration& i) {
              return i.number < *goal;
            }};
  }
  std::shared_ptr<int> goal_ = std::make_shared<int>(0);
  Parts theta_;
  Prepared prepared_;
};

double median_seconds(const std::function<void()>& work) {
  std::vector<double> samples;
  for (int i = 0; i < 5; ++i) {
    const Stopwatch clock;
    work();
    samples.push_back(clock.seconds());
  }
  return quartiles(samples).median;
}

struct Setting {
  double kappa;
  bool large_step;
};

struct Curves {
  Series iterates = line("iterates", "iterates", "dotted"), unrolled = line("unrolled", "unrolled"),
         k_step = line("K steps", "k_step"), one_step = line("one step", "one_step"),
         implicit = line("implicit", "implicit");
  std::vector<Series> all() const { return {iterates, unrolled, k_step, one_step, implicit}; }
};

/// One of the four panels, in both views, and what is claimed about it.
struct Measured {
  Panel by_iteration, by_time;
  Setting setting{};
  int K = 0, peak_at = 0;
  double rho = 0, size = 0;                                                 // ‖A‖ and ‖J̄‖
  double one_step = 0, k_step = 0, unrolled = 0, implicit = 0;              // errors at the end, relative
  double peak = 0;                                                          // of the unrolled error, relative to ‖J̄‖
  double unrolled_seconds = 0, one_step_seconds = 0, implicit_seconds = 0;  // at the end
  int end = 0, ahead_from = 0;  // the last iteration, and that from which on implicit is nearer than unrolled
  bool complete = false;
};

constexpr double rounding = 1e-11;
// The paper gives no number: a relative error up to this is taken for adequate.
constexpr double adequate = 0.1;
// Steps of the recursion between two looks at whether to stop: well below a second.
constexpr int most_at_once = 500;

Measured measure(const Data& data, const std::vector<double>& spectrum, const Setting& setting, const Watch& watch) {
  const std::int64_t N = data.A.shape()[0], n = data.A.shape()[1];
  const double raw_L = spectrum.back(), raw_mu = std::max(spectrum.front(), 0.0);
  const double lambda = (raw_L - setting.kappa * raw_mu) / (setting.kappa - 1), L = raw_L + lambda, mu = raw_mu + lambda;
  const double alpha = setting.large_step ? 2 / (mu + L) : 1 / L;
  const auto f = objective(data, lambda);
  const Array theta = ones(N), x0 = zeros(n);
  Measured m;
  m.setting = setting;
  m.rho = std::max(1 - alpha * mu, alpha * L - 1);
  m.K = static_cast<int>(std::lround(setting.kappa));

  const Array x_bar = solve(newton(f), x0, theta).x();
  const Array J_bar = solve(newton(f), x_bar, theta, Implicit{.tolerance = 1e-14}).jacobian();
  m.size = norm(J_bar);

  const auto descent = [&](const SolveOptions& o) { return gradient_descent(f, {.step = GradientStep::fixed(alpha)}, o); };
  const auto step = [&](const Expr& x, const Expr& w) { return x - alpha * grad(f(x, w), x); };
  Counted plain(descent, x0, theta, OneStep{}), implicit(descent, x0, theta, Implicit{.tolerance = 1e-14});
  Piggyback unrolled(step, n, theta), last_steps(step, n, theta);
  unrolled.start(x0);

  const int end = static_cast<int>((setting.large_step ? 9 : 15) * setting.kappa), points = 36;
  m.end = end;
  std::vector<int> at{1, std::max(2, end / 400), std::max(3, end / 150)};
  for (int i = 1; i <= points; ++i) at.push_back(std::max(at.back() + 1, end / points * i));

  // One run is over too soon to be timed alone: medians, and the iterations in between by proportion.
  const double first = median_seconds([&] { plain.run(x0, 1); }), whole = median_seconds([&] { plain.run(x0, end); });
  const auto iterations_take = [&](int k) { return first + (whole - first) * (k - 1) / (end - 1); };
  const auto derivative_takes = [&](Counted& with) {
    return std::max(0.0, median_seconds([&] { (void)with.run(x0, 1).jacobian(); }) - first);
  };
  const double one_step_takes = derivative_takes(plain), implicit_takes = derivative_takes(implicit);

  Curves by_iteration, by_time;
  const auto draw = [&](Series Curves::*curve, double k, double seconds, double error) {
    const double squared = std::max(error * error, 1e-32 * m.size * m.size);
    add_point(by_iteration.*curve, k, squared);
    add_point(by_time.*curve, seconds, squared);
  };
  int before = 0;
  std::vector<double> unrolled_steps;  // seconds of one, as often as it was measured
  m.peak = 1;
  for (std::size_t i = 0; i < at.size() && !watch.cancelled(); ++i) {
    const int k = at[i];
    watch.progress(fmt::format("ridge, condition number {}, step {}, iteration {} of {}", setting.kappa,
                               setting.large_step ? "2/(μ+L)" : "1/L", k, end));
    // In parts short enough to be stopped.
    for (int begun = before; begun < k && !watch.cancelled(); begun += most_at_once) {
      const int steps = std::min(most_at_once, k - begun);
      const Stopwatch clock;
      unrolled.run(steps);
      unrolled_steps.push_back(clock.seconds() / steps);
    }
    before = k;
    const double unrolled_error = norm(minus(unrolled.jacobian(), J_bar));
    draw(&Curves::unrolled, k, 0, unrolled_error);
    if (unrolled_error > m.peak * m.size) {
      m.peak = unrolled_error / m.size;
      m.peak_at = k;
    }

    const Solution& one = plain.run(x0, k);
    m.one_step_seconds = iterations_take(k) + one_step_takes;
    const double one_error = norm(minus(one.jacobian(), J_bar));
    draw(&Curves::iterates, k, iterations_take(k), norm(minus(one.x(), x_bar)));
    draw(&Curves::one_step, k, m.one_step_seconds, one_error);

    const double implicit_error = norm(minus(implicit.run(x0, k).jacobian(), J_bar));
    m.implicit_seconds = iterations_take(k) + implicit_takes;
    draw(&Curves::implicit, k, m.implicit_seconds, implicit_error);
    if (implicit_error > unrolled_error && implicit_error > rounding * m.size) m.ahead_from = k + 1;

    if (i % (setting.kappa > 500 ? 6 : 3) == 2 || k == at.back()) {
      const int K = std::min(k, m.K);
      last_steps.start(k > K ? Array(plain.run(x0, k - K).x()) : x0);
      last_steps.run(K);
      const double k_error = norm(minus(last_steps.jacobian(), J_bar));
      draw(&Curves::k_step, k, 0, k_error);
      m.k_step = k_error / m.size;
    }
    m.one_step = one_error / m.size;
    m.unrolled = unrolled_error / m.size;
    m.implicit = implicit_error / m.size;
    m.complete = k == at.back();
  }
  if (unrolled_steps.empty()) return m;
  const double unrolled_step = quartiles(unrolled_steps).median;
  const auto k_steps_take = [&](int k) {
    const int K = std::min(k, m.K);
    return (k > K ? iterations_take(k - K) : 0) + K * unrolled_step;
  };
  const auto place = [&](Series Curves::*curve, const auto& takes) {
    for (std::size_t i = 0; i < (by_time.*curve).x.size(); ++i)
      (by_time.*curve).x[i] = takes(static_cast<int>((by_iteration.*curve).x[i]));
  };
  place(&Curves::unrolled, [&](int k) { return k * unrolled_step; });
  place(&Curves::k_step, k_steps_take);
  m.unrolled_seconds = end * unrolled_step;
  const std::string title =
      fmt::format("condition number {}, step {}", setting.kappa, setting.large_step ? "2/(μ + L)" : "1/L");
  m.by_iteration = {title, {"iteration", false}, {"squared error", true}, by_iteration.all(), {}};
  m.by_time = {title, {"seconds", true}, {"squared error", true}, by_time.all(), {}};
  return m;
}

/// How far the recursion that draws the curves is from Unrolled and KStep of the library, after a few steps.
double recursion_difference(const Data& data, double lambda, double alpha) {
  const std::int64_t N = data.A.shape()[0], n = data.A.shape()[1];
  const auto f = objective(data, lambda);
  const int steps = 20, K = 7;
  const auto descent = [&](int most, const Estimator& e) {
    const SolveOptions stop{.tolerance = 0, .max_iterations = most};
    return solve(gradient_descent(f, {.step = GradientStep::fixed(alpha)}, stop), zeros(n), ones(N), e)
        .even_if_unconverged();
  };
  Piggyback recursion([&](const Expr& x, const Expr& w) { return x - alpha * grad(f(x, w), x); }, n, ones(N));
  const auto difference = [&](const Array& from, int count, const Estimator& e) {
    recursion.start(from);
    recursion.run(count);
    return relative_error(recursion.jacobian(), descent(steps, e).jacobian());
  };
  return std::max(difference(zeros(n), steps, Unrolled{}), difference(descent(steps - K, OneStep{}).x(), K, KStep{K}));
}

}  // namespace

void compute_ridge(const ItemOptions& options, const Watch& watch, Item& item) {
  Random random(options.seed, 4);
  const std::int64_t N = choose<std::int64_t>(options, 400, 8192, 8192), n = choose<std::int64_t>(options, 6, 12, 12);
  const Data data = options.cpusmall.empty() ? made_data(random, N, n) : scaled(options.cpusmall);
  const std::vector<double> spectrum = eigenvalues(product(data.A.transposed(), data.A));
  const double raw = spectrum.front() > 0 ? spectrum.back() / spectrum.front() : std::numeric_limits<double>::infinity();
  const std::vector<double> kappas = choose<std::vector<double>>(options, {200, 40}, {1000, 100}, {1000, 100});
  if (raw <= kappas.front())
    throw MisuseError(fmt::format("[paper] ridge: the data have the condition number {:.4g}, which no λ raises to {}", raw,
                                  kappas.front()));

  const std::string ran = fmt::format(
      "Weighted ridge regression on {}, condition number {} without λ, from x = 0, θ = 1. "
      "λ is chosen for the condition number of each panel. K = condition number.",
      data.text, number(raw));
  std::vector<Measured> all;
  for (const double kappa : kappas)
    for (const bool large_step : {false, true}) {
      all.push_back(measure(data, spectrum, {kappa, large_step}, watch));
      std::vector<Panel> by_iteration, by_time;
      for (const Measured& m : all) by_iteration.push_back(m.by_iteration), by_time.push_back(m.by_time);
      std::string came_out;
      for (const Measured& m : all)
        if (m.complete)
          came_out += fmt::format(
              " Condition number {}, step {}: one step stays at {} of ‖J̄‖, K steps at {}, {}.", m.setting.kappa,
              m.setting.large_step ? "2/(μ+L)" : "1/L", number(m.one_step), number(m.k_step),
              m.peak_at > 0
                  ? fmt::format("the unrolled error first grows to {} times ‖J̄‖, at iteration {}", number(m.peak), m.peak_at)
                  : "the unrolled error never exceeds ‖J̄‖");
      item.figures = {
          {"ridge", "Gradient descent on weighted ridge regression",
           fmt::format(
               "{} Squared distance of the iterates to the solution (dotted) and of the whole Jacobian to that of the "
               "solution (lines).{}",
               ran, came_out),
           by_iteration},
          {"ridge_time", "The same against time",
           ran + " Time to the iterate and its whole Jacobian. Unrolled and K steps carry the Jacobian along, one "
                 "step and implicit are taken at the end. Medians; iterations in between by proportion.",
           by_time}};
      if (watch.cancelled()) return;
    }

  const double check = recursion_difference(data, spectrum.back() / kappas.back(), 1 / (2 * spectrum.back()));
  item.data["recursion_difference"] = check;
  bool plateau = true, k_steps = true, converge = true, burn_in = true, ahead = true, faster = true, implicit_faster = true;
  std::string plateaus, ks, ends, peaks, times, implicit_times, leads;
  double small_step_peak = 1;
  int good_enough = 0;
  for (const Measured& m : all) {
    const double rho_K = std::pow(m.rho, m.K);
    item.data["panels"].push_back({{"kappa", m.setting.kappa},
                                   {"large_step", m.setting.large_step},
                                   {"rho", m.rho},
                                   {"K", m.K},
                                   {"rho_to_K", rho_K},
                                   {"one_step", m.one_step},
                                   {"k_step", m.k_step},
                                   {"unrolled", m.unrolled},
                                   {"implicit", m.implicit},
                                   {"peak", m.peak},
                                   {"peak_at", m.peak_at},
                                   {"end", m.end},
                                   {"ahead_from", m.ahead_from}});
    plateau = plateau && m.one_step <= m.rho && m.one_step > 0.1 * m.rho;
    k_steps = k_steps && m.k_step <= rho_K * (1 + 1e-3);
    converge = converge && m.unrolled < 1e-3 && m.implicit < 1e-3;
    // Beside the same condition number with the small step, which comes before.
    if (m.setting.large_step)
      burn_in = burn_in && m.peak > 5 * small_step_peak;
    else
      small_step_peak = m.peak;
    ahead = ahead && m.ahead_from <= m.end / 2;
    faster = faster && m.one_step_seconds < m.unrolled_seconds;
    implicit_faster = implicit_faster && m.implicit_seconds < m.unrolled_seconds;
    good_enough += m.one_step <= adequate ? 1 : 0;
    const auto append = [](std::string& to, const std::string& text) { to += (to.empty() ? "" : "; ") + text; };
    append(plateaus, fmt::format("{} (ρ = {:.4f})", number(m.one_step), m.rho));
    append(ks, fmt::format("{} (ρ^K = {})", number(m.k_step), number(rho_K)));
    append(ends, fmt::format("{} and {}", number(m.unrolled), number(m.implicit)));
    append(leads, fmt::format("{} of {}", std::max(1, m.ahead_from), m.end));
    append(times, fmt::format("{} and {}", duration(m.one_step_seconds), duration(m.unrolled_seconds)));
    append(implicit_times, fmt::format("{} and {}", duration(m.implicit_seconds), duration(m.unrolled_seconds)));
    if (m.setting.large_step)
      append(peaks, fmt::format("grows to {} times ‖J̄‖, at iteration {}, with step 1/L to {}", number(m.peak), m.peak_at,
                                number(small_step_peak)));
  }
  const auto over_panels = [&](double Measured::*value) {
    const auto [low, high] = std::ranges::minmax(all, {}, value);
    return fmt::format("{} to {}", number(low.*value), number(high.*value));
  };
  item.claims = {
      {"The error of one step does not vanish; it is at most ρ, relative to ‖J̄‖", plateaus, yes_if(plateau)},
      {"In most cases one step has adequate precision",
       fmt::format(
           "errors of {} of ‖J̄‖, below {} in {} of {} panels, as ρ = {} lets expect: hardly better than no derivative "
           "at all. Of F^K, which the paper considers here, one step has errors of {} with K = condition number",
           over_panels(&Measured::one_step), adequate, good_enough, all.size(), over_panels(&Measured::rho),
           over_panels(&Measured::k_step)),
       differs_unless(2 * good_enough > static_cast<int>(all.size()))},
      {"K steps bring the error below ρ^K", ks, yes_if(k_steps)},
      {"K = 1/κ, with κ the condition number of the Hessian",
       fmt::format("1/κ would be less than a step; it makes sense with κ = μ/L. Here K = L/μ = {} and {}", kappas.front(),
                   kappas.back()),
       "differs"},
      {"Unrolled and implicit Jacobians converge", "errors at the end, relative: " + ends, yes_if(converge)},
      {"Unrolling has a burn-in at the large step", "its error " + peaks, yes_if(burn_in)},
      {"Implicit differentiation is more precise than unrolling", "at all iterations looked at, from these on: " + leads,
       yes_if(ahead)},
      {"Implicit differentiation is faster than unrolling", "whole Jacobian at the end: " + implicit_times,
       yes_if(implicit_faster)},
      {"One step is faster than full unrolling", "whole Jacobian at the end: " + times, yes_if(faster)}};
}

}  // namespace onestep::app::paper
