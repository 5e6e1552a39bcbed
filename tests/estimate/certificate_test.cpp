// The bound is never below the error: over random contractions, affine and smooth, symmetric, general and nearly nilpotent.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <sstream>

#include "onestep/onestep.h"
#include "support/problems.h"
#include "support/spectrum.h"

namespace onestep {
namespace {

using Generator = std::mt19937_64;

std::vector<double> gaussian(Generator& random, std::size_t count) {
  std::normal_distribution<double> normal;
  std::vector<double> v(count);
  for (double& e : v) e = normal(random);
  return v;
}
double uniform(Generator& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

double norm(std::span<const double> v) {
  double sum = 0;
  for (const double e : v) sum += e * e;
  return std::sqrt(sum);
}
double distance(const Array& a, const Array& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.size(); ++i)
    sum += (a.values()[static_cast<std::size_t>(i)] - b.values()[static_cast<std::size_t>(i)]) *
           (a.values()[static_cast<std::size_t>(i)] - b.values()[static_cast<std::size_t>(i)]);
  return std::sqrt(sum);
}

// ‖A‖ by power iteration on AᵀA, far enough for tests.
double operator_norm(const std::vector<double>& a, std::size_t n) {
  std::vector<double> v(n, 1), w(n);
  double size = 0;
  for (int k = 0; k < 3000; ++k) {
    double* const to = v.data();  // plain pointers: calls of operator[] are most of the time without optimisation
    for (std::size_t i = 0; i < n; ++i) {
      const double* const row = a.data() + i * n;
      double sum = 0;
      for (std::size_t j = 0; j < n; ++j) sum += row[j] * to[j];
      w[i] = sum;
    }
    std::ranges::fill(v, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      const double* const row = a.data() + i * n;
      const double factor = w[i];
      for (std::size_t j = 0; j < n; ++j) to[j] += row[j] * factor;
    }
    const double next = std::sqrt(norm(v));
    for (double& e : v) e /= next * next;
    if (std::fabs(next - size) < 1e-13 * next) return next;
    size = next;
  }
  return size;
}

enum class Kind { symmetric, general, nearly_nilpotent };

struct Contraction {
  Array a, b, c;
  double rho;
};
Contraction contraction(Generator& random, Kind kind, std::size_t n, std::size_t m) {
  std::vector<double> a = gaussian(random, n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      if (kind == Kind::symmetric && j > i) a[j * n + i] = a[i * n + j];
      if (kind == Kind::nearly_nilpotent && j <= i) a[i * n + j] *= 1e-3;
    }
  const double rho = uniform(random, 0, 0.99), size = operator_norm(a, n);
  for (double& e : a) e *= rho / size;
  const auto rows = static_cast<std::int64_t>(n), columns = static_cast<std::int64_t>(m);
  return {Array({rows, rows}, a), Array({rows, columns}, gaussian(random, n * m)), Array({rows}, gaussian(random, n)), rho};
}

// x ← A x + Bθ + c, or with a smooth nonlinearity that keeps the contraction factor: ρ at most ‖A‖.
Solver solver_of(const Contraction& k, bool affine, const SolveOptions& options) {
  if (affine) return fixed_point([k](Expr x, Expr theta) { return matmul(k.a, x) + matmul(k.b, theta) + k.c; }, options);
  return fixed_point(
      [k](Expr x, Expr theta) {
        return matmul(k.a, tanh(x + 0.1 * matmul(k.b, sin(theta)))) + matmul(k.b, sin(theta)) + k.c;
      },
      options);
}

struct Case {
  Kind kind;
  std::size_t n, m;
  Contraction map;
  Array theta, v, direction;
};
Case random_case(Generator& random) {
  Case c;
  c.kind = static_cast<Kind>(random() % 3);
  c.n = 2 + random() % 49;
  c.m = 1 + random() % 30;
  c.map = contraction(random, c.kind, c.n, c.m);
  c.theta = Array({static_cast<std::int64_t>(c.m)}, gaussian(random, c.m));
  c.v = Array({static_cast<std::int64_t>(c.n)}, gaussian(random, c.n));
  c.direction = Array({static_cast<std::int64_t>(c.m)}, gaussian(random, c.m));
  return c;
}

int cases() { return std::getenv("ONESTEP_LONG") != nullptr ? 10000 : 400; }

// The truth: dense implicit differentiation where the iteration has come to rest.
struct Truth {
  Array vjp, jvp;
};
Truth truth(const Case& c, bool affine) {
  const Solver exact = solver_of(c.map, affine, {.tolerance = 0, .max_iterations = 100000});
  const Array x0 = zeros({static_cast<std::int64_t>(c.n)});
  const Solution s = solve(exact, x0, c.theta, Implicit{.how = Implicit::dense});
  EXPECT_TRUE(is_solution(s.status())) << s.message();
  return {s.vjp(c.v), s.jvp(c.direction)};
}

class Bound : public ::testing::TestWithParam<bool> {};

TEST_P(Bound, IsNeverBelowTheErrorAndNotFarAboveItOnAffineMaps) {
  const bool affine = GetParam();
  Generator random(affine ? 1 : 2);
  std::vector<double> ratios;
  for (int i = 0; i < cases(); ++i) {
    const Case c = random_case(random);
    const Truth right = truth(c, affine);
    const Solver solver = solver_of(c.map, affine, {});
    const Array x0 = zeros({static_cast<std::int64_t>(c.n)});
    const Solution s = solve(solver, x0, c.theta, OneStep{});
    ASSERT_TRUE(is_solution(s.status())) << s.message();
    const double error = distance(s.vjp(c.v), right.vjp), jvp_error = distance(s.jvp(c.direction), right.jvp);
    const Certificate certificate = s.certificate(c.v), of_jvp = s.certificate_jvp(c.direction);
    ASSERT_NE(certificate.basis, Certificate::Basis::refused) << certificate.reason;
    EXPECT_GE(certificate.bound, error) << "case " << i << ", n " << c.n << ", rho " << c.map.rho;
    EXPECT_GE(of_jvp.bound, jvp_error) << "case " << i << ", n " << c.n << ", rho " << c.map.rho;
    // What the estimate leaves out is bounded by the rest of the series. (There is none of an error like rounding.)
    if (!std::isnan(certificate.estimate)) {
      EXPECT_LE(std::fabs(error - certificate.estimate),
                certificate.bound - certificate.estimate + 1e-12 * certificate.bound);
    }
    if (error > 1e-10 * certificate.value) ratios.push_back(certificate.bound / error);
  }
  std::ranges::sort(ratios);
  const double median = ratios[ratios.size() / 2], tenth = ratios[ratios.size() * 9 / 10];
  RecordProperty("median", std::to_string(median));
  RecordProperty("90th percentile", std::to_string(tenth));
  if (affine) {
    EXPECT_LE(median, 3);
    EXPECT_LE(tenth, 10);
  }
}

TEST_P(Bound, HoldsForKStepsAndImplicit) {
  const bool affine = GetParam();
  Generator random(affine ? 3 : 4);
  for (int i = 0; i < cases() / 10; ++i) {
    const Case c = random_case(random);
    const Truth right = truth(c, affine);
    const Solver solver = solver_of(c.map, affine, {});
    const Array x0 = zeros({static_cast<std::int64_t>(c.n)});
    for (const Estimator& estimator : {Estimator(KStep{1 + static_cast<int>(random() % 20)}), Estimator(Implicit{}),
                                       Estimator(Implicit{.how = Implicit::matrix_free, .tolerance = 1e-4})}) {
      const Solution s = solve(solver, x0, c.theta, estimator);
      ASSERT_TRUE(is_solution(s.status())) << s.message();
      const Certificate certificate = s.certificate(c.v);
      EXPECT_GE(certificate.bound, distance(s.vjp(c.v), right.vjp)) << i << " " << s.report().method << " rho " << c.map.rho;
      EXPECT_GE(s.certificate_jvp(c.direction).bound, distance(s.jvp(c.direction), right.jvp))
          << i << " " << s.report().method << " rho " << c.map.rho;
    }
  }
}

TEST_P(Bound, AutoMeetsItsTolerance) {
  const bool affine = GetParam();
  Generator random(affine ? 5 : 6);
  for (int i = 0; i < cases(); ++i) {
    const Case c = random_case(random);
    const Truth right = truth(c, affine);
    const double tolerance = std::pow(10.0, -uniform(random, 1, 7));
    // The distance to the solution comes on top of the tolerance.
    const Solver solver = solver_of(c.map, affine, {.tolerance = 1e-12, .max_iterations = 100000});
    const Array x0 = zeros({static_cast<std::int64_t>(c.n)});
    const Solution s = solve(solver, x0, c.theta, Auto{.tolerance = tolerance});
    ASSERT_TRUE(is_solution(s.status())) << s.message();
    const Array g = s.vjp(c.v);
    EXPECT_LE(distance(g, right.vjp), tolerance * norm(g.values())) << i << " " << s.report().method;
    const Array d = s.jvp(c.direction);
    EXPECT_LE(distance(d, right.jvp), tolerance * norm(d.values())) << i << " " << s.report().method;
    // It never costs more than twice the cheaper of going on and of implicit differentiation.
    (void)s.vjp(c.v);
    const Solution implicit = solve(solver, x0, c.theta, Implicit{.how = Implicit::dense});
    (void)implicit.vjp(c.v);
    const double of_a_few_products = 16 * 2 * static_cast<double>(c.n * c.n);
    EXPECT_LE(s.report().flops, 2 * implicit.report().flops + of_a_few_products) << i << " " << s.report().method;
  }
}

INSTANTIATE_TEST_SUITE_P(Maps, Bound, ::testing::Values(true, false),
                         [](const auto& param_info) { return param_info.param ? "Affine" : "Smooth"; });

TEST(Certificate, OfANonNormalMapHolds) {
  const Array a{{0.5, 3.0}, {0.0, 0.4}};  // ‖A‖ is 3, its eigenvalues 0.5 and 0.4
  const Solver s = fixed_point([&](Expr x, Expr theta) { return matmul(a, x) + theta; });
  const Solution solution = solve(s, zeros({2}), Array{1.0, 2.0}, OneStep{});
  const Array v{1.0, -1.0};
  const Certificate c = solution.certificate(v);
  EXPECT_EQ(c.basis, Certificate::Basis::observed);
  const Array exact = solve(s, zeros({2}), Array{1.0, 2.0}, Implicit{}).vjp(v);
  EXPECT_GE(c.bound, distance(solution.vjp(v), exact));
}

TEST(Certificate, RefusesWhereTheMapDoesNotContract) {
  const Solver s = fixed_point([](Expr x, Expr theta) { return 2.0 * x - theta; });
  const Solution solution = solve(s, Array{1.0, 1.0}, Array{1.0, 1.0}, OneStep{});  // the start is the fixed point
  EXPECT_EQ(solution.status(), Status::converged);
  const Certificate c = solution.certificate(Array{1.0, 0.0});
  EXPECT_EQ(c.basis, Certificate::Basis::refused);
  EXPECT_FALSE(std::isfinite(c.bound));
  EXPECT_NE(c.reason.find("does not contract"), std::string::npos) << c.reason;
}

bool throws(const std::function<void()>& derivative) {
  try {
    derivative();
  } catch (const NoDerivativeError&) { return true; }
  return false;
}

// Newton's method is only linear where the Hessian vanishes at the solution: its last step says 1/3 where the truth is 1.
TEST(Certificate, SeesThatNewtonIsNotFastAtADegenerateSolution) {
  const Solver s = newton([](Expr x, Expr t) { return sum(square(square(x - t))); });
  const Solution solution = solve(s, Array{2.0}, Array{1.0}, OneStep{});
  ASSERT_TRUE(is_solution(solution.status())) << solution.message();
  for (const Certificate& c : {solution.certificate(Array{1.0}), solution.certificate_jvp(Array{1.0})}) {
    EXPECT_EQ(c.basis, Certificate::Basis::refused) << c;
    EXPECT_NE(c.reason.find("degenerate"), std::string::npos) << c.reason;
  }
  const Solver root = newton_root([](Expr x, Expr t) { return square(x - t); });
  for (const Solver& degenerate : {s, root})
    for (const Estimator& e : std::vector<Estimator>{OneStep{}, KStep{2}, Implicit{}, Auto{1e-6}, Estimator{}}) {
      const Solution one = solve(degenerate, Array{2.0}, Array{1.0}, e);
      // Who asks for just these steps is given them, and is told.
      const bool by_steps = std::holds_alternative<OneStep>(e.kind()) || std::holds_alternative<KStep>(e.kind());
      EXPECT_EQ(throws([&] { one.vjp(Array{1.0}); }), !by_steps);
      EXPECT_EQ(throws([&] { one.jvp(Array{1.0}); }), !by_steps);
      EXPECT_EQ(one.report().status, Status::singular);
      EXPECT_EQ(one.certificate(Array{1.0}).basis, Certificate::Basis::refused);
      Prepared prepared(degenerate, Array{2.0}, Array{1.0}, e);
      const Solution again = prepared.solve(Array{1.0});
      EXPECT_EQ(throws([&] { prepared.solve(Array{1.0}).vjp(Array{1.0}); }), !by_steps);
    }
}

// Where two parameters are equal, the larger of them has no derivative, and no parameter alone tells.
TEST(Certificate, RefusesWhereEqualParametersTie) {
  const Array tie{1.0, 1.0}, apart{1.0, 1.5};
  for (const auto& largest : std::vector<std::function<Expr(const Expr&)>>{
           [](const Expr& t) { return max(t); }, [](const Expr& t) { return abs(slice(t, 0, 1) - slice(t, 1, 2)); }}) {
    const Solver solver =
        fixed_point([&](Expr x, Expr t) { return 0.5 * x + reshape(largest(t), Shape{}); }, {.tolerance = 1e-12});
    EXPECT_EQ(solve(solver, Array(0.0), tie, Implicit{}).certificate(Array(1.0)).basis, Certificate::Basis::refused);
    EXPECT_EQ(solve(solver, Array(0.0), apart, Implicit{}).certificate(Array(1.0)).basis, Certificate::Basis::observed);
  }
}

// A derivative computed with the other permission is another one: the certificate is of what this handle returns.
TEST(Certificate, IsOfTheHandleThatAsks) {
  const Solver half = fixed_point([](Expr x, Expr t) { return 0.5 * x + t; }, {.tolerance = 1e-12});
  const Solution s = solve(half, Array(2.0), Array(1.0), Unrolled{}), any = s.even_if_unconverged();
  for (int k = 0; k < 2; ++k) {
    const double of_any = any.vjp(Array(1.0))[0].item(), of_s = s.vjp(Array(1.0))[0].item();
    EXPECT_GE(std::fabs(of_any - of_s), 0.5) << "the two have to differ, else nothing is told apart";
    EXPECT_GE(any.certificate(Array(1.0)).bound, std::fabs(of_any - 2));
    EXPECT_GE(s.certificate(Array(1.0)).bound, std::fabs(of_s - 2));
    EXPECT_GE(any.certificate(Array(1.0)).bound, std::fabs(of_any - 2));
  }
}

// x = x - (x - 1)³/2 + t: at small t the step hardly contracts, and from loose solves the solution is farther than it seems.
TEST(Certificate, OfSublinearStepsIsTrueOrRefused) {
  int observed = 0;
  for (const double t : {1e-3, 1e-6, 1e-9, 1e-12})
    for (const double tolerance : {1e-2, 1e-4, 1e-6, 1e-8})
      for (const Estimator& e : std::vector<Estimator>{OneStep{}, KStep{20}, Implicit{}, Auto{1e-6}}) {
        const Solver cubic = fixed_point([](Expr x, Expr theta) { return x - 0.5 * pow(x - 1.0, 3.0) + theta; },
                                         {.tolerance = tolerance, .max_iterations = 100000});
        const Solution s = solve(cubic, Array(2.0), Array(t), e);
        if (!is_solution(s.status())) continue;
        const double d = std::cbrt(2 * t), expected = 1 / (1.5 * d * d);
        const Certificate c = s.certificate(Array(1.0));
        EXPECT_GE(c.bound, std::fabs(s.vjp(Array(1.0))[0].item() - expected)) << t << " " << tolerance << " " << c;
        observed += c.basis == Certificate::Basis::observed ? 1 : 0;
      }
  EXPECT_GE(observed, 10) << "refusing everything is no answer";
}

TEST(Certificate, OfNewtonIsNeverBelowTheError) {
  test::Random random(11);
  for (int trial = 0; trial < 50; ++trial) {
    const test::Logistic problem(random, 30, 4);
    const Array w = random.array({30}, 0.5, 1.5), c = random.array({4}), v = random.array({30});
    const Solver exactly = newton(problem.objective(), {.tolerance = 1e-13});
    const Solution truth = solve(exactly, problem.start(), w, Implicit{.tolerance = 1e-14});
    for (const double tolerance : {1e-3, 1e-6, 1e-10}) {
      const Solver fit = newton(problem.objective(), {.tolerance = tolerance});
      for (const Estimator& e : {Estimator(OneStep{}), Estimator(Implicit{})}) {
        const Solution s = solve(fit, problem.start(), w, e);
        const Certificate reverse = s.certificate(c), forward = s.certificate_jvp(v);
        EXPECT_GE(reverse.bound, distance(s.vjp(c), truth.vjp(c))) << reverse;
        EXPECT_GE(forward.bound, distance(s.jvp(v), truth.jvp(v))) << forward;
        EXPECT_LT(reverse.bound, 1e3 * tolerance * (1 + reverse.value)) << reverse;
      }
    }
  }
}

// Samples of rounding are that, samples: one in some hundred, and that by a small factor, may be larger than what was seen.
TEST(Certificate, OfNewtonHoldsForHessiansOfAnyCondition) {
  constexpr double never = 3;
  test::Random random(15);
  int bounds = 0, below = 0;
  const auto compare = [&](const Certificate& c, double error) {
    EXPECT_GE(never * c.bound, error) << c;
    below += c.bound < error ? 1 : 0;
    bounds += std::isfinite(c.bound) ? 1 : 0;
  };
  for (int k = 0; k < 400; ++k) {
    const std::int64_t n = random.integer(3, 12);
    const test::Spectrum problem(random, n, std::pow(10.0, random.uniform(2, 12)), random.flip());
    const Array c = random.array({n}), v = random.array({n});
    for (const Estimator& e : {Estimator(OneStep{}), Estimator(Implicit{})}) {
      const Solver fit = newton(problem.objective(), {.tolerance = std::pow(10.0, random.uniform(-12, -4))});
      const Solution s = solve(fit, problem.start(), problem.theta, e);
      if (!is_solution(s.status())) continue;
      const Certificate reverse = s.certificate(c), forward = s.certificate_jvp(v);
      const Solution any = s.even_if_unconverged();  // nearly singular ones are refused otherwise
      compare(reverse, test::distance(any.vjp(c), problem.vjp(c)));
      compare(forward, test::distance(any.jvp(v), problem.jvp(v)));
    }
  }
  EXPECT_GE(bounds, 1500);
  EXPECT_LE(below, 3);
}

// A linear solve that was stopped early is seen in what it returned.
TEST(Certificate, SeesALinearSolveThatFellShort) {
  test::Random random(12);
  const test::Logistic problem(random, 60, 30);
  const Array w = random.array({60}, 0.5, 1.5), c = random.array({30}), v = random.array({60});
  const Implicit stopped{
      .how = Implicit::matrix_free, .max_iterations = 3, .preconditioner = [](std::span<double>, bool) {}};
  const Solver fit = newton(problem.objective());
  const Solution truth = solve(fit, problem.start(), w, Implicit{}), s = solve(fit, problem.start(), w, stopped);
  EXPECT_GE(s.certificate(c).bound, distance(s.vjp(c), truth.vjp(c)));
  EXPECT_GE(s.certificate_jvp(v).bound, distance(s.jvp(v), truth.jvp(v)));
}
TEST(Certificate, OfImplicitOnANearlySingularMapIsNeverBelowTheError) {
  const Array A{{0.0, 0.0}, {0.0, 1 - 1e-6}}, v{1.0, 1e-5};
  const Solver s = fixed_point([&](Expr x, Expr t) { return matmul(A, x) + t; });
  const Solution solution = solve(s, zeros({2}), zeros({2}), Implicit{.how = Implicit::matrix_free, .tolerance = 1e-4});
  const Array exact{1.0, 10.0};
  EXPECT_GE(solution.certificate_jvp(v).bound, distance(solution.jvp(v), exact));
  EXPECT_GE(solution.certificate(v).bound, distance(solution.vjp(v), exact));
}

// x² / 2 + 0.45 + θ(1 + x) from 0, one step: far from the solution, which the bound must know.
TEST(Certificate, KnowsHowFarALongStepMayBeFromTheSolution) {
  const Solver s = fixed_point([](Expr x, Expr t) { return 0.45 + 0.5 * square(x) + t * (1.0 + x); }, {.tolerance = 0.1});
  const Solution solution = solve(s, Array(0.0), Array(0.0), OneStep{});
  ASSERT_TRUE(is_solution(solution.status())) << solution.message();
  const double x = 1 - std::sqrt(0.1), exact = (1 + x) / (1 - x);
  const Certificate c = solution.certificate(Array(1.0));
  EXPECT_GE(c.bound, std::fabs(Array(solution.vjp(Array(1.0))).item() - exact)) << c;
}

// The kink at 0 is within what is known of the distance to the solution: the truth may be the other branch's.
TEST(Certificate, RefusesAtAKink) {
  const Solver s = fixed_point([](Expr x, Expr t) { return maximum(0.5 * x + t, 0.5); });
  for (const double theta : {0.25, 0.25 * (1 - 1e-15), 0.25 * (1 + 1e-15)})
    for (const Estimator& e : {Estimator(Implicit{}), Estimator(Auto{}), Estimator(KStep{30})}) {
      const Solution solution = solve(s, Array{1.0}, Array{theta}, e);
      ASSERT_TRUE(is_solution(solution.status()));
      for (const Certificate& c : {solution.certificate(Array{1.0}), solution.certificate_jvp(Array{1.0})})
        EXPECT_EQ(c.basis, Certificate::Basis::refused) << c;
    }
  // Far from it there is a bound.
  const Solution away = solve(s, Array{1.0}, Array{1.0}, Implicit{});
  EXPECT_NE(away.certificate(Array{1.0}).basis, Certificate::Basis::refused) << away.certificate(Array{1.0});
}

// A gradient step on |x - t| + x²/2 at t = 1, where the solution is t for t < 1 and 1 above: derivatives of the step are the
// same on both sides of x = t, the step itself is not.
TEST(Certificate, RefusesWhereTheStepJumps) {
  const Solver s =
      gradient_descent([](Expr x, Expr t) { return sum(abs(x - t) + 0.5 * square(x)); }, {.step = GradientStep::fixed(0.1)});
  for (const double x0 : {0.3, 1.0, 1.3}) {
    const Solution solution = solve(s, Array{x0}, Array{1.0}, Implicit{});
    ASSERT_TRUE(is_solution(solution.status())) << solution.message();
    EXPECT_EQ(solution.certificate(Array{1.0}).basis, Certificate::Basis::refused) << x0;
    EXPECT_EQ(solution.certificate_jvp(Array{1.0}).basis, Certificate::Basis::refused) << x0;
  }
  // Steep is no jump.
  for (const double slope : {1.0, 1e2, 1e4}) {
    const Solution steep = solve(fixed_point([slope](Expr x, Expr t) {
                                   const Expr a = x[{0, 1}];
                                   return concat({0.5 * relu(a) + t, slope * relu(a - 1.0) + 0.5 * x[{1, 2}]});
                                 }),
                                 Array{1.0, 1.0}, Array{1.0}, Implicit{});
    ASSERT_TRUE(is_solution(steep.status())) << steep.message();
    const Array c{1.0, 1.0};
    const Certificate certificate = steep.certificate(c);
    EXPECT_EQ(certificate.basis, Certificate::Basis::observed) << slope << ": " << certificate;
    EXPECT_GE(certificate.bound, std::fabs(steep.vjp(c)[0].item() - (2 + 4 * slope))) << slope;
  }
}

// Which entry log_sum_exp shifts by changes nothing: two that are equal are no kink. x = 0.3 (log 2 + x) + θ in each.
TEST(Certificate, KnowsThatAShiftIsNoKink) {
  const Solver s = fixed_point([](Expr x, Expr t) { return 0.3 * broadcast(log_sum_exp(x), {2}) + t; });
  for (const Estimator& e : {Estimator(), Estimator(Implicit{}), Estimator(KStep{5})}) {
    const Solution tie = solve(s, zeros({2}), Array{1.0, 1.0}, e);
    EXPECT_NEAR(tie.x()(0), (0.3 * std::log(2.0) + 1) / 0.7, 1e-9);
    const Certificate c = tie.certificate(Array{1.0, 0.0});
    EXPECT_EQ(c.basis, Certificate::Basis::observed) << c;
    // dx/dθ = I + 0.3/0.7 11ᵀ/2
    const Array g = tie.vjp(Array{1.0, 0.0});
    EXPECT_GE(c.bound, std::hypot(g(0) - (1 + 0.15 / 0.7), g(1) - 0.15 / 0.7));
    EXPECT_EQ(tie.certificate_jvp(Array{1.0, -2.0}).basis, Certificate::Basis::observed);
  }
}

// x = 2 + 2|θ| has no derivative at θ = 0.
TEST(Certificate, RefusesAtAKinkInTheParameters) {
  const Solver s = fixed_point([](Expr x, Expr t) { return 0.5 * x + abs(t) + 1.0; });
  for (const Estimator& e : {Estimator(), Estimator(OneStep{}), Estimator(KStep{5}), Estimator(Implicit{})}) {
    const Solution at = solve(s, 3.0, 0.0, e), beside = solve(s, 3.0, 0.1, e);
    EXPECT_EQ(at.certificate(1.0).basis, Certificate::Basis::refused) << at.certificate(1.0);
    EXPECT_EQ(at.certificate_jvp(1.0).basis, Certificate::Basis::refused) << at.certificate_jvp(1.0);
    EXPECT_EQ(beside.certificate(1.0).basis, Certificate::Basis::observed) << beside.certificate(1.0);
    EXPECT_EQ(beside.certificate_jvp(1.0).basis, Certificate::Basis::observed) << beside.certificate_jvp(1.0);
  }
}

// Steps from (0.001, 0) approach the saddle near (0, 2θ) and leave it for x = ±1, where the derivative is another. A loose
// tolerance stops them on the way, and what is nearest is not where they were going.
TEST(Certificate, RefusesBesideASolutionThatRepels) {
  const auto step = [](Expr x, Expr t) {
    const Expr along = slice(x, 0, 1), across = slice(x, 1, 2);
    return concat({along + 0.2 * (along - along * along * along) + 0.002 * (across - 2.0 * t), 0.5 * across + t});
  };
  const Solver s = fixed_point(step), loose = fixed_point(step, {.tolerance = 1e-2});
  const Array start{0.001, 0.0}, theta{0.7};
  for (const Estimator& e : {Estimator(), Estimator(Implicit{}), Estimator(Implicit{.how = Implicit::matrix_free}),
                             Estimator(OneStep{}), Estimator(KStep{5})}) {
    const Solution beside = solve(loose, start, theta, e);
    ASSERT_TRUE(is_solution(beside.status()));
    ASSERT_LT(std::fabs(beside.x().values()[0]), 0.5);
    for (const Array& v : {Array{1.0, 0.0}, Array{0.3, -2.0}})
      EXPECT_EQ(beside.certificate(v).basis, Certificate::Basis::refused) << beside.certificate(v);
    EXPECT_EQ(beside.certificate_jvp(Array{1.0}).basis, Certificate::Basis::refused) << beside.certificate_jvp(Array{1.0});
    // Solved to the end there is a bound, and beside the one that attracts there is one after a loose solve too.
    for (const Solution& there : {solve(s, start, theta, e), solve(loose, Array{-0.99, 1.5}, theta, e)}) {
      EXPECT_EQ(there.certificate(Array{0.0, 1.0}).basis, Certificate::Basis::observed)
          << there.certificate(Array{0.0, 1.0});
      EXPECT_EQ(there.certificate_jvp(Array{1.0}).basis, Certificate::Basis::observed) << there.certificate_jvp(Array{1.0});
    }
  }
}

// A read-out that hardly sees what the parameter moves: the residual of u must be as small as that.
TEST(Certificate, OfAWeaklyCoupledReadOutHolds) {
  for (const double coupling : {1e-2, 1e-6, 1e-10}) {
    const Solver s = fixed_point([&](Expr a, Expr b, Expr t) {
      return std::vector<Expr>{0.0018 * a + coupling * b + 1.0, 0.8 * b + t};
    });
    const double exact = coupling / (1 - 0.0018) / 0.2;
    const Parts c{Array(1.0), Array(0.0)};
    for (const Estimator& e : {Estimator(OneStep{}), Estimator(KStep{2}), Estimator(Implicit{}), Estimator()}) {
      const Solution solution = solve(s, Parts{Array(0.0), Array(0.0)}, 1.0, e);
      EXPECT_GE(solution.certificate(c).bound, std::fabs(solution.vjp(c)[0].item() - exact)) << solution.certificate(c);
    }
  }
}

// x = tanh(x/2 + θ), where tanh is almost 1 and its derivative is computed as 1 - tanh²: what rounding leaves of it is
// relative to 1, not to the derivative.
TEST(Certificate, CountsTheRoundingOfTermsThatCancelInsideAStep) {
  ForeignStep step;
  step.apply = [](auto x, auto theta, auto next) {
    for (std::size_t i = 0; i < 2; ++i) next[i] = std::tanh(0.5 * x[i] + theta[0](static_cast<std::int64_t>(i)));
  };
  const auto slope = [](auto x, auto theta, std::size_t i) {
    const double y = std::tanh(0.5 * x[i] + theta[0](static_cast<std::int64_t>(i)));
    return 1 - y * y;
  };
  step.jvp = [slope](auto x, auto theta, auto dx, auto dtheta, auto out) {
    for (std::size_t i = 0; i < 2; ++i)
      out[i] = slope(x, theta, i) *
               ((dx.empty() ? 0 : 0.5 * dx[i]) + (dtheta.empty() ? 0 : dtheta[0](static_cast<std::int64_t>(i))));
  };
  step.vjp = [slope](auto x, auto theta, auto c, auto x_bar, auto theta_bar) {
    for (std::size_t i = 0; i < 2; ++i) {
      if (!x_bar.empty()) x_bar[i] = 0.5 * slope(x, theta, i) * c[i];
      if (!theta_bar.empty()) theta_bar[0][i] = slope(x, theta, i) * c[i];
    }
  };
  const Array ones{1.0, 1.0};
  for (double t = 4; t < 17; t += 0.37) {
    const Array theta{t, 1.1 * t};
    std::vector<double> exact;
    for (const double each : {t, 1.1 * t}) {
      const double a = 0.5 + each, s = 4 / std::pow(std::exp(a) + std::exp(-a), 2);  // x is 1 but for s/2
      exact.push_back(s / (1 - 0.5 * s));
    }
    for (const Estimator& e : {Estimator(OneStep{}), Estimator(Implicit{}), Estimator()}) {
      const Solution s = solve(fixed_point(step), ones, theta, e);
      ASSERT_TRUE(is_solution(s.status())) << s.message();
      // The approximation x = 1 above is worth s²/2 and less.
      const double doubt = exact[0] * exact[0];
      const Certificate of_vjp = s.certificate(ones), of_jvp = s.certificate_jvp(ones);
      EXPECT_GE(of_vjp.bound + doubt, distance(s.vjp(ones), Array({2}, exact))) << t << ": " << of_vjp;
      EXPECT_GE(of_jvp.bound + doubt, distance(s.jvp(ones), Array({2}, exact))) << t << ": " << of_jvp;
    }
    const Solution by_auto = solve(fixed_point(step), ones, theta, Auto{1e-6});
    const double error = distance(by_auto.vjp(ones), Array({2}, exact)) / norm(exact);
    EXPECT_TRUE(error <= 1e-6 + exact[0] || by_auto.report().status != Status::converged) << t << ' ' << error;
  }
}

TEST(Certificate, PrintsBoundsOfAnySize) {
  const Solution s = solve(fixed_point([](Expr x, Expr t) { return 0.5 * sin(x) + t; }), 1.0, 1.0, KStep{2});
  for (const double size : {1.0, 1e-160, 1e-300}) {
    std::ostringstream out;
    out << s.certificate(size);
    EXPECT_NE(out.str().find("error <="), std::string::npos) << out.str();
  }
}

TEST(Certificate, OfKStepsImprovesWithK) {
  const Solver s = fixed_point([](Expr x, Expr t) { return 0.5 * sin(x) + t; });
  const Array exact =
      solve(s.with({.tolerance = 1e-15}), zeros({3}), ones({3}), Implicit{.tolerance = 1e-15}).vjp(ones({3}));
  double last = std::numeric_limits<double>::infinity();
  for (const int K : {1, 2, 5, 10, 20}) {
    const Solution solution = solve(s, zeros({3}), ones({3}), KStep{K});
    const Certificate c = solution.certificate(ones({3}));
    EXPECT_GE(c.bound, distance(solution.vjp(ones({3})), exact)) << K;
    EXPECT_LE(c.bound, last) << K;
    last = c.bound;
  }
  EXPECT_LT(last, 1e-9);
}

// x₁ sees little of x₂, which is far from its solution: by far less than ‖B‖ tells.
TEST(Certificate, NamesTheDistanceWhereTheLinearSystemAtXIsSolved) {
  const Array c{1.0, 0.0}, x0 = zeros(2), theta{1.0};
  for (const double tolerance : {1e-4, 1e-6}) {
    const Solver s = fixed_point(
        [](Expr x, Expr t) {
          return concat({0.9 * x[{0, 1}] + 1e-6 * sin(x[{1, 2}]), 0.9 * x[{1, 2}] + t});
        },
        {.tolerance = tolerance});
    for (const Estimator& e : {Estimator(Implicit{}), Estimator(Auto{1e-12})}) {
      const Solution solution = solve(s, x0, theta, e);
      const double g = solution.vjp(c)[0](0);
      const Certificate certificate = solution.certificate(c);
      EXPECT_EQ(certificate.dominant, Certificate::Term::distance) << certificate;
      EXPECT_GE(certificate.bound, std::fabs(g - 1e-4 * std::cos(10.0))) << certificate;
      EXPECT_EQ(solution.certificate_jvp(theta).dominant, Certificate::Term::distance);
      const Solution asked_first = solve(s, x0, theta, e);
      EXPECT_EQ(asked_first.certificate(c).dominant, Certificate::Term::distance);
    }
  }
}

TEST(Certificate, NamesWhatStepsLeaveOut) {
  const Solver s = fixed_point([](Expr x, Expr t) { return 0.9 * x + 0.01 * sin(x) + t; }, {.tolerance = 1e-6});
  EXPECT_EQ(solve(s, zeros(1), Array{1.0}, KStep{20}).certificate(Array{1.0}).dominant, Certificate::Term::left_out);
  EXPECT_EQ(solve(s, zeros(1), Array{1.0}, Implicit{}).certificate(Array{1.0}).dominant, Certificate::Term::distance);
}

TEST(Certificate, LeavesTheReportOfTheLastDerivative) {
  const Solver s = fixed_point([](Expr x, Expr t) { return 0.5 * cos(x) + t; });
  const Solution solution = solve(s, zeros({2}), zeros({2}), Implicit{});
  solution.vjp(ones({2}));
  const int products = solution.report().products;
  solution.certificate(ones({2}));
  EXPECT_EQ(solution.report().method, "implicit");
  EXPECT_EQ(solution.report().products, products);
}

TEST(Certificate, OfALargeMapHolds) {
  constexpr std::int64_t n = 300;
  Generator random(7);
  const Contraction k = contraction(random, Kind::general, n, 5);
  const Solver s = solver_of(k, true, {});
  const Array theta({5}, gaussian(random, 5)), v({n}, gaussian(random, n));
  const Solution solution = solve(s, zeros({n}), theta, OneStep{});
  const Certificate c = solution.certificate(v);
  ASSERT_EQ(c.basis, Certificate::Basis::observed) << c.reason;
  const Array exact = solve(s, zeros({n}), theta, Implicit{}).vjp(v);
  EXPECT_GE(c.bound, distance(solution.vjp(v), exact));
}

// A certificate of a derivative that vjp_into gave, or of one asked for before others, computes it again: it must be the
// same.
TEST(Certificate, IsOfADerivativeThatDoesNotDependOnWhatWasAskedBefore) {
  for (const Estimator& e : {Estimator(Auto{1e-2}), Estimator(Auto{1e-6}), Estimator(Implicit{.how = Implicit::matrix_free}),
                             Estimator(OneStep{}), Estimator(KStep{3})})
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      Generator random(seed);
      constexpr std::int64_t n = 24;
      const Contraction k = contraction(random, Kind::general, n, 3);
      const Solver s = solver_of(k, true, {});
      const Array theta({3}, gaussian(random, 3)), v({n}, gaussian(random, n)), t({3}, gaussian(random, 3));
      const Array start = seed % 2 == 0 ? zeros({n}) : Array(solve(s, zeros({n}), theta).x());  // few steps tell little
      const Solution solution = solve(s, start, theta, e);
      std::vector<double> into(3);
      solution.vjp_into(std::vector<std::span<const double>>{v.values()}, std::vector<std::span<double>>{into});
      const Array forward = solution.jvp(t);
      for (int i = 0; i < 3; ++i) {
        static_cast<void>(solution.certificate(Array({n}, gaussian(random, n))));
        static_cast<void>(solution.vjp(Array({n}, gaussian(random, n))));
        static_cast<void>(solution.certificate_jvp(Array({3}, gaussian(random, 3))));
        static_cast<void>(solution.jvp(Array({3}, gaussian(random, 3))));
      }
      EXPECT_EQ(distance(solution.vjp(v), Array({3}, into)), 0) << seed;
      EXPECT_EQ(distance(solution.jvp(t), forward), 0) << seed;
    }
}

// 1 - sigmoid(a) has no digits left for large a.
TEST(Certificate, HoldsWhereTheSigmoidIsFlat) {
  for (const double t : {5.0, 20.0, 30.0, 36.0, 38.0, 60.0, 200.0, -38.0, -200.0}) {
    const Solution s = solve(newton([](Expr x, Expr a) { return 0.5 * square(x) + softplus(x + a); }), 0.0, t);
    ASSERT_EQ(s.status(), Status::converged) << t;
    // x = -σ(x + t): dx/dt = -σ'/(1 + σ')
    const double at = s.x().item() + t, slope = 1 / ((1 + std::exp(-at)) * (1 + std::exp(at))), truth = -slope / (1 + slope);
    const double g = s.vjp(1.0)[0].item();
    EXPECT_NEAR(g, truth, 1e-12 * std::fabs(truth)) << t;
    EXPECT_LE(std::fabs(g - truth), s.certificate(1.0).bound + 1e-15 * std::fabs(truth)) << t;
  }
}

// Entries of a state in units that differ by up to eight orders of magnitude, each pulling at the next.
TEST(Auto, KeepsItsWordWhateverTheUnitsOfTheState) {
  test::Random random(43);
  for (int trial = 0; trial < 300; ++trial) {
    const double unit = std::pow(10.0, random.uniform(-8, 0)), a = random.uniform(0.01, 0.3), b = random.uniform(0.1, 0.9),
                 pull = random.uniform(-2, 2), of_t = random.uniform(0.5, 2);
    const double tolerance = std::pow(10.0, random.uniform(-7, -1));
    // z₀ ← z₀ + a(t - z₀), z₁ ← z₁ + b(of_t t + pull z₀ - z₁), x = (unit z₀, z₁)
    const Solution s = solve(fixed_point([=](Expr x, Expr t) {
                               const Expr z0 = x[0] / unit, z1 = x[1];
                               return stack({unit * (z0 + a * (t - z0)), z1 + b * (of_t * t + pull * z0 - z1)});
                             }),
                             Array{unit, 1.0}, 1.0, Auto{tolerance});
    ASSERT_EQ(s.status(), Status::converged) << trial;
    const Array truth{unit, of_t + pull}, g = s.jvp(1.0)[0];
    if (!s.report().met_tolerance) continue;
    EXPECT_LE(test::relative_error(g, truth), tolerance) << trial << ' ' << unit << ' ' << tolerance;
  }
}

TEST(Certificate, TakesConstantsThatAreGiven) {
  const Array a{{0.5, 0.1}, {0.1, 0.4}};
  const Solver s = fixed_point([&](Expr x, Expr theta) {
                     return matmul(a, x) + theta;
                   }).knowing({.rho = 0.6, .L_A = 0, .L_J = 0, .norm_B = 1});
  const Solution solution = solve(s, zeros({2}), Array{1.0, 2.0}, OneStep{});
  const Certificate c = solution.certificate(Array{1.0, 0.0});
  EXPECT_EQ(c.basis, Certificate::Basis::observed);
  EXPECT_EQ(c.norm_B, 1.0);
  EXPECT_NE(c.json().find("\"basis\": \"observed\""), std::string::npos);
  // One that the iterates contradict is not believed.
  const Certificate wrong =
      solve(s.knowing({.rho = 0.3}), zeros({2}), Array{1.0, 2.0}, OneStep{}).certificate(Array{1.0, 0.0});
  EXPECT_EQ(wrong.basis, Certificate::Basis::refused);
}

// Whichever two of them are equal, one moves away from the other.
TEST(Certificate, SeesTiesOfAnyTwoEntriesOfXAndOfTheta) {
  constexpr std::int64_t n = 8;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < i; ++j) {
      std::vector<double> t(n), c(n, 0.0);
      for (std::size_t k = 0; k < n; ++k) t[k] = 1 + 0.1 * static_cast<double>(k);
      t[static_cast<std::size_t>(i)] = t[static_cast<std::size_t>(j)];
      const Solver of_theta = fixed_point([&](Expr x, Expr theta) { return 0.5 * x + maximum(theta[i], theta[j]); });
      const Solution a = solve(of_theta, 0.0, Array(t), Implicit{});
      EXPECT_EQ(a.certificate(1.0).basis, Certificate::Basis::refused) << "theta " << i << ' ' << j;
      const Solver of_x =
          fixed_point([&](Expr x, Expr theta) { return 0.3 * x + theta + 0.2 * broadcast(maximum(x[i], x[j]), {n}); });
      c[0] = 1;
      const Solution b = solve(of_x, zeros(n), Array(t), Implicit{});
      EXPECT_EQ(b.certificate(Array(c)).basis, Certificate::Basis::refused) << "x " << i << ' ' << j;
    }
}

