// Dual numbers: a value with its derivatives along K directions. Code that is a template of its number type is
// differentiated by running it, with whatever branches and loops it has; dual_step.h makes a step of such code.
#pragma once

#include <array>
#include <cmath>
#include <compare>
#include <cstddef>
#include <type_traits>

#include "onestep/export.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// A number and its derivatives along K directions at once: what is done to the value is done once, however many directions
/// there are. Comparisons look at the value. Numbers convert to it, with derivative zero.
///
///     Dual<2> x(3.0), y(4.0);
///     x.d[0] = 1, y.d[1] = 1;
///     double dx = sqrt(x * x + y * y).d[0];  // 0.6
template <std::size_t K> struct Dual {
  double value = 0;
  std::array<double, K> d{};

  constexpr Dual() = default;
  template <class Number>
  requires std::is_arithmetic_v<Number>
  constexpr Dual(Number number) : value(static_cast<double>(number)) {}

  friend Dual operator+(Dual a, const Dual& b) { return a += b; }
  friend Dual operator+(Dual a, double b) { return a += b; }
  friend Dual operator+(double a, Dual b) { return b += a; }
  friend Dual operator-(Dual a, const Dual& b) { return a -= b; }
  friend Dual operator-(Dual a, double b) { return a -= b; }
  friend Dual operator-(double a, const Dual& b) { return -b + a; }
  friend Dual operator*(Dual a, const Dual& b) { return a *= b; }
  friend Dual operator*(Dual a, double b) { return a *= b; }
  friend Dual operator*(double a, Dual b) { return b *= a; }
  friend Dual operator/(Dual a, const Dual& b) { return a /= b; }
  friend Dual operator/(Dual a, double b) { return a /= b; }
  friend Dual operator/(double a, const Dual& b) { return Dual(a) /= b; }
  friend Dual operator+(const Dual& a) { return a; }
  friend Dual operator-(Dual a) { return a *= -1.0; }

  Dual& operator+=(const Dual& b) {
    value += b.value;
    for (std::size_t k = 0; k < K; ++k) d[k] += b.d[k];
    return *this;
  }
  Dual& operator-=(const Dual& b) {
    value -= b.value;
    for (std::size_t k = 0; k < K; ++k) d[k] -= b.d[k];
    return *this;
  }
  Dual& operator*=(const Dual& b) {
    for (std::size_t k = 0; k < K; ++k) d[k] = d[k] * b.value + value * b.d[k];
    value *= b.value;
    return *this;
  }
  Dual& operator/=(const Dual& b) {
    value /= b.value;
    for (std::size_t k = 0; k < K; ++k) d[k] = (d[k] - value * b.d[k]) / b.value;
    return *this;
  }
  Dual& operator+=(double b) { return value += b, *this; }
  Dual& operator-=(double b) { return value -= b, *this; }
  Dual& operator*=(double b) {
    value *= b;
    for (double& e : d) e *= b;
    return *this;
  }
  Dual& operator/=(double b) {
    value /= b;
    for (double& e : d) e /= b;
    return *this;
  }

  friend bool operator==(const Dual& a, const Dual& b) { return a.value == b.value; }
  friend std::partial_ordering operator<=>(const Dual& a, const Dual& b) { return a.value <=> b.value; }
};

