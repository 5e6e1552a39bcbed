// The suite "engine": a function written once, its derivatives traced, planned and run, against the same work by hand.
#pragma once

#include "harness.h"

namespace onestep::bench {

void run_engine(Suite& suite);

}  // namespace onestep::bench
