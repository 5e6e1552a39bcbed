// Whether weights of groups of samples are worth having: decided by samples that the search for them has not seen.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "jobs/spread.h"

namespace onestep::app::jobs {

/// Weights that a search finds, beside equal ones, on samples that neither fits nor searches have seen.
struct GroupChoice {
  std::optional<SpreadScore> equal, weighted;  ///< none where nothing could be judged
  std::string note;                            ///< why nothing could be judged
  int solves = 0;

  bool keeps_equal() const { return weighted && !weighted->is_certain(); }
};

/// Repeats the search in each round, and scores the samples left out by the models with the weights found and with equal
/// ones.
GroupChoice judge_group_weights(const Hyper& hyper, const Model& model, const std::vector<Round>& rounds, Journal& journal,
                                Progress& progress);

}  // namespace onestep::app::jobs
