// Gradient descent on weighted ridge regression: errors of the iterates and of the whole Jacobian by each method, for two
// condition numbers and two steps, against iterations and against time.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "onestep/data.h"
#include "onestep/onestep.h"
#include "paper/items/kinds.h"
#include "paper/items/ridge_panel.h"
#include "paper/items/support.h"

namespace onestep::app::paper {
namespace {

/// Prescribed spectrum: the eigenvalues of AᵀA/N fall evenly from 1 to 1e-4 on a logarithmic scale, so that λ can bring the
/// condition number down to 1000. All eigenvectors have the same share in what made y.
RidgeData made_data(Random& random, std::int64_t N, std::int64_t n) {
  const Array U = random.orthonormal(N, n), V = random.orthonormal(n, n);
  std::vector<double> singular(static_cast<std::size_t>(n)), x(static_cast<std::size_t>(n));
  for (std::size_t j = 0; j < singular.size(); ++j) {
    const double place = static_cast<double>(j) / static_cast<double>(n - 1);
    singular[j] = std::sqrt(static_cast<double>(N)) * std::pow(10.0, -2 * place);
    x[j] = j % 2 == 0 ? 1 : -1;
  }
  const Function make = traced(
      [](Expr u, Expr s, Expr v, Expr c) {
        return std::pair{matmul(u * s, transpose(v)), matmul(u, s * c)};
      },
      U.shape(), Shape{n}, V.shape(), Shape{n});
  const std::vector<Array> made = evaluate(make, {U, Array({n}, std::move(singular)), V, Array({n}, std::move(x))});
  return {made[0], plus(made[1], random.vector(N, 0.1)),
          fmt::format("made data of the shape of cpusmall, {} × {}, with a prescribed spectrum", N, n)};
}

/// Columns divided by their largest entry, as their scales differ by six orders of magnitude. They are not centred: that
/// would leave a condition number of 44.
RidgeData scaled(const std::string& path) {
  const Dataset file = read_libsvm(path);
  const Function make = traced(
      [](Expr a) { return a / maximum(max(abs(a), onestep::Axis{0}), std::numeric_limits<double>::min()); }, file.A.shape());
  return {evaluate(make, {file.A})[0], file.y,
          fmt::format("the data of --cpusmall, {} × {}, columns divided by their largest entry", file.A.shape()[0],
                      file.A.shape()[1])};
}

// The paper gives no number: a relative error up to this is taken for adequate.
constexpr double adequate = 0.1;

/// What is said of the run under each figure: the data, and their condition number without λ.
std::string caption_of(const RidgeData& data, double raw) {
  return fmt::format(
      "Weighted ridge regression on {}, condition number {} without λ, from x = 0, θ = 1. λ is chosen for the condition "
      "number of each panel. K = condition number.",
      data.text, number(raw));
}

std::string outcome_of(const std::vector<RidgePanel>& all) {
  std::string came_out;
  for (const RidgePanel& m : all)
    if (m.complete)
      came_out += fmt::format(
          " Condition number {}, step {}: one step stays at {} of ‖J̄‖, K steps at {}, {}.", m.setting.kappa,
          m.setting.large_step ? "2/(μ+L)" : "1/L", number(m.one_step), number(m.k_step),
          m.peak_at > 0
              ? fmt::format("the unrolled error first grows to {} times ‖J̄‖, at iteration {}", number(m.peak), m.peak_at)
              : "the unrolled error never exceeds ‖J̄‖");
  return came_out;
}

/// Of the panels that there are so far.
std::vector<Figure> figures_of(const std::vector<RidgePanel>& all, const std::string& ran) {
  std::vector<Panel> by_iteration, by_time;
  for (const RidgePanel& m : all) by_iteration.push_back(m.by_iteration), by_time.push_back(m.by_time);
  return {
      {"ridge", "Gradient descent on weighted ridge regression",
       fmt::format("{} Squared distance of the iterates to the solution (dotted) and of the whole Jacobian to that of the "
                   "solution (lines).{}",
                   ran, outcome_of(all)),
       by_iteration},
      {"ridge_time", "The same against time",
       ran + " Time to the iterate and its whole Jacobian. Unrolled and K steps carry the Jacobian along, one "
             "step and implicit are taken at the end. Medians; iterations in between by proportion.",
       by_time}};
}

void add_panel_data(const RidgePanel& m, Item& item) {
  item.data["panels"].push_back({{"kappa", m.setting.kappa},
                                 {"large_step", m.setting.large_step},
                                 {"rho", m.rho},
                                 {"K", m.K},
                                 {"rho_to_K", std::pow(m.rho, m.K)},
                                 {"one_step", m.one_step},
                                 {"k_step", m.k_step},
                                 {"unrolled", m.unrolled},
                                 {"implicit", m.implicit},
                                 {"peak", m.peak},
                                 {"peak_at", m.peak_at},
                                 {"end", m.end},
                                 {"ahead_from", m.ahead_from}});
}

/// What holds in all panels.
struct Verdicts {
  bool plateau = true, k_steps = true, converge = true, burn_in = true, ahead = true, faster = true, implicit_faster = true;
  int good_enough = 0;  ///< panels

