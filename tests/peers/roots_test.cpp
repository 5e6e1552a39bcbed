// Roots and smooth optimisation that other libraries test themselves with (echidna, Stan, CasADi, jaxopt, cvxpylayers,
// Theseus, optimistix, TorchOpt, ImplicitDifferentiation.jl), restated with closed forms.
#include <atomic>
#include <limits>
#include <thread>

#include "peers/expect.h"

namespace onestep::peers {
namespace {

Expr part(const Expr& of, std::int64_t i) { return slice(of, i, i + 1); }
const std::vector<Estimator>& newtons_estimators() {
  static const std::vector<Estimator> all{OneStep{}, KStep{2}, Implicit{}, Unrolled{}, Auto{1e-10}};
  return all;
}

TEST(Peers, T14_ALinearSystemHasItsNegativeInverse) {
  const Array A{{2.0, 1.0}, {1.0, 3.0}}, x{0.3, -1.1};
  for (const Estimator& e : newtons_estimators())
    expect_solution(solve(newton_root([&](Expr z, Expr t) { return matmul(A, z) + t; }), ones(2), x, e), x,
                    test::product(Array{{-0.6, 0.2}, {0.2, -0.4}}, x), Array{{-0.6, 0.2}, {0.2, -0.4}}, 1e-13);
}

const auto bilinear = [](Expr z, Expr t) { return concat({square(part(z, 0)) + part(z, 1), part(z, 0) * part(z, 1)}) - t; };

TEST(Peers, T15_TangentsAreColumnsAndCotangentsRows) {
  const Array x{2.0, 1.0};
  for (const Estimator& e : newtons_estimators())
    expect_solution(solve(newton_root(bilinear, exactly), Array{1.2, 0.9}, x, e), x, ones(2),
                    Array{{1.0, -1.0}, {-1.0, 2.0}}, 1e-10);
  const auto root = [&](double t) {
    return Array(solve(newton_root(bilinear, exactly), Array{1.2, 0.9}, Array{2.0 + t, 1.0 - t}, OneStep{}).x());
  };
  EXPECT_TRUE(near(test::differences(root, 1e-3), Array{2.0, -3.0}, 1e-8));
}

TEST(Peers, T16_StansAlgebraicSystems) {
  const Array y{5.0, 4.0, 2.0}, z{4.0, 6.0, 3.0}, w{5.0, 8.0};
  const auto simple = [](Expr x, Expr t) { return x - concat({part(t, 0) * part(t, 1), part(t, 2)}); };
  const auto nonlinear = [](Expr x, Expr t) {
    return concat({part(x, 2) - part(t, 2), part(x, 0) * part(x, 1) - part(t, 0) * part(t, 1),
                   part(x, 2) / part(x, 0) + part(t, 2) / part(t, 0)});
  };
  const auto degenerate = [](Expr x, Expr t) {
    return concat(
        {(part(x, 0) - part(t, 0)) * (part(x, 1) - part(t, 1)), (part(x, 0) - part(t, 1)) * (part(x, 1) - part(t, 0))});
  };
  for (const Estimator& e : newtons_estimators()) {
    expect_solution(solve(newton_root(simple), Array{1.0, 1.0}, y, e), y, Array{20.0, 2.0},
                    Array{{4.0, 5.0, 0.0}, {0.0, 0.0, 1.0}}, 1e-14);
    expect_solution(solve(newton_root(nonlinear, exactly), full(3, -3.0), z, e), z, Array{-4.0, -6.0, 3.0},
                    Array{{-1.0, 0.0, 0.0}, {0.0, -1.0, 0.0}, {0.0, 0.0, 1.0}}, 1e-11);
    expect_solution(solve(newton_root(degenerate, exactly), Array{10.0, 1.0}, w, e), w, Array{8.0, 8.0},
                    Array{{0.0, 1.0}, {0.0, 1.0}}, 1e-11);
    expect_solution(solve(newton_root(degenerate, exactly), Array{1.0, 1.0}, w, e), w, Array{5.0, 5.0},
                    Array{{1.0, 0.0}, {1.0, 0.0}}, 1e-11);
  }
}

TEST(Peers, T17_MisuseIsNamedAndWhatCannotBeSolvedHasAStatus) {
  const Solver shift = newton_root([](Expr x, Expr t) { return x - t; });
  EXPECT_EQ(solve(shift, Array{std::numeric_limits<double>::infinity()}, Array{1.0}, OneStep{}).status(),
            Status::not_finite);
  EXPECT_THROW(solve(newton_root([](Expr x, Expr t) { return slice(x, 0, 1) - t; }), zeros(2), Array{1.0}, OneStep{}),
               MisuseError);
  EXPECT_THROW(solve(shift.with(SolveOptions{.tolerance = -1e-3}), Array{0.0}, Array{1.0}, OneStep{}), MisuseError);
  EXPECT_THROW(solve(shift.with(SolveOptions{.max_iterations = -1}), Array{0.0}, Array{1.0}, OneStep{}), MisuseError);
  EXPECT_THROW(solve(newton_root([](Expr x, Expr t) { return x - slice(t, 0, 3); }), zeros(3), ones(2), OneStep{}),
               MisuseError);
  const Solution two =
      solve(newton_root([](Expr x, Expr t) { return exp(x) - t; }, {.max_iterations = 2}), 5.0, 1e-3, OneStep{});
  EXPECT_EQ(two.status(), Status::iteration_limit);
  EXPECT_THROW(two.vjp(1.0), NotConvergedError);
  const Solution none =
      solve(newton_root([](Expr x, Expr t) { return square(x) + t; }, {.max_iterations = 200}), 0.7, 1.0, OneStep{});
  EXPECT_FALSE(is_solution(none.status())) << none.message();
  EXPECT_THROW(none.vjp(1.0), NotConvergedError);
}

TEST(Peers, T18_ACubicWhereNewtonCyclesIsSolvedFromTheCycle) {
  const double x = -1.7692923542386314;
  for (const double x0 : {0.0, 1.0})
    for (const Estimator& e : newtons_estimators())
      expect_solution(solve(newton_root([](Expr at, Expr t) { return at * square(at) - 2.0 * at + t; }), x0, 2.0, e), x,
                      -1 / (3 * x * x - 2), 1e-10, "from " + std::to_string(x0));
}

TEST(Peers, T19_AnEquationWithoutARootIsAStatusAndNoDerivative) {
  const Solution s = solve(newton_root([](Expr x, Expr t) { return sin(x) - t; }, {.max_iterations = 500}), Array{0.1, 0.2},
                           full(2, 2.0), OneStep{});
  EXPECT_FALSE(is_solution(s.status())) << s.message();
  EXPECT_THROW(s.vjp(ones(2)), NotConvergedError);
  EXPECT_THROW(s.jvp(ones(2)), NotConvergedError);
  EXPECT_THROW(s.jacobian(), NotConvergedError);
}

TEST(Peers, T20_CasadisImplicitFunctions) {
  // x - asin y = 0 for y; tan x - a = 0 with an output √a x² beside x; a linear system.
  for (const Estimator& e : newtons_estimators()) {
    expect_solution(
        solve(newton_root([](Expr y, Expr x) { return x - atan(y / sqrt(1.0 - square(y))); }, exactly), 0.1, 0.2, e),
        std::sin(0.2), 0.9800665778412416, 1e-12);
    expect_solution(solve(newton_root([](Expr x, Expr a) { return sin(x) / cos(x) - a; }, exactly), 0.1, 0.3, e),
                    std::atan(0.3), 0.9174311926605504, 1e-12);
    const Array A{{1.0, 2.0}, {3.0, 2.1}}, b{0.7, 0.6};
    expect_solution(solve(newton_root([&](Expr x, Expr t) { return matmul(A, x) - t; }, exactly), zeros(2), b, e), b,
                    Array{-0.27 / 3.9, 1.5 / 3.9}, test::inverse(A), 1e-12);
  }
  const Solver tangent =
      newton_root([](Expr x, Expr a) { return sin(x) / cos(x) - a; }, exactly).from(Array(0.1)).with(OneStep{});
  const Function aux = traced(
      [&](Expr a) {
        const Expr value = sqrt(a) * square(tangent(a));
        return std::pair{value, grad(value, a)};
      },
      Shape{});
  const std::vector<Array> found = evaluate(aux, {Array(0.3)});
  EXPECT_NEAR(found[0].item(), 0.046527422624827, 1e-14);
  EXPECT_NEAR(found[1].item(), 0.3704584766199871, 1e-13);
}

TEST(Peers, T21_CasadisParametricMinima) {
  for (const Estimator& e : newtons_estimators()) {
    expect_solution(solve(newton([](Expr x, Expr p) { return square(sin(x) - square(p)); }, exactly), 0.1, 0.5, e),
                    0.25268025514207865, 1.0327955589886444, 1e-11);
    const Array p{0.1, 0.2, 0.3};
    const auto d = [](double q) { return 1 / std::sqrt(1 - q * q); };
    expect_solution(solve(newton([](Expr x, Expr t) { return sum(square(sin(x) - t)); }, exactly), zeros(3), p, e), p,
                    Array{std::asin(0.1), std::asin(0.2), std::asin(0.3)},
                    Array{{d(0.1), 0.0, 0.0}, {0.0, d(0.2), 0.0}, {0.0, 0.0, d(0.3)}}, 1e-11);
  }
}

TEST(Peers, T22_SquareRootsAsMinimumRootAndFixedPointAgree) {
  const Array x{4.0, 9.0}, J{{0.25, 0.0}, {0.0, 1.0 / 6}};
  for (const Estimator& e : newtons_estimators()) {
    expect_solution(solve(newton([](Expr y, Expr t) { return sum(square(square(y) - t)); }, exactly), Array{1.5, 2.0}, x, e),
                    x, Array{2.0, 3.0}, J, 1e-10, "minimum");
    expect_solution(solve(newton_root([](Expr y, Expr t) { return square(y) - t; }, exactly), ones(2), x, e), x,
                    Array{2.0, 3.0}, J, 1e-11, "root");
    expect_solution(solve(fixed_point([](Expr y, Expr t) { return 0.5 * (y + t / y); }, exactly), ones(2), x, e), x,
                    Array{2.0, 3.0}, J, 1e-11, "fixed point");
  }
  // y = reverse(√(x + 2); -√x): ∂G/∂y and ∂G/∂x are far from symmetric.
  const Array reversal{{0.0, 0.0, 0.0, 0.0, 0.0, 1.0}, {0.0, 0.0, 0.0, 0.0, 1.0, 0.0}, {0.0, 0.0, 0.0, 1.0, 0.0, 0.0},
                       {0.0, 0.0, 1.0, 0.0, 0.0, 0.0}, {0.0, 1.0, 0.0, 0.0, 0.0, 0.0}, {1.0, 0.0, 0.0, 0.0, 0.0, 0.0}};
  const Array theta{1.0, 2.0, 3.0};
  std::vector<double> y(6), dy(18);
  for (std::size_t i = 0; i < 3; ++i) {
    const double t = theta(static_cast<std::int64_t>(i)), upper = std::sqrt(t + 2), lower = -std::sqrt(t);
    y[5 - i] = upper, y[2 - i] = lower;
    dy[3 * (5 - i) + i] = 0.5 / upper, dy[3 * (2 - i) + i] = 0.5 / lower;
  }
  for (const Estimator& e : newtons_estimators())
    expect_solution(solve(newton_root(
                              [&](Expr at, Expr t) {
                                return square(matmul(reversal, at)) - concat({t + 2.0, t});
                              },
                              exactly),
                          Array{-1.0, -1.0, -1.0, 2.0, 2.0, 2.0}, theta, e),
                    theta, Array({6}, y), Array({6, 3}, dy), 1e-11);
}

TEST(Peers, T23_ABarrierKeepsNewtonInItsDomain) {
  const auto f = [](Expr x, Expr l) { return -x - l * (log1p(x) + log1p(-x)); };
  for (const double x0 : {0.0, -0.9, 0.999, 1 - 1e-6})
    for (const Estimator& e : newtons_estimators())
      expect_solution(solve(newton(f, exactly), x0, 1.0, e), std::sqrt(2.0) - 1, std::sqrt(0.5) - 1, 1e-10,
                      "from " + std::to_string(x0));
}

TEST(Peers, T24_TheMaximumEntropyChoiceOfTwoAmongFour) {
  // y = σ(x + ν), Σ y = 2; dy/dx = diag(h) - hhᵀ/Σh with h = y(1 - y).
  const Array x{1.0, -1.0, -1.0, -1.0};
  const auto G = [](Expr s, Expr t) {
    const Expr y = slice(s, 0, 4), nu = slice(s, 4, 5);
    return concat({y - sigmoid(t + nu), reshape(sum(y) - 2.0, {1})});
  };
  const double y0 = 0.8260896634, y1 = 0.3913034455;
  const Solution s = solve(newton_root(G, exactly), Array{0.5, 0.5, 0.5, 0.5, 0.0}, x, OneStep{});
  ASSERT_TRUE(is_solution(s.status())) << s.message();
  EXPECT_TRUE(near(s.x(), Array{y0, y1, y1, y1, 0.5581634595}, 1e-9));
  std::vector<double> h, J(20);
  double total = 0;
  for (std::int64_t i = 0; i < 4; ++i) h.push_back(s.x()(i) * (1 - s.x()(i))), total += h.back();
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < 4; ++j) J[4 * i + j] = (i == j ? h[i] : 0) - h[i] * h[j] / total;
    J[16 + i] = -h[i] / total;
  }
  EXPECT_NEAR(J[0], 0.11961602444, 1e-10);
  EXPECT_NEAR(J[1], -0.03987200815, 1e-10);
  EXPECT_NEAR(J[5], 0.17208070875, 1e-10);
  EXPECT_NEAR(J[6], -0.06610435030, 1e-10);
  for (const Estimator& e : newtons_estimators())
    expect_solution(solve(newton_root(G, exactly), Array{0.5, 0.5, 0.5, 0.5, 0.0}, x, e), x, s.x(), Array({5, 4}, J), 1e-12);
}

