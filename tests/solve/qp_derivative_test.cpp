// Derivatives of quadratic programs: against differences, against each other, against the envelope theorem and closed forms.
#include "qp/derivative.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/random_qp.h"

namespace onestep::detail {
namespace {

using test::infinity;
using test::Qp;
using test::Random;

constexpr QpDerivativeAt both[] = {QpDerivativeAt::solution, QpDerivativeAt::previous_iterate};

/// x, y, z and bound multipliers, one after another.
struct Point {
  std::vector<double> x, y, z, w;
  explicit Point(const Qp& qp) : x(qp.n), y(qp.m), z(qp.p), w(qp.n) {}
  explicit Point(const QpSolution& s)
      : x(s.x.begin(), s.x.end()),
        y(s.y.begin(), s.y.end()),
        z(s.z.begin(), s.z.end()),
        w(s.bound_multipliers.begin(), s.bound_multipliers.end()) {}
  std::vector<double> all() const {
    std::vector<double> v = x;
    for (const auto* part : {&y, &z, &w}) v.insert(v.end(), part->begin(), part->end());
    return v;
  }
};

std::vector<std::vector<double> Qp::*> parts() {
  return {&Qp::Q, &Qp::q, &Qp::A, &Qp::b, &Qp::G, &Qp::l, &Qp::u, &Qp::lo, &Qp::hi};
}

Qp zeros_like(const Qp& qp) {
  Qp zeros(qp.n, qp.m, qp.p);
  for (const auto part : parts()) std::fill((zeros.*part).begin(), (zeros.*part).end(), 0.0);
  return zeros;
}

Qp random_tangents(Random& random, const Qp& qp) {
  Qp tangents = zeros_like(qp);
  for (const auto part : parts())
    for (double& t : tangents.*part) t = random.uniform(-1, 1);
  return tangents;
}

QpCotangents cotangents_of(Qp& qp) {
  return {qp.Q.data(), qp.q.data(), qp.A.data(),  qp.b.data(), qp.G.data(),
          qp.l.data(), qp.u.data(), qp.lo.data(), qp.hi.data()};
}

/// qp + h tangents, with the symmetric part of the tangent of Q.
Qp moved(const Qp& qp, const Qp& tangents, double h) {
  Qp result = qp;
  for (const auto part : parts())
    for (std::size_t i = 0; i < (qp.*part).size(); ++i) (result.*part)[i] += h * (tangents.*part)[i];
  for (std::size_t i = 0; i < qp.n; ++i)
    for (std::size_t j = 0; j < qp.n; ++j)
      result.Q[i * qp.n + j] = qp.Q[i * qp.n + j] + 0.5 * h * (tangents.Q[i * qp.n + j] + tangents.Q[j * qp.n + i]);
  return result;
}

double largest(const std::vector<double>& v) {
  double m = 0;
  for (const double e : v) m = std::max(m, std::fabs(e));
  return m;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double s = 0;
  for (std::size_t i = 0; i < a.size(); ++i) s += a[i] * b[i];
  return s;
}

/// Solved so well that rounding stopped it.
Point solution_of(const Qp& qp) {
  InteriorPoint solver(qp.n, qp.m, qp.p);
  InteriorPointOptions options;
  options.relative = options.absolute = 1e-14;
  const QpSolution s = solver.solve(qp.data(), options);
  EXPECT_TRUE(is_solution(s.status)) << s.status;
  return Point(s);
}

InteriorPointOptions short_last_step() {
  InteriorPointOptions options;
  options.step = 1e-8;
  return options;
}

Qp random_problem(Random& random, int trial) {
  const auto n = static_cast<std::size_t>(random.integer(2, trial % 8 == 0 ? 60 : 15));
  return random_qp(random, n, n / 4, n / 2, n, trial % 2 == 0);
}

TEST(QpDerivative, TangentsAreDifferencesOfSolutions) {
  Random random(1);
  int compared = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const Qp qp = random_problem(random, trial);
    InteriorPoint solver(qp.n, qp.m, qp.p);
    ASSERT_EQ(solver.solve(qp.data(), short_last_step()).status, Status::converged);
    QpDerivative derivative(solver);
    const Qp tangents = random_tangents(random, qp);
    // Two step sizes: where they disagree another constraint became active between them.
    const auto difference = [&](double h) {
      std::vector<double> after = solution_of(moved(qp, tangents, h)).all();
      const std::vector<double> before = solution_of(moved(qp, tangents, -h)).all();
      for (std::size_t i = 0; i < after.size(); ++i) after[i] = (after[i] - before[i]) / (2 * h);
      return after;
    };
    const std::vector<double> expected = difference(1e-5), coarse = difference(4e-5);
    const double scale = 1 + largest(expected);
    bool smooth = true;
    for (std::size_t i = 0; i < expected.size(); ++i) smooth = smooth && std::fabs(expected[i] - coarse[i]) < 1e-4 * scale;
    if (!smooth) continue;
    ++compared;
    for (const QpDerivativeAt at : both) {
      derivative.linearise(at);
      Point t(qp);
      EXPECT_LE(derivative.jvp(tangents.data(), t.x, t.y, t.z, t.w), 1e-12);
      const std::vector<double> got = t.all();
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 3e-5 * scale) << trial << ' ' << i;
    }
  }
  EXPECT_GE(compared, 40);
}

