// Softmax regression with a weight for each sample and one for the penalty: a state that is a matrix.
#pragma once

#include "onestep/onestep.h"
#include "support/random.h"

namespace onestep::test {

/// Σ wᵢ (log Σₖ exp sᵢₖ - s at the label of i) + λ/2 ‖x‖² with s = A x.
struct Softmax {
  Array A, Y;

  Softmax(Random& random, std::int64_t rows, std::int64_t n, std::int64_t classes)
      : A(random.array({rows, n})), Y(labels(random, rows, classes)) {}
  auto objective() const {
    return [*this](Expr x, Expr w, Expr l2) { return loss(x, w) + 0.5 * l2 * sum(square(x)); };
  }
  Expr loss(const Expr& x, const Expr& w) const {
    const Expr s = matmul(A, x);
    return sum(w * (log_sum_exp(s, 1) - sum(Y * s, 1)));
  }
  Array start() const { return zeros({A.shape()[1], Y.shape()[1]}); }

  /// -H⁻¹ at the minimiser of `objective`, with what multiplies it in derivatives, by Newton's method written out in long
  /// double: for errors near those of double itself.
  struct Truth {
    std::vector<long double> vjp_w, jvp;
    long double vjp_l2 = 0;
  };
  Truth truth(const Array& w, double l2, const Array& c, const Array& dw, double dl2) const;

 private:
  static Array labels(Random& random, std::int64_t rows, std::int64_t classes) {
    std::vector<double> y(static_cast<std::size_t>(rows * classes));
    for (std::int64_t i = 0; i < rows; ++i) y[static_cast<std::size_t>(i * classes + random.integer(0, classes - 1))] = 1;
    return {{rows, classes}, std::move(y)};
  }
};

}  // namespace onestep::test
