// Bilevel problems come to the right end, by every method, and say how sure that is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "bilevel/problems.h"
#include "support/compare.h"

namespace onestep::test {
namespace {

using testing::HasSubstr;

// The best λ by golden section on its logarithm.
double best_of(const Ridge& ridge, double low, double high) {
  double a = std::log(low), b = std::log(high);
  const double ratio = (std::sqrt(5.0) - 1) / 2;
  const auto f = [&](double t) { return ridge.value(Array(std::exp(t))); };
  while (b - a > 1e-9) {
    const double c = b - ratio * (b - a), d = a + ratio * (b - a);
    (f(c) < f(d) ? b : a) = f(c) < f(d) ? d : c;
  }
  return std::exp((a + b) / 2);
}

// ‖∇‖ with respect to the logarithm, by dense implicit derivatives at a solution to rounding.
double true_gradient(const Ridge& ridge, const Parts& theta) {
  const Solution s =
      solve(newton(ridge.loss(), {.tolerance = 1e-15}), zeros({ridge.n()}), theta, Implicit{.how = Implicit::dense});
  const Array c = evaluate(traced([&](Expr x) { return grad(ridge.judged()(x), x); }, Shape{ridge.n()}), {s.x()}).front();
  const Array g = s.vjp(c)[0];
  double sum = 0;
  for (std::size_t i = 0; i < entries_of(g).size(); ++i) sum += std::pow(entries_of(g)[i] * entries_of(theta[0])[i], 2);
  return std::sqrt(sum);
}

// The inner root becomes double at θ = 0, where x(θ) has no derivative.
TEST(Minimise, ADerivativeThatDoesNotExistIsAStatusAndItsReason) {
  const Inner root(newton_root([](Expr x, Expr t) { return square(x) - t; }), ones({1}), [](Expr x) { return sum(x); });
  const Inner quartic(newton([](Expr x, Expr t) { return sum(square(square(x)) - t * x); }), ones({1}),
                      [](Expr x) { return sum(square(x)) + 1.0; });
  for (const Inner& inner : {root, quartic}) {
    const Outcome o = minimise({inner}, {Parameter::real(Array{1.0})});
    EXPECT_FALSE(is_solution(o.status)) << o.message();
    EXPECT_TRUE(std::isfinite(o.value));
    EXPECT_LT(std::fabs(entries_of(o.theta[0])[0]), 1);  // it went on as far as there are derivatives
    EXPECT_FALSE(o.about.empty());
  }
}

TEST(Minimise, FromItsSolutionItEndsThere) {
  const Inner inner(newton([](Expr x, Expr l) { return sum(square(x - 1.0)) + sum(l * square(x)); }), zeros({1}),
                    [](Expr x) { return sum(square(x - 0.25)); });
  const Outcome o = minimise({inner}, {Parameter::positive(Array{3.0})});
  EXPECT_TRUE(is_solution(o.status)) << o.message();
  EXPECT_NEAR(entries_of(o.theta[0])[0], 3, 1e-7);
}

TEST(Minimise, EveryMethodFindsTheBestRidgeParameter) {
  Random random(1);
  const Ridge ridge(random, 30, 8, 2);
  const double best = best_of(ridge, 1e-4, 1e4);
  const std::vector<OuterMethod> methods{Lbfgs{}, Descent{}, Descent{.step = 2.0}, Adam{.step = 0.2}};
  for (const OuterMethod& method : methods) {
    const Outcome o =
        minimise({ridge.inner()}, {Parameter::positive(1.0)}, method, {.tolerance = 1e-8, .max_iterations = 2000});
    EXPECT_EQ(o.status, Status::converged) << o;
    EXPECT_NEAR(o.theta[0].item() / best, 1, 1e-5) << method.index();
    EXPECT_LE(o.critical, 1e-8);
    EXPECT_EQ(o.history.size(), static_cast<std::size_t>(o.iterations) + 1);
  }
}

TEST(Minimise, ManyParametersDoBetterThanOneAndTheirGradientVanishes) {
  Random random(2);
  const Ridge ridge(random, 30, 10, 2);
  const Outcome one = minimise({ridge.inner()}, {Parameter::positive(1.0)});
  const Outcome many = minimise({ridge.inner()}, {Parameter::positive(full({10}, one.theta[0].item())).within(1e-6, 1e6)});
  EXPECT_EQ(many.status, Status::converged) << many;
  EXPECT_LT(many.value, one.value);
  EXPECT_NEAR(many.value, ridge.value(many.theta[0]), 1e-12 * many.value);
}

TEST(Minimise, TheBoundIsNeverBelowTheErrorOfTheHypergradient) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    const Ridge ridge(random, 20, 5, 2);
    // Inner problems solved badly, so that there is an error.
    const SolveOptions rough{.tolerance = std::pow(10.0, -random.uniform(1, 8)), .max_iterations = 100000};
    const Inner by_newton(
        newton([&](Expr x, Expr lambda) { return ridge.loss()(x, lambda) + 0.1 * sum(softplus(x)); }, rough), zeros({5}),
        ridge.judged());
    const Inner by_descent(gradient_descent(ridge.loss(), {.step = GradientStep::optimal()}, rough), zeros({5}),
                           ridge.judged(), Implicit{});
    const Array lambda = random.array({5}, 0.5, 5);
    const Outcome descent = minimise({by_descent}, {Parameter::positive(lambda)}, Lbfgs{}, {.max_iterations = 0});
    ASSERT_TRUE(std::isfinite(descent.bound)) << descent;
    EXPECT_LE(std::fabs(descent.norm - true_gradient(ridge, lambda)), descent.bound) << seed;
    const Outcome newton_ = minimise({by_newton}, {Parameter::positive(lambda)}, Lbfgs{}, {.max_iterations = 0});
    const Outcome exact = minimise(
        {Inner(newton([&](Expr x, Expr l) { return ridge.loss()(x, l) + 0.1 * sum(softplus(x)); }, {.tolerance = 1e-15}),
               zeros({5}), ridge.judged(), Implicit{})},
        {Parameter::positive(lambda)}, Lbfgs{}, {.max_iterations = 0});
    ASSERT_TRUE(std::isfinite(newton_.bound)) << newton_;
    double error = 0;
    for (std::int64_t i = 0; i < 5; ++i)
      error = std::hypot(error, lambda(i) * (newton_.hypergradient[0](i) - exact.hypergradient[0](i)));
    EXPECT_LE(error, newton_.bound) << seed;
  }
}

