// LU factorisations of small matrices. A row in memory is a column of aᵀ, so that all inner loops are contiguous.
#include "backend/cpu/small_lu.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace onestep::cpu {
namespace {

double dot(const double* a, const double* b, std::size_t n) {
  double sums[4] = {};  // which do not wait for each other
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (std::size_t lane = 0; lane < 4; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

void subtract(double factor, const double* a, double* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) from[i] -= factor * a[i];
}

}  // namespace

bool small_lu(std::size_t n, double* a, int* pivots) {
  for (std::size_t k = 0; k < n; ++k) {
    double* const column = a + k * n;
    std::size_t with = k;
    for (std::size_t i = k + 1; i < n; ++i)
      if (std::fabs(column[i]) > std::fabs(column[with])) with = i;
    pivots[k] = static_cast<int>(with) + 1;
    if (column[with] == 0) return false;
    if (with != k)
      for (std::size_t j = 0; j < n; ++j) std::swap(a[j * n + k], a[j * n + with]);
    const double pivot = column[k], inverse = 1 / pivot;
    const bool is_tiny = std::fabs(pivot) < std::numeric_limits<double>::min();  // whose inverse may be infinite
    for (std::size_t i = k + 1; i < n; ++i) column[i] = is_tiny ? column[i] / pivot : column[i] * inverse;
    for (std::size_t j = k + 1; j < n; ++j) subtract(a[j * n + k], column + k + 1, a + j * n + k + 1, n - k - 1);
  }
  return true;
}

void small_lu_solve(bool transposed, std::size_t n, const double* factor, const int* pivots, double* b) {
  const auto exchange = [&](std::size_t i) { std::swap(b[i], b[static_cast<std::size_t>(pivots[i]) - 1]); };
  if (transposed) {
    for (std::size_t k = 0; k < n; ++k) exchange(k);
    for (std::size_t k = 0; k < n; ++k) subtract(b[k], factor + k * n + k + 1, b + k + 1, n - k - 1);
    for (std::size_t k = n; k-- > 0;) {
      b[k] /= factor[k * n + k];
      subtract(b[k], factor + k * n, b, k);
    }
  } else {
    for (std::size_t k = 0; k < n; ++k) b[k] = (b[k] - dot(factor + k * n, b, k)) / factor[k * n + k];
    for (std::size_t k = n; k-- > 0;) b[k] -= dot(factor + k * n + k + 1, b + k + 1, n - k - 1);
    for (std::size_t k = n; k-- > 0;) exchange(k);
  }
}

}  // namespace onestep::cpu
