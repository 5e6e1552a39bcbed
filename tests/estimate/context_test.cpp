// Contexts: threads of their own, side by side and one inside another, and always the same bits.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>

#include "backend/context.h"
#include "backend/cpu/backend.h"
#include "onestep/onestep.h"
#include "plan/program.h"
#include "support/compare.h"
#include "support/random.h"

namespace onestep {
namespace {

using test::entries_of;
using test::Random;

std::size_t threads_of_process() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

TEST(Context, HasThreadsOfItsOwnWhichEndWithIt) {
  Random random(11);
  std::vector<Array> targets;
  for (int i = 0; i < 40; ++i) targets.push_back(random.array({4}));
  const Solver cosines = newton([](Expr x, Expr t) { return sum(square(x - t)) + sum(log(cosh(x))); });
  std::thread([] {}).join();  // the thread sanitizer starts one of its own with the first
  const std::size_t before = threads_of_process();
  {
    const Context three({.threads = 3});
    EXPECT_EQ(three.threads(), 3);
    EXPECT_EQ(three.backend(), "cpu");
    EXPECT_FALSE(three.is_default());
    const ManySolutions all = solve_many(cosines.on(three), {zeros(4)}, {targets});
    EXPECT_TRUE(all.failed().empty());
    EXPECT_EQ(threads_of_process(), before + 2);
  }
  EXPECT_EQ(threads_of_process(), before);
}

TEST(Context, TwoRunSideBySideInTwoThreadsAndFindTheSameBits) {
  Random random(3);
  const Array A = random.array({4000, 60}), y = random.array({4000});
  const auto solve_in = [&](const Context& context) {
    const Solver fit =
        newton([&](Expr x, Expr w) { return sum(softplus(-y * matmul(A, x))) + w * sum(square(x)); }).on(context);
    const Solution s = solve(fit, zeros(60), 0.1);
    std::vector<double> bits = entries_of(s.x());
    bits.push_back(s.vjp(s.x())[0].item());
    return bits;
  };
  const std::vector<double> expected = solve_in(Context());
  std::vector<std::vector<double>> found(8);
  {
    std::vector<std::jthread> callers;
    for (std::size_t k = 0; k < found.size(); ++k)
      callers.emplace_back([&, k] { found[k] = solve_in(Context({.threads = static_cast<int>(k % 3) + 1})); });
  }
  for (const std::vector<double>& one : found) EXPECT_EQ(one, expected);
}

TEST(Context, InsideALoopOfAnotherOneFindsTheSameBits) {
  Random random(5);
  const Array A = random.array({2000, 20});
  std::vector<Array> weights, expected;
  for (int i = 0; i < 6; ++i) weights.push_back(random.array({2000}, 0.5, 2));
  const auto inner_solver = [&](const Context& context) {
    return newton([&](Expr x, Expr w) { return sum(w * softplus(matmul(A, x))) + sum(square(x)); }).on(context);
  };
  for (const Array& w : weights) expected.push_back(solve(inner_solver({}), zeros(20), w).x());
  // Whoever is told of an iteration solves another problem, in a context with threads of its own.
  const Context outer({.threads = 3}), inner({.threads = 2});
  std::atomic<int> different = 0;
  SolveOptions options;
  options.callback = [&](const Iteration&) {
    const Array x = solve(inner_solver(inner), zeros(20), weights[0]).x();
    if (entries_of(x) != entries_of(expected[0])) ++different;
    return true;
  };
  const ManySolutions all = solve_many(inner_solver(outer).with(options), {zeros(20)}, {weights});
  EXPECT_EQ(different, 0);
  for (std::size_t i = 0; i < weights.size(); ++i) EXPECT_EQ(entries_of(all[i].x()), entries_of(expected[i])) << i;
}

TEST(Context, APlanRunsInTheOneItWasGiven) {
  Random random(4);
  const Array A = random.array({20000, 30}), x = random.array({30});
  const Function f = traced([&](Expr v) { return matmul(transpose(A), tanh(matmul(A, v))); }, Shape{30});
  const Plan here(f), there(f, {.context = Context({.threads = 4})});
  std::vector<double> one(30), other(30);
  Workspace a = here.workspace(), b = there.workspace();
  here.run(a, {x}, {one});
  there.run(b, {x}, {other});
  EXPECT_EQ(one, other);
}

TEST(Context, WhatThereIsNotIsMisuseThatNamesWhatThereIs) {
  EXPECT_THROW(Context({.threads = 0}), MisuseError);
  EXPECT_THROW(Context({.threads = 70000}), MisuseError);
  try {
    const Context none({.threads = 1, .backend = "tpu"});
    FAIL();
  } catch (const MisuseError& e) {
    EXPECT_NE(std::string(e.what()).find("this version has cpu"), std::string::npos) << e.what();
  }
}

/// The CPU's backend, and how often it was asked to run something.
class Counting final : public detail::Backend {
 public:
  explicit Counting(std::shared_ptr<parallel::Pool> pool) : cpu_(cpu::make_backend(std::move(pool))) {}
  detail::Limits limits() const override { return cpu_->limits(); }
  std::shared_ptr<const detail::BackendPlan> prepare(const detail::Instruction& instruction) const override {
    return cpu_->prepare(instruction);
  }
  void run(std::span<const detail::Instruction> code, const detail::Frame& frame, std::uint8_t* failed) const override {
    ++runs;
    cpu_->run(code, frame, failed);
  }
  std::size_t workers() const override { return cpu_->workers(); }
  void start_workers() const override { cpu_->start_workers(); }
  static inline std::atomic<int> runs = 0;

