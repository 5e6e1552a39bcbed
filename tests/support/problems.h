// Problems to solve and differentiate in tests, and their derivatives by means that share nothing with the estimators.
#pragma once

#include "onestep/data.h"
#include "onestep/onestep.h"
#include "support/compare.h"
#include "support/dense.h"
#include "support/random.h"

namespace onestep::test {

/// Weighted logistic regression: Σ wᵢ softplus(-yᵢ aᵢᵀx) + 0.1 ‖x‖².
struct Logistic {
  Array A, y;

  Logistic(Random& random, std::int64_t rows, std::int64_t n);
  auto objective() const {
    return [*this](Expr x, Expr w) { return sum(w * softplus(-y * matmul(A, x))) + 0.1 * sum(square(x)); };
  }
  Array start() const { return zeros({A.shape()[1]}); }
  Array weights() const { return ones({A.shape()[0]}); }

  /// The minimiser to rounding, by Newton's method written out.
  Array solution(const Array& w) const;
  /// dx/dw there.
  Array derivative(const Array& w) const;
};

}  // namespace onestep::test
