// Shapes and arrays: construction with checks, views, printing.
#include "onestep/array.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <ostream>

#include "graph/fail.h"
#include "graph/rules.h"

namespace onestep {

void detail::fail_moved_from(const char* what) { fail(what, "it was moved from, and holds nothing any more"); }

void detail::fail_index(std::uint64_t index) { fail("[]", "index {} is larger than any array", index); }

Shape::Shape(std::initializer_list<std::int64_t> dims) {
  if (dims.size() > 2) fail("Shape", "rank {} is above 2; reshape to a matrix", dims.size());
  for (const std::int64_t d : dims) {
    if (d < 0) fail("Shape", "negative size {}", d);
    dims_[static_cast<std::size_t>(rank_++)] = d;
  }
  // Bytes must fit as well as entries, hence the division by the size of a double.
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(sizeof(double));
  if ((dims_[1] != 0 && dims_[0] > most / dims_[1]) || dims_[0] > most || dims_[1] > most)
    fail("Shape", "({}, {}) has more entries than can be addressed", dims_[0], dims_[1]);
}

std::string to_string(const Shape& shape) {
  if (shape.rank() == 0) return "()";
  return shape.rank() == 1 ? fmt::format("({})", shape[0]) : fmt::format("({}, {})", shape[0], shape[1]);
}
std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << to_string(shape); }

namespace {

std::int64_t signed_size(std::size_t n) { return static_cast<std::int64_t>(n); }

double value_of(double entry) { return entry; }
double value_of(detail::Entry entry) { return entry.value; }
template <class Line> std::vector<double> entries_of(const Line& line) {
  std::vector<double> entries;
  for (const auto& e : line) entries.push_back(value_of(e));
  return entries;
}
template <class Rows> Array matrix_of(const Rows& rows) {
  std::vector<double> entries;
  const std::size_t columns = rows.size() == 0 ? 0 : rows.begin()->size();
  for (const auto& row : rows) {
    if (row.size() != columns) fail("Array", "rows of {} and {} entries in one matrix", columns, row.size());
    for (const auto& e : row) entries.push_back(value_of(e));
  }
  return {Shape{signed_size(rows.size()), signed_size(columns)}, std::move(entries)};
}

// Memory the caller owns: no reference is counted.
std::shared_ptr<const double> borrow(const double* data) { return {std::shared_ptr<const double>(), data}; }

}  // namespace

Array::Array(Shape shape, std::shared_ptr<const double> data, std::int64_t row_stride, std::int64_t column_stride)
    : shape_(shape), data_(std::move(data)), row_stride_(row_stride), column_stride_(column_stride) {}
Array::Array(std::initializer_list<detail::Entry> entries) : Array(entries_of(entries)) {}
Array::Array(std::vector<double> entries) {
  const Shape shape{signed_size(entries.size())};
  *this = Array(shape, std::move(entries));
}
Array::Array(std::initializer_list<std::initializer_list<double>> rows) : Array(matrix_of(rows)) {}
Array::Array(const std::vector<std::vector<double>>& rows) : Array(matrix_of(rows)) {}
Array::Array(Shape shape, std::vector<double> entries) : shape_(shape), row_stride_(shape.rank() == 2 ? shape[1] : 1) {
  if (signed_size(entries.size()) != shape.size())
    fail("Array", "shape {} has {} entries, {} were given", shape, shape.size(), entries.size());
  const auto owner = std::make_shared<std::vector<double>>(std::move(entries));
  data_ = {owner, owner->data()};
}

Array Array::view(std::span<const double> vector) {
  return {Shape{signed_size(vector.size())}, borrow(vector.data()), 1, 1};
}
Array Array::view(const MatrixView& m) {
  const Shape shape{m.rows, m.columns};
  if (m.data == nullptr && shape.size() > 0) fail("Array", "view of {} without data", shape);
  const Array array(shape, borrow(m.data), m.row_stride, m.column_stride);
  const bool in_place =
      (m.column_stride == 1 && m.row_stride >= m.columns) || (m.row_stride == 1 && m.column_stride >= m.rows);
  return in_place || shape.size() == 0 ? array : array.contiguous();
}

std::span<const double> Array::values() const& {
  if (!is_contiguous()) fail("Array", "{} is a strided view; call contiguous() first", shape_);
  return {data(), static_cast<std::size_t>(size())};
}
std::vector<double> Array::values() const&& {
  const std::span<const double> entries = values();  // of *this, which has a name here
  return {entries.begin(), entries.end()};
}

void Array::copy_to(std::span<double> to) const {
  if (signed_size(to.size()) != size()) fail("Array", "{} does not fit in memory for {} entries", shape_, to.size());
  auto next = to.begin();
  for (std::int64_t i = 0; i < shape_[0]; ++i)
    for (std::int64_t j = 0; j < shape_[1]; ++j) *next++ = data_.get()[i * row_stride_ + j * column_stride_];
}

Array Array::contiguous() const {
  if (is_contiguous()) return *this;
  std::vector<double> entries(static_cast<std::size_t>(size()));
  copy_to(entries);
  return {shape_, std::move(entries)};
}

Array Array::transposed() const {
  return shape_.rank() < 2 ? *this : Array(Shape{shape_[1], shape_[0]}, data_, column_stride_, row_stride_);
}

