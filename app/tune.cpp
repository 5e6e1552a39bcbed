// onestep tune FILE: hyperparameters by hypergradient, judged on validation samples or folds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "jobs/baseline.h"
#include "jobs/demo.h"
#include "jobs/group_weights.h"
#include "jobs/hyper.h"
#include "jobs/inner_scaling.h"
#include "jobs/journal.h"
#include "jobs/memory.h"
#include "jobs/model.h"
#include "jobs/report.h"
#include "jobs/samples.h"
#include "jobs/saving.h"
#include "jobs/search.h"
#include "jobs/separation.h"
#include "jobs/spread.h"
#include "jobs/tune_report.h"
#include "jobs/validation.h"
#include "verbs.h"

namespace onestep::app {

namespace {

using namespace jobs;

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
      : options_(options),
        job_(job),
        model_(job),
        progress_(progress),
        hyper_(hyper_of(options, job, model_)),
        shared_(Hyper::Kind::l2, options.l2(), {}, job, model_),
        journal_(options.checkpoint, identity()) {
    if (!hyper_.is_penalty() || options.l2_asked) model_.get_ready(job.train, options.l2());
    const auto count = static_cast<std::size_t>(options.folds);
    if (count > 0)
      folds_ = folds_of(job, count, options.seed);
    else
      folds_ = {{job.train, *job.valid}};
    require_enough_to_judge(folds_, job);
    if (count > 0 && !hyper_.is_penalty())
      for (const Fold& fold : folds_) model_.require_a_best_fit(fold.train, options.l2());
  }

  int run() {
    f_.resumed = journal_.resumed();
    if (journal_.earlier_seconds() > 0) options_.clock->count(PhaseClock::earlier_runs, journal_.earlier_seconds());
    progress_.enter("start");
    const bool single = kind_of(options_.hyper) == Hyper::Kind::l2_per_feature;
    const double start = !hyper_.is_penalty() ? 1.0 : options_.l2_asked ? *options_.l2_asked : probed();
    if (stop_signal() != 0) return end("the search for a start");
    if (single && !decide_on_spread(start)) return end("the nested searches");
    search(start);
    if (!f_.found) return end(f_.search.status == Status::cancelled ? "the search" : "");
    if (hyper_.is_of_groups() && !judge_groups()) return end("the nested searches");
    if (options_.compare == "grid" && !f_.groups.keeps_equal() && stop_signal() == 0) {
      compare();
      go_on_from_compared();
    }
    progress_.enter("refit");
    refit();
    save();
    // Weighted classes are not meant to be predicted as often as they are there.
    if (kind_of(options_.hyper) != Hyper::Kind::class_weight && stop_signal() == 0)
      if (auto note = note_on_no_gain(job_, model_, folds_, f_)) job_.notes.push_back(std::move(*note));
    return end("");
  }

 private:
  std::string identity() const {
    std::string text =
        fmt::format("tune {} {} folds {} seed {}", job_.identity(), options_.hyper, options_.folds, options_.seed);
    if (!hyper_.is_penalty() || options_.l2_asked) text += fmt::format(" l2 {}", options_.l2());
    if (!options_.groups.empty()) text += fmt::format(" groups {}", fmt::join(hyper_.groups().of, ","));
    return text;
  }

  // A step whose numbers the journal may have.
  template <class F> std::vector<double> step(const std::string& name, const F& work) {
    if (const std::vector<double>* kept = journal_.find(name)) return *kept;
    progress_.begin(fmt::format("tune: {}", name));
    return_free_memory();
    std::vector<double> found = work();
    if (stop_signal() == 0) journal_.keep(name, found);
    return found;
  }

