// Times a solve alone and a solve with the gradient of ‖x(θ)‖²/2 by each method, over sizes and instances. The methods take
// turns, so that what disturbs one disturbs all.
#include "paper/items/timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>

namespace onestep::app::paper {
namespace {

enum Way : std::size_t { none, unrolled, implicit, one_step, traced, ways };

// Samples shorter than this are made of several runs.
constexpr double shortest_sample = 5e-5;
// So many times the time that was meant for it, and a size gets fewer turns and instances.
constexpr double overtime = 4;

/// A prepared solver with memory for its gradient.
class Runner {
 public:
  Runner(const TimedProblem& problem, const Estimator& estimator, bool with_gradient)
      : prepared_(problem.solver, problem.x0, problem.theta, estimator),
        x0_(problem.x0),
        theta_(problem.theta),
        with_gradient_(with_gradient) {
    for (const Array& t : theta_) gradient_.resize(gradient_.size() + static_cast<std::size_t>(t.size()));
    std::span<double> rest = gradient_;
    for (const Array& t : theta_) {
      outputs_.push_back(rest.first(static_cast<std::size_t>(t.size())));
      rest = rest.subspan(outputs_.back().size());
    }
  }

  void run() {
    solution_ = &prepared_.solve(x0_, theta_);
    if (!with_gradient_) return;
    if (first_part_ == 0) first_part_ = static_cast<std::size_t>(solution_->x().size());
    const std::span<const double> x = solution_->entries().first(first_part_);
    solution_->vjp_into({&x, 1}, outputs_);
  }
  /// Runs more often than asked for when that is the first time.
  double sample() {
    if (batch_ == 0) {
      Stopwatch once;
      run();
      if (!is_solution(solution_->status())) throw std::runtime_error(solution_->message());
      if (once.seconds() < 1000 * shortest_sample) {  // the first run is no measure of short ones
        once = {};
        run();
      }
      batch_ = static_cast<int>(std::clamp(std::ceil(shortest_sample / std::max(once.seconds(), 1e-9)), 1.0, 1000.0));
    }
    const Stopwatch watch;
    for (int i = 0; i < batch_; ++i) run();
    return watch.seconds() / batch_;
  }
  const Solution& solution() const { return *solution_; }
  std::span<const double> gradient() const { return gradient_; }

 private:
  Prepared prepared_;
  Parts x0_, theta_;
  bool with_gradient_;
  const Solution* solution_ = nullptr;
  std::size_t first_part_ = 0;
  std::vector<double> gradient_;
  std::vector<std::span<double>> outputs_;
  int batch_ = 0;
};

/// Whether the next size is still for unrolling, told from the last one.
class AutodiffBudget {
 public:
  explicit AutodiffBudget(const TimingOptions& options) : options_(options) {}

  bool allows(const TimedSize& size, std::vector<std::string>& notes) {
    if (over_) return false;
    if (seconds_ == 0) return true;
    const double growth = std::pow(size.parameters / parameters_, options_.autodiff_growth);
    if (seconds_ * growth > options_.autodiff_limit) {
      notes.push_back(fmt::format("Autodiff stops here: with {} it would take more than {}.", size.text,
                                  duration(options_.autodiff_limit)));
      over_ = true;
    } else if (bytes_ * size.parameters / parameters_ > options_.autodiff_memory) {
      notes.push_back(fmt::format("Autodiff stops here: with {} it would take more than {:.0f} MB.", size.text,
                                  options_.autodiff_memory / 1e6));
      over_ = true;
    }
    return !over_;
  }
  void took(const TimedSize& size, double seconds, double bytes) {
    parameters_ = size.parameters;
    seconds_ = seconds;
    bytes_ = bytes;
  }

