// Plans against the naive interpreter, what is kept between runs, buffers, threads, and bad input.
#include "onestep/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>

#include "backend/naive/interpret.h"
#include "onestep/diff.h"
#include "onestep/threads.h"
#include "plan/bound_plan.h"
#include "support/random.h"

namespace onestep {
namespace {

using test::Random;
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double inf = std::numeric_limits<double>::infinity();

struct Outputs {
  explicit Outputs(const Function& f) {
    for (const Expr& e : f.outputs()) values.emplace_back(static_cast<std::size_t>(e.shape().size()), nan);
    spans.assign(values.begin(), values.end());
  }
  std::vector<std::vector<double>> values;
  std::vector<std::span<double>> spans;
};

// Runs in a poisoned workspace: what is read before it is written shows as NaN.
std::vector<std::vector<double>> run_poisoned(const Function& f, const std::vector<Array>& inputs,
                                              const PlanOptions& options = {}) {
  const Plan plan(f, options);
  Workspace workspace = plan.workspace();
  workspace.poison();
  Outputs out(f);
  plan.run(workspace, inputs, out.spans);
  return out.values;
}

void expect_close(std::span<const double> a, std::span<const double> b, double tolerance, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  double scale = 0, error = 0;
  for (const double v : b)
    if (std::isfinite(v)) scale = std::max(scale, std::abs(v));
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(b[i]) || std::isinf(b[i])) {
      EXPECT_TRUE((std::isnan(a[i]) && std::isnan(b[i])) || a[i] == b[i])
          << what << " entry " << i << ": " << a[i] << " and " << b[i];
    } else {
      error = std::max(error, std::isnan(a[i]) ? inf : std::abs(a[i] - b[i]));
    }
  }
  EXPECT_LE(error, tolerance * std::max(scale, 1e-300)) << what;
}

void expect_equals_naive(const Function& f, const std::vector<Array>& inputs, double tolerance = 1e-12,
                         const PlanOptions& options = {}) {
  const auto planned = run_poisoned(f, inputs, options);
  const auto naive = naive::interpret(f, inputs);
  for (std::size_t i = 0; i < planned.size(); ++i)
    expect_close(planned[i], naive[i].contiguous().values(), tolerance, f.text());
}

// A weighted logistic Newton step with value, gradient and the vjp by the weights.
Function newton(const Array& A, const Array& y) {
  return traced(
      [&](Expr x, Expr w, Expr c) {
        const Expr f =
            sum(w * softplus(-y * matmul(A, x))) + 0.1 * sum(square(slice(x, 1, x.shape()[0]))) + 0.01 * sum(square(x));
        const Expr g = grad(f, x), next = x - solve(cholesky(hessian(f, x)), g);
        return std::tuple(f, g, next, vjp(next, w, c));
      },
      Input{"x", {A.shape()[1]}}, Input{"w", {A.shape()[0]}}, Input{"c", {A.shape()[1]}});
}
std::vector<Array> newton_inputs(Random& random, std::int64_t rows, std::int64_t n) {
  return {random.array({n}, -0.3, 0.3), random.array({rows}, 0.2, 1.5), random.array({n})};
}

TEST(Plan, NewtonStepEqualsTheNaiveInterpreterAtEveryKindOfSize) {
  Random random(3);
  // One tile, several blocks, packed and BLAS kernels, several chunks, output tiles.
  for (const auto& [rows, n] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                {7, 2},
                                {200, 5},
                                {1000, 10},
                                {700, 24},
                                {700, 25},
                                {6000, 30},
                                {900, 401}}) {
    const Array A = random.array({rows, n}), y = random.array({rows});
    expect_equals_naive(newton(A, y), newton_inputs(random, rows, n), 1e-9);
  }
}

