// Traces f(x) = Σ (Ax - b)², evaluates it and its gradient 2 Aᵀ(Ax - b), and fails if either is wrong.
#include <onestep/onestep.h>

#include <cmath>
#include <iostream>
#include <utility>
#include <vector>

using namespace onestep;

int main() {
  const Array A{{1.0, 2.0}, {3.0, 4.0}}, b{1.0, 1.0};
  const Function f = traced(
      [&](const Expr& x) {
        const Expr value = sum(square(matmul(A, x) - b));
        return std::pair{value, grad(value, x)};
      },
      Input{"x", {2}});
  const std::vector<Array> results = evaluate(f, std::vector<Array>{Array{1.0, 1.0}});
  std::cout << results[0] << ' ' << results[1] << '\n';

  const auto close = [](double a, double expected) { return std::abs(a - expected) <= 1e-12 * expected; };
  return close(results[0].item(), 40.0) && close(results[1](0), 40.0) && close(results[1](1), 56.0) ? 0 : 1;
}
