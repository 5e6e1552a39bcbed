// What derivatives cost, counted on the graph: the structure of the matrix problem must survive differentiation.
#include <gtest/gtest.h>

#include "onestep/diff.h"
#include "support/random.h"
#include "support/run.h"

namespace onestep::test {
namespace {

struct Problem {
  std::string name;
  std::int64_t rows, n;
  bool penalise_all;
};
std::ostream& operator<<(std::ostream& out, const Problem& p) {
  return out << p.name << " N=" << p.rows << " n=" << p.n << (p.penalise_all ? "" : " penalty on x[1:]");
}

class WeightedLogistic : public ::testing::TestWithParam<Problem> {
 protected:
  WeightedLogistic() : N_(GetParam().rows), n_(GetParam().n) {
    Random random(7);
    A_ = random.array({N_, n_}, -1, 1);
    std::vector<double> y(static_cast<std::size_t>(N_));
    for (double& e : y) e = random.flip() ? 1.0 : -1.0;
    y_ = Array(Shape{N_}, y);
  }

  Expr objective(const Expr& x, const Expr& w) const {
    const Expr penalised = GetParam().penalise_all ? x : slice(x, 1, n_);
    return sum(w * softplus(-y_ * matmul(A_, x))) + 0.1 * sum(square(penalised));
  }
  Expr newton(const Expr& x, const Expr& w) const {
    const Expr f = objective(x, w);
    return x - solve(cholesky(hessian(f, x)), grad(f, x));
  }
  /// Calls `look` with the expressions for x and w of a traced function.
  void with_inputs(const std::function<void(Expr, Expr, Expr)>& look) const {
    traced(
        [&](Expr x, Expr w, Expr c) {
          look(x, w, c);
          return x;
        },
        Input{"x", {n_}}, Input{"w", {N_}}, Input{"c", {n_}});
  }
  int large_nodes(const std::vector<Expr>& results) const {
    return count_nodes(results, [&](const Expr& e) {
      return !is(e, Op::constant) && !is(e, Op::broadcast) && e.shape().size() >= N_ * n_ && N_ > n_;
    });
  }
  double N() const { return static_cast<double>(N_); }
  double n() const { return static_cast<double>(n_); }

