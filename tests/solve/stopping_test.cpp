// Converged means near a solution: wherever the start was, in whatever units the problem is stated, next to barriers and at
// solutions that are zero.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "solve/monitor.h"
#include "solve/recipe.h"
#include "support/problems.h"

namespace onestep {
namespace {

using test::Logistic;
using test::Random;
using test::says;

const std::vector<double> far_starts{1, 1e2, 1e4, 1e6, 1e8, 1e10, 1e12};

double error(const Solution& s, double expected) {
  return std::fabs(test::entries_of(s.x())[0] - expected) / std::fabs(expected);
}

TEST(FarStart, NewtonFindsARootToTheToleranceWhereverItStarts) {
  const Solver root = newton_root([](Expr x, Expr y) { return square(x) - y; });
  for (const double start : far_starts) {
    const Solution s = solve(root, start, 2.0);
    ASSERT_EQ(s.status(), Status::converged) << start << s.message();
    EXPECT_LT(error(s, std::sqrt(2.0)), 1e-15) << start;
    EXPECT_NEAR(s.vjp(1.0)[0].item(), 1 / (2 * std::sqrt(2.0)), 1e-10) << start;
    EXPECT_NEAR(s.jvp(1.0)[0].item(), 1 / (2 * std::sqrt(2.0)), 1e-10) << start;
  }
}

TEST(FarStart, EverySolverFindsItsSolutionToTheTolerance) {
  // f = (x - t)²/2 + log cosh: strongly convex, its Hessian is between 1 and 2.
  const auto f = [](Expr x, Expr t) { return sum(0.5 * square(x - t) + softplus(2.0 * x) - x); };
  const auto g = [f](Expr x, Expr t) { return grad(f(x, t), x); };
  const Array t{1.5, -0.25, 3.0};
  const Array expected = solve(newton(f, {.tolerance = 1e-14}), zeros({3}), t).x();
  for (const double far : far_starts) {
    const Array start{far, -far, 0.5 * far};
    const auto check = [&](const char* name, const Solver& solver, const Parts& x0, double tolerance) {
      const Solution s = solve(solver, x0, t);
      EXPECT_EQ(s.status(), Status::converged) << name << far << s.message();
      EXPECT_LT(test::relative_error(s.x(), expected), tolerance) << name << far;
    };
    check("newton", newton(f), start, 1e-14);
    check("newton_cg", newton_cg(f), start, 1e-14);
    check("newton_root", newton_root(g), start, 1e-14);
    check("fixed_point", fixed_point([g](Expr x, Expr p) { return x - 0.5 * g(x, p); }), start, 2e-10);
    check("fixed α", gradient_descent(f, {.step = GradientStep::fixed(0.4)}), start, 2e-10);
    check("1/L", gradient_descent(f, {.step = GradientStep::inverse_smoothness(2)}), start, 2e-10);
    check("backtracking", gradient_descent(f, {.step = GradientStep::backtracking()}), start, 2e-10);
    for (const Momentum& m : {Momentum::heavy_ball(0.3), Momentum::nesterov(0.3)})
      check("momentum", gradient_descent(f, {.step = GradientStep::fixed(0.4), .momentum = m}), {start, start}, 1e-9);
  }
}

TEST(Scaling, OfVariablesAndObjectiveDoesNotChangeTheAnswer) {
  Random random(101);
  for (int k = 0; k < 12; ++k) {
    const std::int64_t n = random.integer(1, 6);
    const Array A = random.array({n + 4, n}), t = random.array({n + 4});
    const auto objective = [&](double units, double weight) {
      return [&A, units, weight](Expr x, Expr b) {
        const Expr z = x / units;
        return weight * (sum(softplus(matmul(A, z) - b)) + 0.5 * sum(square(z)) - sum(z));
      };
    };
    const Array x = solve(newton(objective(1, 1), {.tolerance = 1e-14}), zeros({n}), t).x();
    for (const double units : {1e-12, 1e-6, 1.0, 1e6, 1e12})
      for (const double weight : {1e-12, 1.0, 1e12}) {
        const auto f = objective(units, weight);
        const Array start = test::times(units, random.array({n}));
        const auto check = [&](const char* name, const Solver& solver, double tolerance) {
          const Solution s = solve(solver, start, t);
          EXPECT_EQ(s.status(), Status::converged) << name << units << ' ' << weight << s.message();
          EXPECT_LT(test::relative_error(test::times(1 / units, s.x()), x), tolerance) << name << units << ' ' << weight;
        };
        check("newton", newton(f), 1e-12);
        check("newton_cg", newton_cg(f), 1e-9);
        check("newton_root", newton_root([f](Expr z, Expr b) { return grad(f(z, b), z); }), 1e-12);
        const double L = weight * (1 + 0.25 * test::spectral_norm(A) * test::spectral_norm(A)) / (units * units);
        check("gradient descent", gradient_descent(f, {.step = GradientStep::inverse_smoothness(L)}), 1e-7);
        check("backtracking", gradient_descent(f, {.step = GradientStep::backtracking(1 / L)}), 1e-7);
      }
  }
}

TEST(Barrier, NewtonLeavesTheEdgeOfTheDomain) {
  // max x + λ(log(1+x) + log(1-x)): diffcp's test_dprojection_exp.
  const auto f = [](Expr x, Expr l) { return -sum(x + l * (log(1.0 + x) + log(1.0 - x))); };
  const double expected = std::sqrt(2.0) - 1, derivative = -1 + 1 / std::sqrt(2.0);
  for (const double gap : {0.5, 1e-2, 1e-5, 1e-8, 1e-11, 1e-14, 1e-15, 0x1p-53})
    for (const double side : {1.0, -1.0})
      for (const Solver& solver : {newton(f), newton_cg(f), newton_root([f](Expr x, Expr l) { return grad(f(x, l), x); })}) {
        const Solution s = solve(solver, Array{side * (1 - gap)}, Array{1.0});
        ASSERT_EQ(s.status(), Status::converged) << gap << s.message();
        EXPECT_LT(error(s, expected), 1e-14) << gap;
        EXPECT_NEAR(s.vjp(Array{1.0})[0](0), derivative, 1e-9);
      }
}

TEST(Barrier, AStepThatEndsNextToABarrierIsNotTheLast) {
  // x²/2 - y log x: the first step from 1 ends at 2e-12, next to the barrier at zero, the minimum is at √y.
  const auto f = [](Expr x, Expr y) { return sum(0.5 * square(x) - y * log(x)); };
  // The same with the barrier at 1, where steps next to it are short relative to |x|.
  const auto moved = [f](Expr x, Expr y) { return f(x - 1.0, y); };
  for (const double y : {1e-4, 1e-8, 1e-12, 1e-16})
    for (const double start : {1.0, 1e-3, 1e3}) {
      for (const Solver& solver : {newton(f), newton_cg(f), newton_root([f](Expr x, Expr p) { return grad(f(x, p), x); })}) {
        const Solution s = solve(solver, Array{start}, Array{y});
        ASSERT_EQ(s.status(), Status::converged) << y << ' ' << start << s.message();
        EXPECT_LT(error(s, std::sqrt(y)), 1e-12) << y << ' ' << start;
      }
      for (const Solver& solver :
           {newton(moved), newton_cg(moved), newton_root([moved](Expr x, Expr p) { return grad(moved(x, p), x); })}) {
        const Solution s = solve(solver, Array{1 + start}, Array{y});
        if (is_solution(s.status())) { EXPECT_NEAR(s.x()(0), 1 + std::sqrt(y), 1e-10) << y << ' ' << start << s.message(); }
      }
    }
}

TEST(Barrier, OneVariableNextToItsBarrierIsNotLostAmongTheOthers) {
  const auto f = [](Expr x, Expr y) { return 0.5 * sum(square(x)) - sum(y * log(x)); };
  for (const std::int64_t n : {2, 10, 50})
    for (const double first : {1e-3, 1e-9, 1e-15, 1e-18, 1e-30}) {
      std::vector<double> start(static_cast<std::size_t>(n), 1.0), y(static_cast<std::size_t>(n), 1.0);
      start[0] = first;
      y[0] = 1e-12;
      for (const Solver& solver : {newton(f), newton_cg(f)}) {
        const Solution s = solve(solver, Array({n}, start), Array({n}, y));
        if (!is_solution(s.status())) continue;
        EXPECT_NEAR(s.x()(0), 1e-6, 1e-9) << n << ' ' << first << s.message();
        EXPECT_NEAR(s.x()(1), 1.0, 1e-9);
      }
      const Solution s = solve(newton(f), Array({n}, start), Array({n}, y));
      EXPECT_EQ(s.status(), Status::converged) << n << ' ' << first << s.message();
    }
}

TEST(Barrier, OtherBarriersAreLeftToo) {
  struct Case {
    const char* name;
    std::function<Expr(Expr, Expr)> f;
    double edge, inside;  // the barrier, and on which side of it the domain is
    double expected;
  };
  // At y = 1; each of them is convex in its domain.
  const std::vector<Case> cases{
      {"1/x", [](Expr x, Expr y) { return x - 3.0 + y / (x - 3.0); }, 3, 1, 4},
      {"1/x²", [](Expr x, Expr y) { return x - 3.0 + y / square(x - 3.0); }, 3, 1, 3 + std::cbrt(2.0)},
      {"-√x", [](Expr x, Expr y) { return 0.5 * (x - 5.0) - y * sqrt(x - 5.0); }, 5, 1, 6},
      {"-log", [](Expr x, Expr y) { return (7.0 - x) - y * log(7.0 - x); }, 7, -1, 6},
      {"x log x", [](Expr x, Expr y) { return (x - 2.0) * log(x - 2.0) - y * (x - 2.0); }, 2, 1, 3},
  };
  for (const Case& c : cases)
    for (const double gap : {1e-1, 1e-4, 1e-8, 1e-11, 1e-13}) {
      const auto f = [&c](Expr x, Expr y) { return sum(c.f(x, y)); };
      for (const Solver& solver : {newton(f), newton_cg(f), newton_root([f](Expr x, Expr y) { return grad(f(x, y), x); })}) {
        const Solution s = solve(solver, Array{c.edge + c.inside * gap}, Array{1.0});
        if (is_solution(s.status())) { EXPECT_LT(error(s, c.expected), 1e-9) << c.name << ' ' << gap << ' ' << s.message(); }
      }
      const Solution s = solve(newton(f), Array{c.edge + c.inside * gap}, Array{1.0});
      EXPECT_EQ(s.status(), Status::converged) << c.name << ' ' << gap << ' ' << s.message();
    }
}

TEST(Barrier, ARootSearchNextToAPoleIsNotAtARoot) {
  // tan x = y and 1/(x - 3) = y from next to their poles.
  const double half_pi = std::acos(0.0);
  for (const double gap : {1e-2, 1e-6, 1e-10, 1e-12, 1e-14}) {
    const Solution tangent = solve(newton_root([](Expr x, Expr y) { return sin(x) / cos(x) - y; }), half_pi - gap, 1.0);
    if (is_solution(tangent.status())) { EXPECT_LT(std::fabs(std::tan(tangent.x().item()) - 1), 1e-9) << gap; }
    const Solution pole = solve(newton_root([](Expr x, Expr y) { return 1.0 / (x - 3.0) - y; }), 3 + gap, 1.0);
    ASSERT_EQ(pole.status(), Status::converged) << gap << pole.message();
    EXPECT_LT(error(pole, 4), 1e-14) << gap;
  }
}

TEST(ShortSteps, OfATinyStepSizeAreNoConvergence) {
  const auto f = [](Expr x, Expr t) { return 0.5 * sum(square(x - t)); };
  for (const double alpha : {1e-9, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15}) {
    const SolveOptions options{.max_iterations = 2000};
    const Solution s = solve(gradient_descent(f, {.step = GradientStep::fixed(alpha)}, options), Array{2.0}, Array{1.0});
    EXPECT_EQ(s.status(), Status::iteration_limit) << alpha << s.message();
    const Solution m =
        solve(gradient_descent(f, {.step = GradientStep::fixed(alpha), .momentum = Momentum::heavy_ball(0.5)}, options),
              {Array{2.0, -3.0}, Array{2.0, -3.0}}, Array{1.0, 5.0});
    EXPECT_EQ(m.status(), Status::iteration_limit) << alpha << m.message();
    const Solution p = solve(fixed_point([&](Expr x, Expr t) { return x - alpha * (x - t); }, options), Array{2.0, 1.0, 7.0},
                             Array{1.0, 3.0, 4.0});
    EXPECT_EQ(p.status(), Status::iteration_limit) << alpha << p.message();
  }
}

TEST(ShortSteps, OnAPlateauAreNoConvergence) {
  // One long step to a plateau whose slope is 1e-11; the minimum is at -1000.
  const auto f = [](Expr x, Expr t) {
    const Expr left = maximum(t - x, 0.0);
    return 0.5 * square(maximum(x - 1.0, 0.0)) + 1e-11 * x + 0.5 * square(left);
  };
  const Solution s = solve(gradient_descent(f, {.step = GradientStep::fixed(1.0)}, {.max_iterations = 500}), 3.0, -1000.0);
  EXPECT_FALSE(is_solution(s.status())) << s.message() << s.x();
  // Steps of constant length.
  const Solution walk = solve(fixed_point([](Expr x, Expr t) { return x + t; }, {.max_iterations = 500}), 1.0, 1e-12);
  EXPECT_EQ(walk.status(), Status::iteration_limit) << walk.message();
}

TEST(ShortSteps, OfARotationAreNoConvergence) {
  // jaxopt's test_rotation_map, also about a centre that is far away.
  for (const double angle : {2.0, 3.0, 4.0, 5.0, 6.0, 1.27, 1.73})
    for (const double centre : {0.0, 1.0, 1e6, 1e12}) {
      const double c = std::cos(2 * std::acos(0.0) / angle), d = std::sin(2 * std::acos(0.0) / angle);
      const Array R{{c, -d}, {d, c}};
      const Solution s = solve(fixed_point([&](Expr x, Expr p) { return p + matmul(R, x - p); }, {.max_iterations = 500}),
                               Array{centre + 1.0, centre}, Array{centre, centre});
      if (centre == 1e12) {
        EXPECT_NE(s.status(), Status::converged) << angle << s.message();
      } else {
        EXPECT_EQ(s.status(), Status::iteration_limit) << angle << ' ' << centre << s.message();
      }
    }
}

TEST(ShortSteps, OfASlowContractionCountWhenTheyAreSeenToContract) {
  for (const double rho : {0.9, 0.99, 0.999}) {
    const Solver slow = fixed_point([&](Expr x, Expr t) { return rho * x + (1 - rho) * t; }, {.max_iterations = 100000});
    const Solution s = solve(slow, Array{0.0}, Array{1.0});
    EXPECT_EQ(s.status(), Status::converged) << rho << s.message();
    EXPECT_LT(std::fabs(s.x()(0) - 1), 1.01e-10 * rho / (1 - rho));
    // A warm start need not wait for the steps to halve.
    const Solution warm = solve(slow, Array{1 + 1e-8}, Array{1.0});
    EXPECT_EQ(warm.status(), Status::converged) << rho << warm.message();
    EXPECT_LT(warm.statistics().iterations, 100) << rho;
  }
}

TEST(ShortSteps, WithATolerantToleranceAreStillNearTheSolution) {
  for (const double tolerance : {1e-1, 1e-2, 1e-4})
    for (const double rho : {0.5, 0.9, 0.99, 0.999}) {
      const Solution s = solve(fixed_point([&](Expr x, Expr t) { return rho * x + (1 - rho) * t; },
                                           {.tolerance = tolerance, .max_iterations = 100000}),
                               Array{50.0}, Array{1.0});
      EXPECT_EQ(s.status(), Status::converged) << rho << s.message();
      EXPECT_LT(std::fabs(s.x()(0) - 1), 0.3) << rho << ' ' << tolerance;
    }
}

TEST(SolutionAtZero, OfAContractionIsReached) {
  // jaxopt's test_grads_flat_landscape: F = θx, whose fixed point is zero whatever θ is.
  const Solver flat = fixed_point([](Expr x, Expr t) { return t * x; });
  for (const double start : {1e-12, 1.0, 1e12}) {
    const Solution s = solve(flat, test::times(start, Array{1.0, -0.5}), Array{0.05, 0.2}, Implicit{});
    ASSERT_EQ(s.status(), Status::converged) << s.message();
    EXPECT_LT(test::largest_entry(s.x()), 1e-150);
    EXPECT_LT(test::largest_entry(s.vjp(Array{1.0, 1.0})), 1e-140);
  }
  EXPECT_EQ(solve(flat, Array{1.0, -0.5}, Array{0.5, 0.9}).status(), Status::converged);
}

TEST(SolutionAtZero, IsNoScaleUnlessOneIsGiven) {
  // jaxopt's test_geometric_decay: a step of 1e-5 and |x| of 1e-2.
  const auto decay = [](Expr x, Expr t) { return t * x; };
  const Array t{0.9, 0.99, 0.999};
  const Solution without = solve(fixed_point(decay, {.tolerance = 1e-5}), ones({3}), t);
  EXPECT_EQ(without.status(), Status::iteration_limit);
  EXPECT_TRUE(says(without.message(), {"typical_x"}));
  const Solution with = solve(fixed_point(decay, {.tolerance = 1e-5, .typical_x = 1}), ones({3}), t, Implicit{});
  ASSERT_EQ(with.status(), Status::converged) << with.message();
  EXPECT_GT(test::largest_entry(with.x()), 1e-3);
  EXPECT_GT(with.certificate_jvp(ones({3})).distance, test::largest_entry(with.x()));
  // The same in other units.
  const Solution small = solve(fixed_point(decay, {.tolerance = 1e-5, .typical_x = 1e-12}), full({3}, 1e-12), t, Implicit{});
  EXPECT_EQ(small.statistics().iterations, with.statistics().iterations);
}

TEST(SolutionAtZero, OfNewtonIsReachedInAFewSteps) {
  const auto f = [](Expr x, Expr t) { return sum(0.25 * square(square(x)) + 0.5 * square(x) - t * x); };
  for (const double start : {1e-6, 1.0, 1e6})
    for (const Solver& solver : {newton(f), newton_cg(f), newton_root([f](Expr x, Expr t) { return grad(f(x, t), x); })}) {
      const Solution s = solve(solver, full({3}, start), zeros({3}));
      ASSERT_EQ(s.status(), Status::converged) << start << s.message();
      EXPECT_LT(test::largest_entry(s.x()), 1e-20);
      EXPECT_LT(s.statistics().iterations, 60);
      EXPECT_TRUE(test::near(s.vjp(Array{1.0, 2.0, 3.0}), Array{1.0, 2.0, 3.0}));
    }
}

TEST(SolutionAtZero, OfAProblemWithRoundingErrorsEnds) {
  Random random(8);
  for (int k = 0; k < 10; ++k) {
    const Array A = random.array({30, 4}), y = test::orthogonal_part(A, random.array({30}));
    const auto f = [&](Expr x, Expr w) { return sum(w * square(matmul(A, x) - y)); };
    for (const Solver& solver : {newton(f), newton_cg(f), gradient_descent(f, {.step = GradientStep::backtracking(0.01)})}) {
      const Solution s = solve(solver, ones({4}), ones({30}), Implicit{});
      EXPECT_TRUE(is_solution(s.status())) << s.message();
      EXPECT_LT(test::largest_entry(s.x()), 1e-12);
    }
  }
}

TEST(Options, TypicalXIsChecked) {
  const auto f = [](Expr x, Expr t) { return sum(square(x - t)); };
  for (const double bad : {-1.0, std::numeric_limits<double>::infinity(), std::nan("")})
    EXPECT_TRUE(says(test::error_of([&] { newton(f, {.typical_x = bad}); }), {"[solve]", "typical_x"}));
}

TEST(StartAtTheSolution, TakesOneStepWhereItIsExact) {
  const auto f = [](Expr x, Expr t) { return sum(square(x - t)); };
  const Array t{1.0, 2.0};
  for (const Solver& solver : {newton(f), newton_cg(f), newton_root([](Expr x, Expr p) { return x - p; }),
                               fixed_point([](Expr x, Expr p) { return 0.5 * (x + p); }), gradient_descent(f),
                               gradient_descent(f, {.step = GradientStep::backtracking()})}) {
    const Solution s = solve(solver, t, t);
    EXPECT_EQ(s.status(), Status::converged) << s.message();
    EXPECT_EQ(s.statistics().iterations, 1);
  }
}

TEST(StartAtTheSolution, TakesAFewStepsWhereItIsRounded) {
  Random random(9);
  for (int k = 0; k < 20; ++k) {
    const Logistic problem(random, 30, random.integer(1, 6));
    const auto f = problem.objective();
    const Array w = random.array({30}, 0.5, 1.5), x = solve(newton(f), problem.start(), w).x();
    for (const Solver& solver : {newton(f), newton_cg(f), newton_root([f](Expr z, Expr v) { return grad(f(z, v), z); })}) {
      const Solution s = solve(solver, x, w);
      EXPECT_TRUE(is_solution(s.status())) << s.message();
      EXPECT_LT(s.statistics().iterations, 12);
      EXPECT_LT(test::relative_error(s.x(), problem.solution(w)), 1e-13);
    }
  }
}

TEST(WarmStart, FromAnyDistanceLeadsToTheSolution) {
  Random random(10);
  const Logistic problem(random, 40, 5);
  const auto f = problem.objective();
  const Array w = problem.weights(), x = problem.solution(w);
  for (double distance = 1; distance > 1e-17; distance /= 10)
    for (const Solver& solver : {newton(f), newton_cg(f), newton_root([f](Expr z, Expr v) { return grad(f(z, v), z); }),
                                 gradient_descent(f), gradient_descent(f, {.step = GradientStep::backtracking()})}) {
      const Solution s = solve(solver, test::plus(x, test::times(distance, random.array({5}))), w);
      EXPECT_TRUE(is_solution(s.status())) << distance << s.message();
      EXPECT_LT(test::relative_error(s.x(), x), 1e-8) << distance;
    }
}

TEST(Degenerate, ADoubleRootIsFoundAndHasNoDerivative) {
  // Newton halves its error in each step; the root has no derivative.
  for (const double start : {3.0, 0.5, 1e6}) {
    const Solution at_zero = solve(newton_root([](Expr x, Expr t) { return square(x) * exp(t); }), start, 0.0);
    EXPECT_LT(std::fabs(at_zero.x().item()), 1e-100) << at_zero.message() << at_zero.x();
    const Solution s = solve(newton_root([](Expr x, Expr t) { return square(x - t); }), start, 1.0);
    EXPECT_TRUE(is_solution(s.status())) << s.message() << s.x();
    EXPECT_NEAR(s.x().item(), 1, 1e-9);
    EXPECT_EQ(s.certificate(1.0).basis, Certificate::Basis::refused) << s.certificate(1.0);
    EXPECT_THROW(solve(newton_root([](Expr x, Expr t) { return square(x - t); }), start, 1.0, Implicit{}).vjp(1.0),
                 NoDerivativeError);
  }
  const Solution quartic = solve(newton([](Expr x, Expr t) { return square(square(x - t)); }), 3.0, 1.0);
  EXPECT_EQ(quartic.certificate(1.0).basis, Certificate::Basis::refused) << quartic.certificate(1.0);
  EXPECT_NEAR(quartic.x().item(), 1, 1e-6);
}

// Where x is 0 steps become shorter until what they are made of underflows; the last of them is 0, as at a regular root.
TEST(Degenerate, ATripleRootAtZeroHasNoDerivativeThoughTheLastStepIsZero) {
  const Solver root = newton_root([](Expr x, Expr t) { return x * x * x - t; });
  const Solver quartic = newton([](Expr x, Expr t) { return square(square(x)) - t * x; });
  for (const Solver& solver : {root, quartic})
    for (const double start : {3.0, 1e-3, 1e6}) {
      const Solution s = solve(solver, start, 0.0);
      EXPECT_LT(std::fabs(s.x().item()), 1e-100) << s.message();
      EXPECT_THROW(s.vjp(1.0), NoDerivativeError);
      EXPECT_THROW(s.jvp(1.0), NoDerivativeError);
      EXPECT_EQ(s.certificate(1.0).basis, Certificate::Basis::refused) << s.certificate(1.0);
      EXPECT_THROW(solve(solver, start, 0.0, Implicit{}).vjp(1.0), NoDerivativeError);
    }
  const Solution regular = solve(root, 3.0, 1e-300);  // the same way, to a root that is one
  EXPECT_NEAR(double(regular.vjp(1.0)) / 3.3333333333333333e199, 1, 1e-9);
}

// Newton's steps halve from piece to piece of this root's polygon; the last one lands on the root, and no underflow is near.
TEST(Degenerate, ARootThatIsHitAfterStepsThatShrinkLinearlyHasADerivative) {
  std::vector<double> kinks(64);
  std::ranges::generate(kinks, [next = -0.5]() mutable { return ++next; });
  const Solver root = newton_root([k = Array(kinks)](Expr x, Expr t) { return x + sum(maximum(x - k, 0.0)) - t; });
  const Solution s = solve(root, 64.0, 0.0);
  EXPECT_EQ(s.status(), Status::converged);
  EXPECT_EQ(s.x().item(), 0);
  EXPECT_EQ(double(s.vjp(1.0)), 1);
}

TEST(Degenerate, ASaddleIsLeftOrSaidToBeSingular) {
  const auto f = [](Expr x, Expr t) { return sum(square(square(x) - t)); };
  for (const double start : {1e-3, 1e-6, 1e-9, 1e-12})
    for (const Solver& solver : {newton(f), newton_cg(f)}) {
      const Solution s = solve(solver, Array{start, -start}, Array{1.0, 4.0});
      if (is_solution(s.status())) { EXPECT_TRUE(test::near(s.x(), Array{1.0, -2.0}, 1e-9)) << start; }
    }
  EXPECT_EQ(solve(newton(f), zeros({2}), ones({2})).status(), Status::singular);
}

TEST(Property, WhatIsCalledConvergedIsNearASolutionFromAnyStartAtAnyTolerance) {
  Random random(11);
  int converged = 0, all = 0;
  for (int k = 0; k < 60; ++k) {
    const std::int64_t n = random.integer(1, 3) == 3 ? 20 : random.integer(1, 5);
    const double units = std::pow(10.0, random.uniform(-12, 12)), weight = std::pow(10.0, random.uniform(-12, 12)),
                 far = std::pow(10.0, random.uniform(0, 12)), tolerance = std::pow(10.0, random.uniform(-15, -2));
    // Curvatures from 0.3 to 3 and a quartic term.
    const Array d = random.array({n}, 0.3, 3.0), t = random.array({n}, 0.5, 2.0);
    const auto f = [&](Expr x, Expr p) {
      const Expr z = x / units;
      return weight * sum(d * (0.5 * square(z) + 0.05 * square(square(z))) - p * z);
    };
    std::vector<double> expected;
    for (std::int64_t i = 0; i < n; ++i) {
      double z = 1;
      for (int j = 0; j < 100; ++j) z -= (d(i) * (z + 0.2 * z * z * z) - t(i)) / (d(i) * (1 + 0.6 * z * z));
      expected.push_back(units * z);
    }
    const Array start = test::times(units * far, random.array({n})), near_start = test::times(units, random.array({n}));
    const SolveOptions options{.tolerance = tolerance, .max_iterations = 3000};
    const auto check = [&](const char* name, const Solver& solver, const Array& x0, double allowed) {
      const Solution s = solve(solver, x0, t);
      ++all;
      if (!is_solution(s.status())) return;
      ++converged;
      EXPECT_LT(test::relative_error(s.x(), Array({n}, expected)), allowed)
          << name << " units " << units << " weight " << weight << " far " << far << " tolerance " << tolerance
          << s.message();
    };
    const double quadratic = std::max(100 * tolerance * tolerance, 1e-11), linear = std::max(20 * tolerance, 1e-11);
    check("newton", newton(f, options), start, quadratic);
    check("newton_cg", newton_cg(f, {}, options), start, std::max(10 * tolerance, 1e-9));
    check("newton_root", newton_root([f](Expr x, Expr p) { return grad(f(x, p), x); }, options), start, quadratic);
    const double L = 12 * weight / (units * units);
    check("gradient_descent", gradient_descent(f, {.step = GradientStep::fixed(1 / L)}, options), near_start, 5 * linear);
    check("backtracking", gradient_descent(f, {.step = GradientStep::backtracking(1 / L)}, options), start, 5 * linear);
  }
  EXPECT_GT(converged, 0.95 * all);
}

TEST(Known, ConstantsGivenAreAddedToThoseTheMethodWorkedOut) {
  // ρ = 1 - μ/L follows from the constants of gradient descent; the user adds ‖B‖.
  const auto f = [](Expr x, Expr t) { return 0.5 * sum(square(x)) - sum(t * x); };
  const Solver s = gradient_descent(f, {.step = {GradientStep::Kind::inverse_smoothness, 0, 0.5, 2}}).knowing({.norm_B = 3});
  const Parts x = ones({2});
  const Shape theta{2};
  const Constants known = detail::recipe_of(s).ready(&x, {&theta, 1}).method->known;
  EXPECT_EQ(known.rho, 0.75);
  EXPECT_EQ(known.norm_B, 3);
  EXPECT_LT(known.L_A, 0);
}

TEST(Sublinear, ConvergenceIsNoneWhereTheSolutionIsFar) {
  // x + t exp(-x) has no fixed point: steps of 1/k. The root of (x - 1)³ = 2t, with steps of k^-3/2, is at 1.00126; that of
  // (x - 1)² = 0 is reached by steps of 1/k².
  struct Case {
    const char* name;
    std::function<Expr(Expr, Expr)> F;
    double start, t, solution;
  };
  const std::vector<Case> cases{
      {"exp", [](Expr x, Expr t) { return x + t * exp(-x); }, 0, 1, std::numeric_limits<double>::infinity()},
      {"exp 2", [](Expr x, Expr t) { return x + t * exp(-2.0 * x); }, 3, 1, std::numeric_limits<double>::infinity()},
      {"1/x", [](Expr x, Expr t) { return x + t / x; }, 1, 1, std::numeric_limits<double>::infinity()},
      {"cubic", [](Expr x, Expr t) { return x - 0.5 * (x - 1.0) * square(x - 1.0) + t; }, 2, 1e-9, 1 + std::cbrt(2e-9)},
      {"cubic, near", [](Expr x, Expr t) { return x - 0.5 * (x - 1.0) * square(x - 1.0) + t; }, 1.2, 1e-9,
       1 + std::cbrt(2e-9)},
      {"square", [](Expr x, Expr t) { return x - 0.5 * t * square(x - 1.0); }, 2, 1, 1},
      {"fifth", [](Expr x, Expr t) { return x - 0.5 * t * square(square(x - 1.0)) * (x - 1.0); }, 2, 1, 1}};
  for (const Case& c : cases)
    for (const double tolerance : {1e-2, 1e-3, 1e-4, 1e-6, 1e-8}) {
      const Solver solver = fixed_point(c.F, {.tolerance = tolerance, .max_iterations = 20000});
      const Solution s = solve(solver, c.start, c.t);
      if (!is_solution(s.status())) continue;
      EXPECT_LT(std::fabs(s.x().item() - c.solution), (tolerance <= 1e-3 ? 2 * tolerance : 0.15) * c.solution)
          << c.name << ' ' << tolerance << ' ' << s.x() << ' ' << s.message();
    }
}

TEST(StationaryStart, ThatIsNoMinimumIsLeftByGradientDescent) {
  // Minima of (x² - 1)²/4 at ±1, a maximum at 0; of the same with y²/2 added a saddle; of cos at ±π.
  const auto well = [](Expr x, Expr t) { return 0.25 * sum(square(square(x) - t)); };
  const auto saddle = [](Expr x, Expr t) {
    return 0.25 * sum(square(square(slice(x, 0, 1)) - t)) + 0.5 * sum(square(slice(x, 1, 3)));
  };
  const std::vector<GradientDescent> ways{{.step = GradientStep::fixed(0.2)},
                                          {.step = GradientStep::backtracking()},
                                          {.step = GradientStep::backtracking(0.01)}};
  for (const GradientDescent& how : ways) {
    const Solution top = solve(gradient_descent(well, how), Array{0.0}, Array{1.0});
    ASSERT_EQ(top.status(), Status::converged) << top.message();
    EXPECT_NEAR(std::fabs(top.x()(0)), 1, 1e-8);
    EXPECT_EQ(top.statistics().restarts, 1);
    EXPECT_TRUE(says(top.message(), {"no minimum"})) << top.message();
    const Solution beside = solve(gradient_descent(saddle, how), zeros(3), Array{1.0});
    ASSERT_EQ(beside.status(), Status::converged) << beside.message();
    EXPECT_NEAR(std::fabs(beside.x()(0)), 1, 1e-8);
    EXPECT_LT(std::fabs(beside.x()(1)), 1e-8);
    const Solution bottom = solve(gradient_descent(well, how), Array{1.0}, Array{1.0});
    EXPECT_EQ(bottom.status(), Status::converged);
    EXPECT_EQ(bottom.statistics().iterations, 1);
    EXPECT_EQ(bottom.statistics().restarts, 0);
    // Nothing holds it.
    const Solution fall =
        solve(gradient_descent([](Expr x, Expr t) { return -0.5 * sum(t * square(x)); }, how, {.max_iterations = 1000}),
              Array{0.0}, Array{1.0});
    EXPECT_FALSE(is_solution(fall.status())) << fall.message();
  }
  const Solution cosine = solve(gradient_descent([](Expr x, Expr t) { return sum(t * cos(x)); }), Array{0.0}, Array{3.0});
  ASSERT_EQ(cosine.status(), Status::converged) << cosine.message();
  EXPECT_NEAR(std::fabs(cosine.x()(0)), std::acos(-1.0), 1e-12);
  const Solution heavy =
      solve(gradient_descent(well, {.step = GradientStep::fixed(0.2), .momentum = Momentum::heavy_ball(0.5)}),
            {Array{0.0}, Array{0.0}}, Array{1.0});
  ASSERT_EQ(heavy.status(), Status::converged) << heavy.message();
  EXPECT_NEAR(std::fabs(heavy.x()(0)), 1, 1e-8);
}

TEST(StationaryStart, ThatIsAMinimumOfSeveralIsOne) {
  // Flat along (1, -1).
  const auto valley = [](Expr x, Expr t) { return 0.5 * square(sum(x) - t); };
  for (const GradientDescent& how : {GradientDescent{}, GradientDescent{.step = GradientStep::backtracking()}}) {
    const Solution s = solve(gradient_descent(valley, how), Array{0.5, 0.5}, 1.0);
    EXPECT_EQ(s.status(), Status::converged) << s.message();
    EXPECT_EQ(s.statistics().restarts, 0);
  }
}

TEST(StationaryStart, ThatIsNoMinimumIsNotConvergedByNewton) {
  const auto well = [](Expr x, Expr t) { return 0.25 * sum(square(square(x) - t)); };
  for (const std::int64_t n : {1, 2, 50}) {
    const Solution newtons = solve(newton(well), zeros(n), ones(n)), by_products = solve(newton_cg(well), zeros(n), ones(n));
    EXPECT_EQ(newtons.status(), Status::singular) << newtons.message();
    EXPECT_EQ(by_products.status(), Status::singular) << by_products.message();
  }
  // One negative eigenvalue among many.
  const std::int64_t n = 20000;
  const auto saddle = [](Expr x, Expr t) { return 0.5 * sum(square(x)) - sum(square(slice(x, 0, 1))) + 0.0 * sum(t); };
  const Solution s = solve(newton_cg(saddle), zeros(n), 1.0);
  EXPECT_EQ(s.status(), Status::singular) << s.message();
}

// With an objective in small units a step of a given length is lost in the rounding of x: it stands still, but not at a
// solution. Backtracking finds the length; a fixed one is refused.
TEST(Stopping, AStepThatRoundingSwallowsIsNoSolution) {
  const Array start{3.0, 4.0}, theta{1.0, 2.0};
  for (const double scale : {1e-8, 1e-12, 1e-16, 1e-17, 1e-24}) {
    const auto f = [scale](Expr x, Expr t) { return 0.5 * scale * sum(square(x - t)); };
    const Solution found = solve(gradient_descent(f, {.step = GradientStep::backtracking()}), start, theta, Implicit{});
    ASSERT_EQ(found.status(), Status::converged) << scale << ": " << found.message();
    EXPECT_LT(test::relative_error(found.x(), theta), 1e-9) << scale;
    for (const Momentum& momentum : {Momentum::none(), Momentum::nesterov(0.5)}) {
      const GradientDescent lost{.step = GradientStep::fixed(1), .momentum = momentum};
      const Solution s = solve(gradient_descent(f, lost, {.max_iterations = 100}), start, theta, Implicit{});
      EXPECT_FALSE(is_solution(s.status())) << scale;
    }
  }
  // A step of zero at the solution is one.
  const auto f = [](Expr x, Expr t) { return sum(square(x - t)); };
  EXPECT_EQ(solve(gradient_descent(f, {.step = GradientStep::fixed(0.1)}), theta, theta, Implicit{}).status(),
            Status::converged);
  EXPECT_EQ(solve(gradient_descent(f, {.step = GradientStep::fixed(0.5)}), start, theta, Implicit{}).status(),
            Status::converged);
}

}  // namespace
}  // namespace onestep
