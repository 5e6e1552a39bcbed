// A search with a hyperprior for each of several spreads, scored by nested folds.
#include "jobs/spread.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace onestep::app::jobs {

namespace {

constexpr double deviations[] = {1, 2, 4};

double mean_of(const std::vector<double>& all) {
  return std::reduce(all.begin(), all.end()) / static_cast<double>(all.size());
}

double standard_error_of(const std::vector<double>& all) {
  if (all.size() < 2) return 0;
  const double mean = mean_of(all), count = static_cast<double>(all.size());
  double squares = 0;
  for (const double value : all) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (count - 1) / count);
}

}  // namespace

double standard_error_of(const std::vector<std::vector<double>>& rounds) {
  std::vector<double> all, means;
  for (const std::vector<double>& one : rounds) {
    if (one.empty()) continue;
    all.insert(all.end(), one.begin(), one.end());
    means.push_back(mean_of(one));
  }
  return std::max(standard_error_of(all), standard_error_of(means));
}

SolveOptions rough_fit() { return {.tolerance = 1e-6}; }

std::vector<Inner> inner_of(const Hyper& hyper, const std::vector<Fold>& folds, Hyperprior prior,
                            const SolveOptions& options) {
  const double judged = static_cast<double>(count_judged(folds));
  std::vector<Inner> all;
  for (const Fold& f : folds)
    if (f.valid.count() > 0)
      all.push_back(hyper.inner(f.train, f.valid, static_cast<double>(f.valid.count()) / judged, prior, options));
  return all;
}

// The search minimises a mean over N samples, so the prior counts like one of them: its weight is 1 / (N τ²) in units of a
// negative log-likelihood. A squared error is one after division by the variance, which the loss of one penalty for all
// estimates.
Hyperprior SpreadSearch::prior(const std::vector<Fold>& folds, double deviation, double shared, double shared_loss) const {
  const double unit = job_.loss == Loss::ridge ? 2 * shared_loss : 1;
  constexpr double level_deviation = 2;
  const double of_a_sample = unit / static_cast<double>(count_judged(folds));
  return {of_a_sample / (deviation * deviation), of_a_sample / (level_deviation * level_deviation), shared};
}

double SpreadSearch::tolerance(const std::vector<Fold>& folds, double shared_loss) const {
  constexpr double of_a_sample = 0.05;
  const double unit = job_.loss == Loss::ridge ? 2 * shared_loss : 1;
  return std::clamp(of_a_sample * unit / (static_cast<double>(count_judged(folds)) * shared_loss), 1e-6, 1e-2);
}

struct SpreadSearch::Found {
  std::vector<double> theta;
  double shared = 0, shared_loss = 0;  // the best penalty for all, and the loss that it minimises
  double solves = 0, score = 0;
  std::vector<double> losses;  // of the unseen samples; none where a fit failed

  std::vector<double> numbers() const {
    std::vector<double> all{shared, shared_loss, solves, score, static_cast<double>(theta.size())};
    all.insert(all.end(), theta.begin(), theta.end());
    all.insert(all.end(), losses.begin(), losses.end());
    return all;
  }
  static Found of(const std::vector<double>& all) {
    const auto begin = all.begin() + 5, middle = begin + static_cast<std::ptrdiff_t>(all[4]);
    return {{begin, middle}, all[0], all[1], all[2], all[3], {middle, all.end()}};
  }
};