TEST(Peers, T25_LeastSquaresByItsMatrixAndItsRightHandSide) {
  Random random(25);
  const std::int64_t rows = 100, n = 20;
  const Array A = random.array({rows, n}), b = random.array({rows});
  const Array M = test::plus(test::product(test::transposed(A), A), test::identity(n));
  const Array x = test::solved(M, test::product(test::transposed(A), b)), u = test::solved(M, ones(n));
  const Array Au = flat(test::product(A, u)), r = flat(test::minus(b, flat(test::product(A, x))));
  std::vector<double> of_A;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < n; ++j) of_A.push_back(r(i) * flat(u)(j) - Au(i) * flat(x)(j));
  const Solver fit = newton([](Expr at, Expr a, Expr t) { return sum(square(matmul(a, at) - t)) + sum(square(at)); });
  for (const Estimator& e : {Estimator(OneStep{}), Estimator(Implicit{})}) {
    const Parts g = solve(fit, zeros(n), {A, b}, e).vjp(ones(n));
    EXPECT_TRUE(near(g[0], Array({rows, n}, of_A), 1e-11));
    EXPECT_TRUE(near(g[1], Au, 1e-11));
  }
}

TEST(Peers, T26_RidgeAsMinimumRootAndFixedPointHasItsClosedForm) {
  Random random(26);
  const Array X = random.array({10, 3}), y = random.array({10}), lambda(5.0);
  const Array M = test::plus(test::product(test::transposed(X), X), test::times(50.0, test::identity(3)));
  const Array w = test::solved(M, test::product(test::transposed(X), y)), J = test::times(-10.0, test::solved(M, w));
  const auto f = [&](const Expr& x, const Expr& l) {
    return 0.05 * sum(square(matmul(X, x) - y)) + 0.5 * l * sum(square(x));
  };
  const Array column_of_J({3, 1}, test::entries_of(J));
  for (const Estimator& e : newtons_estimators()) {
    expect_solution(solve(newton([&](Expr x, Expr l) { return f(x, l); }, exactly), zeros(3), lambda, e), lambda, w,
                    column_of_J, 1e-12);
    expect_solution(solve(newton_root([&](Expr x, Expr l) { return grad(f(x, l), x); }, exactly), zeros(3), lambda, e),
                    lambda, w, column_of_J, 1e-12);
  }
  for (const auto& [name, e] : exact_estimators())
    expect_solution(
        solve(fixed_point([&](Expr x, Expr l) { return x - 0.15 * grad(f(x, l), x); }, exactly), zeros(3), lambda, e),
        lambda, w, column_of_J, 1e-11, name);
}

