// The suite `jobs`: what the jobs of the command need.
#pragma once

#include "harness.h"

namespace onestep::bench {

void run_jobs(Suite& suite);

}  // namespace onestep::bench
