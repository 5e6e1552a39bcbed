// Every kernel on every instruction set this machine has, against the table's scalar value and against long double.

#include "backend/cpu/tile_kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace onestep::cpu {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double tiny = std::numeric_limits<double>::denorm_min();

// One elementwise row of the table.
struct Row {
  std::string name;
  Op op;
  std::size_t arity;
  double (*value)(double a, double b, double c);
};

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
#define ONESTEP_UNARY(name, kink, flops, meaning, value, ...) \
  {#name, Op::name, 1, [](double a, [[maybe_unused]] double b, [[maybe_unused]] double c) -> double { return value; }},
#define ONESTEP_BINARY(name, kink, flops, meaning, value, ...) \
  {#name, Op::name, 2, [](double a, double b, [[maybe_unused]] double c) -> double { return value; }},
#define ONESTEP_TERNARY(name, kink, flops, meaning, value, ...) \
  {#name, Op::name, 3, [](double a, double b, double c) -> double { return value; }},
#include "onestep/operations.def"
  };
  return all;
}

using Extended = long double;
static_assert(std::numeric_limits<Extended>::digits >= 64, "the accuracy tests need a wider type than double");

struct Accuracy {
  Op op;
  Extended (*exact)(Extended);
  double bound;      // ulps
  double low, high;  // where the function is interesting
};

const std::vector<Accuracy>& accuracies() {
  static const std::vector<Accuracy> all = {
      {Op::exp, [](Extended x) { return std::exp(x); }, 1.2, -746, 710},
      {Op::expm1, [](Extended x) { return std::expm1(x); }, 2, -3, 3},
      {Op::log, [](Extended x) { return std::log(x); }, 1.1, 0, 4},
      {Op::log1p, [](Extended x) { return std::log1p(x); }, 1.1, -1, 3},
      {Op::tanh, [](Extended x) { return std::tanh(x); }, 4, -3, 3},
      {Op::sigmoid, [](Extended x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }, 4, -40,
       40},
      {Op::softplus, [](Extended x) { return std::max(x, Extended{0}) + std::log1p(std::exp(-std::fabs(x))); }, 4, -40, 40},
      {Op::erf, [](Extended x) { return std::erf(x); }, 2, -6, 6},
      {Op::sin, [](Extended x) { return std::sin(x); }, 1, -100, 100},
      {Op::cos, [](Extended x) { return std::cos(x); }, 1, -100, 100},
      {Op::atan, [](Extended x) { return std::atan(x); }, 2, -4, 4},
      {Op::tan, [](Extended x) { return std::tan(x); }, 3, -100, 100},
      {Op::asin, [](Extended x) { return std::asin(x); }, 4, -1, 1},
      {Op::acos, [](Extended x) { return std::acos(x); }, 4, -1, 1},
      {Op::sinh, [](Extended x) { return std::sinh(x); }, 4, -30, 30},
      {Op::cosh, [](Extended x) { return std::cosh(x); }, 4, -30, 30},
  };
  return all;
}

// Distance of y from the exact value in units of the last place of a double of that size; infinite where one is NaN or
// infinite and the other is not.
double ulps(double y, Extended exact) {
  const double rounded = static_cast<double>(exact);
  if (std::isnan(y) && std::isnan(rounded)) return 0;
  if (y == rounded) return 0;
  if (!std::isfinite(y) || !std::isfinite(rounded)) return inf;
  int exponent = 0;
  std::frexp(exact, &exponent);
  return static_cast<double>(std::fabs(y - exact) / std::ldexp(Extended{1}, std::max(exponent - 53, -1074)));
}

const std::vector<double>& special_values() {
  static const std::vector<double> all = [] {
    std::vector<double> v = {nan, 0.0};
    for (double x : {inf,
                     tiny,
                     3 * tiny,
                     0x1p-1022,
                     std::nextafter(0x1p-1022, 0),
                     1e-300,
                     1e-20,
                     0x1p-54,
                     0x1p-53,
                     1e-9,
                     0.1,
                     0.25,
                     0.3465735902799726,
                     0.34657359027997264,
                     0.34657359027997270,
                     0.41421356237309503,
                     0.4142135623730951,
                     0.5,
                     0.6931471805599453,
                     0.7071067811865475,
                     0.70710678118654757,
                     0.9999999999999999,
                     1.0,
                     1.0000000000000002,
                     1.4142135623730949,
                     1.4142135623730951,
                     1.5,
                     2.0,
                     10.0,
                     18.0,
                     19.0,
                     20.0,
                     22.0,
                     36.7,
                     37.5,
                     40.0,
                     100.0,
                     699.0,
                     700.0,
                     708.3,
                     708.4,
                     709.78,
                     709.782712893384,
                     709.7827128933841,
                     710.0,
                     744.4,
                     745.0,
                     745.1332191019411,
                     745.1332191019412,
                     745.2,
                     746.0,
                     1000.0,
                     0x1p52,
                     0x1p53,
                     0x1p54,
                     1e17,
                     1e100,
                     0x1p1000,
                     1e300,
                     std::numeric_limits<double>::max()}) {
      v.push_back(x);
      v.push_back(-x);
    }
    v.push_back(-0.0);
    return v;
  }();
  return all;
}

// All magnitudes and both signs, a special value now and then.
double any_value(std::mt19937_64& random) {
  const std::uint64_t draw = random() % 8;
  if (draw == 0) return special_values()[random() % special_values().size()];
  if (draw == 1) return std::bit_cast<double>(random());
  return std::normal_distribution<>(0, 3)(random);
}

// Runs each test for each instruction set that was compiled in and that this CPU has.
class VectorMath : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().DeInit();
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
};

