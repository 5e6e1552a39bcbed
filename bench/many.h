// Rows of the suite "solve" about many problems at once.
#pragma once

#include "harness.h"

namespace onestep::bench {

void run_many(Suite& suite);

}  // namespace onestep::bench
