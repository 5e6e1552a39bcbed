// A range cut into equal pieces (the last may be shorter): what every kernel here hands out to threads.
#pragma once

#include <algorithm>
#include <cstddef>

namespace onestep::cpu {

struct Cut {
  std::size_t total, size, count;

  std::size_t begin(std::size_t piece) const { return piece * size; }
  std::size_t length(std::size_t piece) const { return std::min(size, total - begin(piece)); }
};

/// One piece, be it empty.
constexpr Cut whole(std::size_t total) { return {total, total, 1}; }

/// At most `pieces`, at least one, each but the last a multiple of `multiple` long.
constexpr Cut cut_into(std::size_t total, std::size_t pieces, std::size_t multiple) {
  if (pieces <= 1 || total <= multiple) return whole(total);
  const std::size_t size = ((total - 1) / pieces / multiple + 1) * multiple;
  return {total, size, (total - 1) / size + 1};
}

/// Tile (row, column) of a triangle of tiles, those off the diagonal first because they are twice the work.
struct Tile {
  std::size_t row, column;
};

inline Tile triangle_tile(std::size_t index, std::size_t side) {
  const std::size_t off_diagonal = side * (side - 1) / 2;
  if (index >= off_diagonal) return {index - off_diagonal, index - off_diagonal};
  std::size_t row = 1;
  for (; index >= row; ++row) index -= row;
  return {row, index};
}

}  // namespace onestep::cpu
