// A solver calls its lambda again in each solve: data that changed between two solves are seen, plans are kept where they
// serve. Prepared is the promise that nothing changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <thread>

#include "estimate/state.h"
#include "onestep/onestep.h"

namespace onestep {
namespace {

// min Σ w (x - y)²/2: the solution is y whatever w > 0.
Solver to_target(const Array& y) {
  return newton([&y](Expr x, Expr w) { return 0.5 * sum(w * square(x - y)); });
}
const detail::Method* method_of(const Solution& s) { return detail::state_of(s).method.get(); }

// What a lambda computes from its data is another array each time: the same entries are the same data, others are not.
TEST(ChangingData, ArraysAndIndicesThatALambdaMakesAreComparedByTheirEntries) {
  Array y{1.0, 2.0, 3.0};
  std::vector<std::int64_t> chosen{0, 2};
  const Solver mean_of_chosen = newton([&](Expr x, Expr t) { return sum(square(x - t * gather(-y + 0.0, chosen))); });
  const auto solved = [&] { return solve(mean_of_chosen, zeros({}), 2.0, Implicit{}); };
  const Solution first = solved(), again = solved();
  EXPECT_NEAR(first.x().item(), -4, 1e-12);
  EXPECT_NEAR(again.x().item(), -4, 1e-12);
  chosen = {1, 1};
  EXPECT_NEAR(solved().x().item(), -4, 1e-12);
  chosen = {0, 1};
  EXPECT_NEAR(solved().x().item(), -3, 1e-12);
  y = {10.0, 20.0, 30.0};
  const Solution other = solved();
  EXPECT_NEAR(other.x().item(), -30, 1e-11);
  const double slope = other.vjp(1.0), before = first.vjp(1.0);
  EXPECT_NEAR(slope, -15, 1e-11);
  EXPECT_NEAR(before, -2, 1e-12);
}

TEST(ChangingData, ACapturedArrayThatWasAssignedIsSeenByEverySolver) {
  Array y{1.0, 2.0};
  const auto f = [&](Expr x, Expr w) { return 0.5 * sum(w * square(x - y)); };
  const auto g = [f](Expr x, Expr w) { return grad(f(x, w), x); };
  const Array x0 = zeros(2), w = ones(2);
  const std::vector<std::pair<Solver, Parts>> all{
      {newton(f), x0},
      {newton_root(g), x0},
      {newton_cg(f), x0},
      {gradient_descent(f), x0},
      {gradient_descent(f, {.step = GradientStep::backtracking(0.7)}), x0},
      {gradient_descent(f, {.step = GradientStep::fixed(0.5), .momentum = Momentum::heavy_ball(0.1)}), {x0, x0}},
      {fixed_point([g](Expr x, Expr t) { return x - 0.5 * g(x, t); }), x0}};
  for (const Estimator& e : std::vector<Estimator>{OneStep{}, KStep{3}, Implicit{}, Auto{}}) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& [solver, start] = all[i];
      for (const Array& target : {Array{1.0, 2.0}, Array{3.0, -4.0}, Array{1.0, 2.0}, Array{0.5, 0.25}}) {
        y = target;
        const Solution s = solve(solver, start, w, e);
        ASSERT_TRUE(is_solution(s.status())) << i << ' ' << s.message();
        EXPECT_NEAR(s.x()(0), target(0), 1e-7) << i;
        EXPECT_NEAR(s.x()(1), target(1), 1e-7) << i;
        EXPECT_NO_THROW(s.vjp(s.state())) << i;
      }
    }
  }
}

TEST(ChangingData, DerivativesAreThoseOfTheNewData) {
  Array a{2.0, 3.0};  // x = a t
  const Solver scale = newton([&](Expr x, Expr t) { return 0.5 * sum(square(x - a * t)); });
  for (const Estimator& e : std::vector<Estimator>{OneStep{}, Implicit{}, KStep{2}, Unrolled{}})
    for (const Array& slope : {Array{2.0, 3.0}, Array{-1.0, 4.0}}) {
      a = slope;
      const Solution s = solve(scale, zeros(2), 1.0, e);
      const Array g = s.vjp(ones(2));
      EXPECT_NEAR(g.item(), slope(0) + slope(1), 1e-9);
    }
}

