// Numbers with a shape: what goes into a traced function and what comes out of it.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "onestep/error.h"
#include "onestep/export.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

namespace detail {
struct ONESTEP_HIDDEN Access;  // gives the library access to private members
// Numbers as they are written: whole or not, but no types that merely convert to one.
template <class T>
concept Number = std::is_arithmetic_v<T>;
template <class...> inline constexpr bool never = false;  // for a static_assert where something is used

// An entry in braces. Not a double, so that {{1.0}, {2.0}} is a matrix and nothing else.
struct Entry {
  template <Number Value> Entry(Value its_value) : value(static_cast<double>(its_value)) {}
  double value;
};
}  // namespace detail

/// The shape of an array: rank 0 (a number), 1 (a vector) or 2 (a matrix). A size of 0 is allowed.
///
///     Shape{};         // a number
///     Shape{13};       // a vector of 13
///     Shape{270, 13};  // 270 rows, 13 columns
class Shape {
 public:
  constexpr Shape() = default;
  /// Throws MisuseError when a size is negative or the number of entries does not fit in 63 bits.
  Shape(std::initializer_list<std::int64_t> dims);

  constexpr int rank() const { return rank_; }
  /// The extent along `axis`; 1 for an axis the shape does not have.
  constexpr std::int64_t operator[](int axis) const {
    return axis >= 0 && axis < rank_ ? dims_[static_cast<std::size_t>(axis)] : 1;
  }
  /// The number of entries.
  constexpr std::int64_t size() const { return dims_[0] * dims_[1]; }
  constexpr bool operator==(const Shape& other) const {
    return rank_ == other.rank_ && dims_[0] == other.dims_[0] && dims_[1] == other.dims_[1];
  }

 private:
  friend class Array;
  /// Of an array that was moved from: a vector without entries.
  static constexpr Shape of_nothing() noexcept {
    Shape shape;
    shape.rank_ = 1;
    shape.dims_[0] = 0;
    return shape;
  }
  int rank_ = 0;
  std::array<std::int64_t, 2> dims_{1, 1};
};

/// `(270, 13)`, `(13)` or `()`.
///
///     std::string s = to_string(Shape{270, 13});
std::string to_string(const Shape& shape);
std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// A matrix in memory that somebody else owns, with any strides (in entries, not bytes).
///
///     std::vector<double> memory(270 * 13);
///     MatrixView columns_first{memory.data(), 270, 13, 1, 270};
struct MatrixView {
  const double* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;     ///< from an entry to the one below it
  std::int64_t column_stride = 1;  ///< from an entry to the one right of it
};

/// Numbers with a shape: dense doubles of rank 0 to 2, row-major when owned. Cheap to copy (copies share the entries) and
/// immutable once shared. One that was moved from is a vector without entries.
///
///     Array number = 0.1;
///     Array vector{1.0, 2.0, 3.0};
///     Array matrix{{1.0, 2.0}, {3.0, 4.0}}, column{{1.0}, {2.0}};
///     Array from_vector = std::vector<double>{1, 2, 3}, owned(Shape{2, 2}, std::vector<double>{1, 2, 3, 4});
class Array {
 public:
  /// The number 0.
  Array() : Array(0.0) {}
  /// A number.
  template <detail::Number Value> Array(Value value) : Array(Shape{}, std::vector<double>{static_cast<double>(value)}) {}
  /// A vector.
  Array(std::initializer_list<detail::Entry> entries);
  Array(std::vector<double> entries);
  /// A matrix, row by row. Throws MisuseError when the rows differ in length.
  Array(std::initializer_list<std::initializer_list<double>> rows);
  Array(const std::vector<std::vector<double>>& rows);
  /// Takes over `entries`, row by row. Throws MisuseError when their number is not that of the shape.
  Array(Shape shape, std::vector<double> entries);

  Array(const Array&) = default;
  Array& operator=(const Array&) = default;
  Array(Array&& other) noexcept
      : shape_(std::exchange(other.shape_, Shape::of_nothing())),
        data_(std::move(other.data_)),
        row_stride_(std::exchange(other.row_stride_, 1)),
        column_stride_(std::exchange(other.column_stride_, 1)) {}
  Array& operator=(Array&& other) noexcept {
    Array taken(std::move(other));
    std::swap(shape_, taken.shape_);
    data_.swap(taken.data_);
    std::swap(row_stride_, taken.row_stride_);
    std::swap(column_stride_, taken.column_stride_);
    return *this;
  }
  ~Array() = default;

  /// Looks at memory the caller owns, without a copy. The memory must stay there, unchanged, as long as this array, its
  /// copies and every function, plan, Prepared and Solution made of it. Between two calls of solve() it may change: each
  /// call reads it anew.
  ///
  ///     std::vector<double> w(270, 1.0);
  ///     Array a = Array::view(w);
  static Array view(std::span<const double> vector);
  static Array view(const std::vector<double>&&) = delete;  // it would be gone
  /// The same for a matrix with any strides. Row-major and column-major are used where they lie; anything else is copied
  /// once.
  ///
  ///     std::vector<double> memory(270 * 13);
  ///     Array a = Array::view(MatrixView{memory.data(), 270, 13, 13, 1});
  static Array view(const MatrixView& matrix);

