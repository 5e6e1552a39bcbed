// A prepared quadratic program solver allocates nothing.
#include <gtest/gtest.h>

#include "solve/interior_point.h"
#include "support/count_allocations.h"
#include "support/random_qp.h"

namespace onestep::detail {
namespace {

TEST(InteriorPointAllocation, ASecondSolveAllocatesNothingAtAnySize) {
  test::Random random(1);
  for (const std::size_t n : {5U, 40U, 420U}) {
    const test::Qp first = random_qp(random, n, n / 4, n / 2, n, true), second = random_qp(random, n, n / 4, n / 2, n, true);
    InteriorPoint solver(n, n / 4, n / 2);
    solver.solve(first.data());  // threads are started the first time
    const std::size_t before = test::allocations;
    const Status status = solver.solve(second.data()).status;
    EXPECT_EQ(test::allocations - before, 0U) << n;
    EXPECT_EQ(status, Status::converged);
  }
}

}  // namespace
}  // namespace onestep::detail
