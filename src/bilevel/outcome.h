// What a minimisation says of its outcome.
#pragma once

#include "bilevel/free_parameters.h"
#include "bilevel/objective.h"
#include "bilevel/saved_run.h"

namespace onestep::detail {

/// The hypergradient at the point reached, and what stands at its bounds there.
void describe(Outcome& outcome, const FreeParameters& parameters, const OuterState& state);
void describe(Outcome& outcome, const InnerWork& work);
/// What the state says of an iteration.
SavedIteration iteration_of(const OuterState& state);
/// The bound on the hypergradient, which is that of g by θ times `stretch` of what is moved.
void note_bound(Outcome& outcome, Objective& objective, double stretch);
/// What the last hypergradient says of the point is believed only where its linear systems were solved: whether they were.
bool note_shortfall(Outcome& outcome, const Objective& objective);
/// Says so where a hypergradient that vanishes by an inexact estimator need not be one that vanishes.
void note_uncertain_hypergradient(Outcome& outcome, double tolerance);

}  // namespace onestep::detail
