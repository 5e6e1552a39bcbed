// Linear fixed points x = A x + θ b with A triangular: its radius is small, ‖(I - A)⁻¹‖ is not, and steps that shrink do not
// show that. The truth is back substitution.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "onestep/onestep.h"

namespace onestep {
namespace {

using Long = long double;

struct Triangular {
  Array A, b, v;
  std::vector<Long> J;
};

Triangular triangular(std::mt19937_64& random, std::size_t n) {
  std::normal_distribution<double> normal;
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  std::vector<double> a(n * n), b(n), v(n);
  const double radius = uniform(0.05, 0.5);
  for (std::size_t i = 0; i < n; ++i) {
    a[i * n + i] = radius * uniform(-1, 1);
    for (std::size_t j = i + 1; j < n; ++j) a[i * n + j] = normal(random) * std::exp(uniform(std::log(0.1), std::log(10)));
    b[i] = normal(random);
    v[i] = normal(random);
  }
  std::vector<Long> J(n);
  for (std::size_t i = n; i-- > 0;) {
    Long sum = static_cast<Long>(b[i]);
    for (std::size_t j = i + 1; j < n; ++j) sum += static_cast<Long>(a[i * n + j]) * J[j];
    J[i] = sum / (1 - static_cast<Long>(a[i * n + i]));
  }
  const auto size = static_cast<std::int64_t>(n);
  return {Array({size, size}, a), Array({size}, b), Array({size}, v), J};
}

Solution solved(const Triangular& t, const Estimator& estimator) {
  return solve(fixed_point([&](Expr x, Expr theta) { return matmul(t.A, x) + theta * t.b; }), zeros(t.b.shape()), Array(1.0),
               estimator);
}

struct Errors {
  double vjp = 0, jvp = 0, vjp_size = 0, jvp_size = 0;
};
Errors errors(const Triangular& t, const Array& vjp, const Array& jvp) {
  Long product = 0, error = 0, size = 0;
  for (std::size_t i = 0; i < t.J.size(); ++i) {
    product += t.J[i] * static_cast<Long>(t.v.values()[i]);
    error = std::hypot(error, static_cast<Long>(jvp.values()[i]) - t.J[i]);
    size = std::hypot(size, t.J[i]);
  }
  return {static_cast<double>(std::fabs(static_cast<Long>(vjp.item()) - product)), static_cast<double>(error),
          static_cast<double>(std::fabs(product)), static_cast<double>(size)};
}

TEST(NonNormal, TangentsAndCotangentsOfAutoAreWithinTheBoundAndTheTolerance) {
  std::mt19937_64 random(20);
  for (int trial = 0; trial < 1500; ++trial) {
    const Triangular t = triangular(random, 3 + static_cast<std::size_t>(trial % 4));
    for (const double tolerance : {1e-2, 1e-3, 1e-4}) {
      const Solution s = solved(t, Auto{tolerance});
      ASSERT_TRUE(is_solution(s.status())) << s.message();
      const Array g = s.vjp(t.v)[0];
      const bool vjp_met = s.report().met_tolerance;
      const Array y = s.jvp(1.0)[0];
      const bool jvp_met = s.report().met_tolerance;
      const Errors e = errors(t, g, y);
      EXPECT_TRUE(!vjp_met || e.vjp <= 1.01 * tolerance * e.vjp_size) << trial << ' ' << e.vjp / e.vjp_size;
      EXPECT_TRUE(!jvp_met || e.jvp <= 1.01 * tolerance * e.jvp_size) << trial << ' ' << e.jvp / e.jvp_size;
      const Certificate of_vjp = s.certificate(t.v), of_jvp = s.certificate_jvp(1.0);
      EXPECT_GE(of_vjp.bound, e.vjp) << trial << ": " << of_vjp;
      EXPECT_GE(of_jvp.bound, e.jvp) << trial << ": " << of_jvp;
    }
  }
}

// A map of three unknowns in which a residual that is small enough by far hides a large error.
TEST(NonNormal, AutoSeesWhatBecomesOfItsResidual) {
  const Array A{{0.07, 13.58, -0.03}, {0, 0.1, -0.56}, {0, 0, -0.06}}, b{0.25, 1.54, -0.36}, v{-0.07, 1.23, 0.66};
  const Solution s =
      solve(fixed_point([&](Expr x, Expr t) { return matmul(A, x) + t * b; }), zeros(3), Array(1.0), Auto{1e-3});
  const double x3 = -0.36 / 1.06, x2 = (1.54 - 0.56 * x3) / 0.9, x1 = (0.25 + 13.58 * x2 - 0.03 * x3) / 0.93;
  const double exact = -0.07 * x1 + 1.23 * x2 + 0.66 * x3;
  EXPECT_NEAR(s.vjp(v)[0].item(), exact, 1e-3 * std::fabs(exact));
}

TEST(NonNormal, ACertificateOfATangentGoesOnFromItsResidual) {
  std::mt19937_64 random(21);
  for (int trial = 0; trial < 3000; ++trial) {
    const Triangular t = triangular(random, 3 + static_cast<std::size_t>(trial % 4));
    for (const double tolerance : {1e-3, 1e-4, 1e-5}) {
      const Solution s = solved(t, Implicit{.how = Implicit::matrix_free, .tolerance = tolerance});
      const Certificate certificate = s.certificate_jvp(1.0);
      EXPECT_GE(certificate.bound, errors(t, Array(0.0), s.jvp(1.0)[0]).jvp) << trial << ": " << certificate;
    }
  }
}

}  // namespace
}  // namespace onestep
