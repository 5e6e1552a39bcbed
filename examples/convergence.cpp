// How fast Newton's iterates and their derivatives converge: the paper's comparison on a logistic regression. Prints a table
// that docs/convergence.gnuplot draws:
//
//     build/release/example_convergence | gnuplot docs/convergence.gnuplot > docs/convergence.svg
#include <onestep/onestep.h>

#include <cmath>
#include <iostream>
#include <random>
using namespace onestep;

namespace {

double distance(const Array& a, const Array& b) {  // relative to b
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < b.values().size(); ++i) {
    difference += std::pow(a.values()[i] - b.values()[i], 2);
    size += std::pow(b.values()[i], 2);
  }
  return std::sqrt(difference / size);
}

}  // namespace

int main() {
  constexpr std::int64_t N = 1000, n = 20;
  std::mt19937_64 engine(1);
  std::normal_distribution<double> normal;
  std::vector<double> entries(N * n), labels(N);
  for (double& e : entries) e = 1.5 * normal(engine);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = entries[i * n] + normal(engine) > 0 ? 1 : -1;
  const Array A({N, n}, std::move(entries)), y({N}, std::move(labels)), w = ones(N);

  const Solver fit =
      newton([&](Expr x, Expr weights) { return sum(weights * softplus(-y * matmul(A, x))) + 0.1 * sum(square(x)); });
  const Array x = solve(fit, zeros(n), w).x();
  const Array exact = solve(fit, x, w, Implicit{.tolerance = 1e-14}).vjp(x);  // ∇θ ‖x(θ)‖²/2 at the solution

  std::cout << "# iteration, relative errors of: x, the gradient by one step, implicit, unrolled\n";
  double last = 1;
  for (int k = 1; k <= 8; ++k) {
    std::cout << k;
    const Solver stopped = fit.with(SolveOptions{.tolerance = 0, .max_iterations = k});
    for (const Estimator& estimator : {Estimator(OneStep{}), Estimator(Implicit{}), Estimator(Unrolled{})}) {
      const Solution s = solve(stopped, zeros(n), w, estimator);
      if (std::holds_alternative<OneStep>(estimator.kind())) std::cout << ' ' << distance(s.x(), x);
      last = distance(s.even_if_unconverged().vjp(x), exact);
      std::cout << ' ' << last;
    }
    std::cout << '\n';
  }
  return last < 1e-10 ? 0 : 1;
}