std::vector<std::int64_t> targets() {
  std::vector<std::int64_t> found;
  for (std::int64_t t : {HWY_AVX3, HWY_AVX2, HWY_SSE4, HWY_SCALAR}) {
    if (t == HWY_SCALAR || (hwy::SupportedTargets() & t) != 0) found.push_back(t);
  }
  return found;
}

INSTANTIATE_TEST_SUITE_P(Target, VectorMath, ::testing::ValuesIn(targets()),
                         [](const auto& target) { return std::string(hwy::TargetName(target.param)); });

std::vector<double> run_kernel(Op op, const std::vector<double>& x) {
  std::vector<double> y(x.size());
  const Operand operand{x.data(), false};
  tile_kernels().elementwise(op)(&operand, y.data(), x.size());
  return y;
}

// As good as the table says: the same bits (any NaN for NaN) where the hardware rounds, else within the bound of
// accuracies(), doubled because the scalar value has an error of its own.
void expect_value(const Row& row, double got, double a, double b, double c) {
  const double want = row.value(a, b, c);
  double bound = 0;
  for (const Accuracy& entry : accuracies()) {
    if (entry.op == row.op) bound = 2 * entry.bound;
  }
  ASSERT_TRUE(ulps(got, want) <= bound && (std::isnan(want) || std::signbit(got) == std::signbit(want)))
      << row.name << "(" << a << ", " << b << ", " << c << ") gives " << got << ", the table " << want
      << "; a kernel that rounds differently needs a bound in accuracies()";
}

TEST_P(VectorMath, EveryElementwiseRowHasAKernelAndNothingElseHas) {
  for (int k = 0; k <= static_cast<int>(Op::call); ++k) {  // the last row
    const Op op = static_cast<Op>(k);
    const bool elementwise = std::any_of(rows().begin(), rows().end(), [&](const Row& row) { return row.op == op; });
    EXPECT_EQ(tile_kernels().elementwise(op) != nullptr, elementwise) << k;
  }
}

TEST_P(VectorMath, KernelsAgreeWithTheTableAtEveryLengthWithEveryCombinationOfScalars) {
  std::mt19937_64 random(1);
  for (const Row& row : rows()) {
    const TileKernel kernel = tile_kernels().elementwise(row.op);
    for (std::size_t n = 0; n <= 67; ++n) {
      for (unsigned scalars = 0; scalars < 1u << row.arity; ++scalars) {
        // Vectors of exactly n entries, so that the address sanitizer sees a read or write past the end.
        std::array<std::vector<double>, 3> data;
        std::array<Operand, 3> args{};
        for (std::size_t k = 0; k < row.arity; ++k) {
          const bool scalar = (scalars >> k & 1) != 0;
          data[k].resize(scalar ? 1 : n);
          for (double& x : data[k]) x = any_value(random);
          args[k] = {data[k].data(), scalar};
        }
        std::vector<double> out(n);
        kernel(args.data(), out.data(), n);
        const auto argument = [&](std::size_t k, std::size_t i) {
          return k >= row.arity ? 0.0 : args[k].scalar ? data[k][0] : data[k][i];
        };
        for (std::size_t i = 0; i < n; ++i) {
          ASSERT_NO_FATAL_FAILURE(expect_value(row, out[i], argument(0, i), argument(1, i), argument(2, i))) << "n = " << n;
        }
      }
    }
  }
}

