// Implicit differentiation: all ways to solve the linear system, on all equations, and what is said when it falls short.
#include <gtest/gtest.h>

#include "support/problems.h"

namespace onestep {
namespace {

using test::Logistic;
using test::Random;

constexpr Implicit::How all_ways[] = {Implicit::automatic, Implicit::dense, Implicit::matrix_free};

void expect_derivative(const Solution& s, const Array& J, const Array& v, const Array& c, double tolerance) {
  ASSERT_TRUE(is_solution(s.status())) << s.message();
  EXPECT_LT(test::relative_error(s.jvp(v), test::product(J, v)), tolerance);
  EXPECT_TRUE(is_solution(s.report().status));
  EXPECT_LE(s.report().residual, 1e-10);
  EXPECT_LT(test::relative_error(s.vjp(c), test::product(test::transposed(J), c)), tolerance);
  EXPECT_TRUE(is_solution(s.report().status));
  EXPECT_LE(s.report().residual, 1e-10);
  EXPECT_EQ(s.report().method, "implicit");
  EXPECT_LT(test::relative_error(s.jacobian(), J), tolerance);
}

TEST(Implicit, EveryWayOnEverySolverGivesTheDerivative) {
  Random random(1);
  const Logistic problem(random, 40, 5);
  const auto f = problem.objective();
  const Array w = random.array({40}, 0.5, 1.5), v = random.array({40}), c = random.array({5}), J = problem.derivative(w);
  const SolveOptions options{.tolerance = 1e-14, .max_iterations = 100000};
  const auto g = [f](Expr x, Expr t) { return grad(f(x, t), x); };
  const std::vector<Solver> solvers{newton(f, options), newton_root(g, options), gradient_descent(f, {}, options),
                                    gradient_descent(f, {.step = GradientStep::backtracking()}, options),
                                    fixed_point([g](Expr x, Expr t) { return x - 0.02 * g(x, t); }, options)};
  for (const Solver& solver : solvers)
    for (const auto how : all_ways)
      for (const bool on_step : {false, true})
        expect_derivative(solve(solver, problem.start(), w, Implicit{.how = how, .on_step = on_step}), J, v, c, 1e-11);
}

TEST(Implicit, OnAMapThatIsNotSymmetric) {
  Random random(2);
  const Array A = test::with_norm(random, 6, 6, 0.9), B = random.array({6, 4});
  const Array J = test::solved(test::minus(test::identity(6), A), B);
  for (const auto how : all_ways)
    expect_derivative(solve(fixed_point([&](Expr x, Expr t) { return matmul(A, x) + matmul(B, t); }), zeros({6}),
                            random.array({4}), Implicit{.how = how}),
                      J, random.array({4}), random.array({6}), 1e-11);
}

TEST(Implicit, OfMomentumKnowsBothParts) {
  Random random(3);
  const Logistic problem(random, 30, 3);
  const Array w = problem.weights(), J = problem.derivative(w), c = random.array({3});
  for (const Momentum& m : {Momentum::heavy_ball(0.6), Momentum::nesterov(0.6)}) {
    const Solver s = gradient_descent(problem.objective(), {.momentum = m}, {.tolerance = 1e-14, .max_iterations = 100000});
    for (const auto how : all_ways) {
      const Solution solution = solve(s, {problem.start(), problem.start()}, w, Implicit{.how = how});
      ASSERT_EQ(solution.status(), Status::converged);
      EXPECT_LT(test::relative_error(solution.vjp(c), test::product(test::transposed(J), c)), 1e-11);
      // Both parts are x at the solution.
      const Parts dx = solution.jvp(w);
      EXPECT_LT(test::relative_error(dx[0], test::product(J, w)), 1e-11);
      EXPECT_LT(test::relative_error(dx[1], test::product(J, w)), 1e-11);
    }
  }
}

TEST(Implicit, UsesTheEquationOfTheUser) {
  // x ← (x + θ/x)/2 converges to √θ; the equation is x² = θ.
  int traced = 0;
  const Solver root = fixed_point([](Expr x, Expr t) { return 0.5 * (x + t / x); }).equation([&](Expr x, Expr t) {
    ++traced;
    return square(x) - t;
  });
  for (const auto how : all_ways) {
    const Solution s = solve(root, ones({3}), Array{4.0, 9.0, 0.25}, Implicit{.how = how});
    EXPECT_TRUE(test::near(s.jvp(ones({3})), Array{0.25, 1.0 / 6, 1.0}, 1e-12));
    EXPECT_TRUE(test::near(s.vjp(Array{1.0, -1.0, 2.0}), Array{0.25, -1.0 / 6, 2.0}, 1e-12));
  }
  EXPECT_GT(traced, 0);
  // One that says something else is believed: it is the user's.
  const Solver other = root.equation([](Expr x, Expr t) { return x - 7.0 * t; });
  EXPECT_TRUE(test::near(solve(other, ones({3}), Array{4.0, 9.0, 0.25}, Implicit{}).jvp(ones({3})), full({3}, 7.0), 1e-12));
  // ... but not for x - F.
  EXPECT_TRUE(test::near(solve(other, ones({3}), Array{4.0, 9.0, 0.25}, Implicit{.on_step = true}).jvp(ones({3})),
                         Array{0.25, 1.0 / 6, 1.0}, 1e-12));
}

TEST(Implicit, UsesThePreconditionerOfTheUser) {
  Random random(4);
  const std::int64_t n = 60;
  const Array H = test::with_eigenvalues(random, test::spread(1e-3, 1, n)), inverse = test::inverse(H);
  const Array b = random.array({n}), c = random.array({n});
  const Solver s = gradient_descent([&](Expr x, Expr t) { return 0.5 * matmul(x, matmul(H, x)) - sum(b * t * x); }, {},
                                    {.tolerance = 1e-6, .max_iterations = 100000});
  int calls = 0, transposed_calls = 0;
  const Implicit with{.how = Implicit::matrix_free, .preconditioner = [&](std::span<double> r, bool transposed) {
                        ++calls;
                        transposed_calls += transposed ? 1 : 0;
                        const Array x = test::product(inverse, Array::view(r));
                        std::ranges::copy(x.values(), r.begin());
                      }};
  const Solution plain = solve(s, zeros({n}), Array(1.0), Implicit{.how = Implicit::matrix_free});
  const Solution preconditioned = solve(s, zeros({n}), Array(1.0), with);
  const Array expected = test::product(inverse, b);
  EXPECT_LT(test::relative_error(plain.jvp(Array(1.0)), expected), 1e-8);
  const int without = plain.report().products;
  EXPECT_LT(test::relative_error(preconditioned.jvp(Array(1.0)), expected), 1e-8);
  EXPECT_LE(preconditioned.report().products, 6);
  EXPECT_GT(without, 20);
  EXPECT_GT(calls, 0);
  EXPECT_EQ(transposed_calls, 0);
  const Array g = preconditioned.vjp(c);
  EXPECT_NEAR(g.item(), test::product(test::transposed(expected), c)(0), 1e-8 * test::norm(expected) * test::norm(c));
  EXPECT_GT(transposed_calls, 0);
}

TEST(Implicit, ALinearSolveThatFallsShortIsAStatus) {
  Random random(5);
  const std::int64_t n = 50;
  const Array H = test::with_eigenvalues(random, test::spread(1e-6, 1, n)), b = random.array({n});
  const Solver s = newton([&](Expr x, Expr t) { return 0.5 * matmul(x, matmul(H, x)) - t * sum(b * x); });
  // Without the solver's factorisation three products are not enough.
  const Solution few =
      solve(s, zeros({n}), Array(1.0),
            Implicit{.how = Implicit::matrix_free, .max_iterations = 3, .preconditioner = [](std::span<double>, bool) {}});
  few.jvp(Array(1.0));
  EXPECT_EQ(few.report().status, Status::iteration_limit);
  EXPECT_GT(few.report().residual, 1e-3);
  EXPECT_LE(few.report().residual, 1.0);
  few.vjp(ones({n}));
  EXPECT_EQ(few.report().status, Status::iteration_limit);
  EXPECT_FALSE(is_solution(few.report().status));
}

TEST(Implicit, ASystemThatIsSingularHasNoDerivative) {
  // x0 is a fixed point of a map whose I - A has no inverse: x ← x + θ (x - 1).
  const Solver s = fixed_point([](Expr x, Expr t) { return x + t * square(x - 1.0); });
  for (const auto how : all_ways) {
    const Solution solution = solve(s, ones({2}), ones({2}), Implicit{.how = how});
    ASSERT_EQ(solution.status(), Status::converged);
    EXPECT_THROW(solution.vjp(ones({2})), NoDerivativeError) << how;
    EXPECT_THROW(solution.jacobian(), NoDerivativeError) << how;
    EXPECT_EQ(solution.certificate(ones({2})).basis, Certificate::Basis::refused) << how;
    try {
      solution.vjp(ones({2}));
    } catch (const NoDerivativeError& e) { EXPECT_EQ(e.status, Status::singular); }
  }
}

TEST(Implicit, AToleranceBelowRoundingIsSaid) {
  Random random(6);
  const Logistic problem(random, 30, 4);
  for (const auto how : all_ways) {
    const Solution s =
        solve(newton(problem.objective()), problem.start(), problem.weights(), Implicit{.how = how, .tolerance = 1e-30});
    s.vjp(ones({4}));
    EXPECT_TRUE(s.report().status == Status::rounding_reached || s.report().residual == 0) << s.report().residual;
    EXPECT_LT(s.report().residual, 1e-14);
  }
}

TEST(Implicit, ADirectionOfZeroGivesZero) {
  Random random(7);
  const Logistic problem(random, 30, 4);
  for (const auto how : all_ways) {
    const Solution s = solve(newton(problem.objective()), problem.start(), problem.weights(), Implicit{.how = how});
    EXPECT_TRUE(test::near(s.vjp(zeros({4})), zeros({30}), 0.0));
    EXPECT_TRUE(test::near(s.jvp(zeros({30})), zeros({4}), 0.0));
    EXPECT_EQ(s.report().status, Status::converged);
  }
}

TEST(NoNewFactorisation, OneStepAndImplicitAfterNewtonUseTheLastOne) {
  Random random(8);
  const Logistic problem(random, 60, 8);
  const auto f = problem.objective();
  for (const Solver& solver : {newton(f), newton_root([f](Expr x, Expr t) { return grad(f(x, t), x); })})
    for (const Estimator& e : std::vector<Estimator>{OneStep{}, Implicit{}, Auto{}}) {
      const Solution s = solve(solver, problem.start(), problem.weights(), e);
      ASSERT_EQ(s.status(), Status::converged);
      EXPECT_EQ(s.statistics().factorisations, s.statistics().iterations);
      s.vjp(ones({8}));
      EXPECT_EQ(s.report().factorisations, 0);
      s.jvp(ones({60}));
      EXPECT_EQ(s.report().factorisations, 0);
    }
}

TEST(NoNewFactorisation, OthersAreCounted) {
  Random random(8);
  const Logistic problem(random, 60, 8);
  const Solver solver = newton(problem.objective());
  const Solution unrolled = solve(solver, problem.start(), problem.weights(), Unrolled{});
  unrolled.vjp(ones({8}));
  EXPECT_EQ(unrolled.report().factorisations, unrolled.statistics().iterations);
  const Solution two = solve(solver, problem.start(), problem.weights(), KStep{2});
  two.vjp(ones({8}));
  EXPECT_EQ(two.report().factorisations, 1);
  const Solution dense = solve(solver, problem.start(), problem.weights(), Implicit{.how = Implicit::dense});
  dense.vjp(ones({8}));
  EXPECT_EQ(dense.report().factorisations, 1);
  dense.vjp(ones({8}));
  EXPECT_EQ(dense.report().factorisations, 0);
}

TEST(NoNewFactorisation, ImplicitRefinesInAFewProducts) {
  Random random(9);
  const Logistic problem(random, 60, 8);
  const Solution s = solve(newton(problem.objective()), problem.start(), problem.weights(), Implicit{});
  s.vjp(ones({8}));
  // The factorisation is that of x_{k-1}, which is as good as that of x_k here.
  EXPECT_LE(s.report().products, 5);
  EXPECT_LE(s.report().residual, 1e-12);
}

TEST(Identity, AsAStepHasNoUniqueFixedPoint) {
  const auto none = [](Expr x, Expr t) { return x + 0.0 * t; };
  const auto half_of_it = [](Expr x, Expr t) {
    return concat({0.5 * slice(x, 0, 1) + 0.0 * slice(t, 0, 1), slice(x, 1, 2)});
  };
  for (const Solver& solver : {fixed_point(none), fixed_point(half_of_it)})
    for (const Estimator& estimator : {Estimator(), Estimator(Auto{}), Estimator(Implicit{})}) {
      const Solution s = solve(solver, Array{1.0, 2.0}, ones(2), estimator);
      EXPECT_THROW(s.vjp(ones(2)), NoDerivativeError);
      EXPECT_THROW(s.jvp(ones(2)), NoDerivativeError);
      EXPECT_EQ(s.certificate(ones(2)).basis, Certificate::Basis::refused);
    }
  // One that depends on nothing, and is unique.
  const Solution s = solve(fixed_point([](Expr x, Expr t) { return 0.5 * x + 1.0 + 0.0 * t; }), ones(2), ones(2));
  EXPECT_EQ(s.jvp(ones(2))[0](0), 0);
  EXPECT_EQ(s.report().status, Status::converged);
  EXPECT_EQ(s.vjp(ones(2))[0](0), 0);
}

// A direction with a solution does not hide one without.
TEST(Jacobian, ASingularDirectionIsNotForgotten) {
  const Solver partly = fixed_point([](Expr x, Expr t) {
    return concat({slice(x, 0, 1) + 0.0 * slice(t, 0, 1), 0.5 * slice(x, 1, 2) + slice(t, 1, 2)});
  });
  for (const Estimator& e : std::vector<Estimator>{Implicit{.how = Implicit::matrix_free}, Implicit{}, Auto{}}) {
    const Solution s = solve(partly, Array{1.0, 2.0}, Array{1.0, 1.0}, e);
    ASSERT_TRUE(is_solution(s.status())) << s.message();
    EXPECT_THROW(static_cast<void>(s.jacobian()), NoDerivativeError);
  }
}

// Each direction may take as many products as one alone.
TEST(Jacobian, ByAutoHasAsManyDirectionsAsThereAre) {
  const std::int64_t n = 240, m = 45;
  std::vector<double> rates(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < rates.size(); ++i) rates[i] = 0.99 * static_cast<double>(i) / static_cast<double>(n);
  test::Random random(3);
  const Array rho(Shape{n}, rates), B = random.array({n, m});
  const Solver solver =
      fixed_point([&](Expr x, Expr t) { return rho * x + matmul(B, t); }, {.tolerance = 1e-12, .max_iterations = 100000});
  const Solution s = solve(solver, zeros({n}), random.array({m}), Auto{1e-8});
  const Parts J = s.jacobian();
  EXPECT_GT(s.report().products, 1000);
  EXPECT_TRUE(s.report().met_tolerance);
  double worst = 0;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < m; ++j)
      worst = std::max(worst, std::fabs(J[0](i, j) * (1 - rates[static_cast<std::size_t>(i)]) - B(i, j)));
  EXPECT_LE(worst, 1e-6);
}

// x = S⁻¹H⁻¹θ, for H = {{2, 1, 0}, {1, 2, 1}, {0, 1, 2}}, whose inverse is {{3, -2, 1}, {-2, 4, -2}, {1, -2, 3}} / 4. Powers
// of two change no digit of any entry, but residuals add up entries of all units.
TEST(Implicit, EntriesOfTheStateMayHaveAnyUnits) {
  const Array H{{2.0, 1.0, 0.0}, {1.0, 2.0, 1.0}, {0.0, 1.0, 2.0}}, S{0x1p27, 1.0, 0x1p-27}, theta{1.0, -2.0, 3.0};
  const Array inverse = Array{{3.0, -2.0, 1.0}, {-2.0, 4.0, -2.0}, {1.0, -2.0, 3.0}} / 4.0;
  const SolveOptions options{.max_iterations = 100000};
  const std::pair<const char*, Solver> solvers[] = {
      {"newton", newton([&](Expr x, Expr t) { return 0.5 * matmul(S * x, matmul(H, S * x)) - sum(S * x * t); }, options)},
      {"newton_root", newton_root([&](Expr x, Expr t) { return S * (matmul(H, S * x) - t); }, options)},
      {"fixed_point", fixed_point([&](Expr x, Expr t) { return x - 0.25 * (matmul(H, S * x) - t) / S; }, options)}};
  for (const auto& [name, solver] : solvers) {
    for (const Estimator& e : std::vector<Estimator>{Implicit{}, Implicit{.how = Implicit::dense}, Auto{1e-9}}) {
      const Solution s = solve(solver, zeros(3), theta, e);
      ASSERT_TRUE(is_solution(s.status())) << name << ": " << s.message();
      for (const Array& c : {ones(3), S, ones(3) / S}) {
        EXPECT_LT(test::relative_error(s.vjp(c), test::product(inverse, c / S)), 1e-9) << name << ' ' << e.kind().index();
        EXPECT_TRUE(is_solution(s.report().status)) << name << ' ' << e.kind().index();
      }
    }
  }
}

}  // namespace
}  // namespace onestep
