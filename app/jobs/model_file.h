// A fitted model as a file: all that is needed to predict with it, and where it came from.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "jobs/model.h"
#include "jobs/samples.h"

namespace onestep::app::jobs {

/// A fitted model. `job` has no samples, but says how others are read, encoded and scaled, and what their labels are.
struct SavedModel {
  JobData job;
  Array x;        ///< the unknowns of the Model: coefficients of the scaled features, the intercepts last
  double l2 = 0;  ///< the penalty; of several their geometric mean
  /// What was tuned, as --hyper calls it, with names and values; empty for a model of `fit`.
  std::string hyper = {};
  std::vector<std::pair<std::string, double>> hyperparameters = {};
  std::string missing = "refuse";          ///< how missing values were treated, as --missing calls it
  std::vector<std::string> missing_texts;  ///< what stands for them; empty: what the reader takes for it
  std::size_t samples = 0;                 ///< it was learned from
  std::string version = {}, command = {};  ///< that wrote it
};

/// The file as JSON. Numbers have as many digits as it takes to read the same bits.
std::string text_of(const SavedModel& model);
/// Throws Misuse where it is not such a file, or one of a format this version does not know.
SavedModel model_from(const std::string& text, const std::string& file);
SavedModel read_model(const std::string& file);
void write_model(const SavedModel& model, const std::string& file);

}  // namespace onestep::app::jobs
