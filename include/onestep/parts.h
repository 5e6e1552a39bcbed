// Arrays that belong together: states with several parts, several parameters.
#pragma once

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <iosfwd>
#include <utility>
#include <vector>

#include "onestep/array.h"
#include "onestep/export.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// Arrays that belong together: the parts of a state, or several parameters. One array converts to it and from it, a number
/// too; braces list the parts, and do not list numbers: {0.1, 0.1} could be one vector or two parameters, and does not
/// compile.
///
///     Parts one = Array{1.0, 2.0}, two = {Array{1.0, 2.0}, 0.5}, numbers = {Array(0.1), Array(0.1)};
///     Array first = two[0], only = one;
///     double g = s.vjp(1.0);   // where there is one parameter, a number
class Parts {
 public:
  Parts() = default;
  Parts(const Array& only) : parts_{only} {}
  template <detail::Number Value> Parts(Value only) : parts_{Array(only)} {}
  Parts(std::vector<double> only) : parts_{Array(std::move(only))} {}
  Parts(std::initializer_list<Array> parts) : parts_(parts) {}
  Parts(std::vector<Array> parts) : parts_(std::move(parts)) {}
  template <class Unused = void> Parts(std::initializer_list<double>) {
    static_assert(
        detail::never<Unused>,
        "numbers in braces: one vector is Array{0.1, 0.1}, two parts are {Array(0.1), Array(0.1)}, a number is 0.1");
  }

  std::size_t size() const { return parts_.size(); }
  /// Throws MisuseError where there is no part of that number.
  const Array& operator[](std::size_t i) const& { return parts_[checked(i)]; }
  Array operator[](std::size_t i) const&& { return parts_[checked(i)]; }
  auto begin() const& { return parts_.begin(); }
  auto end() const& { return parts_.end(); }
  void begin() const&& = delete;  // they would be gone
  void end() const&& = delete;
  /// Throws MisuseError unless there is exactly one part.
  operator Array() const { return only(); }
  /// Throws MisuseError unless there is exactly one part, and that has one entry.
  template <std::same_as<double> Number> operator Number() const { return only().item(); }

 private:
  std::size_t checked(std::size_t i) const;
  const Array& only() const;
  std::vector<Array> parts_;
};

namespace detail {
template <class A, class B>
concept WithParts = (std::same_as<A, Parts> && std::convertible_to<B, Array>) ||
                    (std::same_as<B, Parts> && std::convertible_to<A, Array>);
}  // namespace detail

/// Arithmetic on what has one part, as on its array.
///
///     Array descent = w - 0.1 * s.vjp(c);
template <class A, class B>
requires detail::WithParts<A, B> Array operator+(const A& a, const B& b) {
  return static_cast<Array>(a) + static_cast<Array>(b);
}
template <class A, class B>
requires detail::WithParts<A, B> Array operator-(const A& a, const B& b) {
  return static_cast<Array>(a) - static_cast<Array>(b);
}
template <class A, class B>
requires detail::WithParts<A, B> Array operator*(const A& a, const B& b) {
  return static_cast<Array>(a) * static_cast<Array>(b);
}
template <class A, class B>
requires detail::WithParts<A, B> Array operator/(const A& a, const B& b) {
  return static_cast<Array>(a) / static_cast<Array>(b);
}
inline Array operator-(const Parts& a) { return -static_cast<Array>(a); }

/// One part below the other.
std::ostream& operator<<(std::ostream& out, const Parts& parts);

}  // namespace onestep
ONESTEP_EXPORT_END
