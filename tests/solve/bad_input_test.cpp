// Misuse of solvers and estimators: an Error that names the operation, the values and the way out.
#include <gtest/gtest.h>

#include "onestep/onestep.h"
#include "support/problems.h"

namespace onestep {
namespace {

using test::error_of;
using test::says;

Solver distance_to_theta() {
  return newton([](Expr x, Expr t) { return sum(square(x - t)); });
}

TEST(BadInput, AThetaOfTheWrongShapeIsNamedWithBothShapes) {
  Prepared again(distance_to_theta(), zeros({3}), ones({3}));
  EXPECT_TRUE(says(error_of([&] { again.solve(zeros({3}), ones({4})); }), {"[solve]", "theta has shape (4)", "(3)"}));
  EXPECT_EQ(again.solve(zeros({3}), ones({3})).status(), Status::converged);
}

TEST(BadInput, AThetaThatDoesNotFitTheLambdaIsAnErrorOfTheOperationInIt) {
  const Array A = ones({5, 3});
  const Solver fit = newton([&](Expr x, Expr t) { return sum(square(matmul(A, x) - t)); });
  EXPECT_TRUE(says(error_of([&] { solve(fit, zeros({3}), ones({4})); }), {"(5)", "(4)"}));
  EXPECT_TRUE(says(error_of([&] { solve(fit, zeros({2}), ones({5})); }), {"(5, 3)", "(2)"}));
}

TEST(BadInput, AnX0OfTheWrongShapeIsNamedWithBothShapes) {
  Prepared again(distance_to_theta(), zeros({3}), ones({3}));
  EXPECT_TRUE(says(error_of([&] { again.solve(zeros({2}), ones({3})); }), {"[solve]", "start", "(2)", "(3)"}));
  EXPECT_TRUE(says(error_of([&] { again.solve({zeros({3}), zeros({3})}, ones({3})); }), {"2"}));
  // A matrix with as many entries is another shape.
  EXPECT_TRUE(says(error_of([&] { again.solve(zeros({3, 1}), ones({3})); }), {"(3, 1)"}));
}

TEST(BadInput, AStepThatChangesTheShapeOfTheStateIsNamed) {
  const Solver s = fixed_point([](Expr x, Expr t) { return sum(x) + t; });
  EXPECT_TRUE(says(error_of([&] { solve(s, zeros({3}), Array(1.0)); }), {"[fixed_point]", "(3)", "()"}));
  const Solver two = fixed_point([](Expr x, Expr, Expr t) { return 0.5 * (x + t); });
  EXPECT_TRUE(says(error_of([&] { solve(two, {zeros({3}), zeros({3})}, ones({3})); }), {"returns 1", "2 parts"}));
}

TEST(BadInput, PartsOfAProgramOfTheWrongShapeAreNamed) {
  const auto error = [](auto program) { return error_of([&] { solve(quadratic_program(program), ones(2)); }); };
  EXPECT_TRUE(says(error([](Expr c) { return TracedProgram{.Q = eye(2), .q = -c, .A = ones(2), .b = 1.0}; }),
                   {"[quadratic_program]", "A is a vector", "reshape(vector, {1, 2})"}));
  EXPECT_TRUE(says(error([](Expr c) { return TracedProgram{.Q = 1.0, .q = -c}; }), {"Q is a number", "eye(n)"}));
  EXPECT_TRUE(says(error([](Expr c) { return TracedProgram{.Q = eye(2), .q = -c, .lo = zeros(3)}; }), {"lo", "(3)", "(2)"}));
  EXPECT_TRUE(says(error([](Expr) { return TracedProgram{.q = 1.0}; }), {"how many variables"}));
}

TEST(BadInput, TheNumberOfArgumentsOfTheLambdaIsComparedWithWhatWasGiven) {
  const Solver s = distance_to_theta();
  EXPECT_TRUE(says(error_of([&] {
                     solve(s, zeros({3}), {ones({3}), ones({3})});
                   }),
                   {"[newton]", "takes 2 arguments", "2 parameters"}));
  EXPECT_TRUE(says(error_of([&] { solve(s, {zeros({3}), zeros({3})}, ones({3})); }), {"2 parts of the state"}));
  EXPECT_TRUE(says(error_of([&] { solve(s, zeros({3}), Parts()); }), {"0 parameters"}));
  const Solver start = s.from([](Expr t, Expr other) { return t + other; });
  EXPECT_TRUE(says(error_of([&] { solve(start, zeros({3}), ones({3})); }), {"[from]", "2 arguments", "1 parameter"}));
  EXPECT_TRUE(says(error_of([&] { solve(start, ones({3})); }), {"[from]", "2 arguments", "1 parameter"}));
  const Solver equation = s.equation([](Expr x) { return x; });
  EXPECT_TRUE(says(error_of([&] { solve(equation, zeros({3}), ones({3})); }), {"[equation]", "takes 1 argument"}));
}

TEST(BadInput, AnObjectiveThatIsNoNumberIsRefused) {
  const auto squares = [](Expr x, Expr t) { return square(x - t); };
  EXPECT_TRUE(says(error_of([&] { solve(newton(squares), zeros({3}), ones({3})); }), {"[newton]", "(3)", "sum"}));
  EXPECT_TRUE(
      says(error_of([&] { solve(gradient_descent(squares), zeros({3}), ones({3})); }), {"[gradient_descent]", "(3)"}));
}

TEST(BadInput, NoStartIsAnErrorThatSaysHowToGiveOne) {
  EXPECT_TRUE(says(error_of([] { solve(distance_to_theta(), ones({3})); }), {"from(x0)"}));
  EXPECT_TRUE(says(error_of([] { traced([](Expr t) { return distance_to_theta()(t); }, Shape{3}); }), {"from(x0)"}));
}

TEST(BadInput, MomentumTakesAStartOnceOrEachPartTwice) {
  const Solver s = gradient_descent([](Expr x, Expr t) { return sum(square(x - t)); },
                                    {.step = GradientStep::fixed(0.1), .momentum = Momentum::nesterov(0.5)});
  const Array once = solve(s, zeros({3}), ones({3})).x(), doubled = solve(s, {zeros({3}), zeros({3})}, ones({3})).x();
  EXPECT_EQ(test::entries_of(once), test::entries_of(doubled));
  EXPECT_EQ(test::entries_of(solve(s.from(zeros({3})), ones({3})).x()), test::entries_of(once));
  EXPECT_EQ(test::entries_of(solve(s.from([](Expr t) { return 0.0 * t; }), ones({3})).x()), test::entries_of(once));
  Prepared prepared(s, zeros({3}), ones({3}));
  EXPECT_EQ(test::entries_of(prepared.solve(zeros({3}), ones({3})).x()), test::entries_of(once));
  EXPECT_EQ(test::entries_of(prepared.solve(ones({3})).x()), test::entries_of(once));
  EXPECT_TRUE(says(error_of([&] { solve(s, {zeros({3}), zeros({3}), zeros({3})}, ones({3})); }), {"{x0, x0}"}));
  EXPECT_TRUE(says(error_of([&] { solve(s, {zeros({3}), zeros({2})}, ones({3})); }), {"{x0, x0}"}));
}

// {u, v} of a lambda of two parts is x alone; of one part it is x and what x was before.
TEST(BadInput, WithMomentumTheLambdaSaysHowManyPartsAStartHas) {
  const Solver s = gradient_descent([](Expr u, Expr v, Expr t) { return sum(square(u - t)) + sum(square(v + t)); },
                                    {.step = GradientStep::fixed(0.1), .momentum = Momentum::heavy_ball(0.5)});
  const Array u{0.0, 0.0}, v{1.0, 2.0}, t{1.0, 3.0};
  const Solution once = solve(s, {u, v}, t), doubled = solve(s, {u, v, u, v}, t);
  EXPECT_EQ(once.state().size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(test::entries_of(once.x(i)), test::entries_of(doubled.x(i)));
}

TEST(BadInput, TangentsAndCotangentsOfTheWrongShapeAreNamed) {
  const Solution s = solve(distance_to_theta(), zeros({3}), ones({3}));
  EXPECT_TRUE(says(error_of([&] { s.vjp(ones({2})); }), {"[vjp]", "(2)", "(3)"}));
  EXPECT_TRUE(says(error_of([&] { s.vjp({ones({3}), ones({3})}); }), {"[vjp]", "2 cotangents"}));
  EXPECT_TRUE(says(error_of([&] { s.jvp(ones({2})); }), {"[jvp]", "theta", "(2)"}));
  EXPECT_TRUE(says(error_of([&] { s.jvp({ones({3}), ones({3})}); }), {"[jvp]", "2 tangents"}));
  EXPECT_TRUE(says(error_of([&] { s.certificate(ones({2})); }), {"[certificate]", "(2)"}));
  EXPECT_TRUE(says(error_of([&] { s.certificate_jvp(ones({2})); }), {"[certificate_jvp]", "(2)"}));
}

TEST(BadInput, MemoryOfTheWrongSizeForADerivativeIsRefused) {
  const Solution s = solve(distance_to_theta(), zeros({3}), ones({3}));
  std::vector<double> two(2), three(3);
  const std::vector<std::span<const double>> c_two{two}, c_three{three};
  const std::vector<std::span<double>> out_two{two}, out_three{three}, out_both{three, three};
  EXPECT_TRUE(says(error_of([&] { s.vjp_into(c_two, out_three); }), {"[vjp_into]"}));
  EXPECT_TRUE(says(error_of([&] { s.vjp_into(c_three, out_two); }), {"[vjp_into]"}));
  EXPECT_TRUE(says(error_of([&] { s.vjp_into(c_three, out_both); }), {"[vjp_into]"}));
  const std::vector<Array> v{ones({3})}, v_short{ones({2})}, v_many(9, ones({3}));
  EXPECT_TRUE(says(error_of([&] { s.jvp_into(v, two); }), {"[jvp_into]"}));
  EXPECT_TRUE(says(error_of([&] { s.jvp_into(v_short, three); }), {"[jvp_into]"}));
  EXPECT_TRUE(says(error_of([&] { s.jvp_into(v_many, three); }), {"[jvp_into]", "9"}));
}

TEST(BadInput, APartOfTheStateThatIsNotThereIsAnError) {
  const Solution s = solve(distance_to_theta(), zeros({3}), ones({3}));
  EXPECT_TRUE(says(error_of([&] { s.x(1); }), {"part 1", "1 part"}));
}

TEST(BadInput, OptionsOutOfRangeAreNamedWhereTheyAreGiven) {
  const auto f = [](Expr x, Expr t) { return sum(square(x - t)); };
  const auto said = [&](SolveOptions options) { return error_of([&] { newton(f, options); }); };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(says(said({.tolerance = -1}), {"tolerance", "-1"}));
  EXPECT_TRUE(says(said({.tolerance = nan}), {"tolerance"}));
  EXPECT_TRUE(says(said({.max_iterations = 0}), {"max_iterations", "0"}));
  EXPECT_TRUE(says(said({.time_limit = 0}), {"time_limit"}));
  EXPECT_TRUE(says(said({.time_limit = nan}), {"time_limit"}));
  EXPECT_TRUE(says(error_of([&] { newton(f).with(SolveOptions{.tolerance = -1}); }), {"tolerance"}));
  EXPECT_TRUE(says(error_of([&] { newton_root(f, {.tolerance = -1}); }), {"tolerance"}));
  EXPECT_TRUE(says(error_of([&] { fixed_point(f, {.tolerance = -1}); }), {"tolerance"}));
  EXPECT_TRUE(says(error_of([&] { gradient_descent(f, {}, {.tolerance = -1}); }), {"tolerance"}));
}

TEST(BadInput, AGradientStepOutOfRangeIsNamed) {
  const auto f = [](Expr x, Expr t) { return sum(square(x - t)); };
  const auto said = [&](GradientDescent how) { return error_of([&] { gradient_descent(f, how); }); };
  EXPECT_TRUE(says(said({.step = GradientStep::fixed(0)}), {"step is 0"}));
  EXPECT_TRUE(says(said({.step = GradientStep::backtracking(-1)}), {"step is -1"}));
  EXPECT_TRUE(says(said({.step = GradientStep::optimal(3, 2)}), {"mu = 3", "L = 2"}));
  EXPECT_TRUE(says(said({.step = GradientStep::inverse_smoothness(-2)}), {"L = -2"}));
  EXPECT_TRUE(says(said({.momentum = Momentum::heavy_ball(1.0)}), {"momentum 1"}));
  EXPECT_TRUE(says(said({.step = GradientStep::backtracking(), .momentum = Momentum::heavy_ball(0.5)}), {"backtracking"}));
}

TEST(BadInput, OptionsOfEstimatorsOutOfRangeAreNamed) {
  const auto said = [](const Estimator& e) {
    return error_of([&] { solve(distance_to_theta(), zeros({3}), ones({3}), e); });
  };
  EXPECT_TRUE(says(said(KStep{0}), {"[KStep]", "K = 0"}));
  EXPECT_TRUE(says(said(Implicit{.tolerance = 0}), {"[Implicit]", "tolerance = 0"}));
  EXPECT_TRUE(says(said(Implicit{.max_iterations = 0}), {"[Implicit]", "max_iterations = 0"}));
  EXPECT_TRUE(says(said(Auto{.tolerance = -1}), {"[Auto]", "tolerance = -1"}));
}

TEST(BadInput, AForeignStepWithoutApplyIsRefused) {
  EXPECT_TRUE(says(error_of([] { fixed_point(ForeignStep{}); }), {"apply"}));
}

TEST(BadInput, ConstantsThatCannotBeTrueAreRefused) {
  const Solver s = distance_to_theta();
  EXPECT_TRUE(says(error_of([&] { s.knowing({.rho = std::numeric_limits<double>::quiet_NaN()}); }), {"rho"}));
}

TEST(BadInput, TolerancesOfOneOrMoreMeanNothing) {
  const auto f = [](Expr x, Expr t) { return sum(square(x - t)); };
  for (const double bad : {1.0, 2.0, 1e300, std::numeric_limits<double>::infinity()}) {
    EXPECT_TRUE(says(error_of([&] { newton(f, {.tolerance = bad}); }), {"[solve]", "tolerance", "below 1"}));
    EXPECT_TRUE(says(error_of([&] { solve(newton(f), zeros(2), ones(2), Implicit{.tolerance = bad}); }), {"[Implicit]"}));
    EXPECT_TRUE(says(error_of([&] { solve(newton(f), zeros(2), ones(2), Auto{.tolerance = bad}); }), {"[Auto]"}));
  }
  EXPECT_TRUE(says(error_of([&] { solve(newton(f), zeros(2), ones(2), Auto{.tolerance = std::nan("")}); }), {"[Auto]"}));
}

TEST(BadInput, ExtremeOptionsEndAtTheSolution) {
  const Solver half = fixed_point([](Expr x, Expr t) { return 0.5 * (x + t); });
  for (const double tolerance : {0.0, 1e-300, 1e-16})
    for (const Solver& solver :
         {half, distance_to_theta(), gradient_descent([](Expr x, Expr t) { return 0.25 * sum(square(x - t)); })}) {
      const Solution s = solve(solver.with({.tolerance = tolerance, .max_iterations = std::numeric_limits<int>::max()}),
                               zeros(2), Array{1.0, 3.0});
      EXPECT_TRUE(is_solution(s.status())) << s.message();
      EXPECT_NEAR(s.x()(1), 3.0, 1e-14);
    }
}

TEST(BadInput, ADirectionThatIsNotFiniteIsNamedWithItsEntry) {
  const Solver slow = fixed_point([](Expr x, Expr t) { return 0.5 * (x + t); });
  for (const Estimator& estimator : {Estimator(OneStep{}), Estimator(Implicit{}), Estimator(Auto{}), Estimator(KStep{3})})
    for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
      const Solution s = solve(slow, zeros(3), ones(3), estimator);
      Array d{1.0, bad, 2.0};
      std::vector<double> memory{1.0, bad, 2.0}, out(3);
      const std::vector<std::span<const double>> from{memory};
      const std::vector<std::span<double>> to{out};
      EXPECT_TRUE(says(error_of([&] { s.vjp(d); }), {"[vjp]", "entry 1", "cotangent of part 0"}));
      EXPECT_TRUE(says(error_of([&] { s.vjp_into(from, to); }), {"[vjp_into]", "entry 1", "cotangent of part 0"}));
      EXPECT_TRUE(says(error_of([&] { s.jvp(d); }), {"[jvp]", "entry 1", "tangent of theta"}));
      EXPECT_TRUE(says(error_of([&] { s.jvp_into({&d, 1}, out); }), {"[jvp_into]", "entry 1", "tangent of theta"}));
      EXPECT_TRUE(says(error_of([&] { s.certificate(d); }), {"[certificate]", "entry 1"}));
      EXPECT_TRUE(says(error_of([&] { s.certificate_jvp(d); }), {"[certificate_jvp]", "entry 1"}));
      EXPECT_THROW(s.even_if_unconverged().vjp(d), MisuseError);
    }
}
}  // namespace
}  // namespace onestep
