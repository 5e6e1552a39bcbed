// check_gradients on every operation at random shapes, 0, 1 and broadcast ones included, and the choices made where a
// derivative is not unique. Elementwise cases are generated from the table: a new row is tested by being there.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "diff/cases.h"
#include "onestep/check_gradients.h"
#include "onestep/diff.h"
#include "onestep/plan.h"
#include "support/random.h"
#include "support/run.h"

namespace onestep::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const double nan = std::nan("");

// --- elementwise

// How far from a kink or the edge of the domain a point stays: farther than the differences reach.
constexpr double margin = 0.3;

// Arguments for one entry, in the domain of the operation and away from kinks (which for every operation of the table lie
// where an argument is 0 or two are equal) and from the poles of tan.
std::vector<double> smooth_point(Random& random, Op op, std::size_t count) {
  for (;;) {
    std::vector<double> a(3);
    bool good = true;
    for (std::size_t i = 0; i < count; ++i) {
      a[i] = op == Op::tan ? random.uniform(-1, 1) : random.uniform(-2, 2);
      good = good && std::fabs(a[i]) > margin;
      for (std::size_t j = 0; j < i; ++j) good = good && std::fabs(a[i] - a[j]) > margin;
    }
    for (std::size_t i = 0; i < count; ++i)
      for (const double shift : {-margin, margin}) {
        std::vector<double> moved = a;
        moved[i] += shift;
        good = good && std::isfinite(info(op).value(moved.data()));
      }
    if (good) return {a.begin(), a.begin() + static_cast<std::ptrdiff_t>(count)};
  }
}

// Arguments of shapes that broadcast to one another, each the same all over but for a little noise, so that every
// combination that meets is a smooth point.
void check_elementwise(Op op, std::size_t arguments, const std::function<Expr(const Exprs&)>& operation) {
  EXPECT_TRUE(rc::check([&] {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    const Shape whole = random.number_vector_or_matrix();
    std::vector<Shape> shapes;
    Arrays point;
    for (const double base : smooth_point(random, op, arguments)) {
      std::vector<Shape> choices{whole, whole, {}};
      if (whole.rank() >= 1) choices.push_back({1});
      if (whole.rank() == 2) choices.insert(choices.end(), {{whole[1]}, {1, whole[1]}, {whole[0], 1}});
      shapes.push_back(random.one_of(choices));
      point.push_back(random.array(shapes.back(), base - 0.02, base + 0.02));
    }
    require_gradients(function_of(shapes, [&](const Exprs& x) { return Exprs{operation(x)}; }), point);
  }));
}

// The operations whose derivative is not that of their value.
void check_stopped(const std::function<Expr(const Exprs&)>& operation) {
  const Array x{-1.0, 0.0, 2.0};
  EXPECT_TRUE(near(value_of({x}, [&](const Exprs& in) { return jvp(operation(in), in[0], in[0]); }), zeros({3})));
  EXPECT_TRUE(near(value_of({x}, [&](const Exprs& in) { return vjp(operation(in), in[0], in[0]); }), zeros({3})));
}

#define ONESTEP_UNARY(row, ...)                                                                    \
  TEST(EveryModeAgreesOn, row) {                                                                   \
    const auto operation = [](const Exprs& x) { return row(x[0]); };                               \
    if (Op::row == Op::stop_gradient || Op::row == Op::arbitrary) return check_stopped(operation); \
    check_elementwise(Op::row, 1, operation);                                                      \
  }
#define ONESTEP_BINARY(row, ...)                                                   \
  TEST(EveryModeAgreesOn, row) {                                                   \
    check_elementwise(Op::row, 2, [](const Exprs& x) { return row(x[0], x[1]); }); \
  }
#define ONESTEP_TERNARY(row, ...)                                                        \
  TEST(EveryModeAgreesOn, row) {                                                         \
    check_elementwise(Op::row, 3, [](const Exprs& x) { return row(x[0], x[1], x[2]); }); \
  }
#include "onestep/operations.def"

// --- structural

