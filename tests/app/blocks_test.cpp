// The blocks of softmax regression's preconditioner: symmetric positive definite whatever the data.
#include "jobs/blocks.h"

#include <gtest/gtest.h>

#include <cmath>

#include "onestep/onestep.h"
#include "support/random.h"

namespace onestep::app::jobs {
namespace {

// M⁻¹ is symmetric, and rᵀM⁻¹r > 0.
void expect_positive_definite(const SoftmaxBlocks& blocks, std::size_t size) {
  test::Random random(2);
  const auto vector = [&] {
    std::vector<double> v(size);
    for (double& e : v) e = random.uniform(-1, 1);
    return v;
  };
  const auto inner = [&](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < size; ++i) sum += a[i] * b[i];
    return sum;
  };
  for (int k = 0; k < 10; ++k) {
    const std::vector<double> a = vector(), b = vector();
    std::vector<double> of_a = a, of_b = b;
    blocks(of_a);
    blocks(of_b);
    EXPECT_GT(inner(a, of_a), 0);
    EXPECT_NEAR(inner(b, of_a), inner(a, of_b), 1e-8 * std::sqrt(inner(a, of_a) * inner(b, of_b)));
  }
}

Array samples(test::Random& random, std::int64_t rows, std::int64_t n, double scale) {
  std::vector<double> a(static_cast<std::size_t>(rows * n));
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] = static_cast<std::int64_t>(i) % n == n - 1 ? 1 : scale * random.uniform(-1, 1);
  return {{rows, n}, std::move(a)};
}

TEST(SoftmaxBlocks, ArePositiveDefiniteWhereProbabilitiesAreSaturated) {
  test::Random random(1);
  const std::int64_t n = 6, classes = 3;
  const Array A = samples(random, 20, n, 1);
  // All samples are surely of the first class: p(1 - p) is zero, to rounding.
  std::vector<double> x(static_cast<std::size_t>(n * classes));
  x[static_cast<std::size_t>((n - 1) * classes)] = 800;
  for (const double l2 : {0.0, 1e-3, 1.0}) expect_positive_definite(SoftmaxBlocks(A, Array({n, classes}, x), l2), x.size());
}

TEST(SoftmaxBlocks, ArePositiveDefiniteForDataOfAnyScale) {
  test::Random random(3);
  const std::int64_t n = 6, classes = 3;
  for (const double scale : {1e-12, 1.0, 1e12, 1e160})
    for (const double l2 : {0.0, 1.0})
      expect_positive_definite(SoftmaxBlocks(samples(random, 4, n, scale), zeros({n, classes}), l2),
                               static_cast<std::size_t>(n * classes));
}

}  // namespace
}  // namespace onestep::app::jobs
