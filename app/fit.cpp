// onestep fit FILE: a linear model with its coefficients, their standard errors and its scores, for people and for predict.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "jobs/baseline.h"
#include "jobs/coefficient_figures.h"
#include "jobs/coefficients.h"
#include "jobs/cross_validation.h"
#include "jobs/dependence.h"
#include "jobs/inner_scaling.h"
#include "jobs/memory.h"
#include "jobs/model.h"
#include "jobs/report.h"
#include "jobs/ridge_refinement.h"
#include "jobs/samples.h"
#include "jobs/saving.h"
#include "jobs/scores.h"
#include "jobs/separating_direction.h"
#include "jobs/separation.h"
#include "jobs/standard_errors.h"
#include "verbs.h"

namespace onestep::app {

namespace {

using namespace jobs;

struct FitOptions : JobOptions {
  std::string save;
  std::optional<double> folds_asked;
};

class Fit {
 public:
  Fit(const FitOptions& options, Progress& progress)
      : options_(options), progress_(progress), job_(load(options, false, progress)), model_(job_) {
    job_.memory_needed = std::max(
        job_.memory_needed, require_memory(options, job_.name, needs_of_fit(job_.loss, sizes_of(job_)), sizes_of(job_)));
    if (options.l2() > 0) note_sizes(job_);
    const auto n = static_cast<std::size_t>(job_.n());
    std::vector<double> penalty(n, options.l2());
    if (!job_.scaling && (model_.unknowns() < most_scaled || sizes_differ_much(job_.train.A))) scale_inside(penalty);
    penalty_ = Array(Shape{job_.n()}, std::move(penalty));
  }

  int run() {
    solve();
    if (is_solution(status_)) {
      find_standard_errors();
      progress_.enter("scores");
      scores_.push_back({"training", scores_of(job_, linear_prediction(job_.train.A, x_), job_.train.y)});
      refuse_separable();
      judge_by_folds();
      progress_.enter("scores");
      if (job_.test) {
        const Array prediction = linear_prediction(job_.test->A, x_);
        scores_.push_back({"test", scores_of(job_, prediction, job_.test->y)});
        note_gain("the test samples", prediction, job_.test->y);
      }
      note_separable();
      save();
    }
    return show(options_, report(), progress_);
  }

 private:
  // Larger problems are scaled where they need it only.
  static constexpr std::int64_t most_scaled = 1000;

  // The problem is solved for standardised features with penalties that make it the same problem: units then do not matter
  // to the iteration.
  void scale_inside(std::vector<double>& penalty) {
    // Penalties are divided by the square of a scale; coefficients of smaller features are 0 to rounding.
    constexpr double least_scale = 1e-100;
    job_.scaling = standardisation_with_ones(job_.train.A, least_scale);
    for (Samples* samples : {&job_.train, job_.test ? &*job_.test : nullptr})
      if (samples != nullptr) samples->A = scaled(samples->A, *job_.scaling);
    for (std::size_t j = 0; j < penalty.size(); ++j) penalty[j] /= std::pow(job_.scaling->scale.values()[j], 2);
  }

  void solve() {
    progress_.enter("fit");
    try {
      model_.get_ready(job_.train, penalty_);
    } catch (const SeparableClasses&) { throw Misuse(why_no_best_fit(job_)); }
    SolveOptions how;
    how.callback = [&](const Iteration& i) {
      progress_.show(
          [&] { return fmt::format("fit: iteration {}, step {:.1e}, objective {}", i.number, i.step, shown(i.value)); });
      return stop_signal() == 0;
    };
    const auto f = [&](Expr x) { return sum(model_.losses(job_.train, x)) + model_.penalty(x, penalty_); };
    Solution s = onestep::solve(model_.solver(f, how), model_.start(), Parts());
    if (s.status() == Status::line_search_failed && job_.loss == Loss::softmax) {
      model_.compute_by_margins();
      s = onestep::solve(model_.solver(f, how), s.x().contiguous(), Parts());
    }
    x_ = s.x().contiguous(), status_ = s.status();
    if (job_.loss == Loss::ridge && status_ != Status::cancelled) refine();
    const std::vector<Array> at = evaluate(traced(
                                               [&](Expr x) {
                                                 return std::pair{f(x), grad(f(x), x)};
                                               },
                                               model_.shape()),
                                           {x_});
    if (options_.l2() == 0) x_ = with_sums_of_zero(x_);
    objective_ = at[0].item();
    for (const double g : at[1].values()) gradient_ = std::max(gradient_, std::fabs(g));
    statistics_ = s.statistics();
    if (!job_.penalised && status_ != Status::cancelled) separated_ = are_separated_at(model_, job_.train, x_);
    if (separated_.value_or(false)) throw Misuse(why_no_best_fit(job_));
    if (!is_solution(status_)) message_ = why_not();
  }

