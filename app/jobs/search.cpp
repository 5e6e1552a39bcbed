// Deals folds, makes an inner problem of each, and runs and describes `minimise`.
#include "jobs/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "jobs/folds.h"
#include "jobs/report.h"

namespace onestep::app::jobs {

namespace {

// Training and validation samples of each fold.
std::vector<Fold> dealt_folds(const Samples& all, const std::vector<std::size_t>& fold, std::size_t count) {
  std::vector<Fold> folds;
  for (std::size_t f = 0; f < count; ++f) {
    std::vector<std::size_t> in, out;
    for (std::size_t i = 0; i < fold.size(); ++i) (fold[i] == f ? out : in).push_back(i);
    folds.push_back({some_of(all, in), some_of(all, out)});
  }
  return folds;
}

// What a gradient means depends on the size of the loss.
std::string share_text(const Outcome& o) {
  return o.value > 0 ? fmt::format(" ({:.2g} of that loss)", o.norm / o.value) : "";
}

}  // namespace

std::int64_t count_judged(const std::vector<Fold>& folds) {
  std::int64_t count = 0;
  for (const Fold& fold : folds) count += fold.valid.count();
  return count;
}

double r_squared(double mean_loss, const std::vector<Fold>& folds) {
  std::vector<double> y;
  for (const Fold& fold : folds) y.insert(y.end(), fold.valid.y.values().begin(), fold.valid.y.values().end());
  const double mean = std::reduce(y.begin(), y.end()) / static_cast<double>(y.size());
  if (std::ranges::min(y) == std::ranges::max(y)) return std::numeric_limits<double>::quiet_NaN();
  double variance = 0;
  for (const double target : y) variance += std::pow(target - mean, 2) / static_cast<double>(y.size());
  return 1 - 2 * mean_loss / variance;
}

std::vector<Fold> folds_of(const JobData& job, std::size_t count, std::uint64_t seed) {
  const Samples& all = job.train;
  const auto size = static_cast<std::size_t>(all.count());
  if (count < 2 || count > size)
    throw Misuse(fmt::format("--folds {}: at least 2, and at most as many as the {} samples", count, size));
  std::vector<Fold> folds = dealt_folds(all, deal_out(class_of_each(job, all), count, seed), count);
  std::erase_if(folds, [](const Fold& fold) { return fold.valid.count() == 0; });
  if (folds.size() < 2)
    throw Misuse(fmt::format(
        "--folds {}: nearly every label of {} has one sample only, which no fold can hold out; give --valid FILE", count,
        job.name));
  return folds;
}

std::vector<Round> nested_rounds(const JobData& job, const std::vector<Fold>& folds, std::uint64_t seed) {
  constexpr std::int64_t few = 20;
  if (count_judged(folds) < std::max(few, 2 * static_cast<std::int64_t>(folds.size()))) return {};
  const auto parts_of = [&](const Samples& samples, std::size_t count) {
    return dealt_folds(samples, deal_out(class_of_each(job, samples), count, seed), count);
  };
  std::vector<Round> rounds;
  if (folds.size() > 1) {
    for (const Fold& outer : folds) rounds.push_back({parts_of(outer.train, folds.size()), outer.train, outer.valid});
  } else {
    constexpr std::size_t parts = 5;
    for (Fold& part : parts_of(folds[0].valid, parts))
      rounds.push_back({{{folds[0].train, std::move(part.train)}}, folds[0].train, std::move(part.valid)});
  }
  // Where classes are small most of their samples are the only ones that are left of a class, which no fold holds out.
  const auto tells_enough = [](const Round& round) {
    const bool of_folds = round.folds.size() > 1;
    return round.unseen.count() > 0 && (!of_folds || 2 * count_judged(round.folds) >= round.fit.count());
  };
  if (!std::ranges::all_of(rounds, tells_enough)) return {};
  return rounds;
}

BilevelOptions bilevel_options(const JobOptions& options, const JobData& job, Progress& progress, const std::string& verb) {
  BilevelOptions how;
  how.cancelled = [] { return stop_signal() != 0; };
  how.callback = [&progress, verb](const OuterIteration& i) {
    progress.show([&] {
      return fmt::format("{}: iteration {}, validation loss {}, gradient {:.1e}", verb, i.number, shown(i.value),
                         i.critical);
    });
    return stop_signal() == 0;
  };
  how.checkpoint = options.checkpoint;
  how.identity = fmt::format("{} {}", verb, job.identity());
  return how;
}

bool is_usable(const Outcome& o) {
  if (!std::isfinite(o.value)) return false;
  if (is_solution(o.status) || o.status == Status::line_search_failed) return true;
  // At the limit of the search, or where the linear system of its last gradient was not solved, which is said; not of a fit.
  return !o.inner_failed && (o.status == Status::iteration_limit || (o.status == Status::singular && o.fell_short > 0));
}

std::string message_of(const Outcome& o) {
  if (o.status == Status::cancelled) return "A signal asked to stop.";
  if (o.fell_short > 0 && !std::isfinite(o.norm))
    return "The linear system of the last gradient of the validation loss was not solved: whether anything is left to gain "
           "is not known. A larger --l2 to start from conditions the fits better; so does --standardise.";
  if (!is_usable(o)) return why_fit_failed(o.status);
  switch (o.status) {
    case Status::converged:
      if (!o.uncertain) return "";
      return fmt::format(
          "The gradient of the validation loss may be wrong by {:.2g}, far more than it is: the search may have ended "
          "early.",
          o.bound);
    case Status::iteration_limit: return "The search ended at the limit of --iterations; the best point so far is given.";
    case Status::rounding_reached: return "The search ended where the fits are no more accurate; the best point is given.";
    case Status::line_search_failed: return "The search ended where no step lowers the loss any further.";
    default: return why_fit_failed(o.status);
  }
}

std::string ended_text(const JobOptions& options, const Outcome& o) {
  if (is_usable(o)) {
    const std::string spent = fmt::format("{}, {}{}", counted(o.iterations, "iteration"), seconds_text(o.seconds),
                                          o.resumed ? fmt::format(", gone on from {}", options.checkpoint) : "");
    if (!std::isfinite(o.norm))
      return fmt::format("Ended after {} (the last gradient of the validation loss is not known)", spent);
    switch (o.status) {
      case Status::converged: return fmt::format("Converged in {}", spent);
      case Status::iteration_limit: return fmt::format("Ended after {} (--iterations allows more)", spent);
      case Status::rounding_reached: return fmt::format("Ended after {} (the fits are no more accurate than that)", spent);
      case Status::line_search_failed: return fmt::format("Ended after {} (no step lowers the loss any further)", spent);
      default: return fmt::format("Ended after {} ({})", spent, to_string(o.status));
    }
  }
  if (o.status != Status::cancelled) return message_of(o);
  const std::string so_far =
      o.history.empty()
          ? "before the first iteration"
          : fmt::format("after {}, validation loss {}", counted(o.iterations, "iteration"), shown(o.history.back().value));
  if (!options.checkpoint.empty() && std::filesystem::exists(options.checkpoint))
    return fmt::format("Stopped {}; the same command goes on from {}.", so_far, options.checkpoint);
  return fmt::format("Stopped {}; there is nothing to go on from{}.", so_far,
                     options.checkpoint.empty() ? ": --checkpoint FILE would keep it" : "");
}

Json json_of(const Outcome& o) {
  Json history = Json::array();
  for (const OuterIteration& i : o.history) {
    Json one = {{"iteration", i.number},
                {"loss", i.value},
                {"critical", i.critical},
                {"hypergradient", i.norm},
                {"inner_tolerance", i.inner_tolerance},
                {"inner_iterations", i.inner_iterations},
                {"seconds", i.seconds}};
    if (!i.theta.empty()) one["hyperparameters"] = i.theta;
    history.push_back(std::move(one));
  }
  return {{"status", to_string(o.status)},
          {"message", message_of(o)},
          {"resumed", o.resumed},
          {"iterations", o.iterations},
          {"evaluations", o.evaluations},
          {"inner_iterations", o.inner_iterations},
          {"loss", o.value},
          {"critical", o.critical},
          {"hypergradient", o.norm},
          {"hypergradients", o.hypergradients},
          {"fell_short", o.fell_short},
          {"hypergradient_bound", std::isfinite(o.bound) ? Json(o.bound) : Json()},
          {"bound_rests_on", o.bound_rests_on},
          {"seconds", {{"all", o.seconds}, {"inner", o.inner_seconds}, {"hypergradients", o.hypergradient_seconds}}},
          {"history", history}};
}

std::vector<std::string> accuracy_of(const Outcome& o) {
  std::vector<std::string> lines;
  if (!std::isfinite(o.norm))
    lines.push_back(message_of(o));
  else
    lines.push_back(
        std::isfinite(o.bound)
            ? fmt::format("Gradient of the validation loss {:.2g}{}, wrong by at most {:.2g} ({}): the true one is at most "
                          "{:.2g}, and 0 where nothing is left to gain.",
                          o.norm, share_text(o), 1.05 * o.bound, o.bound_rests_on, o.norm + 1.05 * o.bound)
            : fmt::format("Gradient of the validation loss {:.2g}{}; no bound on its error: {}.", o.norm, share_text(o),
                          o.bound_rests_on));
  if (o.status == Status::converged && o.iterations == 0 && std::isfinite(o.norm))
    lines.emplace_back("The search ended where it began: the loss is flat there, and what lies near is as good.");
  if (o.fell_short > 0)
    lines.push_back(fmt::format("The linear systems of {} of {} gradients were not solved as accurately as they should be.",
                                o.fell_short, o.hypergradients));
  if (o.inner_seconds > 0 && o.evaluations > 0 && o.hypergradients > 0) {
    const double solve = o.inner_seconds / o.evaluations, derivative = o.hypergradient_seconds / o.hypergradients;
    lines.push_back(
        fmt::format("A fit took {} on average, the fit with the gradient of the validation loss {:.3f} times that.",
                    seconds_text(solve), 1 + derivative / solve));
  }
  return lines;
}

page::Figure path_figure(const Outcome& o, const std::string& judged_by, const std::string& minimised) {
  page::Panel loss{.title = judged_by, .x = {"iteration"}, .y = {""}},
      critical{
          .title = "Gradient of the validation loss", .x = {"iteration"}, .y = {"gradient, as a share of the loss", true}};
  constexpr double rounding = 1e-16;  // what is below means no more than 0
  page::Series losses{.label = "", .method = "one_step"}, criticals = losses;
  for (const OuterIteration& i : o.history) {
    losses.x.push_back(i.number), losses.y.push_back(i.value);
    criticals.x.push_back(i.number), criticals.y.push_back(std::max(i.critical, rounding));
  }
  loss.series = {losses}, critical.series = {criticals};
  return {"path",
          "The search",
          fmt::format("{}, each along a gradient of the validation loss; {}. The {} went from {} to {}.",
                      counted(o.iterations, "iteration"), counted(o.evaluations, "solve"), minimised,
                      shown(o.history.front().value), shown(o.value)),
          {loss, critical}};
}

}  // namespace onestep::app::jobs
