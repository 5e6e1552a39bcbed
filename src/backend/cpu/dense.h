// Dense row-major kernels on BLAS and LAPACK. BLAS runs on one thread (hold a BlasSerial around them); large work is cut
// here, by its shape alone, so that the bits of a result are the same for any number of threads. Nothing allocates:
// `scratch` holds as many doubles as the *_scratch function of the same shape says (it may be null where that is 0). NaN and
// infinity are carried, and any size may be 0.
#pragma once

#include <cstddef>

namespace onestep::cpu {

/// c (m x n) = alpha op(a) op(b) + beta c, where op(a) is m x k and op(b) is k x n. With beta = 0, c is not read.
void gemm(bool ta, bool tb, std::size_t m, std::size_t n, std::size_t k, double alpha, const double* a, std::size_t lda,
          const double* b, std::size_t ldb, double beta, double* c, std::size_t ldc, double* scratch);
std::size_t gemm_scratch(std::size_t m, std::size_t n, std::size_t k);

// A symmetric product c = aᵀ diag(d) a (a is rows x n, d has any signs, null: ones) in the pieces a row loop needs.

/// How gram cuts its rows, a function of the shape. Not tiled: `chunks` independent runs of `chunk_rows` rows (the last may
/// be shorter), each with an n x n partial result, added in the order of the chunks.
/// Tiled (large n): one chunk; each block is shared by all threads, which update tiles of c.
/// Within a chunk the rows are taken `block_rows` at a time.
struct RowCut {
  bool tiled;
  std::size_t chunks;
  std::size_t chunk_rows;
  std::size_t block_rows;
};
RowCut row_cut(std::size_t rows, std::size_t n);

/// One thread: lower triangle of c = aᵀ diag(d) a + beta c. `scaled` has room for rows x n doubles.
/// With beta = 0, c is not read.
void gram_block(std::size_t rows, std::size_t n, const double* a, std::size_t lda, const double* d, double beta, double* c,
                std::size_t ldc, double* scaled);

/// The same with all threads, for large n: the copy cut by rows, the update by tiles of c.
void parallel_gram_block(std::size_t rows, std::size_t n, const double* a, std::size_t lda, const double* d, double beta,
                         double* c, std::size_t ldc, double* scaled);

/// c += the lower triangles of partials[0], ..., partials[count - 1] (each n x n, packed), in that order.
void add_partials(std::size_t count, std::size_t n, const double* partials, double* c, std::size_t ldc);
/// Copies the lower triangle of c to the upper one.
void mirror_lower(std::size_t n, double* c, std::size_t ldc);

enum class FactorKind { cholesky, lu, ldlt };

/// Factors the n x n matrix in `a` in place; cholesky and ldlt read its lower triangle only. `pivots` has n entries (unused,
/// may be null, for cholesky). False when the matrix is not positive definite (cholesky), exactly singular, or not finite:
/// the factor is then filled so that every solve and logdet with it gives NaN.
bool factor(FactorKind kind, std::size_t n, double* a, int* pivots, double* scratch);
std::size_t factor_scratch(FactorKind kind, std::size_t n);

/// b (n x nrhs, row-major, packed) = a⁻¹ b, or a⁻ᵀ b when `transposed`.
void solve(FactorKind kind, bool transposed, std::size_t n, const double* factor, const int* pivots, double* b,
           std::size_t nrhs);

/// log |det a|.
double logdet(FactorKind kind, std::size_t n, const double* factor, const int* pivots);

}  // namespace onestep::cpu