  // A quadratic problem is solved where refinement ends, whether or not the line search could tell the last steps from
  // rounding.
  void refine() {
    if (model_.unknowns() > most_with_standard_errors) return;
    const std::optional<Array> refined = refined_ridge(job_.train, penalty_, x_);
    if (!refined) return;
    x_ = *refined;
    if (!is_solution(status_)) status_ = Status::rounding_reached;
  }

  // Without a penalty nothing holds the sum of a feature's coefficients over the classes, which changes no prediction.
  Array with_sums_of_zero(const Array& x) const {
    if (classes() == 0) return x;
    const auto K = static_cast<std::size_t>(classes());
    std::vector<double> entries(x.values().begin(), x.values().end());
    for (std::size_t first = 0; first < entries.size(); first += K) {
      double mean = 0;
      for (std::size_t k = 0; k < K; ++k) mean += entries[first + k] / static_cast<double>(K);
      for (std::size_t k = 0; k < K; ++k) entries[first + k] -= mean;
    }
    return {x.shape(), std::move(entries)};
  }

  // In words of the command: the library's are about its own options.
  std::string why_not() const {
    if (status_ == Status::cancelled) return "Stopped by a signal before it had converged.";
    const bool may_depend = job_.penalised && job_.n() + 1 < job_.train.count() && model_.unknowns() < most_scaled;
    std::vector<LeftOut> dependent = may_depend ? dependent_features(job_) : std::vector<LeftOut>();
    std::erase_if(dependent, [](const LeftOut& feature) { return feature.constant; });  // harmless with a penalty
    if (!dependent.empty())
      return fmt::format(
          "The features are linearly dependent and the penalty is too small to determine their coefficients: {} {}. Give a "
          "larger --l2, or --l2 0, which leaves such features out.",
          job_.features[dependent[0].place], dependent[0].why);
    const std::string wanted = job_.penalised ? "a larger --l2" : "--l2 above 0";
    const bool may_be_unbounded = !job_.penalised || has_certain_samples(job_, linear_prediction(job_.train.A, x_));
    if (const std::string name = may_be_unbounded ? separable_class(job_) : ""; !name.empty())
      return fmt::format(
          "The class {} is linearly separable from the others: without a penalty the coefficients grow without "
          "bound{}; give {}.",
          name, job_.penalised ? ", and this one is too small to stop them" : "", wanted);
    return fmt::format("{} There may be no best fit, or many that are equally good to rounding: give {}, or --standardise.",
                       status_ == Status::iteration_limit ? "The iterations did not suffice." : "The iteration stalled.",
                       wanted);
  }

  void find_standard_errors() {
    progress_.enter("standard_errors");
    errors_ = standard_errors(model_, job_, penalty_, x_);
  }

  // Of problems too large to look for a direction that separates classes: rounding may end a diverging iteration,
  // probabilities have become 1, and the coefficients that make them so are as good as unknown.
  void refuse_separable() const {
    if (job_.penalised || separated_) return;
    constexpr double unknown = 1000;  // standard error of the coefficient of a standardised feature
    const std::size_t K = static_cast<std::size_t>(std::max<std::int64_t>(1, classes()));
    double largest = 0;
    for (std::size_t i = 0; errors_ && i < job_.features.size() * K; ++i)
      largest = std::max(largest, (*errors_)[i] * job_.scaling->scale.values()[i / K]);
    const bool may_be_known = errors_ ? largest < unknown : model_.unknowns() > most_with_standard_errors;
    if (may_be_known || !has_certain_samples(job_, linear_prediction(job_.train.A, x_))) return;
    throw Misuse(why_no_best_fit(job_));
  }

  // Whether another few fits take no time worth mentioning.
  bool is_quick() const {
    constexpr double quick = 2e6;  // entries of the features, times classes
    return static_cast<double>(job_.train.count()) * static_cast<double>(model_.unknowns()) <= quick;
  }

