// Whether a model says more of samples than their labels alone: the frequencies of the classes, or the mean of a quantity.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "jobs/model.h"
#include "jobs/tune_report.h"

namespace onestep::app::jobs {

/// A note where the losses of samples that a model did not see are not smaller, by more than two standard errors, than those
/// of the class frequencies of training, or of the mean of its targets. `judged` is what the samples are called, `y` as
/// Samples have it.
std::optional<std::string> note_on_no_gain(const JobData& job, const std::string& judged, std::span<const double> losses,
                                           std::span<const double> y);

/// The same of the model that tune found, by test samples, or else by those that the search was judged by.
std::optional<std::string> note_on_no_gain(const JobData& job, const Model& model, const std::vector<Fold>& folds,
                                           const TuneFindings& found);

}  // namespace onestep::app::jobs
