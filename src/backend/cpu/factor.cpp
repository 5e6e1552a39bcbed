// Factorisations, and what is done with them. LAPACK sees the transpose of a row-major matrix: the lower triangle of a
// symmetric one as the upper, and an LU of aᵀ, whose transposed solves are ours. Right-hand sides are rows to BLAS, so it
// solves from the right and they are never copied.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backend/cpu/blas.h"
#include "backend/cpu/cut.h"
#include "backend/cpu/dense.h"
#include "backend/cpu/pool.h"

namespace onestep::cpu {
namespace {

using blas::Diag;
using blas::Side;
using blas::Trans;
using blas::Uplo;

bool all_finite(std::size_t n, const double* x) {
  bool finite = true;
  for (std::size_t i = 0; i < n; ++i) finite &= std::fabs(x[i]) <= std::numeric_limits<double>::max();
  return finite;
}

bool finite_diagonal(std::size_t n, const double* a, std::size_t lda) {
  bool finite = true;
  for (std::size_t i = 0; i < n; ++i) finite &= std::isfinite(a[i * lda + i]);
  return finite;
}

/// LAPACK goes on past a NaN, which always reaches the diagonal.
bool serial_cholesky(std::size_t n, double* a, std::size_t lda) {
  return blas::potrf(Uplo::upper, n, a, lda) == 0 && finite_diagonal(n, a, lda);
}

/// Right-looking: factor a diagonal block, solve the panel below it, update the triangle behind it.
bool blocked_cholesky(std::size_t n, double* a) {
  constexpr std::size_t block = 128, panel_rows = 64, tile_side = 192;
  for (std::size_t k = 0; k < n; k += block) {
    const std::size_t width = std::min(block, n - k), behind = n - k - width;
    double* corner = a + k * n + k;
    if (!serial_cholesky(width, corner, n)) return false;
    if (behind == 0) break;
    double* panel = corner + width * n;
    const Cut rows = cut_into(behind, behind / panel_rows, 8);
    parallel_for(rows.count, [&](std::size_t p) {
      blas::trsm(Side::left, Uplo::upper, Trans::yes, Diag::stored, width, rows.length(p), corner, n,
                 panel + rows.begin(p) * n, n);
    });
    const Cut tiles = cut_into(behind, (behind + tile_side - 1) / tile_side, 8);
    parallel_for(tiles.count * (tiles.count + 1) / 2, [&](std::size_t t) {
      const auto [i, j] = triangle_tile(t, tiles.count);
      const double *left = panel + tiles.begin(i) * n, *right = panel + tiles.begin(j) * n;
      double* out = panel + width + tiles.begin(i) * n + tiles.begin(j);
      if (i == j) {
        blas::syrk(Uplo::upper, Trans::yes, tiles.length(i), width, -1, left, n, 1, out, n);
      } else {
        blas::gemm(Trans::yes, Trans::no, tiles.length(j), tiles.length(i), width, -1, right, n, left, n, 1, out, n);
      }
    });
  }
  return true;
}

/// Bunch-Kaufman, aᵀ = u d uᵀ. Afterwards (as LAPACK's dsyconv does) the row exchanges are applied to all of u, which makes
/// it a triangle BLAS can solve with; the off-diagonal entry of a 2 x 2 block of d moves to the unused triangle.
bool symmetric_indefinite(std::size_t n, double* a, int* pivots, double* scratch) {
  for (std::size_t i = 0; i < n; ++i) {
    if (!all_finite(i + 1, a + i * n)) return false;
  }
  if (blas::sytrf(Uplo::upper, n, a, n, pivots, scratch, factor_scratch(FactorKind::ldlt, n)) != 0) return false;
  if (!finite_diagonal(n, a, n)) return false;
  for (std::size_t end = n; end > 0;) {
    const std::size_t i = end - 1;
    const bool two = pivots[i] < 0;
    const std::size_t moved = two ? i - 1 : i;
    const std::size_t with = static_cast<std::size_t>(std::abs(pivots[i])) - 1;
    if (two) a[(i - 1) * n + i] = std::exchange(a[i * n + i - 1], 0.0);
    for (std::size_t j = i + 1; j < n; ++j) std::swap(a[j * n + moved], a[j * n + with]);
    end = moved;
  }
  return true;
}

/// aᵀ = p l u. A NaN that LAPACK would search for a pivot in could name any row, so none may be there; what overflows on the
/// way ends on the diagonal.
bool general(std::size_t n, double* a, int* pivots) {
  if (!all_finite(n * n, a)) return false;
  return blas::getrf(n, a, n, pivots) == 0 && finite_diagonal(n, a, n);
}

/// Makes every result NaN, and the pivots safe to follow.
void spoil(FactorKind kind, std::size_t n, double* a, int* pivots) {
  std::fill_n(a, n * n, std::numeric_limits<double>::quiet_NaN());
  if (kind == FactorKind::cholesky) return;
  for (std::size_t i = 0; i < n; ++i) pivots[i] = static_cast<int>(i) + 1;
}

/// Columns [0, width) of a row-major b with `stride` columns.
struct Columns {
  double* b;
  std::size_t width, stride;

