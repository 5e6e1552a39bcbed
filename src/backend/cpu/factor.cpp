// Factorisations, and what is done with them. LAPACK sees the transpose of a row-major matrix: the lower triangle of a
// symmetric one as the upper, and an LU of aᵀ, whose transposed solves are ours. Right-hand sides are rows to BLAS, so it
// solves from the right and they are never copied.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backend/cpu/blas.h"
#include "backend/cpu/dense.h"
#include "backend/cpu/small_lu.h"
#include "backend/cpu/tile_kernels.h"
#include "parallel/pool.h"

namespace onestep::cpu {
namespace {

using blas::Diag;
using blas::Side;
using blas::Trans;
using blas::Uplo;

bool all_finite(size_t n, const double* x, size_t step = 1) {
  bool finite = true;
  for (size_t i = 0; i < n; ++i) finite &= std::fabs(x[i * step]) <= std::numeric_limits<double>::max();
  return finite;
}

/// Columns of a Cholesky factor made at once; few while the matrix is in the second cache anyway.
size_t cholesky_block(size_t n) { return n <= 320 ? gram_tile_columns : 4 * gram_tile_columns; }

size_t cholesky_scratch(size_t n) {
  if (n <= max_small_n) return 0;
  const size_t block = cholesky_block(n);
  return block * block + panels_size(block, n) + cholesky_scratch(block);
}

/// Right-looking: factor a diagonal block, solve the panel below it, update the triangle behind it.
bool cholesky(size_t n, double* a, double* scratch) {
  static_assert(gram_tile_columns <= max_small_n);
  constexpr size_t side = 5 * gram_tile_columns, least_rows = 4 * gram_tile_columns;
  const TileKernels& kernels = tile_kernels();
  if (n <= max_small_n) return kernels.cholesky(a, n);
  const size_t block = cholesky_block(n);
  double *corner = scratch, *panels = corner + block * block, *rest = panels + panels_size(block, n);
  for (size_t k = 0; k < n; k += block) {
    const size_t width = std::min(block, n - k), next = k + width;
    for (size_t i = 0; i < width; ++i) std::copy_n(a + (k + i) * n + k, i + 1, corner + i * width);
    if (!cholesky(width, corner, rest)) return false;
    for (size_t i = 0; i < width; ++i) std::copy_n(corner + i * width, i + 1, a + (k + i) * n + k);
    const Cut rows = cut_into(n - next, (n - next) / least_rows, gram_tile_columns);
    parallel_for(rows.count, [&](size_t p) {
      kernels.panels_solve(width, corner, next + rows.begin(p), next + rows.end(p), n, a + k, panels);
    });
    const Cut sides{n - next, side, (n - next + side - 1) / side};
    parallel_for(sides.count * (sides.count + 1) / 2, [&](size_t t) {
      const auto [i, j] = triangle_tile(t, sides.count);
      kernels.panels_gram(width, 0, n, panels, next + sides.begin(i), next + sides.end(i), next + sides.begin(j),
                          next + sides.end(j), a);
    });
  }
  return true;
}

/// aᵀ = p l u. A NaN that LAPACK would search for a pivot in could name any row, so none may be there; what overflows on the
/// way ends on the diagonal.
bool general(size_t n, double* a, int* pivots) {
  if (!all_finite(n * n, a)) return false;
  if (n <= max_small_lu) return small_lu(n, a, pivots) && all_finite(n, a, n + 1);
  int info = 0;
  blas::dgetrf_(n, n, a, n, pivots, info);
  return info == 0 && all_finite(n, a, n + 1);
}

/// Bunch-Kaufman, aᵀ = u d uᵀ. Afterwards (as LAPACK's dsyconv does) the row exchanges are applied to all of u, which makes
/// it a triangle BLAS can solve with; the off-diagonal entry of a 2 x 2 block of d moves to the unused triangle.
bool symmetric_indefinite(size_t n, double* a, int* pivots, double* scratch) {
  for (size_t i = 0; i < n; ++i)
    if (!all_finite(i + 1, a + i * n)) return false;
  int info = 0;
  blas::dsytrf_(Uplo::upper, n, a, n, pivots, scratch, factor_scratch(Op::ldlt, n), info);
  if (info != 0 || !all_finite(n, a, n + 1)) return false;
  for (size_t i = n; i-- > 0;) {
    const size_t with = static_cast<size_t>(std::abs(pivots[i])) - 1, row = i;
    if (pivots[i] < 0) {
      --i;
      a[i * n + row] = std::exchange(a[row * n + i], 0.0);
    }
    for (size_t j = row + 1; j < n; ++j) std::swap(a[j * n + i], a[j * n + with]);
  }
  return true;
}

/// A factor, and columns [0, width) of right-hand sides with `stride` columns, to be solved in place.
struct Solve {
  size_t n;
  const double* factor;
  const int* pivots;
  double* b;
  size_t width, stride;

  double* row(size_t i) const { return b + i * stride; }
  void exchange(size_t i, int pivot) const {
    const size_t j = static_cast<size_t>(std::abs(pivot)) - 1;
    if (i != j) std::swap_ranges(row(i), row(i) + width, row(j));
  }

  /// b = op(t)⁻¹ b for a triangle t of the factor as column-major BLAS sees it.
  void triangle(Uplo uplo, Trans trans, Diag diag) const {
    const Trans other = trans == Trans::yes ? Trans::no : Trans::yes;
    if (stride == 1)
      blas::dtrsv_(uplo, trans, diag, n, factor, n, b, 1);
    else
      blas::dtrsm_(Side::right, uplo, other, diag, width, n, 1.0, factor, n, b, stride);
  }

