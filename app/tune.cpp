// onestep tune FILE: hyperparameters by hypergradient, judged on validation samples or folds.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "jobs/coefficients.h"
#include "jobs/hyper.h"
#include "jobs/model.h"
#include "jobs/report.h"
#include "jobs/samples.h"
#include "jobs/search.h"
#include "jobs/tune_figures.h"
#include "verbs.h"

namespace onestep::app {

namespace {

using namespace jobs;

struct TuneOptions : JobOptions {
  std::string hyper = "l2", compare, groups;
  double folds = 0, iterations = 100;
};

Hyper::Kind kind_of(const std::string& name) {
  if (name == "l2") return Hyper::Kind::l2;
  if (name == "l2-per-feature") return Hyper::Kind::l2_per_feature;
  return name == "class-weight" ? Hyper::Kind::class_weight : Hyper::Kind::group_weight;
}

Hyper hyper_of(const TuneOptions& options, const JobData& job, const Model& model) {
  const Hyper::Kind kind = kind_of(options.hyper);
  const bool grouped = kind == Hyper::Kind::group_weight;
  if (grouped && options.groups.empty())
    throw Misuse("--hyper sample-group-weight needs --groups FILE, a number for each sample of FILE");
  if (!grouped && !options.groups.empty())
    throw Misuse(fmt::format("--groups is for --hyper sample-group-weight, not for {}", options.hyper));
  const Hyper hyper(kind, options.l2(), grouped ? read_groups(options.groups) : Groups(), job, model);
  if (hyper.is_penalty() && options.l2_asked && !(*options.l2_asked >= hyper.low() && *options.l2_asked <= hyper.high()))
    throw Misuse(fmt::format("--l2 {}: the search starts there, and penalties lie from {:g} to {:g}", *options.l2_asked,
                             hyper.low(), hyper.high()));
  return hyper;
}

class Tune {
 public:
  Tune(const TuneOptions& options, JobData& job, Progress& progress)
      : options_(options), job_(job), model_(job), progress_(progress), hyper_(hyper_of(options, job, model_)) {
    model_.get_ready(job.train, options.l2());
    const auto count = static_cast<std::size_t>(options.folds);
    if (count > 0)
      folds_ = folds_of(job, count, options.seed);
    else
      folds_ = {{job.train, *job.valid}};
    if (count > 0 && !hyper_.is_penalty())
      for (const Fold& fold : folds_) model_.require_a_best_fit(fold.train, options.l2());
    inner_ = inner_of(hyper_);
  }

  int run() {
    check_checkpoint(options_);
    const double start = !hyper_.is_penalty() ? 1.0 : options_.l2_asked ? *options_.l2_asked : probed();
    if (stop_signal() != 0) {  // before the search: a checkpoint, if there is one, is as it was
      outcome_.status = Status::cancelled;
      return show(options_, report(false), outcome_.status, progress_);
    }
    progress_.begin("tune: first hypergradient");
    BilevelOptions how = bilevel_options(options_, job_, progress_, "tune");
    how.identity += fmt::format(" {} folds {}", options_.hyper, folds_.size());
    if (!hyper_.is_penalty()) how.identity += fmt::format(" l2 {}", options_.l2());
    how.max_iterations = static_cast<int>(options_.iterations);
    how.path = true;
    outcome_ = minimise(inner_, {hyper_.parameter(start)}, Lbfgs{}, how);
    const bool found = is_usable(outcome_);
    if (!found) return show(options_, report(false), outcome_.status, progress_);
    values_ = hyper_.values(outcome_.theta[0]);
    for (OuterIteration& i : outcome_.history) i.theta = hyper_.values(Array(hyper_.parameter(1).start.shape(), i.theta));
    if (options_.compare == "grid" && stop_signal() == 0) compare();
    refit(hyper_.parameter(start).start);
    return show(options_, report(true), final_status_, progress_);
  }

