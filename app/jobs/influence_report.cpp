// Sentences, tables, figures and JSON of what each sample does to the loss of others, and of its own loss.
#include "jobs/influence_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "jobs/influence_figures.h"
#include "jobs/sample_files.h"

namespace onestep::app::jobs {

namespace {

Json json_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

class InfluenceReport {
 public:
  InfluenceReport(double l2, const JobData& job, const Model& model, const InfluenceFindings& findings)
      : l2_(l2), job_(job), model_(model), f_(findings) {}

  Report opening() const {
    const std::string judged_by = f_.folds > 0
                                      ? fmt::format("judged by {} folds, each by a fit to the others", f_.folds)
                                      : fmt::format("judged by {}", counted(job_.valid->count(), "validation sample"));
    const char* const judges = f_.folds > 0     ? "the cross-validated loss"
                               : f_.independent ? "the loss of unseen samples"
                                                : "the loss of samples split off";
    Report r{
        .title = fmt::format("What each sample of {} does to {}", job_.name, judges),
        .asked = fmt::format("{}; {} loss, l2 = {}; {}", description_text(job_), name_of(job_.loss), shown(l2_), judged_by)};
    r.ending = ending_of(Status::converged, job_);
    r.document = description(job_);
    r.document.update({{"l2", l2_}, {"folds", f_.folds}});
    if (f_.folds > 0)
      r.ending.notes.emplace_back(
          "effects of removal are on the cross-validated loss of these very samples: which samples harm predictions for new "
          "ones cannot be learned from samples of the fit; give independent ones (--valid FILE)");
    else if (!f_.independent)
      r.ending.notes.push_back(fmt::format(
          "effects of removal are on the fit to the other {}, not to all of them; with independent samples to judge "
          "by (--valid FILE) all are in the fit",
          counted(job_.train.count(), "sample")));
    return r;
  }

  Report report() const {
    Report r = opening();
    r.sentence = sentence();
    r.document["judging"] = {
        {"samples", f_.effects.judging()}, {"loss", f_.effects.loss()}, {"independent", f_.independent}};
    f_.independent ? report_effects(r) : report_own_losses(r);
    r.document["certificate"] = json_of(f_.effects.certificate());
    if (job_.test) report_test(r);
    report_accuracy(r);
    if (f_.verified) report_verification(r);
    report_samples(r);
    if (f_.retrained.size() > 1) r.figures.push_back(verification_figure(f_.retrained));
    if (f_.not_reached > 0)
      r.ending.notes.push_back(fmt::format("stopped before {} of the {} samples had been left out and trained again",
                                           f_.not_reached, f_.retrained.size() + f_.not_retrained + f_.not_reached));
    return r;
  }

 private:
  // The effect in standard errors; 0 where there is none.
  double certainty(std::size_t i) const {
    const double error = f_.effects.all()[i].standard_error;
    return error > 0 ? f_.removal(i) / error : 0;
  }

  std::size_t count_beyond(double errors, double sign) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(f_.order, [&](std::size_t i) { return sign * certainty(i) > errors; }));
  }

  std::string sentence_on_own_losses() const {
    const std::string judging = counted(static_cast<std::int64_t>(f_.effects.judging()), "sample"),
                      loss = shown(f_.effects.loss());
    const std::string judged =
        f_.folds > 0 ? fmt::format(
                           "The mean cross-validated loss of {} is {}. Removal is the effect on this loss of these very "
                           "samples, and says nothing of new ones",
                           judging, loss)
                     : fmt::format(
                           "The mean loss of the {} split off is {}. Removal is the effect on this loss in a fit to the "
                           "other {}, and says little of a fit to all",
                           judging, loss, job_.train.count());
    const std::string worth_a_look =
        f_.folds > 0 || f_.effects.has_leverage()
            ? "Worth a look are those with the largest loss of their own, by a fit without them: outliers and wrong labels "
              "are among them."
            : fmt::format("Losses of samples by fits without them are not computed for more than {} coefficients.",
                          Effects::most_unknowns());
    return fmt::format(
        "{}: to learn which samples harm predictions for new ones, give independent samples by --valid FILE. {}", judged,
        worth_a_look);
  }

