// onestep clean FILE: a weight in [0, 1] for each training sample, learned on validation samples, finds mislabelled ones.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "jobs/model.h"
#include "jobs/report.h"
#include "jobs/samples.h"
#include "jobs/search.h"
#include "verbs.h"

namespace onestep::app {

namespace {

using namespace jobs;

struct CleanOptions : JobOptions {
  double flip = 0, iterations = 20;
};

// Gives a share of the samples another label, and says which.
std::vector<bool> flip_labels(Samples& samples, const JobData& job, double share, std::uint64_t seed) {
  const auto count = static_cast<std::size_t>(samples.count());
  std::vector<bool> flipped(count);
  std::vector<double> y(samples.y.values().begin(), samples.y.values().end());
  const std::vector<std::size_t> order = shuffled(count, seed + 1);
  std::mt19937_64 engine(seed + 2);
  const std::size_t K = job.labels.size();
  for (std::size_t i = 0; i < static_cast<std::size_t>(std::llround(share * static_cast<double>(count))); ++i) {
    double& label = y[order[i]];
    flipped[order[i]] = true;
    label = job.loss == Loss::logistic ? -label
                                       : static_cast<double>((static_cast<std::size_t>(label) + 1 + engine() % (K - 1)) % K);
  }
  samples.y = Array({samples.count()}, y);
  if (job.loss == Loss::softmax) samples.Y = one_hot({y.begin(), y.end()}, K);
  return flipped;
}

class Clean {
 public:
  Clean(const CleanOptions& options, JobData& job, Progress& progress)
      : options_(options), job_(job), model_(job), progress_(progress) {
    if (job.loss == Loss::ridge) throw Misuse("clean looks for wrong labels; ridge has none: try influence");
    if (options.l2() == 0)
      throw Misuse(
          "some weights leave only linearly separable samples, and without a penalty those have no best fit: give --l2 "
          "above 0");
    if (options.flip >= 1) throw Misuse(fmt::format("--flip {}: a share below 1", options.flip));
    true_labels_ = job.train;
    if (options.flip > 0) flipped_ = flip_labels(job.train, job, options.flip, options.seed);
    if (options.flip > 0 && std::ranges::count(flipped_, true) == 0)
      throw Misuse(fmt::format("--flip {} of {} samples is none", options.flip, job.train.count()));
    model_.get_ready(job.train, options.l2());
  }

  int run() {
    progress_.begin("clean: first fit");
    BilevelOptions how = bilevel_options(options_, job_, progress_, "clean");
    how.identity += fmt::format(" l2 {}", options_.l2());
    how.max_iterations = static_cast<int>(options_.iterations);
    how.tolerance = 1e-4;
    const auto judge = [this](Expr x) { return model_.mean_loss(*job_.valid, x); };
    const Inner inner(fit(), model_.start(), judge);
    outcome_ = minimise({inner}, {Parameter::real(ones({job_.train.count()})).within(0, 1)}, Lbfgs{}, how);
    const bool found = is_usable(outcome_);
    if (found) suspect(model_.probabilities(job_.train, outcome_.x[0][0]));
    return show(options_, report(found), found ? Status::converged : outcome_.status, progress_);
  }

 private:
  Solver fit() const {
    return model_.solver(
        [this](Expr x, Expr w) { return sum(w * model_.losses(job_.train, x)) + model_.penalty(x, options_.l2()); });
  }

  // A fit with weights 1 on these samples; none where it fails, or a signal comes.
  std::optional<Array> plain_fit(const Samples& samples) const {
    const Solver plain = model_.solver(
        [&](Expr x) { return sum(model_.losses(samples, x)) + model_.penalty(x, options_.l2()); }, stops_at_signals());
    const Solution s = solve(plain, model_.start(), Parts());
    return is_solution(s.status()) ? std::optional(s.x()) : std::nullopt;
  }

