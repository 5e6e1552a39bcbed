// Binomial checkpointing: the numbers.
#include "estimate/revolve.h"

#include <algorithm>
#include <limits>

namespace onestep::detail {

std::int64_t binomial_range(int snapshots, int repetitions) {
  if (snapshots < 0 || repetitions < 0) return 0;
  constexpr std::int64_t large = std::numeric_limits<std::int64_t>::max() / 4;
  const int few = std::min(snapshots, repetitions);
  std::int64_t result = 1;
  for (int i = 1; i <= few; ++i) {
    if (result > large / (snapshots + repetitions)) return large;
    result = result * (snapshots + repetitions - few + i) / i;
  }
  return result;
}

namespace {
// The repetition number: the least r with steps <= C(s + r, s).
int repetitions_for(std::int64_t steps, int snapshots) {
  int r = 0;
  while (binomial_range(snapshots, r) < steps) ++r;
  return r;
}
}  // namespace

std::int64_t least_recomputation(std::int64_t steps, int snapshots) {
  if (steps <= 1) return 0;
  if (snapshots == 1) return steps * (steps - 1) / 2;
  const int r = repetitions_for(steps, snapshots);
  return r * steps - binomial_range(snapshots + 1, r - 1);
}

// Any advance in this range is best (Griewank and Walther, proposition 12.4): with r repetitions in all, the part behind the
// new state must do with r and the part before it with r - 1, and neither with fewer than that would allow.
std::int64_t best_advance(std::int64_t steps, int snapshots) {
  const int r = repetitions_for(steps, snapshots);
  const std::int64_t low = std::max(binomial_range(snapshots, r - 2), steps - binomial_range(snapshots - 1, r));
  return std::clamp<std::int64_t>(low, 1, steps - 1);
}

}  // namespace onestep::detail
