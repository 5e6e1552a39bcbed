// What certificates and Auto cost in time: a certificate against its solve, Auto's derivative against the fastest fixed
// estimator that meets its tolerance.
#pragma once

#include <cstdint>
#include <vector>

#include "certificate/problem.h"
#include "harness.h"

namespace onestep::bench {

// `count` problems of each class, each solved and differentiated several times; the median of the repetitions counts.
void add_costs(Suite& suite, std::uint64_t seed, std::size_t count, const std::vector<ProblemClass>& classes);

}  // namespace onestep::bench
