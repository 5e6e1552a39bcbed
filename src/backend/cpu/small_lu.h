// LU factorisations of small matrices, where calls of LAPACK and BLAS cost more than their arithmetic.
#pragma once

#include <cstddef>

namespace onestep::cpu {

/// As large as matrices are that the functions below are quicker for.
constexpr std::size_t max_small_lu = 40;

/// As LAPACK's dgetrf on aᵀ: aᵀ = p l u. False where a pivot is zero.
bool small_lu(std::size_t n, double* a, int* pivots);

/// b = op(a)⁻¹ b by such a factor, for one right-hand side.
void small_lu_solve(bool transposed, std::size_t n, const double* factor, const int* pivots, double* b);

}  // namespace onestep::cpu
