// From a search or a fit to a model file, and the command line that makes the same model.
#pragma once

#include <string>

#include "jobs/model_file.h"
#include "jobs/samples.h"

namespace onestep::app::jobs {

/// Writes the model with the version and the command that made it. Throws Misuse where names would not be read as they were.
void save_model(SavedModel model, const JobOptions& options, const std::string& file);

/// The line that fits the model of these options with a given penalty to all samples.
std::string fit_command(const JobOptions& options, double l2);

}  // namespace onestep::app::jobs