  // As many folds as asked for; without being asked five, where they are quick.
  std::size_t folds() const {
    constexpr std::size_t usual = 5;
    const auto samples = static_cast<std::size_t>(job_.train.count());
    if (!options_.folds_asked) return is_quick() && samples >= 2 * usual ? usual : 0;
    const double asked = *options_.folds_asked;
    if (asked != std::floor(asked) || asked == 1 || asked > static_cast<double>(samples))
      throw Misuse(
          fmt::format("--folds {}: a whole number from 2 to the number of samples, {}, or 0 for none", asked, samples));
    return static_cast<std::size_t>(asked);
  }

  void judge_by_folds() {
    const std::size_t count = folds();
    if (count == 0) return;
    progress_.enter("cross_validation");
    const CrossValidation found = cross_validate(model_, job_, penalty_, count, options_.seed, x_, progress_);
    folds_ = count;
    no_folds_ = found.failure;
    if (!no_folds_.empty()) {
      job_.notes.push_back(fmt::format("there are no cross-validated scores: {}", no_folds_));
      return;
    }
    scores_.push_back({fmt::format("{}-fold cross-validation", count), scores_of(job_, found.prediction, job_.train.y)});
    if (!job_.test) note_gain("the samples of the folds", found.prediction, job_.train.y);
  }

  void note_gain(const std::string& judged, const Array& prediction, const Array& y) {
    if (auto note = note_on_no_gain(job_, judged, losses_of(job_.loss, prediction, y), y.values()))
      job_.notes.push_back(std::move(*note));
  }

  // Where the fit itself separates the classes, and where one without a penalty would, if that is quick to find out.
  void note_separable() {
    if (job_.loss == Loss::ridge) return;
    const bool separates = scores_[0].scores.accuracy == 1;
    if (!separates && !(job_.penalised && is_quick() && is_separable(job_))) return;
    job_.notes.push_back(fmt::format(
        "the classes are linearly separable{} coefficients are finite only because of the penalty, and depend on it",
        separates ? ": the" : " or quasi-separable (all but samples on the separating plane): some"));
  }

  bool saves() const { return !options_.save.empty() && stop_signal() == 0; }

  void save() {
    if (!saves()) return;
    SavedModel model;
    model.job = job_, model.x = x_, model.l2 = options_.l2();
    model.samples = static_cast<std::size_t>(job_.train.count());
    save_model(std::move(model), options_, options_.save);
  }

  // The scores that count: of test samples, else of folds, else of the samples that were learned from.
  const NamedScores& best_scores() const { return scores_.back(); }

  // ---- what is said ----

  std::int64_t classes() const { return model_.loss() == Loss::softmax ? model_.shape()[1] : 0; }

  Json document() const {
    Json json = description(job_);
    json.update({{"l2", options_.l2()},
                 {"iterations", statistics_.iterations},
                 {"hessian_products", statistics_.products},
                 {"objective", objective_},
                 {"gradient", gradient_}});
    for (const NamedScores& s : scores_) {
      const bool by_folds = s.name != "training" && s.name != "test";
      Json& scores = json[s.name == "training" ? "train" : by_folds ? "cross_validation" : "test"] = json_of(job_, s.scores);
      if (by_folds) scores["folds"] = folds_;
    }
    if (!no_folds_.empty()) json["cross_validation"] = {{"folds", folds_}, {"failure", no_folds_}};
    json.update(jobs::json_of(job_, coefficients()));
    if (job_.loss == Loss::logistic) json["positive_label"] = job_.label_text(1);
    if (!errors_) return json;
    const std::int64_t K = classes();
    const auto split = errors_->size() - static_cast<std::size_t>(std::max<std::int64_t>(1, K));
    json["standard_errors_of"] = options_.l2() > 0 ? "posterior" : "estimate";
    json["standard_errors"] = rows_to_json(std::span(*errors_).first(split), K);
    json["intercept_standard_error"] = K > 0 ? rows_to_json(std::span(*errors_).subspan(split), 0) : Json(errors_->back());
    return json;
  }

  LinearModel coefficients() const { return raw(job_, model_, x_); }

  std::string status_words() const {
    if (status_ == Status::rounding_reached) return "converged to rounding";
    std::string words(to_string(status_));
    std::ranges::replace(words, '_', ' ');
    return words;
  }

  std::string sentence() const {
    std::string text =
        fmt::format("{} in {}, {}: objective {:.10g}", status_words(), counted(statistics_.iterations, "iteration"),
                    seconds_text(options_.clock->seconds_of("fit")), objective_);
    const bool quantity = job_.loss == Loss::ridge;
    for (const NamedScores& s : scores_)
      text += fmt::format(", {} {} {}", s.name, quantity ? "R2" : "accuracy",
                          score_text(quantity ? s.scores.r2 : s.scores.accuracy));
    return is_solution(status_) ? text + "." : fmt::format("{}. {}", text, message_);
  }

