// Shapes and arrays: construction with checks, views, printing.
#include "onestep/array.h"

#include <algorithm>
#include <limits>
#include <ostream>

#include "graph/fail.h"

namespace onestep {

void detail::fail_moved_from(const char* what) { fail(what, "it was moved from, and holds nothing any more"); }

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

std::vector<double> flatten(std::initializer_list<std::initializer_list<double>> rows) {
  std::vector<double> entries;
  for (const auto& row : rows) {
    if (row.size() != rows.begin()->size())
      fail("Array", "rows of {} and {} entries in one matrix", rows.begin()->size(), row.size());
    entries.insert(entries.end(), row);
  }
  return entries;
}

std::int64_t signed_size(std::size_t n) { return static_cast<std::int64_t>(n); }

// Memory the caller owns: no reference is counted.
std::shared_ptr<const double> borrow(const double* data) { return {std::shared_ptr<const double>(), data}; }

}  // namespace

Array::Array(Shape shape, std::shared_ptr<const double> data, std::int64_t row_stride, std::int64_t column_stride)
    : shape_(shape), data_(std::move(data)), row_stride_(row_stride), column_stride_(column_stride) {}
Array::Array(double value) : Array(Shape{}, std::vector<double>{value}) {}
Array::Array(std::initializer_list<double> entries)
    : Array(Shape{signed_size(entries.size())}, std::vector<double>(entries)) {}
Array::Array(std::initializer_list<std::initializer_list<double>> rows)
    : Array(Shape{signed_size(rows.size()), rows.size() == 0 ? 0 : signed_size(rows.begin()->size())}, flatten(rows)) {}
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

std::ostream& operator<<(std::ostream& out, const Array& array) {
  constexpr std::int64_t most = 8;  // entries shown along an axis
  const int rank = array.shape().rank();
  const std::int64_t rows = array.shape()[0], columns = array.shape()[1];
  if (rank == 0) return out << fmt::format("{:.6g}", array.item());
  const auto list = [&](std::int64_t n, const char* between, const char* what, auto&& entry) {
    out << '[';
    for (std::int64_t i = 0; i < std::min(n, most); ++i) entry(out << (i == 0 ? "" : between), i);
    if (n > most) out << fmt::format("{}… {} {}", between, n, what);
    out << ']';
  };
  const auto number = [](std::ostream& to, double value) { to << fmt::format("{:.6g}", value); };
  if (rank == 1)
    list(rows, ", ", "entries", [&](std::ostream& to, std::int64_t i) { number(to, array(i)); });
  else
    list(rows, ",\n ", "rows", [&](std::ostream&, std::int64_t i) {
      list(columns, ", ", "entries", [&](std::ostream& to, std::int64_t j) { number(to, array(i, j)); });
    });
  return out;
}

}  // namespace onestep
