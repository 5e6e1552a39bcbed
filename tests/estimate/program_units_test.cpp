// Quadratic programs whose curvatures, sizes and units differ by orders of magnitude: none of this makes them degenerate,
// and no coordinate is judged in the unit of another.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "onestep/onestep.h"

namespace onestep {
namespace {

const Estimator by_steps[] = {KStep{3}, Unrolled{}};
constexpr double infinite = std::numeric_limits<double>::infinity();

// x = c, however large one of its entries is: a system that is diagonal is well-conditioned.
TEST(ProgramUnits, ADiagonalProgramIsNeverDegenerate) {
  const Solver solver = quadratic_program([](Expr c) { return TracedProgram{.Q = eye(2), .q = -c}; });
  const Array of_small{0.0, 1.0};
  for (const double large : {1e4, 1e5, 1e7, 1e10}) {
    const Array c{large, 1.0};
    for (const Estimator& e : {Estimator(OneStep{}), Estimator(Implicit{}), Estimator(Auto{})}) {
      const Solution s = solve(solver, c, e);
      ASSERT_EQ(s.status(), Status::converged) << s.message();
      EXPECT_NEAR(s.x()(1), 1, 1e-8) << large;
      EXPECT_NEAR(s.vjp(of_small)[0](1), 1, 1e-9) << large;
      const Certificate certificate = s.certificate(of_small);
      EXPECT_NE(certificate.basis, Certificate::Basis::refused) << large << certificate.reason;
      EXPECT_LT(certificate.bound, 1e-6) << large;
    }
    QuadraticProgram p;
    p.Q = Array{{1.0, 0.0}, {0.0, 1.0}};
    p.q = Array{-large, -1.0};
    EXPECT_TRUE(solve(p).degeneracy().none()) << large;
    p.Q = Array{{1.0, 0.0}, {0.0, 1 / large / large}};
    p.q = Array{-1.0, -1.0};
    EXPECT_TRUE(solve(p).degeneracy().none()) << large;
  }
}

// What is degenerate stays so in any unit, and is named.
TEST(ProgramUnits, FlatDirectionsAndDependentRowsAreFoundBesideAnyCurvature) {
  for (const double large : {1.0, 1e5, 1e10}) {
    QuadraticProgram flat;
    flat.Q = Array{{large, 0.0, 0.0}, {0.0, 1.0, 1.0}, {0.0, 1.0, 1.0}};
    flat.q = Array{-large, -1.0, -1.0};
    EXPECT_EQ(solve(flat).degeneracy().not_unique, (std::vector<std::size_t>{1, 2})) << large;
    QuadraticProgram dependent;
    dependent.Q = Array{{large, 0.0, 0.0}, {0.0, 1.0, 0.0}, {0.0, 0.0, 1.0}};
    dependent.q = Array{-large, -1.0, -1.0};
    dependent.A = Array{{0.0, 1.0, 1.0}, {0.0, 2.0, 2.0}};
    dependent.b = Array{1.0, 2.0};
    EXPECT_EQ(solve(dependent).degeneracy().dependent, (std::vector<std::size_t>{0, 1})) << large;
  }
}

/// Separable, each variable free, at its lower bound or at its upper one.
struct Separable {
  std::vector<double> curvature, q, lo, hi, x;
  std::vector<bool> free;
};
Separable separable(std::mt19937_64& random, double decades) {
  const auto between = [&](double a, double b) { return std::uniform_real_distribution<double>(a, b)(random); };
  Separable s;
  const std::size_t n = 2 + random() % 5;
  for (std::size_t j = 0; j < n; ++j) {
    const double curvature = between(0.5, 2) * std::pow(10, between(-decades, decades));
    const double slope = curvature * between(0.5, 2) * std::pow(10, between(-decades, decades) / 2),
                 target = slope / curvature;
    const double way = target * between(0.1, 1);
    double lo = -infinite, hi = infinite, x = target;
    switch (random() % 4) {
      case 1: lo = x = target + way, hi = lo + target; break;
      case 2: hi = x = target - way; break;
      case 3: lo = target - way, hi = target + way; break;
      default: break;
    }
    s.curvature.push_back(curvature);
    s.q.push_back(-slope);
    s.lo.push_back(lo);
    s.hi.push_back(hi);
    s.x.push_back(x);
    s.free.push_back(x == target);
  }
  return s;
}
/// As a function of q.
Solver solver_of(const Separable& s) {
  const Array curvature(s.curvature), lo(s.lo), hi(s.hi);
  return quadratic_program([=](Expr q) { return TracedProgram{.Q = diag(curvature), .q = q, .lo = lo, .hi = hi}; });
}

TEST(ProgramUnits, SeparableProgramsOfAnySpreadHaveTheirDerivative) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    const Separable program = separable(random, 2 + 2 * (trial % 3));
    const Solution s = solve(solver_of(program), Array(program.q), OneStep{});
    ASSERT_EQ(s.status(), Status::converged) << trial << ' ' << s.message();
    const std::size_t n = program.x.size(), j = static_cast<std::size_t>(trial) % n;
    std::vector<double> c(n, 0.0);
    c[j] = 1;
    EXPECT_NEAR(s.x().values()[j], program.x[j], 1e-7 * program.x[j]) << trial;
    EXPECT_NEAR(s.vjp(Array(c))[0].values()[j] * program.curvature[j], program.free[j] ? -1 : 0, 1e-7) << trial;
    EXPECT_NE(s.certificate(Array(c)).basis, Certificate::Basis::refused) << trial;
  }
}