  std::vector<std::string> accuracy() const {
    std::vector<std::string> lines;
    if (job_.loss == Loss::logistic)
      lines.push_back(fmt::format("Positive coefficients speak for the label {}, negative ones for {}.", job_.label_text(1),
                                  job_.label_text(-1)));
    if (job_.loss == Loss::softmax)
      lines.emplace_back(
          "Coefficients of a feature sum to zero over the classes: they compare a class with the mean of all.");
    lines.push_back(fmt::format("Largest entry of the gradient{}: {:.2g}.",
                                job_.scaling ? ", by coefficients of standardised features" : "", gradient_));
    if (errors_ && options_.l2() > 0)
      lines.emplace_back(
          "Standard errors are from the Hessian of what is minimised, the penalty included: those of the posterior under "
          "the prior that the penalty stands for, which are smaller than those of an estimate without one (--l2 0).");
    if (!errors_ && is_solution(status_))
      lines.push_back(
          model_.unknowns() > most_with_standard_errors
              ? fmt::format("No standard errors: {} coefficients are too many to invert the Hessian.", model_.unknowns())
              : std::string("No standard errors: the Hessian is singular, or there are too few samples."));
    if (saves() && is_solution(status_))
      lines.push_back(
          fmt::format("The model is in {}; onestep predict {} FILE predicts with it.", options_.save, options_.save));
    return lines;
  }

  Report report() const {
    const LinearModel m = coefficients();
    Report r{.title = fmt::format("A {} model of {}", name_of(job_.loss), job_.name),
             .asked = fmt::format("{}; {} loss, l2 = {}", description_text(job_), name_of(job_.loss), shown(options_.l2())),
             .sentence = sentence()};
    if (!scores_.empty()) r.tables.push_back(score_table(job_, scores_));
    if (!scores_.empty() && job_.loss != Loss::ridge)
      if (auto table = confusion_table(job_, best_scores())) r.tables.push_back(std::move(*table));
    r.tables.push_back(coefficient_table(job_, m, errors_));
    if (job_.image_side > 0 && classes() > 0)
      r.galleries.push_back(coefficient_gallery(job_, m));
    else
      r.figures.push_back(coefficient_figure(job_, m, errors_));
    if (!scores_.empty() && job_.loss != Loss::ridge) r.figures.push_back(calibration_figure(job_, best_scores()));
    r.accuracy = accuracy();
    r.ending = ending_of(status_, job_);
    r.ending.message = message_;
    r.document = document();
    return r;
  }

  const FitOptions& options_;
  Progress& progress_;
  JobData job_;
  Model model_;
  Array penalty_, x_;
  double objective_ = 0, gradient_ = 0;
  Status status_ = Status::converged;
  std::string message_;
  Statistics statistics_;
  std::optional<bool> separated_;  // without a penalty, where that is known
  std::optional<std::vector<double>> errors_;
  std::vector<NamedScores> scores_;
  std::size_t folds_ = 0;
  std::string no_folds_;  // why there are no cross-validated scores, where they were wanted
};

int run_fit(const FitOptions& options) {
  Progress progress(options);
  return Fit(options, progress).run();
}

}  // namespace

void add_fit(CommandLine& line) {
  auto options = std::make_shared<FitOptions>();
  std::vector<Option> rows = sample_options(*options, false);
  rows.push_back(
      {.name = "--folds",
       .to = &options->folds_asked,
       .type = "K",
       .help = "score by so many folds, each by the model of the others; 0: do not\n(default 5, where that is quick)",
       .takes = Takes::not_negative});
  rows.push_back({.name = "--save",
                  .to = &options->save,
                  .type = "FILE",
                  .help = "write the model, for onestep predict; - for standard output",
                  .takes = Takes::output_file});
  line.add({.name = "fit",
            .job = "Fit a linear model: coefficients, standard errors, scores; save it.",
            .example = "onestep fit --demo --loss logistic --save model.json",
            .common = *options,
            .options = std::move(rows),
            .work = [options] { return run_fit(*options); },
            .files_of_out = {"fit.json", "index.html"},
            .out_help = "write fit.json and a page into this folder, which is made if\nneeded"});
}

}  // namespace onestep::app
