// Gradient descent: x - α∇f(x), with α given, measured, or found by backtracking, and with or without momentum.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "linear/lanczos.h"
#include "linear/random.h"
#include "onestep/diff.h"
#include "solve/loops.h"
#include "solve/monitor.h"
#include "solve/recipe.h"
#include "solve/traced_map.h"
#include "solve/trial.h"

namespace onestep::detail {
namespace {

constexpr int lanczos_steps = 80;
// An iteration may need a much shorter step than the last: from far away, or where the first α is that of another scale.
// Backtracking ends when x no longer changes; this is tested once α is below this fraction of the first one tried.
constexpr double looked_at = 0x1p-40, changes_nothing = 4 * std::numeric_limits<double>::epsilon();
// A decrease of f smaller than this, relative to f, is looked for in the slope.
constexpr double visible = 1e-9;

// A start that is stationary and not a minimum is left by a displacement of this size, relative to x.
constexpr double displacement = 0x1p-26;
// Differences for curvatures are taken over this length, relative to x.
constexpr double difference = 1e-6;
// Steps within the rounding of x end a backtracking descent near a solution. So many in a row do not lead to one.
constexpr int lost_allowed = 64;
// Why a backtracking descent ends where no gradient vanishes.
constexpr const char* kink =
    "the steps became short and the gradient did not: the objective has a kink there; smooth it, or take a proximal step";
// Negative curvature is less than this, relative to the largest.
constexpr double negative = -1e-8;

class DescentMethod final : public Method {
 public:
  std::unique_ptr<Loop> loop() const override;
  std::shared_ptr<Method> with_data(const std::vector<Array>& data) const override {
    auto copy = std::make_shared<DescentMethod>(*this);
    copy->gradient = gradient.with_data(data);
    if (copy->objective) copy->objective->bind(data);
    copy->bind(data);
    if (equation && !users_equation) copy->equation = copy->gradient;
    return copy;
  }

  GradientStep size;
  LazyMap gradient;                        // ∇f of the first part alone
  std::optional<TrialFunction> objective;  // of the first part alone
};

/// The eigenvalues of the Hessian, by Lanczos' method.
class Curvature {
 public:
  explicit Curvature(const DescentMethod& method) : method_(method) {}
  void prepare() {
    if (!gradient_) gradient_ = method_.gradient->point(true);
  }
  Extremes at_start(std::span<const Array> theta, const Run& run) { return at(theta, run.start); }
  Extremes at(std::span<const Array> theta, ConstVector x) {
    prepare();
    const std::size_t n = method_.gradient->size();
    gradient_at_.resize(n);
    gradient_->bind(theta);
    at_ = x.first(n);
    gradient_->apply(at_, {}, gradient_at_);
    return lanczos(
        n, lanczos_steps, [this](ConstVector v, Vector out) { product(v, out); }, memory_);
  }

  /// Where a solve ended with its first step, of length zero, at a start that is no minimum: run.start is moved beside it,
  /// for another solve. A descent cannot tell a maximum or a saddle from a minimum by the gradient alone.
  bool leave_stationary_start(std::span<const Array> theta, Run& run) {
    if (run.status != Status::converged || run.statistics.iterations > 1 || run.last_step != 0) return false;
    const Extremes e = at_start(theta, run);
    if (!(e.smallest < negative * std::max(e.largest, -e.smallest))) return false;
    const std::size_t n = method_.gradient->size();
    const double size = norm(ConstVector(run.start).first(n));
    std::vector<double> away(n);
    fill_random(away);
    for (std::size_t i = 0; i < run.start.size(); ++i)  // with momentum both parts of the state
      run.start[i] += displacement * (size > 0 ? size : 1) * away[i % n];
    return true;
  }

  /// Where a solve ended with a step of zero at a point that is no solution: its steps are so short that they are lost in
  /// the rounding of x. The distance to a minimum is at least that of the gradient over the largest curvature.
  void refuse_lost_steps(std::span<const Array> theta, double tolerance, Run& run) {
    constexpr double surely = 1e-6, beyond = 100;
    if (run.status != Status::converged || run.last_step != 0) return;
    const Extremes e = at(theta, run.x);
    const double size = norm(at_), steep = norm(gradient_at_);
    if (!(steep > std::max(surely, beyond * tolerance) * size * std::max(e.largest, -e.smallest)) || size == 0) return;
    run.status = Status::line_search_failed;
    run.about = fmt::format("the step, {:.1e} times the gradient, is below the rounding error of x: use a larger step size",
                            run.controls.empty() ? 0 : run.controls[0]);
  }