TEST(Peers, T27_LogisticRegressionByItsDataAndItsPenalty) {
  Random random(27);
  const Array X = random.array({5, 2}), y{1.0, -1.0, 1.0, 1.0, -1.0}, D = random.array({5, 2}), x0 = zeros(2);
  const auto f = [&](Expr w, Expr data, Expr l) { return sum(softplus(-y * matmul(data, w))) + 0.5 * l * sum(square(w)); };
  const Array along = test::differences([&](double t) {
    return solve(newton(f, exactly), x0, {test::plus(X, test::times(t, D)), Array(0.3 + t)}, OneStep{}).x();
  });
  for (const Estimator& e : newtons_estimators())
    EXPECT_TRUE(near(solve(newton(f, exactly), x0, {X, Array(0.3)}, e).jvp({D, Array(1.0)}), along, 1e-9));
  for (const auto& [name, e] : exact_estimators())
    EXPECT_TRUE(
        near(solve(gradient_descent(f, {}, {.tolerance = 1e-13}), x0, {X, Array(0.3)}, e).jvp({D, Array(1.0)}), along, 1e-9))
        << name;
  const Solution cut =
      solve(gradient_descent(f, {}, {.tolerance = 0, .max_iterations = 200}), x0, {X, Array(0.3)}, Unrolled{});
  EXPECT_TRUE(near(cut.even_if_unconverged().jvp({D, Array(1.0)}), along, 1e-4));
}

