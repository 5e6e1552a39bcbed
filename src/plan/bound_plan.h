// A plan with its memory, for those who run it often with inputs that seldom change.
#pragma once

#include "onestep/plan.h"

namespace onestep::detail {

/// Inputs are bound one by one, when they change; nothing is checked at a run. The caller keeps the plan and the arrays, and
/// wants no result where an input or another result lies.
class BoundPlan {
 public:
  explicit BoundPlan(const Plan& plan);

  /// The input has this array from now on. Its level is to be among those that are run next.
  void bind(std::size_t input, const Array& array);

  /// The results from `begin` on; none where there is no memory for it. They are all of the trunk, or all of one branch.
  void run(std::size_t begin, std::span<const std::span<double>> outputs, int changed, int last);
  bool failed() const { return workspace_.failed(); }

 private:
  Workspace workspace_;
  std::vector<std::int32_t> buffers_;  // of each input; -1: it is not used
};

}  // namespace onestep::detail
