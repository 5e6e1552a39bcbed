// Rows of the suite `jobs`: a hypergradient as `minimise` computes it, what it adds to the inner solve, and checkpoints.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "bilevel/objective.h"
#include "floors.h"
#include "jobs.h"
#include "jobs/blocks.h"
#include "onestep/onestep.h"
#include "reference.h"
#include "samples.h"

namespace onestep::bench {
namespace {

Shape shape_of(std::size_t n) { return {static_cast<std::int64_t>(n)}; }

// Of an objective's gradient at a solution.
double gradient_norm(const Function& gradient, const Solution& s, const Parts& theta) {
  std::vector<Array> inputs{s.x()};
  inputs.insert(inputs.end(), theta.begin(), theta.end());
  const Array g = evaluate(gradient, inputs)[0];
  double norm = 0;
  for (const double e : g.values()) norm = std::hypot(norm, e);
  return norm;
}

// An inner problem that stands at x(θ before) and is to be solved at θ: one evaluation of `minimise`, with hypergradient.
class OuterStep {
 public:
  OuterStep(const Inner& inner, const Parts& before, Parts theta)
      : objective_({inner}, before, {}), theta_(std::move(theta)), alone_(inner.solver, inner.start, theta_, OneStep{}) {
    must(objective_.solve(before, objective_.starts(), 0));
    start_ = objective_.states();
    x0_ = objective_.parts_of(start_)[0];
    run();
    solve();
  }

  // Solve, validation loss, hypergradient.
  void run() {
    must(objective_.solve(theta_, start_, 0));
    hypergradient_ = objective_.gradient();
  }
  // The solve alone.
  void solve() { must(alone_.solve(x0_, theta_).status()); }
  // The derivative along θ + t d by differences.
  double difference_along(const std::vector<double>& d, double t) {
    const auto value = [&](double by) {
      std::vector<double> moved(theta_[0].values().begin(), theta_[0].values().end());
      for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += by * d[i];
      must(objective_.solve(Array(theta_[0].shape(), std::move(moved)), start_, 0));
      return objective_.value();
    };
    return (value(t) - value(-t)) / (2 * t);
  }

  const std::vector<double>& start() const { return start_[0]; }
  const std::vector<double>& hypergradient() const { return hypergradient_[0]; }
  const Solution& solution() const { return alone_.solution(); }
  std::span<const double> x() const { return solution().entries(); }
  const Parts& theta() const { return theta_; }

 private:
  static void must(Status status) {
    if (!is_solution(status)) throw std::runtime_error(fmt::format("an inner solve: {}", to_string(status)));
  }

