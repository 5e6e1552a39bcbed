// Products of a tile of rows of a tall matrix with few columns, and factorisations of the small matrices that come out of
// them: n up to about 24, where the overhead of a BLAS call is most of its time.
//
// A tile is packed first: column j of the tile is contiguous at packed + j * stride, stride >= rows. Sizes may be anything,
// zero included; pointers need no alignment. Fastest: packed 64-byte aligned, stride a multiple of 8 but not of 256, where
// the columns compete for the same lines of the cache (packing 256 x 24 takes twice as long with stride 256 as with 264).
#pragma once

#include <cstddef>

namespace onestep::cpu {

// packed[j * stride + i] = a[i * lda + j]
void pack_rows(const double* a, std::size_t lda, std::size_t rows, std::size_t n, double* packed, std::size_t stride);

// out_i = sum_j a_ij x_j; out has `rows` entries and is overwritten (with zeros when n == 0).
void packed_matvec(const double* packed, std::size_t stride, std::size_t rows, std::size_t n, const double* x, double* out);

// out_j += sum_i a_ij r_i
void packed_tmatvec(const double* packed, std::size_t stride, std::size_t rows, std::size_t n, const double* r, double* out);

// c[j * ldc + k] += sum_i d_i a_ij a_ik for k <= j; the rest of c is left alone. d == nullptr stands for ones.
void packed_gram(const double* packed, std::size_t stride, std::size_t rows, std::size_t n, const double* d, double* c,
                 std::size_t ldc);

// The largest n of the two functions below. Above about 24 BLAS is the better choice.
inline constexpr std::size_t max_small_n = 32;

// Cholesky factor of the lower triangle of a row-major matrix, in place; the upper triangle is neither read nor written.
// False when the matrix is not positive definite or holds a NaN or an infinity; the lower triangle is then unspecified.
bool small_cholesky(double* a, std::size_t n, std::size_t lda);

// b = (L Lᵀ)⁻¹ b, L as small_cholesky left it.
void small_cholesky_solve(const double* l, std::size_t n, std::size_t lda, double* b);

}  // namespace onestep::cpu
