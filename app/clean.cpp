// onestep clean FILE: finds mislabelled samples by fits that did not see them, and says whether a model does better without.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "jobs/clean_figures.h"
#include "jobs/clean_report.h"
#include "jobs/cleaning.h"
#include "jobs/flip.h"
#include "jobs/memory.h"
#include "jobs/model.h"
#include "jobs/report.h"
#include "jobs/sample_files.h"
#include "jobs/samples.h"
#include "verbs.h"

namespace onestep::app {

namespace {

using namespace jobs;

struct CleanOptions : JobOptions {
  double flip = 0;
  std::string cleaned, csv;
  bool remove_suspects = false;
};

class Clean {
 public:
  Clean(const CleanOptions& options, JobData& job, Progress& progress)
      : options_(options), job_(job), model_(job), progress_(progress) {
    if (job.loss == Loss::ridge) throw Misuse("clean looks for wrong labels; ridge has none: try influence");
    if (options.l2() == 0)
      throw Misuse(
          "without the suspects the samples may be linearly separable, and without a penalty those have no best fit: give "
          "--l2 above 0");
    if (options.flip >= 1) throw Misuse(fmt::format("--flip {}: a share below 1", options.flip));
    true_labels_ = job.train;
    if (options.flip > 0) flipped_ = flip_labels(job.train, job, options.flip, options.seed);
    if (options.flip > 0 && std::ranges::count(flipped_, true) == 0)
      throw Misuse(fmt::format("--flip {} of {} samples is none", options.flip, job.train.count()));
    require_samples_to_judge();
  }

