// The outer objective: each inner problem is prepared once, solved from its last answer, and differentiated.
#include "bilevel/objective.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "estimate/refine.h"
#include "onestep/diff.h"
#include "parallel/pool.h"
#include "solve/monitor.h"

namespace onestep::detail {

namespace {

Parts start_of(const Inner& inner, const Parts& theta) {
  if (inner.start.size() > 0) return inner.start;
  std::vector<Shape> shapes;
  for (const Array& a : theta) shapes.push_back(a.shape());
  return recipe_of(inner.solver).start_for(shapes);
}

}  // namespace

// An inner problem, and g with its derivatives at the solution.
class Objective::Problem {
 public:
  Problem(const Inner& inner, const Parts& theta, const std::function<bool()>& cancelled)
      : prepared_(inner.solver, start_of(inner, theta), theta, inner.estimator), own_(prepared_.options()) {
    const Map& step = *state_of(solution()).method->step;
    parts_.assign(step.state.begin(), step.state.end());
    parts_.resize(state_of(solution()).parts().size());
    std::vector<Input> inputs;
    for (std::size_t i = 0; i < parts_.size(); ++i) inputs.emplace_back(fmt::format("x{}", i), parts_[i]);
    inputs.insert(inputs.end(), step.parameters.begin(), step.parameters.end());
    check_arguments(inner.objective, inputs.size());
    plan_.emplace(Function(inputs, [&](std::span<const Expr> in) {
      std::vector<Expr> g = inner.objective.call(in.first(inner.objective.arguments));
      if (g.size() != 1 || g[0].shape().rank() != 0)
        throw MisuseError(fmt::format("[minimise] g has to return one number; it returns {} of shape {}", g.size(),
                                      g.empty() ? "none" : to_string(g[0].shape())));
      const std::vector<Expr> derivatives = grad(g[0], in);
      g.insert(g.end(), derivatives.begin(), derivatives.end());
      return g;
    }));
    workspace_.emplace(plan_->workspace());
    for (const Input& input : inputs) derivatives_.emplace_back(static_cast<std::size_t>(input.shape.size()));
    for (const Input& p : step.parameters) pulled_.emplace_back(static_cast<std::size_t>(p.shape.size()));
    for (const Array& part : start_of(inner, theta)) {
      start_.resize(start_.size() + static_cast<std::size_t>(part.size()));
      part.copy_to(std::span(start_).last(static_cast<std::size_t>(part.size())));
    }
    // The caller's wish to stop is heard between inner iterations.
    if (cancelled)
      prepared_.options().callback = [cancelled, theirs = own_.callback](const Iteration& iteration) {
        return !cancelled() && (!theirs || theirs(iteration));
      };
  }

  double tolerance() const { return own_.tolerance; }
  const std::vector<double>& start() const { return start_; }
  const std::vector<Shape>& parts() const { return parts_; }
  const Solution& solution() const { return prepared_.solution(); }

  void solve(const Parts& theta, const std::vector<double>& start, double tolerance) {
    prepared_.options().tolerance = std::max(own_.tolerance, tolerance);
    prepared_.solve(start.empty() ? Parts() : Parts(unflatten(start, parts_)), theta);
    status_ = solution().status();
    about_ = is_solution(status_) ? no_contraction(state_of(solution())) : solution().message();
    if (!about_.empty() && is_solution(status_)) status_ = Status::diverged;
    if (is_solution(status_)) value_ = evaluate(solution().state(), theta, derivatives_);
  }
  Status status() const { return status_; }
  const std::string& about() const { return about_; }  // where it was not solved

  double value() const { return value_; }
  double noise() const {
    const Run& run = state_of(solution()).run;
    double c = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) c = std::hypot(c, norm(derivatives_[i]));
    // The last step of a superlinear method is far longer than what is left; of others the rest is some steps as long.
    const double size = std::max(norm(run.x), run.last_step);
    const double left =
        state_of(solution()).method->superlinear && size > 0 ? run.last_step * run.last_step / size : 10 * run.last_step;
    return c * left;
  }

