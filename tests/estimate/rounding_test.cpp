// Certificates where rounding, of x or inside a step, is the whole error. Truths are closed forms, or Newton's method in
// long double.
#include <gtest/gtest.h>

#include <cmath>

#include "onestep/onestep.h"

namespace onestep {
namespace {

using Long = long double;

// d + sigmoid(4d) = t, where d is the difference of two unknowns of size C: rounding of these is all that d is known to, and
// the sigmoid is steep on a far smaller scale than C.
Long slope_of_difference(double t) {
  Long d = t;
  for (int k = 0; k < 200; ++k) {
    const Long q = 1 / (1 + std::exp(-4 * d));
    d -= (d + q - static_cast<Long>(t)) / (1 + 4 * q * (1 - q));
  }
  const Long q = 1 / (1 + std::exp(-4 * d));
  return 1 / (1 + 4 * q * (1 - q));
}

TEST(Rounding, OfLargeUnknownsThatAreNearlyEqualIsInTheBound) {
  const Array c{1.0, -1.0};
  for (const double C : {1e3, 1e6, 1e9, 1e10, 1e11, 1e12}) {
    const Solver minimiser = newton([C](Expr x, Expr t) {
      const Expr d = x[0] - x[1];
      return 0.5 * square(d) + softplus(4.0 * d) / 4.0 - t * d + 0.5 * square(x[0] + x[1] - 2 * C);
    });
    const Solver root = newton_root([C](Expr x, Expr t) {
      const Expr d = x[{0, 1}] - x[{1, 2}];
      return concat({d + sigmoid(4.0 * d) - t, x[{0, 1}] + x[{1, 2}] - 2 * C});
    });
    for (int i = 0; i < 40; ++i) {
      const double t = -2 + 0.1 * i + 0.0123;
      const Long exact = slope_of_difference(t);
      for (const bool is_root : {false, true}) {
        const Solution s = solve(is_root ? root : minimiser, Array{C, C}, is_root ? Array{t} : Array(t), Implicit{});
        if (!is_solution(s.status())) continue;
        const Certificate of_vjp = s.certificate(c);
        const double g = s.vjp(c)[0].contiguous().values()[0];
        EXPECT_GE(of_vjp.bound, static_cast<double>(std::fabs(static_cast<Long>(g) - exact)))
            << C << ' ' << t << ": " << of_vjp;
        const Array v = is_root ? Array{1.0} : Array(1.0);
        const Certificate of_jvp = s.certificate_jvp(v);
        const Array y = s.jvp(v)[0];
        const double error =
            static_cast<double>(std::hypot(static_cast<Long>(y(0)) - exact / 2, static_cast<Long>(y(1)) + exact / 2));
        EXPECT_GE(of_jvp.bound, error) << C << ' ' << t << ": " << of_jvp;
      }
    }
  }
}

// x₁ is large and flat, x₂ is not: rounding moves x₁ by more than the next step moves x₂, in which alone it is an error.
TEST(Rounding, DoesNotHideAStepInAnotherEntry) {
  for (const double flat : {1e-8, 1e-9, 1e-10})
    for (int i = 0; i < 40; ++i) {
      const double t = 0.5 + 0.05 * i;
      const Solution s = solve(
          newton([flat](Expr x, Expr theta) { return 0.5 * flat * square(x[0]) - theta * x[0] + exp(x[1]) - theta * x[1]; },
                 {.tolerance = 1e-13}),
          Array{1 / flat, 1.5}, Array(t), Implicit{});
      if (!is_solution(s.status())) continue;
      const Array second{0.0, 1.0};  // x₂ = log t
      const Certificate certificate = s.certificate(second);
      EXPECT_GE(certificate.bound, std::fabs(s.vjp(second)[0].item() - 1 / t)) << flat << ' ' << t << ": " << certificate;
    }
}

// The errors of Hᵀu and of a weak vector have opposite signs in the entry that matters.
TEST(Rounding, OfOppositeSignsDoesNotCancelItself) {
  const Array W{{0.15160792227436973, 3.2164587360517349, -0.63743252563113728, -3.7142784846020378},
                {0, 0.15160792227436973, -8.0266342268899784, 1.299633021534329},
                {0, 0, 0.15160792227436973, 1.4185204104690161},
                {0, 0, 0, -0.14267569050130341}},
      U{0.14311481512919327, 0.10864376928804378, -1.6109501929914762, 0.44025757082102529},
      c{-0.23721584598226564, -0.21607927211247274, -0.49793399837067132, 0.22164427705312104},
      k{3.6317454128286557, 2.3247550416647575, 27.049746403491369, 5.7038909929559907};
  const double t = 0.27492833359562735;
  const Solution s = solve(newton_root([&](Expr x, Expr theta) { return x - tanh(k * (matmul(W, x) + U * theta + c)) / k; }),
                           Array{0, -0.83, 0, 1.76}, Array(t));
  Long slope[4];
  for (int i = 2; i < 4; ++i) {
    Long z = static_cast<Long>(U(i)) * static_cast<Long>(t) + static_cast<Long>(c(i));
    for (int j = 0; j < 4; ++j) z += static_cast<Long>(W(i, j)) * static_cast<Long>(s.x()(j));
    z = std::cosh(static_cast<Long>(k(i)) * z);
    slope[i] = 1 / (z * z);
  }
  const Long x3 = slope[3] * static_cast<Long>(U(3)) / (1 - slope[3] * static_cast<Long>(W(3, 3)));
  const Long x2 =
      slope[2] * (static_cast<Long>(U(2)) + static_cast<Long>(W(2, 3)) * x3) / (1 - slope[2] * static_cast<Long>(W(2, 2)));
  const Array e{0, 0, 1, 0};
  const Certificate certificate = s.certificate(e);
  EXPECT_GE(certificate.bound, std::fabs(static_cast<double>(static_cast<Long>(s.vjp(e)[0].item()) - x2))) << certificate;
}

// min -x - t (log(1 + x) + log(1 - x)) at x = 1 / (t + √(t² + 1)): terms of size t cancel in a gradient of size 1.
TEST(Rounding, OfTermsThatCancelInAGradientIsInTheBound) {
  const auto barrier = [](Expr x, Expr t) { return sum(-x - t * (log(1.0 + x) + log(1.0 - x))); };
  const SolveOptions options{.tolerance = 1e-10};
  const Array one{1.0};
  for (double t = 50; t < 1e6; t *= 1.3) {
    const Long root = std::sqrt(static_cast<Long>(t) * static_cast<Long>(t) + 1);
    const Long exact = -1 / ((static_cast<Long>(t) + root) * root);
    for (const Solver& solver :
         {gradient_descent(barrier, {}, options), gradient_descent(barrier, {.step = GradientStep::backtracking()}, options),
          gradient_descent(barrier, {.step = GradientStep::fixed(0.4 / t), .momentum = Momentum::nesterov(0.1)}, options),
          newton(barrier, options), newton_cg(barrier, {}, options)}) {
      const Solution s = solve(solver, Array{0.01}, Array{t});
      if (!is_solution(s.status())) continue;
      std::vector<Array> c(s.state().size(), zeros(1));
      c[0] = one;
      const Certificate certificate = s.certificate(Parts(c));
      const double error = static_cast<double>(std::fabs(static_cast<Long>(s.vjp(Parts(c))[0](0)) - exact));
      EXPECT_GE(certificate.bound, error) << t << ": " << certificate;
    }
  }
}

// The same as a step of its own, for which the bound may miss rounding of a single sample by luck, but not often.
TEST(Rounding, OfTermsThatCancelInAStepIsInTheBound) {
  int bounds = 0, wrong = 0;
  for (double t = 50; t < 1e7; t *= 1.1) {
    const Solution s =
        solve(fixed_point([t](Expr x, Expr theta) { return x - 0.4 / t * (-1.0 - theta / (1.0 + x) + theta / (1.0 - x)); },
                          {.tolerance = 1e-10}),
              Array{0.01}, Array{t});
    if (!is_solution(s.status())) continue;
    const Long root = std::sqrt(static_cast<Long>(t) * static_cast<Long>(t) + 1);
    const Long exact = -1 / ((static_cast<Long>(t) + root) * root);
    const Array one{1.0};
    const double error = static_cast<double>(std::fabs(static_cast<Long>(s.vjp(one)[0](0)) - exact));
    ++bounds;
    wrong += error > s.certificate(one).bound ? 1 : 0;
  }
  EXPECT_GT(bounds, 50);
  EXPECT_LE(wrong, bounds / 50);
}

}  // namespace
}  // namespace onestep
