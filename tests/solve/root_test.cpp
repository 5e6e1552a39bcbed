// Roots: what other libraries test theirs with, minima of ‖G‖ that are left, and equations that have no root.
#include <gtest/gtest.h>

#include <cmath>

#include "support/problems.h"

namespace onestep {
namespace {

using test::Random;
using test::says;

constexpr double cubic_root = -1.7692923542386314;

TEST(NewtonRoot, LeavesAMinimumOfTheNormThatIsNoRoot) {
  // casadi's test_loop: pure Newton steps cycle between 0 and 1, a line search ends at 0.816.
  const Solver root = newton_root([](Expr x, Expr t) { return x * x * x - 2.0 * x + t; });
  for (const double start : {0.0, 1.0, 0.816, 0.5, 10.0, -10.0, 1e6, -1e6, 100.0}) {
    const Solution s = solve(root, start, 2.0);
    ASSERT_EQ(s.status(), Status::converged) << start << s.message();
    EXPECT_NEAR(s.x().item(), cubic_root, 1e-13) << start;
    // The step that is differentiated is the full one: dx/dt = -1 / (3x² - 2).
    for (const Estimator& e : {Estimator(OneStep{}), Estimator(Implicit{}), Estimator(Unrolled{}), Estimator(KStep{2})}) {
      const Solution d = solve(root, start, 2.0, e);
      EXPECT_NEAR(d.vjp(1.0)[0].item(), -1 / (3 * cubic_root * cubic_root - 2), 1e-10) << start;
    }
  }
  const Solution s = solve(root, 0.0, 2.0);
  EXPECT_GT(s.statistics().restarts, 0);
  EXPECT_LT(s.statistics().iterations, 300);
}

TEST(NewtonRoot, LeavesSuchAPointInSeveralDimensionsAndUnits) {
  for (const double units : {1e-9, 1.0, 1e9})
    for (const double weight : {1e-9, 1.0, 1e9}) {
      const Solver root = newton_root([&](Expr x, Expr t) {
        const Expr z = x / units, a = slice(z, 0, 1), b = slice(z, 1, 2);
        return weight * concat({a * a * a - 2.0 * a + t + 0.1 * (b - 1.0), b + 0.1 * a - 1.0});
      });
      const Solution s = solve(root, test::times(units, Array{0.0, 0.5}), Array{2.0});
      ASSERT_EQ(s.status(), Status::converged) << units << s.message();
      const double a = s.x()(0) / units, b = s.x()(1) / units;
      EXPECT_NEAR(a * a * a - 2 * a + 2 + 0.1 * (b - 1), 0, 1e-12);
      EXPECT_NEAR(b + 0.1 * a - 1, 0, 1e-12);
    }
}

TEST(NewtonRoot, LeavesAStartWhereTheJacobianIsSingular) {
  const Solution s = solve(newton_root([](Expr x, Expr t) { return square(x) - t; }), zeros({3}), Array{1.0, 4.0, 9.0});
  ASSERT_EQ(s.status(), Status::converged) << s.message();
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_NEAR(std::fabs(s.x()(i)), static_cast<double>(i + 1), 1e-13);
}

TEST(NewtonRoot, SaysThatThereIsNoRoot) {
  const auto none = [](auto residual, const Parts& start) {
    const Solution s = solve(newton_root(residual, {.max_iterations = 5000}), start, 1.0);
    EXPECT_FALSE(is_solution(s.status())) << s.message() << s.x();
    EXPECT_TRUE(says(test::error_of([&] { s.vjp(ones(s.x().shape())); }), {to_string(s.status())}));
    return s;
  };
  for (const double start : {0.0, 1.0, 1e-8, -3.0, 1e3, 1e6}) {
    none([](Expr x, Expr t) { return square(x) + t; }, start);     // stan's unsolvable test
    none([](Expr x, Expr t) { return sin(x) - 2.0 * t; }, start);  // casadi's test_no_success
    none([](Expr x, Expr t) { return exp(-square(x)) + t; }, start);
    none([](Expr x, Expr t) { return 0.0 * x + t; }, start);  // a residual that is constant (optimistix)
    none([](Expr x, Expr t) { return sqrt(square(x) + t) + 1.0; }, start);
  }
  const Solution s = none([](Expr x, Expr t) { return square(x) + t; }, 1.0);
  EXPECT_TRUE(says(s.message(), {"16 restarts"}));
  none([](Expr x, Expr t) { return concat({sin(slice(x, 0, 1)) - 2.0 * t, sin(slice(x, 1, 2)) - 2.0 * t}); }, zeros({2}));
}

TEST(NewtonRoot, HasNoRootAtInfinity) {
  for (const double start : {0.0, 5.0, 50.0}) {
    const Solution s = solve(newton_root([](Expr x, Expr t) { return t / (1.0 + square(x)); }), start, 1.0);
    EXPECT_FALSE(is_solution(s.status())) << s.message() << s.x();
  }
}

// stan's algebra_solver tests.
TEST(NewtonRootPeers, StansSystems) {
  const auto part = [](const Expr& v, std::int64_t i) { return slice(v, i, i + 1); };
  const Solution simple = solve(newton_root([&](Expr x, Expr y) {
                                  return concat({part(x, 0) - part(y, 0) * part(y, 1), part(x, 1) - part(y, 2)});
                                }),
                                ones({2}), Array{5.0, 4.0, 2.0});
  ASSERT_EQ(simple.status(), Status::converged);
  EXPECT_TRUE(test::near(simple.x(), Array{20.0, 2.0}));
  EXPECT_TRUE(test::near(simple.jacobian()[0], Array{{4.0, 5.0, 0.0}, {0.0, 0.0, 1.0}}));
  const Solution nonlinear =
      solve(newton_root([&](Expr x, Expr y) {
              return concat({part(x, 2) - part(y, 2), part(x, 0) * part(x, 1) - part(y, 0) * part(y, 1),
                             part(x, 2) / part(x, 0) + part(y, 2) / part(y, 0)});
            }),
            full({3}, -3.0), Array{4.0, 6.0, 3.0});
  ASSERT_EQ(nonlinear.status(), Status::converged) << nonlinear.message();
  EXPECT_TRUE(test::near(nonlinear.x(), Array{-4.0, -6.0, 3.0}, 1e-12));
  EXPECT_TRUE(test::near(nonlinear.jacobian()[0], Array{{-1.0, 0.0, 0.0}, {0.0, -1.0, 0.0}, {0.0, 0.0, 1.0}}, 1e-11));
  const Solver two = newton_root([&](Expr x, Expr y) {
    return concat(
        {(part(x, 0) - part(y, 0)) * (part(x, 1) - part(y, 1)), (part(x, 0) - part(y, 1)) * (part(x, 1) - part(y, 0))});
  });
  const Solution eight = solve(two, Array{10.0, 1.0}, Array{5.0, 8.0}), five = solve(two, ones({2}), Array{5.0, 8.0});
  ASSERT_EQ(eight.status(), Status::converged) << eight.message();
  ASSERT_EQ(five.status(), Status::converged) << five.message();
  EXPECT_TRUE(test::near(eight.x(), Array{8.0, 8.0}, 1e-12));
  EXPECT_TRUE(test::near(eight.jacobian()[0], Array{{0.0, 1.0}, {0.0, 1.0}}, 1e-10));
  EXPECT_TRUE(test::near(five.x(), Array{5.0, 5.0}, 1e-12));
  EXPECT_TRUE(test::near(five.jacobian()[0], Array{{1.0, 0.0}, {1.0, 0.0}}, 1e-10));
}

TEST(NewtonRootPeers, BadInputIsNamed) {
  const Solver root = newton_root([](Expr x, Expr t) { return square(x) + t; }, {.max_iterations = 2});
  EXPECT_EQ(solve(root, std::numeric_limits<double>::infinity(), 1.0).status(), Status::not_finite);
  EXPECT_EQ(solve(root, std::nan(""), 1.0).status(), Status::not_finite);  // optimistix' test_nonfinite_input
  EXPECT_EQ(solve(root, 3.0, -1.0).status(), Status::iteration_limit);
  EXPECT_TRUE(says(test::error_of([] { newton_root([](Expr x, Expr t) { return x - t; }, {.tolerance = -1}); }),
                   {"tolerance", "-1"}));
  EXPECT_TRUE(says(test::error_of([] { solve(newton_root([](Expr x, Expr) { return slice(x, 0, 1); }), ones({2}), 1.0); }),
                   {"[newton_root]", "(2)", "(1)"}));
}

TEST(NewtonRootPeers, ScalarsHaveDerivatives) {
  // torchopt #222: 2x³ - x - 2 with the factor as parameter; optimistix: d(y²)/da of y = a.
  const Solution s = solve(newton_root([](Expr x, Expr t) { return t * x * x * x - x - 2.0; }), 1.0, 2.0);
  ASSERT_EQ(s.status(), Status::converged);
  EXPECT_NEAR(s.x().item(), 1.1653730430624147, 1e-14);
  EXPECT_NEAR(s.vjp(1.0)[0].item(), -0.22139916266115015, 1e-12);
  const Solution y = solve(newton_root([](Expr x, Expr a) { return x - a; }), 0.0, 1.0);
  EXPECT_NEAR(y.vjp(2.0 * y.x().item())[0].item(), 2.0, 1e-14);
}

// casadi's nlp tests.
TEST(NewtonPeers, MinimaOverASine) {
  const Solution s = solve(newton([](Expr x, Expr p) { return square(sin(x) - square(p)); }), 0.1, 0.5);
  ASSERT_EQ(s.status(), Status::converged) << s.message();
  EXPECT_NEAR(s.x().item(), 0.25268025514207865, 1e-13);
  EXPECT_NEAR(s.vjp(1.0)[0].item(), 1.0327955589886444, 1e-10);
  const Array p{0.1, 0.2, 0.3};
  const Solution v = solve(newton([](Expr x, Expr q) { return sum(square(sin(x) - q)); }), zeros({3}), p);
  ASSERT_EQ(v.status(), Status::converged);
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(v.x()(i), std::asin(p(i)), 1e-14);
    EXPECT_NEAR(v.vjp(ones({3}))[0](i), 1 / std::sqrt(1 - p(i) * p(i)), 1e-10);
  }
}

TEST(FixedPointPeers, CosineConvergesAndItsOtherFixedPointIsNoContraction) {
  const Solver map = fixed_point([](Expr x, Expr t) { return cos(x) + t; });
  const Solution s = solve(map, 0.0, 0.0, Implicit{});
  ASSERT_EQ(s.status(), Status::converged);
  EXPECT_NEAR(s.x().item(), 0.7390851332151607, 1e-9);
  EXPECT_NEAR(s.vjp(1.0)[0].item(), 0.5975100456753034, 1e-9);
  // x = π/2 at θ = π/2: F' = -1, the iterates cycle.
  const Solution cycles = solve(map, std::atan(1.0), 2 * std::atan(1.0));
  EXPECT_NE(cycles.status(), Status::converged) << cycles.message() << cycles.x();
}

TEST(FixedPointPeers, AnAffineContractionOfTwoHundredUnknowns) {
  Random random(3);
  std::vector<double> eigenvalues;
  for (int i = 0; i < 200; ++i) eigenvalues.push_back(random.uniform(-0.5, 0.5));
  const Array M = test::with_eigenvalues(random, eigenvalues), b = random.array({200});
  const Solution s = solve(fixed_point([&](Expr x, Expr t) { return matmul(M, x) + t; }), zeros({200}), b, Implicit{});
  ASSERT_EQ(s.status(), Status::converged);
  const Array system = test::plus(test::identity(200), test::times(-1, M));
  EXPECT_LT(test::relative_error(s.x(), test::solved(system, b)), 1e-9);
  EXPECT_LT(test::relative_error(s.vjp(b), test::solved(system, b)), 1e-9);
}

TEST(FixedPointPeers, FailuresHaveTheirOwnStatus) {
  const auto status = [](double factor, SolveOptions options) {
    return solve(fixed_point([&](Expr z, Expr x) { return factor * z + x; }, options), 0.0, 1.0).status();
  };
  EXPECT_EQ(status(2, {}), Status::diverged);
  EXPECT_EQ(status(100, {}), Status::diverged);
  EXPECT_EQ(status(0.99, {.max_iterations = 50}), Status::iteration_limit);
  EXPECT_EQ(solve(fixed_point([](Expr z, Expr x) { return square(z) + x; }), 0.0, 1.0).status(), Status::diverged);
}

TEST(Newton, RosenbrockFromFarAway) {
  const auto f = [](Expr x, Expr a) {
    const Expr p = slice(x, 0, 1), q = slice(x, 1, 2);
    return sum(square(a - p) + 100.0 * square(q - square(p)));
  };
  for (const double far : {1.0, 10.0, 1e3})
    for (const Solver& solver : {newton(f), newton_cg(f)}) {
      const Solution s = solve(solver, Array{-1.2 * far, far}, Array{1.0});
      if (is_solution(s.status())) { EXPECT_TRUE(test::near(s.x(), ones({2}), 1e-9)) << far; }
    }
  EXPECT_EQ(solve(newton(f), Array{-1.2, 1.0}, Array{1.0}).status(), Status::converged);
}

TEST(NoRoot, FarFromZeroIsNotFound) {
  for (const double start : {0.5, 1e3, 1e6, 1e9, 1e12, 1e15}) {
    const Solution s = solve(newton_root([](Expr x, Expr t) { return sin(x) - t; }), Array{start}, Array{2.0});
    EXPECT_FALSE(is_solution(s.status())) << start << ' ' << s.x() << s.message();
    const Solution c = solve(newton_root([](Expr x, Expr t) { return square(x) + t; }), Array{start}, Array{1.0});
    EXPECT_FALSE(is_solution(c.status())) << start << ' ' << c.x() << c.message();
    const Solution both = solve(newton_root([](Expr x, Expr t) { return sin(x) - t; }), Array{start, 1.0}, Array{2.0, 0.5});
    EXPECT_FALSE(is_solution(both.status())) << start << ' ' << both.x() << both.message();
  }
}

}  // namespace
}  // namespace onestep