TEST(ChangingData, OneTraceForASolveAndPlansAreShared) {
  Array y{1.0, 2.0};
  int calls = 0;
  const Solver fit = newton([&](Expr x, Expr w) {
    ++calls;
    return 0.5 * sum(w * square(x - y));
  });
  const Solution first = solve(fit, zeros(2), ones(2), Implicit{});
  first.vjp(first.x());
  EXPECT_EQ(calls, 1);
  const Solution second = solve(fit, zeros(2), ones(2));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(method_of(first), method_of(second)) << "the same graph and data: the same method";
  y = Array{5.0, 6.0};
  const Solution third = solve(fit, zeros(2), ones(2));
  EXPECT_EQ(calls, 3);
  EXPECT_NE(method_of(first), method_of(third));
  EXPECT_EQ(third.x()(1), 6.0);
  EXPECT_EQ(first.x()(1), 2.0) << "what was solved before stays";
  EXPECT_NEAR(Array(first.vjp(first.x()))(0), 0.0, 1e-12);
  Prepared again(fit, zeros(2), ones(2));
  EXPECT_EQ(calls, 4);
  y = Array{7.0, 8.0};
  EXPECT_EQ(again.solve(zeros(2), ones(2)).x()(1), 6.0) << "the promise that nothing changed";
  EXPECT_EQ(calls, 4);
}

TEST(ChangingData, ANumberCapturedByReferenceIsSeen) {
  double target = 1;
  const Solver fit = newton([&](Expr x, Expr w) { return sum(w * square(x - target)); });
  for (const double t : {1.0, 0.0, 2.5, 1.0, -3.0}) {
    target = t;
    EXPECT_NEAR(solve(fit, Array{10.0}, 1.0).x()(0), t, 1e-12);
  }
}

TEST(ChangingData, MemoryBehindAViewIsReadAnew) {
  std::vector<double> memory{1.0, 2.0, 3.0, 4.0};
  const Array y = Array::view(memory);
  // Hoisted out of the loop: exp(y) depends on data alone.
  const Solver fit = newton([&](Expr x, Expr w) { return 0.5 * sum(w * square(x - exp(y))); });
  for (const double add : {0.0, 1.0, -2.0}) {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<double>(i) + add;
    EXPECT_NEAR(solve(fit, zeros(4), ones(4)).x()(3), std::exp(3 + add), 1e-9 * std::exp(3 + add));
  }
  // Rows apart from each other, and columns first.
  std::vector<double> matrix(12, 1.0);
  for (const MatrixView view : {MatrixView{matrix.data(), 2, 2, 6, 1}, MatrixView{matrix.data(), 2, 2, 1, 6}}) {
    const Array a = Array::view(view);
    const Solver rows = newton([&](Expr x, Expr w) { return 0.5 * sum(w * square(x - sum(a, 1))); });
    for (const double value : {1.0, 5.0}) {
      std::ranges::fill(matrix, value);
      EXPECT_NEAR(solve(rows, zeros(2), ones(2)).x()(1), 2 * value, 1e-12);
    }
  }
}

TEST(ChangingData, ArraysMadeInTheLambdaAndArraysThatBecomeOne) {
  Array a{1.0, 2.0}, b{3.0, 4.0};
  const Solver fit = newton([&](Expr x, Expr w) { return sum(w * (square(x - a) + square(x - b))); });
  const auto at = [&] { return solve(fit, zeros(2), ones(2)).x()(0); };
  EXPECT_NEAR(at(), 2.0, 1e-12);
  b = a;  // one constant where there were two
  EXPECT_NEAR(at(), 1.0, 1e-12);
  b = Array{5.0, 5.0};
  EXPECT_NEAR(at(), 3.0, 1e-12);
  double made = 1;
  const Solver fresh = newton([&](Expr x, Expr w) { return sum(w * square(x - Array{made, made})); });
  for (; made < 4; ++made) EXPECT_NEAR(solve(fresh, zeros(2), ones(2)).x()(0), made, 1e-12);
}

