// Matrix products. Row-major to BLAS means transposed: a row-major m x n matrix is a column-major n
// x m one, and a lower triangle an upper one, so nothing is ever copied for the order's sake.
#include "backend/cpu/dense.h"

#include <algorithm>

#include "backend/cpu/blas.h"
#include "backend/cpu/cut.h"
#include "backend/cpu/pool.h"

namespace onestep::cpu {
namespace {

using blas::Trans;

Trans trans(bool t) { return t ? Trans::yes : Trans::no; }

/// Partial results of a product are kept below this many doubles, 8 MB.
constexpr std::size_t most_partial_doubles = std::size_t{1} << 20;

void add_to(std::size_t n, const double* __restrict x, double* __restrict y) {
  for (std::size_t i = 0; i < n; ++i) y[i] += x[i];
}

void serial_gemm(bool ta, bool tb, std::size_t m, std::size_t n, std::size_t k, double alpha, const double* a,
                 std::size_t lda, const double* b, std::size_t ldb, double beta, double* c, std::size_t ldc) {
  blas::gemm(trans(tb), trans(ta), n, m, k, alpha, b, ldb, a, lda, beta, c, ldc);
}

/// The output in tiles, or, where it is too small for that, the inner dimension in pieces (inner.count > 1).
struct ProductCut {
  Cut rows, columns, inner;
};

ProductCut cut_product(std::size_t m, std::size_t n, std::size_t k) {
  constexpr double piece_work = 1 << 20;
  constexpr std::size_t most_pieces = 32, least_side = 256, least_inner = 1024;
  ProductCut cut{whole(m), whole(n), whole(k)};
  const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  if (work < 2 * piece_work) return cut;
  const std::size_t wanted = std::min(most_pieces, static_cast<std::size_t>(work / piece_work));
  for (;;) {
    Cut& longer = cut.rows.size >= cut.columns.size ? cut.rows : cut.columns;
    if (cut.rows.count * cut.columns.count >= wanted || longer.size < 2 * least_side) break;
    const std::size_t total = &longer == &cut.rows ? m : n;
    longer = cut_into(total, 2 * longer.count, 8);
  }
  if (cut.rows.count * cut.columns.count < 4 && k >= 2 * least_inner) {
    const std::size_t most_partials = 1 + most_partial_doubles / (m * n);
    cut = {whole(m), whole(n), cut_into(k, std::min({wanted, k / least_inner, most_partials}), 8)};
  }
  return cut;
}

}  // namespace

std::size_t gemm_scratch(std::size_t m, std::size_t n, std::size_t k) {
  return (cut_product(m, n, k).inner.count - 1) * m * n;
}

void gemm(bool ta, bool tb, std::size_t m, std::size_t n, std::size_t k, double alpha, const double* a, std::size_t lda,
          const double* b, std::size_t ldb, double beta, double* c, std::size_t ldc, double* scratch) {
  const ProductCut cut = cut_product(m, n, k);
  if (cut.inner.count > 1) {
    parallel_for(cut.inner.count, [&](std::size_t p) {
      const std::size_t k0 = cut.inner.begin(p);
      double* out = p == 0 ? c : scratch + (p - 1) * m * n;
      serial_gemm(ta, tb, m, n, cut.inner.length(p), alpha, a + (ta ? k0 * lda : k0), lda, b + (tb ? k0 : k0 * ldb), ldb,
                  p == 0 ? beta : 0, out, p == 0 ? ldc : n);
    });
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t p = 0; p + 1 < cut.inner.count; ++p) add_to(n, scratch + (p * m + i) * n, c + i * ldc);
    }
    return;
  }
  parallel_for(cut.rows.count * cut.columns.count, [&](std::size_t p) {
    const std::size_t i = p / cut.columns.count, j = p % cut.columns.count;
    const std::size_t i0 = cut.rows.begin(i), j0 = cut.columns.begin(j);
    serial_gemm(ta, tb, cut.rows.length(i), cut.columns.length(j), k, alpha, a + (ta ? i0 : i0 * lda), lda,
                b + (tb ? j0 * ldb : j0), ldb, beta, c + i0 * ldc + j0, ldc);
  });
}

}  // namespace onestep::cpu
