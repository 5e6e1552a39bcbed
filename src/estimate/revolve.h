// Binomial checkpointing (Griewank and Walther's Revolve): going backwards over many steps with few states in memory, with
// the least possible number of steps made again.
#pragma once

#include <cstdint>

namespace onestep::detail {

/// C(s + r, s): the most steps that can be reversed with `snapshots` states, making none of them again more than
/// `repetitions` times.
std::int64_t binomial_range(int snapshots, int repetitions);
/// The least number of steps to make again to reverse `steps` of them with `snapshots` states in memory (the first state
/// included), apart from one evaluation of each to differentiate it.
std::int64_t least_recomputation(std::int64_t steps, int snapshots);
/// How far to go from a state that is kept before keeping the next one, when `steps` are to be reversed and `snapshots`
/// states are there, the first included. At least 1; `steps` > 1 and `snapshots` > 1.
std::int64_t best_advance(std::int64_t steps, int snapshots);

}  // namespace onestep::detail