TEST(ChangingData, TheCacheIsBoundedAndShapesAlternate) {
  Array y{1.0};
  const Solver fit = to_target(y);
  for (int round = 0; round < 3; ++round)
    for (std::int64_t n = 1; n <= 12; ++n) {
      y = full(n, static_cast<double>(round) + static_cast<double>(n));
      EXPECT_NEAR(solve(fit, zeros(n), ones(n)).x()(n - 1), static_cast<double>(round) + static_cast<double>(n), 1e-10);
      EXPECT_LE(detail::recipe_of(fit).cache->hold()->entries.size(), detail::Recipe::Cache::most_entries);
    }
}

TEST(ChangingData, WhatALambdaThrowsGoesThroughAndTheNextSolveIsRight) {
  Array y{1.0, 2.0};
  bool throws = false;
  const Solver fit = newton([&](Expr x, Expr w) {
    if (throws) throw std::runtime_error("no data");
    return 0.5 * sum(w * square(x - y));
  });
  EXPECT_EQ(solve(fit, zeros(2), ones(2)).x()(0), 1.0);
  throws = true;
  EXPECT_THROW(solve(fit, zeros(2), ones(2)), std::runtime_error);
  throws = false;
  y = Array{4.0, 5.0};
  EXPECT_EQ(solve(fit, zeros(2), ones(2)).x()(0), 4.0);
}

// The memory of a solve whose Solution is gone serves the next one, which must not be able to tell.
TEST(ChangingData, ASolveInMemoryOfAnEarlierOneHasTheSameBits) {
  const Array a(Shape{3, 2}, {1.0, 2.0, -1.0, 0.5, 0.25, 3.0});
  const auto f = [&](Expr x, Expr t) { return sum(softplus(matmul(a, x) * t)) + 0.5 * sum(square(x)) + sum(exp(0.1 * x)); };
  const auto g = [f](Expr x, Expr t) { return grad(f(x, t), x); };
  const auto all = [&] {
    return std::vector<Solver>{
        newton(f),
        newton_root(g),
        newton_cg(f),
        gradient_descent(f),
        gradient_descent(f, {.step = GradientStep::backtracking(0.7)}),
        gradient_descent(f, {.step = GradientStep::fixed(0.1), .momentum = Momentum::heavy_ball(0.1)}),
        fixed_point([g](Expr x, Expr t) { return x - 0.1 * g(x, t); })};
  };
  const std::vector<Solver> used = all();
  const double nan = std::nan("");
  std::vector<double> memory(3);
  const Array theta = Array::view(memory);  // at one place, whatever its entries
  const std::vector<Estimator> estimators{OneStep{}, KStep{3}, Implicit{}, Auto{}};
  const std::vector<double> firsts{1, 2, nan, 2, 1e160, -1, 1};
  for (std::size_t i = 0; i < used.size(); ++i) {
    for (std::size_t trial = 0; trial < 2 * firsts.size(); ++trial) {
      memory = {firsts[trial % firsts.size()], 0.5, -0.25};
      const Estimator& e = estimators[trial % estimators.size()];
      const Array x0{trial % 3 == 0 ? 0.0 : 1.0, static_cast<double>(trial)};
      const Solution fresh = solve(all()[i], x0, theta, e), again = solve(used[i], x0, theta, e);
      ASSERT_EQ(fresh.status(), again.status()) << i << ' ' << trial;
      EXPECT_EQ(fresh.message(), again.message());
      EXPECT_EQ(fresh.statistics().iterations, again.statistics().iterations) << i << ' ' << trial;
      EXPECT_EQ(fresh.statistics().factorisations, again.statistics().factorisations) << i << ' ' << trial;
      if (!is_solution(fresh.status())) continue;
      const Array x = fresh.state()[0], its_x = again.state()[0];
      EXPECT_TRUE(std::ranges::equal(x.values(), its_x.values())) << i << ' ' << trial;
      const Array gradient = fresh.vjp(fresh.state())[0], its_gradient = again.vjp(again.state())[0];
      EXPECT_TRUE(std::ranges::equal(gradient.values(), its_gradient.values())) << i << ' ' << trial;
    }
  }
}

