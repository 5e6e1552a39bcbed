// Programs as data: what the public result says, held against closed forms, duality and differences.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "onestep/onestep.h"
#include "support/compare.h"
#include "support/random.h"

namespace onestep {
namespace {

using test::near;
using test::Random;

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

}  // namespace
}  // namespace onestep