  void differentiate() {
    no_derivative_.clear();
    linear_residual_ = 0;
    try {
      pull(derivatives_);
      linear_status_ = solution().report().status;
      linear_residual_ = solution().report().residual;
    } catch (const NoDerivativeError& none) {
      for (auto& part : pulled_) fill(part, std::numeric_limits<double>::quiet_NaN());
      linear_status_ = is_solution(none.status) ? Status::singular : none.status;
      no_derivative_ = none.reason;
    }
  }
  const std::string& no_derivative() const { return no_derivative_; }  ///< why there is no hypergradient; else empty
  Status linear_status() const { return linear_status_; }
  double linear_residual() const { return linear_residual_; }
  const std::vector<std::vector<double>>& pulled() const { return pulled_; }

  // With c = ∂g/∂x at x_k: the certificate has the error of Jᵀc; c and ∂g/∂θ are themselves not at the solution, and how
  // fast they change is observed along the last step, as the certificate does it. What rounding of x does to them is
  // observed by moving x a little.
  std::pair<double, std::string> bound(const Parts& theta) {
    std::vector<Array> c;
    for (std::size_t i = 0; i < parts_.size(); ++i) c.emplace_back(parts_[i], derivatives_[i]);
    if (!std::ranges::all_of(derivatives_, [](const auto& part) { return all_finite(part); }))
      return {std::numeric_limits<double>::infinity(), "g has no finite derivative there"};
    const Certificate certificate = solution().certificate(c);
    if (certificate.basis == Certificate::Basis::refused) return {certificate.bound, certificate.reason};
    constexpr double safety = 4, moved_by = 1e-6;
    const Run& run = state_of(solution()).run;
    const std::size_t n = flat_size(parts_);
    // At the point nearer to the solution that the certificate found, or else along the last step.
    const auto& refined = state_of(solution()).refinement;
    const double rate = refined ? 1.5 / safety : run.last_step > 0 ? certificate.distance / run.last_step : 0;
    const double along_step = change(std::span<const double>(refined ? refined->best().x : run.previous).first(n), theta);
    std::vector<double> moved(run.x.begin(), run.x.begin() + static_cast<std::ptrdiff_t>(n));
    const double size = norm(moved) / std::sqrt(static_cast<double>(n));
    for (std::size_t i = 0; i < n; ++i) moved[i] += moved_by * std::max(std::fabs(moved[i]), size) * (i % 2 == 0 ? 1 : -1);
    // And what rounding of c itself does, with signs of which not all cancel.
    std::vector<std::vector<double>> signs = derivatives_;
    for (auto& part : signs)
      for (std::size_t i = 0; i < part.size(); i += 2) part[i] = -part[i];
    const double rounding = change(moved, theta) / moved_by + pulled_norm(signs) + pulled_norm(derivatives_);
    return {certificate.bound + safety * (rate * along_step + epsilon * rounding), "observed"};
  }

 private:
  // By how much the hypergradient changes when g is differentiated at x instead of x_k.
  double change(std::span<const double> x, const Parts& theta) {
    std::vector<std::vector<double>> there = derivatives_;
    evaluate(unflatten(x, parts_), theta, there);
    for (std::size_t i = 0; i < there.size(); ++i) add(there[i], derivatives_[i], -1);
    return pulled_norm(there);
  }
  // ‖Jᵀc + t‖ for derivatives c by x and t by θ.
  double pulled_norm(const std::vector<std::vector<double>>& of) {
    const std::vector<std::vector<double>> kept = pulled_;
    pull(of);
    double sum = 0;
    for (const auto& part : pulled_) sum = std::hypot(sum, norm(part));
    pulled_ = kept;
    return sum;
  }
  void pull(const std::vector<std::vector<double>>& of) {
    const std::vector<std::span<const double>> c(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(parts_.size()));
    // Where g has no derivative by x there is no hypergradient.
    if (!std::ranges::all_of(c, [](const auto& part) { return all_finite(part); })) {
      for (auto& part : pulled_) fill(part, std::numeric_limits<double>::quiet_NaN());
      return;
    }
    solution().vjp_into(c, std::vector<Vector>(pulled_.begin(), pulled_.end()));
    for (std::size_t p = 0; p < pulled_.size(); ++p) add(pulled_[p], of[parts_.size() + p]);
  }

