// A property test for each rule of src/graph/rewrite.cpp, in the same order: the rule fires, and the value is that of the
// same expression built as it is written. Then random expressions of many operations, built both ways.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <limits>

#include "support/random.h"
#include "support/run.h"

namespace onestep::test {
namespace {

/// The expression as it is written, and as the library builds it.
struct Both {
  Expr plain;
  Expr rewritten;
};

struct Case {
  std::vector<Shape> shapes;
  std::function<Both(const Exprs&)> build;
  /// Whether the rewritten expression shows that the rule was applied.
  std::function<bool(const Expr&)> fired;
  /// Whether it must also cost less, at any size.
  bool cheaper = false;
};

Expr raw(Op op, std::initializer_list<Expr> args, const Attr& attr = {}, const Shape& shape = {}) {
  return build_as_is(op, args, attr, shape);
}
Expr raw_matmul(const Expr& a, const Expr& b, bool ta = false, bool tb = false) {
  return raw(Op::matmul, {a, b}, {.i = ta, .j = tb});
}
Expr product(const Expr& a, const Expr& b, bool ta = false, bool tb = false) {
  return build(Op::matmul, {a, b}, {.i = ta, .j = tb});
}
Expr raw_sum(const Expr& a, int axis) { return raw(Op::sum, {a}, {.i = axis}); }
Expr any_sum(const Expr& a, int axis) { return axis < 0 ? sum(a) : sum(a, axis); }
Expr raw_neg(const Expr& a) { return raw(Op::neg, {a}); }

std::function<bool(const Expr&)> is_op(Op op) {
  return [op](const Expr& e) { return is(e, op); };
}
std::function<bool(const Expr&)> without(Op op) {
  return [op](const Expr& e) { return count_nodes(e, op) == 0; };
}
std::function<bool(const Expr&)> without_matrix(Op op) {
  return [op](const Expr& e) {
    return count_nodes({&e, 1}, [op](const Expr& n) { return is(n, op) && n.shape().rank() == 2; }) == 0;
  };
}
std::function<bool(const Expr&)> both(std::function<bool(const Expr&)> a, std::function<bool(const Expr&)> b) {
  return [a = std::move(a), b = std::move(b)](const Expr& e) { return a(e) && b(e); };
}

void check_rule(const std::function<Case(Random&)>& make) {
  const bool holds = rc::check([&] {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    const Case c = make(random);
    bool applied = false;
    const Function f = function_of(c.shapes, [&](const Exprs& x) {
      const Both both_ways = c.build(x);
      const Exprs placed = unify("test", Exprs{x[0], both_ways.plain, both_ways.rewritten});
      applied = !same(placed[1], placed[2]) && c.fired(placed[2]) && (!c.cheaper || flops(placed[2]) < flops(placed[1]));
      return Exprs{placed[1], placed[2]};
    });
    RC_LOG(f.text());
    RC_ASSERT(applied || random.degenerate());
    const Arrays y = naive::interpret(f, random.arrays(c.shapes));
    const ::testing::AssertionResult same_value = near(y[0], y[1], 1e-13, 1.0);
    RC_LOG(std::string(same_value.message()));
    RC_ASSERT(bool(same_value));
  });
  EXPECT_TRUE(holds);
}

#define RULE(name)                          \
  Case name(Random& random);                \
  TEST(Rewrite, name) { check_rule(name); } \
  Case name([[maybe_unused]] Random& random)

// --- elementwise: fold_or_lift

RULE(NumbersAreFolded) {
  const Shape s = random.number_vector_or_matrix();
  const double a = random.uniform(0.5, 2), b = random.uniform(0.5, 2);
  return {{s},
          [=](const Exprs& x) {
            const Expr p = broadcast(a, s), q = broadcast(b, s);
            return Both{raw(Op::add, {x[0], raw(Op::exp, {raw(Op::mul, {p, q})})}), x[0] + exp(p * q)};
          },
          without(Op::exp)};
}
RULE(OperationsAreDoneBeforeRepeating) {
  const Shape s = random.matrix();
  const bool rows = random.flip();
  const Shape from = rows ? Shape{s[0], 1} : Shape{s[1]};
  return {{from, from},
          [=](const Exprs& x) {
            const Expr a = broadcast(x[0], s), b = broadcast(x[1], s);
            return Both{raw(Op::mul, {a, raw(Op::maximum, {b, broadcast(0.25, s)})}), a * maximum(b, 0.25)};
          },
          is_op(Op::broadcast)};
}
RULE(OperationsAreDoneBeforeReshaping) {
  const Shape s = random.matrix();
  return {{s, s},
          [=](const Exprs& x) {
            const Shape to{s.size()};
            const Expr a = reshape(x[0], to), b = reshape(x[1], to);
            return Both{raw(Op::sub, {a, raw(Op::tanh, {b})}), a - tanh(b)};
          },
          is_op(Op::reshape)};
}

// --- add

RULE(SumsHaveOneOrder) {
  const Shape s = random.number_vector_or_matrix();
  return {{s, s},
          [](const Exprs& x) {
            return Both{raw(Op::add, {x[1], x[0]}), x[1] + x[0]};
          },
          [](const Expr& e) { return is(e, Op::add) && id_of(arg(e, 0)) < id_of(arg(e, 1)); }};
}
RULE(AddingZeroIsDropped) {
  const Shape s = random.number_vector_or_matrix();
  return {{s}, [=](const Exprs& x) { return Both{raw(Op::add, {x[0], broadcast(0.0, s)}), x[0] + 0.0}; }, is_op(Op::input)};
}
RULE(AddingANegativeSubtracts) {
  const Shape s = random.number_vector_or_matrix();
  return {{s, s},
          [](const Exprs& x) {
            return Both{raw(Op::add, {x[0], raw_neg(x[1])}), x[0] + -x[1]};
          },
          both(is_op(Op::sub), without(Op::neg))};
}
RULE(AddingToANegativeSubtracts) {
  const Shape s = random.number_vector_or_matrix();
  return {{s, s},
          [](const Exprs& x) {
            const Expr negative = -x[0], later = exp(x[1]);
            return Both{raw(Op::add, {negative, later}), negative + later};
          },
          both(is_op(Op::sub), without(Op::neg))};
}
RULE(DiagonalsAddAsVectors) {
  const Shape s = random.vector();
  const bool identity = random.flip();
  return {{s, s},
          [=](const Exprs& x) {
            const Expr a = diag(x[0]), b = identity ? eye(s[0]) : diag(x[1]);
            return Both{raw(Op::add, {a, b}), a + b};
          },
          is_op(Op::diag)};
}
RULE(DiagonalsMeetAfterAMatrix) {
  const std::int64_t n = random.extent();
  const bool identity = random.flip();
  return {{Shape{n, n}, Shape{n}, Shape{n}},
          [=](const Exprs& x) {
            const Expr d = identity ? eye(n) : diag(x[2]);
            return Both{raw(Op::add, {raw(Op::add, {x[0], diag(x[1])}), d}), x[0] + diag(x[1]) + d};
          },
          [](const Expr& e) { return count_nodes(e, Op::diag) == 1; }};
}
RULE(AnIdentityIsAddedAsADiagonal) {
  const std::int64_t n = random.extent();
  return {{Shape{n, n}},
          [=](const Exprs& x) {
            return Both{raw(Op::add, {x[0], eye(n)}), x[0] + eye(n)};
          },
          [](const Expr& e) { return is(arg(e, 1), Op::diag); }};
}

// --- sub

RULE(SubtractingZeroIsDropped) {
  const Shape s = random.number_vector_or_matrix();
  return {{s}, [=](const Exprs& x) { return Both{raw(Op::sub, {x[0], broadcast(0.0, s)}), x[0] - 0.0}; }, is_op(Op::input)};
}
RULE(SubtractingFromZeroNegates) {
  const Shape s = random.number_vector_or_matrix();
  return {{s}, [=](const Exprs& x) { return Both{raw(Op::sub, {broadcast(0.0, s), x[0]}), 0.0 - x[0]}; }, is_op(Op::neg)};
}
RULE(SubtractingANegativeAdds) {
  const Shape s = random.number_vector_or_matrix();
  return {{s, s},
          [](const Exprs& x) {
            return Both{raw(Op::sub, {x[0], raw_neg(x[1])}), x[0] - -x[1]};
          },
          both(is_op(Op::add), without(Op::neg))};
}
RULE(SubtractingFromANegativeNegatesTheSum) {
  const Shape s = random.number_vector_or_matrix();
  return {{s, s},
          [](const Exprs& x) {
            return Both{raw(Op::sub, {raw_neg(x[0]), x[1]}), -x[0] - x[1]};
          },
          [](const Expr& e) { return is(e, Op::neg) && is(arg(e, 0), Op::add); }};
}
RULE(SubtractingADiagonalAddsItsNegative) {
  const std::int64_t n = random.extent();
  const bool identity = random.flip();
  return {{Shape{n, n}, Shape{n}},
          [=](const Exprs& x) {
            const Expr d = identity ? eye(n) : diag(x[1]);
            return Both{raw(Op::sub, {x[0], d}), x[0] - d};
          },
          [](const Expr& e) { return is(e, Op::add) && is(arg(e, 1), Op::diag); }};
}

// --- neg

RULE(TwoNegativesCancel) {
  const Shape s = random.number_vector_or_matrix();
  return {{s}, [](const Exprs& x) { return Both{raw_neg(raw_neg(x[0])), -(-x[0])}; }, is_op(Op::input)};
}
RULE(ANegatedDifferenceIsTurnedRound) {
  const Shape s = random.number_vector_or_matrix();
  return {{s, s}, [](const Exprs& x) { return Both{raw_neg(raw(Op::sub, {x[0], x[1]})), -(x[0] - x[1])}; }, is_op(Op::sub)};
}
RULE(ANegatedDiagonalIsTheDiagonalOfTheNegative) {
  const Shape s = random.vector();
  const bool identity = random.flip();
  return {{s},
          [=](const Exprs& x) {
            const Expr d = identity ? unify("test", Exprs{x[0], eye(s[0])})[1] : diag(x[0]);
            return Both{raw_neg(d), -d};
          },
          is_op(Op::diag)};
}
RULE(ANegativeGoesIntoANumber) {
  const Shape s = random.number_vector_or_matrix();
  return {{s}, [](const Exprs& x) { return Both{raw_neg(3.0 * x[0]), -(3.0 * x[0])}; }, without(Op::neg)};
}

// --- mul

RULE(ProductsHaveOneOrder) {
  const Shape s = random.number_vector_or_matrix();
  return {{s, s},
          [](const Exprs& x) {
            return Both{raw(Op::mul, {x[1], x[0]}), x[1] * x[0]};
          },
          [](const Expr& e) { return is(e, Op::mul) && id_of(arg(e, 0)) < id_of(arg(e, 1)); }};
}
RULE(AProductWithItselfIsASquare) {
  const Shape s = random.number_vector_or_matrix();
  return {{s}, [](const Exprs& x) { return Both{raw(Op::mul, {x[0], x[0]}), x[0] * x[0]}; }, is_op(Op::square)};
}
RULE(TimesOneIsDropped) {
  const Shape s = random.number_vector_or_matrix();
  return {{s}, [=](const Exprs& x) { return Both{raw(Op::mul, {broadcast(1.0, s), x[0]}), 1.0 * x[0]}; }, is_op(Op::input)};
}
RULE(TimesMinusOneNegates) {
  const Shape s = random.number_vector_or_matrix();
  return {{s}, [=](const Exprs& x) { return Both{raw(Op::mul, {x[0], broadcast(-1.0, s)}), x[0] * -1.0}; }, is_op(Op::neg)};
}
RULE(NegativesMoveOutOfProducts) {
  const Shape s = random.number_vector_or_matrix();
  const bool first = random.flip();
  return {{s, s},
          [=](const Exprs& x) {
            return first ? Both{raw(Op::mul, {raw_neg(x[0]), x[1]}), -x[0] * x[1]}
                         : Both{raw(Op::mul, {x[0], raw_neg(x[1])}), x[0] * -x[1]};
          },
          [](const Expr& e) { return is(e, Op::neg) && is(arg(e, 0), Op::mul); }};
}
RULE(NumbersMoveOutwardsAndMeet) {
  const Shape s = random.number_vector_or_matrix();
  return {{s, s},
          [=](const Exprs& x) {
            const Expr a = raw(Op::mul, {broadcast(3.0, s), x[0]}), b = raw(Op::mul, {broadcast(5.0, s), x[1]});
            return Both{raw(Op::mul, {raw(Op::mul, {a, b}), broadcast(0.5, s)}), (3.0 * x[0]) * (5.0 * x[1]) * 0.5};
          },
          [](const Expr& e) { return literal(arg(e, 0)) == 7.5 && count_nodes(e, Op::mul) == 2; }};
}
RULE(RowAndColumnFactorsMeetInAVector) {
  const Shape s = random.matrix();
  const bool rows = random.flip(), number_outside = random.flip(), number_inside = !number_outside && random.flip();
  return {{s, Shape{s[rows ? 0 : 1]}, Shape{s[rows ? 0 : 1]}, Shape{}},
          [=](const Exprs& x) {
            const auto factor = [&](const Expr& d) { return rows ? by_row(d, s) : broadcast(d, s); };
            const Expr a = number_outside ? broadcast(x[3], s) : factor(x[1]);
            const Expr b = number_inside ? broadcast(x[3], s) : factor(x[2]);
            return Both{raw(Op::mul, {a, raw(Op::mul, {b, x[0]})}), a * (b * x[0])};
          },
          [s](const Expr& e) {
            return count_nodes({&e, 1}, [&](const Expr& n) { return is(n, Op::mul) && n.shape() == s; }) == 1;
          }};
}
TEST(Rewrite, ANumberTimesAProductOfMatricesIsLeftAlone) {
  traced(
      [](Expr a, Expr b, Expr c) {
        EXPECT_TRUE(same(c * (a * b), raw(Op::mul, {broadcast(c, {3, 4}), a * b})));
        return a;
      },
      Shape{3, 4}, Shape{3, 4}, Shape{});
}
RULE(AScaledDiagonalIsADiagonal) {
  const std::int64_t n = random.extent(), kind = random.integer(0, 2);
  return {{Shape{n}, Shape{n}, Shape{}},
          [=](const Exprs& x) {
            const Shape s{n, n};
            const Expr factor = kind == 0 ? by_row(x[1], s) : kind == 1 ? broadcast(x[1], s) : broadcast(x[2], s);
            return Both{raw(Op::mul, {factor, diag(x[0])}), factor * diag(x[0])};
          },
          is_op(Op::diag)};
}
RULE(AScaledOuterProductIsAnOuterProduct) {
  const Shape s = random.matrix();
  const std::int64_t kind = random.integer(0, 2);
  return {{Shape{s[0]}, Shape{s[1]}, Shape{}},
          [=](const Exprs& x) {
            const Expr factor = kind == 0 ? by_row(x[0], s) : kind == 1 ? broadcast(x[1], s) : broadcast(x[2], s);
            return Both{raw(Op::mul, {factor, outer(x[0], x[1])}), factor * outer(x[0], x[1])};
          },
          is_op(Op::outer)};
}
TEST(Rewrite, TimesZeroIsNotRewritten) {
  const Array y = value_of({Array{std::nan(""), 1.0}}, [](const Exprs& x) { return 0.0 * x[0]; });
  EXPECT_TRUE(std::isnan(y(0)));
  EXPECT_EQ(y(1), 0.0);
}
TEST(Rewrite, NumbersWhoseProductLeavesTheRangeDoNotMeet) {
  const Array y = value_of({Array{1e-200}}, [](const Exprs& x) { return 1e200 * (1e200 * x[0]); });
  EXPECT_DOUBLE_EQ(y(0), 1e200);
  const Array z = value_of({Array{1e200}}, [](const Exprs& x) { return 1e-200 * (1e-200 * x[0]); });
  EXPECT_DOUBLE_EQ(z(0), 1e-200);
}

// --- div, pow

RULE(DividingByOneIsDropped) {
  const Shape s = random.number_vector_or_matrix();
  return {{s}, [=](const Exprs& x) { return Both{raw(Op::div, {x[0], broadcast(1.0, s)}), x[0] / 1.0}; }, is_op(Op::input)};
}
RULE(NegativesMoveOutOfQuotients) {
  const Shape s = random.number_vector_or_matrix();
  const bool above = random.flip();
  return {
      {s, s},
      [=](const Exprs& x) {
        const Expr b = exp(x[1]);
        return above ? Both{raw(Op::div, {raw_neg(x[0]), b}), -x[0] / b} : Both{raw(Op::div, {x[0], raw_neg(b)}), x[0] / -b};
      },
      [](const Expr& e) { return is(e, Op::neg) && is(arg(e, 0), Op::div); }};
}
RULE(SmallWholePowersAreWrittenOut) {
  const Shape s = random.number_vector_or_matrix();
  const double power = random.one_of(std::vector<double>{2, 1, 0, -1});
  return {{s},
          [=](const Exprs& x) {
            return Both{raw(Op::pow, {x[0], broadcast(power, s)}), pow(x[0], power)};
          },
          without(Op::pow)};
}

// --- the short ones in rewrite()

RULE(SquareAndAbsForgetASign) {
  const Shape s = random.number_vector_or_matrix();
  const Op op = random.flip() ? Op::square : Op::abs;
  return {{s},
          [=](const Exprs& x) {
            return Both{raw(op, {raw_neg(x[0])}), build(op, {-x[0]})};
          },
          both(is_op(op), without(Op::neg))};
}
RULE(AComparisonThatIsNotZeroIsItself) {
  const Shape s = random.number_vector_or_matrix();
  return {
      {s, s},
      [=](const Exprs& x) {
        return Both{raw(Op::not_equal, {raw(Op::less, {x[0], x[1]}), broadcast(0.0, s)}), not_equal(less(x[0], x[1]), 0.0)};
      },
      is_op(Op::less)};
}
RULE(ChoosingBetweenTheSameIsThat) {
  const Shape s = random.number_vector_or_matrix();
  return {{s, s},
          [](const Exprs& x) {
            return Both{raw(Op::where, {x[0], x[1], x[1]}), where(x[0], x[1], x[1])};
          },
          is_op(Op::input)};
}
RULE(AKnownChoiceIsMade) {
  const Shape s = random.number_vector_or_matrix();
  const double known = random.one_of(std::vector<double>{0, 1, -2});
  return {{s, s},
          [=](const Exprs& x) {
            return Both{raw(Op::where, {broadcast(known, s), x[0], x[1]}), where(known, x[0], x[1])};
          },
          is_op(Op::input)};
}

// --- products

RULE(TransposesOfFactorsAreFlags) {
  const std::int64_t m = random.extent(), k = random.extent(), n = random.extent();
  const bool first = random.flip(), second = !first || random.flip(), vector = random.flip() && !second;
  return {{first ? Shape{k, m} : Shape{m, k}, vector   ? Shape{k}
                                              : second ? Shape{n, k}
                                                       : Shape{k, n}},
          [=](const Exprs& x) {
            const Expr a = first ? raw(Op::transpose, {x[0]}) : x[0], b = second ? raw(Op::transpose, {x[1]}) : x[1];
            return Both{raw_matmul(a, b), product(a, b)};
          },
          both(is_op(Op::matmul), without(Op::transpose))};
}
RULE(ASymmetricFactorNeedsNoFlag) {
  const std::int64_t n = random.extent(), m = random.extent();
  const bool left = random.flip(), scaled = random.flip(), sum_of_two = random.flip();
  return {{Shape{m, n}, Shape{m}, Shape{n, n}, Shape{n}},
          [=](const Exprs& x) {
            Expr S = gram(x[0], x[1]);
            if (sum_of_two) S = S + diag(x[3]) - outer(x[3], x[3]);
            if (scaled) S = -(0.5 * S);
            return left ? Both{raw_matmul(S, x[2], true, false), product(S, x[2], true, false)}
                        : Both{raw_matmul(x[2], S, false, true), product(x[2], S, false, true)};
          },
          [](const Expr& e) {
            return count_nodes({&e, 1}, [](const Expr& p) {
                     return is(p, Op::matmul) && (node(p).attr.i != 0 || node(p).attr.j != 0);
                   }) == 0;
          }};
}
RULE(AVectorNeedsNoFlag) {
  const Shape s = random.matrix();
  return {{s, Shape{s[1]}},
          [](const Exprs& x) {
            return Both{raw_matmul(x[0], x[1], false, true), product(x[0], x[1], false, true)};
          },
          [](const Expr& e) { return node(e).attr.j == 0; }};
}
RULE(NegativesMoveOutOfMatrixProducts) {
  const std::int64_t m = random.extent(), k = random.extent(), n = random.extent();
  const bool first = random.flip();
  return {{Shape{m, k}, Shape{k, n}},
          [=](const Exprs& x) {
            return first ? Both{raw_matmul(raw_neg(x[0]), x[1]), product(-x[0], x[1])}
                         : Both{raw_matmul(x[0], raw_neg(x[1])), product(x[0], -x[1])};
          },
          [](const Expr& e) { return is(e, Op::neg) && is(arg(e, 0), Op::matmul); }};
}
RULE(TheIdentityTimesAnythingIsThat) {
  const std::int64_t n = random.extent(), m = random.extent();
  const std::int64_t kind = random.integer(0, 3);
  return {{kind == 1                ? Shape{n}
           : kind == 0 || kind == 2 ? Shape{m, n}
                                    : Shape{n, m}},
          [=](const Exprs& x) {
            const Expr I = eye(n);
            if (kind == 0) return Both{raw_matmul(x[0], I), product(x[0], I)};
            if (kind == 2) return Both{raw_matmul(I, x[0], false, true), product(I, x[0], false, true)};
            return Both{raw_matmul(I, x[0]), product(I, x[0])};
          },
          without(Op::matmul),
          true};
}
RULE(ADiagonalFactorScales) {
  const std::int64_t m = random.extent(), n = random.extent();
  const bool vector = random.flip(), left = vector || random.flip(), flag = !vector && random.flip();
  return {{Shape{n}, vector         ? Shape{n}
                     : left != flag ? Shape{n, m}
                                    : Shape{m, n}},
          [=](const Exprs& x) {
            const Expr D = diag(x[0]);
            return left ? Both{raw_matmul(D, x[1], false, flag), product(D, x[1], false, flag)}
                        : Both{raw_matmul(x[1], D, flag, false), product(x[1], D, flag, false)};
          },
          both(is_op(Op::mul), without(Op::matmul)),
          true};
}
RULE(AnOuterProductTimesAVectorIsAScaledVector) {
  const Shape s = random.matrix();
  const bool flag = random.flip();
  return {{Shape{s[0]}, Shape{s[1]}, Shape{s[flag ? 0 : 1]}},
          [=](const Exprs& x) {
            const Expr M = outer(x[0], x[1]);
            return Both{raw_matmul(M, x[2], flag), product(M, x[2], flag)};
          },
          both(without(Op::outer), without(Op::matmul)),
          true};
}
RULE(AnOuterProductTimesAMatrixIsAnOuterProduct) {
  const std::int64_t m = random.extent(), k = random.extent(), n = random.extent();
  const bool left = random.flip(), outer_flag = random.flip(), flag = random.flip();
  return {{Shape{m}, Shape{k}, left ? (flag ? Shape{n, k} : Shape{k, n}) : (flag ? Shape{m, n} : Shape{n, m})},
          [=](const Exprs& x) {
            const Expr M = outer_flag ? outer(x[1], x[0]) : outer(x[0], x[1]);  // m by k, once transposed where asked
            return left ? Both{raw_matmul(M, x[2], outer_flag, flag), product(M, x[2], outer_flag, flag)}
                        : Both{raw_matmul(x[2], M, flag, outer_flag), product(x[2], M, flag, outer_flag)};
          },
          is_op(Op::outer)};
}
RULE(AProductWithItselfTransposedIsAGram) {
  const Shape s = random.matrix();
  const bool down = random.flip();  // AᵀDA or A D Aᵀ
  const std::int64_t kind = random.integer(0, 3);
  return {{s, Shape{s[down ? 0 : 1]}, Shape{s[down ? 0 : 1]}, Shape{}},
          [=](const Exprs& x) {
            const auto scaled = [&](const Expr& d) { return (down ? by_row(d, s) : broadcast(d, s)) * x[0]; };
            const Expr a = kind == 0 || kind == 2 ? x[0] : scaled(x[1]);
            const Expr b = kind == 0 || kind == 1 ? x[0] : kind == 2 ? scaled(x[2]) : broadcast(x[3], s) * x[0];
            return Both{raw_matmul(a, b, down, !down), product(a, b, down, !down)};
          },
          both(is_op(Op::gram), without(Op::matmul))};
}
RULE(AGramTimesAVectorIsTwoProducts) {
  const std::int64_t m = random.extent(), n = random.extent() + 3;
  return {{Shape{m, n}, Shape{m}, Shape{n}},
          [](const Exprs& x) {
            const Expr G = gram(x[0], x[1]);
            return Both{raw_matmul(G, x[2]), product(G, x[2])};
          },
          without(Op::gram),
          true};
}
RULE(AGramTimesANarrowMatrixIsTwoProducts) {
  const std::int64_t m = random.extent(), n = 9;
  const bool flag = random.flip();
  return {{Shape{m, n}, Shape{m}, flag ? Shape{2, n} : Shape{n, 2}},
          [=](const Exprs& x) {
            const Expr G = gram(x[0], x[1]);
            return Both{raw_matmul(G, x[2], false, flag), product(G, x[2], false, flag)};
          },
          without(Op::gram),
          true};
}
RULE(SumsThatNeedNotBeFormedAreMultipliedTermByTerm) {
  const std::int64_t m = random.extent(), n = random.extent() + 3;
  const bool minus = random.flip(), scaled = random.flip();
  return {{Shape{m, n}, Shape{m}, Shape{n}, Shape{n}, Shape{n}, Shape{}},
          [=](const Exprs& x) {
            const Expr G = gram(x[0], x[1]), O = outer(x[2], x[3]);
            const Expr S = minus ? G - O : G + O + diag(x[4]);
            const Expr M = scaled ? broadcast(x[5], {n, n}) * S : S;
            return Both{raw_matmul(M, x[4]), product(M, x[4])};
          },
          both(without(Op::gram), without(Op::outer)),
          true};
}
RULE(AMatrixTimesASumOfOuterProductsIsASumOfOuterProducts) {
  const std::int64_t m = random.extent(), k = random.extent(), n = random.extent();
  const bool minus = random.flip(), flag = random.flip();
  return {{flag ? Shape{k, m} : Shape{m, k}, Shape{k}, Shape{n}, Shape{k}, Shape{n}},
          [=](const Exprs& x) {
            const Expr u = outer(x[1], x[2]), v = outer(x[3], x[4]);
            const Expr M = minus ? u - v : u + v;
            return Both{raw_matmul(x[0], M, flag), product(x[0], M, flag)};
          },
          [minus](const Expr& e) { return is(e, minus ? Op::sub : Op::add) && is(arg(e, 0), Op::outer); }};
}

// --- transpose, diagonal

RULE(TwoTransposesCancel) {
  const Shape s = random.matrix();
  return {{s},
          [](const Exprs& x) {
            return Both{raw(Op::transpose, {raw(Op::transpose, {x[0]})}), transpose(transpose(x[0]))};
          },
          is_op(Op::input)};
}
RULE(ASymmetricMatrixIsItsTranspose) {
  const Shape s = random.matrix();
  return {{s, Shape{s[0]}, Shape{s[1]}},
          [](const Exprs& x) {
            const Expr S = -(3.0 * (gram(x[0], x[1]) - outer(x[2], x[2])) + diag(x[2]));
            return Both{raw(Op::transpose, {S}), transpose(S)};
          },
          without(Op::transpose)};
}
RULE(ATransposedShiftedIdentityIsAShiftedIdentity) {
  const Shape s = random.matrix();
  const std::int64_t offset = random.integer(-3, 3);
  return {{Shape{s[0]}},
          [=](const Exprs& x) {
            const Expr E = unify("test", Exprs{x[0], eye(s[0], s[1], offset)})[1];
            return Both{raw(Op::transpose, {E}), transpose(E)};
          },
          is_op(Op::eye)};
}
RULE(ATransposedOuterProductIsTurnedRound) {
  const Shape s = random.matrix();
  return {{Shape{s[0]}, Shape{s[1]}},
          [](const Exprs& x) {
            return Both{raw(Op::transpose, {outer(x[0], x[1])}), transpose(outer(x[0], x[1]))};
          },
          is_op(Op::outer)};
}
RULE(NegativesMoveOutOfTransposes) {
  const Shape s = random.matrix();
  return {{s}, [](const Exprs& x) { return Both{raw(Op::transpose, {raw_neg(x[0])}), transpose(-x[0])}; }, is_op(Op::neg)};
}
RULE(ATransposedProductIsTheProductTurnedRound) {
  const std::int64_t m = random.extent(), k = random.extent(), n = random.extent();
  const bool ta = random.flip(), tb = random.flip();
  return {{ta ? Shape{k, m} : Shape{m, k}, tb ? Shape{n, k} : Shape{k, n}},
          [=](const Exprs& x) {
            return Both{raw(Op::transpose, {raw_matmul(x[0], x[1], ta, tb)}), transpose(product(x[0], x[1], ta, tb))};
          },
          both(is_op(Op::matmul), without(Op::transpose))};
}
RULE(TheDiagonalOfADiagonalIsItsVector) {
  const Shape s = random.vector();
  return {{s}, [](const Exprs& x) { return Both{raw(Op::diagonal, {diag(x[0])}), diagonal(diag(x[0]))}; }, is_op(Op::input)};
}
RULE(TheDiagonalOfAnOuterProductIsAProduct) {
  const Shape s = random.vector();
  return {{s, s},
          [](const Exprs& x) {
            return Both{raw(Op::diagonal, {outer(x[0], x[1])}), diagonal(outer(x[0], x[1]))};
          },
          is_op(Op::mul)};
}
RULE(DiagonalOfAProductIsTheProductsOfItsRowsAndColumns) {
  const std::int64_t n = random.extent(), k = random.extent();
  const bool ta = random.flip(), tb = random.flip();
  return {{ta ? Shape{k, n} : Shape{n, k}, tb ? Shape{n, k} : Shape{k, n}},
          [=](const Exprs& x) {
            return Both{raw(Op::diagonal, {raw_matmul(x[0], x[1], ta, tb)}), diagonal(product(x[0], x[1], ta, tb))};
          },
          without(Op::matmul)};
}
RULE(TheDiagonalOfAGramIsOneProduct) {
  const std::int64_t m = random.extent(), n = random.extent() + 1;
  return {{Shape{m, n}, Shape{m}},
          [](const Exprs& x) {
            return Both{raw(Op::diagonal, {gram(x[0], x[1])}), diagonal(gram(x[0], x[1]))};
          },
          without(Op::gram),
          true};
}

// --- sums

RULE(TheSumOfANumberIsTheNumber) {
  return {{Shape{}}, [](const Exprs& x) { return Both{raw_sum(x[0], -1), sum(x[0])}; }, is_op(Op::input)};
}
TEST(Rewrite, TheSumOfNothingIsZero) {
  EXPECT_TRUE(near(value_of({Array(std::nan(""))}, [](const Exprs& x) { return sum(broadcast(x[0], {0})); }), Array(0.0)));
  EXPECT_TRUE(near(value_of({Array(std::nan(""))},
                            [](const Exprs& x) {
                              return sum(broadcast(x[0], {3, 0}), 1);
                            }),
                   zeros({3})));
}
RULE(NegativesMoveOutOfSums) {
  const Shape s = random.matrix();
  const int axis = static_cast<int>(random.integer(-1, 1));
  return {{s}, [=](const Exprs& x) { return Both{raw_sum(raw_neg(x[0]), axis), any_sum(-x[0], axis)}; }, is_op(Op::neg)};
}
RULE(ASumOfRepeatedValuesIsAMultiple) {
  const Shape s = random.matrix();
  const int axis = static_cast<int>(random.integer(-1, 1));
  const Shape from = random.one_of(std::vector<Shape>{{}, {1}, {1, 1}, {s[1]}, {1, s[1]}, {s[0], 1}});
  return {{from},
          [=](const Exprs& x) {
            const Expr r = raw(Op::broadcast, {x[0]}, {}, s);
            return Both{raw_sum(r, axis), any_sum(broadcast(x[0], s), axis)};
          },
          [s](const Expr& e) {
            return count_nodes({&e, 1}, [&](const Expr& n) { return n.shape() == s && !is(n, Op::input); }) == 0;
          }};
}
RULE(ASumOfARepeatedVectorIsAMultiple) {
  const Shape s = random.vector();
  return {{Shape{1}},
          [=](const Exprs& x) {
            return Both{raw_sum(raw(Op::broadcast, {x[0]}, {}, s), 0), sum(broadcast(x[0], s), 0)};
          },
          without(Op::sum)};
}
RULE(ASumOverADiagonalIsASumOfItsVector) {
  const Shape s = random.vector();
  const int axis = static_cast<int>(random.integer(-1, 1));
  return {{s},
          [=](const Exprs& x) {
            return Both{raw_sum(diag(x[0]), axis), any_sum(diag(x[0]), axis)};
          },
          without(Op::diag)};
}
RULE(ASumOfAnOuterProductIsAProductOfSums) {
  const Shape s = random.matrix();
  const int axis = static_cast<int>(random.integer(-1, 1));
  return {{Shape{s[0]}, Shape{s[1]}},
          [=](const Exprs& x) {
            return Both{raw_sum(outer(x[0], x[1]), axis), any_sum(outer(x[0], x[1]), axis)};
          },
          without(Op::outer),
          true};
}
RULE(ANumberMovesOutOfASum) {
  const Shape s = random.matrix();
  const int axis = static_cast<int>(random.integer(-1, 1));
  return {{s, Shape{}},
          [=](const Exprs& x) {
            return Both{raw_sum(raw(Op::mul, {broadcast(x[1], s), x[0]}), axis), any_sum(x[1] * x[0], axis)};
          },
          [s](const Expr& e) {
            return count_nodes({&e, 1}, [&](const Expr& n) { return is(n, Op::mul) && n.shape() == s; }) == 0;
          }};
}
RULE(AnOuterFactorInASumIsAProductWithTheMatrix) {
  const Shape s = random.matrix();
  const int axis = static_cast<int>(random.integer(-1, 1));
  return {{Shape{s[0]}, Shape{s[1]}, s},
          [=](const Exprs& x) {
            const Expr M = outer(x[0], x[1]);
            return Both{raw_sum(raw(Op::mul, {M, x[2]}), axis), any_sum(M * x[2], axis)};
          },
          without(Op::outer),
          true};
}
RULE(ARowFactorInASumIsAProductWithTheMatrix) {
  const Shape s = random.matrix();
  const int axis = static_cast<int>(random.integer(0, 1));
  return {{s, Shape{s[0]}},
          [=](const Exprs& x) {
            const Expr d = by_row(x[1], s);
            return Both{raw_sum(raw(Op::mul, {d, x[0]}), axis), any_sum(d * x[0], axis)};
          },
          without(Op::broadcast)};
}
RULE(AColumnFactorInASumIsAProductWithTheMatrix) {
  const Shape s = random.matrix();
  const int axis = static_cast<int>(random.integer(0, 1));
  return {{s, Shape{s[1]}},
          [=](const Exprs& x) {
            const Expr d = broadcast(x[1], s);
            return Both{raw_sum(raw(Op::mul, {d, x[0]}), axis), any_sum(d * x[0], axis)};
          },
          without(Op::broadcast)};
}

// --- broadcast, reshape

RULE(RepeatingToTheSameShapeIsDropped) {
  const Shape s = random.number_vector_or_matrix();
  return {{s},
          [=](const Exprs& x) {
            return Both{raw(Op::broadcast, {x[0]}, {}, s), broadcast(x[0], s)};
          },
          is_op(Op::input)};
}
RULE(RepeatingTwiceIsRepeatingOnce) {
  const Shape s = random.matrix();
  const auto [from, between] =
      random.one_of(std::vector<std::pair<Shape, Shape>>{{{}, {s[1]}}, {{1}, {s[0], 1}}, {{s[1]}, {1, s[1]}}});
  return {{from},
          [=, between = between](const Exprs& x) {
            const Expr once = raw(Op::broadcast, {x[0]}, {}, between);
            return Both{raw(Op::broadcast, {once}, {}, s), broadcast(once, s)};
          },
          [](const Expr& e) { return is(e, Op::broadcast) && is(arg(e, 0), Op::input); }};
}
RULE(ReshapingToTheSameShapeIsDropped) {
  const Shape s = random.number_vector_or_matrix();
  return {{s}, [=](const Exprs& x) { return Both{raw(Op::reshape, {x[0]}, {}, s), reshape(x[0], s)}; }, is_op(Op::input)};
}
RULE(ReshapingTwiceIsReshapingOnce) {
  const Shape s = random.matrix();
  return {{s},
          [=](const Exprs& x) {
            const Expr once = raw(Op::reshape, {x[0]}, {}, {s.size()});
            return Both{raw(Op::reshape, {once}, {}, {s[1], s[0]}), reshape(once, {s[1], s[0]})};
          },
          [](const Expr& e) { return count_nodes(e, Op::reshape) <= 1; }};
}
RULE(AReshapedRepeatedNumberIsRepeated) {
  const Shape s = random.matrix();
  return {{Shape{}},
          [=](const Exprs& x) {
            const Expr r = broadcast(x[0], s);
            return Both{raw(Op::reshape, {r}, {}, {s.size()}), reshape(r, {s.size()})};
          },
          both(is_op(Op::broadcast), without(Op::reshape))};
}

// --- slice, pad

struct Range {
  int axis;
  std::int64_t begin, end;
  Shape result;
};
Range random_range(Random& random, const Shape& s) {
  const int axis = s.rank() == 2 ? static_cast<int>(random.integer(0, 1)) : 0;
  const std::int64_t begin = random.integer(0, s[axis]), end = random.integer(begin, s[axis]);
  const Shape result = s.rank() == 1 ? Shape{end - begin} : axis == 0 ? Shape{end - begin, s[1]} : Shape{s[0], end - begin};
  return {axis, begin, end, result};
}
Expr raw_slice(const Expr& a, const Range& r) { return raw(Op::slice, {a}, {.i = r.axis, .j = r.begin}, r.result); }
Expr slice_of(const Expr& a, const Range& r) { return slice(a, r.begin, r.end, r.axis); }

RULE(TheWholeRangeIsDropped) {
  const Shape s = random.matrix();
  const int axis = static_cast<int>(random.integer(0, 1));
  return {{s},
          [=](const Exprs& x) {
            const Range all{axis, 0, s[axis], s};
            return Both{raw_slice(x[0], all), slice_of(x[0], all)};
          },
          is_op(Op::input)};
}
RULE(ARangeOfARepeatedNumberIsRepeated) {
  const Shape s = random.matrix();
  const Range r = random_range(random, s);
  return {{r.result},
          [=](const Exprs& x) {
            const Expr c = unify("test", Exprs{x[0], broadcast(2.5, s)})[1];
            return Both{raw_slice(c, r), slice_of(c, r)};
          },
          without(Op::slice)};
}
RULE(NegativesMoveOutOfRanges) {
  const Shape s = random.matrix();
  const Range r = random_range(random, s);
  return {{s}, [=](const Exprs& x) { return Both{raw_slice(raw_neg(x[0]), r), slice_of(-x[0], r)}; }, is_op(Op::neg)};
}
RULE(ARangeOfARangeIsARange) {
  const Shape s = random.matrix();
  const Range outer_range = random_range(random, s);
  Range r = random_range(random, outer_range.result);
  while (r.axis != outer_range.axis) r = random_range(random, outer_range.result);
  return {{s},
          [=](const Exprs& x) {
            const Expr once = raw_slice(x[0], outer_range);
            return Both{raw_slice(once, r), slice_of(once, r)};
          },
          [](const Expr& e) { return count_nodes(e, Op::slice) <= 1; }};
}
RULE(ARangeOfWhatWasPlacedThereIsThat) {
  const Shape s = random.matrix();
  const Range r = random_range(random, s);
  return {{r.result},
          [=](const Exprs& x) {
            const Expr placed = raw(Op::pad, {x[0]}, {.i = r.axis, .j = r.begin}, s);
            return Both{raw_slice(placed, r), slice_of(placed, r)};
          },
          without(Op::slice)};
}
RULE(ARangeOfAShiftedIdentityIsAShiftedIdentity) {
  const Shape s = random.matrix();
  const Range r = random_range(random, s);
  const std::int64_t offset = random.integer(-2, 2);
  return {{Shape{}},
          [=](const Exprs& x) {
            const Expr E = unify("test", Exprs{x[0], eye(s[0], s[1], offset)})[1];
            return Both{raw(Op::exp, {raw_slice(E, r)}), exp(slice_of(E, r))};
          },
          without(Op::slice)};
}
RULE(ARangeOfADiagonalIsAScaledShiftedIdentity) {
  const std::int64_t n = random.extent();
  const Range r = random_range(random, Shape{n, n});
  return {{Shape{n}},
          [=](const Exprs& x) {
            return Both{raw(Op::exp, {raw_slice(diag(x[0]), r)}), exp(slice_of(diag(x[0]), r))};
          },
          without_matrix(Op::slice)};
}
RULE(ARangeInsideAPartOfAConcatIsARangeOfThatPart) {
  const Shape s = random.matrix(), t = Shape{random.extent(), s[1]};
  Range r = random_range(random, s);
  while (r.axis != 0) r = random_range(random, s);
  const bool second = random.flip();
  return {{s, t},
          [=](const Exprs& x) {
            const Expr joined = second ? concat({x[1], x[0]}) : concat({x[0], x[1]});
            const std::int64_t shift = second ? t[0] : 0;
            const Range there{0, r.begin + shift, r.end + shift, r.result};
            return Both{raw_slice(joined, there), slice_of(joined, there)};
          },
          without(Op::concat)};
}
RULE(PlacingTheWholeIsDropped) {
  const Shape s = random.matrix();
  const int axis = static_cast<int>(random.integer(0, 1));
  return {{s},
          [=](const Exprs& x) {
            return Both{raw(Op::pad, {x[0]}, {.i = axis}, s), pad(x[0], 0, s[axis], axis)};
          },
          is_op(Op::input)};
}
RULE(PlacingZeroGivesZero) {
  const Shape s = random.matrix();
  const Range r = random_range(random, s);
  return {{s},
          [=](const Exprs& x) {
            const Expr zero = broadcast(0.0, r.result);
            return Both{raw(Op::sub, {x[0], raw(Op::pad, {zero}, {.i = r.axis, .j = r.begin}, s)}),
                        x[0] - pad(zero, r.begin, s[r.axis], r.axis)};
          },
          without(Op::pad)};
}
RULE(NegativesMoveOutOfPlacing) {
  const Shape s = random.matrix();
  const Range r = random_range(random, s);
  return {
      {r.result},
      [=](const Exprs& x) {
        return Both{raw(Op::pad, {raw_neg(x[0])}, {.i = r.axis, .j = r.begin}, s), pad(-x[0], r.begin, s[r.axis], r.axis)};
      },
      is_op(Op::neg)};
}
RULE(RowsOfAScaledIdentityPutBackAreADiagonal) {
  const std::int64_t n = random.extent(), begin = random.integer(0, n), end = random.integer(begin, n);
  const bool number = random.flip();
  return {{Shape{end - begin}, Shape{}},
          [=](const Exprs& x) {
            const Shape s{end - begin, n};
            const Expr E = eye(end - begin, n, begin);
            const Expr part = raw(Op::mul, {number ? broadcast(x[1], s) : by_row(x[0], s), E});
            return Both{raw(Op::exp, {raw(Op::pad, {part}, {.i = 0, .j = begin}, {n, n})}), exp(pad(part, begin, n))};
          },
          without_matrix(Op::pad)};
}

RULE(ANumberGatheredIsThatNumber) {
  const Shape s = random.matrix();
  const double c = random.uniform(-1, 1);
  const std::vector<std::int64_t> indices(static_cast<std::size_t>(s[0] == 0 ? 0 : random.extent()), 0);
  return {{s},
          [=](const Exprs& x) {
            const Expr chosen = gather(x[0], indices), index = arg(chosen, 1);
            return Both{raw(Op::add, {chosen, raw(Op::gather, {broadcast(c, s), index})}),
                        chosen + build(Op::gather, {broadcast(c, s), index})};
          },
          [](const Expr& e) { return count_nodes(e, Op::gather) == 1; }};
}
RULE(ASignIsGatheredScatteredAndSummedLater) {
  const std::int64_t n = random.extent();
  return {{Shape{n}},
          [=](const Exprs& x) {
            const Expr index = arg(reverse(x[0]), 1), minus = raw_neg(x[0]);
            return Both{
                raw(Op::add, {raw(Op::add, {raw(Op::gather, {minus, index}), raw(Op::scatter, {minus, index}, {}, {n})}),
                              raw(Op::cumsum, {minus}, {.i = 0})}),
                build(Op::gather, {-x[0], index}) + build(Op::scatter, {-x[0], index}, {}, {n}) + cumsum(-x[0])};
          },
          [](const Expr& e) {
            return count_nodes({&e, 1}, [](const Expr& t) { return is(t, Op::neg) && is(arg(t, 0), Op::input); }) == 0;
          }};
}
RULE(ChosenRowsOfAScaledIdentityPutBackAreADiagonal) {
  const std::int64_t n = random.extent();
  std::vector<std::int64_t> indices;
  if (n > 0)
    for (std::int64_t k = random.extent(); k-- > 0;) indices.push_back(random.integer(0, n - 1));
  const auto count = static_cast<std::int64_t>(indices.size());
  const bool number = random.flip();
  return {{Shape{count}, Shape{}},
          [=](const Exprs& x) {
            const Expr E = gather(eye(n), indices);
            if (!is(E, Op::gather)) return Both{x[0], x[0]};
            const Expr part = raw(Op::mul, {number ? broadcast(x[1], E.shape()) : by_row(x[0], E.shape()), E}),
                       index = arg(graph_of(part)->adopt(E), 1);
            return Both{raw(Op::exp, {raw(Op::scatter, {part, index}, {}, {n, n})}),
                        exp(build(Op::scatter, {part, index}, {}, {n, n}))};
          },
          without_matrix(Op::scatter)};
}

// --- solve, concat

RULE(NegativesMoveOutOfSolves) {
  const std::int64_t n = random.extent();
  return {{Shape{n, n}, Shape{n}},
          [=](const Exprs& x) {
            const Expr F = node_of(lu(x[0] + 9.0 * eye(n)));
            return Both{raw(Op::solve, {F, raw_neg(x[1])}), build(Op::solve, {F, -x[1]})};
          },
          is_op(Op::neg)};
}
RULE(ASymmetricSolveNeedsNoFlag) {
  const std::int64_t n = random.extent();
  const bool definite = random.flip();
  return {{Shape{n, n}, Shape{n}},
          [=](const Exprs& x) {
            const Expr H = matmul(transpose(x[0]), x[0]) + eye(n);
            const Expr F = definite ? node_of(cholesky(H)) : node_of(ldlt(H));
            return Both{raw(Op::solve, {F, x[1]}, {.i = 1}), build(Op::solve, {F, x[1]}, {.i = 1})};
          },
          [](const Expr& e) { return node(e).attr.i == 0; }};
}
RULE(JoiningOnePartIsThatPart) {
  const Shape s = random.vector();
  return {{s}, [](const Exprs& x) { return Both{raw(Op::concat, {x[0]}), concat({x[0]})}; }, is_op(Op::input)};
}

// --- many operations

// Builds the same random program twice, with and without rewriting. Shapes are numbers, vectors (n) and matrices (n, n),
// with n the same all over, so that most operations fit most values.
class RandomProgram {
 public:
  RandomProgram(Random& random, std::int64_t n) : random_(random), n_(n) {}

