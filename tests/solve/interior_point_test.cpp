// The interior point method against optimality conditions computed here, and against everything that can be wrong with a
// quadratic program.
#include "qp/interior_point.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "onestep/threads.h"
#include "support/random_qp.h"

namespace onestep::detail {
namespace {

using test::infinity;
using test::Optimality;
using test::Qp;
using test::Random;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// Residuals in the units of the data as well.
InteriorPointOptions absolutely() {
  InteriorPointOptions options;
  options.absolute = 1e-9;
  return options;
}

QpSolution solve(const Qp& qp, InteriorPoint& solver, const InteriorPointOptions& options = absolutely()) {
  return solver.solve(qp.data(), options);
}

void expect_optimal(const Qp& qp, const InteriorPointOptions& options = absolutely()) {
  InteriorPoint solver(qp.n, qp.m, qp.p);
  const QpSolution s = solve(qp, solver, options);
  ASSERT_EQ(s.status, Status::converged) << qp.n << ' ' << qp.m << ' ' << qp.p << " after " << s.iterations << ": "
                                         << s.primal.absolute << ' ' << s.dual.absolute << ' ' << s.gap.absolute;
  const Optimality o = optimality(qp, s);
  // The solver's own sums are in double.
  const double slack = 1e-12 * (1 + std::fabs(s.objective));
  EXPECT_LE(o.primal, options.absolute + slack);
  EXPECT_LE(o.dual, options.absolute + slack);
  EXPECT_LE(o.gap, options.absolute + slack);
}

TEST(InteriorPoint, SolvesStrictlyConvexPrograms) {
  Random random(1);
  for (int trial = 0; trial < 150; ++trial) {
    const auto n = static_cast<std::size_t>(random.integer(1, trial % 10 == 0 ? 90 : 20));
    const auto m = static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(n) / 2));
    const auto p = static_cast<std::size_t>(random.integer(0, 2 * static_cast<std::int64_t>(n)));
    expect_optimal(random_qp(random, n, m, p, n, random.flip()));
  }
}

TEST(InteriorPoint, SolvesProgramsWhoseQIsSingular) {
  Random random(2);
  for (int trial = 0; trial < 60; ++trial) {
    const auto n = static_cast<std::size_t>(random.integer(2, 25));
    Qp qp = random_qp(random, n, n / 3, n / 2, n / 2, true);
    for (std::size_t j = 0; j < n; ++j) {  // a box, so that there is a minimum
      qp.lo[j] = std::isfinite(qp.lo[j]) ? qp.lo[j] : -3;
      qp.hi[j] = std::isfinite(qp.hi[j]) ? qp.hi[j] : 3;
    }
    expect_optimal(qp);
  }
}

TEST(InteriorPoint, SolvesLinearPrograms) {
  Random random(3);
  for (int trial = 0; trial < 60; ++trial) {
    const auto n = static_cast<std::size_t>(random.integer(2, 30));
    Qp qp = random_qp(random, n, n / 3, n, 0, true);
    for (std::size_t j = 0; j < n; ++j) {
      qp.lo[j] = std::isfinite(qp.lo[j]) ? qp.lo[j] : -3;
      qp.hi[j] = std::isfinite(qp.hi[j]) ? qp.hi[j] : 3;
    }
    expect_optimal(qp);
    Qp without = qp;  // a null Q is no Q
    InteriorPoint with_zeros(qp.n, qp.m, qp.p), with_null(qp.n, qp.m, qp.p);
    QpData data = without.data();
    data.Q = nullptr;
    const QpSolution a = with_zeros.solve(qp.data()), b = with_null.solve(data);
    EXPECT_EQ(0, std::memcmp(a.x.data(), b.x.data(), n * sizeof(double)));
  }
}

// The point of a box nearest to a given one; multipliers are what is cut off.
TEST(InteriorPoint, ProjectsOnABox) {
  Qp qp(4, 0, 0);
  for (std::size_t j = 0; j < 4; ++j) qp.Q[j * 4 + j] = 1;
  qp.q = {-2, 3, -0.25, -7};
  qp.lo = {0, 0, 0, 0};
  qp.hi = {1, 1, 1, infinity};
  InteriorPoint solver(4, 0, 0);
  const QpSolution s = solve(qp, solver);
  const double x[] = {1, 0, 0.25, 7}, w[] = {1, -3, 0, 0};
  for (std::size_t j = 0; j < 4; ++j) {
    EXPECT_NEAR(s.x[j], x[j], 1e-8);
    EXPECT_NEAR(s.bound_multipliers[j], w[j], 1e-8);
  }
}

TEST(InteriorPoint, EqualBoundsFixARowOrAVariable) {
  Random random(4);
  for (int trial = 0; trial < 40; ++trial) {
    const auto n = static_cast<std::size_t>(random.integer(4, 40));
    Qp qp = random_qp(random, n, 1, n / 2, n, true), as_equality = qp;
    qp.l[0] = qp.u[0] = std::isfinite(qp.l[0]) ? qp.l[0] : std::isfinite(qp.u[0]) ? qp.u[0] : 0.1;
    qp.lo[2] = qp.hi[2] = std::isfinite(qp.lo[2]) ? qp.lo[2] : std::isfinite(qp.hi[2]) ? qp.hi[2] : 0.1;
    InteriorPoint solver(qp.n, qp.m, qp.p);
    const QpSolution s = solve(qp, solver);
    if (s.status == Status::infeasible) continue;
    expect_optimal(qp);
    EXPECT_EQ(s.x[2], qp.lo[2]);
  }
}