TEST(Minimise, ParametersAtABoundAreSaidAndDoNotCount) {
  Random random(3);
  const Ridge ridge(random, 30, 8, 2);
  const double best = best_of(ridge, 1e-4, 1e4);
  const Outcome o = minimise({ridge.inner()}, {Parameter::positive(best / 4).within(best / 10, best / 2)});
  EXPECT_EQ(o.status, Status::converged) << o;
  EXPECT_EQ(o.theta[0].item(), best / 2);
  EXPECT_THAT(o.at_high, testing::ElementsAre(0));
  EXPECT_TRUE(o.at_low.empty());
  EXPECT_EQ(o.norm, 0);
  EXPECT_LT(o.hypergradient[0].item(), 0);
}

// x = θ by one Newton step: what is minimised is ‖θ - t‖²/2.
Inner identity_problem(const Array& target) {
  return Inner(newton([](Expr x, Expr theta) { return 0.5 * sum(square(x - theta)); }), zeros(target.shape()),
               [target](Expr x) { return 0.5 * sum(square(x - target)) + 1; });
}

TEST(Minimise, ParametersInTheUnitIntervalAndRealOnesReachTheirTarget) {
  const Array target{0.2, 0.7, 0.5};
  for (const Parameter& p : {Parameter::unit(full({3}, 0.4)), Parameter::real(full({3}, 0.4)),
                             Parameter::positive(full({3}, 0.4)), Parameter::real(zeros(3)).within(0, 1)}) {
    const Outcome o = minimise({identity_problem(target)}, {p}, Lbfgs{}, {.tolerance = 1e-10});
    EXPECT_EQ(o.status, Status::converged) << o;
    EXPECT_TRUE(near(o.theta[0], target, 1e-9));
  }
}

