// Computes the scores from the outputs of a model.
#include "jobs/scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "jobs/model.h"

namespace onestep::app::jobs {

namespace {

std::size_t width_of(const Array& a) { return a.shape().rank() == 2 ? static_cast<std::size_t>(a.shape()[1]) : 1; }

double log_sum_exp(std::span<const double> row) {
  const double largest = std::ranges::max(row);
  double sum = 0;
  for (const double z : row) sum += std::exp(z - largest);
  return largest + std::log(sum);
}

double softplus(double z) { return std::max(z, 0.0) + std::log1p(std::exp(-std::fabs(z))); }

double loss_at(Loss loss, std::span<const double> z, double y) {
  if (loss == Loss::logistic) return softplus(-y * z[0]);
  if (loss == Loss::ridge) return 0.5 * (z[0] - y) * (z[0] - y);
  return log_sum_exp(z) - z[static_cast<std::size_t>(y)];
}

void score_quantity(Scores& scores, std::span<const double> z, std::span<const double> y) {
  const auto count = static_cast<double>(y.size());
  double squares = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    squares += (z[i] - y[i]) * (z[i] - y[i]);
    scores.mae += std::fabs(z[i] - y[i]) / count;
  }
  scores.rmse = std::sqrt(squares / count);
  scores.r2 = r_squared(z, y);
}

// Groups of about the same size, samples with the same probability in one.
void calibrate(Scores& scores, const std::vector<double>& predicted, const std::vector<bool>& came_true) {
  constexpr std::size_t most = 10;
  constexpr double same = 1e-9;
  std::vector<std::size_t> order(predicted.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return predicted[i]; });
  const std::size_t groups = std::min(most, order.size());
  for (std::size_t begin = 0, end = 0, g = 0; g < groups; ++g, begin = end) {
    end = std::max(end, (g + 1) * order.size() / groups);
    while (end > begin && end < order.size() && predicted[order[end]] - predicted[order[end - 1]] <= same) ++end;
    if (end == begin) continue;
    CalibrationGroup group{.count = end - begin};
    for (std::size_t k = begin; k < end; ++k) {
      group.predicted += predicted[order[k]] / static_cast<double>(group.count);
      group.observed += (came_true[order[k]] ? 1.0 : 0.0) / static_cast<double>(group.count);
    }
    scores.calibration_error +=
        std::fabs(group.predicted - group.observed) * static_cast<double>(group.count) / static_cast<double>(order.size());
    scores.calibration.push_back(group);
  }
}

void score_classes(Scores& scores, const JobData& job, const Array& prediction, std::span<const double> y) {
  const std::size_t K = job.labels.size();
  const Array probabilities = class_probabilities(job.loss, prediction);
  const std::vector<std::size_t> likeliest = likeliest_classes(job.loss, prediction);
  const auto count = static_cast<double>(y.size());
  const auto probability = [&](std::size_t i, std::size_t k) { return probabilities.values()[i * K + k]; };
  scores.confusion.assign(K, std::vector<std::size_t>(K));
  std::vector<double> sure;
  std::vector<bool> right;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t k = job.class_of(y[i]);
    ++scores.confusion[k][likeliest[i]];
    // Of two classes that of one of them, as usual.
    for (std::size_t l = K == 2 ? 1 : 0; l < K; ++l)
      scores.brier += std::pow(probability(i, l) - (l == k ? 1 : 0), 2) / count;
    sure.push_back(K == 2 ? probability(i, 1) : probability(i, likeliest[i]));
    right.push_back(K == 2 ? k == 1 : likeliest[i] == k);
  }
  double present = 0;
  std::size_t correct = 0;
  for (std::size_t k = 0; k < K; ++k) {
    const auto all = static_cast<double>(std::reduce(scores.confusion[k].begin(), scores.confusion[k].end()));
    correct += scores.confusion[k][k];
    if (all == 0) continue;
    scores.balanced += static_cast<double>(scores.confusion[k][k]) / all;
    present += 1;
  }
  scores.accuracy = static_cast<double>(correct) / count;  // 1 where all are, to the last bit
  scores.balanced /= std::max(1.0, present);
  calibrate(scores, sure, right);
  double sum = 0, areas = 0;
  for (std::size_t k = K == 2 ? 1 : 0; k < K; ++k) {
    std::vector<double> values;
    std::vector<bool> in_class;
    for (std::size_t i = 0; i < y.size(); ++i) {
      values.push_back(K == 2 ? prediction.values()[i * width_of(prediction) + width_of(prediction) - 1] -
                                    (width_of(prediction) == 2 ? prediction.values()[2 * i] : 0)
                              : probability(i, k));
      in_class.push_back(job.class_of(y[i]) == k);
    }
    if (const std::optional<double> area = auc_of(values, in_class)) sum += *area, areas += 1;
  }
  if (areas > 0) scores.auc = sum / areas;
}

}  // namespace