TEST(InteriorPoint, DependentAndZeroRowsAndFreeColumnsDoNoHarm) {
  Random random(5);
  for (int trial = 0; trial < 40; ++trial) {
    const std::size_t n = trial % 2 == 0 ? 12 : 45;
    Qp qp = random_qp(random, n, 6, 8, n, true);
    for (std::size_t j = 0; j < n; ++j) {
      qp.A[n + j] = qp.A[j];                                    // a row twice
      qp.A[2 * n + j] = 2 * qp.A[3 * n + j] - qp.A[4 * n + j];  // a combination
      qp.A[5 * n + j] = 0;                                      // nothing
      qp.G[j] = 0;
    }
    qp.b[1] = qp.b[0];
    qp.b[2] = 2 * qp.b[3] - qp.b[4];
    qp.b[5] = 0;
    qp.l[0] = -1;
    qp.u[0] = 1;
    for (std::size_t i = 0; i < 6; ++i) qp.A[i * n + 7] = 0;  // column 7: no row, no bound, no curvature, no cost
    for (std::size_t i = 0; i < 8; ++i) qp.G[i * n + 7] = 0;
    for (std::size_t i = 0; i < n; ++i) qp.Q[i * n + 7] = qp.Q[7 * n + i] = 0;
    for (std::size_t i = 0; i < 5; ++i) qp.b[i] = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      qp.l[i] = std::min(qp.l[i], -0.1);
      qp.u[i] = std::max(qp.u[i], 0.1);
    }
    for (std::size_t j = 0; j < n; ++j) {
      qp.lo[j] = std::min(qp.lo[j], -0.1);
      qp.hi[j] = std::max(qp.hi[j], 0.1);
    }
    qp.q[7] = 0;
    qp.lo[7] = -infinity;
    qp.hi[7] = infinity;
    expect_optimal(qp);
  }
}

TEST(InteriorPoint, EmptyBlocksAndNothingAtAll) {
  Random random(6);
  expect_optimal(random_qp(random, 6, 0, 0, 6, false));
  expect_optimal(random_qp(random, 6, 2, 0, 6, false));
  expect_optimal(random_qp(random, 6, 0, 4, 6, false));
  expect_optimal(random_qp(random, 50, 20, 0, 50, false));
  expect_optimal(Qp(0, 0, 0));
  expect_optimal(Qp(3, 0, 0));
  Qp rows_only(0, 2, 1);
  expect_optimal(rows_only);
}

TEST(InteriorPoint, BadlyScaledProgramsAreSolvedRelatively) {
  Random random(7);
  for (int trial = 0; trial < 30; ++trial) {
    const std::size_t n = 15;
    Qp qp = random_qp(random, n, 4, 10, n, true);
    const auto power = [&] { return std::pow(10, static_cast<double>(random.integer(-4, 4))); };
    std::vector<double> column(n);
    for (double& c : column) c = power();
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) qp.Q[i * n + j] *= column[i] * column[j];
    for (std::size_t j = 0; j < n; ++j) {
      qp.q[j] *= column[j];
      qp.lo[j] /= column[j];
      qp.hi[j] /= column[j];
    }
    for (std::size_t i = 0; i < 14; ++i) {
      const double row = power();
      double* entries = i < 4 ? qp.A.data() + i * n : qp.G.data() + (i - 4) * n;
      for (std::size_t j = 0; j < n; ++j) entries[j] *= row * column[j];
      if (i < 4) qp.b[i] *= row;
      if (i >= 4) qp.l[i - 4] *= row, qp.u[i - 4] *= row;
    }
    InteriorPointOptions options;
    options.relative = 1e-10;
    InteriorPoint solver(n, 4, 10);
    const QpSolution s = solve(qp, solver, options);
    ASSERT_TRUE(is_solution(s.status)) << s.status;
    EXPECT_LE(optimality(qp, s).worst_relative(), 1e-9);  // in another norm than the solver's
  }
}

void expect_proof_of_infeasibility(const Qp& qp, const QpSolution& s) {
  ASSERT_EQ(s.status, Status::infeasible) << s.iterations << " n " << qp.n << " m " << qp.m << " p " << qp.p;
  ASSERT_EQ(s.infeasible_y.size(), qp.m);
  ASSERT_EQ(s.infeasible_z.size(), qp.p);
  ASSERT_EQ(s.infeasible_bounds.size(), qp.n);
  double support = 0, size = 0;
  const auto add = [&](double multiplier, double low, double high) {
    size = std::max(size, std::fabs(multiplier));
    if (multiplier != 0) support += multiplier * (multiplier > 0 ? high : low);
  };
  for (std::size_t i = 0; i < qp.m; ++i) add(s.infeasible_y[i], qp.b[i], qp.b[i]);
  for (std::size_t i = 0; i < qp.p; ++i) add(s.infeasible_z[i], qp.l[i], qp.u[i]);
  for (std::size_t j = 0; j < qp.n; ++j) add(s.infeasible_bounds[j], qp.lo[j], qp.hi[j]);
  EXPECT_NEAR(support, -1, 1e-6);
  for (std::size_t j = 0; j < qp.n; ++j) {
    double sum = s.infeasible_bounds[j];
    for (std::size_t i = 0; i < qp.m; ++i) sum += qp.A[i * qp.n + j] * s.infeasible_y[i];
    for (std::size_t i = 0; i < qp.p; ++i) sum += qp.G[i * qp.n + j] * s.infeasible_z[i];
    EXPECT_NEAR(sum, 0, 1e-7 * (1 + size));
  }
}

