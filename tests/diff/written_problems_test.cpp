// check_gradients on what problems are written with: entries and ranges, reductions, and operations made of others; the
// derivatives chosen where there is none; and what derivatives of chosen entries cost.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "diff/cases.h"
#include "onestep/diff.h"
#include "onestep/operations.h"
#include "onestep/plan.h"

namespace onestep::test {
namespace {

constexpr double unbounded = std::numeric_limits<double>::infinity();

int any_axis(Random& random, const Shape& s) { return s.rank() == 2 ? static_cast<int>(random.integer(-2, 1)) : 0; }

CASE(EntriesAndRows) {
  const std::int64_t n = random.integer(1, 5), m = random.integer(1, 4), i = random.integer(-n, n - 1);
  return {{Shape{n}, Shape{n, m}}, [=](const Exprs& x) { return x[0][i] * x[1][i] + x[1][i][m - 1]; }};
}
CASE(Ranges) {
  const std::int64_t n = random.extent(), begin = random.integer(0, n), end = random.integer(begin, n);
  return {{Shape{n}}, [=](const Exprs& x) {
            return concat({x[0][{begin, end}], x[0][Range::from(begin)], x[0][Range::to(end)]});
          }};
}
CASE(StackedNumbersAndVectors) {
  const Shape s = random.vector();
  const int axis = static_cast<int>(random.integer(-2, 1));
  return {{s, s, Shape{}, Shape{}}, [=](const Exprs& x) {
            return stack({x[0], exp(x[1]), x[0]}, axis) + sum(stack({x[2], x[3], x[2] * x[3]}));
          }};
}
CASE(GatheredEntriesSomeOfThemTwice) {
  const Shape s = random.flip() ? random.vector() : random.matrix();
  const int axis = any_axis(random, s);
  const std::int64_t n = s[axis < 0 ? axis + s.rank() : axis];
  std::vector<std::int64_t> indices;
  if (n > 0)
    for (std::int64_t k = random.extent(); k-- > 0;) indices.push_back(random.integer(-n, n - 1));
  return {{s}, [=](const Exprs& x) { return gather(x[0], indices, axis); }};
}
CASE(Reverse) {
  const Shape s = random.flip() ? random.vector() : random.matrix();
  const int axis = any_axis(random, s);
  return {{s}, [=](const Exprs& x) { return reverse(x[0], axis) * x[0]; }};
}
CASE(RunningSums) {
  const Shape s = random.flip() ? random.vector() : random.matrix();
  const int axis = any_axis(random, s);
  return {{s}, [=](const Exprs& x) { return cumsum(exp(x[0]), axis); }};
}
CASE(Mean) {
  const Shape s{random.integer(1, 4), random.integer(1, 4)};
  const int axis = any_axis(random, s);
  return {{s}, [=](const Exprs& x) { return mean(x[0], axis) + mean(x[0]); }};
}
CASE(DotOfVectors) {
  const Shape s = random.vector();
  return {{s, s}, [](const Exprs& x) { return dot(x[0], sin(x[1])); }};
}
CASE(ProductsOfEntries) {
  const Shape s = random.matrix();
  const int axis = any_axis(random, s);
  return {{s}, [=](const Exprs& x) { return prod(x[0], axis) + prod(x[0]); }};
}
CASE(TraceOfAProduct) {
  const std::int64_t n = random.extent(), k = random.extent();
  return {{Shape{n, k}, Shape{k, n}}, [](const Exprs& x) { return trace(matmul(x[0], x[1])); }};
}
CASE(InverseAndDeterminant) {
  const std::int64_t n = random.extent();
  return {{Shape{n, n}}, [=](const Exprs& x) {
            const Expr M = x[0] + 3.0 * eye(n);
            return inverse(M) + det(M) / std::pow(3.0, n);
          }};
}
CASE(HyperbolicAndInverseFunctions) {
  const Shape s = random.number_vector_or_matrix();
  return {{s}, [](const Exprs& x) { return asin(0.5 * x[0]) + acos(0.5 * x[0]) * sinh(x[0]) + cosh(x[0]) * tan(x[0]); }};
}
CASE(LogSumExpOfAllEntriesAndAlongAnAxis) {
  const Shape s{random.integer(1, 4), random.integer(1, 4)};
  const int axis = any_axis(random, s);
  return {{s}, [=](const Exprs& x) { return log_sum_exp(x[0]) + log_sum_exp(x[0], axis); }};
}

// Away from zero, so that norms are smooth.
TEST(EveryModeAgreesOn, Norm) {
  check_structural(
      [](Random& random) {
        const Shape s{random.integer(1, 4), random.integer(1, 4)};
        const int axis = static_cast<int>(random.integer(-2, 1));
        return Case{{s}, [=](const Exprs& x) { return norm(x[0]) + norm(x[0], Axis{axis}) + norm(x[0][0]); }};
      },
      [](Random& r, const Shape& s) { return r.array(s, 0.5, 2); });
}
// Entries that are apart, so that neither a tie nor a bound is near.
TEST(EveryModeAgreesOn, MinMaxReluAndClip) {
  check_structural(
      [](Random& random) {
        const std::int64_t n = random.integer(1, 5);
        return Case{{Shape{n}}, [](const Exprs& x) { return (min(x[0]) + max(x[0])) * relu(x[0]) + clip(x[0], -1.1, 1.1); }};
      },
      [](Random& r, const Shape& s) {
        std::vector<double> entries;
        for (std::int64_t i = 0; i < s.size(); ++i) entries.push_back(-2 + static_cast<double>(i) + r.uniform(0.3, 0.6));
        return Array(s, entries);
      });
}

// --- where there is no derivative

// First, second and third derivatives of f by its vector argument, in all modes that make a vector of them.
Arrays up_to_third_order(const Array& x, const std::function<Expr(const Expr&)>& f) {
  const Function all = traced(
      [&](Expr in) {
        const Expr g = grad(f(in), in), direction = ones(x.size()), h = hvp(f(in), in, direction);
        return std::vector<Expr>{g, h, matmul(hessian(f(in), in), direction), jvp(h, in, direction), vjp(h, in, direction)};
      },
      x.shape());
  return evaluate(all, {x});
}

TEST(WithoutDerivative, NormAndHypotHaveZeroAtZeroToAllOrders) {
  for (const Array& d : up_to_third_order(zeros(3), [](const Expr& x) { return norm(x); })) EXPECT_TRUE(near(d, zeros(3)));
  for (const Array& d : up_to_third_order(zeros(2), [](const Expr& x) { return hypot(x[0], x[1]); }))
    EXPECT_TRUE(near(d, zeros(2)));
  // A row that is zero does not disturb the others.
  const Array A{{0.0, 0.0}, {3.0, 4.0}};
  EXPECT_TRUE(near(value_of({A}, [](const Exprs& x) { return grad(sum(norm(x[0], Axis{1})), x[0]); }),
                   Array{{0.0, 0.0}, {0.6, 0.8}}));
}

TEST(WithoutDerivative, AtKinksReluTakesZeroAndClipItsArgument) {
  const auto slope = [](double at, const std::function<Expr(const Expr&)>& f) {
    return value_of({Array(at)}, [&](const Exprs& x) { return grad(f(x[0]), x[0]); }).item();
  };
  EXPECT_EQ(slope(0.0, [](const Expr& x) { return relu(x); }), 0);
  EXPECT_EQ(slope(-0.0, [](const Expr& x) { return relu(x); }), 0);
  EXPECT_EQ(slope(1e-300, [](const Expr& x) { return relu(x); }), 1);
  for (const double at : {-1.0, 0.0, 1.0}) EXPECT_EQ(slope(at, [](const Expr& x) { return clip(x, -1.0, 1.0); }), 1);
  for (const double at : {-1.1, 1.1}) EXPECT_EQ(slope(at, [](const Expr& x) { return clip(x, -1.0, 1.0); }), 0);
  EXPECT_EQ(slope(1.0, [](const Expr& x) { return clip(0.5, 0.0, x); }), 0);
  EXPECT_EQ(slope(0.25, [](const Expr& x) { return clip(0.5, 0.0, x); }), 1);
  // Ties of min share equally, as those of max do.
  EXPECT_TRUE(
      near(value_of({Array{1.0, 2.0, 1.0}}, [](const Exprs& x) { return grad(min(x[0]), x[0]); }), Array{0.5, 0.0, 0.5}));
}

TEST(WithoutDerivative, ThatOfRootsAndInverseSinesIsInfiniteAndThatOfAnAngleAtZeroIsNaN) {
  const auto slope = [](double at, const std::function<Expr(const Expr&)>& f) {
    return value_of({Array(at)}, [&](const Exprs& x) { return grad(f(x[0]), x[0]); }).item();
  };
  EXPECT_EQ(slope(0.0, [](const Expr& x) { return cbrt(x); }), unbounded);
  EXPECT_EQ(slope(1.0, [](const Expr& x) { return asin(x); }), unbounded);
  EXPECT_EQ(slope(-1.0, [](const Expr& x) { return acos(x); }), -unbounded);
  EXPECT_TRUE(std::isnan(slope(0.0, [](const Expr& x) { return atan2(x, 0.0); })));
  EXPECT_EQ(slope(0.0, [](const Expr& x) { return atan2(x, 2.0); }), 0.5);
}

TEST(Derivatives, OfProductsAreExactWhereEntriesAreZero) {
  const auto gradient = [](const Array& x) {
    return value_of({x}, [](const Exprs& in) { return grad(prod(in[0]), in[0]); });
  };
  EXPECT_TRUE(near(gradient({2.0, 0.0, 5.0}), Array{0.0, 10.0, 0.0}));
  EXPECT_TRUE(near(gradient({0.0, 0.0, 5.0}), Array{0.0, 0.0, 0.0}));
  EXPECT_TRUE(near(value_of({Array{0.0, 0.0, 5.0}}, [](const Exprs& in) { return hessian(prod(in[0]), in[0]); }),
                   Array{{0.0, 5.0, 0.0}, {5.0, 0.0, 0.0}, {0.0, 0.0, 0.0}}));
}

TEST(Derivatives, AreSafeAtTheEndsOfTheRange) {
  for (const double size : {1e-300, 1e-200, 1.0, 1e200, 1e300}) {
    const Array x{3 * size, 4 * size};
    EXPECT_TRUE(near(value_of({x}, [](const Exprs& in) { return grad(norm(in[0]), in[0]); }), Array{0.6, 0.8}, 1e-15))
        << size;
    EXPECT_TRUE(
        near(value_of({x}, [](const Exprs& in) { return grad(hypot(in[0][0], in[0][1]), in[0]); }), Array{0.6, 0.8}, 1e-15))
        << size;
    const Array angle = value_of({x}, [](const Exprs& in) { return grad(atan2(in[0][0], in[0][1]), in[0]); });
    EXPECT_TRUE(near(angle * size, Array{0.16, -0.12}, 1e-14)) << size;
  }
}

// --- costs

TEST(Cost, OfTheDerivativeByChosenEntriesIsTheirNumber) {
  const std::int64_t n = 10000, k = 50;
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < k; ++i) indices.push_back(i * i % n);
  traced(
      [&](Expr x) {
        const Expr g = grad(sum(exp(gather(x, indices))), x);
        EXPECT_LE(flops(g), 20.0 * k);
        EXPECT_EQ(count_nodes({&g, 1}, [&](const Expr& e) { return e.shape().size() > n; }), 0);
        // Its Hessian is a diagonal, and a product with it costs no more than that.
        const Expr h = hessian(sum(exp(gather(x, indices))), x);
        EXPECT_TRUE(is(h, Op::diag)) << to_string(h);
        return x;
      },
      Shape{n});
}

TEST(Cost, OfTheTraceOfAProductIsThatOfItsDiagonal) {
  const std::int64_t n = 100;
  traced(
      [&](Expr A, Expr B) {
        EXPECT_LE(flops(trace(matmul(A, B))), 3.0 * n * n);
        EXPECT_LE(flops(grad(trace(matmul(A, B)), A)), 5.0 * n * n);
        return A;
      },
      Shape{n, n}, Shape{n, n});
}

TEST(Cost, OfGradientsOfReductionsIsLinear) {
  const std::int64_t n = 1000;
  traced(
      [&](Expr x) {
        EXPECT_LE(flops(grad(norm(x), x)), 12.0 * n);
        EXPECT_LE(flops(grad(prod(x), x)), 12.0 * n);
        EXPECT_LE(flops(grad(sum(square(cumsum(x))), x)), 6.0 * n);
        return x;
      },
      Shape{n});
}

}  // namespace
}  // namespace onestep::test