TEST(QpDerivative, JvpAndVjpAreAdjoint) {
  Random random(2);
  for (int trial = 0; trial < 60; ++trial) {
    const Qp qp = random_problem(random, trial);
    InteriorPoint solver(qp.n, qp.m, qp.p);
    solver.solve(qp.data());
    QpDerivative derivative(solver);
    for (const QpDerivativeAt at : both) {
      derivative.linearise(at);
      const Qp tangents = random_tangents(random, qp);
      Point t(qp), u(qp);
      for (std::vector<double>* part : {&u.x, &u.y, &u.z, &u.w})
        for (double& e : *part) e = random.uniform(-1, 1);
      derivative.jvp(tangents.data(), t.x, t.y, t.z, t.w);
      Qp cotangents = zeros_like(qp);
      derivative.vjp(u.x, u.y, u.z, u.w, cotangents_of(cotangents));
      double left = dot(u.all(), t.all()), right = 0, size = std::fabs(left);
      for (const auto part : parts()) {
        right += dot(cotangents.*part, tangents.*part);
        size += std::fabs(dot(cotangents.*part, tangents.*part));
      }
      EXPECT_NEAR(left, right, 1e-10 * size) << trial;
    }
  }
}

TEST(QpDerivative, OneStepTendsToImplicitAsTheLastStepShrinks) {
  Random random(3);
  for (int trial = 0; trial < 20; ++trial) {
    const Qp qp = random_problem(random, trial);
    InteriorPoint solver(qp.n, qp.m, qp.p);
    const Qp tangents = random_tangents(random, qp);
    const auto disagreement = [&](double step) {
      InteriorPointOptions options;
      options.step = step;
      solver.solve(qp.data(), options);
      QpDerivative derivative(solver);
      Point implicit(qp), one_step(qp);
      derivative.linearise(QpDerivativeAt::solution);
      derivative.jvp(tangents.data(), implicit.x, implicit.y, implicit.z, implicit.w);
      derivative.linearise(QpDerivativeAt::previous_iterate);
      derivative.jvp(tangents.data(), one_step.x, one_step.y, one_step.z, one_step.w);
      double off = 0;
      for (std::size_t j = 0; j < qp.n; ++j) off = std::max(off, std::fabs(implicit.x[j] - one_step.x[j]));
      return off / (1 + largest(implicit.x));
    };
    EXPECT_LE(disagreement(1e-9), 1e-6) << trial;
  }
}