TEST(InteriorPoint, ProvesInfeasibility) {
  Random random(8);
  for (int trial = 0; trial < 60; ++trial) {
    const auto n = static_cast<std::size_t>(random.integer(3, 40));
    const std::size_t m = n / 3 + 1, p = n;
    Qp qp = random_qp(random, n, m, p, trial % 3 == 0 ? 0 : n, trial % 2 == 0);
    if (trial % 2 == 0) {  // a combination of rows of A contradicts a row of G
      for (std::size_t j = 0; j < n; ++j) qp.G[j] = qp.A[j] - (m > 1 ? 0.5 * qp.A[n + j] : 0);
      const double value = qp.b[0] - (m > 1 ? 0.5 * qp.b[1] : 0);
      qp.l[0] = value + 0.3;
      qp.u[0] = infinity;
    } else {  // two rows of G that cannot hold together
      for (std::size_t j = 0; j < n; ++j) qp.G[n + j] = -2 * qp.G[j];
      qp.l[0] = 1;
      qp.u[0] = infinity;
      qp.l[1] = -1.5;
      qp.u[1] = infinity;
    }
    if (trial % 3 == 0)
      for (std::size_t j = 0; j < n; ++j) qp.lo[j] = -5, qp.hi[j] = 5;  // else it may be unbounded as well
    InteriorPoint solver(n, m, p);
    expect_proof_of_infeasibility(qp, solve(qp, solver));
  }
}

TEST(InteriorPoint, ProvesThatABoxDoesNotReachAPlane) {
  Qp qp(3, 1, 0);
  for (std::size_t j = 0; j < 3; ++j) qp.Q[j * 3 + j] = 1;
  qp.A = {1, 1, 1};
  qp.b = {4};
  qp.lo = {0, 0, 0};
  qp.hi = {1, 1, 1};
  InteriorPoint solver(3, 1, 0);
  expect_proof_of_infeasibility(qp, solve(qp, solver));
}

TEST(InteriorPoint, ProvesThatEqualitiesContradictEachOther) {
  Qp qp(3, 2, 0);
  for (std::size_t j = 0; j < 3; ++j) qp.Q[j * 3 + j] = 1;
  qp.A = {1, 2, 3, 2, 4, 6};
  qp.b = {1, 3};
  InteriorPoint solver(3, 2, 0);
  expect_proof_of_infeasibility(qp, solve(qp, solver));
}

TEST(InteriorPoint, ARowOfZerosAsksForNothingElse) {
  for (const double asked : {1e-9, -1e-5, 3.0}) {
    Qp equality(2, 1, 0), row(2, 0, 2);
    equality.Q = row.Q = {1, 0, 0, 1};
    equality.b = {asked};
    row.G = {1, 0, 0, 0};
    row.l[0] = 0.5;
    (asked > 0 ? row.l : row.u)[1] = asked;
    for (const Qp& qp : {equality, row}) {
      InteriorPoint solver(2, qp.m, qp.p);
      const QpSolution s = solve(qp, solver);
      EXPECT_EQ(s.status, Status::infeasible) << asked;
      EXPECT_STREQ(s.culprit, qp.m > 0 ? "b" : asked > 0 ? "l" : "u");
      EXPECT_EQ(s.culprit_index, qp.m > 0 ? 0U : 1U);
    }
  }
}

TEST(InteriorPoint, NamesBoundsThatCross) {
  Qp qp(3, 0, 1);
  qp.G = {1, 1, 1};
  qp.lo[1] = 2;
  qp.hi[1] = 1;
  InteriorPoint solver(3, 0, 1);
  const QpSolution s = solve(qp, solver);
  EXPECT_EQ(s.status, Status::infeasible);
  EXPECT_STREQ(s.culprit, "lo");
  EXPECT_EQ(s.culprit_index, 1U);
}

TEST(InteriorPoint, ProvesUnboundedness) {
  Random random(9);
  for (int trial = 0; trial < 60; ++trial) {
    const auto n = static_cast<std::size_t>(random.integer(3, 30));
    const std::size_t m = n / 4, p = n / 3;
    Qp qp = random_qp(random, n, m, p, trial % 2 == 0 ? 0 : n - 1, false);
    // Variable 0 may grow without limit: nothing but rows that allow it, no curvature, negative cost.
    for (std::size_t i = 0; i < n; ++i) qp.Q[i] = qp.Q[i * n] = 0;
    for (std::size_t i = 0; i < m; ++i) qp.A[i * n] = 0;
    for (std::size_t i = 0; i < p; ++i) {
      qp.G[i * n] = std::fabs(qp.G[i * n]);
      qp.u[i] = infinity;
    }
    qp.q[0] = -0.5;
    for (std::size_t j = 1; j < n; ++j) qp.lo[j] = -10, qp.hi[j] = 10;
    InteriorPoint solver(n, m, p);
    const QpSolution s = solve(qp, solver);
    ASSERT_EQ(s.status, Status::unbounded) << trial << " after " << s.iterations;
    const std::span<const double> v = s.unbounded_direction;
    ASSERT_EQ(v.size(), n);
    double slope = 0;
    for (std::size_t j = 0; j < n; ++j) slope += qp.q[j] * v[j];
    EXPECT_NEAR(slope, -1, 1e-9);
    for (std::size_t i = 0; i < n; ++i) {
      double Qv = 0, Av = 0, Gv = 0;
      for (std::size_t j = 0; j < n; ++j) {
        Qv += qp.Q[i * n + j] * v[j];
        if (i < m) Av += qp.A[i * n + j] * v[j];
        if (i < p) Gv += qp.G[i * n + j] * v[j];
      }
      EXPECT_NEAR(Qv, 0, 1e-6);
      EXPECT_NEAR(Av, 0, 1e-6);
      if (i < p && std::isfinite(qp.l[i])) { EXPECT_GE(Gv, -1e-6); }
      if (i > 0) { EXPECT_NEAR(v[i], 0, 1e-6); }
    }
  }
}

