// What the search of tune is judged by where the user does not say.
#pragma once

#include <vector>

#include "jobs/samples.h"
#include "jobs/search.h"
#include "jobs/tune_options.h"

namespace onestep::app::jobs {

/// Five folds where samples are few, else validation samples that are split off. Why there are no folds although samples are
/// few is noted, as is a sample that no fold can hold out.
void settle_validation(TuneOptions& options, JobData& job);

/// Throws Misuse where a single sample judges; that there are only a few is noted.
void require_enough_to_judge(const std::vector<Fold>& folds, JobData& job);

/// What the job needs, in bytes. Throws Misuse where that is too much, with folds or a split that would do.
double require_memory_of_tune(const TuneOptions& options, const JobData& job);

}  // namespace onestep::app::jobs
