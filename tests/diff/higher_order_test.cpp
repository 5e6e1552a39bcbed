// Jacobians, Hessians and products with them against each other and against closed forms; derivatives of derivatives; graphs
// of a million nodes.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>

#include "diff/corpus.h"
#include "onestep/diff.h"
#include "support/random.h"
#include "support/run.h"

namespace onestep::test {
namespace {

TEST(HigherOrder, GradOfGradOfGradOfAPolynomial) {
  const Arrays d = values_of({Array(2.0)}, [](const Exprs& in) {
    const Expr x = in[0];
    const Expr f = pow(x, 5.0) - 2.0 * x;
    const Expr g1 = grad(f, x), g2 = grad(g1, x), g3 = grad(g2, x), g4 = grad(g3, x), g5 = grad(g4, x), g6 = grad(g5, x);
    return Exprs{g1, g2, g3, g4, g5, g6};
  });
  const std::vector<double> expected{78, 160, 240, 240, 120, 0};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(d[i].item(), expected[i], 1e-12 * 240);
}

TEST(HigherOrder, ForwardAndReverseNestInAnyOrder) {
  const Array x{0.3, -0.7, 1.1}, v{1.0, 2.0, -1.0};
  const Arrays d = values_of({x, v}, [](const Exprs& in) {
    const auto f = [](const Expr& e) { return sum(exp(e) * square(e)); };
    const auto along = [&](const Expr& y) { return jvp(y, in[0], in[1]); };
    const auto back = [&](const Expr& y) { return matmul(grad(y, in[0]), in[1]); };
    const Expr y = f(in[0]);
    return Exprs{along(along(along(y))), back(back(back(y))), along(back(along(y))), back(along(back(y))),
                 along(along(back(y)))};
  });
  double expected = 0;
  for (std::int64_t i = 0; i < 3; ++i) expected += std::exp(x(i)) * (x(i) * x(i) + 6 * x(i) + 6) * std::pow(v(i), 3);
  for (const Array& each : d) EXPECT_NEAR(each.item(), expected, 1e-13 * std::fabs(expected));
}

TEST(HigherOrder, HessianOfAQuadraticIsItsMatrix) {
  const Array Q{{2.0, 1.0, 0.0}, {1.0, 3.0, -1.0}, {0.0, -1.0, 4.0}};
  const Array H = value_of({zeros({3})}, [&](const Exprs& x) { return hessian(0.5 * matmul(x[0], matmul(Q, x[0])), x[0]); });
  EXPECT_TRUE(near(H, Q));
}

// Of softmax: diag(p) - p pᵀ, though the largest entry is taken out as a constant.
TEST(HigherOrder, HessianOfLogSumExpIsThatOfSoftmax) {
  for (const double far : {0.0, 700.0, -700.0}) {
    const Array x{far + 0.3, far - 0.4, far + 0.1};
    const Array H = value_of({x}, [](const Exprs& in) { return hessian(log_sum_exp(in[0], 0), in[0]); });
    double total = 0;
    for (std::int64_t i = 0; i < 3; ++i) total += std::exp(x(i) - far);
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t j = 0; j < 3; ++j) {
        const double p = std::exp(x(i) - far) / total, q = std::exp(x(j) - far) / total;
        EXPECT_NEAR(H(i, j), (i == j ? p : 0) - p * q, 1e-13);
      }
  }
}

TEST(HigherOrder, JacobianHasARowForEachResultAndAColumnForEachArgument) {
  const Array M{{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}}, x{1.0, -1.0, 2.0};
  EXPECT_TRUE(near(value_of({x}, [&](const Exprs& in) { return jacobian(matmul(M, in[0]), in[0]); }), M));
  // Numbers drop out of the shape.
  EXPECT_TRUE(
      near(value_of({x}, [](const Exprs& in) { return jacobian(sum(square(in[0])), in[0]); }), Array{2.0, -2.0, 4.0}));
  EXPECT_TRUE(near(value_of({Array(2.0)}, [&](const Exprs& in) { return jacobian(in[0] * Expr(x), in[0]); }), x));
  EXPECT_EQ(value_of({Array(3.0)}, [](const Exprs& in) { return jacobian(square(in[0]), in[0]); }).item(), 6.0);
  // Entries of matrices are counted row by row: d(AX)/dX.
  const Array A{{1.0, 2.0}, {3.0, 4.0}};
  EXPECT_TRUE(near(value_of({zeros({2, 2})}, [&](const Exprs& in) { return jacobian(matmul(A, in[0]), in[0]); }),
                   Array{{1.0, 0.0, 2.0, 0.0}, {0.0, 1.0, 0.0, 2.0}, {3.0, 0.0, 4.0, 0.0}, {0.0, 3.0, 0.0, 4.0}}));
}

TEST(HigherOrder, JacobiansOfZeroSizeAndOfWhatDoesNotDependAreZero) {
  const auto shape_of = [](const Shape& y, const Shape& x) {
    Shape found;
    traced(
        [&](Expr in) {
          const Expr J = jacobian(broadcast(0.0, y), in);
          found = J.shape();
          return J;
        },
        x);
    return found;
  };
  EXPECT_EQ(shape_of({2}, {3}), (Shape{2, 3}));
  EXPECT_EQ(shape_of({0}, {3}), (Shape{0, 3}));
  EXPECT_EQ(shape_of({2}, {0}), (Shape{2, 0}));
  EXPECT_EQ(shape_of({2, 2}, {3, 1}), (Shape{4, 3}));
  EXPECT_EQ(shape_of({}, {3}), (Shape{3}));
  EXPECT_TRUE(near(value_of({ones({3})}, [](const Exprs& in) { return jacobian(exp(stop_gradient(in[0])), in[0]); }),
                   zeros({3, 3})));
}

TEST(HigherOrder, AnyExpressionCanBeTheArgument) {
  const Array d = value_of({Array{1.0, 2.0}}, [](const Exprs& in) {
    const Expr z = exp(in[0]);
    return grad(sum(square(z)), z);
  });
  EXPECT_TRUE(near(d, Array{2 * std::exp(1.0), 2 * std::exp(2.0)}));
}

TEST(HigherOrder, SeveralArgumentsMoveTogether) {
  const Arrays point{Array{1.0, 2.0}, Array(3.0), Array{0.5, -1.0}, Array(2.0)};
  const Arrays d = values_of(point, [](const Exprs& in) {
    const Exprs ys{in[0] * in[1], sum(square(in[0]))}, xs{in[0], in[1]}, vs{in[2], in[3]};
    const Exprs forward = jvp(ys, xs, vs), backward = vjp(ys, xs, Exprs{in[0], in[1]});
    return Exprs{forward[0], forward[1], backward[0], backward[1]};
  });
  EXPECT_TRUE(near(d[0], Array{3.5, 1.0}));
  EXPECT_TRUE(near(d[1], Array(-3.0)));
  EXPECT_TRUE(near(d[2], Array{9.0, 18.0}));
  EXPECT_TRUE(near(d[3], Array(5.0)));
}

// A vector function of vectors that goes through every operation the block form knows, and some it does not.
Expr winding(Random& random, const Expr& x, std::int64_t steps) {
  const std::int64_t n = x.shape()[0];
  Expr v = x;
  for (std::int64_t i = 0; i < steps; ++i) {
    const std::int64_t cut = random.integer(0, n);
    switch (random.integer(0, 9)) {
      case 0: v = tanh(matmul(Expr(random.array({n, n}, -1, 1)), v)); break;
      case 1: v = v * sum(v); break;
      case 2: v = concat({slice(v, cut, n), Expr(ones({cut}))}); break;
      case 3: v = pad(slice(v, 0, cut), n - cut, n); break;
      case 4: v = where(greater(v, 0.1), square(v), -v); break;
      case 5: v = solve(lu(Expr(random.array({n, n}, -1, 1)) + 4.0 * eye(n)), v); break;
      case 6: v = maximum(v, 0.2) / (1.0 + square(x)); break;
      case 7: v = v + broadcast(reshape(sum(v * x), {1}), {n}); break;
      case 8: v = matmul(outer(v, x) + eye(n), v); break;
      default: v = reshape(max(outer(v, x), Axis{1}), {n});
    }
  }
  return v;
}

RC_GTEST_PROP(HigherOrder, JacobianColumnsAreJvpsAndRowsAreVjps, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  const std::int64_t n = random.integer(1, 5), steps = random.integer(1, 8);
  const Arrays point{random.array({n}, -1, 1), random.array({n}, -1, 1)};
  const Function f = function_of(std::vector<Shape>{{n}, {n}}, [&](const Exprs& in) {
    const Expr y = winding(random, in[0], steps), J = jacobian(y, in[0]);
    return Exprs{matmul(J, in[1]), jvp(y, in[0], in[1]), matmul(transpose(J), in[1]), vjp(y, in[0], in[1])};
  });
  RC_LOG(f.text());
  const Arrays d = naive::interpret(f, point);
  const double scale = std::max(largest_entry(d[0]), largest_entry(d[2]));
  RC_ASSERT(bool(near(d[0], d[1], 1e-12, scale)));
  RC_ASSERT(bool(near(d[2], d[3], 1e-12, scale)));
}

TEST(HigherOrder, HessianTimesAVectorIsHvpOnTheCorpus) {
  for (const CorpusEntry& entry : corpus(3)) {
    Random random(5);
    const Array v = random.array(entry.point[0].shape());
    Arrays inputs = entry.point;
    inputs.push_back(v);
    const Arrays d = values_of(inputs, [&](const Exprs& in) {
      const Expr y = entry.function(std::span(in).first(in.size() - 1)).front();
      const Expr H = hessian(y, in[0]), flat = reshape(in.back(), {in.back().shape().size()});
      return Exprs{matmul(H, flat), reshape(hvp(y, in[0], in.back()), flat.shape()), H, transpose(H)};
    });
    EXPECT_TRUE(near(d[0], d[1], 1e-12)) << entry.name;
    EXPECT_TRUE(near(d[2], d[3], 1e-12)) << entry.name;
  }
}

// --- size

TEST(MillionNodes, AreBuiltDifferentiatedCountedAndPrintedWithoutRecursion) {
  // 200,000 frames of any recursive function under the sanitizers are more than a stack of 8 MB holds; the million is for
  // the full set.
  const int steps = std::getenv("ONESTEP_LONG") != nullptr ? 1'000'000 : 200'000;
  const Function f = traced(
      [&](Expr x, Expr c) {
        Expr y = square(x);
        for (int i = 1; i < steps; ++i) y = y + c;
        return std::pair(y, grad(y, x));
      },
      Input{"x", {}}, Input{"c", {}});
  EXPECT_GE(graph_of(f)->size(), steps);
  EXPECT_GE(f.flops(), steps);
  EXPECT_GT(f.text().size(), static_cast<std::size_t>(steps));
  const Arrays y = naive::interpret(f, Arrays{Array(3.0), Array(1.0 / steps)});
  EXPECT_NEAR(y[0].item(), 10.0 - 1.0 / steps, 1e-9);
  EXPECT_EQ(y[1].item(), 6.0);
}

TEST(MillionNodes, DerivativesOfLongChainsAreBuiltBothWaysAndUsedInsideAnotherFunction) {
  constexpr int steps = 10'000;
  const Function chain = traced(
      [](Expr x) {
        Expr y = x;
        for (int i = 0; i < steps; ++i) y = 1.00001 * y - 1e-6 * exp(y);
        return y;
      },
      Shape{});
  const Function f = traced(
      [&](Expr x) {
        const Expr y = chain(Exprs{x}).front();
        return std::pair(grad(y, x), jvp(y, x, 1.0));
      },
      Shape{});
  EXPECT_GE(graph_of(f)->size(), 6 * steps);
  const Arrays d = naive::interpret(f, Arrays{Array(0.1)});
  EXPECT_TRUE(near(d[0], d[1], 1e-10));
}

}  // namespace
}  // namespace onestep::test