TEST(Minimise, ABoxIsKeptAndTheRestIsOptimal) {
  Random random(7);
  const Array target = random.array({30}, -2, 3);
  const Outcome o = minimise({identity_problem(target)}, {Parameter::real(full({30}, 0.5)).within(0, 1)});
  EXPECT_EQ(o.status, Status::converged) << o;
  for (std::int64_t i = 0; i < 30; ++i) EXPECT_NEAR(o.theta[0](i), std::clamp(target(i), 0.0, 1.0), 1e-6);
}

TEST(Minimise, FixedParametersStay) {
  const Inner inner(newton([](Expr x, Expr a, Expr b) { return 0.5 * sum(square(x - a * b)); }), zeros(2),
                    [](Expr x, Expr a, Expr) { return 0.5 * sum(square(x - 3.0)) + 0.0 * sum(a) + 1.0; });
  const Outcome o = minimise({inner}, {Parameter::real(Array{1.0, 1.0}), Parameter::fixed(Array(2.0))});
  EXPECT_EQ(o.status, Status::converged);
  EXPECT_TRUE(near(o.theta[0], Array{1.5, 1.5}, 1e-6));
  EXPECT_EQ(o.theta[1].item(), 2.0);
}

std::vector<Inner> folds(const Dataset& d, std::int64_t count) {
  std::vector<Inner> all;
  const std::int64_t rows = d.A.shape()[0], n = d.A.shape()[1];
  for (std::int64_t f = 0; f < count; ++f) {
    std::vector<double> a[2], y[2];
    for (std::int64_t i = 0; i < rows; ++i) {
      const auto which = static_cast<std::size_t>(i % count == f);
      for (std::int64_t j = 0; j < n; ++j) a[which].push_back(d.A(i, j));
      y[which].push_back(d.y(i));
    }
    const auto dataset = [&](std::size_t k) {
      const auto size = static_cast<std::int64_t>(y[k].size());
      return Dataset{Array({size, n}, a[k]), Array({size}, y[k])};
    };
    const Dataset rest = dataset(0), left_out = dataset(1);
    all.emplace_back(
        newton([rest](Expr x, Expr l) { return 0.5 * sum(square(matmul(rest.A, x) - rest.y)) + 0.5 * sum(l * square(x)); }),
        zeros({n}), [left_out](Expr x) { return 0.5 * sum(square(matmul(left_out.A, x) - left_out.y)); });
  }
  return all;
}

TEST(Minimise, FoldsGiveTheSameBitsForAnyNumberOfThreads) {
  Random random(4);
  const Ridge ridge(random, 40, 12, 2);
  const int before = threads();
  std::vector<Outcome> outcomes;
  for (const int count : {1, 2, 4}) {
    set_threads(count);
    outcomes.push_back(minimise(folds(ridge.valid, 5), {Parameter::positive(ones(12)).within(1e-6, 1e6)}));
  }
  set_threads(before);
  for (const Outcome& o : outcomes) {
    EXPECT_EQ(o.status, Status::converged) << o;
    EXPECT_EQ(entries_of(o.theta[0]), entries_of(outcomes[0].theta[0]));
    EXPECT_EQ(o.value, outcomes[0].value);
    EXPECT_EQ(o.bound, outcomes[0].bound);
  }
}