// Rosenbrock's function has its minimum at (a, a²). The derivative changes by 1e4 times what x does, and what rounding may
// do to x is an upper estimate: steps shorter than that are steps all the same.
TEST(Certificate, CountsStepsThatAreShorterThanRoundingMayBe) {
  const auto banana = [](Expr x, Expr a, Expr b) { return b * square(x[1] - square(x[0])) + square(a - x[0]); };
  int bounds = 0;
  for (double b = 1; b < 1e9; b *= 10)
    for (double tolerance = 1e-2; tolerance > 1e-9; tolerance /= 10)
      for (const double a : {1.0, 0.7, 2.0})
        for (const Array& start : {Array{-1.2, 1.0}, Array{0.0, 0.0}, Array{1.001 * a, a * a}}) {
          const Solution s = solve(newton(banana, {.tolerance = tolerance}), start, {Array(a), Array(b)}, Implicit{});
          if (!is_solution(s.status())) continue;
          const double by_a[] = {1, 2 * a};
          for (std::size_t i = 0; i < 2; ++i) {
            const Array c = i == 0 ? Array{1.0, 0.0} : Array{0.0, 1.0};
            const Certificate how_wrong = s.certificate(c);
            if (how_wrong.basis == Certificate::Basis::refused) continue;
            const Parts g = s.vjp(c);
            EXPECT_LE(std::hypot(g[0].item() - by_a[i], g[1].item()), how_wrong.bound)
                << "a " << a << ", b " << b << ", tolerance " << tolerance << ", from " << start;
            ++bounds;
          }
        }
  EXPECT_GT(bounds, 500);
}

