// Newton's method on logistic regression: what a gradient costs on top of the solve, by each method; and the paper's Table 1
// as measured facts.
#include <fmt/format.h>

#include <algorithm>

#include "onestep/onestep.h"
#include "paper/items/kinds.h"
#include "paper/items/timing.h"

namespace onestep::app::paper {
namespace {

// Of the last step, relative: one-step differentiation has the error of the iterate before it.
constexpr double tolerance = 1e-13;

struct Size {
  std::int64_t N, n;
};

Table table_1(const TimingRow& row) {
  const auto over = [](const Quartiles& q) { return fmt::format("{:.2f} ({:.2f} to {:.2f})", q.median, q.low, q.high); };
  Table table;
  table.id = "table1";
  table.title = "Three ways to differentiate";
  table.caption = fmt::format(
      "Newton's method on logistic regression, {}; the solve alone takes {}. The user writes the same objective for all: "
      "what the paper calls custom is in the library.",
      row.text, duration(row.none.median));
  table.columns = {"method",
                   "paper: implementation",
                   "here the user writes",
                   "time over solving (quartiles)",
                   "difference from implicit",
                   "paper: efficient"};
  table.rows = {
      {"automatic", "native autodiff", "the objective, Unrolled{}", over(row.unrolled_over), number(row.unrolled_difference),
       "no"},
      {"implicit", "custom", "the objective, Implicit{}", over(row.implicit_over), "reference", "yes"},
      {"one step", "native autodiff", "the objective, OneStep{}", over(row.one_step_over), number(row.difference), "yes"}};
  return table;
}

}  // namespace

void compute_logistic(const ItemOptions& options, const Watch& watch, Item& item) {
  const std::vector<Size> all = choose<std::vector<Size>>(
      options, {{20, 2}, {50, 5}, {200, 10}, {500, 20}, {1000, 40}},
      {{20, 2}, {40, 4}, {100, 6}, {250, 10}, {500, 15}, {1000, 30}, {2500, 50}, {5000, 80}, {10000, 120}},
      {{20, 2},
       {40, 4},
       {100, 6},
       {250, 10},
       {500, 15},
       {1000, 30},
       {2500, 50},
       {5000, 80},
       {10000, 120},
       {20000, 300},
       {20000, 1000}});
  std::vector<TimedSize> sizes;
  for (const auto& [N, n] : all)
    sizes.push_back({fmt::format("N = {}, n = {}", N, n), static_cast<double>((n + 1) * N),
                     [&options, N = N, n = n](int instance) -> TimedProblem {
                       Random random(options.seed, static_cast<std::uint64_t>(3000000 + 100 * n + instance));
                       return {logistic_regression(two_classes(random, N, n), {.tolerance = tolerance}), zeros(n), ones(N)};
                     }});
  const TimingOptions how = timing_options(options, "logistic", 2.0, 1.25);
  const Timing timing = time_methods(sizes, how, watch);
  if (timing.rows.empty()) return;

  const TimingRow& last = timing.rows.back();
  const double difference = timing.largest(&TimingRow::difference);
  item.figures.push_back(
      {"logistic",
       "Logistic regression by Newton's method",
       fmt::format("Newton's method on N samples with Gaussian class-conditional distributions and n coefficients, the "
                   "intercept not penalised, λ = {}, {}, solved until the last step is below {}; gradient of ‖x(θ)‖²/2 by "
                   "the weights θ of the samples. None is the solve alone, the others the solve with the gradient; medians "
                   "with quartiles. At {} the solve takes {}, one step {:.3f} times as long, implicit {:.3f} times. One "
                   "step and implicit differ by at most {} of the largest entry over all sizes.",
                   logistic_lambda, instances_text(timing), number(tolerance), last.text, duration(last.none.median),
                   last.over(&TimingRow::one_step), last.over(&TimingRow::implicit), number(difference)),
       {timing_panel(timing)}});
  add_peers(options.peers, "logistic", " on other samples of this kind", item);
  item.data["sizes"] = timing_data(timing);
  const TimingRow* const autodiff = timing.last_with_autodiff();
  if (autodiff != nullptr) item.tables.push_back(table_1(*autodiff));
  if (!timing.complete) return;

  item.data["largest_difference"] = difference;
  item.claims.push_back({"One-step and implicit gradients agree up to 1e-12",
                         fmt::format("largest difference {}", number(difference)), yes_if(difference <= 1e-12)});
  const int sizes_timed = static_cast<int>(timing.rows.size()), ahead = timing.one_step_ahead();
  item.data["one_step_ahead"] = ahead;
  if (autodiff != nullptr) item.claims.push_back(overhead_claim(timing));
  item.claims.push_back(
      {"One step has a slight advantage over implicit differentiation in time",
       fmt::format("medians: not above implicit at {} of {} sizes; over solving {:.3f} and {:.3f} at {}", ahead, sizes_timed,
                   last.over(&TimingRow::one_step), last.over(&TimingRow::implicit), last.text),
       yes_if(2 * ahead > sizes_timed)});
}

}  // namespace onestep::app::paper