 private:
  // The shared penalty to start from: a few values far apart, and for many penalties the best one of all.
  double probed() {
    Evaluator evaluate(shared_inner(), Parts(Array(1.0)));
    double best = 0;
    for (double exponent = -3; exponent <= 5; exponent += 1) {
      progress_.begin(fmt::format("tune: trying l2 = 1e{:.0f}", exponent));
      const double l2 = std::pow(10.0, exponent), loss = evaluate(Parts(Array(l2)));
      probes_.emplace_back(l2, loss);
      if (best == 0 || loss < best_shared_) best = l2, best_shared_ = loss;
      if (stop_signal() != 0) return best;
    }
    if (hyper_.names().size() == 1) return best;
    progress_.begin("tune: one l2 for all features");
    const Outcome shared = minimise(shared_inner(), {Parameter::positive(best).within(hyper_.low(), hyper_.high())}, Lbfgs{},
                                    {.cancelled = [] { return stop_signal() != 0; }});
    if (!std::isfinite(shared.value)) return best;
    best_shared_ = shared.value;
    shared_evaluations_ = shared.evaluations;
    double start = shared.theta[0].item();
    // Where hardly any penalty is best for all, none of them matters, and from there no derivative by a logarithm leads
    // anywhere. The largest that does little harm is a better start.
    constexpr double no_harm = 1e-4, little_harm = 1e-2;
    if (probes_.front().second > (1 + no_harm) * best_shared_) return start;
    for (const auto& [l2, loss] : probes_)
      if (loss <= (1 + little_harm) * best_shared_) start = std::max(start, l2);
    return start;
  }

  // All that were spent until the end of the search.
  int solves() const { return outcome_.evaluations + shared_evaluations_ + static_cast<int>(probes_.size()); }

  std::vector<Inner> inner_of(const Hyper& hyper) const {
    double judged = 0;
    for (const Fold& f : folds_) judged += static_cast<double>(f.valid.count());
    std::vector<Inner> all;
    for (const Fold& f : folds_) all.push_back(hyper.inner(f.train, f.valid, static_cast<double>(f.valid.count()) / judged));
    return all;
  }

  std::vector<Inner> shared_inner() const { return inner_of(Hyper(Hyper::Kind::l2, options_.l2(), {}, job_, model_)); }

  // A grid, or random points where there is more than one hyperparameter, with as many evaluations as were spent here.
  void compare() {
    const int budget = std::max(2, solves());
    const Parameter p = hyper_.parameter(1.0);
    Evaluator evaluate(inner_, Parts(p.start));
    std::mt19937_64 engine(options_.seed + 17);
    std::uniform_real_distribution<double> uniform;
    const double low = std::log(hyper_.is_penalty() ? 1e-3 : 1e-2), high = std::log(hyper_.is_penalty() ? 1e5 : 1e2);
    for (int i = 0; i < budget && stop_signal() == 0; ++i) {
      progress_.begin(fmt::format("tune: {} {} of {}", p.start.size() > 1 ? "random point" : "grid", i + 1, budget));
      std::vector<double> values(static_cast<std::size_t>(p.start.size()));
      for (double& v : values) {
        const double at = values.size() > 1 ? uniform(engine) : static_cast<double>(i) / (budget - 1);
        v = std::exp(low + (high - low) * at);
      }
      const double loss = evaluate(Parts(Array(p.start.shape(), values)));
      if (stop_signal() != 0) return;  // it was cut short
      const std::vector<double> reported = hyper_.values(Array(p.start.shape(), values));
      compared_.emplace_back(reported[0], loss);
      if (compared_.size() == 1 || loss < best_compared_) {
        best_compared_ = loss;
        best_compared_at_ = reported;
      }
    }
  }

  // The models with what was found and with what it began with, on all training samples; without folds the search has the
  // first of them already.
  void refit(const Parts& begun) {
    progress_.begin("tune: fit with the hyperparameters found");
    Prepared fit(hyper_.solver(job_.train, stops_at_signals()), model_.start(), begun);
    if (const Solution& s = fit.solve(model_.start(), begun); is_solution(s.status())) begun_x_ = s.x();
    if (options_.folds <= 0) {
      final_x_ = outcome_.x[0][0];
      return;
    }
    const Solution& s = fit.solve(begun_x_.value_or(model_.start()), outcome_.theta);
    final_status_ = s.status();
    final_message_ = s.message();
    if (is_solution(final_status_)) final_x_ = s.x();
  }

