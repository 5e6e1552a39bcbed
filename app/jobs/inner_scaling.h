// Fits that do not depend on the units of the features.
#pragma once

#include "jobs/samples.h"

namespace onestep::app::jobs {

/// Scales the features to unit size and sets the factors of the penalty: the problem stays the same, but the units of the
/// features do not matter to iterations by products with the Hessian. For softmax with so few unknowns that none of its
/// solves is slower for it; else nothing is done, nor for features that are standardised already.
void scale_inside(JobData& job);

}  // namespace onestep::app::jobs
