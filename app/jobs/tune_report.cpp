// Sentences, tables and JSON of a search and of what it is worth on samples it has not seen.
#include "jobs/tune_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "jobs/coefficients.h"
#include "jobs/saving.h"

namespace onestep::app::jobs {

namespace {

// No loss where the fit failed.
Json pairs(const std::vector<Tried>& all) {
  Json list = Json::array();
  for (const auto& [at, loss] : all) list.push_back({at, std::isfinite(loss) ? Json(loss) : Json()});
  return list;
}

bool all_are_the_same(const std::vector<double>& values) {
  return std::ranges::all_of(values, [&](double v) { return v == values[0]; });
}

class TuneReport {
 public:
  TuneReport(const TuneOptions& options, const JobData& job, const Model& model, const Hyper& hyper,
             const std::vector<Fold>& folds, const TuneFindings& findings, Report& report)
      : options_(options), job_(job), model_(model), hyper_(hyper), folds_(folds), f_(findings), report_(report) {}

  void make() {
    begin();
    end();
    if (!f_.found) {
      report_.sentence = f_.stopped_in.empty() ? ended_text(options_, f_.search) : stopped_text();
      return;
    }
    report_.sentence = fmt::format("{}{} {} (from {}).", answer(), judged_by(), shown(f_.loss), shown(loss_before()));
    report_.document["hyperparameters"] = {{"names", hyper_.names()}, {"values", f_.values}};
    report_.document["loss_minimised"] = f_.loss;
    report_.document["balanced"] = hyper_.is_balanced();
    if (f_.shared) report_.document["best_shared"] = {{"l2", f_.shared->first}, {"loss", f_.shared->second}};
    if (!f_.probes.empty()) report_.document["probes"] = pairs(f_.probes);
    add_spread();
    add_values();
    add_scores();
    if (!f_.compared.empty()) add_comparison();
    add_accuracy();
    if (f_.went_on_from_compared)
      report_.accuracy.emplace_back(
          "The search went on from the best point of the comparison, as that was better than where it had ended.");
    add_next_step();
    add_figures();
  }

 private:
  bool by_folds() const { return folds_.size() > 1; }
  bool has_hyperprior() const { return f_.shared && !f_.spread.is_shared(); }
  // Where the search began, whose figure has it, too; with a hyperprior, whose part figures have, with one penalty for all.
  double loss_before() const { return has_hyperprior() ? f_.shared->second : f_.search.history.front().value; }
  std::string judged_by() const { return hyper_.is_balanced() ? "balanced validation loss" : "validation loss"; }

  void begin() {
    report_ = {.title = fmt::format("Hyperparameters for {}", job_.name),
               .asked = fmt::format("{}; {} loss; {}{} by {}", description_text(job_), name_of(job_.loss), options_.hyper,
                                    hyper_.is_penalty() ? "" : fmt::format(" beside l2 = {}", shown(options_.l2())),
                                    by_folds() ? fmt::format("{} folds", folds_.size())
                                               : counted(folds_[0].valid.count(), "validation sample"))};
    Json& document = report_.document;
    document = description(job_);
    document.update({{"hyper", options_.hyper}, {"folds", by_folds() ? folds_.size() : 0}});
    if (!hyper_.is_penalty()) document["l2"] = options_.l2();
    document["resumed"] = f_.resumed;
    document["search"] = json_of(f_.search);
  }

  // Limits end a search like anything else: the best point there was can be used.
  void end() {
    const bool fitted = !f_.found || is_solution(f_.fit_status);
    report_.ending = ending_of(fitted ? f_.search.status : f_.fit_status, job_);
    report_.ending.usable = f_.is_usable();
    if (f_.found && fitted) report_.ending.message = message_of(f_.search);
  }

  std::string stopped_text() const {
    if (!options_.checkpoint.empty())
      return fmt::format("Stopped after {} in {}; the same command goes on from {}.", seconds_text(f_.seconds),
                         f_.stopped_in, options_.checkpoint);
    return fmt::format("Stopped after {} in {}; --checkpoint FILE would keep what was found.", seconds_text(f_.seconds),
                       f_.stopped_in);
  }

