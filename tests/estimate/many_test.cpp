// Many problems at once: the bits of each problem alone, sums for what is shared, a status for each.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <thread>

#include "onestep/onestep.h"
#include "support/compare.h"
#include "support/random.h"

namespace onestep {
namespace {

using test::entries_of;
using test::near;
using test::Random;

/// Ridge regressions with weights of their own and one penalty that they share.
struct Ridges {
  explicit Ridges(std::size_t problems) : count(problems), A(random.array({12, 4})), y(random.array({12})) {
    for (std::size_t i = 0; i < problems; ++i) {
      weights.push_back(random.array({12}, 0.5, 2));
      starts.push_back(random.array({4}));
    }
  }
  Solver newton_solver() const {
    return newton([features = A, targets = y](Expr x, Expr w, Expr l2) {
      return sum(w * square(matmul(features, x) - targets)) + l2 * sum(square(x)) + sum(log(cosh(x)));
    });
  }

  Random random{11};
  std::size_t count;
  Array A, y;
  std::vector<Array> weights, starts;
  double penalty = 0.3;
};

void expect_same_bits(const Array& a, const Array& b) { EXPECT_EQ(entries_of(a), entries_of(b)); }

TEST(Many, SolutionsAndDerivativesHaveTheBitsOfEachProblemAlone) {
  const Ridges r(9);
  const std::vector<Estimator> estimators{OneStep{}, Implicit{}, Auto{}, KStep{2}, Unrolled{}};
  for (const Solver& solver : {r.newton_solver(), gradient_descent(
                                                      [A = r.A, y = r.y](Expr x, Expr w, Expr penalty) {
                                                        return sum(w * square(matmul(A, x) - y)) + penalty * sum(square(x));
                                                      },
                                                      {.step = GradientStep::inverse_smoothness()})}) {
    for (const Estimator& how : estimators) {
      const ManySolutions all = solve_many(solver, {r.starts}, {r.weights, r.penalty}, how);
      ASSERT_EQ(all.size(), r.count);
      EXPECT_TRUE(all.failed().empty());
      const std::vector<Many> g = all.vjp({all.x()});
      const std::vector<Many> d = all.jvp({Many(r.weights), Many(1.0)});
      ASSERT_EQ(g.size(), 2U);
      EXPECT_FALSE(g[0].is_shared());
      EXPECT_TRUE(g[1].is_shared());
      double sum = 0;
      for (std::size_t i = 0; i < r.count; ++i) {
        const Solution alone = solve(solver, r.starts[i], {r.weights[i], r.penalty}, how);
        expect_same_bits(all[i].x(), alone.x());
        const Parts own = alone.vjp(alone.x());
        expect_same_bits(g[0][i], own[0]);
        sum += own[1].item();
        expect_same_bits(d[0][i], alone.jvp({r.weights[i], 1.0})[0]);
      }
      EXPECT_NEAR(g[1][0].item(), sum, 1e-14 * std::fabs(sum)) << "the sum, not the mean";
    }
  }
}

TEST(Many, NothingDependsOnTheNumberOfThreads) {
  const Ridges r(150);  // more than there are chunks of a sum
  const Solver solver = r.newton_solver();
  std::vector<std::vector<double>> sums;
  for (const int threads : {1, 2, 5}) {
    const ManySolutions all = solve_many(solver.on(Context({.threads = threads})), {zeros(4)}, {r.weights, r.penalty});
    sums.push_back(entries_of(all.vjp({all.x()})[1][0]));
    sums.back().push_back(all[149].x()(2));
  }
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

TEST(Many, ProgramsTooWithEveryPartOfTheirData) {
  Random random(5);
  std::vector<Array> cs, bs;
  for (int i = 0; i < 20; ++i) {
    cs.push_back(random.array({5}));
    bs.push_back(Array{random.uniform(0.5, 2)});
  }
  const Solver project = quadratic_program([](Expr c, Expr b) {
    return TracedProgram{.Q = eye(5), .q = -c, .A = ones({1, 5}), .b = b, .lo = 0.0};
  });
  const ManySolutions all = solve_many(project, {cs, bs});
  EXPECT_TRUE(all.failed().empty());
  const std::vector<Many> g = all.vjp({all.x()});
  for (std::size_t i = 0; i < cs.size(); ++i) {
    const Solution alone = solve(project, {cs[i], bs[i]});
    expect_same_bits(all.x(1)[i], alone.x(1));
    expect_same_bits(g[0][i], alone.vjp(alone.x())[0]);
    expect_same_bits(g[1][i], alone.vjp(alone.x())[1]);
  }
}

TEST(Many, EachProblemHasItsStatusAndOneThatFailedIsNamed) {
  const Solver root = newton_root([](Expr x, Expr a) { return square(x) - a; });
  const ManySolutions all = solve_many(root, {1.0}, {std::vector<Array>{4.0, -1.0, 9.0}});
  EXPECT_EQ(all.failed(), std::vector<std::size_t>{1});
  EXPECT_EQ(all.statuses()[0], Status::converged);
  EXPECT_DOUBLE_EQ(all.x()[2].item(), 3);
  try {
    (void)all.vjp({1.0});
    FAIL() << "the second has no solution";
  } catch (const NotConvergedError& e) {
    EXPECT_NE(std::string(e.what()).find("problem 1: "), std::string::npos) << e.what();
    EXPECT_EQ(e.status, all.statuses()[1]);
  }
  EXPECT_DOUBLE_EQ(all[2].vjp(1.0)[0].item(), 1.0 / 6);
}

TEST(Many, WhatHasNoPointContributesNothingButNan) {
  const Solver box =
      quadratic_program([](Expr q, Expr low) { return TracedProgram{.Q = eye(1), .q = q, .lo = low, .hi = 1.0}; });
  const std::vector<Many> theta{std::vector<Array>{Array{-0.5}, Array{-0.5}}, std::vector<Array>{Array{0.0}, Array{2.0}}};
  const ManySolutions s = solve_many(box, theta, Implicit{});
  EXPECT_EQ(s.statuses()[1], Status::infeasible);
  EXPECT_THROW((void)s.vjp({Array{1.0}}), NotConvergedError);
  const std::vector<Many> g = s.even_if_unconverged().vjp({Array{1.0}});
  EXPECT_NEAR(g[0][0](0), -1, 1e-12);
  EXPECT_TRUE(std::isnan(g[0][1](0)));
  const std::vector<Many> t = s.even_if_unconverged().jvp({Array{1.0}, Array{0.0}});
  EXPECT_NEAR(t[0][0](0), -1, 1e-12);
  EXPECT_TRUE(std::isnan(t[0][1](0)));
}

TEST(Many, WhatDoesNotFitIsMisuse) {
  const Ridges r(3);
  const Solver solver = r.newton_solver();
  const std::vector<Array> two(r.weights.begin(), r.weights.begin() + 2);
  EXPECT_THROW(solve_many(solver, {r.starts}, {two, r.penalty}), MisuseError);
  EXPECT_THROW(solve_many(solver, {r.starts}, {r.weights}), MisuseError);
  EXPECT_THROW(solve_many(solver, {zeros(4)}, {std::vector<Array>{}, r.penalty}), MisuseError);
  std::vector<Array> one_too_long = r.weights;
  one_too_long[1] = ones(13);
  EXPECT_THROW(solve_many(solver, {r.starts}, {one_too_long, r.penalty}), MisuseError);
  const ManySolutions all = solve_many(solver, {r.starts}, {r.weights, r.penalty});
  EXPECT_THROW((void)all[3], MisuseError);
  EXPECT_THROW((void)all.vjp({two}), MisuseError);
  EXPECT_THROW((void)Many(r.weights)[3], MisuseError);
  EXPECT_THROW((void)Many::rows(ones(3)), MisuseError);
}

TEST(Many, WhatACallbackThrowsComesOutAndItCanBeSolvedAgain) {
  const Ridges r(8);
  std::atomic<int> calls = 0;
  PreparedMany prepared(r.newton_solver().with(SolveOptions{.callback = [&](const Iteration&) -> bool {
    if (++calls == 5) throw std::runtime_error("enough");
    return true;
  }}),
                        {r.starts}, {r.weights, r.penalty});
  EXPECT_THROW(prepared.solve({r.weights, r.penalty}), std::runtime_error);
  EXPECT_TRUE(prepared.solve({r.weights, r.penalty}).failed().empty());
}

TEST(Many, SolutionsThatAreKeptDoNotChangeWithTheNextSolve) {
  const Ridges r(4);
  PreparedMany prepared(r.newton_solver(), {r.starts}, {r.weights, r.penalty});
  const ManySolutions first = prepared.solve({r.weights, r.penalty});
  const Solution one = prepared.solve({r.weights, 5.0})[2];
  const Array x = one.x(), of_first = first[2].x();
  (void)prepared.solve({r.weights, 0.01});
  expect_same_bits(one.x(), x);
  expect_same_bits(first[2].x(), of_first);
  expect_same_bits(of_first, solve(r.newton_solver(), r.starts[2], {r.weights[2], r.penalty}).x());
}

// All gradients of one parameter lie in one piece of memory.
TEST(Many, OneGradientThatIsKeptOutlivesEverythingElse) {
  const Ridges r(70);
  std::vector<Array> kept, twice;
  {
    const ManySolutions all =
        PreparedMany(r.newton_solver(), {r.starts}, {r.weights, r.penalty}).solve({r.weights, r.penalty});
    std::vector<Many> g = all.vjp({all.x()});
    kept = {g[0][0], g[0][69], g[1][0]};
    const std::vector<Many> again = all.vjp({all.x()});
    twice = {again[0][0], again[0][69], again[1][0]};
    EXPECT_NE(kept[0].data(), twice[0].data());
    g = all.vjp({Many(zeros(4))});
    EXPECT_EQ(entries_of(g[0][69]), std::vector<double>(12));
  }
  const Solution last = solve(r.newton_solver(), r.starts[69], {r.weights[69], r.penalty});
  expect_same_bits(kept[1], last.vjp(last.x())[0]);
  for (std::size_t i = 0; i < kept.size(); ++i) expect_same_bits(kept[i], twice[i]);
}

TEST(Many, GradientsThatAreKeptDoNotChangeWithTheNextOnesAndThreadsMayGiveThemBack) {
  const Ridges r(9);
  PreparedMany prepared(r.newton_solver(), {r.starts}, {r.weights, r.penalty});
  std::optional<ManySolutions> all = prepared.solve({r.weights, r.penalty});
  const std::vector<Many> c{all->x()};
  const std::vector<Many> first = all->vjp(c);
  std::vector<double> expected;
  for (std::size_t i = 0; i < r.count; ++i)
    for (const double e : entries_of(first[0][i])) expected.push_back(e);
  std::vector<Array> negative;
  for (std::size_t i = 0; i < r.count; ++i) negative.push_back(-all->x()[i]);
  for (int k = 0; k < 40; ++k) {
    std::vector<Many> more = all->vjp({negative});  // given back at once, or by another thread
    if (k % 2 == 0) std::thread([given = std::move(more)] { EXPECT_EQ(given.size(), 2U); }).join();
  }
  const std::vector<Many> last = all->vjp(c);
  all.reset();
  prepared = PreparedMany(r.newton_solver(), {r.starts}, {r.weights, r.penalty});
  std::size_t at = 0;
  for (std::size_t i = 0; i < r.count; ++i) {
    expect_same_bits(first[0][i], last[0][i]);
    for (const double e : entries_of(first[0][i])) EXPECT_EQ(e, expected[at++]);
  }
}

TEST(Many, RowsOfAMatrixAreVectorsAndBack) {
  const Array A{{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}};
  const Many rows = Many::rows(A);
  EXPECT_EQ(rows.count(), 3U);
  EXPECT_EQ(entries_of(rows[1]), (std::vector<double>{3, 4}));
  expect_same_bits(rows.matrix(), A);
}

}  // namespace
}  // namespace onestep
