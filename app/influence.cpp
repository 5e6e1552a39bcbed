// onestep influence FILE: what each training sample does to the loss of independent samples; without such samples how well
// the others predict it, and what it does to the cross-validated loss.
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
    Report all = report();
    if (not_reached_ > 0)
      all.ending.notes.push_back(fmt::format("stopped before {} of the {} samples had been left out and trained again",
                                             not_reached_, retrained_.size() + not_retrained_ + not_reached_));
    if (stop_signal() != 0) return show(options_, std::move(all), progress_);
    if (!options_.csv.empty()) write_file(options_.csv, table_of_samples());
    if (!options_.out.empty()) write_file(options_, "influence.csv", table_of_samples());
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

  // Samples that judge say something of new samples only where they had no part in the fit, nor in choosing it.
  bool is_judged_independently() const { return !options_.valid.empty(); }

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

  // By the fit without the sample; where there are no leverages, by the one without its fold.
  std::optional<double> own_loss(std::size_t i) const {
    if (!effects_.own_losses().empty())
      return effects_.own_losses()[i] ? std::optional(effects_.own_losses()[i]->loss) : std::nullopt;
    return folds_ > 0 ? std::optional(effects_.losses()[i]) : std::nullopt;
  }
  std::optional<double> leverage(std::size_t i) const {
    if (effects_.own_losses().empty() || !effects_.own_losses()[i]) return std::nullopt;
    return effects_.own_losses()[i]->leverage;
  }

  // By effects that say something of new samples, else by own losses.
  void rank() {
    order_.resize(effects_.all().size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    if (is_judged_independently())
      std::ranges::stable_sort(order_, {}, [&](std::size_t i) { return removal(i); });
    else
      std::ranges::stable_sort(order_, std::greater{}, [&](std::size_t i) { return own_loss(i).value_or(-1); });
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
        if (stop_signal() != 0) break;
        ++not_retrained_;
      }
    }
    not_reached_ = largest.size() - retrained_.size() - not_retrained_;
  }

  // ---- what is said ----

  Report opening() const {
    const std::string judged_by = folds_ > 0
                                      ? fmt::format("judged by {} folds, each by a fit to the others", folds_)
                                      : fmt::format("judged by {}", counted(job_.valid->count(), "validation sample"));
    const char* const judges = folds_ > 0                  ? "the cross-validated loss"
                               : is_judged_independently() ? "the loss of unseen samples"
                                                           : "the loss of samples split off";
    Report r{.title = fmt::format("What each sample of {} does to {}", job_.name, judges),
             .asked = fmt::format("{}; {} loss, l2 = {}; {}", description_text(job_), name_of(job_.loss),
                                  shown(options_.l2()), judged_by)};
    r.ending = ending_of(Status::converged, job_);
    r.document = description(job_);
    r.document.update({{"l2", options_.l2()}, {"folds", folds_}});
    if (folds_ > 0)
      r.ending.notes.emplace_back(
          "effects of removal are on the cross-validated loss of these very samples: which samples harm predictions for new "
          "ones cannot be learned from samples of the fit; give independent ones (--valid FILE)");
    else if (!is_judged_independently())
      r.ending.notes.push_back(fmt::format(
          "effects of removal are on the fit to the other {}, not to all of them; with independent samples to judge "
          "by (--valid FILE) all are in the fit",
          counted(job_.train.count(), "sample")));
    return r;
  }

  std::size_t count_beyond(double errors, double sign) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(order_, [&](std::size_t i) { return sign * certainty(i) > errors; }));
  }

  std::string sentence_on_own_losses() const {
    const std::string judged =
        folds_ > 0 ? fmt::format(
                         "The mean cross-validated loss of {} is {}. Removal is the effect on this loss of these very "
                         "samples, and says nothing of new ones",
                         counted(static_cast<std::int64_t>(effects_.judging()), "sample"), shown(effects_.loss()))
                   : fmt::format(
                         "The mean loss of the {} split off is {}. Removal is the effect on it where the fit is one to "
                         "the other {}, and says little of a fit to all",
                         counted(static_cast<std::int64_t>(effects_.judging()), "sample"), shown(effects_.loss()),
                         job_.train.count());
    return fmt::format(
        "{}: to learn which samples harm predictions for new ones, give independent samples by --valid FILE. Worth a look "
        "are those with the largest loss of their own, by a fit without them: outliers and wrong labels are among them.",
        judged);
  }

  std::string sentence() const {
    if (!is_judged_independently()) return sentence_on_own_losses();
    const std::size_t N = order_.size(), harm = count_beyond(2, -1), help = count_beyond(2, 1);
    std::string text =
        fmt::format("The mean loss of {} is {}. ", counted(static_cast<std::int64_t>(effects_.judging()), "unseen sample"),
                    shown(effects_.loss()));
    if (!effects_.has_leverage())
      return text + fmt::format("{} of {} samples do harm; standard errors are not computed for more than {} coefficients.",
                                std::ranges::count_if(order_, [&](std::size_t i) { return removal(i) < 0; }), N,
                                Effects::most_unknowns());
    const double strict = bonferroni_errors(N);
    text += fmt::format(
        "Of {} samples {} do{} harm and {} help{} by more than two standard errors (about {:.0f} would by chance alone); {} "
        "remain{} at a level that allows for {} tests ({:.1f} standard errors).",
        N, harm, harm == 1 ? "es" : "", help, help == 1 ? "s" : "", chance_beyond_two_errors * static_cast<double>(N),
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
                             fmt::format("{:+.3e}", e.derivative), shown(effects_.losses()[i])});
    }
    return result;
  }

  page::Table table_of_own_losses(const std::vector<std::size_t>& places) const {
    page::Table result{
        .id = "own_losses",
        .title = "Largest own losses",
        .caption = fmt::format(
            "Own loss: of the sample by the fit without {}. Leverage: how strongly its own label pulls its prediction. "
            "Removal: how {} changes without the sample, with its standard error.",
            effects_.has_leverage() ? "it" : "its fold",
            folds_ > 0 ? "the cross-validated loss of these samples" : "the loss of the samples split off"),
        .columns = {"sample", "label", "own loss", "leverage", "removal", "standard error"}};
    for (const std::size_t i : places) {
      const Effect& e = effects_.all()[i];
      result.rows.push_back({std::to_string(job_.train.rows[i]), job_.label_text(job_.train.y.values()[i]),
                             shown(*own_loss(i)), leverage(i) ? fmt::format("{:.3f}", *leverage(i)) : "-",
                             e.removal ? fmt::format("{:+.3e}", *e.removal) : "-",
                             e.standard_error > 0 ? fmt::format("{:.1e}", e.standard_error) : "-"});
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
           {"influence", effects_.all()[i].derivative},
           {"own_loss", json_or_null(own_loss(i))},
           {"leverage", json_or_null(leverage(i))}});
    return all;
  }

  static Json json_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

  Report report() const {
    Report r = opening();
    r.sentence = sentence();
    r.document["judging"] = {
        {"samples", effects_.judging()}, {"loss", effects_.loss()}, {"independent", is_judged_independently()}};
    is_judged_independently() ? report_effects(r) : report_own_losses(r);
    r.document["certificate"] = json_of(effects_.certificate());
    if (job_.test) report_test(r);
    report_accuracy(r);
    if (options_.verify > 0) report_verification(r);
    report_samples(r);
    if (retrained_.size() > 1) r.figures.push_back(verification_figure(retrained_));
    return r;
  }

  void report_own_losses(Report& r) const {
    std::vector<std::size_t> largest;
    std::vector<double> losses, leverages;
    for (const std::size_t i : order_) {
      if (!own_loss(i)) continue;
      if (largest.size() < most_listed) largest.push_back(i);
      losses.push_back(*own_loss(i));
      if (leverage(i)) leverages.push_back(*leverage(i));
    }
    if (largest.empty()) return;
    r.tables.push_back(table_of_own_losses(largest));
    r.document["largest_own_losses"] = listed(largest);
    r.figures = {own_loss_figure(losses, leverages)};
    if (job_.image_side > 0) r.galleries.push_back(gallery("own_losses", "Largest own losses", largest));
  }

  void report_effects(Report& r) const {
    const auto count =
        static_cast<std::size_t>(std::ranges::count_if(order_, [&](std::size_t i) { return removal(i) < 0; }));
    const auto helps =
        static_cast<std::size_t>(std::ranges::count_if(order_, [&](std::size_t i) { return removal(i) > 0; }));
    const std::vector<std::size_t> harmful(order_.begin(),
                                           order_.begin() + static_cast<std::ptrdiff_t>(std::min(most_listed, count))),
        helpful(order_.rbegin(), order_.rbegin() + static_cast<std::ptrdiff_t>(std::min(most_listed, helps)));
    if (!harmful.empty()) r.tables.push_back(table("harmful", "Most harmful", harmful));
    if (!helpful.empty()) r.tables.push_back(table("helpful", "Most helpful", helpful));
    r.document.update({{"harmful", count},
                       {"beyond_two_standard_errors", {{"harm", count_beyond(2, -1)}, {"help", count_beyond(2, 1)}}},
                       {"most_harmful", listed(harmful)},
                       {"most_helpful", listed(helpful)}});
    std::vector<double> removals, certainties;
    for (const std::size_t i : order_) removals.push_back(removal(i)), certainties.push_back(certainty(i));
    r.figures = {ranking_figure(removals, certainties)};
    if (job_.image_side > 0 && !harmful.empty()) r.galleries.push_back(gallery("harmful", "Most harmful", harmful));
    if (job_.image_side > 0 && !helpful.empty()) r.galleries.push_back(gallery("helpful", "Most helpful", helpful));
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
        "{} {}",
        is_judged_independently() ? "A negative change by removal is harm: the loss falls without the sample."
                                  : "A negative change by removal says that the loss falls without the sample.",
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
    Json derivatives = Json::array(), removals = Json::array(), errors = Json::array(), own = Json::array(),
         leverages = Json::array();
    for (std::size_t i = 0; i < effects_.all().size(); ++i) {
      const Effect& e = effects_.all()[i];
      derivatives.push_back(e.derivative);
      removals.push_back(e.removal ? Json(*e.removal) : Json());
      errors.push_back(e.standard_error > 0 ? Json(e.standard_error) : Json());
      own.push_back(json_or_null(own_loss(i))), leverages.push_back(json_or_null(leverage(i)));
    }
    r.document["sample"] = job_.train.rows;
    r.document["influence"] = derivatives;
    r.document["removal"] = removals;
    r.document["standard_error"] = errors;
    r.document["losses"] = effects_.losses();
    r.document["own_loss"] = own;
    r.document["leverage"] = leverages;
  }

  std::string table_of_samples() const {
    CsvTable table({"sample", "label", "removal", "standard_error", "influence", "loss", "own_loss", "leverage"});
    const auto field = [](const std::optional<double>& value) { return value ? exact(*value) : ""; };
    for (const std::size_t i : order_) {
      const Effect& e = effects_.all()[i];
      table.add({std::to_string(job_.train.rows[i]), job_.label_text(job_.train.y.values()[i]), field(e.removal),
                 e.standard_error > 0 ? exact(e.standard_error) : "", exact(e.derivative), exact(effects_.losses()[i]),
                 field(own_loss(i)), field(leverage(i))});
    }
    return table.text();
  }

  page::Gallery gallery(const std::string& id, const std::string& title, const std::vector<std::size_t>& places) const {
    page::Gallery all{id, title,
                      is_judged_independently() ? "The number of the sample, its label, how the loss changes without it."
                                                : "The number of the sample, its label, its own loss."};
    for (const std::size_t i : places) {
      all.pictures.push_back(picture_of(job_, job_.train, i));
      all.pictures.back().lines.push_back(job_.label_text(job_.train.y.values()[i]));
      all.pictures.back().lines.push_back(is_judged_independently() ? fmt::format("{:+.1e}", removal(i))
                                                                    : shown(*own_loss(i)));
    }
    return all;
  }

  static constexpr std::size_t most_listed = 10;

  const InfluenceOptions& options_;
  const JobData& job_;
  const Model model_;
  Progress& progress_;
  std::size_t folds_;
  Effects effects_;
  Array test_;                                       // the model that scores test samples
  std::size_t not_retrained_ = 0, not_reached_ = 0;  // of those that were to be trained again
  std::vector<std::size_t> order_;                   // most harmful first, or the largest own loss
  std::vector<Retrained> retrained_;
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