// Random expressions of every kind of node: vectors, matrices and numbers that grow out of each other.
Expr random_expression(Random& random, std::vector<Expr> pool, int steps) {
  const auto pick = [&](auto&& fits) -> const Expr* {
    std::vector<const Expr*> found;
    for (const Expr& e : pool)
      if (fits(e)) found.push_back(&e);
    return found.empty() ? nullptr : random.one_of(found);
  };
  const auto any = [](const Expr&) { return true; };
  for (int k = 0; k < steps; ++k) {
    const Expr a = *pick(any);
    const auto same = [&](const Expr& e) { return e.shape() == a.shape(); };
    const auto of_rank = [](int rank) { return [rank](const Expr& e) { return e.shape().rank() == rank; }; };
    Expr result = a;
    switch (random.integer(0, 15)) {
      case 0: result = a + *pick(same); break;
      case 1: result = a * *pick(same); break;
      case 2: result = tanh(a) - *pick(same); break;
      case 3: result = sigmoid(a); break;
      case 4: result = 0.5 * a + 0.25; break;
      case 5: result = maximum(a, *pick(same)); break;
      case 6: result = tanh(sum(a)) * *pick(any); break;
      case 7: result = where(less(a, 0.1), a, *pick(same)); break;
      case 8:
        if (a.shape().rank() == 2) result = tanh(sum(a, static_cast<int>(random.integer(0, 1))));
        break;
      case 9:
        if (a.shape().rank() == 2) result = transpose(a);
        break;
      case 10:
        if (const Expr* m = pick(of_rank(2)))
          for (const Expr& v : pool) {
            if (v.shape() == Shape{m->shape()[1]}) result = tanh(matmul(*m, v));
            if (v.shape() == Shape{m->shape()[0]} && random.flip()) result = tanh(matmul(transpose(*m), v));
          }
        break;
      case 11:
        if (a.shape().rank() == 2) result = tanh(matmul(transpose(a), a));
        break;
      case 12:
        if (a.shape().rank() == 2)
          for (const Expr& v : pool)
            if (v.shape() == Shape{a.shape()[0]}) result = tanh(gram(a, v));
        break;
      case 13:
        if (a.shape().rank() == 1) result = outer(a, *pick(of_rank(1)));
        break;
      case 14:
        if (a.shape().rank() >= 1 && a.shape()[0] > 1) result = concat({slice(a, 1, a.shape()[0]), slice(a, 0, 1)});
        break;
      default:
        if (a.shape().rank() == 2) result = tanh(max(a, Axis{static_cast<int>(random.integer(0, 1))}));
        break;
    }
    pool.push_back(result);
  }
  Expr total = 0.0;
  for (std::size_t i = pool.size() / 2; i < pool.size(); ++i) total = total + sum(tanh(pool[i]));
  return total;
}

RC_GTEST_PROP(Plan, RandomGraphsAndTheirGradientsEqualTheNaiveInterpreter, (std::uint64_t seed)) {
  Random random(seed);
  const std::int64_t rows = random.integer(1, 40), n = random.integer(1, 6);
  const std::vector<Shape> shapes{{rows, n}, {rows}, {n}, {}};
  const std::vector<Array> inputs = random.arrays(shapes);
  const int steps = static_cast<int>(random.integer(3, 14));
  const std::uint64_t body_seed = seed * 31 + 7;
  const Function f(std::vector<Input>(shapes.begin(), shapes.end()), [&](std::span<const Expr> x) {
    Random again(body_seed);
    const Expr y = random_expression(again, {x.begin(), x.end()}, steps);
    std::vector<Expr> all = grad(y, x);
    all.push_back(y);
    return all;
  });
  PlanOptions options;
  if (random.flip()) options.levels = {0, 1, 2, 1};
  const auto planned = run_poisoned(f, inputs, options);
  const auto naive = naive::interpret(f, inputs);
  for (std::size_t i = 0; i < planned.size(); ++i) {
    double scale = 1e-3;
    for (const double v : naive[i].values()) scale = std::max(scale, std::abs(v));
    for (std::size_t k = 0; k < planned[i].size(); ++k)
      RC_ASSERT(std::abs(planned[i][k] - naive[i].values()[k]) <= 1e-9 * scale);
  }
}

// A result that depends on a low level only is there in every run, wherever it is wanted.
TEST(BoundPlan, GivesWhatDoesNotChangeToEveryCaller) {
  const Function f({{"data", {2}}, {"x", {2}}}, [](std::span<const Expr> in) { return std::vector<Expr>{2 * in[0]}; });
  const Plan plan(f, {.levels = {0, 1}, .loop = 1});
  detail::BoundPlan bound(plan);
  const Array data{1.0, 3.0}, x{0.0, 0.0};
  bound.bind(0, data);
  bound.bind(1, x);
  for (int run = 0; run < 3; ++run) {
    std::vector<double> out(2, nan);
    const std::span<double> span = out;
    bound.run(0, {&span, 1}, run == 0 ? 0 : 1, 1);
    EXPECT_THAT(out, ::testing::ElementsAre(2, 6)) << run;
  }
}

TEST(Plan, ZeroSizedArraysWork) {
  const Array A = zeros({0, 3}), y = zeros({0});
  const Function f = traced(
      [&](Expr x, Expr w) {
        const Expr v = sum(w * softplus(-y * matmul(A, x))) + sum(square(x));
        return std::tuple(v, grad(v, x), hessian(v, x), grad(v, w));
      },
      Shape{3}, Shape{0});
  expect_equals_naive(f, {Array{1.0, 2.0, 3.0}, zeros({0})});
  const Function none =
      traced([](Expr m) { return std::tuple(sum(m), max(m), sum(m, 0), sum(m, 1), matmul(transpose(m), m)); }, Shape{4, 0});
  expect_equals_naive(none, {zeros({4, 0})});
}

TEST(Plan, ResultsThatAreInputsConstantsOrNumbersAreCopied) {
  const Array c{5.0, 6.0};
  const Function f = traced(
      [&](Expr x) {
        return std::tuple(x, Expr(c), Expr(2.5), broadcast(1.5, {2, 2}), reshape(x, {2, 1}), x);
      },
      Shape{2});
  expect_equals_naive(f, {Array{1.0, 2.0}});
}

