// What is done with a tile, a run of rows short enough to stay in cache: elementwise operations, reductions, products; and
// factorisations of the small matrices that come out of them. Compiled for several instruction sets and chosen for the CPU
// at run time. Sizes may be anything, zero included, and pointers need no alignment.
#pragma once

#include "backend/cpu/sizes.h"
#include "graph/op.h"

namespace onestep::cpu {

/// An argument of a tile kernel: n entries, or one that stands for all of them.
struct Operand {
  const double* data;
  bool scalar;
};

/// out[i] = op(args[0][i], ...). `out` may be one of the non-scalar arguments itself; any other overlap is an error. NaN and
/// infinities come out as the table's scalar value gives them.
using TileKernel = void (*)(const Operand* args, double* out, size_t n);

/// Columns of a product of panels are cut at multiples of this.
inline constexpr size_t gram_tile_columns = 24;
constexpr size_t panels_size(size_t rows, size_t n) { return rows * padded(n); }
/// How many of d[0], ..., d[rows - 1] are < 0; d may be null (ones).
inline size_t count_negative(size_t rows, const double* d) {
  return d == nullptr ? 0 : static_cast<size_t>(std::count_if(d, d + rows, [](double x) { return x < 0; }));
}

/// The largest n of the small factorisations: up to here they are faster than LAPACK.
inline constexpr size_t max_small_n = 24;

struct TileKernels {
  /// The kernel of an elementwise operation; nullptr for any other operation.
  TileKernel (*elementwise)(Op op);

  /// The order of addition depends on n and the CPU alone, so that the same tile gives the same bits.
  double (*sum)(const double* x, size_t n);
  double (*dot)(const double* x, const double* y, size_t n);
  /// The largest entry; NaN if any is, -inf when there is none.
  double (*max)(const double* x, size_t n);
  /// y += alpha x
  void (*axpy)(double alpha, const double* x, double* y, size_t n);

  // Products with a small tile, row-major.

  /// out_i = sum_j a_ij x_j
  void (*row_matvec)(const double* a, size_t rows, size_t n, const double* x, double* out);
  /// out_j += sum_i a_ij r_i
  void (*row_tmatvec)(const double* a, size_t rows, size_t n, const double* r, double* out);

  // Products with a tile of few columns, each contiguous: column j at a + j * stride. Fastest: stride a multiple of 8 but
  // not of 256, where the columns compete for the same lines of the cache.

  /// out_i = sum_j a_ij x_j
  void (*matvec)(const double* a, size_t stride, size_t rows, size_t n, const double* x, double* out);
  /// out_j += sum_i a_ij r_i
  void (*tmatvec)(const double* a, size_t stride, size_t rows, size_t n, const double* r, double* out);
  /// Lower triangle of c (n x n) += aᵀ diag(d) a; d == nullptr stands for ones.
  void (*gram)(const double* a, size_t stride, size_t rows, size_t n, const double* d, double* c);

  // The same product for any number of columns. The tile, row-major, is first packed into panels of a few columns, the last
  // filled up with zeros; its rows are scaled by sqrt|d|, and those with d < 0 come last. OpenBLAS would pack for every part
  // of c.

  /// Packs rows [begin, end) of a tile of `rows` x n.
  void (*pack)(size_t begin, size_t end, size_t rows, size_t n, const double* a, const double* d, double* panels);
  /// The part of the lower triangle of c (n x n) += aᵀ diag(d) a in rows [i0, i1) and columns [j0, j1) of c, which begin and
  /// end at multiples of gram_tile_columns or at n. The first `positive` packed rows count as +, the others as -.
  void (*panels_gram)(size_t rows, size_t positive, size_t n, const double* panels, size_t i0, size_t i1, size_t j0,
                      size_t j1, double* c);

  /// Rows [begin, end) of `a` (row-major, n to a row, n rows in all) in its first `width` columns become a l⁻ᵀ, l being a
  /// lower triangle (width x width), and are packed: as columns of panels of `width` rows. `begin` is a multiple of 8.
  void (*panels_solve)(size_t width, const double* l, size_t begin, size_t end, size_t n, double* a, double* panels);

  /// Cholesky factor L of the lower triangle of a row-major matrix, in place; the upper triangle is not read, and becomes
  /// Lᵀ. False when the matrix is not positive definite or holds a NaN or an infinity; the matrix is then unspecified.
  bool (*cholesky)(double* a, size_t n);
  /// b = (L Lᵀ)⁻¹ b, L as cholesky left it.
  void (*cholesky_solve)(const double* l, size_t n, double* b);
};

/// Those for this CPU. Ask once, when planning.
const TileKernels& tile_kernels();

}  // namespace onestep::cpu