namespace detail {

template <class T> inline constexpr bool is_dual = false;
template <std::size_t K> inline constexpr bool is_dual<Dual<K>> = true;

// The dual number that an operation on these gives: at least one of them is one, the others are numbers or the same.
template <class... T> struct DualOf {};
template <std::size_t K, class... Rest>
requires((std::is_arithmetic_v<Rest> || std::is_same_v<Rest, Dual<K>>)&&...) struct DualOf<Dual<K>, Rest...> {
  using type = Dual<K>;
};
template <class Number, class... Rest>
requires std::is_arithmetic_v<Number>
struct DualOf<Number, Rest...> : DualOf<Rest...> {
};
template <class... T> using dual_of = typename DualOf<T...>::type;

template <std::size_t K> double value_of(const Dual<K>& x) { return x.value; }
template <class Number>
requires std::is_arithmetic_v<Number>
double value_of(Number x) { return static_cast<double>(x); }

// y.d += partial · x.d. A partial derivative that is a comparison selects; one that is infinite or NaN meets only the
// directions in which x moves, so that a parameter held fixed at a kink does no harm.
template <std::size_t K> void add_term(Dual<K>& y, double partial, const Dual<K>& x) {
  if (std::isfinite(partial)) {
    for (std::size_t k = 0; k < K; ++k) y.d[k] += partial * x.d[k];
  } else {
    for (std::size_t k = 0; k < K; ++k)
      if (x.d[k] != 0) y.d[k] += partial * x.d[k];
  }
}
template <std::size_t K> void add_term(Dual<K>& y, bool selected, const Dual<K>& x) {
  if (selected)
    for (std::size_t k = 0; k < K; ++k) y.d[k] += x.d[k];
}

// The rows of operations.def on plain numbers: the value of each, and the names its derivative columns use.
namespace pointwise {
inline constexpr double one = 1.0, zero = 0.0;
inline constexpr bool nothing = false;
#define ONESTEP_UNARY(name, kink, flops, meaning, result, da) \
  inline double name(double a) { return result; }
#include "onestep/operations.def"
inline double pow(double a, double b) { return std::pow(a, b); }
inline double hypot(double a, double b) { return std::hypot(a, b); }
inline double where(bool condition, double a, double b) { return condition ? a : b; }
inline bool less(double a, double b) { return a < b; }
inline bool less_equal(double a, double b) { return a <= b; }
inline bool greater(double a, double b) { return a > b; }
inline bool greater_equal(double a, double b) { return a >= b; }
inline bool equal(double a, double b) { return a == b; }
inline bool not_equal(double a, double b) { return a != b; }

#define ONESTEP_UNARY(name, kink, flops, meaning, result, da)  \
  template <class A> dual_of<A> name##_row(const A& x) {       \
    [[maybe_unused]] const double a = value_of(x), y = result; \
    A out(y);                                                  \
    add_term(out, da, x);                                      \
    return out;                                                \
  }
#define ONESTEP_BINARY(name, kink, flops, meaning, result, da, db)               \
  template <class A, class B> dual_of<A, B> name##_row(const A& x, const B& z) { \
    [[maybe_unused]] const double a = value_of(x), b = value_of(z), y = result;  \
    dual_of<A, B> out(y);                                                        \
    if constexpr (is_dual<A>) add_term(out, da, x);                              \
    if constexpr (is_dual<B>) add_term(out, db, z);                              \
    return out;                                                                  \
  }
#define ONESTEP_TERNARY(name, kink, flops, meaning, result, da, db, dc)                                  \
  template <class A, class B, class C> dual_of<A, B, C> name##_row(const A& x, const B& z, const C& w) { \
    [[maybe_unused]] const double a = value_of(x), b = value_of(z), c = value_of(w), y = result;         \
    dual_of<A, B, C> out(y);                                                                             \
    if constexpr (is_dual<A>) add_term(out, da, x);                                                      \
    if constexpr (is_dual<B>) add_term(out, db, z);                                                      \
    if constexpr (is_dual<C>) add_term(out, dc, w);                                                      \
    return out;                                                                                          \
  }
#include "onestep/operations.def"
}  // namespace pointwise

}  // namespace detail

// The elementwise operations of the table in operations.def, by the same names and with the same choices where a derivative
// is not unique: exp, expm1, log, log1p, sqrt, square, abs, sign, tanh, sigmoid, softplus, erf, sin, cos, tan, asin, acos,
// atan, sinh, cosh, cbrt, stop_gradient, arbitrary, pow, maximum, minimum, less … not_equal, where, hypot, atan2. Arguments
// beside a dual number may be plain numbers. Call them without std:: in front.
//
//     T z = softplus(-y * x), p = maximum(x, 0.0), q = pow(x, 3);
#define ONESTEP_UNARY(name, kink, flops, meaning, ...) \
  template <std::size_t K> Dual<K> name(const Dual<K>& a) { return detail::pointwise::name##_row(a); }
#define ONESTEP_BINARY(name, kink, flops, meaning, ...)                            \
  template <class A, class B> detail::dual_of<A, B> name(const A& a, const B& b) { \
    return detail::pointwise::name##_row(a, b);                                    \
  }
#define ONESTEP_TERNARY(name, kink, flops, meaning, ...)                                                   \
  template <class A, class B, class C> detail::dual_of<A, B, C> name(const A& a, const B& b, const C& c) { \
    return detail::pointwise::name##_row(a, b, c);                                                         \
  }
#include "onestep/operations.def"

/// C++'s names for what the table calls otherwise.
///
///     T largest = max(x, y), size = fabs(x);
template <class A, class B> detail::dual_of<A, B> max(const A& a, const B& b) { return maximum(a, b); }
template <class A, class B> detail::dual_of<A, B> min(const A& a, const B& b) { return minimum(a, b); }
template <std::size_t K> Dual<K> fabs(const Dual<K>& a) { return abs(a); }
template <std::size_t K> bool isfinite(const Dual<K>& a) { return std::isfinite(a.value); }
template <std::size_t K> bool isnan(const Dual<K>& a) { return std::isnan(a.value); }

}  // namespace onestep
ONESTEP_EXPORT_END