TEST(Peers, T28_GaussNewtonByOneStepIsOffByItsContractionFactorAndImplicitIsRight) {
  const Array y{.05, .127, .094, .2122, .2729, .2665, .3317}, x{.038, .194, .425, .626, 1.253, 2.5, 3.74};
  const auto residual = [&](const Expr& beta, const Expr& at) { return y - part(beta, 0) * at / (part(beta, 1) + at); };
  const Solver gauss_newton = fixed_point(
      [&](Expr beta, Expr at) {
        const Expr r = residual(beta, at), J = jacobian(r, beta);
        return beta - solve(cholesky(matmul(transpose(J), J)), matmul(transpose(J), r));
      },
      exactly);
  const Array beta{0.36183687, 0.55626646}, x0{0.9, 0.2};
  const Array exact{{-0.002962, 0.138407, 0.046038, 0.052322, 0.002364, -0.021853, -0.007323},
                    {-0.030585, 0.928167, 0.558356, 0.457213, 0.103981, -0.079449, -0.020807}};
  const Array one_step{-0.002576, 0.126695, 0.038993, 0.046553, 0.001052, -0.020850, -0.007061};
  const Array minimum =
      solve(newton([&](Expr b, Expr at) { return 0.5 * sum(square(residual(b, at))); }, exactly), beta, x, OneStep{})
          .jacobian();
  EXPECT_TRUE(near(minimum, exact, 1e-6));
  for (const auto& [name, e] : exact_estimators()) {
    const Solution s = solve(gauss_newton, x0, x, e);
    EXPECT_TRUE(near(s.x(), beta, 1e-7)) << name;
    expect_solution(s, x, s.x(), minimum, 1e-9, name);
  }
  const Solution one = solve(gauss_newton, x0, x, OneStep{});
  EXPECT_TRUE(near(row(one.jacobian(), 0), one_step, 5e-6));
  for (const Array& c : directions({2})) {
    const double error = test::norm(test::minus(one.vjp(c), test::product(test::transposed(minimum), c)));
    const Certificate certificate = one.certificate(c);
    EXPECT_EQ(certificate.basis, Certificate::Basis::observed) << certificate;
    EXPECT_GE(certificate.bound, error) << certificate;
  }
}