TEST(Plan, ResultsMayBeWrittenOverInputs) {
  Random random(21);
  const std::int64_t rows = 300, n = 6;
  const Array A = random.array({rows, n}), y = random.array({rows});
  const Function f = traced(
      [&](Expr x) {
        const Expr g = matmul(transpose(A), matmul(A, x) - y);
        return std::pair(x - 0.001 * g, 2.0 * x + g);
      },
      Shape{n});
  const Plan plan(f);
  Workspace workspace = plan.workspace();
  const Array start = random.array({n});
  const auto expected = naive::interpret(f, std::vector<Array>{start});
  std::vector<double> memory(start.values().begin(), start.values().end()), other(static_cast<std::size_t>(n));
  plan.run(workspace, std::vector<Array>{Array::view(memory)}, std::vector<std::span<double>>{memory, other});
  expect_close(memory, expected[0].values(), 1e-13, "over the input");
  expect_close(other, expected[1].values(), 1e-13, "beside it");
}

TEST(Plan, InputsThatAreResultsAreReadBeforeOutputsOverThemAreWritten) {
  const Function f = traced([](Expr x, Expr y) { return std::tuple(2.0 * x, x, x + y); }, Shape{2}, Shape{2});
  const Plan plan(f);
  Workspace workspace = plan.workspace();
  std::vector<double> x{1.0, 2.0}, y{10.0, 20.0}, sum(2);
  plan.run(workspace, {Array::view(x), Array::view(y)}, {x, y, sum});
  EXPECT_THAT(x, testing::ElementsAre(2.0, 4.0));
  EXPECT_THAT(y, testing::ElementsAre(1.0, 2.0));
  EXPECT_THAT(sum, testing::ElementsAre(11.0, 22.0));
}

TEST(Plan, OneMatrixReadInTwoShapesIsTwoMatrices) {
  Random random(31);
  const Function f = traced(
      [](Expr m, Expr x, Expr z) {
        return std::tuple(matmul(m, x), matmul(reshape(m, {64, 12}), z), gram(reshape(m, {192, 4}), ones({192})));
      },
      Shape{128, 6}, Shape{6}, Shape{12});
  expect_equals_naive(f, {random.array({128, 6}), random.array({6}), random.array({12})});
}

TEST(Plan, ASymmetricProductReadAsAVectorHasBothTriangles) {
  Random random(32);
  const Array A = random.array({50, 2}), b = random.array({4});
  const Function f = traced(
      [&](Expr d) {
        const Expr v = square(reshape(gram(A, d), {4})) + 1.0, raw = reshape(gram(A, d), {4});
        return std::pair(solve(cholesky(eye(4) + diag(v)), b),
                         solve(ldlt(gram(random.array({9, 4}), ones({9})) + diag(raw)), b));
      },
      Shape{50});
  expect_equals_naive(f, {random.array({50}, 0.5, 1.5)}, 1e-10);
}

TEST(Plan, AStridedInputThatWasContiguousInBetweenIsCopiedAgain) {
  const std::vector<double> first{1, 2, 3, 4}, second{5, 6, 7, 8};
  const Function f = traced([](Expr m, Expr x) { return matmul(m, x); }, Shape{2, 2}, Shape{2});
  const Plan plan(f, {.levels = {0, 1}});
  Workspace workspace = plan.workspace();
  std::vector<double> out(2);
  const Array x{1.0, 10.0};
  const auto by_columns = [](const std::vector<double>& memory) {
    return Array::view(MatrixView{memory.data(), 2, 2, 1, 2});
  };
  plan.run(workspace, {by_columns(first), x}, {out});
  EXPECT_THAT(out, testing::ElementsAre(31.0, 42.0));
  plan.run(workspace, {by_columns(second).contiguous(), x}, {out});
  EXPECT_THAT(out, testing::ElementsAre(75.0, 86.0));
  plan.run(workspace, {by_columns(second), x}, {out}, 1);
  EXPECT_THAT(out, testing::ElementsAre(75.0, 86.0));
}

TEST(Plan, ARunThatWasThrownOutOfKeepsNothing) {
  struct Moody : Foreign {
    std::string name() const override { return "moody"; }
    Shape shape(std::span<const Shape> s) const override { return s[0]; }
    void apply(std::span<const std::span<const double>> a, std::span<double> y) const override {
      if (a[0][0] < 0) throw std::runtime_error("moody");
      std::ranges::copy(a[0], y.begin());
    }
  };
  const Function f =
      traced([](Expr w, Expr x) { return call(std::make_shared<Moody>(), {exp(w) * sum(w)}) * x; }, Shape{1}, Shape{1});
  const Plan plan(f, {.levels = {0, 1}});
  Workspace workspace = plan.workspace();
  std::vector<double> out(1);
  plan.run(workspace, {Array{1.0}, Array{1.0}}, {out});
  EXPECT_THROW(plan.run(workspace, {Array{-1.0}, Array{1.0}}, {out}), std::runtime_error);
  plan.run(workspace, {Array{2.0}, Array{3.0}}, {out}, 1);
  EXPECT_DOUBLE_EQ(out[0], 2.0 * std::exp(2.0) * 3.0);
}

