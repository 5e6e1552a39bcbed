// Samples that come with those of training, for validation or test: whether they can be used, and what to know about them.
#pragma once

#include <string>

#include "jobs/samples.h"

namespace onestep::app::jobs {

/// Notes of the reader, with the name of the file.
void take_notes(JobData& job, const Dataset& set, const std::string& file);

/// Throws Misuse where the samples have other features than those of training, but for a format that leaves the last ones
/// out, which is noted.
void check_features(const Dataset& train, const Dataset& other, const std::string& file, JobData& job);

/// Throws Misuse where a label is not one of training, or where a value is so far beyond those of training that predictions
/// or their losses would overflow. Samples that are copies of training samples, and samples of one class only, are noted.
void check_samples(const Dataset& train, const Dataset& other, const std::string& file, JobData& job);

}  // namespace onestep::app::jobs