  void start(const Exprs& inputs) {
    for (const Expr& x : inputs) keep(x, x);
    keep_leaf(eye(n_));
    keep_leaf(broadcast(random_.uniform(-1, 1), {n_}));
    keep_leaf(broadcast(1.0, {n_, n_}));
    keep_leaf(broadcast(0.0, {n_}));
    keep_leaf(0.5);
  }

  void step() {
    const Shape vector{n_}, matrix{n_, n_}, number{};
    const Shape any = random_.one_of(std::vector<Shape>{number, vector, matrix});
    const int axis = static_cast<int>(random_.integer(0, 1));
    switch (random_.integer(0, 17)) {
      case 0: return make(random_.one_of(std::vector<Op>{Op::add, Op::sub}), {pick(any), pick(any)});
      case 1:
      case 2: return make(Op::mul, {pick(any), pick(any)});
      case 3: return make(Op::neg, {pick(any)});
      case 4: return make(random_.one_of(std::vector<Op>{Op::tanh, Op::square, Op::abs, Op::sigmoid}), {pick(any)});
      case 5:
      case 6:
        return make(Op::matmul, {pick(matrix), pick(random_.flip() ? vector : matrix)},
                    {.i = random_.integer(0, 1), .j = random_.integer(0, 1)});
      case 7: return make(Op::gram, {pick(matrix), pick(vector)});
      case 8: return make(Op::outer, {pick(vector), pick(vector)});
      case 9: return make(Op::transpose, {pick(matrix)});
      case 10: return make(Op::diag, {pick(vector)});
      case 11: return make(Op::diagonal, {pick(matrix)});
      case 12: return make(Op::sum, {pick(matrix)}, {.i = random_.integer(-1, 1)});
      case 13: return make(Op::broadcast, {pick(random_.flip() ? number : vector)}, {}, matrix);
      case 14: make(Op::reshape, {pick(vector)}, {}, {n_, 1}); return make(Op::broadcast, {pairs_.size() - 1}, {}, matrix);
      case 15: {  // a range cut out, scaled and put back
        const std::int64_t begin = random_.integer(0, n_), end = random_.integer(begin, n_);
        const bool flat = random_.flip();
        const int along = flat ? 0 : axis;
        const Shape part = flat ? Shape{end - begin} : along == 0 ? Shape{end - begin, n_} : Shape{n_, end - begin};
        make(Op::slice, {pick(flat ? vector : matrix)}, {.i = along, .j = begin}, part);
        make(Op::mul, {pick(part), pick(part)});
        return make(Op::pad, {pairs_.size() - 1}, {.i = along, .j = begin}, flat ? vector : matrix);
      }
      case 16:
        make(Op::not_equal, {pick_input(vector), pick_input(vector)});
        return make(Op::where, {pairs_.size() - 1, pick(vector), pick(vector)});
      default: return make(Op::broadcast, {pick(number)}, {}, vector);
    }
  }