  int run() {
    progress_.enter("judge");
    Cleaner cleaner(job_, model_, job_.valid ? &*job_.valid : nullptr, options_.l2(), options_.seed, progress_);
    try {
      judgement_ = cleaner.judge();
      progress_.enter("compare");
      comparison_ = cleaner.compare();
      if (is_undecided()) std::fill(judgement_.suspects.begin(), judgement_.suspects.end(), false);
      suspects_ = static_cast<std::size_t>(std::ranges::count(judgement_.suspects, true));
      if (job_.test) {
        progress_.enter("test");
        before_ = cleaner.fit_without(std::vector<bool>(judgement_.suspects.size()));
        without_suspects_ = suspects_ > 0 ? cleaner.fit_without(judgement_.suspects) : before_;
      }
      fits_ = cleaner.fits();
    } catch (const FitFailed& failed) { return report_failure(failed); }
    order_.resize(judgement_.quality.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    if (!is_undecided()) std::ranges::stable_sort(order_, {}, [&](std::size_t i) { return judgement_.quality[i]; });
    removes_ = suspects_ > 0 && (options_.remove_suspects || comparison_.helps());
    Report all = report();
    write_tables();
    return show(options_, std::move(all), progress_);
  }

 private:
  void require_samples_to_judge() const {
    std::vector<std::size_t> size(job_.labels.size());
    for (const double y : job_.train.y.values()) ++size[job_.class_of(y)];
    if (std::ranges::count_if(size, [](std::size_t s) { return s >= 2; }) < 2)
      throw Misuse(fmt::format(
          "{}: a label is judged by fits to other samples that have it, which takes two labels with two samples each",
          job_.name));
    constexpr std::size_t least = 20;
    if (job_.train.y.values().size() < least)
      throw Misuse(fmt::format("{}: {} are too few to judge labels by; it takes {} at least", job_.name,
                               counted(job_.train.y.size(), "sample"), least));
  }

  int report_failure(const FitFailed& failed) {
    Report r = opening();
    r.ending = ending_of(failed.status, job_);
    r.sentence = stop_signal() != 0 ? "Stopped; there is nothing to report yet." : why_fit_failed(failed.status);
    return show(options_, r, progress_);
  }

  // Whether labels were flipped, so that it is known which are wrong.
  bool is_rehearsal() const { return !flipped_.empty(); }

  // ---- what is said ----

  Report opening() const {
    Report r{
        .title = fmt::format("Suspicious labels in {}", job_.name),
        .asked = fmt::format(
            "{}; {} loss, l2 = {}; {}{}", description_text(job_), name_of(job_.loss), shown(options_.l2()),
            job_.valid ? fmt::format("{} with trusted labels", counted(job_.valid->count(), "sample")) : "no trusted labels",
            options_.flip > 0 ? fmt::format("; {:.0f}% of the labels were flipped first", 100 * options_.flip) : "")};
    r.ending = ending_of(Status::converged, job_);
    r.document = description(job_);
    r.document.update(
        {{"l2", options_.l2()}, {"flip", options_.flip}, {"trusted_samples", job_.valid ? job_.valid->count() : 0}});
    return r;
  }

  // The model is no judge of labels: what it says about single ones is not reported.
  bool is_undecided() const { return !comparison_.tells_labels(); }

  std::string sentence() const {
    if (is_undecided()) return undecided_sentence(comparison_);
    if (suspects_ == 0)
      return fmt::format("None of {} samples is a suspect: nothing is to be cleaned.", judgement_.quality.size());
    return suspects_sentence(comparison_, suspects_, judgement_.quality.size(), removes_);
  }

  Report report() const {
    Report r = opening();
    r.sentence = sentence();
    report_scores(r);
    if (is_undecided()) {
      r.ending.status = "undecided", r.ending.usable = false;
      r.document["fits"] = fits_;
      return r;
    }
    if (is_rehearsal()) report_found(r);
    report_suspects(r);
    report_samples(r);
    const double judging = options_.clock->seconds_of("judge"), comparing = options_.clock->seconds_of("compare");
    r.accuracy.push_back(
        fmt::format("Every label was judged by fits that did not see the sample; about {:.1f}% of the labels seem to be "
                    "wrong. {} fits took {}.",
                    100 * judgement_.noise, fits_, seconds_text(judging + comparing)));
    r.accuracy.emplace_back(
        "Classes that overlap look the same as wrong labels: a suspect is worth a look, not proven wrong. Without "
        "--remove-suspects they are removed only where held-out samples gain more than chance gives one time in ten, in "
        "loss or in accuracy, and lose in neither.");
    if (!comparison_.trusted)
      r.accuracy.emplace_back(
          "The held-out samples may have wrong labels, too. The loss allows for as many of each class as were found, the "
          "accuracy does not; --valid FILE with trusted labels is a better judge.");
    if (const auto alone = std::ranges::count(judgement_.judged, false); alone > 0)
      r.accuracy.push_back(fmt::format("{} sample{} the only one with {} label: not judged.", alone,
                                       alone == 1 ? " is" : "s are each", alone == 1 ? "its" : "their"));
    r.figures = {quality_figure(judgement_, flipped_)};
    if (is_rehearsal()) r.figures.insert(r.figures.begin(), found_figure(flipped_, order_, suspects_));
    if (job_.image_side > 0 && suspects_ > 0) r.galleries.push_back(gallery());
    return r;
  }

  std::optional<Array> fit_of_true_labels() const {
    const Samples& samples = true_labels_;
    const Solver plain = model_.solver(
        [&](Expr x) {
          Expr losses = sum(model_.losses(samples, x));
          if (job_.valid) losses = losses + sum(model_.losses(*job_.valid, x));
          return losses + model_.penalty(x, options_.l2());
        },
        stops_at_signals());
    const Solution s = solve(plain, before_, Parts());
    return is_solution(s.status()) ? std::optional(s.x()) : std::nullopt;
  }

  void report_scores(Report& r) const {
    r.document["comparison"] = comparison_json(comparison_, suspects_ > 0);
    r.document["removed"] = removes_ ? suspects_ : 0;
    r.tables.push_back(comparison_table(comparison_, suspects_ > 0));
    if (!job_.test) return;
    page::Table t{.id = "test_scores",
                  .title = "Scores on the test samples",
                  .caption = "",
                  .columns = {"trained on", "mean loss", "accuracy"}};
    Json scores = {{"samples", "test"}};
    const auto add = [&](const std::string& name, const char* key, const std::optional<Array>& x) {
      if (!x) return t.rows.push_back({name, stop_signal() != 0 ? "stopped before it" : "the fit failed", ""});
      const Score s = model_.score(*job_.test, *x);
      t.rows.push_back({name, shown(s.loss), fmt::format("{:.4f}", s.score)});
      scores[key] = {{"loss", s.loss}, {"accuracy", s.score}};
    };
    add("all samples as they are", "before", before_);
    add("all but the suspects", "without_suspects", without_suspects_);
    if (is_rehearsal()) add("all samples with their true labels", "true_labels", fit_of_true_labels());
    scores["after"] = scores[removes_ ? "without_suspects" : "before"];
    r.tables.push_back(t);
    r.document["scores"] = scores;
  }

  void report_found(Report& r) const {
    const Found f = found(flipped_, judgement_);
    r.sentence += fmt::format(
        " Of {} flipped labels {} are among the suspects: precision {:.3f}, recall {:.3f}, F1 {:.3f}{}.", f.flipped, f.right,
        f.precision, f.recall, f.f1, f.auc ? fmt::format("; AUC of the order {:.3f}", *f.auc) : "");
    r.document["found"] = {{"flipped", f.flipped},
                           {"suspects", f.suspects},
                           {"right", f.right},
                           {"precision", f.precision},
                           {"recall", f.recall},
                           {"f1", f.f1},
                           {"auc", f.auc ? Json(*f.auc) : Json()}};
  }

  void report_suspects(Report& r) const {
    const std::span<const double> y = job_.train.y.values();
    const std::size_t listed = std::min<std::size_t>(suspects_, 20);
    page::Table t{.id = "suspects",
                  .title = listed < suspects_ ? fmt::format("Suspects, the first {} of {}", listed, suspects_) : "Suspects",
                  .caption = "By the probability of their label under fits without them.",
                  .columns = {"sample", "label", "more probable", "probability of the label", "probably wrong"}};
    if (is_rehearsal()) t.columns.emplace_back("flipped");
    Json all = Json::array();
    for (const std::size_t i : order_) {
      if (!judgement_.suspects[i]) continue;
      const double likely = job_.y_of(judgement_.other[i]), wrong = 1 - judgement_.right[i];
      all.push_back({{"sample", job_.train.rows[i]},
                     {"label", label_json(job_, y[i])},
                     {"likely", label_json(job_, likely)},
                     {"quality", judgement_.quality[i]},
                     {"wrong", wrong}});
      if (is_rehearsal()) all.back()["flipped"] = static_cast<bool>(flipped_[i]);
      if (t.rows.size() >= listed) continue;
      t.rows.push_back({std::to_string(job_.train.rows[i]), job_.label_text(y[i]), job_.label_text(likely),
                        fmt::format("{:.2g}", judgement_.quality[i]), fmt::format("{:.3f}", wrong)});
      if (is_rehearsal()) t.rows.back().emplace_back(flipped_[i] ? "yes" : "no");
    }
    if (suspects_ > 0) r.tables.push_back(t);
    r.document["suspects"] = all;
  }

  void report_samples(Report& r) const {
    r.document["noise"] = judgement_.noise;
    r.document["fits"] = fits_;
    r.document["sample"] = job_.train.rows;
    r.document["quality"] = judgement_.quality;
    std::vector<double> weights(judgement_.quality.size(), 1.0), wrong;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (removes_ && judgement_.suspects[i]) weights[i] = 0;
      wrong.push_back(1 - judgement_.right[i]);
    }
    r.document["wrong"] = wrong;
    r.document["weights"] = weights;
  }