TEST(InteriorPoint, AVariableThatOnlyHasACostMakesTheProgramUnbounded) {
  for (const double cost : {-1.0, 1.0, 1e-12, 1e-30}) {
    Qp qp(2, 0, 1);
    qp.Q = {1, 0, 0, 0};
    qp.q = {-1, cost};
    qp.G = {1, 0};
    qp.u = {3};
    InteriorPoint solver(2, 0, 1);
    const QpSolution s = solve(qp, solver);
    ASSERT_EQ(s.status, Status::unbounded) << cost;
    EXPECT_NEAR(s.unbounded_direction[1] * cost, -1, 1e-9);
    EXPECT_NEAR(s.unbounded_direction[0], 0, 1e-9);
  }
}

TEST(InteriorPoint, RefusesAQWithANegativeEigenvalue) {
  Random random(10);
  for (const std::size_t n : {2U, 10U, 60U, 130U}) {
    Qp qp = random_qp(random, n, 1, 2, n, true);
    qp.Q[n / 2 * n + n / 2] -= 1 + static_cast<double>(n);
    InteriorPoint solver(n, 1, 2);
    EXPECT_EQ(solve(qp, solver).status, Status::not_convex) << n;
  }
  Qp saddle(2, 0, 0);
  saddle.Q = {0, 1, 1, 0};
  saddle.lo = {-1, -1};
  saddle.hi = {1, 1};
  InteriorPoint solver(2, 0, 0);
  EXPECT_EQ(solve(saddle, solver).status, Status::not_convex);
  // However small beside the others: it may be all there is in its own row.
  for (const double large : {1.0, 1e7, 1e14, 1e30}) {
    Qp graded(2, 0, 1);
    graded.Q = {large, 0, 0, -1};
    graded.G = {1, 1};
    graded.u = {1};
    graded.lo = {-1, -1};
    graded.hi = {1, 1};
    InteriorPoint other(2, 0, 1);
    EXPECT_FALSE(is_solution(other.solve(graded.data()).status)) << large;
  }
}

TEST(InteriorPoint, NamesTheArrayThatHoldsANan) {
  Random random(11);
  const Qp good = random_qp(random, 6, 2, 3, 6, true);
  InteriorPoint solver(6, 2, 3);
  const auto spoil = [&](std::vector<double> Qp::*part, std::size_t at, double value, const char* name) {
    Qp qp = good;
    (qp.*part)[at] = value;
    const QpSolution s = solve(qp, solver);
    EXPECT_EQ(s.status, Status::not_finite) << name;
    EXPECT_STREQ(s.culprit, name);
    EXPECT_EQ(s.culprit_index, at) << name;
  };
  spoil(&Qp::Q, 7, nan, "Q");
  spoil(&Qp::Q, 0, infinity, "Q");
  spoil(&Qp::q, 5, nan, "q");
  spoil(&Qp::A, 11, -infinity, "A");
  spoil(&Qp::b, 1, infinity, "b");
  spoil(&Qp::G, 0, nan, "G");
  spoil(&Qp::l, 2, nan, "l");
  spoil(&Qp::u, 0, nan, "u");
  spoil(&Qp::lo, 3, nan, "lo");
  spoil(&Qp::hi, 4, nan, "hi");
  EXPECT_EQ(solve(good, solver).status, Status::converged);
}

// With the active set known, the optimum is the solution of a linear system: the method need not creep up to it.
TEST(InteriorPoint, JumpsToTheOptimumOfAnActiveSetThatHasSettled) {
  Random random(31);
  int few = 0;
  for (int trial = 0; trial < 100; ++trial) {
    const auto n = static_cast<std::size_t>(random.integer(3, 30));
    const Qp qp = random_qp(random, n, n / 4, n, n, random.flip());
    InteriorPointOptions options;
    options.step = 1e-9;
    InteriorPoint solver(qp.n, qp.m, qp.p);
    const QpSolution s = solve(qp, solver, options);
    ASSERT_EQ(s.status, Status::converged) << trial;
    few += s.iterations <= 8 ? 1 : 0;
    const Optimality o = optimality(qp, s);
    EXPECT_LE(o.worst_relative(), 1e-9) << trial;
  }
  EXPECT_GE(few, 80);
}

// Costs that a loose tolerance cannot tell from 0 still decide, where the last step has to be short.
TEST(InteriorPoint, NoJumpEndsOnAFaceThatIsNotOptimal) {
  for (const double cost : {1e-6, 1e-7, 1e-8}) {
    Qp qp(4, 1, 0);
    qp.q = {0, cost, 2 * cost, 1};
    qp.A = {1, 1, 1, 1};
    qp.b = {1};
    qp.lo = {0, 0, 0, 0};
    InteriorPointOptions options;
    options.relative = 1e-5;
    options.step = 1e-9;
    InteriorPoint solver(4, 1, 0);
    const QpSolution s = solve(qp, solver, options);
    EXPECT_EQ(s.status, Status::converged);
    EXPECT_NEAR(s.x[0], 1, 1e-8) << cost;
  }
}

// Whatever the solver learnt about another program is forgotten.
TEST(InteriorPoint, AJumpDoesNotDependOnTheProgramBefore) {
  Random random(32);
  for (int trial = 0; trial < 50; ++trial) {
    const Qp before = random_qp(random, 8, 2, 10, 8, true), qp = random_qp(random, 8, 2, 10, 8, true);
    InteriorPoint used(8, 2, 10), fresh(8, 2, 10);
    (void)solve(before, used);
    const QpSolution a = solve(qp, used), b = solve(qp, fresh);
    EXPECT_EQ(a.iterations, b.iterations) << trial;
    EXPECT_TRUE(std::ranges::equal(a.x, b.x)) << trial;
  }
}