  // ---- what is said ----

  std::string judged_by() const { return hyper_.is_balanced() ? "balanced validation loss" : "validation loss"; }

  std::vector<std::string> at_bounds() const {
    const std::vector<std::string> names = hyper_.names();
    std::vector<std::string> all;
    for (const std::size_t i : outcome_.at_low) all.push_back(fmt::format("{} at its least", names[i]));
    for (const std::size_t i : outcome_.at_high) all.push_back(fmt::format("{} at its most", names[i]));
    return all;
  }

  Report report(bool found) const {
    const Outcome& o = outcome_;
    Report r{.verb = "tune",
             .title = fmt::format("Hyperparameters for {}", job_.name),
             .asked = fmt::format("{}; {} loss; {}{} by {}", description_text(job_), name_of(job_.loss), options_.hyper,
                                  hyper_.is_penalty() ? "" : fmt::format(" beside l2 = {}", shown(options_.l2())),
                                  options_.folds > 0 ? fmt::format("{} folds", folds_.size())
                                                     : fmt::format("{} validation samples", folds_[0].valid.count()))};
    r.document = {{"verb", "tune"}};
    r.document.update(description(job_));
    r.document.update({{"hyper", options_.hyper}, {"folds", options_.folds > 0 ? folds_.size() : 0}});
    if (!hyper_.is_penalty()) r.document["l2"] = options_.l2();
    r.document["search"] = json_of(o);
    if (!found) {
      r.sentence = ended_text(options_, o);
      return r;
    }
    const int before = solves() - o.evaluations;
    r.sentence =
        fmt::format("{}, {} solves{}: {} {} (from {} with {} = {}).", ended_text(options_, o), solves(),
                    before > 0 ? fmt::format(", {} of them for the start", before) : "", judged_by(), shown(o.value),
                    shown(o.history.front().value), options_.hyper, shown(o.history.front().theta[0]));
    r.document["hyperparameters"] = {{"names", hyper_.names()}, {"values", values_}};
    r.document["balanced"] = hyper_.is_balanced();
    if (best_shared_ > 0 && values_.size() > 1) r.document["best_shared"] = {{"loss", best_shared_}};
    if (!probes_.empty()) r.document["probes"] = pairs(probes_);
    const std::vector<std::string> bounds = at_bounds();
    r.document["at_bounds"] = bounds;
    report_values(r);
    report_model(r);
    if (!compared_.empty()) report_comparison(r);
    r.accuracy = accuracy_of(o);
    if (values_.size() > 10)
      if (const std::string line = worth(); !line.empty()) r.accuracy.push_back(line);
    if (!bounds.empty())
      r.accuracy.push_back(
          fmt::format("Held at a bound, [{:g}, {:g}]{}: {}{}.", hyper_.low(), hyper_.high(),
                      hyper_.is_penalty() ? "" : " before the mean is made 1",
                      fmt::join(bounds.begin(),
                                bounds.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(5, bounds.size())), ", "),
                      bounds.size() > 5 ? fmt::format(" and {} more", bounds.size() - 5) : ""));
    r.figures = figures();
    return r;
  }

  // No loss where the fit failed.
  static Json pairs(const std::vector<Tried>& all) {
    Json list = Json::array();
    for (const auto& [at, loss] : all) list.push_back({at, std::isfinite(loss) ? Json(loss) : Json()});
    return list;
  }

