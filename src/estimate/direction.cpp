// Directions checked for being finite, and multiplied by powers of two.
#include "estimate/direction.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace onestep::detail {
namespace {

constexpr int most_powers = 300;  // powers of two: products with matrices of the step must stay in range, too

int exponent_for(double largest) {
  if (largest == 0 || !std::isfinite(largest)) return 0;
  const int exponent = std::ilogb(largest);
  return std::abs(exponent) > most_powers ? exponent : 0;
}

}  // namespace

void check_finite(const char* who, const std::string& what, ConstVector entries) {
  if (std::isfinite(largest(entries))) return;
  const auto at = std::ranges::find_if_not(entries, [](double e) { return std::isfinite(e); });
  throw MisuseError(
      fmt::format("[{}] entry {} of {} is {}; a direction has to be finite", who, at - entries.begin(), what, *at));
}
void check_finite(const char* who, const std::string& what, const Array& entries) {
  const Array dense = entries.contiguous();
  check_finite(who, what, dense.values());
}

int exponent_of(ConstVector direction) { return exponent_for(largest(direction)); }
int exponent_of(std::span<const Array> direction) {
  double most = 0;
  for (const Array& a : direction) {
    const Array dense = a.contiguous();
    most = std::max(most, largest(dense.values()));
  }
  return exponent_for(most);
}

void multiply(Vector v, int exponent) {
  for (double& e : v) e = std::scalbn(e, exponent);
}
std::vector<Array> multiplied(std::span<const Array> arrays, int exponent) {
  std::vector<Array> result;
  for (const Array& a : arrays) {
    std::vector<double> entries(static_cast<std::size_t>(a.size()));
    a.copy_to(entries);
    multiply(entries, exponent);
    result.emplace_back(a.shape(), std::move(entries));
  }
  return result;
}

}  // namespace onestep::detail