  std::string sentence() const {
    if (!f_.independent) return sentence_on_own_losses();
    const std::size_t N = f_.order.size(), harm = count_beyond(2, -1), help = count_beyond(2, 1);
    std::string text =
        fmt::format("The mean loss of {} is {}. ", counted(static_cast<std::int64_t>(f_.effects.judging()), "unseen sample"),
                    shown(f_.effects.loss()));
    if (!f_.effects.has_leverage())
      return text + fmt::format("{} of {} samples do harm; standard errors are not computed for more than {} coefficients.",
                                std::ranges::count_if(f_.order, [&](std::size_t i) { return f_.removal(i) < 0; }), N,
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
      const Effect& e = f_.effects.all()[i];
      result.rows.push_back({std::to_string(job_.train.rows[i]), job_.label_text(job_.train.y.values()[i]),
                             fmt::format("{:+.3e}", f_.removal(i)),
                             e.standard_error > 0 ? fmt::format("{:.1e}", e.standard_error) : "-",
                             fmt::format("{:+.3e}", e.derivative), shown(f_.effects.losses()[i])});
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
            f_.effects.has_leverage() ? "it" : "its fold",
            f_.folds > 0 ? "the cross-validated loss of these samples" : "the loss of the samples split off"),
        .columns = {"sample", "label", "own loss", "leverage", "removal", "standard error"}};
    for (const std::size_t i : places) {
      const Effect& e = f_.effects.all()[i];
      result.rows.push_back({std::to_string(job_.train.rows[i]), job_.label_text(job_.train.y.values()[i]),
                             shown(*f_.own_loss(i)), f_.leverage(i) ? fmt::format("{:.3f}", *f_.leverage(i)) : "-",
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
           {"removal", f_.removal(i)},
           {"standard_error",
            number_or_null(f_.effects.all()[i].standard_error > 0 ? f_.effects.all()[i].standard_error : std::nan(""))},
           {"influence", f_.effects.all()[i].derivative},
           {"own_loss", json_or_null(f_.own_loss(i))},
           {"leverage", json_or_null(f_.leverage(i))}});
    return all;
  }

  void report_own_losses(Report& r) const {
    std::vector<std::size_t> largest;
    std::vector<double> losses, leverages;
    for (const std::size_t i : f_.order) {
      if (!f_.own_loss(i)) continue;
      if (largest.size() < most_listed) largest.push_back(i);
      losses.push_back(*f_.own_loss(i));
      if (f_.leverage(i)) leverages.push_back(*f_.leverage(i));
    }
    if (largest.empty()) return;
    r.tables.push_back(table_of_own_losses(largest));
    r.document["largest_own_losses"] = listed(largest);
    r.figures = {own_loss_figure(losses, leverages)};
    if (job_.image_side > 0) r.galleries.push_back(gallery("own_losses", "Largest own losses", largest));
  }

  void report_effects(Report& r) const {
    const auto count =
        static_cast<std::size_t>(std::ranges::count_if(f_.order, [&](std::size_t i) { return f_.removal(i) < 0; }));
    const auto helps =
        static_cast<std::size_t>(std::ranges::count_if(f_.order, [&](std::size_t i) { return f_.removal(i) > 0; }));
    const std::vector<std::size_t> harmful(f_.order.begin(),
                                           f_.order.begin() + static_cast<std::ptrdiff_t>(std::min(most_listed, count))),
        helpful(f_.order.rbegin(), f_.order.rbegin() + static_cast<std::ptrdiff_t>(std::min(most_listed, helps)));
    if (!harmful.empty()) r.tables.push_back(table("harmful", "Most harmful", harmful));
    if (!helpful.empty()) r.tables.push_back(table("helpful", "Most helpful", helpful));
    r.document.update({{"harmful", count},
                       {"beyond_two_standard_errors", {{"harm", count_beyond(2, -1)}, {"help", count_beyond(2, 1)}}},
                       {"most_harmful", listed(harmful)},
                       {"most_helpful", listed(helpful)}});
    std::vector<double> removals, certainties;
    for (const std::size_t i : f_.order) removals.push_back(f_.removal(i)), certainties.push_back(certainty(i));
    r.figures = {ranking_figure(removals, certainties)};
    if (job_.image_side > 0 && !harmful.empty()) r.galleries.push_back(gallery("harmful", "Most harmful", harmful));
    if (job_.image_side > 0 && !helpful.empty()) r.galleries.push_back(gallery("helpful", "Most helpful", helpful));
  }

  void report_test(Report& r) const {
    const Score s = model_.score(*job_.test, f_.test);
    r.document["test"] = model_.score_json(*job_.test, f_.test);
    r.tables.push_back({.id = "test",
                        .title = "Test samples, scored by the fit to all training samples",
                        .caption = "",
                        .columns = {"samples", "mean loss", model_.score_name()},
                        .rows = {{std::to_string(job_.test->count()), shown(s.loss), score_text(s.score)}}});
  }

  void report_accuracy(Report& r) const {
    r.accuracy.push_back(fmt::format(
        "{} {}",
        f_.independent ? "A negative change by removal is harm: the loss falls without the sample."
                       : "A negative change by removal says that the loss falls without the sample.",
        f_.effects.has_leverage()
            ? "It is predicted by one Newton step with the sample's leverage (approximate leave-one-out); the derivative "
              "alone understates samples with much leverage."
            : fmt::format("It is minus the derivative: leverages need the Hessian of at most {} coefficients.",
                          Effects::most_unknowns())));
    r.accuracy.push_back(fmt::format(
        "The fits took {}, derivatives {}, removals {}. Derivatives of {}: {}.", seconds_text(f_.effects.fit_seconds()),
        seconds_text(f_.effects.derivative_seconds()), seconds_text(f_.effects.removal_seconds()),
        f_.folds > 0 ? "the fold with the loosest bound" : "all samples together", text_of(f_.effects.certificate())));
    const auto missing = std::ranges::count_if(f_.effects.all(), [](const Effect& e) { return !e.removal.has_value(); });
    if (missing > 0)
      r.accuracy.push_back(fmt::format(
          "Without {} of the samples, each for itself, the fit is not unique: nothing is predicted for them.", missing));
  }

