// Pseudo-random numbers by a hash of their index (SplitMix64).
#include "linear/random.h"

namespace onestep::detail {
namespace {

std::uint64_t split_mix(std::uint64_t i) {
  std::uint64_t z = i * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  return (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
}

}  // namespace

double random_sign(std::size_t i, std::uint64_t seed) { return ((split_mix(i + seed) >> 40U) & 1U) != 0 ? 1 : -1; }

double random_entry(std::size_t i, std::uint64_t seed) {
  const std::uint64_t bits = split_mix(i + (seed << 40U) + 1);
  const double size = 0.5 + static_cast<double>(bits >> 32U) * 0x1p-33;
  return ((bits >> 31U) & 1U) != 0 ? size : -size;
}

void fill_random(Vector v) {
  for (std::size_t i = 0; i < v.size(); ++i) {
    const std::uint64_t bits = split_mix(i + 1);
    const double size = 0.5 + static_cast<double>(bits >> 32U) * 0x1p-32;
    v[i] = ((bits >> 31U) & 1U) != 0 ? size : -size;
  }
}

}  // namespace onestep::detail
