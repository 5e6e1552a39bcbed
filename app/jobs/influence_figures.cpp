// Slope and correlation of predictions with trainings, and the figures of both.
#include "jobs/influence_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>

namespace onestep::app::jobs {

double bonferroni_errors(std::size_t tests) {
  const double allowed = 0.05 / static_cast<double>(std::max<std::size_t>(tests, 1));
  double low = 0, high = 40;
  for (int step = 0; step < 100; ++step) {
    const double middle = 0.5 * (low + high);
    (std::erfc(middle / std::numbers::sqrt2) > allowed ? low : high) = middle;
  }
  return high;
}

Agreement agreement(const std::vector<Retrained>& all, double Retrained::*predicted) {
  const auto count = static_cast<double>(all.size());
  double mean_p = 0, mean_a = 0, pp = 0, aa = 0, pa = 0, squares = 0, products = 0;
  for (const Retrained& r : all) mean_p += r.*predicted / count, mean_a += r.actual / count;
  std::vector<double> errors;
  for (const Retrained& r : all) {
    const double p = r.*predicted - mean_p, a = r.actual - mean_a;
    pp += p * p, aa += a * a, pa += p * a;
    squares += r.*predicted * r.*predicted, products += r.*predicted * r.actual;
    if (r.actual != 0) errors.push_back(std::fabs(r.*predicted / r.actual - 1));
  }
  std::ranges::sort(errors);
  constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  return {.correlation = pp > 0 && aa > 0 ? pa / std::sqrt(pp * aa) : unknown,
          .slope = squares > 0 ? products / squares : unknown,
          .median_error = errors.empty() ? unknown : errors[errors.size() / 2],
          .largest_error = errors.empty() ? unknown : errors.back()};
}

std::string text_of(const Agreement& a) {
  if (!std::isfinite(a.correlation) || !std::isfinite(a.slope)) return "too few changes, or too small, to compare";
  return fmt::format("correlation {:.4f}, actual over predicted {:.3f}, error {:.1f}% (median) and {:.1f}% (largest)",
                     a.correlation, a.slope, 100 * a.median_error, 100 * a.largest_error);
}

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json json_of(const Agreement& a) {
  return {{"correlation", number_or_null(a.correlation)},
          {"slope", number_or_null(a.slope)},
          {"median_error", number_or_null(a.median_error)},
          {"largest_error", number_or_null(a.largest_error)}};
}

page::Figure ranking_figure(const std::vector<double>& removals, const std::vector<double>& certainties) {
  page::Series harmful{.label = "harmful", .method = "one_step"}, helpful{.label = "helpful", .method = "bound"},
      certain{.label = "effect", .method = "one_step", .mark = "points"};
  const auto N = static_cast<double>(removals.size());
  for (std::size_t i = 0; i < removals.size(); ++i) {
    page::Series& one = removals[i] < 0 ? harmful : helpful;
    one.x.push_back(static_cast<double>(i + 1)), one.y.push_back(removals[i]);
    certain.x.push_back(static_cast<double>(i + 1)), certain.y.push_back(certainties[i]);
  }
  const page::Series low{.label = "two standard errors", .method = "none", .mark = "rule", .x = {1, N}, .y = {-2, -2}},
      high{.label = "", .method = "none", .mark = "rule", .x = {1, N}, .y = {2, 2}};
  return {"ranking",
          "What each sample does",
          fmt::format("How the mean loss of unseen samples changes without each of {} samples, and the same over its "
                      "standard error: between the lines it cannot be told from chance.",
                      removals.size()),
          {page::Panel{.title = "Most harmful first",
                       .x = {"rank"},
                       .y = {"change of the loss without the sample"},
                       .series = {harmful, helpful}},
           page::Panel{.title = "In standard errors",
                       .x = {"rank"},
                       .y = {"change over its standard error"},
                       .series = {low, high, certain}}}};
}

page::Figure own_loss_figure(const std::vector<double>& losses, const std::vector<double>& leverages) {
  page::Series ranked{.label = "own loss", .method = "one_step"};
  for (std::size_t i = 0; i < losses.size(); ++i)
    ranked.x.push_back(static_cast<double>(i + 1)), ranked.y.push_back(losses[i]);
  page::Figure figure{
      "own_losses",
      "How well the others predict each sample",
      fmt::format(
          "The loss of each of {} samples by a fit without it: what is far above the others may be an outlier or have a "
          "wrong label.",
          losses.size()),
      {page::Panel{
          .title = "Largest first", .x = {"rank"}, .y = {"loss by the fit without the sample"}, .series = {ranked}}}};
  if (leverages.size() == losses.size())
    figure.panels.push_back(
        {.title = "And leverage",
         .x = {"leverage"},
         .y = {"loss by the fit without the sample"},
         .series = {{.label = "sample", .method = "one_step", .mark = "points", .x = leverages, .y = losses}}});
  return figure;
}

page::Figure verification_figure(const std::vector<Retrained>& all) {
  page::Series removal{.label = "with leverage", .method = "one_step", .mark = "points"},
      derivative{.label = "minus the derivative", .method = "bound", .mark = "points"},
      line{.label = "as predicted", .method = "none", .mark = "rule"};
  double low = 0, high = 0;
  for (const Retrained& one : all) {
    removal.x.push_back(one.removal), removal.y.push_back(one.actual);
    derivative.x.push_back(one.derivative), derivative.y.push_back(one.actual);
    low = std::min({low, one.removal, one.derivative}), high = std::max({high, one.removal, one.derivative});
  }
  line.x = line.y = {low, high};
  return {
      "verify",
      "Predicted and actual change of the loss",
      fmt::format("Each point: the fits made again without one of the {} samples with the largest effect. Predicted "
                  "with leverage: {}.",
                  all.size(), text_of(agreement(all, &Retrained::removal))),
      {page::Panel{.title = "", .x = {"predicted change"}, .y = {"actual change"}, .series = {line, removal, derivative}}}};
}

}  // namespace onestep::app::jobs
