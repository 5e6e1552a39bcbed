// The suite "solve": whole solves and their derivatives by every estimator, prepared, so that nothing is traced or planned
// in what is timed.
#pragma once

#include "harness.h"

namespace onestep::bench {

void run_solve(Suite& suite);

}  // namespace onestep::bench