  const std::vector<Both>& pairs() const { return pairs_; }

 private:
  void keep(const Expr& plain, const Expr& rewritten) { pairs_.push_back({plain, rewritten}); }
  void keep_leaf(const Expr& e) {
    const Expr home = unify("test", Exprs{pairs_.front().plain, e})[1];
    keep(home, home);
  }
  std::size_t pick(const Shape& shape) {
    std::vector<std::size_t> fit;
    for (std::size_t i = 0; i < pairs_.size(); ++i)
      if (pairs_[i].plain.shape() == shape) fit.push_back(i);
    return random_.one_of(fit);
  }
  std::size_t pick_input(const Shape& shape) {
    std::vector<std::size_t> fit;
    for (std::size_t i = 0; i < pairs_.size(); ++i)
      if (is(pairs_[i].plain, Op::input) && pairs_[i].plain.shape() == shape) fit.push_back(i);
    return random_.one_of(fit);
  }
  void make(Op op, std::initializer_list<std::size_t> args, const Attr& attr = {}, const Shape& shape = {}) {
    Exprs plain, rewritten;
    for (const std::size_t i : args) {
      plain.push_back(pairs_[i].plain);
      rewritten.push_back(pairs_[i].rewritten);
    }
    Site site{op, plain, attr, shape};
    site.shape = info(op).shape(site);
    keep(site.make(), build(op, rewritten, attr, shape));
  }