TEST(Minimise, WarmStartsAndLooseToleranceSaveWorkAndEndAtTheSamePoint) {
  Random random(5);
  const Ridge ridge(random, 30, 8, 2);
  // Linear convergence: what is saved shows.
  const Inner inner(gradient_descent(ridge.loss(), {.step = GradientStep::inverse_smoothness()},
                                     {.tolerance = 1e-13, .max_iterations = 100000}),
                    zeros({8}), ridge.judged(), Implicit{});
  const auto run = [&](bool warm, bool adaptive) {
    return minimise({inner}, {Parameter::positive(1.0)}, Lbfgs{}, {.tolerance = 1e-7, .warm = warm, .adaptive = adaptive});
  };
  const Outcome plain = run(false, false), warm = run(true, false), both = run(true, true);
  for (const Outcome* o : {&plain, &warm, &both}) {
    EXPECT_EQ(o->status, Status::converged) << *o;
    EXPECT_NEAR(o->theta[0].item() / plain.theta[0].item(), 1, 1e-5);
  }
  EXPECT_LT(warm.inner_iterations, plain.inner_iterations);
  EXPECT_LT(both.inner_iterations, 0.8 * warm.inner_iterations);
  EXPECT_EQ(both.history.back().number, both.iterations);
}

TEST(Minimise, AQuadraticProgramCanBeTheInnerProblem) {
  // The projection of θ on the simplex is to be t.
  const Array target{0.5, 0.3, 0.2, 0.0};
  const Solver project = quadratic_program([](Expr theta) {
    return TracedProgram{.Q = eye(4), .q = -theta, .A = ones({1, 4}), .b = Array{1.0}, .lo = 0.0};
  });
  const Inner inner(
      project, Parts(), [target](Expr x, Expr, Expr, Expr) { return 0.5 * sum(square(x - target)) + 1.0; }, Implicit{});
  const Outcome o = minimise({inner}, {Parameter::real(Array{1.0, 0.2, 0.4, 0.1})});
  EXPECT_EQ(o.status, Status::converged) << o << o.message();
  EXPECT_TRUE(near(o.x[0][0], target, 1e-3));
}

TEST(Minimise, EndsWithTheReasonWhenAnInnerProblemCannotBeSolved) {
  const Inner diverges(fixed_point([](Expr x, Expr theta) { return 2.0 * x + theta; }, {.max_iterations = 100}), zeros(1),
                       [](Expr x) { return sum(square(x)); });
  const Outcome o = minimise({diverges}, {Parameter::real(Array{1.0})});
  EXPECT_FALSE(is_solution(o.status));
  EXPECT_THAT(o.message(), HasSubstr("inner problem 0"));
  EXPECT_TRUE(std::isinf(o.bound));
}

// x ← θx from its fixed point 0: the solve ends at once, wherever θ is, but there is no derivative of steps from 1 on.
Inner contracts_below_one(double best) {
  return Inner(
      fixed_point([](Expr x, Expr theta) { return theta * x; }), zeros(2),
      [best](Expr x, Expr theta) { return square(theta - best) + sum(x) + 1.0; }, OneStep{});
}

TEST(Minimise, AStepThatDoesNotContractAtTheStartIsAStatus) {
  const std::vector<OuterMethod> methods{Lbfgs{}, Descent{}, Adam{}};
  for (const OuterMethod& method : methods) {
    const Outcome o = minimise({contracts_below_one(0.9)}, {Parameter::real(2.0)}, method);
    EXPECT_EQ(o.status, Status::diverged);
    EXPECT_TRUE(o.inner_failed);
    EXPECT_THAT(o.about, HasSubstr("inner problem 0"));
    EXPECT_THAT(o.about, HasSubstr("does not contract"));
    EXPECT_THAT(o.about, HasSubstr("Implicit{}"));
  }
}

