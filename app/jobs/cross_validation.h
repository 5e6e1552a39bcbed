// What a model says of samples that it has not seen: each fold by the model of the others.
#pragma once

#include <string>

#include "jobs/model.h"

namespace onestep::app::jobs {

struct CrossValidation {
  std::size_t folds = 0;
  Array prediction;     ///< of each training sample by the model that was fitted without its fold; empty where one failed
  std::string failure;  ///< why there is none
};

/// `penalty` has that of each feature. Each fold has its share of every class; the seed decides which. Fits start from x,
/// that of all samples.
CrossValidation cross_validate(const Model& model, const JobData& job, const Array& penalty, std::size_t folds,
                               std::uint64_t seed, const Array& x, Progress& progress);

}  // namespace onestep::app::jobs
