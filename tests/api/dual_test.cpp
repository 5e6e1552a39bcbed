// Dual numbers against traced derivatives, function by function, and steps made of them against the same steps traced.
#include "onestep/dual.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "onestep/onestep.h"
#include "support/count_allocations.h"
#include "support/random.h"
#include "support/run.h"

namespace onestep {
namespace {

using test::Arrays;
using test::entries_of;
using test::Exprs;
using test::near;
using test::Random;
using test::values_of;
using test::vector_of;

constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

/// Random points, and those where functions have kinks, ties, poles and limits.
std::vector<double> points() {
  std::vector<double> all{0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 1e-300, -1e-17, 700.0, -700.0, 1e10, infinity, -infinity, nan};
  Random random(1);
  for (int i = 0; i < 40; ++i) all.push_back(random.uniform(-3, 3));
  return all;
}

bool same(double a, double b) {
  constexpr double rounding = 8 * std::numeric_limits<double>::epsilon();
  return a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= rounding * std::max(std::fabs(a), std::fabs(b));
}

Dual<1> variable(double value) {
  Dual<1> x(value);
  x.d[0] = 1;
  return x;
}

/// The value and the derivative by each argument, traced and by dual numbers, at every combination of the points.
template <class F> void compare_unary(const char* name, const F& f, const std::vector<double>& at) {
  const Arrays traced = values_of({vector_of(at)}, [&](const Exprs& x) {
    const Expr y = f(x[0]);
    return Exprs{y, jvp(y, x[0], ones(at.size()))};
  });
  for (std::size_t i = 0; i < at.size(); ++i) {
    const Dual<1> y = f(variable(at[i]));
    EXPECT_PRED2(same, y.value, entries_of(traced[0])[i]) << name << '(' << at[i] << ')';
    EXPECT_PRED2(same, y.d[0], entries_of(traced[1])[i]) << "derivative of " << name << " at " << at[i];
  }
}
template <class F> void compare_binary(const char* name, const F& f, const std::vector<double>& at) {
  std::vector<double> left, right;
  for (const double a : at)
    for (const double b : at) left.push_back(a), right.push_back(b);
  const Arrays traced = values_of({vector_of(left), vector_of(right)}, [&](const Exprs& x) {
    const Expr y = f(x[0], x[1]), v = ones(left.size());
    return Exprs{y, jvp(y, x[0], v), jvp(y, x[1], v)};
  });
  const std::vector<double> y = entries_of(traced[0]), da = entries_of(traced[1]), db = entries_of(traced[2]);
  for (std::size_t i = 0; i < left.size(); ++i) {
    const double a = left[i], b = right[i];
    Dual<2> both[] = {a, b};
    both[0].d[0] = both[1].d[1] = 1;
    const Dual<2> joint = f(both[0], both[1]);
    const Dual<1> first = f(variable(a), b), second = f(a, variable(b));
    EXPECT_PRED2(same, joint.value, y[i]) << name << '(' << a << ", " << b << ')';
    EXPECT_PRED2(same, first.value, y[i]) << name << '(' << a << ", " << b << ')';
    EXPECT_PRED2(same, joint.d[0], da[i]) << "first derivative of " << name << " at " << a << ", " << b;
    EXPECT_PRED2(same, first.d[0], da[i]) << "first derivative of " << name << " at " << a << ", " << b;
    EXPECT_PRED2(same, joint.d[1], db[i]) << "second derivative of " << name << " at " << a << ", " << b;
    EXPECT_PRED2(same, second.d[0], db[i]) << "second derivative of " << name << " at " << a << ", " << b;
  }
}

TEST(Dual, EveryRowOfTheTableAgreesWithTheTracedDerivativeKinksIncluded) {
  const std::vector<double> at = points();
#define ONESTEP_UNARY(name, kink, flops, meaning, ...) \
  compare_unary(                                       \
      #name, [](const auto& a) { return name(a); }, at);
#define ONESTEP_BINARY(name, kink, flops, meaning, ...) \
  compare_binary(                                       \
      #name, [](const auto& a, const auto& b) { return name(a, b); }, at);
#include "onestep/operations.def"
  for (const double condition : {0.0, 1.0, -2.0, nan}) {
    compare_binary("where", [&](const auto& a, const auto& b) { return where(condition + 0.0 * a, a, b); },
                   {1.0, -2.0, 3.0});
  }
}

TEST(Dual, OperatorsAgreeWithTheTable) {
  const std::vector<double> at = points();
  compare_binary(
      "+", [](const auto& a, const auto& b) { return a + b; }, at);
  compare_binary(
      "-", [](const auto& a, const auto& b) { return a - b; }, at);
  compare_binary("*", [](const auto& a, const auto& b) { return a * b; }, {0.0, 1.0, -2.5, 1e10, 0.3});
  compare_binary("/", [](const auto& a, const auto& b) { return a / b; }, {3.0, 1.0, -2.5, 1e10, 0.3});
  compare_unary("mixed", [](const auto& a) { return 2.0 - (3.0 * -a + 1.0) / 4.0 + 0.5 / (+a); }, {0.7, -1.5});
}

TEST(Dual, FunctionsBeyondTheTableHaveTheirDerivatives) {
  Random random(2);
  for (int i = 0; i < 100; ++i) {
    const Dual<1> x = variable(random.uniform(0.05, 0.95));
    const double c = random.uniform(0.1, 2);
    const auto agree = [&](const Dual<1>& a, const Dual<1>& b) {
      EXPECT_NEAR(a.value, b.value, 1e-14 * (1 + std::fabs(b.value)));
      EXPECT_NEAR(a.d[0], b.d[0], 1e-12 * (1 + std::fabs(b.d[0])));
    };
    agree(tan(x), sin(x) / cos(x));
    agree(asin(x), atan(x / sqrt(1 - x * x)));
    agree(acos(x), std::acos(0.0) - asin(x));
    agree(sinh(x), 0.5 * (exp(x) - exp(-x)));
    agree(cosh(x), 0.5 * (exp(x) + exp(-x)));
    agree(cbrt(x), pow(x, 1.0 / 3));
    agree(-cbrt(-x), cbrt(x));
    agree(hypot(x, c), sqrt(x * x + c * c));
    agree(hypot(c, -x), sqrt(x * x + c * c));
    agree(atan2(x, c), atan(x / c));
    agree(atan2(c, x), atan(c / x));
    agree(fabs(-x), x);
    agree(max(x, c), maximum(c, x));
    agree(min(x, c), minimum(c, x));
  }
  EXPECT_EQ(hypot(variable(0), variable(0)).d[0], 0);
}

TEST(Dual, DirectionsOfABlockDoNotMix) {
  constexpr std::size_t K = 5;
  const auto f = [](const auto& x, const auto& y, const auto& z) {
    return x * exp(y) / (1 + z * z) - pow(x, y) + sin(z) * y;
  };
  Dual<K> x(1.3), y(0.4), z(-2.0);
  Random random(3);
  for (std::size_t k = 0; k < K; ++k)
    for (Dual<K>* v : {&x, &y, &z}) v->d[k] = random.uniform(-1, 1);
  const Dual<K> all = f(x, y, z);
  for (std::size_t k = 0; k < K; ++k) {
    Dual<1> a(1.3), b(0.4), c(-2.0);
    a.d[0] = x.d[k], b.d[0] = y.d[k], c.d[0] = z.d[k];
    EXPECT_DOUBLE_EQ(all.d[k], f(a, b, c).d[0]);
  }
}

TEST(Dual, ComparesByValueAndTakesPlainNumbers) {
  const Dual<1> x = variable(2), y(2);
  EXPECT_TRUE(x == y && x <= y && !(x < y) && x > 1 && 3 > x && x == 2 && x != 3.5);
  EXPECT_FALSE(Dual<1>(nan) == Dual<1>(nan) || Dual<1>(nan) < x || x < Dual<1>(nan));
  EXPECT_TRUE(isfinite(x) && isnan(Dual<1>(nan)));
}

TEST(Dual, AnInfiniteSlopeOfWhatDoesNotMoveDoesNoHarm) {
  EXPECT_EQ(sqrt(Dual<1>(0.0)).d[0], 0);
  EXPECT_EQ((variable(3) * sqrt(Dual<1>(0.0))).d[0], 0);
  EXPECT_EQ(pow(variable(-2), Dual<1>(3)).d[0], 12);
  EXPECT_EQ(sqrt(variable(0)).d[0], infinity);
}

TEST(Dual, LoopsAndBranchesAreDifferentiatedAsTheyRan) {
  const auto square_root = [](const auto& a) {
    auto x = a > 1 ? a : 0 * a + 1;
    for (int k = 0; k < 100 && abs(x * x - a) > 1e-15 * a; ++k) x = 0.5 * (x + a / x);
    return x;
  };
  for (const double a : {0.01, 0.5, 2.0, 900.0}) {
    EXPECT_NEAR(square_root(variable(a)).value, std::sqrt(a), 1e-15 * std::sqrt(a));
    EXPECT_NEAR(square_root(variable(a)).d[0], 0.5 / std::sqrt(a), 1e-12 / std::sqrt(a));
  }
}

// x ← tanh(M x + b) / (2 + s) + c x / (1 + |x|), a contraction in two parts with a vector, a matrix and a number as
// parameters and a branch.
struct Contraction {
  template <class T> void operator()(std::span<const T> x, std::span<const ArrayOf<T>> theta, std::span<T> next) const {
    const ArrayOf<T>&b = theta[0], &M = theta[1];
    const T& s = theta[2].item();
    for (std::size_t i = 0; i < x.size(); ++i) {
      T z = b(static_cast<std::int64_t>(i));
      for (std::size_t j = 0; j < x.size(); ++j) z += M(static_cast<std::int64_t>(i), static_cast<std::int64_t>(j)) * x[j];
      next[i] = tanh(z) / (2 + s);
      if (x[i] > 0)
        next[i] += 0.3 * x[i] / (1 + x[i]);
      else
        next[i] += 0.3 * x[i] / (1 - x[i]);
    }
  }
};
constexpr std::int64_t size = 11;

Solver traced() {
  return fixed_point([](Expr u, Expr v, Expr b, Expr M, Expr s) {
    const Expr x = concat({u, v}), next = tanh(matmul(M, x) + b) / (2.0 + s) + 0.3 * x / (1.0 + abs(x));
    return std::pair{slice(next, 0, 4), slice(next, 4, size)};
  });
}

struct Problem {
  Parts x0, theta, cotangent, tangent;
};
Problem random_problem(std::uint64_t seed) {
  Random r(seed);
  const Shape parts[] = {{4}, {size - 4}}, thetas[] = {{size}, {size, size}, {}};
  return {r.arrays(parts),
          {r.array({size}), r.array({size, size}, -0.2, 0.2), r.array({}, 0.0, 1.0)},
          r.arrays(parts),
          r.arrays(thetas)};
}

void expect_near(const Parts& a, const Parts& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(near(a[i], b[i], tolerance)) << "part " << i;
}

TEST(DualStep, AgreesWithTheSameStepTracedInEveryEstimator) {
  const Solver by_trace = traced(), by_duals = fixed_point(dual_step(Contraction()));
  const std::pair<const char*, Estimator> estimators[] = {
      {"OneStep", OneStep{}},
      {"KStep", KStep{3}},
      {"Implicit dense", Implicit{.how = Implicit::dense}},
      {"Implicit matrix-free", Implicit{.how = Implicit::matrix_free}},
      {"Unrolled forward", Unrolled{.mode = Unrolled::forward}},
      {"Unrolled reverse", Unrolled{.mode = Unrolled::reverse}},
      {"Unrolled with checkpoints", Unrolled{.mode = Unrolled::reverse, .memory = 5 * size * sizeof(double)}},
      {"Auto", Auto{.tolerance = 1e-9}}};
  for (const auto& [name, estimator] : estimators) {
    SCOPED_TRACE(name);
    const Problem p = random_problem(7);
    const Solution expected = solve(by_trace, p.x0, p.theta, estimator), got = solve(by_duals, p.x0, p.theta, estimator);
    ASSERT_EQ(got.status(), Status::converged);
    EXPECT_EQ(got.statistics().iterations, expected.statistics().iterations);
    expect_near(got.state(), expected.state(), 1e-13);
    // Auto stops its series where costs say so, and those of a foreign step are not known.
    const double tolerance = name == std::string("Auto") ? 2e-9 : 1e-11;
    expect_near(got.vjp(p.cotangent), expected.vjp(p.cotangent), tolerance);
    expect_near(got.jvp(p.tangent), expected.jvp(p.tangent), tolerance);
    expect_near(got.jacobian(), expected.jacobian(), tolerance);
    const Certificate c = got.certificate(p.cotangent), d = expected.certificate(p.cotangent);
    EXPECT_EQ(c.basis, d.basis);
    EXPECT_NEAR(c.rho, d.rho, 1e-4 * d.rho);
    EXPECT_NEAR(c.norm_B, d.norm_B, 1e-3 * d.norm_B);
  }
}

TEST(DualStep, FormsDerivativesInBlocksAndKeepsThemAtAPoint) {
  auto blocks = std::make_shared<int>(0), singles = std::make_shared<int>(0);
  const ForeignStep step =
      dual_step<4>([=]<class T>(std::span<const T> x, std::span<const ArrayOf<T>> theta, std::span<T> next) {
        ++*(std::is_same_v<T, Dual<4>> ? blocks : std::is_same_v<T, Dual<1>> ? singles : std::make_shared<int>(0));
        Contraction()(x, theta, next);
      });
  const Problem p = random_problem(8);
  const std::vector<Array> theta(p.theta.begin(), p.theta.end());
  const std::vector<double> x(size, 0.3), c(size, 1.0);
  std::vector<double> x_bar(size), next(size), b(size), M(size * size), s(1);
  const std::span<double> theta_bar[] = {b, M, s};
  step.vjp(x, theta, c, x_bar, {});
  EXPECT_EQ(*blocks, 3);  // ⌈11/4⌉
  step.vjp(x, theta, c, x_bar, {});
  EXPECT_EQ(*blocks, 3);
  step.vjp(x, theta, c, x_bar, theta_bar);
  EXPECT_EQ(*blocks, 3 + 34);  // ⌈(11 + 121 + 1)/4⌉
  step.apply(x, theta, next);
  *blocks = 0;
  for (std::int64_t j = 0; j < size; ++j) step.jvp(x, theta, c, {}, next);
  EXPECT_EQ(*singles, 3);  // by then it is clear that blocks are worth while
  EXPECT_EQ(*blocks, 3);
}

TEST(DualStep, IsRightWhereTheJacobianIsTooLargeToKeep) {
  constexpr std::size_t n = 2100;  // n² > 2^22
  const ForeignStep step = dual_step<64>([](auto x, auto theta, auto next) {
    for (std::size_t i = 0; i < x.size(); ++i) next[i] = 0.5 * sin(x[i]) * x[(i + 1) % x.size()] + theta[0].item();
  });
  std::vector<double> x(n), c(n), x_bar(n);
  Random random(4);
  for (std::size_t i = 0; i < n; ++i) x[i] = random.uniform(-1, 1), c[i] = random.uniform(-1, 1);
  const Array theta[] = {Array(0.1)};
  step.vjp(x, theta, c, x_bar, {});
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t before = (i + n - 1) % n;
    EXPECT_NEAR(x_bar[i], 0.5 * std::cos(x[i]) * x[(i + 1) % n] * c[i] + 0.5 * std::sin(x[before]) * c[before], 1e-15);
  }
}

TEST(DualStep, DoesNotRememberAnEarlierFunction) {
  const auto slope = std::make_shared<double>(0.5);
  const Solver line =
      fixed_point(dual_step([=](auto x, auto theta, auto next) { next[0] = *slope * x[0] + theta[0].item(); }));
  Prepared again(line, Array{0.0}, 0.0, Implicit{});
  EXPECT_DOUBLE_EQ(Array(again.solve(Array{0.0}, 0.0).vjp(Array{1.0})).item(), 2.0);
  *slope = 0.75;
  EXPECT_DOUBLE_EQ(Array(again.solve(Array{0.0}, 0.0).vjp(Array{1.0})).item(), 4.0);
}

TEST(DualStep, AllocatesNothingOnceItHasRun) {
  const ForeignStep step = dual_step(Contraction());
  const Problem p = random_problem(9);
  const std::vector<Array> theta(p.theta.begin(), p.theta.end()), dtheta(p.tangent.begin(), p.tangent.end());
  const std::vector<double> x(size, 0.3), c(size, 1.0);
  std::vector<double> out(size), b(size), M(size * size), s(1);
  const std::span<double> theta_bar[] = {b, M, s};
  const auto all = [&] {
    step.apply(x, theta, out);
    step.jvp(x, theta, c, dtheta, out);
    step.vjp(x, theta, c, out, theta_bar);
  };
  all();
  test::settle();
  const std::size_t before = test::allocations;
  all();
  EXPECT_EQ(test::allocations - before, 0U);
}

TEST(DualStep, ConcurrentSolvesShareIt) {
  const Solver shared = fixed_point(dual_step(Contraction()));
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 5; ++i) {
        const Problem p = random_problem(10 * t + i);
        const Solution got = solve(shared, p.x0, p.theta, Implicit{});
        const Solution expected = solve(traced(), p.x0, p.theta, Implicit{});
        if (!near(got.vjp(p.cotangent)[1], expected.vjp(p.cotangent)[1], 1e-11)) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(DualStep, SaysWhichEntryIsMissing) {
  const Solver wrong = fixed_point(dual_step([](auto x, auto theta, auto next) { next[0] = x[0] + theta[0](3); }));
  EXPECT_EQ(test::error_of([&] { solve(wrong, Array{0.0}, Array{1.0, 2.0}); }), "[ArrayOf] (3) is outside (2)");
}

}  // namespace
}  // namespace onestep
