// The statements of Bolte, Pauwels and Vaiter, "One-step differentiation of iterative algorithms" (2023), Sections 2 and 3:
// both sides of each are evaluated on random problems whose constants are known. docs/paper-notes.md says where one is
// misprinted.
#include <gtest/gtest.h>

#include "support/problems.h"

namespace onestep {
namespace {

using test::identity;
using test::minus;
using test::norm;
using test::plus;
using test::product;
using test::Random;
using test::spectral_norm;
using test::times;
using test::transposed;

constexpr int problems = 20;
// Both sides are computed in double precision.
constexpr double slack = 1 + 1e-10;

// F(x, θ) = A sin(x + Cθ): ‖J_x F‖ ≤ ‖A‖ = ρ, ‖J_θ F‖ ≤ ‖A‖‖C‖ = L_F, and x ↦ J_θ F has the Lipschitz constant
// ‖A‖‖C‖ = L_J; x ↦ J_x F has ‖A‖.
struct Contraction {
  Array A, C, theta, x0;
  double rho, L_F, L_J, L_A;

  explicit Contraction(std::uint64_t seed) {
    Random random(seed);
    const std::int64_t n = random.integer(2, 6), m = random.integer(1, 4);
    rho = random.uniform(0.05, 0.95);
    A = test::with_norm(random, n, n, rho), C = random.array({n, m});
    theta = random.array({m}), x0 = random.array({n});
    L_F = L_J = rho * spectral_norm(C);
    L_A = rho;
  }
  auto map() const {
    return [*this](Expr x, Expr t) { return matmul(A, sin(x + matmul(C, t))); };
  }
  // x_k with an estimator.
  Solution after(int k, const Estimator& e) const {
    return solve(fixed_point(map(), {.tolerance = 0, .max_iterations = k}), x0, theta, e).even_if_unconverged();
  }
  Array iterate(int k) const { return k == 0 ? x0 : after(k, OneStep{}).x(); }
  Array A_at(const Array& x) const { return jacobians(x)[0]; }
  Array B_at(const Array& x) const { return jacobians(x)[1]; }
  std::vector<Array> jacobians(const Array& x) const {
    return evaluate(traced(
                        [&](Expr at, Expr t) {
                          const Expr next = map()(at, t);
                          return std::pair{jacobian(next, at), jacobian(next, t)};
                        },
                        x.shape(), theta.shape()),
                    {x, theta});
  }
  Array fixed() const { return iterate(3000); }
  Array derivative() const {
    const Array x = fixed();
    return test::solved(minus(identity(x.size()), A_at(x)), B_at(x));
  }
};

// Lemma 1 (lem:fixedPoint): ‖x_k - x̄‖ ≤ ρ^k ‖x_0 - x̄‖ ≤ ρ^k ‖x_0 - F(x_0)‖ / (1 - ρ).
TEST(Paper, Lemma1IteratesConvergeWithRho) {
  for (int seed = 0; seed < problems; ++seed) {
    const Contraction c(static_cast<std::uint64_t>(seed));
    const Array bar = c.fixed();
    const double first = norm(minus(c.x0, bar)), step = norm(minus(c.x0, c.iterate(1)));
    EXPECT_LE(first, step / (1 - c.rho) * slack);
    for (const int k : {1, 2, 5, 10})
      EXPECT_LE(norm(minus(c.iterate(k), bar)), std::pow(c.rho, k) * first * slack + 1e-14 * norm(bar)) << seed << ", " << k;
  }
}

// Lemma 2 (lem:matrixIdentity): (I - A)⁻¹B - B̃ = A(I - A)⁻¹B + B - B̃, and its norm is at most ρ‖B‖/(1-ρ) + ‖B - B̃‖.
TEST(Paper, Lemma2IdentityAndEstimate) {
  Random random(1);
  for (int k = 0; k < problems; ++k) {
    const std::int64_t n = random.integer(1, 8), m = random.integer(1, 8);
    const double rho = random.uniform(0, 0.99);
    const Array A = test::with_norm(random, n, n, rho), B = random.array({n, m}), other = random.array({n, m});
    const Array J = test::solved(minus(identity(n), A), B);
    const Array left = minus(J, other), right = plus(product(A, J), minus(B, other));
    EXPECT_LE(norm(minus(left, right)), 1e-13 * norm(J) / (1 - rho));
    EXPECT_LE(spectral_norm(left), (rho / (1 - rho) * spectral_norm(B) + spectral_norm(minus(B, other))) * slack);
  }
}

// Corollary (cor:approxOS): ‖J^OS x_k - J x̄‖ ≤ ρ L_F/(1-ρ) + L_J ‖x_{k-1} - x̄‖.
TEST(Paper, OneStepBound) {
  for (int seed = 0; seed < problems; ++seed) {
    const Contraction c(static_cast<std::uint64_t>(100 + seed));
    const Array bar = c.fixed(), J = c.derivative();
    for (const int k : {1, 2, 4, 30}) {
      const double error = spectral_norm(minus(c.after(k, OneStep{}).jacobian(), J));
      EXPECT_LE(error, (c.rho * c.L_F / (1 - c.rho) + c.L_J * norm(minus(c.iterate(k - 1), bar))) * slack)
          << seed << ", " << k;
    }
  }
}

// Remark (rem:implicitDiff): ‖J^ID x_k - J x̄‖ ≤ L_J L_F/(1-ρ)² ‖x_k - x̄‖ + L_J/(1-ρ) ‖x_k - x̄‖, where both Jacobians of F
// are L_J Lipschitz.
TEST(Paper, ImplicitBoundOfTheRemark) {
  for (int seed = 0; seed < problems; ++seed) {
    const Contraction c(static_cast<std::uint64_t>(200 + seed));
    const Array bar = c.fixed(), J = c.derivative();
    const double L = std::max(c.L_J, c.L_A), gap = 1 - c.rho;
    for (const int k : {1, 2, 4, 8}) {
      const double error = spectral_norm(minus(c.after(k, Implicit{.on_step = true}).jacobian(), J));
      const double d = norm(minus(c.iterate(k), bar));
      EXPECT_LE(error, (L * c.L_F / (gap * gap) + L / gap) * d * slack + 1e-12 * norm(J)) << seed << ", " << k;
    }
  }
}

// After the remark: K steps are one step of F^K, with ρ^K. Its L_F is L_F (1 - ρ^K)/(1 - ρ), and its L_J follows from the
// recursion of the Jacobians.
TEST(Paper, KStepBoundWithRhoToTheK) {
  for (int seed = 0; seed < problems; ++seed) {
    const Contraction c(static_cast<std::uint64_t>(300 + seed));
    const Array bar = c.fixed(), J = c.derivative();
    for (const int K : {1, 2, 3, 6}) {
      const double rho = std::pow(c.rho, K), L_F = c.L_F * (1 - rho) / (1 - c.rho);
      double L_J = 0, size = 0, moved = 1;  // of J_i, ‖J_i‖, and how far x_i moves with x_0
      for (int i = 0; i < K; ++i) {
        L_J = c.rho * L_J + (c.L_A * size + c.L_J) * moved;
        size = c.rho * size + c.L_F;
        moved *= c.rho;
      }
      for (const int k : {K, K + 3, K + 40}) {
        const double error = spectral_norm(minus(c.after(k, KStep{K}).jacobian(), J));
        EXPECT_LE(error, (rho * L_F / (1 - rho) + L_J * norm(minus(c.iterate(k - K), bar))) * slack) << seed << ", " << K;
      }
    }
  }
}

// Example (gradient descent): f = ½xᵀHx - β Σ cos(xᵢ + θᵢ) has Hessians between μ = λ_min(H) - β and L = λ_max(H) + β, and
// ∇²_xθ f = β diag(cos(x + θ)), which is β ≤ L Lipschitz.
struct Descent {
  Array H;
  double beta, mu, L;
  explicit Descent(Random& random, double its_beta)
      : beta(its_beta), mu(random.uniform(0.1, 2)), L(mu + random.uniform(0, 5) + 2 * beta) {
    H = test::with_eigenvalues(random, test::spread(mu + beta, L - beta, 4));
  }
  auto objective() const {
    return [*this](Expr x, Expr t) { return 0.5 * matmul(x, matmul(H, x)) - beta * sum(cos(x + t)); };
  }
  std::vector<Array> jacobians(double alpha, const Array& x, const Array& theta) const {
    return evaluate(traced(
                        [&](Expr at, Expr t) {
                          const Expr next = at - alpha * grad(objective()(at, t), at);
                          return std::pair{jacobian(next, at), jacobian(next, t)};
                        },
                        Shape{4}, Shape{4}),
                    {x, theta});
  }
};

TEST(Paper, GradientDescentConstants) {
  Random random(2);
  for (int k = 0; k < problems; ++k) {
    const Descent d(random, k % 4 == 0 ? 0.0 : random.uniform(0, 0.5));
    struct Case {
      GradientStep step;
      double alpha, rho, L_F;
    };
    const double best = 2 / (d.mu + d.L);
    for (const Case& c :
         {Case{GradientStep::optimal(d.mu, d.L), best, 1 - 2 * d.mu / (d.L + d.mu), 2 * d.L / (d.mu + d.L)},
          Case{GradientStep{GradientStep::Kind::inverse_smoothness, 0, d.mu, d.L}, 1 / d.L, 1 - d.mu / d.L, 1}}) {
      EXPECT_NEAR(c.rho, std::max(1 - c.alpha * d.mu, c.alpha * d.L - 1), 1e-14);
      EXPECT_LE(c.L_F, 2.0 * slack);
      const Array theta = random.array({4}), x = random.array({4}, -10, 10), y = random.array({4}, -10, 10);
      const std::vector<Array> at_x = d.jacobians(c.alpha, x, theta), at_y = d.jacobians(c.alpha, y, theta);
      EXPECT_LE(spectral_norm(at_x[0]), c.rho * slack + 1e-14);
      if (d.beta == 0) {
        EXPECT_NEAR(spectral_norm(at_x[0]), c.rho, 1e-13);  // attained
      }
      EXPECT_LE(spectral_norm(at_x[1]), c.L_F * slack);
      EXPECT_LE(spectral_norm(minus(at_x[1], at_y[1])), c.L_F * norm(minus(x, y)) * slack);
      // The solver uses this step, and the certificate this ρ.
      const Solution s =
          solve(gradient_descent(d.objective(), {.step = c.step}, {.tolerance = 0, .max_iterations = 1}), x, theta);
      const Array next = minus(
          x, times(c.alpha,
                   evaluate(traced([&](Expr at, Expr t) { return grad(d.objective()(at, t), at); }, Shape{4}, Shape{4}),
                            {x, theta})
                       .front()));
      EXPECT_TRUE(test::near(s.x(), next, 1e-14));
      const Solution done = solve(gradient_descent(d.objective(), {.step = c.step}), x, theta);
      EXPECT_NEAR(done.certificate(x).rho, c.rho, 1e-13);
    }
  }
}

// Corollary (cor:superlinearCvgt): where J_x F(x̄) = 0, J^OS x_k → J x̄, and J^OS x̄ = J x̄. Here F = θ + (x - θ)^{3/2}
// converges with order 3/2: superlinear, but not quadratic.
TEST(Paper, SuperlinearConvergence) {
  const auto F = [](Expr x, Expr t) { return t + pow(square(x - t), 0.75); };
  Random random(3);
  for (int k = 0; k < problems; ++k) {
    const double theta = random.uniform(-2, 2), start = theta + random.uniform(0.4, 0.6);
    double distance = start - theta, last = 1e300;
    for (int i = 1; i <= 9; ++i) {
      const Solution s = solve(fixed_point(F, {.tolerance = 0, .max_iterations = i}), Array(start), Array(theta), OneStep{});
      const double J = s.even_if_unconverged().jvp(Array(1.0))[0].item();
      // J^OS x_k - J x̄ = -(3/2) √(x_{k-1} - θ), and J x̄ = 1.
      EXPECT_NEAR(J - 1, -1.5 * std::sqrt(distance), 1e-6);
      EXPECT_LT(std::fabs(J - 1), last);
      last = std::fabs(J - 1);
      distance = std::pow(distance, 1.5);
    }
    EXPECT_LT(last, 1e-2);
  }
}

// Section 2.3: exact for one-step-exact algorithms, such as Newton's method on a quadratic, from any x.
TEST(Paper, OneStepIsExactForAlgorithmsExactInOneStep) {
  Random random(4);
  for (int k = 0; k < problems; ++k) {
    const std::int64_t n = random.integer(1, 8), m = random.integer(1, 5);
    const Array H = test::with_eigenvalues(random, test::spread(0.1, 3, n)), B = random.array({n, m});
    const Solver s = newton([&](Expr x, Expr t) { return 0.5 * matmul(x, matmul(H, x)) - matmul(x, matmul(B, t)); },
                            {.max_iterations = 1});
    const Solution one = solve(s, random.array({n}, -100, 100), random.array({m}), OneStep{});
    EXPECT_LT(test::relative_error(one.even_if_unconverged().jacobian(), test::solved(H, B)), 1e-12);
  }
}

// Corollary (cor:quadCvgt): ‖J^OS x_k - J x̄‖ ≤ L_J ‖x_{k-1} - x̄‖ and (L_J/2)‖x_{k+1} - x̄‖ ≤ ((L_J/2)‖x_k - x̄‖)². For
// F = (x + θ/x)/2 and x ≥ √θ, J_(x,θ)F = ((1 - θ/x²)/2, 1/(2x)) has the Lipschitz constant √(1/θ + 1/(4θ²)) in x.
TEST(Paper, QuadraticConvergence) {
  Random random(5);
  for (int k = 0; k < problems; ++k) {
    const double theta = random.uniform(0.2, 5), bar = std::sqrt(theta), L_J = std::sqrt(1 / theta + 0.25 / (theta * theta));
    const double start = bar * random.uniform(1.01, 3);
    double previous = start - bar;
    for (int i = 1; i <= 5; ++i) {
      const Solution s =
          solve(fixed_point([](Expr x, Expr t) { return 0.5 * (x + t / x); }, {.tolerance = 0, .max_iterations = i}),
                Array(start), Array(theta))
              .even_if_unconverged();
      const double distance = s.x().item() - bar, J = s.jvp(Array(1.0))[0].item();
      EXPECT_LE(std::fabs(J - 0.5 / bar), L_J * previous * slack + 1e-15 / bar);
      EXPECT_LE(L_J / 2 * distance, std::pow(L_J / 2 * previous, 2) * slack + 1e-15 * bar * L_J);
      previous = std::max(distance, 1e-16 * bar);
    }
  }
}

// Example (Newton's algorithm): ∇²f J_x F = ∇³f[x, ·, ·] - ∇³f[F(x), ·, ·].
TEST(Paper, NewtonIdentity) {
  Random random(6);
  for (int k = 0; k < 5; ++k) {
    const test::Logistic problem(random, 12, 3);
    const auto f = problem.objective();
    const Function sides = traced(
        [&](Expr x, Expr w) {
          const Expr g = grad(f(x, w), x), h = jacobian(g, x), next = x - solve(cholesky(h), g);
          const Expr along = stop_gradient(x - next);
          return std::pair{matmul(h, jacobian(next, x)), jacobian(matmul(h, along), x)};
        },
        Shape{3}, Shape{12});
    const std::vector<Array> both = evaluate(sides, {random.array({3}), random.array({12}, 0.5, 1.5)});
    EXPECT_LT(norm(minus(both[0], both[1])), 1e-11 * norm(both[1]));
    EXPECT_GT(norm(both[1]), 1e-3);
    // ... so that J_x F = 0 at the solution.
    const Array w = problem.weights();
    EXPECT_LT(norm(evaluate(sides, {problem.solution(w), w})[0]), 1e-11);
  }
}

// Corollary (cor:bilevel): ‖∇(g∘x̄) - J^OS x_kᵀ ∇g(x_k)‖ ≤ ρ L_F l_g/(1-ρ) + L_J l_g ‖x_{k-1} - x̄‖ + L_F l_∇ ‖x̄ - x_k‖, for
// g = aᵀ sin(x): l_g = ‖a‖, l_∇ = max |aᵢ|.
TEST(Paper, HypergradientBound) {
  for (int seed = 0; seed < problems; ++seed) {
    const Contraction c(static_cast<std::uint64_t>(400 + seed));
    Random random(static_cast<std::uint64_t>(seed));
    const Array a = random.array(c.x0.shape());
    const auto grad_g = [&](const Array& x) {
      std::vector<double> g;
      for (std::int64_t i = 0; i < x.size(); ++i) g.push_back(a(i) * std::cos(x(i)));
      return Array(x.shape(), g);
    };
    const double l_g = norm(a), l_nabla = test::largest_entry(a);
    const Array bar = c.fixed(), expected = product(transposed(c.derivative()), grad_g(bar));
    for (const int k : {1, 2, 5, 30}) {
      const Solution s = c.after(k, OneStep{});
      const double error = norm(minus(s.vjp(grad_g(s.x())), expected));
      EXPECT_LE(error, (c.rho * c.L_F * l_g / (1 - c.rho) + c.L_J * l_g * norm(minus(c.iterate(k - 1), bar)) +
                        c.L_F * l_nabla * norm(minus(bar, s.x()))) *
                           slack)
          << seed << ", " << k;
    }
  }
}

// Lemma (lem:approximateCriticalPoints), corrected: from ‖x_{k+1} - x_k + ∇f(x_k)/L‖ ≤ ε follows
// min_{k ≤ K} ‖∇f(x_k)‖² ≤ L²ε² + 2L (f(x_0) - f*)/(K + 1). Here f = Σ cos(bᵢᵀx), L = Σ ‖bᵢ‖², f* ≥ -(number of terms).
TEST(Paper, ApproximateCriticalPointsCorrected) {
  Random random(7);
  for (int k = 0; k < problems; ++k) {
    const std::int64_t rows = 6, n = 3;
    const Array B = random.array({rows, n});
    const double L = std::pow(norm(B), 2), lowest = -static_cast<double>(rows), epsilon = random.uniform(0, 0.2);
    const Function f = traced(
        [&](Expr x) {
          const Expr value = sum(cos(matmul(B, x)));
          return std::pair{value, grad(value, x)};
        },
        Shape{n});
    Array x = random.array({n});
    const double first = evaluate(f, {x})[0].item();
    double least = std::numeric_limits<double>::infinity();
    for (int K = 0; K < 40; ++K) {
      const Array g = evaluate(f, {x})[1];
      least = std::min(least, std::pow(norm(g), 2));
      EXPECT_LE(least, (L * L * epsilon * epsilon + 2 * L * (first - lowest) / (K + 1)) * slack);
      const Array noise = random.array({n});
      x = plus(minus(x, times(1 / L, g)), times(epsilon * random.uniform(0, 1) / norm(noise), noise));
    }
  }
}

// As printed, min ‖∇f(x_k)‖² ≤ ε² + 2(f(x_0) - f*)/(LK), the lemma does not hold: f = x²/2, L = 100, K = 1, x_0 = 1.
TEST(Paper, ApproximateCriticalPointsAsPrintedDoNotHold) {
  const double L = 100, epsilon = 1e-6, x0 = 1, x1 = x0 - x0 / L, f0 = x0 * x0 / 2;
  const int K = 1;
  ASSERT_LE(std::fabs(x1 - x0 + x0 / L), epsilon);
  const double least = std::min(x0 * x0, x1 * x1);
  EXPECT_GT(least, epsilon * epsilon + 2 * f0 / (L * K));
  EXPECT_LE(least, L * L * epsilon * epsilon + 2 * L * f0 / (K + 1));
}

}  // namespace
}  // namespace onestep