  page::Gallery gallery() const {
    const std::size_t count = std::min<std::size_t>(suspects_, 30);
    page::Gallery all{"suspects", fmt::format("Suspects, the first {} of {}", count, suspects_),
                      "The number of the sample, the label it has, and the one that is more probable."};
    if (is_rehearsal()) all.caption += " Labels that were flipped are underlined in colour, with what they were.";
    for (const std::size_t i : order_) {
      if (!judgement_.suspects[i] || all.pictures.size() >= count) continue;
      page::Picture picture = picture_of(job_, job_.train, i);
      picture.lines.push_back(job_.label_text(job_.train.y.values()[i]));
      picture.lines.push_back(fmt::format("{}?", job_.label_text(job_.y_of(judgement_.other[i]))));
      picture.marked = is_rehearsal() && flipped_[i];
      if (picture.marked) picture.lines.push_back(fmt::format("was {}", job_.label_text(true_labels_.y.values()[i])));
      all.pictures.push_back(std::move(picture));
    }
    return all;
  }

  // ---- files ----

  std::string table_of_samples() const {
    CsvTable table({"sample", "label", "more_probable", "quality", "wrong", "suspect", "removed"});
    for (const std::size_t i : order_) {
      const bool suspect = judgement_.suspects[i];
      table.add({std::to_string(job_.train.rows[i]), job_.label_text(job_.train.y.values()[i]),
                 is_undecided() ? "" : job_.label_text(job_.y_of(judgement_.other[i])),
                 is_undecided() ? "" : exact(judgement_.quality[i]), is_undecided() ? "" : exact(1 - judgement_.right[i]),
                 suspect ? "1" : "0", suspect && removes_ ? "1" : "0"});
    }
    return table.text();
  }