CASE(MatrixTimesMatrixInEveryTransposition) {
  const std::int64_t m = random.extent(), k = random.extent(), n = random.extent();
  const bool ta = random.flip(), tb = random.flip();
  return {{ta ? Shape{k, m} : Shape{m, k}, tb ? Shape{n, k} : Shape{k, n}},
          [=](const Exprs& x) { return matmul(ta ? transpose(x[0]) : x[0], tb ? transpose(x[1]) : x[1]); }};
}
CASE(MatrixTimesVector) {
  const Shape s = random.matrix();
  const bool flag = random.flip();
  return {{s, Shape{s[flag ? 0 : 1]}}, [=](const Exprs& x) { return matmul(flag ? transpose(x[0]) : x[0], x[1]); }};
}
CASE(VectorTimesMatrix) {
  const Shape s = random.matrix();
  return {{Shape{s[0]}, s}, [](const Exprs& x) { return matmul(x[0], x[1]); }};
}
CASE(DotProduct) {
  const Shape s = random.vector();
  return {{s, s}, [](const Exprs& x) { return matmul(x[0], x[1]); }};
}
CASE(MatrixTimesItself) {
  const std::int64_t n = random.extent();
  return {{Shape{n, n}}, [](const Exprs& x) { return matmul(x[0], x[0]); }};
}
CASE(Gram) {
  const Shape s = random.matrix();
  return {{s, Shape{s[0]}}, [](const Exprs& x) { return gram(x[0], x[1]); }};
}
CASE(GramOfATranspose) {
  const Shape s = random.matrix();
  return {{s, Shape{s[1]}}, [](const Exprs& x) { return gram(transpose(x[0]), x[1]); }};
}
CASE(GramTimesVector) {
  const Shape s = random.matrix();
  return {{s, Shape{s[0]}, Shape{s[1]}}, [](const Exprs& x) { return matmul(gram(x[0], x[1]), x[2]); }};
}
CASE(Outer) {
  const Shape s = random.matrix();
  return {{Shape{s[0]}, Shape{s[1]}}, [](const Exprs& x) { return outer(x[0], x[1]); }};
}
CASE(Transpose) {
  return {{random.matrix()}, [](const Exprs& x) { return transpose(x[0]); }};
}
CASE(Reshape) {
  const Shape s = random.matrix();
  return {{s}, [=](const Exprs& x) { return reshape(x[0], {s[1], s[0]}); }};
}
CASE(ReshapeOfOneEntry) {
  const Shape from = random.one_of(std::vector<Shape>{{}, {1}, {1, 1}}),
              to = random.one_of(std::vector<Shape>{{}, {1}, {1, 1}});
  return {{from}, [=](const Exprs& x) { return reshape(x[0], to); }};
}
CASE(DiagAndDiagonal) {
  const std::int64_t n = random.extent();
  return {{Shape{n}, Shape{n, n}}, [](const Exprs& x) { return diagonal(matmul(diag(x[0]), x[1])) + diagonal(diag(x[0])); }};
}
CASE(AMatrixPlusADiagonal) {
  const std::int64_t n = random.extent();
  return {{Shape{n}, Shape{n, n}}, [=](const Exprs& x) { return x[1] + diag(x[0]) - eye(n); }};
}
CASE(AShiftedIdentityTimesAMatrix) {
  const Shape s = random.matrix();
  const std::int64_t rows = random.extent(), offset = random.integer(-2, 2);
  return {{s}, [=](const Exprs& x) { return matmul(eye(rows, s[0], offset), x[0]); }};
}
CASE(Sum) {
  const Shape s = random.matrix();
  const std::int64_t axis = random.integer(-1, 1);
  return {{s}, [=](const Exprs& x) { return axis < 0 ? sum(x[0]) : sum(x[0], static_cast<int>(axis)); }};
}
CASE(SumOfAVector) {
  return {{random.vector()}, [](const Exprs& x) { return sum(x[0], 0); }};
}
CASE(Broadcast) {
  const Shape s = random.matrix();
  const Shape from = random.one_of(std::vector<Shape>{{}, {1}, {1, 1}, {s[1]}, {1, s[1]}, {s[0], 1}, s});
  return {{from, s}, [=](const Exprs& x) { return broadcast(x[0], s) * x[1]; }};
}
CASE(Concat) {
  const Shape s = random.matrix();
  const int axis = static_cast<int>(random.integer(0, 1));
  const std::int64_t other = random.extent();
  return {{s, axis == 0 ? Shape{other, s[1]} : Shape{s[0], other}}, [=](const Exprs& x) {
            return concat({x[0], x[1], exp(x[0])}, axis);
          }};
}
CASE(Slice) {
  const Shape s = random.matrix();
  const int axis = static_cast<int>(random.integer(0, 1));
  const std::int64_t begin = random.integer(0, s[axis]), end = random.integer(begin, s[axis]);
  return {{s}, [=](const Exprs& x) { return slice(x[0], begin, end, axis); }};
}
CASE(Pad) {
  const Shape s = random.number_vector_or_matrix().rank() == 1 ? random.vector() : random.matrix();
  const int axis = s.rank() == 2 ? static_cast<int>(random.integer(0, 1)) : 0;
  const std::int64_t before = random.integer(0, 2), after = random.integer(0, 2);
  return {{s}, [=](const Exprs& x) { return pad(x[0], before, before + s[axis] + after, axis); }};
}