  // The shared penalty to start from: the best of a few values far apart. The largest come first, whose fits are quick, and
  // those far below the best, whose fits are ill-conditioned, are not tried.
  double probed() {
    constexpr double much_worse = 1.1;
    std::optional<OuterValue> evaluate;  // made when the first value is not known yet
    const Model unprepared = model_;
    double best = 0, least = 0, last = 0;
    for (double exponent = 5; exponent >= shared_.least_exponent(); exponent -= 1) {
      const double l2 = shared_.unit() * std::pow(10.0, exponent);
      const double loss = step(fmt::format("trying l2 = {:g}", l2), [&] {
        // What makes fits quick with one penalty makes them slow with another that is far from it.
        model_ = unprepared;
        model_.get_ready(job_.train, l2);
        if (model_.is_preconditioned()) evaluate.reset();
        if (!evaluate)
          evaluate.emplace(inner_of(shared_, folds_, {}, rough_fit()), Parts(Array(1.0)), [] { return stop_signal() != 0; });
        evaluate->forget();
        return std::vector<double>{(*evaluate)(Parts(Array(l2)))};
      })[0];
      f_.probes.emplace_back(l2, loss);
      ++f_.solves_before;
      if (best == 0 || loss < least) best = l2, least = loss;
      if (stop_signal() != 0 || (loss > last && last > much_worse * least)) break;
      last = loss;
    }
    std::ranges::reverse(f_.probes);
    model_ = unprepared;
    if (stop_signal() == 0) model_.get_ready(job_.train, best);
    return best;
  }

  // The best penalty for all features, and whether single features gain by penalties of their own. False when stopped.
  bool decide_on_spread(double start) {
    const std::vector<double> best = step("one l2 for all features", [&] {
      const Outcome o = minimise(inner_of(shared_, folds_, {}, rough_fit()), {shared_.parameter(start)}, Lbfgs{},
                                 {.cancelled = [] { return stop_signal() != 0; }, .certified = false});
      const double loss = is_usable(o) ? o.value : std::numeric_limits<double>::infinity();
      return std::vector<double>{o.theta[0].item(), loss, static_cast<double>(o.evaluations)};
    });
    if (stop_signal() != 0) return false;
    if (!std::isfinite(best[1])) {
      f_.spread.note = "the search for one penalty for all features failed";
      f_.shared.emplace(start, best[1]);
      first_model_ = model_;
      return true;
    }
    f_.shared.emplace(best[0], best[1]);
    f_.solves_before += static_cast<int>(best[2]);
    first_model_ = model_;
    model_.get_ready(job_.train, best[0]);
    progress_.enter("nested_searches");
    const std::vector<Round> rounds = nested_rounds(job_, folds_, options_.seed + 1);
    if (rounds.empty()) {
      f_.spread.note = "there are too few samples, or too few of most classes, to leave some of them unseen";
      return true;
    }
    SpreadSearch spread(job_, model_, shared_, hyper_, journal_, progress_);
    f_.spread = spread.choose(rounds, start_of_spread());
    for (SpreadScore& tried : f_.spread.tried) pool_score(tried);
    f_.solves_before += f_.spread.solves;
    return stop_signal() == 0;
  }

  // Where hardly any penalty is best for all, none of them matters, and from there no derivative by a logarithm leads
  // anywhere. The largest that does little harm is a better start.
  double start_of_spread() const {
    constexpr double no_harm = 1e-4, little_harm = 1e-2;
    const auto [best, least] = *f_.shared;
    double start = best;
    if (f_.probes.empty() || f_.probes.front().second > (1 + no_harm) * least) return start;
    for (const auto& [l2, loss] : f_.probes)
      if (loss <= (1 + little_harm) * least) start = std::max(start, l2);
    return start;
  }

  // The last search, whose state is kept in a file beside the journal.
  void search(double start) {
    progress_.enter("search");
    BilevelOptions how = bilevel_options(options_, job_, progress_, "tune");
    how.identity = identity();
    if (!options_.checkpoint.empty()) how.checkpoint = options_.checkpoint + ".search";
    how.max_iterations = static_cast<int>(options_.iterations);
    how.path = true;
    Hyperprior prior;
    if (f_.shared && !f_.spread.is_shared()) {
      const SpreadSearch spread(job_, model_, shared_, hyper_, journal_, progress_);
      prior = spread.prior(folds_, f_.spread.tried[f_.spread.chosen].deviation, f_.shared->first, f_.shared->second);
      how.tolerance = std::min(how.tolerance, spread.tolerance(folds_, f_.shared->second));
      start = start_of_spread();
    } else if (f_.shared) {
      model_ = *first_model_;  // where one penalty is kept the answer has the bits that --hyper l2 would give
    }
    start_ = last_hyper().parameter(start);
    f_.search = minimise(inner_of(last_hyper(), folds_, prior), {start_}, Lbfgs{}, how);
    f_.resumed = f_.resumed || f_.search.resumed;
    f_.found = is_usable(f_.search);
    if (!f_.found) return;
    f_.begun_loss = f_.shared ? f_.shared->second : f_.search.history.front().value;
    take_answer();
  }