  void check_arguments(const Body& g, std::size_t all) const {
    if (g.arguments != all && g.arguments != parts_.size())
      throw MisuseError(
          fmt::format("[minimise] g takes {} arguments; the state has {} part{} and there are {} parameters: it takes "
                      "{} or all {}",
                      g.arguments, parts_.size(), parts_.size() == 1 ? "" : "s", all - parts_.size(), parts_.size(), all));
  }

  // g, and its derivatives.
  double evaluate(const Parts& x, const Parts& theta, std::vector<std::vector<double>>& derivatives) {
    std::vector<Array> inputs(x.begin(), x.end());
    inputs.insert(inputs.end(), theta.begin(), theta.end());
    double value = 0;
    std::vector<Vector> outputs{Vector(&value, 1)};
    outputs.insert(outputs.end(), derivatives.begin(), derivatives.end());
    plan_->run(*workspace_, inputs, outputs);
    return value;
  }

  Prepared prepared_;
  SolveOptions own_;
  std::vector<Shape> parts_;
  std::optional<Plan> plan_;
  std::optional<Workspace> workspace_;
  std::vector<double> start_;
  Status status_ = Status::iteration_limit, linear_status_ = Status::converged;
  std::string about_, no_derivative_;
  double value_ = 0, linear_residual_ = 0;
  std::vector<std::vector<double>> derivatives_, pulled_;  // of g by all its arguments; hypergradient
};

Objective::Objective(const std::vector<Inner>& inner, const Parts& theta, const std::function<bool()>& cancelled) {
  if (inner.empty()) throw MisuseError("[minimise] there is no inner problem");
  for (const Inner& one : inner) problems_.push_back(std::make_unique<Problem>(one, theta, cancelled));
}
Objective::~Objective() = default;

double Objective::tightest() const {
  double least = problems_[0]->tolerance();
  for (const auto& problem : problems_) least = std::min(least, problem->tolerance());
  return least;
}
States Objective::starts() const {
  States all;
  for (const auto& problem : problems_) all.push_back(problem->start());
  return all;
}
std::string Objective::text() const {
  std::string all;
  for (const auto& problem : problems_) {
    all += fmt::format("; {} to {}", text_of(state_of(problem->solution()).estimator), problem->tolerance());
    for (const Shape& shape : problem->parts()) all += fmt::format(", x {}", to_string(shape));
  }
  return all;
}

Status Objective::solve(const Parts& theta, const States& starts, double tolerance) {
  theta_ = theta;
  const double begin = now();
  parallel::parallel_for_throwing(problems_.size(),
                                  [&](std::size_t i) { problems_[i]->solve(theta_, starts[i], tolerance); });
  work.solving += now() - begin;
  ++work.evaluations;
  for (const auto& problem : problems_) {
    work.iterations += problem->solution().statistics().iterations;
    work.factorisations += problem->solution().statistics().factorisations;
  }
  for (const auto& problem : problems_)
    if (!is_solution(problem->status())) return problem->status();
  return std::isfinite(value()) ? Status::converged : Status::not_finite;
}

