// aᵀ diag(d) a, one block of rows at a time. Up to a few hundred columns every thread has its own rows and the partial
// results are added; above that the threads share the rows, and the result is cut into tiles.
#include <algorithm>

#include "backend/cpu/cut.h"
#include "backend/cpu/dense.h"
#include "backend/cpu/gram_kernels.h"
#include "backend/cpu/pool.h"
#include "backend/cpu/tile_kernels.h"

namespace onestep::cpu {
namespace {

std::size_t count_nonnegative(std::size_t rows, const double* d) {
  if (d == nullptr) return rows;
  return static_cast<std::size_t>(std::count_if(d, d + rows, [](double x) { return !(x < 0); }));
}

void few_columns_gram_block(std::size_t rows, std::size_t n, const double* a, std::size_t lda, const double* d, double beta,
                            double* c, std::size_t ldc, double* scaled) {
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
  }
  pack_rows(a, lda, rows, n, scaled, rows);
  packed_gram(scaled, rows, rows, n, d, c, ldc);
}

}  // namespace

RowCut row_cut(std::size_t rows, std::size_t n) {
  // A strip of the packed block fills most of a first-level cache.
  constexpr std::size_t tiled_from = 400, block_rows = 192;
  constexpr std::size_t most_chunks = 64, least_rows = 512, chunk_work = std::size_t{1} << 21;
  constexpr std::size_t most_partial_doubles = std::size_t{1} << 20;
  if (n >= tiled_from) return {true, 1, rows, std::min(rows, block_rows)};
  const std::size_t square = std::max<std::size_t>(n * n, 1);
  const std::size_t chunks =
      std::min({most_chunks, 1 + most_partial_doubles / square, rows / std::max({least_rows, 4 * n, chunk_work / square})});
  const Cut cut = cut_into(rows, chunks, 8);
  return {false, cut.count, cut.size, std::min(cut.size, block_rows)};
}

void gram_block(std::size_t rows, std::size_t n, const double* a, std::size_t lda, const double* d, double beta, double* c,
                std::size_t ldc, double* scaled) {
  if (n < gram_least_columns) {
    few_columns_gram_block(rows, n, a, lda, d, beta, c, ldc, scaled);
    return;
  }
  pack_weighted_rows(0, rows, rows, n, a, lda, d, scaled);
  add_packed_gram(rows, n, scaled, count_nonnegative(rows, d), beta, 0, n, 0, n, c, ldc);
}

void parallel_gram_block(std::size_t rows, std::size_t n, const double* a, std::size_t lda, const double* d, double beta,
                         double* c, std::size_t ldc, double* scaled) {
  constexpr std::size_t piece_doubles = std::size_t{1} << 14, tile_side = 5 * gram_tile_columns;
  if (n < tile_side) {
    gram_block(rows, n, a, lda, d, beta, c, ldc, scaled);
    return;
  }
  const Cut pieces = cut_into(rows, rows * n / piece_doubles, 8);
  parallel_for(pieces.count, [&](std::size_t p) {
    pack_weighted_rows(pieces.begin(p), pieces.begin(p) + pieces.length(p), rows, n, a, lda, d, scaled);
  });
  const std::size_t nonnegative = count_nonnegative(rows, d);
  const Cut sides{n, tile_side, (n + tile_side - 1) / tile_side};
  parallel_for(sides.count * (sides.count + 1) / 2, [&](std::size_t t) {
    const auto [i, j] = triangle_tile(t, sides.count);
    add_packed_gram(rows, n, scaled, nonnegative, beta, sides.begin(i), sides.begin(i) + sides.length(i), sides.begin(j),
                    sides.begin(j) + sides.length(j), c, ldc);
  });
}

void add_partials(std::size_t count, std::size_t n, const double* partials, double* c, std::size_t ldc) {
  constexpr std::size_t piece_doubles = std::size_t{1} << 15;
  const Cut cut = cut_into(n, count * n * n / 2 / piece_doubles, 8);
  parallel_for(cut.count, [&](std::size_t p) {
    add_lower_rows(cut.begin(p), cut.begin(p) + cut.length(p), count, n, partials, c, ldc);
  });
}

void mirror_lower(std::size_t n, double* c, std::size_t ldc) {
  constexpr std::size_t side = 32, parallel_from = 512;
  const Cut cut{n, side, (n + side - 1) / side};
  parallel_for(cut.count, n < parallel_from ? 1 : any_worker, [&](std::size_t band) {
    const std::size_t i0 = cut.begin(band), i1 = i0 + cut.length(band);
    for (std::size_t j0 = 0; j0 < i1; j0 += side) {
      for (std::size_t i = i0; i < i1; ++i) {
        for (std::size_t j = j0; j < std::min(j0 + side, i); ++j) c[j * ldc + i] = c[i * ldc + j];
      }
    }
  });
}

}  // namespace onestep::cpu