 private:
  // H v; by differences where the gradient cannot be differentiated, as where f contains a solve.
  void product(ConstVector v, Vector out) {
    if (method_.gradient->no_jvp.empty()) return gradient_->jvp_x(v, out);
    const double size = norm(at_), by = difference * (size > 0 ? size : 1);
    beside_.assign(at_.begin(), at_.end());
    for (std::size_t i = 0; i < v.size(); ++i) beside_[i] += by * v[i];
    gradient_->apply(beside_, {}, out);
    for (std::size_t i = 0; i < v.size(); ++i) out[i] = (out[i] - gradient_at_[i]) / by;
  }

  const DescentMethod& method_;
  std::unique_ptr<Point> gradient_;
  ConstVector at_;  // where the Hessian is taken
  std::vector<double> gradient_at_, beside_;
  LanczosMemory memory_;
};

void note_left_start(Run& run) {
  run.statistics.restarts = 1;
  if (is_solution(run.status)) run.about = "the start is a stationary point and no minimum: the descent began beside it";
}

/// α is decided once, from the eigenvalues of the Hessian at the start.
class ConstantDescent final : public FixedPointLoop {
 public:
  explicit ConstantDescent(const DescentMethod& method)
      : FixedPointLoop(*method.step, {method.size.alpha}), method_(method), curvature_(method) {
    if (measures()) curvature_.prepare();
  }
  void solve(std::span<const Array> theta, const SolveOptions& options, Run& run) override {
    descend(theta, options, run);
    if (curvature_.leave_stationary_start(theta, run)) {
      descend(theta, options, run);
      note_left_start(run);
    }
    curvature_.refuse_lost_steps(theta, options.tolerance, run);
    check_domain(theta, run);
  }

 private:
  void descend(std::span<const Array> theta, const SolveOptions& options, Run& run) {
    if (method_.size.kind != GradientStep::Kind::fixed) controls_[0] = step_size(theta, run);
    FixedPointLoop::solve(theta, options, run);
    run.statistics.evaluations += measured_;
  }
  bool measures() const {
    const GradientStep& s = method_.size;
    return (s.kind == GradientStep::Kind::inverse_smoothness && s.L == 0) ||
           (s.kind == GradientStep::Kind::optimal && (s.L == 0 || s.mu == 0));
  }
  double step_size(std::span<const Array> theta, const Run& run) {
    double mu = method_.size.mu, L = method_.size.L;
    measured_ = 0;
    if (measures()) {
      const Extremes e = curvature_.at_start(theta, run);
      measured_ = e.products;
      if (L == 0) L = std::max(e.largest, -e.smallest);
      if (mu == 0) mu = std::max(e.smallest, 0.0);
    }
    // A function without curvature at the start gives no scale; the loop then says that it diverges.
    if (!(L > 0)) return 1;
    return method_.size.kind == GradientStep::Kind::optimal ? 2 / (mu + L) : 1 / L;
  }

  /// The gradient of log(x) is finite where the logarithm is not: steps may leave the domain unseen.
  void check_domain(std::span<const Array> theta, Run& run) {
    if (!is_solution(run.status)) return;
    const std::size_t n = method_.gradient->size();
    if (!objective_) objective_.emplace(*method_.objective, n, method_.step->parameters);
    objective_->bind(theta);
    ++run.statistics.evaluations;
    if (std::isfinite((*objective_)(ConstVector(run.x).first(n)))) return;
    run.status = Status::not_finite;
    run.about = "the objective at x is not finite: the steps left its domain; take shorter ones, or backtracking";
  }

