// Standard errors of coefficients from the Hessian of what is minimised.
#pragma once

#include <optional>
#include <vector>

#include "jobs/model.h"

namespace onestep::app::jobs {

/// Above so many unknowns the Hessian is not inverted.
inline constexpr std::int64_t most_with_standard_errors = 1500;

/// `penalty` has that of each feature as the job has it, scaled or not. One for each coefficient of the features as they
/// were, those of the intercepts last. Without a penalty those of the estimate; with one the standard deviations of the
/// posterior under the prior that the penalty stands for. Coefficients of softmax are determined up to a number that is
/// added to those of all classes: they are given such that they sum to zero over the classes, and so are these. For squared
/// losses the variance of the residuals is estimated with the effective degrees of freedom. Empty if there are too many
/// coefficients, where the Hessian is singular, or where no degree of freedom is left.
std::optional<std::vector<double>> standard_errors(const Model& model, const JobData& job, const Array& penalty,
                                                   const Array& x);

/// Of a positive definite matrix of this size, row by row, which is scaled to a diagonal of ones first: units of features do
/// not matter then. Entries are NaN where it is singular to rounding.
Array inverse_of(std::vector<double> H, std::int64_t size);

}  // namespace onestep::app::jobs
