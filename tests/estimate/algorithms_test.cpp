// The paper's algorithms written by hand in a traced loop, with stop_gradient where the paper has it, give what the
// estimators give.
#include <gtest/gtest.h>

#include "support/problems.h"

namespace onestep {
namespace {

using test::Logistic;
using test::Random;

using Step = std::function<Expr(const Expr& x, const Expr& theta)>;

// K steps from x0, of which the last `differentiated` have a derivative.
Function loop(const Step& F, const Array& x0, const Shape& theta, int K, int differentiated) {
  return traced(
      [&](Expr t) {
        Expr x = x0;
        for (int k = 0; k < K; ++k) {
          const bool with_gradient = k >= K - differentiated;
          x = with_gradient ? F(x, t) : stop_gradient(F(x, stop_gradient(t)));
        }
        return x;
      },
      theta);
}
Array forward(const Function& f, const Array& theta, const Array& v) {
  return evaluate(
             traced([&](Expr t, Expr dt) { return jvp(f(std::vector<Expr>{t}).front(), t, dt); }, theta.shape(), v.shape()),
             {theta, v})
      .front();
}
Array reverse(const Function& f, const Array& theta, const Array& c) {
  return evaluate(
             traced([&](Expr t, Expr cx) { return vjp(f(std::vector<Expr>{t}).front(), t, cx); }, theta.shape(), c.shape()),
             {theta, c})
      .front();
}

// Each kind of step with its solver, which makes exactly K of them.
class Algorithms : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr int K = 4;
  Algorithms() : random_(1), problem_(random_, 25, 3) {
    const auto f = problem_.objective();
    const SolveOptions options{.tolerance = 0, .max_iterations = K};
    if (GetParam() == std::string("gradient")) {
      F_ = [f](const Expr& x, const Expr& t) { return x - 0.02 * grad(f(x, t), x); };
      solver_.emplace(gradient_descent(f, {.step = GradientStep::fixed(0.02)}, options));
    } else if (GetParam() == std::string("newton")) {
      F_ = [f](const Expr& x, const Expr& t) {
        const Expr g = grad(f(x, t), x);
        return x - onestep::solve(cholesky(jacobian(g, x)), g);
      };
      solver_.emplace(newton(f, options));
    } else {
      const Array A = test::with_norm(random_, 3, 3, 0.8), B = random_.array({3, 25}, -0.1, 0.1);
      F_ = [A, B](const Expr& x, const Expr& t) { return tanh(matmul(A, x) + matmul(B, t)); };
      solver_.emplace(fixed_point(F_, options));
    }
    theta_ = random_.array({25}, 0.5, 1.5), v_ = random_.array({25}), c_ = random_.array({3});
  }
  Solution solution(const Estimator& e) const { return solve(*solver_, problem_.start(), theta_, e).even_if_unconverged(); }
  void expect_equal(const Solution& s, int differentiated) const {
    const Function by_hand = loop(F_, problem_.start(), theta_.shape(), K, differentiated);
    EXPECT_EQ(s.statistics().iterations, K);
    EXPECT_TRUE(test::near(s.x(), evaluate(by_hand, {theta_}).front(), 1e-14));
    EXPECT_TRUE(test::near(s.jvp(v_), forward(by_hand, theta_, v_), 1e-14));
    EXPECT_TRUE(test::near(s.vjp(c_), reverse(by_hand, theta_, c_), 1e-14));
  }

  Random random_;
  Logistic problem_;
  Step F_;
  std::optional<Solver> solver_;
  Array theta_, v_, c_;
};

TEST_P(Algorithms, Algorithm3ByHandIsOneStep) { expect_equal(solution(OneStep{}), 1); }
TEST_P(Algorithms, Algorithm1ByHandIsUnrolled) {
  expect_equal(solution(Unrolled{}), K);
  expect_equal(solution(Unrolled{.mode = Unrolled::forward}), K);
  expect_equal(solution(Unrolled{.mode = Unrolled::reverse}), K);
  expect_equal(solution(Unrolled{.mode = Unrolled::reverse, .memory = 1}), K);
}
TEST_P(Algorithms, TheLastStepsByHandAreKStep) {
  expect_equal(solution(KStep{1}), 1);
  expect_equal(solution(KStep{2}), 2);
  expect_equal(solution(KStep{3}), 3);
  expect_equal(solution(KStep{K}), K);
  expect_equal(solution(KStep{K + 5}), K);  // more than there were
}
TEST_P(Algorithms, Algorithm2ByHandIsImplicit) {
  const Solution s = solution(Implicit{.on_step = true});
  const Array x = s.x();
  const std::vector<Array> ab = evaluate(traced(
                                             [&](Expr at, Expr t) {
                                               const Expr next = F_(at, t);
                                               return std::pair{jacobian(next, at), jacobian(next, t)};
                                             },
                                             x.shape(), theta_.shape()),
                                         {x, theta_});
  const Array J = test::solved(test::minus(test::identity(3), ab[0]), ab[1]);
  EXPECT_LT(test::relative_error(s.jvp(v_), test::product(J, v_)), 1e-12);
  EXPECT_LT(test::relative_error(s.vjp(c_), test::product(test::transposed(J), c_)), 1e-12);
  EXPECT_LT(test::relative_error(s.jacobian(), J), 1e-12);
}
INSTANTIATE_TEST_SUITE_P(Steps, Algorithms, ::testing::Values("gradient", "newton", "tanh"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace onestep