  double* row(std::size_t i) const { return b + i * stride; }
  void exchange(std::size_t i, std::size_t j) const {
    if (i != j) std::swap_ranges(row(i), row(i) + width, row(j));
  }
};

/// b = op(t)⁻¹ b for a triangle t as column-major BLAS sees it.
void solve_triangle(Uplo uplo, Trans trans, Diag diag, std::size_t n, const double* t, const Columns& x) {
  if (x.stride == 1) {
    blas::trsv(uplo, trans, diag, n, t, n, x.b);
  } else {
    const Trans other = trans == Trans::yes ? Trans::no : Trans::yes;
    blas::trsm(Side::right, uplo, other, diag, x.width, n, t, n, x.b, x.stride);
  }
}

void solve_cholesky(std::size_t n, const double* factor, const Columns& x) {
  solve_triangle(Uplo::upper, Trans::yes, Diag::stored, n, factor, x);
  solve_triangle(Uplo::upper, Trans::no, Diag::stored, n, factor, x);
}

void solve_lu(bool transposed, std::size_t n, const double* factor, const int* pivots, const Columns& x) {
  const auto pivot = [&](std::size_t i) { return static_cast<std::size_t>(pivots[i]) - 1; };
  if (transposed) {
    for (std::size_t i = 0; i < n; ++i) x.exchange(i, pivot(i));
    solve_triangle(Uplo::lower, Trans::no, Diag::unit, n, factor, x);
    solve_triangle(Uplo::upper, Trans::no, Diag::stored, n, factor, x);
  } else {
    solve_triangle(Uplo::upper, Trans::yes, Diag::stored, n, factor, x);
    solve_triangle(Uplo::lower, Trans::yes, Diag::unit, n, factor, x);
    for (std::size_t i = n; i-- > 0;) x.exchange(i, pivot(i));
  }
}

/// x = d⁻¹ x for the block of d that ends at row i: [[p, q], [q, r]], divided by q first as LAPACK does, which is its
/// largest entry or nearly so.
void solve_two_by_two(std::size_t n, const double* factor, std::size_t i, const Columns& x) {
  const double q = factor[(i - 1) * n + i], p = factor[(i - 1) * n + i - 1] / q, r = factor[i * n + i] / q;
  const double scale = 1 / (q * (p * r - 1));
  double *upper = x.row(i - 1), *lower = x.row(i);
  for (std::size_t j = 0; j < x.width; ++j) {
    const double u = upper[j], v = lower[j];
    upper[j] = (r * u - v) * scale;
    lower[j] = (p * v - u) * scale;
  }
}

void solve_ldlt(std::size_t n, const double* factor, const int* pivots, const Columns& x) {
  const auto pivot = [&](std::size_t i) { return static_cast<std::size_t>(std::abs(pivots[i])) - 1; };
  for (std::size_t end = n; end > 0;) {
    const std::size_t i = end - 1, moved = pivots[i] < 0 ? i - 1 : i;
    x.exchange(moved, pivot(i));
    end = moved;
  }
  solve_triangle(Uplo::upper, Trans::no, Diag::unit, n, factor, x);
  for (std::size_t i = 0; i < n; ++i) {
    if (pivots[i] < 0) {
      solve_two_by_two(n, factor, ++i, x);
    } else {
      for (std::size_t j = 0; j < x.width; ++j) x.row(i)[j] /= factor[i * n + i];
    }
  }
  solve_triangle(Uplo::upper, Trans::yes, Diag::unit, n, factor, x);
  for (std::size_t i = 0; i < n; ++i) {
    const bool two = pivots[i] < 0;
    x.exchange(i, pivot(i));
    if (two) ++i;
  }
}

}  // namespace

std::size_t factor_scratch(FactorKind kind, std::size_t n) {
  constexpr std::size_t sytrf_block = 64;
  return kind == FactorKind::ldlt ? std::max<std::size_t>(n * sytrf_block, 1) : 0;
}

bool factor(FactorKind kind, std::size_t n, double* a, int* pivots, double* scratch) {
  constexpr std::size_t blocked_from = 512;
  if (n == 0) return true;
  bool done = false;
  switch (kind) {
    case FactorKind::cholesky: done = n < blocked_from ? serial_cholesky(n, a, n) : blocked_cholesky(n, a); break;
    case FactorKind::lu: done = general(n, a, pivots); break;
    case FactorKind::ldlt: done = symmetric_indefinite(n, a, pivots, scratch); break;
  }
  if (!done) spoil(kind, n, a, pivots);
  return done;
}

void solve(FactorKind kind, bool transposed, std::size_t n, const double* factor, const int* pivots, double* b,
           std::size_t nrhs) {
  constexpr std::size_t least_width = 16, most_pieces = 32;
  constexpr double piece_work = 1 << 20;
  if (n == 0 || nrhs == 0) return;
  const double work = static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(nrhs);
  const std::size_t wanted = work < 2 * piece_work ? 1 : std::min(most_pieces, nrhs / least_width);
  const Cut cut = cut_into(nrhs, wanted, 8);
  parallel_for(cut.count, [&](std::size_t p) {
    const Columns x{b + cut.begin(p), cut.length(p), nrhs};
    switch (kind) {
      case FactorKind::cholesky: solve_cholesky(n, factor, x); break;
      case FactorKind::lu: solve_lu(transposed, n, factor, pivots, x); break;
      case FactorKind::ldlt: solve_ldlt(n, factor, pivots, x); break;
    }
  });
}

double logdet(FactorKind kind, std::size_t n, const double* factor, const int* pivots) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (kind == FactorKind::ldlt && pivots[i] < 0) {
      const double q = factor[i * n + i + 1], p = factor[i * n + i] / q, r = factor[(i + 1) * n + i + 1] / q;
      sum += 2 * std::log(std::fabs(q)) + std::log(std::fabs(p * r - 1));
      ++i;
    } else {
      sum += std::log(std::fabs(factor[i * n + i]));
    }
  }
  return kind == FactorKind::cholesky ? 2 * sum : sum;
}

}  // namespace onestep::cpu
