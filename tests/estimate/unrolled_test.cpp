// Unrolling: binomial checkpointing does the least work there is, and changes nothing but the work.
#include <gtest/gtest.h>

#include "estimate/revolve.h"
#include "support/problems.h"

namespace onestep {
namespace {

using detail::best_advance;
using detail::least_recomputation;
using test::Random;

// The least number of steps made again, by trying every place for the next snapshot.
class BruteForce {
 public:
  std::int64_t operator()(int steps, int snapshots) {
    if (steps <= 1) return 0;
    if (snapshots == 1) return steps * (steps - 1) / 2;
    std::int64_t& known = table_[static_cast<std::size_t>(snapshots)][static_cast<std::size_t>(steps)];
    if (known == 0) {
      known = std::numeric_limits<std::int64_t>::max();
      for (int m = 1; m < steps; ++m) known = std::min(known, m + (*this)(steps - m, snapshots - 1) + (*this)(m, snapshots));
    }
    return known;
  }

 private:
  std::array<std::array<std::int64_t, 61>, 9> table_{};
};

TEST(Revolve, TheLeastRecomputationIsThatOfAllSchedules) {
  BruteForce least;
  for (int snapshots = 1; snapshots <= 8; ++snapshots)
    for (int steps = 0; steps <= 60; ++steps)
      EXPECT_EQ(least_recomputation(steps, snapshots), least(steps, snapshots)) << steps << ", " << snapshots;
}

TEST(Revolve, TheBestAdvanceAttainsIt) {
  BruteForce least;
  for (int snapshots = 2; snapshots <= 8; ++snapshots)
    for (int steps = 2; steps <= 60; ++steps) {
      const auto m = static_cast<int>(best_advance(steps, snapshots));
      ASSERT_GE(m, 1);
      ASSERT_LT(m, steps);
      EXPECT_EQ(m + least(steps - m, snapshots - 1) + least(m, snapshots), least(steps, snapshots))
          << steps << ", " << snapshots;
    }
}

TEST(Revolve, LargeNumbersOfStepsDoNotOverflow) {
  EXPECT_EQ(least_recomputation(1'000'000'000, 1), 500'000'000LL * 999'999'999LL);
  for (const int snapshots : {2, 3, 10, 1000, 1'000'000}) {
    const std::int64_t steps = 10'000'000, m = best_advance(steps, snapshots);
    EXPECT_GE(m, 1);
    EXPECT_LT(m, steps);
    EXPECT_EQ(m + least_recomputation(steps - m, snapshots - 1) + least_recomputation(m, snapshots),
              least_recomputation(steps, snapshots));
  }
  EXPECT_EQ(least_recomputation(100, 100), 99);
  EXPECT_EQ(least_recomputation(100, 1000), 99);
}

// x ← tanh(A x + θ) for a fixed number of steps, from x₀ = cos θ.
struct Recurrence {
  Array A, theta, c, v;
  explicit Recurrence(std::uint64_t seed) {
    Random random(seed);
    A = test::with_norm(random, 3, 3, 0.95), theta = random.array({3}), c = random.array({3}), v = random.array({3});
  }
  Solution run(int steps, const Estimator& e) const {
    const Solver s =
        fixed_point([a = A](Expr x, Expr t) { return tanh(matmul(a, x) + t); }, {.tolerance = 0, .max_iterations = steps})
            .from([](Expr t) { return cos(t); });
    return solve(s, theta, e).even_if_unconverged();
  }
};

TEST(Unrolled, WithLittleMemoryRecomputesExactlyTheLeastNumberOfSteps) {
  const Recurrence r(1);
  for (const int steps : {1, 2, 3, 7, 20, 33})
    for (const int snapshots : {1, 2, 3, 5, 8}) {
      const std::size_t memory = static_cast<std::size_t>(snapshots) * 3 * sizeof(double);
      const Solution s = r.run(steps, Unrolled{.mode = Unrolled::reverse, .memory = memory});
      ASSERT_EQ(s.statistics().iterations, steps);
      const Solution all = r.run(steps, Unrolled{.mode = Unrolled::reverse});
      const Array expected = all.vjp(r.c);
      EXPECT_EQ(all.report().steps, steps);
      for (int again = 0; again < 2; ++again) {
        EXPECT_TRUE(test::near(s.vjp(r.c), expected, 0.0)) << steps << ", " << snapshots;
        EXPECT_EQ(s.report().steps, steps <= snapshots ? steps : steps + least_recomputation(steps, snapshots))
            << steps << ", " << snapshots;
      }
    }
}

TEST(Unrolled, ForwardAndReverseGiveTheSameInBothDirections) {
  const Recurrence r(2);
  for (const std::size_t memory : {std::size_t{50}, std::size_t{1} << 20}) {
    const Solution forward = r.run(30, Unrolled{.mode = Unrolled::forward, .memory = memory}),
                   reverse = r.run(30, Unrolled{.mode = Unrolled::reverse, .memory = memory}),
                   automatic = r.run(30, Unrolled{.memory = memory});
    EXPECT_TRUE(test::near(reverse.vjp(r.c), forward.vjp(r.c)));
    EXPECT_TRUE(test::near(automatic.vjp(r.c), reverse.vjp(r.c), 0.0));
    // After a vjp has used the memory for its snapshots.
    EXPECT_TRUE(test::near(reverse.jvp(r.v), forward.jvp(r.v)));
    EXPECT_TRUE(test::near(automatic.jvp(r.v), forward.jvp(r.v), 0.0));
    EXPECT_TRUE(test::near(reverse.jacobian(), forward.jacobian()));
    EXPECT_TRUE(test::near(forward.jacobian(), test::product(test::identity(3), automatic.jacobian())));
  }
}

TEST(Unrolled, CarriesTheDerivativeOfTheStart) {
  const Recurrence r(3);
  for (const int steps : {1, 2, 5, 12}) {
    const auto run = [&](double t) {
      Recurrence moved = r;
      moved.theta = test::plus(r.theta, test::times(t, r.v));
      return moved.run(steps, OneStep{}).x();
    };
    const Array expected = test::differences(run);
    for (const Unrolled& how : {Unrolled{}, Unrolled{.mode = Unrolled::reverse}, Unrolled{.memory = 48}}) {
      const Solution s = r.run(steps, how);
      EXPECT_LT(test::relative_error(s.jvp(r.v), expected), 1e-9) << steps;
      const double reverse = test::product(test::transposed(s.vjp(r.c)), r.v)(0);
      EXPECT_NEAR(reverse, test::product(test::transposed(r.c), expected)(0), 1e-8 * test::norm(r.c) * test::norm(expected));
    }
    // The start is no part of the other estimators.
    EXPECT_GT(test::relative_error(r.run(1, OneStep{}).jvp(r.v), r.run(1, Unrolled{}).jvp(r.v)), 1e-3);
  }
}

TEST(Unrolled, OfNewtonIsTheDerivativeOfTheStepsAsTheyWereTaken) {
  // Damped steps at first: the lengths are held constant.
  const auto f = [](Expr x, Expr t) { return sum(softplus(4.0 * (x - t)) + softplus(4.0 * (t - x)) + 0.01 * square(x)); };
  std::vector<double> lengths;
  const Solution s = solve(newton(f, {.tolerance = 0.5,
                                      .max_iterations = 3,
                                      .callback =
                                          [&](const Iteration& i) {
                                            lengths.push_back(i.length);
                                            return true;
                                          }}),
                           Array{1.2}, Array{0.5}, Unrolled{});
  ASSERT_TRUE(std::ranges::any_of(lengths, [](double l) { return l < 1; }));
  const Function by_hand = traced(
      [&](Expr t) {
        Expr x = Array{1.2};
        for (const double length : lengths) {
          const Expr at = x;
          const Expr g = grad(f(at, t), at), h = jacobian(g, at);
          x = at - length * solve(cholesky(h), g);
        }
        return x;
      },
      Shape{1});
  EXPECT_TRUE(test::near(s.x(), evaluate(by_hand, {Array{0.5}}).front(), 1e-12));
  const Function derivative =
      traced([&](Expr t, Expr v) { return jvp(by_hand(std::vector<Expr>{t}).front(), t, v); }, Shape{1}, Shape{1});
  EXPECT_TRUE(
      test::near(s.even_if_unconverged().jvp(Array{1.0}), evaluate(derivative, {Array{0.5}, Array{1.0}}).front(), 1e-11));
}

TEST(Unrolled, FlopsAreThoseOfTheStepsItGoesOver) {
  Random random(5);
  const Array W = test::with_norm(random, 6, 6, 0.9), C = random.array({6, 3});
  const auto flops = [&](int steps, const Estimator& e, bool forward) {
    const Solver s = fixed_point([&](Expr x, Expr t) { return matmul(W, sin(x)) + matmul(C, t); },
                                 {.tolerance = 0, .max_iterations = steps});
    const Solution done = solve(s, random.array({6}), random.array({3}), e);
    if (forward)
      (void)done.even_if_unconverged().jvp(ones(3));
    else
      (void)done.even_if_unconverged().vjp(ones(6));
    EXPECT_GT(done.report().flops, 0);
    return done.report().flops;
  };
  for (const bool forward : {false, true}) {
    EXPECT_DOUBLE_EQ(flops(20, Unrolled{}, forward), 2 * flops(10, Unrolled{}, forward));
    EXPECT_DOUBLE_EQ(flops(20, KStep{1}, forward), flops(20, OneStep{}, forward));
    EXPECT_LT(flops(20, OneStep{}, forward), flops(20, KStep{2}, forward));
    EXPECT_LT(flops(20, KStep{2}, forward), flops(20, Unrolled{}, forward));
  }
  // States that are not kept are computed again.
  EXPECT_LT(flops(20, Unrolled{}, false), flops(20, Unrolled{.memory = 3 * 6 * sizeof(double)}, false));
}

TEST(Unrolled, ConvergesToTheDerivativeOfTheSolution) {
  Random random(4);
  const test::Logistic problem(random, 30, 4);
  const Array expected = problem.derivative(problem.weights());
  const Solution s = solve(gradient_descent(problem.objective(), {}, {.tolerance = 1e-14, .max_iterations = 100000}),
                           problem.start(), problem.weights(), Unrolled{.memory = 5000});
  EXPECT_LT(test::relative_error(s.jacobian(), expected), 1e-10);
}

// All directions of a Jacobian share the steps that are made again, and with Newton's their factorisations.
TEST(Unrolled, AJacobianGoesOverTheStepsOnce) {
  test::Random random(3);
  const test::Logistic problem(random, 20, 3);
  const Array w = random.array({20}, 0.5, 1.5);
  for (const Solver& fit : {newton(problem.objective()), gradient_descent(problem.objective())}) {
    const Array expected = solve(fit, problem.start(), w, Unrolled{}).jacobian();
    for (const Unrolled::Mode mode : {Unrolled::forward, Unrolled::reverse}) {
      const Solution s = solve(fit, problem.start(), w, Unrolled{.mode = mode});
      EXPECT_LT(test::relative_error(s.jacobian(), expected), 1e-8);
      EXPECT_EQ(s.report().steps, s.statistics().iterations);
    }
    const Solution one = solve(fit, problem.start(), w, Unrolled{.mode = Unrolled::forward});
    const Array v = random.array({20});
    EXPECT_LT(test::relative_error(one.jvp(v), test::product(expected, v)), 1e-8);
  }
}

TEST(Endless, StepsAreRefused) {
  const Solver half = fixed_point([](Expr x, Expr t) { return 0.5 * (x + t); }).from(zeros(2));
  const Solution s = solve(half, ones(2), KStep{1'000'000'000});
  EXPECT_TRUE(test::says(test::error_of([&] { s.vjp(ones(2)); }), {"[KStep]", "1000000000", "max_iterations"}));
  EXPECT_TRUE(test::says(test::error_of([&] { s.jvp(ones(2)); }), {"[KStep]", "max_iterations"}));
  EXPECT_TRUE(
      test::says(test::error_of([&] { traced([&](Expr t) { return half.with(KStep{1'000'000'000})(t); }, Shape{2}); }),
                 {"[KStep]", "1000"}));
  // More than a superlinear method needs are as good as what it needs.
  const Solution n =
      solve(newton([](Expr x, Expr t) { return sum(exp(x) - t * x); }), zeros(1), Array{2.0}, KStep{1'000'000'000});
  EXPECT_NEAR(n.vjp(Array{1.0})[0](0), 0.5, 1e-10);
  // With one state in memory, making every step again for each step would take 5e9 of them.
  const Solution walk = solve(fixed_point([](Expr x, Expr t) { return x + t; }, {.tolerance = 0, .max_iterations = 100000}),
                              Array{0.0}, Array{1.0}, Unrolled{.memory = 1})
                            .even_if_unconverged();
  EXPECT_TRUE(test::says(test::error_of([&] { walk.vjp(Array{1.0}); }), {"[Unrolled]", "memory = 1"}));
  EXPECT_EQ(walk.jvp(Array{1.0})[0](0), 100000.0);
}

// Heron's iteration halves x where it is too large, so that x_k depends by orders of magnitude on a start near zero. That
// says nothing about the steps at the solution, which forget θ at once.
TEST(Unrolled, InReverseIsTheTransposeOfForwardWhereverTheIterationBegan) {
  const auto heron = [](Expr x, Expr t) { return 0.5 * (x + square(t) / x); };  // |θ|, with derivative 1
  for (double start = 1e-9; start < 1e9; start *= 7)
    for (const double tolerance : {5e-3, 1e-5, 1e-10}) {
      const Solution s = solve(fixed_point(heron, {.tolerance = tolerance}), start, 3.0, Unrolled{});
      ASSERT_TRUE(is_solution(s.status())) << s.message();
      const double forward = s.jvp(1.0)[0].item(), back = s.vjp(1.0)[0].item();
      EXPECT_NEAR(forward, 1, 10 * tolerance) << start << ' ' << tolerance;
      EXPECT_NEAR(back, 1, 10 * tolerance) << start << ' ' << tolerance;
    }
}

}  // namespace
}  // namespace onestep
