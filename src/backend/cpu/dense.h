// Dense row-major kernels on BLAS and LAPACK. BLAS runs on one thread (hold a BlasSerial around them); large work is cut
// here, by its shape alone, so that the bits of a result are the same for any number of threads. Nothing allocates:
// `scratch` holds as many doubles as the *_scratch function of the same shape says (it may be null where that is 0). NaN and
// infinity are carried, and any size may be 0. Matrices are packed: a row begins where the one before ends.
#pragma once

#include "backend/cpu/sizes.h"
#include "graph/op.h"

namespace onestep::cpu {

/// c (m x n) = op(a) op(b), where op(a) is m x k and op(b) is k x n.
void gemm(bool ta, bool tb, size_t m, size_t n, size_t k, const double* a, const double* b, double* c, double* scratch);
size_t gemm_scratch(size_t m, size_t n, size_t k);

/// How the rows of a symmetric product aᵀ diag(d) a are cut, `block_rows` being taken at a time. With large n there is one
/// chunk, whose blocks all threads share; otherwise each has a result of its own, to be added in the order of the chunks.
struct RowCut {
  Cut chunks;
  size_t block_rows;
  bool tiled;
};
RowCut row_cut(size_t rows, size_t n);

/// Lower triangle of c += aᵀ diag(d) a (a is rows x n, d has any signs, null: ones), by tiles of c for large n. `scratch`
/// has panels_size(rows, n).
void gram(size_t rows, size_t n, const double* a, const double* d, double* c, double* scratch);
/// Copies the lower triangle of c to the upper one.
void mirror_lower(size_t n, double* c);

/// Factors the n x n matrix in `a` in place by Op::cholesky, lu or ldlt; cholesky and ldlt read its lower triangle only.
/// `pivots` has n entries (unused, may be null, for cholesky). False when the matrix is not positive definite (cholesky),
/// exactly singular, or not finite: the factor is then filled so that every solve and logdet with it gives NaN.
bool factor(Op kind, size_t n, double* a, int* pivots, double* scratch);
size_t factor_scratch(Op kind, size_t n);

/// b (n x nrhs) = a⁻¹ b, or a⁻ᵀ b when `transposed`.
void solve(Op kind, bool transposed, size_t n, const double* factor, const int* pivots, double* b, size_t nrhs);

/// log |det a|.
double logdet(Op kind, size_t n, const double* factor, const int* pivots);

/// det a of an n x n matrix; 0 where it is exactly singular, NaN where it is not finite. `scratch` holds a factor.
double determinant(size_t n, const double* a, double* scratch);

}  // namespace onestep::cpu