// Gauss-Newton of one residual is Newton on it: x ← (x + a)/2. The residual's derivative vanishes at the solution.
TEST(Peers, T29_GaussNewtonOnASquareGivesWhatItsStepsGiveAndImplicitReportsSingular) {
  const auto r = [](Expr x, Expr a) { return square(a - x); };
  EXPECT_NEAR(solve(newton_root(r), 0.0, 1.0, OneStep{}).vjp(1.0)[0].item(), 0.5, 1e-9);
  for (const int K : {1, 2, 5}) {
    const Solution s = solve(newton_root(r), 0.0, 1.0, KStep{K});
    ASSERT_TRUE(is_solution(s.status())) << s.message();
    EXPECT_NEAR(s.vjp(1.0)[0].item(), 1 - std::ldexp(1, -K), 1e-9) << K;
    EXPECT_NEAR(s.jvp(1.0)[0].item(), 1 - std::ldexp(1, -K), 1e-9) << K;
  }
  expect_no_derivative(solve(newton_root(r), 0.0, 1.0, Implicit{}), Array(1.0));
}

double derivative_of(int order, int K, const Solver& root, double at) {
  const Solver solver = root.with(KStep{K});
  const Function f = traced(
      [&](Expr x) {
        Expr z = solver(x);
        for (int k = 0; k < order; ++k) z = grad(z, x);
        return z;
      },
      Shape{});
  return evaluate(f, {Array(at)}).front().item();
}