// Where strict complementarity holds by a margin. Bounds of very different units are in the rows.
TEST(QpDerivative, OneStepIsExactWhereTheActiveSetIsClear) {
  Random random(33);
  int compared = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const auto n = static_cast<std::size_t>(random.integer(2, 12));
    Qp qp = random_qp(random, n, n / 4, n, n, random.flip());
    for (std::size_t i = 0; trial % 2 == 1 && i < qp.p; ++i) {
      const double unit = std::pow(10.0, random.uniform(-6, 6));
      for (std::size_t j = 0; j < n; ++j) qp.G[i * n + j] *= unit;
      qp.l[i] *= unit;
      qp.u[i] *= unit;
    }
    InteriorPointOptions options;
    options.step = 1e-9;
    InteriorPoint solver(qp.n, qp.m, qp.p);
    ASSERT_EQ(solver.solve(qp.data(), options).status, Status::converged) << trial;
    const QpActiveSet& set = solver.active_set();
    bool is_clear = set.is_decided() && set.growth() < 1e4;
    for (std::size_t i = 0; is_clear && i < qp.m + qp.p + n; ++i)
      is_clear = set.active()[i] == QpActive::equality ||
                 (set.active()[i] == QpActive::none ? set.slack(i) : std::fabs(set.multiplier(i))) > 1e-3;
    if (!is_clear) continue;
    ++compared;
    QpDerivative derivative(solver);
    std::vector<double> c(n), implicit;
    for (double& e : c) e = random.uniform(-1, 1);
    for (const QpDerivativeAt at : both) {
      Qp cotangents = zeros_like(qp);
      derivative.linearise(at);
      derivative.vjp(c, {}, {}, {}, cotangents_of(cotangents));
      if (at == QpDerivativeAt::solution) implicit = cotangents.q;
      for (std::size_t j = 0; j < n; ++j)
        EXPECT_NEAR(cotangents.q[j], implicit[j], 1e-10 * (largest(implicit) + largest(c))) << trial;
    }
  }
  EXPECT_GE(compared, 80);
}

// The optimal value V: dV/dq = x, dV/dQ = ½xxᵀ, dV/db = -y, dV/d(upper bounds) = -z⁺ and so on, dV/dA = yxᵀ.
TEST(QpDerivative, TheOptimalValueObeysTheEnvelopeTheorem) {
  Random random(4);
  for (int trial = 0; trial < 30; ++trial) {
    const Qp qp = random_problem(random, trial);
    InteriorPoint solver(qp.n, qp.m, qp.p);
    const QpSolution s = solver.solve(qp.data(), short_last_step());
    QpDerivative derivative(solver);
    derivative.linearise(QpDerivativeAt::solution);
    if (!derivative.find_degeneracy().none()) continue;
    // V = ½xᵀQx + qᵀx: the cotangent of x is Qx + q, and Q and q have a direct part.
    std::vector<double> x_bar(qp.q);
    for (std::size_t i = 0; i < qp.n; ++i)
      for (std::size_t j = 0; j < qp.n; ++j) x_bar[i] += qp.Q[i * qp.n + j] * s.x[j];
    Qp g = zeros_like(qp);
    derivative.vjp(x_bar, {}, {}, {}, cotangents_of(g));
    const double scale = 1e-7 * (1 + largest(Point(s).all()) * largest(Point(s).all()));
    for (std::size_t j = 0; j < qp.n; ++j) {
      EXPECT_NEAR(g.q[j] + s.x[j], s.x[j], scale);
      EXPECT_NEAR(g.hi[j], -std::max(s.bound_multipliers[j], 0.0), scale);
      EXPECT_NEAR(g.lo[j], -std::min(s.bound_multipliers[j], 0.0), scale);
      for (std::size_t k = 0; k < qp.n; ++k)
        EXPECT_NEAR(g.Q[j * qp.n + k] + 0.5 * s.x[j] * s.x[k], 0.5 * s.x[j] * s.x[k], scale);
    }
    for (std::size_t i = 0; i < qp.m; ++i) {
      EXPECT_NEAR(g.b[i], -s.y[i], scale);
      for (std::size_t j = 0; j < qp.n; ++j) EXPECT_NEAR(g.A[i * qp.n + j], s.y[i] * s.x[j], scale);
    }
    for (std::size_t i = 0; i < qp.p; ++i) {
      EXPECT_NEAR(g.u[i], -std::max(s.z[i], 0.0), scale);
      EXPECT_NEAR(g.l[i], -std::min(s.z[i], 0.0), scale);
    }
  }
}

