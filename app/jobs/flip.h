// Labels made wrong on purpose, to see how many are found.
#pragma once

#include <cstdint>
#include <vector>

#include "jobs/samples.h"

namespace onestep::app::jobs {

/// Gives a share of the samples another label, and says which.
std::vector<bool> flip_labels(Samples& samples, const JobData& job, double share, std::uint64_t seed);

}  // namespace onestep::app::jobs
