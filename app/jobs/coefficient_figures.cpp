// The clearest coefficients of a model, sorted, with their standard errors.
#include "jobs/coefficient_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "jobs/model.h"

namespace onestep::app::jobs {

namespace {

// The coefficients that are surest not to be zero, or without standard errors the largest.
std::vector<std::size_t> clearest(const LinearModel& m, const std::optional<std::vector<double>>& errors) {
  std::vector<std::size_t> order(m.x.values().size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto weight = [&](std::size_t i) {
    return std::fabs(m.x.values()[i]) / (errors && (*errors)[i] > 0 ? (*errors)[i] : 1.0);
  };
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return weight(a) > weight(b); });
  order.resize(std::min<std::size_t>(order.size(), 20));
  return order;
}

std::size_t class_count(const LinearModel& m) {
  return m.x.shape().rank() == 2 ? static_cast<std::size_t>(m.x.shape()[1]) : 1;
}

std::string title_of(const LinearModel& m, std::size_t listed, bool errors) {
  const std::size_t all = m.x.values().size();
  return listed == all ? "Coefficients"
                       : fmt::format("Coefficients, the {} {} of {}", listed, errors ? "clearest" : "largest", all);
}

}  // namespace

page::Table coefficient_table(const JobData& job, const LinearModel& m, const std::optional<std::vector<double>>& errors) {
  const std::size_t K = class_count(m);
  const std::vector<std::size_t> order = clearest(m, errors);
  page::Table table{
      .id = "coefficients",
      .title = title_of(m, order.size(), errors.has_value()),
      .caption =
          errors ? "Standard errors from the Hessian; the ratio says how many of them the coefficient is from 0." : ""};
  table.columns = K > 1 ? std::vector<std::string>{"feature", "class", "coefficient"}
                        : std::vector<std::string>{"feature", "coefficient"};
  if (errors) table.columns.insert(table.columns.end(), {"standard error", "ratio"});
  const auto add = [&](const std::string& name, std::size_t k, double value, std::size_t place) {
    std::vector<std::string> row{name};
    if (K > 1) row.push_back(job.label_text(job.y_of(k)));
    row.push_back(shown(value));
    if (errors) {
      const double e = (*errors)[place];
      row.insert(row.end(), {shown(e), e > 0 ? fmt::format("{:.1f}", value / e) : ""});
    }
    table.rows.push_back(row);
  };
  for (const std::size_t i : order) add(job.features[i / K], i % K, m.x.values()[i], i);
  for (std::size_t k = 0; k < K; ++k) add("intercept", k, m.intercept.values()[k], m.x.values().size() + k);
  return table;
}

// The same ones in the same order, for a standard deviation of each feature, with bars of two standard errors to each side.
page::Figure coefficient_figure(const JobData& job, const LinearModel& m, const std::optional<std::vector<double>>& errors) {
  const std::size_t K = class_count(m);
  const std::vector<std::size_t> order = clearest(m, errors);
  const Scaling of_columns = standardisation_with_ones(job.train.A);
  const auto deviation = [&](std::size_t feature) {
    return of_columns.scale.values()[feature] * (job.scaling ? job.scaling->scale.values()[feature] : 1.0);
  };
  page::Series bars{.label = "", .method = "one_step", .mark = "bars"}, zero{.label = "", .method = "none", .mark = "rule"};
  page::Panel panel{.title = "", .x = {"coefficient times the feature's standard deviation"}, .y = {""}};
  for (const std::size_t i : order) {
    const double unit = deviation(i / K), value = m.x.values()[i] * unit, error = errors ? 2 * (*errors)[i] * unit : 0;
    bars.x.push_back(value);
    bars.y.push_back(static_cast<double>(bars.x.size()));
    bars.low.push_back(value - error);
    bars.high.push_back(value + error);
    panel.y.names.push_back(K > 1 ? fmt::format("{}, {}", job.features[i / K], job.label_text(job.y_of(i % K)))
                                  : job.features[i / K]);
  }
  zero.x = {0, 0};
  zero.y = {0.3, static_cast<double>(order.size()) + 0.7};
  panel.series = {zero, bars};
  const char* of = job.loss == Loss::ridge ? "the prediction" : K > 1 ? "the score of the class" : "the log odds";
  return {
      "coefficients",
      title_of(m, order.size(), errors.has_value()),
      fmt::format("What a standard deviation more of the feature adds to {}, in the order of the table, which is for the "
                  "features' own units. {}",
                  of, errors ? "Bars reach two standard errors to each side." : "Without standard errors."),
      {panel}};
}

// A picture for each class: what speaks for it is white, what speaks against it black.
page::Gallery coefficient_gallery(const JobData& job, const LinearModel& m) {
  const std::size_t K = class_count(m), n = m.x.values().size() / K;
  page::Gallery gallery{
      "classes", "What the model looks for",
      "The coefficients of each class as a picture: light pixels speak for the class, dark ones against it."};
  for (std::size_t k = 0; k < K; ++k) {
    double largest = 0;
    for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(m.x.values()[i * K + k]));
    page::Picture picture{.pixels = {}, .lines = {job.label_text(job.y_of(k))}};
    for (std::size_t i = 0; i < n; ++i) {
      const double share = largest > 0 ? m.x.values()[i * K + k] / largest : 0;
      picture.pixels.push_back(static_cast<std::uint8_t>(std::lround(127.5 + 127 * share)));
    }
    gallery.pictures.push_back(std::move(picture));
  }
  return gallery;
}

}  // namespace onestep::app::jobs
