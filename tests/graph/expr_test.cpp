// Building expressions: shapes, broadcasting, sharing of equal nodes, and the error of each operation where it is built.
#include "onestep/expr.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "graph/rules.h"
#include "onestep/diff.h"
#include "support/random.h"
#include "support/run.h"

namespace onestep::test {
namespace {

Expr of(const Shape& shape) { return Expr(zeros(shape)); }

TEST(ExprError, MatmulNamesBothShapes) {
  EXPECT_EQ(error_of([] { matmul(of({8192, 12}), of({13})); }), "[matmul] inner dimensions differ: (8192, 12) and (13)");
  EXPECT_EQ(error_of([] { matmul(of({2, 3}), of({2, 3})); }), "[matmul] inner dimensions differ: (2, 3) and (2, 3)");
  EXPECT_EQ(error_of([] { matmul(of({4}), of({5})); }), "[matmul] inner dimensions differ: (4) and (5)");
  EXPECT_EQ(error_of([] { matmul(of({4}), of({5, 2})); }), "[matmul] inner dimensions differ: (4) and (5, 2)");
  EXPECT_EQ(error_of([] { matmul(transpose(of({2, 3})), of({3})); }), "[matmul] inner dimensions differ: (3, 2) and (3)");
  EXPECT_EQ(error_of([] { matmul(of({2, 2}), 1.0); }), "[matmul] needs a matrix or vector, got (2, 2) and ()");
  EXPECT_EQ(error_of([] { matmul(1.0, of({2, 2})); }), "[matmul] needs a matrix or vector, got () and (2, 2)");
}

// One case for each row of the table with two or three arguments, so that a new row is tested too.
TEST(ExprError, EveryElementwiseOperationNamesShapesThatDoNotBroadcast) {
  const auto message = [](const char* name, const char* a, const char* b) {
    return std::string("[") + name + "] shapes do not fit: " + a + " and " + b +
           "; a size must be equal or 1, counted from the last axis";
  };
#define ONESTEP_BINARY(name, ...)                                                          \
  EXPECT_EQ(error_of([] { name(of({3}), of({4})); }), message(#name, "(3)", "(4)"));       \
  EXPECT_EQ(error_of([] { name(of({3, 2}), of({3})); }), message(#name, "(3, 2)", "(3)")); \
  EXPECT_EQ(error_of([] { name(of({2, 3}), of({4, 3})); }), message(#name, "(2, 3)", "(4, 3)"));
#define ONESTEP_TERNARY(name, ...) \
  EXPECT_EQ(error_of([] { name(of({3}), of({3}), of({4})); }), message(#name, "(3)", "(4)"));
#include "onestep/operations.def"
}

TEST(ExprError, EveryElementwiseOperationRefusesAFactor) {
  const Expr f = node_of(cholesky(eye(2)));
  const auto message = [](const char* name) {
    return std::string("[") + name + "] takes arrays, not a factor; use solve or logdet";
  };
#define ONESTEP_UNARY(name, ...) EXPECT_EQ(error_of([&] { name(f); }), message(#name));
#define ONESTEP_BINARY(name, ...) EXPECT_EQ(error_of([&] { name(1.0, f); }), message(#name));
#define ONESTEP_TERNARY(name, ...) EXPECT_EQ(error_of([&] { name(1.0, 1.0, f); }), message(#name));
#include "onestep/operations.def"
}

TEST(ExprError, ProductsAndStructureNameWhatTheyNeed) {
  EXPECT_EQ(error_of([] { gram(of({3}), of({3})); }), "[gram] needs a matrix, got shape (3)");
  EXPECT_EQ(error_of([] { gram(of({3, 2}), of({3, 1})); }), "[gram] needs a vector of weights, got shape (3, 1)");
  EXPECT_EQ(error_of([] { gram(of({3, 2}), of({2})); }), "[gram] 2 weights for 3 rows: (3, 2) and (2)");
  EXPECT_EQ(error_of([] { outer(of({3, 2}), of({2})); }), "[outer] needs two vectors, got shape (3, 2)");
  EXPECT_EQ(error_of([] { outer(of({3}), 2.0); }), "[outer] needs two vectors, got shape ()");
  EXPECT_EQ(error_of([] { diag(of({2, 2})); }), "[diag] needs a vector, got shape (2, 2)");
  EXPECT_EQ(error_of([] { diagonal(of({2})); }), "[diagonal] needs a square matrix, got shape (2)");
  EXPECT_EQ(error_of([] { diagonal(of({2, 3})); }), "[diagonal] needs a square matrix, got shape (2, 3)");
  EXPECT_EQ(error_of([] { eye(-1); }), "[Shape] negative size -1");
}

TEST(ExprError, ShapesAndRangesNameTheAxis) {
  EXPECT_EQ(error_of([] { reshape(of({2, 3}), {7}); }), "[reshape] (2, 3) has 6 entries, (7) has 7");
  EXPECT_EQ(error_of([] {
              broadcast(of({3}), {3, 2});
            }),
            "[broadcast] shapes do not fit: (3) and (3, 2); a size must be equal or 1, counted from the last axis");
  EXPECT_EQ(error_of([] { broadcast(of({3, 3}), {3}); }), "[broadcast] (3, 3) cannot be repeated to (3)");
  EXPECT_EQ(error_of([] { broadcast(of({3}), {1}); }), "[broadcast] (3) cannot be repeated to (1)");
  EXPECT_EQ(error_of([] { concat({of({3}), of({3, 1})}); }), "[concat] along axis 0: (3) and (3, 1) differ elsewhere");
  EXPECT_EQ(error_of([] { concat({of({3, 2}), of({3, 1})}); }), "[concat] along axis 0: (3, 2) and (3, 1) differ elsewhere");
  EXPECT_EQ(error_of([] { concat({of({3}), of({3})}, 1); }), "[concat] axis 1 of shape (3), which has rank 1");
  EXPECT_EQ(error_of([] { concat({}); }), "[concat] nothing to join");
  EXPECT_EQ(error_of([] { slice(of({13}), 1, 14); }), "[slice] [1, 14) is outside axis 0 of (13)");
  EXPECT_EQ(error_of([] { slice(of({13}), 5, 4); }), "[slice] [5, 4) is outside axis 0 of (13)");
  EXPECT_EQ(error_of([] { slice(of({13}), 0, 1, 1); }), "[slice] axis 1 of shape (13), which has rank 1");
  EXPECT_EQ(error_of([] { slice(1.0, 0, 1); }), "[slice] axis 0 of shape (), which has rank 0");
  EXPECT_EQ(error_of([] { pad(of({3}), 2, 4); }), "[pad] (3) at 2 does not fit in 4 along axis 0");
  EXPECT_EQ(error_of([] { pad(of({3}), -1, 4); }), "[pad] (3) at -1 does not fit in 4 along axis 0");
  EXPECT_EQ(error_of([] { pad(of({3}), std::numeric_limits<std::int64_t>::max(), 4); }),
            "[pad] (3) at 9223372036854775807 does not fit in 4 along axis 0");
  EXPECT_EQ(error_of([] { pad(of({3}), 0, 4, 1); }), "[pad] axis 1 of shape (3), which has rank 1");
  EXPECT_EQ(error_of([] { sum(of({3}), 1); }), "[sum] axis 1 of shape (3), which has rank 1");
  EXPECT_EQ(error_of([] { sum(of({3}), -2); }), "[sum] axis -2 of shape (3), which has rank 1");
  EXPECT_EQ(error_of([] { concat({of({3})}, -2); }), "[concat] axis -2 of shape (3), which has rank 1");
  EXPECT_EQ(error_of([] { max(of({3, 2}), Axis{2}); }), "[max] axis 2 of shape (3, 2), which has rank 2");
}

TEST(Expr, NegativeAxesCountFromTheEnd) {
  const Array m{{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}};
  for (const int axis : {0, 1}) {
    const int from_end = axis - 2;
    EXPECT_TRUE(near(value_of(sum(m, from_end)), value_of(sum(m, axis))));
    EXPECT_TRUE(near(value_of(max(m, Axis{from_end})), value_of(max(m, Axis{axis}))));
    EXPECT_TRUE(near(value_of(concat({m, m}, from_end)), value_of(concat({m, m}, axis))));
    EXPECT_TRUE(near(value_of(slice(m, 1, 2, from_end)), value_of(slice(m, 1, 2, axis))));
    EXPECT_TRUE(near(value_of(pad(m, 1, 5, from_end)), value_of(pad(m, 1, 5, axis))));
  }
}

TEST(ExprError, FactorsAndSolvesNameTheirShapes) {
  EXPECT_EQ(error_of([] { cholesky(of({2, 3})); }), "[cholesky] needs a square matrix, got shape (2, 3)");
  EXPECT_EQ(error_of([] { lu(of({3})); }), "[lu] needs a square matrix, got shape (3)");
  EXPECT_EQ(error_of([] { ldlt(of({3})); }), "[ldlt] needs a square matrix, got shape (3)");
  EXPECT_EQ(error_of([] { solve(lu(eye(3)), of({2})); }), "[solve] matrix (3, 3) and right-hand side (2) do not fit");
  EXPECT_EQ(error_of([] {
              solve_transposed(lu(eye(3)), of({2, 3}));
            }),
            "[solve] matrix (3, 3) and right-hand side (2, 3) do not fit");
  EXPECT_EQ(error_of([] { solve(lu(eye(3)), 1.0); }), "[solve] matrix (3, 3) and right-hand side () do not fit");
}

TEST(ExprError, DerivativesNameWhatDoesNotFit) {
  const Expr x = of({3});
  EXPECT_EQ(error_of([&] { grad(x, x); }),
            "[grad] the result has shape (3), not a number; use jacobian, or grad of its sum");
  EXPECT_EQ(error_of([&] { jvp(x, x, 1.0); }), "[jvp] tangent 0 has shape (), its argument has (3)");
  EXPECT_EQ(error_of([&] { vjp(x, x, of({4})); }), "[vjp] cotangent 0 has shape (4), its result has (3)");
  EXPECT_EQ(error_of([&] { jvp(Exprs{x}, Exprs{x}, Exprs{}); }), "[jvp] 1 arguments but 0 tangents");
  EXPECT_EQ(error_of([&] { vjp(Exprs{x}, Exprs{x}, Exprs{x, x}); }), "[vjp] 1 results but 2 cotangents");
}

TEST(ExprError, ArgumentsOfTwoFunctionsDoNotMix) {
  Expr leaked;
  traced(
      [&](Expr x) {
        leaked = x;
        return x;
      },
      Shape{3});
  const std::string message =
      "[add] the arguments belong to two different traced functions; make the one an Input of the other, or call its "
      "Function there";
  EXPECT_EQ(error_of([&] { traced([&](Expr x) { return x + leaked; }, Shape{3}); }), message);
  EXPECT_EQ(error_of([&] { traced([&](Expr x) { return jvp(leaked, x, x); }, Shape{3}); }).substr(0, 5), "[jvp]");
  EXPECT_NE(error_of([&] { traced([&](Expr) { return leaked; }, Shape{3}); }), "no error");
}

TEST(ExprError, BroadcastToMoreEntriesThanCanBeAddressedIsRefused) {
  const std::int64_t huge = std::int64_t{1} << 40;
  traced(
      [&](Expr row, Expr column) {
        EXPECT_EQ(error_of([&] { (void)(row + column); }),
                  "[Shape] (1099511627776, 1099511627776) has more entries than can be addressed");
        EXPECT_EQ(error_of([&] { outer(row, row); }),
                  "[Shape] (1099511627776, 1099511627776) has more entries than can be addressed");
        EXPECT_EQ(error_of([&] { diag(row); }),
                  "[Shape] (1099511627776, 1099511627776) has more entries than can be addressed");
        return sum(row) + sum(column);
      },
      Shape{huge}, Shape{huge, 1});
}

TEST(ExprError, ConcatOfMoreEntriesThanCanBeAddressedIsRefused) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / 8;
  traced(
      [&](Expr a) {
        EXPECT_NE(error_of([&] { concat({a, a}); }), "no error");
        EXPECT_NE(error_of([&] { concat(Exprs(20, a)); }), "no error");
        return sum(a);
      },
      Shape{most});
}

class Square : public Foreign {
 public:
  std::string name() const override { return "square_by_hand"; }
  Shape shape(std::span<const Shape> arguments) const override {
    if (arguments.size() != 1) throw Error("[square_by_hand] takes one argument");
    return arguments[0];
  }
  void apply(std::span<const std::span<const double>> a, std::span<double> y) const override {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = a[0][i] * a[0][i];
  }
};

TEST(ExprError, ForeignFunctionsCheckTheirArgumentsThemselves) {
  const auto f = std::make_shared<Square>();
  EXPECT_EQ(error_of([&] { call(f, {of({2}), of({2})}); }), "[square_by_hand] takes one argument");
  EXPECT_EQ(error_of([&] { call(f, {}); }), "[call] square_by_hand needs at least one argument");
  EXPECT_EQ(error_of([&] { call(nullptr, {of({2})}); }), "[call] no function was given");
  EXPECT_TRUE(near(value_of({Array{1.0, -3.0}}, [&](const Exprs& x) { return call(f, {x[0]}); }), Array{1.0, 9.0}));
}

// --- shapes

TEST(Expr, BroadcastingFollowsNumPy) {
  const auto shape = [](const Shape& a, const Shape& b) { return (of(a) + of(b)).shape(); };
  EXPECT_EQ(shape({}, {3}), (Shape{3}));
  EXPECT_EQ(shape({}, {2, 3}), (Shape{2, 3}));
  EXPECT_EQ(shape({3}, {2, 3}), (Shape{2, 3}));
  EXPECT_EQ(shape({2, 1}, {3}), (Shape{2, 3}));
  EXPECT_EQ(shape({2, 1}, {1, 3}), (Shape{2, 3}));
  EXPECT_EQ(shape({1}, {0}), (Shape{0}));
  EXPECT_EQ(shape({2, 1}, {2, 0}), (Shape{2, 0}));
  EXPECT_EQ(shape({1}, {1, 1}), (Shape{1, 1}));
  EXPECT_EQ(where(of({2, 1}), of({3}), 1.0).shape(), (Shape{2, 3}));
}

TEST(Expr, BroadcastValuesFollowNumPy) {
  const Array row{10.0, 20.0, 30.0}, column(Shape{2, 1}, {1.0, 2.0});
  EXPECT_TRUE(near(value_of(Expr(row) + Expr(column)), Array{{11.0, 21.0, 31.0}, {12.0, 22.0, 32.0}}));
  EXPECT_TRUE(near(value_of(broadcast(row, {2, 3})), Array{{10.0, 20.0, 30.0}, {10.0, 20.0, 30.0}}));
  EXPECT_TRUE(near(value_of(broadcast(column, {2, 2})), Array{{1.0, 1.0}, {2.0, 2.0}}));
}

TEST(Expr, ProductsOfVectorsAndMatricesHaveTheRightShapeAndValue) {
  const Array A{{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}}, x{1.0, 0.0, -1.0}, y{1.0, 2.0};
  EXPECT_TRUE(near(value_of(matmul(A, x)), Array{-2.0, -2.0}));
  EXPECT_TRUE(near(value_of(matmul(y, A)), Array{9.0, 12.0, 15.0}));
  EXPECT_TRUE(near(value_of(matmul(x, x)), Array(2.0)));
  EXPECT_TRUE(near(value_of(matmul(transpose(Expr(A)), y)), Array{9.0, 12.0, 15.0}));
  EXPECT_TRUE(near(value_of(matmul(A, transpose(Expr(A)))), Array{{14.0, 32.0}, {32.0, 77.0}}));
  EXPECT_TRUE(
      near(value_of(gram(A, Array{1.0, -1.0})), Array{{-15.0, -18.0, -21.0}, {-18.0, -21.0, -24.0}, {-21.0, -24.0, -27.0}}));
  EXPECT_TRUE(near(value_of(outer(y, x)), Array{{1.0, 0.0, -1.0}, {2.0, 0.0, -2.0}}));
}

TEST(Expr, StructureOperationsPlaceEntriesWhereTheySay) {
  const Array m{{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}}, v{1.0, 2.0, 3.0};
  EXPECT_TRUE(near(value_of(transpose(Expr(m))), Array{{1.0, 4.0}, {2.0, 5.0}, {3.0, 6.0}}));
  EXPECT_TRUE(near(value_of(transpose(Expr(v))), v));
  EXPECT_TRUE(near(value_of(reshape(m, {3, 2})), Array{{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}}));
  EXPECT_TRUE(near(value_of(diag(v)), Array{{1.0, 0.0, 0.0}, {0.0, 2.0, 0.0}, {0.0, 0.0, 3.0}}));
  EXPECT_TRUE(near(value_of(diagonal(Array{{1.0, 2.0}, {3.0, 4.0}})), Array{1.0, 4.0}));
  EXPECT_TRUE(near(value_of(eye(2, 3, 1)), Array{{0.0, 1.0, 0.0}, {0.0, 0.0, 1.0}}));
  EXPECT_TRUE(near(value_of(eye(3, 2, -1)), Array{{0.0, 0.0}, {1.0, 0.0}, {0.0, 1.0}}));
  EXPECT_TRUE(near(value_of(concat({v, v})), Array{1.0, 2.0, 3.0, 1.0, 2.0, 3.0}));
  EXPECT_TRUE(
      near(value_of(concat({m, Array(Shape{2, 1}, {7.0, 8.0})}, 1)), Array{{1.0, 2.0, 3.0, 7.0}, {4.0, 5.0, 6.0, 8.0}}));
  EXPECT_TRUE(near(value_of(concat({m, Array{{7.0, 8.0, 9.0}}})), Array{{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}, {7.0, 8.0, 9.0}}));
  EXPECT_TRUE(near(value_of(slice(v, 1, 3)), Array{2.0, 3.0}));
  EXPECT_TRUE(near(value_of(slice(v, -2, -1)), Array{2.0}));
  EXPECT_TRUE(near(value_of(slice(m, 1, 3, 1)), Array{{2.0, 3.0}, {5.0, 6.0}}));
  EXPECT_TRUE(near(value_of(slice(m, 1, 2)), Array{{4.0, 5.0, 6.0}}));
  EXPECT_TRUE(near(value_of(pad(v, 1, 5)), Array{0.0, 1.0, 2.0, 3.0, 0.0}));
  EXPECT_TRUE(near(value_of(pad(m, 1, 5, 1)), Array{{0.0, 1.0, 2.0, 3.0, 0.0}, {0.0, 4.0, 5.0, 6.0, 0.0}}));
  EXPECT_TRUE(near(value_of(pad(Array{{1.0, 2.0}}, 1, 2)), Array{{0.0, 0.0}, {1.0, 2.0}}));
  EXPECT_TRUE(near(value_of(sum(m)), Array(21.0)));
  EXPECT_TRUE(near(value_of(sum(m, 0)), Array{5.0, 7.0, 9.0}));
  EXPECT_TRUE(near(value_of(sum(m, 1)), Array{6.0, 15.0}));
  EXPECT_TRUE(near(value_of(max(m, Axis{0})), Array{4.0, 5.0, 6.0}));
  EXPECT_TRUE(near(value_of(max(m, Axis{1})), Array{3.0, 6.0}));
  EXPECT_TRUE(near(value_of(max(m)), Array(6.0)));
}

TEST(Expr, FactorsSolveAndGiveTheLogOfTheDeterminant) {
  const Array H{{4.0, 2.0}, {2.0, 3.0}}, M{{0.0, 2.0}, {-1.0, 3.0}}, S{{0.0, 1.0}, {1.0, 0.0}}, b{2.0, 5.0};
  EXPECT_TRUE(near(value_of(solve(cholesky(H), b)), Array{-0.5, 2.0}));
  EXPECT_TRUE(near(value_of(logdet(cholesky(H))), Array(std::log(8.0))));
  EXPECT_TRUE(near(value_of(solve(lu(M), b)), Array{-2.0, 1.0}));
  EXPECT_TRUE(near(value_of(solve_transposed(lu(M), b)), Array{5.5, -2.0}));
  EXPECT_TRUE(near(value_of(logdet(lu(M))), Array(std::log(2.0))));
  EXPECT_TRUE(near(value_of(solve(ldlt(S), b)), Array{5.0, 2.0}));
  EXPECT_TRUE(near(value_of(solve(lu(M), eye(2))), Array{{1.5, -1.0}, {0.5, 0.0}}));
}

TEST(Expr, CholeskyAndLdltReadTheLowerTriangleOnly) {
  const Array lower{{4.0, 99.0}, {2.0, 3.0}}, b{2.0, 5.0};
  EXPECT_TRUE(near(value_of(solve(cholesky(lower), b)), Array{-0.5, 2.0}));
  EXPECT_TRUE(near(value_of(solve(ldlt(lower), b)), Array{-0.5, 2.0}));
}

TEST(Expr, AFactorThatFailsSetsTheFlagAndGivesNaN) {
  const auto run = [](const std::function<Expr()>& make) {
    bool failed = false;
    const Array y =
        naive::interpret(Function({}, [&](std::span<const Expr>) { return Exprs{make()}; }), {}, &failed).front();
    return std::pair(failed, entries_of(y));
  };
  const Array indefinite{{1.0, 2.0}, {2.0, 1.0}}, singular{{1.0, 2.0}, {2.0, 4.0}}, b{1.0, 1.0};
  const Array bad{{std::nan(""), 0.0}, {0.0, 1.0}};
  using ::testing::Each;
  using ::testing::IsNan;
  EXPECT_THAT(run([&] { return solve(cholesky(indefinite), b); }), ::testing::Pair(true, Each(IsNan())));
  EXPECT_THAT(run([&] { return logdet(cholesky(indefinite)); }), ::testing::Pair(true, Each(IsNan())));
  EXPECT_THAT(run([&] { return solve(lu(singular), b); }), ::testing::Pair(true, Each(IsNan())));
  EXPECT_THAT(run([&] { return solve(ldlt(singular), b); }), ::testing::Pair(true, Each(IsNan())));
  EXPECT_THAT(run([&] { return solve(cholesky(bad), b); }), ::testing::Pair(true, Each(IsNan())));
  EXPECT_THAT(run([&] { return solve(ldlt(indefinite), b); }), ::testing::Pair(false, Each(::testing::Not(IsNan()))));
}

TEST(Expr, ZeroSizedArraysAreAllowedEverywhere) {
  const Expr v = of({0}), m = of({3, 0}), square = of({0, 0});
  EXPECT_EQ(value_of(sum(v)).item(), 0.0);
  EXPECT_EQ(value_of(max(v)).item(), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(near(value_of(matmul(m, v)), zeros({3})));
  EXPECT_TRUE(near(value_of(sum(m, 1)), zeros({3})));
  EXPECT_TRUE(near(value_of(gram(m, of({3}))), zeros({0, 0})));
  EXPECT_TRUE(near(value_of(gram(of({0, 2}), v)), zeros({2, 2})));
  EXPECT_TRUE(near(value_of(outer(v, of({2}))), zeros({0, 2})));
  EXPECT_TRUE(near(value_of(solve(cholesky(square), v)), zeros({0})));
  EXPECT_EQ(value_of(logdet(lu(square))).item(), 0.0);
  EXPECT_TRUE(near(value_of(concat({v, Array{1.0}})), Array{1.0}));
  EXPECT_TRUE(near(value_of(slice(Array{1.0}, 1, 1)), zeros({0})));
  EXPECT_TRUE(near(value_of(pad(v, 1, 2)), zeros({2})));
  EXPECT_TRUE(near(value_of(exp(m) * 2.0 + m), zeros({3, 0})));
  EXPECT_TRUE(near(value_of(diag(v)), zeros({0, 0})));
  EXPECT_TRUE(near(value_of(reshape(m, {0, 7})), zeros({0, 7})));
}

TEST(Expr, NaNAndInfinityAreCarried) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const Array a{1.0, nan, inf};
  EXPECT_TRUE(std::isnan(value_of(sum(a)).item()));
  EXPECT_TRUE(std::isnan(value_of(max(a)).item()));
  EXPECT_TRUE(std::isnan(value_of(max(Array{nan, 1.0})).item()));
  EXPECT_TRUE(near(value_of(exp(a)), Array{std::exp(1.0), nan, inf}));
  EXPECT_TRUE(near(value_of(softplus(a)), Array{std::log1p(std::exp(1.0)), nan, inf}));
  EXPECT_TRUE(near(value_of(maximum(a, 2.0)), Array{2.0, nan, inf}));
  EXPECT_TRUE(near(value_of(maximum(2.0, a)), Array{2.0, nan, inf}));
  EXPECT_TRUE(near(value_of(minimum(a, 2.0)), Array{1.0, nan, 2.0}));
  EXPECT_TRUE(near(value_of(minimum(2.0, a)), Array{1.0, nan, 2.0}));
  EXPECT_TRUE(near(value_of(sign(a)), Array{1.0, nan, 1.0}));
  // Not simplified away: 0 · NaN is NaN.
  EXPECT_TRUE(near(value_of(0.0 * Expr(a)), Array{0.0, nan, nan}));
}

TEST(Expr, LogSumExpAddsUpExponentialsOfAnySizeAlongAnAxis) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const Array a{{700.0, 700.0}, {-700.0, -700.0}, {0.0, -inf}, {-inf, -inf}};
  const Array along_rows{700.0 + std::log(2.0), -700.0 + std::log(2.0), 0.0, -inf};
  EXPECT_TRUE(near(value_of(log_sum_exp(a, 1)), along_rows, 0.0));
  EXPECT_TRUE(near(value_of(log_sum_exp(a, -1)), along_rows, 0.0));
  EXPECT_TRUE(near(value_of(log_sum_exp(a, 0)), Array{700.0, 700.0}, 0.0));
  EXPECT_TRUE(
      near(value_of(log_sum_exp(Array{1.0, 2.0, 3.0}, 0)), Array(3.0 + std::log1p(std::exp(-1.0) + std::exp(-2.0)))));
}

TEST(Expr, SafeFunctionsAreExactFarOut) {
  EXPECT_TRUE(near(value_of(softplus(Array{-700.0})), Array{std::exp(-700.0)}, 1e-15));
  EXPECT_EQ(value_of(softplus(Array{700.0}))(0), 700.0);
  EXPECT_TRUE(near(value_of(sigmoid(Array{-700.0})), Array{std::exp(-700.0)}, 1e-15));
  EXPECT_EQ(value_of(sigmoid(Array{700.0}))(0), 1.0);
  EXPECT_TRUE(near(value_of(log1p(Array{1e-20})), Array{1e-20}, 1e-15));
  EXPECT_TRUE(near(value_of(expm1(Array{1e-20})), Array{1e-20}, 1e-15));
}

// --- sharing

TEST(HashConsing, TheSameOperationOnTheSameArgumentsIsTheSameNode) {
  traced(
      [](Expr x, Expr y) {
        EXPECT_TRUE(same(exp(x) * y, exp(x) * y));
        EXPECT_TRUE(same(x + y, y + x));
        EXPECT_FALSE(same(x - y, y - x));
        EXPECT_TRUE(same(sum(x), sum(x)));
        EXPECT_FALSE(same(slice(x, 0, 2), slice(x, 1, 3)));
        EXPECT_FALSE(same(matmul(outer(x, y), exp(x)), matmul(outer(y, x), exp(x))));
        return x;
      },
      Shape{3}, Shape{3});
}

TEST(HashConsing, ArraysWithTheSameMemoryAreOneConstant) {
  const Array A = ones({100, 100}), copy = A, other = ones({100, 100});
  const Function f = traced([&](Expr x) { return matmul(A, matmul(copy, matmul(A, x))) + matmul(other, x); }, Shape{100});
  EXPECT_EQ(count_nodes(f.outputs().front(), Op::constant), 2);
}

TEST(HashConsing, NumbersAreToldApartByTheirBits) {
  traced(
      [](Expr x) {
        EXPECT_TRUE(same(x * 3.0, x * 3.0));
        EXPECT_FALSE(same(x / 0.0, x / -0.0));
        EXPECT_TRUE(same(x + std::nan(""), x + std::nan("")));
        return x;
      },
      Shape{3});
}

TEST(Factor, AnArrayIsNotAFactor) {
  try {
    (void)factor_of(Expr(ones({2, 2})));
    FAIL() << "an array was taken as a factor";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "[Factor] needs a factorisation, not an array of shape (2, 2); make one with cholesky, lu or ldlt");
  }
}

}  // namespace
}  // namespace onestep::test
