// Deep equilibrium layers: tanh and relu networks, attention, and steps so steep that nothing observed at an iterate can
// see what happens beside it.
#include <algorithm>
#include <cmath>

#include "certificate/problem.h"

namespace onestep::bench {
namespace {

Problem tanh_network(Random& random) {
  const std::size_t n = random_size(random), p = 1 + random.below(8);
  const Array W = scaled_to_norm(random.matrix(n, n), random_rho(random)), U = random.matrix(n, p, random.scale(0.1, 3)),
              b = random.vector(n);
  return map_problem(
      "x = tanh(W x + U t + b)", [=](auto x, auto t) { return tanh(matmul(W, x) + matmul(U, t) + b); }, random.vector(n),
      random.vector(p));
}

// Two layers, with a norm of the product below 1.
Problem deep_network(Random& random) {
  const std::size_t n = 1 + random.below(16), h = 1 + random.below(24);
  const double rho = random_rho(random), balance = random.scale(0.2, 5);
  const Array W = scaled_to_norm(random.matrix(h, n), balance), V = scaled_to_norm(random.matrix(n, h), rho / balance),
              b = random.vector(h);
  return map_problem(
      "x = V tanh(W x + b) + t", [=](auto x, auto t) { return matmul(V, tanh(matmul(W, x) + b)) + t; }, random.vector(n),
      random.vector(n));
}

// Half of the networks have an entry before max(·, 0) that is nearly zero.
Problem relu_network(Random& random) {
  const std::size_t n = random_size(random), p = 1 + random.below(8);
  const Array W = scaled_to_norm(random.matrix(n, n), random_rho(random)), U = random.matrix(n, p, random.scale(0.1, 3)),
              theta = random.vector(p);
  Array b = random.vector(n);
  if (random.chance(0.5)) {
    std::vector<double> before = random.gaussians(n), after(n);
    before[random.below(n)] = (random.chance(0.5) ? 1 : -1) * random.scale(1e-12, 1e-2);
    for (std::size_t i = 0; i < n; ++i) after[i] = std::max(before[i], 0.0);
    const Field<Real> shift = Field<Real>(array_of(before)) - matmul(Field<Real>(W), Field<Real>(array_of(after))) -
                              matmul(Field<Real>(U), Field<Real>(theta));
    b = array_of({shift.entries().begin(), shift.entries().end()});
  }
  Problem problem = map_problem(
      "x = max(W x + U t + b, 0)", [=](auto x, auto t) { return maximum(matmul(W, x) + matmul(U, t) + b, 0.0); },
      random.vector(n), theta);
  problem.family = Family::kinked_map;
  return problem;
}

// tanh(k ·) with k ≥ 10 before a matrix small enough for a contraction.
Problem steep(Random& random) {
  const std::size_t n = 1 + random.below(8);
  const double k = random.scale(10, 1000);
  const Array W = scaled_to_norm(random.matrix(n, n), 1),
              V = scaled_to_norm(random.matrix(n, n), random.uniform(0.2, 0.95) / k);
  Problem problem = map_problem(
      "x = V tanh(k W x) + t, k >= 10", [=](auto x, auto t) { return matmul(V, tanh(k * matmul(W, x))) + t; },
      random.vector(n), random.vector(n, random.chance(0.5) ? random.scale(0.01, 1) : random.scale(0.1, 10) / k));
  problem.family = Family::steep_map;
  return problem;
}

// Self-attention over a few tokens, X = γ softmax(X M Xᵀ) X V + T: softmax along the rows.
Problem attention(Random& random) {
  const std::size_t tokens = 2 + random.below(5), d = 1 + random.below(4);
  const auto m = as_size(tokens), n = as_size(d);
  const Array M = scaled_to_norm(random.matrix(d, d), random.uniform(0.1, 1)),
              V = scaled_to_norm(random.matrix(d, d), random.uniform(0.1, 0.6));
  return map_problem(
      "attention, X = softmax(X M X') X V + T",
      [=](auto x, auto t) {
        const auto X = reshape(x, Shape{m, n});
        const auto scores = matmul(matmul(X, M), transpose(X));
        const auto weights = exp(scores - reshape(log_sum_exp(scores, 1), Shape{m, 1}));
        return reshape(matmul(weights, matmul(X, V)), Shape{m * n}) + t;
      },
      random.vector(tokens * d), random.vector(tokens * d, 0.7));
}

}  // namespace

std::vector<ProblemClass> network_classes() {
  return {{"tanh network", 1, tanh_network},
          {"two-layer network", 1, deep_network},
          {"relu network", 1, relu_network},
          {"attention", 1, attention},
          {"steep tanh", 0.5, steep}};
}

}  // namespace onestep::bench
