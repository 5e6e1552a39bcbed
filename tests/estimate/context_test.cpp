// Contexts: threads of their own, side by side and one inside another, and always the same bits.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>

#include "onestep/onestep.h"
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

}  // namespace
}  // namespace onestep