// x = A x + B θ in other units, powers of two. A residual that is small beside the large entries is large beside small ones,
// which have their part in the large ones.
TEST(Certificate, HoldsForTangentsWhereEntriesOfTheStateHaveOtherUnits) {
  constexpr std::int64_t n = 4;
  for (int trial = 0; trial < 60; ++trial) {
    Generator random(static_cast<std::uint64_t>(trial + 1));
    std::vector<double> a = gaussian(random, n * n), b = gaussian(random, n), units(n);
    const double size = operator_norm(a, n) / 0.6;
    for (double& e : a) e /= size;
    for (double& e : units) e = std::exp2(std::floor(uniform(random, -30, 31)));
    // (I - A)⁻¹b by its series, in long double.
    std::vector<long double> J(b.begin(), b.end()), term = J;
    for (int k = 0; k < 200; ++k) {
      std::vector<long double> next(n, 0.0L);
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < n; ++j) next[i] += static_cast<long double>(a[i * n + j]) * term[j];
      term = next;
      for (std::size_t i = 0; i < n; ++i) J[i] += term[i];
    }
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) a[i * n + j] *= units[j] / units[i];
      b[i] /= units[i];
    }
    const Array A(Shape{n, n}, a), B(b);
    const Implicit how{.how = Implicit::matrix_free, .tolerance = std::pow(10.0, uniform(random, -8, -4))};
    const Solution s = solve(fixed_point([&](Expr x, Expr t) { return matmul(A, x) + B * t; }), zeros(n), 1.0, how);
    ASSERT_TRUE(is_solution(s.status())) << s.message();
    const Array g = s.jvp(1.0);
    const Certificate how_wrong = s.certificate_jvp(1.0);
    long double error = 0;
    for (std::size_t i = 0; i < n; ++i)
      error = std::hypot(error, static_cast<long double>(g.values()[i]) - J[i] / static_cast<long double>(units[i]));
    EXPECT_LE(static_cast<double>(error), how_wrong.bound) << trial << ": " << how_wrong;
  }
}

