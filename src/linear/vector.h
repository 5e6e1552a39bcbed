// Vectors: the flat form in which solvers, estimators and Krylov methods hand states to each other.
#pragma once

#include <cstddef>
#include <limits>
#include <span>

namespace onestep::detail {

using Vector = std::span<double>;
using ConstVector = std::span<const double>;

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double epsilon = std::numeric_limits<double>::epsilon();  ///< of rounding, relative

double dot(ConstVector a, ConstVector b);
/// Euclidean; neither overflows nor underflows where the result does not. NaN where an entry is.
double norm(ConstVector v);
/// The largest magnitude of an entry, NaN where one is; 0 of no entries.
double largest(ConstVector v);
/// Of vectors that lie one behind the other.
double norm(std::span<const Vector> parts);
bool all_finite(ConstVector v);
void fill(Vector v, double value);
/// to += factor * what.
void add(Vector to, ConstVector what, double factor = 1);

}  // namespace onestep::detail