  const DescentMethod& method_;
  Curvature curvature_;
  std::optional<Trial> objective_;
  int measured_ = 0;
};

/// The last steps of a backtracking descent. At a kink of f they become short because α falls and not because the gradient
/// does, which is no convergence.
class StepSizes {
 public:
  void clear() { count_ = 0; }
  void add(double alpha, double step) {
    seen_[count_ % seen_.size()] = {alpha, step / alpha};
    last_ = seen_[count_ % seen_.size()];
    ++count_;
  }
  double last_gradient() const { return last_.gradient; }
  bool fall_at_a_kink() const {
    constexpr double much = 1.0 / 16;
    const auto end = seen_.begin() + static_cast<std::ptrdiff_t>(std::min(count_, seen_.size()));
    const Seen& longest =
        *std::max_element(seen_.begin(), end, [](const Seen& a, const Seen& b) { return a.alpha < b.alpha; });
    const double shrunk = last_.alpha / longest.alpha;
    return count_ > 0 && shrunk <= much && last_.gradient >= std::sqrt(shrunk) * longest.gradient;
  }

 private:
  struct Seen {
    double alpha, gradient;
  };
  std::array<Seen, 48> seen_{};
  Seen last_{};
  std::size_t count_ = 0;
};

/// α is halved until f decreases enough (Armijo), and doubled after each success.
class BacktrackingDescent final : public Loop {
 public:
  explicit BacktrackingDescent(const DescentMethod& method)
      : first_(method.size.alpha),
        curvature_(method),
        point_(point_with_extras(*method.step)),
        gradient_(method.gradient->point(false)),
        objective_(*method.objective, method.step->size(), method.step->parameters),
        difference_(method.step->size()),
        slope_there_(method.step->size()) {}

  void solve(std::span<const Array> theta, const SolveOptions& options, Run& run) override {
    descend(theta, options, run);
    if (!curvature_.leave_stationary_start(theta, run)) return;
    descend(theta, options, run);
    note_left_start(run);
  }
  Point& last() override { return *point_; }

 private:
  void descend(std::span<const Array> theta, const SolveOptions& options, Run& run) {
    Monitor monitor(options, run);
    point_->bind(theta);
    objective_.bind(theta);
    gradient_->bind(theta);
    run.x = run.start;
    run.controls.assign(1, first_);
    monitor.evaluate_with([this, &run](ConstVector x, Vector next) { return point_->apply(x, run.controls, next); });
    double alpha[1] = {first_};
    int lost = 0;  // steps in a row that were within the rounding of x
    bool is_kink = false;
    sizes_.clear();
    for (;;) {
      const double last = run.controls[0];
      run.previous = run.x;
      point_->apply(run.previous, alpha, run.x);
      run.statistics.evaluations += 2;
      const double value = point_->extra(0)[0], slope = point_->extra(1)[0];
      if (!std::isfinite(value)) return monitor.end(Status::not_finite, "the objective at an iterate");
      // A step that is lost in the rounding of x tells nothing: the first α may be that of another scale.
      while (slope > 0 && std::isfinite(2 * alpha[0]) && std::ranges::equal(run.x, run.previous)) {
        alpha[0] *= 2;
        point_->control(alpha, run.x);
      }
      double reached = objective_(run.x);
      const double first_tried = alpha[0];
      const bool is_visible = 0.5 * first_tried * slope > visible * std::fabs(value);
      while (!decreases_enough(value, reached, 0.5 * alpha[0] * slope, is_visible, run)) {
        alpha[0] /= 2;
        if (alpha[0] < looked_at * first_tried && changes_no_more(run)) {
          run.x = run.previous;
          if (is_at_kink(run)) return monitor.end(Status::line_search_failed, kink);
          return monitor.end(Status::line_search_failed, fmt::format("in iteration {}", run.statistics.iterations + 1));
        }
        point_->control(alpha, run.x);
        reached = objective_(run.x);
        ++run.statistics.evaluations;
        ++run.statistics.backtracks;
      }
      // A step of 0 says nothing about α, which is differentiated: it is made with the last one that did.
      if (std::ranges::equal(run.x, run.previous)) alpha[0] = last;
      run.trajectory.record(run.previous, alpha);
      run.controls.assign(alpha, alpha + 1);
      std::ranges::transform(run.x, run.previous, difference_.begin(), std::minus<>());
      const double step = norm(difference_);
      if (step > 0) sizes_.add(alpha[0], step);
      // Once steps are as short as they can be α does not fall any more.
      is_kink = monitor.is_negligible(step, norm(run.x)) && (is_kink || is_at_kink(run));
      if (monitor.record_and_check(step, norm(run.x), reached, alpha[0],
                                   is_kink ? Monitor::Converged::not_yet : Monitor::Converged::from_step_lengths)) {
        if (is_kink && is_solution(run.status)) monitor.end(Status::line_search_failed, kink);
        if (monitor.take_left_point()) point_->apply(run.previous, alpha, difference_);
        return;
      }
      lost = monitor.is_lost(step, norm(run.x)) ? lost + 1 : 0;
      if (lost > lost_allowed && is_kink) return monitor.end(Status::line_search_failed, kink);
      alpha[0] *= 2;
    }
  }