 private:
  const TimingOptions& options_;
  double parameters_ = 0, seconds_ = 0, bytes_ = 0;
  bool over_ = false;
};

}  // namespace

double Timing::largest(double TimingRow::*difference) const {
  double most = 0;
  for (const TimingRow& row : rows) most = std::max(most, row.*difference);
  return most;
}

TimingOptions timing_options(const ItemOptions& options, std::string item, double seconds_a_size, double autodiff_growth) {
  TimingOptions how;
  how.item = std::move(item);
  how.instances = choose(options, 2, 3, 3);
  how.seconds_a_size = choose(options, 0.1, seconds_a_size, 4.0);
  how.autodiff_limit = choose(options, 0.5, 2.0, 5.0);
  how.autodiff_growth = autodiff_growth;
  return how;
}

double Timing::most_over(Quartiles TimingRow::*method) const {
  double most = 0;
  for (const TimingRow& row : rows) most = std::max(most, row.over(method));
  return most;
}

int Timing::one_step_ahead() const {
  return static_cast<int>(
      std::ranges::count_if(rows, [](const TimingRow& row) { return row.one_step.median <= row.implicit.median; }));
}

const TimingRow* Timing::last_with_autodiff() const {
  const auto found = std::find_if(rows.rbegin(), rows.rend(), [](const TimingRow& row) { return row.unrolled.median > 0; });
  return found == rows.rend() ? nullptr : &*found;
}

Timing time_methods(std::span<const TimedSize> sizes, const TimingOptions& options, const Watch& watch) {
  Timing timing;
  AutodiffBudget budget(options);
  for (const TimedSize& size : sizes) {
    watch.progress(fmt::format("{}, {}", options.item, size.text));
    const bool with_unrolled = budget.allows(size, timing.notes);
    std::array<std::vector<double>, ways> seconds, over;
    const Stopwatch at_this_size;
    TimingRow row;
    row.text = size.text;
    row.parameters = size.parameters;
    double most_bytes = 0;
    const double share = options.seconds_a_size / options.instances;
    for (int instance = 0; instance < options.instances; ++instance) {
      if (instance > 0 && at_this_size.seconds() > overtime * options.seconds_a_size) break;
      const TimedProblem problem = size.make(instance);
      std::array<std::unique_ptr<Runner>, ways> runners;
      runners[none] = std::make_unique<Runner>(problem, OneStep{}, false);
      runners[implicit] = std::make_unique<Runner>(problem, Implicit{}, true);
      runners[one_step] = std::make_unique<Runner>(problem, OneStep{}, true);
      const auto before = static_cast<double>(heap_bytes());
      if (with_unrolled) runners[unrolled] = std::make_unique<Runner>(problem, Unrolled{}, true);
      if (with_unrolled && options.traced_solve) runners[traced] = std::make_unique<Runner>(problem, Unrolled{}, false);
      const Stopwatch spent;
      for (int turn = 0; turn < 1000; ++turn) {
        if (watch.cancelled()) {
          timing.complete = false;
          return timing;
        }
        // All methods have the same turns: medians of other turns would be of a busier or quieter machine.
        if (turn >= (spent.seconds() > overtime * share ? 2 : 3) && spent.seconds() > share) break;
        std::array<double, ways> now{};
        for (std::size_t way = 0; way < ways; ++way)
          if (runners[way]) seconds[way].push_back(now[way] = runners[way]->sample());
        for (std::size_t way = 0; way < ways; ++way)
          if (runners[way]) over[way].push_back(now[way] / now[none]);
      }
      row.instances = instance + 1;
      row.iterations = std::max(row.iterations, runners[none]->solution().statistics().iterations);
      row.difference =
          std::max(row.difference, largest_difference(runners[one_step]->gradient(), runners[implicit]->gradient()));
      if (with_unrolled) {
        most_bytes = std::max(most_bytes, static_cast<double>(heap_bytes()) - before);
        row.unrolled_difference = std::max(row.unrolled_difference,
                                           largest_difference(runners[unrolled]->gradient(), runners[implicit]->gradient()));
      }
    }
    row.none = quartiles(seconds[none]);
    row.unrolled = quartiles(seconds[unrolled]);
    row.implicit = quartiles(seconds[implicit]);
    row.one_step = quartiles(seconds[one_step]);
    row.unrolled_over = quartiles(over[unrolled]);
    row.implicit_over = quartiles(over[implicit]);
    row.one_step_over = quartiles(over[one_step]);
    row.traced = quartiles(seconds[traced]);
    if (with_unrolled) budget.took(size, row.unrolled.median, most_bytes);
    timing.rows.push_back(std::move(row));
  }
  return timing;
}

Claim overhead_claim(const Timing& timing) {
  const TimingRow &last = timing.rows.back(), &with_autodiff = *timing.last_with_autodiff();
  const double one = last.over(&TimingRow::one_step), by_implicit = last.over(&TimingRow::implicit),
               autodiff = with_autodiff.over(&TimingRow::unrolled);
  // Not what another version of the solver costs, where autodiff goes over one.
  const double own =
      with_autodiff.traced.median > 0 ? with_autodiff.unrolled.median / with_autodiff.traced.median : autodiff;
  std::string measured = fmt::format(
      "medians over solving: one step {:.2f}, implicit {:.2f} at {} (over all sizes at most {:.2f} and {:.2f}); autodiff "
      "{:.2f} at {}",
      one, by_implicit, last.text, timing.most_over(&TimingRow::one_step), timing.most_over(&TimingRow::implicit), autodiff,
      with_autodiff.text);
  if (own != autodiff) measured += fmt::format(", and {:.2f} over its own solve, of a traced version", own);
  return {"One-step and implicit differentiation have a marginal overhead, automatic differentiation has not", measured,
          yes_if(one < 1.5 && by_implicit < 1.5 && own > 1.5)};
}

std::string instances_text(const Timing& timing) {
  const int most = timing.rows.front().instances;
  const auto fewer = std::ranges::find_if(timing.rows, [&](const TimingRow& row) { return row.instances < most; });
  return fewer == timing.rows.end() ? fmt::format("{} of each size", most)
                                    : fmt::format("{} of each size, fewer from {} on", most, fewer->text);
}

Panel timing_panel(const Timing& timing) {
  Panel panel;
  panel.x = {"number of parameters of the problem", true};
  panel.y = {"seconds", true};
  Series of_none = line("None", "none"), of_unrolled = line("Autodiff", "unrolled"),
         of_implicit = line("Implicit", "implicit"), of_one_step = line("One step", "one_step");
  for (const TimingRow& row : timing.rows) {
    add_point(of_none, row.parameters, row.none);
    if (row.unrolled.median > 0) add_point(of_unrolled, row.parameters, row.unrolled);
    add_point(of_implicit, row.parameters, row.implicit);
    add_point(of_one_step, row.parameters, row.one_step);
  }
  panel.series = {of_none, of_unrolled, of_implicit, of_one_step};
  panel.notes = timing.notes;
  return panel;
}

Json timing_data(const Timing& timing) {
  Json rows = Json::array();
  for (const TimingRow& row : timing.rows)
    rows.push_back({{"size", row.text},
                    {"parameters", row.parameters},
                    {"iterations", row.iterations},
                    {"instances", row.instances},
                    {"difference", row.difference},
                    {"unrolled_difference", row.unrolled_difference},
                    {"seconds",
                     {{"none", row.none.median},
                      {"traced", row.traced.median},
                      {"unrolled", row.unrolled.median},
                      {"implicit", row.implicit.median},
                      {"one_step", row.one_step.median}}}});
  return rows;
}

}  // namespace onestep::app::paper
