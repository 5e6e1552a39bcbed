// onestep fit FILE: a linear model with its coefficients, their standard errors and its scores.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "jobs/coefficients.h"
#include "jobs/model.h"
#include "jobs/report.h"
#include "jobs/samples.h"
#include "verbs.h"

namespace onestep::app {

namespace {

using namespace jobs;

struct Fitted {
  Array x, gradient;
  double objective = 0;
  Status status = Status::converged;
  std::string message;
  Statistics statistics;
};

// What is minimised: the sum of losses, and the penalty.
Expr objective(const Model& model, const JobData& job, double l2, const Expr& x) {
  return sum(model.losses(job.train, x)) + model.penalty(x, l2);
}

Fitted fit(const JobOptions& options, const JobData& job, Model& model, Progress& progress) {
  progress.begin("fit: first iteration");
  const auto begin = std::chrono::steady_clock::now();
  model.get_ready(job.train, options.l2());
  SolveOptions how;
  how.callback = [&](const Iteration& i) {
    progress.show(
        [&] { return fmt::format("fit: iteration {}, step {:.1e}, objective {}", i.number, i.step, shown(i.value)); });
    return stop_signal() == 0;
  };
  const auto f = [&](Expr x) { return objective(model, job, options.l2(), x); };
  const Solution s = solve(model.solver(f, how), model.start(), Parts());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::vector<Array> at = evaluate(trace(
                                             [&](Expr x) {
                                               return std::pair{f(x), grad(f(x), x)};
                                             },
                                             model.shape()),
                                         {s.x()});
  Fitted fitted{s.x(), at[1], at[0].item(), s.status(), s.message(), s.statistics()};
  fitted.statistics.seconds = seconds;
  return fitted;
}

// ---- standard errors ----

// The Hessian row by row; by products where x is a matrix.
Array hessian_at(const Model& model, const JobData& job, double l2, const Array& x) {
  const auto f = [&](const Expr& at) { return objective(model, job, l2, at); };
  if (model.loss() != Loss::softmax)
    return evaluate(trace([&](Expr at) { return hessian(f(at), at); }, model.shape()), {x})[0];
  const Plan plan(trace([&](Expr at, Expr v) { return hvp(f(at), at, v); }, model.shape(), model.shape()),
                  {.levels = {1, 2}});
  Workspace workspace = plan.workspace();
  const auto size = static_cast<std::size_t>(model.unknowns());
  std::vector<double> unit(size), rows(size * size);
  for (std::size_t i = 0; i < size; ++i) {
    unit[i] = 1;
    const Array v = Array::view(MatrixView{unit.data(), model.shape()[0], model.shape()[1], model.shape()[1], 1});
    plan.run(workspace, {x, v}, {std::span(rows).subspan(i * size, size)}, i == 0 ? 0 : 2);
    unit[i] = 0;
  }
  return {Shape{model.unknowns(), model.unknowns()}, std::move(rows)};
}

// The square roots of the diagonal of T H⁻¹ Tᵀ, with T from coefficients of standardised features to those of the features
// as they were; for squared losses times the residual variance. None where there are too many, or H is singular.
std::optional<std::vector<double>> standard_errors(const Model& model, const JobData& job, double l2, const Fitted& fitted) {
  constexpr std::int64_t most = 1500;
  const std::int64_t size = model.unknowns(), n = job.n(), K = model.loss() == Loss::softmax ? model.shape()[1] : 1;
  if (size > most) return std::nullopt;
  const Array H = hessian_at(model, job, l2, fitted.x);
  const Array C = evaluate(trace([&](Expr h) { return solve(cholesky(h), eye(size)); }, Shape{size, size}), {H})[0];
  double variance = 1;
  if (model.loss() == Loss::ridge) {
    const double rest = 2 * model.score(job.train, fitted.x).loss * static_cast<double>(job.train.count());
    variance = rest / static_cast<double>(std::max<std::int64_t>(1, job.train.count() - n - 1));
  }
  std::vector<double> errors(static_cast<std::size_t>(size));
  for (std::int64_t k = 0; k < K; ++k) {
    const auto entry = [&](std::int64_t i, std::int64_t j) { return C(i * K + k, j * K + k); };
    // What holds the sum of softmax's intercepts at zero is not information about them.
    const double gauge = K > 1 ? 1.0 / static_cast<double>(K * K) : 0.0;
    double intercept = entry(n, n) - gauge;
    if (job.scaling)
      for (std::int64_t i = 0; i < n; ++i) {
        const double t = job.scaling->mean(i) / job.scaling->scale(i);
        intercept -= 2 * t * entry(i, n);
        for (std::int64_t j = 0; j < n; ++j) intercept += t * entry(i, j) * job.scaling->mean(j) / job.scaling->scale(j);
      }
    for (std::int64_t i = 0; i < n; ++i)
      errors[static_cast<std::size_t>(i * K + k)] =
          std::sqrt(variance * entry(i, i)) / (job.scaling ? job.scaling->scale(i) : 1.0);
    errors[static_cast<std::size_t>(n * K + k)] = std::sqrt(variance * std::max(0.0, intercept));
  }
  if (!std::ranges::all_of(errors, [](double e) { return std::isfinite(e); })) return std::nullopt;
  return errors;
}

// ---- what is said ----

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

std::size_t classes_of(const LinearModel& m) {
  return m.x.shape().rank() == 2 ? static_cast<std::size_t>(m.x.shape()[1]) : 1;
}

std::string title_of(const LinearModel& m, std::size_t listed, bool errors) {
  const std::size_t all = m.x.values().size();
  return listed == all ? "Coefficients"
                       : fmt::format("Coefficients, the {} {} of {}", listed, errors ? "clearest" : "largest", all);
}

page::Table coefficient_table(const JobData& job, const LinearModel& m, const std::optional<std::vector<double>>& errors) {
  const std::size_t K = classes_of(m);
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
    if (K > 1) row.push_back(job.label_text(static_cast<double>(k)));
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

page::Table score_table(const JobData& job, const Model& model, const Array& x) {
  page::Table table{.id = "scores", .title = "Scores", .caption = "", .columns = {"samples", "count", "mean loss"}};
  table.columns.emplace_back(model.score_name());
  if (job.loss != Loss::ridge) table.columns.emplace_back("balanced accuracy");
  const auto add = [&](const char* name, const Samples& samples) {
    const Score s = model.score(samples, x);
    table.rows.push_back({name, std::to_string(samples.count()), shown(s.loss), fmt::format("{:.4f}", s.score)});
    if (job.loss != Loss::ridge) table.rows.back().push_back(fmt::format("{:.4f}", s.balanced));
  };
  add("training", job.train);
  if (job.test) add("test", *job.test);
  return table;
}

// The same ones, from the largest to the smallest, with bars of two standard errors to each side.
page::Figure coefficient_figure(const JobData& job, const LinearModel& m, const std::optional<std::vector<double>>& errors) {
  const std::size_t K = classes_of(m);
  std::vector<std::size_t> order = clearest(m, errors);
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return m.x.values()[i]; });
  page::Series bars{.label = "", .method = "one_step", .mark = "bars"}, zero{.label = "", .method = "none", .mark = "rule"};
  page::Panel panel{.title = "", .x = {"coefficient"}, .y = {""}};
  for (const std::size_t i : order) {
    const double value = m.x.values()[i], error = errors ? 2 * (*errors)[i] : 0;
    bars.x.push_back(value);
    bars.y.push_back(static_cast<double>(bars.x.size()));
    bars.low.push_back(value - error);
    bars.high.push_back(value + error);
    panel.y.names.push_back(K > 1 ? fmt::format("{}, {}", job.features[i / K], job.label_text(static_cast<double>(i % K)))
                                  : job.features[i / K]);
  }
  zero.x = {0, 0};
  zero.y = {0.3, static_cast<double>(order.size()) + 0.7};
  panel.series = {zero, bars};
  return {"coefficients",
          title_of(m, order.size(), errors.has_value()),
          errors ? "Bars reach two standard errors to each side." : "Without standard errors.",
          {panel}};
}

// A picture for each class: what speaks for it is white, what speaks against it black.
page::Gallery coefficient_gallery(const JobData& job, const LinearModel& m) {
  const std::size_t K = classes_of(m), n = m.x.values().size() / K;
  page::Gallery gallery{
      "classes", "What the model looks for",
      "The coefficients of each class as a picture: light pixels speak for the class, dark ones against it."};
  for (std::size_t k = 0; k < K; ++k) {
    double largest = 0;
    for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(m.x.values()[i * K + k]));
    page::Picture picture{.pixels = {}, .lines = {job.label_text(static_cast<double>(k))}};
    for (std::size_t i = 0; i < n; ++i) {
      const double share = largest > 0 ? m.x.values()[i * K + k] / largest : 0;
      picture.pixels.push_back(static_cast<std::uint8_t>(std::lround(127.5 + 127 * share)));
    }
    gallery.pictures.push_back(std::move(picture));
  }
  return gallery;
}

