// A prepared solver allocates nothing when it solves again, and derivatives written into memory of the caller do not either.
#include <gtest/gtest.h>

#include "qp/interior_point.h"
#include "support/count_allocations.h"
#include "support/problems.h"
#include "support/random_qp.h"

namespace onestep::detail {
namespace {

TEST(InteriorPointAllocation, ASecondSolveAllocatesNothingAtAnySize) {
  test::Random random(1);
  for (const std::size_t n : {5U, 40U, 420U}) {
    const test::Qp first = random_qp(random, n, n / 4, n / 2, n, true), second = random_qp(random, n, n / 4, n / 2, n, true);
    InteriorPoint solver(n, n / 4, n / 2);
    solver.solve(first.data());  // threads are started the first time
    test::settle();
    const std::size_t before = test::allocations;
    const Status status = solver.solve(second.data()).status;
    EXPECT_EQ(test::allocations - before, 0U) << n;
    EXPECT_EQ(status, Status::converged);
  }
}

// Allocations of solving again from x0 with θ after one solve, and of both derivatives after that.
std::size_t allocations_of(const Solver& solver, const Parts& x0, const Parts& theta, const Parts& other,
                           const Estimator& e) {
  Prepared again(solver, x0, theta, e);
  std::vector<double> c, dx;
  for (const Array& part : x0) c.resize(c.size() + static_cast<std::size_t>(part.size()), 1.0);
  dx.resize(c.size());
  std::vector<std::span<const double>> cotangents;
  std::size_t at = 0;
  for (const Array& part : x0) {
    cotangents.push_back(std::span<const double>(c).subspan(at, static_cast<std::size_t>(part.size())));
    at += static_cast<std::size_t>(part.size());
  }
  std::vector<std::vector<double>> memory;
  for (const Array& t : theta) memory.emplace_back(static_cast<std::size_t>(t.size()));
  const std::vector<std::span<double>> out(memory.begin(), memory.end());
  const std::vector<Array> tangents(theta.begin(), theta.end());
  const auto all = [&](const Parts& with) {
    const Solution& s = again.solve(x0, with);
    EXPECT_TRUE(is_solution(s.status())) << s.message();
    s.vjp_into(cotangents, out);
    s.jvp_into(tangents, dx);
  };
  all(theta);
  all(other);
  test::settle();
  const std::size_t before = test::allocations;
  all(theta);
  all(other);
  return test::allocations - before;
}

TEST(PreparedAllocation, OfAQuadraticProgramTheSame) {
  const Solver box = quadratic_program([](Expr c) { return TracedProgram{.Q = eye(4), .q = -c, .lo = 0.0, .hi = 1.0}; });
  const Parts start{zeros({4}), zeros({0}), zeros({0}), zeros({4})};
  const Array c{2.0, 0.5, -1.0, 0.25}, other{0.2, 1.5, 0.3, -0.25};
  EXPECT_EQ(allocations_of(box, start, c, other, OneStep{}), 0U);
}

TEST(PreparedAllocation, SolvingAndDifferentiatingAgainAllocatesNothing) {
  test::Random random(2);
  const test::Logistic problem(random, 50, 5);
  const auto f = problem.objective();
  const Parts x0 = problem.start(), twice{problem.start(), problem.start()}, theta = problem.weights(),
              other = random.array({50}, 0.9, 1.1);
  const auto g = [f](Expr x, Expr w) { return grad(f(x, w), x); };
  for (const Estimator& e : std::vector<Estimator>{OneStep{}, KStep{3}, Unrolled{}}) {  // Implicit's linear solvers allocate
    const auto name = e.kind().index();
    EXPECT_EQ(allocations_of(newton(f), x0, theta, other, e), 0U) << "newton " << name;
    if (!std::holds_alternative<Unrolled>(e.kind())) {
      EXPECT_EQ(allocations_of(newton_cg(f), x0, theta, other, e), 0U) << "newton_cg " << name;
    }
    EXPECT_EQ(allocations_of(newton_root(g), x0, theta, other, e), 0U) << "newton_root " << name;
    EXPECT_EQ(allocations_of(newton(f).from([](Expr w) { return 0.001 * slice(w, 0, 5); }), x0, theta, other, e), 0U)
        << "start " << name;
    EXPECT_EQ(allocations_of(gradient_descent(f), x0, theta, other, e), 0U) << "gradient_descent " << name;
    EXPECT_EQ(allocations_of(gradient_descent(f, {.step = GradientStep::backtracking()}), x0, theta, other, e), 0U)
        << "backtracking " << name;
    EXPECT_EQ(allocations_of(gradient_descent(f, {.momentum = Momentum::nesterov(0.5)}), twice, theta, other, e), 0U)
        << "momentum " << name;
    EXPECT_EQ(allocations_of(fixed_point([g](Expr x, Expr w) { return x - 0.02 * g(x, w); }), x0, theta, other, e), 0U)
        << "fixed_point " << name;
  }
}

}  // namespace
}  // namespace onestep::detail
