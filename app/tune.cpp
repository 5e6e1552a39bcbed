// onestep tune FILE: hyperparameters by hypergradient, judged on validation samples or folds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "jobs/model.h"
#include "jobs/report.h"
#include "jobs/samples.h"
#include "jobs/search.h"
#include "verbs.h"

namespace onestep::app {

namespace {

using namespace jobs;

struct TuneOptions : JobOptions {
  std::string hyper = "l2", compare, groups;
  double folds = 0, iterations = 100;
};

// Penalties lie in between; what wants to leave is held there, and that is said.
constexpr double least_l2 = 1e-5, most_l2 = 1e7;
constexpr double least_weight = 1e-3, most_weight = 1e3;

// One number for each training sample: its group, as the file says them, and which of the groups found that is.
struct Groups {
  std::vector<double> names;
  std::vector<std::size_t> of;  // by the sample's number in its file, from 0
};

Groups read_groups(const std::string& file) {
  Groups groups;
  std::vector<double> each;
  std::ifstream stream(file);
  if (!stream) throw Misuse(fmt::format("--groups {}: the file cannot be read", file));
  for (double group = 0; stream >> group;) each.push_back(group);
  if (!stream.eof()) throw Misuse(fmt::format("--groups {}: entry {} is not a number", file, each.size() + 1));
  groups.names = each;
  std::ranges::sort(groups.names);
  groups.names.erase(std::unique(groups.names.begin(), groups.names.end()), groups.names.end());
  if (groups.names.size() < 2 || groups.names.size() > 10000)
    throw Misuse(fmt::format("--groups {}: {} groups; there have to be 2 to 10000", file, groups.names.size()));
  for (const double group : each)
    groups.of.push_back(static_cast<std::size_t>(std::ranges::lower_bound(groups.names, group) - groups.names.begin()));
  return groups;
}

// What is tuned: how it enters the fit, where it starts and what its entries are called.
class Hyper {
 public:
  Hyper(const TuneOptions& options, const JobData& job, const Model& model) : options_(options), job_(job), model_(model) {
    if (options.hyper == "class-weight" && job.loss == Loss::ridge)
      throw Misuse("--hyper class-weight needs classes, not ridge");
    if (options.hyper == "sample-group-weight") {
      if (options.groups.empty())
        throw Misuse("--hyper sample-group-weight needs --groups FILE, a number for each sample of FILE");
      groups_ = read_groups(options.groups);
      std::size_t last = 0;
      for (const Samples* s : {&job.train, job.valid ? &*job.valid : nullptr})
        if (s != nullptr) last = std::max(last, *std::ranges::max_element(s->rows));
      if (options.valid.empty() ? groups_.of.size() != last : groups_.of.size() < last)
        throw Misuse(fmt::format("--groups {}: {} numbers, but {} has {} samples", options.groups, groups_.of.size(),
                                 job.name, last));
    }
  }

  bool is_penalty() const { return options_.hyper == "l2" || options_.hyper == "l2-per-feature"; }

  /// With every entry at the same value.
  Parameter parameter(double value) const {
    const Array start = options_.hyper == "l2" ? Array(value) : full({static_cast<std::int64_t>(names().size())}, value);
    return is_penalty() ? Parameter::positive(start).within(least_l2, most_l2)
                        : Parameter::positive(start).within(least_weight, most_weight);
  }

  std::vector<std::string> names() const {
    if (options_.hyper == "l2") return {"l2"};
    if (options_.hyper == "l2-per-feature") return job_.features;
    std::vector<std::string> all;
    for (const double label : options_.hyper == "class-weight" ? job_.labels : groups_.names) all.push_back(shown(label));
    return all;
  }

  /// The fit on some samples, judged by others; `share` weighs this problem among several.
  Inner inner(const Samples& train, const Samples& valid, double share) const {
    const auto judge = [&model = model_, valid, share, weights = balance(valid)](Expr x) {
      return share * sum(weights * model.losses(valid, x));
    };
    return Inner(solver(train), model_.start(), judge);
  }

  Solver solver(const Samples& train) const {
    if (is_penalty())
      return model_.solver(
          [&model = model_, train](Expr x, Expr l2) { return sum(model.losses(train, x)) + model.penalty(x, l2); });
    const Array member = options_.hyper == "class-weight" ? classes(train) : groups(train);
    return model_.solver([&model = model_, train, member, l2 = options_.l2](Expr x, Expr weight) {
      return sum(matmul(member, weight) * model.losses(train, x)) + model.penalty(x, l2);
    });
  }

