// Loops from outside the library: what they find is differentiated as their solver's own solution is, and what they claim is
// checked.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "onestep/onestep.h"
#include "support/compare.h"
#include "support/random.h"

namespace onestep {
namespace {

using test::near;
using test::Random;

Solver quartic() {
  return newton([](Expr x, Expr t) { return 0.25 * sum(square(square(x))) + 0.5 * sum(square(x)) - sum(t * x); });
}

OwnLoop full_steps() {
  return [next = std::vector<double>()](Iterates& at) mutable {
    next.resize(at.x().size());
    do { at.propose({1.0, 0.0}, next); } while (!at.accept());
  };
}

TEST(OwnLoop, FullNewtonStepsHaveEveryDerivativeOfTheSolversOwnLoop) {
  const Array t{1.0, -0.5, 2.0}, c{1.0, 2.0, -1.0};
  for (const Estimator& how : std::vector<Estimator>{OneStep{}, KStep{2}, Implicit{}, Auto{}, Unrolled{}}) {
    const Solution mine = solve(with_loop(quartic(), full_steps), zeros(3), t, how),
                   theirs = solve(quartic(), zeros(3), t, how);
    ASSERT_EQ(mine.status(), Status::converged) << mine.message();
    EXPECT_TRUE(near(mine.x(), theirs.x(), 1e-14));
    EXPECT_TRUE(near(mine.vjp(c), theirs.vjp(c), 1e-12));
    EXPECT_TRUE(near(mine.jvp(c), theirs.jvp(c), 1e-12));
    const Certificate certificate = mine.certificate(c);
    EXPECT_EQ(certificate.basis, Certificate::Basis::observed) << certificate.reason;
    EXPECT_LE(certificate.relative, 1e-10);
  }
}

TEST(OwnLoop, DampedStepsAreNotTakenForConvergence) {
  const Solver timid = with_loop(quartic(), [] {
    return [next = std::vector<double>()](Iterates& at) mutable {
      next.resize(at.x().size());
      do { at.propose({1e-13, 0.0}, next); } while (!at.accept());
    };
  });
  const Solution s = solve(timid.with(SolveOptions{.max_iterations = 50}), ones(2), Array{3.0, 4.0});
  EXPECT_EQ(s.status(), Status::iteration_limit);
  EXPECT_THROW((void)s.vjp(s.x()), NotConvergedError);
}

TEST(OwnLoop, ThatSaysItConvergedFarFromTheSolutionIsNotBelieved) {
  const Solver liar = with_loop(quartic(), [] { return OwnLoop([](Iterates& at) { at.end(Status::converged); }); });
  EXPECT_EQ(solve(liar, ones(2), Array{3.0, 4.0}).status(), Status::line_search_failed);
  const Array root = solve(quartic(), ones(2), Array{3.0, 4.0}).x();
  const Solution there = solve(liar, root, Array{3.0, 4.0}, Implicit{});
  EXPECT_EQ(there.status(), Status::converged);
  EXPECT_TRUE(near(there.vjp(root), solve(quartic(), ones(2), Array{3.0, 4.0}, Implicit{}).vjp(root), 1e-10));
}

TEST(OwnLoop, OfAFixedPointGoesOverItsPlainSteps) {
  const auto step = [](Expr x, Expr t) { return 0.5 * tanh(x) + t; };
  const Solver mine = with_loop(fixed_point(step), [] {
    return [next = std::vector<double>()](Iterates& at) mutable {
      EXPECT_TRUE(std::isnan(at.value()));
      EXPECT_THROW((void)at.value_at(at.x()), MisuseError);
      next.resize(at.x().size());
      do { at.propose({}, next); } while (!at.accept());
    };
  });
  const Solution s = solve(mine, zeros(2), Array{0.3, -0.2}), same = solve(fixed_point(step), zeros(2), Array{0.3, -0.2});
  ASSERT_EQ(s.status(), Status::converged);
  EXPECT_TRUE(near(s.x(), same.x(), 1e-14));
  EXPECT_TRUE(near(s.vjp(ones(2)), same.vjp(ones(2)), 1e-9));
}

TEST(OwnLoop, MisuseIsSaid) {
  const auto run = [](const OwnLoop& loop) {
    return solve(with_loop(quartic(), [loop] { return loop; }), ones(2), ones(2));
  };
  EXPECT_EQ(run([](Iterates&) {}).status(), Status::iteration_limit);
  EXPECT_THROW(run([](Iterates& at) { at.accept(); }), MisuseError);
  EXPECT_THROW(run([](Iterates& at) {
                 std::vector<double> y(3);
                 at.propose({1.0, 0.0}, y);
               }),
               MisuseError);
  EXPECT_THROW(run([](Iterates& at) {
                 std::vector<double> y(2);
                 at.propose({1.0}, y);
               }),
               MisuseError);
  EXPECT_THROW(run([](Iterates& at) {
                 at.end(Status::cancelled);
                 at.end(Status::cancelled);
               }),
               MisuseError);
  EXPECT_THROW(run(OwnLoop()), MisuseError);
  EXPECT_THROW((void)with_loop(quartic(), nullptr), MisuseError);
  const Solver other = with_loop(gradient_descent([](Expr x, Expr t) { return sum(square(x - t)); }), full_steps);
  EXPECT_THROW((void)solve(other, ones(2), ones(2)), MisuseError);
}

TEST(OwnLoop, DataThatChangeAreSeenAndTwoThreadsHaveTheirOwn) {
  double scale = 1;
  const Solver solver = with_loop(newton([&](Expr x, Expr t) { return sum(square(x - scale * t)); }), full_steps);
  EXPECT_TRUE(near(solve(solver, zeros(2), ones(2)).x(), ones(2)));
  scale = 3;
  EXPECT_TRUE(near(solve(solver, zeros(2), ones(2)).x(), full({2}, 3.0)));
  const ManySolutions many = solve_many(solver.on(Context({.threads = 3})), {zeros(2)},
                                        {std::vector<Array>{ones(2), zeros(2), ones(2), full({2}, 5.0)}});
  EXPECT_TRUE(near(many.x()[3], full({2}, 15.0)));
}

// dx/dθ = -(∂G/∂x)⁻¹ ∂G/∂θ, from the graph that a solver hands over and from the solver.
TEST(EquationOf, IsAGraphWhoseDerivativeIsThatOfTheSolution) {
  Random random(23);
  const Array A = random.array({6, 3}), y = random.array({6}), theta = random.array({6}, 0.5, 2), x0 = zeros(3);
  const auto objective = [&](Expr x, Expr w) { return sum(w * softplus(y * matmul(A, x))) + 0.5 * sum(square(x)); };
  const auto residual = [&](Expr x, Expr w) { return matmul(transpose(A), tanh(matmul(A, x)) - w) + x; };
  const auto step = [&](Expr x, Expr w) { return 0.1 * tanh(matmul(transpose(A), w) - x); };
  const Solver plain = newton(objective), fixed = fixed_point(step);
  const Solver mine = with_loop(plain, full_steps);
  for (const Solver& solver : {plain, mine, newton_root(residual), fixed, newton_cg(objective), gradient_descent(objective),
                               fixed.equation([&](Expr x, Expr w) { return 3.0 * x - 3.0 * step(x, w); })}) {
    const Solution s = solve(solver.with({.tolerance = 1e-13}), x0, theta, Implicit{});
    const Function G = equation_of(solver, x0, theta);
    const Function of_G(std::vector<Input>(G.inputs().begin(), G.inputs().end()), [&](std::span<const Expr> in) {
      const Expr g = G(in).front();
      const Expr J = jacobian(g, in[0]);
      return std::vector<Expr>{g, -solve(lu(J), jacobian(g, in[1]))};
    });
    const std::vector<Array> found = evaluate(of_G, std::vector<Array>{s.x(), theta});
    EXPECT_TRUE(near(found[0], zeros(3), 1e-11, 1));
    EXPECT_TRUE(near(s.jacobian(), found[1], 1e-9));
  }
}

TEST(EquationOf, OfWhatWasNotTracedIsMisuse) {
  const ForeignStep half{.apply = [](auto x, auto theta, auto next) { next[0] = 0.5 * (x[0] + theta[0](0) / x[0]); }};
  EXPECT_THROW((void)equation_of(fixed_point(half), 1.0, 2.0), MisuseError);
  const Function G = equation_of(fixed_point(half).equation([](Expr x, Expr t) { return square(x) - t; }), 1.0, 2.0);
  EXPECT_EQ(evaluate(G, std::vector<Array>{Array{3.0}, 2.0})[0](0), 7);
}

}  // namespace
}  // namespace onestep