SpreadSearch::Found SpreadSearch::search(const Round& round, const std::string& name, double deviation, double start,
                                         const Found* before) {
  if (const std::vector<double>* kept = journal_.find(name)) return Found::of(*kept);
  progress_.begin(fmt::format("tune: {}", name));
  constexpr int most_iterations = 50;
  const Hyper& hyper = deviation > 0 ? single_ : shared_;
  BilevelOptions how{.tolerance = 1e-3,
                     .max_iterations = most_iterations,
                     .cancelled = [] { return stop_signal() != 0; },
                     .certified = false};
  Parameter parameter = hyper.parameter(start);
  Hyperprior its_prior;
  if (before != nullptr) {
    its_prior = prior(round.folds, deviation, before->shared, before->shared_loss);
    how.tolerance = tolerance(round.folds, before->shared_loss);
    if (before->theta.size() > 1)
      parameter.start = Array(parameter.start.shape(), before->theta);
    else
      parameter = hyper.parameter(before->theta[0]);
  }
  const Outcome o = minimise(inner_of(hyper, round.folds, its_prior, rough_fit()), {parameter}, Lbfgs{}, how);
  Found found;
  found.solves = o.evaluations;
  found.shared = before != nullptr ? before->shared : o.theta[0].item();
  found.shared_loss = before != nullptr ? before->shared_loss : o.value;
  found.theta.assign(o.theta[0].values().begin(), o.theta[0].values().end());
  if (stop_signal() != 0) return found;
  if (is_usable(o)) {
    const Solution s = solve(hyper.solver(round.fit, stops_at_signals()), model_.start(), o.theta);
    if (stop_signal() != 0) return found;
    if (is_solution(s.status())) {
      found.losses = model_.sample_losses(round.unseen, s.x());
      found.score = model_.score(round.unseen, s.x()).score;
    }
  }
  journal_.keep(name, found.numbers());
  return found;
}

SpreadScore SpreadSearch::scored(double deviation, const std::vector<Found>& found, const std::vector<Found>& shared) const {
  std::vector<std::vector<double>> losses, gains;
  SpreadScore score{.deviation = deviation};
  double count = 0, sum = 0, gain = 0;
  for (std::size_t r = 0; r < found.size(); ++r) {
    losses.push_back(found[r].losses);
    std::vector<double>& differences = gains.emplace_back();
    for (std::size_t i = 0; i < found[r].losses.size(); ++i) {
      differences.push_back(shared[r].losses[i] - found[r].losses[i]);
      sum += found[r].losses[i];
      gain += differences.back();
    }
    score.score += found[r].score * static_cast<double>(found[r].losses.size());
    count += static_cast<double>(found[r].losses.size());
  }
  score.loss = sum / count;
  score.score /= count;
  score.gain = gain / count;
  score.loss_error = standard_error_of(losses);
  score.gain_error = standard_error_of(gains);
  return score;
}

SpreadChoice SpreadSearch::choose(const std::vector<Round>& rounds, double start) {
  SpreadChoice choice;
  std::vector<std::vector<Found>> all;
  const auto repeat = [&](double deviation) {
    std::vector<Found> found;
    for (std::size_t r = 0; r < rounds.size(); ++r) {
      const std::string name =
          fmt::format("nested round {} of {}, {}", r + 1, rounds.size(),
                      deviation > 0 ? fmt::format("penalties of deviation {:g}", deviation) : "one penalty");
      found.push_back(search(rounds[r], name, deviation, start, all.empty() ? nullptr : &all.back()[r]));
      choice.solves += static_cast<int>(found.back().solves);
      if (stop_signal() != 0) return false;
      if (found.back().losses.empty()) {
        choice.note = fmt::format("a fit failed in {}", name);
        return false;
      }
    }
    all.push_back(std::move(found));
    choice.tried.push_back(scored(deviation, all.back(), all.front()));
    return true;
  };
  if (!repeat(0)) return choice;
  for (const double deviation : deviations) {
    const double last = choice.tried.back().loss;
    if (!repeat(deviation) || !(choice.tried.back().loss < last)) break;  // a wider one overfits more
  }
  // How far one lies above another is no more than a standard error.
  const auto is_about = [&](std::size_t of, std::size_t over) {
    std::vector<std::vector<double>> differences;
    for (std::size_t r = 0; r < rounds.size(); ++r) {
      differences.emplace_back();
      for (std::size_t i = 0; i < all[of][r].losses.size(); ++i)
        differences.back().push_back(all[of][r].losses[i] - all[over][r].losses[i]);
    }
    return choice.tried[of].loss - choice.tried[over].loss <= standard_error_of(differences);
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < all.size(); ++i)
    if (choice.tried[i].is_certain() && choice.tried[i].loss < choice.tried[best].loss) best = i;
  choice.chosen = best;
  for (std::size_t i = best; i-- > 1;)
    if (choice.tried[i].is_certain() && is_about(i, best)) choice.chosen = i;
  return choice;
}

}  // namespace onestep::app::jobs
