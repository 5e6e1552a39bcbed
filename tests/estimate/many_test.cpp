// Many problems at once: the bits of each problem alone, sums for what is shared, a status for each, and threads of a
// context.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>

#include "onestep/onestep.h"
#include "support/compare.h"
#include "support/random.h"

namespace onestep {
namespace {

using test::entries_of;
using test::near;
using test::Random;

/// Ridge regressions with weights of their own and one penalty that they share.
struct Ridges {
  explicit Ridges(std::size_t count) : count(count), A(random.array({12, 4})), y(random.array({12})) {
    for (std::size_t i = 0; i < count; ++i) {
      weights.push_back(random.array({12}, 0.5, 2));
      starts.push_back(random.array({4}));
    }
  }
  Solver newton_solver() const {
    return newton([A = A, y = y](Expr x, Expr w, Expr penalty) {
      return sum(w * square(matmul(A, x) - y)) + penalty * sum(square(x)) + sum(log(cosh_of(x)));
    });
  }
  static Expr cosh_of(const Expr& x) { return 0.5 * (exp(x) + exp(-x)); }

  Random random{11};
  std::size_t count;
  Array A, y;
  std::vector<Array> weights, starts;
  double penalty = 0.3;
};

void expect_same_bits(const Array& a, const Array& b) { EXPECT_EQ(entries_of(a), entries_of(b)); }

TEST(Many, SolutionsAndDerivativesHaveTheBitsOfEachProblemAlone) {
  const Ridges r(9);
  const std::vector<Estimator> estimators{OneStep{}, Implicit{}, Auto{}, KStep{2}, Unrolled{}};
  for (const Solver& solver : {r.newton_solver(), gradient_descent(
                                                      [A = r.A, y = r.y](Expr x, Expr w, Expr penalty) {
                                                        return sum(w * square(matmul(A, x) - y)) + penalty * sum(square(x));
                                                      },
                                                      {.step = GradientStep::inverse_smoothness()})}) {
    for (const Estimator& how : estimators) {
      const ManySolutions all = solve_many(solver, {r.starts}, {r.weights, r.penalty}, how);
      ASSERT_EQ(all.size(), r.count);
      EXPECT_TRUE(all.failed().empty());
      const std::vector<Many> g = all.vjp({all.x()});
      const std::vector<Many> d = all.jvp({Many(r.weights), Many(1.0)});
      ASSERT_EQ(g.size(), 2U);
      EXPECT_FALSE(g[0].is_shared());
      EXPECT_TRUE(g[1].is_shared());
      double sum = 0;
      for (std::size_t i = 0; i < r.count; ++i) {
        const Solution alone = solve(solver, r.starts[i], {r.weights[i], r.penalty}, how);
        expect_same_bits(all[i].x(), alone.x());
        const Parts own = alone.vjp(alone.x());
        expect_same_bits(g[0][i], own[0]);
        sum += own[1].item();
        expect_same_bits(d[0][i], alone.jvp({r.weights[i], 1.0})[0]);
      }
      EXPECT_NEAR(g[1][0].item(), sum, 1e-14 * std::fabs(sum)) << "the sum, not the mean";
    }
  }
}

TEST(Many, NothingDependsOnTheNumberOfThreads) {
  const Ridges r(150);  // more than there are chunks of a sum
  const Solver solver = r.newton_solver();
  std::vector<std::vector<double>> sums;
  for (const int threads : {1, 2, 5}) {
    const ManySolutions all = solve_many(solver.on(Context({.threads = threads})), {zeros(4)}, {r.weights, r.penalty});
    sums.push_back(entries_of(all.vjp({all.x()})[1][0]));
    sums.back().push_back(all[149].x()(2));
  }
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

TEST(Many, ProgramsTooWithEveryPartOfTheirData) {
  Random random(5);
  std::vector<Array> cs, bs;
  for (int i = 0; i < 20; ++i) {
    cs.push_back(random.array({5}));
    bs.push_back(Array{random.uniform(0.5, 2)});
  }
  const Solver project = quadratic_program([](Expr c, Expr b) {
    return TracedProgram{.Q = eye(5), .q = -c, .A = ones({1, 5}), .b = b, .lo = 0.0};
  });
  const ManySolutions all = solve_many(project, {cs, bs});
  EXPECT_TRUE(all.failed().empty());
  const std::vector<Many> g = all.vjp({all.x()});
  for (std::size_t i = 0; i < cs.size(); ++i) {
    const Solution alone = solve(project, {cs[i], bs[i]});
    expect_same_bits(all.x(1)[i], alone.x(1));
    expect_same_bits(g[0][i], alone.vjp(alone.x())[0]);
    expect_same_bits(g[1][i], alone.vjp(alone.x())[1]);
  }
}

TEST(Many, EachProblemHasItsStatusAndOneThatFailedIsNamed) {
  const Solver root = newton_root([](Expr x, Expr a) { return square(x) - a; });
  const ManySolutions all = solve_many(root, {1.0}, {std::vector<Array>{4.0, -1.0, 9.0}});
  EXPECT_EQ(all.failed(), std::vector<std::size_t>{1});
  EXPECT_EQ(all.statuses()[0], Status::converged);
  EXPECT_DOUBLE_EQ(all.x()[2].item(), 3);
  try {
    (void)all.vjp({1.0});
    FAIL() << "the second has no solution";
  } catch (const NotConvergedError& e) {
    EXPECT_NE(std::string(e.what()).find("problem 1: "), std::string::npos) << e.what();
    EXPECT_EQ(e.status, all.statuses()[1]);
  }
  EXPECT_DOUBLE_EQ(all[2].vjp(1.0)[0].item(), 1.0 / 6);
}

TEST(Many, WhatDoesNotFitIsMisuse) {
  const Ridges r(3);
  const Solver solver = r.newton_solver();
  const std::vector<Array> two(r.weights.begin(), r.weights.begin() + 2);
  EXPECT_THROW(solve_many(solver, {r.starts}, {two, r.penalty}), MisuseError);
  EXPECT_THROW(solve_many(solver, {r.starts}, {r.weights}), MisuseError);
  EXPECT_THROW(solve_many(solver, {zeros(4)}, {std::vector<Array>{}, r.penalty}), MisuseError);
  std::vector<Array> one_too_long = r.weights;
  one_too_long[1] = ones(13);
  EXPECT_THROW(solve_many(solver, {r.starts}, {one_too_long, r.penalty}), MisuseError);
  const ManySolutions all = solve_many(solver, {r.starts}, {r.weights, r.penalty});
  EXPECT_THROW((void)all[3], MisuseError);
  EXPECT_THROW((void)all.vjp({two}), MisuseError);
  EXPECT_THROW((void)Many(r.weights)[3], MisuseError);
  EXPECT_THROW((void)Many::rows(ones(3)), MisuseError);
}

TEST(Many, WhatACallbackThrowsComesOutAndItCanBeSolvedAgain) {
  const Ridges r(8);
  std::atomic<int> calls = 0;
  PreparedMany prepared(r.newton_solver().with(SolveOptions{.callback = [&](const Iteration&) -> bool {
    if (++calls == 5) throw std::runtime_error("enough");
    return true;
  }}),
                        {r.starts}, {r.weights, r.penalty});
  EXPECT_THROW(prepared.solve({r.weights, r.penalty}), std::runtime_error);
  EXPECT_TRUE(prepared.solve({r.weights, r.penalty}).failed().empty());
}

TEST(Many, SolutionsThatAreKeptDoNotChangeWithTheNextSolve) {
  const Ridges r(4);
  PreparedMany prepared(r.newton_solver(), {r.starts}, {r.weights, r.penalty});
  const ManySolutions first = prepared.solve({r.weights, r.penalty});
  const Solution one = prepared.solve({r.weights, 5.0})[2];
  const Array x = one.x(), of_first = first[2].x();
  (void)prepared.solve({r.weights, 0.01});
  expect_same_bits(one.x(), x);
  expect_same_bits(first[2].x(), of_first);
  expect_same_bits(of_first, solve(r.newton_solver(), r.starts[2], {r.weights[2], r.penalty}).x());
}

TEST(Many, RowsOfAMatrixAreVectorsAndBack) {
  const Array A{{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}};
  const Many rows = Many::rows(A);
  EXPECT_EQ(rows.count(), 3U);
  EXPECT_EQ(entries_of(rows[1]), (std::vector<double>{3, 4}));
  expect_same_bits(rows.matrix(), A);
}

std::size_t threads_of_process() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

TEST(Context, HasThreadsOfItsOwnWhichEndWithIt) {
  const Ridges r(40);
  const std::size_t before = threads_of_process();
  {
    const Context three({.threads = 3});
    EXPECT_EQ(three.threads(), 3);
    EXPECT_EQ(three.backend(), "cpu");
    EXPECT_FALSE(three.is_default());
    const ManySolutions all = solve_many(r.newton_solver().on(three), {zeros(4)}, {r.weights, r.penalty});
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
