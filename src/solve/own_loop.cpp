// Loops from outside the library: they decide, the solver's own map makes the steps.
#include "onestep/own_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "solve/monitor.h"
#include "solve/recipe.h"
#include "solve/traced_map.h"

namespace onestep {
namespace detail {

class OwnLoopState final : public Loop {
 public:
  OwnLoopState(const Method& method, OwnLoop loop)
      : undamped_(*method.undamped),
        rate_(method.superlinear ? 0 : slowest),
        loop_(std::move(loop)),
        extras_(method.merit ? point_with_extras(*method.step) : nullptr),
        plain_(extras_ ? nullptr : method.step->point(true)),
        proposed_(method.step->size()) {
    if (method.merit) merit_.emplace(*method.merit, method.step->size(), method.step->parameters);
  }

  void solve(std::span<const Array> theta, const SolveOptions& options, Run& run) override {
    Monitor monitor(options, run);
    run.x = run.previous = run.start;
    run.controls = undamped_;
    theta_ = theta;
    options_ = &options;
    run_ = &run;
    monitor_ = &monitor;
    is_over_ = has_proposal_ = false;
    const int factorisations = point().work().factorisations;
    point().bind(theta);
    if (merit_) merit_->bind(theta);
    monitor.evaluate_with([this](ConstVector x, Vector next) { return point().apply(x, run_->controls, next); });
    Iterates iterates(*this);
    loop_(iterates);
    if (!is_over_) end(Status::iteration_limit, "the loop returned before it was over");
    run.statistics.factorisations = point().work().factorisations - factorisations;
    monitor_ = nullptr;
  }
  // The step at x_{k-1}, wherever the loop left its point.
  Point& last() override {
    if (!std::ranges::equal(point().where(), run_->previous)) point().apply(run_->previous, run_->controls, proposed_);
    return point();
  }
  Work work() const override { return extras_ ? extras_->work() : plain_->work(); }

  // What Iterates asks for.
  ConstVector x() const { return run_->x; }
  std::span<const Array> theta() const { return theta_; }
  const SolveOptions& options() const { return *options_; }
  bool is_over() const { return is_over_; }
  double extra(std::size_t i) const {
    return extras_ && has_proposal_ ? extras_->extra(i)[0] : std::numeric_limits<double>::quiet_NaN();
  }

  bool propose(ConstVector controls, Vector y) {
    require_running("propose");
    if (y.size() != proposed_.size())
      throw MisuseError(fmt::format("[propose] memory for {} entries, the state has {}", y.size(), proposed_.size()));
    if (controls.size() != run_->controls.size())
      throw MisuseError(fmt::format("[propose] {} controls given, the step has {}", controls.size(), run_->controls.size()));
    ++run_->statistics.evaluations;
    const bool is_here = has_proposal_ && std::ranges::equal(point().where(), run_->x);
    const bool made = is_here ? point().control(controls, proposed_) : point().apply(run_->x, controls, proposed_);
    controls_.assign(controls.begin(), controls.end());
    has_proposal_ = true;
    std::ranges::copy(proposed_, y.begin());
    return made && all_finite(proposed_);
  }

  double value_at(ConstVector y) {
    require_running("value_at");
    if (!merit_) throw MisuseError("[value_at] a fixed point has no objective");
    if (y.size() != proposed_.size())
      throw MisuseError(fmt::format("[value_at] {} entries, the state has {}", y.size(), proposed_.size()));
    ++run_->statistics.evaluations;
    return (*merit_)(y);
  }

  bool accept() {
    require_running("accept");
    if (!has_proposal_) throw MisuseError("[accept] no step was proposed from this x");
    Run& run = *run_;
    if (!all_finite(proposed_)) {
      end(Status::not_finite, "the loop accepted a step that is not finite");
      return true;
    }
    std::ranges::copy(run.x, run.previous.begin());
    run.trajectory.record(run.previous, controls_);
    std::ranges::copy(proposed_, run.x.begin());
    for (std::size_t i = 0; i < run.x.size(); ++i) proposed_[i] = run.x[i] - run.previous[i];
    const double step = norm(proposed_);
    const double value = extra(0), length = controls_.empty() ? 1 : controls_[0];
    has_proposal_ = false;
    // A step that was damped says nothing about the distance to the solution, however short it is.
    const bool is_full = controls_ == run.controls;
    is_over_ = monitor_->record_and_check(step, norm(run.x), value, length,
                                          is_full ? Monitor::Converged::from_step_lengths : Monitor::Converged::no);
    return is_over_;
  }

