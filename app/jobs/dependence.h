// Features that say nothing of their own: constant ones, and linear combinations of those before them.
#pragma once

#include <string>
#include <vector>

#include "jobs/samples.h"

namespace onestep::app::jobs {

/// A feature without which the model can say the same, and why.
struct LeftOut {
  std::size_t place;      ///< among the features
  std::string why;        ///< "is constant", "is a linear combination of a, b"
  bool constant = false;  ///< it has one value only, up to rounding
};

/// The features of the training samples that are constant up to rounding.
std::vector<LeftOut> constant_features(const JobData& job);

/// Those, and the ones that are linear combinations of features before them and of the intercept, to a residual of 1e-7 of
/// their own spread: rank is judged on standardised columns, so that units do not matter. Throws Misuse where there are
/// fewer samples than coefficients, and no way to choose.
std::vector<LeftOut> dependent_features(const JobData& job);

/// The job without them; notes say which they are.
void leave_out(JobData& job, const std::vector<LeftOut>& features);

}  // namespace onestep::app::jobs