// Whether what is predicted with probability p comes true in a share p of the cases: ten groups of equal size.
page::Figure calibration(const JobData& job, const Array& x) {
  constexpr std::size_t most = 10;
  const Samples& judged = job.test ? *job.test : job.train;
  const Array z = evaluate(trace([&](Expr at) { return matmul(judged.A, at); }, x.shape()), {x})[0];
  std::vector<std::size_t> order(z.values().size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return z.values()[i]; });
  page::Series groups{.label = "", .method = "one_step"}, right{.label = "", .method = "none", .mark = "rule"};
  const std::size_t count = std::min(most, order.size());
  for (std::size_t g = 0; g < count; ++g) {
    const std::size_t begin = g * order.size() / count, end = (g + 1) * order.size() / count;
    double predicted = 0, true_ones = 0;
    for (std::size_t k = begin; k < end; ++k) {
      predicted += 1 / (1 + std::exp(-z.values()[order[k]]));
      true_ones += judged.y.values()[order[k]] > 0 ? 1 : 0;
    }
    groups.x.push_back(predicted / static_cast<double>(end - begin));
    groups.y.push_back(true_ones / static_cast<double>(end - begin));
  }
  right.x = right.y = {0, 1};
  return {
      "calibration",
      "Whether probabilities mean what they say",
      fmt::format(
          "The {} {} samples in {} groups by the predicted probability of the label {}. On the dashed line as many have it "
          "as was predicted.",
          order.size(), job.test ? "test" : "training", count, job.label_text(1)),
      {page::Panel{.title = "",
                   .x = {fmt::format("predicted probability of {}", job.label_text(1))},
                   .y = {"share that has it"},
                   .series = {right, groups}}}};
}

