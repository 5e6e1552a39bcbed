// The suite `jobs`: what the jobs of the command need.
#pragma once

#include "harness.h"

namespace onestep::bench {

void run_jobs(Suite& suite);

// Its parts: files read; hypergradients, what they add to a solve, checkpoints; whole fits.
void reader_rows(Suite& suite);
void bilevel_rows(Suite& suite);
void fit_rows(Suite& suite);

}  // namespace onestep::bench
