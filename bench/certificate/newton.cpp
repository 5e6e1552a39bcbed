// Newton's method: conditions 1e2 to 1e14, systems of equations, conjugate gradients inside, logistic regression near
// separation, and Hessians that are only Hölder continuous.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "certificate/problem.h"

namespace onestep::bench {
namespace {

// A minimiser of `value`, traced, whose gradient is written by hand as a generic lambda.
template <class F, class G>
Problem minimiser(std::string text, F value, G gradient, const Array& start, const Array& theta, bool cg = false) {
  Problem p;
  p.text = std::move(text);
  p.family = Family::newton;
  p.solver = [value, cg](const SolveOptions& options) {
    return cg ? newton_cg(value, {}, options) : newton(value, options);
  };
  p.start = start;
  p.theta = theta;
  p.max_iterations = 300;
  set_truth(p, root_functions(gradient));
  return p;
}

// ½xᵀHx - (B t)ᵀx + γ Σ softplus(Cx), curvatures spread over `condition`.
Problem conditioned(Random& random, double condition, bool cg) {
  const std::size_t n = std::max<std::size_t>(2, random_size(random, cg ? 32 : 24)), p = 1 + random.below(8);
  std::vector<double> curvatures(n);
  for (double& e : curvatures) e = random.scale(1 / condition, 1);
  curvatures[0] = 1;
  curvatures[n - 1] = 1 / condition;
  const double size = random.scale(1e-3, 1e3), gamma = size * random.scale(1e-4, 1);
  for (double& e : curvatures) e *= size;
  const Array H = symmetric_with(random, curvatures), B = random.matrix(n, p, size * random.scale(1e-3, 1)),
              C = random.matrix(n, n, 0.3);
  // The linear term is such that x̄ is about `solution`: moderate, whatever the condition.
  const Array solution = random.vector(n), theta = random.vector(p);
  const auto slope = [=](auto x) { return matmul(H, x) + gamma * matmul(transpose(decltype(x)(C)), sigmoid(matmul(C, x))); };
  const Field<Real> at_solution = slope(Field<Real>(solution)) - matmul(Field<Real>(B), Field<Real>(theta));
  const Array b = array_of({at_solution.entries().begin(), at_solution.entries().end()});
  return minimiser(
      fmt::format("1/2 x'Hx - (B t + b)'x + gamma sum softplus(Cx), condition of H {:.1e}", condition),
      [=](Expr x, Expr t) {
        return 0.5 * matmul(x, matmul(H, x)) - matmul(matmul(B, t) + b, x) + gamma * sum(softplus(matmul(C, x)));
      },
      [=](auto x, auto t) { return slope(x) - matmul(B, t) - b; }, random.vector(n), theta, cg);
}
Problem newton_conditioned(Random& random) { return conditioned(random, random.scale(1e2, 1e14), false); }
Problem newton_cg_conditioned(Random& random) { return conditioned(random, random.scale(1e1, 1e8), true); }

// The curvature itself is ill-conditioned: the softplus part lives in a few directions, the rest is 1/condition.
Problem newton_flat(Random& random) {
  const std::size_t n = 2 + random.below(12);
  const double ridge = random.scale(1e-10, 1e-2);
  const Array C = random.matrix(1 + n / 2, n);
  return minimiser(
      "sum (softplus(Cx) + softplus(-Cx)) + ridge/2 |x|^2 - ridge t'x",
      [=](Expr x, Expr t) {
        const Expr z = matmul(C, x);
        return sum(softplus(z) + softplus(-z)) + ridge * (0.5 * sum(square(x)) - matmul(t, x));
      },
      [=](auto x, auto t) {
        const auto z = matmul(C, x);
        return matmul(transpose(decltype(x)(C)), sigmoid(z) - sigmoid(-z)) + ridge * (x - t);
      },
      random.vector(n), random.vector(n));
}

Problem root(Random& random) {
  const std::size_t n = random_size(random, 24, 0.02);
  const Array M = scaled_to_norm(random.matrix(n, n), random.scale(0.2, 3)), S = scaled_to_norm(random.matrix(n, n), 0.5);
  const double bend = random.uniform(0.1, 1);
  const auto residual = [=](auto x, auto t) { return x + matmul(S, x) * 0.9 + 0.3 * bend * sin(matmul(M, x)) - t; };
  Problem p;
  p.text = "x + 0.9 S x + bend sin(M x) = t";
  p.family = Family::newton;
  p.solver = [residual](const SolveOptions& options) { return newton_root(residual, options); };
  p.start = random.vector(n);
  p.theta = random.vector(n);
  p.max_iterations = 300;
  set_truth(p, root_functions(residual));
  return p;
}

// Weights on the samples; two classes that a plane separates but for a few samples, or altogether, held by a small penalty.
Problem logistic(Random& random) {
  const std::size_t n = 2 + random.below(8), N = 10 + random.below(40);
  std::vector<double> a = random.gaussians(N * n), y(N), w(N);
  const std::vector<double> plane = random.gaussians(n);
  const double noise = random.chance(0.5) ? 0.0 : random.scale(1e-3, 0.3);
  for (std::size_t i = 0; i < N; ++i) {
    double z = noise * random.gaussian();
    for (std::size_t j = 0; j < n; ++j) z += a[i * n + j] * plane[j];
    y[i] = z >= 0 ? 1 : -1;
    w[i] = random.uniform(0.5, 1.5);
    for (std::size_t j = 0; j < n; ++j) a[i * n + j] *= y[i];
  }
  const double l2 = random.scale(1e-8, 1e-1);
  const Array A(Shape{as_size(N), as_size(n)}, a);
  if (random.chance(0.3)) {
    // The penalty is a second parameter.
    const auto samples = as_size(N);
    Problem p = minimiser(
        "logistic regression near separation, weights on the samples and the penalty",
        [=](Expr x, Expr t) { return sum(t * softplus(-matmul(A, x))) + 0.5 * l2 * sum(square(x)); },
        [=](auto x, auto t) {
          return slice(t, samples, samples + 1) * x -
                 matmul(transpose(decltype(x)(A)), slice(t, 0, samples) * sigmoid(-matmul(A, x)));
        },
        zeros(n),
        [&] {
          std::vector<double> both = w;
          both.push_back(l2);
          return array_of(both);
        }());
    p.theta = {array_of(w), Array(l2)};
    p.solver = [=](const SolveOptions& options) {
      return newton(
          [=](Expr x, Expr t, Expr penalty) { return sum(t * softplus(-matmul(A, x))) + 0.5 * penalty * sum(square(x)); },
          options);
    };
    return p;
  }
  return minimiser(
      "logistic regression near separation, weights on the samples",
      [=](Expr x, Expr t) { return sum(t * softplus(-matmul(A, x))) + 0.5 * l2 * sum(square(x)); },
      [=](auto x, auto t) { return l2 * x - matmul(transpose(decltype(x)(A)), t * sigmoid(-matmul(A, x))); }, zeros(n),
      array_of(w), random.chance(0.2));
}

// ½‖x - t‖² m + Σ |x - s|^(2+p), some entries of x̄ so near to s that the curvature is far from Lipschitz.
Problem hoelder(Random& random) {
  const std::size_t n = 1 + random.below(6);
  const double p = random.uniform(0.05, 0.95), mu = random.scale(1e-4, 1);
  // t is chosen for the solution s + gap.
  std::vector<double> s(n), t(n);
  for (std::size_t i = 0; i < n; ++i) {
    s[i] = random.chance(0.4) ? 0.0 : random.gaussian();
    const double gap = (random.chance(0.5) ? 1 : -1) * random.scale(1e-12, 1);
    const double slope = (2 + p) * std::copysign(std::pow(std::fabs(gap), 1 + p), gap);
    t[i] = s[i] + gap + slope / mu;
  }
  const Array at = array_of(s), coupling = scaled_to_norm(random.matrix(n, n), n > 1 && random.chance(0.5) ? 0.3 * mu : 0.0);
  Problem problem = minimiser(
      "mu/2 |x - t|^2 + 1/2 |Cx|^2 + sum |x - s|^(2+p)",
      [=](Expr x, Expr theta) {
        return 0.5 * mu * sum(square(x - theta)) + 0.5 * sum(square(matmul(coupling, x))) + sum(pow(abs(x - at), 2 + p));
      },
      [=](auto x, auto theta) {
        const auto d = x - at;
        return mu * (x - theta) + matmul(transpose(decltype(x)(coupling)), matmul(coupling, x)) +
               (2 + p) * sign(d) * pow(abs(d), 1 + p);
      },
      random.vector(n), array_of(t));
  problem.family = Family::rough;
  if (mu < 0.05 || random.chance(0.5)) return problem;
  // By gradient descent, with a step for the largest curvature on the way.
  double reach = 1;
  for (std::size_t i = 0; i < n; ++i) reach = std::max(reach, std::fabs(t[i]) + std::fabs(s[i]));
  const double alpha = 1 / (1.3 * mu + (2 + p) * (1 + p) * std::pow(2 * reach, p));
  problem.text += " by gradient descent";
  problem.max_iterations = 20000;
  problem.solver = [=](const SolveOptions& options) {
    return gradient_descent(
        [=](Expr x, Expr theta) {
          return 0.5 * mu * sum(square(x - theta)) + 0.5 * sum(square(matmul(coupling, x))) + sum(pow(abs(x - at), 2 + p));
        },
        {.step = GradientStep::fixed(alpha)}, options);
  };
  return problem;
}

}  // namespace

std::vector<ProblemClass> newton_classes() {
  return {{"newton", 1.5, newton_conditioned},     {"newton flat", 0.7, newton_flat}, {"newton root", 1, root},
          {"newton-cg", 1, newton_cg_conditioned}, {"logistic", 1, logistic},         {"hoelder", 1, hoelder}};
}

}  // namespace onestep::bench