  detail::Objective objective_;
  Parts theta_;
  Prepared alone_;
  detail::States start_;
  Parts x0_;
  std::vector<std::vector<double>> hypergradient_;
};

// In a direction in which no part can cancel another: that of the signs.
void must_agree_with_differences(OuterStep& step, double t, double tolerance) {
  std::vector<double> signs;
  double along = 0;
  for (const double h : step.hypergradient()) signs.push_back(h < 0 ? -1 : 1), along += std::fabs(h);
  const double expected = step.difference_along(signs, t);
  must_agree("the hypergradient", {&along, 1}, {&expected, 1}, tolerance);
}

// ---- a9a, a penalty for each feature ----

Expr losses(const Samples& samples, const Expr& x) { return softplus(-samples.labels() * matmul(samples.features(), x)); }
Expr mean_loss(const Samples& samples, const Expr& x) { return sum(losses(samples, x)) / static_cast<double>(samples.N); }

Inner penalties(const TrainAndValid& data) {
  const Samples &train = data.train, &valid = data.valid;
  const auto n = static_cast<std::int64_t>(train.n);
  return {
      newton([&train, n](Expr x, Expr l2) { return sum(losses(train, x)) + 0.5 * sum(l2 * square(slice(x, 0, n - 1))); }),
      zeros({n}), [&valid](Expr x) { return mean_loss(valid, x); }};
}

void hypergradient_rows(Suite& suite) {
  constexpr std::size_t n = 123;
  const std::string text = fmt::format("{} (32561,123)", name_of("a9a"));
  const std::string step_row = fmt::format("hypergradient step over its inner solve {}, {} hyperparameters", text, n),
                    solve_row = "inner solve of a hypergradient step " + text;
  if (!suite.wants(step_row) && !suite.wants(solve_row)) return;
  const TrainAndValid data = a9a_samples();
  std::vector<double> l2(n + 1);
  for (std::size_t j = 0; j < n; ++j) l2[j] = 0.5 + uniform(60, j);
  OuterStep step(penalties(data), ones(shape_of(n)), Array(shape_of(n), std::vector(l2.begin(), l2.end() - 1)));

  Logistic floor_data = logistic_on(data.train, l2);
  const Statistics& took = step.solution().statistics();
  FloorNewton floor(floor_data, step.start(), took.iterations);
  floor.run();
  must_agree("the inner solution", step.x(), floor.x());
  must_agree_with_differences(step, 1e-3, 1e-5);

  suite.note(fmt::format("hypergradient step {}: {} Newton iterations from the solution before, {} backtracks", text,
                         took.iterations, took.backtracks));
  suite.time(step_row, Unit::ms, {[&] { step.run(); }}, {{[&] { step.solve(); }}}, at_most_ratio(1.1));
  suite.time(solve_row, Unit::ms, {[&] { step.solve(); }}, {{[&] { floor.run(); }}}, at_most_ratio(1.2));
}

// What each sample does to the validation loss: the fit from zero, the loss's gradient and one vjp, as `onestep influence`.
void influence_row(Suite& suite) {
  const std::string row = fmt::format("influence over its solve {} (32561,123)", name_of("a9a"));
  if (!suite.wants(row)) return;
  const TrainAndValid data = a9a_samples();
  const auto n = static_cast<std::int64_t>(data.train.n);
  const Array x0 = zeros({n}), w = ones(shape_of(data.train.N));
  Prepared fit(newton([&](Expr x, Expr weights) {
                 return sum(weights * losses(data.train, x)) + 0.5 * sum(square(slice(x, 0, n - 1)));
               }),
               x0, w, OneStep{});
  const Plan judge(traced([&](Expr x) { return grad(mean_loss(data.valid, x), x); }, Shape{n}));
  Workspace workspace = judge.workspace();
  std::vector<double> c(data.train.n), influence(data.train.N);
  const auto solve = [&] { return is_solution(fit.solve(x0, w).status()); };
  const auto run = [&] {
    if (!solve()) throw std::runtime_error(fit.solution().message());
    judge.run(workspace, {fit.solution().x()}, {std::span(c)});
    const std::span<const double> in = c;
    const std::span<double> out = influence;
    fit.solution().vjp_into({&in, 1}, {&out, 1});
  };
  run();
  // Their sum is the derivative by one weight for all samples.
  const double all = [&] {
    const Array up = full(shape_of(data.train.N), 1 + 1e-4), down = full(shape_of(data.train.N), 1 - 1e-4);
    const Function loss = traced([&](Expr x) { return mean_loss(data.valid, x); }, Shape{n});
    const double above = evaluate(loss, {fit.solve(x0, up).x()})[0].item();
    return (above - evaluate(loss, {fit.solve(x0, down).x()})[0].item()) / 2e-4;
  }();
  double sum = 0;
  for (const double i : influence) sum += i;
  must_agree("the influences' sum", {&sum, 1}, {&all, 1}, 1e-4);
  suite.time(row, Unit::ms, {run}, {{[&] { solve(); }}}, at_most_ratio(1.05));
}

// Time spent on writing is told apart by the run itself: two runs differ by more than a hundredth for other reasons.
void checkpoint_row(Suite& suite) {
  const std::string row =
      fmt::format("tune {} with a checkpoint over the same less its writes, 60 iterations", name_of("a9a"));
  if (!suite.wants(row)) return;
  const TrainAndValid data = a9a_samples();
  const std::string file =
      (std::filesystem::temp_directory_path() / fmt::format("onestep_bench_{}.checkpoint", getpid())).string();
  const Inner inner = penalties(data);
  const Parameter l2 = Parameter::positive(ones(shape_of(data.train.n - 1))).within(1e-5, 1e7);
  std::vector<std::pair<double, double>> runs;  // the share of writes, and the seconds
  for (int i = 0; i < (suite.quick() ? 1 : 3); ++i) {
    const Outcome o = minimise({inner}, {l2}, Lbfgs{}, {.tolerance = 0, .max_iterations = 60, .checkpoint = file});
    std::filesystem::remove(file);
    runs.emplace_back(o.checkpoint_seconds / o.seconds, o.seconds);
  }
  std::ranges::sort(runs);
  const auto [share, seconds] = runs[runs.size() / 2];
  suite.amount(row, Unit::ms, 1e3 * seconds, at_most_ratio(1.01), 1e3 * seconds * (1 - share));
}

// ---- images, a weight for each sample ----

void clean_row(Suite& suite) {
  const std::string name = name_of("Fashion-MNIST");
  const std::string row = fmt::format("hypergradient step of clean over its inner solve {} (5000,785,10)", name);
  if (!suite.wants(row)) return;
  if (suite.quick() && suite.all()) return suite.note("--quick leaves out clean");
  const TrainAndValid data = image_samples();
  const auto n = static_cast<std::int64_t>(data.train.n - 1), K = static_cast<std::int64_t>(image_classes);
  const std::vector<double> train_hot = one_hot(data.train.y), valid_hot = one_hot(data.valid.y);
  const auto mass = [](const Samples& samples, const std::vector<double>& hot, const Expr& x) {
    const Expr s = matmul(samples.features(), x);
    return log_sum_exp(s, 1) - sum(matrix(hot, samples.N, image_classes) * s, 1);
  };
  // As `onestep clean` has it, with l2 = 1: intercepts are free, but for their sum, which changes nothing.
  const auto objective = [&](Expr x, Expr w) {
    return sum(w * mass(data.train, train_hot, x)) + 0.5 * (sum(square(slice(x, 0, n))) + square(sum(slice(x, n, n + 1))));
  };
  // The blocks are made once in a run, at the rough fit it starts from, and are not part of a step.
  const Array all = ones(shape_of(data.train.N));
  const Solution rough = solve(newton_cg(objective, {}, {.max_iterations = 8}), zeros({n + 1, K}), all);
  const app::jobs::SoftmaxBlocks blocks(data.train.features(), rough.x(), 1.0);
  const NewtonCgOptions how{.derivative_tolerance = 1e-6, .preconditioner = [&](std::span<double> r) { blocks(r); }};
  // The most that `minimise` asks for when it is to stop at 1e-4, as it is there.
  const Inner inner(newton_cg(objective, how, {.tolerance = 1e-6}), zeros({n + 1, K}),
                    [&](Expr x) { return sum(mass(data.valid, valid_hot, x)) / static_cast<double>(data.valid.N); });
  std::vector<double> w(data.train.N);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = 1 - 0.5 * uniform(61, i);
  OuterStep step(inner, all, Array(shape_of(w.size()), w));
  if (!suite.quick()) must_agree_with_differences(step, 1e-2, 1e-3);
  const Function gradient =
      traced([&](Expr x, Expr weights) { return grad(objective(x, weights), x); }, Shape{n + 1, K}, shape_of(w.size()));
  const Statistics& took = step.solution().statistics();
  const double norm = gradient_norm(gradient, step.solution(), step.theta());
  suite.note(fmt::format("clean {}: {} iterations, {} products from the solution before; gradient {:.1e}", name,
                         took.iterations, took.products, norm));
  std::optional<Contender> solve;
  if (!suite.quick()) solve = {.run = [&] { step.solve(); }};
  suite.time(row, Unit::ms, {[&] { step.run(); }}, solve, std::nullopt);
  suite.ended_at(row, norm);
}

}  // namespace

void bilevel_rows(Suite& suite) {
  hypergradient_rows(suite);
  influence_row(suite);
  checkpoint_row(suite);
  clean_row(suite);
}

}  // namespace onestep::bench