int run_fit(const JobOptions& options) {
  Progress progress(options);
  const JobData job = load(options, false, progress);
  Model model(job);
  const Fitted fitted = fit(options, job, model, progress);
  progress.begin("fit: standard errors");
  const auto errors = is_solution(fitted.status) ? standard_errors(model, job, options.l2(), fitted) : std::nullopt;
  const LinearModel m = raw(job, model, fitted.x);
  const std::int64_t K = model.loss() == Loss::softmax ? model.shape()[1] : 0;
  double gradient = 0;
  for (const double g : fitted.gradient.values()) gradient = std::max(gradient, std::fabs(g));

  std::string message = fitted.message;
  if (!is_solution(fitted.status) && options.l2() == 0)
    message += " Without a penalty there may be no best fit, or many: give --l2 above 0.";

  Json document = {{"verb", "fit"}};
  document.update(description(job));
  document.update({{"l2", options.l2()},
                   {"status", to_string(fitted.status)},
                   {"message", message},
                   {"iterations", fitted.statistics.iterations},
                   {"hessian_products", fitted.statistics.products},
                   {"seconds", fitted.statistics.seconds},
                   {"objective", fitted.objective},
                   {"gradient", gradient},
                   {"train", model.score_json(job.train, fitted.x)}});
  if (job.test) document["test"] = model.score_json(*job.test, fitted.x);
  document.update(json_of(job, m));
  if (job.loss == Loss::logistic) document["positive_label"] = job.label_text(1);
  if (errors) {
    const auto split = errors->size() - static_cast<std::size_t>(std::max<std::int64_t>(1, K));
    document["standard_errors_of"] = options.l2() > 0 ? "posterior" : "estimate";
    document["standard_errors"] = rows_to_json(std::span(*errors).first(split), K);
    document["intercept_standard_error"] = K > 0 ? rows_to_json(std::span(*errors).subspan(split), 0) : Json(errors->back());
  }

  const Score train = model.score(job.train, fitted.x);
  Report report{.verb = "fit",
                .title = fmt::format("A {} model of {}", name_of(job.loss), job.name),
                .asked = fmt::format("{}; {} loss, l2 = {}", description_text(job), name_of(job.loss), shown(options.l2()))};
  report.sentence = fmt::format(
      "{} in {} iterations, {}: objective {:.10g}, training {} {:.4f}{}.", to_string(fitted.status),
      fitted.statistics.iterations, seconds_text(fitted.statistics.seconds), fitted.objective, model.score_name(),
      train.score,
      job.test ? fmt::format(", test {} {:.4f}", model.score_name(), model.score(*job.test, fitted.x).score) : "");
  if (!is_solution(fitted.status)) report.sentence += fmt::format(" {}", message);
  report.tables = {score_table(job, model, fitted.x), coefficient_table(job, m, errors)};
  if (job.image_side > 0 && K > 0)
    report.galleries.push_back(coefficient_gallery(job, m));
  else
    report.figures.push_back(coefficient_figure(job, m, errors));
  if (job.loss == Loss::logistic) report.figures.push_back(calibration(job, fitted.x));
  if (job.loss == Loss::logistic)
    report.accuracy.push_back(fmt::format("Positive coefficients speak for the label {}, negative ones for {}.",
                                          job.label_text(1), job.label_text(-1)));
  report.accuracy.push_back(fmt::format("Largest entry of the gradient: {:.2g}.", gradient));
  if (errors && options.l2() > 0)
    report.accuracy.emplace_back(
        "Standard errors are from the Hessian of what is minimised, the penalty included: those of the posterior under the "
        "prior that the penalty stands for, which are smaller than those of an estimate without one (--l2 0).");
  if (!errors && is_solution(fitted.status))
    report.accuracy.emplace_back("No standard errors: the Hessian is too large to invert, or singular.");
  report.document = std::move(document);
  return show(options, report, fitted.status, progress);
}

}  // namespace

void add_fit(CommandLine& line) {
  auto options = std::make_shared<JobOptions>();
  line.add({.name = "fit",
            .job = "Fit a linear model: coefficients, standard errors, scores.",
            .example = "onestep fit --demo --loss logistic",
            .common = *options,
            .options = sample_options(*options, false),
            .work = [options] { return run_fit(*options); },
            .out_help = "write fit.json and a page into this folder, which is made if\nneeded"});
}

}  // namespace onestep::app
