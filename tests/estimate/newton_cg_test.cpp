// Derivatives of what Newton-CG converges to, by systems solved with products alone, and how exact they are.
#include <gtest/gtest.h>

#include "support/problems.h"
#include "support/softmax.h"
#include "support/spectrum.h"

namespace onestep {
namespace {

using test::distance;
using test::Random;
using test::Softmax;

// d(validation loss)/dx at x.
Array validation_gradient(const Softmax& validation, const Array& x) {
  const auto rows = validation.A.shape()[0];
  return evaluate(traced([&](Expr at) { return grad(validation.loss(at, ones({rows})), at); }, x.shape()), {x}).front();
}
double validation_loss(const Softmax& validation, const Array& x) {
  const auto rows = validation.A.shape()[0];
  return evaluate(traced([&](Expr at) { return validation.loss(at, ones({rows})); }, x.shape()), {x}).front().item();
}

TEST(NewtonCgDerivative, OfAValidationLossByWeightsAndPenaltyIsThatOfDenseNewtonAndOfDifferences) {
  Random random(1);
  const Softmax train(random, 50, 4, 3), validation(random, 30, 4, 3);
  const Parts theta{random.array({50}, 0.5, 1.5), Array(0.4)};
  const Solution dense = solve(newton(train.objective()), train.start(), theta, Implicit{.how = Implicit::dense});
  const Array c = validation_gradient(validation, dense.x());
  const Parts expected = dense.vjp(c);
  for (const Estimator& e : std::vector<Estimator>{OneStep{}, KStep{2}, Implicit{}, Implicit{.how = Implicit::matrix_free},
                                                   Implicit{.how = Implicit::dense}, Auto{}}) {
    const Solution s = solve(newton_cg(train.objective()), train.start(), theta, e);
    const Parts found = s.vjp(c);
    EXPECT_EQ(s.report().status, Status::converged) << e.kind().index();
    EXPECT_LT(test::relative_error(found[0], expected[0]), 1e-8) << e.kind().index();
    EXPECT_LT(test::relative_error(found[1], expected[1]), 1e-8) << e.kind().index();
    // ⟨c, J v⟩ = ⟨Jᵀ c, v⟩
    const Array v = random.array({50}), dx = s.jvp({v, Array(0.7)});
    double forward = 0, reverse = 0.7 * found[1].item();
    for (std::int64_t i = 0; i < 50; ++i) reverse += found[0](i) * v(i);
    for (std::int64_t i = 0; i < 4; ++i)
      for (std::int64_t k = 0; k < 3; ++k) forward += c(i, k) * dx(i, k);
    EXPECT_NEAR(forward, reverse, 1e-8 * std::fabs(reverse)) << e.kind().index();
  }
  const Array v = random.array({50});
  const Array differences = test::differences(
      [&](double t) {
        const Solution s = solve(newton_cg(train.objective(), {}, {.tolerance = 1e-13}), train.start(),
                                 {test::plus(theta[0], test::times(t, v)), Array(0.4 + 0.1 * t)});
        return Array(validation_loss(validation, s.x()));
      },
      1e-2);
  double along = 0.1 * expected[1].item();
  for (std::int64_t i = 0; i < 50; ++i) along += expected[0](i) * v(i);
  EXPECT_NEAR(differences.item(), along, 1e-8 * std::fabs(along));
}

// The exact Newton step, term for term: not its limit at the solution, for which the last step would have to be zero.
TEST(NewtonCgDerivative, OneStepIsThatOfTheExactNewtonStepFarFromTheSolutionToo) {
  Random random(2);
  const Softmax train(random, 30, 3, 3);
  const Parts theta{random.array({30}, 0.5, 1.5), Array(0.5)};
  const Array x0 = random.array({3, 3}, -1, 1), c = random.array({3, 3});
  const SolveOptions once{.max_iterations = 1};
  const Solution cg = solve(newton_cg(train.objective(), {.derivative_tolerance = 1e-13}, once), x0, theta)
                          .even_if_unconverged(),
                 dense = solve(newton(train.objective(), once), x0, theta).even_if_unconverged();
  const Parts found = cg.vjp(c), expected = dense.vjp(c);
  EXPECT_LT(test::relative_error(found[0], expected[0]), 1e-10);
  EXPECT_LT(test::relative_error(found[1], expected[1]), 1e-10);
  const Parts v{random.array({30}), Array(1.0)};
  EXPECT_LT(test::relative_error(cg.jvp(v), dense.jvp(v)), 1e-10);
}

TEST(NewtonCgDerivative, KStepsAreThoseOfExactNewtonSteps) {
  Random random(3);
  const Softmax train(random, 30, 3, 3);
  const Parts theta{ones({30}), Array(0.5)};
  const Array c = random.array({3, 3});
  const Solution s = solve(newton_cg(train.objective(), {}, {.tolerance = 1e-2}), train.start(), theta, KStep{3});
  const Solution exact = solve(newton(train.objective(), {.tolerance = 1e-13}), train.start(), theta, Implicit{});
  const Solution one = solve(newton_cg(train.objective(), {}, {.tolerance = 1e-2}), train.start(), theta, OneStep{});
  const double three_error = test::relative_error(s.vjp(c)[0], exact.vjp(c)[0]),
               one_error = test::relative_error(one.vjp(c)[0], exact.vjp(c)[0]);
  EXPECT_LT(three_error, one_error);
  EXPECT_GT(one_error, 1e-9);
}

TEST(NewtonCgDerivative, SaysWhatItTookAndReached) {
  Random random(4);
  const Softmax train(random, 60, 5, 4);
  const Parts theta{ones({60}), Array(0.2)};
  const Array c = random.array({5, 4});
  const Solution s = solve(newton_cg(train.objective(), {.derivative_tolerance = 1e-5}), train.start(), theta);
  s.vjp(c);
  const DerivativeReport loose = s.report();
  EXPECT_EQ(loose.status, Status::converged);
  EXPECT_LE(loose.residual, 1e-5);
  EXPECT_GT(loose.residual, 0);
  EXPECT_GT(loose.products, 5);
  EXPECT_GT(loose.flops, 0);
  const Solution tight = solve(newton_cg(train.objective(), {.derivative_tolerance = 1e-12}), train.start(), theta);
  tight.vjp(c);
  EXPECT_LE(tight.report().residual, 1e-12);
  EXPECT_GT(tight.report().products, loose.products);
}

TEST(NewtonCgDerivative, ANodeOfAnotherFunctionHasItsGradient) {
  Random random(5);
  const Softmax train(random, 30, 3, 3), validation(random, 20, 3, 3);
  const Solver fit = newton_cg(train.objective()).from(train.start());
  const Plan plan(
      traced([&](Expr w, Expr l2) { return grad(validation.loss(fit(w, l2), ones({20})), w); }, Shape{30}, Shape{}));
  std::vector<double> found(30);
  Workspace workspace = plan.workspace();
  plan.run(workspace, {ones({30}), Array(0.3)}, {found});
  const Solution s = solve(fit, {ones({30}), Array(0.3)}, Implicit{});
  EXPECT_LT(test::relative_error(Array({30}, found), s.vjp(validation_gradient(validation, s.x()))[0]), 1e-8);
}

// Ill-conditioned and well-conditioned, solved well and badly, stopped early and late.
TEST(NewtonCgCertificate, TheBoundIsNeverBelowTheError) {
  Random random(6);
  int bounds = 0;
  for (int k = 0; k < 100; ++k) {
    const std::int64_t rows = random.integer(10, 60), n = random.integer(2, 6), classes = random.integer(2, 4);
    const Softmax train(random, rows, n, classes);
    const Parts theta{random.array({rows}, 0.2, 2.0), Array(std::pow(10.0, random.uniform(-4, 0)))};
    const SolveOptions options{.tolerance = std::pow(10.0, random.uniform(-10, -3))};
    const NewtonCgOptions how{.derivative_tolerance = std::pow(10.0, random.uniform(-12, -2))};
    const Array c = random.array({n, classes});
    const Parts v{random.array({rows}), Array(0.1)};
    const Softmax::Truth truth = train.truth(theta[0], theta[1].item(), c, v[0], 0.1);
    for (const Estimator& e :
         std::vector<Estimator>{OneStep{}, Implicit{.how = Implicit::matrix_free, .tolerance = how.derivative_tolerance}}) {
      const Solution s = solve(newton_cg(train.objective(), how, options), train.start(), theta, e);
      ASSERT_TRUE(is_solution(s.status())) << s.message();
      const Parts found = s.vjp(c);
      const double error = std::hypot(distance(found[0], truth.vjp_w), static_cast<double>(found[1].item() - truth.vjp_l2));
      const Certificate certificate = s.certificate(c), of_jvp = s.certificate_jvp(v);
      EXPECT_GE(certificate.bound, error) << k << " " << certificate << " residual " << s.report().residual;
      EXPECT_GE(of_jvp.bound, distance(s.jvp(v), truth.jvp)) << k << " " << of_jvp;
      EXPECT_NE(certificate.basis, Certificate::Basis::proven);
      bounds += std::isfinite(certificate.bound) ? 1 : 0;
    }
  }
  EXPECT_GE(bounds, 180);
}

// Steps that conjugate gradients cut short say little about the distance that is left where the condition is large.
TEST(NewtonCgCertificate, TheBoundAndTheDistanceHoldForHessiansOfAnyCondition) {
  Random random(2);
  int bounds = 0;
  for (int k = 0; k < 150; ++k) {
    const std::int64_t n = random.integer(0, 2) == 0 ? random.integer(30, 60) : random.integer(3, 12);
    const test::Spectrum problem(random, n, std::pow(10.0, random.uniform(4, 9)), random.flip());
    const SolveOptions options{.tolerance = std::pow(10.0, random.uniform(-11, -3))};
    const NewtonCgOptions how{.derivative_tolerance = std::pow(10.0, random.uniform(-13, -6))};
    const Array c = random.array({n}), v = random.array({n});
    for (const Estimator& e :
         std::vector<Estimator>{OneStep{}, Implicit{.how = Implicit::matrix_free, .tolerance = how.derivative_tolerance}}) {
      const Solution s = solve(newton_cg(problem.objective(), how, options), problem.start(), problem.theta, e);
      if (!is_solution(s.status())) continue;
      const Certificate reverse = s.certificate(c), forward = s.certificate_jvp(v);
      EXPECT_GE(reverse.bound, distance(s.vjp(c), problem.vjp(c))) << k << " " << reverse;
      EXPECT_GE(forward.bound, distance(s.jvp(v), problem.jvp(v))) << k << " " << forward;
      const double left = distance(s.x(), problem.x());
      for (const Certificate& certificate : {reverse, forward})
        EXPECT_TRUE(certificate.distance >= left || certificate.basis == Certificate::Basis::refused)
            << k << " " << certificate.distance << " " << left;
      bounds += std::isfinite(reverse.bound) ? 1 : 0;
    }
  }
  EXPECT_GE(bounds, 290);
}

TEST(NewtonCgCertificate, HessiansNearToSingularAreBoundedOrRefused) {
  Random random(3);
  int refused = 0;
  for (int k = 0; k < 40; ++k) {
    const std::int64_t n = random.integer(3, 12);
    const test::Spectrum problem(random, n, std::pow(10.0, random.uniform(12, 18)), random.flip());
    const Array c = random.array({n});
    const Solution s = solve(newton_cg(problem.objective()), problem.start(), problem.theta);
    if (!is_solution(s.status())) continue;
    const Certificate certificate = s.certificate(c);
    refused += certificate.basis == Certificate::Basis::refused ? 1 : 0;
    EXPECT_GE(certificate.bound, distance(s.even_if_unconverged().vjp(c), problem.vjp(c))) << k << " " << certificate;
  }
  EXPECT_GT(refused, 0);
}

// x = θ b/s, and c was chosen so that of cᵀ(b/s) little is left: what conjugate gradients leave of a residual is seen in it.
// Least squares whose rows have weights of 1 to 1e-12. The derivative is the inverse of a matrix of small whole numbers.
TEST(NewtonCgCertificate, OfWeightedLeastSquaresHoldsAndAutoKeepsItsWord) {
  Random random(41);
  for (int trial = 0; trial < 300; ++trial) {
    constexpr std::int64_t n = 3;
    std::vector<double> entries(n * n);
    for (double& e : entries) e = static_cast<double>(random.integer(-3, 3));
    const auto at = [&](std::int64_t i, std::int64_t j) { return entries[static_cast<std::size_t>(i % n * n + j % n)]; };
    const auto cofactor = [&](std::int64_t i, std::int64_t j) {
      return at(i + 1, j + 1) * at(i + 2, j + 2) - at(i + 1, j + 2) * at(i + 2, j + 1);
    };
    const double det = at(0, 0) * cofactor(0, 0) + at(0, 1) * cofactor(0, 1) + at(0, 2) * cofactor(0, 2);
    if (det == 0) continue;
    const Array A(Shape{n, n}, entries), v = random.array({n}, -1, 1);
    std::vector<double> truth(n);
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t i = 0; i < n; ++i) truth[static_cast<std::size_t>(j)] += cofactor(i, j) / det * v(i);
    const double ratio = std::pow(10.0, random.uniform(-6, 0));
    const Array w{1.0, ratio, ratio * ratio};
    const Solver solver = newton_cg([&](Expr x, Expr t) { return sum(w * square(matmul(A, x) - t)); });
    const double tolerance = std::pow(10.0, random.uniform(-8, -2));
    for (const Estimator& e : {Estimator(OneStep{}), Estimator(Implicit{}), Estimator(Auto{tolerance})}) {
      const Solution s = solve(solver, zeros({n}), random.array({n}, -2, 2), e);
      if (!is_solution(s.status())) continue;
      Array g;
      try {
        g = s.jvp(v)[0];
      } catch (const NoDerivativeError&) { continue; }
      const bool met = s.report().met_tolerance;
      double squares = 0;
      for (const double e : truth) squares += e * e;
      const double size = std::sqrt(squares), error = size * test::relative_error(g, Array(truth));
      EXPECT_LE(error, s.certificate_jvp(v).bound + 1e-15 * size) << trial << ' ' << ratio;
      if (e.kind().index() == 4 && met) { EXPECT_LE(error, tolerance * size) << trial << ' ' << ratio; }
    }
  }
}

TEST(NewtonCgDerivative, ByAutoMeetsItsToleranceWhereTermsCancel) {
  constexpr std::int64_t n = 80;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Random random(seed);
    std::vector<double> s(n);
    for (std::size_t i = 0; i < n; ++i) s[i] = std::pow(1e-4, static_cast<double>(i) / (n - 1));
    const Array curvature({n}, s), b = random.array({n}, 0.5, 2);
    const Solver fit = newton_cg([&](Expr x, Expr t) { return sum(0.5 * curvature * square(x) - t * b * x); });
    std::vector<double> c(n);
    long double exact = 0;
    for (std::size_t i = 0; i < n; ++i) {
      c[i] = random.uniform(-1, 1);
      if (i + 1 == n) c[i] = static_cast<double>(-0.999L * exact * s[i] / b.values()[i]);
      exact += static_cast<long double>(c[i]) * b.values()[i] / s[i];
    }
    for (const double tolerance : {1e-6, 1e-10, 1e-11}) {
      const Solution solution = solve(fit, zeros({n}), 1.0, Auto{tolerance});
      const Array g = solution.vjp(Array({n}, c));
      const auto size = static_cast<double>(std::fabs(exact));
      const double error = static_cast<double>(std::fabs(g.item() - exact)) / size;
      EXPECT_TRUE(error <= tolerance || !solution.report().met_tolerance) << seed << ' ' << tolerance << ' ' << error;
      EXPECT_TRUE(tolerance < 1e-6 || solution.report().met_tolerance) << seed;
    }
  }
}