// The projection on the simplex: dx = dt - mean(dt) on the support, 0 elsewhere.
TEST(QpDerivative, OfTheProjectionOnTheSimplexIsThatOfItsSupport) {
  const std::vector<double> t = {0.9, 0.5, -1.0, 0.3, -0.4};
  Qp qp(5, 1, 0);
  for (std::size_t j = 0; j < 5; ++j) {
    qp.Q[j * 5 + j] = 1;
    qp.q[j] = -t[j];
    qp.A[j] = 1;
    qp.lo[j] = 0;
  }
  qp.b = {1};
  InteriorPoint solver(5, 1, 0);
  const QpSolution s = solver.solve(qp.data(), short_last_step());
  QpDerivative derivative(solver);
  for (const QpDerivativeAt at : both) {
    derivative.linearise(at);
    EXPECT_TRUE(derivative.find_degeneracy().none());
    Qp tangents = zeros_like(qp);
    tangents.q = {-1, 0, 0, 0, 0};
    Point d(qp);
    derivative.jvp(tangents.data(), d.x, d.y, d.z, d.w);
    double support = 0;
    for (std::size_t j = 0; j < 5; ++j) support += s.x[j] > 1e-6 ? 1 : 0;
    for (std::size_t j = 0; j < 5; ++j) EXPECT_NEAR(d.x[j], s.x[j] > 1e-6 ? (j == 0 ? 1 : 0) - 1 / support : 0, 1e-6) << j;
  }
}

TEST(QpDerivative, NeedsNoFactorisationOfItsOwn) {
  Random random(5);
  const Qp qp = random_qp(random, 30, 8, 20, 30, true);
  InteriorPoint solver(30, 8, 20);
  const int before = solver.solve(qp.data()).factorisations;
  QpDerivative derivative(solver);
  Point t(qp);
  for (const QpDerivativeAt at : both) {
    derivative.linearise(at);
    derivative.jvp(random_tangents(random, qp).data(), t.x, t.y, t.z, t.w);
    derivative.find_degeneracy();
  }
  EXPECT_EQ(solver.factorisations(), before);
}

TEST(QpDerivative, IsThereWhenTheStartWasTheSolution) {
  Random random(6);
  const Qp qp = random_qp(random, 10, 3, 6, 10, false);
  InteriorPoint solver(10, 3, 6), again(10, 3, 6);
  InteriorPointOptions exact;
  exact.relative = 1e-13;
  const QpSolution s = solver.solve(qp.data(), exact);
  InteriorPointOptions loose;
  loose.relative = 100;
  ASSERT_EQ(again.solve(qp.data(), loose, {s.x, s.y, s.z, s.bound_multipliers}).iterations, 0);
  QpDerivative derivative(again);
  derivative.linearise(QpDerivativeAt::solution);
  Point t(qp);
  derivative.jvp(random_tangents(random, qp).data(), t.x, t.y, t.z, t.w);
  for (const double e : t.all()) EXPECT_TRUE(std::isfinite(e));
}