  void write_tables() const {
    if (!options_.csv.empty()) write_file(options_.csv, table_of_samples());
    if (!options_.out.empty()) write_file(options_, "samples.csv", table_of_samples());
    if (options_.cleaned.empty()) return;
    std::vector<std::size_t> rows;
    for (std::size_t i = 0; removes_ && i < judgement_.suspects.size(); ++i)
      if (judgement_.suspects[i]) rows.push_back(job_.train.rows[i]);
    write_file(options_.cleaned, file_without(options_, job_, rows));
  }

  const CleanOptions& options_;
  JobData& job_;
  Model model_;
  Progress& progress_;
  Samples true_labels_;
  std::vector<bool> flipped_;  // empty: none were
  Judgement judgement_;
  Comparison comparison_;
  Array before_, without_suspects_;
  std::vector<std::size_t> order_;  // places of the samples, the most suspicious first
  std::size_t suspects_ = 0;
  bool removes_ = false;  // whether the suspects are left out
  int fits_ = 0;
};

}  // namespace

void add_clean(CommandLine& line) {
  auto options = std::make_shared<CleanOptions>();
  std::vector<Option> rows = sample_options(*options, false);
  for (Option& row : rows)
    if (row.name.starts_with("--standardise")) row.help = "scale features to mean 0 and deviation 1: clean always does";
  rows.push_back({.name = "--valid",
                  .to = &options->valid,
                  .type = "FILE",
                  .help = "samples whose labels can be trusted: they join the fits and are\nwhat models are compared by",
                  .takes = Takes::input_file,
                  .excludes = {"--demo"}});
  rows.push_back({.name = "--flip",
                  .to = &options->flip,
                  .type = "SHARE",
                  .help = "corrupt this share of the labels of FILE first, and say how many\nare found",
                  .takes = Takes::not_negative});
  rows.push_back(
      {.name = "--cleaned",
       .to = &options->cleaned,
       .type = "FILE",
       .help = "write the samples that are kept there: the records of a\ntext file as they were; - for standard output",
       .takes = Takes::output_file,
       .excludes = {"--flip"}});
  rows.push_back({.name = "--remove-suspects",
                  .to = &options->remove_suspects,
                  .help = "leave the suspects out of --cleaned although it cannot be shown that\nthis helps"});
  rows.push_back({.name = "--csv",
                  .to = &options->csv,
                  .type = "FILE",
                  .help = "write a table of all samples there, the most suspicious first;\n- for standard output",
                  .takes = Takes::output_file});
  line.add({.name = "clean",
            .job = "Find mislabelled samples by fits that did not see them.",
            .example = "onestep clean --demo --flip 0.2",
            .common = *options,
            .options = std::move(rows),
            .work =
                [options] {
                  options->standardise = true;  // what is wrong with a label does not depend on units of features
                  Progress progress(*options);
                  if (options->file == "-" && !options->cleaned.empty()) keep_standard_input();
                  JobData job = load(*options, false, progress);
                  if (!options->cleaned.empty()) file_without(*options, job, {});  // refuses before the work
                  job.memory_needed = std::max(job.memory_needed,
                                               require_memory(*options, job.name, needs_of_clean(job.loss), sizes_of(job)));
                  return Clean(*options, job, progress).run();
                },
            .files_of_out = {"clean.json", "index.html", "samples.csv"},
            .out_help = "write clean.json, samples.csv and a page into this folder, which\nis made if needed"});
}

}  // namespace onestep::app
