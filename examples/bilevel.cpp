// Bilevel optimisation: the ridge parameter that does best on a validation set. The inner solve is a node of the outer
// objective, so the outer problem is given to a solver like any other.
#include <onestep/data.h>
#include <onestep/onestep.h>

#include <iostream>
#include <random>
using namespace onestep;

namespace {

// y = A x + noise for an x with few entries that are not zero.
Dataset samples(std::int64_t count, std::int64_t features, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  std::vector<double> a, y;
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t j = 0; j < features; ++j) a.push_back(normal(engine));
    const double* row = a.data() + i * features;
    y.push_back(row[0] - 2 * row[1] + 0.5 * row[2] + 2 * normal(engine));
  }
  return {Array({count, features}, std::move(a)), Array({count}, std::move(y))};
}

}  // namespace

int main() {
  constexpr std::int64_t n = 20;
  const Dataset train = samples(30, n, 1), validation = samples(200, n, 2);

  const auto ridge = [&](Expr x, Expr lambda) {
    return 0.5 * sum(square(matmul(train.A, x) - train.y)) + 0.5 * lambda * sum(square(x));
  };
  // Two Newton steps are differentiated: one is enough for a gradient, the second makes the outer Hessian right too.
  const Solver fit = newton(ridge).from(zeros(n)).with(KStep{2});
  const auto validation_loss = [&](Expr log_lambda) {
    return sum(square(matmul(validation.A, fit(exp(log_lambda))) - validation.y)) / 200.0;
  };

  const Solution best = solve(newton(validation_loss), Array(0.0), Parts());
  const double log_lambda = best.x().item();
  std::cout << best.status() << " in " << best.statistics().iterations << " steps: log λ = " << log_lambda << '\n';

  const Function outer = traced([&](Expr t) { return std::pair{validation_loss(t), grad(validation_loss(t), t)}; }, Shape{});
  bool best_of_neighbours = true;
  const double least = evaluate(outer, {Array(log_lambda)})[0].item();
  for (const double t : {-20.0, log_lambda - 0.1, log_lambda, log_lambda + 0.1}) {
    const std::vector<Array> value = evaluate(outer, {Array(t)});
    std::cout << "log λ = " << t << ": validation loss " << value[0] << ", hypergradient " << value[1] << '\n';
    best_of_neighbours = best_of_neighbours && value[0].item() >= least;
  }
  return best.status() == Status::converged && best_of_neighbours ? 0 : 1;
}