TEST_P(VectorMath, KernelsAgreeWithTheTableOnAllPairsOfSpecialValues) {
  const std::vector<double>& s = special_values();
  std::vector<double> a, b, c;
  for (std::size_t i = 0; i < s.size(); ++i) {
    for (std::size_t j = 0; j < s.size(); ++j) {
      a.push_back(s[i]);
      b.push_back(s[j]);
      c.push_back(s[(i + j) % s.size()]);
    }
  }
  const std::array<Operand, 3> args = {{{a.data(), false}, {b.data(), false}, {c.data(), false}}};
  std::vector<double> out(a.size());
  for (const Row& row : rows()) {
    tile_kernels().elementwise(row.op)(args.data(), out.data(), out.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_NO_FATAL_FAILURE(expect_value(row, out[i], a[i], row.arity > 1 ? b[i] : 0, row.arity > 2 ? c[i] : 0));
    }
  }
}

TEST_P(VectorMath, TheResultMayReplaceAnyArgument) {
  std::mt19937_64 random(2);
  for (const Row& row : rows()) {
    const TileKernel kernel = tile_kernels().elementwise(row.op);
    for (std::size_t n : {1u, 7u, 8u, 33u, 64u}) {
      for (std::size_t replaced = 0; replaced < row.arity; ++replaced) {
        std::array<std::vector<double>, 3> data;
        std::array<Operand, 3> args{};
        for (std::size_t k = 0; k < row.arity; ++k) {
          for (std::size_t i = 0; i < n; ++i) data[k].push_back(any_value(random));
          args[k] = {data[k].data(), false};
        }
        std::vector<double> want(n);
        kernel(args.data(), want.data(), n);
        kernel(args.data(), data[replaced].data(), n);
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(ulps(data[replaced][i], want[i]), 0) << row.name << " n = " << n;
      }
    }
  }
}

// The claim of vector_math-inl.h.
TEST_P(VectorMath, ErrorsAreWithinTheDocumentedUlps) {
  const std::size_t count = std::getenv("ONESTEP_LONG") != nullptr ? 100'000 : 20'000;
  std::mt19937_64 random(3);
  for (const Accuracy& entry : accuracies()) {
    std::uniform_real_distribution<> interesting(entry.low, entry.high);
    std::vector<double> x = special_values();
    for (std::size_t i = 0; i < count; ++i) {
      x.push_back(interesting(random));
      x.push_back(std::bit_cast<double>(random()));
      x.push_back(std::ldexp(interesting(random), -static_cast<int>(random() % 60)));
    }
    const std::vector<double> y = run_kernel(entry.op, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_LE(ulps(y[i], entry.exact(x[i])), entry.bound) << "operation " << static_cast<int>(entry.op) << " at " << x[i];
    }
  }
}

TEST_P(VectorMath, NanAndInfinityAreNeverTurnedIntoANumber) {
  const auto at = [](Op op, double x) { return run_kernel(op, std::vector<double>(9, x))[8]; };
  for (const Accuracy& entry : accuracies()) EXPECT_TRUE(std::isnan(at(entry.op, nan)));
  EXPECT_EQ(at(Op::exp, inf), inf);
  EXPECT_EQ(at(Op::exp, 710), inf);
  EXPECT_EQ(at(Op::exp, -inf), 0);
  EXPECT_EQ(at(Op::log, inf), inf);
  EXPECT_EQ(at(Op::log, 0), -inf);
  EXPECT_EQ(at(Op::log, -0.0), -inf);
  EXPECT_TRUE(std::isnan(at(Op::log, -tiny)));
  EXPECT_TRUE(std::isnan(at(Op::log, -inf)));
  EXPECT_EQ(at(Op::log1p, -1), -inf);
  EXPECT_TRUE(std::isnan(at(Op::log1p, -1.0000000000000002)));
  EXPECT_EQ(at(Op::softplus, inf), inf);
  EXPECT_EQ(at(Op::softplus, -inf), 0);
  EXPECT_EQ(at(Op::sigmoid, inf), 1);
  EXPECT_EQ(at(Op::sigmoid, -inf), 0);
  EXPECT_TRUE(std::isnan(at(Op::sqrt, -1)));
}

TEST_P(VectorMath, SoftplusAndSigmoidAreExpFarLeft) {
  for (double x : {-40.0, -700.0, -708.5, -740.0, -745.0}) {
    const std::vector<double> e = run_kernel(Op::exp, {x});
    EXPECT_EQ(run_kernel(Op::softplus, {x}), e);
    EXPECT_EQ(run_kernel(Op::sigmoid, {x}), e);
    EXPECT_GT(e[0], 0);
  }
}

