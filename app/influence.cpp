// onestep influence FILE: what each training sample does to the validation loss, by one vjp of the fit.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "jobs/model.h"
#include "jobs/report.h"
#include "jobs/samples.h"
#include "verbs.h"

namespace onestep::app {

namespace {

using namespace jobs;

struct InfluenceOptions : JobOptions {
  double verify = 0;
};

// A retraining without one sample: by how much the validation loss was to change, and did.
struct Retrained {
  std::size_t sample;
  double predicted, actual;
};

double correlation(const std::vector<Retrained>& all) {
  const auto count = static_cast<double>(all.size());
  double mean_p = 0, mean_a = 0, pp = 0, aa = 0, pa = 0;
  for (const Retrained& r : all) mean_p += r.predicted / count, mean_a += r.actual / count;
  for (const Retrained& r : all) {
    const double p = r.predicted - mean_p, a = r.actual - mean_a;
    pp += p * p, aa += a * a, pa += p * a;
  }
  return pp > 0 && aa > 0 ? pa / std::sqrt(pp * aa) : std::numeric_limits<double>::quiet_NaN();
}

// Of the line through the origin that has the least squares: 1 when changes are as large as predicted.
double slope(const std::vector<Retrained>& all) {
  double pp = 0, pa = 0;
  for (const Retrained& r : all) pp += r.predicted * r.predicted, pa += r.predicted * r.actual;
  return pp > 0 ? pa / pp : std::numeric_limits<double>::quiet_NaN();
}

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
        fit_(model_.solver(
            [this](Expr x, Expr w) { return sum(w * model_.losses(job_.train, x)) + model_.penalty(x, options_.l2()); },
            {.callback = [this](const Iteration& i) { return tell(i); }})),
        prepared_(fit_, model_.start(), ones({job.train.count()}), OneStep{}),
        judge_(trace(
            [this](Expr x) {
              return std::pair{model_.mean_loss(*job_.valid, x), grad(model_.mean_loss(*job_.valid, x), x)};
            },
            model_.shape())) {}

  int run() {
    doing_ = "fitting";
    const Solution& s = prepared_.solve(model_.start(), ones({job_.train.count()}));
    const Status status = s.status();
    solve_seconds_ = s.statistics().seconds;
    iterations_ = s.statistics().iterations;
    message_ = s.message();
    x_ = s.x();
    if (is_solution(status)) {
      differentiate(s);
      verify();
    }
    return show(options_, report(status), status, progress_);
  }

 private:
  bool tell(const Iteration& i) {
    progress_.show([&] { return fmt::format("influence: {}, iteration {}, step {:.1e}", doing_, i.number, i.step); });
    return stop_signal() == 0;
  }