 private:
  std::vector<std::size_t> class_of(const Samples& samples) const {
    std::vector<std::size_t> of;
    for (const double y : samples.y.values())
      of.push_back(job_.loss == Loss::logistic ? (y > 0 ? 1 : 0) : static_cast<std::size_t>(y));
    return of;
  }
  Array classes(const Samples& samples) const { return one_hot(class_of(samples), job_.labels.size()); }
  Array groups(const Samples& samples) const {
    std::vector<std::size_t> of;
    for (const std::size_t row : samples.rows) of.push_back(groups_.of[row - 1]);
    return one_hot(of, groups_.names.size());
  }

  // Weights of validation samples that sum to 1. With weights of classes each class counts the same: by the plain mean the
  // weights that were there would be about the best.
  Array balance(const Samples& valid) const {
    const auto count = static_cast<std::size_t>(valid.count());
    std::vector<double> weights(count, 1.0 / static_cast<double>(count));
    if (options_.hyper == "class-weight") {
      const std::vector<std::size_t> of = class_of(valid);
      std::vector<double> sizes(job_.labels.size());
      for (const std::size_t k : of) sizes[k] += 1;
      const auto present = static_cast<double>(std::ranges::count_if(sizes, [](double s) { return s > 0; }));
      for (std::size_t i = 0; i < count; ++i) weights[i] = 1 / (present * sizes[of[i]]);
    }
    return {Shape{valid.count()}, std::move(weights)};
  }

  const TuneOptions& options_;
  const JobData& job_;
  const Model& model_;
  Groups groups_;
};

class Tune {
 public:
  Tune(const TuneOptions& options, JobData& job, Progress& progress)
      : options_(options), job_(job), model_(job), progress_(progress), hyper_(options, job, model_) {
    model_.get_ready(job.train, options.l2);
    const auto count = static_cast<std::size_t>(options.folds);
    if (count > 0)
      folds_ = folds_of(job, count, options.seed);
    else
      folds_ = {{job.train, *job.valid}};
    inner_ = inner_of(hyper_);
  }

  int run() {
    const double start = hyper_.is_penalty() ? probed() : 1.0;
    if (stop_signal() != 0) {  // before the search: a checkpoint, if there is one, is as it was
      outcome_.status = Status::cancelled;
      return show(options_, report(false), outcome_.status, progress_);
    }
    progress_.begin("tune: first hypergradient");
    BilevelOptions how = bilevel_options(options_, job_, progress_, "tune");
    how.identity += fmt::format(" {} folds {}", options_.hyper, folds_.size());
    how.max_iterations = static_cast<int>(options_.iterations);
    how.path = true;
    outcome_ = minimise(inner_, {hyper_.parameter(start)}, Lbfgs{}, how);
    const bool found = is_usable(outcome_);
    if (found && options_.compare == "grid" && stop_signal() == 0) compare();
    return show(options_, report(found), found ? Status::converged : outcome_.status, progress_);
  }

 private:
  // The shared penalty to start from: a few values far apart, and for many penalties the best one of all.
  double probed() {
    Evaluator evaluate(shared_inner(), Parts(Array(1.0)));
    double best = 0;
    for (double exponent = -3; exponent <= 5; exponent += 1) {
      progress_.begin(fmt::format("tune: trying l2 = 1e{:.0f}", exponent));
      const double l2 = std::pow(10.0, exponent), loss = evaluate(Parts(Array(l2)));
      probes_.push_back({l2, loss});
      if (best == 0 || loss < best_shared_) best = l2, best_shared_ = loss;
      if (stop_signal() != 0) return best;
    }
    if (options_.hyper == "l2") return best;
    progress_.begin("tune: one l2 for all features");
    const Outcome shared = minimise(shared_inner(), {Parameter::positive(best).within(least_l2, most_l2)}, Lbfgs{},
                                    {.cancelled = [] { return stop_signal() != 0; }});
    if (!std::isfinite(shared.value)) return best;
    best_shared_ = shared.value;
    shared_evaluations_ = shared.evaluations;
    return shared.theta[0].item();
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

  std::vector<Inner> shared_inner() const {
    TuneOptions shared = options_;
    shared.hyper = "l2";
    return inner_of(Hyper(shared, job_, model_));
  }

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
      compared_.push_back({values[0], loss});
      if (compared_.size() == 1 || loss < best_compared_) {
        best_compared_ = loss;
        best_compared_at_ = values;
      }
    }
  }

