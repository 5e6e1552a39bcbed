// Arrays and shapes: construction, views of any stride, access, errors.
#include "onestep/array.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdint>
#include <iomanip>
#include <limits>
#include <sstream>

#include "graph/graph.h"
#include "support/random.h"
#include "support/run.h"

namespace onestep::test {
namespace {

TEST(Shape, KnowsRankExtentsAndSize) {
  EXPECT_EQ(Shape{}.rank(), 0);
  EXPECT_EQ(Shape{}.size(), 1);
  EXPECT_EQ((Shape{270, 13}.size()), 3510);
  EXPECT_EQ((Shape{13}[1]), 1);
  EXPECT_EQ((Shape{5, 0}.size()), 0);
  EXPECT_NE((Shape{5}), (Shape{5, 1}));
  EXPECT_EQ(to_string(Shape{}), "()");
  EXPECT_EQ(to_string(Shape{13}), "(13)");
  EXPECT_EQ(to_string(Shape{270, 13}), "(270, 13)");
}

TEST(Shape, RefusesNegativeSizesHighRanksAndOverflow) {
  EXPECT_EQ(error_of([] { (void)Shape{-1}; }), "[Shape] negative size -1");
  EXPECT_EQ(error_of([] { (void)Shape{2, 3, 4}; }), "[Shape] rank 3 is above 2; reshape to a matrix");
  EXPECT_EQ(error_of([] {
              (void)Shape{4294967296, 4294967296};
            }),
            "[Shape] (4294967296, 4294967296) has more entries than can be addressed");
  // Entries would fit in 63 bits, bytes would not.
  EXPECT_NE(error_of([] { (void)Shape{std::int64_t{1} << 61}; }), "no error");
  EXPECT_EQ(error_of([] { (void)Shape{std::int64_t{1} << 40, 0}; }), "no error");
}

TEST(Array, HoldsWhatItWasMadeFrom) {
  EXPECT_EQ(Array(0.1).item(), 0.1);
  EXPECT_EQ(Array().item(), 0.0);
  const Array v{1.0, 2.0, 3.0};
  EXPECT_EQ(v.shape(), Shape{3});
  EXPECT_EQ(v(2), 3.0);
  const Array m{{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}};
  EXPECT_EQ(m.shape(), (Shape{3, 2}));
  EXPECT_EQ(m(2, 0), 5.0);
  EXPECT_THAT(entries_of(m), ::testing::ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(entries_of(full({2, 1}, 0.5)), ::testing::ElementsAre(0.5, 0.5));
  EXPECT_EQ(zeros({0, 4}).size(), 0);
}

TEST(Array, CopiesShareTheirEntries) {
  const Array a = ones({1000});
  const Array b = a;
  EXPECT_EQ(a.data(), b.data());
}

TEST(Array, ErrorsNameTheShapeAndTheWayOut) {
  EXPECT_EQ(error_of([] { Array(Shape{2, 2}, {1, 2, 3}); }), "[Array] shape (2, 2) has 4 entries, 3 were given");
  EXPECT_EQ(error_of([] { (void)Array{{1.0, 2.0}, {3.0}}; }), "[Array] rows of 2 and 1 entries in one matrix");
  const Array m{{1.0, 2.0}, {3.0, 4.0}};
  EXPECT_EQ(error_of([&] { (void)m(0); }), "[Array] (0) is outside (2, 2)");
  EXPECT_EQ(error_of([&] { (void)m(2, 0); }), "[Array] (2, 0) is outside (2, 2)");
  EXPECT_EQ(error_of([&] { (void)m(0, -1); }), "[Array] (0, -1) is outside (2, 2)");
  EXPECT_EQ(error_of([&] { (void)m.item(); }), "[Array] item() of (2, 2), which has 4 entries");
  EXPECT_EQ(error_of([&] { (void)m.transposed().values(); }), "[Array] (2, 2) is a strided view; call contiguous() first");
  EXPECT_EQ(error_of([] { (void)Array::view(MatrixView{nullptr, 2, 2, 2, 1}); }), "[Array] view of (2, 2) without data");
}

TEST(Array, ViewsOfRowMajorAndColumnMajorMemoryAreNotCopied) {
  const std::vector<double> memory{1, 2, 3, 4, 5, 6, 7, 8};
  const Array of_memory = Array::view(memory);
  EXPECT_EQ(of_memory.data(), memory.data());
  const Array rows = Array::view(MatrixView{memory.data(), 2, 3, 4, 1});  // the last column is left out
  EXPECT_EQ(rows.data(), memory.data());
  EXPECT_FALSE(rows.is_contiguous());
  EXPECT_EQ(rows(1, 2), 7);
  const Array columns = Array::view(MatrixView{memory.data(), 2, 3, 1, 2});
  EXPECT_EQ(columns.data(), memory.data());
  EXPECT_EQ(columns(1, 2), 6);
  EXPECT_EQ(columns.transposed()(2, 1), 6);
  EXPECT_TRUE(columns.transposed().is_contiguous());
}

TEST(Array, ViewsWithOtherStridesAreCopiedOnce) {
  const std::vector<double> memory{1, 2, 3, 4, 5, 6, 7, 8};
  const Array every_other = Array::view(MatrixView{memory.data(), 2, 2, 4, 2});
  EXPECT_NE(every_other.data(), memory.data());
  EXPECT_THAT(entries_of(every_other), ::testing::ElementsAre(1, 3, 5, 7));
  const Array backwards = Array::view(MatrixView{memory.data() + 7, 2, 2, -4, -1});
  EXPECT_THAT(entries_of(backwards), ::testing::ElementsAre(8, 7, 4, 3));
  const Array repeated = Array::view(MatrixView{memory.data(), 3, 2, 0, 1});
  EXPECT_THAT(entries_of(repeated), ::testing::ElementsAre(1, 2, 1, 2, 1, 2));
}

RC_GTEST_PROP(Array, ContiguousKeepsEveryEntryOfAView, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  const std::int64_t rows = random.extent(), columns = random.extent(), gap = random.integer(0, 2);
  const bool by_rows = random.flip();
  const std::int64_t row_stride = by_rows ? columns + gap : 1, column_stride = by_rows ? 1 : rows + gap;
  const Array memory = random.array({(rows + gap) * (columns + gap) + 1});
  const Array view = Array::view(MatrixView{memory.data(), rows, columns, row_stride, column_stride});
  const Array dense = view.contiguous(), flipped = view.transposed();
  RC_ASSERT(dense.is_contiguous());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      RC_ASSERT(dense(i, j) == memory(i * row_stride + j * column_stride));
      RC_ASSERT(flipped(j, i) == dense(i, j));
    }
}

RC_GTEST_PROP(Array, AViewOfAnyStrideIsTheSameConstantAsItsCopy, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  const std::int64_t rows = random.extent(), columns = random.extent(), gap = random.integer(0, 2);
  const Array memory = random.array({(rows + gap) * (columns + gap) + 1});
  const Array view = random.flip() ? Array::view(MatrixView{memory.data(), rows, columns, columns + gap, 1})
                                   : Array::view(MatrixView{memory.data(), rows, columns, 1, rows + gap});
  const Array x = random.array({columns});
  RC_ASSERT(near(value_of({x}, [&](const Exprs& in) { return matmul(view, in[0]); }),
                 value_of({x}, [&](const Exprs& in) { return matmul(view.contiguous(), in[0]); })));
  RC_ASSERT(near(value_of({view}, [](const Exprs& in) { return in[0]; }), view.contiguous()));
}

TEST(Array, ColumnMajorMemoryEntersAProductAsAFlag) {
  const std::vector<double> memory{1, 2, 3, 4, 5, 6};
  const Array A = Array::view(MatrixView{memory.data(), 2, 3, 1, 2});
  const Function f = traced([&](Expr x) { return matmul(A, x); }, Shape{3});
  EXPECT_EQ(count_nodes(f.outputs().front(), Op::transpose), 0);
  const Expr product = f.outputs().front();
  EXPECT_EQ(node(product).attr.i, 1);
  EXPECT_EQ(graph_of(product)->constant(node(arg(product, 0)).attr.i).data(), memory.data());
}

TEST(Array, PrintsItsEntriesAndCutsLongOnes) {
  const auto text = [](const Array& a) {
    std::ostringstream out;
    out << a;
    return out.str();
  };
  EXPECT_EQ(text(0.5), "0.5");
  EXPECT_EQ(text(Array{1.0, 2.5}), "[1, 2.5]");
  EXPECT_EQ(text(Array{{1.0, 2.0}, {3.0, 4.0}}), "[[1, 2],\n [3, 4]]");
  EXPECT_EQ(text(zeros({100})), "[0, 0, 0, 0, 0, 0, 0, 0, … 100 entries]");
  EXPECT_EQ(text(zeros({0})), "[]");
}

TEST(Array, PrintsAsTheStreamPrintsNumbers) {
  const Array third = ones(2) / 3.0;
  std::ostringstream out;
  out << std::setprecision(3) << third << ' ' << std::scientific << third(0) * ones({1, 1}) << ' ' << std::fixed
      << std::setprecision(1) << std::setw(5) << third << 2.0;
  EXPECT_EQ(out.str(), "[0.333, 0.333] [[3.333e-01]] [  0.3,   0.3]2.0");
}

TEST(Array, HasArithmeticThatBroadcastsAsExpressionsDo) {
  const Array a{1.0, 2.0, 4.0}, b{4.0, 2.0, 1.0}, A{{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}};
  EXPECT_TRUE(near(a - b, Array{-3.0, 0.0, 3.0}));
  EXPECT_TRUE(near(-a + 1, Array{0.0, -1.0, -3.0}));
  EXPECT_TRUE(near(2 * a / b, Array{0.5, 2.0, 8.0}));
  EXPECT_TRUE(near(A + a, Array{{2.0, 4.0, 7.0}, {5.0, 7.0, 10.0}}));
  EXPECT_TRUE(near(a * A.transposed()(0, 0), a));
  EXPECT_TRUE(near(A.transposed() * Array{10.0, 1.0}, Array{{10.0, 4.0}, {20.0, 5.0}, {30.0, 6.0}}));
  EXPECT_TRUE(near(Array{{1.0}, {2.0}} - Array{1.0, 2.0}, Array{{0.0, -1.0}, {1.0, 0.0}}));
  EXPECT_TRUE(near((a < b) + 2.0 * (a == b) + 4.0 * (a >= 4.0), Array{1.0, 2.0, 4.0}));
  EXPECT_EQ((zeros({0, 3}) + a).shape(), (Shape{0, 3}));
  EXPECT_EQ((Array(1.0) + 2.0).shape(), Shape{});
  EXPECT_EQ(error_of([&] { a + ones(2); }),
            "[add] shapes do not fit: (3) and (2); a size must be equal or 1, counted from the last axis");
  Array sum = a;
  const Array shared = sum;
  sum += b, sum *= 2.0, sum -= 1.0, sum /= b;
  EXPECT_TRUE(near(sum, Array{9.0 / 4, 7.0 / 2, 9.0}));
  EXPECT_TRUE(near(shared, a));
  EXPECT_TRUE(std::isnan((a - std::numeric_limits<double>::quiet_NaN())(0)));
}

RC_GTEST_PROP(Array, ArithmeticIsThatOfExpressions, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  const Shape whole = random.matrix();
  const auto part = [&] {
    const Array a =
        random.array(random.one_of(std::vector<Shape>{whole, {}, {1}, {whole[1]}, {1, whole[1]}, {whole[0], 1}}));
    return a.shape().rank() == 2 && random.flip() ? random.array({a.shape()[1], a.shape()[0]}).transposed() : a;
  };
  const Array a = part(), b = part();
  const Expr x = a, y = b;
  RC_ASSERT(bool(near(a + b, value_of(x + y), 0)));
  RC_ASSERT(bool(near(a - b, value_of(x - y), 0)));
  RC_ASSERT(bool(near(a * b, value_of(x * y), 0)));
  RC_ASSERT(bool(near(a / b, value_of(x / y), 0)));
  RC_ASSERT(bool(near(a <= b, value_of(x <= y), 0)));
  RC_ASSERT(bool(near(-a, value_of(-x), 0)));
}

TEST(Array, TakesVectorsAndNestedBraces) {
  const std::vector<double> entries{1, 2, 3};
  const Array from_vector = entries, column{{1.0}, {2.0}}, row{{1.0, 2.0}}, mixed{1, 2.5, 3u};
  EXPECT_EQ(from_vector.shape(), Shape{3});
  EXPECT_NE(from_vector.data(), entries.data());
  EXPECT_EQ(column.shape(), (Shape{2, 1}));
  EXPECT_EQ(row.shape(), (Shape{1, 2}));
  EXPECT_EQ(mixed(1), 2.5);
  EXPECT_EQ(Array(std::vector<std::vector<double>>{{1, 2}, {3, 4}, {5, 6}}).shape(), (Shape{3, 2}));
  EXPECT_EQ(Array({1.0, 2.0}).shape(), Shape{2});
  EXPECT_EQ(Array({{1.0, 2.0}, {3.0, 4.0}}).shape(), (Shape{2, 2}));
  EXPECT_EQ(Array(std::vector<double>()).shape(), Shape{0});
  EXPECT_EQ(error_of([] {
              Array(std::vector<std::vector<double>>{{1, 2}, {3}});
            }),
            "[Array] rows of 2 and 1 entries in one matrix");
}

TEST(Array, HasEntriesInBrackets) {
  const Array a{1.0, 2.0, 4.0};
  EXPECT_EQ(a[0] + a[-1], 5);
  EXPECT_EQ(a[std::size_t{1}], 2);
  EXPECT_EQ(error_of([&] { (void)a[3]; }), "[Array] [3] is outside (3)");
  EXPECT_EQ(error_of([&] { (void)a[-4]; }), "[Array] [-4] is outside (3)");
  EXPECT_TRUE(says(error_of([&] { (void)a[std::size_t{0} - 1]; }), {"18446744073709551615"}));
  EXPECT_EQ(error_of([] { (void)ones({2, 2})[0]; }), "[Array] [0] of a matrix (2, 2); its entries are (row, column)");
  EXPECT_EQ(error_of([] { (void)Array(1.0)[0]; }), "[Array] [0] is outside ()");
}

TEST(Array, WithAnExpressionGivesAnExpression) {
  const Array a{1.0, 2.0};
  static_assert(std::is_same_v<decltype(a - Expr(a)), Expr> && std::is_same_v<decltype(Expr(a) < a), Expr>);
  static_assert(std::is_same_v<decltype(a - a), Array> && std::is_same_v<decltype(2 * a), Array>);
}

TEST(Array, ThatWasMovedFromHasNoEntries) {
  Array a{{1.0, 2.0}, {3.0, 4.0}};
  const Array b = std::move(a);
  EXPECT_EQ(a.shape(), Shape{0});
  EXPECT_EQ(a.size(), 0);
  EXPECT_TRUE(a.values().empty());
  EXPECT_TRUE(a.transposed().contiguous().is_contiguous());
  EXPECT_THROW(a.item(), MisuseError);
  EXPECT_THROW(a(0), MisuseError);
  EXPECT_THROW(a(0, 0), MisuseError);
  std::ostringstream text;
  text << a;
  EXPECT_EQ(text.str(), "[]");
  a = b.transposed();
  EXPECT_EQ(a(0, 1), 3.0);
  Array& itself = a;
  a = std::move(itself);
  EXPECT_EQ(a(0, 1), 3.0);
  Array column = b.transposed();
  a = std::move(column);
  EXPECT_EQ(column.size(), 0);
  EXPECT_EQ(a(0, 1), 3.0);
}

TEST(Shape, HasExtentOneAlongAxesItDoesNotHave) {
  const Shape shape{2, 3};
  EXPECT_EQ(shape[-1], 1);
  EXPECT_EQ(shape[2], 1);
}

}  // namespace
}  // namespace onestep::test
