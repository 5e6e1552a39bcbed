// Small dense linear algebra on arrays, by plain loops: what tests compute by means that share nothing with the library.
#pragma once

#include <functional>
#include <vector>

#include "onestep/array.h"
#include "onestep/solver.h"
#include "support/random.h"

namespace onestep::test {

Array plus(const Array& a, const Array& b);
Array minus(const Array& a, const Array& b);
Array times(double factor, const Array& a);
/// The matrix product; a vector is a column.
Array product(const Array& a, const Array& b);
Array transposed(const Array& a);
Array identity(std::int64_t n);
Array inverse(const Array& a);
/// M⁻¹ b.
Array solved(const Array& m, const Array& b);

/// Euclidean (Frobenius) norm, and the largest singular value.
double norm(const Array& a);
double spectral_norm(const Array& a);
/// ‖a - b‖ / ‖b‖; shapes may differ in ones.
double relative_error(const Array& a, const Array& b);

/// A symmetric matrix with these eigenvalues.
Array with_eigenvalues(Random& random, const std::vector<double>& eigenvalues);
/// A matrix with this spectral norm.
Array with_norm(Random& random, std::int64_t rows, std::int64_t columns, double norm);
/// n numbers from low to high.
std::vector<double> spread(double low, double high, std::int64_t n);

/// All parts as one vector.
Array flat(const Parts& parts);
/// The part of v that is orthogonal to the columns of a.
Array orthogonal_part(const Array& a, const Array& v);

/// d/dt at t = 0 by central differences extrapolated twice: good to about 1e-10 of the scale for a smooth f and h of 1e-2.
Array differences(const std::function<Array(double)>& f, double h = 1e-2);

}  // namespace onestep::test