// Eigenvalues of 2 and more keep log det at n log 2 or above: with eigenvalues near 1 it is near 0, where its relative
// condition number 1/|log det| has no bound, and two correct computations differ by any relative amount.
Expr definite(const Expr& M) {
  const std::int64_t n = M.shape()[0];
  return matmul(M, transpose(M)) + 2.0 * eye(n);
}
Expr indefinite(const Expr& M) {
  const std::int64_t n = M.shape()[0];
  std::vector<double> signs(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < signs.size(); ++i) signs[i] = i % 2 == 0 ? 4.0 : -4.0;
  return M + transpose(M) + diag(Expr(Array(Shape{n}, signs)));
}

CASE(SolveWithCholesky) {
  const std::int64_t n = random.extent();
  const bool vector = random.flip();
  return {{Shape{n, n}, vector ? Shape{n} : Shape{n, random.extent()}},
          [](const Exprs& x) { return solve(cholesky(definite(x[0])), x[1]); }};
}
CASE(SolveWithLdlt) {
  const std::int64_t n = random.extent();
  const bool vector = random.flip();
  return {{Shape{n, n}, vector ? Shape{n} : Shape{n, random.extent()}},
          [](const Exprs& x) { return solve(ldlt(indefinite(x[0])), x[1]); }};
}
CASE(SolveWithLu) {
  const std::int64_t n = random.extent();
  const bool vector = random.flip(), transposed = random.flip();
  return {{Shape{n, n}, vector ? Shape{n} : Shape{n, random.extent()}}, [=](const Exprs& x) {
            const Factor F = lu(x[0] + 4.0 * eye(n));
            return transposed ? solve_transposed(F, x[1]) : solve(F, x[1]);
          }};
}
CASE(LogOfTheDeterminant) {
  const std::int64_t n = random.extent(), kind = random.integer(0, 2);
  return {{Shape{n, n}}, [=](const Exprs& x) {
            return kind == 0   ? logdet(cholesky(definite(x[0])))
                   : kind == 1 ? logdet(ldlt(indefinite(x[0])))
                               : logdet(lu(x[0] + 4.0 * eye(n)));
          }};
}
CASE(SeveralSolvesWithOneFactor) {
  const std::int64_t n = random.extent();
  return {{Shape{n, n}, Shape{n}}, [](const Exprs& x) {
            const Factor F = cholesky(definite(x[0]));
            return solve(F, solve(F, x[1])) * logdet(F);
          }};
}

// No two entries closer than the differences reach.
Array spread(Random& random, const Shape& s) {
  std::vector<double> entries(static_cast<std::size_t>(s.size()));
  std::iota(entries.begin(), entries.end(), 0.0);
  for (std::size_t i = entries.size(); i > 1; --i)
    std::swap(entries[i - 1], entries[static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(i) - 1))]);
  for (double& e : entries) e = 0.5 * e + random.uniform(-0.05, 0.05);
  return {s, std::move(entries)};
}
TEST(EveryModeAgreesOn, Max) {
  check_structural(
      [](Random& random) {
        // Not the largest of nothing, which is minus infinity.
        const Shape s{random.integer(1, 5), random.integer(1, 5)};
        const std::int64_t axis = random.integer(-1, 1);
        return Case{{s}, [=](const Exprs& x) { return axis < 0 ? max(x[0]) : max(x[0], Axis{static_cast<int>(axis)}); }};
      },
      spread);
}

