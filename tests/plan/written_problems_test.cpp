// Values of what problems are written with: both interpreters against long double, at the ends of the range, of nothing, of
// one entry, with infinities and NaN; and where the results are wanted where the arguments lie.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "onestep/diff.h"
#include "onestep/operations.h"
#include "onestep/plan.h"
#include "support/random.h"
#include "support/run.h"

namespace onestep::test {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
using Real = long double;

// By the CPU backend, which must agree with the reference.
Array value(const Arrays& inputs, const std::function<Expr(const Exprs&)>& body, double tolerance = 1e-14) {
  std::vector<Shape> shapes;
  for (const Array& a : inputs) shapes.push_back(a.shape());
  const Function f = function_of(shapes, [&](const Exprs& x) { return Exprs{body(x)}; });
  const Array y = evaluate(f, inputs).front();
  EXPECT_TRUE(near(y, naive::interpret(f, inputs).front(), tolerance));
  return y;
}
double number(const Arrays& inputs, const std::function<Expr(const Exprs&)>& body) { return value(inputs, body).item(); }

TEST(WrittenProblems, NormsNeitherOverflowNorUnderflow) {
  const auto norm_of = [](const Array& a) { return number({a}, [](const Exprs& x) { return norm(x[0]); }); };
  for (const double size : {5e-324, 1e-310, 1e-300, 1e-160, 1e-150, 1.0, 1e150, 1e154, 1e160, 1e300}) {
    const double a = 3 * size, b = 4 * size;
    const Real exact = std::sqrt(Real{a} * a + Real{b} * b);
    EXPECT_NEAR(norm_of({a, b}) / static_cast<double>(exact), 1, 1e-15) << size;
    EXPECT_NEAR(norm_of({-a, 1e-30 * size, b}) / static_cast<double>(exact), 1, 1e-15) << size;
  }
  EXPECT_EQ(norm_of(zeros(0)), 0);
  EXPECT_EQ(norm_of(zeros(5)), 0);
  EXPECT_EQ(norm_of(Array(-2.0)), 2);
  EXPECT_EQ(norm_of({1.0, -inf}), inf);
  EXPECT_EQ(norm_of({std::numeric_limits<double>::max(), std::numeric_limits<double>::max()}), inf);
  EXPECT_TRUE(std::isnan(norm_of({1.0, nan, 1e200})));
  EXPECT_TRUE(std::isnan(norm_of({nan, 1e-200})));
  const Array A{{3.0, 0.0, 1e200}, {4.0, 0.0, 1e200}};
  EXPECT_TRUE(near(value({A}, [](const Exprs& x) { return norm(x[0], Axis{0}); }), Array{5.0, 0.0, std::sqrt(2.0) * 1e200}));
  EXPECT_TRUE(near(value({A}, [](const Exprs& x) { return norm(x[0], Axis{-1}); }), Array{1e200, 1e200}));
  EXPECT_EQ(value({zeros({0, 3})}, [](const Exprs& x) { return norm(x[0], Axis{0}); }).shape(), Shape{3});
}

TEST(WrittenProblems, DeterminantsAreZeroForSingularMatricesAndKeepTheirSign) {
  const auto det_of = [](const Array& a) { return number({a}, [](const Exprs& x) { return det(x[0]); }); };
  EXPECT_EQ(det_of({{1.0, 2.0}, {2.0, 4.0}}), 0);
  EXPECT_EQ(det_of(zeros({3, 3})), 0);
  EXPECT_EQ(det_of(zeros({0, 0})), 1);
  EXPECT_EQ(det_of({{-3.0}}), -3);
  EXPECT_EQ(det_of({{0.0, 1.0}, {1.0, 0.0}}), -1);
  EXPECT_EQ(det_of({{0.0, 1.0, 0.0}, {0.0, 0.0, 1.0}, {1.0, 0.0, 0.0}}), 1);
  EXPECT_EQ(det_of({{1e200, 0.0, 0.0}, {0.0, 1e200, 0.0}, {0.0, 0.0, 1e-300}}), 1e100);
  EXPECT_EQ(det_of({{1e-200, 0.0, 0.0}, {0.0, -1e-200, 0.0}, {0.0, 0.0, 1e300}}), -1e-100);
  EXPECT_EQ(det_of({{1e308, 1e308}, {-1e308, 1e308}}), inf);
  EXPECT_EQ(det_of({{1e308, 1e308}, {1e308, -1e308}}), -inf);
  EXPECT_TRUE(std::isnan(det_of({{nan, 1.0}, {1.0, 1.0}})));
  EXPECT_TRUE(std::isnan(det_of({{inf, 1.0}, {1.0, 1.0}})));
}

TEST(WrittenProblems, TheDerivativeOfADeterminantAtASingularMatrixIsNaNWithTheFlagSet) {
  const Function g = traced([](Expr m) { return vjp(det(m), m, 1.0); }, Shape{2, 2});
  const Plan plan(g);
  Workspace workspace = plan.workspace();
  std::vector<double> out(4);
  plan.run(workspace, {Array{{1.0, 2.0}, {2.0, 4.0}}}, {out});
  EXPECT_TRUE(workspace.failed());
  for (const double e : out) EXPECT_TRUE(std::isnan(e));
  plan.run(workspace, {Array{{1.0, 2.0}, {3.0, 4.0}}}, {out});
  EXPECT_FALSE(workspace.failed());
  EXPECT_TRUE(near(Array(Shape{2, 2}, out), Array{{4.0, -3.0}, {-2.0, 1.0}}));
}

TEST(WrittenProblems, LogSumExpTakesInfinitiesAndNothing) {
  const auto of = [](const Array& a) { return number({a}, [](const Exprs& x) { return log_sum_exp(x[0]); }); };
  EXPECT_NEAR(of({700.0, 710.0, -700.0}), 710 + std::log1p(std::exp(-10.0)), 1e-12);
  EXPECT_NEAR(of({-745.0, -750.0}), -745 + std::log1p(std::exp(-5.0)), 1e-12);
  EXPECT_EQ(of({-inf, 1.0}), 1);
  EXPECT_EQ(of({-inf, -inf}), -inf);
  EXPECT_EQ(of({inf, 1.0, -inf}), inf);
  EXPECT_EQ(of({1e308, -1e308}), 1e308);
  EXPECT_EQ(of(zeros(0)), -inf);
  EXPECT_EQ(of(Array(3.0)), 3);
  EXPECT_TRUE(std::isnan(of({nan, 1.0})));
  EXPECT_TRUE(near(value({Array{{1.0, 2.0}, {-inf, -inf}}}, [](const Exprs& x) { return log_sum_exp(x[0], -1); }),
                   Array{2 + std::log1p(std::exp(-1.0)), -inf}));
  EXPECT_TRUE(
      near(value({Array{1.0, -inf}}, [](const Exprs& x) { return grad(log_sum_exp(x[0]), x[0]); }), Array{1.0, 0.0}));
}

TEST(WrittenProblems, ReductionsOfNothingAndOfOneEntry) {
  const Array nothing = zeros(0), one{7.0};
  const auto of = [](const Array& a, Expr (*f)(const Expr&)) {
    return number({a}, [f](const Exprs& x) { return f(x[0]); });
  };
  EXPECT_EQ(of(nothing, prod), 1);
  EXPECT_EQ(of(nothing, min), inf);
  EXPECT_EQ(of(one, prod), 7);
  EXPECT_EQ(of(one, mean), 7);
  EXPECT_EQ(of(one, min), 7);
  EXPECT_TRUE(std::isnan(of({nan, 1.0}, min)));
  EXPECT_TRUE(std::isnan(of({nan, 0.0}, prod)));
  EXPECT_EQ(of({2.0, -3.0, 5.0, 7.0, 0.5}, prod), -105);
  EXPECT_TRUE(near(value({Array{{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}}}, [](const Exprs& x) { return prod(x[0], 1); }),
                   Array{6.0, 120.0}));
  EXPECT_TRUE(near(value({Array{{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}}}, [](const Exprs& x) { return prod(x[0], -2); }),
                   Array{4.0, 10.0, 18.0}));
  EXPECT_TRUE(near(value({Array{1.0, 2.0, 4.0}}, [](const Exprs& x) { return cumsum(x[0]); }), Array{1.0, 3.0, 7.0}));
  EXPECT_TRUE(near(value({Array{{1.0, 2.0}, {4.0, 8.0}}}, [](const Exprs& x) { return cumsum(x[0], 1); }),
                   Array{{1.0, 3.0}, {4.0, 12.0}}));
  EXPECT_TRUE(near(value({Array{{1.0, 2.0}, {4.0, 8.0}}}, [](const Exprs& x) { return cumsum(x[0], Axis{0}); }),
                   Array{{1.0, 2.0}, {5.0, 10.0}}));
  EXPECT_EQ(value({nothing}, [](const Exprs& x) { return cumsum(x[0]); }).size(), 0);
  EXPECT_EQ(value({nothing}, [](const Exprs& x) { return reverse(x[0]); }).size(), 0);
}

TEST(WrittenProblems, EntriesRangesAndComparisonsSelect) {
  const Array x{1.0, 2.0, 3.0}, A{{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}};
  EXPECT_EQ(number({x}, [](const Exprs& in) { return in[0][-1]; }), 3);
  EXPECT_EQ(number({A}, [](const Exprs& in) { return in[0][1][-1]; }), 4);
  EXPECT_EQ(number({x}, [](const Exprs& in) { return in[0][std::size_t{2}]; }), 3);
  EXPECT_TRUE(near(value({A}, [](const Exprs& in) { return in[0][{-2, -1}]; }), Array{{3.0, 4.0}}));
  EXPECT_TRUE(near(value({A},
                         [](const Exprs& in) {
                           return gather(in[0], {2, 0, 2});
                         }),
                   Array{{5.0, 6.0}, {1.0, 2.0}, {5.0, 6.0}}));
  EXPECT_TRUE(near(value({A},
                         [](const Exprs& in) {
                           return gather(in[0], {-1, 0, 1}, 1);
                         }),
                   Array{{2.0, 1.0, 2.0}, {4.0, 3.0, 4.0}, {6.0, 5.0, 6.0}}));
  EXPECT_TRUE(
      near(value({A}, [](const Exprs& in) { return reverse(in[0], 1); }), Array{{2.0, 1.0}, {4.0, 3.0}, {6.0, 5.0}}));
  EXPECT_TRUE(near(value({x},
                         [](const Exprs& in) {
                           return stack({in[0], 2 * in[0]}, 1);
                         }),
                   Array{{1.0, 2.0}, {2.0, 4.0}, {3.0, 6.0}}));
  EXPECT_TRUE(
      near(value({x}, [](const Exprs& in) { return (in[0] > 1) * (in[0] <= 2.0) + 10 * (in[0] == 3) + 20 * (1 != in[0]); }),
           Array{0.0, 21.0, 30.0}));
  EXPECT_TRUE(near(value({x},
                         [](const Exprs& in) {
                           Expr y = in[0];
                           const Expr kept = y;
                           y += 1, y *= y, y -= kept, y /= 2.0;
                           return y;
                         }),
                   Array{1.5, 3.5, 6.5}));
}

TEST(WrittenProblems, SquareAndHyperbolicFunctionsKeepTheirSmallestDigits) {
  for (const double x : {0.0, 5e-324, 1e-300, 1e-20, 1e-8, 0.5, 1 - 1e-15, 1.0, 20.0, 21.99, 22.01, 709.0, 710.4}) {
    const auto expect = [&](const char* name, double got, Real exact) {
      const auto wanted = static_cast<double>(exact);
      EXPECT_TRUE(std::isnan(wanted) ? std::isnan(got) : std::fabs(got - wanted) <= 1e-15 * std::fabs(wanted))
          << name << '(' << x << ") is " << got << ", exactly " << wanted;
    };
    const Real e = x;
    expect("sinh", number({Array(x)}, [](const Exprs& in) { return sinh(in[0]); }), std::sinh(e));
    expect("cosh", number({Array(x)}, [](const Exprs& in) { return cosh(in[0]); }), std::cosh(e));
    expect("asin", number({Array(x)}, [](const Exprs& in) { return asin(in[0]); }), std::asin(e));
    expect("acos", number({Array(x)}, [](const Exprs& in) { return acos(in[0]); }), std::acos(e));
    expect("cbrt", number({Array(x)}, [](const Exprs& in) { return cbrt(in[0]); }), std::cbrt(e));
  }
}

TEST(WrittenProblems, MisuseNamesTheValuesAndTheWayOut) {
  const Expr x(zeros(3)), A(zeros({2, 3}));
  EXPECT_EQ(error_of([&] { (void)x[3]; }), "[[]] 3 is outside (3)");
  EXPECT_EQ(error_of([&] { (void)x[-4]; }), "[[]] -4 is outside (3)");
  EXPECT_TRUE(says(error_of([&] { (void)x[std::size_t(0) - 1]; }), {"18446744073709551615"}));
  EXPECT_TRUE(says(error_of([&] { (void)x[{2, 1}]; }), {"[slice]", "[2, 1)"}));
  EXPECT_EQ(error_of([] { (void)Expr(1.0)[0]; }), "[[]] a number has no entry 0");
  EXPECT_EQ(error_of([&] { gather(x, {0, 3}); }), "[gather] index 3 is outside axis 0 of (3)");
  EXPECT_EQ(error_of([&] { gather(x, {-4}); }), "[gather] index -4 is outside axis 0 of (3)");
  EXPECT_TRUE(says(error_of([&] { gather(1.0, {0}); }), {"axis 0", "rank 0"}));
  EXPECT_TRUE(says(error_of([&] { dot(A, x); }), {"[dot]", "matmul"}));
  EXPECT_EQ(error_of([&] { dot(x, zeros(2)); }), "[dot] lengths differ: (3) and (2)");
  EXPECT_TRUE(says(error_of([] { mean(Expr(zeros(0))); }), {"[mean]", "no entries"}));
  EXPECT_TRUE(says(error_of([&] { mean(x, 1); }), {"axis 1"}));
  EXPECT_TRUE(says(error_of([&] { cumsum(A); }), {"[cumsum]", "axis"}));
  EXPECT_TRUE(says(error_of([&] { trace(A); }), {"[trace]", "(2, 3)"}));
  EXPECT_TRUE(says(error_of([&] { det(A); }), {"[det]", "(2, 3)"}));
  EXPECT_TRUE(says(error_of([&] { inverse(x); }), {"[inverse]", "(3)"}));
  EXPECT_TRUE(says(error_of([&] { clip(x, 1.0, 0.0); }), {"[clip]", "wrong order"}));
  EXPECT_TRUE(says(error_of([&] { stack({x, zeros(2)}); }), {"[stack]", "(3)", "(2)"}));
  EXPECT_TRUE(says(error_of([&] { stack({A, A}); }), {"[stack]", "concat"}));
  EXPECT_TRUE(says(error_of([&] { stack({x, x}, 2); }), {"[stack]", "axis 2"}));
}

RC_GTEST_PROP(WrittenProblems, AreTheSameOnBothInterpreters, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  const Shape s{random.integer(1, 40), random.integer(1, 40)};
  const int axis = static_cast<int>(random.integer(0, 1));
  std::vector<std::int64_t> indices;
  for (std::int64_t k = random.integer(0, 60); k-- > 0;) indices.push_back(random.integer(0, s[axis] - 1));
  const Array a = random.array(s), b = random.array(resized(s, axis, static_cast<std::int64_t>(indices.size())));
  const std::vector<Shape> shapes{s, b.shape()};
  const Function f = function_of(shapes, [&](const Exprs& x) {
    return Exprs{norm(x[0]),
                 norm(x[0], Axis{axis}),
                 cumsum(x[0], axis),
                 vjp(cumsum(x[0], axis), x[0], x[0]),
                 gather(x[0], indices, axis),
                 vjp(gather(x[0], indices, axis), x[0], x[1]),
                 min(x[0], Axis{axis})};
  });
  const Arrays got = evaluate(f, {a, b}), want = naive::interpret(f, std::vector{a, b});
  for (std::size_t i = 0; i < got.size(); ++i) RC_ASSERT(bool(near(got[i], want[i], 1e-13, 1.0)));
}

TEST(WrittenProblems, ResultsMayLieWhereTheArgumentsAre) {
  const auto in_place = [](const std::function<Expr(const Expr&)>& body) {
    const Plan plan(traced([&](Expr x) { return body(x); }, Shape{4}));
    Workspace workspace = plan.workspace();
    std::vector<double> x{1, 2, 3, 4};
    plan.run(workspace, {Array::view(x)}, {x});
    return x;
  };
  EXPECT_EQ(in_place([](const Expr& x) { return reverse(x); }), (std::vector<double>{4, 3, 2, 1}));
  EXPECT_EQ(in_place([](const Expr& x) { return gather(x, {1, 1, 0, 0}); }), (std::vector<double>{2, 2, 1, 1}));
  EXPECT_EQ(in_place([](const Expr& x) { return cumsum(x); }), (std::vector<double>{1, 3, 6, 10}));
  EXPECT_EQ(in_place([](const Expr& x) { return vjp(cumsum(x), x, x); }), (std::vector<double>{10, 9, 7, 4}));
}

TEST(WrittenProblems, AnExpressionWithoutArgumentsHasAValue) {
  const Array a{1.0, 2.0}, b{1.0, -2.0};
  EXPECT_EQ(evaluate(norm(a - b)).item(), 4);
  EXPECT_TRUE(says(error_of([] { traced([](Expr x) { return evaluate(x).item() > 0 ? x : -x; }, Shape{}); }),
                   {"another traced function"}));
}

}  // namespace
}  // namespace onestep::test