TEST(InteriorPoint, StopsWhereItIsTold) {
  Random random(12);
  const Qp qp = random_qp(random, 20, 5, 20, 20, true);
  InteriorPoint solver(20, 5, 20);
  InteriorPointOptions options;
  options.iteration_limit = 3;
  EXPECT_EQ(solve(qp, solver, options).status, Status::iteration_limit);
  options.iteration_limit = 200;
  options.time_limit = 0;
  EXPECT_EQ(solve(qp, solver, options).status, Status::time_limit);
  options.time_limit = infinity;
  int calls = 0;
  options.callback = [&](const QpProgress& progress) {
    EXPECT_EQ(progress.iteration, calls);
    return ++calls == 4;
  };
  EXPECT_EQ(solve(qp, solver, options).status, Status::cancelled);
  EXPECT_EQ(calls, 4);
  options.callback = [](const QpProgress&) -> bool { throw std::runtime_error("enough"); };
  EXPECT_THROW(solve(qp, solver, options), std::runtime_error);
  EXPECT_EQ(solve(qp, solver).status, Status::converged);
}

TEST(InteriorPoint, AToleranceBelowRoundingEndsAtTheBestPoint) {
  Random random(13);
  for (const std::size_t n : {5U, 30U, 80U}) {
    const Qp qp = random_qp(random, n, n / 4, n, n, true);
    InteriorPoint solver(n, n / 4, n);
    InteriorPointOptions options;
    options.absolute = 1e-25;
    const QpSolution s = solve(qp, solver, options);
    EXPECT_EQ(s.status, Status::rounding_reached) << s.iterations;
    EXPECT_LE(optimality(qp, s).worst_relative(), 1e-13);
  }
}

TEST(InteriorPoint, AWarmStartNearTheSolutionSavesIterations) {
  Random random(14);
  int cold = 0, warm = 0;
  for (int trial = 0; trial < 20; ++trial) {
    Qp qp = random_qp(random, 20, 5, 20, 20, true);
    InteriorPoint solver(20, 5, 20), again(20, 5, 20);
    const QpSolution s = solve(qp, solver);
    for (double& q : qp.q) q += random.uniform(-1e-4, 1e-4);
    const QpSolution w = again.solve(qp.data(), absolutely(), {s.x, s.y, s.z, s.bound_multipliers});
    ASSERT_EQ(w.status, Status::converged);
    EXPECT_LE(optimality(qp, w).worst(), 1.01e-9);
    warm += w.iterations;
    cold += solve(qp, solver).iterations;
  }
  EXPECT_LT(warm, 0.8 * cold);
}

TEST(InteriorPoint, HasTheSameBitsForAnyNumberOfThreads) {
  Random random(15);
  const int threads_before = threads();
  for (const std::size_t n : {8U, 100U, 420U}) {
    const Qp qp = random_qp(random, n, n / 4, n / 2, n, true);
    std::vector<double> first;
    for (const int count : {1, 2, 3}) {
      set_threads(count);
      InteriorPoint solver(n, n / 4, n / 2);
      const QpSolution s = solve(qp, solver);
      ASSERT_EQ(s.status, Status::converged);
      std::vector<double> all(s.x.begin(), s.x.end());
      for (const auto& part : {s.y, s.z, s.bound_multipliers}) all.insert(all.end(), part.begin(), part.end());
      if (first.empty()) first = all;
      EXPECT_EQ(0, std::memcmp(first.data(), all.data(), all.size() * sizeof(double))) << n << " with " << count;
    }
  }
  set_threads(threads_before);
}

TEST(InteriorPoint, ASolverCanBeUsedAgainForOtherData) {
  Random random(16);
  InteriorPoint solver(12, 3, 9);
  for (int trial = 0; trial < 10; ++trial) {
    const Qp qp = random_qp(random, 12, 3, 9, 12, true);
    InteriorPoint fresh(12, 3, 9);
    const QpSolution a = solve(qp, fresh), b = solve(qp, solver);
    EXPECT_EQ(0, std::memcmp(a.x.data(), b.x.data(), 12 * sizeof(double)));
    EXPECT_EQ(a.iterations, b.iterations);
  }
}

// Which sides there are is kept as a range, from one solve to the next.
TEST(InteriorPoint, OtherSidesThanLastTimeLeaveNothingBehind) {
  Random random(18);
  InteriorPoint solver(9, 2, 7);
  for (int trial = 0; trial < 60; ++trial) {
    Qp qp = random_qp(random, 9, 2, 7, 9, true);
    // Bounds of the first or last few only, of one side only, or none: the ranges begin and end anywhere.
    const auto keep = [&](std::vector<double>& bounds, double none) {
      const auto begin = static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(bounds.size())));
      const auto end = static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(bounds.size())));
      for (std::size_t i = 0; i < bounds.size(); ++i)
        if (i < begin || i >= end) bounds[i] = none;
    };
    keep(qp.l, -infinity), keep(qp.u, infinity), keep(qp.lo, -infinity), keep(qp.hi, infinity);
    const double scale = std::pow(10.0, random.integer(-6, 6));
    for (std::vector<double>* of : {&qp.Q, &qp.q})
      for (double& e : *of) e *= scale;
    InteriorPoint fresh(9, 2, 7);
    const QpSolution a = solve(qp, fresh, {}), b = solve(qp, solver, {});
    ASSERT_EQ(a.status, Status::converged) << trial;
    EXPECT_EQ(a.iterations, b.iterations) << trial;
    for (const auto part : {&QpSolution::x, &QpSolution::y, &QpSolution::z, &QpSolution::bound_multipliers})
      EXPECT_TRUE(std::ranges::equal(a.*part, b.*part)) << trial;
    // And from the last solution, which is this one: there is nothing left to do but to make sure.
    const std::vector<double> x(a.x.begin(), a.x.end()), y(a.y.begin(), a.y.end()), z(a.z.begin(), a.z.end()),
        bounds(a.bound_multipliers.begin(), a.bound_multipliers.end());
    const QpSolution warm = solver.solve(qp.data(), {}, {x, y, z, bounds});
    ASSERT_EQ(warm.status, Status::converged) << trial;
    EXPECT_LE(warm.iterations, a.iterations) << trial;
    for (std::size_t j = 0; j < 9; ++j) EXPECT_NEAR(warm.x[j], x[j], 1e-7 * (1 + std::fabs(x[j]))) << trial;
  }
}

