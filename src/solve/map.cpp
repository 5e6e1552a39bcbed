// What maps have in common: parts of a state as one vector.
#include "solve/map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onestep::detail {

std::size_t Map::size() const { return flat_size(state); }

std::size_t flat_size(std::span<const Shape> parts) {
  std::size_t total = 0;
  for (const Shape& s : parts) total += static_cast<std::size_t>(s.size());
  return total;
}

void flatten(std::span<const Array> parts, Vector flat) {
  for (const Array& p : parts) {
    const auto count = static_cast<std::size_t>(p.size());
    p.copy_to(flat.first(count));
    flat = flat.subspan(count);
  }
}

std::vector<Array> unflatten(ConstVector flat, std::span<const Shape> parts) {
  std::vector<Array> result;
  for (const Shape& s : parts) {
    const auto count = static_cast<std::size_t>(s.size());
    result.emplace_back(s, std::vector<double>(flat.begin(), flat.begin() + static_cast<std::ptrdiff_t>(count)));
    flat = flat.subspan(count);
  }
  return result;
}

void check_shapes(const char* who, const char* what, std::span<const Array> given, std::span<const Shape> wanted) {
  if (given.size() != wanted.size())
    throw MisuseError(fmt::format("[{}] {} {} given, the step has {}", who, given.size(), what, wanted.size()));
  for (std::size_t i = 0; i < given.size(); ++i)
    if (given[i].shape() != wanted[i])
      throw MisuseError(fmt::format("[{}] {} {} has shape {}, the step was traced for {}", who, what, i,
                                    to_string(given[i].shape()), to_string(wanted[i])));
}

Perturbed perturbed(std::span<const Array> theta, const std::function<double(std::size_t, double)>& by) {
  Perturbed result;
  std::size_t entry = 0;
  for (const Array& a : theta) {
    std::vector<double> entries(static_cast<std::size_t>(a.size())), moves;
    a.copy_to(entries);
    double size = 0;
    for (const double e : entries) size = std::isfinite(e) ? std::max(size, std::fabs(e)) : size;
    for (double& e : entries) e += moves.emplace_back(by(entry++, size == 0 ? 1 : size));
    result.theta.emplace_back(a.shape(), std::move(entries));
    result.moves.emplace_back(a.shape(), std::move(moves));
  }
  return result;
}

int first_not_finite(std::span<const Array> arrays) {
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const Array& a = arrays[i];
    if (a.is_contiguous()) {
      if (!all_finite({a.data(), static_cast<std::size_t>(a.size())})) return static_cast<int>(i);
      continue;
    }
    for (std::int64_t r = 0; r < a.shape()[0]; ++r)
      for (std::int64_t c = 0; c < a.shape()[1]; ++c)
        if (!std::isfinite(a.data()[r * a.row_stride() + c * a.column_stride()])) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace onestep::detail
