// Deals samples out at random, class by class.
#include "jobs/folds.h"

#include <algorithm>

#include "jobs/samples.h"

namespace onestep::app::jobs {

std::vector<std::size_t> deal_out(std::span<const std::size_t> classes, std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> fold(classes.size(), no_fold);
  if (classes.empty()) return fold;
  std::vector<std::vector<std::size_t>> members(std::ranges::max(classes) + 1);
  for (const std::size_t i : shuffled(classes.size(), seed)) members[classes[i]].push_back(i);
  std::size_t next = 0;
  for (const std::vector<std::size_t>& of_class : members)
    for (const std::size_t i : of_class)
      if (of_class.size() > 1) fold[i] = next++ % count;
  return fold;
}

}  // namespace onestep::app::jobs
