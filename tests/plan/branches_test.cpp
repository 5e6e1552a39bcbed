// Branches: several derivatives at one point, each computed only when it is asked for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "onestep/onestep.h"

namespace onestep {
namespace {

Function newton_with_derivatives(const Array& a, std::int64_t n, std::int64_t rows) {
  return traced(
      [&](Expr x, Expr w, Expr c, Expr d) {
        const Expr f = sum(w * softplus(matmul(a, x))) + 0.5 * sum(square(x));
        const Expr next = x - solve(cholesky(hessian(f, x)), grad(f, x));
        return std::tuple{next, vjp(next, w, c), vjp(next, x, c * 1.0), jvp(next, x, d)};
      },
      Input{"x", {n}}, Input{"w", {rows}}, Input{"c", {n}}, Input{"d", {n}});
}

Array waves(std::int64_t rows, std::int64_t n) {
  std::vector<double> entries;
  for (std::int64_t i = 0; i < n * rows; ++i) entries.push_back(std::sin(1.7 * static_cast<double>(i)));
  return {Shape{rows, n}, entries};
}

TEST(Branches, ComputeWhatIsAskedForAtThePointOfTheLoop) {
  constexpr std::int64_t n = 4, rows = 50;
  const Array a = waves(rows, n);
  const Function f = newton_with_derivatives(a, n, rows);
  const Plan plan(f, {.levels = {2, 1, 4, 5}, .loop = 2, .branches = 4});
  Workspace workspace = plan.workspace();
  workspace.poison();
  const Array w = ones({rows}), c{1.0, -2.0, 0.5, 3.0}, d{0.1, 0.2, 0.3, 0.4};
  std::vector<double> x(n, 0.3), next(n), of_w(rows), of_x(n), along(n);
  for (int k = 0; k < 3; ++k) {
    const Array at(Shape{n}, x);
    const std::vector<Array> expected = evaluate(f, {at, w, c, d});
    plan.run(workspace, {at, w, c, d}, {next, {}, {}, {}}, k == 0 ? 1 : 2, 3);
    for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(next[i], expected[0].values()[i], 1e-13 * std::fabs(next[i]));
    if (k == 1) continue;  // not asked for at this point
    plan.run(workspace, {at, w, c, d}, {{}, {}, {}, along}, 5, 5);
    plan.run(workspace, {at, w, c, d}, {{}, of_w, of_x, {}}, 4, 4);
    for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(along[i], expected[3].values()[i], 1e-12);
    for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(of_x[i], expected[2].values()[i], 1e-12);
    for (std::size_t i = 0; i < rows; ++i) EXPECT_NEAR(of_w[i], expected[1].values()[i], 1e-12);
    x = next;
  }
}

TEST(Branches, ALoopDoesNotPayForThem) {
  constexpr std::int64_t n = 4, rows = 50;
  const Array a = full({rows, n}, 0.5);
  const Plan branched(newton_with_derivatives(a, n, rows), {.levels = {2, 1, 4, 5}, .loop = 2, .branches = 4});
  const Plan alone(traced(
                       [&](Expr x, Expr w) {
                         const Expr f = sum(w * softplus(matmul(a, x))) + 0.5 * sum(square(x));
                         return x - solve(cholesky(hessian(f, x)), grad(f, x));
                       },
                       Shape{n}, Shape{rows}),
                   {.levels = {2, 1}});
  EXPECT_EQ(branched.flops(2, 2), alone.flops(2));
  EXPECT_LT(branched.flops(4, 4), 2 * n * rows + 2 * n * n * rows + 40 * rows);
}

// With a matrix too large for the cache, A d is made where A is walked over anyway, and nothing before.
TEST(Branches, ShareWalksOverLargeMatrices) {
  constexpr std::int64_t n = 200, rows = 1400;
  const Array a = waves(rows, n);
  const Function f = newton_with_derivatives(a, n, rows);
  const Plan plan(f, {.levels = {2, 1, 4, 5}, .loop = 2, .branches = 4});
  EXPECT_LT(plan.flops(3, 3), n * rows);
  EXPECT_GT(plan.flops(5, 5), 4 * n * rows);
  Workspace workspace = plan.workspace();
  workspace.poison();
  std::vector<double> x(n, 0.01), next(n), of_w(rows), of_x(n), along(n);
  const Array at(Shape{n}, x), w = ones({rows}), c = full({n}, 0.5), d = full({n}, 0.1);
  const std::vector<Array> expected = evaluate(f, {at, w, c, d});
  plan.run(workspace, {at, w, c, d}, {next, {}, {}, {}}, 1, 3);
  plan.run(workspace, {at, w, c, d}, {{}, of_w, of_x, {}}, 4, 4);
  plan.run(workspace, {at, w, c, d}, {{}, {}, {}, along}, 5, 5);
  // `size`: of the terms that may cancel.
  const auto expect_near = [](const std::vector<double>& y, const Array& z, double size = 0) {
    for (const double e : z.values()) size = std::max(size, std::fabs(e));
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], z.values()[i], 1e-12 * size) << i;
  };
  expect_near(next, expected[0]);
  expect_near(of_w, expected[1]);
  expect_near(of_x, expected[2], 0.5);
  expect_near(along, expected[3], 0.1);
}

TEST(Branches, BeginAboveTheLoop) {
  const Function f = traced([](Expr x, Expr c) { return std::pair{x * x, x * c}; }, Shape{2}, Shape{2});
  EXPECT_THROW(Plan(f, {.levels = {2, 3}, .loop = 2, .branches = 3}), Error);
}

// A result of a branch that is not wanted in one run is not written where it was wanted in the run before.
TEST(Branches, AResultThatIsNotWantedIsWrittenNowhere) {
  const Function f = traced([](Expr x, Expr c) { return std::pair{2.0 * x * c, 3.0 * x * c}; }, Shape{3}, Shape{3});
  const Plan plan(f, {.levels = {0, 2}, .loop = 0, .branches = 2});
  Workspace workspace = plan.workspace();
  const std::vector<Array> inputs{Array{1.0, 2.0, 3.0}, ones({3})};
  std::vector<double> first(3), second(3);
  plan.run(workspace, inputs, std::vector<std::span<double>>{first, second}, 0, 2);
  EXPECT_EQ(second, (std::vector<double>{3, 6, 9}));
  second.assign(3, -1);
  plan.run(workspace, inputs, std::vector<std::span<double>>{first, {}}, 2, 2);
  EXPECT_EQ(first, (std::vector<double>{2, 4, 6}));
  EXPECT_EQ(second, (std::vector<double>{-1, -1, -1}));
}

}  // namespace
}  // namespace onestep
