// onestep influence FILE: what each training sample does to the loss of independent samples; without such samples how well
// the others predict it, and what it does to the cross-validated loss.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "jobs/effects.h"
#include "jobs/influence_report.h"
#include "jobs/inner_scaling.h"
#include "jobs/memory.h"
#include "jobs/model.h"
#include "jobs/report.h"
#include "jobs/sample_files.h"
#include "jobs/samples.h"
#include "jobs/separation.h"
#include "verbs.h"

namespace onestep::app {

namespace {

using namespace jobs;

struct InfluenceOptions : JobOptions {
  double verify = 0;
  std::optional<double> folds, split_asked;
  std::string csv;
};

Model ready(const InfluenceOptions& options, const JobData& job) {
  Model model(job);
  model.get_ready(job.train, options.l2());
  return model;
}

class Influence {
 public:
  Influence(const InfluenceOptions& options, const JobData& job, Progress& progress)
      : options_(options),
        job_(job),
        model_(ready(options, job)),
        progress_(progress),
        folds_(folds_of(options, job)),
        effects_(job, model_, options.l2(), folds_, options.seed,
                 [this](const std::string& doing) {
                   progress_.show([&] { return fmt::format("influence: {}", doing); });
                   return stop_signal() == 0;
                 }),
        f_{.effects = effects_, .folds = folds_, .independent = !options.valid.empty(), .verified = options.verify > 0} {}

  int run() {
    try {
      compute();
      rank();
      if (job_.test) {
        progress_.enter("test");
        f_.test = effects_.fit_all();
      }
    } catch (const FitFailed& failed) {
      Report r = opening_of(options_.l2(), job_, model_, f_);
      r.ending = ending_of(failed.status, job_);
      r.sentence = stop_signal() != 0 ? "Stopped; there is nothing to report yet." : why_fit_failed(failed.status);
      return show(options_, r, progress_);
    }
    verify();
    progress_.enter("report");
    Report all = report_of(options_.l2(), job_, model_, f_);
    if (stop_signal() != 0) return show(options_, std::move(all), progress_);
    if (!options_.csv.empty()) write_file(options_.csv, table_of_samples(job_, f_));
    if (!options_.out.empty()) write_file(options_, "influence.csv", table_of_samples(job_, f_));
    return show(options_, std::move(all), progress_);
  }

 private:
  static std::size_t folds_of(const InfluenceOptions& options, const JobData& job) {
    if (job.valid) return 0;
    const auto N = static_cast<std::size_t>(job.train.count());
    const auto folds = static_cast<std::size_t>(options.folds.value_or(std::min(5.0, static_cast<double>(N))));
    if (folds < 2 || folds > N)
      throw Misuse(fmt::format("--folds {}: at least 2, and at most as many as the {} samples", folds, N));
    return folds;
  }

  // Fits, derivatives and removals take turns over the folds.
  void compute() {
    progress_.begin("influence: first fit");
    options_.clock->leave();
    effects_.compute();
    options_.clock->count("fit", effects_.fit_seconds());
    options_.clock->count("influence", effects_.derivative_seconds());
    options_.clock->count("removal", effects_.removal_seconds());
  }

  // By effects that say something of new samples, else by own losses.
  void rank() {
    f_.order.resize(effects_.all().size());
    std::iota(f_.order.begin(), f_.order.end(), std::size_t{0});
    if (f_.independent)
      std::ranges::stable_sort(f_.order, {}, [&](std::size_t i) { return f_.removal(i); });
    else
      std::ranges::stable_sort(f_.order, std::greater{}, [&](std::size_t i) { return f_.own_loss(i).value_or(-1); });
  }

  // Those with the largest effect of either sign, each left out in turn.
  void verify() {
    if (f_.verified) progress_.enter("verify");
    std::vector<std::size_t> largest = f_.order;
    std::erase_if(largest, [&](std::size_t i) { return !effects_.all()[i].removal; });
    std::ranges::stable_sort(largest, std::greater{}, [&](std::size_t i) { return std::fabs(f_.removal(i)); });
    largest.resize(std::min(largest.size(), static_cast<std::size_t>(options_.verify)));
    for (const std::size_t i : largest) {
      try {
        f_.retrained.push_back(effects_.retrain_without(i));
      } catch (const FitFailed&) {
        if (stop_signal() != 0) break;
        ++f_.not_retrained;
      }
    }
    f_.not_reached = largest.size() - f_.retrained.size() - f_.not_retrained;
  }

  const InfluenceOptions& options_;
  const JobData& job_;
  const Model model_;
  Progress& progress_;
  std::size_t folds_;
  Effects effects_;
  InfluenceFindings f_;
};

}  // namespace

void add_influence(CommandLine& line) {
  auto options = std::make_shared<InfluenceOptions>();
  std::vector<Option> rows = sample_options(*options, false);
  rows.push_back({.name = "--valid",
                  .to = &options->valid,
                  .type = "FILE",
                  .help = "independent samples to judge by: only these tell which samples harm\npredictions for new ones",
                  .takes = Takes::input_file,
                  .excludes = {"--demo"}});
  rows.push_back({.name = "--split",
                  .to = &options->split_asked,
                  .type = "SHARE",
                  .help = "split off this share of FILE to judge by: effects are then on the\nfit to the rest",
                  .takes = Takes::positive,
                  .excludes = {"--valid"}});
  rows.push_back({.name = "--folds",
                  .to = &options->folds,
                  .type = "K",
                  .help = "judge every sample by a fit to the other folds (default 5): effects\nare then on the "
                          "cross-validated loss of FILE itself",
                  .takes = Takes::count,
                  .excludes = {"--valid", "--split"}});
  rows.push_back({.name = "--verify",
                  .to = &options->verify,
                  .type = "K",
                  .help = "train again without each of the K samples with the largest effect\nand compare",
                  .takes = Takes::count});
  rows.push_back({.name = "--csv",
                  .to = &options->csv,
                  .type = "FILE",
                  .help = "write a table of all samples there, the largest own loss first, with\n--valid the most harmful; "
                          "- for standard output",
                  .takes = Takes::output_file});
  line.add({.name = "influence",
            .job = "Say what each training sample does to the loss of others, and how well the others predict it.",
            .example = "onestep influence --demo --verify 20",
            .common = *options,
            .options = std::move(rows),
            .work =
                [options] {
                  Progress progress(*options);
                  if (options->split_asked) options->split = *options->split_asked;
                  JobData job = load(*options, options->split_asked.has_value(), progress);
                  job.memory_needed = std::max(
                      job.memory_needed,
                      require_memory(*options, job.name, needs_of_influence(job.loss, sizes_of(job)), sizes_of(job)));
                  scale_inside(job);
                  try {
                    return Influence(*options, job, progress).run();
                  } catch (const SeparableClasses&) { throw Misuse(why_no_best_fit(job)); }
                },
            .files_of_out = {"influence.json", "index.html", "influence.csv"},
            .out_help = "write influence.json, influence.csv and a page into this folder,\nwhich is made if needed"});
}

}  // namespace onestep::app
