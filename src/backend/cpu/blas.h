// BLAS and LAPACK through the plain Fortran ABI, so that OpenBLAS, MKL or BLIS can stand behind it. Fortran takes everything
// by address, which is what a reference is: a number may be written where a reference stands. Matrices are column-major.
#pragma once

#include <climits>
#include <cstddef>

#include "backend/cpu/sizes.h"
#include "parallel/blas_name.h"
#include "parallel/blas_threads.h"

namespace onestep::cpu {

/// Whether a dimension can be given to BLAS. Whoever plans a computation checks; what follows does not.
constexpr bool fits_blas(size_t size) { return size <= static_cast<size_t>(INT_MAX); }

namespace blas {

enum class Trans : char { no = 'N', yes = 'T' };
enum class Side : char { left = 'L', right = 'R' };
enum class Uplo : char { lower = 'L', upper = 'U' };
enum class Diag : char { unit = 'U', stored = 'N' };

struct Size {
  int value;
  Size(size_t n) : value(static_cast<int>(n)) {}
};
/// BLAS rejects a leading dimension of 0.
struct Stride {
  int value;
  Stride(size_t n) : value(n == 0 ? 1 : static_cast<int>(n)) {}
};

/// Fortran passes the length of each character argument behind all others (as gfortran does since version 8): a LAPACK
/// written in Fortran may read them.
using Length = std::size_t;

extern "C" {
void dgemm_(const Trans& ta, const Trans& tb, const Size& m, const Size& n, const Size& k, const double& alpha,
            const double* a, const Stride& lda, const double* b, const Stride& ldb, const double& beta, double* c,
            const Stride& ldc, Length = 1, Length = 1) ONESTEP_BLAS_NAME(dgemm_);
void dgemv_(const Trans& t, const Size& m, const Size& n, const double& alpha, const double* a, const Stride& lda,
            const double* x, const Stride& incx, const double& beta, double* y, const Stride& incy, Length = 1)
    ONESTEP_BLAS_NAME(dgemv_);
void dtrsm_(const Side& side, const Uplo& uplo, const Trans& t, const Diag& diag, const Size& m, const Size& n,
            const double& alpha, const double* a, const Stride& lda, double* b, const Stride& ldb, Length = 1, Length = 1,
            Length = 1, Length = 1) ONESTEP_BLAS_NAME(dtrsm_);
void dtrsv_(const Uplo& uplo, const Trans& t, const Diag& diag, const Size& n, const double* a, const Stride& lda, double* x,
            const Stride& incx, Length = 1, Length = 1, Length = 1) ONESTEP_BLAS_NAME(dtrsv_);
void dgetrf_(const Size& m, const Size& n, double* a, const Stride& lda, int* pivots, int& info) ONESTEP_BLAS_NAME(dgetrf_);
void dsytrf_(const Uplo& uplo, const Size& n, double* a, const Stride& lda, int* pivots, double* work, const Size& lwork,
             int& info, Length = 1) ONESTEP_BLAS_NAME(dsytrf_);
}

}  // namespace blas

}  // namespace onestep::cpu
