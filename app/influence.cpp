// onestep influence FILE: what each training sample does to the loss of samples that the fit did not see.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "jobs/effects.h"
#include "jobs/influence_figures.h"
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
        effects_(job, model_, options.l2(), folds_, options.seed, [this](const std::string& doing) {
          progress_.show([&] { return fmt::format("influence: {}", doing); });
          return stop_signal() == 0;
        }) {}

  int run() {
    try {
      compute();
      rank();
      if (job_.test) {
        progress_.enter("test");
        test_ = effects_.fit_all();
      }
    } catch (const FitFailed& failed) {
      Report r = opening();
      r.ending = ending_of(failed.status, job_);
      r.sentence = stop_signal() != 0 ? "Stopped; there is nothing to report yet." : why_fit_failed(failed.status);
      return show(options_, r, progress_);
    }
    verify();
    progress_.enter("report");
    const Report all = report();
    if (!options_.csv.empty()) write_file(options_.csv, table_of_samples());
    if (!options_.out.empty()) write_file(options_, "influence.csv", table_of_samples());
    return show(options_, all, progress_);
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

  double removal(std::size_t i) const { return effects_.all()[i].removal.value_or(0); }

  // Effects in standard errors; 0 where there is none.
  double certainty(std::size_t i) const {
    const double error = effects_.all()[i].standard_error;
    return error > 0 ? removal(i) / error : 0;
  }

  void rank() {
    order_.resize(effects_.all().size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::stable_sort(order_, {}, [&](std::size_t i) { return removal(i); });
  }

  // Those with the largest effect of either sign, each left out in turn.
  void verify() {
    if (options_.verify > 0) progress_.enter("verify");
    std::vector<std::size_t> largest = order_;
    std::erase_if(largest, [&](std::size_t i) { return !effects_.all()[i].removal; });
    std::ranges::stable_sort(largest, std::greater{}, [&](std::size_t i) { return std::fabs(removal(i)); });
    largest.resize(std::min(largest.size(), static_cast<std::size_t>(options_.verify)));
    for (const std::size_t i : largest) {
      try {
        retrained_.push_back(effects_.retrain_without(i));
      } catch (const FitFailed&) {
        if (stop_signal() != 0) return;
        ++not_retrained_;
      }
    }
  }

  // ---- what is said ----

  Report opening() const {
    const std::string judged_by = folds_ > 0
                                      ? fmt::format("judged by {} folds, each by a fit to the others", folds_)
                                      : fmt::format("judged by {}", counted(job_.valid->count(), "validation sample"));
    Report r{.title = fmt::format("What each sample of {} does to the loss of unseen samples", job_.name),
             .asked = fmt::format("{}; {} loss, l2 = {}; {}", description_text(job_), name_of(job_.loss),
                                  shown(options_.l2()), judged_by)};
    r.ending = ending_of(Status::converged, job_);
    r.document = description(job_);
    r.document.update({{"l2", options_.l2()}, {"folds", folds_}});
    return r;
  }

  std::size_t count_beyond(double errors, double sign) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(order_, [&](std::size_t i) { return sign * certainty(i) > errors; }));
  }

  std::string sentence() const {
    const std::size_t N = order_.size(), harm = count_beyond(2, -1), help = count_beyond(2, 1);
    std::string text =
        fmt::format("The mean loss of {} is {}. ", counted(static_cast<std::int64_t>(effects_.judging()), "unseen sample"),
                    shown(effects_.loss()));
    if (!effects_.has_leverage())
      return text + fmt::format("{} of {} samples do harm; standard errors are not computed for more than {} coefficients.",
                                std::ranges::count_if(order_, [&](std::size_t i) { return removal(i) < 0; }), N,
                                Effects::most_unknowns());
    const double strict = bonferroni_errors(N);
    // Samples that judge one fold are trained on in the others, so that effects over folds vary less than the errors say.
    const std::string by_chance =
        folds_ > 0 ? "a cautious count, as effects over folds vary less by chance than these errors say"
                   : fmt::format("about {:.0f} would by chance alone", chance_beyond_two_errors * static_cast<double>(N));
    text += fmt::format(
        "Of {} samples {} do{} harm and {} help{} by more than two standard errors ({}); {} remain{} at a level that allows "
        "for {} tests ({:.1f} standard errors).",
        N, harm, harm == 1 ? "es" : "", help, help == 1 ? "s" : "", by_chance,
        count_beyond(strict, -1) + count_beyond(strict, 1),
        count_beyond(strict, -1) + count_beyond(strict, 1) == 1 ? "s" : "", N, strict);
    return text;
  }

  page::Table table(const std::string& id, const std::string& title, const std::vector<std::size_t>& places) const {
    page::Table result{.id = id,
                       .title = title,
                       .caption =
                           "Removal: how the mean loss of unseen samples changes without the sample, with its "
                           "standard error. Derivative: of that loss by the sample's weight.",
                       .columns = {"sample", "label", "removal", "standard error", "derivative", "its own loss"}};
    for (const std::size_t i : places) {
      const Effect& e = effects_.all()[i];
      result.rows.push_back({std::to_string(job_.train.rows[i]), job_.label_text(job_.train.y.values()[i]),
                             fmt::format("{:+.3e}", removal(i)),
                             e.standard_error > 0 ? fmt::format("{:.1e}", e.standard_error) : "-",
                             fmt::format("{:+.3e}", e.derivative), shown(effects_.own_losses()[i])});
    }
    return result;
  }

  Json listed(const std::vector<std::size_t>& places) const {
    Json all = Json::array();
    for (const std::size_t i : places)
      all.push_back(
          {{"sample", job_.train.rows[i]},
           {"label", label_json(job_, job_.train.y.values()[i])},
           {"removal", removal(i)},
           {"standard_error",
            number_or_null(effects_.all()[i].standard_error > 0 ? effects_.all()[i].standard_error : std::nan(""))},
           {"influence", effects_.all()[i].derivative}});
    return all;
  }

  Report report() const {
    Report r = opening();
    constexpr std::size_t most = 10;
    const auto count =
        static_cast<std::size_t>(std::ranges::count_if(order_, [&](std::size_t i) { return removal(i) < 0; }));
    const auto helps =
        static_cast<std::size_t>(std::ranges::count_if(order_, [&](std::size_t i) { return removal(i) > 0; }));
    const std::vector<std::size_t> harmful(order_.begin(),
                                           order_.begin() + static_cast<std::ptrdiff_t>(std::min(most, count))),
        helpful(order_.rbegin(), order_.rbegin() + static_cast<std::ptrdiff_t>(std::min(most, helps)));
    r.sentence = sentence();
    if (!harmful.empty()) r.tables.push_back(table("harmful", "Most harmful", harmful));
    if (!helpful.empty()) r.tables.push_back(table("helpful", "Most helpful", helpful));
    r.document.update({{"judging", {{"samples", effects_.judging()}, {"loss", effects_.loss()}}},
                       {"harmful", count},
                       {"beyond_two_standard_errors", {{"harm", count_beyond(2, -1)}, {"help", count_beyond(2, 1)}}},
                       {"most_harmful", listed(harmful)},
                       {"most_helpful", listed(helpful)},
                       {"certificate", json_of(effects_.certificate())}});
    if (job_.test) report_test(r);
    report_accuracy(r);
    if (options_.verify > 0) report_verification(r);
    report_samples(r);
    std::vector<double> removals, certainties;
    for (const std::size_t i : order_) removals.push_back(removal(i)), certainties.push_back(certainty(i));
    r.figures = {ranking_figure(removals, certainties)};
    if (retrained_.size() > 1) r.figures.push_back(verification_figure(retrained_));
    if (job_.image_side > 0 && !harmful.empty()) r.galleries.push_back(gallery("harmful", "Most harmful", harmful));
    if (job_.image_side > 0 && !helpful.empty()) r.galleries.push_back(gallery("helpful", "Most helpful", helpful));
    return r;
  }

  void report_test(Report& r) const {
    const Score s = model_.score(*job_.test, test_);
    r.document["test"] = model_.score_json(*job_.test, test_);
    r.tables.push_back({.id = "test",
                        .title = "Test samples, scored by the fit to all training samples",
                        .caption = "",
                        .columns = {"samples", "mean loss", model_.score_name()},
                        .rows = {{std::to_string(job_.test->count()), shown(s.loss), score_text(s.score)}}});
  }

  void report_accuracy(Report& r) const {
    r.accuracy.push_back(fmt::format(
        "A negative change by removal is harm: the loss falls without the sample. {}",
        effects_.has_leverage()
            ? "It is predicted by one Newton step with the sample's leverage (approximate leave-one-out); the derivative "
              "alone understates samples with much leverage."
            : fmt::format("It is minus the derivative: leverages need the Hessian of at most {} coefficients.",
                          Effects::most_unknowns())));
    r.accuracy.push_back(fmt::format(
        "The fits took {}, derivatives {}, removals {}. Derivatives of {}: {}.", seconds_text(effects_.fit_seconds()),
        seconds_text(effects_.derivative_seconds()), seconds_text(effects_.removal_seconds()),
        folds_ > 0 ? "the fold with the loosest bound" : "all samples together", text_of(effects_.certificate())));
    const auto missing = std::ranges::count_if(effects_.all(), [](const Effect& e) { return !e.removal.has_value(); });
    if (missing > 0)
      r.accuracy.push_back(fmt::format(
          "Without {} of the samples, each for itself, the fit is not unique: nothing is predicted for them.", missing));
  }

  void report_verification(Report& r) const {
    Json samples = Json::array();
    for (const Retrained& one : retrained_)
      samples.push_back({{"sample", job_.train.rows[one.sample]},
                         {"predicted", one.removal},
                         {"derivative", one.derivative},
                         {"actual", one.actual}});
    const Agreement by_removal = agreement(retrained_, &Retrained::removal),
                    by_derivative = agreement(retrained_, &Retrained::derivative);
    r.document["verify"] = {{"count", retrained_.size()},
                            {"correlation", number_or_null(by_removal.correlation)},
                            {"slope", number_or_null(by_removal.slope)},
                            {"median_error", number_or_null(by_removal.median_error)},
                            {"largest_error", number_or_null(by_removal.largest_error)},
                            {"derivative", json_of(by_derivative)},
                            {"samples", samples}};
    r.accuracy.push_back(
        fmt::format("Trained again without {} with the largest effect: {}; minus the derivative: {}.{}",
                    retrained_.size() == 1 ? "the sample" : fmt::format("each of the {} samples", retrained_.size()),
                    text_of(by_removal), text_of(by_derivative),
                    not_retrained_ == 0 ? "" : fmt::format(" {} more could not be trained again.", not_retrained_)));
  }

  void report_samples(Report& r) const {
    Json derivatives = Json::array(), removals = Json::array(), errors = Json::array();
    for (const Effect& e : effects_.all()) {
      derivatives.push_back(e.derivative);
      removals.push_back(e.removal ? Json(*e.removal) : Json());
      errors.push_back(e.standard_error > 0 ? Json(e.standard_error) : Json());
    }
    r.document["sample"] = job_.train.rows;
    r.document["influence"] = derivatives;
    r.document["removal"] = removals;
    r.document["standard_error"] = errors;
    r.document["losses"] = effects_.own_losses();
  }

  std::string table_of_samples() const {
    CsvTable table({"sample", "label", "removal", "standard_error", "influence", "loss"});
    for (const std::size_t i : order_) {
      const Effect& e = effects_.all()[i];
      table.add({std::to_string(job_.train.rows[i]), job_.label_text(job_.train.y.values()[i]),
                 e.removal ? exact(*e.removal) : "", e.standard_error > 0 ? exact(e.standard_error) : "",
                 exact(e.derivative), exact(effects_.own_losses()[i])});
    }
    return table.text();
  }

  page::Gallery gallery(const std::string& id, const std::string& title, const std::vector<std::size_t>& places) const {
    page::Gallery all{id, title, "The number of the sample, its label, how the loss changes without it."};
    for (const std::size_t i : places) {
      all.pictures.push_back(picture_of(job_, job_.train, i));
      all.pictures.back().lines.push_back(job_.label_text(job_.train.y.values()[i]));
      all.pictures.back().lines.push_back(fmt::format("{:+.1e}", removal(i)));
    }
    return all;
  }

  const InfluenceOptions& options_;
  const JobData& job_;
  const Model model_;
  Progress& progress_;
  std::size_t folds_;
  Effects effects_;
  Array test_;  // the model that scores test samples
  std::size_t not_retrained_ = 0;
  std::vector<std::size_t> order_;  // most harmful first
  std::vector<Retrained> retrained_;
};

}  // namespace

void add_influence(CommandLine& line) {
  auto options = std::make_shared<InfluenceOptions>();
  std::vector<Option> rows = sample_options(*options, false);
  rows.push_back({.name = "--valid",
                  .to = &options->valid,
                  .type = "FILE",
                  .help = "samples to judge by",
                  .takes = Takes::input_file,
                  .excludes = {"--demo"}});
  rows.push_back({.name = "--split",
                  .to = &options->split_asked,
                  .type = "SHARE",
                  .help = "or split off this share of FILE to judge by",
                  .takes = Takes::positive,
                  .excludes = {"--valid"}});
  rows.push_back({.name = "--folds",
                  .to = &options->folds,
                  .type = "K",
                  .help = "or judge every sample by a fit to the other folds (default 5)",
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
                  .help = "write a table of all samples there, the most harmful first;\n- for standard output",
                  .takes = Takes::output_file});
  line.add({.name = "influence",
            .job = "Say what each training sample does to the loss of samples that the fit did not see.",
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