TEST(Minimise, AnAnswerThatCannotBeSolvedAccuratelyIsNone) {
  // x ← x/2 + θ/2, 25 steps of which are enough for 1e-3 and not for 1e-12.
  const Inner inner(
      fixed_point([](Expr x, Expr theta) { return 0.5 * x + 0.5 * theta; }, {.tolerance = 1e-12, .max_iterations = 25}),
      Array(0.0), [](Expr x) { return square(x - 3.0) + 1.0; }, Implicit{});
  const Outcome o = minimise({inner}, {Parameter::real(1.0)}, Descent{.step = 0.01}, {.max_iterations = 2, .warm = false});
  EXPECT_EQ(o.status, Status::iteration_limit);
  EXPECT_TRUE(o.inner_failed);
  EXPECT_THAT(o.about, HasSubstr("inner problem 0: iteration_limit"));
  EXPECT_EQ(o.iterations, 2);
}

TEST(Minimise, ASearchTakesShorterStepsWhereAnInnerStepDoesNotContract) {
  const Outcome within = minimise({contracts_below_one(0.9)}, {Parameter::real(0.5)});
  EXPECT_EQ(within.status, Status::converged) << within.message();
  EXPECT_NEAR(within.theta[0].item(), 0.9, 1e-4);
  const Outcome beyond = minimise({contracts_below_one(3)}, {Parameter::real(0.5)});
  EXPECT_EQ(beyond.status, Status::line_search_failed) << beyond.message();
  EXPECT_THAT(beyond.about, HasSubstr("does not contract"));
  EXPECT_LT(beyond.theta[0].item(), 1);
  EXPECT_GT(beyond.theta[0].item(), 0.99);
  const Outcome given = minimise({contracts_below_one(3)}, {Parameter::real(0.5)}, Descent{.step = 0.05});
  EXPECT_EQ(given.status, Status::diverged) << given.message();
  EXPECT_LT(given.theta[0].item(), 1);
}

TEST(Minimise, ALinearSystemThatFellShortIsCountedAndNeverConverges) {
  Random random(8);
  const Ridge ridge(random, 60, 30, 2);
  const Implicit stopped{
      .how = Implicit::matrix_free, .max_iterations = 3, .preconditioner = [](std::span<double>, bool) {}};
  const std::vector<Parameter> start{Parameter::positive(1.0)};
  // With a tolerance that the start meets, and with one that is met by what the wrong hypergradient leads to, if at all.
  for (const double tolerance : {1e3, 1e-5}) {
    const Outcome o = minimise({ridge.inner(stopped)}, start, Lbfgs{}, {.tolerance = tolerance});
    EXPECT_FALSE(is_solution(o.status)) << o;
    EXPECT_FALSE(o.inner_failed);
    EXPECT_EQ(o.fell_short, o.hypergradients);
    EXPECT_TRUE(std::isnan(o.norm)) << o;  // unknown, which is not zero
    EXPECT_TRUE(std::isnan(o.critical));
    EXPECT_THAT(o.about, HasSubstr("the linear system of the hypergradient fell short"));
    EXPECT_GT(o.bound, 0);
  }
  const Outcome good = minimise({ridge.inner(Implicit{})}, start);
  EXPECT_EQ(good.status, Status::converged) << good.message();
  EXPECT_EQ(good.fell_short, 0);
  const Outcome plain = minimise({ridge.inner(Implicit{})}, start, Lbfgs{}, {.certified = false});
  EXPECT_EQ(plain.value, good.value);
  EXPECT_EQ(plain.bound, std::numeric_limits<double>::infinity());
  EXPECT_EQ(plain.bound_rests_on, "it was not asked for");
}

