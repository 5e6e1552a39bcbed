// Pipelines: some parts of the state iterate, others only read them out, so that a cotangent of a read-out sees the
// curvature only through the part before it.
#include <algorithm>
#include <cmath>

#include "certificate/problem.h"

namespace onestep::bench {
namespace {

// F = {a₁ a + a₂ b, s sin b + t}, as two parts of the state.
Problem two_stages(Random& random) {
  const double own = random.uniform(0, 0.6), from = random.uniform(-2, 2), s = random.uniform(0.2, 0.95);
  Problem p = map_problem(
      "a = own a + from b, b = s sin b + t, two parts",
      [=](auto x, auto t) {
        const auto a = slice(x, 0, 1), b = slice(x, 1, 2);
        return join(own * a + from * b, s * sin(b) + t);
      },
      random.vector(2), random.vector(1));
  p.start = Parts{Array{p.start[0](0)}, Array{p.start[0](1)}};
  p.solver = [=](const SolveOptions& options) {
    return fixed_point(
        [=](Expr a, Expr b, Expr t) {
          return std::vector<Expr>{own * a + from * b, s * sin(b) + t};
        },
        options);
  };
  return p;
}

// A chain of stages of d entries each; the first is curved, some of the later ones are, the last is affine.
Problem long_chain(Random& random) {
  const std::size_t stages = 2 + random.below(5), d = 1 + random.below(6);
  const auto size = as_size(d);
  std::vector<Array> own, from;
  std::vector<bool> curved;
  for (std::size_t k = 0; k < stages; ++k) {
    own.push_back(scaled_to_norm(random.matrix(d, d), random.uniform(0.1, 0.9)));
    from.push_back(scaled_to_norm(random.matrix(d, d), random.scale(0.1, 5)));
    curved.push_back(k == 0 || (k + 1 < stages && random.chance(0.3)));
  }
  return map_problem(
      "a chain of stages, the last affine",
      [=](auto x, auto t) {
        auto next = sin(matmul(own[0], slice(x, 0, size)) + t);
        for (std::size_t k = 1; k < stages; ++k) {
          const auto mine = slice(x, as_size(k) * size, as_size(k + 1) * size),
                     before = slice(x, as_size(k - 1) * size, as_size(k) * size);
          auto stage = matmul(own[k], mine) + matmul(from[k], before);
          next = join(next, curved[k] ? tanh(stage) : stage);
        }
        return next;
      },
      random.vector(stages * d), random.vector(d));
}

// A DEQ layer and its read-out y = C x + c as a second part; or a momentum of it, m = βm + (1 - β)x.
Problem read_out(Random& random) {
  const std::size_t n = 1 + random.below(12), m = 1 + random.below(4);
  const Array W = scaled_to_norm(random.matrix(n, n), random_rho(random)), C = random.matrix(m, n, random.scale(0.1, 10)),
              c = random.vector(m);
  const auto size = as_size(n);
  const double beta = random.uniform(0.1, 0.9);
  const bool average = random.chance(0.4);
  return map_problem(
      average ? "tanh(W x + t) and a running average of x" : "tanh(W x + t) and y = C x + c",
      [=](auto s, auto t) {
        const auto x = slice(s, 0, size), next = tanh(matmul(W, x) + t);
        if (average) return join(next, beta * slice(s, size, 2 * size) + (1 - beta) * x);
        return join(next, matmul(C, x) + c);
      },
      random.vector(n + (average ? n : m)), random.vector(n));
}

}  // namespace

std::vector<ProblemClass> pipeline_classes() {
  return {{"pipeline of two", 1, two_stages}, {"pipeline chain", 1, long_chain}, {"pipeline read-out", 1, read_out}};
}

}  // namespace onestep::bench