  void differentiate(const Solution& s) {
    progress_.begin("influence: derivative");
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<Array> judged = evaluate(judge_, {x_});
    loss_ = judged[0].item();
    const Array g = s.vjp(judged[1]);
    influence_.assign(g.values().begin(), g.values().end());
    vjp_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    certificate_ = s.certificate(judged[1]);
    order_.resize(influence_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::stable_sort(order_, [&](std::size_t a, std::size_t b) { return influence_[a] > influence_[b]; });
  }

  // Those with the largest influence of either sign, each left out in turn.
  void verify() {
    std::vector<std::size_t> largest = order_;
    std::ranges::stable_sort(
        largest, [&](std::size_t a, std::size_t b) { return std::fabs(influence_[a]) > std::fabs(influence_[b]); });
    largest.resize(std::min(largest.size(), static_cast<std::size_t>(options_.verify)));
    for (const std::size_t i : largest) {
      doing_ = fmt::format("retraining, {} of {}", retrained_.size() + 1, largest.size());
      std::vector<double> w(influence_.size(), 1.0);
      w[i] = 0;
      const Solution& s = prepared_.solve(x_, Array({job_.train.count()}, std::move(w)));
      if (!is_solution(s.status())) {
        not_retrained_ = fmt::format("without sample {}: {}", job_.train.rows[i], s.message());
        break;
      }
      retrained_.push_back({i, -influence_[i], evaluate(judge_, {s.x()})[0].item() - loss_});
    }
  }

  // ---- what is said ----

  Array own_losses() const {
    return evaluate(trace([&](Expr x) { return model_.losses(job_.train, x); }, model_.shape()), {x_})[0];
  }

  page::Table table(const std::string& id, const std::string& title, const std::vector<std::size_t>& places) const {
    const Array each = own_losses();
    page::Table result{.id = id,
                       .title = title,
                       .caption =
                           "Influence: the derivative of the validation loss by the sample's weight; without the sample "
                           "the loss changes by about the opposite.",
                       .columns = {"sample", "label", "influence", "its own loss"}};
    for (const std::size_t i : places)
      result.rows.push_back({std::to_string(job_.train.rows[i]), job_.label_text(job_.train.y.values()[i]),
                             fmt::format("{:+.3e}", influence_[i]), shown(each.values()[i])});
    return result;
  }

  Json listed(const std::vector<std::size_t>& places) const {
    Json all = Json::array();
    for (const std::size_t i : places)
      all.push_back({{"sample", job_.train.rows[i]},
                     {"label", label_json(job_, job_.train.y.values()[i])},
                     {"influence", influence_[i]}});
    return all;
  }

  Report report(Status status) const {
    Report r{.verb = "influence",
             .title = fmt::format("What each sample of {} does to the validation loss", job_.name),
             .asked = fmt::format("{}; {} loss, l2 = {}; {} validation samples", description_text(job_), name_of(job_.loss),
                                  shown(options_.l2()), job_.valid->count())};
    r.document = {{"verb", "influence"}};
    r.document.update(description(job_));
    r.document.update({{"l2", options_.l2()}, {"status", to_string(status)}, {"iterations", iterations_}});
    if (!is_solution(status)) {
      r.sentence = fmt::format("{}: {}", to_string(status), message_);
      return r;
    }
    constexpr std::size_t most = 10;
    const auto count = static_cast<std::size_t>(std::ranges::count_if(influence_, [](double i) { return i > 0; }));
    const std::vector<std::size_t> harmful(order_.begin(),
                                           order_.begin() + static_cast<std::ptrdiff_t>(std::min(most, count))),
        helpful(order_.rbegin(), order_.rbegin() + static_cast<std::ptrdiff_t>(std::min(most, order_.size() - count)));
    r.sentence = fmt::format("{} of {} samples do harm{}: validation loss {} (mean). The fit took {}, all influences {}.",
                             count, influence_.size(),
                             harmful.empty() ? "" : fmt::format(", most of all sample {}", job_.train.rows[harmful[0]]),
                             shown(loss_), seconds_text(solve_seconds_), seconds_text(vjp_seconds_));
    if (!harmful.empty()) r.tables.push_back(table("harmful", "Most harmful", harmful));
    if (!helpful.empty()) r.tables.push_back(table("helpful", "Most helpful", helpful));
    r.accuracy.emplace_back(
        "A positive influence is harm: without the sample the mean validation loss changes by about minus its influence.");
    r.accuracy.push_back(fmt::format("All influences together: {}.", text_of(certificate_)));
    r.document.update({{"valid", model_.score_json(*job_.valid, x_)},
                       {"seconds", {{"fit", solve_seconds_}, {"influence", vjp_seconds_}}},
                       {"harmful", count},
                       {"most_harmful", listed(harmful)},
                       {"most_helpful", listed(helpful)},
                       {"certificate", json_of(certificate_)}});
    if (job_.test) r.document["test"] = model_.score_json(*job_.test, x_);
    if (options_.verify > 0) report_verification(r);
    r.document["sample"] = job_.train.rows;
    r.document["influence"] = influence_;
    const Array losses = own_losses();
    r.document["losses"] = std::vector<double>(losses.values().begin(), losses.values().end());
    r.figures = {ranking()};
    if (retrained_.size() > 1) r.figures.push_back(verification());
    if (job_.image_side > 0 && !harmful.empty()) r.galleries.push_back(gallery("harmful", "Most harmful", harmful));
    if (job_.image_side > 0 && !helpful.empty()) r.galleries.push_back(gallery("helpful", "Most helpful", helpful));
    return r;
  }

  void report_verification(Report& r) const {
    Json samples = Json::array();
    for (const Retrained& one : retrained_)
      samples.push_back({{"sample", job_.train.rows[one.sample]}, {"predicted", one.predicted}, {"actual", one.actual}});
    const double c = correlation(retrained_), m = slope(retrained_);
    r.document["verify"] = {{"count", retrained_.size()},
                            {"correlation", std::isfinite(c) ? Json(c) : Json()},
                            {"slope", std::isfinite(m) ? Json(m) : Json()},
                            {"samples", samples}};
    r.accuracy.push_back(
        fmt::format("Retrained without each of the {} most influential samples: predicted and actual change of the "
                    "validation loss correlate by {:.4f}, and the actual one is {:.3f} times the predicted one.{}",
                    retrained_.size(), c, m, not_retrained_.empty() ? "" : fmt::format(" Then: {}", not_retrained_)));
  }

  page::Gallery gallery(const std::string& id, const std::string& title, const std::vector<std::size_t>& places) const {
    page::Gallery all{id, title, "The number of the sample, its label, its influence."};
    for (const std::size_t i : places) {
      all.pictures.push_back(picture_of(job_, job_.train, i));
      all.pictures.back().lines.push_back(job_.label_text(job_.train.y.values()[i]));
      all.pictures.back().lines.push_back(fmt::format("{:+.1e}", influence_[i]));
    }
    return all;
  }

  // All of them, and both ends where they can be told apart.
  page::Figure ranking() const {
    page::Series harmful{.label = "harmful", .method = "one_step"}, helpful{.label = "helpful", .method = "bound"};
    page::Series most_harmful = harmful, most_helpful = helpful;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const double value = influence_[order_[i]];
      page::Series& one = value > 0 ? harmful : helpful;
      one.x.push_back(static_cast<double>(i + 1));
      one.y.push_back(value);
      if (value > 0) most_harmful.x.push_back(static_cast<double>(i + 1)), most_harmful.y.push_back(value);
    }
    for (std::size_t i = 0; i < helpful.x.size(); ++i) {
      most_helpful.x.push_back(static_cast<double>(i + 1));
      most_helpful.y.push_back(-influence_[order_[order_.size() - 1 - i]]);
    }
    return {
        "ranking",
        "Influence of the samples",
        fmt::format(
            "Derivative of the mean validation loss by the weight of each of {} samples, all by one vjp of the fit. Samples "
            "with a positive one do harm.",
            order_.size()),
        {page::Panel{.title = "All, most harmful first", .x = {"rank"}, .y = {"influence"}, .series = {harmful, helpful}},
         page::Panel{.title = "Both ends",
                     .x = {"rank from its end", true},
                     .y = {"size of the influence", true},
                     .series = {most_harmful, most_helpful}}}};
  }