  /// `small_step_peak` is that of the panel with the same condition number and the small step.
  void add(const RidgePanel& m, double small_step_peak) {
    plateau = plateau && m.one_step <= m.rho && m.one_step > 0.1 * m.rho;
    k_steps = k_steps && m.k_step <= std::pow(m.rho, m.K) * (1 + 1e-3);
    converge = converge && m.unrolled < 1e-3 && m.implicit < 1e-3;
    if (m.setting.large_step) burn_in = burn_in && m.peak > 5 * small_step_peak;
    ahead = ahead && m.ahead_from <= m.end / 2;
    faster = faster && m.one_step_seconds < m.unrolled_seconds;
    implicit_faster = implicit_faster && m.implicit_seconds < m.unrolled_seconds;
    good_enough += m.one_step <= adequate ? 1 : 0;
  }
};

/// What was measured in the panels, one after the other.
struct Texts {
  std::string plateaus, k_steps, ends, peaks, one_step_times, implicit_times, leads;

  void add(const RidgePanel& m, double small_step_peak) {
    append(plateaus, fmt::format("{} (ρ = {:.4f})", number(m.one_step), m.rho));
    append(k_steps, fmt::format("{} (ρ^K = {})", number(m.k_step), number(std::pow(m.rho, m.K))));
    append(ends, fmt::format("{} and {}", number(m.unrolled), number(m.implicit)));
    append(leads, fmt::format("{} of {}", std::max(1, m.ahead_from), m.end));
    append(one_step_times, fmt::format("{} and {}", duration(m.one_step_seconds), duration(m.unrolled_seconds)));
    append(implicit_times, fmt::format("{} and {}", duration(m.implicit_seconds), duration(m.unrolled_seconds)));
    if (m.setting.large_step)
      append(peaks, fmt::format("grows to {} times ‖J̄‖, at iteration {}, with step 1/L to {}", number(m.peak), m.peak_at,
                                number(small_step_peak)));
  }

 private:
  static void append(std::string& to, const std::string& text) { to += (to.empty() ? "" : "; ") + text; }
};

void add_ridge_claims(const std::vector<RidgePanel>& all, const std::vector<double>& kappas, Item& item) {
  Verdicts verdicts;
  Texts texts;
  double small_step_peak = 1;
  for (const RidgePanel& m : all) {
    if (!m.setting.large_step) small_step_peak = m.peak;  // the small step comes before the large one
    verdicts.add(m, small_step_peak);
    texts.add(m, small_step_peak);
  }
  const auto over_panels = [&](double RidgePanel::*value) {
    const auto [low, high] = std::ranges::minmax(all, {}, value);
    return fmt::format("{} to {}", number(low.*value), number(high.*value));
  };
  item.claims = {
      {"The error of one step does not vanish; it is at most ρ, relative to ‖J̄‖", texts.plateaus, yes_if(verdicts.plateau)},
      {"In most cases one step has adequate precision",
       fmt::format(
           "errors of {} of ‖J̄‖, below {} in {} of {} panels, as ρ = {} lets expect: hardly better than no derivative "
           "at all. Of F^K, which the paper considers here, one step has errors of {} with K = condition number",
           over_panels(&RidgePanel::one_step), adequate, verdicts.good_enough, all.size(), over_panels(&RidgePanel::rho),
           over_panels(&RidgePanel::k_step)),
       differs_unless(2 * verdicts.good_enough > static_cast<int>(all.size()))},
      {"K steps bring the error below ρ^K", texts.k_steps, yes_if(verdicts.k_steps)},
      {"K = 1/κ, with κ the condition number of the Hessian",
       fmt::format("1/κ would be less than a step; it makes sense with κ = μ/L. Here K = L/μ = {} and {}", kappas.front(),
                   kappas.back()),
       "differs"},
      {"Unrolled and implicit Jacobians converge", "errors at the end, relative: " + texts.ends, yes_if(verdicts.converge)},
      {"Unrolling has a burn-in at the large step", "its error " + texts.peaks, yes_if(verdicts.burn_in)},
      {"Implicit differentiation is more precise than unrolling",
       "at all iterations looked at, from these on: " + texts.leads, yes_if(verdicts.ahead)},
      {"Implicit differentiation is faster than unrolling", "whole Jacobian at the end: " + texts.implicit_times,
       yes_if(verdicts.implicit_faster)},
      {"One step is faster than full unrolling", "whole Jacobian at the end: " + texts.one_step_times,
       yes_if(verdicts.faster)}};
}

}  // namespace

void compute_ridge(const ItemOptions& options, const Watch& watch, Item& item) {
  Random random(options.seed, 4);
  const std::int64_t N = choose<std::int64_t>(options, 400, 8192, 8192), n = choose<std::int64_t>(options, 6, 12, 12);
  const RidgeData data = options.cpusmall.empty() ? made_data(random, N, n) : scaled(options.cpusmall);
  const std::vector<double> spectrum = eigenvalues(product(data.A.transposed(), data.A));
  const double raw = spectrum.front() > 0 ? spectrum.back() / spectrum.front() : std::numeric_limits<double>::infinity();
  const std::vector<double> kappas = choose<std::vector<double>>(options, {200, 40}, {1000, 100}, {1000, 100});
  if (raw <= kappas.front())
    throw MisuseError(fmt::format("[paper] ridge: the data have the condition number {:.4g}, which no λ raises to {}", raw,
                                  kappas.front()));

  const std::string ran = caption_of(data, raw);
  std::vector<RidgePanel> all;
  for (const double kappa : kappas)
    for (const bool large_step : {false, true}) {
      all.push_back(measure_ridge(data, spectrum, {kappa, large_step}, watch));
      item.figures = figures_of(all, ran);
      if (watch.cancelled()) return;
    }

  const double check = recursion_difference(data, spectrum.back() / kappas.back(), 1 / (2 * spectrum.back()));
  item.data["recursion_difference"] = check;
  for (const RidgePanel& m : all) add_panel_data(m, item);
  add_ridge_claims(all, kappas, item);
}

}  // namespace onestep::app::paper
