// Counts, quantiles, and the table with the bars.
#include "certificate/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <utility>

namespace onestep::bench {
namespace {

struct Counts {
  std::size_t trials = 0, no_truth = 0, not_solved = 0, failed = 0;
  std::size_t queries = 0, bounds = 0, refused = 0, threw = 0, undecided = 0, wrong = 0, wrong_by_3 = 0, printed_low = 0;
  double worst = 0;
  std::vector<double> ratios;     // solver tolerance ≤ 1e-6 and ρ ≤ 0.99
  std::vector<double> estimates;  // estimate / error, where there is one and the error is above rounding
};

using Pick = std::function<bool(const Trial&)>;

bool is_wrong(const Query& q) { return q.kind == Query::Kind::bound && !(q.error <= q.bound); }

Counts count(const std::vector<Trial>& trials, const Pick& pick = {}) {
  Counts c;
  for (const Trial& t : trials) {
    if (pick && !pick(t)) continue;
    ++c.trials;
    if (t.outcome == Trial::Outcome::no_truth) ++c.no_truth;
    if (t.outcome == Trial::Outcome::not_solved) ++c.not_solved;
    if (t.outcome == Trial::Outcome::failed) ++c.failed;
    for (const Query& q : t.queries) {
      ++c.queries;
      if (q.kind == Query::Kind::threw) ++c.threw;
      if (q.kind == Query::Kind::refused) ++c.refused;
      if (q.kind == Query::Kind::undecided) ++c.undecided;
      if (q.kind != Query::Kind::bound) continue;
      ++c.bounds;
      if (q.printed_low) ++c.printed_low;
      if (is_wrong(q)) {
        ++c.wrong;
        if (!(q.factor() <= 3)) ++c.wrong_by_3;
        c.worst = std::max(c.worst, std::isnan(q.error) ? INFINITY : q.factor());
      }
      if (t.tolerance <= 1e-6 && t.rho <= 0.99 && q.value > 0) c.ratios.push_back(q.ratio());
      if (std::isfinite(q.estimate) && q.error > 1e-12 * q.value) c.estimates.push_back(q.estimate / q.error);
    }
  }
  std::ranges::sort(c.ratios);
  std::ranges::sort(c.estimates);
  return c;
}

double quantile(const std::vector<double>& sorted, double p) {
  if (sorted.empty()) return NAN;
  return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(p * static_cast<double>(sorted.size())))];
}

double share(std::size_t part, std::size_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

// Of the estimates, those within a factor of 3 of the error.
double near_share(const std::vector<double>& estimates) {
  const auto near = std::ranges::count_if(estimates, [](double e) { return e >= 1.0 / 3 && e <= 3; });
  return share(static_cast<std::size_t>(near), estimates.size());
}

std::string short_number(double value) {
  if (std::isnan(value)) return "-";
  return value >= 1e4 || (value > 0 && value < 1e-2) ? fmt::format("{:.1e}", value) : fmt::format("{:.3g}", value);
}

void print_counts(std::string_view name, const Counts& c) {
  fmt::print("{:<26} {:>7} {:>6.1f}% {:>6.1f}% {:>6} {:>5} {:>8} {:>8} {:>8} {:>6.0f}% {:>8} {:>6} {:>6} {:>5}\n", name,
             c.bounds, 100 * share(c.refused, c.queries), 100 * share(c.threw, c.queries), c.wrong, c.wrong_by_3,
             short_number(c.worst), short_number(quantile(c.ratios, 0.5)), short_number(quantile(c.ratios, 0.9)),
             100 * near_share(c.estimates), short_number(quantile(c.estimates, 0.5)), c.not_solved, c.no_truth, c.undecided);
}

std::vector<Trial> together(const std::vector<ClassTrials>& classes) {
  std::vector<Trial> all;
  for (const ClassTrials& one : classes) all.insert(all.end(), one.trials.begin(), one.trials.end());
  return all;
}

// A reason without its numbers, so that like ones are counted together.
std::string kind_of(const std::string& reason) {
  std::string text;
  for (std::size_t i = 0; i < reason.size() && text.size() < 110; ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(reason[i])) != 0;
    if (!digit) text += reason[i];
    if (!digit || (!text.empty() && text.back() == '#')) continue;
    text += '#';
    while (i + 1 < reason.size() && std::string_view("0123456789.e-+").find(reason[i + 1]) != std::string_view::npos) ++i;
  }
  return text;
}

