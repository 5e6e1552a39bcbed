// What this program takes from the heap by operator new: how often, and how much at once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onestep::bench {

/// Counts while it lives; one at a time. Otherwise memory is had as in any other program, at the same cost.
class CountedAllocations {
 public:
  CountedAllocations();
  ~CountedAllocations();
  CountedAllocations(const CountedAllocations&) = delete;
  CountedAllocations& operator=(const CountedAllocations&) = delete;
  std::size_t count() const;
  std::int64_t peak_bytes() const;  // the most that was held at once, beyond what was held at the beginning
};

}  // namespace onestep::bench