  void report_model(Report& r) const {
    const std::string on = options_.folds > 0 ? fmt::format("all samples of {}", job_.name) : "the training samples";
    Json model = {{"trained_on", on}, {"status", to_string(final_status_)}};
    if (!is_solution(final_status_)) {
      r.sentence += fmt::format(" The fit on {} with them failed: {}: {}", on, to_string(final_status_), final_message_);
      r.document["model"] = model;
      return;
    }
    model.update(json_of(job_, raw(job_, model_, final_x_)));
    page::Table t{
        .id = "scores",
        .title = "Scores",
        .caption = fmt::format(
            "Of the model with these hyperparameters, fitted on {}, and of the one that the search "
            "began with.{}",
            on, hyper_.is_balanced() ? " The search counts each class the same, the mean loss here each sample." : ""),
        .columns = {"samples", "count", "mean loss", model_.score_name(), "at the start: loss", model_.score_name()}};
    if (hyper_.is_balanced())
      t.columns = {"samples", "count", "mean loss", "balanced accuracy", "at the start: loss", "balanced accuracy"};
    const auto cells = [&](const Score& s) {
      return std::vector<std::string>{shown(s.loss), fmt::format("{:.4f}", hyper_.is_balanced() ? s.balanced : s.score)};
    };
    Json at_start = Json::object();
    const auto add = [&](const char* name, const char* key, const Samples& s) {
      std::vector<std::string> row{name, std::to_string(s.count())};
      for (const Array* x : {&final_x_, begun_x_ ? &*begun_x_ : nullptr}) {
        const std::vector<std::string> two = x != nullptr ? cells(model_.score(s, *x)) : std::vector<std::string>(2);
        row.insert(row.end(), two.begin(), two.end());
      }
      t.rows.push_back(row);
      r.document[key] = model_.score_json(s, final_x_);
      if (begun_x_) at_start[key] = model_.score_json(s, *begun_x_);
    };
    add("training", "train", job_.train);
    if (options_.folds > 0) add_folds(r, t);
    if (job_.valid) add("validation", "valid", *job_.valid);
    if (job_.test) add("test", "test", *job_.test);
    r.tables.push_back(t);
    r.document["model"] = std::move(model);
    r.document["start"] = std::move(at_start);
  }

  // Each fold's samples judged by the model that has not seen them.
  void add_folds(Report& r, page::Table& t) const {
    Json each = Json::array();
    Score mean;
    const auto all = static_cast<double>(job_.train.count());
    for (std::size_t f = 0; f < folds_.size(); ++f) {
      const Score s = model_.score(folds_[f].valid, outcome_.x[f][0]);
      const double share = static_cast<double>(folds_[f].valid.count()) / all;
      mean.loss += share * s.loss, mean.score += share * s.score, mean.balanced += share * s.balanced;
      each.push_back(model_.score_json(folds_[f].valid, outcome_.x[f][0]));
    }
    t.rows.push_back({"folds, unseen", std::to_string(job_.train.count()), shown(mean.loss),
                      fmt::format("{:.4f}", hyper_.is_balanced() ? mean.balanced : mean.score), "", ""});
    r.document["cross_validation"] = {{"loss", mean.loss}, {model_.score_name(), mean.score}, {"folds", each}};
  }

  // Whether what suits the validation samples is worth anything: only test samples tell.
  std::string worth() const {
    if (!job_.test)
      return fmt::format(
          "{} hyperparameters were fitted to the validation samples, whose loss is too good by that: "
          "--test FILE tells what they are worth.",
          values_.size());
    if (!begun_x_ || !is_solution(final_status_)) return "";
    const double found = model_.score(*job_.test, final_x_).loss, begun = model_.score(*job_.test, *begun_x_).loss;
    return found > begun ? fmt::format(
                               "On the test samples the start was better (mean loss {} against {}): {} hyperparameters "
                               "suit the validation samples too well. More of those, or --folds, help.",
                               shown(begun), shown(found), values_.size())
                         : "";
  }

  void report_values(Report& r) const {
    constexpr std::size_t most = 20;
    const std::vector<std::string> names = hyper_.names();
    page::Table t{.id = "hyperparameters",
                  .title = "Hyperparameters",
                  .caption = hyper_.is_penalty() ? "" : "Weights, with a mean of 1 over the training samples.",
                  .columns = {hyper_.is_penalty()    ? "feature"
                              : hyper_.is_balanced() ? "class"
                                                     : "group",
                              options_.hyper}};
    std::vector<std::size_t> order = ascending(values_);
    if (order.size() > most) {
      order.resize(most);
      t.title = fmt::format("Hyperparameters, the {} smallest of {}", most, values_.size());
    } else {
      std::ranges::sort(order);
    }
    for (const std::size_t i : order) t.rows.push_back({names.size() == 1 ? "all" : names[i], shown(values_[i])});
    r.tables.push_back(t);
  }

