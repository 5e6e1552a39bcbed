// Normalisation of a quadratic program: x = d ∘ x̂, rows times e, objective times c. Ruiz equilibration makes the largest
// entries of the rows and columns of A and G comparable, and those of Q where a variable is in no row; one more factor for
// all variables that rows tie to each other (a block), or a variable's own where it is in no row, makes a solution x̂ of size
// 1, and c makes the largest entry of Q and q 1. (Curvatures of variables in rows are left as they come: Q may be graded, x̂
// shall not be.) The normalised problem is thus the same in whatever units the data were given, and what the solver compares
// with constants is in these units. Factors are powers of two: scaling and unscaling are exact.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace onestep::detail {

/// A quadratic program where it lies: contiguous, row-major; a null pointer is a block that is not there, or zeros for q
/// and b, -∞ for l and lo, +∞ for u and hi.
struct QpData {
  std::size_t n = 0, m = 0, p = 0;  ///< variables, rows of A, rows of G
  const double *Q = nullptr, *q = nullptr, *A = nullptr, *b = nullptr, *G = nullptr, *l = nullptr, *u = nullptr,
               *lo = nullptr, *hi = nullptr;
  double constant = 0;
};

struct QpScaling {
  std::vector<double> d, e;  ///< of the variables; of the rows of A, then of G
  double c = 1;
  bool in_range = true;  ///< false: sizes are too far apart, or too extreme, for what is computed from them

  void prepare(std::size_t n, std::size_t rows);
  void compute(const QpData& data);

 private:
  void equilibrate(const QpData& data);
  void find_blocks(const QpData& data);
  void find_sizes(const QpData& data);
  void scale_what_no_row_touches(const QpData& data);
  void scale_what_no_matrix_touches(const QpData& data);

  /// What is known about how large the entries of a solution are in a block, in the units of d and e.
  struct Size {
    double outside = 0;                                         // how far from 0 constraints keep them
    double smallest = std::numeric_limits<double>::infinity();  // bound that is not 0
    double linear = 0, quadratic = 0;                           // largest entries of q and Q
    double way = 0, known_way = 0;                          // to where the objective drives them; as far as it has a length
    double part = std::numeric_limits<double>::infinity();  // of that, until a row stops them
    double unit = 1;
  };

  std::vector<double> column_norm_, row_norm_, quadratic_norm_;
  std::vector<std::size_t> block_, row_block_;  // of variables and rows, numbered by a variable; n for rows of zeros
  std::vector<Size> sizes_;                     // of blocks
  std::vector<unsigned char> alone_, in_rows_;  // in no matrix; in a row of A or G
};

}  // namespace onestep::detail