Qp separable(std::vector<double> q, double curvature, double low, double high) {
  Qp qp(q.size(), 0, 0);
  for (std::size_t j = 0; j < qp.n; ++j) qp.Q[j * qp.n + j] = curvature;
  qp.q = std::move(q);
  qp.lo.assign(qp.n, low);
  qp.hi.assign(qp.n, high);
  return qp;
}

TEST(InteriorPoint, LargeAndSmallDataAreSolvedAsWellAsOthers) {
  struct Case {
    Qp qp;
    std::vector<double> x;
  };
  const std::vector<Case> cases{
      {separable({-1e8, -2e8}, 1, -infinity, infinity), {1e8, 2e8}},
      {separable({-1, 0.5}, 1e-12, -infinity, infinity), {1e12, -0.5e12}},
      {separable({-0.3e-6, -2e-6}, 1, 0, 1e-6), {0.3e-6, 1e-6}},
      {separable({-0.3e-10, -2e-10}, 1e-10, 0, 1), {0.3, 1}},
      {separable({-0.3e10, -2e10}, 1e10, 0, 1), {0.3, 1}},
      {separable({-0.3, 2}, 1, 0, 1e20), {0.3, 0}},
      {separable({1, 1}, 0, 0, infinity), {0, 0}},
      {separable({0, 0}, 1, -1, 1), {0, 0}},
      {separable({0, 0}, 0, 2, 2), {2, 2}},
      {separable({-1e8}, 1, 0, 1e-6), {1e-6}},
      {separable({-0.3e150, -2e150}, 1e150, 0, 1), {0.3, 1}},
      {separable({-0.3e-150, -2e-150}, 1e-150, 0, 1), {0.3, 1}},
      {separable({-0.3e-300, -2e-300}, 1e-300, 0, 1), {0.3, 1}},
      {separable({-0.3e150, -2e150}, 1, 0, 1e150), {0.3e150, 1e150}},
      {separable({-0.3e-150, -2e-150}, 1, 0, 1e-150), {0.3e-150, 1e-150}},
      {separable({-1}, 1e-150, -infinity, infinity), {1e150}},
      {separable({-1}, 1, 0, 1e308), {1}},
  };
  for (const Case& c : cases) {
    InteriorPoint solver(c.qp.n, 0, 0);
    const QpSolution s = solver.solve(c.qp.data());
    ASSERT_EQ(s.status, Status::converged) << c.qp.q[0];
    double size = 0;
    for (const double e : c.x) size = std::max(size, std::fabs(e));
    for (std::size_t j = 0; j < c.qp.n; ++j) EXPECT_NEAR(s.x[j], c.x[j], size > 0 ? 1e-8 * size : 1e-12) << c.qp.q[0];
  }
}

TEST(InteriorPoint, VariablesOfVeryDifferentSizeAreEachRight) {
  struct Case {
    std::vector<double> curvature, c, high, x;
  };
  const std::vector<Case> cases{{{1, 1}, {0.3, 1e7}, {1, 1e8}, {0.3, 1e7}},
                                {{1, 1}, {0.3e-7, 2}, {1, 1}, {0.3e-7, 1}},
                                {{1e-14, 1}, {0.3, 2}, {infinity, infinity}, {0.3e14, 2}},
                                {{1e6, 1}, {3e3, 1e7}, {1e-3, 1e6}, {1e-3, 1e6}},
                                {{4, 1, 9}, {1e-3, 1e3, 9e-9}, {1, 1e8, 1}, {0.25e-3, 1e3, 1e-9}}};
  for (const Case& c : cases) {
    const std::size_t n = c.x.size();
    Qp qp(n, 0, 0);
    for (std::size_t j = 0; j < n; ++j) {
      qp.Q[j * n + j] = c.curvature[j];
      qp.q[j] = -c.c[j];
      qp.lo[j] = 0;
      qp.hi[j] = c.high[j];
    }
    InteriorPoint solver(n, 0, 0);
    const QpSolution s = solver.solve(qp.data());
    ASSERT_EQ(s.status, Status::converged) << c.c[0];
    for (std::size_t j = 0; j < n; ++j) EXPECT_NEAR(s.x[j], c.x[j], 1e-8 * c.x[j]) << c.c[0] << ' ' << j;
  }
}

