// Small arrays of any number type with the operations of onestep/expr.h by the same names, so that one generic lambda is
// traced by the library (with Expr) and evaluated for the truth (with long double and its dual numbers). Nothing of the
// library computes here.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "onestep/array.h"
#include "onestep/expr.h"

namespace onestep::bench {

using Real = long double;

// A number with a derivative in one direction.
struct Tangent {
  Real v = 0, d = 0;
  Tangent() = default;
  Tangent(Real value, Real derivative = 0) : v(value), d(derivative) {}
};
inline Tangent operator+(Tangent a, Tangent b) { return {a.v + b.v, a.d + b.d}; }
inline Tangent operator-(Tangent a, Tangent b) { return {a.v - b.v, a.d - b.d}; }
inline Tangent operator-(Tangent a) { return {-a.v, -a.d}; }
inline Tangent operator*(Tangent a, Tangent b) { return {a.v * b.v, a.d * b.v + a.v * b.d}; }
inline Tangent operator/(Tangent a, Tangent b) { return {a.v / b.v, (a.d - a.v / b.v * b.d) / b.v}; }

namespace scalar {
inline Real value(Real a) { return a; }
inline Real value(Tangent a) { return a.v; }
// f(a) from f and f′ at its value.
inline Real chain(Real, Real f, Real) { return f; }
inline Tangent chain(Tangent a, Real f, Real slope) { return {f, slope * a.d}; }

inline Real sigmoid_of(Real a) { return a >= 0 ? 1 / (1 + std::exp(-a)) : std::exp(a) / (1 + std::exp(a)); }
template <class T> T exp(T a) { return chain(a, std::exp(value(a)), std::exp(value(a))); }
template <class T> T log(T a) { return chain(a, std::log(value(a)), 1 / value(a)); }
template <class T> T sqrt(T a) { return chain(a, std::sqrt(value(a)), Real(0.5) / std::sqrt(value(a))); }
template <class T> T sin(T a) { return chain(a, std::sin(value(a)), std::cos(value(a))); }
template <class T> T cos(T a) { return chain(a, std::cos(value(a)), -std::sin(value(a))); }
template <class T> T square(T a) { return a * a; }
template <class T> T abs(T a) { return chain(a, std::fabs(value(a)), value(a) > 0 ? 1 : value(a) < 0 ? -1 : 0); }
template <class T> T sign(T a) { return T(value(a) > 0 ? Real(1) : value(a) < 0 ? Real(-1) : Real(0)); }
template <class T> T sigmoid(T a) {
  const Real s = sigmoid_of(value(a));
  return chain(a, s, s * sigmoid_of(-value(a)));
}
template <class T> T tanh(T a) {
  const Real c = std::cosh(value(a));
  return chain(a, std::tanh(value(a)), std::isfinite(c) ? 1 / (c * c) : Real(0));
}
template <class T> T softplus(T a) {
  const Real v = value(a);
  return chain(a, (v > 0 ? v : Real(0)) + std::log1p(std::exp(-std::fabs(v))), sigmoid_of(v));
}
}  // namespace scalar

// Numbers with a shape of rank 0 to 2, row by row.
template <class T> class Field {
 public:
  Field() : entries_(1) {}
  Field(double number) : entries_{T(static_cast<Real>(number))} {}
  Field(const Array& array) : shape_(array.shape()) {
    const Array rows = array.contiguous();
    entries_.reserve(static_cast<std::size_t>(array.size()));
    for (const double e : rows.values()) entries_.push_back(T(static_cast<Real>(e)));
  }
  Field(Shape shape, std::vector<T> entries) : shape_(shape), entries_(std::move(entries)) {}

  const Shape& shape() const { return shape_; }
  const std::vector<T>& entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }
  const T& operator[](std::size_t i) const { return entries_[i]; }