TEST(Peers, T30_KNewtonStepsAreExactThroughOrderTwoToTheKLessOne) {
  const Solver cube = newton_root([](Expr z, Expr x) { return z * square(z) - x; }, exactly).from(Array(1.5));
  const Solver squared = newton_root([](Expr z, Expr x) { return square(z) - x; }, exactly).from(Array(1.5));
  const Solver line = newton_root([](Expr z, Expr x) { return 2.0 * z + x; }, exactly).from(Array(1.5));
  EXPECT_NEAR(derivative_of(1, 1, cube, 8.0), 1.0 / 12, 1e-14);
  EXPECT_NEAR(derivative_of(2, 1, cube, 8.0), 0.0, 1e-14) << "one step is right to first order only";
  EXPECT_NEAR(derivative_of(2, 2, cube, 8.0), -1.0 / 144, 1e-14);
  EXPECT_NEAR(derivative_of(3, 2, cube, 8.0), 10.0 / 27 / 256, 1e-13);  // (1/3)(2/3)(5/3) 8^(-8/3)
  EXPECT_NEAR(derivative_of(2, 2, squared, 4.0), -1.0 / 32, 1e-14);
  EXPECT_NEAR(derivative_of(2, 2, line, 4.0), 0.0, 1e-14);

  const Solver both = newton_root(bilinear, exactly).from(Array{1.2, 0.9}).with(KStep{2});
  const Array H = evaluate(traced(
                               [&](Expr x) {
                                 return hessian(sum(both(x) * Array{1.0, 0.3}), x);
                               },
                               Shape{2}),
                           {Array{2.0, 1.0}})
                      .front();
  EXPECT_TRUE(near(H, test::transposed(H), 1e-12));
  const Array expected = test::differences(
      [&](double t) {
        return solve(newton_root(bilinear, exactly), Array{1.2, 0.9}, Array{2.0 + t, 1.0}, OneStep{})
            .vjp(Array{1.0, 0.3})[0];
      },
      1e-3);
  EXPECT_TRUE(near(row(H, 0), expected, 1e-7));
}

TEST(Peers, T31_AQuadraticFitByItsAbscissae) {
  Random random(31);
  const Array x = random.array({10}, 0.0, 1.0), y = random.array({10}, 0.0, 2.0);
  const auto f = [&](Expr beta, Expr at) { return sum(square(part(beta, 0) * square(at) + part(beta, 1) - y)); };
  const auto fitted = [&](const Array& at) {  // the normal equations of slope a and intercept b in t = x²
    double t1 = 0, t2 = 0, r0 = 0, r1 = 0;
    for (std::int64_t i = 0; i < 10; ++i) {
      const double t = at(i) * at(i);
      t1 += t, t2 += t * t, r0 += y(i), r1 += t * y(i);
    }
    const double determinant = 10 * t2 - t1 * t1;
    return Array{(10 * r1 - t1 * r0) / determinant, (t2 * r0 - t1 * r1) / determinant};
  };
  for (const Estimator& e : {Estimator(Unrolled{}), Estimator(Implicit{}), Estimator(KStep{5}), Estimator(OneStep{})}) {
    const Solution s = solve(newton(f, exactly), zeros(2), x, e);
    EXPECT_TRUE(near(s.x(), fitted(x), 1e-12));
    for (const Array& v : directions({10}))
      EXPECT_TRUE(
          near(s.jvp(v), test::differences([&](double t) { return fitted(test::plus(x, test::times(t, v))); }), 1e-8, 1.0));
  }
}