double Array::item() const {
  if (size() != 1) fail("Array", "item() of {}, which has {} entries", shape_, size());
  return *data_;
}
double Array::entry(std::int64_t i) const {
  if (shape_.rank() == 2) fail("Array", "[{}] of a matrix {}; its entries are (row, column)", i, shape_);
  const std::int64_t at = i < 0 ? i + shape_[0] : i;
  if (shape_.rank() == 0 || at < 0 || at >= shape_[0]) fail("Array", "[{}] is outside {}", i, shape_);
  return data_.get()[at * row_stride_];
}
double Array::operator()(std::int64_t i) const {
  if (shape_.rank() != 1 || i < 0 || i >= shape_[0]) fail("Array", "({}) is outside {}", i, shape_);
  return data_.get()[i * row_stride_];
}
double Array::operator()(std::int64_t row, std::int64_t column) const {
  if (shape_.rank() != 2 || row < 0 || row >= shape_[0] || column < 0 || column >= shape_[1])
    fail("Array", "({}, {}) is outside {}", row, column, shape_);
  return data_.get()[row * row_stride_ + column * column_stride_];
}

Array zeros(Shape shape) { return full(shape, 0.0); }
Array ones(Shape shape) { return full(shape, 1.0); }
Array full(Shape shape, double value) { return {shape, std::vector<double>(static_cast<std::size_t>(shape.size()), value)}; }

namespace {

// The value of a row of the table on arrays, by NumPy's rule of broadcasting.
Array elementwise(Op op, const Array& a, const Array& b) {
  const Shape shape = broadcast_shape(name(op), a.shape(), b.shape());
  // A shape is aligned at its last axis: steps along the rows and columns of the result, 0 where entries are repeated. A
  // vector is a row.
  struct Steps {
    const double* data;
    std::int64_t row = 0, column = 0;
    explicit Steps(const Array& of) : data(of.data()) {
      const bool is_row = of.shape().rank() == 1;
      const std::int64_t rows = is_row ? 1 : of.shape()[0], columns = is_row ? of.shape()[0] : of.shape()[1];
      if (rows != 1) row = of.row_stride();
      if (columns != 1) column = is_row ? of.row_stride() : of.column_stride();
    }
  } const x(a), y(b);
  const std::int64_t rows = shape.rank() == 2 ? shape[0] : 1, columns = shape.rank() == 2 ? shape[1] : shape[0];
  std::vector<double> entries(static_cast<std::size_t>(shape.size()));
  const auto fill = [&](const auto& value) {
    double* entry = entries.data();
    for (std::int64_t i = 0; i < rows; ++i) {
      const double *left = x.data + i * x.row, *right = y.data + i * y.row;
      for (std::int64_t j = 0; j < columns; ++j, left += x.column, right += y.column) *entry++ = value(*left, *right);
    }
  };
  // Without a call for each entry where that would be most of the work.
  switch (op) {
    case Op::add: fill(std::plus()); break;
    case Op::sub: fill(std::minus()); break;
    case Op::mul: fill(std::multiplies()); break;
    case Op::div: fill(std::divides()); break;
    default:
      fill([value = info(op).value](double left, double right) {
        const double both[3] = {left, right, 0};
        return value(both);
      });
  }
  return {shape, std::move(entries)};
}

}  // namespace

Array operator+(const Array& a, const Array& b) { return elementwise(Op::add, a, b); }
Array operator-(const Array& a, const Array& b) { return elementwise(Op::sub, a, b); }
Array operator*(const Array& a, const Array& b) { return elementwise(Op::mul, a, b); }
Array operator/(const Array& a, const Array& b) { return elementwise(Op::div, a, b); }
Array operator<(const Array& a, const Array& b) { return elementwise(Op::less, a, b); }
Array operator<=(const Array& a, const Array& b) { return elementwise(Op::less_equal, a, b); }
Array operator>(const Array& a, const Array& b) { return elementwise(Op::greater, a, b); }
Array operator>=(const Array& a, const Array& b) { return elementwise(Op::greater_equal, a, b); }
Array operator==(const Array& a, const Array& b) { return elementwise(Op::equal, a, b); }
Array operator!=(const Array& a, const Array& b) { return elementwise(Op::not_equal, a, b); }
Array operator-(const Array& a) { return elementwise(Op::mul, -1.0, a); }

std::ostream& operator<<(std::ostream& out, const Array& array) {
  constexpr std::int64_t most = 8;  // entries shown along an axis
  const std::streamsize width = out.width(0);
  const auto number = [&](double value) {
    out.width(width);
    out << value;
  };
  const auto list = [&](std::int64_t n, const char* between, const char* what, auto&& entry) {
    out << '[';
    for (std::int64_t i = 0; i < std::min(n, most); ++i) {
      out << (i == 0 ? "" : between);
      entry(i);
    }
    if (n > most) out << between << "… " << std::to_string(n) << ' ' << what;
    out << ']';
  };
  const std::int64_t rows = array.shape()[0], columns = array.shape()[1];
  if (array.shape().rank() == 0)
    number(array.item());
  else if (array.shape().rank() == 1)
    list(rows, ", ", "entries", [&](std::int64_t i) { number(array(i)); });
  else
    list(rows, ",\n ", "rows",
         [&](std::int64_t i) { list(columns, ", ", "entries", [&](std::int64_t j) { number(array(i, j)); }); });
  return out;
}

}  // namespace onestep
