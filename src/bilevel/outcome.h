// What a minimisation says of its outcome.
#pragma once

#include "bilevel/moved.h"
#include "bilevel/saved_run.h"

namespace onestep::detail {

/// The hypergradient at the point reached, and what stands at its bounds there.
void describe(Outcome& outcome, const Moved& moved, const OuterState& state);
void describe(Outcome& outcome, const InnerWork& work);
/// Says so where a hypergradient that vanishes by an inexact estimator need not be one that vanishes.
void note_uncertain_hypergradient(Outcome& outcome, double tolerance);

}  // namespace onestep::detail