// Gradient descent in a valley: two solves at the same parameters differ, and with them the sign of a hypergradient at a
// bound.
TEST(Minimise, WhatIsCriticalStaysSoWhenItIsSolvedAgain) {
  Random random(44);
  for (int trial = 0; trial < 12; ++trial) {
    const double angle = random.uniform(0, 3), c = std::cos(angle), d = std::sin(angle),
                 flat = std::pow(10.0, -random.uniform(2, 4));
    const Array H{{c * c + flat * d * d, c * d * (1 - flat)}, {c * d * (1 - flat), d * d + flat * c * c}};
    const Array b = random.array({2}, -1.5, 1.5), target = random.array({2}, -2, 2);
    const Solver fit = gradient_descent(
        [&](Expr x, Expr t) {
          return 0.5 * dot(x, matmul(H, x)) - dot(b, x) + 0.5 * sum(t * square(x)) + 0.05 * sum(square(square(x)));
        },
        {.step = GradientStep::backtracking()}, {.tolerance = 1e-10, .max_iterations = 20000});
    const Inner inner(
        fit, zeros({2}), [&](Expr x) { return sum(square(x - target)) + 0.3 * sum(exp(0.3 * x)); }, Implicit{});
    const Outcome o = minimise({inner}, {Parameter::positive(ones({2})).within(1e-3, 1e3)}, Lbfgs{}, {.tolerance = 1e-5});
    if (o.status != Status::converged) continue;
    EXPECT_LE(o.critical, 1e-5) << trial;
  }
}

// A hypergradient that is another one when the inner problem is solved again.
Outcome refuted_once(int max_iterations) {
  const Array H{{0.186527, -0.205256}, {-0.205256, 0.225881}}, b{1.1868, -0.647708}, target{-1.72052, -0.865453};
  const Solver fit = gradient_descent(
      [&](Expr x, Expr t) {
        return 0.5 * dot(x, matmul(H, x)) - dot(b, x) + 0.5 * sum(t * square(x)) + 0.05 * sum(square(square(x)));
      },
      {.step = GradientStep::backtracking()}, {.tolerance = 1e-10, .max_iterations = 20000});
  const Inner inner(
      fit, zeros({2}), [&](Expr x) { return sum(square(x - target)) + 0.3 * sum(exp(0.3 * x)); }, Implicit{});
  return minimise({inner}, {Parameter::positive(ones({2})).within(1e-3, 1e3)}, Lbfgs{},
                  {.tolerance = 2.7e-6, .max_iterations = max_iterations});
}
TEST(Minimise, GoesOnFromAPointThatWasOnlyTakenForCritical) {
  const Outcome o = refuted_once(200);
  EXPECT_EQ(o.status, Status::converged) << o;
  EXPECT_LE(o.critical, 2.7e-6);
  EXPECT_NEAR(o.theta[0](1), 0.3314, 1e-3);
}

TEST(Minimise, ALimitReachedWhereAHypergradientIsRefutedIsNoFailureOfAnInnerProblem) {
  int limit = 1;
  Outcome o;
  do o = refuted_once(limit++);
  while (o.about.empty() && o.status != Status::converged);
  EXPECT_THAT(o.about, HasSubstr("the hypergradient changes from one solve"));
  EXPECT_EQ(o.status, Status::iteration_limit);
  EXPECT_FALSE(o.inner_failed);
}

// One step of x ← 0.9 x + 0.1 θ has a tenth of the derivative: what is critical by it is not.
TEST(Minimise, ConvergenceByAHypergradientThatIsFarFromTheTruthIsUncertain) {
  const auto run = [](const Estimator& estimator) {
    const Inner inner(
        fixed_point([](Expr x, Expr theta) { return 0.9 * x + 0.1 * theta; }), Array(0.0),
        [](Expr x, Expr theta) { return square(x - 1.0) + 0.1 * theta; }, estimator);
    return minimise({inner}, {Parameter::real(0.0)}, Descent{.step = 0.9});
  };
  const Outcome wrong = run(OneStep{}), right = run(Implicit{});
  ASSERT_EQ(wrong.status, Status::converged) << wrong.message();
  EXPECT_TRUE(wrong.uncertain) << wrong;
  EXPECT_FALSE(wrong.inner_failed);
  EXPECT_THAT(wrong.message(), HasSubstr("may be wrong by"));
  ASSERT_EQ(right.status, Status::converged) << right.message();
  EXPECT_FALSE(right.uncertain) << right;
}

