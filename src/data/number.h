// Decimal numbers as data files have them, short mostly: exactly rounded without the general algorithm where that is
// possible.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <system_error>

namespace onestep::data {

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

/// Reads `-12.5e3` and the like from `at` on, and returns where it ends; null when there is none, or when it has too many
/// digits for this. A mantissa up to 2⁵³ and a power of ten up to 10²² are doubles, so one multiplication or division of the
/// two is rounded as the decimal itself would be (Clinger 1990).
inline const char* scan_short_decimal(const char* at, const char* end, double& value) {
  constexpr std::array<double, 23> power{1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                         1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  constexpr std::uint64_t exact = std::uint64_t{1} << 53;
  constexpr std::ptrdiff_t most_digits = 19;  // of which no mantissa overflows
  const bool negative = at != end && *at == '-';
  if (at != end && (*at == '-' || *at == '+')) ++at;

  std::uint64_t mantissa = 0;
  const auto digits = [&] {
    const char* first = at;
    for (; at != end && is_digit(*at); ++at) mantissa = 10 * mantissa + static_cast<unsigned char>(*at - '0');
    return at - first;
  };
  std::ptrdiff_t count = digits(), exponent = 0;
  if (at != end && *at == '.') {
    ++at;
    exponent = -digits();
    count -= exponent;
  }
  if (count == 0 || count > most_digits || mantissa > exact) return nullptr;

  if (at != end && (*at == 'e' || *at == 'E')) {
    ++at;
    const bool down = at != end && *at == '-';
    if (at != end && (*at == '-' || *at == '+')) ++at;
    const char* first = at;
    std::ptrdiff_t shift = 0;
    for (; at != end && is_digit(*at) && at - first < 4; ++at) shift = 10 * shift + (*at - '0');
    if (at == first || (at != end && is_digit(*at))) return nullptr;
    exponent += down ? -shift : shift;
  }
  constexpr auto largest = static_cast<std::ptrdiff_t>(power.size()) - 1;
  if (exponent < -largest || exponent > largest) return nullptr;
  const auto m = static_cast<double>(mantissa);
  const double size =
      exponent < 0 ? m / power[static_cast<std::size_t>(-exponent)] : m * power[static_cast<std::size_t>(exponent)];
  value = negative ? -size : size;
  return at;
}

/// The same with any number of digits: a finite number as std::from_chars reads it, or null.
inline const char* scan_number(const char* at, const char* end, double& value) {
  if (const char* stop = scan_short_decimal(at, end, value)) return stop;
  const bool plus = at != end && *at == '+';
  if (plus && at + 1 != end && at[1] == '-') return nullptr;
  const auto [stop, error] = std::from_chars(at + (plus ? 1 : 0), end, value);
  return error == std::errc() && std::isfinite(value) ? stop : nullptr;
}

}  // namespace onestep::data