  std::int64_t N_, n_;
  Array A_, y_;
};

TEST_P(WeightedLogistic, HessianIsOneSymmetricProduct) {
  with_inputs([&](Expr x, Expr w, Expr) {
    const Expr H = hessian(objective(x, w), x);
    EXPECT_EQ(count_nodes(H, Op::gram), 1) << to_string(H);
    EXPECT_EQ(count_nodes({&H, 1}, [](const Expr& e) { return is(e, Op::matmul) && e.shape().rank() == 2; }), 0);
    // The product itself, one product for Ax, scaling the rows; and a few operations for each sample.
    EXPECT_LE(flops(H), N() * n() * (n() + 1) / 2 + 2 * N() * n() + 40 * N() + n() * n() + 4 * n()) << to_string(H);
  });
}

TEST_P(WeightedLogistic, NothingAsLargeAsTheDataIsMade) {
  with_inputs([&](Expr x, Expr w, Expr c) {
    const Expr f = objective(x, w), step = newton(x, w);
    EXPECT_EQ(large_nodes({f, grad(f, x), hessian(f, x), step, vjp(step, w, c)}), 0) << to_string(vjp(step, w, c));
  });
}

TEST_P(WeightedLogistic, NewtonMapHasOneFactorisation) {
  with_inputs([&](Expr x, Expr w, Expr) {
    const Expr step = newton(x, w);
    EXPECT_EQ(count_nodes(step, Op::cholesky), 1);
    EXPECT_EQ(count_nodes(step, Op::solve), 1);
    EXPECT_EQ(count_nodes(step, Op::gram), 1);
    EXPECT_EQ(count_nodes(step, Op::outer), 0);
    EXPECT_LE(flops(step),
              N() * n() * (n() + 1) / 2 + n() * n() * n() / 6 + 3 * N() * n() + 40 * N() + 2 * n() * n() + 10 * n());
  });
}

TEST_P(WeightedLogistic, ItsVjpByTheWeightsIsOneBackSolveAndTwoProducts) {
  with_inputs([&](Expr x, Expr w, Expr c) {
    const Expr step = newton(x, w), wbar = vjp(step, w, c);
    const std::vector<Expr> both{step, wbar};
    EXPECT_EQ(count_nodes(both, [](const Expr& e) { return is_factor(node(e).op); }), 1);
    EXPECT_EQ(count_nodes(both, [](const Expr& e) { return is(e, Op::solve); }), 2);
    EXPECT_EQ(count_nodes(both, [](const Expr& e) { return is(e, Op::outer); }), 0) << to_string(wbar);
    EXPECT_EQ(count_nodes(both, [](const Expr& e) { return is(e, Op::gram); }), 1);
    EXPECT_LE(flops(both) - flops(step), 2 * N() * n() + 2 * n() * n() + 40 * N() + 10 * n()) << to_string(wbar);
  });
}

TEST_P(WeightedLogistic, HessianVectorProductsFormNoMatrix) {
  with_inputs([&](Expr x, Expr w, Expr c) {
    const Expr f = objective(x, w), Hc = hvp(f, x, c);
    EXPECT_EQ(count_nodes({&Hc, 1}, [](const Expr& e) { return e.shape().rank() == 2 && !is(e, Op::constant); }), 0);
    EXPECT_LE(flops(Hc), 3 * N() * n() + 60 * N() + 10 * n());
  });
}

TEST_P(WeightedLogistic, ValuesAreTheClosedFormsForWeightsOfEitherSign) {
  Random random(11);
  const Array x = random.array({n_}, -1, 1), w = random.array({N_}, -1, 1);
  const Array mask = [&] {
    std::vector<double> m(static_cast<std::size_t>(n_), 0.2);
    if (!GetParam().penalise_all) m[0] = 0.0;
    return Array(Shape{n_}, m);
  }();
  const Arrays got = values_of({x, w}, [&](const Exprs& in) {
    const Expr f = objective(in[0], in[1]), z = matmul(A_, in[0]), s = sigmoid(-y_ * z);
    const Expr g = -matmul(transpose(Expr(A_)), in[1] * y_ * s) + mask * in[0];
    const Expr H = build_as_is(Op::matmul, {A_, reshape(in[1] * s * (1.0 - s), {N_, 1}) * A_}, {.i = 1}) + diag(mask);
    return Exprs{grad(f, in[0]), g, hessian(f, in[0]), H};
  });
  EXPECT_TRUE(near(got[0], got[1], 1e-13));
  EXPECT_TRUE(near(got[2], got[3], 1e-13));
}

INSTANTIATE_TEST_SUITE_P(Sizes, WeightedLogistic,
                         ::testing::Values(Problem{"tiny", 30, 5, true}, Problem{"tiny", 30, 5, false},
                                           Problem{"small", 200, 10, false}, Problem{"paper", 1000, 100, true},
                                           Problem{"paper", 1000, 100, false}, Problem{"tall", 8192, 12, false},
                                           Problem{"wide", 20, 50, true}));

// The gradient step of ridge regression as it is written: two products with A. What a loop may keep is the plan's to find.
TEST(Ridge, GradientStepIsTwoProducts) {
  const std::int64_t N = 500, n = 12;
  const Array A = ones({N, n}), b = ones({N});
  traced(
      [&](Expr x, Expr lambda) {
        const Expr f = 0.5 * sum(square(matmul(A, x) - b)) + lambda * sum(square(x));
        const Expr step = x - 0.01 * grad(f, x);
        EXPECT_LE(flops(step), 2 * N * n + 4 * N + 6 * n) << to_string(step);
        EXPECT_EQ(count_nodes(step, Op::matmul), 2);
        return step;
      },
      Shape{n}, Shape{});
}

TEST(Flops, GramOfAMovingMatrixIsDifferentiatedWithOneProduct) {
  const std::int64_t N = 100, n = 10;
  traced(
      [&](Expr A, Expr d, Expr V) {
        const Expr G = gram(A, d);
        const Expr moved = jvp(G, A, V);
        EXPECT_LE(flops(std::vector<Expr>{G, moved}) - flops(G), N * n * n + 2 * N * n + 2 * n * n) << to_string(moved);
        return moved;
      },
      Shape{N, n}, Shape{N}, Shape{N, n});
}

TEST(Flops, JacobianOfAVectorFunctionIsOneBlock) {
  const std::int64_t N = 100, n = 10;
  const Array A = ones({N, n});
  traced(
      [&](Expr x) {
        const Expr r = tanh(matmul(A, x));
        const Expr J = jacobian(r, x);
        EXPECT_EQ(J.shape(), (Shape{N, n}));
        // Ax and one scaling of the rows of A: the seed, an identity, is never multiplied with.
        EXPECT_LE(flops(J), 2 * N * n + 20 * N) << to_string(J);
        return J;
      },
      Shape{n});
}

}  // namespace
}  // namespace onestep::test