  // Armijo's rule with 1/2. Near the solution rounding hides the decrease; the mean of the slopes at both ends tells it
  // there: it is at most half the slope here as long as the gradients at both ends do not point against each other.
  bool decreases_enough(double value, double reached, double wanted, bool is_visible, Run& run) {
    if (is_visible) return reached <= value - wanted;
    std::ranges::transform(run.previous, run.x, difference_.begin(), std::minus<>());
    gradient_->apply(run.x, {}, slope_there_);
    ++run.statistics.evaluations;
    return dot(difference_, slope_there_) >= 0;
  }

  // Whether steps are short because α is, and not for rounding: the gradient is then not far smaller than it is some way
  // before and behind x.
  bool is_at_kink(const Run& run) {
    constexpr double some_way = 1e-3, far_smaller = 1e-4;
    if (!sizes_.fall_at_a_kink()) return false;
    std::ranges::transform(run.x, run.start, difference_.begin(), std::minus<>());
    const double way = norm(difference_), away = some_way * std::max(norm(run.x), way);
    double steepest = 0;
    for (const double side : {away / way, -away / way}) {
      beside_.assign(run.x.begin(), run.x.end());
      add(beside_, difference_, side);
      gradient_->apply(beside_, {}, slope_there_);
      const double steep = norm(slope_there_);
      steepest = std::isfinite(steep) ? std::max(steepest, steep) : steepest;
    }
    return way > 0 && sizes_.last_gradient() >= far_smaller * steepest;
  }

  bool changes_no_more(const Run& run) {
    std::ranges::transform(run.previous, run.x, difference_.begin(), std::minus<>());
    return norm(difference_) <= changes_nothing * norm(run.previous);
  }