TEST(Plan, DotProductsAreNotSummedFromAStoredProduct) {
  const Function f = traced([](Expr u, Expr v) { return sum(u * v) + sum(u * square(v)); }, Shape{1000}, Shape{1000});
  EXPECT_NE(Plan(f).text().find("dot"), std::string::npos);
  Random random(22);
  expect_equals_naive(f, {random.array({1000}), random.array({1000})}, 1e-13);
}

// what is kept

Function ridge_step(const Array& A, const Array& y, double alpha, double lambda) {
  return traced(
      [&](Expr x, Expr w) {
        const Expr f = 0.5 * sum(w * square(matmul(A, x) - y)) + 0.5 * lambda * sum(square(x));
        return x - alpha * grad(f, x);
      },
      Input{"x", {A.shape()[1]}}, Input{"w", {A.shape()[0]}});
}

TEST(Plan, RidgeGradientStepCostsNSquaredPerIteration) {
  Random random(5);
  const std::int64_t rows = 8192, n = 12;
  const Array A = random.array({rows, n}), y = random.array({rows});
  const Function f = ridge_step(A, y, 1e-4, 0.1);
  const Plan plan(f, {.levels = {1, 0}});
  const double N = rows, k = n;
  EXPECT_LE(plan.flops(1), k * k + 8 * k);
  EXPECT_LE(plan.flops(0) - plan.flops(1), N * k * (k + 1) / 2 + 3 * N * k);
  expect_equals_naive(f, {random.array({n}), random.array({rows}, 0.1, 1.0)}, 1e-11, {.levels = {1, 0}});
}

TEST(Plan, RidgeJvpCostsNSquaredPerIterationForEachDirection) {
  Random random(6);
  const std::int64_t rows = 2000, n = 10;
  const Array A = random.array({rows, n}), y = random.array({rows});
  const Function f = traced(
      [&](Expr x, Expr xdot, Expr w, Expr wdot) {
        const Expr next = ridge_step(A, y, 1e-4, 0.1)(std::vector<Expr>{x, w}).front();
        return std::pair(next, jvp(std::vector{next}, std::vector{x, w}, std::vector{xdot, wdot}).front());
      },
      Shape{n}, Shape{n}, Shape{rows}, Shape{rows});
  const PlanOptions options{.levels = {2, 2, 0, 1}};
  const Plan plan(f, options);
  const double N = rows, k = n;
  EXPECT_LE(plan.flops(2), 3 * k * k + 16 * k);
  EXPECT_LE(plan.flops(1) - plan.flops(2), N * k * (k + 1) / 2 + 3 * N * k) << "per direction of the weights";
  EXPECT_LE(plan.flops(0) - plan.flops(1), N * k * (k + 1) / 2 + 3 * N * k) << "per weights";
  expect_equals_naive(f, {random.array({n}), random.array({n}), random.array({rows}, 0.1, 1.0), random.array({rows})}, 1e-11,
                      options);
}

TEST(Plan, FactorsThatChangeLessOftenAreMultipliedFirst) {
  const Array y{1.0, -1.0, 2.0};
  const auto flops_per_run = [&](double number) {
    const Plan plan(traced([&](Expr x, Expr w) { return -(y * (w * (number * (y * exp(x))))); }, Shape{3}, Shape{3}),
                    {.levels = {1, 0}});
    Workspace workspace = plan.workspace();
    const Array x{0.1, 0.2, 0.3}, w{0.5, 0.25, 3.0};
    std::vector<double> result(3);
    plan.run(workspace, {x, w}, {result});
    for (std::size_t i = 0; i < 3; ++i) {
      const double expected = -y.values()[i] * w.values()[i] * number * y.values()[i] * std::exp(x.values()[i]);
      EXPECT_NEAR(result[i], expected, 1e-15 * std::fabs(expected));
    }
    return plan.flops(1);
  };
  const double only_exp = Plan(traced([](Expr x) { return exp(x); }, Shape{3})).flops();
  EXPECT_EQ(flops_per_run(0.5), only_exp + 3);
  EXPECT_GT(flops_per_run(1e-200), only_exp + 3);  // such a number stays where it was written
}

