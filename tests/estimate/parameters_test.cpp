// Several parameters, several parts of the state, parameters without influence: the same for every estimator.
#include <gtest/gtest.h>

#include "support/problems.h"

namespace onestep {
namespace {

using test::Random;

std::vector<Estimator> exact_estimators() {
  return {Implicit{},
          Implicit{.how = Implicit::matrix_free},
          Implicit{.on_step = true},
          Unrolled{},
          Unrolled{.mode = Unrolled::reverse, .memory = 200},
          Unrolled{.mode = Unrolled::forward},
          KStep{200},
          Auto{1e-12}};
}
std::vector<Estimator> all_estimators() {
  std::vector<Estimator> all = exact_estimators();
  all.insert(all.end(), {OneStep{}, KStep{2}});
  return all;
}

// Ridge regression with the weights, the data and λ as parameters: (AᵀWA + λI) x = AᵀWy.
struct Ridge {
  Array A, w, y, lambda;
  explicit Ridge(std::uint64_t seed) {
    Random random(seed);
    A = random.array({12, 3}), w = random.array({12}, 0.5, 1.5), y = random.array({12}), lambda = Array(0.7);
  }
  static Expr objective(const Expr& x, const Expr& A, const Expr& w, const Expr& y, const Expr& lambda) {
    return 0.5 * sum(w * square(matmul(A, x) - y)) + 0.5 * lambda * sum(square(x));
  }
  Parts theta() const { return {A, w, y, lambda}; }
  Ridge moved(const Parts& d, double t) const {
    Ridge r = *this;
    r.A = test::plus(A, test::times(t, d[0])), r.w = test::plus(w, test::times(t, d[1]));
    r.y = test::plus(y, test::times(t, d[2])), r.lambda = Array(lambda.item() + t * d[3].item());
    return r;
  }
  Array solution() const {
    std::vector<double> entries = test::entries_of(A);
    for (std::size_t i = 0; i < entries.size(); ++i) entries[i] *= w(static_cast<std::int64_t>(i / 3));
    const Array wa(A.shape(), entries);
    return test::solved(test::plus(test::product(test::transposed(wa), A), test::times(lambda.item(), test::identity(3))),
                        test::product(test::transposed(wa), y));
  }
};

TEST(SeveralParameters, EachGetsItsOwnDerivative) {
  const Ridge ridge(1);
  Random random(2);
  const Parts d{random.array({12, 3}), random.array({12}), random.array({12}), Array(0.3)};
  const Array c = random.array({3});
  const Array expected = test::differences([&](double t) { return ridge.moved(d, t).solution(); });
  const SolveOptions options{.tolerance = 1e-14, .max_iterations = 100000};
  for (const Solver& solver :
       {newton(Ridge::objective, options), gradient_descent(Ridge::objective, {.step = GradientStep::optimal()}, options)})
    for (const Estimator& e : exact_estimators()) {
      const Solution s = solve(solver, zeros({3}), ridge.theta(), e);
      ASSERT_TRUE(is_solution(s.status()));
      EXPECT_LT(test::relative_error(s.jvp(d), expected), 1e-9) << s.report().method;
      const Parts g = s.vjp(c);
      ASSERT_EQ(g.size(), 4U);
      for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(g[i].shape(), ridge.theta()[i].shape());
      double along = 0;
      for (std::size_t i = 0; i < 4; ++i) along += test::product(test::transposed(test::flat(g[i])), test::flat(d[i]))(0);
      EXPECT_NEAR(along, test::product(test::transposed(c), expected)(0), 1e-9 * test::norm(c) * test::norm(expected));
      const Parts J = s.jacobian();
      ASSERT_EQ(J.size(), 4U);
      EXPECT_EQ(J[0].shape(), (Shape{3, 36}));
      EXPECT_EQ(J[3].shape(), (Shape{3, 1}));
      Array sum = zeros({3});
      for (std::size_t i = 0; i < 4; ++i) sum = test::plus(sum, test::product(J[i], test::flat(d[i])));
      EXPECT_LT(test::relative_error(sum, expected), 1e-9);
    }
}

TEST(SeveralParameters, JvpOfEachAloneAddsUp) {
  const Ridge ridge(3);
  Random random(4);
  const Solution s = solve(newton(Ridge::objective), zeros({3}), ridge.theta());
  const Parts d{random.array({12, 3}), random.array({12}), random.array({12}), Array(0.3)};
  Array sum = zeros({3});
  for (std::size_t i = 0; i < 4; ++i) {
    std::vector<Array> alone{zeros({12, 3}), zeros({12}), zeros({12}), Array(0.0)};
    alone[i] = d[i];
    sum = test::plus(sum, s.jvp(Parts(alone)));
  }
  EXPECT_TRUE(test::near(sum, s.jvp(d), 1e-13));
}

// x ← A x + B y + θ, y ← C x + D y + 2θ, as one affine map of (x, y).
struct TwoParts {
  Array M, x_rows, y_rows;
  explicit TwoParts(std::uint64_t seed) {
    Random random(seed);
    M = test::with_norm(random, 5, 5, 0.6);
  }
  Solver solver(SolveOptions options = {}) const {
    return fixed_point(
        [M = M](Expr x, Expr y, Expr t) {
          const Expr both = matmul(M, concat({x, reshape(y, {3})}));
          return std::pair{slice(both, 0, 2) + t, reshape(slice(both, 2, 5) + 2.0 * sum(t), {3, 1})};
        },
        options);
  }
  // (I - M)⁻¹ of what θ adds
  Array derivative() const {
    return test::solved(test::minus(test::identity(5), M),
                        Array{{1.0, 0.0}, {0.0, 1.0}, {2.0, 2.0}, {2.0, 2.0}, {2.0, 2.0}});
  }
};

TEST(SeveralParts, EachHasACotangentAndThoseLeftOutAreZero) {
  const TwoParts map(5);
  const Array J = map.derivative(), theta{0.3, -0.7}, v{1.0, 2.0};
  const Array cx{1.0, -1.0}, cy({3, 1}, {0.5, 2.0, -1.0});
  for (const Estimator& e : exact_estimators()) {
    const Solution s = solve(map.solver({.tolerance = 1e-14}), {zeros({2}), zeros({3, 1})}, theta, e);
    ASSERT_TRUE(is_solution(s.status()));
    ASSERT_EQ(s.state().size(), 2U);
    EXPECT_EQ(s.x(1).shape(), (Shape{3, 1}));
    EXPECT_LT(test::relative_error(test::flat(s.state()), test::product(J, theta)), 1e-12);
    const Parts dx = s.jvp(v);
    ASSERT_EQ(dx.size(), 2U);
    EXPECT_EQ(dx[1].shape(), (Shape{3, 1}));
    EXPECT_LT(test::relative_error(test::flat(dx), test::product(J, v)), 1e-11);
    const Array both = test::flat(Parts{cx, cy}), Jt = test::transposed(J);
    EXPECT_LT(test::relative_error(s.vjp({cx, cy}), test::product(Jt, both)), 1e-11);
    EXPECT_LT(test::relative_error(s.vjp(cx), test::product(Jt, test::flat(Parts{cx, zeros({3, 1})}))), 1e-11);
    EXPECT_LT(test::relative_error(s.vjp({zeros({2}), cy}), test::product(Jt, test::flat(Parts{zeros({2}), cy}))), 1e-11);
    EXPECT_LT(test::relative_error(s.jacobian(), J), 1e-11);
  }
}

TEST(SeveralParts, OfAnObjective) {
  // ‖x - θ‖² + (y - sum x)² + 0.1 y²: Newton on a state of a vector and a number.
  const auto f = [](Expr x, Expr y, Expr t) { return sum(square(x - t)) + square(y - sum(x)) + 0.1 * square(y); };
  const Array H{{4.0, 2.0, -2.0}, {2.0, 4.0, -2.0}, {-2.0, -2.0, 2.2}};
  const Array J = test::solved(H, Array{{2.0, 0.0}, {0.0, 2.0}, {0.0, 0.0}});
  for (const Estimator& e : std::vector<Estimator>{OneStep{}, KStep{2}, Implicit{}, Unrolled{}, Auto{}}) {
    const Solution s = solve(newton(f), {zeros({2}), Array(0.0)}, Array{1.0, -3.0}, e);
    ASSERT_EQ(s.status(), Status::converged);
    EXPECT_LT(test::relative_error(test::flat(s.state()), test::product(J, Array{1.0, -3.0})), 1e-13);
    EXPECT_LT(test::relative_error(s.jacobian(), J), 1e-12);
  }
}

TEST(NoInfluence, GivesZerosAndNoErrors) {
  const auto f = [](Expr x, Expr t, Expr, Expr unused) { return sum(square(x - t)) + 0.0 * sum(unused); };
  const auto step = [](Expr x, Expr t, Expr, Expr unused) { return 0.5 * (x + t) + 0.0 * sum(unused); };
  const Parts theta{Array{1.0, 2.0}, ones({3, 2}), ones({4})};
  for (const Solver& solver : {newton(f), gradient_descent(f), fixed_point(step)})
    for (const Estimator& e : all_estimators()) {
      const Solution s = solve(solver, zeros({2}), theta, e);
      ASSERT_TRUE(is_solution(s.status()));
      const Parts g = s.vjp(ones({2}));
      EXPECT_TRUE(test::near(g[1], zeros({3, 2}), 0.0));
      EXPECT_TRUE(test::near(g[2], zeros({4}), 0.0));
      EXPECT_GT(test::largest_entry(g[0]), 0.1);
      EXPECT_TRUE(test::near(s.jvp({zeros({2}), ones({3, 2}), ones({4})}), zeros({2}), 0.0));
      const Parts J = s.jacobian();
      EXPECT_TRUE(test::near(J[1], zeros({2, 6}), 0.0));
    }
}

TEST(NoInfluence, OfAllParametersGivesZeros) {
  const Solver s = newton([](Expr x, Expr) { return sum(square(x - 1.0)); });
  for (const Estimator& e : all_estimators()) {
    const Solution solution = solve(s, zeros({2}), ones({3}), e);
    EXPECT_TRUE(test::near(solution.vjp(ones({2})), zeros({3}), 0.0));
    EXPECT_TRUE(test::near(solution.jvp(ones({3})), zeros({2}), 0.0));
    const Certificate c = solution.certificate(ones({2}));
    EXPECT_EQ(c.value, 0.0);
  }
}

TEST(Directions, TheJacobianIsTheSameFromEitherSide) {
  Random random(6);
  // More unknowns than parameters, and the other way round.
  for (const auto& [n, m] : {std::pair<std::int64_t, std::int64_t>{7, 2}, {2, 7}}) {
    const Array A = test::with_norm(random, n, n, 0.5), B = random.array({n, m});
    const Solver s = fixed_point([&](Expr x, Expr t) { return tanh(matmul(A, x) + matmul(B, t)); });
    for (const Estimator& e : all_estimators()) {
      const Solution solution = solve(s, zeros({n}), random.array({m}), e);
      const Array J = solution.jacobian();
      ASSERT_EQ(J.shape(), (Shape{n, m}));
      const Array v = random.array({m}), c = random.array({n});
      EXPECT_LT(test::relative_error(solution.jvp(v), test::product(J, v)), 1e-10);
      EXPECT_LT(test::relative_error(solution.vjp(c), test::product(test::transposed(J), c)), 1e-10);
    }
  }
}

TEST(Directions, IntoMemoryOfTheCallerIsTheSame) {
  const TwoParts map(7);
  const Solution s = solve(map.solver(), {zeros({2}), zeros({3, 1})}, Array{0.3, -0.7}, Implicit{});
  const std::vector<double> cx{1.0, -1.0}, cy{0.5, 2.0, -1.0};
  std::vector<double> g(2), dx(5);
  const std::vector<std::span<const double>> c{cx, cy};
  const std::vector<std::span<double>> out{g};
  s.vjp_into(c, out);
  EXPECT_TRUE(test::near(Array::view(g), s.vjp({Array{1.0, -1.0}, Array({3, 1}, {0.5, 2.0, -1.0})}), 0.0));
  s.jvp_into(std::vector<Array>{Array{1.0, 2.0}}, dx);
  EXPECT_TRUE(test::near(Array::view(dx), test::flat(s.jvp(Array{1.0, 2.0})), 0.0));
}

TEST(Directions, StridedArraysAreTakenAsTheyLie) {
  const Solver s = newton([](Expr x, Expr A) { return sum(square(x)) - 2.0 * sum(matmul(A, x)); });
  const Array A{{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}};
  const Array columns = Array{{1.0, 3.0, 5.0}, {2.0, 4.0, 6.0}}.transposed();
  const Solution a = solve(s, zeros({2}), A, Implicit{}), b = solve(s, zeros({2}), columns, Implicit{});
  EXPECT_TRUE(test::near(a.x(), b.x(), 1e-15));
  EXPECT_TRUE(test::near(a.jvp(A), b.jvp(columns), 1e-15));
  EXPECT_TRUE(test::near(a.x(), Array{9.0, 12.0}, 1e-14));
}

// Derivatives are linear in their direction, whatever its size: squares of 1e308 overflow, those of 1e-308 underflow.
TEST(Directions, OfAnySizeGiveTheSameDerivative) {
  const Array A{{0.5, 0.2}, {0.1, 0.3}}, c{0.7, -0.4};
  const Solver linear = fixed_point([&](Expr x, Expr t) { return 0.5 * tanh(matmul(A, x)) + t; }, {.tolerance = 1e-14});
  const Solver fit = newton([](Expr x, Expr t) { return sum(exp(x) - t * x) + 0.5 * square(sum(x)); });
  for (const Solver& solver : {linear, fit})
    for (const Estimator& estimator : {Estimator(OneStep{}), Estimator(KStep{4}), Estimator(Implicit{}), Estimator(Auto{}),
                                       Estimator(Implicit{.how = Implicit::matrix_free}), Estimator(Unrolled{})}) {
      const Solution s = solve(solver, zeros(2), Array{1.0, 2.0}, estimator);
      const Array vjp = s.vjp(c), jvp = s.jvp(c);
      const Certificate certificate = s.certificate(c);
      for (const double size : {0x1p1000, 0x1p600, 0x1p-600, 0x1p-1000}) {
        const Array large = test::times(size, c);
        EXPECT_LT(test::relative_error(test::times(1 / size, s.vjp(large)), vjp), 1e-13) << size;
        EXPECT_LT(test::relative_error(test::times(1 / size, s.jvp(large)), jvp), 1e-13) << size;
        const Certificate scaled = s.certificate(large);
        EXPECT_EQ(scaled.basis, certificate.basis);
        if (scaled.basis == Certificate::Basis::observed) {
          EXPECT_NEAR(scaled.value / size, certificate.value, 1e-12 * certificate.value);
          EXPECT_LT(scaled.relative, 1e3 * certificate.relative + 1e-12);
          EXPECT_GT(scaled.bound, 0);
        }
      }
    }
}

TEST(Directions, WhoseDerivativeOverflowsSaySo) {
  const Solution s = solve(fixed_point([](Expr x, Expr t) { return 0.9 * x + t; }), zeros(1), ones(1), Implicit{});
  EXPECT_NEAR(s.vjp(Array{1e307})[0](0) / 1e307, 10, 1e-9);
  try {
    s.vjp(Array{1e308});
    FAIL() << "1e309 is no number";
  } catch (const NoDerivativeError& e) {
    EXPECT_EQ(e.status, Status::not_finite);
    EXPECT_TRUE(test::says(e.what(), {"largest number"})) << e.what();
  }
}

TEST(Directions, ThatAreNotFiniteInsideATracedFunctionGiveNaN) {
  const Solver half = fixed_point([](Expr x, Expr t) { return 0.5 * (x + t); }).from(zeros(2)).with(Implicit{});
  const Function f = traced(
      [&](Expr t, Expr c) {
        const Expr x = half(t);
        return std::pair{vjp(x, t, c), jvp(x, t, c)};
      },
      Shape{2}, Shape{2});
  const std::vector<Array> d = evaluate(f, {ones(2), Array{1.0, std::nan("")}});
  EXPECT_TRUE(std::isnan(d[0](1)));
  EXPECT_TRUE(std::isnan(d[1](1)));
}

}  // namespace
}  // namespace onestep
