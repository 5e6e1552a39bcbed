// Newton-CG: the minimisers Newton's method finds, without the Hessian; how it ends, what it counts, what it refuses.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <atomic>

#include "support/problems.h"
#include "support/softmax.h"

namespace onestep {
namespace {

using test::Random;
using test::says;
using test::Softmax;

TEST(NewtonCg, FindsNewtonsMinimiserOfLogisticRegression) {
  Random random(1);
  for (const auto& [rows, n] : {std::pair{40, 5}, {200, 30}, {100, 150}}) {
    const test::Logistic problem(random, rows, n);
    const Array w = random.array({rows}, 0.5, 1.5);
    const Solution s = solve(newton_cg(problem.objective()), problem.start(), w);
    EXPECT_EQ(s.status(), Status::converged) << s.message();
    EXPECT_LT(test::relative_error(s.x(), problem.solution(w)), 1e-10);
  }
}

TEST(NewtonCg, FindsNewtonsMinimiserOfSoftmaxRegression) {
  Random random(2);
  const Softmax problem(random, 60, 4, 3);
  const Parts theta{random.array({60}, 0.5, 1.5), Array(0.3)};
  const Solution cg = solve(newton_cg(problem.objective()), problem.start(), theta),
                 dense = solve(newton(problem.objective()), problem.start(), theta);
  EXPECT_EQ(cg.status(), Status::converged) << cg.message();
  EXPECT_EQ(cg.x().shape(), (Shape{4, 3}));
  EXPECT_LT(test::relative_error(cg.x(), dense.x()), 1e-10);
}

TEST(NewtonCg, TakesSeveralParts) {
  const auto f = [](Expr a, Expr b, Expr t) { return sum(exp(a)) - sum(a * t) + sum(square(b - sum(a))) + sum(square(a)); };
  const Parts x0{zeros({3}), zeros({2, 2})};
  const Array t{1.0, 2.0, 3.0};
  const Solution cg = solve(newton_cg(f), x0, t), dense = solve(newton(f), x0, t);
  EXPECT_TRUE(test::near(cg.x(0), dense.x(0), 1e-10));
  EXPECT_TRUE(test::near(cg.x(1), dense.x(1), 1e-10));
}

TEST(NewtonCg, APreconditionerSavesProductsAndKeepsTheAnswer) {
  // Badly scaled: eigenvalues from 1e-3 to 1e3, all different.
  constexpr std::int64_t n = 60;
  std::vector<double> scales;
  for (std::int64_t i = 0; i < n; ++i) scales.push_back(std::pow(10.0, -3 + 6 * static_cast<double>(i) / (n - 1)));
  const Array D({n}, scales);
  const auto f = [&](Expr x, Expr t) { return sum(D * (square(x - t) + 0.1 * softplus(x))); };
  Random random(21);
  const Array t = random.array({n});
  NewtonCgOptions how;
  how.preconditioner = [&](std::span<double> r) {
    for (std::size_t i = 0; i < r.size(); ++i) r[i] /= scales[i];
  };
  const Solution plain = solve(newton_cg(f), zeros({n}), t), preconditioned = solve(newton_cg(f, how), zeros({n}), t);
  EXPECT_EQ(preconditioned.status(), Status::converged);
  EXPECT_TRUE(test::near(preconditioned.x(), plain.x(), 1e-8));
  EXPECT_LT(3 * preconditioned.statistics().products, plain.statistics().products);
  const Array c = random.array({n});
  EXPECT_TRUE(test::near(preconditioned.vjp(c), plain.vjp(c), 1e-7));
  EXPECT_LT(3 * preconditioned.report().products, plain.report().products);
}

TEST(NewtonCg, DerivativesOfARoughSolveAreRoughAndCheap) {
  Random random(22);
  const Softmax problem(random, 200, 20, 5);
  const Parts theta{ones({200}), Array(0.01)};
  const Array c = random.array({20, 5});
  const Solution exact = solve(newton_cg(problem.objective()), problem.start(), theta),
                 rough = solve(newton_cg(problem.objective(), {}, {.tolerance = 1e-3}), problem.start(), theta);
  const Array g = exact.vjp(c)[0];
  const int products = exact.report().products;
  const Array h = rough.vjp(c)[0];
  EXPECT_LT(rough.report().products, 0.7 * products);
  EXPECT_EQ(rough.report().status, Status::converged);
  EXPECT_LE(rough.report().residual, 1e-4);
  EXPECT_TRUE(test::near(h, g, 1e-2));
}

TEST(NewtonCg, AStepToAnInfiniteValueIsShortened) {
  // Poisson regression far from its solution: the first full step is 999 long, where exp is infinite.
  const auto f = [](Expr x, Expr t) { return sum(exp(x) - t * x); };
  const Array t{1000.0, 500.0};
  for (const Solver& solver : {newton_cg(f), newton(f)}) {
    const Solution s = solve(solver, zeros({2}), t);
    EXPECT_EQ(s.status(), Status::converged) << s.message();
    EXPECT_TRUE(test::near(s.x(), Array{std::log(1000.0), std::log(500.0)}, 1e-12));
  }
}

// Conjugate gradients end after as many steps as there are different eigenvalues.
TEST(NewtonCg, SolvesQuadraticsExactly) {
  const Array D{1.0, 10.0, 100.0, 1.0, 10.0, 100.0}, b{1.0, -2.0, 3.0, 0.5, 0.0, 7.0};
  const Solution s =
      solve(newton_cg([D](Expr x, Expr t) { return 0.5 * sum(D * square(x)) - sum(t * x); }, {.first_residual = 1e-12}),
            zeros({6}), b);
  EXPECT_EQ(s.status(), Status::converged);
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_NEAR(s.x()(i), b(i) / D(i), 1e-14);
  EXPECT_LE(s.statistics().iterations, 2);
  EXPECT_LE(s.statistics().products, 9);  // one of them to see whether anything is left
}

// A short step in the large unit hides that the other variable has not moved at all.
TEST(NewtonCg, VariablesInVeryDifferentUnitsAreFoundOrRefused) {
  for (int exponent = 0; exponent <= 11; ++exponent) {
    const double unit = std::pow(10.0, exponent);
    for (const double start : {1.5, -2.0, 4.0}) {
      const Solution s = solve(
          newton_cg([unit](Expr x, Expr t) { return sqrt(1.0 + square(x[0] - t)) + sqrt(1.0 + square(x[1] * unit - t)); }),
          Array{3.0, start / unit}, 1.0);
      if (!is_solution(s.status())) continue;
      EXPECT_NEAR(s.x()(0), 1, 1e-6) << unit << ' ' << start;
      EXPECT_NEAR(s.x()(1) * unit, 1, 1e-6) << unit << ' ' << start;
    }
  }
}

TEST(NewtonCg, CountsWhatItDid) {
  Random random(3);
  const test::Logistic problem(random, 60, 8);
  std::vector<double> steps;
  const SolveOptions options{.callback =
                                 [&](const Iteration& i) {
                                   steps.push_back(i.step);
                                   return true;
                                 },
                             .history = true};
  const Solution s = solve(newton_cg(problem.objective(), {}, options), problem.start(), problem.weights());
  const Statistics& took = s.statistics();
  EXPECT_EQ(took.evaluations, took.iterations + took.backtracks);
  EXPECT_GE(took.products, took.iterations);
  EXPECT_EQ(took.factorisations, 0);
  EXPECT_EQ(took.shifts, 0);
  EXPECT_EQ(took.history, steps);
}

TEST(NewtonCg, ConvergesSuperlinearly) {
  Random random(4);
  const Softmax problem(random, 80, 6, 4);
  const Solution s = solve(newton_cg(problem.objective(), {}, {.tolerance = 1e-13, .history = true}), problem.start(),
                           {ones({80}), Array(0.1)});
  const std::vector<double>& steps = s.statistics().history;
  ASSERT_GE(steps.size(), 4U);
  EXPECT_LT(steps[steps.size() - 1], 1e-3 * steps[steps.size() - 2]);
  EXPECT_LE(s.statistics().iterations, 15);
}

TEST(NewtonCg, StartsWarm) {
  Random random(5);
  const Softmax problem(random, 60, 5, 3);
  const Parts theta{ones({60}), Array(0.2)}, near_by{random.array({60}, 0.99, 1.01), Array(0.2)};
  Prepared again(newton_cg(problem.objective()), problem.start(), theta);
  const Solution& s = again.solve(problem.start(), theta);
  const int cold = s.statistics().products;
  again.solve(s.x(), near_by);
  EXPECT_EQ(s.status(), Status::converged);
  EXPECT_LT(s.statistics().products, cold);
  EXPECT_LT(test::relative_error(s.x(), solve(newton_cg(problem.objective()), problem.start(), near_by).x()), 1e-10);
}

// Σ (a - xᵢ)² + 100 (xᵢ₊₁ - xᵢ²)²: its Hessian is indefinite where it starts.
Expr rosenbrock(const Expr& x, const Expr& a, std::int64_t n) {
  const Expr from = slice(x, 0, n - 1), to = slice(x, 1, n);
  return sum(square(a - from)) + 100.0 * sum(square(to - square(from)));
}

TEST(NewtonCg, LeavesRegionsOfNegativeCurvature) {
  constexpr std::int64_t n = 30;
  Random random(6);
  for (int k = 0; k < 10; ++k) {
    const Solution s = solve(newton_cg([](Expr x, Expr a) { return rosenbrock(x, a, n); }, {}, {.max_iterations = 500}),
                             random.array({n}, -1.0, 1.0), Array(1.0));
    EXPECT_EQ(s.status(), Status::converged) << s.message();
  }
  // Between two wells the curvature is negative everywhere.
  const Solution wells =
      solve(newton_cg([](Expr x, Expr t) { return sum(square(square(x) - t)); }), full({5}, 0.01), Array(1.0));
  EXPECT_EQ(wells.status(), Status::converged) << wells.message();
  EXPECT_GT(wells.statistics().shifts, 0);
  EXPECT_TRUE(test::near(wells.x(), ones({5}), 1e-12));
}

TEST(NewtonCg, AStationaryPointThatIsNoMinimumIsSingular) {
  const auto saddle = [](Expr x, Expr t) { return sum(t * square(x)); };
  EXPECT_EQ(solve(newton_cg(saddle), zeros({3}), Array{1.0, -1.0, 2.0}).status(), Status::singular);
  EXPECT_EQ(solve(newton_cg(saddle), zeros({3}), Array{1.0, 1.0, 2.0}).status(), Status::converged);
}

TEST(NewtonCg, WhereTheHessianIsSingularXIsAMinimiserWithoutADerivative) {
  Random random(7);
  const Array A = random.array({4, 10});
  const Solution s =
      solve(newton_cg([A](Expr x, Expr y) { return sum(square(matmul(A, x) - y)); }), zeros({10}), random.array({4}));
  EXPECT_TRUE(is_solution(s.status())) << s.message();
  const Array c = random.array({10});
  try {
    s.vjp(c);
    FAIL() << "a derivative that does not exist";
  } catch (const NoDerivativeError& e) {
    EXPECT_EQ(e.status, Status::singular);
    EXPECT_GT(e.residual, 1e-3);
  }
  EXPECT_EQ(s.certificate(c).basis, Certificate::Basis::refused) << s.certificate(c).reason;
}

TEST(NewtonCg, SaysWhyItEnded) {
  Random random(8);
  const Softmax problem(random, 40, 4, 3);
  const Parts theta{ones({40}), Array(0.1)};
  const auto end = [&](const SolveOptions& options, const Parts& with) {
    return solve(newton_cg(problem.objective(), {}, options), problem.start(), with);
  };
  EXPECT_EQ(end({.max_iterations = 2}, theta).status(), Status::iteration_limit);
  EXPECT_EQ(end({.callback = [](const Iteration& i) { return i.number < 2; }}, theta).status(), Status::cancelled);
  EXPECT_EQ(end({.time_limit = 1e-9}, theta).status(), Status::time_limit);
  EXPECT_EQ(end({}, {ones({40}), Array(std::nan(""))}).status(), Status::not_finite);
  std::vector<double> bad(160, 1.0);
  bad[7] = std::nan("");
  const Array A({40, 4}, bad);
  const Solution s =
      solve(newton_cg([&](Expr x, Expr t) { return sum(t * softplus(matmul(A, x))); }), zeros({4}), Array(1.0));
  EXPECT_EQ(s.status(), Status::not_finite);
  EXPECT_TRUE(says(s.message(), {"constant of shape (40, 4)"}));
  EXPECT_EQ(
      solve(newton_cg([](Expr x, Expr t) { return t * sum(exp(x)); }, {}, {.max_iterations = 50}), zeros({2}), 1.0).status(),
      Status::iteration_limit);
  EXPECT_EQ(solve(newton_cg([](Expr x, Expr t) { return t * sum(sqrt(x)); }), zeros({2}), 1.0).status(), Status::not_finite);
}

TEST(NewtonCg, GivesTheDerivativeOfAnUnfinishedSolveOnlyWhenAsked) {
  Random random(9);
  const test::Logistic problem(random, 40, 6);
  const auto f = problem.objective();
  const Array c = random.array({6});
  for (const SolveOptions& options :
       {SolveOptions{.max_iterations = 2}, SolveOptions{.callback = [](const Iteration& i) { return i.number < 2; }}}) {
    const Solution s = solve(newton_cg(f, {.first_residual = 1e-12}, options), problem.start(), problem.weights());
    EXPECT_TRUE(says(test::error_of([&] { s.vjp(c); }), {"even_if_unconverged"}));
    // With steps that are solved well both methods stand at the same iterates, and so do their exact steps.
    const Solution dense = solve(newton(f, options), problem.start(), problem.weights());
    EXPECT_LT(test::relative_error(s.x(), dense.x()), 1e-2);
    EXPECT_LT(test::relative_error(s.even_if_unconverged().vjp(c), dense.even_if_unconverged().vjp(c)), 5e-2);
  }
}

TEST(NewtonCg, RefusesBadOptionsAndUnrolling) {
  const auto f = [](Expr x, Expr t) { return sum(square(x - t)); };
  EXPECT_TRUE(says(test::error_of([&] { newton_cg(f, {.derivative_tolerance = 0}); }), {"derivative_tolerance = 0"}));
  EXPECT_TRUE(says(test::error_of([&] { newton_cg(f, {.first_residual = 1}); }), {"first_residual = 1"}));
  EXPECT_TRUE(says(test::error_of([&] { newton_cg(f, {.max_products = 0}); }), {"max_products = 0"}));
  EXPECT_TRUE(says(test::error_of([&] { newton_cg(f, {}, {.tolerance = -1}); }), {"tolerance = -1"}));
  EXPECT_TRUE(says(test::error_of([&] { solve(newton_cg(f), zeros({2}), ones({2}), Unrolled{}); }),
                   {"[Unrolled]", "newton_cg", "KStep", "OneStep", "Implicit"}));
  EXPECT_TRUE(says(test::error_of([] { solve(newton_cg([](Expr x) { return x; }), zeros({2}), Parts()); }),
                   {"[newton_cg]", "one number"}));
}

// Random strictly convex functions: a quadratic, softplus of random planes and a little of a fourth power.
struct Minima {
  Solution by_cg, by_factor;
  double size;
};
Minima minima_of_random_function(std::uint32_t seed) {
  Random random(seed);
  const std::int64_t n = random.integer(1, 40), rows = random.integer(1, 60);
  const Array A = random.array({rows, n}), start = random.array({n}, -5, 5);
  const double scale = std::pow(10.0, random.uniform(-3, 3)), l2 = std::pow(10.0, random.uniform(-3, 1));
  const auto f = [&](Expr x, Expr b) {
    return scale *
           (sum(softplus(matmul(A, x))) - sum(b * x) * l2 + 0.5 * l2 * sum(square(x)) + 0.01 * sum(square(square(x))));
  };
  const Array b = random.array({n});
  Minima found{solve(newton_cg(f), start, b), solve(newton(f), start, b), 0};
  found.size = test::largest_entry(start) + test::largest_entry(found.by_factor.x());
  return found;
}

RC_GTEST_PROP(NewtonCgProperty, FindsTheMinimumOfRandomConvexFunctions, ()) {
  const Minima found = minima_of_random_function(*rc::gen::arbitrary<std::uint32_t>());
  RC_ASSERT(is_solution(found.by_cg.status()));
  RC_ASSERT(is_solution(found.by_factor.status()));
  RC_ASSERT(static_cast<bool>(test::near(found.by_cg.x(), found.by_factor.x(), 1e-9, found.size)));
}

// Terms of f cancel: its last decrease, from a step 3e-9 of x long, is lost in their rounding.
TEST(NewtonCg, TakesAStepWhoseDecreaseRoundingHides) {
  const Minima found = minima_of_random_function(29);
  EXPECT_EQ(found.by_cg.status(), Status::converged) << found.by_cg.message();
  EXPECT_TRUE(test::near(found.by_cg.x(), found.by_factor.x(), 1e-9, found.size));
}

}  // namespace
}  // namespace onestep