TEST(Minimise, CanBeCancelledAndLimited) {
  Random random(6);
  const Ridge ridge(random, 30, 8, 2);
  const std::vector<Parameter> start{Parameter::positive(full({8}, 1.0))};
  int calls = 0;
  const Outcome stopped =
      minimise({ridge.inner()}, start, Adam{.step = 0.01}, {.callback = [&](const OuterIteration&) { return ++calls < 4; }});
  EXPECT_EQ(stopped.status, Status::cancelled);
  EXPECT_EQ(stopped.iterations, 3);
  const Outcome within = minimise({ridge.inner()}, start, Adam{}, {.cancelled = [] { return true; }});
  EXPECT_EQ(within.status, Status::cancelled);
  const Outcome limited = minimise({ridge.inner()}, start, Adam{.step = 1e-6}, {.max_iterations = 5});
  EXPECT_EQ(limited.status, Status::iteration_limit);
  EXPECT_EQ(limited.iterations, 5);
  EXPECT_TRUE(std::isfinite(limited.bound));
  const Outcome late = minimise({ridge.inner()}, start, Adam{}, {.time_limit = 1e-9});
  EXPECT_EQ(late.status, Status::time_limit);
}

TEST(Minimise, SaysInALineWhatCameOut) {
  std::ostringstream text;
  text << minimise({identity_problem(Array{0.2})}, {Parameter::real(Array{1.0})});
  EXPECT_THAT(text.str(),
              testing::MatchesRegex("converged in [0-9]+ iterations?: 1, hypergradient .*, wrong by at most .*"));
}

TEST(Minimise, RefusesWhatDoesNotFit) {
  const Inner inner = identity_problem(Array{0.2});
  const auto message = [](const auto& call) { return error_of([&] { (void)call(); }); };
  EXPECT_THAT(message([&] { return minimise({}, {Parameter::real(Array{1.0})}); }), HasSubstr("no inner problem"));
  EXPECT_THAT(message([&] { return minimise({inner}, {}); }), HasSubstr("no parameter is moved"));
  EXPECT_THAT(message([&] { return minimise({inner}, {Parameter::fixed(Array{1.0})}); }), HasSubstr("all are fixed"));
  EXPECT_THAT(message([&] { return minimise({inner}, {Parameter::positive(Array{-1.0})}); }), HasSubstr("starts at -1"));
  EXPECT_THAT(message([&] { return minimise({inner}, {Parameter::positive(Array{0.0})}); }),
              HasSubstr("logarithm cannot move"));
  EXPECT_THAT(message([&] { return minimise({inner}, {Parameter::unit(Array{1.0})}); }), HasSubstr("logit"));
  EXPECT_THAT(message([&] { return minimise({inner}, {Parameter::real(Array{1.0}).within(2, 3)}); }),
              HasSubstr("outside of [2, 3]"));
  EXPECT_THAT(message([&] { return minimise({inner}, {Parameter::real(Array{1.0})}, Adam{.step = 0}); }), HasSubstr("Adam"));
  EXPECT_THAT(message([&] { return minimise({inner}, {Parameter::real(Array{1.0})}, Lbfgs{.memory = 0}); }),
              HasSubstr("memory"));
  EXPECT_THAT(message([&] { return minimise({inner}, {Parameter::real(Array{1.0})}, Descent{.step = -1}); }),
              HasSubstr("step"));
  EXPECT_THAT(message([&] { return minimise({inner}, {Parameter::real(Array{1.0})}, Lbfgs{}, {.tolerance = -1}); }),
              HasSubstr("tolerance"));
  const Inner wrong(newton([](Expr x, Expr theta) { return sum(square(x - theta)); }), zeros(1),
                    [](Expr x, Expr, Expr) { return sum(x); });
  EXPECT_THAT(message([&] { return minimise({wrong}, {Parameter::real(Array{1.0})}); }), HasSubstr("g takes 3 arguments"));
  const Inner vector(newton([](Expr x, Expr theta) { return sum(square(x - theta)); }), zeros(1), [](Expr x) { return x; });
  EXPECT_THAT(message([&] { return minimise({vector}, {Parameter::real(Array{1.0})}); }), HasSubstr("one number"));
}

