// Problems whose derivative is known in closed form, and the agreement of the estimators that the paper reports.
#include <gtest/gtest.h>

#include "support/files.h"
#include "support/problems.h"

namespace onestep {
namespace {

using test::Logistic;
using test::Random;

std::vector<Estimator> exact_estimators() {
  return {Implicit{},
          Implicit{.how = Implicit::dense},
          Implicit{.how = Implicit::matrix_free},
          Implicit{.on_step = true},
          Unrolled{},
          Unrolled{.mode = Unrolled::forward},
          Unrolled{.mode = Unrolled::reverse, .memory = 1000},
          KStep{1000},
          Auto{1e-12}};
}

// jvp, vjp and the Jacobian of every exact estimator, and of one step where the step has ρ = 0.
void expect_derivative(const Solver& solver, const Array& x0, const Array& theta, const Array& x, const Array& J,
                       bool one_step_is_exact, double tolerance = 1e-10) {
  Random random(99);
  const Array v = random.array(theta.shape()), c = random.array(x0.shape());
  std::vector<Estimator> estimators = exact_estimators();
  if (one_step_is_exact) estimators.insert(estimators.end(), {OneStep{}, KStep{2}});
  for (const Estimator& e : estimators) {
    const Solution s = solve(solver, x0, theta, e);
    ASSERT_TRUE(is_solution(s.status())) << s.message();
    EXPECT_LT(test::relative_error(test::flat(s.x()), test::flat(x)), tolerance);
    EXPECT_LT(test::relative_error(test::flat(s.jvp(v)), test::product(J, test::flat(v))), tolerance)
        << e.kind().index() << s.report().method;
    EXPECT_LT(test::relative_error(test::flat(s.vjp(c)), test::product(test::transposed(J), test::flat(c))), tolerance)
        << e.kind().index() << s.report().method;
    EXPECT_LT(test::relative_error(s.jacobian(), J), tolerance) << e.kind().index();
  }
}

const SolveOptions exactly{.tolerance = 1e-14, .max_iterations = 100000};

TEST(ClosedForm, Quadratic) {
  // ½xᵀHx - xᵀBθ: x = H⁻¹Bθ
  Random random(1);
  const Array H = test::with_eigenvalues(random, test::spread(0.5, 3, 6)), B = random.array({6, 4}),
              theta = random.array({4});
  const auto f = [&](Expr x, Expr t) { return 0.5 * matmul(x, matmul(H, x)) - matmul(x, matmul(B, t)); };
  const Array J = test::solved(H, B), x = test::product(J, theta);
  expect_derivative(newton(f, exactly), zeros({6}), theta, x, J, true);
  expect_derivative(newton_root([&](Expr at, Expr t) { return matmul(H, at) - matmul(B, t); }, exactly), zeros({6}), theta,
                    x, J, true);
  expect_derivative(gradient_descent(f, {.step = GradientStep::optimal(0.5, 3)}, exactly), zeros({6}), theta, x, J, false);
  expect_derivative(gradient_descent(f, {.step = GradientStep::inverse_smoothness()}, exactly), zeros({6}), theta, x, J,
                    false);
  expect_derivative(fixed_point([&](Expr at, Expr t) { return at - 0.3 * (matmul(H, at) - matmul(B, t)); }, exactly),
                    zeros({6}), theta, x, J, false);
}

TEST(ClosedForm, RidgeByItsWeights) {
  // (AᵀWA + λI) x = AᵀWy, dx/dwᵢ = (AᵀWA + λI)⁻¹ aᵢ (yᵢ - aᵢᵀx)
  Random random(2);
  const std::int64_t rows = 15, n = 4;
  const Array A = random.array({rows, n}), y = random.array({rows}), w = random.array({rows}, 0.5, 1.5);
  const auto f = [&](Expr x, Expr t) { return 0.5 * sum(t * square(y - matmul(A, x))) + 0.35 * sum(square(x)); };
  std::vector<double> wa = test::entries_of(A);
  for (std::size_t i = 0; i < wa.size(); ++i) wa[i] *= w(static_cast<std::int64_t>(i) / n);
  const Array WA(A.shape(), wa);
  const Array M = test::plus(test::product(test::transposed(WA), A), test::times(0.7, test::identity(n)));
  const Array x = test::solved(M, test::product(test::transposed(WA), y)), r = test::minus(y, test::product(A, x));
  std::vector<double> ra = test::entries_of(A);
  for (std::size_t i = 0; i < ra.size(); ++i) ra[i] *= r(static_cast<std::int64_t>(i) / n);
  const Array J = test::solved(M, test::transposed(Array(A.shape(), ra)));
  expect_derivative(newton(f, exactly), zeros({n}), w, x, J, true);
  expect_derivative(gradient_descent(f, {}, exactly), zeros({n}), w, x, J, false);
}

TEST(ClosedForm, ScalarFixedPointOfACosine) {
  // x = cos(θ x): dx/dθ = -x sin(θx) / (1 + θ sin(θx))
  const double theta = 0.9;
  double x = 0.7;
  for (int k = 0; k < 1000; ++k) x = std::cos(theta * x);
  const double J = -x * std::sin(theta * x) / (1 + theta * std::sin(theta * x));
  expect_derivative(fixed_point([](Expr at, Expr t) { return cos(t * at); }, exactly), Array(0.5), Array(theta), Array(x),
                    Array({1, 1}, {J}), false);
  expect_derivative(newton_root([](Expr at, Expr t) { return at - cos(t * at); }, exactly), Array(0.5), Array(theta),
                    Array(x), Array({1, 1}, {J}), true);
}

TEST(ClosedForm, SquareRootsByHeron) {
  // x ← (x + θ/x)/2 is Newton's method: one step is exact.
  const Array theta{2.0, 9.0, 0.01}, x{std::sqrt(2.0), 3.0, 0.1};
  const Array J{{0.5 / std::sqrt(2.0), 0.0, 0.0}, {0.0, 1.0 / 6, 0.0}, {0.0, 0.0, 5.0}};
  expect_derivative(fixed_point([](Expr at, Expr t) { return 0.5 * (at + t / at); }, exactly), ones({3}), theta, x, J, true);
}

TEST(ClosedForm, TwoByTwoSystem) {
  // u² + v² = s, u v = p: u ± v = √(s ± 2p)
  const double s = 5.0, p = 1.5, plus = std::sqrt(s + 2 * p), minus = std::sqrt(s - 2 * p);
  const Array x{(plus + minus) / 2, (plus - minus) / 2};
  // d(u + v)/ds = 1/(2√(s+2p)), d/dp = 1/√(s+2p)
  const double as = 0.5 / plus, ap = 1 / plus, bs = 0.5 / minus, bp = -1 / minus;
  const Array J{{(as + bs) / 2, (ap + bp) / 2}, {(as - bs) / 2, (ap - bp) / 2}};
  const auto G = [](Expr at, Expr t) {
    const Expr u = slice(at, 0, 1), v = slice(at, 1, 2);
    return concat({square(u) + square(v), u * v}) - t;
  };
  expect_derivative(newton_root(G, exactly), Array{2.5, 0.5}, Array{s, p}, x, J, true);
}

TEST(ClosedForm, ATwoByTwoLinearFixedPoint) {
  // x = A x + θ with a matrix that is not normal.
  const Array A{{0.5, 0.4}, {-0.1, 0.3}};
  const Array J = test::inverse(test::minus(test::identity(2), A)), theta{1.0, -2.0};
  expect_derivative(fixed_point([&](Expr at, Expr t) { return matmul(A, at) + t; }, exactly), zeros({2}), theta,
                    test::product(J, theta), J, false);
}

TEST(ClosedForm, MomentumHasTwoPartsAndTheSameDerivative) {
  Random random(3);
  const Array H = test::with_eigenvalues(random, test::spread(0.2, 2, 4)), theta = random.array({4}), v = random.array({4}),
              c = random.array({4});
  const auto f = [&](Expr x, Expr t) { return 0.5 * matmul(x, matmul(H, x)) - sum(t * x); };
  const Array J = test::inverse(H);
  for (const Momentum& m : {Momentum::heavy_ball(0.4), Momentum::nesterov(0.4)})
    for (const Estimator& e : exact_estimators()) {
      const Solution s = solve(gradient_descent(f, {.step = GradientStep::inverse_smoothness(2), .momentum = m}, exactly),
                               {zeros({4}), zeros({4})}, theta, e);
      ASSERT_TRUE(is_solution(s.status()));
      EXPECT_LT(test::relative_error(s.x(), test::product(J, theta)), 1e-10);
      const Parts dx = s.jvp(v);
      EXPECT_LT(test::relative_error(dx[0], test::product(J, v)), 1e-9) << e.kind().index();
      EXPECT_LT(test::relative_error(dx[1], test::product(J, v)), 1e-9) << e.kind().index();
      EXPECT_LT(test::relative_error(s.vjp(c), test::product(J, c)), 1e-9) << e.kind().index();
    }
}

TEST(Agreement, OneStepOfNewtonEqualsImplicit) {
  Random random(4);
  for (const auto& [rows, n] : {std::pair<std::int64_t, std::int64_t>{200, 5}, {300, 20}}) {
    const Logistic problem(random, rows, n);
    const Solver fit = newton(problem.objective(), {.tolerance = 1e-12});
    const Solution one = solve(fit, problem.start(), problem.weights(), OneStep{});
    const Solution implicit = solve(fit, problem.start(), problem.weights(), Implicit{.tolerance = 1e-14});
    EXPECT_LT(test::relative_error(one.vjp(one.x()), implicit.vjp(one.x())), 1e-12);
    const Array v = random.array({rows});
    EXPECT_LT(test::relative_error(one.jvp(v), implicit.jvp(v)), 1e-12);
  }
}

TEST(Agreement, OneStepOfNewtonEqualsImplicitOnRealData) {
  ONESTEP_NEEDS_DATA("classification/heart_scale");
  const Dataset d = read_libsvm(test::shared_data("classification/heart_scale").string());
  const Solver fit = newton([&](Expr x, Expr w) { return sum(w * softplus(-d.y * matmul(d.A, x))) + 0.1 * sum(square(x)); },
                            {.tolerance = 1e-12});
  const Shape n{d.A.shape()[1]}, rows{d.A.shape()[0]};
  const Solution one = solve(fit, zeros(n), ones(rows), OneStep{}), implicit = solve(fit, zeros(n), ones(rows), Implicit{});
  EXPECT_LT(test::relative_error(one.vjp(one.x()), implicit.vjp(one.x())), 1e-12);
}

// Errors of the derivative after k = 1, 2, … iterations.
std::vector<double> errors_along(const Solver& solver, const Logistic& problem, const Estimator& e, int most) {
  const Array expected = problem.derivative(problem.weights());
  std::vector<double> errors;
  for (int k = 1; k <= most; ++k) {
    const Solution s =
        solve(solver.with(SolveOptions{.tolerance = 0, .max_iterations = k}), problem.start(), problem.weights(), e);
    errors.push_back(test::relative_error(s.even_if_unconverged().jacobian(), expected));
  }
  return errors;
}

TEST(Agreement, AllEstimatorsConvergeQuadraticallyAlongNewtonsIterates) {
  Random random(5);
  const Logistic problem(random, 40, 3);
  for (const Estimator& e : std::vector<Estimator>{OneStep{}, Implicit{}, Unrolled{}}) {
    const std::vector<double> errors = errors_along(newton(problem.objective()), problem, e, 8);
    EXPECT_LT(errors.back(), 1e-12);
    // Once below 0.1 each error is at most C times the square of the one before.
    int squared = 0;
    for (std::size_t k = 1; k < errors.size(); ++k)
      if (errors[k - 1] < 0.1 && errors[k - 1] > 1e-7) {
        EXPECT_LT(errors[k], 20 * errors[k - 1] * errors[k - 1] + 1e-13) << k;
        ++squared;
      }
    EXPECT_GE(squared, 1);
  }
}

TEST(Agreement, OneStepOfGradientDescentKeepsAnErrorInProportionToRho) {
  // On a quadratic the error of one step is ‖A (I - A)⁻¹ B‖, of K steps ‖A^K (I - A)⁻¹ B‖, whatever the iterate.
  Random random(6);
  const Array H = test::with_eigenvalues(random, test::spread(1, 4, 5)), theta = random.array({5});
  const auto f = [&](Expr x, Expr t) { return 0.5 * matmul(x, matmul(H, x)) - sum(t * x); };
  const Array J = test::inverse(H), A = test::minus(test::identity(5), test::times(0.25, H));
  Array power = A;
  for (int K = 1; K <= 6; ++K) {
    const Solution s =
        solve(gradient_descent(f, {.step = GradientStep::inverse_smoothness(4)}), zeros({5}), theta, KStep{K});
    const double error = test::spectral_norm(test::minus(J, s.jacobian()));
    EXPECT_NEAR(error, test::spectral_norm(test::product(power, J)), 1e-12);
    EXPECT_NEAR(error, std::pow(0.75, K), 1e-12);  // ρ^K ‖J‖ with ρ = 1 - μ/L and ‖J‖ = 1/μ = 1
    power = test::product(power, A);
  }
  const Solution one =
      solve(gradient_descent(f, {.step = GradientStep::inverse_smoothness(4)}), zeros({5}), theta, OneStep{});
  EXPECT_NEAR(test::spectral_norm(test::minus(J, one.jacobian())), 0.75, 1e-12);
}

TEST(Agreement, ErrorsOfGradientDescentOnALogisticFitSettleAtPowersOfRho) {
  Random random(7);
  const Logistic problem(random, 40, 3);
  const Array expected = problem.derivative(problem.weights());
  std::vector<double> errors;
  for (const int K : {10, 20, 30}) {
    const Solution s =
        solve(gradient_descent(problem.objective(), {}, exactly), problem.start(), problem.weights(), KStep{K});
    errors.push_back(test::relative_error(s.jacobian(), expected));
  }
  // Ten steps more multiply the error by ρ¹⁰ each time.
  EXPECT_NEAR(errors[2] / errors[1], errors[1] / errors[0], 0.1 * errors[1] / errors[0]);
}

}  // namespace
}  // namespace onestep
