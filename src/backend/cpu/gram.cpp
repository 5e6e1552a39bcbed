// aᵀ diag(d) a as SYRK on a scaled copy of one block of rows at a time. Up to a few hundred columns every thread has its own
// rows and the partial results are added; above that they share the rows, and the result is cut into tiles.
#include <algorithm>
#include <cmath>

#include "backend/cpu/blas.h"
#include "backend/cpu/cut.h"
#include "backend/cpu/dense.h"
#include "backend/cpu/pool.h"

namespace onestep::cpu {
namespace {

using blas::Trans;
using blas::Uplo;

/// Rows [begin, end) of scale_block's copy of all `rows`. Where a row goes depends on the signs before it only.
void scale_rows(std::size_t begin, std::size_t end, std::size_t rows, std::size_t n, const double* a, std::size_t lda,
                const double* d, double* scaled) {
  const std::size_t negative_before = static_cast<std::size_t>(std::count_if(d, d + begin, [](double x) { return x < 0; }));
  std::size_t front = begin - negative_before, back = rows - negative_before;
  for (std::size_t i = begin; i < end; ++i) {
    const double s = std::sqrt(std::fabs(d[i]));
    const double* __restrict from = a + i * lda;
    double* __restrict to = scaled + (d[i] < 0 ? --back : front++) * n;
    for (std::size_t j = 0; j < n; ++j) to[j] = s * from[j];
  }
}

std::size_t count_nonnegative(std::size_t rows, const double* d) {
  return static_cast<std::size_t>(std::count_if(d, d + rows, [](double x) { return !(x < 0); }));
}

}  // namespace

RowCut row_cut(std::size_t rows, std::size_t n) {
  constexpr std::size_t tiled_from = 400, tiled_block_rows = 384;
  constexpr std::size_t most_chunks = 64, most_slots = 16, chunk_work = std::size_t{1} << 21;
  constexpr std::size_t most_partial_doubles = std::size_t{1} << 20, block_doubles = std::size_t{1} << 16;
  if (n >= tiled_from) return {true, 1, rows, std::min(rows, tiled_block_rows), 1};
  const std::size_t width = std::max<std::size_t>(n, 1);
  const std::size_t least_rows = std::max({std::size_t{512}, 4 * n, chunk_work / (width * width)});
  const std::size_t most_partials = 1 + most_partial_doubles / (width * width);
  const Cut cut = cut_into(rows, std::min({most_chunks, most_partials, rows / least_rows}), 8);
  const std::size_t block = std::clamp<std::size_t>(block_doubles / width / 8 * 8, 128, 384);
  return {false, cut.count, cut.size, std::min(cut.size, block), std::min(cut.count, most_slots)};
}

std::size_t gram_scratch(std::size_t rows, std::size_t n) {
  const RowCut cut = row_cut(rows, n);
  return cut.slots * cut.block_rows * n + (cut.chunks - 1) * n * n;
}

std::size_t scale_block(std::size_t rows, std::size_t n, const double* a, std::size_t lda, const double* d, double* scaled) {
  scale_rows(0, rows, rows, n, a, lda, d, scaled);
  return count_nonnegative(rows, d);
}

std::size_t parallel_scale_block(std::size_t rows, std::size_t n, const double* a, std::size_t lda, const double* d,
                                 double* scaled) {
  constexpr std::size_t piece_doubles = std::size_t{1} << 14;
  const Cut cut = cut_into(rows, rows * n / piece_doubles, 1);
  parallel_for(cut.count,
               [&](std::size_t p) { scale_rows(cut.begin(p), cut.begin(p) + cut.length(p), rows, n, a, lda, d, scaled); });
  return count_nonnegative(rows, d);
}

void syrk_block(std::size_t rows, std::size_t n, const double* scaled, std::size_t lds, std::size_t nonnegative, double beta,
                double* c, std::size_t ldc) {
  blas::syrk(Uplo::upper, Trans::no, n, nonnegative, 1, scaled, lds, beta, c, ldc);
  if (nonnegative == rows) return;
  blas::syrk(Uplo::upper, Trans::no, n, rows - nonnegative, -1, scaled + nonnegative * lds, lds, 1, c, ldc);
}

void tiled_syrk_block(std::size_t rows, std::size_t n, const double* scaled, std::size_t lds, std::size_t nonnegative,
                      double beta, double* c, std::size_t ldc) {
  constexpr std::size_t tile_side = 256;
  const Cut cut = cut_into(n, (n + tile_side - 1) / tile_side, 8);
  parallel_for(cut.count * (cut.count + 1) / 2, [&](std::size_t t) {
    const auto [i, j] = triangle_tile(t, cut.count);
    const std::size_t i0 = cut.begin(i), j0 = cut.begin(j);
    double* tile = c + i0 * ldc + j0;
    if (i == j) {
      syrk_block(rows, cut.length(i), scaled + i0, lds, nonnegative, beta, tile, ldc);
      return;
    }
    const auto add = [&](std::size_t first, std::size_t last, double sign, double keep) {
      const double* s = scaled + first * lds;
      blas::gemm(Trans::no, Trans::yes, cut.length(j), cut.length(i), last - first, sign, s + j0, lds, s + i0, lds, keep,
                 tile, ldc);
    };
    add(0, nonnegative, 1, beta);
    if (nonnegative < rows) add(nonnegative, rows, -1, 1);
  });
}

void gram_block(std::size_t rows, std::size_t n, const double* a, std::size_t lda, const double* d, double beta, double* c,
                std::size_t ldc, double* scaled) {
  if (d == nullptr) {
    syrk_block(rows, n, a, lda, rows, beta, c, ldc);
  } else {
    const std::size_t nonnegative = scale_block(rows, n, a, lda, d, scaled);
    syrk_block(rows, n, scaled, n, nonnegative, beta, c, ldc);
  }
}

void add_partials(std::size_t count, std::size_t n, const double* partials, double* c, std::size_t ldc) {
  constexpr std::size_t piece_doubles = std::size_t{1} << 14;
  const Cut cut = cut_into(n, count * n * n / 2 / piece_doubles, 8);
  parallel_for(cut.count, [&](std::size_t piece) {
    for (std::size_t i = cut.begin(piece); i < cut.begin(piece) + cut.length(piece); ++i) {
      double* __restrict to = c + i * ldc;
      for (std::size_t p = 0; p < count; ++p) {
        const double* __restrict from = partials + (p * n + i) * n;
        for (std::size_t j = 0; j <= i; ++j) to[j] += from[j];
      }
    }
  });
}

void mirror_lower(std::size_t n, double* c, std::size_t ldc) {
  constexpr std::size_t side = 32, parallel_from = 512;
  const Cut cut = cut_into(n, (n + side - 1) / side, 1);
  const auto band = [&](std::size_t b) {
    const std::size_t i0 = cut.begin(b), i1 = i0 + cut.length(b);
    for (std::size_t j0 = 0; j0 < i1; j0 += side) {
      for (std::size_t i = i0; i < i1; ++i) {
        for (std::size_t j = j0; j < std::min(j0 + side, i); ++j) c[j * ldc + i] = c[i * ldc + j];
      }
    }
  };
  parallel_for(cut.count, n < parallel_from ? 1 : any_worker, band);
}

void gram(std::size_t rows, std::size_t n, const double* a, std::size_t lda, const double* d, double* c, std::size_t ldc,
          bool mirror, double* scratch) {
  if (n == 0) return;
  const RowCut cut = row_cut(rows, n);
  if (cut.tiled) {
    std::size_t r = 0;
    do {
      const std::size_t block = std::min(cut.block_rows, rows - r);
      const double beta = r == 0 ? 0 : 1;
      if (d == nullptr) {
        tiled_syrk_block(block, n, a + r * lda, lda, block, beta, c, ldc);
      } else {
        const std::size_t nonnegative = parallel_scale_block(block, n, a + r * lda, lda, d + r, scratch);
        tiled_syrk_block(block, n, scratch, n, nonnegative, beta, c, ldc);
      }
      r += block;
    } while (r < rows);
  } else {
    double* partials = scratch + cut.slots * cut.block_rows * n;
    parallel_for(cut.chunks, cut.slots, [&](std::size_t chunk, std::size_t worker) {
      const std::size_t begin = chunk * cut.chunk_rows, end = std::min(rows, begin + cut.chunk_rows);
      double* out = chunk == 0 ? c : partials + (chunk - 1) * n * n;
      std::size_t r = begin;
      do {
        const std::size_t block = std::min(cut.block_rows, end - r);
        gram_block(block, n, a + r * lda, lda, d == nullptr ? nullptr : d + r, r == begin ? 0 : 1, out, chunk == 0 ? ldc : n,
                   scratch + worker * cut.block_rows * n);
        r += block;
      } while (r < end);
    });
    add_partials(cut.chunks - 1, n, partials, c, ldc);
  }
  if (mirror) mirror_lower(n, c, ldc);
}

}  // namespace onestep::cpu