// --- choices

Arrays derivatives(const Array& x, const std::function<Expr(const Expr&)>& f) {
  return values_of({x}, [&](const Exprs& in) {
    const Expr y = f(in[0]);
    const Expr ones_like_x = broadcast(1.0, in[0].shape()), ones_like_y = broadcast(1.0, y.shape());
    return Exprs{jvp(y, in[0], ones_like_x), vjp(y, in[0], ones_like_y)};
  });
}

TEST(Choice, AbsHasDerivativeZeroAtZero) {
  for (const Array& d : derivatives(Array{-2.0, 0.0, 3.0}, [](const Expr& x) { return abs(x); }))
    EXPECT_TRUE(near(d, Array{-1.0, 0.0, 1.0}));
}

TEST(Choice, TiesOfMaximumAndMinimumGoToTheFirstArgument) {
  const Arrays point{Array{1.0, 2.0, 3.0}, Array{2.0, 2.0, 2.0}};
  const auto both = [&](Expr (*f)(const Expr&, const Expr&)) {
    return values_of(point, [&](const Exprs& x) { return grad(sum(f(x[0], x[1])), x); });
  };
  EXPECT_TRUE(near(both(maximum)[0], Array{0.0, 1.0, 1.0}));
  EXPECT_TRUE(near(both(maximum)[1], Array{1.0, 0.0, 0.0}));
  EXPECT_TRUE(near(both(minimum)[0], Array{1.0, 1.0, 0.0}));
  EXPECT_TRUE(near(both(minimum)[1], Array{0.0, 0.0, 1.0}));
}

TEST(Choice, TiesOfMaxShareEqually) {
  const Array x{{1.0, 3.0, 3.0}, {2.0, 2.0, 2.0}};
  const Array rows = derivatives(x, [](const Expr& e) { return max(e, Axis{1}); })[1];
  EXPECT_TRUE(near(rows, Array{{0.0, 0.5, 0.5}, {1.0 / 3, 1.0 / 3, 1.0 / 3}}));
  EXPECT_TRUE(near(derivatives(x, [](const Expr& e) { return max(e, Axis{1}); })[0], Array{1.0, 1.0}));
  EXPECT_TRUE(near(derivatives(x, [](const Expr& e) { return max(e); })[1], Array{{0.0, 0.5, 0.5}, {0.0, 0.0, 0.0}}));
}

TEST(Choice, TheLargestOfNothingDoesNotMove) {
  const Arrays d = derivatives(zeros({2, 0}), [](const Expr& x) { return max(x, Axis{1}); });
  EXPECT_TRUE(near(d[0], zeros({2})));
  EXPECT_TRUE(near(d[1], zeros({2, 0})));
}

TEST(Choice, ComparisonsAndSignHaveDerivativeZeroEverywhere) {
  const Array x{-1.0, 0.0, 1.0, 0.5};
  const std::vector<std::function<Expr(const Expr&)>> flat{
      [](const Expr& e) { return less(e, 0.5); },
      [](const Expr& e) { return less_equal(e, 0.5); },
      [](const Expr& e) { return greater(0.5, e); },
      [](const Expr& e) { return greater_equal(e, exp(e)); },
      [](const Expr& e) { return equal(e, 0.5); },
      [](const Expr& e) { return not_equal(e, 2.0 * e); },
      [](const Expr& e) { return sign(e); },
      [](const Expr& e) { return stop_gradient(e); },
      [](const Expr& e) { return where(e, 1.0, 2.0); },
      [](const Expr& e) { return exp(stop_gradient(3.0 * e)); },
  };
  for (const auto& f : flat)
    for (const Array& d : derivatives(x, f)) EXPECT_TRUE(near(d, zeros({4})));
}

TEST(Choice, StopGradientKeepsTheValueAndCutsOnlyItsOwnPath) {
  const Array x{0.5, 2.0};
  EXPECT_TRUE(near(value_of({x}, [](const Exprs& in) { return stop_gradient(square(in[0])); }), Array{0.25, 4.0}));
  for (const Array& d : derivatives(x, [](const Expr& e) { return e * stop_gradient(e); })) EXPECT_TRUE(near(d, x));
}