  // NumPy's rule for the shapes that two operands have in common.
  template <class F> static Field each(const Field& a, const Field& b, const F& f) {
    if (a.shape_ == b.shape_) {
      std::vector<T> out(a.size());
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = f(a[i], b[i]);
      return {a.shape_, std::move(out)};
    }
    const int rank = std::max(a.shape_.rank(), b.shape_.rank());
    const std::size_t rows = std::max(a.rows(), b.rows()), columns = std::max(a.columns(), b.columns());
    std::vector<T> out(rows * columns);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j)
        out[i * columns + j] = f(a.at(i, j, rows, columns), b.at(i, j, rows, columns));
    return {shape_of(rank, rows, columns), std::move(out)};
  }
  template <class F> static Field each(const Field& a, const F& f) {
    std::vector<T> out(a.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = f(a[i]);
    return {a.shape_, std::move(out)};
  }

  friend Field operator+(const Field& a, const Field& b) {
    return each(a, b, [](T x, T y) { return x + y; });
  }
  friend Field operator-(const Field& a, const Field& b) {
    return each(a, b, [](T x, T y) { return x - y; });
  }
  friend Field operator*(const Field& a, const Field& b) {
    return each(a, b, [](T x, T y) { return x * y; });
  }
  friend Field operator/(const Field& a, const Field& b) {
    return each(a, b, [](T x, T y) { return x / y; });
  }
  friend Field operator-(const Field& a) {
    return each(a, [](T x) { return -x; });
  }
  friend Field maximum(const Field& a, const Field& b) {
    return each(a, b, [](T x, T y) { return scalar::value(x) >= scalar::value(y) ? x : y; });
  }
  friend Field minimum(const Field& a, const Field& b) {
    return each(a, b, [](T x, T y) { return scalar::value(x) <= scalar::value(y) ? x : y; });
  }
  // Of a nonnegative base, to a constant power.
  friend Field pow(const Field& a, double power) {
    const Real p = power;
    return each(a, [p](T x) {
      const Real v = scalar::value(x);
      return scalar::chain(x, std::pow(v, p), p == 0 ? Real(0) : p * std::pow(v, p - 1));
    });
  }
#define ONESTEP_FIELD_UNARY(name)                        \
  friend Field name(const Field& a) {                    \
    return each(a, [](T x) { return scalar::name(x); }); \
  }
  ONESTEP_FIELD_UNARY(exp)
  ONESTEP_FIELD_UNARY(log)
  ONESTEP_FIELD_UNARY(sqrt)
  ONESTEP_FIELD_UNARY(sin)
  ONESTEP_FIELD_UNARY(cos)
  ONESTEP_FIELD_UNARY(square)
  ONESTEP_FIELD_UNARY(abs)
  ONESTEP_FIELD_UNARY(sign)
  ONESTEP_FIELD_UNARY(tanh)
  ONESTEP_FIELD_UNARY(sigmoid)
  ONESTEP_FIELD_UNARY(softplus)
#undef ONESTEP_FIELD_UNARY

  friend Field matmul(const Field& a, const Field& b) {
    // A vector on the left is a row, on the right a column.
    const std::size_t rows = a.shape_.rank() == 2 ? a.extent(0) : 1, inner = a.shape_.rank() == 2 ? a.extent(1) : a.size(),
                      columns = b.shape_.rank() == 2 ? b.extent(1) : 1;
    if (b.extent(0) != inner) throw std::logic_error("matmul: inner dimensions differ");
    std::vector<T> out(rows * columns, T(Real(0)));
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t k = 0; k < inner; ++k)
        for (std::size_t j = 0; j < columns; ++j)
          out[i * columns + j] = out[i * columns + j] + a[i * inner + k] * b[k * columns + j];
    const int rank = (a.shape_.rank() == 2 ? 1 : 0) + (b.shape_.rank() == 2 ? 1 : 0);
    const Shape length{static_cast<std::int64_t>(out.size())};
    if (rank == 1) return {length, std::move(out)};
    return {shape_of(rank, rows, columns), std::move(out)};
  }
  friend Field transpose(const Field& a) {
    if (a.shape_.rank() < 2) return a;
    std::vector<T> out(a.size());
    for (std::size_t i = 0; i < a.extent(0); ++i)
      for (std::size_t j = 0; j < a.extent(1); ++j) out[j * a.extent(0) + i] = a[i * a.extent(1) + j];
    return {Shape{a.shape_[1], a.shape_[0]}, std::move(out)};
  }
  friend Field reshape(const Field& a, const Shape& shape) { return {shape, a.entries_}; }
  friend Field slice(const Field& a, std::int64_t begin, std::int64_t end) {
    return {Shape{end - begin}, std::vector<T>(a.entries_.begin() + begin, a.entries_.begin() + end)};
  }
  friend Field join(const Field& a, const Field& b) {
    std::vector<T> out(a.entries_);
    out.insert(out.end(), b.entries_.begin(), b.entries_.end());
    const Shape length{static_cast<std::int64_t>(out.size())};
    return {length, std::move(out)};
  }
  friend Field sum(const Field& a) {
    T total(Real(0));
    for (const T& e : a.entries_) total = total + e;
    return {Shape{}, {total}};
  }
  friend Field sum(const Field& a, int axis) {
    if (a.shape_.rank() < 2) return sum(a);
    const std::size_t rows = a.extent(0), columns = a.extent(1);
    std::vector<T> out(axis == 0 ? columns : rows, T(Real(0)));
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j) out[axis == 0 ? j : i] = out[axis == 0 ? j : i] + a[i * columns + j];
    const Shape length{static_cast<std::int64_t>(out.size())};
    return {length, std::move(out)};
  }
  friend Field log_sum_exp(const Field& a, int axis) {
    Real shift = -std::numeric_limits<Real>::infinity();
    for (const T& e : a.entries_) shift = std::max(shift, scalar::value(e));
    const Field constant(Shape{}, {T(shift)});
    return constant + log(sum(exp(a - constant), axis));
  }

 private:
  static Shape shape_of(int rank, std::size_t rows, std::size_t columns) {
    const auto m = static_cast<std::int64_t>(rows), n = static_cast<std::int64_t>(columns);
    return rank == 0 ? Shape{} : rank == 1 ? Shape{n} : Shape{m, n};
  }
  std::size_t extent(int axis) const { return static_cast<std::size_t>(shape_[axis]); }
  // As NumPy aligns them: the last axis is the columns.
  std::size_t rows() const { return shape_.rank() == 2 ? extent(0) : 1; }
  std::size_t columns() const { return shape_.rank() == 0 ? 1 : shape_.rank() == 1 ? extent(0) : extent(1); }
  const T& at(std::size_t i, std::size_t j, std::size_t m, std::size_t n) const {
    if ((rows() != 1 && rows() != m) || (columns() != 1 && columns() != n)) throw std::logic_error("shapes differ");
    return entries_[(rows() == 1 ? 0 : i) * columns() + (columns() == 1 ? 0 : j)];
  }

  Shape shape_;
  std::vector<T> entries_;
};

// The names above for expressions, where expr.h has another.
inline Expr join(const Expr& a, const Expr& b) { return concat({a, b}); }
inline Expr pow(const Expr& a, double power) { return onestep::pow(a, Expr(power)); }

}  // namespace onestep::bench
