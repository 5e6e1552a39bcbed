// Compares the losses of a model with those of predictions that are the same for all samples.
#include "jobs/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace onestep::app::jobs {

namespace {

// Of each sample, by what the training samples have on average.
std::vector<double> losses_of_average(const JobData& job, std::span<const double> y) {
  const std::span<const double> known = job.train.y.values();
  const auto N = static_cast<double>(known.size());
  std::vector<double> losses;
  if (job.loss == Loss::ridge) {
    double mean = 0;
    for (const double target : known) mean += target / N;
    for (const double target : y) losses.push_back(0.5 * (target - mean) * (target - mean));
    return losses;
  }
  std::vector<double> count(job.labels.size());
  for (const double label : known) ++count[job.class_of(label)];
  for (const double label : y) losses.push_back(-std::log(std::max(1.0, count[job.class_of(label)]) / N));
  return losses;
}

double average_of(std::span<const double> all) {
  return std::reduce(all.begin(), all.end()) / static_cast<double>(all.size());
}

}  // namespace

std::optional<std::string> note_on_no_gain(const JobData& job, const std::string& judged, std::span<const double> losses,
                                           std::span<const double> y) {
  constexpr std::size_t enough = 10;
  constexpr double errors = 2;
  if (losses.size() < enough) return std::nullopt;
  const std::vector<double> average = losses_of_average(job, y);
  const double loss = average_of(losses), of_average = average_of(average), gain = of_average - loss;
  double squares = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) squares += std::pow(average[i] - losses[i] - gain, 2);
  const auto count = static_cast<double>(losses.size());
  if (gain > errors * std::sqrt(squares / (count - 1) / count)) return std::nullopt;
  const char* const what = job.loss == Loss::ridge ? "the mean of the target does" : "the class frequencies do";
  if (gain <= 0)
    return fmt::format("the model predicts {} no better than {}: mean loss {} against {}", judged, what, shown(loss),
                       shown(of_average));
  return fmt::format(
      "it is not certain that the model predicts {} better than {}: mean loss {} against {}, a difference of less than two "
      "standard errors",
      judged, what, shown(loss), shown(of_average));
}

std::optional<std::string> note_on_no_gain(const JobData& job, const Model& model, const std::vector<Fold>& folds,
                                           const TuneFindings& found) {
  if (job.test && found.x)
    return note_on_no_gain(job, "the test samples", model.sample_losses(*job.test, *found.x), job.test->y.values());
  std::vector<double> losses, y;
  for (std::size_t k = 0; k < folds.size(); ++k) {
    const Samples& judging = folds[k].valid;
    if (judging.count() == 0) continue;
    const std::vector<double> some = model.sample_losses(judging, found.search.x[k][0]);
    losses.insert(losses.end(), some.begin(), some.end());
    y.insert(y.end(), judging.y.values().begin(), judging.y.values().end());
  }
  return note_on_no_gain(job, "the samples that judge it", losses, y);
}

}  // namespace onestep::app::jobs
