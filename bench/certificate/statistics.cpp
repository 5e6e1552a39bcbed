// Fixed points of statistics and linear algebra: Sinkhorn, expectation maximisation, power iteration.
#include <algorithm>
#include <cmath>

#include "certificate/problem.h"

namespace onestep::bench {
namespace {

// One round on the potential g, anchored to have mean zero, parameters: the costs.
Problem sinkhorn(Random& random) {
  const std::size_t rows = 2 + random.below(7), columns = 2 + random.below(7);
  const auto m = as_size(rows), n = as_size(columns);
  std::vector<double> a(rows), b(columns), cost(rows * columns);
  double a_sum = 0, b_sum = 0;
  for (double& e : a) a_sum += e = random.uniform(0.2, 1);
  for (double& e : b) b_sum += e = random.uniform(0.2, 1);
  for (double& e : a) e = std::log(e / a_sum);
  for (double& e : b) e = std::log(e / b_sum);
  for (double& e : cost) e = random.uniform();
  const Array log_a = array_of(a), log_b = array_of(b);
  const double eps = random.scale(0.05, 2);
  Problem p = map_problem(
      "Sinkhorn on the potential of the columns, its mean zero",
      [=](auto g, auto c) {
        const auto C = reshape(c, Shape{m, n});
        const auto f = eps * (log_a - log_sum_exp((g - C) * (1 / eps), 1));
        const auto next = eps * (log_b - log_sum_exp(transpose((reshape(f, Shape{m, 1}) - C) * (1 / eps)), 1));
        return next - sum(next) * (1.0 / static_cast<double>(n));
      },
      random.vector(columns, 0.3), array_of(cost));
  return p;
}

// The means of a mixture of Gaussians with given weights and variance, parameters: the samples.
Problem mixture(Random& random) {
  const std::size_t components = 2 + random.below(3), samples = 6 + random.below(25);
  const auto N = as_size(samples);
  std::vector<double> centres(components), data(samples), log_weights(components);
  for (std::size_t j = 0; j < components; ++j) centres[j] = 3.0 * static_cast<double>(j) + random.gaussian() * 0.3;
  for (double& e : data) e = centres[random.below(components)] + random.gaussian();
  for (double& e : log_weights) e = std::log(random.uniform(0.3, 1));
  const double precision = random.scale(0.3, 2);
  const Array weights = array_of(log_weights);
  Problem p = map_problem(
      "expectation maximisation of the means of a mixture",
      [=](auto mean, auto t) {
        const auto x = reshape(t, Shape{N, 1});
        const auto score = weights - 0.5 * precision * square(x - mean);
        const auto share = exp(score - reshape(log_sum_exp(score, 1), Shape{N, 1}));
        return sum(share * x, 0) / sum(share, 0);
      },
      array_of(centres), array_of(data));
  p.far = [centres](Random& r) {
    std::vector<double> x(centres);
    for (double& e : x) e += 3 * r.gaussian();
    return x;
  };
  return p;
}

// x = Mx/|Mx| with M = M0 + diag(t), symmetric, its first eigenvalue apart from the others.
Problem power_iteration(Random& random) {
  const std::size_t n = std::max<std::size_t>(2, random_size(random, 24, 0.02));
  std::vector<double> eigenvalues(n);
  const double gap = random_rho(random);
  for (double& e : eigenvalues) e = random.uniform(-gap, gap);
  eigenvalues[0] = 1;
  const double size = random.scale(1e-2, 1e2);
  for (double& e : eigenvalues) e *= size;
  const Array M = symmetric_with(random, eigenvalues);
  return map_problem(
      "power iteration, x = (M + diag t) x, normalised",
      [=](auto x, auto t) {
        const auto y = matmul(M, x) + t * x;
        return y / sqrt(sum(square(y)));
      },
      random.vector(n), random.vector(n, 1e-3 * size));
}

}  // namespace

std::vector<ProblemClass> statistics_classes() {
  return {{"sinkhorn", 1, sinkhorn}, {"expectation maximisation", 1, mixture}, {"power iteration", 1, power_iteration}};
}

}  // namespace onestep::bench
