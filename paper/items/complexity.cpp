// The paper's Table 2: multiply-adds, time and memory of a gradient by each method as the iterations k, the unknowns n and
// the parameters m grow, with the exponents fitted beside those of the paper's formulas.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "paper/items/gradient_costs.h"
#include "paper/items/kinds.h"
#include "paper/items/support.h"

namespace onestep::app::paper {
namespace {

// The beginning of all captions.
const std::string ran =
    "The map x ← W sin(x) + Cθ, W dense n × n and C dense n × m, so that C_F is about n² + nm; k iterations, "
    "gradient of ‖x_k‖²/2.";

struct Way {
  const char *name, *label, *method, *mark, *time, *memory;  // the last two: the paper's formulas
  /// The time with numbers; C is C_F.
  double (*formula)(double omega, double C, double k, double n, double m);
  std::array<int, 3> powers;         ///< of k, n and m in it, the highest of each
  std::array<int, 3> memory_powers;  ///< the same in the formula for memory
};
const std::array<Way, 5> ways{
    Way{"piggyback",
        "piggyback",
        "unrolled",
        "dashed",
        "kn(ωC_F + nm)",
        "n(n + m)",
        [](double omega, double C, double k, double n, double m) { return k * n * (omega * C + n * m); },
        {1, 3, 1},
        {0, 2, 1}},
    Way{"reverse",
        "reverse mode",
        "unrolled",
        "line",
        "kωC_F",
        "kn",
        [](double omega, double C, double k, double, double) { return k * omega * C; },
        {1, 2, 1},
        {1, 1, 0}},
    Way{"implicit",
        "implicit",
        "implicit",
        "line",
        "ωC_F n + n³",
        "n",
        [](double omega, double C, double, double n, double) { return omega * C * n + n * n * n; },
        {0, 3, 1},
        {0, 1, 0}},
    Way{"one_step",
        "one step",
        "one_step",
        "line",
        "ωC_F",
        "n",
        [](double omega, double C, double, double, double) { return omega * C; },
        {0, 2, 1},
        {0, 1, 0}},
    Way{"forward",
        "algorithm alone",
        "none",
        "line",
        "kC_F",
        "n",
        [](double, double C, double k, double, double) { return k * C; },
        {1, 2, 1},
        {0, 1, 0}}};
// What the paper gives as typical for the overhead of a gradient.
constexpr double omega = 5;
enum : std::size_t { piggyback, reverse, implicit, one_step, forward };

struct Sweep {
  const char* variable;
  std::vector<GradientSize> sizes = {};
  std::vector<double> at = {};
  std::array<std::vector<double>, 5> flops = {}, seconds = {}, bytes = {};

  /// Of memory, between the two largest sizes: a part that is always there hides the growth between small ones.
  double memory_exponent(std::size_t way) const {
    return fitted_exponent(std::span(at).last(2), std::span(bytes[way]).last(2));
  }
};

Panel panel_of(const Sweep& sweep, const std::array<std::vector<double>, 5>& values, const char* what) {
  Panel panel;
  const GradientSize& base = sweep.sizes.front();
  const std::string v = sweep.variable;
  panel.title = v == "k"   ? fmt::format("n = {}, m = {}", base.n, base.m)
                : v == "n" ? fmt::format("k = {}, m = {}", base.k, base.m)
                           : fmt::format("k = {}, n = {}", base.k, base.n);
  panel.x = {v == "k" ? "iterations k" : v == "n" ? "unknowns n" : "parameters m", true};
  panel.y = {what, true};
  for (std::size_t w = 0; w < ways.size(); ++w) {
    Series series = line(ways[w].label, ways[w].method, ways[w].mark);
    for (std::size_t i = 0; i < values[w].size(); ++i) add_point(series, sweep.at[i], values[w][i]);
    panel.series.push_back(std::move(series));
  }
  return panel;
}

// Of a fitted exponent above the power it is compared with.
constexpr double allowance = 0.05;

/// Beside the paper's, on one line.
std::string exponent(double ours, int theirs) {
  return fmt::format("{:.2f}\u00a0({})", std::fabs(ours) < 0.005 ? 0 : ours, theirs);
}

/// Memory over many more iterations than the other figures have: what is kept for each shows beside what is always there.
Sweep memory_over_iterations(std::uint64_t seed, std::int64_t n, const std::vector<std::int64_t>& iterations,
                             const Watch& watch) {
  Sweep sweep{"k"};
  for (const std::int64_t k : iterations) {
    if (watch.cancelled()) break;
    watch.progress(fmt::format("complexity, memory of {} iterations", k));
    const std::array<GradientCost, 5> costs = gradient_costs(seed, {k, n, n});
    sweep.sizes.push_back({k, n, n});
    sweep.at.push_back(static_cast<double>(k));
    for (std::size_t w = 0; w < ways.size(); ++w) sweep.bytes[w].push_back(costs[w].bytes);
  }
  return sweep;
}

/// Numbers of n entries that are kept for each further iteration.
std::array<double, 5> memory_growth(const Sweep& sweep) {
  std::array<double, 5> growth{};
  for (std::size_t w = 0; w < ways.size(); ++w) {
    const auto entries = static_cast<double>((sweep.sizes.back().k - sweep.sizes.front().k) * sweep.sizes.front().n);
    growth[w] = (sweep.bytes[w].back() - sweep.bytes[w].front()) / entries / sizeof(double);
    if (std::fabs(growth[w]) < 0.005) growth[w] = 0;  // the heap's own books
  }
  return growth;
}

struct Measurements {
  std::int64_t middle = 0;               ///< of k, n and m the two that do not grow
  std::vector<std::int64_t> grown = {};  ///< the one that does
  std::array<Sweep, 3> sweeps{Sweep{"k"}, Sweep{"n"}, Sweep{"m"}};
  Sweep many{"k"};             ///< memory over many iterations
  double most_of_formula = 0;  ///< multiply-adds as a share of the paper's, the largest