std::optional<double> auc_of(const std::vector<double>& values, const std::vector<bool>& in_class) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return values[i]; });
  double ranks = 0;
  const auto count = static_cast<double>(std::ranges::count(in_class, true)),
             rest = static_cast<double>(values.size()) - count;
  if (count == 0 || rest == 0) return std::nullopt;
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double rank = 0.5 * static_cast<double>(begin + 1 + end);
    for (std::size_t k = begin; k < end; ++k) ranks += in_class[order[k]] ? rank : 0;
    begin = end;
  }
  return (ranks - 0.5 * count * (count + 1)) / (count * rest);
}

Array linear_prediction(const Array& A, const Array& x) {
  const auto n = static_cast<std::size_t>(A.shape()[1]), N = static_cast<std::size_t>(A.shape()[0]), K = width_of(x);
  const std::span<const double> a = A.values(), c = x.values();
  std::vector<double> z(N * K);
  for (std::size_t i = 0; i < N; ++i)
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t k = 0; k < K; ++k) z[i * K + k] += a[i * n + j] * c[j * K + k];
  return {x.shape().rank() == 2 ? Shape{A.shape()[0], x.shape()[1]} : Shape{A.shape()[0]}, std::move(z)};
}

void require_finite(const JobData& job, const Samples& samples, const Array& x, const Array& prediction,
                    const std::string& file) {
  constexpr double most = 1e150;  // whose squares are finite
  const std::span<const double> z = prediction.values();
  const auto wrong = std::ranges::find_if_not(z, [](double v) { return std::fabs(v) <= most; });
  if (wrong == z.end()) return;
  const std::size_t K = width_of(prediction), n = job.features.size(), place = static_cast<std::size_t>(wrong - z.begin()),
                    i = place / K;
  std::size_t largest = 0;
  const auto term = [&](std::size_t j) {
    const double size = std::fabs(samples.A.values()[i * (n + 1) + j] * x.values()[j * K + place % K]);
    return std::isnan(size) ? INFINITY : size;
  };
  for (std::size_t j = 1; j < n; ++j)
    if (term(j) > term(largest)) largest = j;
  throw Misuse(fmt::format(
      "{}: the value of {} in sample {} is too large for a prediction, which overflows; correct it, or leave the "
      "sample out",
      file, job.features[largest], samples.rows[i]));
}

Array class_probabilities(Loss loss, const Array& prediction) {
  std::vector<double> all;
  const std::span<const double> z = prediction.values();
  if (loss == Loss::logistic) {
    for (const double v : z) all.insert(all.end(), {1 / (1 + std::exp(v)), 1 / (1 + std::exp(-v))});
    return {Shape{prediction.shape()[0], 2}, std::move(all)};
  }
  const std::size_t K = width_of(prediction);
  for (std::size_t i = 0; i < z.size(); i += K) {
    const double scale = log_sum_exp(z.subspan(i, K));
    for (std::size_t k = 0; k < K; ++k) all.push_back(std::exp(z[i + k] - scale));
  }
  return {prediction.shape(), std::move(all)};
}

std::vector<std::size_t> likeliest_classes(Loss loss, const Array& prediction) {
  const std::size_t K = width_of(prediction);
  const std::span<const double> z = prediction.values();
  std::vector<std::size_t> classes;
  for (std::size_t i = 0; i < z.size(); i += K) {
    const auto row = z.subspan(i, K);
    classes.push_back(loss == Loss::logistic ? (z[i] > 0 ? 1U : 0U)
                                             : static_cast<std::size_t>(std::ranges::max_element(row) - row.begin()));
  }
  return classes;
}

std::vector<double> losses_of(Loss loss, const Array& prediction, const Array& y) {
  const std::size_t K = width_of(prediction);
  std::vector<double> losses;
  for (std::size_t i = 0; i < y.values().size(); ++i)
    losses.push_back(loss_at(loss, prediction.values().subspan(i * K, K), y.values()[i]));
  return losses;
}