 private:
  std::shared_ptr<const detail::Backend> cpu_;
};

// Nothing of a solve or its derivatives goes past the backend, whatever the solver.
TEST(Context, ItsBackendRunsThePlansOfEverySolver) {
  const auto make = [](std::shared_ptr<parallel::Pool> pool) { return std::make_shared<Counting>(std::move(pool)); };
  static const bool once = (detail::add_backend("counting", make), true);
  EXPECT_TRUE(once);
  EXPECT_THROW(detail::add_backend("cpu", make), MisuseError);
  EXPECT_THROW(detail::add_backend("counting", make), MisuseError);
  const Context counting({.backend = "counting"});
  EXPECT_EQ(counting.backend(), "counting");
  const auto f = [](Expr x, Expr t) { return sum(square(x - t)) + sum(log(cosh(x))) + 0.1 * sum(abs(x)); };
  const auto step = [](Expr x, Expr t) { return 0.5 * cos(x) + t; };
  const std::vector<Solver> solvers{newton([](Expr x, Expr t) { return sum(square(x - t)) + sum(log(cosh(x))); }),
                                    newton_cg([](Expr x, Expr t) { return sum(square(x - t)) + sum(log(cosh(x))); }),
                                    newton_root([](Expr x, Expr t) { return x - 0.5 * cos(x) - t; }),
                                    gradient_descent(f, {.step = GradientStep::backtracking()}),
                                    fixed_point(step),
                                    fixed_point(step).equation([](Expr x, Expr t) { return x - 0.5 * cos(x) - t; })};
  const Array x0{0.3, -0.2, 0.9}, theta{1.0, 2.0, -0.5};
  for (const Solver& solver : solvers)
    for (const Estimator& how : {Estimator(), Estimator(OneStep{}), Estimator(KStep{3}), Estimator(Implicit{})}) {
      const Solution plain = solve(solver, x0, theta, how);
      Counting::runs = 0;
      const Solution counted = solve(solver.on(counting), x0, theta, how);
      const int of_solve = Counting::runs;
      EXPECT_GT(of_solve, 0);
      EXPECT_EQ(entries_of(counted.x()), entries_of(plain.x()));
      EXPECT_EQ(entries_of(counted.vjp(x0)[0]), entries_of(plain.vjp(x0)[0]));
      EXPECT_GT(Counting::runs, of_solve);
      EXPECT_EQ(counted.certificate(x0).bound, plain.certificate(x0).bound);
      // What was planned for one backend is not run by another.
      Counting::runs = 0;
      EXPECT_EQ(entries_of(solve(solver, x0, theta, how).x()), entries_of(plain.x()));
      EXPECT_EQ(Counting::runs, 0);
    }
  const Solution unrolled = solve(fixed_point(step).on(counting), x0, theta, Unrolled{.mode = Unrolled::forward});
  Counting::runs = 0;
  EXPECT_NO_THROW(unrolled.jvp(theta));
  EXPECT_GT(Counting::runs, 0);
  const Solver project = quadratic_program([](Expr c) { return TracedProgram{.Q = eye(3), .q = -c, .lo = 0.0}; });
  Counting::runs = 0;
  EXPECT_NEAR(solve(project.on(counting), theta).x()(1), 2, 1e-8);
  EXPECT_GT(Counting::runs, 0) << "its data; the interior point method itself calls the CPU's kernels";
}

}  // namespace
}  // namespace onestep
