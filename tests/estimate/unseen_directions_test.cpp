// Certificates and Auto where the direction that is asked for does not see what matters: slow components of a step, weak
// directions of a matrix, kinks at zero.
#include <gtest/gtest.h>

#include <cmath>

#include "support/problems.h"

namespace onestep {
namespace {

using Real = long double;

double gap(const Array& a, const Array& b) {
  double square = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) square += (a(i) - b(i)) * (a(i) - b(i));
  return std::sqrt(square);
}
double length(Real a, Real b) { return static_cast<double>(std::hypot(a, b)); }

std::vector<Estimator> superlinear_estimators() { return {OneStep{}, Implicit{}}; }

// G = {{0, -1}, {0, a}} x + k x³ - t has a singular linear part, the weak directions of which are not the same on both
// sides.
TEST(UnseenDirections, OfUnsymmetricJacobiansAreInTheBound) {
  for (const double k : {1e-2, 1e-4, 1e-6, 1e-8})
    for (const double a : {-2.0, -1.0, 3.0})
      for (const double x0 : {1.0794, 0.7, 2.0}) {
        const double y0 = 0.3739;
        const Array A{{0.0, -1.0}, {0.0, a}}, theta{-y0 + k * x0 * x0 * x0, a * y0 + k * y0 * y0 * y0};
        const Solver root = newton_root([&](Expr x, Expr t) { return matmul(A, x) + k * x * x * x - t; });
        const Solution s = solve(root, Array{1.1 * x0, y0}, theta);
        if (!is_solution(s.status())) continue;
        Real y = y0;
        for (int i = 0; i < 40; ++i) y -= (a * y + k * y * y * y - Real{theta(1)}) / (a + 3 * k * y * y);
        const Real x = std::cbrt((theta(0) + y) / k), dy = a + 3 * k * y * y, dx = 3 * k * x * x;
        for (const Array& c : {Array{1.0, 0.0}, Array{0.0, 1.0}, Array{0.6, -0.3}}) {
          const Real tangent_y = c(1) / dy, tangent_x = (c(0) + tangent_y) / dx;
          const Real u_x = c(0) / dx, u_y = (c(1) + u_x) / dy;
          const Array jvp = s.jvp(c), vjp = s.vjp(c);
          const Certificate forward = s.certificate_jvp(c), reverse = s.certificate(c);
          EXPECT_LE(length(jvp(0) - tangent_x, jvp(1) - tangent_y), forward.bound) << k << ' ' << a << ' ' << forward;
          EXPECT_LE(length(vjp(0) - u_x, vjp(1) - u_y), reverse.bound) << k << ' ' << a << ' ' << reverse;
        }
      }
}

// Along the large eigenvector of H the derivative is of size 1, whatever the small one is; rounding goes along that.
TEST(UnseenDirections, OfHessiansAreInTheBound) {
  for (const double condition : {1e6, 1e8, 1e10, 1e12})
    for (int k = 0; k < 30; ++k) {
      const double angle = 0.02 + 0.05 * k, c = std::cos(angle), s = std::sin(angle), weak = 1 / condition;
      const double h11 = c * c + weak * s * s, h12 = (1 - weak) * c * s, h22 = s * s + weak * c * c;
      const Array H{{h11, h12}, {h12, h22}}, direction{c, s}, theta{h11 + h12, h12 + h22};
      const Real det = Real{h11} * h22 - Real{h12} * h12;
      const Real u0 = (Real{h22} * c - Real{h12} * s) / det, u1 = (Real{h11} * s - Real{h12} * c) / det;
      const auto f = [&](Expr x, Expr t) { return 0.5 * sum(x * matmul(H, x)) - sum(t * x); };
      for (const Solver& solver : {newton(f), newton_cg(f), newton_root([&](Expr x, Expr t) { return matmul(H, x) - t; })})
        for (const Estimator& e : superlinear_estimators()) {
          const Solution solution = solve(solver, Array{0.5, 0.3}, theta, e).even_if_unconverged();
          if (!is_solution(solution.status())) continue;
          const Array vjp = solution.vjp(direction), jvp = solution.jvp(direction);
          const Certificate reverse = solution.certificate(direction), forward = solution.certificate_jvp(direction);
          // The truth is known to the rounding of a long double.
          const double truth = 4e-19 * condition;
          EXPECT_LE(length(vjp(0) - u0, vjp(1) - u1), 1.5 * reverse.bound + truth)
              << condition << ' ' << k << ' ' << reverse;
          EXPECT_LE(length(jvp(0) - u0, jvp(1) - u1), 1.5 * forward.bound + truth)
              << condition << ' ' << k << ' ' << forward;
        }
    }
}

// A slow component that θ moves a little: a linear solve that stops early does not see it, the steps of the solve have.
TEST(UnseenDirections, AutoKnowsOfSlowComponents) {
  for (const double delta : {1e-2, 1e-3, 1e-4})
    for (const double beta : {1e-3, 1e-4, 1e-6, 1e-8})
      for (const double tolerance : {1e-1, 1e-2, 1e-4, 1e-6}) {
        const Array d{0.0, 0.96, 1 - delta}, b{0.35, 0.06, beta};
        const Solver step = fixed_point([&](Expr x, Expr t) { return d * x + b * t; }, {.max_iterations = 1000000});
        const Solution s = solve(step, zeros({3}), Array(1.0), Auto{tolerance});
        ASSERT_TRUE(is_solution(s.status())) << s.message();
        const Array jvp = s.jvp(1.0), truth{0.35, 0.06 / (1 - d(1)), beta / (1 - d(2))};
        const double error = gap(jvp, truth), size = gap(truth, zeros({3}));
        EXPECT_TRUE(error <= tolerance * size || !s.report().met_tolerance) << delta << ' ' << beta << ' ' << error / size;
      }
}

// A solve that begins at its solution makes no step that would tell how fast it converges.
TEST(UnseenDirections, CertificatesAfterAStartAtTheSolutionKnowOfSlowComponents) {
  for (const double delta : {1e-2, 1e-4, 1e-6, 1e-8})
    for (const double beta : {1e-2, 1e-4, 1e-6})
      for (const Estimator& e : std::vector<Estimator>{KStep{5}, KStep{30}, OneStep{}, Auto{1e-2}}) {
        const Array d{0.0, 0.96, 1 - delta}, b{0.35, 0.06, beta};
        const Solution s = solve(fixed_point([&](Expr x, Expr t) { return d * x + b * t; }), zeros({3}), Array(0.0), e);
        ASSERT_TRUE(is_solution(s.status())) << s.message();
        const Array truth{0.35, 0.06 / (1 - d(1)), beta / (1 - d(2))};
        const Certificate c = s.certificate_jvp(1.0);
        EXPECT_LE(gap(s.jvp(1.0), truth), c.bound) << delta << ' ' << beta << ' ' << c;
      }
  // x₁ converges slowly and is 5e-10 away; c sees x₂ alone, the derivative of which depends on x₁.
  const Solver two = fixed_point([](Expr slow, Expr x, Expr t) {
    return std::pair{slow + 1e-7 * (slice(t, 0, 1) - slow), 0.5 * sin(slow) * x + slice(t, 1, 2)};
  });
  const Solution s = solve(two, {Array{1 - 5e-10}, Array{0.0}}, Array{1.0, 0.0});
  ASSERT_TRUE(is_solution(s.status())) << s.message();
  const Parts c{Array{0.0}, Array{1.0}};
  EXPECT_LE(std::fabs(s.vjp(c)[0](1) - 1 / (1 - 0.5 * std::sin(1.0))), s.certificate(c).bound) << s.certificate(c);
}

TEST(UnseenDirections, AKinkAtZeroIsSeen) {
  const Solver step = fixed_point([](Expr x, Expr t) { return 0.5 * abs(x) + 0.1 * x + t; });
  for (const Estimator& e : std::vector<Estimator>{Auto{}, Implicit{}, KStep{20}})
    EXPECT_EQ(solve(step, Array{0.0}, Array{0.0}, e).certificate(Array{1.0}).basis, Certificate::Basis::refused);
  const Solver least = newton([](Expr x, Expr t) { return sum(square(x) + 0.5 * x * abs(x) - t * x); });
  EXPECT_EQ(solve(least, Array{0.0}, Array{0.0}).certificate(Array{1.0}).basis, Certificate::Basis::refused);
}

// Two features make up the third: there are many minimisers, and a right-hand side within the range of H does not tell.
TEST(UnseenDirections, MinimisersThatAreNotUniqueHaveNoDerivative) {
  const Array A{{1.1, 0.2, 1.3}, {0.3, 0.5, 0.8}, {0.7, -0.4, 0.3}, {0.1, 0.2, 0.3}}, y{1.0, 0.5, -0.3, 0.2};
  const auto f = [&](Expr x, Expr t) { return 0.5 * sum(square(matmul(A, x) - t)); };
  const Solution s = solve(gradient_descent(f), zeros({3}), y, Implicit{});
  ASSERT_TRUE(is_solution(s.status())) << s.message();
  const Array e1{1.0, 0.0, 0.0, 0.0};
  EXPECT_THROW(s.jvp(e1), NoDerivativeError);
  EXPECT_THROW(s.vjp(Array{1.0, 0.0, 0.0}), NoDerivativeError);
  EXPECT_THROW(s.jacobian(), NoDerivativeError);
  EXPECT_EQ(s.certificate_jvp(e1).basis, Certificate::Basis::refused);
}

// Columns that almost make up another: the condition of H goes like 1/d².
TEST(UnseenDirections, OfNearlyDependentColumnsAreInTheBound) {
  for (const double d : {1e-3, 1e-5, 1e-6, 1e-7}) {
    const double rows[4][2] = {{1.1, 0.2}, {0.3, 0.5}, {0.7, -0.4}, {0.1, 0.2}};
    std::vector<double> entries;
    for (int i = 0; i < 4; ++i)
      entries.insert(entries.end(), {rows[i][0], rows[i][1], rows[i][0] + rows[i][1] + d * (i == 0)});
    const Array A(Shape{4, 3}, entries), y{1.0, 0.5, -0.3, 0.2}, e1{1.0, 0.0, 0.0, 0.0};
    const auto f = [&](Expr x, Expr t) { return 0.5 * sum(square(matmul(A, x) - t)); };
    const Solution s = solve(gradient_descent(f), zeros({3}), y, Implicit{.how = Implicit::dense}).even_if_unconverged();
    // (AᵀA)⁻¹Aᵀe₁ by Cramer's rule.
    std::array<std::array<Real, 3>, 3> H{};
    std::array<Real, 3> b{};
    const auto at = [&](std::size_t i, std::size_t j) { return Real{entries[3 * i + j]}; };
    for (std::size_t i = 0; i < 3; ++i) {
      b[i] = at(0, i);
      for (std::size_t j = 0; j < 3; ++j)
        for (std::size_t k = 0; k < 4; ++k) H[i][j] += at(k, i) * at(k, j);
    }
    const auto det = [](const auto& m) {
      return m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0]) +
             m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]);
    };
    double error = 0;
    const Array jvp = s.jvp(e1);
    for (std::size_t i = 0; i < 3; ++i) {
      auto replaced = H;
      for (std::size_t j = 0; j < 3; ++j) replaced[j][i] = b[j];
      error = std::hypot(error, static_cast<double>(jvp(static_cast<std::int64_t>(i)) - det(replaced) / det(H)));
    }
    const Certificate c = s.certificate_jvp(e1);
    EXPECT_LE(error, c.bound) << d << ' ' << c;
  }
}

