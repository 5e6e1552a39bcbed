// What makes classes linearly separable, for the message that says so.
#pragma once

#include <string>

#include "jobs/samples.h"

namespace onestep::app::jobs {

/// A class of several that a plane separates from all others; empty where there is none.
std::string separable_class(const JobData& job);

/// For the end of a message, where it can be said in a few words: one class, or a feature that is above its least value, or
/// below its largest, in one class only. The features are standardised, as they are without a penalty.
std::string what_separates(const JobData& job);

/// Whether the label of a training sample is predicted with a probability of 1 to ten digits.
bool has_certain_samples(const JobData& job, const Array& prediction);

}  // namespace onestep::app::jobs
