// Numerical trouble: a status with a sentence that says what it is about, never an exception and never a wrong answer.
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <thread>

#include "support/problems.h"

namespace onestep {
namespace {

using test::error_of;
using test::Logistic;
using test::Random;
using test::says;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<Estimator> all_estimators() { return {OneStep{}, KStep{2}, Implicit{}, Unrolled{}, Auto{}}; }

// One solver of each kind for min ‖x - θ‖², all of which converge to θ.
std::vector<Solver> all_solvers(SolveOptions options = {}) {
  const auto f = [](Expr x, Expr t) { return sum(square(x - t)); };
  return {newton(f, options),
          newton_root([](Expr x, Expr t) { return x - t; }, options),
          fixed_point([](Expr x, Expr t) { return 0.5 * (x + t); }, options),
          gradient_descent(f, {}, options),
          gradient_descent(f, {.step = GradientStep::backtracking()}, options),
          fixed_point(ForeignStep{.apply =
                                      [](auto x, auto t, auto next) {
                                        for (std::size_t i = 0; i < x.size(); ++i)
                                          next[i] = 0.5 * (x[i] + t[0](static_cast<std::int64_t>(i)));
                                      }},
                      options)};
}

TEST(NotFinite, ThetaIsNamed) {
  for (const Solver& s : all_solvers())
    for (const double bad : {nan_value, infinity}) {
      const Solution solution = solve(s, zeros({2}), Array{1.0, bad});
      EXPECT_EQ(solution.status(), Status::not_finite);
      EXPECT_TRUE(says(solution.message(), {"theta"}));
    }
}

TEST(NotFinite, WhichOfSeveralParametersIsNamed) {
  const Solver s = newton([](Expr x, Expr a, Expr b) { return sum(square(x - a) + square(x - b)); });
  EXPECT_TRUE(says(solve(s, zeros({2}), {Array{1.0, 2.0}, Array{1.0, nan_value}}).message(), {"theta1"}));
}

TEST(NotFinite, TheStartIsNamed) {
  for (const Solver& s : all_solvers()) {
    const Solution solution = solve(s, Array{nan_value, 0.0}, ones({2}));
    EXPECT_EQ(solution.status(), Status::not_finite);
    EXPECT_TRUE(says(solution.message(), {"x0"}));
  }
}

TEST(NotFinite, AStartComputedFromThetaIsNamed) {
  const Solver s = all_solvers()[0].from([](Expr t) { return log(t - 2.0); });
  const Solution solution = solve(s, ones({2}));
  EXPECT_EQ(solution.status(), Status::not_finite);
  EXPECT_TRUE(says(solution.message(), {"x0"}));
}

TEST(NotFinite, AConstantTheFunctionClosedOverIsNamedByItsShape) {
  Random random(1);
  Logistic problem(random, 20, 3);
  std::vector<double> entries = test::entries_of(problem.A);
  entries[17] = nan_value;
  problem.A = Array(problem.A.shape(), entries);
  const auto f = problem.objective();
  for (const Solver& s : {newton(f), gradient_descent(f), gradient_descent(f, {.step = GradientStep::backtracking()}),
                          newton_root([f](Expr x, Expr w) { return grad(f(x, w), x); }),
                          fixed_point([f](Expr x, Expr w) { return x - 0.01 * grad(f(x, w), x); })}) {
    const Solution solution = solve(s, problem.start(), problem.weights());
    EXPECT_EQ(solution.status(), Status::not_finite) << solution.message();
    EXPECT_TRUE(says(solution.message(), {"constant of shape (20, 3)"}));
  }
}

TEST(NotFinite, ANaNThatIsNeverUsedDoesNoHarm) {
  const Array data{1.0, nan_value, 3.0}, present{1.0, 0.0, 1.0};
  const Solver mean = newton([&](Expr x, Expr w) { return sum(w * where(present, square(x - data), 0.0)); });
  const Solution s = solve(mean, Array(0.0), ones({3}));
  EXPECT_EQ(s.status(), Status::converged) << s.message();
  EXPECT_NEAR(s.x().item(), 2.0, 1e-14);
}

TEST(NotFinite, AFunctionLeftItsDomainInALaterIteration) {
  // √ of a state that falls below zero after a few steps.
  const Solver s = fixed_point([](Expr x, Expr t) { return sqrt(x) - t; });
  const Solution solution = solve(s, Array(4.0), Array(0.9));
  EXPECT_EQ(solution.status(), Status::not_finite) << solution.message();
  EXPECT_TRUE(says(solution.message(), {"iteration"}));
}

TEST(NotFinite, TheObjectiveAtTheStartIsSaid) {
  const Solution s = solve(newton([](Expr x, Expr t) { return sum(square(x) - t * log(x)); }), Array{-1.0}, Array{1.0});
  EXPECT_EQ(s.status(), Status::not_finite);
  EXPECT_TRUE(says(s.message(), {"start"}));
}

TEST(NotFinite, NoDerivativeIsGivenOfAStepThatWasNeverMade) {
  for (const Solver& solver : all_solvers())
    for (const Estimator& e : all_estimators()) {
      const Solution s = solve(solver, zeros({2}), Array{1.0, nan_value}, e);
      EXPECT_TRUE(says(error_of([&] { s.vjp(ones({2})); }), {"not_finite"}));
      EXPECT_TRUE(says(error_of([&] { s.even_if_unconverged().vjp(ones({2})); }), {"no step"}));
      EXPECT_TRUE(says(error_of([&] { s.even_if_unconverged().jvp(ones({2})); }), {"no step"}));
    }
}

TEST(Diverged, AFixedPointThatExpandsSaysSo) {
  for (const double factor : {2.0, -3.0, 1.5}) {
    const Solution s = solve(fixed_point([&](Expr x, Expr t) { return factor * x + t; }), zeros({3}), ones({3}));
    EXPECT_EQ(s.status(), Status::diverged) << factor << s.message();
    EXPECT_LT(s.statistics().iterations, 200);
    EXPECT_TRUE(says(error_of([&] { s.vjp(ones({3})); }), {"diverged"}));
  }
}

TEST(Diverged, AGradientStepThatIsTooLongSaysSo) {
  const auto f = [](Expr x, Expr t) { return sum(square(x - t)); };
  EXPECT_EQ(solve(gradient_descent(f, {.step = GradientStep::fixed(1.5)}), zeros({3}), ones({3})).status(),
            Status::diverged);
}

TEST(Diverged, FasterThanExponentialGrowthIsNotTakenForBadData) {
  const Solution s = solve(fixed_point([](Expr x, Expr t) { return square(x) + t; }), Array(1.0), Array(1.0));
  EXPECT_EQ(s.status(), Status::diverged) << s.message();
}

TEST(Diverged, GrowthAwayFromAnUnstablePointToAStableOneIsNoDivergence) {
  // x ← 2x(1 - x) from 1e-13: doubles for forty steps, then converges to 1/2.
  const Solution s = solve(fixed_point([](Expr x, Expr t) { return t * x * (1.0 - x); }), Array(1e-13), Array(2.0));
  EXPECT_EQ(s.status(), Status::converged) << s.message();
  EXPECT_NEAR(s.x().item(), 0.5, 1e-10);
}

TEST(NotContracting, TheCertificateRefusesAndSaysWhy) {
  // x0 is the fixed point -θ of 2x + θ: the loop stops at once, and nothing but the certificate can tell.
  const Solver expanding = fixed_point([](Expr x, Expr t) { return 2.0 * x + t; });
  for (const Estimator& e : all_estimators()) {
    const Solution s = solve(expanding, Array{-1.0, -2.0}, Array{1.0, 2.0}, e);
    ASSERT_EQ(s.status(), Status::converged);
    for (const Certificate& c : {s.certificate(ones({2})), s.certificate_jvp(ones({2}))}) {
      if (std::holds_alternative<Implicit>(e.kind()) || std::holds_alternative<Auto>(e.kind())) {
        EXPECT_LT(c.relative, 1e-12) << c;  // they need no contraction
        continue;
      }
      EXPECT_EQ(c.basis, Certificate::Basis::refused);
      EXPECT_EQ(c.bound, infinity);
      EXPECT_TRUE(says(c.reason, {"does not contract", "multiplied by 2"}));
    }
  }
  // Implicit differentiation needs no contraction.
  const Solution s = solve(expanding, Array{-1.0, -2.0}, Array{1.0, 2.0}, Implicit{});
  EXPECT_TRUE(test::near(s.jvp(Array{1.0, 0.0}), Array{-1.0, 0.0}));
}

TEST(NotContracting, DerivativesOfStepsAreGivenOnlyWhenTheyAreWanted) {
  const Solver expanding = fixed_point([](Expr x, Expr t) { return 2.0 * x + t; });
  for (const Estimator& e : {Estimator(OneStep{}), Estimator(KStep{2}), Estimator(Unrolled{})}) {
    const Solution s = solve(expanding, Array{-1.0, -2.0}, Array{1.0, 2.0}, e);
    EXPECT_TRUE(says(error_of([&] { s.vjp(ones({2})); }), {"[vjp]", "contract", "2", "Implicit", "even_if_unconverged"}));
    EXPECT_THROW(s.vjp(ones({2})), NoDerivativeError);
    EXPECT_TRUE(says(error_of([&] { s.jvp(ones({2})); }), {"[jvp]", "contract"}));
    // Two steps are two steps, although the solve made one: 1 + 2.
    const bool two = std::holds_alternative<KStep>(e.kind());
    EXPECT_TRUE(test::near(s.even_if_unconverged().vjp(ones({2})), full({2}, two ? 3.0 : 1.0)));
  }
  // A bound of 1.5 on a norm is no proof that the step does not contract.
  const Solver known = fixed_point([](Expr x, Expr t) { return 0.5 * x + t; }).knowing({.rho = 1.5});
  EXPECT_NO_THROW(solve(known, zeros({2}), ones({2})).vjp(ones({2})));
}

TEST(Infeasible, ThereIsNoPointToDifferentiateEvenIfItIsAskedFor) {
  const Solution s =
      solve(quadratic_program([](Expr c) { return TracedProgram{.Q = eye(2), .q = c, .lo = 1.0, .hi = 0.0}; }), zeros({2}));
  EXPECT_TRUE(says(error_of([&] { s.even_if_unconverged().vjp(ones({2})); }), {"infeasible", "no solution"}));
}

TEST(Prepared, NeedsNoStartWhereTheSolverNeedsNone) {
  Prepared box(quadratic_program([](Expr c) { return TracedProgram{.Q = eye(2), .q = -c, .lo = 0.0}; }), zeros({2}));
  EXPECT_NEAR(box.solve(Array{1.0, -1.0}).x()(0), 1, 1e-8);
  Prepared fit(newton([](Expr x, Expr t) { return sum(square(x - t)); }).from(zeros({2})), zeros({2}));
  EXPECT_NEAR(fit.solve(Array{1.0, -1.0}).x()(1), -1, 1e-12);
}

TEST(NotContracting, AStartAtTheSolutionOfAContractionIsNoReasonToRefuse) {
  // Normal or not: a transient growth passes.
  const Array A{{0.5, 10.0}, {0.0, 0.5}};
  const Solution s = solve(fixed_point([&](Expr x, Expr t) { return matmul(A, x) + 0.0 * t; }), zeros({2}), ones({2}));
  ASSERT_EQ(s.status(), Status::converged);
  EXPECT_TRUE(test::near(s.vjp(ones({2})), zeros({2})));
}

TEST(NotContracting, ARotationIsRefused) {
  const Array R{{0.6, -0.8}, {0.8, 0.6}};
  const Solution s =
      solve(fixed_point([&](Expr x, Expr t) { return matmul(R, x) + 0.0 * t; }), zeros({2}), ones({2}), OneStep{});
  ASSERT_EQ(s.status(), Status::converged);
  const Certificate c = s.certificate(ones({2}));
  EXPECT_EQ(c.basis, Certificate::Basis::refused);
  EXPECT_TRUE(says(c.reason, {"does not contract"}));
}

TEST(IterationLimit, TheLastPointIsReturnedAndTheDerivativeWithheld) {
  for (const Solver& solver : all_solvers({.tolerance = 1e-15, .max_iterations = 1})) {
    const Solution s = solve(solver, full({2}, 3.0), ones({2}));
    if (is_solution(s.status())) continue;  // Newton's methods need just one step here
    EXPECT_EQ(s.status(), Status::iteration_limit);
    EXPECT_EQ(s.statistics().iterations, 1);
    EXPECT_TRUE(says(s.message(), {"1 iteration"}));
    EXPECT_NE(s.x()(0), 3.0);
    EXPECT_TRUE(says(error_of([&] { s.vjp(ones({2})); }), {"[vjp]", "iteration_limit", "even_if_unconverged"}));
    EXPECT_TRUE(says(error_of([&] { s.jvp(ones({2})); }), {"[jvp]", "iteration_limit"}));
    EXPECT_TRUE(says(error_of([&] { s.jacobian(); }), {"iteration_limit"}));
    EXPECT_EQ(s.certificate(ones({2})).basis, Certificate::Basis::refused);
    EXPECT_TRUE(says(s.certificate(ones({2})).reason, {"iteration_limit"}));
  }
}

TEST(IterationLimit, TheDerivativeIsGivenWhenItIsWanted) {
  Random random(2);
  const Logistic problem(random, 30, 4);
  const Array c = random.array({4});
  for (const Estimator& e : all_estimators()) {
    const Solution stopped =
        solve(newton(problem.objective(), {.max_iterations = 2}), problem.start(), problem.weights(), e);
    ASSERT_EQ(stopped.status(), Status::iteration_limit);
    const Solution done = solve(newton(problem.objective()), problem.start(), problem.weights(), e);
    // Two Newton steps are on the way: not right, but no nonsense.
    EXPECT_LT(test::relative_error(stopped.even_if_unconverged().vjp(c), done.vjp(c)), 0.5);
    EXPECT_GT(test::relative_error(stopped.even_if_unconverged().vjp(c), done.vjp(c)), 1e-9);
  }
}

TEST(LineSearch, AnObjectiveWithoutAMinimumAlongTheStepFails) {
  // The derivative of the foreign function has the wrong sign: no step makes progress.
  struct WrongSign final : Foreign {
    std::string name() const override { return "wrong_sign"; }
    Shape shape(std::span<const Shape> in) const override { return in[0]; }
    void apply(std::span<const std::span<const double>> in, std::span<double> out) const override {
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = 4 - in[0][i];
    }
    bool has_vjp() const override { return true; }
    void vjp(std::span<const std::span<const double>>, std::span<const double> c, std::size_t,
             std::span<double> out) const override {
      std::ranges::copy(c, out.begin());
    }
  };
  const auto wrong = std::make_shared<WrongSign>();
  const Solver s =
      gradient_descent([&](Expr x, Expr t) { return sum(t * call(wrong, {x})); }, {.step = GradientStep::backtracking()});
  const Solution solution = solve(s, ones({2}), ones({2}));
  EXPECT_EQ(solution.status(), Status::line_search_failed) << solution.message();
  EXPECT_TRUE(says(solution.message(), {"iteration 1"}));
  EXPECT_TRUE(test::near(solution.x(), ones({2}), 0.0));
}

TEST(LineSearch, NewtonStopsAtAJumpThatNoStepGetsOver) {
  // A wall at 1 that the gradient does not see; the minimum behind it cannot be reached by going down.
  const Solver s = newton([](Expr x, Expr t) { return sum(square(x - t) + where(greater(x, 1.0), 100.0, 0.0)); });
  const Solution solution = solve(s, Array{1.0}, Array{2.0});
  EXPECT_EQ(solution.status(), Status::line_search_failed) << solution.message();
  EXPECT_EQ(solution.x()(0), 1.0);
}

TEST(LineSearch, ShortensStepsThatGoTooFarAndSaysHowOften) {
  // Newton's full step from 3 overshoots for softplus(x) + softplus(-x).
  const auto f = [](Expr x, Expr t) { return sum(softplus(4.0 * (x - t)) + softplus(4.0 * (t - x))); };
  const Solution s = solve(newton(f), Array{3.0}, Array{0.5}, OneStep{});
  EXPECT_EQ(s.status(), Status::converged);
  EXPECT_GT(s.statistics().backtracks, 0);
  EXPECT_NEAR(s.x()(0), 0.5, 1e-12);
  EXPECT_NEAR(s.jvp(Array{1.0})[0](0), 1.0, 1e-10);
}

TEST(LineSearch, StepsOutOfTheDomainAreShortened) {
  const Solver s = newton([](Expr x, Expr t) { return sum(x - t * log(x)); });
  const Solution solution = solve(s, Array{5.0}, Array{0.1});
  EXPECT_EQ(solution.status(), Status::converged) << solution.message();
  EXPECT_GT(solution.statistics().backtracks, 0);
  EXPECT_NEAR(solution.x()(0), 0.1, 1e-12);
}

TEST(LineSearch, BacktrackingGradientDescentReachesTheToleranceWhereTheObjectiveIsNotZero) {
  // Within √ε of the solution the objective does not change any more; the steps must go on shrinking.
  Random random(3);
  const Logistic problem(random, 40, 5);
  const Solution s = solve(gradient_descent(problem.objective(), {.step = GradientStep::backtracking()}), problem.start(),
                           problem.weights(), Implicit{});
  EXPECT_EQ(s.status(), Status::converged) << s.message();
  EXPECT_LT(test::relative_error(s.x(), problem.solution(ones({40}))), 1e-8);
}

// Where the gradient is rounding and no more, so is the step, whatever α is: the one that is differentiated has to contract.
TEST(LineSearch, BacktrackingGradientDescentFromTheSolutionKeepsItsStep) {
  for (const double tolerance : {0.0, 1e-10})
    for (const double theta : {1.0, 0.1, 1.0 / 3}) {
      const Solver s = gradient_descent(
          [](Expr x, Expr t) {
            return sum(square(x - t) * Array{0.5, 0.3});
          },
          {.step = GradientStep::backtracking()}, {.tolerance = tolerance});
      const Array start{theta, std::nextafter(theta, 2.0)};
      for (const Array& x0 : {start, Array{1.5 * theta, 0.3}}) {
        const Solution solution = solve(s, x0, theta, OneStep{});
        if (!is_solution(solution.status())) continue;
        const Array g = solution.jvp(1.0);  // α times the curvatures
        EXPECT_GT(g(0), 0.2) << tolerance << ' ' << theta;
        EXPECT_LE(g(0), 2) << tolerance << ' ' << theta;
        EXPECT_NEAR(g(1) / g(0), 0.6, 1e-9);
      }
    }
}

TEST(Singular, AHessianWithoutFullRankAtTheSolutionIsSaid) {
  // Only x0 + x1 is determined.
  const Solver s = newton([](Expr x, Expr t) { return square(sum(x) - t); });
  const Solution solution = solve(s, zeros({2}), Array(1.0));
  EXPECT_EQ(solution.status(), Status::singular) << solution.message();
  EXPECT_TRUE(says(solution.message(), {"diagonal"}));
  EXPECT_NEAR(solution.x()(0) + solution.x()(1), 1.0, 1e-9);
  EXPECT_TRUE(says(error_of([&] { solution.vjp(ones({2})); }), {"singular"}));
}

TEST(Singular, AJacobianOfARootThatIsSingularIsSaid) {
  const Solver s = newton_root([](Expr x, Expr t) { return concat({square(slice(x, 0, 1)) - t, slice(x, 0, 1) - t}); });
  const Solution solution = solve(s, Array{2.0, 1.0}, Array{1.0});
  EXPECT_EQ(solution.status(), Status::singular) << solution.message();
  EXPECT_TRUE(says(solution.message(), {"singular"}));
}

TEST(Singular, NoCurvatureAtAllEndsWithAStatus) {
  const Solution s = solve(newton([](Expr x, Expr t) { return sum(t * x); }), zeros({2}), ones({2}));
  EXPECT_FALSE(is_solution(s.status())) << s.message();
}

TEST(Singular, AnIndefiniteHessianOnTheWayIsShiftedAndCounted) {
  // A double well: the Hessian is negative at the start.
  const Solver s = newton([](Expr x, Expr t) { return sum(square(square(x) - t)); });
  const Solution solution = solve(s, Array{0.1, -0.2}, ones({2}));
  EXPECT_EQ(solution.status(), Status::converged) << solution.message();
  EXPECT_GT(solution.statistics().shifts, 0);
  EXPECT_TRUE(test::near(solution.x(), Array{1.0, -1.0}, 1e-12));
  // d√t = 1/2: the derivative is of the full step without the shift.
  EXPECT_TRUE(test::near(solution.jvp(ones({2})), Array{0.5, -0.5}, 1e-10));
}

TEST(Cancelled, FromTheCallback) {
  for (const int when : {1, 2}) {
    int calls = 0;
    SolveOptions options{.tolerance = 1e-14, .callback = [&](const Iteration& i) {
                           ++calls;
                           EXPECT_EQ(i.number, calls);
                           return i.number < when;
                         }};
    Random random(4);
    const Logistic problem(random, 30, 4);
    const Solution s = solve(newton(problem.objective(), options), problem.start(), problem.weights());
    EXPECT_EQ(s.status(), Status::cancelled);
    EXPECT_EQ(calls, when);
    EXPECT_EQ(s.statistics().iterations, when);
    EXPECT_TRUE(says(s.message(), {when == 1 ? "iteration 1" : "iteration 2"}));
    EXPECT_TRUE(says(error_of([&] { s.vjp(ones({4})); }), {"cancelled"}));
    // The step at x_{k-1} is gone back to.
    const Solution limited =
        solve(newton(problem.objective(), {.max_iterations = when}), problem.start(), problem.weights());
    EXPECT_TRUE(test::near(s.even_if_unconverged().vjp(ones({4})), limited.even_if_unconverged().vjp(ones({4})), 1e-13));
  }
}

TEST(Callback, WhatItThrowsGoesThroughAndThePreparedSolverGoesOn) {
  struct Stop {};
  Random random(5);
  const Logistic problem(random, 30, 4);
  for (const Estimator& e : all_estimators()) {
    bool throws = true;
    SolveOptions options{.callback = [&](const Iteration& i) {
      if (throws && i.number == 2) throw Stop{};
      return true;
    }};
    Prepared again(newton(problem.objective(), options), problem.start(), problem.weights(), e);
    EXPECT_THROW(again.solve(problem.start(), problem.weights()), Stop);
    throws = false;
    const Solution& s = again.solve(problem.start(), problem.weights());
    const Solution fresh = solve(newton(problem.objective()), problem.start(), problem.weights(), e);
    EXPECT_EQ(s.status(), Status::converged);
    EXPECT_TRUE(test::near(s.x(), fresh.x(), 0.0));
    EXPECT_TRUE(test::near(s.vjp(ones({4})), fresh.vjp(ones({4})), 0.0));
  }
}

TEST(Callback, AForeignStepThatThrowsGoesThroughToo) {
  int calls = 0;
  const Solver s = fixed_point(ForeignStep{.apply = [&](auto x, auto t, auto next) {
    if (++calls == 3) throw std::runtime_error("out of paper");
    next[0] = 0.5 * (x[0] + t[0].item());
  }});
  Prepared again(s, Array{0.0}, Array(1.0));
  EXPECT_THROW(again.solve(Array{0.0}, Array(1.0)), std::runtime_error);
  EXPECT_EQ(again.solve(Array{0.0}, Array(1.0)).status(), Status::converged);
}

TEST(RoundingReached, AToleranceOfZeroStopsAndSaysSo) {
  Random random(6);
  const Logistic problem(random, 50, 6);
  const auto f = problem.objective();
  const Array expected = problem.solution(ones({50}));
  const auto gradient = [f](Expr x, Expr w) { return grad(f(x, w), x); };
  const SolveOptions zero{.tolerance = 0, .max_iterations = 5000};
  for (const Solver& solver : {newton(f, zero), newton_root(gradient, zero), gradient_descent(f, {}, zero),
                               gradient_descent(f, {.step = GradientStep::backtracking()}, zero),
                               fixed_point([gradient](Expr x, Expr w) { return x - 0.02 * gradient(x, w); }, zero)}) {
    const Solution s = solve(solver, problem.start(), problem.weights());
    // Some iterations come to stand exactly still.
    if (s.status() != Status::converged) {
      EXPECT_EQ(s.status(), Status::rounding_reached) << s.message();
      EXPECT_TRUE(says(s.message(), {"tolerance"}));
    }
    EXPECT_LT(test::relative_error(s.x(), expected), 1e-12);
    EXPECT_NO_THROW(s.vjp(ones({6})));
  }
}

TEST(RoundingReached, AnIllConditionedProblemStopsWhereItsRoundingIs) {
  // Condition 1e10: Newton's steps cannot get below 1e-7 or so.
  Random random(7);
  const Array H = test::with_eigenvalues(random, {1e-10, 1e-3, 0.1, 1});
  const Array b = random.array({4});
  const Solver root = newton_root([&](Expr x, Expr t) { return matmul(H, x) + 0.1 * x * x * x * 1e-21 - b * t; },
                                  {.tolerance = 1e-15, .max_iterations = 500});
  const Solution s = solve(root, zeros({4}), Array(1.0));
  EXPECT_TRUE(is_solution(s.status())) << s.message();
  EXPECT_LT(s.statistics().iterations, 100);
}

TEST(RoundingReached, ASolutionAtZeroIsFoundAlthoughItGivesNoScale) {
  // b is orthogonal to the columns of A up to rounding, so x = 0 up to rounding: there is nothing steps could be relative
  // to.
  Random random(8);
  const Array A = random.array({30, 4}), y = test::orthogonal_part(A, random.array({30}));
  const Solver solver = newton([&](Expr x, Expr w) { return sum(w * square(matmul(A, x) - y)); });
  const Solution s = solve(solver, zeros({4}), ones({30}), Implicit{});
  EXPECT_TRUE(is_solution(s.status())) << s.message();
  EXPECT_LT(test::largest_entry(s.x()), 1e-14);
  EXPECT_LT(s.statistics().iterations, 200);
}

TEST(StartIsTheSolution, TheDerivativeIsStillRight) {
  Random random(9);
  const Logistic problem(random, 30, 4);
  const Array w = problem.weights(), expected = problem.derivative(w), solution = problem.solution(w);
  for (const Estimator& e : all_estimators()) {
    const Solution s = solve(newton(problem.objective()), solution, problem.weights(), e);
    EXPECT_EQ(s.status(), Status::converged);
    // One short step is not seen to contract; the next one tells.
    EXPECT_LE(s.statistics().iterations, 3);
    EXPECT_LT(test::relative_error(s.jacobian(), expected), 1e-12);
  }
  // Gradient descent's one step is wrong by ρ, but implicit differentiation is not; Auto knows.
  for (const Estimator& e : std::vector<Estimator>{Implicit{}, Auto{1e-10}}) {
    const Solution s = solve(gradient_descent(problem.objective()), solution, problem.weights(), e);
    EXPECT_EQ(s.status(), Status::converged);
    EXPECT_LT(test::relative_error(s.jacobian(), expected), 1e-9);
  }
}

TEST(StartIsTheSolution, ExactlyToTheLastBit) {
  const Solver s = newton([](Expr x, Expr t) { return sum(square(x - t)); });
  const Solution solution = solve(s, Array{1.0, 2.0}, Array{1.0, 2.0});
  EXPECT_EQ(solution.status(), Status::converged);
  EXPECT_TRUE(test::near(solution.jvp(Array{0.5, -1.0}), Array{0.5, -1.0}));
  const Solution at_zero = solve(s, zeros({2}), zeros({2}));
  EXPECT_EQ(at_zero.status(), Status::converged);
  EXPECT_TRUE(test::near(at_zero.vjp(Array{0.5, -1.0}), Array{0.5, -1.0}));
}

TEST(TimeLimit, IsLookedAtAfterEachIteration) {
  using namespace std::chrono_literals;
  const Solver slow = fixed_point(ForeignStep{.apply =
                                                  [](auto x, auto t, auto next) {
                                                    std::this_thread::sleep_for(2ms);
                                                    next[0] = 0.999 * x[0] + t[0].item();
                                                  }},
                                  {.time_limit = 0.02});
  const Solution s = solve(slow, Array{0.0}, Array(1.0));
  EXPECT_EQ(s.status(), Status::time_limit);
  EXPECT_TRUE(says(s.message(), {"0.02"}));
  EXPECT_GE(s.statistics().seconds, 0.02);
  EXPECT_LE(s.statistics().iterations, 12);
  EXPECT_GT(s.x()(0), 0.0);
}

}  // namespace
}  // namespace onestep
