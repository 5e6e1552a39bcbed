// What the labels of samples are: classes or a quantity, and whether those of other samples are the same.
#pragma once

#include <string>
#include <vector>

#include "jobs/samples.h"

namespace onestep::app::jobs {

/// The loss that was asked for, or that the labels look like, with a note where they could be read otherwise.
Loss chosen_loss(const JobOptions& options, const Dataset& train, std::vector<std::string>& notes);

/// The labels of the job, and their names. Throws Misuse where they do not suit its loss.
void find_labels(JobData& job, const Dataset& train);

/// Throws Misuse where other samples have labels that training has not, numbers or names as there.
void check_labels(const Dataset& other, const std::string& file, const JobData& job);

}  // namespace onestep::app::jobs
