// Products with a matrix and with a vector. Row-major to BLAS means transposed: a row-major m x n matrix is a column-major n
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

void scale_vector(std::size_t n, double beta, double* y) {
  if (beta == 0) {
    std::fill_n(y, n, 0.0);
  } else if (beta != 1) {
    for (std::size_t i = 0; i < n; ++i) y[i] *= beta;
  }
}

void add_to(std::size_t n, const double* __restrict x, double* __restrict y) {
  for (std::size_t i = 0; i < n; ++i) y[i] += x[i];
}

void serial_gemm(bool ta, bool tb, std::size_t m, std::size_t n, std::size_t k, double alpha, const double* a,
                 std::size_t lda, const double* b, std::size_t ldb, double beta, double* c, std::size_t ldc) {
  blas::gemm(trans(tb), trans(ta), n, m, k, alpha, b, ldb, a, lda, beta, c, ldc);
}

/// y += alpha op(a) x
void serial_gemv(bool ta, std::size_t m, std::size_t n, double alpha, const double* a, std::size_t lda, const double* x,
                 double* y) {
  if (m > 0 && n > 0) blas::gemv(trans(!ta), n, m, alpha, a, lda, x, 1, y);
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

struct VectorCut {
  Cut rows, columns;
};

/// A transposed product of many rows and few columns needs a partial result for each piece of rows but the first.
VectorCut cut_vector_product(bool ta, std::size_t m, std::size_t n) {
  constexpr std::size_t piece_size = std::size_t{1} << 15, most_pieces = 32, wide = 2048;
  VectorCut cut{whole(m), whole(n)};
  if (m == 0 || n == 0 || m < 2 * piece_size / n) return cut;
  const std::size_t wanted = std::min(most_pieces, (m / piece_size) * n + (m % piece_size) * n / piece_size);
  if (ta && n >= wide) {
    cut.columns = cut_into(n, std::min(wanted, n / (wide / 4)), 8);
  } else if (ta) {
    cut.rows = cut_into(m, std::min({wanted, std::max<std::size_t>(m / n, 1), std::size_t{16}}), 8);
  } else {
    cut.rows = cut_into(m, wanted, 8);
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

std::size_t gemv_scratch(bool ta, std::size_t m, std::size_t n) {
  return ta ? (cut_vector_product(ta, m, n).rows.count - 1) * n : 0;
}

void gemv(bool ta, std::size_t m, std::size_t n, double alpha, const double* a, std::size_t lda, const double* x,
          double beta, double* y, double* scratch) {
  const VectorCut cut = cut_vector_product(ta, m, n);
  if (!ta) {
    parallel_for(cut.rows.count, [&](std::size_t p) {
      const std::size_t i0 = cut.rows.begin(p);
      scale_vector(cut.rows.length(p), beta, y + i0);
      serial_gemv(ta, cut.rows.length(p), n, alpha, a + i0 * lda, lda, x, y + i0);
    });
    return;
  }
  parallel_for(cut.rows.count * cut.columns.count, [&](std::size_t p) {
    const std::size_t i = p / cut.columns.count, j = p % cut.columns.count;
    const std::size_t i0 = cut.rows.begin(i), j0 = cut.columns.begin(j), width = cut.columns.length(j);
    double* out = i == 0 ? y + j0 : scratch + (i - 1) * n;
    scale_vector(width, i == 0 ? beta : 0, out);
    serial_gemv(ta, cut.rows.length(i), width, alpha, a + i0 * lda + j0, lda, x + i0, out);
  });
  for (std::size_t p = 0; p + 1 < cut.rows.count; ++p) add_to(n, scratch + p * n, y);
}

}  // namespace onestep::cpu