// Large ones are not kept, and neither is one that a Solution still has.
TEST(ChangingData, MemoryIsKeptOfSmallProblemsAlone) {
  const auto fit = [](std::int64_t n) {
    return newton([n](Expr x, Expr w) { return 0.5 * sum(w * square(x - full(n, 2.0))); });
  };
  const auto loop_of = [](const Solution& s) { return detail::state_of(s).loop.get(); };
  const Solver small = fit(3), large = fit(200);
  const detail::Loop* kept = nullptr;
  {
    const Solution s = solve(small, zeros(3), ones(3));
    kept = loop_of(s);
    EXPECT_NE(loop_of(solve(small, zeros(3), ones(3))), kept);
  }
  const Solution next = solve(small, zeros(3), ones(3));
  EXPECT_EQ(loop_of(next), kept);
  EXPECT_NEAR(next.x()(2), 2.0, 1e-12);
  EXPECT_FALSE(method_of(solve(large, zeros(200), ones(200)))->keeps_loop);
}

TEST(ChangingData, ALambdaWithStateIsAskedOnceForASolve) {
  int count = 0;
  const Solver fit = newton([&](Expr x, Expr w) {
    ++count;
    return sum(w * square(x - full(2, count)));
  });
  for (int i = 1; i < 20; ++i) EXPECT_NEAR(solve(fit, zeros(2), ones(2)).x()(0), i, 1e-10);
  int kind = 0;  // another graph each time, in turn
  const Solver other =
      newton([&](Expr x, Expr w) { return ++kind % 2 == 0 ? sum(w * square(x - 1.0)) : sum(w * (exp(x) - x)); });
  for (int i = 1; i < 6; ++i) EXPECT_NEAR(solve(other, Array{0.3}, 1.0).x()(0), i % 2 == 0 ? 1.0 : 0.0, 1e-7);
}

TEST(ChangingData, OfStartAndEquationToo) {
  Array begin{1.0}, slope{2.0};
  const Solver solver = fixed_point([&](Expr x, Expr t) {
                          return x + 0.0 * t;
                        }).from([&](Expr t) {
                            return begin * t;
                          }).equation([&](Expr x, Expr t) { return x - slope * t; });
  EXPECT_EQ(solve(solver, Parts(Array{3.0}), Implicit{}).x()(0), 3.0);
  begin = Array{2.0};
  slope = Array{5.0};
  const Solution s = solve(solver, Parts(Array{3.0}), Implicit{});
  EXPECT_EQ(s.x()(0), 6.0);
  EXPECT_NEAR(Array(s.vjp(Array{1.0}))(0), 5.0, 1e-12);
}

TEST(ChangingData, OfAQuadraticProgramToo) {
  Array c{2.0, 0.5}, hi{1.0, 1.0}, Q{{1.0, 0.0}, {0.0, 1.0}};
  int calls = 0;
  const Solver box = quadratic_program([&](Expr t) {
    ++calls;
    return TracedProgram{.Q = Q, .q = -1.0 * c * t, .lo = 0.0, .hi = hi};
  });
  for (const Estimator& e : std::vector<Estimator>{OneStep{}, Implicit{}, KStep{2}}) {
    c = Array{2.0, 0.5}, hi = Array{1.0, 1.0}, Q = Array{{1.0, 0.0}, {0.0, 1.0}};
    calls = 0;
    Solution s = solve(box, Parts(Array{1.0, 1.0}), e);
    EXPECT_EQ(calls, 1);
    EXPECT_NEAR(s.x()(0), 1.0, 1e-6);
    EXPECT_NEAR(s.x()(1), 0.5, 1e-6);
    c = Array{2.0, 0.8};
    hi = Array{1.5, 1.0};
    Q = Array{{1.0, 0.0}, {0.0, 2.0}};
    s = solve(box, Parts(Array{1.0, 1.0}), e);
    EXPECT_EQ(calls, 2);
    EXPECT_NEAR(s.x()(0), 1.5, 1e-6);
    EXPECT_NEAR(s.x()(1), 0.4, 1e-6);
    EXPECT_NEAR(Array(s.vjp(Array{0.0, 1.0}))(1), 0.4, 1e-6);
  }
}