constexpr double most_beyond = 10;

// Products of the first certificate of a contraction beyond what one matrix-free solve to 1e-3 takes; beyond none where the
// derivative came from a linear system already. Nothing where that is not known.
std::optional<double> beyond_a_solve(const Trial& t) {
  if (t.family != Family::smooth_map || t.non_normal || t.queries.empty()) return std::nullopt;
  const Query& first = t.queries.front();
  if (first.kind != Query::Kind::bound || (!first.holds_u && t.implicit_products < 0)) return std::nullopt;
  return first.products - (first.holds_u ? 0 : t.implicit_products);
}

struct CostStatistics {
  std::vector<double> excess;  // products of the first certificate beyond what it may cost
  std::vector<double> again;   // products of a second certificate, of the same derivative, over those of the first
  std::vector<double> other;   // the same for another direction
};

CostStatistics costs(const std::vector<Trial>& trials) {
  CostStatistics result;
  for (const Trial& t : trials) {
    if (t.family != Family::smooth_map || t.non_normal || t.queries.empty()) continue;
    const Query& first = t.queries.front();
    if (first.kind != Query::Kind::bound) continue;
    if (const auto beyond = beyond_a_solve(t)) result.excess.push_back(*beyond);
    if (first.products == 0) continue;
    result.again.push_back(static_cast<double>(first.products_again) / first.products);
    const auto second = std::find_if(t.queries.begin() + 1, t.queries.end(), [](const Query& q) { return !q.forward; });
    if (second != t.queries.end() && second->kind == Query::Kind::bound)
      result.other.push_back(static_cast<double>(second->products) / first.products);
  }
  std::ranges::sort(result.excess);
  std::ranges::sort(result.again);
  std::ranges::sort(result.other);
  return result;
}

}  // namespace