  // The choice between one penalty and many is the answer to --hyper l2-per-feature; how the search ended comes behind it.
  std::string answer() const {
    const Outcome& o = f_.search;
    std::string how;
    switch (o.status) {
      case Status::converged: how = "Converged in"; break;
      case Status::iteration_limit: how = "Ended at the limit of --iterations after"; break;
      case Status::rounding_reached: how = "Ended, as accurate as the fits are, after"; break;
      case Status::line_search_failed: how = "Ended, since no step lowers the loss any further, after"; break;
      default: how = fmt::format("Ended ({}) after", to_string(o.status));
    }
    if (!std::isfinite(o.norm)) how = "Ended, since the last gradient of the validation loss is not known, after";
    return fmt::format("{}{} {}, {} and {} in all{}: ", choice_text(), how, counted(o.iterations, "iteration"),
                       counted(f_.solves(), "solve"), seconds_text(f_.seconds),
                       f_.resumed ? fmt::format(", gone on from {}", options_.checkpoint) : "");
  }

  std::string choice_of_groups_text() const {
    const GroupChoice& g = f_.groups;
    if (!g.weighted)
      return fmt::format("Whether weights of groups are worth having could not be judged on unseen samples ({}). ", g.note);
    const std::string error = fmt::format("{:.2g}", g.weighted->gain_error);
    if (!g.keeps_equal())
      return fmt::format("Weights of groups lower the loss of unseen samples from {} to {}, by {:.3g} ± {}. ",
                         shown(g.equal->loss), shown(g.weighted->loss), g.weighted->gain, error);
    return fmt::format("Equal weights are kept: on unseen samples those that the search found {} {:.3g} ± {}{}. ",
                       g.weighted->gain > 0 ? "gain" : "are worse by", std::fabs(g.weighted->gain), error,
                       g.weighted->gain > 0 ? ", no more than two standard errors" : "");
  }

  std::string choice_text() const {
    const SpreadChoice& spread = f_.spread;
    if (hyper_.is_of_groups()) return choice_of_groups_text();
    if (!f_.shared) return "";
    if (spread.tried.empty())
      return fmt::format(
          "One penalty for all features, l2 = {}: whether they gain by penalties of their own could not be "
          "judged ({}). ",
          shown(f_.values[0]), spread.note);
    const auto text = [](const SpreadScore& s) { return fmt::format("{:.3g} ± {:.2g}", s.gain, s.gain_error); };
    if (!spread.is_shared())
      return fmt::format("Penalties of single features lower the loss of unseen samples from {} to {}, by {}. ",
                         shown(spread.tried[0].loss), shown(spread.tried[spread.chosen].loss),
                         text(spread.tried[spread.chosen]));
    if (spread.tried.size() < 2)
      return fmt::format("One penalty for all features, l2 = {}: {}. ", shown(f_.values[0]), spread.note);
    const SpreadScore& best = *std::min_element(spread.tried.begin() + 1, spread.tried.end(),
                                                [](const auto& a, const auto& b) { return a.loss < b.loss; });
    return fmt::format("One penalty for all features is kept, l2 = {}: on unseen samples penalties of single features {}. ",
                       shown(f_.values[0]),
                       shown(best.loss) == shown(spread.tried[0].loss)
                           ? fmt::format("make no difference, with a loss of {} either way", shown(best.loss))
                       : best.gain > 0 ? fmt::format("gain {}, no more than two standard errors", text(best))
                                       : fmt::format("are worse by {:.3g} ± {:.2g}", -best.gain, best.gain_error));
  }

