// Runs the iterations with each derivative, counts their multiply-adds, and measures their time and their memory.
#include "paper/items/gradient_costs.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "onestep/onestep.h"
#include "paper/items/piggyback.h"
#include "paper/items/support.h"

namespace onestep::app::paper {
namespace {

/// x ← W sin(x) + Cθ from a random x. ‖W‖ is near 1, so that k iterations do not come to rest.
struct Problem {
  Array W, C, x0, theta;

  Problem(std::uint64_t seed, const GradientSize& size) {
    Random random(seed, static_cast<std::uint64_t>(5000000 + 1000 * size.n + size.m));
    W = times(0.9999, random.orthonormal(size.n, size.n));
    C = random.matrix(size.n, size.m, 1e-3);
    x0 = random.vector(size.n, 0.1);
    theta = random.vector(size.m);
  }
  Expr step(const Expr& x, const Expr& t) const { return matmul(W, sin(x)) + matmul(C, t); }
  double flops() const {
    return traced([&](Expr x, Expr t) { return step(x, t); }, x0.shape(), theta.shape()).flops();
  }
};

/// Beside its flops: the median time of the solve with the gradient of ‖x‖²/2, and the memory held then.
template <class Make> GradientCost measured(const Make& make) {
  const auto before = static_cast<double>(heap_bytes());
  const auto work = make();
  (void)work->run();  // the first run touches its memory for the first time
  std::vector<double> seconds;
  GradientCost cost;
  for (int i = 0; i < gradient_repetitions; ++i) {
    const Stopwatch watch;
    cost.flops = work->run();
    seconds.push_back(watch.seconds());
  }
  cost.seconds = quartiles(seconds).median;
  cost.bytes = std::max(0.0, static_cast<double>(heap_bytes()) - before);
  return cost;
}

struct Solving {
  Problem problem;
  GradientSize size;
  bool with_gradient;
  Prepared prepared;

  Solving(const Problem& p, const GradientSize& s, const std::optional<Estimator>& estimator)
      : problem(p),
        size(s),
        with_gradient(estimator.has_value()),
        prepared(fixed_point([p](Expr x, Expr t) { return p.step(x, t); },
                             {.tolerance = 0, .max_iterations = static_cast<int>(s.k)}),
                 p.x0, p.theta, estimator.value_or(OneStep{})) {}
  /// Multiply-adds of the derivative, or of the solve where there is none.
  double run() {
    const Solution& s = prepared.solve(problem.x0, problem.theta);
    if (!with_gradient) return s.statistics().iterations * s.statistics().step_flops;
    (void)s.even_if_unconverged().vjp(s.x());
    return s.report().flops;
  }
};

struct Carrying {
  Problem problem;
  GradientSize size;
  Piggyback recursion;

  Carrying(const Problem& p, const GradientSize& s)
      : problem(p), size(s), recursion([p](const Expr& x, const Expr& t) { return p.step(x, t); }, s.n, p.theta) {}
  double run() {
    recursion.start(problem.x0);
    recursion.run(static_cast<int>(size.k));
    (void)product(recursion.x(), recursion.jacobian());
    return static_cast<double>(size.k) * recursion.flops_a_step() + static_cast<double>(size.n * size.m);
  }
};

}  // namespace

std::array<GradientCost, 5> gradient_costs(std::uint64_t seed, const GradientSize& size) {
  const Problem problem(seed, size);
  const auto solving = [&](const std::optional<Estimator>& e) {
    return measured([&] { return std::make_unique<Solving>(problem, size, e); });
  };
  return {measured([&] { return std::make_unique<Carrying>(problem, size); }), solving(Unrolled{.mode = Unrolled::reverse}),
          solving(Implicit{.how = Implicit::dense}), solving(OneStep{}), solving(std::nullopt)};
}

double step_flops(std::uint64_t seed, const GradientSize& size) { return Problem(seed, size).flops(); }

double matrix_free_memory(std::uint64_t seed, const GradientSize& smaller, const GradientSize& larger) {
  const auto bytes = [&](const GradientSize& size) {
    const Problem problem(seed, size);
    return measured([&] { return std::make_unique<Solving>(problem, size, Implicit{.how = Implicit::matrix_free}); }).bytes;
  };
  return std::log(bytes(larger) / bytes(smaller)) / std::log(static_cast<double>(larger.n) / static_cast<double>(smaller.n));
}

}  // namespace onestep::app::paper
