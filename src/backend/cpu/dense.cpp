// Matrix products. Row-major to BLAS means transposed: a row-major m x n matrix is a column-major n x m one, so nothing is
// ever copied for the order's sake.
#include "backend/cpu/dense.h"

#include "backend/cpu/blas.h"
#include "backend/cpu/tile_kernels.h"
#include "parallel/pool.h"

namespace onestep::cpu {
namespace {

constexpr size_t most_partial_doubles = size_t{1} << 20;  // partial results of a product are kept below 8 MB
constexpr size_t tiled_from = 400;                        // columns of a symmetric product
constexpr size_t gram_rows = 192;  // packed together: a strip of them fills most of a first-level cache

/// The output in tiles, or, where it is too small for that, the inner dimension in pieces (inner.count > 1).
struct ProductCut {
  Cut rows, columns, inner;
};

ProductCut cut_product(size_t m, size_t n, size_t k) {
  constexpr double piece_work = 1 << 20;
  constexpr size_t most_pieces = 32, side = 256, least_inner = 1024;
  const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const bool small = work < 2 * piece_work;
  const Cut rows = cut_into(m, small ? 1 : m / side), columns = cut_into(n, small ? 1 : n / side);
  if (small || rows.count * columns.count >= 4) return {rows, columns, cut_into(k, 1)};
  const size_t pieces = std::min({most_pieces, k / least_inner, 1 + most_partial_doubles / (m * n)});
  if (pieces < 2) return {rows, columns, cut_into(k, 1)};
  return {cut_into(m, 1), cut_into(n, 1), cut_into(k, pieces)};
}

}  // namespace

size_t gemm_scratch(size_t m, size_t n, size_t k) { return (cut_product(m, n, k).inner.count - 1) * m * n; }

void gemm(bool ta, bool tb, size_t m, size_t n, size_t k, const double* a, const double* b, double* c, double* scratch) {
  const ProductCut cut = cut_product(m, n, k);
  const size_t lda = ta ? m : k, ldb = tb ? k : n, tiles = cut.rows.count * cut.columns.count;
  const auto trans = [](bool t) { return t ? blas::Trans::yes : blas::Trans::no; };
  parallel_for(tiles * cut.inner.count, [&](size_t p) {
    const size_t i = p % tiles / cut.columns.count, j = p % cut.columns.count, l = p / tiles;
    const size_t i0 = cut.rows.begin(i), j0 = cut.columns.begin(j), k0 = cut.inner.begin(l);
    double* const out = l == 0 ? c : scratch + (l - 1) * m * n;
    blas::dgemm_(trans(tb), trans(ta), cut.columns.length(j), cut.rows.length(i), cut.inner.length(l), 1.0,
                 b + (tb ? j0 * ldb + k0 : k0 * ldb + j0), ldb, a + (ta ? k0 * lda + i0 : i0 * lda + k0), lda, 0.0,
                 out + i0 * n + j0, n);
  });
  for (size_t l = 1; l < cut.inner.count; ++l) tile_kernels().axpy(1.0, scratch + (l - 1) * m * n, c, m * n);
}

RowCut row_cut(size_t rows, size_t n) {
  constexpr size_t most_chunks = 64, least_rows = 512, chunk_work = size_t{1} << 21;
  constexpr size_t most_blocks = 4, most_packed = size_t{1} << 22;  // doubles
  const size_t square = std::max<size_t>(n * n, 1);
  const size_t chunks =
      std::min({most_chunks, 1 + most_partial_doubles / square, rows / std::max({least_rows, 4 * n, chunk_work / square})});
  const bool tiled = n >= tiled_from;
  const Cut cut = cut_into(rows, tiled ? 1 : chunks);
  // Threads wait for each other after each block of a tiled loop: several are packed together, for many threads to share.
  const size_t blocks = tiled ? std::clamp<size_t>(most_packed / (gram_rows * n), 1, most_blocks) : 1;
  return {cut, std::min(cut.size, blocks * gram_rows), tiled};
}

void gram(size_t rows, size_t n, const double* a, const double* d, double* c, double* scratch) {
  constexpr size_t piece_doubles = size_t{1} << 14;
  const size_t side = (n < tiled_from ? 8 : 5) * gram_tile_columns;
  const Cut blocks{rows, std::max<size_t>(std::min(rows, gram_rows), 1), (rows + gram_rows - 1) / gram_rows};
  const Cut pieces = cut_into(blocks.size, n < side ? 1 : blocks.size * n / piece_doubles);
  const auto weights = [&](size_t block) { return d == nullptr ? nullptr : d + blocks.begin(block); };
  const auto panels = [&](size_t block) { return scratch + panels_size(blocks.begin(block), n); };
  parallel_for(blocks.count * pieces.count, [&](size_t p) {
    const size_t block = p / pieces.count, piece = p % pieces.count, length = blocks.length(block);
    if (pieces.begin(piece) >= length) return;
    tile_kernels().pack(pieces.begin(piece), std::min(pieces.begin(piece) + pieces.size, length), length, n,
                        a + blocks.begin(block) * n, weights(block), panels(block));
  });
  const Cut sides{n, side, (n + side - 1) / side};
  parallel_for(sides.count * (sides.count + 1) / 2, [&](size_t t) {
    const auto [i, j] = triangle_tile(t, sides.count);
    for (size_t block = 0; block < blocks.count; ++block) {
      const size_t length = blocks.length(block), positive = length - count_negative(length, weights(block));
      tile_kernels().panels_gram(length, positive, n, panels(block), sides.begin(i), sides.end(i), sides.begin(j),
                                 sides.end(j), c);
    }
  });
}

void mirror_lower(size_t n, double* c) {
  constexpr size_t side = 32, parallel_from = 512;
  const Cut cut{n, side, (n + side - 1) / side};
  parallel_for(cut.count, n < parallel_from ? 1 : any_worker, [&](size_t band) {
    for (size_t j0 = 0; j0 < cut.end(band); j0 += side) {
      for (size_t i = cut.begin(band); i < cut.end(band); ++i)
        for (size_t j = j0; j < std::min(j0 + side, i); ++j) c[j * n + i] = c[i * n + j];
    }
  });
}

}  // namespace onestep::cpu