// Nearly dependent directions make the objective flat: where it has fallen as far as it will, small multipliers need not be
// right yet. x_0 is at its bound, whose multiplier is chosen.
TEST(ProgramUnits, MultipliersOfProgramsThatAreDataAreAsGoodAsTheirDerivatives) {
  std::mt19937_64 random(17);
  const auto between = [&](double a, double b) { return std::uniform_real_distribution<double>(a, b)(random); };
  for (int trial = 0; trial < 300; ++trial) {
    const double flat = std::pow(10, between(-7, -3)), multiplier = std::pow(10, between(-6, -2)), at = between(-3, 3);
    QuadraticProgram p;
    p.Q = Array{{1.0, 1 - flat}, {1 - flat, 1.0}};
    p.q = Array{-1 - (1 - flat) * at - multiplier, -(1 - flat) - at};
    p.G = Array{{1.0, 0.0}, {1.0, 2.0}};
    p.u = Array{1.0, 1 + 2 * at + between(0.1, 1)};
    const ProgramSolution s = solve(p);
    ASSERT_EQ(s.status, Status::converged) << trial;
    EXPECT_NEAR(s.z(0), multiplier, 1e-4 * multiplier) << trial;
    EXPECT_NEAR(s.z(1), 0, 1e-4 * multiplier) << trial;
    EXPECT_NEAR(s.x(1), at, 1e-7) << trial;
  }
}

// The projection on a box: one coordinate is large, and says nothing about the other.
TEST(ProgramUnits, StepsThatAreDifferentiatedFindSmallCoordinatesBesideLargeOnes) {
  for (const double large : {1e4, 1e5, 1e8}) {
    const Array top{2 * large, 10.0};
    const Solver solver =
        quadratic_program([&](Expr q) { return TracedProgram{.Q = eye(2), .q = -q, .lo = 0.0, .hi = top}; });
    for (const Estimator& e : by_steps) {
      const Solution s = solve(solver, Array{large, 1.0}, e);
      ASSERT_TRUE(is_solution(s.status())) << large << ' ' << s.message();
      EXPECT_NEAR(s.x()(1), 1, 1e-7) << large;
      EXPECT_NEAR(s.vjp(Array{0.0, 1.0})[0](1), 1, 1e-6) << large;
    }
  }
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 120; ++trial) {
    const Separable program = separable(random, 2 + 2 * (trial % 3));
    const Solution s = solve(solver_of(program), Array(program.q), by_steps[trial % 2]);
    ASSERT_TRUE(is_solution(s.status())) << trial << ' ' << s.message();
    const std::size_t n = program.x.size(), j = static_cast<std::size_t>(trial) % n;
    std::vector<double> c(n, 0.0);
    c[j] = 1;
    for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(s.x().values()[i], program.x[i], 1e-7 * program.x[i]) << trial;
    EXPECT_NEAR(s.vjp(Array(c))[0].values()[j] * program.curvature[j], program.free[j] ? -1 : 0, 1e-6) << trial;
  }
}

// In units of 10^-13 a slack of 1e-12 of another constraint's is no slack at all.
TEST(ProgramUnits, StepsThatAreDifferentiatedDoNotDependOnTheUnitOfX) {
  for (const double unit : {1e-14, 1e-13, 1e-6, 1.0, 1e9})
    for (const Estimator& e : by_steps) {
      const Solver solver = quadratic_program([&](Expr hi) {
        return TracedProgram{
            .Q = Array{{1 / unit / unit}}, .q = Array{-1 / unit}, .G = Array{{1 / unit}}, .l = -2.0, .u = 2.0, .hi = hi};
      });
      const Solution s = solve(solver, Array{-0.1 * unit}, e);
      ASSERT_TRUE(is_solution(s.status())) << unit << ' ' << s.message();
      EXPECT_NEAR(s.x()(0) / unit, -0.1, 1e-7) << unit;
      EXPECT_NEAR(s.vjp(Array{1.0})[0](0), 1, 1e-6) << unit;
    }
}

// x_0 = 1 is held by a force of `margin`, x_1 is free at a distance of it from its bound.
TEST(ProgramUnits, StepsThatAreDifferentiatedResolveSmallMargins) {
  for (const double margin : {1e-3, 1e-5, 1e-7}) {
    const Array Q{{2.0, 0.5}, {0.5, 1.0}}, G{{1.0, 1.0}, {0.0, 1.0}};
    const double second = 0.7;
    const Array u{1 + second, second + margin};
    const Solver solver = quadratic_program([&](Expr q) { return TracedProgram{.Q = Q, .q = q, .G = G, .u = u}; });
    // Qx + q + Gᵀ(margin, 0) = 0; on the active row dx = (t, -t), and (2 - 2·0.5 + 1) t = -(dq_0 - dq_1).
    const Array q{-2 - 0.5 * second - margin, -0.5 - second - margin};
    for (const Estimator& e : by_steps) {
      const Solution s = solve(solver, q, e);
      ASSERT_TRUE(is_solution(s.status())) << margin << ' ' << s.message();
      const Array gradient = s.vjp(Array{1.0, 0.0})[0];
      EXPECT_NEAR(gradient(0), -0.5, 1e-6) << margin;
      EXPECT_NEAR(gradient(1), 0.5, 1e-6) << margin;
    }
  }
}

}  // namespace
}  // namespace onestep