/// Pairs of opposite rows (x₀ = x₁ = 3x₃), whose multipliers may grow together, perhaps a row of zeros; a curvature that
/// sets the unit of the objective but not the solution, a variable that may be anything and so no optimum of an active set.
Qp with_opposite_rows(double curvature, double far, bool row_of_zeros) {
  Qp qp(5, 0, 6);
  const auto row = [&](std::size_t i, std::vector<double> entries) {
    std::ranges::copy(entries, qp.G.begin() + static_cast<std::ptrdiff_t>(i * qp.n));
    qp.l[i] = 0;
  };
  qp.Q[0] = qp.Q[6] = qp.Q[18] = 1;
  qp.Q[12] = curvature;
  qp.q = {-4.1, -2.3, 0, -1.0 / 3, 0};
  row(0, {1, -1, 0, 0, 0});
  row(1, {-1, 1, 0, 0, 0});
  row(2, {1, 1, 1, 0, 1});
  row(3, {0, 1, 0, -3, 0});
  row(4, {0, -1, 0, 3, 0});
  row(5, {row_of_zeros ? 0.0 : 1.0, 0, 0, 0, 0});
  qp.l[2] = -far;
  return qp;
}

TEST(InteriorPoint, MultipliersThatCancelHideNoResidual) {
  InteriorPointOptions relatively, with_step;
  with_step.step = 1e-9;
  const double x = (3 * 4.1 + 3 * 2.3 + 1.0 / 3) / 19;
  for (const double curvature : {1.0, 1e4, 1e8, 1e12})
    for (const double far : {1.0, 1e4, 1e8})
      for (const bool row_of_zeros : {false, true})
        for (const InteriorPointOptions& options : {relatively, with_step, absolutely()}) {
          const Qp qp = with_opposite_rows(curvature, far, row_of_zeros);
          InteriorPoint solver(qp.n, qp.m, qp.p);
          const QpSolution s = solve(qp, solver, options);
          SCOPED_TRACE(testing::Message() << curvature << ' ' << far << ' ' << row_of_zeros << ' ' << s.iterations);
          EXPECT_TRUE(is_solution(s.status)) << to_string(s.status);
          EXPECT_NEAR(s.x[0], 3 * x, 3e-9 * x);
          EXPECT_NEAR(s.x[1], 3 * x, 3e-9 * x);
          EXPECT_NEAR(s.x[3], x, 1e-9 * x);
          EXPECT_LE(optimality(qp, s).dual, 1e-8);
        }
}

TEST(InteriorPoint, DataBeyondTheRangeOfNumbersAreRefused) {
  for (const Qp& qp : {separable({-1e300}, 1, -infinity, infinity), separable({-1e-300}, 1, -infinity, infinity),
                       separable({-0.3e-300, -2e-300}, 1, 0, 1e-300), separable({-1e308}, 1, 0, 1e308),
                       separable({-1}, 1e-300, -infinity, infinity), separable({-1}, 1e300, -infinity, infinity)}) {
    InteriorPoint solver(qp.n, 0, 0);
    EXPECT_EQ(solver.solve(qp.data()).status, Status::not_finite) << qp.q[0] << ' ' << qp.Q[0];
  }
  for (const double size : {1e-300, 1e-150, 1e150, 1e300}) {
    Qp equality(2, 1, 0), row(2, 0, 1);
    equality.Q = row.Q = {1, 0, 0, 1};
    equality.A = row.G = {size, size};
    equality.b = row.l = {size};
    for (const Qp& qp : {equality, row}) {
      InteriorPoint solver(2, qp.m, qp.p);
      const QpSolution s = solver.solve(qp.data());
      ASSERT_EQ(s.status, Status::converged) << size;
      EXPECT_NEAR(s.x[0], 0.5, 1e-8);
      EXPECT_NEAR(s.x[1], 0.5, 1e-8);
    }
  }
}

/// Gives each variable a size of its own in bounds, rows and q; curvatures stay, but for couplings, which shrink.
template <class Size> void spread(Qp& qp, const Size& next) {
  const std::size_t n = qp.n;
  std::vector<double> size(n);
  for (double& e : size) e = next();
  for (std::size_t i = 0; i < n; ++i) {
    double sum = qp.Q[i * n + i] > 0 ? 0.1 : 0;
    for (std::size_t j = 0; j < n; ++j) {
      if (i == j) continue;
      qp.Q[i * n + j] *= std::min(size[i] / size[j], size[j] / size[i]);
      sum += std::fabs(qp.Q[i * n + j]);
    }
    qp.Q[i * n + i] = sum;
    qp.q[i] *= sum > 0 ? size[i] : 1 / size[i];
    qp.lo[i] *= size[i];
    qp.hi[i] *= size[i];
  }
  for (std::vector<double>* matrix : {&qp.A, &qp.G})
    for (std::size_t k = 0; k < matrix->size(); ++k) (*matrix)[k] /= size[k % n];
}