  void report_comparison(Report& r) const {
    const bool one = outcome_.theta[0].size() == 1;
    r.document["compare"] = {
        {"method", one ? "grid" : "random"}, {"evaluations", compared_.size()},          {"loss", best_compared_},
        {"values", best_compared_at_},       {"ratio", outcome_.value / best_compared_}, {"tried", pairs(compared_)}};
    page::Table t{.id = "compare",
                  .title = "Beside a search of equal budget",
                  .caption = "",
                  .columns = {"search", "solves", judged_by()}};
    t.rows.push_back({"hypergradient", std::to_string(solves()), fmt::format("{:.8g}", outcome_.value)});
    if (best_shared_ > 0 && !one)
      t.rows.push_back(
          {"best shared l2", std::to_string(solves() - outcome_.evaluations), fmt::format("{:.8g}", best_shared_)});
    t.rows.push_back({one ? "grid" : "random", std::to_string(compared_.size()), fmt::format("{:.8g}", best_compared_)});
    r.tables.push_back(t);
  }

  std::vector<page::Figure> figures() const {
    std::string judged = judged_by();
    judged[0] = static_cast<char>(std::toupper(judged[0]));
    return {values_.size() == 1 ? curve_figure(options_.hyper, outcome_, probes_, compared_)
                                : values_figure(options_.hyper, hyper_.names(), values_, outcome_.history.front().theta[0]),
            path_figure(outcome_, judged)};
  }

  const TuneOptions& options_;
  JobData& job_;
  Model model_;
  Progress& progress_;
  Hyper hyper_;
  std::vector<Fold> folds_;
  std::vector<Inner> inner_;
  Outcome outcome_;
  std::vector<double> values_;  // of the hyperparameters found
  Array final_x_;
  std::optional<Array> begun_x_;
  Status final_status_ = Status::converged;
  std::string final_message_;
  std::vector<Tried> probes_, compared_;  // by the first hyperparameter
  int shared_evaluations_ = 0;
  double best_shared_ = 0, best_compared_ = 0;  // losses
  std::vector<double> best_compared_at_;
};

}  // namespace

void add_tune(CommandLine& line) {
  auto options = std::make_shared<TuneOptions>();
  std::vector<Option> rows = sample_options(*options, true);
  const std::vector<Option> own{
      {.name = "--hyper",
       .to = &options->hyper,
       .type = "WHAT",
       .help =
           "l2 (default), l2-per-feature, class-weight (each class then counts\nthe same in validation) or "
           "sample-group-weight; a penalty is searched\nfor from --l2, or without it from the best of nine from 1e-3 to 1e5",
       .one_of = {"l2", "l2-per-feature", "class-weight", "sample-group-weight"}},
      {.name = "--folds",
       .to = &options->folds,
       .type = "K",
       .help = "judge by cross-validation with K folds",
       .takes = Takes::count,
       .excludes = {"--valid", "--split"}},
      {.name = "--groups",
       .to = &options->groups,
       .type = "FILE",
       .help = "for sample-group-weight: a number for each sample, its group"},
      {.name = "--compare",
       .to = &options->compare,
       .type = "SEARCH",
       .help = "also search a grid (random points for several\nhyperparameters) with as many solves",
       .one_of = {"grid"}},
      {.name = "--iterations",
       .to = &options->iterations,
       .type = "N",
       .help = "at most (default 100)",
       .takes = Takes::count},
      {.name = "--checkpoint",
       .to = &options->checkpoint,
       .type = "FILE",
       .help = "write the state there, and go on from it when it exists"}};
  rows.insert(rows.end(), own.begin(), own.end());
  line.add({.name = "tune",
            .job = "Find hyperparameters by the derivative of the validation loss.",
            .example = "onestep tune --demo --hyper l2 --compare grid",
            .common = *options,
            .options = std::move(rows),
            .work =
                [options] {
                  Progress progress(*options);
                  JobData job = load(*options, options->folds <= 0, progress);
                  return Tune(*options, job, progress).run();
                },
            .out_help = "write tune.json and a page into this folder, which is made if\nneeded"});
}

}  // namespace onestep::app
