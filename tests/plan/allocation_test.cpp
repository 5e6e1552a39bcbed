// Nothing is allocated in Plan::run.
#include <gtest/gtest.h>

#include "onestep/onestep.h"
#include "support/count_allocations.h"
#include "support/random.h"

namespace onestep {
namespace {

using test::allocations;

// A Newton step with its value and vjp: loops, products, a factor, solves.
Function newton_step(const Array& A, const Array& y, std::int64_t rows, std::int64_t n) {
  return traced(
      [&](Expr x, Expr w, Expr c) {
        const Expr f = sum(w * softplus(-y * matmul(A, x))) + 0.1 * sum(square(x));
        const Expr next = x - solve(cholesky(hessian(f, x)), grad(f, x));
        return std::tuple(f, next, vjp(next, w, c));
      },
      Input{"x", {n}}, Input{"w", {rows}}, Input{"c", {n}});
}

TEST(Allocation, TheCounterCounts) {
  const std::size_t before = allocations;
  ::operator delete(::operator new(100));  // a call, which unlike an expression may not be left out
  EXPECT_GE(allocations - before, 1U);
}

TEST(Allocation, RunAllocatesNothingAtAnySize) {
  test::Random random(1);
  for (const auto& [rows, n] : {std::pair<std::int64_t, std::int64_t>{20, 3}, {5000, 40}, {1200, 450}}) {
    const Array A = random.array({rows, n}), y = random.array({rows});
    const Plan plan(newton_step(A, y, rows, n));
    Workspace workspace = plan.workspace();
    const std::vector<Array> inputs{random.array({n}), random.array({rows}, 0.5, 1.5), random.array({n})};
    double value = 0;
    std::vector<double> next(static_cast<std::size_t>(n)), influence(static_cast<std::size_t>(rows));
    const std::vector<std::span<double>> outputs{{&value, 1}, next, influence};
    plan.run(workspace, inputs, outputs);  // threads are started the first time
    test::settle();
    const std::size_t before = allocations;
    for (int k = 0; k < 3; ++k) plan.run(workspace, inputs, outputs);
    EXPECT_EQ(allocations - before, 0U) << rows << " x " << n;
  }
}

TEST(Allocation, RunsThatStopBelowTheHighestLevelAllocateNothing) {
  test::Random random(2);
  const std::int64_t rows = 5000, n = 40;
  const Array A = random.array({rows, n}), y = random.array({rows});
  const Plan plan(newton_step(A, y, rows, n), {.levels = {2, 1, 3}, .loop = 2});
  Workspace workspace = plan.workspace();
  const std::vector<Array> inputs{random.array({n}), random.array({rows}, 0.5, 1.5), random.array({n})};
  double value = 0;
  std::vector<double> next(static_cast<std::size_t>(n)), influence(static_cast<std::size_t>(rows));
  const std::vector<std::span<double>> iteration{{&value, 1}, next, {}}, all{{&value, 1}, next, influence};
  plan.run(workspace, inputs, all);
  test::settle();
  const std::size_t before = allocations;
  for (int k = 0; k < 3; ++k) {
    plan.run(workspace, inputs, iteration, 2, 2);
    plan.run(workspace, inputs, all, 3);
  }
  EXPECT_EQ(allocations - before, 0U);
}

}  // namespace
}  // namespace onestep
