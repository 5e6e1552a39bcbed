// Chooses folds or a split, and checks that enough samples judge and that memory suffices.
#include "jobs/validation.h"

#include <fmt/format.h>

#include <algorithm>

#include "jobs/memory.h"

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
  if (options.folds <= 0 && !job.valid && alone.size() == static_cast<std::size_t>(job.train.count()))
    throw Misuse(
        fmt::format("{}: each of the {} has a label of its own, so that none can be left out to judge by; it takes two "
                    "samples of a label at least, or --valid FILE",
                    job.name, counted(job.train.count(), "sample")));
  if (options.folds <= 0 && !job.valid) split_off(job, options.split, options.seed);
  if (options.folds > 0 && !alone.empty())
    job.notes.push_back(
        alone.size() == 1
            ? fmt::format("one sample only has the label {}: it is trained on in every fold, and judges nothing", alone[0])
            : fmt::format("one sample only has each of the labels {}: they are trained on in every fold, and judge nothing",
                          some_names(alone)));
}

void require_enough_to_judge(const std::vector<Fold>& folds, JobData& job) {
  constexpr std::int64_t too_few = 2, few = 10;
  const std::int64_t judging = count_judged(folds);
  if (judging < too_few)
    throw Misuse(fmt::format(
        "{}: hyperparameters judged by {} would be chance; it takes {} at least: give more samples, --folds K, a "
        "larger --split SHARE or --valid FILE",
        job.name, counted(judging, "sample"), too_few));
  if (judging < few)
    job.notes.push_back(
        fmt::format("judged by {} only, hyperparameters mean little; more samples would tell", counted(judging, "sample")));
}

double require_memory_of_tune(const TuneOptions& options, const JobData& job) {
  const Sizes sizes = sizes_of(job);
  const auto needs = [&](double folds) { return needs_of_tune(job.loss, sizes, folds, options.hyper == "l2-per-feature"); };
  try {
    return require_memory(options, job.name, needs(options.folds), sizes);
  } catch (const Misuse& too_much) {
    const auto is_enough = [&](double folds) {
      return std::ranges::all_of(needs(folds),
                                 [&](const Need& need) { return bytes_of(need, sizes) <= options.memory * 0x1p30; });
    };
    if (options.folds > 2 && is_enough(2)) throw Misuse(fmt::format("{}, or --folds 2", too_much.what()));
    if (options.folds > 0 && is_enough(0))
      throw Misuse(fmt::format("{}, or --split 0.2 in place of folds", too_much.what()));
    throw;
  }
}

}  // namespace onestep::app::jobs