TEST(Plan, KeptValuesAreUsedUntilTheirLevelChanges) {
  const Function f = traced([](Expr data, Expr w, Expr x) { return sum(exp(data) * w) * x; }, Shape{3}, Shape{3}, Shape{2});
  const Plan plan(f, {.levels = {0, 1, 2}});
  Workspace workspace = plan.workspace();
  workspace.poison();
  Outputs out(f);
  const Array zero = zeros({3}), one = ones({3}), two = full({3}, 2.0), x{1.0, 2.0}, x2{3.0, 4.0};
  plan.run(workspace, std::vector<Array>{zero, one, x}, out.spans, 2);  // the first run computes all whatever it is told
  EXPECT_THAT(out.values[0], testing::ElementsAre(3.0, 6.0));
  plan.run(workspace, std::vector<Array>{zero, one, x2}, out.spans, 2);
  EXPECT_THAT(out.values[0], testing::ElementsAre(9.0, 12.0));
  plan.run(workspace, std::vector<Array>{zero, two, x2}, out.spans, 2);  // the weights changed but that was not said
  EXPECT_THAT(out.values[0], testing::ElementsAre(9.0, 12.0));
  plan.run(workspace, std::vector<Array>{zero, two, x2}, out.spans, 1);
  EXPECT_THAT(out.values[0], testing::ElementsAre(18.0, 24.0));
  plan.run(workspace, std::vector<Array>{full({3}, std::log(2.0)), two, x2}, out.spans);
  EXPECT_THAT(out.values[0], testing::ElementsAre(testing::DoubleNear(36.0, 1e-13), testing::DoubleNear(48.0, 1e-13)));
}

RC_GTEST_PROP(Plan, RunsFromAnyLevelEqualFreshRuns, (std::uint64_t seed)) {
  Random random(seed);
  const std::int64_t rows = random.integer(1, 60), n = random.integer(1, 5);
  const Array A = random.array({rows, n}), y = random.array({rows});
  const Function f = traced(
      [&](Expr x, Expr w, Expr c) {
        const Expr v = sum(w * softplus(-y * matmul(A, x))) + 0.1 * sum(square(x));
        const Expr next = x - solve(cholesky(hessian(v, x)), grad(v, x));
        return std::tuple(v, next, vjp(next, w, c), sum(w));
      },
      Shape{n}, Shape{rows}, Shape{n});
  const std::vector<int> levels{static_cast<int>(random.integer(0, 2)), static_cast<int>(random.integer(0, 2)),
                                static_cast<int>(random.integer(0, 2))};
  const Plan plan(f, {.levels = levels});
  Workspace kept = plan.workspace();
  std::vector<Array> inputs{random.array({n}), random.array({rows}, 0.1, 1.0), random.array({n})};
  for (int run = 0; run < 5; ++run) {
    const auto which = static_cast<std::size_t>(random.integer(0, 2));
    inputs[which] = random.array(inputs[which].shape(), 0.1, 1.0);
    Outputs out(f);
    plan.run(kept, inputs, out.spans, levels[which]);
    const auto fresh = run_poisoned(f, inputs, {.levels = levels});
    for (std::size_t i = 0; i < fresh.size(); ++i) RC_ASSERT(out.values[i] == fresh[i]);
  }
}

// A Newton step by x (level 2) and w (level 1), and its vjp by w for a cotangent c (level 3).
constexpr int of_loop = 2, of_vjp = 3;
Function step_and_vjp(const Array& A, const Array& y) {
  return traced(
      [&](Expr x, Expr w, Expr c) {
        const Expr f = sum(w * softplus(-y * matmul(A, x))) + 0.1 * sum(square(x));
        const Expr next = x - solve(cholesky(hessian(f, x)), grad(f, x));
        return std::pair(next, vjp(next, w, c));
      },
      Input{"x", {A.shape()[1]}}, Input{"w", {A.shape()[0]}}, Input{"c", {A.shape()[1]}});
}

TEST(Plan, ALoopStopsBelowTheLevelOfWhatIsWantedAfterIt) {
  Random random(41);
  const std::int64_t rows = 500, n = 6;
  const Array A = random.array({rows, n}), y = random.array({rows}), w = random.array({rows}, 0.5, 1.5);
  const Function f = step_and_vjp(A, y);
  const Plan plan(f, {.levels = {of_loop, 1, of_vjp}, .loop = of_loop});
  EXPECT_LE(plan.flops(of_vjp), 4.0 * static_cast<double>(rows * n)) << "no factorisation and no Hessian again";
  Workspace workspace = plan.workspace();
  workspace.poison();
  std::vector<double> x(static_cast<std::size_t>(n), 0.1), before;
  for (int k = 0; k < 3; ++k) {
    before = x;
    plan.run(workspace, {Array::view(x), w, full({n}, nan)}, {x, {}}, k == 0 ? 0 : of_loop, of_loop);
  }
  Outputs out(f);
  for (const double scale : {1.0, -2.0}) {
    const std::vector<Array> inputs{Array::view(before), w, random.array({n}, scale, 2 * scale)};
    plan.run(workspace, inputs, out.spans, of_vjp);
    const auto expected = naive::interpret(f, inputs);
    for (std::size_t i = 0; i < 2; ++i) expect_close(out.values[i], expected[i].values(), 1e-11, "after the loop");
  }
}

