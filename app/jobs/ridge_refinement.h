// Coefficients of a quantity to more digits than the normal equations give.
#pragma once

#include <optional>

#include "jobs/samples.h"

namespace onestep::app::jobs {

/// The least squares solution from one near it, by iterative refinement: the Hessian squares the condition number of the
/// features, and where columns nearly depend on each other a step of Newton's method has few right digits; its gradient,
/// from residuals in extended precision, has them all. Steps are taken as long as each is half the one before, or shorter.
/// `penalty` has one number for each feature. Nothing where the Hessian is singular to rounding, so that steps do not get
/// short.
std::optional<Array> refined_ridge(const Samples& train, const Array& penalty, const Array& x);

}  // namespace onestep::app::jobs