TEST(QpDerivative, NamesAConstraintThatIsWeaklyActive) {
  Qp qp(2, 0, 1);
  qp.Q = {1, 0, 0, 1};
  qp.q = {-1, -2};
  qp.G = {1, 0};
  qp.u = {1};  // the minimum of the objective alone is (1, 2): on the bound, with multiplier 0
  InteriorPoint solver(2, 0, 1);
  solver.solve(qp.data());
  QpDerivative derivative(solver);
  derivative.linearise(QpDerivativeAt::solution);
  EXPECT_EQ(derivative.find_degeneracy().undecided, std::vector<std::size_t>{0});
  Qp tangents = zeros_like(qp);
  tangents.q = {-1, 0};
  Point t(qp);
  derivative.jvp(tangents.data(), t.x, t.y, t.z, t.w);
  EXPECT_GE(t.x[0], -1e-6);  // between the two one-sided derivatives, 0 and 1
  EXPECT_LE(t.x[0], 1 + 1e-6);
}

TEST(QpDerivative, NamesActiveConstraintsThatAreDependent) {
  Qp qp(3, 2, 1);
  for (std::size_t j = 0; j < 3; ++j) qp.Q[j * 3 + j] = 1;
  qp.q = {0, 0, -5};
  qp.A = {1, 1, 0, 2, 2, 0};
  qp.b = {1, 2};
  qp.G = {0, 0, 1};
  qp.u = {1};
  InteriorPoint solver(3, 2, 1);
  EXPECT_EQ(solver.solve(qp.data()).status, Status::converged);
  QpDerivative derivative(solver);
  derivative.linearise(QpDerivativeAt::solution);
  const QpDegeneracy found = derivative.find_degeneracy();
  EXPECT_EQ(found.dependent, (std::vector<std::size_t>{0, 1}));
  EXPECT_TRUE(found.not_unique.empty());
  Qp tangents = zeros_like(qp);
  tangents.b = {1, 2};  // stays consistent
  Point t(qp);
  derivative.jvp(tangents.data(), t.x, t.y, t.z, t.w);
  EXPECT_NEAR(t.x[0], 0.5, 1e-6);
  EXPECT_NEAR(t.x[1], 0.5, 1e-6);
  EXPECT_NEAR(t.x[2], 0, 1e-6);
  for (const double e : t.all()) EXPECT_TRUE(std::isfinite(e));
}

// Rows that depend on each other are seen by a right-hand side that contradicts them, wherever they stand.
TEST(QpDerivative, EqualEqualitiesAreNeverTakenForIndependent) {
  Random random(34);
  for (int trial = 0; trial < 600; ++trial) {
    const auto n = static_cast<std::size_t>(random.integer(3, 12));
    Qp qp = random_qp(random, n, 2, n, n, random.flip());
    const double factor = std::ldexp(1.0, static_cast<int>(random.integer(-3, 3)));
    for (std::size_t j = 0; j < n; ++j) qp.A[n + j] = factor * qp.A[j];
    qp.b[1] = factor * qp.b[0];
    InteriorPoint solver(qp.n, qp.m, qp.p);
    if (solver.solve(qp.data()).status != Status::converged) continue;
    const QpActiveSet& set = solver.active_set();
    EXPECT_FALSE(set.is_decided() && set.growth() < 1e9) << trial;
  }
}

TEST(QpDerivative, NamesVariablesThatMayMove) {
  Qp qp(3, 1, 0);
  qp.Q[0] = 1;
  qp.q = {-1, 0, 0};
  qp.A = {0, 1, 1};  // only the sum of the last two is determined
  qp.b = {1};
  qp.lo = {-infinity, 0, 0};
  InteriorPoint solver(3, 1, 0);
  EXPECT_EQ(solver.solve(qp.data()).status, Status::converged);
  QpDerivative derivative(solver);
  derivative.linearise(QpDerivativeAt::solution);
  const QpDegeneracy found = derivative.find_degeneracy();
  EXPECT_EQ(found.not_unique, (std::vector<std::size_t>{1, 2}));
  Point t(qp);
  Qp tangents = zeros_like(qp);
  tangents.b = {1};
  derivative.jvp(tangents.data(), t.x, t.y, t.z, t.w);
  EXPECT_NEAR(t.x[1] + t.x[2], 1, 1e-6);
  for (const double e : t.all()) EXPECT_TRUE(std::isfinite(e));
}

}  // namespace
}  // namespace onestep::detail
