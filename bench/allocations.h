// What this program takes from the heap by operator new: how often, and how much at once.
#pragma once

#include <cstddef>

namespace onestep::bench {

std::size_t allocations();      // so far
std::size_t allocated_bytes();  // now
std::size_t peak_bytes();       // the most since the last reset_peak()
void reset_peak();

}  // namespace onestep::bench