  double first_;
  Curvature curvature_;
  std::unique_ptr<ExtraPoint> point_;
  std::unique_ptr<Point> gradient_;
  Trial objective_;
  std::vector<double> difference_, slope_there_, beside_;
  StepSizes sizes_;
};

std::unique_ptr<Loop> DescentMethod::loop() const {
  if (size.kind == GradientStep::Kind::backtracking) return std::make_unique<BacktrackingDescent>(*this);
  return std::make_unique<ConstantDescent>(*this);
}

void check(const GradientDescent& method) {
  const GradientStep& s = method.step;
  const bool needs_alpha = s.kind == GradientStep::Kind::fixed || s.kind == GradientStep::Kind::backtracking;
  if (needs_alpha && !(s.alpha > 0 && std::isfinite(s.alpha)))
    throw MisuseError(fmt::format("[gradient_descent] the step is {}; it must be positive", s.alpha));
  if (!(s.mu >= 0 && s.L >= 0 && (s.L == 0 || s.mu <= s.L)))
    throw MisuseError(fmt::format("[gradient_descent] mu = {} and L = {}: 0 <= mu <= L is needed (0: measured)", s.mu, s.L));
  const Momentum& m = method.momentum;
  if (m.kind != Momentum::Kind::none && !(m.beta >= 0 && m.beta < 1))
    throw MisuseError(fmt::format("[gradient_descent] momentum {} is not in [0, 1)", m.beta));
  if (m.kind != Momentum::Kind::none && s.kind == GradientStep::Kind::backtracking)
    throw MisuseError("[gradient_descent] backtracking has no momentum here; give a fixed or a measured step");
}

}  // namespace

Solver make_gradient_descent(const Body& objective, const GradientDescent& how, const SolveOptions& options) {
  detail::check(options);
  check(how);
  Recipe recipe;
  recipe.name = "gradient_descent";
  recipe.orders = 2;
  recipe.lambda = objective;
  recipe.options = options;
  const bool has_momentum = how.momentum.kind != Momentum::Kind::none;
  recipe.remembers = has_momentum;
  // With momentum the state is x and what x was before, part by part.
  recipe.lambda_state = [has_momentum](const std::vector<Shape>& state) {
    if (!has_momentum) return state;
    const auto half = state.begin() + static_cast<std::ptrdiff_t>(state.size() / 2);
    if (state.size() % 2 != 0 || !std::equal(state.begin(), half, half))
      throw MisuseError("[gradient_descent] with momentum the start is x0, or x0 and what it was before: {x0, x0}");
    return std::vector<Shape>(state.begin(), half);
  };
  recipe.make = [x_parts_of = recipe.lambda_state, has_momentum, how](const Problem& problem) {
    auto method = std::make_shared<DescentMethod>();
    method->size = how.step;
    method->remembers = has_momentum;
    const std::vector<Shape> x_parts = x_parts_of(problem.state);
    const auto f = [lambda = problem.lambda, x_parts](const Expr& x, std::span<const Expr> theta) {
      return call_objective("gradient_descent", lambda, x, x_parts, theta);
    };
    // Traced alone: parts of a slice of the state are slices of the state itself, and f is then not made from the slice.
    const auto gradient_at = [&f](const Expr& at, std::span<const Expr> theta) {
      std::vector<Input> inputs{at.shape()};
      std::vector<Expr> arguments{at};
      for (const Expr& t : theta) {
        inputs.emplace_back(t.shape());
        arguments.push_back(t);
      }
      const Function gradient(
          inputs, [&](std::span<const Expr> in) { return std::vector<Expr>{grad(f(in[0], in.subspan(1)), in[0])}; });
      return gradient(arguments).front();
    };
    const auto n = static_cast<std::int64_t>(flat_size(x_parts));
    const bool backtracks = how.step.kind == GradientStep::Kind::backtracking;
    method->step = std::make_shared<TracedMap>(
        problem.state, problem.parameters, problem.data,
        std::vector<Control>{backtracks ? Control::within_step : Control::per_solve},
        [&](const Expr& s, std::span<const Expr> theta, std::span<const Expr> controls) {
          const Expr alpha = reshape(controls[0], {});
          if (!has_momentum) {
            const Expr value = f(s, theta), g = grad(value, s);
            return TracedStep{
                s - alpha * g, backtracks ? std::vector<Expr>{value, sum(square(g))} : std::vector<Expr>{}, {}};
          }
          const Expr x = slice(s, 0, n), before = slice(s, n, 2 * n), inertia = how.momentum.beta * (x - before);
          const Expr at = how.momentum.kind == Momentum::Kind::nesterov ? x + inertia : x;
          const Expr next = x + inertia - alpha * gradient_at(at, theta);
          return TracedStep{concat({next, x}), {}, {}};
        },
        !has_momentum, problem.context);
    method->gradient =
        LazyMap([f, x_parts, parameters = problem.parameters, data = problem.data, context = problem.context] {
          return std::make_shared<const TracedMap>(
              x_parts, parameters, data, std::vector<Control>{},
              [&](const Expr& x, std::span<const Expr> theta, std::span<const Expr>) {
                return TracedStep{grad(f(x, theta), x), {}, {}};
              },
              true, context);
        });
    if (!has_momentum) method->equation = method->gradient;
    method->objective.emplace(static_cast<std::size_t>(n), problem.parameters, problem.data, problem.context, f);
    if (how.step.L > 0 && how.step.mu > 0 && !has_momentum) {
      const double alpha = how.step.kind == GradientStep::Kind::fixed     ? how.step.alpha
                           : how.step.kind == GradientStep::Kind::optimal ? 2 / (how.step.mu + how.step.L)
                                                                          : 1 / how.step.L;
      if (!backtracks) method->known.rho = std::max(std::fabs(1 - alpha * how.step.mu), std::fabs(1 - alpha * how.step.L));
    }
    return method;
  };
  return solver_of(std::move(recipe));
}

}  // namespace onestep::detail
