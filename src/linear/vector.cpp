// Sums, norms and checks as loops that the compiler vectorises.
#include "linear/vector.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace onestep::detail {

double dot(ConstVector a, ConstVector b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Scaled only where squares would leave the range.
double norm(ConstVector v) {
  const double square = dot(v, v);
  if (square > 1e-280 && square < 1e300) return std::sqrt(square);
  double largest = 0;
  for (const double e : v) {
    if (std::isnan(e)) return e;
    largest = std::max(largest, std::fabs(e));
  }
  if (largest == 0 || std::isinf(largest)) return largest;
  double sum = 0;
  for (const double e : v) sum += (e / largest) * (e / largest);
  return largest * std::sqrt(sum);
}

// By the bits of the exponent, and without a way out of the loop, so that it is done many entries at a time.
bool all_finite(ConstVector v) {
  constexpr std::uint64_t exponent = 0x7FF0000000000000U;
  std::uint64_t found = 0;
  for (const double e : v) found |= (std::bit_cast<std::uint64_t>(e) & exponent) == exponent ? 1U : 0U;
  return found == 0;
}

double norm(std::span<const Vector> parts) {
  double size = 0;
  for (const Vector part : parts) size = std::hypot(size, norm(ConstVector(part)));
  return size;
}

// The order of magnitudes is that of their bits: a loop without branches.
double largest(ConstVector v) {
  constexpr std::uint64_t all_but_sign = 0x7FFFFFFFFFFFFFFFU;
  std::uint64_t found = 0;
  for (const double e : v) found = std::max(found, std::bit_cast<std::uint64_t>(e) & all_but_sign);
  return std::bit_cast<double>(found);
}

void fill(Vector v, double value) { std::ranges::fill(v, value); }

void add(Vector to, ConstVector what, double factor) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += factor * what[i];
}

}  // namespace onestep::detail
