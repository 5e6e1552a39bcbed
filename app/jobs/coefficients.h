// Coefficients as people want them: for the features as they were.
#pragma once

#include "jobs/model.h"
#include "onestep/dataset.h"

namespace onestep::app::jobs {

/// The unknowns x of a model as coefficients of the features before they were standardised, and intercepts.
LinearModel raw(const JobData& job, const Model& model, const Array& x);

/// The entries as a list, or with more than no columns as a list of rows.
Json rows_to_json(std::span<const double> entries, std::int64_t columns);

/// `names`, `coefficients` (a list, or for softmax a row for each feature) and `intercept`.
Json json_of(const JobData& job, const LinearModel& model);

}  // namespace onestep::app::jobs
