// The interior point method on random quadratic programs: what a gradient costs on top of the solve, by each method.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "onestep/onestep.h"
#include "paper/items/kinds.h"
#include "paper/items/support.h"

namespace onestep::app::paper {
namespace {

/// Strictly convex, Q = MᵀM/n + I/10, with a solution that is known: of the inequalities every third one is active, and
/// multipliers and slacks are at least `margin`, so that x(θ) is differentiable by that margin.
TimedProblem random_program(Random& random, std::int64_t n, std::int64_t m, std::int64_t p, double margin) {
  const Array M = random.matrix(n, n, 1 / std::sqrt(static_cast<double>(n))), A = random.matrix(m, n),
              G = random.matrix(p, n), x = random.vector(n), y = random.vector(m);
  std::vector<double> slack(static_cast<std::size_t>(p)), z(static_cast<std::size_t>(p));
  for (std::size_t i = 0; i < z.size(); ++i) (i % 3 == 0 ? z : slack)[i] = margin + random.uniform();
  const Array Q =
      evaluate(trace([](Expr a) { return matmul(transpose(a), a) + 0.1 * eye(a.shape()[1]); }, M.shape()), {M})[0];
  const Array b = product(A, x), h = plus(product(G, x), Array({p}, std::move(slack)));
  const Array q =
      times(-1, plus(product(Q, x), plus(product(A.transposed(), y), product(G.transposed(), Array({p}, std::move(z))))));
  return {quadratic_program([=](Expr theta) { return TracedProgram{.Q = Q, .q = q, .A = A, .b = theta, .G = G, .u = h}; }),
          {zeros(n), zeros(m), zeros(p), zeros(n)},
          b};
}

constexpr double margin = 0.1;

/// The largest difference between one step and implicit over programs with no margin.
double difference_without_margin(std::uint64_t seed, std::int64_t n, int instances, const Watch& watch) {
  double largest = 0;
  for (int i = 0; i < instances && !watch.cancelled(); ++i) {
    Random random(seed, static_cast<std::uint64_t>(2900000 + i));
    const TimedProblem problem = random_program(random, n, 2 * n / 5, n, 0);
    const Solution one = solve(problem.solver, problem.theta, OneStep{}),
                   exact = solve(problem.solver, problem.theta, Implicit{});
    const Array a = one.vjp(one.x()), b = exact.vjp(exact.x());
    largest = std::max(largest, largest_difference(a.values(), b.values()));
  }
  return largest;
}

}  // namespace

void compute_qp(const ItemOptions& options, const Watch& watch, Item& item) {
  const std::vector<std::int64_t> numbers = choose<std::vector<std::int64_t>>(
      options, {3, 6, 12, 25, 50}, {3, 6, 12, 25, 50, 100, 200, 400}, {3, 6, 12, 25, 50, 100, 200, 400, 600, 1000, 1500});
  std::vector<TimedSize> sizes;
  for (const std::int64_t n : numbers) {
    const std::int64_t m = std::max<std::int64_t>(1, 2 * n / 5), p = n;
    sizes.push_back(
        {fmt::format("n = {}", n), static_cast<double>((n + 1) * (n + m + p)), [&options, n, m, p](int instance) {
           Random random(options.seed, static_cast<std::uint64_t>(2000000 + 100 * n + instance));
           return random_program(random, n, m, p, margin);
         }});
  }
  TimingOptions how;
  how.item = "qp";
  how.instances = choose(options, 2, 3, 3);
  how.seconds_a_size = choose(options, 0.1, 1.0, 2.0);
  how.autodiff_limit = choose(options, 0.5, 2.0, 30.0);
  how.autodiff_growth = 1.5;  // n³ of n² numbers
  const Timing timing = time_methods(sizes, how, watch);
  if (timing.rows.empty()) return;
  const std::int64_t hard = choose<std::int64_t>(options, 25, 50, 100);
  const int instances = choose(options, 5, 20, 20);
  watch.progress("qp, programs near to where they are not differentiable");
  const double without_margin = difference_without_margin(options.seed, hard, instances, watch);

  const TimingRow& last = timing.rows.back();
  const double difference = timing.largest_difference();
  item.figures.push_back(
      {"qp",
       "Quadratic programs by an interior point method",
       fmt::format(
           "Interior point method on random strictly convex programs with n variables, 2n/5 equalities and n "
           "inequalities, a third of them active, {} of each size; multipliers of active and slacks of "
           "other constraints are at least {}. Gradient of ‖x(θ)‖²/2 by the right-hand side θ of the equalities. None is "
           "the solve alone, the others the solve with the gradient; medians with quartiles. At {}: none {}, one "
           "step {:.3f} times that, implicit {:.3f} times. One step and implicit differ by at most {} of the largest "
           "entry over all sizes; on {} programs of n = {} whose multipliers and slacks may be arbitrarily small, where "
           "x(θ) is nearly not differentiable, by at most {}.",
           how.instances, margin, last.text, duration(last.none.median), last.one_step_over.median,
           last.implicit_over.median, number(difference), instances, hard, number(without_margin)),
       {timing_panel(timing)}});
  item.data["sizes"] = timing_data(timing);
  if (!timing.complete) return;

  item.data["largest_difference"] = difference;
  item.data["difference_without_margin"] = without_margin;
  item.claims.push_back({"One-step and implicit gradients agree up to 1e-6",
                         fmt::format("largest difference {}", number(difference)), difference <= 1e-6});
  const auto autodiff = std::ranges::find_if(timing.rows.rbegin(), timing.rows.rend(),
                                             [](const TimingRow& row) { return row.unrolled.median > 0; });
  if (autodiff == timing.rows.rend()) return;
  item.claims.push_back(
      {"One-step and implicit differentiation have a marginal overhead, automatic differentiation has not",
       fmt::format("time over solving: one step {:.2f}, implicit {:.2f} at {}; autodiff {:.2f} at {}",
                   last.one_step_over.median, last.implicit_over.median, last.text, autodiff->unrolled_over.median,
                   autodiff->text),
       last.one_step_over.median < 1.5 && last.implicit_over.median < 1.5 && autodiff->unrolled_over.median > 1.5});
}

}  // namespace onestep::app::paper