  page::Figure verification() const {
    page::Series harmful{.label = "harmful", .method = "one_step", .mark = "points"},
        helpful{.label = "helpful", .method = "bound", .mark = "points"},
        line{.label = "as predicted", .method = "none", .mark = "rule"};
    double low = 0, high = 0;
    for (const Retrained& one : retrained_) {
      page::Series& side = one.predicted < 0 ? harmful : helpful;
      side.x.push_back(one.predicted);
      side.y.push_back(one.actual);
      low = std::min(low, one.predicted), high = std::max(high, one.predicted);
    }
    line.x = line.y = {low, high};
    return {
        "verify",
        "Predicted and actual change of the validation loss",
        fmt::format("Each point: the fit made again without one of the {} most influential samples. Correlation {:.4f}.",
                    retrained_.size(), correlation(retrained_)),
        {page::Panel{.title = "", .x = {"predicted change"}, .y = {"actual change"}, .series = {line, harmful, helpful}}}};
  }

  const InfluenceOptions& options_;
  const JobData& job_;
  const Model model_;
  Progress& progress_;
  std::string doing_;
  Solver fit_;
  Prepared prepared_;
  Function judge_;
  Array x_;
  double loss_ = 0, solve_seconds_ = 0, vjp_seconds_ = 0;
  int iterations_ = 0;
  std::string message_, not_retrained_;
  std::vector<double> influence_;
  std::vector<std::size_t> order_;  // most harmful first
  Certificate certificate_;
  std::vector<Retrained> retrained_;
};

}  // namespace

void add_influence(CommandLine& line) {
  auto options = std::make_shared<InfluenceOptions>();
  std::vector<Option> rows = sample_options(*options, true);
  rows.push_back({.name = "--verify",
                  .to = &options->verify,
                  .type = "K",
                  .help = "retrain without each of the K most influential samples and\ncompare",
                  .takes = Takes::count});
  line.add({.name = "influence",
            .job = "Say what each training sample does to the validation loss.",
            .example = "onestep influence --demo --verify 20",
            .common = *options,
            .options = std::move(rows),
            .work =
                [options] {
                  Progress progress(*options);
                  const JobData job = load(*options, true, progress);
                  return Influence(*options, job, progress).run();
                },
            .out_help = "write influence.json and a page into this folder, which is\nmade if needed"});
}

}  // namespace onestep::app