  // Another label is more likely than a sample's own when the model with the learned weights gives it the probability that
  // it has on average for the samples that are labelled so (Northcutt, Jiang, Chuang 2021). Of the samples whose weight
  // fell, those are suspects: where labels are right, weights fall too, to suit the validation samples.
  void suspect(const Array& probabilities) {
    const std::span<const double> w = outcome_.theta[0].values(), push = outcome_.hypergradient[0].values();
    const auto K = static_cast<std::size_t>(probabilities.shape()[1]);
    std::vector<std::size_t> classes;
    for (const double y : job_.train.y.values()) classes.push_back(job_.class_of(y));
    std::vector<double> usual(K), sizes(K);
    for (std::size_t i = 0; i < classes.size(); ++i) {
      usual[classes[i]] += probabilities.values()[i * K + classes[i]];
      sizes[classes[i]] += 1;
    }
    std::vector<bool> suspects(classes.size());
    for (std::size_t i = 0; i < classes.size(); ++i) {
      std::size_t best = classes[i];
      for (std::size_t k = 0; k < K; ++k) {
        const double p = probabilities.values()[i * K + k];
        if (k != classes[i] && sizes[k] > 0 && p * sizes[k] >= usual[k] && p > probabilities.values()[i * K + best])
          best = k;
      }
      likely_.push_back(job_.y_of(best));
      suspects[i] = w[i] < 0.5 && best != classes[i];
    }
    suspects_ = static_cast<std::size_t>(std::ranges::count(suspects, true));
    order_.resize(w.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    // Of equal weights, those that the hypergradient pushes down harder come first.
    const auto rank = [&](std::size_t i) { return std::tuple{!suspects[i], w[i], -push[i]}; };
    std::ranges::stable_sort(order_, [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  }

  // ---- what is said ----

  Report report(bool found) const {
    const Outcome& o = outcome_;
    Report r{.verb = "clean",
             .title = fmt::format("Suspicious labels in {}", job_.name),
             .asked = fmt::format(
                 "{}; {} loss, l2 = {}; {} validation samples{}", description_text(job_), name_of(job_.loss),
                 shown(options_.l2()), job_.valid->count(),
                 options_.flip > 0 ? fmt::format("; {:.0f}% of the labels were flipped first", 100 * options_.flip) : "")};
    r.document = {{"verb", "clean"}};
    r.document.update(description(job_));
    r.document.update({{"l2", options_.l2()}, {"flip", options_.flip}, {"search", json_of(o)}});
    if (!found) {
      r.sentence = ended_text(options_, o);
      return r;
    }
    const std::span<const double> w = o.theta[0].values();
    r.sentence =
        fmt::format("{} of {} samples are suspects: another label is more likely. {}: validation loss {} instead of {}.",
                    suspects_, w.size(), ended_text(options_, o), shown(o.value), shown(o.history.front().value));
    progress_.begin("clean: fits to compare with");
    report_scores(r);
    if (!flipped_.empty()) report_found(r);
    report_suspects(r);
    r.document["sample"] = job_.train.rows;
    r.document["weights"] = std::vector<double>(w.begin(), w.end());
    r.accuracy = accuracy_of(o);
    r.accuracy.push_back(
        fmt::format("{} weights were fitted to {} validation samples, whose loss is too good by that; a suspect "
                    "is worth a look, not proven wrong.",
                    w.size(), job_.valid->count()));
    r.figures = {weights(), path_figure(o)};
    if (!flipped_.empty()) r.figures.insert(r.figures.begin(), found_figure());
    if (job_.image_side > 0 && suspects_ > 0) r.galleries.push_back(gallery());
    return r;
  }

  void report_scores(Report& r) const {
    const Samples& judged = job_.test ? *job_.test : *job_.valid;
    const char* which = job_.test ? "test" : "validation";
    page::Table t{
        .id = "scores",
        .title = fmt::format("Scores on the {} samples", which),
        .caption = job_.test ? "" : "The weights were learned on these samples: --test FILE tells what they are worth.",
        .columns = {"trained on", "mean loss", model_.score_name()}};
    Json scores = {{"samples", which}};
    const auto add = [&](const std::string& name, const char* key, const std::optional<Array>& x) {
      if (!x) return t.rows.push_back({name, stop_signal() != 0 ? "stopped before it" : "the fit failed", ""});
      const Score s = model_.score(judged, *x);
      t.rows.push_back({name, shown(s.loss), fmt::format("{:.4f}", s.score)});
      scores[key] = {{"loss", s.loss}, {model_.score_name(), s.score}};
    };
    add("all samples as they are", "before", plain_fit(job_.train));
    add("samples with the learned weights", "after", outcome_.x[0][0]);
    if (!flipped_.empty()) add("all samples with their true labels", "true_labels", plain_fit(true_labels_));
    r.tables.push_back(t);
    r.document["scores"] = scores;
  }

  void report_found(Report& r) const {
    const auto flips = static_cast<std::size_t>(std::ranges::count(flipped_, true));
    const auto right =
        static_cast<std::size_t>(std::count_if(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(suspects_),
                                               [&](std::size_t i) { return flipped_[i]; }));
    const double precision = suspects_ > 0 ? static_cast<double>(right) / static_cast<double>(suspects_) : 0,
                 recall = flips > 0 ? static_cast<double>(right) / static_cast<double>(flips) : 0;
    r.sentence += fmt::format(" Of {} flipped labels {} are among them: precision {:.3f}, recall {:.3f}.", flips, right,
                              precision, recall);
    r.document["found"] = {
        {"flipped", flips}, {"suspects", suspects_}, {"right", right}, {"precision", precision}, {"recall", recall}};
  }

  void report_suspects(Report& r) const {
    const std::span<const double> w = outcome_.theta[0].values(), y = job_.train.y.values();
    const std::size_t listed = std::min<std::size_t>(suspects_, 20);
    page::Table t{.id = "suspects",
                  .title = listed < suspects_ ? fmt::format("Suspects, the first {} of {}", listed, suspects_) : "Suspects",
                  .caption = "By weight, then by how hard the hypergradient pushes it down.",
                  .columns = {"sample", "label", "more likely", "weight"}};
    if (!flipped_.empty()) t.columns.emplace_back("flipped");
    Json all = Json::array();
    for (std::size_t k = 0; k < suspects_; ++k) {
      const std::size_t i = order_[k];
      all.push_back({{"sample", job_.train.rows[i]},
                     {"label", label_json(job_, y[i])},
                     {"likely", label_json(job_, likely_[i])},
                     {"weight", w[i]}});
      if (!flipped_.empty()) all.back()["flipped"] = static_cast<bool>(flipped_[i]);
      if (k >= listed) continue;
      t.rows.push_back({std::to_string(job_.train.rows[i]), job_.label_text(y[i]), job_.label_text(likely_[i]),
                        fmt::format("{:.3f}", w[i])});
      if (!flipped_.empty()) t.rows.back().emplace_back(flipped_[i] ? "yes" : "no");
    }
    if (suspects_ > 0) r.tables.push_back(t);
    r.document["suspects"] = all;
  }

  page::Gallery gallery() const {
    const std::size_t count = std::min<std::size_t>(suspects_, 30);
    page::Gallery all{"suspects", fmt::format("Suspects, the first {} of {}", count, suspects_),
                      "The number of the sample, the label it has, and the one that is more likely."};
    if (!flipped_.empty()) all.caption += " Labels that were flipped are underlined in colour, with what they were.";
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t i = order_[k];
      page::Picture picture = picture_of(job_, job_.train, i);
      picture.lines.push_back(job_.label_text(job_.train.y.values()[i]));
      picture.lines.push_back(fmt::format("{}?", job_.label_text(likely_[i])));
      picture.marked = !flipped_.empty() && flipped_[i];
      if (picture.marked) picture.lines.push_back(fmt::format("was {}", job_.label_text(true_labels_.y.values()[i])));
      all.pictures.push_back(std::move(picture));
    }
    return all;
  }

  // Weights in ascending order against the share of the samples; those flipped and the others apart.
  page::Figure weights() const {
    const auto curve = [&](const char* label, const char* method, const auto& counts) {
      page::Series s{.label = label, .method = method};
      for (std::size_t i = 0; i < outcome_.theta[0].values().size(); ++i)
        if (counts(i)) s.y.push_back(outcome_.theta[0].values()[i]);
      std::ranges::sort(s.y);
      for (std::size_t i = 0; i < s.y.size(); ++i)
        s.x.push_back((static_cast<double>(i) + 0.5) / static_cast<double>(s.y.size()));
      return s;
    };
    page::Panel panel{.title = "", .x = {"share of the samples"}, .y = {"weight"}};
    if (flipped_.empty())
      panel.series = {curve("", "one_step", [](std::size_t) { return true; })};
    else
      panel.series = {curve("flipped", "one_step", [&](std::size_t i) { return flipped_[i]; }),
                      curve("not flipped", "bound", [&](std::size_t i) { return !flipped_[i]; })};
    panel.series.push_back({.label = "", .method = "none", .mark = "rule", .x = {0, 1}, .y = {0.5, 0.5}});
    return {"weights",
            "Weights of the samples, in ascending order",
            "Of the samples below the dashed line, those are suspects for which another label is more likely.",
            {panel}};
  }

  // What would be found by looking at the samples in the order of suspicion.
  page::Figure found_figure() const {
    const auto flips = static_cast<double>(std::ranges::count(flipped_, true)), all = static_cast<double>(order_.size());
    page::Series precision{.label = "", .method = "one_step"}, hits{.label = "found", .method = "one_step"},
        threshold{.label = "suspects", .method = "iterates", .mark = "points"},
        chance{.label = "by chance", .method = "none", .mark = "rule", .x = {0, 1}, .y = {flips / all, flips / all}},
        ideal{.label = "at best", .method = "estimate", .mark = "rule", .x = {0, flips, all}, .y = {0, flips, flips}},
        drawn{.label = "by chance", .method = "none", .mark = "rule", .x = {0, all}, .y = {0, flips}};
    page::Series threshold_hits = threshold;
    double right = 0;
    for (std::size_t k = 1; k <= order_.size(); ++k) {
      const auto looked_at = static_cast<double>(k);
      right += flipped_[order_[k - 1]] ? 1 : 0;
      precision.x.push_back(right / flips), precision.y.push_back(right / looked_at);
      hits.x.push_back(looked_at), hits.y.push_back(right);
      if (k == suspects_) {
        threshold.x = {right / flips}, threshold.y = {right / looked_at};
        threshold_hits.x = {looked_at}, threshold_hits.y = {right};
      }
    }
    return {
        "found",
        "How well flipped labels are found",
        fmt::format("Samples in the order of suspicion: suspects first, each by weight, then by how hard the hypergradient "
                    "pushes it down. {} of {} "
                    "labels were "
                    "flipped.",
                    flips, order_.size()),
        {page::Panel{
             .title = "Precision and recall", .x = {"recall"}, .y = {"precision"}, .series = {chance, precision, threshold}},
         page::Panel{.title = "Flipped labels among the first suspects",
                     .x = {"samples looked at"},
                     .y = {"flipped ones among them"},
                     .series = {ideal, drawn, hits, threshold_hits}}}};
  }

  const CleanOptions& options_;
  JobData& job_;
  Model model_;
  Progress& progress_;
  Samples true_labels_;
  std::vector<bool> flipped_;  // empty: none were
  Outcome outcome_;
  std::vector<double> likely_;      // label of each training sample, as y has it
  std::vector<std::size_t> order_;  // places of the samples, the most suspicious first
  std::size_t suspects_ = 0;        // how many of them are
};

}  // namespace

void add_clean(CommandLine& line) {
  auto options = std::make_shared<CleanOptions>();
  std::vector<Option> rows = sample_options(*options, true);
  rows.push_back({.name = "--flip",
                  .to = &options->flip,
                  .type = "SHARE",
                  .help = "corrupt this share of the labels first, and say how many are\nfound",
                  .takes = Takes::not_negative});
  rows.push_back({.name = "--iterations",
                  .to = &options->iterations,
                  .type = "N",
                  .help = "at most (default 20)",
                  .takes = Takes::count});
  rows.push_back({.name = "--checkpoint",
                  .to = &options->checkpoint,
                  .type = "FILE",
                  .help = "write the state there, and go on from it when it exists"});
  line.add({.name = "clean",
            .job = "Find mislabelled training samples by weights learned on validation samples.",
            .example = "onestep clean --demo --flip 0.3",
            .common = *options,
            .options = std::move(rows),
            .work =
                [options] {
                  Progress progress(*options);
                  JobData job = load(*options, true, progress);
                  return Clean(*options, job, progress).run();
                },
            .out_help = "write clean.json and a page into this folder, which is made if\nneeded"});
}

}  // namespace onestep::app