std::string Objective::about() const {
  for (std::size_t i = 0; i < problems_.size(); ++i) {
    const Problem& p = *problems_[i];
    if (!is_solution(p.status())) return fmt::format("inner problem {}: {}: {}", i, to_string(p.status()), p.about());
  }
  return std::isfinite(value()) ? "" : "g is not finite at a solution of the inner problem";
}
double Objective::value() const {
  double sum = 0;
  for (const auto& problem : problems_) sum += problem->value();
  return sum;
}
double Objective::noise() const {
  double sum = 0;
  for (const auto& problem : problems_) sum += problem->noise();
  return sum + 16 * std::numeric_limits<double>::epsilon() * std::fabs(value());
}
States Objective::states() const {
  States all;
  for (const auto& problem : problems_) {
    const std::vector<double>& x = state_of(problem->solution()).run.x;
    all.emplace_back(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(flat_size(problem->parts())));
  }
  return all;
}
std::vector<Parts> Objective::parts_of(const States& states) const {
  std::vector<Parts> all;
  for (std::size_t i = 0; i < problems_.size(); ++i) all.emplace_back(unflatten(states[i], problems_[i]->parts()));
  return all;
}

std::vector<std::vector<double>> Objective::gradient() {
  const double begin = now();
  parallel::parallel_for_throwing(problems_.size(), [&](std::size_t i) { problems_[i]->differentiate(); });
  std::vector<std::vector<double>> sum = problems_[0]->pulled();
  for (std::size_t i = 1; i < problems_.size(); ++i)
    for (std::size_t p = 0; p < sum.size(); ++p) add(sum[p], problems_[i]->pulled()[p]);
  work.differentiating += now() - begin;
  ++work.hypergradients;
  if (!is_solution(gradient_status().first)) ++work.fell_short;
  return sum;
}

std::pair<Status, std::string> Objective::gradient_status() const {
  for (std::size_t i = 0; i < problems_.size(); ++i) {
    const Problem& p = *problems_[i];
    if (!p.no_derivative().empty())
      return {p.linear_status(), fmt::format("inner problem {}: there is no hypergradient: {}", i, p.no_derivative())};
    if (!is_solution(p.linear_status()))
      return {p.linear_status(),
              fmt::format("inner problem {}: the linear system of the hypergradient fell short, {}, with a residual of "
                          "{:.1e}: allow it more iterations (Implicit::max_iterations, NewtonCgOptions::max_products), "
                          "precondition it, or condition the inner problem better",
                          i, to_string(p.linear_status()), p.linear_residual())};
  }
  return {Status::converged, ""};
}

std::pair<double, std::string> Objective::gradient_bound() {
  std::vector<std::pair<double, std::string>> each(problems_.size());
  parallel::parallel_for_throwing(problems_.size(), [&](std::size_t i) { each[i] = problems_[i]->bound(theta_); });
  // The largest speaks for all: where there is none it says why.
  double sum = 0;
  for (const auto& one : each) sum += one.first;
  return {sum, std::ranges::max_element(each)->second};
}

}  // namespace onestep::detail

namespace onestep {

struct OuterValue::State {
  detail::Objective objective;
  detail::States x;
  Status status = Status::converged;
};

OuterValue::OuterValue(const std::vector<Inner>& inner, const Parts& theta, const std::function<bool()>& cancelled)
    : state_(new State{{inner, theta, cancelled}, {}}) {
  state_->x = state_->objective.starts();
}
OuterValue::~OuterValue() = default;
OuterValue::OuterValue(OuterValue&&) noexcept = default;
OuterValue& OuterValue::operator=(OuterValue&&) noexcept = default;

double OuterValue::operator()(const Parts& theta) {
  if (!state_) detail::fail_moved_from("OuterValue");
  state_->status = state_->objective.solve(theta, state_->x, 0);
  if (!is_solution(state_->status)) return std::numeric_limits<double>::infinity();
  state_->x = state_->objective.states();
  return state_->objective.value();
}

void OuterValue::forget() {
  if (!state_) detail::fail_moved_from("OuterValue");
  state_->x = state_->objective.starts();
}

Status OuterValue::status() const {
  if (!state_) detail::fail_moved_from("OuterValue");
  return state_->status;
}

}  // namespace onestep
