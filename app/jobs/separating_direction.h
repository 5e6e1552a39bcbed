// Whether classes are linearly separable, decided where a fit without a penalty has ended.
#pragma once

#include <optional>

#include "jobs/model.h"

namespace onestep::app::jobs {

/// Whether a direction raises the margin of no label's class over another class anywhere below zero and of some above it
/// (complete or quasi-complete separation: losses then fall along it for ever, and there is no best fit). A sample whose
/// probabilities are not certain cannot gain along such a direction, as the gradients of a fit that has ended sum to zero;
/// so the direction is looked for where the margins of those samples stay the same, and then checked on all samples. What
/// is found is a proof. Nothing is returned where the problem is too large to form a matrix of its unknowns.
std::optional<bool> are_separated_at(const Model& model, const Samples& samples, const Array& x);

}  // namespace onestep::app::jobs
