// The interior point method on random quadratic programs: what a gradient costs on top of the solve, by each method.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "onestep/onestep.h"
#include "paper/items/kinds.h"
#include "paper/items/timing.h"

namespace onestep::app::paper {
namespace {

constexpr double margin = 0.1;

/// Strictly convex: Q = MᵀM/n + I/10. With a margin the solution is known: every third inequality is active, and multipliers
/// and slacks are at least `margin`, so that x(θ) is differentiable by that much. Without it q is random and a random x is
/// feasible; nothing keeps multiplier and slack of a constraint from vanishing both.
TimedProblem random_program(Random& random, std::int64_t n, std::int64_t m, std::int64_t p, bool with_margin) {
  const Array M = random.matrix(n, n, 1 / std::sqrt(static_cast<double>(n))), A = random.matrix(m, n),
              G = random.matrix(p, n), x = random.vector(n), y = random.vector(m);
  std::vector<double> slack(static_cast<std::size_t>(p)), multipliers(static_cast<std::size_t>(p));
  for (std::size_t i = 0; i < slack.size(); ++i)
    (with_margin && i % 3 == 0 ? multipliers : slack)[i] = (with_margin ? margin : 0) + random.uniform();
  const Array z({p}, std::move(multipliers));
  const Array Q =
      evaluate(traced([](Expr a) { return matmul(transpose(a), a) + 0.1 * eye(a.shape()[1]); }, M.shape()), {M})[0];
  const Array b = product(A, x), h = plus(product(G, x), Array({p}, std::move(slack)));
  const Array q = with_margin ? times(-1, plus(product(Q, x), plus(product(A.transposed(), y), product(G.transposed(), z))))
                              : random.vector(n);
  return {quadratic_program([=](Expr theta) { return TracedProgram{.Q = Q, .q = q, .A = A, .b = theta, .G = G, .u = h}; }),
          {zeros(n), zeros(m), zeros(p), zeros(n)},
          b};
}

struct WithoutMargin {
  int count = 0, above = 0;  ///< above 1e-6
  double largest = 0;
};
/// The difference between one step and implicit over programs without a margin.
WithoutMargin differences_without_margin(std::uint64_t seed, std::int64_t n, int instances, const Watch& watch) {
  WithoutMargin found;
  for (int i = 0; i < instances && !watch.cancelled(); ++i) {
    Random random(seed, static_cast<std::uint64_t>(2900000 + i));
    const TimedProblem problem = random_program(random, n, 2 * n / 5, n, false);
    const Solution one = solve(problem.solver, problem.theta, OneStep{}),
                   exact = solve(problem.solver, problem.theta, Implicit{});
    const Array a = one.vjp(one.x()), b = exact.vjp(exact.x());
    const double difference = largest_difference(a.values(), b.values());
    ++found.count;
    found.above += difference > 1e-6 ? 1 : 0;
    found.largest = std::max(found.largest, difference);
  }
  return found;
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
           return random_program(random, n, m, p, true);
         }});
  }
  // Its time grows as n³, with n² numbers.
  TimingOptions how = timing_options(options, "qp", 1.5, 1.5);
  how.traced_solve = true;
  const Timing timing = time_methods(sizes, how, watch);
  if (timing.rows.empty()) return;
  const std::int64_t hard = choose<std::int64_t>(options, 25, 50, 100);
  const int instances = choose(options, 5, 20, 20);
  watch.progress("qp, programs near to where they are not differentiable");
  const WithoutMargin rough = differences_without_margin(options.seed, hard, instances, watch);

  const TimingRow& last = timing.rows.back();
  const double difference = timing.largest(&TimingRow::difference);
  const TimingRow* const autodiff = timing.last_with_autodiff();
  const std::string of_autodiff =
      autodiff == nullptr
          ? ""
          : fmt::format(
                " At {} both solves without the gradient take {:.2f} times as long as None; autodiff takes {:.2f} times "
                "as long as they and {:.2f} times as long as None.",
                autodiff->text, autodiff->over(&TimingRow::traced), autodiff->unrolled.median / autodiff->traced.median,
                autodiff->over(&TimingRow::unrolled));
  item.figures.push_back(
      {"qp",
       "Quadratic programs by an interior point method",
       fmt::format(
           "Interior point method on random strictly convex programs with n variables, 2n/5 equalities and n inequalities, "
           "a third of them active, {}; multipliers of active and slacks of other constraints are at least {}. Gradient of "
           "‖x(θ)‖²/2 by the right-hand side θ of the equalities. None is the solve alone, the others the solve with the "
           "gradient; medians with quartiles. At {} the solve takes {}, one step {:.3f} times as long, implicit {:.3f} "
           "times. One step and implicit differ by at most {} of the largest entry over all sizes. One step differentiates "
           "the undamped Newton step on the optimality conditions from the iterate before the last, not the damped step "
           "itself. Autodiff goes over the iterations of a traced version of the method, which begin near the solution that "
           "None has found, so that there are about four of them, with centring and step lengths held constant; its gradient differs from implicit by up to "
           "{}.{} Without that margin multiplier and slack of a constraint can nearly vanish both, and x(θ) is nearly not "
           "differentiable: on {} such programs of n = {} they differ by at most {}, {} times by more than 1e-6.",
           instances_text(timing), margin, last.text, duration(last.none.median), last.over(&TimingRow::one_step),
           last.over(&TimingRow::implicit), number(difference), number(timing.largest(&TimingRow::unrolled_difference)),
           of_autodiff, rough.count, hard, number(rough.largest), rough.above),
       {timing_panel(timing)}});
  add_peers(options.peers, "qp", " on other programs of this form, with gradients by all of their data", item);
  item.data["sizes"] = timing_data(timing);
  if (!timing.complete) return;

  item.data["largest_difference"] = difference;
  item.data["without_margin"] = {{"count", rough.count}, {"above", rough.above}, {"largest", rough.largest}};
  item.claims.push_back({"One-step and implicit gradients agree up to 1e-6",
                         fmt::format("largest difference {}; on programs that are nearly not differentiable {}",
                                     number(difference), number(rough.largest)),
                         yes_if(difference <= 1e-6)});
  if (autodiff != nullptr) item.claims.push_back(overhead_claim(timing));
}

}  // namespace onestep::app::paper
