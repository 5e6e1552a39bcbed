// Steps and equations of callbacks: with both derivatives every estimator works on them, with one those that can.
#include <fmt/format.h>

#include <cmath>

#include "onestep/onestep.h"
#include "support/random.h"
#include "support/run.h"

namespace onestep {
namespace {

using test::error_of;
using test::near;
using test::Random;

// x ← x/2 + a/(2x) entry by entry: √a with derivative 1/(2√a). Written by hand.
ForeignStep square_roots() {
  return {.apply =
              [](auto x, auto theta, auto next) {
                for (std::size_t i = 0; i < x.size(); ++i) next[i] = 0.5 * (x[i] + theta[0].values()[i] / x[i]);
              },
          .jvp =
              [](auto x, auto theta, auto dx, auto dtheta, auto out) {
                for (std::size_t i = 0; i < x.size(); ++i)
                  out[i] = (dx.empty() ? 0 : (0.5 - 0.5 * theta[0].values()[i] / (x[i] * x[i])) * dx[i]) +
                           (dtheta.empty() ? 0 : 0.5 / x[i] * dtheta[0].values()[i]);
              },
          .vjp =
              [](auto x, auto theta, auto c, auto x_bar, auto theta_bar) {
                for (std::size_t i = 0; i < x.size(); ++i) {
                  if (!x_bar.empty()) x_bar[i] = (0.5 - 0.5 * theta[0].values()[i] / (x[i] * x[i])) * c[i];
                  if (!theta_bar.empty()) theta_bar[0][i] = 0.5 / x[i] * c[i];
                }
              }};
}
// x² - a = 0
ForeignStep squares() {
  return {.apply =
              [](auto x, auto theta, auto out) {
                for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] * x[i] - theta[0].values()[i];
              },
          .jvp =
              [](auto x, auto, auto dx, auto dtheta, auto out) {
                for (std::size_t i = 0; i < x.size(); ++i)
                  out[i] = (dx.empty() ? 0 : 2 * x[i] * dx[i]) - (dtheta.empty() ? 0 : dtheta[0].values()[i]);
              },
          .vjp =
              [](auto x, auto, auto c, auto x_bar, auto theta_bar) {
                for (std::size_t i = 0; i < x.size(); ++i) {
                  if (!x_bar.empty()) x_bar[i] = 2 * x[i] * c[i];
                  if (!theta_bar.empty()) theta_bar[0][i] = -c[i];
                }
              }};
}
ForeignStep without_jvp(ForeignStep step) { return step.jvp = {}, step; }
ForeignStep without_vjp(ForeignStep step) { return step.vjp = {}, step; }

const std::pair<const char*, Estimator> estimators[] = {{"OneStep", OneStep{}},
                                                        {"KStep", KStep{2}},
                                                        {"Implicit", Implicit{.how = Implicit::dense}},
                                                        {"Implicit", Implicit{.how = Implicit::matrix_free}},
                                                        {"Unrolled", Unrolled{}},
                                                        {"Auto", Auto{}}};

struct Roots {
  Array a{2.0, 3.0, 5.0}, x0{1.0, 1.0, 1.0}, direction{1.0, -2.0, 0.5};
  Array expected = [this] {
    std::vector<double> d;
    for (std::size_t i = 0; i < 3; ++i) d.push_back(direction.values()[i] / (2 * std::sqrt(a.values()[i])));
    return test::vector_of(d);
  }();
};

TEST(ForeignStep, WithBothDerivativesWorksInEveryEstimator) {
  const Roots r;
  for (const auto& [name, estimator] : estimators) {
    SCOPED_TRACE(name);
    const Solution s = solve(fixed_point(square_roots()), r.x0, r.a, estimator);
    ASSERT_EQ(s.status(), Status::converged);
    EXPECT_TRUE(near(s.vjp(r.direction), r.expected, 1e-9));
    EXPECT_TRUE(near(s.jvp(r.direction), r.expected, 1e-9));
    const Certificate c = s.certificate(r.direction);
    EXPECT_EQ(c.basis, Certificate::Basis::observed) << c;
  }
}

TEST(ForeignStep, WithoutVjpHasJvpInEveryEstimatorAndSaysWhatWorks) {
  const Roots r;
  for (const auto& [name, estimator] : estimators) {
    SCOPED_TRACE(name);
    const Solution s = solve(fixed_point(without_vjp(square_roots())), r.x0, r.a, estimator);
    EXPECT_TRUE(near(s.jvp(r.direction), r.expected, 1e-9));
    EXPECT_EQ(s.jacobian()[0].shape(), (Shape{3, 3}));
    EXPECT_EQ(
        error_of([&] { s.vjp(r.direction); }),
        fmt::format("[{}] vjp is missing: the step has no vjp callback. Without it there is jvp with every estimator, and "
                    "vjp with Unrolled{{.mode = Unrolled::forward}}",
                    name));
  }
  const Solution forward = solve(fixed_point(without_vjp(square_roots())), r.x0, r.a, Unrolled{.mode = Unrolled::forward});
  EXPECT_TRUE(near(forward.vjp(r.direction), r.expected, 1e-9));
}

TEST(ForeignStep, WithoutJvpHasVjpInEveryEstimatorAndSaysWhatWorks) {
  const Roots r;
  for (const auto& [name, estimator] : estimators) {
    SCOPED_TRACE(name);
    const Solution s = solve(fixed_point(without_jvp(square_roots())), r.x0, r.a, estimator);
    EXPECT_TRUE(near(s.vjp(r.direction), r.expected, 1e-9));
    EXPECT_EQ(s.jacobian()[0].shape(), (Shape{3, 3}));
    EXPECT_EQ(
        error_of([&] { s.jvp(r.direction); }),
        fmt::format("[{}] jvp is missing: the step has no jvp callback. Without it there is vjp with every estimator, and "
                    "jvp with Unrolled{{.mode = Unrolled::reverse}}",
                    name));
  }
  const Solution reverse = solve(fixed_point(without_jvp(square_roots())), r.x0, r.a, Unrolled{.mode = Unrolled::reverse});
  EXPECT_TRUE(near(reverse.jvp(r.direction), r.expected, 1e-9));
}

TEST(ForeignStep, SolvesWithoutAnyDerivativeAndRefusesACertificate) {
  const Roots r;
  const Solution s = solve(fixed_point(without_vjp(without_jvp(square_roots()))), r.x0, r.a);
  EXPECT_EQ(s.status(), Status::converged);
  EXPECT_EQ(s.certificate(r.direction).basis, Certificate::Basis::refused);
  EXPECT_EQ(error_of([] { fixed_point(ForeignStep{}); }), "[fixed_point] a foreign step needs its apply callback");
}

TEST(ForeignStep, TakesAnEquationTracedOrForeign) {
  const Roots r;
  const Solver bare = fixed_point(without_vjp(without_jvp(square_roots())));
  const Solver solvers[] = {bare.equation([](Expr x, Expr a) { return square(x) - a; }), bare.equation(squares()),
                            bare.equation(dual_step([](auto x, auto theta, auto out) {
                              for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] * x[i] - theta[0].values()[i];
                            }))};
  for (const Solver& solver : solvers)
    for (const Implicit::How how : {Implicit::dense, Implicit::matrix_free}) {
      const Solution s = solve(solver, r.x0, r.a, Implicit{.how = how});
      EXPECT_TRUE(near(s.vjp(r.direction), r.expected, 1e-11));
      EXPECT_TRUE(near(s.jvp(r.direction), r.expected, 1e-11));
    }
  EXPECT_EQ(error_of([&] { bare.equation(ForeignStep{}); }), "[equation] a foreign equation needs its apply callback");
  const Solution s = solve(bare.equation(without_vjp(squares())), r.x0, r.a, Implicit{});
  EXPECT_THAT(error_of([&] { s.vjp(r.direction); }),
              testing::StartsWith("[Implicit] vjp is missing: the equation has no vjp callback"));
}

TEST(ForeignStep, IsANodeOfATracedFunction) {
  const Roots r;
  for (const auto& [name, estimator] : estimators) {
    SCOPED_TRACE(name);
    const Solver root = fixed_point(square_roots()).from(r.x0).with(estimator);
    const Function f = traced(
        [&](Expr a) {
          const Expr y = sum(r.direction * root(a * 2.0));
          return std::pair{y, grad(y, a)};
        },
        Shape{3});
    std::vector<double> expected;
    for (std::size_t i = 0; i < 3; ++i) expected.push_back(r.direction.values()[i] / std::sqrt(2 * r.a.values()[i]));
    EXPECT_TRUE(near(evaluate(f, {r.a})[1], test::vector_of(expected), 1e-9));
  }
}

}  // namespace
}  // namespace onestep