  void add_spread() {
    const SpreadChoice& spread = f_.spread;
    if (hyper_.is_of_groups()) {
      const GroupChoice& g = f_.groups;
      Json& json = report_.document["groups"] = {{"equal_weights_kept", g.keeps_equal()}, {"note", g.note}};
      if (g.weighted)
        json.update({{"equal_loss", g.equal->loss},
                     {"loss", g.weighted->loss},
                     {"gain", g.weighted->gain},
                     {"gain_error", g.weighted->gain_error}});
    }
    if (!f_.shared) return;
    Json tried = Json::array();
    page::Table t{
        .id = "spread",
        .title = "How far penalties may lie apart",
        .caption = fmt::format("The standard deviation of their logarithms under the hyperprior, judged by samples "
                               "that neither the fits nor the search had seen ({}). One penalty for all is kept "
                               "unless another gains more than two standard errors; of those that do, the smallest "
                               "within a standard error of the best is taken.",
                               by_folds() ? "nested folds" : "each fifth of the validation samples in turn"),
        .columns = {"deviation", "unseen loss", "gain over one penalty", "standard error", "taken"}};
    for (std::size_t i = 0; i < spread.tried.size(); ++i) {
      const SpreadScore& s = spread.tried[i];
      tried.push_back({{"deviation", s.deviation},
                       {"loss", s.loss},
                       {"loss_error", s.loss_error},
                       {model_.score_name(), s.score},
                       {"gain", s.gain},
                       {"gain_error", s.gain_error}});
      t.rows.push_back({s.deviation > 0 ? fmt::format("{:g}", s.deviation) : "0, one for all", shown(s.loss),
                        gain_text(spread, i), i == 0 ? "" : fmt::format("{:.2g}", s.gain_error),
                        i == spread.chosen ? "yes" : "no"});
    }
    report_.document["spread"] = {{"tried", tried},
                                  {"deviation", spread.is_shared() ? 0 : spread.tried[spread.chosen].deviation},
                                  {"note", spread.note}};
    if (!t.rows.empty()) report_.tables.push_back(t);
  }

  // Not different: to the digits in which the losses are shown.
  static std::string gain_text(const SpreadChoice& spread, std::size_t i) {
    if (i == 0) return "";
    return shown(spread.tried[i].loss) == shown(spread.tried[0].loss) ? "not different"
                                                                      : fmt::format("{:.3g}", spread.tried[i].gain);
  }

  void add_values() {
    constexpr std::size_t most = 20;
    const std::vector<std::string> names = hyper_.names();
    page::Table t{.id = "hyperparameters",
                  .title = "Hyperparameters",
                  .caption = hyper_.is_penalty() ? "" : "Weights, with a mean of 1 over the training samples.",
                  .columns = {hyper_.is_penalty()    ? "feature"
                              : hyper_.is_balanced() ? "class"
                                                     : "group",
                              options_.hyper}};
    std::vector<std::size_t> order = ascending(f_.values);
    if (hyper_.is_penalty() && all_are_the_same(f_.values)) {
      t.rows.push_back({"all", shown(f_.values[0])});
      order.clear();
    } else if (order.size() > most) {
      order.resize(most);
      t.title = fmt::format("Hyperparameters, the {} smallest of {}", most, f_.values.size());
    } else {
      std::ranges::sort(order);
    }
    for (const std::size_t i : order) t.rows.push_back({names[i], shown(f_.values[i])});
    report_.tables.push_back(t);
  }

  void add_scores() {
    const std::string on = by_folds() ? fmt::format("all samples of {}", job_.name) : "the training samples";
    Json fitted = {{"trained_on", on}, {"status", to_string(f_.fit_status)}};
    if (!f_.x) {
      report_.sentence += fmt::format(" Then the fit on {} failed. {}", on, why_fit_failed(f_.fit_status));
      report_.document["model"] = fitted;
      return;
    }
    fitted.update(json_of(job_, raw(job_, model_, *f_.x)));
    report_.document["model"] = std::move(fitted);
    const std::string loss = hyper_.is_balanced() ? "balanced loss" : "mean loss",
                      score = hyper_.is_balanced() ? "balanced accuracy" : model_.score_name(),
                      before = f_.shared ? "one penalty for all" : "at the start";
    scores_ = {
        .id = "scores",
        .title = "Scores",
        .caption = fmt::format("Of the model with these hyperparameters, fitted on {}, and of the one {}. What the search "
                               "minimised is too good by what it could adapt to.",
                               on, f_.shared ? "with one penalty for all features" : "that the search began with"),
        .columns = {"samples", "count", loss, score, fmt::format("{}: loss", before), score}};
    add_row("training", "train", job_.train);
    if (by_folds())
      add_minimised("folds, minimised");
    else
      add_row("validation, minimised", "valid", folds_[0].valid);
    add_unseen();
    if (by_folds() && job_.valid) add_row("validation", "valid", *job_.valid);
    if (job_.test) add_row("test", "test", *job_.test);
    report_.tables.push_back(std::move(scores_));
    report_.document["start"] = std::move(at_start_);
  }

