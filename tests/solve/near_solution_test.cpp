// Steps may be short for other reasons than a solution: a kink, a barrier, a component that hardly moves, another unit.
// Found by attacks from outside; each problem has a known solution.
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "onestep/onestep.h"
#include "support/problems.h"

namespace onestep {
namespace {

using test::entries_of;
using test::Random;

const GradientDescent backtracking{.step = GradientStep::backtracking()};

// max x + t (log(1 + x) + log(1 - x)); x̄ = √2 - 1 at t = 1.
Expr barrier(Expr x, Expr t) { return sum(-x - t * (log(1.0 + x) + log(1.0 - x))); }

void expect_no_answer(const Solution& s, const char* what) {
  EXPECT_FALSE(is_solution(s.status())) << what << s.message() << s.x();
  EXPECT_THROW(s.vjp(ones(s.x().shape())), NotConvergedError) << what;
  EXPECT_EQ(s.certificate(ones(s.x().shape())).basis, Certificate::Basis::refused) << what;
}

TEST(AtAKink, BacktrackingDoesNotTakeShortStepsForASolution) {
  const auto distance = [](Expr x, Expr t) { return sum(abs(x - t) + 0.1 * square(x)); };
  for (const Array& start : {Array{5.0}, Array{5.0, -2.0}, Array{-3.0, 0.5, 1.7}})
    expect_no_answer(solve(gradient_descent(distance, backtracking), start, 1.0), "distance");
  const auto lasso = [](Expr x, Expr t) { return sum(square(x - Array{3.0, 0.2})) + sum(t * abs(x)); };
  expect_no_answer(solve(gradient_descent(lasso, backtracking), Array{5.0, 5.0}, 1.0), "lasso");
  const Array A{{1.0, 0.5}, {1.0, -1.5}, {1.0, 2.0}, {1.0, -0.3}}, y{1.0, -1.0, 1.0, -1.0};
  const auto svm = [&](Expr x, Expr t) { return sum(maximum(1.0 - y * matmul(A, x), 0.0)) + sum(t * square(x)); };
  expect_no_answer(solve(gradient_descent(svm, backtracking), zeros({2}), 0.1), "support vectors");
}

TEST(AtAKink, ConvergedBacktrackingIsAtTheMinimum) {
  Random random(71);
  int converged = 0;
  for (int k = 0; k < 60; ++k) {
    const std::int64_t n = 1 + k % 3;
    const Array c = random.array({n}, -3, 3), start = random.array({n}, -5, 5);
    const double t = 0.5 + 0.025 * k;
    const auto lasso = [&](Expr x, Expr w) { return 0.5 * sum(square(x - c)) + sum(w * abs(x)); };
    const Solution s = solve(gradient_descent(lasso, backtracking), start, t);
    if (!is_solution(s.status())) continue;
    ++converged;
    const std::vector<double> x = entries_of(s.x()), at = entries_of(c);
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(x[i], std::copysign(std::max(std::fabs(at[i]) - t, 0.0), at[i]), 1e-6) << k << s.message();
  }
  EXPECT_GT(converged, 5);  // those without an entry at zero
}

TEST(OutOfTheDomain, ADescentThatLeavesItSaysSo) {
  const auto f = [](Expr x, Expr t) { return sum(0.5 * square(x) + 3.0 * x - t * log(x)); };
  const Solution s = solve(gradient_descent(f), Array{100.0}, 0.25);  // steps over x = 0, where ∇f has another root
  EXPECT_EQ(s.status(), Status::not_finite);
  expect_no_answer(s, "logarithm");
  const Solution inside = solve(gradient_descent(f, backtracking), Array{100.0}, 0.25);
  ASSERT_EQ(inside.status(), Status::converged);
  EXPECT_NEAR(inside.x().item(), 0.08113883008418966, 1e-9);
}

TEST(OutOfTheDomain, ThePointReturnedIsFinite) {
  const auto f = [](Expr x, Expr t) { return sum(x * log(x) - t * x); };
  const Solution s = solve(gradient_descent(f), Array{100.0}, -5.0);
  EXPECT_FALSE(is_solution(s.status()));
  EXPECT_TRUE(std::isfinite(s.x().item()));
}

TEST(BesideABarrier, FirstOrderMethodsDoNotConverge) {
  const SolveOptions loose{.tolerance = 1e-6, .max_iterations = 2000}, usual{.max_iterations = 2000};
  const double off = 0x1p-40;
  expect_no_answer(solve(gradient_descent(barrier, {}, usual), Array{1 - off}, 1.0), "measured");
  expect_no_answer(solve(gradient_descent(barrier, {}, loose), Array{1 - 1e-6}, 1.0), "loose");
  expect_no_answer(solve(gradient_descent(barrier, {.step = GradientStep::fixed(1e-16)}, usual), Array{1 - 1e-6}, 1.0),
                   "short steps");
  const auto map = [](Expr x, Expr t) { return x - 1e-24 * grad(barrier(x, t), x); };
  expect_no_answer(solve(fixed_point(map, usual), Array{1 - off}, 1.0), "map");
}

TEST(BesideABarrier, ALoopOfTheUsersIsNotBelieved) {
  const Solver solver = with_loop(newton(barrier), [] { return OwnLoop([](Iterates& at) { at.end(Status::converged); }); });
  expect_no_answer(solve(solver, Array{1 - 1e-11}, 1.0), "far");
  const Solution there = solve(solver, Array{std::sqrt(2.0) - 1}, 1.0);
  EXPECT_EQ(there.status(), Status::converged) << there.message();
}

TEST(BesideABarrier, AStepThatThrowsBeyondItsSolutionIsNotAskedToGoThere) {
  ForeignStep step;
  step.apply = [](std::span<const double> x, std::span<const Array>, std::span<double> next) {
    if (x[0] > 0.5 + 1e-14) throw std::domain_error("outside");
    next[0] = 0.25 + 0.5 * x[0];
  };
  const Solution s = solve(fixed_point(step), Array{0.0}, Array{1.0});
  EXPECT_EQ(s.status(), Status::converged) << s.message();
}

TEST(SlowComponent, IsSeenBehindAFastOne) {
  for (const double slow : {1e-5, 1e-6, 1e-7}) {
    const Array rates{0.5, 1 - slow};
    const auto step = [&](Expr x, Expr t) { return rates * x + (1.0 - rates) * sinh(t); };
    expect_no_answer(solve(fixed_point(step, {.tolerance = 1e-6}), zeros({2}), ones({2})), "map");
    const Array curvatures{1.0, 0.5, slow};
    const auto quadratic = [&](Expr x, Expr t) { return 0.5 * sum(curvatures * square(x - t)); };
    expect_no_answer(solve(gradient_descent(quadratic, {}, {.tolerance = 1e-6}), zeros({3}), ones({3})), "descent");
  }
}

TEST(EntriesOfOtherUnits, AreSolvedForByNewtonsMethod) {
  for (const double unit : {1e-16, 1e-9, 1e-3, 1.0, 1e3, 1e9, 1e12, 1e16}) {
    const auto f = [&](Expr z, Expr t) {
      const Expr p = slice(z, 0, 1), y = slice(z, 1, 2);
      return sum(0.5 * square(p / unit - 1.0) + exp(y) - 10.0 * t * y);
    };
    const auto g = [&](Expr z, Expr t) {
      const Expr p = slice(z, 0, 1), y = slice(z, 1, 2);
      return concat({p / unit - 1.0, exp(y) - 10.0 * t});
    };
    for (const double y : {1.0, -2.0, 4.0}) {
      for (const Solver& solver : {newton(f), newton_root(g)}) {
        const Solution s = solve(solver, Array{unit, y}, Array{1.0}, Implicit{});
        ASSERT_EQ(s.status(), Status::converged) << unit << s.message();
        EXPECT_NEAR(s.x()(1), std::log(10.0), 1e-12) << unit << ' ' << y;
        if (unit <= 1e9) { EXPECT_NEAR(s.vjp(Array{0.0, 1.0})[0].item(), 1, 1e-9) << unit << ' ' << y; }
      }
    }
  }
}

TEST(Plateau, NewtonsMethodComesBackFromWhereTheHessianVanishes) {
  const auto logistic = [](Expr x, Expr t) { return sum(softplus(x - t) + softplus(-x)); };
  const auto huber = [](Expr x, Expr t) {
    const Expr d = x - t;
    return sum(where(abs(d) < 1.0, 0.5 * square(d), abs(d) - 0.5));
  };
  const auto hyperbola = [](Expr x, Expr t) { return sum(sqrt(1.0 + square(x - t))); };
  for (const double start : {40.0, 100.0, 700.0, -300.0}) {
    const Solution s = solve(newton(logistic), Array{start}, 1.0);
    ASSERT_EQ(s.status(), Status::converged) << start << s.message();
    EXPECT_NEAR(s.x().item(), 0.5, 1e-12);
    EXPECT_NEAR(s.vjp(Array{1.0})[0].item(), 0.5, 1e-9);
  }
  for (const double start : {2.5, 50.0, -1e6}) {
    const Solution s = solve(newton(huber), Array{start}, 1.0);
    ASSERT_EQ(s.status(), Status::converged) << start << s.message();
    EXPECT_NEAR(s.x().item(), 1, 1e-12);
  }
  for (const double start : {1e6, 1e8, -1e8}) {
    const Solution s = solve(newton(hyperbola), Array{start}, 1.0);
    ASSERT_EQ(s.status(), Status::converged) << start << s.message();
    EXPECT_NEAR(s.x().item(), 1, 1e-9);
  }
}

TEST(FarSolution, BacktrackingGoesThereFromZero) {
  const auto f = [](Expr x, Expr t) { return sum(1e-12 * square(1e-12 * x - t)); };
  const Solution s = solve(gradient_descent(f, backtracking), Array{0.0}, 1.0);
  ASSERT_EQ(s.status(), Status::converged) << s.message();
  EXPECT_NEAR(s.x().item(), 1e12, 1e4);
}

}  // namespace
}  // namespace onestep