TEST(Plan, WhatARunStoppedBelowIsComputedByTheNextOneThatWantsIt) {
  const Function f = traced([](Expr a, Expr b, Expr c) { return std::tuple(exp(a), exp(a) * b, exp(a) * b + c); }, Shape{1},
                            Shape{1}, Shape{1});
  const Plan plan(f, {.levels = {0, 1, 2}});
  Workspace workspace = plan.workspace();
  workspace.poison();
  Outputs out(f);
  const std::vector<Array> first{Array{0.0}, Array{2.0}, Array{3.0}}, second{Array{0.0}, Array{5.0}, Array{3.0}};
  plan.run(workspace, first, out.spans, 0, 0);
  EXPECT_EQ(out.values[0][0], 1.0);
  EXPECT_TRUE(std::isnan(out.values[1][0]) && std::isnan(out.values[2][0])) << "above the last level: not written";
  plan.run(workspace, first, out.spans, 2, 2);
  EXPECT_EQ(out.values[1][0], 2.0);
  EXPECT_EQ(out.values[2][0], 5.0);
  plan.run(workspace, second, out.spans, 1, 1);
  EXPECT_EQ(out.values[1][0], 5.0);
  EXPECT_EQ(out.values[2][0], 5.0);
  plan.run(workspace, second, out.spans, 7);
  EXPECT_EQ(out.values[2][0], 8.0);
  EXPECT_THROW(plan.run(workspace, first, out.spans, 0, -1), Error);
  EXPECT_THROW(plan.run(workspace, {first[0], first[1], first[2]}, {{}, out.spans[1], out.spans[2]}, 0, 1), Error);
}

TEST(Plan, AFailureAboveTheLastLevelIsNotReported) {
  const Function f =
      traced([](Expr m, Expr k) { return std::pair(logdet(cholesky(m)), logdet(cholesky(k))); }, Shape{1, 1}, Shape{1, 1});
  const Plan plan(f, {.levels = {0, 1}});
  Workspace workspace = plan.workspace();
  Outputs out(f);
  const Array good = full({1, 1}, 1.0), bad = full({1, 1}, -1.0);
  plan.run(workspace, std::vector<Array>{good, bad}, out.spans);
  EXPECT_TRUE(workspace.failed());
  plan.run(workspace, std::vector<Array>{good, bad}, out.spans, 0, 0);
  EXPECT_FALSE(workspace.failed());
  plan.run(workspace, std::vector<Array>{bad, good}, out.spans, 0, 0);
  EXPECT_TRUE(workspace.failed());
  plan.run(workspace, std::vector<Array>{bad, good}, out.spans, 1);
  EXPECT_TRUE(workspace.failed()) << "kept from the run before";
}

TEST(Plan, ProductsAreHoistedOutOfTheLoopThoughHigherLevelsFollow) {
  Random random(42);
  const std::int64_t rows = 1000, n = 5;
  const Array A = random.array({rows, n}), y = random.array({rows});
  const Function f = traced(
      [&](Expr x, Expr w, Expr c) {
        const Expr next = ridge_step(A, y, 1e-3, 0.1)(std::vector<Expr>{x, w}).front();
        return std::tuple(next, vjp(next, x, c), vjp(next, w, c));
      },
      Shape{n}, Shape{rows}, Shape{n});
  const PlanOptions options{.levels = {of_loop, 1, of_vjp}, .loop = of_loop};
  const double k = n;
  EXPECT_LE(Plan(f, options).flops(of_loop, of_loop), k * k + 8 * k);
  expect_equals_naive(f, {random.array({n}), random.array({rows}, 0.5, 1.5), random.array({n})}, 1e-11, options);
}

RC_GTEST_PROP(Plan, RunsFromAnyLevelToAnyLevelEqualTheNaiveInterpreter, (std::uint64_t seed)) {
  Random random(seed);
  const std::int64_t rows = random.integer(1, 60), n = random.integer(1, 5);
  const Array A = random.array({rows, n}), y = random.array({rows});
  const Function f = traced(
      [&](Expr x, Expr w, Expr c, Expr s) {
        const Expr v = sum(w * softplus(-y * matmul(A, x))) + 0.1 * sum(square(x));
        const Expr next = x - solve(cholesky(hessian(v, x)), grad(v, x));
        return std::tuple(w, sum(w) * w, v, next, vjp(next, w, c), c, s * next + tanh(s));
      },
      Shape{n}, Shape{rows}, Shape{n}, Shape{});
  std::vector<int> levels;
  for (int i = 0; i < 4; ++i) levels.push_back(static_cast<int>(random.integer(0, 4)));
  const auto [x, w, c, s] = std::tuple(levels[0], levels[1], levels[2], levels[3]);
  const std::vector<int> level_of{w, w, std::max(x, w), std::max(x, w), std::max({x, w, c}), c, std::max({x, w, s})};
  const Plan plan(f, {.levels = levels, .loop = random.one_of(levels)});
  Workspace workspace = plan.workspace();
  workspace.poison();
  std::vector<Array> inputs{random.array({n}), random.array({rows}, 0.1, 1.0), random.array({n}), random.array({})};
  for (int run = 0; run < 12; ++run) {
    const auto which = static_cast<std::size_t>(random.integer(0, 3));
    inputs[which] = random.array(inputs[which].shape(), 0.1, 1.0);
    const int last = static_cast<int>(random.integer(0, 5));
    Outputs out(f);
    std::vector<std::span<double>> spans = out.spans;
    for (std::size_t i = 0; i < spans.size(); ++i)
      if (level_of[i] > last && random.flip()) spans[i] = {};
    plan.run(workspace, inputs, spans, levels[which], last);
    const auto expected = naive::interpret(f, inputs);
    for (std::size_t i = 0; i < spans.size(); ++i)
      for (std::size_t k = 0; k < out.values[i].size(); ++k)
        if (level_of[i] > last)
          RC_ASSERT(std::isnan(out.values[i][k]));
        else
          RC_ASSERT(std::abs(out.values[i][k] - expected[i].values()[k]) <= 1e-9 * (1 + std::abs(expected[i].values()[k])));
  }
}