TEST(ChangingData, OfANestedSolveToo) {
  Array y{1.0, 2.0};
  const Solver inner = newton([&](Expr x, Expr t) { return 0.5 * sum(square(x - y * t)); });
  for (const Estimator& how : std::vector<Estimator>{OneStep{}, Implicit{}}) {
    const Solver outer = newton([&](Expr t, Expr w) { return 0.5 * sum(square(inner.from(zeros(2)).with(how)(t) - w)); });
    for (const Array& slope : {Array{1.0, 2.0}, Array{3.0, 1.0}, Array{1.0, 2.0}}) {
      y = slope;  // t = (y·w) / (y·y)
      const Array w{1.0, 1.0};
      if (std::holds_alternative<Implicit>(how.kind())) continue;  // it has no second derivatives
      const Solution s = solve(outer, 0.5, w);
      ASSERT_TRUE(is_solution(s.status())) << s.message();
      EXPECT_NEAR(s.x().item(), (slope(0) + slope(1)) / (slope(0) * slope(0) + slope(1) * slope(1)), 1e-8);
    }
  }
  // Where nothing changed the node is the same, and so is the plan around it.
  const Solver outer = gradient_descent([&](Expr t, Expr w) { return 0.5 * sum(square(inner.from(zeros(2))(t) - w)); },
                                        {.step = GradientStep::fixed(0.1)});
  const Array w{1.0, 1.0};
  const Solution one = solve(outer, 0.5, w), two = solve(outer, 0.5, w);
  EXPECT_EQ(method_of(one), method_of(two));
  y = Array{2.0, 2.0};
  EXPECT_NEAR(solve(outer, 0.5, w).x().item(), 0.5, 1e-8);
}

TEST(ChangingData, ANodeKeepsTheDataItWasTracedWith) {
  Array y{1.0, 2.0};
  const Solver inner = newton([&](Expr x, Expr t) { return 0.5 * sum(square(x - y * t)); });
  const Function f = traced([&](Expr t) { return sum(inner.from(zeros(2))(t)); }, Shape{});
  y = Array{10.0, 20.0};
  EXPECT_NEAR(evaluate(f, {Array(1.0)})[0].item(), 3.0, 1e-12);
}

TEST(ChangingDataThread, ASolverIsUsedByAHundredThreadsAtOnce) {
  const std::vector<Array> targets{Array{1.0, 2.0}, Array{3.0, 4.0}, Array{-1.0, 0.5}};
  std::atomic<int> calls = 0;
  thread_local const Array* mine = nullptr;
  const Solver fit = newton([&](Expr x, Expr w) {
    ++calls;
    return 0.5 * sum(w * square(x - *mine));
  });
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 100; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 5; ++i) {
        mine = &targets[(t + i) % targets.size()];
        const Estimator how = i % 2 == 0 ? Estimator(OneStep{}) : Estimator(Implicit{});
        const Solution s = solve(fit, zeros(2), ones(2), how);
        if (!is_solution(s.status()) || s.x()(0) != (*mine)(0) || s.x()(1) != (*mine)(1)) ++wrong;
        if (std::abs(Array(s.vjp(s.x()))(0)) > 1e-12) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(calls, 500);
}

TEST(ChangingDataThread, SolversOfEveryKindAreSharedWhilePlansAreMade) {
  const Array y{1.0, 2.0};
  const auto f = [&](Expr x, Expr w) { return 0.5 * sum(w * square(x - y)); };
  for (const Solver& solver : {newton(f), newton_cg(f), gradient_descent(f)}) {
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 16; ++t)
      threads.emplace_back([&, t] {
        const Estimator how = t % 3 == 0 ? Estimator(OneStep{}) : t % 3 == 1 ? Estimator(Implicit{}) : Estimator(KStep{2});
        const Solution s = solve(solver, zeros(2), ones(2), how);
        s.vjp(s.x());
        if (std::abs(s.x()(1) - 2.0) > 1e-8) ++wrong;
      });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong, 0);
  }
}

}  // namespace
}  // namespace onestep
