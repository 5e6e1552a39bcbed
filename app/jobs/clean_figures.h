// What the page of `clean` draws.
#pragma once

#include <optional>
#include <vector>

#include "jobs/cleaning.h"
#include "page/figure.h"

namespace onestep::app::jobs {

/// How many of the flipped labels a look at the samples in the order of suspicion finds.
struct Found {
  std::size_t flipped = 0, suspects = 0, right = 0;
  double precision = 0, recall = 0, f1 = 0;
  /// Probability that a flipped label ranks before one that was not; none where all are flipped.
  std::optional<double> auc = {};
};
Found found(const std::vector<bool>& flipped, const Judgement& judgement);

/// Precision and recall along the order of suspicion, and the flipped labels among the first samples of it.
page::Figure found_figure(const std::vector<bool>& flipped, const std::vector<std::size_t>& order, std::size_t suspects);

/// The probabilities of the labels in ascending order; of those that were flipped and of the others where some were.
page::Figure quality_figure(const Judgement& judgement, const std::vector<bool>& flipped);

}  // namespace onestep::app::jobs
