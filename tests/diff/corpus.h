// The functions every claim about derivatives is tried on: small versions of what the library is for.
#pragma once

#include <string>
#include <vector>

#include "onestep/diff.h"
#include "onestep/function.h"
#include "support/random.h"

namespace onestep::test {

/// A function, a point to look at it, and its first result as a number for gradients.
struct CorpusEntry {
  std::string name;
  Function function;
  std::vector<Array> point;
};

/// Every function at sizes of the order of `n`: n = 4 for derivatives of order three, larger for flop counts.
inline std::vector<CorpusEntry> corpus(std::int64_t n = 4) {
  Random random(2023);
  const std::int64_t rows = 3 * n, classes = 3, hidden = n + 1;
  const Array A = random.array({rows, n}, -1, 1);
  const Array b = random.array({rows}, -1, 1);
  std::vector<double> labels(static_cast<std::size_t>(rows));
  for (double& y : labels) y = random.flip() ? 1.0 : -1.0;
  const Array y = Array(Shape{rows}, labels);
  std::vector<double> chosen(static_cast<std::size_t>(rows * classes));
  for (std::int64_t i = 0; i < rows; ++i) chosen[static_cast<std::size_t>(i * classes + random.integer(0, classes - 1))] = 1;
  const Array one_hot(Shape{rows, classes}, chosen);

  const auto log_sum_exp = [](const Expr& z) {  // of each row
    const Expr shift = stop_gradient(max(z, Axis{1}));
    return shift + log(sum(exp(z - reshape(shift, {z.shape()[0], 1})), 1));
  };
  const auto x_in = Input{"x", {n}};
  std::vector<CorpusEntry> all;
  const auto add = [&](std::string name, Function f, double low = -1, double high = 1) {
    std::vector<Array> point;
    for (const Input& input : f.inputs()) point.push_back(random.array(input.shape, low, high));
    all.push_back({std::move(name), std::move(f), std::move(point)});
  };

  add("weighted logistic regression",
      traced([&](Expr x, Expr w) { return sum(w * softplus(-y * matmul(A, x))) + 0.1 * sum(square(slice(x, 1, n))); }, x_in,
             Input{"w", {rows}}));
  add("ridge regression",
      traced([&](Expr x, Expr lambda) { return 0.5 * sum(square(matmul(A, x) - b)) + exp(lambda) * sum(square(x)); }, x_in,
             Input{"lambda", {}}));
  add("softmax regression", traced(
                                [&](Expr W, Expr c) {
                                  const Expr z = matmul(A, W) + c;
                                  return sum(log_sum_exp(z)) - sum(one_hot * z) + 0.01 * sum(square(W));
                                },
                                Input{"W", {n, classes}}, Input{"c", {classes}}));
  add("multilayer perceptron",
      traced(
          [&](std::vector<Expr> first, std::vector<Expr> second) {
            const Expr h = tanh(matmul(A, first[0]) + first[1]);
            const Expr out = matmul(h, second[0]) + second[1];
            return sum(square(out - b));
          },
          std::vector<Input>{{"W1", {n, hidden}}, {"b1", {hidden}}}, std::vector<Input>{{"w2", {hidden}}, {"b2", {}}}));
  add("log-sum-exp", traced([&](Expr x) { return sum(log_sum_exp(reshape(matmul(A, x), {1, rows}))); }, x_in));
  add("Rosenbrock", traced(
                        [&](Expr x) {
                          const Expr head = slice(x, 0, n - 1), tail = slice(x, 1, n);
                          return sum(100.0 * square(tail - square(head)) + square(1.0 - head));
                        },
                        x_in));
  add("quadratic form through Cholesky", traced(
                                             [&](Expr M, Expr v) {
                                               const Expr H = matmul(transpose(M), M) + eye(n);
                                               return 0.5 * matmul(v, solve(cholesky(H), v));
                                             },
                                             Input{"M", {n, n}}, Input{"v", {n}}));
  add("log-likelihood of a covariance", traced(
                                            [&](Expr w, Expr d) {
                                              const Factor F = cholesky(gram(A, exp(w)) + diag(exp(d)));
                                              const Expr r = slice(b, 0, n);
                                              return 0.5 * logdet(F) + 0.5 * matmul(r, solve(F, r));
                                            },
                                            Input{"w", {rows}}, Input{"d", {n}}));
  add("Kalman update", traced(
                           [&](Expr m, Expr S, Expr r) {
                             const Array C = random.array({2, n}, -1, 1);
                             const Expr P = matmul(S, transpose(S)) + 0.5 * eye(n);
                             const Expr CP = matmul(C, P);
                             const Factor innovation = cholesky(matmul(CP, transpose(Expr(C))) + diag(exp(r)));
                             const Expr gain = transpose(solve(innovation, CP));
                             const Expr state = m + matmul(gain, slice(b, 0, 2) - matmul(C, m));
                             return sum(square(state)) + sum(diagonal(P - matmul(gain, CP)));
                           },
                           Input{"m", {n}}, Input{"S", {n, n}}, Input{"r", {2}}));
  add("matrix square", traced([&](Expr M) { return sum(matmul(M, M) * Expr(random.array({n, n}))); }, Input{"M", {n, n}}));
  return all;
}

}  // namespace onestep::test