  const Shape& shape() const& { return shape_; }
  Shape shape() const&& { return shape_; }
  std::int64_t size() const { return shape_.size(); }
  /// The first entry; see row_stride and column_stride for where the others are. Of an array that has a name: a temporary
  /// one takes its entries with it.
  const double* data() const& { return data_.get(); }
  const double* data() const&& = delete;
  std::int64_t row_stride() const { return row_stride_; }
  std::int64_t column_stride() const { return column_stride_; }
  /// Whether the entries lie one after another, row by row.
  bool is_contiguous() const {
    if (size() <= 1 || shape_.rank() < 2) return size() <= 1 || row_stride_ == 1;
    return (shape_[1] == 1 || column_stride_ == 1) && (shape_[0] == 1 || row_stride_ == shape_[1]);
  }
  /// The entries of a contiguous array, row by row. Throws MisuseError for a strided view: call contiguous() first. The span
  /// is valid as long as the array or a copy of it; of a temporary array the entries are copied instead.
  ///
  ///     double first = x.values()[0], sum = 0;
  ///     for (double e : solve(fit, x0, w).x().values()) sum += e;
  std::span<const double> values() const&;
  std::vector<double> values() const&&;
  /// This array if it is contiguous, else a copy that is.
  ///
  ///     const Array T = A.transposed().contiguous();
  ///     std::span<const double> entries = T.values();
  Array contiguous() const;
  /// Writes the entries, row by row. Throws MisuseError when their number is another.
  ///
  ///     std::vector<double> memory(9);
  ///     A.transposed().copy_to(memory);
  void copy_to(std::span<double> to) const;
  /// The same entries with rows and columns exchanged; nothing is copied.
  ///
  ///     Array T = A.transposed();
  Array transposed() const;

  /// The value of a number (rank 0, or a single entry). Throws MisuseError otherwise.
  ///
  ///     double loss = evaluate(f, {x, w})[0].item();
  double item() const;
  /// An entry of a vector; a negative i counts from the end. Throws MisuseError outside the vector, and for a matrix, whose
  /// entries are A(row, column).
  ///
  ///     double first = x[0], last = x[-1];
  template <std::integral Index> double operator[](Index i) const {
    if (std::is_unsigned_v<Index> && i > static_cast<Index>(std::numeric_limits<Index>::max() / 2) && sizeof(i) >= 8)
      detail::fail_index(static_cast<std::uint64_t>(i));
    return entry(static_cast<std::int64_t>(i));
  }
  /// An entry; throws MisuseError outside the shape.
  ///
  ///     double last = x(12), corner = A(0, 0);
  double operator()(std::int64_t i) const;
  double operator()(std::int64_t row, std::int64_t column) const;

 private:
  friend struct detail::Access;
  double entry(std::int64_t i) const;
  Array(Shape shape, std::shared_ptr<const double> data, std::int64_t row_stride, std::int64_t column_stride);

  Shape shape_;
  std::shared_ptr<const double> data_;
  std::int64_t row_stride_ = 1;
  std::int64_t column_stride_ = 1;
};

/// Every entry 0, 1 or `value`.
///
///     Array x0 = zeros(13), w = ones(270), c = full({2, 2}, 0.5);
Array zeros(Shape shape);
Array ones(Shape shape);
Array full(Shape shape, double value);
/// The same for a vector; templates, so that braces always mean a shape.
template <std::integral Size> Array zeros(Size n) { return zeros(Shape{static_cast<std::int64_t>(n)}); }
template <std::integral Size> Array ones(Size n) { return ones(Shape{static_cast<std::int64_t>(n)}); }
template <std::integral Size> Array full(Size n, double value) { return full(Shape{static_cast<std::int64_t>(n)}, value); }

/// Arithmetic on numbers one has, entry by entry and broadcast as expressions are; a comparison is 1 where it holds and 0
/// elsewhere. With an expression on one side the result is an expression.
///
///     Array error = a - b, scaled = 2.0 * error / (1.0 + b);
///     std::cout << a - b << '\n';
Array operator+(const Array& a, const Array& b);
Array operator-(const Array& a, const Array& b);
Array operator*(const Array& a, const Array& b);
Array operator/(const Array& a, const Array& b);
Array operator<(const Array& a, const Array& b);
Array operator<=(const Array& a, const Array& b);
Array operator>(const Array& a, const Array& b);
Array operator>=(const Array& a, const Array& b);
Array operator==(const Array& a, const Array& b);
Array operator!=(const Array& a, const Array& b);
Array operator-(const Array& a);
inline Array operator+(const Array& a) { return a; }
/// a = a + b and so on; copies of `a` keep their entries.
///
///     Array total = a;
///     total += b;
inline Array& operator+=(Array& a, const Array& b) { return a = a + b; }
inline Array& operator-=(Array& a, const Array& b) { return a = a - b; }
inline Array& operator*=(Array& a, const Array& b) { return a = a * b; }
inline Array& operator/=(Array& a, const Array& b) { return a = a / b; }

/// Entries are written as the stream writes numbers (std::setprecision, std::fixed, std::scientific; std::setw is for each
/// entry), of a long axis the first eight.
std::ostream& operator<<(std::ostream& out, const Array& array);

}  // namespace onestep
ONESTEP_EXPORT_END
