// What a solve reports, and solving again: statistics, history, log, warm start, several threads.
#include <gtest/gtest.h>

#include <sstream>
#include <thread>

#include "support/problems.h"

namespace onestep {
namespace {

using test::Logistic;
using test::Random;
using test::says;

TEST(Statistics, CountWhatWasDone) {
  Random random(1);
  const Logistic problem(random, 40, 5);
  const Solution s = solve(newton(problem.objective()), problem.start(), problem.weights());
  const Statistics& took = s.statistics();
  EXPECT_GE(took.iterations, 3);
  EXPECT_LE(took.iterations, 10);
  // One evaluation with a factorisation at each iterate.
  EXPECT_EQ(took.factorisations, took.iterations);
  EXPECT_EQ(took.evaluations, took.iterations + took.backtracks);
  EXPECT_EQ(took.shifts, 0);
  EXPECT_GT(took.seconds, 0);
  EXPECT_TRUE(took.history.empty());
}

TEST(Statistics, HistoryHasTheLengthOfEachStep) {
  std::vector<double> told;
  SolveOptions options{.tolerance = 1e-6,
                       .callback =
                           [&](const Iteration& i) {
                             told.push_back(i.step);
                             EXPECT_GE(i.scale, i.step);
                             EXPECT_GE(i.seconds, 0);
                             return true;
                           },
                       .history = true};
  const Solution s = solve(fixed_point([](Expr x, Expr t) { return 0.5 * (x + t); }, options), zeros({1}), ones({1}));
  const std::vector<double>& history = s.statistics().history;
  ASSERT_EQ(static_cast<int>(history.size()), s.statistics().iterations);
  for (std::size_t k = 0; k < history.size(); ++k) EXPECT_DOUBLE_EQ(history[k], std::pow(0.5, k + 1));
  EXPECT_EQ(told, history);  // the callback hears of the last iteration too
}

TEST(Statistics, TheLogHasALineForEachIteration) {
  std::ostringstream log;
  Random random(2);
  const Logistic problem(random, 40, 5);
  const Solution s = solve(newton(problem.objective(), {.log = &log}), problem.start(), problem.weights());
  const std::string text = log.str();
  EXPECT_EQ(std::ranges::count(text, '\n'), s.statistics().iterations);
  EXPECT_TRUE(says(text, {"step"}));
  EXPECT_TRUE(says(text, {"value"}));
}

TEST(WarmStart, FromTheSolutionOfANearbyProblemTakesFewerSteps) {
  Random random(3);
  const Logistic problem(random, 60, 6);
  Prepared again(newton(problem.objective()), problem.start(), problem.weights());
  const Solution& s = again.solve(problem.start(), problem.weights());
  const int cold = s.statistics().iterations;
  const Array near_by = random.array({60}, 0.99, 1.01), x = s.x();
  again.solve(x, near_by);
  EXPECT_EQ(s.status(), Status::converged);
  EXPECT_LT(s.statistics().iterations, cold);
  EXPECT_LT(test::relative_error(s.x(), problem.solution(near_by)), 1e-12);
}

TEST(WarmStart, TheStartGivenToTheSolverIsUsedWhereNoneIsGiven) {
  const Solver wells = newton([](Expr x, Expr t) { return sum(square(square(x) - t)); });
  EXPECT_NEAR(solve(wells.from(Array{2.0}), Array{1.0}).x()(0), 1.0, 1e-12);
  EXPECT_NEAR(solve(wells.from(Array{-2.0}), Array{1.0}).x()(0), -1.0, 1e-12);
  EXPECT_NEAR(solve(wells.from([](Expr t) { return -3.0 * t; }), Array{1.0}).x()(0), -1.0, 1e-12);
  // The last one given counts.
  EXPECT_NEAR(solve(wells.from([](Expr t) { return -3.0 * t; }).from(Array{2.0}), Array{1.0}).x()(0), 1.0, 1e-12);
  EXPECT_NEAR(solve(wells.from(zeros({3})).from([](Expr t) { return -3.0 * t; }), Array{1.0}).x()(0), -1.0, 1e-12);
}

TEST(Prepared, GivesTheSameAsAFreshSolveWithOtherParameters) {
  Random random(4);
  const Logistic problem(random, 40, 5);
  const Array w = random.array({40}, 0.5, 1.5), c = random.array({5});
  for (const Estimator& e : std::vector<Estimator>{OneStep{}, KStep{3}, Implicit{}, Implicit{.how = Implicit::dense},
                                                   Unrolled{}, Unrolled{.mode = Unrolled::reverse, .memory = 100}, Auto{}}) {
    Prepared again(newton(problem.objective()), problem.start(), problem.weights(), e);
    const Solution& s = again.solve(problem.start(), problem.weights());
    s.vjp(c);
    again.solve(problem.start(), w);
    const Solution fresh = solve(newton(problem.objective()), problem.start(), w, e);
    EXPECT_TRUE(test::near(s.x(), fresh.x(), 0.0));
    EXPECT_TRUE(test::near(s.vjp(c), fresh.vjp(c), 0.0));
    EXPECT_TRUE(test::near(s.jvp(w), fresh.jvp(w), 0.0));
  }
}

TEST(Prepared, NewDataOfTheSameShapeIsAParameter) {
  Random random(5);
  const auto f = [](Expr x, Expr A, Expr y) { return sum(square(matmul(A, x) - y)) + 0.1 * sum(square(x)); };
  const Array A = random.array({20, 3}), y = random.array({20}), B = random.array({20, 3}), z = random.array({20});
  Prepared again(newton(f), zeros({3}), {A, y});
  again.solve(zeros({3}), {A, y});
  const Solution& s = again.solve(zeros({3}), {B, z});
  const Array bt = test::transposed(B);
  const Array expected =
      test::solved(test::plus(test::product(bt, B), test::times(0.1, test::identity(3))), test::product(bt, z));
  EXPECT_LT(test::relative_error(s.x(), expected), 1e-13);
}

// A test's threads must not use EXPECT: they write down what they found.
TEST(PreparedThreads, OnePreparedForEachOfSeveralThreads) {
  Random random(6);
  const Logistic problem(random, 60, 5);
  const Solver shared = newton(problem.objective());
  constexpr int threads = 4, repetitions = 5;
  std::vector<Array> weights;
  for (int i = 0; i < threads; ++i) weights.push_back(random.array({60}, 0.5, 1.5));
  std::vector<Array> x(threads), g(threads);
  std::vector<std::thread> running;
  for (std::size_t i = 0; i < threads; ++i)
    running.emplace_back([&, i] {
      Prepared mine(shared, problem.start(), weights[i], i % 2 == 0 ? Estimator(OneStep{}) : Estimator(Implicit{}));
      for (int k = 0; k < repetitions; ++k) {
        const Solution& s = mine.solve(problem.start(), weights[i]);
        x[i] = s.x();
        g[i] = s.vjp(x[i]);
      }
    });
  for (std::thread& t : running) t.join();
  for (std::size_t i = 0; i < threads; ++i) {
    const Solution alone =
        solve(shared, problem.start(), weights[i], i % 2 == 0 ? Estimator(OneStep{}) : Estimator(Implicit{}));
    EXPECT_TRUE(test::near(x[i], alone.x(), 0.0));
    EXPECT_TRUE(test::near(g[i], alone.vjp(alone.x()), 0.0));
  }
}

TEST(PreparedThreads, ASolverIsTracedOnceInEachSolve) {
  std::atomic<int> traced{0};
  const Solver shared = fixed_point([&](Expr x, Expr t) {
    ++traced;
    return 0.5 * cos(x) + t;
  });
  solve(shared, zeros({3}), ones({3}));
  const int once = traced;
  std::vector<std::thread> running;
  std::array<double, 4> found{};
  for (std::size_t i = 0; i < 4; ++i)
    running.emplace_back([&, i] { found[i] = solve(shared, zeros({2}), full({2}, 0.1 * static_cast<double>(i))).x()(0); });
  for (std::thread& t : running) t.join();
  EXPECT_EQ(once, 1);
  EXPECT_EQ(traced, 5);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(found[i], 0.5 * std::cos(found[i]) + 0.1 * static_cast<double>(i), 1e-9);
}

TEST(NestedThreads, ASolveInsideAPlanRunsFromSeveralThreads) {
  const Solver root = newton_root([](Expr x, Expr t) { return x * x * x + x - t; });
  const Plan plan(traced([&](Expr t) { return grad(sum(square(root.from(zeros({2})).with(Implicit{})(t))), t); }, Shape{2}));
  std::array<std::vector<double>, 4> found;
  std::vector<std::thread> running;
  for (std::size_t i = 0; i < 4; ++i)
    running.emplace_back([&, i] {
      Workspace workspace = plan.workspace();
      found[i].resize(2);
      for (int k = 0; k < 20; ++k) plan.run(workspace, {full({2}, 1.0 + static_cast<double>(i))}, {found[i]});
    });
  for (std::thread& t : running) t.join();
  for (std::size_t i = 0; i < 4; ++i) {
    double x = 0;
    for (int k = 0; k < 50; ++k) x -= (x * x * x + x - 1.0 - static_cast<double>(i)) / (3 * x * x + 1);
    EXPECT_NEAR(found[i][0], 2 * x / (3 * x * x + 1), 1e-11);
  }
}

TEST(Solvers, FindTheSameMinimiser) {
  Random random(7);
  const Logistic problem(random, 40, 4);
  const auto f = problem.objective();
  const Array expected = problem.solution(ones({40}));
  const SolveOptions options{.tolerance = 1e-13, .max_iterations = 100000};
  const auto check = [&](const Solver& s, const Parts& x0) {
    const Solution solution = solve(s, x0, problem.weights());
    EXPECT_EQ(solution.status(), Status::converged) << solution.message();
    EXPECT_LT(test::relative_error(solution.x(), expected), 1e-10);
    return solution.statistics().iterations;
  };
  check(newton(f, options), problem.start());
  check(newton_root([f](Expr x, Expr w) { return grad(f(x, w), x); }, options), problem.start());
  const int plain = check(gradient_descent(f, {}, options), problem.start());
  const int best = check(gradient_descent(f, {.step = GradientStep::optimal()}, options), problem.start());
  EXPECT_LT(best, plain);
  check(gradient_descent(f, {.step = GradientStep::fixed(0.01)}, options), problem.start());
  check(gradient_descent(f, {.step = GradientStep::backtracking()}, options), problem.start());
  const Parts twice{problem.start(), problem.start()};
  check(gradient_descent(f, {.momentum = Momentum::heavy_ball(0.5)}, options), twice);
  EXPECT_LT(check(gradient_descent(f, {.momentum = Momentum::nesterov(0.5)}, options), twice), plain);
}

TEST(Solvers, TakeAScalarStateAndNoParameters) {
  const Solution s = solve(fixed_point([](Expr x) { return cos(x); }), Array(1.0), Parts());
  EXPECT_EQ(s.status(), Status::converged);
  EXPECT_EQ(s.x().shape(), Shape{});
  EXPECT_NEAR(s.x().item(), 0.7390851332151607, 1e-9);
  EXPECT_EQ(s.vjp(Array(1.0)).size(), 0U);
  EXPECT_NEAR(s.jvp(Parts())[0].item(), 0.0, 0.0);
  EXPECT_EQ(s.jacobian().size(), 0U);
}

TEST(Solvers, TakeAMatrixAsState) {
  // Newton's iteration for the inverse of a matrix, as a fixed point.
  const Array A{{4.0, 1.0}, {2.0, 3.0}};
  const Solver inverse = fixed_point([](Expr x, Expr a) { return 2.0 * x - matmul(x, matmul(a, x)); });
  const Solution s = solve(inverse, Array{{0.1, 0.0}, {0.0, 0.1}}, A);
  EXPECT_EQ(s.status(), Status::converged);
  EXPECT_TRUE(test::near(s.x(), Array{{0.3, -0.1}, {-0.2, 0.4}}, 1e-13));
  // dX = -X dA X
  const Array v{{0.5, -1.0}, {2.0, 0.25}};
  EXPECT_LT(test::relative_error(s.jvp(v), test::times(-1, test::product(s.x(), test::product(v, s.x())))), 1e-9);
}

}  // namespace
}  // namespace onestep
