// A solver inside a traced function: derivatives of g(x(θ)) to any order the steps allow, and solves inside solves.
#include <gtest/gtest.h>

#include "support/problems.h"

namespace onestep {
namespace {

using test::Logistic;
using test::Random;
using test::says;

// x + x³ = θ: x' = 1/(1 + 3x²), x'' = -6x x'³, x''' = -6x'⁴ + 108 x² x'⁵.
double root_of(double theta) {
  double x = 0;
  for (int k = 0; k < 100; ++k) x -= (x + x * x * x - theta) / (1 + 3 * x * x);
  return x;
}
Solver cubic() {
  return newton_root([](Expr x, Expr t) { return x + x * x * x - t; });
}
double value_of(const std::function<Expr(const Expr&)>& f, double theta) {
  return evaluate(traced([&](Expr t) { return f(t); }, Shape{}), {Array(theta)}).front().item();
}

TEST(Nested, TheValueIsTheSolution) {
  for (const Estimator& e : std::vector<Estimator>{OneStep{}, KStep{2}, Implicit{}, Unrolled{}, Auto{}})
    EXPECT_NEAR(value_of([&](const Expr& t) { return cubic().from(Array(0.0)).with(e)(t); }, 3.0), root_of(3.0), 1e-14);
}

TEST(Nested, TheDerivativeOfAFunctionOfTheSolutionIsThatOfDifferences) {
  Random random(1);
  const Logistic problem(random, 20, 3);
  const Array w = random.array({20}, 0.5, 1.5), v = random.array({20});
  const auto outer = [](const Expr& x) { return sum(exp(0.3 * x)) + 0.5 * sum(square(x)); };
  const Array expected = test::differences([&](double t) {
    const Array x = problem.solution(test::plus(w, test::times(t, v)));
    double g = 0;
    for (const double e : test::entries_of(x)) g += std::exp(0.3 * e) + 0.5 * e * e;
    return Array(g);
  });
  const SolveOptions exactly{.tolerance = 1e-13, .max_iterations = 100000};
  const std::vector<Solver> solvers{
      newton(problem.objective(), exactly).with(OneStep{}),
      newton(problem.objective(), exactly).with(KStep{2}),
      newton(problem.objective(), exactly).with(Implicit{}),
      newton(problem.objective(), exactly).with(Unrolled{}),
      newton(problem.objective(), exactly).with(Auto{}),
      newton(problem.objective(), exactly),
      gradient_descent(problem.objective(), {}, exactly).with(Implicit{}),
      gradient_descent(problem.objective(), {}, exactly).with(Unrolled{.memory = 4000}),
      gradient_descent(problem.objective(), {}, exactly).with(Auto{1e-11}),
  };
  for (const Solver& fit : solvers) {
    const auto g = [&](const Expr& t) { return outer(fit.from(problem.start())(t)); };
    const Array forward =
        evaluate(traced([&](Expr t, Expr d) { return jvp(g(t), t, d); }, Shape{20}, Shape{20}), {w, v}).front();
    EXPECT_NEAR(forward.item(), expected.item(), 1e-9 * std::fabs(expected.item()));
    const Array reverse = evaluate(traced([&](Expr t) { return grad(g(t), t); }, Shape{20}), {w}).front();
    EXPECT_NEAR(test::product(test::transposed(reverse), v)(0), expected.item(), 1e-9 * std::fabs(expected.item()));
  }
}

TEST(Nested, CheckGradientsHoldsThroughASolve) {
  const Array theta{0.5, 2.0};
  for (const Estimator& e : std::vector<Estimator>{Implicit{}, OneStep{}}) {
    const Function g = traced(
        [&](Expr t) {
          return sum(sin(newton_root([](Expr x, Expr s) { return x + x * x * x - s; }).from(zeros({2})).with(e)(t)));
        },
        Shape{2});
    GradientCheckOptions order_one;
    order_one.order = 1;
    const GradientCheck check = check_gradients(g, {theta}, order_one);
    for (const GradientComparison& c : check.comparisons()) {
      const bool is_wanted = c.claim.find("differences") != std::string::npos || c.claim.find("⟨") != std::string::npos;
      EXPECT_TRUE(!is_wanted || c.ok()) << check.message();
    }
  }
}

// K Newton steps from the solution give every derivative up to order 2^K - 1.
TEST(Nested, KNewtonStepsGiveDerivativesUpToOrderTwoToTheKMinusOne) {
  const double theta = 1.7, x = root_of(theta), d1 = 1 / (1 + 3 * x * x), d2 = -6 * x * std::pow(d1, 3),
               d3 = -6 * std::pow(d1, 4) + 108 * x * x * std::pow(d1, 5);
  const auto derivative = [&](int K, int order) {
    const Solver fit = cubic().from(Array(0.5)).with(KStep{K});
    return value_of(
        [&](const Expr& t) {
          Expr y = fit(t);
          for (int i = 0; i < order; ++i) y = grad(y, t);
          return y;
        },
        theta);
  };
  EXPECT_NEAR(derivative(1, 1), d1, 1e-13 * std::fabs(d1));
  EXPECT_GT(std::fabs(derivative(1, 2) - d2), 1e-2 * std::fabs(d2));  // one step is not enough for the second
  EXPECT_NEAR(derivative(2, 1), d1, 1e-13 * std::fabs(d1));
  EXPECT_NEAR(derivative(2, 2), d2, 1e-12 * std::fabs(d2));
  EXPECT_NEAR(derivative(2, 3), d3, 1e-11 * std::fabs(d3));
  EXPECT_NEAR(derivative(3, 3), d3, 1e-11 * std::fabs(d3));
}

TEST(Nested, TheHessianOfAFunctionOfTheSolutionByTwoSteps) {
  // x = H⁻¹ θ with H = diag(2 + t₂²): closed form for g = Σ x², and symmetric.
  Random random(2);
  const auto f = [](Expr x, Expr t) { return sum((1.0 + 0.5 * square(t)) * square(x)) - sum(sin(t) * x); };
  // x = sin t / (2 + t²)
  const Array theta{0.3, -1.2, 0.8};
  const Solver fit = newton(f).from(zeros({3})).with(KStep{2});
  const Array H = evaluate(traced([&](Expr t) { return hessian(sum(square(fit(t))), t); }, Shape{3}), {theta}).front();
  const auto g1 = [](double t) {
    const double u = std::sin(t), v = 2 + t * t;
    return 2 * u / v * (std::cos(t) * v - u * 2 * t) / (v * v);
  };
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 3; ++j) {
      const double h = 1e-3, t = theta(i);
      const double second = (8 * (g1(t + h) - g1(t - h)) - (g1(t + 2 * h) - g1(t - 2 * h))) / (12 * h);
      EXPECT_NEAR(H(i, j), i == j ? second : 0.0, 1e-10);
    }
}

TEST(Nested, TheHessianOfALogisticFitIsThatOfDifferencesOfTheGradient) {
  Random random(3);
  const Logistic problem(random, 15, 3);
  const Array w = random.array({15}, 0.5, 1.5), v = random.array({15});
  const Solver fit = newton(problem.objective()).from(problem.start()).with(KStep{2});
  const Array Hv =
      evaluate(traced([&](Expr t, Expr d) { return hvp(0.5 * sum(square(fit(t))), t, d); }, Shape{15}, Shape{15}), {w, v})
          .front();
  const Array expected = test::differences([&](double t) {
    const Array at = test::plus(w, test::times(t, v));
    return test::product(test::transposed(problem.derivative(at)), problem.solution(at));
  });
  EXPECT_LT(test::relative_error(Hv, expected), 1e-8);
}

TEST(Nested, ABilevelObjectiveInsideNewton) {
  // min over t of ‖x(t) - a‖² with x(t) = argmin ‖x - b t‖² + ‖x‖²: x = b t/2, so t = 2 aᵀb / bᵀb.
  const Array a{1.0, 2.0, -0.5}, b{0.5, 1.0, 2.0};
  const Solver inner = newton([&](Expr x, Expr t) { return sum(square(x - b * t)) + sum(square(x)); }).from(zeros({3}));
  for (const Estimator& e : std::vector<Estimator>{OneStep{}, KStep{2}}) {
    const Solver outer = newton([&](Expr t, Expr target) { return sum(square(inner.with(e)(t) - target)); });
    const Solution s = solve(outer, Array(0.3), a, Implicit{});
    ASSERT_EQ(s.status(), Status::converged) << s.message();
    const double bb = 0.25 + 1 + 4, ab = 0.5 + 2 - 1;
    EXPECT_NEAR(s.x().item(), 2 * ab / bb, 1e-12);
    // dt/da = 2 b / bᵀb
    EXPECT_TRUE(test::near(s.vjp(Array(1.0)), test::times(2 / bb, b), 1e-12));
  }
}

TEST(Nested, ANonlinearBilevelObjectiveInsideNewton) {
  // inner: x + x³ = t; outer: min (x(t) - a)² + 0.1 t², whose solution satisfies 2(x - a)/(1 + 3x²) + 0.2 t = 0.
  const Solver inner = cubic().from(Array(0.0)).with(KStep{2});
  const Solver outer = newton([&](Expr t, Expr a) { return square(inner(t) - a) + 0.1 * square(t); });
  const Solution s = solve(outer, Array(0.5), Array(1.0), Implicit{});
  ASSERT_EQ(s.status(), Status::converged) << s.message();
  const double t = s.x().item(), x = root_of(t), d = 1 / (1 + 3 * x * x), d2 = -6 * x * d * d * d;
  EXPECT_NEAR(2 * (x - 1.0) * d + 0.2 * t, 0.0, 1e-12);
  // dt/da = 2d / (2d² + 2(x - a) x'' + 0.2)
  const double expected = 2 * d / (2 * d * d + 2 * (x - 1.0) * d2 + 0.2);
  EXPECT_NEAR(s.jvp(Array(1.0))[0].item(), expected, 1e-10 * expected);
  EXPECT_NEAR(s.vjp(Array(1.0))[0].item(), expected, 1e-10 * expected);
}

TEST(Nested, ASolveInsideAFixedPoint) {
  // x ← cbrt-like root of the last x: y + y³ = 0.5 x + θ.
  const Solver inner = cubic().from(Array(0.0)).with(Implicit{});
  const Solver outer = fixed_point([&](Expr x, Expr t) { return inner(0.5 * x + t); }, {.tolerance = 1e-14});
  for (const Estimator& e : std::vector<Estimator>{Implicit{}, Unrolled{}, KStep{60}, Auto{1e-10}}) {
    const Solution s = solve(outer, Array(0.0), Array(0.8), e);
    ASSERT_TRUE(is_solution(s.status())) << s.message();
    const double x = s.x().item();
    EXPECT_NEAR(x + x * x * x, 0.5 * x + 0.8, 1e-13);
    const double expected = 1 / (0.5 + 3 * x * x);
    EXPECT_NEAR(s.jvp(Array(1.0))[0].item(), expected, 1e-9);
    EXPECT_NEAR(s.vjp(Array(1.0))[0].item(), expected, 1e-9);
  }
}

// An outer solve to 1e-13 whose inner one is loose, or differentiated roughly: the error is the inner one's, and the
// certificate has to see it.
TEST(Nested, TheCertificateKnowsOfLooseSolvesInside) {
  const auto expect_true_bound = [](const Solution& s, double expected, double at_least) {
    for (const bool forward : {false, true}) {
      const Certificate c = forward ? s.certificate_jvp(Array(1.0)) : s.certificate(Array(1.0));
      const double error = std::fabs((forward ? s.jvp(Array(1.0)) : s.vjp(Array(1.0)))[0].item() - expected);
      ASSERT_EQ(c.basis, Certificate::Basis::observed) << c.reason;
      EXPECT_LE(error, c.bound) << c;
      EXPECT_LE(c.bound, 3 * error + 1e-11) << c;
      EXPECT_GE(error, at_least);
    }
  };
  // x = y(x), y = 0.6y + 0.1 sin y + 0.2x + t.
  double x = 0;
  for (int k = 0; k < 1000; ++k) x = x - (0.2 * x - 0.1 * std::sin(x) - 0.8) / (0.2 - 0.1 * std::cos(x));
  const double expected = 1 / (0.2 - 0.1 * std::cos(x));
  for (const double tolerance : {1e-2, 1e-5, 1e-12}) {
    const Solver inner =
        fixed_point([](Expr y, Expr a) { return 0.6 * y + 0.1 * sin(y) + a; }, {.tolerance = tolerance}).from(Array(0.0));
    const Solver outer =
        fixed_point([&](Expr z, Expr t) { return inner(0.2 * z + t); }, {.tolerance = 1e-13, .max_iterations = 10000});
    expect_true_bound(solve(outer, Array(4.0), Array(0.8), Implicit{}), expected, 1e-3 * std::min(tolerance, 1e-9));
    const Solution rough = solve(fixed_point([in = inner.with(Implicit{.how = Implicit::matrix_free, .tolerance = 0.05})](
                                                 Expr z, Expr t) { return in(0.2 * z + t); },
                                             {.tolerance = 1e-13, .max_iterations = 10000}),
                                 Array(4.0), Array(0.8), Implicit{});
    const Certificate c = rough.certificate(Array(1.0));
    EXPECT_LE(std::fabs(rough.vjp(Array(1.0))[0].item() - expected), c.bound) << c;
    const Solution by_steps = solve(fixed_point([in = inner.with(OneStep{})](Expr z, Expr t) { return in(0.2 * z + t); },
                                                {.tolerance = 1e-13, .max_iterations = 10000}),
                                    Array(4.0), Array(0.8), Implicit{});
    EXPECT_EQ(by_steps.certificate(Array(1.0)).basis, Certificate::Basis::refused);
    EXPECT_TRUE(says(by_steps.certificate(Array(1.0)).reason, {"solve inside"}));
  }
}

TEST(Nested, TheCertificateKnowsOfLooseSolvesTwoLevelsDown) {
  // z = y(0.2z + t), y = w(0.3y + a), w + w³ = b: all of it is z + z³ = 0.3z + 0.2z + t.
  const Solver deepest = newton_root([](Expr w, Expr b) { return w + w * w * w - b; }, {.tolerance = 1e-3}).from(Array(0.5));
  const Solver inner =
      fixed_point([&](Expr y, Expr a) { return deepest(0.3 * y + a); }, {.tolerance = 1e-3}).from(Array(0.3));
  const Solver outer = fixed_point([&](Expr z, Expr t) { return inner(0.2 * z + t); }, {.tolerance = 1e-12});
  const Solution s = solve(outer, Array(0.0), Array(0.8), Implicit{});
  ASSERT_TRUE(is_solution(s.status())) << s.message();
  double z = 1;
  for (int k = 0; k < 100; ++k) z -= (0.5 * z + z * z * z - 0.8) / (0.5 + 3 * z * z);
  const double error = std::fabs(s.vjp(Array(1.0))[0].item() - 1 / (0.5 + 3 * z * z));
  const Certificate c = s.certificate(Array(1.0));
  ASSERT_EQ(c.basis, Certificate::Basis::observed) << c.reason;
  EXPECT_GE(error, 1e-8);
  EXPECT_LE(error, c.bound);
  EXPECT_LE(c.bound, 5 * error);
}

TEST(Nested, AStartThatDependsOnTheParameters) {
  const Solver fit = cubic().from([](Expr t) { return 0.5 * t; });
  for (const Estimator& e : std::vector<Estimator>{OneStep{}, Implicit{}, Unrolled{}}) {
    const double x = root_of(2.0);
    EXPECT_NEAR(value_of([&](const Expr& t) { return grad(fit.with(e)(t), t); }, 2.0), 1 / (1 + 3 * x * x), 1e-12);
  }
}

TEST(Nested, SeveralPartsComeOneBehindTheOther) {
  const Solver s = fixed_point(
                       [](Expr x, Expr y, Expr t) {
                         return std::pair{0.5 * x + t, 0.5 * y + sum(x)};
                       },
                       {.tolerance = 1e-14})
                       .from({zeros({2}), zeros({1})});
  for (const Estimator& e : std::vector<Estimator>{KStep{100}, Implicit{}}) {
    const Function f = traced([&](Expr t) { return s.with(e)(t); }, Shape{2});
    const Array value = evaluate(f, {Array{1.0, 2.0}}).front();
    EXPECT_TRUE(test::near(value, Array{2.0, 4.0, 12.0}, 1e-12));
    const Array J = evaluate(traced([&](Expr t) { return jacobian(s.with(e)(t), t); }, Shape{2}), {Array{1.0, 2.0}}).front();
    EXPECT_TRUE(test::near(J, Array{{2.0, 0.0}, {0.0, 2.0}, {4.0, 4.0}}, 1e-11));
  }
}

TEST(Nested, ASolveThatFailsIsNaNAndNoException) {
  const Solver diverging = fixed_point([](Expr x, Expr t) { return 2.0 * x + t; }).from(ones({2}));
  for (const Estimator& e : std::vector<Estimator>{OneStep{}, Implicit{}, Unrolled{}}) {
    const Array v = evaluate(traced([&](Expr t) { return sum(diverging.with(e)(t)); }, Shape{2}), {ones({2})}).front();
    EXPECT_TRUE(std::isnan(v.item()));
    const Array g =
        evaluate(traced([&](Expr t) { return grad(sum(diverging.with(e)(t)), t); }, Shape{2}), {ones({2})}).front();
    EXPECT_TRUE(std::isnan(g(0)));
  }
}

TEST(Nested, AQuadraticProgramHasItsFourPartsWithEveryEstimator) {
  const Solver box = quadratic_program([](Expr c) { return TracedProgram{.Q = eye(3), .q = -c, .lo = 0.0, .hi = 1.0}; });
  const Array c{2.0, 0.5, -1.0};
  for (const Estimator& e : std::vector<Estimator>{OneStep{}, KStep{3}, Implicit{}, Unrolled{}, Auto{}}) {
    const Function f = traced(
        [&](Expr t) {
          const Expr w = box.with(e)(t);
          return std::tuple{w, grad(sum(slice(w, 0, 3)), t), jvp(slice(w, 0, 3), t, ones({3}))};
        },
        Shape{3});
    const std::vector<Array> results = evaluate(f, {c});
    ASSERT_EQ(results[0].shape(), Shape{6});  // x and the bounds' multipliers; no rows
    EXPECT_NEAR(results[0](0), 1, 1e-8);
    EXPECT_NEAR(results[0](1), 0.5, 1e-8);
    EXPECT_NEAR(results[0](3), 1, 1e-7);
    for (const std::size_t k : {1U, 2U}) {
      EXPECT_NEAR(results[k](0), 0, 1e-6);
      EXPECT_NEAR(results[k](1), 1, 1e-6);
      EXPECT_NEAR(results[k](2), 0, 1e-6);
    }
  }
}

// Fewer states than parameters: the rows of the Jacobian are so many derivatives at one solve.
TEST(Nested, AutoGivesEveryRowOfAJacobian) {
  Random random(2);
  const Logistic problem(random, 20, 3);
  const Array w = random.array({20}, 0.5, 1.5);
  const auto jacobian_by = [&](const Estimator& e) {
    const Solver fit = gradient_descent(problem.objective(), {}, {.tolerance = 1e-13, .max_iterations = 100000}).with(e);
    return evaluate(traced([&](Expr t) { return jacobian(fit.from(problem.start())(t), t); }, Shape{20}), {w}).front();
  };
  EXPECT_LT(test::relative_error(jacobian_by(Auto{1e-10}), jacobian_by(Implicit{})), 1e-9);
}

TEST(Nested, WhatAnExceptionInterruptedIsNotKept) {
  bool throws = false;
  const Solver fit = newton([](Expr x, Expr t) { return sum(square(x - t)); },
                            {.callback = [&](const Iteration&) { return throws ? throw std::runtime_error("no") : true; }})
                         .from(zeros({2}))
                         .with(Implicit{});
  const Function f = traced([&](Expr t) { return fit(t); }, Shape{2});
  const Plan plan(f);
  Workspace workspace = plan.workspace();
  std::vector<double> x(2);
  plan.run(workspace, {Array{1.0, 2.0}}, {x});
  throws = true;
  EXPECT_THROW(plan.run(workspace, {Array{3.0, 4.0}}, {x}), std::runtime_error);
  throws = false;
  plan.run(workspace, {Array{3.0, 4.0}}, {x});
  EXPECT_NEAR(x[0], 3, 1e-12);
  EXPECT_NEAR(x[1], 4, 1e-12);
}

// Newton's solves end with two steps unless something else is asked for.
TEST(Nested, SecondDerivativesThroughNewtonAreRightByDefault) {
  const double theta = 3, x = root_of(theta), slope = 1 / (1 + 3 * x * x);
  const Solver fit = cubic().from(Array(0.0));
  EXPECT_NEAR(value_of([&](const Expr& t) { return grad(grad(fit(t), t), t); }, theta), -6 * x * slope * slope * slope,
              1e-9);
}

// One step has the right first derivative alone: the outer solution is found with it, but its derivative by it is wrong (by
// 20 % here), and has to be refused.
TEST(Nested, OneStepInsideIsNotDifferentiatedTwice) {
  const Solver inner = newton([](Expr x, Expr t) { return 0.5 * square(x) - t * x + 0.25 * square(square(x)); });
  const auto objective = [](const Solver& in) {
    return [in](Expr t, Expr c) { return square(in(t)-1.0) + 0.1 * square(t - c); };
  };
  const auto gradient = [objective](const Solver& in) {
    return [f = objective(in)](Expr t, Expr c) { return grad(f(t, c), t); };
  };
  const auto outer_of = [&](const Solver& in) {
    return std::vector<Solver>{newton(objective(in)), newton_cg(objective(in)), newton_root(gradient(in)),
                               gradient_descent(objective(in))};
  };
  const auto with = [&](const Estimator& e) { return inner.from(Array(0.0)).with(e); };
  const double right = Array(solve(newton(objective(with(KStep{2}))), Array(1.5), 0.5).jvp(1.0)).item();
  EXPECT_NEAR(right, 0.372493, 1e-6);
  for (const Estimator& e : std::vector<Estimator>{OneStep{}, KStep{1}})
    for (const Solver& outer : outer_of(with(e))) {
      const Solution s = solve(outer, Array(1.5), 0.5);
      ASSERT_TRUE(is_solution(s.status())) << s.message();
      EXPECT_TRUE(says(test::error_of([&] { s.jvp(1.0); }), {"one step", "KStep{2}"}));
      EXPECT_TRUE(says(test::error_of([&] { s.vjp(1.0); }), {"one step", "KStep{2}"}));
      EXPECT_TRUE(says(test::error_of([&] { s.jacobian(); }), {"one step", "KStep{2}"}));
      EXPECT_EQ(s.certificate(1.0).basis, Certificate::Basis::refused) << s.certificate(1.0);
      EXPECT_EQ(s.certificate_jvp(1.0).basis, Certificate::Basis::refused);
    }
  for (const Solver& outer : outer_of(with(KStep{2})))
    EXPECT_NEAR(Array(solve(outer, Array(1.5), 0.5, Auto{1e-9}).jvp(1.0)).item(), right, 1e-6);
  // A root needs the first derivative alone.
  const Solution root = solve(newton_root([&](Expr t, Expr c) { return with(OneStep{})(t) - c; }), Array(1.5), 0.5);
  EXPECT_NEAR(Array(root.jvp(1.0)).item(), 1 + 3 * 0.25, 1e-9);
  EXPECT_EQ(root.certificate_jvp(1.0).basis, Certificate::Basis::observed) << root.certificate_jvp(1.0);
}

// The measured step of gradient descent takes its Hessian by differences where f cannot be differentiated twice.
TEST(Nested, GradientDescentMeasuresItsStepAroundASolveWithoutSecondDerivatives) {
  const auto step = [](Expr x, Expr t) { return 0.5 * cos(x) * t; };
  const auto f = [](Expr x, Expr t) { return 0.5 * square(x) - 0.5 * sin(x) * t; };
  const auto sum_of_f = [f](Expr x, Expr t) { return sum(f(x, t)); };
  for (const Solver& inner : {fixed_point(step), newton_cg(sum_of_f), newton(sum_of_f).with(Implicit{}),
                              gradient_descent(sum_of_f), newton_cg(sum_of_f).with(KStep{2})}) {
    const Solver in = inner.from(zeros({3}));
    const Solution s = solve(gradient_descent([&](Expr t) { return sum(square(in(t)-0.2)); }), full({3}, 0.3), Parts());
    ASSERT_TRUE(is_solution(s.status())) << s.message();
    for (const double t : test::entries_of(s.x())) EXPECT_NEAR(t, 0.4 / std::cos(0.2), 1e-6);
  }
}

TEST(Nested, DerivativesAboveTheFirstThatAnEstimatorDoesNotHaveAreErrors) {
  const Solver fit = cubic().from(Array(0.0)).with(Implicit{});
  EXPECT_TRUE(says(test::error_of([&] { traced([&](Expr t) { return grad(grad(fit(t), t), t); }, Shape{}); }), {"solve"}));
}

TEST(Nodes, AnEstimatorByTheMethodIsAsGoodAsNone) {
  // x = √t: the second derivative needs the two steps that Newton's nodes have where no estimator is named.
  const Solver root = newton_root([](Expr x, Expr t) { return square(x) - t; }).from(Array(1.0));
  for (const Solver& solver : {root, root.with(Estimator{}), root.with(Implicit{}).with(Estimator{})}) {
    const Function f = traced([&](Expr t) { return grad(grad(solver(t), t), t); }, Shape{});
    EXPECT_NEAR(evaluate(f, {Array(4.0)})[0].item(), -0.25 / 8, 1e-12);
  }
}

TEST(Nodes, AScalarStateMayBeDifferentiatedBy) {
  // ∂/∂x (x⁴/4 - t x) = 0: x = t^(1/3).
  const auto residual = [](Expr x, Expr t) { return grad(0.25 * square(square(x)) - t * x, x); };
  const Solution s = solve(newton_root(residual), Array(1.0), Array(8.0));
  ASSERT_EQ(s.status(), Status::converged) << s.message();
  EXPECT_NEAR(s.x().item(), 2, 1e-14);
  EXPECT_NEAR(Array(s.vjp(Array(1.0))).item(), 1.0 / 12, 1e-14);
  const Function f = traced([&](Expr t) { return newton_root(residual).from(Array(1.0))(t); }, Shape{});
  EXPECT_NEAR(evaluate(f, {Array(8.0)})[0].item(), 2, 1e-14);
  const Solution step =
      solve(fixed_point([&](Expr x, Expr t) { return x - 0.05 * residual(x, t); }), Array(1.0), Array(8.0));
  EXPECT_NEAR(step.x().item(), 2, 1e-8) << step.message();
}

}  // namespace
}  // namespace onestep