Scores scores_of(const JobData& job, const Array& prediction, const Array& y) {
  if (!std::ranges::all_of(prediction.values(), [](double z) { return std::isfinite(z); }))
    throw Misuse(fmt::format("{}: a prediction of the {} model overflows, as values of a feature differ too much in size",
                             job.name, name_of(job.loss)));
  const auto N = static_cast<std::size_t>(y.size());
  Scores scores{.samples = N};
  double squares = 0;
  const std::vector<double> losses = losses_of(job.loss, prediction, y);
  for (const double loss : losses) scores.loss += loss / static_cast<double>(N);
  for (const double loss : losses) squares += (loss - scores.loss) * (loss - scores.loss);
  if (N > 1) scores.loss_error = std::sqrt(squares / static_cast<double>(N - 1) / static_cast<double>(N));
  if (job.loss == Loss::ridge)
    score_quantity(scores, prediction.values(), y.values());
  else
    score_classes(scores, job, prediction, y.values());
  return scores;
}

Json json_of(const JobData& job, const Scores& s) {
  Json json = {{"samples", s.samples}, {"loss", s.loss}};
  if (job.loss == Loss::ridge) {
    json.update({{"R2", s.r2}, {"rmse", s.rmse}, {"mae", s.mae}});
  } else {
    json.update({{"accuracy", s.accuracy},
                 {"balanced_accuracy", s.balanced},
                 {"auc", s.auc ? Json(*s.auc) : Json()},
                 {"brier", s.brier},
                 {"calibration_error", s.calibration_error},
                 {"confusion", s.confusion}});
    Json& groups = json["calibration"] = Json::array();
    for (const CalibrationGroup& g : s.calibration)
      groups.push_back({{"count", g.count}, {"predicted", g.predicted}, {"observed", g.observed}});
  }
  json["loss_standard_error"] = s.loss_error;
  return json;
}

page::Table score_table(const JobData& job, const std::vector<NamedScores>& all) {
  page::Table table{.id = "scores", .title = "Scores", .caption = "", .columns = {"samples", "count", "mean loss"}};
  const bool quantity = job.loss == Loss::ridge;
  if (quantity)
    table.columns.insert(table.columns.end(), {"R2", "RMSE", "mean absolute error"});
  else
    table.columns.insert(table.columns.end(), {"accuracy", "balanced accuracy", "AUC", "calibration error"});
  for (const auto& [name, s] : all) {
    table.rows.push_back({name, std::to_string(s.samples), shown(s.loss)});
    auto& row = table.rows.back();
    if (quantity)
      row.insert(row.end(), {score_text(s.r2), shown(s.rmse), shown(s.mae)});
    else
      row.insert(row.end(), {fmt::format("{:.4f}", s.accuracy), fmt::format("{:.4f}", s.balanced),
                             s.auc ? fmt::format("{:.4f}", *s.auc) : "", fmt::format("{:.4f}", s.calibration_error)});
  }
  return table;
}

std::optional<page::Table> confusion_table(const JobData& job, const NamedScores& scores) {
  constexpr std::size_t most = 10;
  const std::size_t K = job.labels.size();
  if (K > most) return std::nullopt;
  page::Table table{.id = "confusion",
                    .title = fmt::format("Confusion, {}", scores.name),
                    .caption = "A row for each class that samples have, a column for each that the model finds.",
                    .columns = {"has"}};
  table.is_matrix = true;
  for (std::size_t k = 0; k < K; ++k) table.columns.push_back("found " + job.label_text(job.y_of(k)));
  for (std::size_t k = 0; k < K; ++k) {
    table.rows.push_back({job.label_text(job.y_of(k))});
    for (const std::size_t count : scores.scores.confusion[k]) table.rows.back().push_back(std::to_string(count));
  }
  return table;
}

page::Figure calibration_figure(const JobData& job, const NamedScores& scores) {
  page::Series groups{.label = "", .method = "one_step"}, right{.label = "", .method = "none", .mark = "rule"};
  for (const CalibrationGroup& g : scores.scores.calibration) {
    groups.x.push_back(g.predicted);
    groups.y.push_back(g.observed);
  }
  right.x = right.y = {0, 1};
  const std::string what = job.labels.size() == 2 ? fmt::format("probability of {}", job.label_text(job.y_of(1)))
                                                  : std::string("probability of the likeliest class");
  return {
      "calibration",
      "Whether probabilities mean what they say",
      fmt::format("The {} samples ({}) in {} groups by the predicted {}. On the dashed line it comes true as often as was "
                  "predicted.",
                  scores.scores.samples, scores.name, groups.x.size(), what),
      {page::Panel{.title = "", .x = {"predicted " + what}, .y = {"share that has it"}, .series = {right, groups}}}};
}

}  // namespace onestep::app::jobs
