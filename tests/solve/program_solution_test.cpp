// Programs as data: what the public result says, held against closed forms, duality and differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "onestep/onestep.h"
#include "support/compare.h"
#include "support/random.h"

namespace onestep {
namespace {

using test::near;
using test::Random;

constexpr double no_bound = std::numeric_limits<double>::infinity();

/// The point of the unit box on x0 + x1 = 1 that is nearest to (1.2, 0.6): (0.8, 0.2).
QuadraticProgram nearest() {
  QuadraticProgram p;
  p.Q = Array{{1.0, 0.0}, {0.0, 1.0}};
  p.q = Array{-1.2, -0.6};
  p.A = Array{{1.0, 1.0}};
  p.b = 1.0;
  p.lo = 0.0;
  p.hi = 1.0;
  return p;
}

TEST(ProgramSolution, HasThePointTheMultipliersAndTheResiduals) {
  const ProgramSolution s = solve(nearest());
  ASSERT_EQ(s.status, Status::converged);
  EXPECT_TRUE(near(s.x, Array{0.8, 0.2}, 1e-9));
  EXPECT_NEAR(s.y(0), 0.4, 1e-8);
  EXPECT_EQ(s.z.size(), 0);
  EXPECT_TRUE(near(s.bound_multipliers, Array{0.0, 0.0}, 1e-8, 1));
  EXPECT_NEAR(s.objective, 0.5 * (0.64 + 0.04) - 1.2 * 0.8 - 0.6 * 0.2, 1e-9);
  EXPECT_LE(s.primal.relative, 1e-9);
  EXPECT_LE(s.dual.relative, 1e-9);
  EXPECT_LE(s.gap.relative, 1e-9);
  EXPECT_GT(s.iterations, 0);
  EXPECT_TRUE(s.degeneracy().none());
}

TEST(ProgramSolution, GradientsAreThoseOfDifferences) {
  Random random(17);
  QuadraticProgram p;
  p.Q = Array{{2.0, 0.3, 0.1}, {0.3, 1.5, -0.2}, {0.1, -0.2, 1.0}};
  p.q = random.array({3});
  p.A = random.array({1, 3});
  p.b = Array{0.4};
  p.G = random.array({2, 3});
  p.u = Array{0.1, 2.0};
  p.lo = Array{-0.3, -2.0, -2.0};
  const ProgramOptions precisely{.tolerance = 1e-13};
  const ProgramSolution s = solve(p, precisely);
  ASSERT_TRUE(is_solution(s.status));
  const QuadraticProgram value = s.gradient_of_objective(), half_norm = s.vjp(s.x);
  EXPECT_EQ(value.constant, 1);
  const auto differences = [&](Array QuadraticProgram::*part, const Array& of_value, const Array& of_norm) {
    const Array at = (p.*part).shape().rank() == 0 ? full(of_value.shape(), (p.*part).item()) : p.*part;
    for (std::size_t k = 0; k < static_cast<std::size_t>(at.size()); ++k) {
      if (!std::isfinite(at.values()[k])) continue;
      constexpr double h = 1e-5;
      double objective[2], norms[2];
      for (int side = 0; side < 2; ++side) {
        std::vector<double> entries(at.values().begin(), at.values().end());
        entries[k] += side == 0 ? h : -h;
        QuadraticProgram moved = p;
        moved.*part = Array(at.shape(), entries);
        const ProgramSolution there = solve(moved, precisely);
        objective[side] = there.objective;
        norms[side] = 0;
        for (const double e : there.x.values()) norms[side] += 0.5 * e * e;
      }
      EXPECT_NEAR(of_value.values()[k], (objective[0] - objective[1]) / (2 * h), 1e-7) << k;
      EXPECT_NEAR(of_norm.values()[k], (norms[0] - norms[1]) / (2 * h), 1e-7) << k;
    }
  };
  differences(&QuadraticProgram::q, value.q, half_norm.q);
  differences(&QuadraticProgram::Q, value.Q, half_norm.Q);
  differences(&QuadraticProgram::A, value.A, half_norm.A);
  differences(&QuadraticProgram::b, value.b, half_norm.b);
  differences(&QuadraticProgram::G, value.G, half_norm.G);
  differences(&QuadraticProgram::u, value.u, half_norm.u);
  differences(&QuadraticProgram::lo, value.lo, half_norm.lo);
}

TEST(ProgramSolution, ProvesThatThereIsNone) {
  QuadraticProgram p = nearest();
  p.b = 3.0;  // x0 + x1 = 3 within the unit box
  const ProgramSolution none = solve(p);
  ASSERT_EQ(none.status, Status::infeasible);
  ASSERT_FALSE(none.infeasibility.is_empty());
  const Array &y = none.infeasibility.y, &w = none.infeasibility.bound_multipliers;
  for (std::int64_t j = 0; j < 2; ++j) EXPECT_NEAR(y(0) + w(j), 0, 1e-7);
  double contradiction = 3 * y(0);
  for (std::int64_t j = 0; j < 2; ++j) contradiction += std::max(w(j), 0.0);
  EXPECT_NEAR(contradiction, -1, 1e-6);
  EXPECT_THROW((void)none.vjp(zeros(2)), NotConvergedError);
  EXPECT_THROW((void)none.degeneracy(), NotConvergedError);

  QuadraticProgram line;
  line.q = Array{-1.0, 0.0};
  line.lo = 0.0;
  const ProgramSolution unbounded = solve(line);
  ASSERT_EQ(unbounded.status, Status::unbounded);
  EXPECT_NEAR(unbounded.unbounded_direction(0), 1, 1e-6);
}

TEST(ProgramSolution, SaysWhereThereIsNoDerivative) {
  QuadraticProgram p;  // x >= 0 is active with a multiplier of 0
  p.Q = Array({1, 1}, {1.0});
  p.q = Array{0.0};
  p.lo = 0.0;
  const ProgramDegeneracy found = solve(p).degeneracy();
  EXPECT_FALSE(found.none());
  EXPECT_EQ(found.undecided, std::vector<std::size_t>{0});
}

TEST(ProgramSolution, RefusesWhatDoesNotFitAndStopsWhenAsked) {
  QuadraticProgram p = nearest();
  EXPECT_THROW((void)solve(p, {.tolerance = 0}), MisuseError);
  EXPECT_THROW((void)solve(p, {.tolerance = std::numeric_limits<double>::quiet_NaN()}), MisuseError);
  EXPECT_THROW((void)solve(p).vjp(ones(3)), MisuseError);
  EXPECT_EQ(solve(p, {.callback = [](const ProgramIteration&) { return true; }}).status, Status::cancelled);
  p.q = Array{1.0, std::numeric_limits<double>::quiet_NaN()};
  const ProgramSolution bad = solve(p);
  EXPECT_EQ(bad.status, Status::not_finite);
  EXPECT_EQ(bad.about, "q[1]");
  p.q = Array{1.0, 2.0, 3.0};
  EXPECT_THROW((void)solve(p), MisuseError);
}

TEST(ProgramSolution, IsAValueThatOutlivesWhatItWasMadeOf) {
  ProgramSolution kept;
  {
    QuadraticProgram p = nearest();
    kept = solve(p);
    const ProgramSolution copy = kept;
    EXPECT_TRUE(near(copy.vjp(copy.x).q, kept.vjp(kept.x).q));
  }
  EXPECT_TRUE(near(kept.vjp(Array{1.0, 0.0}).q, Array{-0.5, 0.5}, 1e-8));
  EXPECT_THROW((void)ProgramSolution().degeneracy(), NotConvergedError);
}

// With neither costs nor curvature a free variable is held by rows alone, or by nothing.
TEST(ProgramSolution, FreeVariablesWithoutCostsNeitherFlyOffNorMakeItSingular) {
  QuadraticProgram feasibility;
  feasibility.q = zeros(3);
  feasibility.G = Array{{2.0, 0.0, 3.0}};
  feasibility.l = feasibility.u = -10.0;
  feasibility.lo = Array{-no_bound, 3.0, -no_bound};
  const ProgramSolution any = solve(feasibility);
  ASSERT_EQ(any.status, Status::converged);
  EXPECT_NEAR(2 * any.x(0) + 3 * any.x(2), -10, 1e-8);

  // Least absolute deviations with a column twice: only the sum of the two coefficients is determined.
  constexpr std::int64_t samples = 6;
  const std::vector<double> a{1, -2, 3, 0.5, 2, -1}, y{2.1, -3.9, 6.2, 1.0, 3.7, -2.0};
  std::vector<double> rows;
  for (const double sign : {1.0, -1.0})
    for (std::size_t i = 0; i < samples; ++i) {
      rows.insert(rows.end(), {sign * a[i], sign * a[i]});
      for (std::size_t k = 0; k < samples; ++k) rows.push_back(k == i ? -1 : 0);
    }
  std::vector<double> bounds(y);
  for (const double e : y) bounds.push_back(-e);
  for (const double unit : {1.0, 0x1p-40, 0x1p40}) {
    QuadraticProgram least;
    std::vector<double> q(2, 0.0), u(bounds);
    q.insert(q.end(), samples, 1.0);
    for (double& e : u) e *= unit;
    least.q = Array(q);
    least.G = Array(Shape{2 * samples, samples + 2}, rows);
    least.u = Array(u);
    const ProgramSolution s = solve(least);
    ASSERT_EQ(s.status, Status::converged) << unit;
    const double slope = (s.x(0) + s.x(1)) / unit;
    double loss = 0, best = no_bound;
    for (std::size_t i = 0; i < samples; ++i) loss += std::fabs(y[i] - slope * a[i]);
    for (std::size_t k = 0; k < samples; ++k) {  // a best slope passes through a sample
      double other = 0;
      for (std::size_t i = 0; i < samples; ++i) other += std::fabs(y[i] - y[k] / a[k] * a[i]);
      best = std::min(best, other);
    }
    EXPECT_NEAR(loss, best, 1e-7 * best) << unit;
    EXPECT_NEAR(s.objective, best * unit, 1e-7 * best * unit);
    EXPECT_LT(std::max(std::fabs(s.x(0)), std::fabs(s.x(1))), 1e6 * unit);
  }
}

TEST(ProgramSolution, TakesAsManyIterationsInAnyUnit) {
  const auto iterations = [](double x, double other) {
    QuadraticProgram p;  // two variables that no row ties to each other
    p.q = Array{-1 / x, 1 / other};
    p.G = Array{{-1 / x, 0.0}, {0.0, 1 / other}};
    p.l = Array{1.0, 2.0};
    p.lo = Array{-5.5 * x, -no_bound};
    p.hi = Array{no_bound, 7.0 * other};
    const ProgramSolution s = solve(p);
    EXPECT_EQ(s.status, Status::converged);
    EXPECT_NEAR(s.x(0) / x, -1, 1e-8);
    EXPECT_NEAR(s.x(1) / other, 2, 1e-8);
    return s.iterations;
  };
  const int usual = iterations(1, 1);
  EXPECT_LE(usual, 8);
  for (const double x : {0x1p-40, 0x1p-20, 0x1p20, 0x1p40}) {
    EXPECT_LE(iterations(x, x), usual + 1) << x;
    EXPECT_LE(iterations(x, 1 / x), usual + 1) << x;
  }
}

TEST(ProgramSolution, IsFoundWhereTheStartAlreadySolvesAndAllIsZero) {
  QuadraticProgram p;
  p.Q = Array{{1.0, 0.0}, {0.0, 0.0}};
  p.q = zeros(2);
  p.lo = Array{-3.0, -no_bound};
  p.hi = Array{1.0, no_bound};
  EXPECT_EQ(solve(p).status, Status::converged);
  QuadraticProgram with_zero_row;
  with_zero_row.Q = Array{{2.0}};
  with_zero_row.q = zeros(1);
  with_zero_row.A = zeros({1, 1});
  with_zero_row.b = 0.0;
  with_zero_row.G = Array{{-3.0}};
  with_zero_row.l = -2.0;
  with_zero_row.u = 2.0;
  with_zero_row.lo = 0.0;
  with_zero_row.hi = 1.0;
  const ProgramSolution s = solve(with_zero_row);
  EXPECT_EQ(s.status, Status::converged);
  EXPECT_NEAR(s.x(0), 0, 1e-9);
}

// Rounding decides by which sign a slack, or a multiplier, of exactly 0 is found.
TEST(ProgramSolution, IsDegenerateWhereAConstraintIsActiveWithoutForce) {
  QuadraticProgram row;  // the minimum without the row lies on it
  row.Q = Array{{9.0, 3.0}, {3.0, 8.0}};
  row.q = Array{-9.0, -3.0};
  row.G = Array{{0.0, 1.0}, {1.0, 0.0}};
  row.u = Array{0.0, 5.0};
  const ProgramSolution s = solve(row);
  ASSERT_EQ(s.status, Status::converged);
  EXPECT_TRUE(near(s.x, Array{1.0, 0.0}, 1e-7));
  EXPECT_EQ(s.degeneracy().undecided, std::vector<std::size_t>{0});

  QuadraticProgram far = row;  // the same, and values that leave rounding in the row's
  far.q = Array{-9.0 + 12.0, -3.0 + 32.0};
  far.G = Array{{-1.0, 0.0}, {0.0, -1.0}};
  far.u = Array{10.0, 4.0};
  const ProgramSolution other = solve(far);
  ASSERT_EQ(other.status, Status::converged);
  EXPECT_EQ(other.degeneracy().undecided, std::vector<std::size_t>{1});
}

}  // namespace
}  // namespace onestep