  // Equal weights are kept unless those found gain on unseen samples. False when stopped.
  bool judge_groups() {
    progress_.enter("nested_searches");
    f_.groups = judge_group_weights(hyper_, model_, nested_rounds(job_, folds_, options_.seed + 1), journal_, progress_);
    f_.solves_before += f_.groups.solves;
    if (f_.groups.weighted) pool_score(*f_.groups.weighted), pool_score(*f_.groups.equal);
    if (f_.groups.keeps_equal()) f_.values.assign(f_.values.size(), 1.0), f_.loss = f_.search.history.front().value;
    return stop_signal() == 0;
  }

  // R² is that of all unseen samples together: means over folds are about the means of folds.
  void pool_score(SpreadScore& unseen) const {
    if (job_.loss == Loss::ridge) unseen.score = r_squared(unseen.loss, folds_);
  }

  // What the model is fitted with.
  Parts answer() const { return f_.groups.keeps_equal() ? Parts(start_.start) : f_.search.theta; }

  void take_answer() {
    const Hyper& hyper = last_hyper();
    f_.values = hyper.values(f_.search.theta[0]);
    f_.values.resize(hyper_.names().size(), f_.values[0]);  // one penalty that is kept for all features
    for (OuterIteration& i : f_.search.history) i.theta = hyper.values(Array(start_.start.shape(), i.theta));
    const auto judged = static_cast<double>(count_judged(folds_));
    f_.loss = 0;
    for (std::size_t k = 0; k < folds_.size(); ++k)
      f_.loss += static_cast<double>(folds_[k].valid.count()) / judged * hyper.judged(folds_[k].valid, f_.search.x[k][0]);
  }

  // What the last search is about: one penalty where that was found to do as well as many.
  const Hyper& last_hyper() const { return f_.shared && f_.spread.is_shared() ? shared_ : hyper_; }

  // A grid, or random points where there is more than one hyperparameter, with as many evaluations as were spent here.
  void compare() {
    progress_.enter("compare");
    const int budget = std::max(2, f_.solves());
    const Parameter p = hyper_.parameter(1.0);
    OuterValue evaluate(inner_of(hyper_, folds_), Parts(p.start), [] { return stop_signal() != 0; });
    std::mt19937_64 engine(options_.seed + 17);
    std::uniform_real_distribution<double> uniform;
    const double low = std::log(hyper_.is_penalty() ? 1e-3 * hyper_.unit() : 1e-2),
                 high = std::log(hyper_.is_penalty() ? 1e5 * hyper_.unit() : 1e2);
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
      f_.compared.emplace_back(reported[0], loss);
      if (f_.compared.size() == 1 || loss < f_.best_compared) {
        f_.best_compared = loss;
        f_.best_compared_at = reported;
        best_compared_ = Array(p.start.shape(), values);
      }
    }
  }

  // The answer is not worse than a point that was looked at. Only a hyperprior makes another point the better one.
  void go_on_from_compared() {
    if (f_.shared || f_.compared.empty() || !(f_.best_compared < f_.loss) || stop_signal() != 0) return;
    BilevelOptions how = bilevel_options(options_, job_, progress_, "tune");
    how.checkpoint.clear();
    how.max_iterations = static_cast<int>(options_.iterations);
    how.path = true;
    Parameter from = hyper_.parameter(1.0);
    from.start = best_compared_;
    Outcome again = minimise(inner_of(hyper_, folds_), {from}, Lbfgs{}, how);
    if (!is_usable(again) || !(again.value < f_.search.value)) {
      f_.solves_before += again.evaluations;
      return;
    }
    f_.solves_before += f_.search.evaluations;
    f_.search = std::move(again);
    f_.went_on_from_compared = true;
    take_answer();
  }

