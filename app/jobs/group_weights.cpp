// Compares the weights found with equal ones on the unseen samples of each round.
#include "jobs/group_weights.h"

#include <fmt/format.h>

namespace onestep::app::jobs {

namespace {

// Of the unseen samples of a round, with the weights found and with equal ones; none where a fit failed.
struct OfRound {
  double solves = 0, score = 0, equal_score = 0;
  std::vector<double> losses = {}, equal_losses = {};

  std::vector<double> numbers() const {
    std::vector<double> all{solves, score, equal_score};
    all.insert(all.end(), losses.begin(), losses.end());
    all.insert(all.end(), equal_losses.begin(), equal_losses.end());
    return all;
  }
  static OfRound of(const std::vector<double>& all) {
    const auto begin = all.begin() + 3, middle = begin + (all.end() - begin) / 2;
    return {all[0], all[1], all[2], {begin, middle}, {middle, all.end()}};
  }
};

OfRound searched(const Hyper& hyper, const Model& model, const Round& round) {
  constexpr int most_iterations = 50;
  const Parameter parameter = hyper.parameter(1);
  const Outcome o = minimise(inner_of(hyper, round.folds, {}, rough_fit()), {parameter}, Lbfgs{},
                             {.tolerance = 1e-3,
                              .max_iterations = most_iterations,
                              .cancelled = [] { return stop_signal() != 0; },
                              .certified = false});
  OfRound found{.solves = static_cast<double>(o.evaluations)};
  if (stop_signal() != 0 || !is_usable(o)) return found;
  const Solver fit = hyper.solver(round.fit, stops_at_signals());
  const Solution equal = solve(fit, model.start(), Parts(parameter.start)), weighted = solve(fit, model.start(), o.theta);
  if (stop_signal() != 0 || !is_solution(equal.status()) || !is_solution(weighted.status())) return found;
  found.losses = model.sample_losses(round.unseen, weighted.x());
  found.equal_losses = model.sample_losses(round.unseen, equal.x());
  found.score = model.score(round.unseen, weighted.x()).score;
  found.equal_score = model.score(round.unseen, equal.x()).score;
  return found;
}

}  // namespace

GroupChoice judge_group_weights(const Hyper& hyper, const Model& model, const std::vector<Round>& rounds, Journal& journal,
                                Progress& progress) {
  GroupChoice choice;
  if (rounds.empty()) choice.note = "there are too few samples, or too few of most classes, to leave some of them unseen";
  std::vector<std::vector<double>> losses, equal_losses, gains;
  SpreadScore equal, weighted;
  double count = 0;
  for (std::size_t r = 0; r < rounds.size(); ++r) {
    const std::string name = fmt::format("nested round {} of {}, weights of groups", r + 1, rounds.size());
    const std::vector<double>* kept = journal.find(name);
    progress.begin(fmt::format("tune: {}", name));
    const OfRound found = kept != nullptr ? OfRound::of(*kept) : searched(hyper, model, rounds[r]);
    if (stop_signal() != 0) return choice;
    if (kept == nullptr) journal.keep(name, found.numbers());
    choice.solves += static_cast<int>(found.solves);
    if (found.losses.empty()) {
      choice.note = fmt::format("a fit failed in {}", name);
      return choice;
    }
    const auto size = static_cast<double>(found.losses.size());
    std::vector<double>& gain = gains.emplace_back();
    for (std::size_t i = 0; i < found.losses.size(); ++i) {
      gain.push_back(found.equal_losses[i] - found.losses[i]);
      weighted.loss += found.losses[i], equal.loss += found.equal_losses[i], weighted.gain += gain.back();
    }
    weighted.score += found.score * size, equal.score += found.equal_score * size, count += size;
    losses.push_back(found.losses), equal_losses.push_back(found.equal_losses);
  }
  if (rounds.empty()) return choice;
  for (double* sum : {&weighted.loss, &weighted.gain, &weighted.score, &equal.loss, &equal.score}) *sum /= count;
  weighted.loss_error = standard_error_of(losses), equal.loss_error = standard_error_of(equal_losses);
  weighted.gain_error = standard_error_of(gains);
  choice.equal = equal, choice.weighted = weighted;
  return choice;
}

}  // namespace onestep::app::jobs