TEST(Choice, PowWithAConstantExponentIsDefinedForNegativeBases) {
  for (const Array& d : derivatives(Array{-2.0, 0.0, 1.0}, [](const Expr& x) { return pow(x, 3.0); }))
    EXPECT_TRUE(near(d, Array{12.0, 0.0, 3.0}));
}

// --- NaN on the side not taken

TEST(WhereSelects, ForwardTangentsOfTheSideNotTakenDoNotLeak) {
  const auto safe_log = [](const Expr& x) { return where(greater(x, 0.0), log(x), 0.0); };
  const auto safe_sqrt = [](const Expr& x) { return where(greater(x, 0.0), sqrt(x), x); };
  EXPECT_TRUE(near(derivatives(Array{-1.0, 0.0, 2.0}, safe_log)[0], Array{0.0, 0.0, 0.5}));
  EXPECT_TRUE(near(derivatives(Array{-1.0, 0.0, 4.0}, safe_sqrt)[0], Array{1.0, 1.0, 0.25}));
}

TEST(WhereSelects, InfiniteDerivativesOfTheSideNotTakenDoNotLeakInReverse) {
  const Array x{-1.0, 0.0, 4.0};
  const auto gradient = [&](const std::function<Expr(const Expr&)>& f) { return derivatives(x, f)[1]; };
  const auto positive = [](const Expr& e) { return greater(e, 0.0); };
  EXPECT_TRUE(near(gradient([&](const Expr& e) { return where(positive(e), log(e), 0.0); }), Array{0.0, 0.0, 0.25}));
  EXPECT_TRUE(near(gradient([&](const Expr& e) { return where(positive(e), sqrt(e), e); }), Array{1.0, 1.0, 0.25}));
  EXPECT_TRUE(near(gradient([&](const Expr& e) { return where(positive(-e), e, -sqrt(e)); }), Array{1.0, -infinity, -0.25}));
  // Through a chain, and where the chain parts and meets again.
  EXPECT_TRUE(near(gradient([&](const Expr& e) { return where(positive(e), exp(-log(e)), e); }), Array{1.0, 1.0, -0.0625}));
  EXPECT_TRUE(near(gradient([&](const Expr& e) {
                     const Expr l = log(e);
                     return where(positive(e), square(l) + 3.0 * l, 0.0);
                   }),
                   Array{0.0, 0.0, (2 * std::log(4.0) + 3) / 4}));
  // And the second derivative.
  EXPECT_TRUE(near(gradient([&](const Expr& e) { return grad(sum(where(positive(e), log(e), 0.0)), e); }),
                   Array{0.0, 0.0, -0.0625}));
}

TEST(WhereSelects, InfiniteDerivativesDoNotLeakThroughBroadcastReshapeAndSum) {
  const Array x{0.0, 4.0}, mask{{0.0, 1.0}, {0.0, 1.0}, {0.0, 0.0}};
  const auto gradient = [&](const std::function<Expr(const Expr&)>& f) {
    return value_of({x}, [&](const Exprs& in) { return grad(sum(f(in[0])), in[0]); });
  };
  EXPECT_TRUE(near(gradient([&](const Expr& e) { return where(mask, broadcast(sqrt(e), {3, 2}), 0.0); }), Array{0.0, 0.5}));
  EXPECT_TRUE(near(gradient([&](const Expr& e) {
                     return where(Array(Shape{2, 1}, {0.0, 1.0}), reshape(sqrt(e), {2, 1}), 0.0);
                   }),
                   Array{0.0, 0.25}));
  EXPECT_TRUE(near(gradient([&](const Expr& e) {
                     return where(Array{0.0, 1.0}, sum(broadcast(sqrt(e), {3, 2}) * mask, 0), 0.0);
                   }),
                   Array{0.0, 0.5}));
}