// x = d x', rows times r, objective times c: the same x and multipliers, each in its unit.
TEST(InteriorPoint, UnitsDoNotChangeTheAnswer) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(1000 + seed);
    const auto n = static_cast<std::size_t>(random.integer(1, 12)),
               m = static_cast<std::size_t>(random.integer(0, 3)) % (n / 2 + 1),
               p = static_cast<std::size_t>(random.integer(0, 10));
    const bool linear = random.integer(0, 3) == 0;
    Qp qp = random_qp(random, n, m, p, linear ? 0 : n, true);
    for (double& l : qp.l) l -= random.uniform(0.01, 0.5);
    for (std::size_t j = 0; j < n; ++j) {
      qp.lo[j] = std::isfinite(qp.lo[j]) ? qp.lo[j] - random.uniform(0.01, 0.5) : linear ? -3 : -infinity;
      if (linear && !std::isfinite(qp.hi[j])) qp.hi[j] = 3;
    }
    const auto power = [&](double most) { return std::pow(10.0, random.uniform(-most, most)); };
    const double c = power(12), all = power(12);
    const bool uniform = random.flip();
    std::vector<double> d(n), r(m + p);
    if (seed % 2 == 1) spread(qp, [&] { return power(4); });
    for (double& e : d) e = uniform ? all : power(12);
    for (double& e : r) e = random.flip() ? 1 : power(12);
    Qp other = qp;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) other.Q[i * n + j] *= c * d[i] * d[j];
      other.q[i] *= c * d[i];
      other.lo[i] /= d[i];
      other.hi[i] /= d[i];
    }
    for (std::size_t i = 0; i < m + p; ++i) {
      double* row = i < m ? other.A.data() + i * n : other.G.data() + (i - m) * n;
      for (std::size_t j = 0; j < n; ++j) row[j] *= r[i] * d[j];
      if (i < m) other.b[i] *= r[i];
      if (i >= m) other.l[i - m] *= r[i], other.u[i - m] *= r[i];
    }
    InteriorPointOptions options;
    options.relative = 1e-10;
    options.step = 1e-9;
    InteriorPoint first(n, m, p), second(n, m, p);
    const QpSolution a = first.solve(qp.data(), options), b = second.solve(other.data(), options);
    ASSERT_EQ(a.status, Status::converged) << seed;
    ASSERT_EQ(b.status, Status::converged) << seed;
    EXPECT_LE(b.iterations, a.iterations + (seed % 2 == 1 ? 12 : 8)) << seed;
    // Each against its own size, or what its rows and bounds see of it.
    std::vector<double> dual(n);
    for (std::size_t j = 0; j < n; ++j) {
      dual[j] = std::fabs(qp.q[j]);
      for (std::size_t k = 0; k < n; ++k) dual[j] = std::max(dual[j], std::fabs(qp.Q[j * n + k] * a.x[k]));
      for (std::size_t i = 0; i < m; ++i) dual[j] = std::max(dual[j], std::fabs(qp.A[i * n + j] * a.y[i]));
      for (std::size_t i = 0; i < p; ++i) dual[j] = std::max(dual[j], std::fabs(qp.G[i * n + j] * a.z[i]));
      double size = std::fabs(a.x[j]);
      for (const double side : {qp.lo[j], qp.hi[j]}) size = std::isfinite(side) ? std::max(size, std::fabs(side)) : size;
      EXPECT_NEAR(b.x[j] * d[j], a.x[j], 1e-8 * size) << seed << ' ' << j;
      EXPECT_NEAR(b.bound_multipliers[j] / c / d[j], a.bound_multipliers[j], 1e-6 * dual[j]) << seed << ' ' << j;
    }
    const auto expect_same = [&](const std::vector<double>& matrix, std::size_t i, double of_a, double of_b) {
      double size = 0;  // of the multiplier that is all of the rows it adds to
      for (std::size_t j = 0; j < n; ++j) size = std::max(size, dual[j] / std::fabs(matrix[i * n + j]));
      EXPECT_NEAR(of_b / c, of_a, 1e-6 * (size + std::fabs(of_a))) << seed;
    };
    for (std::size_t i = 0; i < m; ++i) expect_same(qp.A, i, a.y[i], b.y[i] * r[i]);
    for (std::size_t i = 0; i < p; ++i) expect_same(qp.G, i, a.z[i], b.z[i] * r[m + i]);
  }
}

TEST(InteriorPoint, InfeasibleByLittleIsInfeasible) {
  for (const double off : {1e-3, 1e-6, 1e-7}) {
    for (const double unit : {1e-9, 1.0, 1e9}) {
      Qp qp(2, 0, 2);
      qp.Q = {1, 0, 0, 1};
      qp.G = {1, 1, 1, 1};
      qp.l = {-infinity, unit * (1 + off)};
      qp.u = {unit, infinity};
      InteriorPoint solver(2, 0, 2);
      expect_proof_of_infeasibility(qp, solve(qp, solver));
    }
  }
  int proven = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const std::size_t n = 6, p = 5;
    Qp qp = random_qp(random, n, 2, p + 1, n, false);
    std::fill_n(qp.G.begin() + p * n, n, 0.0);
    double most = 0;  // of a combination of the other rows, which the last row asks to be exceeded
    for (std::size_t i = 0; i < p; ++i) {
      const double weight = random.uniform(0.2, 1);
      qp.l[i] = -infinity;
      qp.u[i] = random.uniform(-1, 1);
      for (std::size_t j = 0; j < n; ++j) qp.G[p * n + j] += weight * qp.G[i * n + j];
      most += weight * qp.u[i];
    }
    qp.l[p] = most + 1e-6;
    qp.u[p] = infinity;
    InteriorPoint solver(n, 2, p + 1);
    proven += solve(qp, solver).status == Status::infeasible ? 1 : 0;
  }
  EXPECT_GE(proven, 99);
}

TEST(InteriorPoint, AStartOfNonsenseChangesNothingButTheTime) {
  Random random(17);
  const Qp qp = random_qp(random, 10, 3, 8, 10, true);
  InteriorPoint solver(10, 3, 8), other(10, 3, 8);
  const QpSolution s = solve(qp, solver);
  for (const double nonsense : {1e12, -1e6, 1e-12}) {
    const std::vector<double> x(10, nonsense), y(3, nonsense), z(8, -nonsense);
    const QpSolution w = other.solve(qp.data(), {}, {x, y, z, x});
    ASSERT_EQ(w.status, Status::converged) << nonsense;
    for (std::size_t j = 0; j < 10; ++j) EXPECT_NEAR(w.x[j], s.x[j], 1e-7) << nonsense;
  }
  const std::vector<double> x(10, nan);
  EXPECT_EQ(other.solve(qp.data(), {}, {x, {}, {}, {}}).status, Status::not_finite);
}

}  // namespace
}  // namespace onestep::detail
