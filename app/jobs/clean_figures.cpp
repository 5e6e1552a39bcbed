// How many flipped labels are found, and how the models with and without the suspects do.
#include "jobs/clean_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "jobs/scores.h"

namespace onestep::app::jobs {

Found found(const std::vector<bool>& flipped, const Judgement& judgement) {
  Found f;
  std::vector<bool> is_good;
  for (std::size_t i = 0; i < flipped.size(); ++i) {
    f.flipped += flipped[i] ? 1 : 0;
    f.suspects += judgement.suspects[i] ? 1 : 0;
    f.right += flipped[i] && judgement.suspects[i] ? 1 : 0;
    is_good.push_back(!flipped[i]);
  }
  const auto right = static_cast<double>(f.right);
  f.precision = f.suspects > 0 ? right / static_cast<double>(f.suspects) : 0;
  f.recall = f.flipped > 0 ? right / static_cast<double>(f.flipped) : 0;
  f.f1 = f.right > 0 ? 2 * right / static_cast<double>(f.suspects + f.flipped) : 0;
  f.auc = auc_of(judgement.quality, is_good);
  return f;
}

page::Figure found_figure(const std::vector<bool>& flipped, const std::vector<std::size_t>& order, std::size_t suspects) {
  const auto flips = static_cast<double>(std::ranges::count(flipped, true)), all = static_cast<double>(order.size());
  page::Series precision{.label = "", .method = "one_step"}, hits{.label = "found", .method = "one_step"},
      threshold{.label = "suspects", .method = "iterates", .mark = "points"},
      chance{.label = "by chance", .method = "none", .mark = "rule", .x = {0, 1}, .y = {flips / all, flips / all}},
      ideal{.label = "at best", .method = "estimate", .mark = "rule", .x = {0, flips, all}, .y = {0, flips, flips}},
      drawn{.label = "by chance", .method = "none", .mark = "rule", .x = {0, all}, .y = {0, flips}};
  page::Series threshold_hits = threshold;
  double right = 0;
  for (std::size_t k = 1; k <= order.size(); ++k) {
    const auto looked_at = static_cast<double>(k);
    right += flipped[order[k - 1]] ? 1 : 0;
    precision.x.push_back(right / flips), precision.y.push_back(right / looked_at);
    hits.x.push_back(looked_at), hits.y.push_back(right);
    if (k == suspects) {
      threshold.x = {right / flips}, threshold.y = {right / looked_at};
      threshold_hits.x = {looked_at}, threshold_hits.y = {right};
    }
  }
  return {
      "found",
      "How well flipped labels are found",
      fmt::format("Samples in the order of suspicion: by the probability of their label under fits without them. {} of "
                  "{} labels were flipped.",
                  flips, order.size()),
      {page::Panel{
           .title = "Precision and recall", .x = {"recall"}, .y = {"precision"}, .series = {chance, precision, threshold}},
       page::Panel{.title = "Flipped labels among the first suspects",
                   .x = {"samples looked at"},
                   .y = {"flipped ones among them"},
                   .series = {ideal, drawn, hits, threshold_hits}}}};
}

page::Figure quality_figure(const Judgement& judgement, const std::vector<bool>& flipped) {
  const auto curve = [&](const char* label, const char* method, const auto& counts) {
    page::Series s{.label = label, .method = method};
    for (std::size_t i = 0; i < judgement.quality.size(); ++i)
      if (counts(i)) s.y.push_back(judgement.quality[i]);
    std::ranges::sort(s.y);
    for (std::size_t i = 0; i < s.y.size(); ++i)
      s.x.push_back((static_cast<double>(i) + 0.5) / static_cast<double>(s.y.size()));
    return s;
  };
  page::Panel panel{.title = "", .x = {"share of the samples"}, .y = {"probability of the label"}};
  if (flipped.empty())
    panel.series = {curve("", "one_step", [](std::size_t) { return true; })};
  else
    panel.series = {curve("flipped", "one_step", [&](std::size_t i) { return flipped[i]; }),
                    curve("not flipped", "bound", [&](std::size_t i) { return !flipped[i]; })};
  return {"quality",
          "How probable the labels are",
          "The probability that fits without the sample give to its label, in ascending order.",
          {panel}};
}

}  // namespace onestep::app::jobs