void print_table(const std::vector<ClassTrials>& classes, std::size_t examples) {
  fmt::print("{:<26} {:>7} {:>7} {:>7} {:>6} {:>5} {:>8} {:>8} {:>8} {:>7} {:>8} {:>6} {:>6} {:>5}\n", "class", "bounds",
             "refused", "threw", "false", "by>3", "worst", "median", "90 %", "est.ok", "est/err", "unsolv", "notrut",
             "undec");
  for (const ClassTrials& one : classes) print_counts(one.name, count(one.trials));
  print_counts("total", count(together(classes)));
  fmt::print(
      "\nmedian, 90 %: bound / max(error, 1e-12 |g|) for solver tolerances <= 1e-6 and rho <= 0.99. est.ok: estimates "
      "within a\n"
      "factor 3 of the error. unsolv, notrut: solves that did not converge, problems without a reliable truth.\n");

  for (const ClassTrials& one : classes) {
    const auto failed = std::ranges::find(one.trials, Trial::Outcome::failed, &Trial::outcome);
    if (failed == one.trials.end()) continue;
    fmt::print("could not be run: --class '{}' --index {}: {}\n", one.name, failed->index, failed->status);
  }

  std::map<std::string, std::size_t> reasons;
  for (const ClassTrials& one : classes)
    for (const Trial& t : one.trials)
      for (const Query& q : t.queries)
        if (q.kind == Query::Kind::refused || q.kind == Query::Kind::threw)
          ++reasons[fmt::format("{:<26} {} {}", one.name,
                                q.kind == Query::Kind::threw ? "threw:  " : "refused:", kind_of(q.reason))];
  std::vector<std::pair<std::size_t, std::string>> frequent;
  for (const auto& [reason, times] : reasons) frequent.emplace_back(times, reason);
  std::ranges::sort(frequent, std::greater<>());
  if (!frequent.empty()) fmt::print("\nwhy there is no bound, most frequent first\n");
  for (std::size_t i = 0; i < std::min<std::size_t>(frequent.size(), 3 * examples); ++i)
    fmt::print("{:>7}  {}\n", frequent[i].first, frequent[i].second);

  bool titled = false;
  for (const ClassTrials& one : classes) {
    std::vector<std::pair<const Trial*, const Query*>> wrong;
    for (const Trial& t : one.trials)
      for (const Query& q : t.queries)
        if (is_wrong(q)) wrong.emplace_back(&t, &q);
    std::ranges::sort(wrong, [](const auto& a, const auto& b) { return a.second->factor() > b.second->factor(); });
    if (!wrong.empty() && !std::exchange(titled, true))
      fmt::print("\nfalse bounds, the worst of each class (see one: --class NAME --index I)\n");
    for (std::size_t i = 0; i < std::min(wrong.size(), examples); ++i) {
      const auto& [t, q] = wrong[i];
      fmt::print("  --class '{}' --index {}  {} {}{}, tolerance {:.1e}, n {}: error {:.2e}, bound {:.2e}, factor {}\n",
                 one.name, t->index, t->estimator, q->forward ? "jvp" : "vjp", q->unit ? " along e_i" : "", t->tolerance,
                 t->size, q->error, q->bound, short_number(q->factor()));
    }
  }

  titled = false;
  for (const ClassTrials& one : classes) {
    std::size_t named = 0;
    for (const Trial& t : one.trials) {
      const auto beyond = beyond_a_solve(t);
      if (!beyond || *beyond <= most_beyond || named++ >= examples) continue;
      if (!std::exchange(titled, true)) fmt::print("\ncertificates that cost too many products beyond a solve\n");
      fmt::print("  --class '{}' --index {}  {}, tolerance {:.1e}, n {}: {}\n", one.name, t.index, t.estimator, t.tolerance,
                 t.size, *beyond);
    }
  }

  titled = false;
  for (const ClassTrials& one : classes) {
    std::size_t named = 0;
    for (const Trial& t : one.trials) {
      for (const Query& q : t.queries) {
        if (!(q.auto_error > 1) || !q.auto_claims || t.tolerance > 1e-10 || named >= examples) continue;
        if (!std::exchange(titled, true)) fmt::print("\ntolerances of Auto missed in silence, solver tolerance <= 1e-10\n");
        fmt::print("  --class '{}' --index {}  {} {}: relative error {:.3g} of the tolerance\n", one.name, t.index,
                   t.estimator, q.forward ? "jvp" : "vjp", q.auto_error);
        ++named;
        break;
      }
    }
  }
}

