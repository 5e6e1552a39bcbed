#include "jobs/validation.h"

#include <fmt/format.h>

#include <algorithm>

namespace onestep::app::jobs {

namespace {

// Where data are few one split says little about a penalty, and folds cost little.
bool are_few(const JobData& job) {
  constexpr double many_samples = 10000, much_work = 4e6;
  const auto samples = static_cast<double>(job.train.count()), classes = static_cast<double>(job.labels.size());
  const double unknowns = static_cast<double>(job.n() + 1) * (job.loss == Loss::softmax ? classes : 1);
  return samples <= many_samples && samples * unknowns <= much_work;
}

// The labels that one sample only has.
std::vector<std::string> labels_of_single_samples(const JobData& job) {
  std::vector<std::string> labels;
  for (const std::vector<std::size_t>& places : shuffled_classes(job, 0))
    if (places.size() == 1) labels.push_back(job.label_text(job.train.y.values()[places[0]]));
  return labels;
}

}  // namespace

void settle_validation(TuneOptions& options, JobData& job) {
  constexpr std::size_t usual_folds = 5;
  const std::vector<std::string> alone = labels_of_single_samples(job);
  if (options.folds <= 0 && !job.valid && are_few(job)) {
    const std::size_t judged = static_cast<std::size_t>(job.train.count()) - alone.size();
    if (judged >= 2 * usual_folds)
      options.folds = usual_folds;
    else
      job.notes.push_back(
          fmt::format("judged by a split of {} instead of {} folds, for which {} that can be held out are too few; --folds "
                      "K takes fewer",
                      options.split, usual_folds, counted(static_cast<std::int64_t>(judged), "sample")));
  }
  if (options.folds <= 0 && !job.valid) split_off(job, options.split, options.seed);
  if (options.folds > 0 && !alone.empty())
    job.notes.push_back(
        alone.size() == 1
            ? fmt::format("one sample only has the label {}: it is trained on in every fold, and judges nothing", alone[0])
            : fmt::format("one sample only has each of the labels {}: they are trained on in every fold, and judge nothing",
                          some_names(alone)));
}

}  // namespace onestep::app::jobs
