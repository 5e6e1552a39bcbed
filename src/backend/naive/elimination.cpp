// Gaussian elimination with row exchanges, and a Cholesky factorisation that only says whether there is one.
#include "backend/naive/elimination.h"

namespace onestep::naive {

bool is_positive_definite(const Values& matrix, std::size_t n) {
  std::vector<Real> l(n * n);
  for (std::size_t j = 0; j < n; ++j)
    for (std::size_t i = j; i < n; ++i) {
      Real rest = matrix[i * n + j];
      for (std::size_t k = 0; k < j; ++k) rest -= l[i * n + k] * l[j * n + k];
      if (i == j && !(rest > 0 && std::isfinite(rest))) return false;
      l[i * n + j] = i == j ? std::sqrt(rest) : rest / l[j * n + j];
    }
  return true;
}

std::optional<Real> eliminate(const Matrix& matrix, std::vector<Real>& b, std::size_t m, bool* negative) {
  const std::size_t n = matrix.rows;
  std::vector<Real> a(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) a[i * n + j] = matrix(i, j);
  Real log_determinant = 0;
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k + 1; i < n; ++i)
      if (std::fabs(a[i * n + k]) > std::fabs(a[pivot * n + k])) pivot = i;
    for (std::size_t j = 0; j < n; ++j) std::swap(a[k * n + j], a[pivot * n + j]);
    for (std::size_t j = 0; j < m; ++j) std::swap(b[k * m + j], b[pivot * m + j]);
    const Real head = a[k * n + k];
    if (head == 0 || !std::isfinite(head)) return std::nullopt;
    log_determinant += std::log(std::fabs(head));
    if (negative != nullptr) *negative = *negative != ((head < 0) != (pivot != k));
    for (std::size_t i = k + 1; i < n; ++i) {
      const Real factor = a[i * n + k] / head;
      for (std::size_t j = k; j < n; ++j) a[i * n + j] -= factor * a[k * n + j];
      for (std::size_t j = 0; j < m; ++j) b[i * m + j] -= factor * b[k * m + j];
    }
  }
  for (std::size_t k = n; k-- > 0;)
    for (std::size_t j = 0; j < m; ++j) {
      for (std::size_t i = k + 1; i < n; ++i) b[k * m + j] -= a[k * n + i] * b[i * m + j];
      b[k * m + j] /= a[k * n + k];
    }
  return log_determinant;
}

}  // namespace onestep::naive