  void report_verification(Report& r) const {
    Json samples = Json::array();
    for (const Retrained& one : f_.retrained)
      samples.push_back({{"sample", job_.train.rows[one.sample]},
                         {"predicted", one.removal},
                         {"derivative", one.derivative},
                         {"actual", one.actual}});
    const Agreement by_removal = agreement(f_.retrained, &Retrained::removal),
                    by_derivative = agreement(f_.retrained, &Retrained::derivative);
    r.document["verify"] = {{"count", f_.retrained.size()},
                            {"correlation", number_or_null(by_removal.correlation)},
                            {"slope", number_or_null(by_removal.slope)},
                            {"median_error", number_or_null(by_removal.median_error)},
                            {"largest_error", number_or_null(by_removal.largest_error)},
                            {"derivative", json_of(by_derivative)},
                            {"samples", samples}};
    r.accuracy.push_back(
        fmt::format("Trained again without {} with the largest effect: {}; minus the derivative: {}.{}",
                    f_.retrained.size() == 1 ? "the sample" : fmt::format("each of the {} samples", f_.retrained.size()),
                    text_of(by_removal), text_of(by_derivative),
                    f_.not_retrained == 0 ? "" : fmt::format(" {} more could not be trained again.", f_.not_retrained)));
  }

  void report_samples(Report& r) const {
    Json derivatives = Json::array(), removals = Json::array(), errors = Json::array(), own = Json::array(),
         leverages = Json::array();
    for (std::size_t i = 0; i < f_.effects.all().size(); ++i) {
      const Effect& e = f_.effects.all()[i];
      derivatives.push_back(e.derivative);
      removals.push_back(e.removal ? Json(*e.removal) : Json());
      errors.push_back(e.standard_error > 0 ? Json(e.standard_error) : Json());
      own.push_back(json_or_null(f_.own_loss(i))), leverages.push_back(json_or_null(f_.leverage(i)));
    }
    r.document["sample"] = job_.train.rows;
    r.document["influence"] = derivatives;
    r.document["removal"] = removals;
    r.document["standard_error"] = errors;
    r.document["losses"] = f_.effects.losses();
    r.document["own_loss"] = own;
    r.document["leverage"] = leverages;
  }

  page::Gallery gallery(const std::string& id, const std::string& title, const std::vector<std::size_t>& places) const {
    page::Gallery all{id, title,
                      f_.independent ? "The number of the sample, its label, how the loss changes without it."
                                     : "The number of the sample, its label, its own loss."};
    for (const std::size_t i : places) {
      all.pictures.push_back(picture_of(job_, job_.train, i));
      all.pictures.back().lines.push_back(job_.label_text(job_.train.y.values()[i]));
      all.pictures.back().lines.push_back(f_.independent ? fmt::format("{:+.1e}", f_.removal(i)) : shown(*f_.own_loss(i)));
    }
    return all;
  }

  static constexpr std::size_t most_listed = 10;

  double l2_;
  const JobData& job_;
  const Model& model_;
  const InfluenceFindings& f_;
};

}  // namespace

double InfluenceFindings::removal(std::size_t i) const { return effects.all()[i].removal.value_or(0); }

std::optional<double> InfluenceFindings::own_loss(std::size_t i) const {
  if (!effects.own_losses().empty())
    return effects.own_losses()[i] ? std::optional(effects.own_losses()[i]->loss) : std::nullopt;
  return folds > 0 ? std::optional(effects.losses()[i]) : std::nullopt;
}

std::optional<double> InfluenceFindings::leverage(std::size_t i) const {
  if (effects.own_losses().empty() || !effects.own_losses()[i]) return std::nullopt;
  return effects.own_losses()[i]->leverage;
}

Report opening_of(double l2, const JobData& job, const Model& model, const InfluenceFindings& findings) {
  return InfluenceReport(l2, job, model, findings).opening();
}

Report report_of(double l2, const JobData& job, const Model& model, const InfluenceFindings& findings) {
  return InfluenceReport(l2, job, model, findings).report();
}

std::string table_of_samples(const JobData& job, const InfluenceFindings& findings) {
  CsvTable table({"sample", "label", "removal", "standard_error", "influence", "loss", "own_loss", "leverage"});
  const auto field = [](const std::optional<double>& value) { return value ? exact(*value) : ""; };
  for (const std::size_t i : findings.order) {
    const Effect& e = findings.effects.all()[i];
    table.add({std::to_string(job.train.rows[i]), job.label_text(job.train.y.values()[i]), field(e.removal),
               e.standard_error > 0 ? exact(e.standard_error) : "", exact(e.derivative), exact(findings.effects.losses()[i]),
               field(findings.own_loss(i)), field(findings.leverage(i))});
  }
  return table.text();
}

}  // namespace onestep::app::jobs