// x₂ is zero, and moves as much as x₁ does: how small it is says nothing about its unit.
TEST(Auto, AnEntryOnItsWayToZeroHasNoUnitOfItsOwn) {
  for (const std::int64_t others : {0, 250})
    for (const double tolerance : {1e-6, 1e-9, 1e-13}) {
      const auto f = [&](Expr x, Expr t) {
        const Expr chain = square(x[0] - t) + square(x[1] - x[0] + 1.0);
        return 0.5 * (others == 0 ? chain : chain + sum(square(x[Range{2, 2 + others}] - 1.0)));
      };
      const Solution s = solve(gradient_descent(f, {}, {.tolerance = tolerance, .max_iterations = 100000}),
                               full(2 + others, 0.3), 1.0, Auto{1e-6});
      ASSERT_TRUE(is_solution(s.status())) << s.message();
      const Array g = s.jvp(1.0);
      EXPECT_NEAR(g(0), 1, 1e-5);
      EXPECT_NEAR(g(1), 1, 1e-5);
      EXPECT_TRUE(s.report().met_tolerance) << others << ' ' << tolerance;
    }
}

// Tangents are solved for in their own units, which says nothing to other directions and to cotangents.
TEST(Auto, ATangentDoesNotDependOnThoseBefore) {
  const Array A{{0.5, 1e-7}, {1e6, 0.3}};
  const Solver solver = fixed_point([&](Expr x, Expr t) { return matmul(A, x) + Array{1e-7, 1.0} * t; });
  const auto made = [&] { return solve(solver, Array{1e-7, 1.0}, Array{1.0, 2.0}, Auto{1e-8}); };
  const Array v{1.0, 0.0}, w{0.3, 1.0}, c{1.0, 1.0};
  const Solution alone = made(), after = made();
  (void)after.jvp(v);
  const Array one = alone.jvp(w), other = after.jvp(w);
  EXPECT_EQ(one(0), other(0));
  EXPECT_EQ(one(1), other(1));
  EXPECT_EQ(made().certificate(c).bound, after.certificate(c).bound);
}

// The derivative in this direction is zero: that is no reason to take a rough solution for a better one.
TEST(Auto, ADerivativeThatVanishesIsNotMadeWorse) {
  constexpr std::int64_t n = 300;
  const auto f = [&](Expr x, Expr t) {
    return sum(square(x)) - sum(x[Range{0, n - 1}] * x[Range{1, n}]) * 0.9 - t * x[n - 50];
  };
  const Solution s = solve(newton_cg(f), zeros(n), 1.0, Auto{1e-6});
  ASSERT_TRUE(is_solution(s.status())) << s.message();
  std::vector<double> c(n, 0.0);  // H e₁
  c[0] = 2;
  c[1] = -0.9;
  EXPECT_LT(std::fabs(s.vjp(Array(c))[0].item()), 1e-9);
}

}  // namespace
}  // namespace onestep