  void add_row(const char* name, const char* key, const Samples& s) {
    std::vector<std::string> row{name, std::to_string(s.count())};
    const auto scored = [&](const std::optional<Array>& x, Json& to) {
      if (!x) return row.insert(row.end(), 2, std::string()), void();
      const Score score = model_.score(s, *x);
      row.push_back(shown(hyper_.judged(s, *x)));
      row.push_back(score_text(hyper_.is_balanced() ? score.balanced : score.score));
      to = model_.score_json(s, *x);
      if (hyper_.is_balanced()) to["balanced_loss"] = hyper_.judged(s, *x);
    };
    scored(f_.x, report_.document[key]);
    Json begun;
    scored(f_.begun_x, begun);
    if (!begun.is_null()) at_start_[key] = std::move(begun);
    scores_.rows.push_back(std::move(row));
  }

  // Each fold judged by the model that was fitted without it, with the hyperparameters that were chosen with it.
  void add_minimised(const char* name) {
    Json each = Json::array();
    Score mean;
    for (std::size_t f = 0; f < folds_.size(); ++f) {
      const Array& x = f_.search.x[f][0];
      const Score s = model_.score(folds_[f].valid, x);
      const double share = static_cast<double>(folds_[f].valid.count()) / static_cast<double>(count_judged(folds_));
      mean.loss += share * s.loss, mean.score += share * s.score, mean.balanced += share * s.balanced;
      each.push_back(model_.score_json(folds_[f].valid, x));
    }
    if (job_.loss == Loss::ridge) mean.score = r_squared(mean.loss, folds_);  // of all together, as fit has it
    scores_.rows.push_back({name, std::to_string(count_judged(folds_)), shown(f_.loss),
                            score_text(hyper_.is_balanced() ? mean.balanced : mean.score),
                            f_.begun_loss ? shown(*f_.begun_loss) : "", ""});
    report_.document["cross_validation"] = {
        {"loss", mean.loss}, {"minimised", true}, {model_.score_name(), mean.score}, {"folds", each}};
  }

  void add_unseen() {
    const SpreadChoice& spread = f_.spread;
    if (spread.tried.empty() && !f_.groups.weighted) return;
    const std::int64_t count = count_judged(folds_);
    const SpreadScore &shared = f_.groups.equal ? *f_.groups.equal : spread.tried[0],
                      &taken = f_.groups.keeps_equal() ? shared
                               : f_.groups.weighted    ? *f_.groups.weighted
                                                       : spread.tried[spread.chosen];
    scores_.rows.push_back({by_folds() ? "nested folds, unseen" : "validation in turn, unseen", std::to_string(count),
                            shown(taken.loss), score_text(taken.score), shown(shared.loss), score_text(shared.score)});
  }

  void add_comparison() {
    const bool one = hyper_.names().size() == 1;
    report_.document["compare"] = {{"method", one ? "grid" : "random"},
                                   {"evaluations", f_.compared.size()},
                                   {"loss", std::isfinite(f_.best_compared) ? Json(f_.best_compared) : Json()},
                                   {"values", f_.best_compared_at},
                                   {"ratio", std::isfinite(f_.best_compared) ? Json(f_.loss / f_.best_compared) : Json()},
                                   {"tried", pairs(f_.compared)}};
    page::Table t{
        .id = "compare",
        .title = "Beside a search of equal budget",
        .caption = f_.shared ? "Without the hyperprior: a lower loss of the samples judged by may be overfitting." : "",
        .columns = {"search", "solves", judged_by()}};
    t.rows.push_back({"by the gradient", std::to_string(f_.solves()), fmt::format("{:.8g}", f_.loss)});
    if (f_.shared) t.rows.push_back({"best shared l2", "", fmt::format("{:.8g}", f_.shared->second)});
    t.rows.push_back({one ? "grid" : "random", std::to_string(f_.compared.size()),
                      std::isfinite(f_.best_compared) ? fmt::format("{:.8g}", f_.best_compared) : "no fit succeeded"});
    report_.tables.push_back(t);
    if (std::isfinite(f_.best_compared) && f_.best_compared < f_.loss)
      report_.accuracy.push_back(fmt::format(
          "A {} of as many solves found a lower {}, {} instead of {}{}.", one ? "grid" : "random search", judged_by(),
          shown(f_.best_compared), shown(f_.loss),
          f_.shared ? ": that minimises the loss of these samples alone, without the hyperprior, and may be overfitting"
                    : ", and a search from there did not end lower"));
  }