// memory and threads

TEST(Plan, NewtonMapAndVjpOfALargeProblemNeedLittleMemory) {
  const std::int64_t rows = 20000, n = 1000;
  // The data are never read here: a view of nothing would do, but sanitizers should see real memory.
  const Array A = zeros({rows, n}), y = zeros({rows});
  const Plan plan(newton(A, y));
  EXPECT_LE(plan.workspace_bytes(), 40'000'000U);
}

TEST(Plan, BuffersOfAChainAreUsedAgain) {
  const std::int64_t n = 100000;
  const Function f = traced(
      [&](Expr x) {
        Expr y = x;
        for (int k = 0; k < 20; ++k) y = concat({slice(y, 1, n), slice(y, 0, 1)});  // cannot be fused
        return y;
      },
      Shape{n});
  EXPECT_LE(Plan(f).workspace_bytes(), 4U * 8U * static_cast<std::size_t>(n));
}

TEST(PlanThreads, ResultsHaveTheSameBitsForAnyNumberOfThreads) {
  Random random(8);
  const int found = threads();
  for (const auto& [rows, n] : {std::pair<std::int64_t, std::int64_t>{20000, 6}, {9000, 60}, {2500, 420}}) {
    const Array A = random.array({rows, n}), y = random.array({rows});
    const Function f = newton(A, y);
    const std::vector<Array> inputs = newton_inputs(random, rows, n);
    std::vector<std::vector<std::vector<double>>> runs;
    for (const int count : {1, 2, 3}) {
      set_threads(count);
      runs.push_back(run_poisoned(f, inputs));
    }
    EXPECT_EQ(runs[0], runs[1]) << rows << " x " << n;
    EXPECT_EQ(runs[0], runs[2]) << rows << " x " << n;
  }
  set_threads(found);
}

TEST(PlanThreads, OnePlanRunsConcurrentlyWithAWorkspaceForEachThread) {
  Random random(9);
  const std::int64_t rows = 3000, n = 30;
  const Array A = random.array({rows, n}), y = random.array({rows});
  const Function f = newton(A, y);
  const Plan plan(f);
  std::vector<std::vector<Array>> inputs;
  for (int t = 0; t < 4; ++t) inputs.push_back(newton_inputs(random, rows, n));
  std::vector<std::vector<std::vector<double>>> expected, found(inputs.size());
  for (const auto& in : inputs) expected.push_back(run_poisoned(f, in));
  std::vector<std::thread> workers;
  for (std::size_t t = 0; t < inputs.size(); ++t)
    workers.emplace_back([&, t] {
      Workspace workspace = plan.workspace();
      Outputs out(f);
      for (int k = 0; k < 5; ++k) plan.run(workspace, inputs[t], out.spans);
      found[t] = out.values;
    });
  for (std::thread& w : workers) w.join();
  EXPECT_EQ(found, expected);
}

// bad input and bad luck

TEST(Plan, UnboundAndMisshapenInputsAreErrors) {
  const Function f = traced([](Expr x, Expr w) { return sum(x) * w; }, Input{"x", {3}}, Input{"w", {2}});
  const Plan plan(f);
  Workspace workspace = plan.workspace();
  Outputs out(f);
  const auto message = [&](const std::vector<Array>& inputs, std::span<const std::span<double>> outputs) -> std::string {
    try {
      plan.run(workspace, inputs, outputs);
    } catch (const Error& e) { return e.what(); }
    return "no error";
  };
  EXPECT_EQ(message({zeros({3})}, out.spans), "[run] 1 inputs are bound, the function has 2");
  EXPECT_EQ(message({zeros({3}), zeros({3})}, out.spans), "[run] input w has shape (3), the function was traced for (2)");
  EXPECT_EQ(message({zeros({3}), zeros({2})}, {}), "[run] memory for 0 results, the function has 1");
  std::vector<double> three(3);
  const std::vector<std::span<double>> wrong{three};
  EXPECT_EQ(message({zeros({3}), zeros({2})}, wrong), "[run] result 0 has shape (2), memory for 3 entries was given");
  Workspace other = Plan(f).workspace();
  EXPECT_THROW(plan.run(other, std::vector<Array>{zeros({3}), zeros({2})}, out.spans), Error);
  EXPECT_THROW(Plan(f, {.levels = {0}}), Error);
  EXPECT_THROW(plan.run(workspace, {zeros({3}), zeros({2})}, {out.spans[0]}, -1), Error);
  Workspace moved = std::move(workspace);
  EXPECT_THROW(plan.run(workspace, {zeros({3}), zeros({2})}, {out.spans[0]}), Error);  // NOLINT(bugprone-use-after-move)
  EXPECT_THROW((void)workspace.failed(), Error);                                       // NOLINT(bugprone-use-after-move)
  EXPECT_THROW(Plan(f, {.levels = {0, -1}}), Error);
}