void add_bars(Suite& suite, const std::vector<ClassTrials>& classes, bool whole) {
  const std::vector<Trial> all = together(classes);
  const auto steep = [](const Trial& t) { return t.family == Family::steep_map; };
  const auto contraction = [](const Trial& t) { return t.family == Family::smooth_map && !t.non_normal; };
  const auto smooth_bar = [&](const Trial& t) { return contraction(t) || t.family == Family::newton; };
  const auto usual = [&](const Pick& pick) {
    return [pick](const Trial& t) { return pick(t) && t.tolerance <= 1e-6 && t.rho <= 0.99; };
  };
  const Counts total = count(all, [&](const Trial& t) { return !steep(t); });
  const Counts steep_ones = count(all, steep);
  const auto amount = [&](const std::string& row, double value, std::optional<Bar> bar) {
    suite.amount(row, Unit::count, value, bar);
  };

  amount("bounds", static_cast<double>(total.bounds + steep_ones.bounds),
         whole ? std::optional(at_least(100000)) : std::nullopt);
  amount("problems that could not be run", static_cast<double>(total.failed + steep_ones.failed), at_most(0));
  amount("false bounds in 10,000, steep steps apart", 1e4 * share(total.wrong, total.bounds), at_most(1));
  amount("false by more than a factor 3, steep steps apart", static_cast<double>(total.wrong_by_3), at_most(0));
  amount("false bounds of steep steps, %", 100 * share(steep_ones.wrong, steep_ones.bounds), at_most(1));
  amount("printed numbers below their bound", static_cast<double>(total.printed_low + steep_ones.printed_low), at_most(0));
  const auto tightness = [&](const std::string& text, const Pick& pick, double median, std::optional<double> ninety) {
    const Counts c = count(all, usual(pick));
    if (c.queries == 0) return;
    amount("bound / error, median, " + text, quantile(c.ratios, 0.5), at_most(median));
    if (ninety) amount("bound / error, 90th percentile, " + text, quantile(c.ratios, 0.9), at_most(*ninety));
    amount("refused or thrown, %, " + text, 100 * share(c.refused + c.threw, c.queries), at_most(5));
  };
  tightness("smooth contractions", contraction, 3, 20);
  tightness(
      "newton", [](const Trial& t) { return t.family == Family::newton; }, 3, 20);
  tightness("smooth contractions and newton", smooth_bar, 3, 20);
  tightness(
      "non-normal maps", [](const Trial& t) { return t.family == Family::smooth_map && t.non_normal; }, 30, std::nullopt);
  const Counts programs = count(all, usual([](const Trial& t) { return t.family == Family::program; }));
  if (programs.queries > 0)
    amount("refused or thrown, %, non-degenerate programs", 100 * share(programs.refused + programs.threw, programs.queries),
           at_most(5));
  if (const CostStatistics cost = costs(all); !cost.excess.empty()) {
    amount("products of a certificate beyond one matrix-free solve, median", quantile(cost.excess, 0.5), std::nullopt);
    amount("products of a certificate beyond one matrix-free solve, 90th percentile", quantile(cost.excess, 0.9),
           std::nullopt);
    amount("products of a certificate beyond one matrix-free solve, most", cost.excess.back(), at_most(most_beyond));
    amount("products of a second certificate over the first, same direction, median", quantile(cost.again, 0.5),
           std::nullopt);
    amount("products of a second certificate over the first, other direction, median", quantile(cost.other, 0.5),
           std::nullopt);
  }
  const auto missed = [&](const Pick& pick) {
    double misses = 0;
    for (const Trial& t : all)
      if (pick(t))
        for (const Query& q : t.queries) misses += q.auto_error > 1 && q.auto_claims ? 1 : 0;
    return misses;
  };
  amount("tolerances of Auto missed in silence, solver tolerance <= 1e-10",
         missed([](const Trial& t) { return t.tolerance <= 1e-10; }), at_most(0));
  amount("tolerances of Auto missed in silence, other solver tolerances",
         missed([](const Trial& t) { return t.tolerance > 1e-10; }), std::nullopt);
}

void add_classes(Suite& suite, const std::vector<ClassTrials>& classes) {
  for (const ClassTrials& one : classes) {
    const Counts c = count(one.trials);
    const auto amount = [&](const std::string& what, double value) {
      if (!std::isnan(value)) suite.amount(fmt::format("{}, {}", what, one.name), Unit::count, value, std::nullopt);
    };
    amount("bounds", static_cast<double>(c.bounds));
    amount("refused, %", 100 * share(c.refused, c.queries));
    amount("threw, %", 100 * share(c.threw, c.queries));
    amount("false", static_cast<double>(c.wrong));
    amount("false by more than a factor 3", static_cast<double>(c.wrong_by_3));
    amount("worst factor", std::isfinite(c.worst) ? c.worst : 1e300);
    amount("bound / error, median", quantile(c.ratios, 0.5));
    amount("bound / error, 90th percentile", quantile(c.ratios, 0.9));
    amount("estimates within a factor 3 of the error, %", c.estimates.empty() ? NAN : 100 * near_share(c.estimates));
    amount("estimate / error, median", quantile(c.estimates, 0.5));
    amount("solves that did not converge", static_cast<double>(c.not_solved));
    amount("problems without a truth", static_cast<double>(c.no_truth));
    amount("undecided", static_cast<double>(c.undecided));
  }
}

}  // namespace onestep::bench
