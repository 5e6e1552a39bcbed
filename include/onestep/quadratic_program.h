// A convex quadratic program, as data.
#pragma once

#include <cstdint>
#include <limits>

#include "onestep/array.h"

namespace onestep {

/// Minimise ½xᵀQx + qᵀx + constant subject to A x = b, l ≤ G x ≤ u, lo ≤ x ≤ hi.
///
/// Q is symmetric (both triangles are given; they are read as their mean) and positive semidefinite. What a problem does not
/// have stays as it is made: without Q it is a linear program, without A or G (or with 0 rows) there are no such
/// constraints. Where a vector belongs a number stands for that number everywhere. Bounds may be infinite, so that a row or
/// a variable is free, bounded on one side or on both; l = u makes a row an equality, lo = hi fixes a variable.
///
///     QuadraticProgram p;                       // the point of the unit box nearest to (2, -1) with x0 + x1 = 1
///     p.Q = Array{{1.0, 0.0}, {0.0, 1.0}};
///     p.q = Array{-2.0, 1.0};
///     p.A = Array{{1.0, 1.0}};
///     p.b = 1.0;
///     p.lo = 0.0;
///     p.hi = 1.0;
struct QuadraticProgram {
  Array Q;                                              ///< (n, n)
  Array q;                                              ///< (n)
  Array A;                                              ///< (m, n)
  Array b;                                              ///< (m)
  Array G;                                              ///< (p, n)
  Array l = -std::numeric_limits<double>::infinity();   ///< (p)
  Array u = std::numeric_limits<double>::infinity();    ///< (p)
  Array lo = -std::numeric_limits<double>::infinity();  ///< (n)
  Array hi = std::numeric_limits<double>::infinity();   ///< (n)
  double constant = 0;                                  ///< added to the objective
};

/// The sizes of a quadratic program: variables, rows of A, rows of G.
///
///     QuadraticProgramSizes s = sizes_of(p);    // {2, 1, 0} for the program above
struct QuadraticProgramSizes {
  std::int64_t variables = 0, equalities = 0, inequalities = 0;
  bool operator==(const QuadraticProgramSizes&) const = default;
};

/// Checks that the shapes of all parts fit each other and returns them. Throws MisuseError naming the first part that does
/// not fit, or when no part says how many variables there are.
///
///     std::int64_t n = sizes_of(p).variables;
QuadraticProgramSizes sizes_of(const QuadraticProgram& program);

}  // namespace onestep
