// Ranges cut into equal pieces (the last may be shorter): what loops hand out to threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

namespace onestep::parallel {

using std::size_t;

/// Doubles of a cache line: where pieces of a range begin, so that threads do not write to the same one.
inline constexpr size_t cache_line = 8;
constexpr size_t padded(size_t n) { return (n + cache_line - 1) / cache_line * cache_line; }

struct Cut {
  size_t total, size, count;

  size_t begin(size_t piece) const { return piece * size; }
  size_t length(size_t piece) const { return std::min(size, total - begin(piece)); }
  size_t end(size_t piece) const { return begin(piece) + length(piece); }
};

/// At most `pieces`, at least one, be it empty; each but the last a multiple of `multiple` long.
constexpr Cut cut_into(size_t total, size_t pieces, size_t multiple = cache_line) {
  if (pieces <= 1 || total <= multiple) return {total, total, 1};
  const size_t size = ((total - 1) / pieces / multiple + 1) * multiple;
  return {total, size, (total - 1) / size + 1};
}

/// Tile (row, column) of a triangle of tiles, those off the diagonal first because they are twice the work.
constexpr std::pair<size_t, size_t> triangle_tile(size_t index, size_t side) {
  const size_t off_diagonal = side * (side - 1) / 2;
  if (index >= off_diagonal) return {index - off_diagonal, index - off_diagonal};
  size_t row = 1;
  for (; index >= row; ++row) index -= row;
  return {row, index};
}

}  // namespace onestep::parallel