TEST(WhereSelects, ACotangentThatIsNotFiniteDoesNotReachTheSideNotTaken) {
  const Array x{-1.0, 1.0}, c{nan, infinity};
  for (const auto& [mask, first, second] : {std::tuple{Array{0.0, 1.0}, Array{0.0, infinity}, Array{nan, 0.0}},
                                            std::tuple{Array{2.0, 0.0}, Array{nan, 0.0}, Array{0.0, infinity}}}) {
    const Array chosen = mask;
    const Arrays bars = values_of({x, x, c}, [&](const Exprs& in) {
      const Expr y = where(Expr(chosen), in[0], in[1]);
      return vjp(Exprs{y}, Exprs{in[0], in[1]}, Exprs{in[2]});
    });
    EXPECT_TRUE(near(bars[0], first));
    EXPECT_TRUE(near(bars[1], second));
  }
}

TEST(WhereSelects, AMaskThatIsRepeatedSelectsToo) {
  const Array mask(Shape{2, 1}, {1.0, 0.0}), m{{1.0, 2.0}, {3.0, 4.0}}, c{{1.0, nan}, {nan, infinity}};
  const Arrays both = values_of({mask, m, c}, [](const Exprs& in) {
    const Expr y = where(in[0], in[1], 0.0);
    return Exprs{vjp(y, in[1], in[2]), jvp(y, in[1], in[2])};
  });
  for (const Array& d : both) EXPECT_TRUE(near(d, Array{{1.0, nan}, {0.0, 0.0}}));
}

TEST(WhereSelects, AJacobianInOneBlockSelectsToo) {
  const Array x{-1.0, 4.0};
  const Array J =
      value_of({x}, [](const Exprs& in) { return jacobian(where(greater(in[0], 0.0), sqrt(in[0]), in[0]), in[0]); });
  EXPECT_TRUE(near(J, Array{{1.0, 0.0}, {0.0, 0.25}}));
}

TEST(WhereSelects, MaximumDoesNotMultiplyByItsMask) {
  const Array c{nan, 1.0};
  const Array d = value_of({Array{-1.0, 1.0}, c}, [](const Exprs& in) { return vjp(maximum(in[0], 0.0), in[0], in[1]); });
  EXPECT_TRUE(near(d, Array{0.0, 1.0}));
}

// --- foreign functions

// f(a, b) = a³ b, with as many derivatives as asked for.
class CubeTimes : public Foreign {
 public:
  CubeTimes(bool with_jvp, bool with_vjp, double wrong = 1.0) : jvp_(with_jvp), vjp_(with_vjp), wrong_(wrong) {}
  std::string name() const override { return "cube_times"; }
  Shape shape(std::span<const Shape> s) const override {
    if (s.size() != 2 || s[0] != s[1]) throw Error("[cube_times] needs two arguments of one shape");
    return s[0];
  }
  using Views = std::span<const std::span<const double>>;
  void apply(Views x, std::span<double> y) const override {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[0][i] * x[0][i] * x[0][i] * x[1][i];
  }
  bool has_jvp() const override { return jvp_; }
  void jvp(Views x, Views t, std::span<double> y) const override {
    if (!jvp_) return Foreign::jvp(x, t, y);
    for (std::size_t i = 0; i < y.size(); ++i)
      y[i] = wrong_ * 3 * x[0][i] * x[0][i] * x[1][i] * t[0][i] + x[0][i] * x[0][i] * x[0][i] * t[1][i];
  }
  bool has_vjp() const override { return vjp_; }
  void vjp(Views x, std::span<const double> c, std::size_t which, std::span<double> y) const override {
    if (!vjp_) return Foreign::vjp(x, c, which, y);
    for (std::size_t i = 0; i < y.size(); ++i)
      y[i] = c[i] * (which == 0 ? 3 * x[0][i] * x[0][i] * x[1][i] : x[0][i] * x[0][i] * x[0][i]);
  }

 private:
  bool jvp_, vjp_;
  double wrong_;
};

Function calling(std::shared_ptr<const Foreign> f, const Shape& s) {
  return traced([&](Expr a, Expr b) { return sum(exp(0.1 * call(f, {tanh(a), a + b}))); }, s, s);
}

RC_GTEST_PROP(ForeignFunction, DerivativesAgreeInBothModes, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  const Shape s = random.number_vector_or_matrix();
  GradientCheckOptions options;
  options.order = 1;
  require_gradients(calling(std::make_shared<CubeTimes>(true, true), s), {random.array(s), random.array(s)}, options);
}

