// Random numbers, arrays and shapes for tests: the same for the same seed on every platform.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "onestep/array.h"

namespace onestep::test {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  double uniform(double low, double high) { return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53; }
  /// A whole number from low to high, both included.
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool flip() { return integer(0, 1) == 1; }
  template <class T> const T& one_of(const std::vector<T>& choices) {
    return choices[static_cast<std::size_t>(integer(0, static_cast<std::int64_t>(choices.size()) - 1))];
  }

  /// An extent: mostly 2 to 5, sometimes 0 or 1.
  std::int64_t extent() {
    const std::int64_t n = integer(0, 9) == 0 ? integer(0, 1) : integer(2, 5);
    degenerate_ = degenerate_ || n < 2;
    return n;
  }
  /// Whether an extent of 0 or 1 was handed out: rules about structure may then find nothing to do.
  bool degenerate() const { return degenerate_; }
  Shape number_vector_or_matrix() {
    const std::int64_t rank = integer(0, 2);
    return rank == 0 ? Shape{} : rank == 1 ? vector() : matrix();
  }
  Shape vector() { return {extent()}; }
  Shape matrix() {
    const std::int64_t rows = extent();
    return {rows, extent()};
  }

  Array array(const Shape& shape, double low = -2.0, double high = 2.0) {
    std::vector<double> entries(static_cast<std::size_t>(shape.size()));
    for (double& e : entries) e = uniform(low, high);
    return {shape, std::move(entries)};
  }
  std::vector<Array> arrays(std::span<const Shape> shapes, double low = -2.0, double high = 2.0) {
    std::vector<Array> all;
    for (const Shape& s : shapes) all.push_back(array(s, low, high));
    return all;
  }

 private:
  std::mt19937_64 engine_;
  bool degenerate_ = false;
};

}  // namespace onestep::test