TEST(Plan, NotANumberAndInfinityAreCarriedThroughEveryElementwiseOperation) {
  const std::vector<double> special{nan, inf, -inf, 0.0, -0.0, 1e308, -1e308, 5e-324, 750.0, -750.0, 1.0, 2.0, -3.0};
  std::vector<double> many;
  for (int k = 0; k < 50; ++k) many.insert(many.end(), special.begin(), special.end());
  const Array x(Shape{static_cast<std::int64_t>(many.size())}, many);
#define ONESTEP_UNARY(op_name, ...)                                                        \
  {                                                                                        \
    SCOPED_TRACE(#op_name);                                                                \
    expect_equals_naive(traced([](Expr a) { return op_name(a); }, x.shape()), {x}, 1e-14); \
  }
#include "onestep/operations.def"
}

TEST(Plan, NotANumberReachesEveryResultThatDependsOnIt) {
  Random random(11);
  for (const std::int64_t n : {4, 30}) {
    const Array A = random.array({100, n}), y = random.array({100});
    std::vector<Array> inputs = newton_inputs(random, 100, n);
    std::vector<double> w(100, 1.0);
    w[57] = nan;
    inputs[1] = Array(Shape{100}, w);
    const auto out = run_poisoned(newton(A, y), inputs);
    for (std::size_t i = 0; i < 3; ++i)
      for (const double v : out[i]) EXPECT_TRUE(std::isnan(v)) << "result " << i;
  }
}

TEST(Plan, AMatrixThatCannotBeFactoredSetsAFlagAndGivesNaN) {
  const Function f = traced(
      [](Expr m, Expr b) {
        return std::tuple(solve(cholesky(m), b), logdet(cholesky(m)), solve(lu(m), b), solve(ldlt(m), b));
      },
      Shape{2, 2}, Shape{2});
  const Plan plan(f);
  Workspace workspace = plan.workspace();
  Outputs out(f);
  const Array b{1.0, 2.0};
  plan.run(workspace, std::vector<Array>{Array{{2.0, 1.0}, {1.0, 2.0}}, b}, out.spans);
  EXPECT_FALSE(workspace.failed());
  plan.run(workspace, std::vector<Array>{Array{{1.0, 2.0}, {2.0, 1.0}}, b}, out.spans);  // indefinite: Cholesky only
  EXPECT_TRUE(workspace.failed());
  EXPECT_TRUE(std::isnan(out.values[0][0]) && std::isnan(out.values[1][0]));
  EXPECT_NEAR(out.values[2][0], 1.0, 1e-15);
  EXPECT_NEAR(out.values[3][0], 1.0, 1e-15);
  plan.run(workspace, std::vector<Array>{Array{{1.0, 1.0}, {1.0, 1.0}}, b}, out.spans);  // singular
  EXPECT_TRUE(workspace.failed());
  for (const auto& values : out.values) EXPECT_TRUE(std::isnan(values[0]));
  plan.run(workspace, std::vector<Array>{Array{{nan, 1.0}, {1.0, 1.0}}, b}, out.spans);
  EXPECT_TRUE(workspace.failed());
  plan.run(workspace, std::vector<Array>{Array{{2.0, 0.0}, {0.0, 2.0}}, b}, out.spans);
  EXPECT_FALSE(workspace.failed()) << "a later run that succeeds clears the flag";
}

TEST(Plan, StridedInputsAreUsed) {
  const std::vector<double> memory{1, 2, 3, 4, 5, 6, 7, 8};
  const Function f = traced([](Expr m) { return std::pair(matmul(m, Array{1.0, 10.0}), sum(square(m))); }, Shape{2, 2});
  for (const MatrixView& v :
       {MatrixView{memory.data(), 2, 2, 4, 1}, MatrixView{memory.data(), 2, 2, 1, 2}, MatrixView{memory.data(), 2, 2, 4, 2}})
    expect_equals_naive(f, {Array::view(v)});
}

TEST(Plan, AMillionNodesArePlannedAndRun) {
  const int count = std::getenv("ONESTEP_LONG") != nullptr ? 500000 : 100000;
  const Function f = traced(
      [&](Expr x) {
        Expr y = x;
        for (int k = 0; k < count; ++k) y = sigmoid(y) + x;
        return sum(y);
      },
      Shape{4});
  EXPECT_GE(f.flops(), 2.0 * count);
  const Array x{0.1, 0.2, 0.3, 0.4};
  expect_equals_naive(f, {x}, 1e-12);
}

}  // namespace
}  // namespace onestep