TEST(NewtonCgCertificate, OfASolveToTheDefaultsIsSharp) {
  Random random(7);
  const Softmax train(random, 60, 5, 3);
  const Parts theta{ones({60}), Array(0.5)};
  const Solution s = solve(newton_cg(train.objective()), train.start(), theta);
  const Certificate c = s.certificate(random.array({5, 3}));
  EXPECT_EQ(c.basis, Certificate::Basis::observed) << c.reason;
  EXPECT_LT(c.bound, 1e-8 * c.value);
}

// min ½xᵀHx - xᵀHθ is θ, whatever H. Its right-hand side H v has next to nothing of the directions in which H is flat, so
// that a small residual of conjugate gradients is no small error.
TEST(NewtonCgDerivative, ByAutoMeetsItsToleranceWhereTheRightHandSideHasLittleOfFlatDirections) {
  constexpr std::int64_t n = 5;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Random random(seed);
    const Array H = test::with_eigenvalues(random, {1.0, 1e-2, 1e-4, 1e-6, 1e-7}), theta = random.array({n}),
                v = random.array({n});
    for (const double solved_to : {1e-3, 1e-5, 1e-9}) {
      const Solver fit = newton_cg([&](Expr x, Expr t) { return 0.5 * matmul(x, matmul(H, x)) - matmul(x, matmul(H, t)); },
                                   {}, {.tolerance = solved_to});
      const Solution s = solve(fit, zeros({n}), theta, Auto{1e-4});
      if (!is_solution(s.status())) continue;
      const Array dx = s.jvp(v);
      EXPECT_TRUE(test::relative_error(dx, v) <= 1e-4 || !s.report().met_tolerance)
          << seed << ' ' << solved_to << ' ' << test::relative_error(dx, v);
    }
  }
}

}  // namespace
}  // namespace onestep
