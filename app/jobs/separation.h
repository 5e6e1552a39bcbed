// What makes classes linearly separable, for the message that says so.
#pragma once

#include <string>

#include "jobs/samples.h"

namespace onestep::app::jobs {

/// A class, of several, that is linearly separable from the others; empty where there is none.
std::string separable_class(const JobData& job);

/// Whether a fit without a penalty would find that the classes are linearly separable.
bool is_separable(const JobData& job);

/// Why there is no best fit without a penalty, and what to give: names the class that is separable from the others, where it
/// is one of several, or of two classes a feature that is above its least value, or below its largest, in one of them only.
/// The features are standardised, as they are without a penalty.
std::string why_no_best_fit(const JobData& job);

/// Whether the label of a training sample is predicted with a probability of 1 to ten digits.
bool has_certain_samples(const JobData& job, const Array& prediction);

}  // namespace onestep::app::jobs