// Where the reduction cancels most: the doubles nearest to multiples of π/2, and both sides of the switch to the C library.
TEST_P(VectorMath, SineAndCosineKeepTheirRelativeAccuracyNearTheirZeros) {
  std::vector<double> x = {999'999.0, 1e6, 1'000'001.0, 1e10, 1e22, 1e300};
  for (int n = 1; n < 600'000; n += 1 + n / 1000)
    x.push_back(static_cast<double>(n * 1.57079632679489661923132169163975144L));
  const std::vector<double> sine = run_kernel(Op::sin, x), cosine = run_kernel(Op::cos, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_LE(ulps(sine[i], std::sin(Extended{x[i]})), 1) << x[i];
    ASSERT_LE(ulps(cosine[i], std::cos(Extended{x[i]})), 1) << x[i];
  }
  EXPECT_TRUE(std::isnan(run_kernel(Op::sin, {inf})[0]));
}

TEST_P(VectorMath, SumsAreExactToRoundingAndTheSameWhateverTheAlignment) {
  std::mt19937_64 random(4);
  std::normal_distribution<> normal;
  for (std::size_t n = 0; n <= 200; ++n) {
    std::vector<double> x(n), y(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = normal(random), y[i] = normal(random);
    Extended sum = 0, dot = 0, size = 0, dot_size = 0;
    for (std::size_t i = 0; i < n; ++i) {
      sum += x[i], size += std::fabs(x[i]);
      dot += Extended{x[i]} * y[i], dot_size += std::fabs(Extended{x[i]} * y[i]);
    }
    // n/4 terms at most in a chain of additions, each of which errs by half a unit.
    const double chain = (static_cast<double>(n) / 4 + 8) * 0x1p-53;
    EXPECT_LE(std::fabs(tile_kernels().sum(x.data(), n) - sum), chain * size) << n;
    EXPECT_LE(std::fabs(tile_kernels().dot(x.data(), y.data(), n) - dot), 2 * chain * dot_size) << n;
    std::vector<double> shifted(n + 1);
    std::copy(x.begin(), x.end(), shifted.begin() + 1);
    EXPECT_EQ(tile_kernels().sum(shifted.data() + 1, n), tile_kernels().sum(x.data(), n)) << n;
    EXPECT_EQ(tile_kernels().dot(shifted.data() + 1, y.data(), n), tile_kernels().dot(x.data(), y.data(), n)) << n;
  }
}

TEST_P(VectorMath, ANanOrInfinityAnywhereReachesTheSum) {
  for (std::size_t n = 1; n <= 67; ++n) {
    for (std::size_t i = 0; i < n; ++i) {
      std::vector<double> x(n, 1.0);
      x[i] = inf;
      EXPECT_EQ(tile_kernels().sum(x.data(), n), inf);
      x[i] = nan;
      EXPECT_TRUE(std::isnan(tile_kernels().sum(x.data(), n)));
      EXPECT_TRUE(std::isnan(tile_kernels().dot(x.data(), x.data(), n)));
    }
  }
}

TEST_P(VectorMath, MaxIsTheLargestEntryAndNanWhereverOneIs) {
  EXPECT_EQ(tile_kernels().max(nullptr, 0), -inf);
  std::mt19937_64 random(5);
  std::normal_distribution<> normal(-5, 1);
  for (std::size_t n = 1; n <= 67; ++n) {
    std::vector<double> x(n);
    for (double& entry : x) entry = normal(random);
    EXPECT_EQ(tile_kernels().max(x.data(), n), *std::max_element(x.begin(), x.end()));
    for (std::size_t i = 0; i < n; ++i) {
      const double kept = x[i];
      x[i] = nan;
      EXPECT_TRUE(std::isnan(tile_kernels().max(x.data(), n))) << i << " of " << n;
      x[i] = -1e-300;
      EXPECT_EQ(tile_kernels().max(x.data(), n), std::max(-1e-300, *std::max_element(x.begin(), x.end())));
      x[i] = kept;
    }
    std::fill(x.begin(), x.end(), -inf);
    EXPECT_EQ(tile_kernels().max(x.data(), n), -inf);
  }
}

TEST_P(VectorMath, AxpyAddsAMultiple) {
  std::mt19937_64 random(6);
  std::normal_distribution<> normal;
  for (std::size_t n = 0; n <= 67; ++n) {
    std::vector<double> x(n), y(n), want(n);
    const double alpha = normal(random);
    for (std::size_t i = 0; i < n; ++i) x[i] = normal(random), y[i] = normal(random), want[i] = y[i] + alpha * x[i];
    const std::vector<double> before = y;
    tile_kernels().axpy(alpha, x.data(), y.data(), n);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_LE(std::fabs(y[i] - want[i]), 0x1p-52 * (std::fabs(before[i]) + std::fabs(alpha * x[i])));
    }
  }
}

}  // namespace
}  // namespace onestep::cpu