  void add_accuracy() {
    for (std::string& line : accuracy_of(f_.search)) report_.accuracy.push_back(std::move(line));
    std::vector<std::string> bounds;
    const std::vector<std::string> names = hyper_.names();
    const bool together = names.size() > 1 && f_.search.theta[0].size() == 1;  // one penalty was kept for all
    for (const std::size_t i : f_.search.at_low)
      bounds.push_back(fmt::format("{} at its least", together ? "l2" : names[i]));
    for (const std::size_t i : f_.search.at_high)
      bounds.push_back(fmt::format("{} at its most", together ? "l2" : names[i]));
    report_.document["at_bounds"] = bounds;
    constexpr std::size_t most = 5;
    if (bounds.empty() || f_.groups.keeps_equal()) return;
    const auto end = bounds.begin() + static_cast<std::ptrdiff_t>(std::min(most, bounds.size()));
    report_.accuracy.push_back(fmt::format("Held at a bound, [{:g}, {:g}]{}: {}{}.", hyper_.low(), hyper_.high(),
                                           hyper_.is_penalty() ? "" : " before the mean is made 1",
                                           fmt::join(bounds.begin(), end, ", "),
                                           bounds.size() > most ? fmt::format(" and {} more", bounds.size() - most) : ""));
  }

  // What to do with the answer.
  void add_next_step() {
    if (!f_.is_usable()) return;
    if (f_.saved_samples > 0) {
      report_.document["saved"] = options_.save;
      report_.accuracy.push_back(fmt::format("The model, fitted on {}, is in {}; onestep predict {} FILE predicts with it.",
                                             counted(f_.saved_samples, "sample"), options_.save, options_.save));
    }
    const bool one_penalty = hyper_.is_penalty() && all_are_the_same(f_.values);
    if (one_penalty) {
      const std::string line = fit_command(options_, f_.values[0]);
      report_.document["fit_command"] = line;
      report_.accuracy.push_back(fmt::format("The model of all samples with this penalty: {}", line));
    }
    if (f_.saved_samples == 0) report_.accuracy.emplace_back("With --save MODEL the model is written for onestep predict.");
  }

  void add_figures() {
    std::string judged = judged_by();
    judged[0] = static_cast<char>(std::toupper(judged[0]));
    const bool one = f_.search.theta[0].size() == 1;
    report_.figures = {
        one && hyper_.is_penalty()
            ? curve_figure("l2", f_.search, f_.probes, hyper_.names().size() == 1 ? f_.compared : std::vector<Tried>())
            : values_figure(options_.hyper, hyper_.names(), f_.values, f_.search.history.front().theta[0]),
        path_figure(f_.search, judged, has_hyperprior() ? "loss with the part of the hyperprior" : "loss")};
  }

  const TuneOptions& options_;
  const JobData& job_;
  const Model& model_;
  const Hyper& hyper_;
  const std::vector<Fold>& folds_;
  const TuneFindings& f_;
  Report& report_;
  page::Table scores_;
  Json at_start_ = Json::object();
};

}  // namespace

Report report_of(const TuneOptions& options, const JobData& job, const Model& model, const Hyper& hyper,
                 const std::vector<Fold>& folds, const TuneFindings& findings) {
  Report report;
  TuneReport(options, job, model, hyper, folds, findings, report).make();
  return report;
}

}  // namespace onestep::app::jobs
