// Fits that do not depend on the units of the features.
#pragma once

#include "jobs/samples.h"

namespace onestep::app::jobs {

/// Scales the features to unit size and sets the factors of the penalty: the problem stays the same, but the units of the
/// features do not matter to iterations by products with the Hessian. For softmax with few unknowns, and where sizes differ
/// much; else nothing is done, nor for features that are standardised already.
void scale_inside(JobData& job);

/// A note where features differ so much in size that one penalty means another thing to each; none for features that were
/// standardised.
void note_sizes(JobData& job);

/// Whether the deviations of columns differ by orders of magnitude, from each other or from the 1 of the intercept.
bool sizes_differ_much(const Array& A);

}  // namespace onestep::app::jobs