TEST(ForeignFunction, AMissingDerivativeIsAnErrorWhenItIsAskedFor) {
  const auto neither = std::make_shared<CubeTimes>(false, false);
  traced(
      [&](Expr a, Expr b) {
        const Expr y = call(neither, {a, b});
        EXPECT_EQ(error_of([&] { jvp(y, a, b); }),
                  "[call] cube_times has no jvp; override jvp and has_jvp, or differentiate in reverse");
        EXPECT_EQ(error_of([&] { vjp(y, a, b); }),
                  "[call] cube_times has no vjp; override vjp and has_vjp, or differentiate forward");
        return y;
      },
      Shape{3}, Shape{3});
}

TEST(ForeignFunction, OneDirectionIsEnoughForTheOther) {
  const Arrays point{Array{2.0}, Array{3.0}};
  const Arrays forward = values_of(point, [](const Exprs& x) {
    return Exprs{jvp(call(std::make_shared<CubeTimes>(true, false), {x[0], x[1]}), x[0], broadcast(1.0, {1}))};
  });
  EXPECT_TRUE(near(forward[0], Array{36.0}));
  const Arrays backward = values_of(point, [](const Exprs& x) {
    return grad(sum(call(std::make_shared<CubeTimes>(false, true), {x[0], x[1]})), x);
  });
  EXPECT_TRUE(near(backward[0], Array{36.0}));
  EXPECT_TRUE(near(backward[1], Array{8.0}));
}

TEST(ForeignFunction, SecondDerivativesAreAnErrorThatSaysWhatToDo) {
  const auto f = std::make_shared<CubeTimes>(true, true);
  const std::string message =
      "[call] the derivative of cube_times cannot be differentiated again. A foreign function can be traced instead; of a "
      "solve, newton, newton_root and quadratic_program have second derivatives, and fixed_point with KStep, where K steps "
      "leave out little";
  traced(
      [&](Expr a, Expr b) {
        const Expr y = call(f, {a, b});
        EXPECT_EQ(error_of([&] { jvp(jvp(y, a, b), a, b); }), message);
        EXPECT_EQ(error_of([&] { grad(sum(vjp(y, a, b)), a); }), message);
        return y;
      },
      Shape{3}, Shape{3});
}

// --- the checker itself: it must find what is wrong

TEST(Errors, NameTheFunctionThatWasCalled) {
  const auto said = [](const std::function<Expr(Expr)>& f) { return error_of([&] { traced(f, Shape{3}); }); };
  EXPECT_EQ(said([](const Expr& x) { return hvp(sum(x), x, 1.0); }), "[hvp] tangent 0 has shape (), its argument has (3)");
  EXPECT_EQ(said([](const Expr& x) { return hvp(x, x, x); }),
            "[hvp] the result has shape (3), not a number; use jacobian, or hvp of its sum");
  EXPECT_EQ(said([](const Expr& x) { return hessian(x, x); }),
            "[hessian] the result has shape (3), not a number; use jacobian, or hessian of its sum");
  const Function f = traced([](Expr x) { return x; }, Input{"x", {3}});
  EXPECT_EQ(error_of([&] { evaluate(f, {zeros({2})}); }),
            "[evaluate] input x has shape (2), the function was traced for (3)");
}

TEST(CheckGradients, FindsAWrongDerivativeOfAForeignFunction) {
  GradientCheckOptions options;
  options.order = 1;
  const Function f = calling(std::make_shared<CubeTimes>(true, true, 1.0 + 1e-5), {3});
  const GradientCheck check = check_gradients(f, Arrays{Array{0.5, 1.0, -1.0}, Array{1.0, 2.0, 0.3}}, options);
  EXPECT_FALSE(check);
  EXPECT_THAT(check.message(), ::testing::HasSubstr("FAILED jvp = differences of the value"));
  EXPECT_THAT(check.message(), ::testing::HasSubstr("FAILED ⟨u, jvp(v)⟩ = ⟨vjp(u), v⟩"));
}

