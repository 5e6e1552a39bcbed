// Lanczos' method: the extreme eigenvalues of a symmetric operator given by its products.
#pragma once

#include <functional>

#include "linear/vector.h"

namespace onestep::detail {

struct Extremes {
  double smallest = 0, largest = 0;
  int products = 0;
};
/// From a fixed random start, with full reorthogonalisation, in at most `steps` products (exact when that is n). The inner
/// approximations: `largest` is not above the true one, `smallest` not below it, up to rounding.
Extremes lanczos(std::size_t n, int steps, const std::function<void(ConstVector v, Vector out)>& product);
/// The same with memory that is kept, so that a second call allocates nothing.
struct LanczosMemory {
  std::vector<std::vector<double>> basis;
  std::vector<double> diagonal, beside, product;
};
Extremes lanczos(std::size_t n, int steps, const std::function<void(ConstVector v, Vector out)>& product,
                 LanczosMemory& memory);

}  // namespace onestep::detail