TEST(ZeroHypergradient, AtAKinkOrAMaximumIsNoConvergence) {
  // g = |t| has its minimum at the kink, -|t| + t²/4 a maximum there (minima at ±2), 1 - t² + t⁴/4 one without a kink
  // (minima at ±√2); (t - 0)² a minimum.
  const Solver inner = newton([](Expr x, Expr t) { return 0.5 * square(x - t); });
  const auto run = [&](auto g) { return minimise({Inner(inner, Array(1.0), g)}, {Parameter::real(Array(0.0))}); };
  const Outcome kink = run([](Expr x) { return 1.0 + abs(x); });
  EXPECT_EQ(kink.status, Status::line_search_failed) << kink;
  EXPECT_TRUE(test::says(kink.message(), {"kink"})) << kink.message();
  const Outcome roof = run([](Expr x) { return 3.0 - abs(x) + 0.25 * square(x); });
  EXPECT_TRUE(is_solution(roof.status)) << roof << roof.message();
  EXPECT_NEAR(std::fabs(Array(roof.theta).item()), 2, 1e-3);
  const Outcome hill = run([](Expr x) { return 3.0 - square(x) + 0.25 * square(square(x)); });
  EXPECT_TRUE(is_solution(hill.status)) << hill << hill.message();
  EXPECT_NEAR(std::fabs(Array(hill.theta).item()), std::sqrt(2.0), 1e-3);
  const Outcome valley = run([](Expr x) { return 1.0 + square(x); });
  EXPECT_EQ(valley.status, Status::converged) << valley << valley.message();
  EXPECT_EQ(valley.iterations, 0);
}

TEST(ZeroHypergradient, OfAGThatIsNotDifferentiableIsAStatus) {
  const Solver inner = fixed_point([](Expr x, Expr t) { return 0.5 * (x + t); }, {.tolerance = 1e-13});
  const Outcome root = minimise({Inner(inner, Array(0.0), [](Expr x) { return sqrt(x); })}, {Parameter::real(Array(0.0))});
  EXPECT_EQ(root.status, Status::not_finite) << root << root.message();
}

TEST(OuterValue, IsWhatMinimiseMinimisesAndInfinityWhereThereIsNoSolution) {
  Random random(8);
  const Ridge ridge(random, 20, 4);
  OuterValue loss({ridge.inner()}, Parts(1.0));
  for (const double lambda : {0.1, 10.0, 0.1, 3.0})
    EXPECT_NEAR(loss(Parts(lambda)), ridge.value(lambda), 1e-12 * ridge.value(lambda)) << lambda;
  EXPECT_EQ(loss.status(), Status::converged);
  EXPECT_THROW((void)loss(Parts(Array{1.0, 2.0, 3.0})), MisuseError);
  OuterValue none({Inner(newton_root([](Expr x, Expr a) { return square(x) + a; }), 1.0, [](Expr x) { return x; })},
                  Parts(1.0));
  EXPECT_EQ(none(Parts(1.0)), std::numeric_limits<double>::infinity());
  EXPECT_FALSE(is_solution(none.status()));
  EXPECT_DOUBLE_EQ(none(Parts(-4.0)), 2);
  const OuterValue moved = std::move(none);
  EXPECT_THROW((void)none.status(), MisuseError);  // NOLINT(bugprone-use-after-move)
}

}  // namespace
}  // namespace onestep::test