  Random& random_;
  std::int64_t n_;
  std::vector<Both> pairs_;
};

TEST(Rewrite, NumbersDoNotMoveWhereThatWouldOverflowOrUnderflow) {
  const Array big = full({3}, 1e200), small = full({3}, 1e-200);
  EXPECT_TRUE(near(value_of({big, big}, [](const Exprs& x) { return (1e-200 * x[0]) * x[1]; }), big));
  EXPECT_TRUE(near(value_of({small, small}, [](const Exprs& x) { return (1e200 * x[0]) * x[1]; }), small));
  EXPECT_TRUE(near(value_of({full({3}, 1e308)}, [](const Exprs& x) { return sum(1e-200 * x[0]); }), Array(3e108)));
  EXPECT_TRUE(near(value_of({full({3}, 1e-320)}, [](const Exprs& x) { return sum(1e300 * x[0]); }), Array(3e-20), 1e-3));
}

TEST(Rewrite, RandomProgramsHaveTheSameValuesWithAndWithoutRewriting) {
  const bool holds = rc::check([&] {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    const std::int64_t n = random.integer(0, 6), steps = random.integer(1, 40);
    const std::vector<Shape> shapes{{}, {n}, {n}, {n, n}, {n, n}};
    const Function f = function_of(shapes, [&](const Exprs& x) {
      RandomProgram program(random, n);
      program.start(x);
      for (std::int64_t i = 0; i < steps; ++i) program.step();
      Exprs results;
      for (const Both& b : program.pairs()) {
        results.push_back(b.plain);
        results.push_back(b.rewritten);
      }
      return results;
    });
    RC_LOG(f.text());
    const Arrays y = naive::interpret(f, random.arrays(shapes, -1, 1));
    double scale = 1;
    for (std::size_t i = 0; i < y.size(); i += 2) {
      scale = std::max(scale, largest_entry(y[i]));
      // A value too large for squares of it says nothing any more.
      if (!(scale < 1e100)) break;
      const ::testing::AssertionResult same_value = near(y[i], y[i + 1], 1e-10, scale);
      RC_LOG(std::string(same_value.message()));
      RC_ASSERT(bool(same_value));
    }
  });
  EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace onestep::test
