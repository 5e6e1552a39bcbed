// Steps that are not traced: every estimator with what the user gave, and an error that names what is missing.
#include <gtest/gtest.h>

#include "support/problems.h"

namespace onestep {
namespace {

using test::error_of;
using test::Random;
using test::says;

// x ← tanh(A x) + B θ₀ + θ₁, by plain loops.
struct Plain {
  Array A, B;
  explicit Plain(std::uint64_t seed) {
    Random random(seed);
    A = test::with_norm(random, 4, 4, 0.7), B = random.array({4, 2});
  }
  std::vector<double> slopes(std::span<const double> x) const {
    std::vector<double> d;
    for (std::int64_t i = 0; i < 4; ++i) {
      double z = 0;
      for (std::int64_t j = 0; j < 4; ++j) z += A(i, j) * x[static_cast<std::size_t>(j)];
      d.push_back(z);
    }
    return d;
  }
  ForeignStep step() const {
    ForeignStep s;
    s.apply = [*this](auto x, auto theta, auto next) {
      const std::vector<double> z = slopes(x);
      for (std::int64_t i = 0; i < 4; ++i) {
        const auto at = static_cast<std::size_t>(i);
        next[at] = std::tanh(z[at]) + B(i, 0) * theta[0](0) + B(i, 1) * theta[0](1) + theta[1].item();
      }
    };
    s.jvp = [*this](auto x, auto, auto dx, auto dtheta, auto out) {
      const std::vector<double> z = slopes(x);
      const std::vector<double> dz = dx.empty() ? std::vector<double>(4) : slopes(dx);
      for (std::int64_t i = 0; i < 4; ++i) {
        const auto at = static_cast<std::size_t>(i);
        out[at] = (1 - std::tanh(z[at]) * std::tanh(z[at])) * dz[at];
        if (!dtheta.empty()) out[at] += B(i, 0) * dtheta[0](0) + B(i, 1) * dtheta[0](1) + dtheta[1].item();
      }
    };
    s.vjp = [*this](auto x, auto, auto c, auto x_bar, auto theta_bar) {
      const std::vector<double> z = slopes(x);
      if (!x_bar.empty())
        for (std::int64_t j = 0; j < 4; ++j) {
          x_bar[static_cast<std::size_t>(j)] = 0;
          for (std::int64_t i = 0; i < 4; ++i) {
            const auto at = static_cast<std::size_t>(i);
            x_bar[static_cast<std::size_t>(j)] += A(i, j) * (1 - std::tanh(z[at]) * std::tanh(z[at])) * c[at];
          }
        }
      if (!theta_bar.empty()) {
        theta_bar[0][0] = theta_bar[0][1] = theta_bar[1][0] = 0;
        for (std::int64_t i = 0; i < 4; ++i) {
          const auto at = static_cast<std::size_t>(i);
          theta_bar[0][0] += B(i, 0) * c[at];
          theta_bar[0][1] += B(i, 1) * c[at];
          theta_bar[1][0] += c[at];
        }
      }
    };
    return s;
  }
  auto traced() const {
    return [*this](Expr x, Expr t, Expr u) { return tanh(matmul(A, x)) + matmul(B, t) + u; };
  }
};

const Parts theta{Array{0.5, -1.0}, Array(0.25)}, direction{Array{1.0, 2.0}, Array(-0.5)};
const Array cotangent{1.0, -1.0, 0.5, 2.0};

struct Named {
  const char* name;
  Estimator estimator;
};
const std::vector<Named> estimators{{"OneStep", OneStep{}},   {"KStep", KStep{3}},
                                    {"Implicit", Implicit{}}, {"Implicit", Implicit{.how = Implicit::matrix_free}},
                                    {"Unrolled", Unrolled{}}, {"Auto", Auto{}}};

TEST(ForeignStep, GivesWhatTheTracedStepGivesWithEveryEstimator) {
  const Plain plain(1);
  const Solver foreign = fixed_point(plain.step()), traced = fixed_point(plain.traced());
  for (const auto& [name, e] : estimators) {
    const Solution a = solve(foreign, zeros({4}), theta, e), b = solve(traced, zeros({4}), theta, e);
    EXPECT_EQ(a.statistics().iterations, b.statistics().iterations);
    EXPECT_TRUE(test::near(a.x(), b.x(), 1e-13));
    EXPECT_TRUE(test::near(a.jvp(direction), b.jvp(direction), 1e-10)) << name;
    EXPECT_TRUE(test::near(test::flat(a.vjp(cotangent)), test::flat(b.vjp(cotangent)), 1e-10)) << name;
    const Parts J = a.jacobian(), K = b.jacobian();
    ASSERT_EQ(J.size(), 2U);
    EXPECT_TRUE(test::near(J[0], K[0], 1e-10)) << name;
    EXPECT_TRUE(test::near(J[1], K[1], 1e-10)) << name;
    EXPECT_EQ(J[0].shape(), (Shape{4, 2}));
    EXPECT_EQ(J[1].shape(), (Shape{4, 1}));
  }
}

TEST(ForeignStep, WithoutVjpEveryEstimatorHasJvpAndNamesWhatIsMissing) {
  const Plain plain(2);
  ForeignStep step = plain.step();
  step.vjp = nullptr;
  const Solver foreign = fixed_point(step), full = fixed_point(plain.step());
  for (const auto& [name, e] : estimators) {
    const Solution s = solve(foreign, zeros({4}), theta, e), complete = solve(full, zeros({4}), theta, e);
    EXPECT_TRUE(test::near(s.jvp(direction), complete.jvp(direction), 1e-6)) << name;
    EXPECT_TRUE(test::near(s.jacobian()[0], complete.jacobian()[0], 1e-6)) << name;
    EXPECT_TRUE(says(error_of([&] { s.vjp(cotangent); }),
                     {"[", name, "vjp is missing", "no vjp callback", "jvp with", "Unrolled::forward"}));
    EXPECT_EQ(s.certificate(cotangent).basis, Certificate::Basis::refused);
    EXPECT_TRUE(says(s.certificate(cotangent).reason, {"vjp"}));
  }
  const Solution forward = solve(foreign, zeros({4}), theta, Unrolled{.mode = Unrolled::forward});
  EXPECT_TRUE(test::near(test::flat(forward.vjp(cotangent)),
                         test::flat(solve(full, zeros({4}), theta, Unrolled{}).vjp(cotangent)), 1e-9));
}

TEST(ForeignStep, WithoutJvpEveryEstimatorHasVjpAndNamesWhatIsMissing) {
  const Plain plain(3);
  ForeignStep step = plain.step();
  step.jvp = nullptr;
  const Solver foreign = fixed_point(step), full = fixed_point(plain.step());
  for (const auto& [name, e] : estimators) {
    const Solution s = solve(foreign, zeros({4}), theta, e), complete = solve(full, zeros({4}), theta, e);
    EXPECT_TRUE(test::near(test::flat(s.vjp(cotangent)), test::flat(complete.vjp(cotangent)), 1e-6)) << name;
    EXPECT_TRUE(test::near(s.jacobian()[0], complete.jacobian()[0], 1e-6)) << name;
    EXPECT_TRUE(says(error_of([&] { s.jvp(direction); }),
                     {"[", name, "jvp is missing", "no jvp callback", "vjp with", "Unrolled::reverse"}));
    EXPECT_EQ(s.certificate_jvp(direction).basis, Certificate::Basis::refused);
  }
  const Solution reverse = solve(foreign, zeros({4}), theta, Unrolled{.mode = Unrolled::reverse});
  EXPECT_TRUE(test::near(reverse.jvp(direction), solve(full, zeros({4}), theta, Unrolled{}).jvp(direction), 1e-9));
}

TEST(ForeignStep, WithNeitherSolves) {
  const Plain plain(4);
  ForeignStep step{.apply = plain.step().apply};
  for (const auto& [name, e] : estimators) {
    const Solution s = solve(fixed_point(step), zeros({4}), theta, e);
    EXPECT_EQ(s.status(), Status::converged);
    EXPECT_TRUE(says(error_of([&] { s.jvp(direction); }), {name, "jvp is missing"}));
    EXPECT_TRUE(says(error_of([&] { s.vjp(cotangent); }), {name, "vjp is missing"}));
    EXPECT_TRUE(says(error_of([&] { s.jacobian(); }), {"is missing"}));
  }
}

TEST(ForeignStep, WithAnEquationOfTheUserNeedsNoDerivativeForImplicit) {
  const Plain plain(5);
  const auto F = plain.traced();
  const Solver s =
      fixed_point(ForeignStep{.apply = plain.step().apply}).equation([F](Expr x, Expr t, Expr u) { return x - F(x, t, u); });
  const Solution foreign = solve(s, zeros({4}), theta, Implicit{}),
                 traced = solve(fixed_point(F), zeros({4}), theta, Implicit{});
  EXPECT_TRUE(test::near(foreign.jvp(direction), traced.jvp(direction), 1e-9));
  EXPECT_TRUE(test::near(test::flat(foreign.vjp(cotangent)), test::flat(traced.vjp(cotangent)), 1e-9));
}

TEST(ForeignFunction, WithoutVjpInATracedStepNamesWhatIsMissing) {
  struct Half final : Foreign {
    std::string name() const override { return "half"; }
    Shape shape(std::span<const Shape> in) const override { return in[0]; }
    void apply(std::span<const std::span<const double>> in, std::span<double> out) const override {
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = 0.5 * in[0][i];
    }
    bool has_jvp() const override { return true; }
    void jvp(std::span<const std::span<const double>>, std::span<const std::span<const double>> d,
             std::span<double> out) const override {
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = 0.5 * d[0][i];
    }
  };
  const Solver s = fixed_point([](Expr x, Expr t) { return call(std::make_shared<Half>(), {x}) + t; });
  const Solution solution = solve(s, zeros({2}), ones({2}), Implicit{});
  EXPECT_EQ(solution.status(), Status::converged);
  EXPECT_TRUE(test::near(solution.jvp(ones({2})), full({2}, 2.0), 1e-12));
  EXPECT_TRUE(says(error_of([&] { solution.vjp(ones({2})); }), {"[Implicit]", "vjp is missing", "half"}));
}

TEST(CheckGradients, AcceptsAForeignStepThatIsRight) {
  const Plain plain(6);
  const GradientCheck check = check_gradients(plain.step(), Array{0.1, -0.2, 0.3, 0.4}, theta);
  EXPECT_TRUE(check.ok()) << check.message();
  EXPECT_GE(check.comparisons().size(), 6U);
}

TEST(CheckGradients, ChecksWhatThereIs) {
  const Plain plain(7);
  ForeignStep forward = plain.step(), reverse = plain.step();
  forward.vjp = nullptr;
  reverse.jvp = nullptr;
  const Array x{0.1, -0.2, 0.3, 0.4};
  EXPECT_TRUE(check_gradients(forward, x, theta).ok()) << check_gradients(forward, x, theta).message();
  EXPECT_TRUE(check_gradients(reverse, x, theta).ok()) << check_gradients(reverse, x, theta).message();
  EXPECT_TRUE(
      says(error_of([&] { check_gradients(ForeignStep{.apply = forward.apply}, x, theta); }), {"neither jvp nor vjp"}));
}

std::string failed_claims(const GradientCheck& check) {
  std::string all;
  for (const GradientComparison& c : check.comparisons())
    if (!c.ok()) all += c.claim + "\n";
  return all;
}

TEST(CheckGradients, FindsAJvpAndAVjpThatAreNotAdjoint) {
  const Plain plain(8);
  const Array x{0.1, -0.2, 0.3, 0.4};
  ForeignStep wrong = plain.step();
  wrong.vjp = [right = plain.step().vjp](auto at, auto t, auto c, auto x_bar, auto theta_bar) {
    right(at, t, c, x_bar, theta_bar);
    if (!x_bar.empty()) std::swap(x_bar[0], x_bar[1]);
  };
  EXPECT_TRUE(says(failed_claims(check_gradients(wrong, x, theta)), {"⟨"}));
  wrong.vjp = [right = plain.step().vjp](auto at, auto t, auto c, auto x_bar, auto theta_bar) {
    right(at, t, c, x_bar, theta_bar);
    if (!theta_bar.empty()) theta_bar[1][0] *= 1.0001;
  };
  EXPECT_TRUE(says(failed_claims(check_gradients(wrong, x, theta)), {"⟨"}));
}

TEST(CheckGradients, FindsAForeignDerivativeThatIsWrong) {
  const Plain plain(9);
  const Array x{0.1, -0.2, 0.3, 0.4};
  ForeignStep wrong = plain.step();
  wrong.jvp = [right = plain.step().jvp](auto at, auto t, auto dx, auto dtheta, auto out) {
    right(at, t, dx, dtheta, out);
    out[2] *= 1.001;
  };
  EXPECT_TRUE(says(failed_claims(check_gradients(wrong, x, theta)), {"differences"}));
  wrong.vjp = nullptr;
  EXPECT_TRUE(says(failed_claims(check_gradients(wrong, x, theta)), {"differences"}));
  wrong = plain.step();
  wrong.jvp = nullptr;
  wrong.vjp = [right = plain.step().vjp](auto at, auto t, auto c, auto x_bar, auto theta_bar) {
    right(at, t, c, x_bar, theta_bar);
    if (!theta_bar.empty()) theta_bar[0][1] = 0;
  };
  EXPECT_TRUE(says(failed_claims(check_gradients(wrong, x, theta)), {"differences"}));
}

TEST(CheckGradients, FindsAForeignDerivativeThatForgetsToOverwrite) {
  // Adding to what is in the output works with memory of zeros only.
  const Plain plain(10);
  ForeignStep wrong = plain.step();
  wrong.vjp = [right = plain.step().vjp](auto at, auto t, auto c, auto x_bar, auto theta_bar) {
    std::vector<double> before(x_bar.begin(), x_bar.end());
    right(at, t, c, x_bar, theta_bar);
    for (std::size_t i = 0; i < before.size(); ++i) x_bar[i] += before[i];
  };
  EXPECT_FALSE(check_gradients(wrong, Array{0.1, -0.2, 0.3, 0.4}, theta).ok());
}

TEST(CheckGradients, FindsAForeignDerivativeThatIgnoresWhatIsLeftOut) {
  // With dθ left out, this one still moves θ₁.
  const Plain plain(11);
  ForeignStep wrong = plain.step();
  wrong.jvp = [right = plain.step().jvp](auto at, auto t, auto dx, auto dtheta, auto out) {
    right(at, t, dx, dtheta, out);
    if (dtheta.empty()) out[0] += 0.5;
  };
  EXPECT_FALSE(check_gradients(wrong, Array{0.1, -0.2, 0.3, 0.4}, theta).ok());
}

TEST(CheckGradients, ChecksTheStepOfASolver) {
  Random random(12);
  const test::Logistic problem(random, 20, 3);
  const Array x = random.array({3}), w = random.array({20}, 0.5, 1.5);
  for (const Solver& s :
       {newton(problem.objective()), gradient_descent(problem.objective(), {.step = GradientStep::fixed(0.1)}),
        fixed_point([](Expr at, Expr t) { return tanh(at) * sum(t); })}) {
    const GradientCheck check = check_gradients(s, x, w);
    EXPECT_TRUE(check.ok()) << check.message();
  }
}

}  // namespace
}  // namespace onestep