  void end(Status status, std::string about) {
    require_running("end");
    if (status == Status::converged && !is_near_solution()) {
      status = Status::line_search_failed;
      about = "the loop said that it converged, but a full step from there is long, or leads to no solution nearby";
    }
    is_over_ = true;
    monitor_->end(status, std::move(about));
  }

 private:
  Point& point() { return extras_ ? static_cast<Point&>(*extras_) : *plain_; }

  void require_running(const char* what) const {
    if (monitor_ == nullptr || is_over_)
      throw MisuseError(fmt::format("[{}] the loop is over; return when accept() or is_over() says so", what));
  }

  bool is_near_solution() {
    constexpr double most = 100;  // times the tolerance
    std::vector<double> next(run_->x.size());
    if (!point().apply(run_->x, run_->controls, next)) return false;
    add(next, run_->x, -1);
    const double step = norm(next), size = std::max(norm(run_->x), options_->typical_x);
    const bool is_short = step <= most * std::max(options_->tolerance, 16 * epsilon) * size;
    return (is_short && monitor_->is_affine_beside(run_->x, next, rate_)) || monitor_->is_rounding(step);
  }

  // How steps contract where nothing is known about it, for judging where a loop ends.
  static constexpr double slowest = 0.999;

  std::vector<double> undamped_;  // controls
  double rate_;
  OwnLoop loop_;
  std::unique_ptr<ExtraPoint> extras_;  // of a step with an objective; else plain_
  std::unique_ptr<Point> plain_;
  std::optional<Trial> merit_;
  std::vector<double> proposed_, controls_;
  std::span<const Array> theta_;
  const SolveOptions* options_ = nullptr;
  Run* run_ = nullptr;
  Monitor* monitor_ = nullptr;  // during a solve
  bool is_over_ = false, has_proposal_ = false;
};

namespace {

class OwnLoopMethod final : public Method {
 public:
  OwnLoopMethod(const Method& of, std::function<OwnLoop()> make) : Method(of), make_(std::move(make)) {}
  std::unique_ptr<Loop> loop() const override {
    OwnLoop loop = make_();
    if (!loop) throw MisuseError("[with_loop] there is no loop: the function that makes it returned none");
    return std::make_unique<OwnLoopState>(*this, std::move(loop));
  }
  std::shared_ptr<Method> with_data(const std::vector<Array>& data) const override {
    auto copy = std::make_shared<OwnLoopMethod>(*this);
    copy->bind(data);
    return copy;
  }

 private:
  std::function<OwnLoop()> make_;
};

}  // namespace
}  // namespace detail

std::span<const double> Iterates::x() const { return state_.x(); }
std::span<const Array> Iterates::theta() const { return state_.theta(); }
const SolveOptions& Iterates::options() const { return state_.options(); }
bool Iterates::propose(std::span<const double> controls, std::span<double> y) { return state_.propose(controls, y); }
double Iterates::value() const { return state_.extra(0); }
double Iterates::slope() const { return state_.extra(1); }
double Iterates::value_at(std::span<const double> y) { return state_.value_at(y); }
bool Iterates::accept() { return state_.accept(); }
void Iterates::end(Status status, const std::string& about) { state_.end(status, about); }
bool Iterates::is_over() const { return state_.is_over(); }

Solver with_loop(const Solver& of, std::function<OwnLoop()> make) {
  if (!make) throw MisuseError("[with_loop] a function that makes the loop is needed");
  detail::Recipe recipe = detail::recipe_of(of).changed();
  recipe.make = [from = recipe.make, name = recipe.name, make = std::move(make)](const detail::Problem& problem) {
    const std::shared_ptr<const detail::Method> method = from(problem);
    if (!method->undamped)
      throw MisuseError(
          fmt::format("[with_loop] {} does not hand out its steps; take newton, newton_root or fixed_point", name));
    return std::make_shared<detail::OwnLoopMethod>(*method, make);
  };
  return detail::solver_of(std::move(recipe));
}

}  // namespace onestep