  void cholesky() const {
    triangle(Uplo::upper, Trans::yes, Diag::stored);
    triangle(Uplo::upper, Trans::no, Diag::stored);
  }

  void lu(bool transposed) const {
    if (transposed) {
      for (size_t i = 0; i < n; ++i) exchange(i, pivots[i]);
      triangle(Uplo::lower, Trans::no, Diag::unit);
      triangle(Uplo::upper, Trans::no, Diag::stored);
    } else {
      triangle(Uplo::upper, Trans::yes, Diag::stored);
      triangle(Uplo::lower, Trans::yes, Diag::unit);
      for (size_t i = n; i-- > 0;) exchange(i, pivots[i]);
    }
  }

  /// d⁻¹ for the block [[p, q], [q, r]] that begins at row i, divided by q first as LAPACK does, which is its largest entry
  /// or nearly so.
  void two_by_two(size_t i) const {
    const double q = factor[i * n + i + 1], p = factor[i * n + i] / q, r = factor[(i + 1) * n + i + 1] / q;
    const double scale = 1 / (q * (p * r - 1));
    for (size_t j = 0; j < width; ++j) {
      const double u = row(i)[j], v = row(i + 1)[j];
      row(i)[j] = (r * u - v) * scale;
      row(i + 1)[j] = (p * v - u) * scale;
    }
  }

  void ldlt() const {
    for (size_t i = n; i-- > 0;) {
      const int pivot = pivots[i];
      if (pivot < 0) --i;
      exchange(i, pivot);
    }
    triangle(Uplo::upper, Trans::no, Diag::unit);
    for (size_t i = 0; i < n; ++i) {
      if (pivots[i] < 0)
        two_by_two(i++);
      else
        for (size_t j = 0; j < width; ++j) row(i)[j] /= factor[i * n + i];
    }
    triangle(Uplo::upper, Trans::yes, Diag::unit);
    for (size_t i = 0; i < n; ++i) {
      exchange(i, pivots[i]);
      if (pivots[i] < 0) ++i;
    }
  }
};

}  // namespace

size_t factor_scratch(Op kind, size_t n) {
  constexpr size_t sytrf_block = 64;
  if (kind == Op::cholesky) return cholesky_scratch(n);
  return kind == Op::ldlt ? std::max<size_t>(n * sytrf_block, 1) : 0;
}

bool factor(Op kind, size_t n, double* a, int* pivots, double* scratch) {
  if (n == 0) return true;
  if (kind == Op::cholesky ? cholesky(n, a, scratch)
      : kind == Op::lu     ? general(n, a, pivots)
                           : symmetric_indefinite(n, a, pivots, scratch))
    return true;
  std::fill_n(a, n * n, std::numeric_limits<double>::quiet_NaN());
  for (size_t i = 0; kind != Op::cholesky && i < n; ++i) pivots[i] = static_cast<int>(i) + 1;  // safe to follow
  return false;
}

void solve(Op kind, bool transposed, size_t n, const double* factor, const int* pivots, double* b, size_t nrhs) {
  constexpr size_t least_width = 16, most_pieces = 32;
  constexpr double piece_work = 1 << 20;
  if (n == 0 || nrhs == 0) return;
  if (kind == Op::cholesky && n <= max_small_n && nrhs == 1) return tile_kernels().cholesky_solve(factor, n, b);
  if (kind == Op::lu && n <= max_small_lu && nrhs == 1) return small_lu_solve(transposed, n, factor, pivots, b);
  const double work = static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(nrhs);
  const Cut cut = cut_into(nrhs, work < 2 * piece_work ? 1 : std::min(most_pieces, nrhs / least_width));
  parallel_for(cut.count, [&](size_t p) {
    const Solve part{n, factor, pivots, b + cut.begin(p), cut.length(p), nrhs};
    if (kind == Op::cholesky)
      part.cholesky();
    else if (kind == Op::lu)
      part.lu(transposed);
    else
      part.ldlt();
  });
}

double logdet(Op kind, size_t n, const double* factor, const int* pivots) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    if (kind == Op::ldlt && pivots[i] < 0) {
      const double q = factor[i * n + i + 1], p = factor[i * n + i] / q, r = factor[(i + 1) * n + i + 1] / q;
      sum += 2 * std::log(std::fabs(q)) + std::log(std::fabs(p * r - 1));
      ++i;
    } else {
      sum += std::log(std::fabs(factor[i * n + i]));
    }
  }
  return kind == Op::cholesky ? 2 * sum : sum;
}

double determinant(size_t n, const double* a, double* scratch) {
  if (!all_finite(n * n, a)) return std::numeric_limits<double>::quiet_NaN();
  const auto pivots = reinterpret_cast<int*>(scratch + n * n);
  // Elimination fails where a pivot is zero; or because it overflowed, hence a second time with room for that.
  for (const int scale : {0, -64}) {
    for (size_t i = 0; i < n * n; ++i) scratch[i] = std::ldexp(a[i], scale);
    if (!factor(Op::lu, n, scratch, pivots, nullptr)) continue;
    double product = 1;  // times 2^exponent: partial products may leave the range where the determinant does not
    std::int64_t exponent = -scale * static_cast<std::int64_t>(n);
    for (size_t i = 0; i < n; ++i) {
      const double pivot = scratch[i * n + i];
      int of_pivot = 0, of_product = 0;
      const double mantissa = std::frexp(pivots[i] != static_cast<int>(i) + 1 ? -pivot : pivot, &of_pivot);
      product = std::frexp(product * mantissa, &of_product);
      exponent += of_pivot + of_product;
    }
    return std::ldexp(product, static_cast<int>(std::clamp<std::int64_t>(exponent, -4000, 4000)));
  }
  return 0;
}

}  // namespace onestep::cpu
