// Runs gradient descent and carries its Jacobian along, takes the one-step and the implicit Jacobian at some iterations, and
// draws their errors against iterations and against time.
#include "paper/items/ridge_panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "onestep/onestep.h"
#include "paper/items/piggyback.h"
#include "paper/items/support.h"

namespace onestep::app::paper {
namespace {

struct Objective {
  Array A, y;
  double lambda;
  Expr operator()(Expr x, Expr w) const { return 0.5 * sum(w * square(y - matmul(A, x))) + 0.5 * lambda * sum(square(x)); }
};

/// The regression whose Hessian has the condition number of the setting, the step of gradient descent, and the solution.
struct Regression {
  double alpha, rho;
  Objective f;
  Array theta, x0, x_bar, J_bar;

  Solver descent(const SolveOptions& options) const {
    return gradient_descent(f, {.step = GradientStep::fixed(alpha)}, options);
  }
  Expr step(const Expr& x, const Expr& w) const { return x - alpha * grad(f(x, w), x); }
};

Regression solved_regression(const RidgeData& data, const std::vector<double>& spectrum, const RidgeSetting& setting) {
  const std::int64_t N = data.A.shape()[0], n = data.A.shape()[1];
  const double raw_L = spectrum.back(), raw_mu = std::max(spectrum.front(), 0.0);
  const double lambda = (raw_L - setting.kappa * raw_mu) / (setting.kappa - 1), L = raw_L + lambda, mu = raw_mu + lambda;
  const double alpha = setting.large_step ? 2 / (mu + L) : 1 / L;
  const Objective f{data.A, data.y, lambda};
  const Array theta = ones(N), x0 = zeros(n);
  const Array x_bar = solve(newton(f), x0, theta).x();
  const Array J_bar = solve(newton(f), x_bar, theta, Implicit{.tolerance = 1e-14}).jacobian();
  return {alpha, std::max(1 - alpha * mu, alpha * L - 1), f, theta, x0, x_bar, J_bar};
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

/// Median seconds; the iterations in between by proportion, as one run is over too soon to be timed alone.
struct Times {
  int end;
  double first, whole;        ///< of the first iteration, and of all
  double one_step, implicit;  ///< of the derivative alone
  double iterations(int k) const { return first + (whole - first) * (k - 1) / (end - 1); }
};

Times measured_times(Counted& plain, Counted& implicit, const Array& x0, int end) {
  const double first = median_seconds([&] { plain.run(x0, 1); }), whole = median_seconds([&] { plain.run(x0, end); });
  const auto derivative = [&](Counted& with) {
    return std::max(0.0, median_seconds([&] { (void)with.run(x0, 1).jacobian(); }) - first);
  };
  const double one_step_takes = derivative(plain), implicit_takes = derivative(implicit);
  return {end, first, whole, one_step_takes, implicit_takes};
}

/// Some at the beginning, then evenly to the end.
std::vector<int> iterations_looked_at(int end) {
  constexpr int points = 36;
  std::vector<int> at{1, std::max(2, end / 400), std::max(3, end / 150)};
  for (int i = 1; i <= points; ++i) at.push_back(std::max(at.back() + 1, end / points * i));
  return at;
}

struct Curves {
  Series iterates = line("iterates", "iterates", "dotted"), unrolled = line("unrolled", "unrolled"),
         k_step = line("K steps", "k_step"), one_step = line("one step", "one_step"),
         implicit = line("implicit", "implicit");
  std::vector<Series> all() const { return {iterates, unrolled, k_step, one_step, implicit}; }
};

constexpr double rounding = 1e-11;
// Steps of the recursion between two looks at whether to stop: well below a second.
constexpr int most_at_once = 500;

/// A run of gradient descent with all four Jacobians.
class PanelRun {
 public:
  PanelRun(const RidgeData& data, const std::vector<double>& spectrum, const RidgeSetting& setting);
  RidgePanel measure(const Watch& watch);

 private:
  /// Returns the error, as do the next two.
  double look_at_unrolled(int k, const Watch& watch);
  double look_at_one_step(int k);
  double look_at_implicit(int k);
  void look_at_last_steps(int k);
  double error(const Array& J) const { return norm(minus(J, regression_.J_bar)); }
  void draw(Series Curves::*curve, double k, double seconds, double error);
  /// The time of what carries the Jacobian along, which is known at the end only.
  void place_in_time();
  void add_panels();

  Regression regression_;
  Counted plain_, implicit_;
  Piggyback unrolled_, last_steps_;
  Times times_{};
  Curves by_iteration_, by_time_;
  std::vector<double> unrolled_steps_;  // seconds of one, as often as it was measured
  int unrolled_to_ = 0;
  RidgePanel panel_;
};

PanelRun::PanelRun(const RidgeData& data, const std::vector<double>& spectrum, const RidgeSetting& setting)
    : regression_(solved_regression(data, spectrum, setting)),
      plain_([&](const SolveOptions& o) { return regression_.descent(o); }, regression_.x0, regression_.theta, OneStep{}),
      implicit_([&](const SolveOptions& o) { return regression_.descent(o); }, regression_.x0, regression_.theta,
                Implicit{.tolerance = 1e-14}),
      unrolled_([&](const Expr& x, const Expr& w) { return regression_.step(x, w); }, data.A.shape()[1], regression_.theta),
      last_steps_([&](const Expr& x, const Expr& w) { return regression_.step(x, w); }, data.A.shape()[1],
                  regression_.theta) {
  panel_.setting = setting;
  panel_.rho = regression_.rho;
  panel_.K = static_cast<int>(std::lround(setting.kappa));
  panel_.size = norm(regression_.J_bar);
  panel_.end = static_cast<int>((setting.large_step ? 9 : 15) * setting.kappa);
  panel_.peak = 1;
  unrolled_.start(regression_.x0);
}

RidgePanel PanelRun::measure(const Watch& watch) {
  const RidgeSetting& setting = panel_.setting;
  const std::vector<int> at = iterations_looked_at(panel_.end);
  times_ = measured_times(plain_, implicit_, regression_.x0, panel_.end);
  for (std::size_t i = 0; i < at.size() && !watch.cancelled(); ++i) {
    const int k = at[i];
    watch.progress(fmt::format("ridge, condition number {}, step {}, iteration {} of {}", setting.kappa,
                               setting.large_step ? "2/(μ+L)" : "1/L", k, panel_.end));
    const double unrolled_error = look_at_unrolled(k, watch);
    const double one_error = look_at_one_step(k);
    const double implicit_error = look_at_implicit(k);
    if (implicit_error > unrolled_error && implicit_error > rounding * panel_.size) panel_.ahead_from = k + 1;
    if (i % (setting.kappa > 500 ? 6 : 3) == 2 || k == at.back()) look_at_last_steps(k);
    panel_.one_step = one_error / panel_.size;
    panel_.unrolled = unrolled_error / panel_.size;
    panel_.implicit = implicit_error / panel_.size;
    panel_.complete = k == at.back();
  }
  if (unrolled_steps_.empty()) return panel_;
  place_in_time();
  add_panels();
  return panel_;
}

double PanelRun::look_at_unrolled(int k, const Watch& watch) {
  // In parts short enough to be stopped.
  for (int begun = unrolled_to_; begun < k && !watch.cancelled(); begun += most_at_once) {
    const int steps = std::min(most_at_once, k - begun);
    const Stopwatch clock;
    unrolled_.run(steps);
    unrolled_steps_.push_back(clock.seconds() / steps);
  }
  unrolled_to_ = k;
  const double unrolled_error = error(unrolled_.jacobian());
  draw(&Curves::unrolled, k, 0, unrolled_error);
  if (unrolled_error > panel_.peak * panel_.size) {
    panel_.peak = unrolled_error / panel_.size;
    panel_.peak_at = k;
  }
  return unrolled_error;
}

double PanelRun::look_at_one_step(int k) {
  const Solution& one = plain_.run(regression_.x0, k);
  panel_.one_step_seconds = times_.iterations(k) + times_.one_step;
  const double one_error = error(one.jacobian());
  draw(&Curves::iterates, k, times_.iterations(k), norm(minus(one.x(), regression_.x_bar)));
  draw(&Curves::one_step, k, panel_.one_step_seconds, one_error);
  return one_error;
}

double PanelRun::look_at_implicit(int k) {
  const double implicit_error = error(implicit_.run(regression_.x0, k).jacobian());
  panel_.implicit_seconds = times_.iterations(k) + times_.implicit;
  draw(&Curves::implicit, k, panel_.implicit_seconds, implicit_error);
  return implicit_error;
}

void PanelRun::look_at_last_steps(int k) {
  const int K = std::min(k, panel_.K);
  last_steps_.start(k > K ? Array(plain_.run(regression_.x0, k - K).x()) : regression_.x0);
  last_steps_.run(K);
  const double k_error = error(last_steps_.jacobian());
  draw(&Curves::k_step, k, 0, k_error);
  panel_.k_step = k_error / panel_.size;
}

void PanelRun::draw(Series Curves::*curve, double k, double seconds, double error) {
  const double squared = std::max(error * error, 1e-32 * panel_.size * panel_.size);
  add_point(by_iteration_.*curve, k, squared);
  add_point(by_time_.*curve, seconds, squared);
}

void PanelRun::place_in_time() {
  const double unrolled_step = quartiles(unrolled_steps_).median;
  const auto k_steps_take = [&](int k) {
    const int K = std::min(k, panel_.K);
    return (k > K ? times_.iterations(k - K) : 0) + K * unrolled_step;
  };
  const auto place = [&](Series Curves::*curve, const auto& takes) {
    for (std::size_t i = 0; i < (by_time_.*curve).x.size(); ++i)
      (by_time_.*curve).x[i] = takes(static_cast<int>((by_iteration_.*curve).x[i]));
  };
  place(&Curves::unrolled, [&](int k) { return k * unrolled_step; });
  place(&Curves::k_step, k_steps_take);
  panel_.unrolled_seconds = panel_.end * unrolled_step;
}

void PanelRun::add_panels() {
  const std::string title =
      fmt::format("condition number {}, step {}", panel_.setting.kappa, panel_.setting.large_step ? "2/(μ + L)" : "1/L");
  panel_.by_iteration = {title, {"iteration", false}, {"squared error", true}, by_iteration_.all(), {}};
  panel_.by_time = {title, {"seconds", true}, {"squared error", true}, by_time_.all(), {}};
}

}  // namespace

RidgePanel measure_ridge(const RidgeData& data, const std::vector<double>& spectrum, const RidgeSetting& setting,
                         const Watch& watch) {
  return PanelRun(data, spectrum, setting).measure(watch);
}

double recursion_difference(const RidgeData& data, double lambda, double alpha) {
  const std::int64_t N = data.A.shape()[0], n = data.A.shape()[1];
  const Objective f{data.A, data.y, lambda};
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

}  // namespace onestep::app::paper
