// Tracing: arguments, results, closures, functions inside functions.
#include "onestep/function.h"

#include <gtest/gtest.h>

#include <functional>

#include "onestep/onestep.h"
#include "support/run.h"

namespace onestep::test {
namespace {

TEST(Function, TakesSeveralArgumentsAndGivesSeveralResults) {
  const Array x{1.0, 2.0}, y{3.0, 5.0};
  const auto run = [&](const Function& f) { return naive::interpret(f, Arrays{x, y}); };
  const Arrays pair = run(traced([](Expr a, Expr b) { return std::pair(a + b, sum(a)); }, Shape{2}, Shape{2}));
  ASSERT_EQ(pair.size(), 2u);
  EXPECT_TRUE(near(pair[0], Array{4.0, 7.0}));
  EXPECT_TRUE(near(pair[1], Array(3.0)));
  const Arrays tuple = run(traced([](Expr a, Expr b) { return std::tuple(a, b, 2.0); }, Shape{2}, Shape{2}));
  ASSERT_EQ(tuple.size(), 3u);
  EXPECT_TRUE(near(tuple[1], y));
  EXPECT_TRUE(near(tuple[2], Array(2.0)));
  const Arrays array = run(traced([](Expr a, Expr b) { return std::array<Expr, 2>{b, a}; }, Shape{2}, Shape{2}));
  EXPECT_TRUE(near(array[0], y));
  const Arrays vector = run(traced([](Expr a, Expr b) { return Exprs{a - b}; }, Shape{2}, Shape{2}));
  EXPECT_TRUE(near(vector[0], Array{-2.0, -3.0}));
}

TEST(Function, ATupleOfArraysIsOneArgument) {
  const Function f =
      traced([](std::vector<Expr> state, Expr theta) { return std::pair(state[0] * theta, matmul(state[1], state[0])); },
             std::vector<Input>{{"x", {2}}, {"M", {3, 2}}}, Input{"theta", {}});
  ASSERT_EQ(f.inputs().size(), 3u);
  EXPECT_EQ(f.inputs()[1].name, "M");
  EXPECT_EQ(f.inputs()[2].name, "theta");
  const Arrays y = naive::interpret(f, Arrays{Array{1.0, 2.0}, Array{{1.0, 0.0}, {0.0, 1.0}, {1.0, 1.0}}, 10.0});
  EXPECT_TRUE(near(y[0], Array{10.0, 20.0}));
  EXPECT_TRUE(near(y[1], Array{1.0, 2.0, 3.0}));
}

TEST(Function, InputsWithoutANameGetOne) {
  const Function f = traced([](Expr a, Expr b) { return a + b; }, Shape{2}, Input{"w", {2}});
  EXPECT_EQ(f.inputs()[0].name, "arg0");
  EXPECT_EQ(f.inputs()[1].name, "w");
}

TEST(Function, ClosedOverArraysBecomeConstantsWithoutACopy) {
  const Array A{{1.0, 2.0}, {3.0, 4.0}};
  const Function f = traced([&](Expr x) { return matmul(A, x); }, Shape{2});
  EXPECT_EQ(graph_of(f)->constant(0).data(), A.data());
}

TEST(Function, KeepsTheMemoryOfOwnedConstantsAlive) {
  Function f = traced([](Expr x) { return x; }, Shape{1000});
  {
    const Array big = full({1000}, 3.0);
    f = traced([&](Expr x) { return sum(x * big); }, Shape{1000});
  }
  EXPECT_EQ(naive::interpret(f, Arrays{ones({1000})})[0].item(), 3000.0);
}

TEST(Function, CanBeUsedInsideAnother) {
  const Array A{{1.0, 2.0}, {3.0, 4.0}};
  const Function inner = traced([&](Expr x, Expr s) { return std::pair(matmul(A, x) * s, sum(x)); }, Shape{2}, Shape{});
  const Function outer_function = traced(
      [&](Expr x) {
        const Exprs once = inner(Exprs{x, 2.0});
        const Exprs twice = inner(Exprs{once[0], once[1]});
        return twice[0];
      },
      Shape{2});
  const auto step = [&](const Array& x, double s) {
    return value_of({x}, [&](const Exprs& e) { return matmul(A, e[0]) * s; });
  };
  const Array x{0.5, -1.0};
  EXPECT_TRUE(near(naive::interpret(outer_function, Arrays{x})[0], step(step(x, 2.0), -0.5)));
}

TEST(Function, RulesThatApplyOnlyInsideTheOtherFunctionAreApplied) {
  const Array A = ones({50, 3});
  const Function product = traced([&](Expr M) { return matmul(A, M); }, Shape{3, 3});
  const Function f = traced([&](Expr u, Expr v) { return product(Exprs{outer(u, v)})[0]; }, Shape{3}, Shape{3});
  EXPECT_TRUE(is(f.outputs()[0], Op::outer));
}

TEST(Function, ResultsNeedNotDependOnTheInputs) {
  const Array c{1.0, 2.0};
  const Function f = traced([&](Expr x) { return std::tuple(Expr(c) + 1.0, 3.0, eye(2), grad(sum(Expr(c)), x)); }, Shape{3});
  const Arrays y = naive::interpret(f, Arrays{zeros({3})});
  EXPECT_TRUE(near(y[0], Array{2.0, 3.0}));
  EXPECT_TRUE(near(y[1], Array(3.0)));
  EXPECT_TRUE(near(y[2], Array{{1.0, 0.0}, {0.0, 1.0}}));
  EXPECT_TRUE(near(y[3], zeros({3})));
}

TEST(Function, MayHaveNoInputsOrNoResults) {
  EXPECT_TRUE(near(naive::interpret(traced([] { return Expr(2.0) * Expr(Array{1.0, 2.0}); }), {})[0], Array{2.0, 4.0}));
  EXPECT_TRUE(naive::interpret(traced([](Expr) { return Exprs{}; }, Shape{2}), Arrays{zeros({2})}).empty());
  EXPECT_EQ(traced([](Expr) { return Exprs{}; }, Shape{2}).flops(), 0);
}

TEST(Function, RefusesArgumentsThatDoNotFit) {
  const Function f = traced([](Expr x, Expr w) { return sum(x * w); }, Input{"x", {3}}, Input{"w", {3}});
  EXPECT_EQ(error_of([&] { f(Exprs{Expr(zeros({3}))}); }), "[call] the function takes 2 arguments, 1 were given");
  EXPECT_EQ(error_of([&] {
              f(Exprs{Expr(zeros({3})), Expr(zeros({4}))});
            }),
            "[call] argument w has shape (4), the function was traced for (3)");
  EXPECT_EQ(error_of([&] { naive::interpret(f, Arrays{zeros({3})}); }), "[evaluate] 1 inputs are bound, the function has 2");
  EXPECT_EQ(error_of([&] {
              naive::interpret(f, Arrays{zeros({3}), zeros({3, 1})});
            }),
            "[evaluate] input w has shape (3, 1), the function was traced for (3)");
}

TEST(Function, RefusesAFactorAsResult) {
  EXPECT_EQ(error_of([] {
              traced([](Expr h) { return node_of(cholesky(h)); }, Shape{2, 2});
            }),
            "[traced] a factor cannot be a result; return a solve or logdet with it");
}

TEST(Function, CountsSharedNodesOnce) {
  const Function once = traced([](Expr x) { return exp(x); }, Shape{10});
  const Function twice = traced([](Expr x) { return exp(x) + exp(x) * 3.0; }, Shape{10});
  EXPECT_EQ(once.flops(), 80);
  EXPECT_EQ(twice.flops(), 80 + 10 + 10);
}

TEST(Function, FlopsOfEachProductAreItsMultiplyAdds) {
  traced(
      [](Expr A, Expr x, Expr w, Expr H) {
        EXPECT_EQ(flops(matmul(A, x)), 7 * 5);
        EXPECT_EQ(flops(matmul(A, H)), 7 * 5 * 5);
        EXPECT_EQ(flops(gram(A, w)), 7 * 5 * 6 / 2 + 7 * 5);
        EXPECT_EQ(flops(outer(x, w)), 5 * 7);
        EXPECT_DOUBLE_EQ(flops(solve(cholesky(H), x)), 125.0 / 6 + 25);
        EXPECT_DOUBLE_EQ(flops(solve(lu(H), x)), 125.0 / 3 + 25);
        EXPECT_EQ(flops(H + diag(x)), 5);
        EXPECT_EQ(flops(transpose(A)), 0);
        return x;
      },
      Shape{7, 5}, Shape{5}, Shape{7}, Shape{5, 5});
}

TEST(MovedFrom, AnExpressionIsNoNumber) {
  const auto use = [](const std::function<void(Expr)>& what) {
    return test::error_of([&] {
      traced(
          [&](Expr x) {
            Expr moved = 2.0 * x;
            const Expr kept = std::move(moved);
            what(moved);
            return kept;
          },
          Shape{3});
    });
  };
  for (const auto& what : std::vector<std::function<void(Expr)>>{
           [](const Expr& e) { e.shape(); }, [](const Expr& e) { e + 1.0; }, [](const Expr& e) { 1.0 * e; },
           [](const Expr& e) { sum(e); }, [](const Expr& e) { grad(e, e); }, [](const Expr& e) { to_string(e); },
           [](const Expr& e) { flops(e); }})
    EXPECT_TRUE(test::says(use(what), {"[Expr]", "moved from"})) << use(what);
  EXPECT_TRUE(test::says(test::error_of([] {
                           traced(
                               [](Expr x) {
                                 const Expr kept = std::move(x);
                                 return x;
                               },
                               Shape{3});
                         }),
                         {"[Expr]", "moved from"}));
}

TEST(MovedFrom, AFunctionAndAPlanSaySo) {
  Function f = traced([](Expr x) { return sum(square(x)); }, Shape{3});
  const Function kept = std::move(f);
  Plan plan(kept);
  Workspace workspace = plan.workspace();
  const Plan kept_plan = std::move(plan);
  EXPECT_TRUE(f.inputs().empty());
  EXPECT_TRUE(f.outputs().empty());
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { (void)f(std::vector<Expr>{}); }, [&] { f.text(); }, [&] { f.dot(); }, [&] { f.flops(); },
           [&] { Plan other(f); }, [&] { evaluate(f, {}); }, [&] { check_gradients(f, std::vector<Array>{}); }})
    EXPECT_TRUE(test::says(test::error_of(call), {"[Function]", "moved from"})) << test::error_of(call);
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { plan.workspace(); }, [&] { plan.run(workspace, {zeros(3)}, {}); }, [&] { plan.workspace_bytes(); },
           [&] { plan.flops(); }, [&] { plan.flops(1); }, [&] { plan.text(); }})
    EXPECT_TRUE(test::says(test::error_of(call), {"[Plan]", "moved from"})) << test::error_of(call);
}

}  // namespace
}  // namespace onestep::test
