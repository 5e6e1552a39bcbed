// The options of tune: those of all jobs, and its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "jobs/samples.h"

namespace onestep::app::jobs {

struct TuneOptions : JobOptions {
  std::string hyper = "l2", compare, groups, save;
  double folds = 0, iterations = 100;  ///< folds: 0 is none, or what suits the samples
  std::optional<double> split_asked;
};

/// Their rows in the help.
std::vector<Option> tune_options(TuneOptions& options);

}  // namespace onestep::app::jobs
