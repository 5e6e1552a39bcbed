// Whether the truth is true: `onestep_bench certificate --selftest`.
#pragma once

namespace onestep::bench {

// Prints what fails; the exit status.
int run_selftest();

}  // namespace onestep::bench