TEST(Peers, T32_RootsThatAreNotThereAndNumbersThatAreNone) {
  const Solver shift = newton_root([](Expr y, Expr a) { return y - a; });
  const Solution s = solve(shift, 0.0, 1.0, OneStep{});
  EXPECT_EQ(s.vjp(2.0 * s.x().item())[0].item(), 2.0);  // d(y²)/da
  const Solution never = solve(newton_root(
                                   [](Expr y, Expr a) {
                                     return concat({part(y, 0) - a, 1.0 + 0.0 * part(y, 1)});
                                   },
                                   {.max_iterations = 100}),
                               zeros(2), Array{1.0}, OneStep{});
  EXPECT_FALSE(is_solution(never.status())) << never.message();
  EXPECT_THROW(never.vjp(ones(2)), NotConvergedError);
  const Solution nan = solve(shift, std::nan(""), 1.0, OneStep{});
  EXPECT_EQ(nan.status(), Status::not_finite);
  EXPECT_LE(nan.statistics().iterations, 1);
}

TEST(Peers, T33_AScalarRootHasADerivative) {
  for (const Estimator& e : newtons_estimators())
    expect_solution(solve(newton_root([](Expr x, Expr f) { return f * x * square(x) - x - 2.0; }, exactly), 1.0, 2.0, e),
                    1.1653730430624147, -0.22139916266115015, 1e-12);
}

TEST(Peers, T47_ThreadsSolveAHundredRootsAsOneDoes) {
  const Solver root = newton_root([](Expr x, Expr y) { return square(x) - y; }, exactly);
  const auto solved = [&](std::size_t i) {
    const Solution s = solve(root, 1.0, static_cast<double>(i + 1) / 7, OneStep{});
    return std::pair(s.x().item(), s.vjp(1.0)[0].item());
  };
  std::vector<std::pair<double, double>> one(100), many(100);
  for (std::size_t i = 0; i < one.size(); ++i) one[i] = solved(i);
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < many.size(); i = next++) many[i] = solved(i);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(one, many);
  for (std::size_t i = 0; i < one.size(); ++i) {
    const double y = static_cast<double>(i + 1) / 7;
    EXPECT_NEAR(one[i].first, std::sqrt(y), 1e-14 * std::sqrt(y));
    EXPECT_NEAR(one[i].second, 0.5 / std::sqrt(y), 1e-13 / std::sqrt(y));
  }
}

TEST(Peers, T48_ASingularSystemIsAnErrorInEveryModeAndNeverNaN) {
  const std::vector<Estimator> direct{Implicit{}, Implicit{.how = Implicit::dense}};
  std::vector<Estimator> all = direct;
  all.insert(all.end(), {Implicit{.how = Implicit::matrix_free}, Auto{}});
  // z₁ = z₁ + x₁ has a solution for x₁ = 0 alone: the system has no solution in either mode.
  const Solver held = fixed_point([](Expr z, Expr x) { return Array{0.5, 1.0} * z + x; });
  for (const Estimator& e : all) {
    const Solution s = solve(held, Array{0.3, 0.7}, Array{1.0, 0.0}, e);
    ASSERT_TRUE(is_solution(s.status())) << s.message();
    expect_no_derivative(s, zeros(2));
  }
  // A weight of zero: any x₁ is a minimiser. The system is consistent for tangents, which a factorisation alone can tell.
  const Solver weighted = gradient_descent(
      [](Expr x, Expr a) {
        return 0.5 * sum(Array{1.0, 0.0} * square(x - a));
      },
      {.step = GradientStep::fixed(0.5)});
  for (const Estimator& e : direct) {
    const Solution s = solve(weighted, Array{0.3, 0.7}, Array{1.0, 2.0}, e);
    ASSERT_TRUE(is_solution(s.status())) << s.message();
    expect_no_derivative(s, zeros(2));
  }
  // (z₀ + z₁ - x, 2z₀ + 2z₁ - 2x), started at one of its roots and beside them.
  const Solver redundant = newton_root([](Expr z, Expr x) { return Array{1.0, 2.0} * (sum(z) - x); });
  for (const Array& x0 : {Array{0.5, 0.5}, Array{0.2, 0.4}}) {
    const Solution s = solve(redundant, x0, 1.0, Implicit{});
    EXPECT_THROW(s.jvp(1.0), Error);
    EXPECT_THROW(s.vjp(ones(2)), Error);
    EXPECT_THROW(s.jacobian(), Error);
  }
  const Solution fine = solve(newton_root([](Expr z, Expr x) { return z - x; }), 0.0, 1.0, Implicit{});
  EXPECT_THROW(fine.vjp(std::nan("")), Error);
  EXPECT_THROW(fine.jvp(std::nan("")), Error);
}

}  // namespace
}  // namespace onestep::peers