  // The models with what was found and with what it began with (or with one penalty for all features), on all training
  // samples; without folds the search has the first of them already.
  void refit() {
    const Hyper& hyper = last_hyper();
    const Parts begun = f_.shared ? Parts(hyper.parameter(f_.shared->first).start) : Parts(start_.start);
    Prepared fit(hyper.solver(job_.train, stops_at_signals()), model_.start(), begun);
    if (const Solution& s = fit.solve(model_.start(), begun); is_solution(s.status())) f_.begun_x = s.x();
    if (options_.folds <= 0) {
      f_.x = f_.groups.keeps_equal() ? f_.begun_x : f_.search.x[0][0];
      return;
    }
    const Solution& s = fit.solve(model_.start(), answer());
    f_.fit_status = s.status();
    if (is_solution(f_.fit_status)) f_.x = s.x();
  }

  // The model of all samples of the file, those that were split off for validation included.
  void save() {
    if (options_.save.empty() || !f_.is_usable() || !f_.x || stop_signal() != 0) return;
    SavedModel model;
    model.x = *f_.x;
    Samples all = job_.train;
    const bool was_split = job_.valid && options_.valid.empty() && !(options_.demo && has_images(options_.loss));
    if (options_.folds <= 0 && was_split) {
      all = stacked(job_.train, *job_.valid);
      const Solution s = solve(last_hyper().solver(all, stops_at_signals()), *f_.x, answer());
      f_.fit_status = s.status();
      if (!is_solution(s.status())) return;
      model.x = s.x().contiguous();
    }
    model.job = job_;
    model.samples = static_cast<std::size_t>(all.count());
    model.hyper = options_.hyper;
    const std::vector<std::string> names = hyper_.names();
    double logarithms = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      model.hyperparameters.emplace_back(names[i], f_.values[i]);
      logarithms += std::log(f_.values[i]) / static_cast<double>(names.size());
    }
    const bool same = std::ranges::count(f_.values, f_.values[0]) == std::ssize(f_.values);
    model.l2 = !hyper_.is_penalty() ? options_.l2() : same ? f_.values[0] : std::exp(logarithms);
    save_model(std::move(model), options_, options_.save);
    f_.saved_samples = all.count();
  }

  int end(const std::string& stopped_in) {
    f_.seconds = journal_.seconds();
    f_.stopped_in = stopped_in;
    if (!stopped_in.empty()) f_.search.status = Status::cancelled;
    return show(options_, report_of(options_, job_, model_, hyper_, folds_, f_), progress_);
  }

  const TuneOptions& options_;
  JobData& job_;
  Model model_;
  std::optional<Model> first_model_;  // before it was prepared for the best penalty
  Progress& progress_;
  Hyper hyper_, shared_;
  Journal journal_;
  std::vector<Fold> folds_;
  Parameter start_;  // of the last search
  Array best_compared_;
  TuneFindings f_;
};

}  // namespace

void add_tune(CommandLine& line) {
  auto options = std::make_shared<TuneOptions>();
  line.add({.name = "tune",
            .job = "Find hyperparameters by the derivative of the validation loss.",
            .example = "onestep tune --demo --hyper l2 --compare grid",
            .common = *options,
            .options = tune_options(*options),
            .work =
                [options] {
                  Progress progress(*options);
                  options->split = options->split_asked.value_or(options->split);
                  // Images of the demonstration have validation samples of their own.
                  const bool has_validation = options->split_asked || (options->demo && has_images(options->loss));
                  JobData job = load(*options, has_validation && options->folds <= 0, progress);
                  settle_validation(*options, job);
                  job.memory_needed = std::max(job.memory_needed, require_memory_of_tune(*options, job));
                  if (options->l2() > 0) note_sizes(job);
                  scale_inside(job);
                  try {
                    return Tune(*options, job, progress).run();
                  } catch (const SeparableClasses&) { throw Misuse(why_no_best_fit(job)); }
                },
            .files_of_out = {"tune.json", "index.html"},
            .out_help = "write tune.json and a page into this folder, which is made if\nneeded"});
}

}  // namespace onestep::app
