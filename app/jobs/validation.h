// What the search of tune is judged by where the user does not say.
#pragma once

#include "jobs/tune_report.h"

namespace onestep::app::jobs {

/// Five folds where samples are few, else validation samples that are split off. Why there are no folds although samples are
/// few is noted, as is a sample that no fold can hold out.
void settle_validation(TuneOptions& options, JobData& job);

/// What the job needs, in bytes. Throws Misuse where that is too much, with folds or a split that would do.
double require_memory_of_tune(const TuneOptions& options, const JobData& job);

}  // namespace onestep::app::jobs
