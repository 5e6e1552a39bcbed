// Bilevel problems with answers that are known or can be found without hypergradients.
#pragma once

#include "onestep/data.h"
#include "onestep/onestep.h"
#include "support/random.h"

namespace onestep::test {

/// Ridge regression, judged on other samples: min ½‖Ax - y‖² + ½ Σ λⱼ xⱼ², then the mean of (Ax - y)²/2 over those.
struct Ridge {
  Dataset train, valid;

  Ridge(Random& random, std::int64_t rows, std::int64_t n, double noise = 1) {
    const Array truth = random.array({n});
    const auto samples = [&](std::int64_t count) {
      const Array A = random.array({count, n});
      std::vector<double> y(static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t j = 0; j < n; j += 2) y[static_cast<std::size_t>(i)] += A(i, j) * truth(j);
        y[static_cast<std::size_t>(i)] += noise * random.uniform(-2, 2);
      }
      return Dataset{A, Array({count}, std::move(y))};
    };
    train = samples(rows);
    valid = samples(4 * rows);
  }

  std::int64_t n() const { return train.A.shape()[1]; }
  /// λ is a number or one for each feature.
  auto loss() const {
    return
        [d = train](Expr x, Expr lambda) { return 0.5 * sum(square(matmul(d.A, x) - d.y)) + 0.5 * sum(lambda * square(x)); };
  }
  auto judged() const {
    return [d = valid](Expr x) { return 0.5 * sum(square(matmul(d.A, x) - d.y)) / static_cast<double>(d.y.size()); };
  }
  Inner inner(const Estimator& estimator = OneStep{}, const SolveOptions& options = {}) const {
    return Inner(newton(loss(), options), zeros({n()}), judged(), estimator);
  }
  double value(const Array& lambda) const {
    const Array x = solve(newton(loss()), zeros({n()}), lambda).x();
    return evaluate(traced(judged(), Shape{n()}), {x})[0].item();
  }
};

}  // namespace onestep::test