  // ---- what is said ----

  // With folds the model is fitted again on all of their samples.
  Array final_x() const {
    if (options_.folds <= 0) return outcome_.x[0];
    return solve(hyper_.solver(job_.train), model_.start(), outcome_.theta).x();
  }

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
             .asked = fmt::format("{}; {} loss; {} by {}", description_text(job_), name_of(job_.loss), options_.hyper,
                                  options_.folds > 0 ? fmt::format("{} folds", folds_.size())
                                                     : fmt::format("{} validation samples", folds_[0].valid.count()))};
    r.document = {{"verb", "tune"}};
    r.document.update(description(job_));
    r.document.update({{"hyper", options_.hyper}, {"folds", options_.folds > 0 ? folds_.size() : 0}});
    if (!hyper_.is_penalty()) r.document["l2"] = options_.l2;
    r.document["search"] = json_of(o);
    if (!found) {
      r.sentence = ended_text(options_, o);
      return r;
    }
    const double first = o.history.front().value;
    r.sentence = fmt::format("{} in {} iterations, {} solves, {:.2g} s: validation loss {} (from {}).", to_string(o.status),
                             o.iterations, o.evaluations, o.seconds, shown(o.value), shown(first));
    r.document["hyperparameters"] = {
        {"names", hyper_.names()}, {"values", std::vector<double>(o.theta[0].values().begin(), o.theta[0].values().end())}};
    if (hyper_.is_penalty() && options_.hyper != "l2") r.document["best_shared"] = {{"loss", best_shared_}};
    if (!probes_.empty()) r.document["probes"] = pairs(probes_);
    const std::vector<std::string> bounds = at_bounds();
    r.document["at_bounds"] = bounds;
    const Array x = final_x();
    r.document["train"] = model_.score_json(job_.train, x);
    if (job_.valid) r.document["valid"] = model_.score_json(*job_.valid, x);
    if (job_.test) r.document["test"] = model_.score_json(*job_.test, x);
    report_scores(r, x);
    report_values(r);
    if (!compared_.empty()) report_comparison(r);
    r.accuracy = accuracy_of(o);
    if (const std::int64_t count = o.theta[0].size(); count > 10)
      r.accuracy.push_back(
          fmt::format("{} hyperparameters were fitted to the validation samples, whose loss is too good by that: "
                      "--test FILE tells what they are worth.",
                      count));
    if (!bounds.empty())
      r.accuracy.push_back(
          fmt::format("Held at a bound, [{:g}, {:g}]: {}{}.", hyper_.is_penalty() ? least_l2 : least_weight,
                      hyper_.is_penalty() ? most_l2 : most_weight,
                      fmt::join(bounds.begin(),
                                bounds.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(5, bounds.size())), ", "),
                      bounds.size() > 5 ? fmt::format(" and {} more", bounds.size() - 5) : ""));
    r.figures = figures();
    return r;
  }

  // The first hyperparameter and the loss there, which is not a number where the fit failed.
  static Json pairs(const std::vector<std::pair<double, double>>& all) {
    Json list = Json::array();
    for (const auto& [at, loss] : all) list.push_back({at, std::isfinite(loss) ? Json(loss) : Json()});
    return list;
  }

  void report_scores(Report& r, const Array& x) const {
    page::Table t{.id = "scores",
                  .title = "Scores",
                  .caption = "Of the model with these hyperparameters.",
                  .columns = {"samples", "count", "mean loss", model_.score_name()}};
    const auto add = [&](const std::string& name, const Samples& s) {
      const Score score = model_.score(s, x);
      t.rows.push_back({name, std::to_string(s.count()), shown(score.loss), fmt::format("{:.4f}", score.score)});
    };
    add("training", job_.train);
    if (job_.valid) add("validation", *job_.valid);
    if (job_.test) add("test", *job_.test);
    r.tables.push_back(t);
  }

  void report_values(Report& r) const {
    constexpr std::size_t most = 20;
    const std::vector<std::string> names = hyper_.names();
    const std::span<const double> values = outcome_.theta[0].values();
    page::Table t{.id = "hyperparameters", .title = "Hyperparameters", .caption = "", .columns = {options_.hyper, "value"}};
    std::vector<std::size_t> order(values.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (order.size() > most) {
      std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
      order.resize(most);
      t.title = fmt::format("Hyperparameters, the {} smallest of {}", most, values.size());
    }
    for (const std::size_t i : order) t.rows.push_back({names[i], shown(values[i])});
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
                  .columns = {"search", "solves", "validation loss"}};
    t.rows.push_back({"hypergradient", std::to_string(solves()), fmt::format("{:.8g}", outcome_.value)});
    if (hyper_.is_penalty() && !one) t.rows.push_back({"best shared l2", "", fmt::format("{:.8g}", best_shared_)});
    t.rows.push_back({one ? "grid" : "random", std::to_string(compared_.size()), fmt::format("{:.8g}", best_compared_)});
    r.tables.push_back(t);
  }

  // Validation loss against the only hyperparameter, from one value of it to another: what was tried, and where the search
  // went.
  page::Panel curve(const std::string& title, double low, double high) const {
    page::Series tried{.label = "tried", .method = "none", .mark = "rule"},
        grid{.label = "grid", .method = "bound", .mark = "points"},
        path{.label = "search", .method = "one_step", .mark = "points"};
    std::vector<std::pair<double, double>> all = compared_;
    all.insert(all.end(), probes_.begin(), probes_.end());
    for (const OuterIteration& i : outcome_.history) all.emplace_back(i.theta[0], i.value);
    std::ranges::sort(all);
    const auto add = [&](page::Series& to, double at, double value) {
      if (at >= low && at <= high) to.x.push_back(at), to.y.push_back(value);
    };
    for (const auto& [at, value] : all) add(tried, at, value);
    for (const auto& [at, value] : compared_) add(grid, at, value);
    for (const OuterIteration& i : outcome_.history) add(path, i.theta[0], i.value);
    return {.title = title, .x = {options_.hyper, true}, .y = {"validation loss"}, .series = {tried, grid, path}};
  }

  page::Figure curves() const {
    const double end = outcome_.theta[0].item();
    return {
        "curve",
        "Validation loss against the hyperparameter",
        fmt::format("The line joins all that was tried{}. The search ends at {}.",
                    compared_.empty() ? "" : fmt::format(", the grid's {} points among it", compared_.size()), shown(end)),
        {curve("All that was tried", 0, std::numeric_limits<double>::infinity()),
         curve("Near the end of the search", end / 6, end * 6)}};
  }

  // Many of them: by name while there is room, else only their sizes.
  page::Figure values() const {
    constexpr std::size_t most = 30;
    const std::vector<std::string> names = hyper_.names();
    const std::span<const double> found = outcome_.theta[0].values();
    std::vector<std::size_t> order(found.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return found[i]; });
    const double start = outcome_.history.front().theta[0];
    page::Series values{.label = "", .method = "one_step", .mark = "points"},
        begun{.label = "start", .method = "none", .mark = "rule"};
    const auto count = static_cast<double>(found.size());
    for (const std::size_t i : order) {
      values.x.push_back(found[i]);
      values.y.push_back(static_cast<double>(values.x.size()));
    }
    begun.x = {start, start}, begun.y = {0.3, count + 0.7};
    page::Figure figure{"hyperparameters",
                        "Hyperparameters found",
                        fmt::format("In ascending order; the dashed line is where all of "
                                    "them started, {}.",
                                    shown(start)),
                        {}};
    page::Panel panel{.title = "", .x = {options_.hyper, true}, .y = {""}};
    if (found.size() <= most) {
      for (const std::size_t i : order) panel.y.names.push_back(names[i]);
    } else {
      std::swap(values.x, values.y), std::swap(begun.x, begun.y);
      values.mark = "line";
      panel.x = {"rank"}, panel.y = {options_.hyper, true};
    }
    panel.series = {begun, values};
    figure.panels = {panel};
    return figure;
  }

  std::vector<page::Figure> figures() const {
    return {outcome_.theta[0].size() == 1 ? curves() : values(), path_figure(outcome_)};
  }

  const TuneOptions& options_;
  JobData& job_;
  Model model_;
  Progress& progress_;
  Hyper hyper_;
  std::vector<Fold> folds_;
  std::vector<Inner> inner_;
  Outcome outcome_;
  std::vector<std::pair<double, double>> probes_, compared_;  // hyperparameter and loss
  int shared_evaluations_ = 0;
  double best_shared_ = 0, best_compared_ = 0;
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
       .help = "l2 (default), l2-per-feature, class-weight (each class then counts\nthe same in validation) or "
               "sample-group-weight",
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
