// Draws the losses that were tried, and hyperparameters sorted by size.
#include "jobs/tune_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "jobs/model.h"

namespace onestep::app::jobs {

std::vector<std::size_t> ascending(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return values[i]; });
  return order;
}

page::Figure curve_figure(const std::string& hyper, const Outcome& search, const std::vector<Tried>& before,
                          const std::vector<Tried>& grid) {
  std::vector<Tried> path, all;
  for (const OuterIteration& i : search.history) path.emplace_back(i.theta[0], i.value);
  for (const std::vector<Tried>* some : {&before, &std::as_const(path), &grid})
    all.insert(all.end(), some->begin(), some->end());
  std::ranges::sort(all);
  const auto panel = [&](const std::string& title, double low, double high) {
    const auto within = [&](page::Series series, const std::vector<Tried>& points) {
      for (const auto& [at, loss] : points)
        if (at >= low && at <= high && std::isfinite(loss)) series.x.push_back(at), series.y.push_back(loss);
      return series;
    };
    return page::Panel{.title = title,
                       .x = {hyper, true},
                       .y = {"validation loss"},
                       .series = {within({.label = "tried", .method = "none", .mark = "rule"}, all),
                                  within({.label = "grid", .method = "bound", .mark = "points"}, grid),
                                  within({.label = "search", .method = "one_step", .mark = "points"}, path)}};
  };
  const double end = search.theta[0].item();
  return {"curve",
          "Validation loss against the hyperparameter",
          fmt::format("The line joins all that was tried{}. The search ends at {}.",
                      grid.empty() ? "" : fmt::format(", the grid's {} points among it", grid.size()), shown(end)),
          {panel("All that was tried", 0, std::numeric_limits<double>::infinity()),
           panel("Near the end of the search", end / 6, end * 6)}};
}

page::Figure values_figure(const std::string& hyper, const std::vector<std::string>& names,
                           const std::vector<double>& values, double start) {
  constexpr std::size_t most = 30;
  page::Series found{.label = "", .method = "one_step", .mark = "points"},
      begun{.label = "start", .method = "none", .mark = "rule"};
  page::Panel panel{.title = "", .x = {hyper, true}, .y = {""}};
  for (const std::size_t i : ascending(values)) {
    found.x.push_back(values[i]);
    found.y.push_back(static_cast<double>(found.x.size()));
    if (values.size() <= most) panel.y.names.push_back(names[i]);
  }
  begun.x = {start, start}, begun.y = {0.3, static_cast<double>(values.size()) + 0.7};
  if (values.size() > most) {
    std::swap(found.x, found.y), std::swap(begun.x, begun.y);
    found.mark = "line";
    panel.x = {"rank"}, panel.y = {hyper, true};
  }
  panel.series = {begun, found};
  return {"hyperparameters",
          "Hyperparameters found",
          fmt::format("In ascending order; the dashed line is where all of them started, {}.", shown(start)),
          {panel}};
}

}  // namespace onestep::app::jobs
