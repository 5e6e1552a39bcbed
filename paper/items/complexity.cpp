// The paper's Table 2: multiply-adds, time and memory of a gradient by each method as the iterations k, the unknowns n and
// the parameters m grow, with the exponents fitted beside those of the paper's formulas.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "onestep/onestep.h"
#include "paper/items/kinds.h"
#include "paper/items/piggyback.h"
#include "paper/items/support.h"

namespace onestep::app::paper {
namespace {

/// How far the problem has grown.
struct Size {
  std::int64_t k, n, m;
};

/// x ← W sin(x) + Cθ from a random x. ‖W‖ is near 1, so that k iterations do not come to rest.
struct Problem {
  Array W, C, x0, theta;

  Problem(std::uint64_t seed, const Size& size) {
    Random random(seed, static_cast<std::uint64_t>(5000000 + 1000 * size.n + size.m));
    W = times(0.9999, random.orthonormal(size.n, size.n));
    C = random.matrix(size.n, size.m, 1e-3);
    x0 = random.vector(size.n, 0.1);
    theta = random.vector(size.m);
  }
  Expr step(const Expr& x, const Expr& t) const { return matmul(W, sin(x)) + matmul(C, t); }
  /// C_F: n² + nm, and n sines.
  double step_flops() const {
    return traced([&](Expr x, Expr t) { return step(x, t); }, x0.shape(), theta.shape()).flops();
  }
};

struct Cost {
  double flops = 0, seconds = 0, bytes = 0;
};

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

constexpr int repetitions = 3;

/// Beside its flops: the median time of the solve with the gradient of ‖x‖²/2, and the memory held then.
template <class Make> Cost measured(const Make& make) {
  const auto before = static_cast<double>(heap_bytes());
  const auto work = make();
  (void)work->run();  // the first run touches its memory for the first time
  std::vector<double> seconds;
  Cost cost;
  for (int i = 0; i < repetitions; ++i) {
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
  Size size;
  bool with_gradient;
  Prepared prepared;

  Solving(const Problem& p, const Size& s, const std::optional<Estimator>& estimator)
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
  Size size;
  Piggyback recursion;

  Carrying(const Problem& p, const Size& s)
      : problem(p), size(s), recursion([p](const Expr& x, const Expr& t) { return p.step(x, t); }, s.n, p.theta) {}
  double run() {
    recursion.start(problem.x0);
    recursion.run(static_cast<int>(size.k));
    (void)product(recursion.x(), recursion.jacobian());
    return static_cast<double>(size.k) * recursion.flops_a_step() + static_cast<double>(size.n * size.m);
  }
};

std::array<Cost, 5> measure(std::uint64_t seed, const Size& size) {
  const Problem problem(seed, size);
  const auto solving = [&](const std::optional<Estimator>& e) {
    return measured([&] { return std::make_unique<Solving>(problem, size, e); });
  };
  return {measured([&] { return std::make_unique<Carrying>(problem, size); }), solving(Unrolled{.mode = Unrolled::reverse}),
          solving(Implicit{.how = Implicit::dense}), solving(OneStep{}), solving(std::nullopt)};
}

/// With which power of n the memory of implicit differentiation grows when its matrix is not formed.
double matrix_free_memory(std::uint64_t seed, const Size& smaller, const Size& larger) {
  const auto bytes = [&](const Size& size) {
    const Problem problem(seed, size);
    return measured([&] { return std::make_unique<Solving>(problem, size, Implicit{.how = Implicit::matrix_free}); }).bytes;
  };
  return std::log(bytes(larger) / bytes(smaller)) / std::log(static_cast<double>(larger.n) / static_cast<double>(smaller.n));
}

struct Sweep {
  const char* variable;
  std::vector<Size> sizes = {};
  std::vector<double> at = {};
  std::array<std::vector<double>, 5> flops = {}, seconds = {}, bytes = {};

  /// Of memory, between the two largest sizes: a part that is always there hides the growth between small ones.
  double memory_exponent(std::size_t way) const {
    return fitted_exponent(std::span(at).last(2), std::span(bytes[way]).last(2));
  }
};

Panel panel_of(const Sweep& sweep, const std::array<std::vector<double>, 5>& values, const char* what) {
  Panel panel;
  const Size& base = sweep.sizes.front();
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
    const std::array<Cost, 5> costs = measure(seed, {k, n, n});
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

}  // namespace

void compute_complexity(const ItemOptions& options, const Watch& watch, Item& item) {
  const std::int64_t middle = choose<std::int64_t>(options, 24, 50, 100);
  const std::vector<std::int64_t> grown =
      choose<std::vector<std::int64_t>>(options, {16, 32, 64}, {16, 32, 64, 128, 256}, {16, 32, 64, 128, 256, 512});
  std::array<Sweep, 3> sweeps{Sweep{"k"}, Sweep{"n"}, Sweep{"m"}};
  double most_of_formula = 0;
  for (const std::int64_t v : grown) {
    sweeps[0].sizes.push_back({v, middle, middle});
    sweeps[1].sizes.push_back({middle, v, middle});
    sweeps[2].sizes.push_back({middle, middle, v});
  }
  (void)measure(options.seed, {16, middle, middle});  // what BLAS and the C library set up once is not counted
  for (Sweep& sweep : sweeps)
    for (std::size_t i = 0; i < sweep.sizes.size() && !watch.cancelled(); ++i) {
      const Size& size = sweep.sizes[i];
      watch.progress(fmt::format("complexity, k = {}, n = {}, m = {}", size.k, size.n, size.m));
      const std::array<Cost, 5> costs = measure(options.seed, size);
      const double C_F = Problem(options.seed, size).step_flops();
      sweep.at.push_back(static_cast<double>(grown[i]));
      for (std::size_t w = 0; w < ways.size(); ++w) {
        sweep.flops[w].push_back(costs[w].flops);
        sweep.seconds[w].push_back(costs[w].seconds);
        sweep.bytes[w].push_back(costs[w].bytes);
        const double formula = ways[w].formula(omega, C_F, static_cast<double>(size.k), static_cast<double>(size.n),
                                               static_cast<double>(size.m));
        most_of_formula = std::max(most_of_formula, costs[w].flops / formula);
      }
    }
  const bool memory_known = !sweeps[0].bytes[0].empty() && sweeps[0].bytes[0].front() > 0;

  std::vector<Panel> flops_panels, time_panels, memory_panels;
  for (const Sweep& sweep : sweeps) {
    flops_panels.push_back(panel_of(sweep, sweep.flops, "multiply-adds"));
    time_panels.push_back(panel_of(sweep, sweep.seconds, "seconds"));
    memory_panels.push_back(panel_of(sweep, sweep.bytes, "bytes"));
  }
  const Sweep many = memory_over_iterations(
      options.seed, middle, choose<std::vector<std::int64_t>>(options, {500, 2500}, {100, 1000, 10000}, {100, 1000, 10000}),
      watch);
  if (!many.sizes.empty()) memory_panels[0] = panel_of(many, many.bytes, "bytes");
  const std::string ran =
      "The map x ← W sin(x) + Cθ, W dense n × n and C dense n × m, so that C_F is about n² + nm; k iterations, "
      "gradient of ‖x_k‖²/2.";
  item.figures.push_back(
      {"complexity", "What a gradient costs: multiply-adds",
       ran + " Multiply-adds of the derivative alone, and of the algorithm alone, as the library counts them from what it "
             "runs, without n cosines in each step, which its derivatives share, and without Cθ, computed once for a solve.",
       flops_panels});
  item.figures.push_back(
      {"complexity_time", "What a gradient costs: time",
       ran + fmt::format(" Time of the iterations and the derivative together, the median of {} runs.", repetitions),
       time_panels});
  if (memory_known)
    item.figures.push_back(
        {"complexity_memory", "What a gradient costs: memory",
         ran + " What solver and derivative hold on the heap after a solve: graphs, plans and workspaces. They are kept "
               "from one solve to the next, so this is the most that a solve needs. W and C are shared and not counted, but "
               "for a tall matrix with few columns, of which there is a transposed copy: hence the fall at small m. Over k "
               "more iterations are looked at than in the other figures, where what is always there hides what is kept.",
         memory_panels});
  if (watch.cancelled()) return;

  const std::array<double, 5> growth = memory_growth(many);
  Table table;
  table.id = "table2";
  table.title = "Complexity: fitted exponents beside the paper's formulas";
  table.caption = fmt::format(
      "{} Exponents by least squares over {} to {}, in brackets the power in the paper's formula. Products with θ are "
      "computed once for each solve and shared by its iterations: so the algorithm alone does not grow with m. Time is that "
      "of the iterations and the derivative together, and grows with k for every method. Exponents of memory are those "
      "between the two largest sizes of the figure, where what is always there hides least.",
      ran, grown.front(), grown.back());
  table.columns = {"method", "paper: time", "multiply-adds: k, n, m", "time: k, n, m", "paper: memory", "memory: k, n, m"};
  int above = 0;
  std::vector<std::size_t> more_memory;
  for (std::size_t w = 0; w < ways.size(); ++w) {
    std::string work, times, memory;
    const auto append = [](std::string& to, const std::string& text) { to += (to.empty() ? "" : ", ") + text; };
    for (std::size_t v = 0; v < sweeps.size(); ++v) {
      const Sweep& sweep = sweeps[v];
      const double ours = fitted_exponent(sweep.at, sweep.flops[w]), of_time = fitted_exponent(sweep.at, sweep.seconds[w]);
      const int theirs = ways[w].powers[v];
      append(work, exponent(ours, theirs));
      above += ours > theirs + allowance ? 1 : 0;
      append(times, fmt::format("{:.1f}", of_time));
      item.data["flop_exponents"][ways[w].name][sweep.variable] = {{"measured", ours}, {"paper", theirs}};
      item.data["time_exponents"][ways[w].name][sweep.variable] = of_time;
      if (!memory_known) continue;
      const double of_memory = (v == 0 ? many : sweep).memory_exponent(w);
      append(memory, exponent(of_memory, ways[w].memory_powers[v]));
      item.data["memory_exponents"][ways[w].name][sweep.variable] = {{"measured", of_memory},
                                                                     {"paper", ways[w].memory_powers[v]}};
      // The paper does not count the gradient itself, which has m entries.
      if (v < 2 && of_memory > ways[w].memory_powers[v] + allowance) more_memory.push_back(w);
    }
    table.rows.push_back({ways[w].label, ways[w].time, work, times, ways[w].memory, memory_known ? memory : "not measured"});
  }
  item.tables.push_back(std::move(table));

  // Reverse mode costs the same for each iteration, implicit the same for any number of them.
  const Sweep& over_n = sweeps[1];
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (std::size_t i = 0; i < over_n.at.size(); ++i) {
    const double a_step = over_n.flops[reverse][i] / static_cast<double>(middle);
    const double crossing = over_n.flops[implicit][i] / a_step / over_n.at[i];
    least = std::min(least, crossing);
    most = std::max(most, crossing);
  }
  const auto flops = [&](std::size_t w) { return sweeps[0].flops[w].back(); };
  item.data["crossing"] = {{"least", least}, {"most", most}};
  item.data["most_of_formula"] = most_of_formula;
  for (std::size_t w = 0; w < ways.size(); ++w) {
    item.data["flops"][ways[w].name] = flops(w);
    if (memory_known) item.data["memory_growth"][ways[w].name] = growth[w];
  }
  item.claims.push_back(
      {"In multiply-adds no method grows with a higher power of k, n or m than the paper's formula, nor costs more "
       "than it with ω = 5",
       fmt::format("{} of {} exponents above the formula's; at most {:.2f} times the formula", above, 3 * ways.size(),
                   most_of_formula),
       yes_if(above == 0 && most_of_formula <= 1)});
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
       fmt::format("multiply-adds with k = {}, n = m = {}: {}, {}, {} and {}", grown.back(), middle, number(flops(one_step)),
                   number(flops(implicit)), number(flops(reverse)), number(flops(piggyback))),
       yes_if(flops(one_step) < flops(implicit) && flops(implicit) < flops(reverse) && flops(reverse) < flops(piggyback))});
  if (!memory_known) return;
  item.claims.push_back({"Only reverse mode needs memory that grows with k, n numbers for each iteration",
                         fmt::format("reverse mode {:.2f} n for each iteration, one step {:.2f} n, implicit {:.2f} n, "
                                     "piggyback {:.2f} n",
                                     growth[reverse], growth[one_step], growth[implicit], growth[piggyback]),
                         yes_if(growth[reverse] > 0.5 && growth[reverse] < 2 && std::fabs(growth[one_step]) < 0.1 &&
                                std::fabs(growth[implicit]) < 0.1 && std::fabs(growth[piggyback]) < 0.1)});
  const std::vector<Size>& over = over_n.sizes;
  const double matrix_free = matrix_free_memory(options.seed, over[over.size() - 2], over.back());
  item.data["matrix_free_memory"] = matrix_free;
  const bool only_implicit = std::ranges::all_of(more_memory, [](std::size_t w) { return w == implicit; });
  item.claims.push_back(
      {"In memory no method grows with a higher power of k or n than n(n + m), kn, n, n and n",
       fmt::format("{} of {} exponents above the formula's{}", more_memory.size(), 2 * ways.size(),
                   more_memory.empty() ? ""
                                       : fmt::format(": implicit, {:.2f} in n. Its system of n³ has n² entries where it is "
                                                     "formed; where it is not, the exponent is {:.2f}",
                                                     over_n.memory_exponent(implicit), matrix_free)),
       only_implicit ? differs_unless(more_memory.empty()) : "no"});
}

}  // namespace onestep::app::paper
