// BLAS and LAPACK through the plain Fortran ABI (so that OpenBLAS, MKL or BLIS can stand behind it), and the guard that
// keeps them on one thread. Names and arguments are Fortran's: column-major.
#pragma once

#include <climits>
#include <cstddef>

extern "C" {
void dgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k, const double* alpha,
            const double* a, const int* lda, const double* b, const int* ldb, const double* beta, double* c, const int* ldc);
void dgemv_(const char* trans, const int* m, const int* n, const double* alpha, const double* a, const int* lda,
            const double* x, const int* incx, const double* beta, double* y, const int* incy);
void dsyrk_(const char* uplo, const char* trans, const int* n, const int* k, const double* alpha, const double* a,
            const int* lda, const double* beta, double* c, const int* ldc);
void dtrsm_(const char* side, const char* uplo, const char* transa, const char* diag, const int* m, const int* n,
            const double* alpha, const double* a, const int* lda, double* b, const int* ldb);
void dtrsv_(const char* uplo, const char* trans, const char* diag, const int* n, const double* a, const int* lda, double* x,
            const int* incx);
void dpotrf_(const char* uplo, const int* n, double* a, const int* lda, int* info);
void dgetrf_(const int* m, const int* n, double* a, const int* lda, int* ipiv, int* info);
void dsytrf_(const char* uplo, const int* n, double* a, const int* lda, int* ipiv, double* work, const int* lwork,
             int* info);
}

namespace onestep::cpu {

/// Whether a dimension can be given to BLAS. Whoever plans a computation checks; the wrappers below do not.
constexpr bool fits_blas(std::size_t size) { return size <= static_cast<std::size_t>(INT_MAX); }

namespace blas {

enum class Trans : char { no = 'N', yes = 'T' };
enum class Side : char { left = 'L', right = 'R' };
enum class Uplo : char { lower = 'L', upper = 'U' };
enum class Diag : char { unit = 'U', stored = 'N' };

namespace detail {
constexpr int size(std::size_t n) { return static_cast<int>(n); }
/// BLAS rejects a leading dimension of 0.
constexpr int stride(std::size_t n) { return n == 0 ? 1 : static_cast<int>(n); }
}  // namespace detail

inline void gemm(Trans ta, Trans tb, std::size_t m, std::size_t n, std::size_t k, double alpha, const double* a,
                 std::size_t lda, const double* b, std::size_t ldb, double beta, double* c, std::size_t ldc) {
  const char cta = static_cast<char>(ta), ctb = static_cast<char>(tb);
  const int im = detail::size(m), in = detail::size(n), ik = detail::size(k);
  const int ia = detail::stride(lda), ib = detail::stride(ldb), ic = detail::stride(ldc);
  dgemm_(&cta, &ctb, &im, &in, &ik, &alpha, a, &ia, b, &ib, &beta, c, &ic);
}

inline void gemv(Trans t, std::size_t m, std::size_t n, double alpha, const double* a, std::size_t lda, const double* x,
                 double beta, double* y) {
  const char ct = static_cast<char>(t);
  const int im = detail::size(m), in = detail::size(n), ia = detail::stride(lda), one = 1;
  dgemv_(&ct, &im, &in, &alpha, a, &ia, x, &one, &beta, y, &one);
}

inline void syrk(Uplo uplo, Trans t, std::size_t n, std::size_t k, double alpha, const double* a, std::size_t lda,
                 double beta, double* c, std::size_t ldc) {
  const char cu = static_cast<char>(uplo), ct = static_cast<char>(t);
  const int in = detail::size(n), ik = detail::size(k), ia = detail::stride(lda), ic = detail::stride(ldc);
  dsyrk_(&cu, &ct, &in, &ik, &alpha, a, &ia, &beta, c, &ic);
}

inline void trsm(Side side, Uplo uplo, Trans t, Diag diag, std::size_t m, std::size_t n, const double* a, std::size_t lda,
                 double* b, std::size_t ldb) {
  const char cs = static_cast<char>(side), cu = static_cast<char>(uplo), ct = static_cast<char>(t),
             cd = static_cast<char>(diag);
  const int im = detail::size(m), in = detail::size(n), ia = detail::stride(lda), ib = detail::stride(ldb);
  const double one = 1;
  dtrsm_(&cs, &cu, &ct, &cd, &im, &in, &one, a, &ia, b, &ib);
}

inline void trsv(Uplo uplo, Trans t, Diag diag, std::size_t n, const double* a, std::size_t lda, double* x) {
  const char cu = static_cast<char>(uplo), ct = static_cast<char>(t), cd = static_cast<char>(diag);
  const int in = detail::size(n), ia = detail::stride(lda), one = 1;
  dtrsv_(&cu, &ct, &cd, &in, a, &ia, x, &one);
}

/// Returns LAPACK's info.
inline int potrf(Uplo uplo, std::size_t n, double* a, std::size_t lda) {
  const char cu = static_cast<char>(uplo);
  const int in = detail::size(n), ia = detail::stride(lda);
  int info = 0;
  dpotrf_(&cu, &in, a, &ia, &info);
  return info;
}

/// Returns LAPACK's info.
inline int getrf(std::size_t n, double* a, std::size_t lda, int* pivots) {
  const int in = detail::size(n), ia = detail::stride(lda);
  int info = 0;
  dgetrf_(&in, &in, a, &ia, pivots, &info);
  return info;
}

/// Returns LAPACK's info.
inline int sytrf(Uplo uplo, std::size_t n, double* a, std::size_t lda, int* pivots, double* work, std::size_t lwork) {
  const char cu = static_cast<char>(uplo);
  const int in = detail::size(n), ia = detail::stride(lda), iw = detail::size(lwork);
  int info = 0;
  dsytrf_(&cu, &in, a, &ia, pivots, work, &iw, &info);
  return info;
}

}  // namespace blas

/// While any of these lives, BLAS runs on one thread; when the last one goes, its thread count is what the first one found.
/// To be destroyed on the thread that made it. Cheap when another one is alive: hold one around a whole solve.
class BlasSerial {
 public:
  BlasSerial() noexcept;
  ~BlasSerial();
  BlasSerial(const BlasSerial&) = delete;
  BlasSerial& operator=(const BlasSerial&) = delete;
};

/// For threads that only ever run pieces of ours: BLAS libraries that count threads per thread stay at one on this one.
void keep_blas_serial_on_this_thread() noexcept;

}  // namespace onestep::cpu