  bool memory_known() const { return !sweeps[0].bytes[0].empty() && sweeps[0].bytes[0].front() > 0; }
};

void measure_costs(std::uint64_t seed, Measurements& measured, const Watch& watch) {
  for (Sweep& sweep : measured.sweeps)
    for (std::size_t i = 0; i < sweep.sizes.size() && !watch.cancelled(); ++i) {
      const GradientSize& size = sweep.sizes[i];
      watch.progress(fmt::format("complexity, k = {}, n = {}, m = {}", size.k, size.n, size.m));
      const std::array<GradientCost, 5> costs = gradient_costs(seed, size);
      const double C_F = step_flops(seed, size);
      sweep.at.push_back(static_cast<double>(measured.grown[i]));
      for (std::size_t w = 0; w < ways.size(); ++w) {
        sweep.flops[w].push_back(costs[w].flops);
        sweep.seconds[w].push_back(costs[w].seconds);
        sweep.bytes[w].push_back(costs[w].bytes);
        const double formula = ways[w].formula(omega, C_F, static_cast<double>(size.k), static_cast<double>(size.n),
                                               static_cast<double>(size.m));
        measured.most_of_formula = std::max(measured.most_of_formula, costs[w].flops / formula);
      }
    }
}

Measurements measure_growth(const ItemOptions& options, const Watch& watch) {
  Measurements measured;
  const std::int64_t middle = choose<std::int64_t>(options, 24, 50, 100);
  measured.middle = middle;
  measured.grown =
      choose<std::vector<std::int64_t>>(options, {16, 32, 64}, {16, 32, 64, 128, 256}, {16, 32, 64, 128, 256, 512});
  for (const std::int64_t v : measured.grown) {
    measured.sweeps[0].sizes.push_back({v, middle, middle});
    measured.sweeps[1].sizes.push_back({middle, v, middle});
    measured.sweeps[2].sizes.push_back({middle, middle, v});
  }
  (void)gradient_costs(options.seed, {16, middle, middle});  // what BLAS and the C library set up once is not counted
  measure_costs(options.seed, measured, watch);
  measured.many = memory_over_iterations(
      options.seed, middle, choose<std::vector<std::int64_t>>(options, {500, 2500}, {100, 1000, 10000}, {100, 1000, 10000}),
      watch);
  return measured;
}

void add_figures(const Measurements& measured, Item& item) {
  std::vector<Panel> flops_panels, time_panels, memory_panels;
  for (const Sweep& sweep : measured.sweeps) {
    flops_panels.push_back(panel_of(sweep, sweep.flops, "multiply-adds"));
    time_panels.push_back(panel_of(sweep, sweep.seconds, "seconds"));
    memory_panels.push_back(panel_of(sweep, sweep.bytes, "bytes"));
  }
  const Sweep& many = measured.many;
  if (!many.sizes.empty()) memory_panels[0] = panel_of(many, many.bytes, "bytes");
  item.figures.push_back(
      {"complexity", "What a gradient costs: multiply-adds",
       ran + " Multiply-adds of the derivative alone, and of the algorithm alone, as the library counts them from what it "
             "runs, without n cosines in each step, which its derivatives share, and without Cθ, computed once for a solve.",
       flops_panels});
  item.figures.push_back({"complexity_time", "What a gradient costs: time",
                          ran + fmt::format(" Time of the iterations and the derivative together, the median of {} runs.",
                                            gradient_repetitions),
                          time_panels});
  if (measured.memory_known())
    item.figures.push_back(
        {"complexity_memory", "What a gradient costs: memory",
         ran + " What solver and derivative hold on the heap after a solve: graphs, plans and workspaces. They are kept "
               "from one solve to the next, so this is the most that a solve needs. W and C are shared and not counted, but "
               "for a tall matrix with few columns, of which there is a transposed copy: hence the fall at small m. Over k "
               "more iterations are looked at than in the other figures, where what is always there hides what is kept.",
         memory_panels});
}

/// Fitted powers by way, then of k, n and m.
struct Exponents {
  using Powers = std::array<std::array<double, 3>, 5>;
  Powers flops{}, seconds{}, memory{};  ///< those of memory are 0 where it is not known
};

Exponents fitted_exponents(const Measurements& measured) {
  Exponents fitted;
  for (std::size_t w = 0; w < ways.size(); ++w)
    for (std::size_t v = 0; v < measured.sweeps.size(); ++v) {
      const Sweep& sweep = measured.sweeps[v];
      fitted.flops[w][v] = fitted_exponent(sweep.at, sweep.flops[w]);
      fitted.seconds[w][v] = fitted_exponent(sweep.at, sweep.seconds[w]);
      if (measured.memory_known()) fitted.memory[w][v] = (v == 0 ? measured.many : sweep).memory_exponent(w);
    }
  return fitted;
}

void add_exponent_data(const Measurements& measured, const Exponents& fitted, Item& item) {
  for (std::size_t w = 0; w < ways.size(); ++w)
    for (std::size_t v = 0; v < measured.sweeps.size(); ++v) {
      const char *way = ways[w].name, *variable = measured.sweeps[v].variable;
      item.data["flop_exponents"][way][variable] = {{"measured", fitted.flops[w][v]}, {"paper", ways[w].powers[v]}};
      item.data["time_exponents"][way][variable] = fitted.seconds[w][v];
      if (measured.memory_known())
        item.data["memory_exponents"][way][variable] = {{"measured", fitted.memory[w][v]},
                                                        {"paper", ways[w].memory_powers[v]}};
    }
}

Table table_2(const Measurements& measured, const Exponents& fitted) {
  Table table;
  table.id = "table2";
  table.title = "Complexity: fitted exponents beside the paper's formulas";
  table.caption = fmt::format(
      "{} Exponents by least squares over {} to {}, in brackets the power in the paper's formula. Products with θ are "
      "computed once for each solve and shared by its iterations: so the algorithm alone does not grow with m. Time is that "
      "of the iterations and the derivative together, and grows with k for every method. Exponents of memory are those "
      "between the two largest sizes of the figure, where what is always there hides least.",
      ran, measured.grown.front(), measured.grown.back());
  table.columns = {"method", "paper: time", "multiply-adds: k, n, m", "time: k, n, m", "paper: memory", "memory: k, n, m"};
  const auto append = [](std::string& to, const std::string& text) { to += (to.empty() ? "" : ", ") + text; };
  for (std::size_t w = 0; w < ways.size(); ++w) {
    std::string work, times, memory;
    for (std::size_t v = 0; v < measured.sweeps.size(); ++v) {
      append(work, exponent(fitted.flops[w][v], ways[w].powers[v]));
      append(times, fmt::format("{:.1f}", fitted.seconds[w][v]));
      append(memory, exponent(fitted.memory[w][v], ways[w].memory_powers[v]));
    }
    table.rows.push_back(
        {ways[w].label, ways[w].time, work, times, ways[w].memory, measured.memory_known() ? memory : "not measured"});
  }
  return table;
}

/// How many exponents of multiply-adds are above those of the paper's formulas.
int flops_above_formula(const Exponents& fitted) {
  int above = 0;
  for (std::size_t w = 0; w < ways.size(); ++w)
    for (std::size_t v = 0; v < fitted.flops[w].size(); ++v)
      above += fitted.flops[w][v] > ways[w].powers[v] + allowance ? 1 : 0;
  return above;
}

/// The ways whose memory grows with a higher power of k or n than in the paper's formula, once for each such power. Powers
/// of m are left out: the paper does not count the gradient itself, which has m entries.
std::vector<std::size_t> memory_above_formula(const Exponents& fitted) {
  std::vector<std::size_t> above;
  for (std::size_t w = 0; w < ways.size(); ++w)
    for (std::size_t v = 0; v < 2; ++v)
      if (fitted.memory[w][v] > ways[w].memory_powers[v] + allowance) above.push_back(w);
  return above;
}

/// The k up to which reverse mode costs less than implicit differentiation, as a share of n.
struct Crossing {
  double least = std::numeric_limits<double>::infinity(), most = 0;
};

/// Reverse mode costs the same for each iteration, implicit the same for any number of them.
Crossing crossing_of(const Measurements& measured) {
  const Sweep& over_n = measured.sweeps[1];
  Crossing found;
  for (std::size_t i = 0; i < over_n.at.size(); ++i) {
    const double a_step = over_n.flops[reverse][i] / static_cast<double>(measured.middle);
    const double crossing = over_n.flops[implicit][i] / a_step / over_n.at[i];
    found.least = std::min(found.least, crossing);
    found.most = std::max(found.most, crossing);
  }
  return found;
}

void add_work_claims(const Measurements& measured, const Exponents& fitted, Item& item) {
  const auto [least, most] = crossing_of(measured);
  const auto flops = [&](std::size_t w) { return measured.sweeps[0].flops[w].back(); };
  item.data["crossing"] = {{"least", least}, {"most", most}};
  item.data["most_of_formula"] = measured.most_of_formula;
  for (std::size_t w = 0; w < ways.size(); ++w) item.data["flops"][ways[w].name] = flops(w);
  const int above = flops_above_formula(fitted);
  item.claims.push_back(
      {"In multiply-adds no method grows with a higher power of k, n or m than the paper's formula, nor costs more "
       "than it with ω = 5",
       fmt::format("{} of {} exponents above the formula's; at most {:.2f} times the formula", above, 3 * ways.size(),
                   measured.most_of_formula),
       yes_if(above == 0 && measured.most_of_formula <= 1)});
  item.claims.push_back(
      {"Reverse mode is cheaper than implicit differentiation up to k = n",
       fmt::format(
           "up to k = {:.2f} n to {:.2f} n: implicit is cheaper here than the paper counts, as ∂F/∂x is formed in n² "
           "multiply-adds and not by n gradients",
           least, most),
       least >= 1    ? "yes"
       : least > 0.1 ? "differs"
                     : "no"});
  item.claims.push_back(
      {"One step is the cheapest, then implicit once k > n, then reverse mode, then piggyback",
       fmt::format("multiply-adds with k = {}, n = m = {}: {}, {}, {} and {}", measured.grown.back(), measured.middle,
                   number(flops(one_step)), number(flops(implicit)), number(flops(reverse)), number(flops(piggyback))),
       yes_if(flops(one_step) < flops(implicit) && flops(implicit) < flops(reverse) && flops(reverse) < flops(piggyback))});
}

void add_memory_claims(std::uint64_t seed, const Measurements& measured, const Exponents& fitted, Item& item) {
  const std::array<double, 5> growth = memory_growth(measured.many);
  for (std::size_t w = 0; w < ways.size(); ++w) item.data["memory_growth"][ways[w].name] = growth[w];
  item.claims.push_back({"Only reverse mode needs memory that grows with k, n numbers for each iteration",
                         fmt::format("reverse mode {:.2f} n for each iteration, one step {:.2f} n, implicit {:.2f} n, "
                                     "piggyback {:.2f} n",
                                     growth[reverse], growth[one_step], growth[implicit], growth[piggyback]),
                         yes_if(growth[reverse] > 0.5 && growth[reverse] < 2 && std::fabs(growth[one_step]) < 0.1 &&
                                std::fabs(growth[implicit]) < 0.1 && std::fabs(growth[piggyback]) < 0.1)});
  const std::vector<GradientSize>& over = measured.sweeps[1].sizes;
  const double matrix_free = matrix_free_memory(seed, over[over.size() - 2], over.back());
  item.data["matrix_free_memory"] = matrix_free;
  const std::vector<std::size_t> more_memory = memory_above_formula(fitted);
  const bool only_implicit = std::ranges::all_of(more_memory, [](std::size_t w) { return w == implicit; });
  item.claims.push_back(
      {"In memory no method grows with a higher power of k or n than n(n + m), kn, n, n and n",
       fmt::format("{} of {} exponents above the formula's{}", more_memory.size(), 2 * ways.size(),
                   more_memory.empty() ? ""
                                       : fmt::format(": implicit, {:.2f} in n. Its system of n³ has n² entries where it is "
                                                     "formed; where it is not, the exponent is {:.2f}",
                                                     fitted.memory[implicit][1], matrix_free)),
       only_implicit ? differs_unless(more_memory.empty()) : "no"});
}

}  // namespace

void compute_complexity(const ItemOptions& options, const Watch& watch, Item& item) {
  const Measurements measured = measure_growth(options, watch);
  add_figures(measured, item);
  if (watch.cancelled()) return;
  const Exponents fitted = fitted_exponents(measured);
  add_exponent_data(measured, fitted, item);
  item.tables.push_back(table_2(measured, fitted));
  add_work_claims(measured, fitted, item);
  if (measured.memory_known()) add_memory_claims(options.seed, measured, fitted, item);
}

}  // namespace onestep::app::paper