// Differences grow for hundreds of steps before they shrink: KStep needs contraction, and there is some.
TEST(UnseenDirections, KStepsOfAContractionThatIsNotNormalAreTaken) {
  const Array W{{0.93, 1.0, 0.0, 0.0}, {0.0, 0.93, 1.0, 0.0}, {0.0, 0.0, 0.93, 1.0}, {0.0, 0.0, 0.0, 0.93}};
  const Solver step = fixed_point([&](Expr x, Expr t) { return matmul(W, x) + t; }, {.tolerance = 1e-12});
  const Solution s = solve(step, zeros({4}), ones({4}), KStep{10});
  ASSERT_TRUE(is_solution(s.status())) << s.message();
  EXPECT_NO_THROW(s.vjp(Array{1.0, 0.0, 0.0, 0.0}));
  const Array all = solve(step, zeros({4}), ones({4}), KStep{1000}).vjp(Array{1.0, 0.0, 0.0, 0.0});
  EXPECT_NEAR(all(0), 1 / 0.07, 1e-9 / 0.07);
  const Certificate c = s.certificate(Array{1.0, 0.0, 0.0, 0.0});
  EXPECT_LE(gap(s.vjp(Array{1.0, 0.0, 0.0, 0.0}), all), c.bound) << c;
}

// x is as large as the condition, and the full step is rounding of it although it is no small part of it.
TEST(UnseenDirections, QuadraticsOfAnyConditionAreSolved) {
  for (const double condition : {1e4, 1e6, 1e7, 1e9, 1e11})
    for (int k = 0; k < 10; ++k) {
      const double angle = 0.1 + 0.05 * k, c = std::cos(angle), s = std::sin(angle), weak = 1 / condition;
      const Array H{{c * c + weak * s * s, (1 - weak) * c * s}, {(1 - weak) * c * s, s * s + weak * c * c}};
      const auto f = [&](Expr x, Expr t) { return 0.5 * sum(x * matmul(H, x)) - sum(t * x); };
      for (const Solver& solver : {newton(f), newton_cg(f)}) {
        const Solution solution = solve(solver, Array{0.3, -0.2}, Array{0.7, 0.4 + 0.01 * k});
        EXPECT_TRUE(is_solution(solution.status())) << condition << ' ' << k << ' ' << solution.message();
        EXPECT_LT(solution.statistics().iterations, 100);
      }
    }
}

}  // namespace
}  // namespace onestep