TEST(CheckGradients, FindsADerivativeThatIsCut) {
  const Function f = traced([](Expr x) { return sum(square(x) * stop_gradient(x)); }, Shape{3});
  EXPECT_FALSE(check_gradients(f, Arrays{Array{0.5, 1.0, -1.0}}));
  // The second order of this is wrong although the first is right.
  const Function g = traced([](Expr x) { return 2.0 * x * stop_gradient(x) - square(stop_gradient(x)); }, Shape{3});
  GradientCheckOptions first;
  first.order = 1;
  EXPECT_TRUE(check_gradients(g, Arrays{Array{0.5, 1.0, -1.0}}, first));
  EXPECT_FALSE(check_gradients(g, Arrays{Array{0.5, 1.0, -1.0}}));
}

TEST(CheckGradients, DoesNotPassADerivativeThatIsNotFinite) {
  const Function f = traced([](Expr x) { return sqrt(x); }, Shape{1});
  EXPECT_FALSE(check_gradients(f, Arrays{Array{0.0}}));
}

TEST(CheckGradients, DifferentiatesOnlyByWhatIsAskedFor) {
  const Function f = traced([](Expr x, Expr kink) { return x * abs(kink); }, Shape{2}, Shape{2});
  const Arrays point{Array{1.0, 2.0}, Array{0.0, 1.0}};
  GradientCheckOptions options;
  options.differentiable = {true, false};
  EXPECT_TRUE(check_gradients(f, point, options)) << check_gradients(f, point, options);
  EXPECT_FALSE(check_gradients(f, point));
}

TEST(CheckGradients, IsTheSameForTheSameSeed) {
  const Function f = traced([](Expr x) { return sum(exp(x)); }, Shape{3});
  const Arrays point{Array{0.5, 1.0, -1.0}};
  GradientCheckOptions options;
  EXPECT_EQ(check_gradients(f, point, options).message(), check_gradients(f, point, options).message());
  const std::string first = check_gradients(f, point, options).message();
  options.seed = 2;
  EXPECT_NE(check_gradients(f, point, options).message(), first);
}

TEST(CheckGradients, RefusesOptionsAndInputsThatDoNotFit) {
  const Function f = traced([](Expr x) { return sum(x); }, Input{"x", {3}});
  const auto with = [&](const std::function<void(GradientCheckOptions&)>& set) {
    GradientCheckOptions options;
    set(options);
    return error_of([&] { check_gradients(f, Arrays{zeros({3})}, options); });
  };
  EXPECT_EQ(with([](auto& o) { o.order = 4; }), "[check_gradients] order 4 is not 1, 2 or 3");
  EXPECT_EQ(with([](auto& o) { o.tolerance = 0; }), "[check_gradients] tolerance 0 and rounding 1e-11 must be above 0");
  EXPECT_EQ(with([](auto& o) {
              o.differentiable = {true, false};
            }),
            "[check_gradients] 2 entries of differentiable for 1 inputs");
  EXPECT_EQ(error_of([&] { check_gradients(f, Arrays{zeros({4})}); }),
            "[check_gradients] input x has shape (4), the function was traced for (3)");
}

TEST(ByAnExpression, ThatRewritingRemovedThrows) {
  const auto by = [](auto make, auto use) {
    return test::error_of([&] {
      traced(
          [&](Expr a) {
            const Expr x = make(a);
            return grad(sum(use(x)), x);
          },
          Shape{3});
    });
  };
  const auto twice = [](const Expr& a) { return 2.0 * a; };
  EXPECT_TRUE(test::says(by(twice, [](const Expr& x) { return 3.0 * x; }), {"[grad]", "simplified"}));
  EXPECT_TRUE(test::says(by([](const Expr& a) { return -a; }, [](const Expr& x) { return square(x); }), {"simplified"}));
  EXPECT_TRUE(test::says(by([](const Expr& a) { return slice(a, 0, 2); }, [](const Expr& x) { return slice(x, 0, 1); }),
                         {"simplified"}));
  EXPECT_EQ(by(twice, [](const Expr& x) { return exp(x); }), "no error");
  EXPECT_EQ(by(twice, [](const Expr&) { return Expr(1.0); }), "no error") << "what depends on nothing has the gradient zero";
}

}  // namespace
}  // namespace onestep::test
