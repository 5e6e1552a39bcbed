// Matrices of the reference interpreter, and Gaussian elimination in extended precision.
#pragma once

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "onestep/array.h"

namespace onestep::naive {

using Values = std::vector<double>;
using Real = long double;

inline std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// A matrix or its transpose; a vector is one column.
struct Matrix {
  const Values& entries;
  std::size_t rows, columns, row_stride, column_stride = 1;
  Matrix(const Values& e, const Shape& shape, bool transposed = false)
      : entries(e), rows(to_size(shape[0])), columns(to_size(shape[1])), row_stride(to_size(shape[1])) {
    if (!transposed) return;
    std::swap(rows, columns);
    std::swap(row_stride, column_stride);
  }
  Real operator()(std::size_t i, std::size_t j) const { return entries[i * row_stride + j * column_stride]; }
};

/// Whether a Cholesky factor exists; reads the lower triangle.
bool is_positive_definite(const Values& matrix, std::size_t n);
/// Gaussian elimination with partial pivoting: overwrites the m columns of b (n rows) by the solution, and returns
/// log |det|; none when a pivot is zero or not a number. `negative` is told the sign of the determinant.
std::optional<Real> eliminate(const Matrix& matrix, std::vector<Real>& b, std::size_t m, bool* negative = nullptr);

}  // namespace onestep::naive
