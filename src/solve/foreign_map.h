// Maps of callbacks: steps and equations the user wrote or had differentiated elsewhere.
#pragma once

#include "onestep/solver.h"
#include "solve/map.h"

namespace onestep::detail {

class ForeignMap final : public Map, public std::enable_shared_from_this<ForeignMap> {
 public:
  /// `what` names it in messages: the step, the equation.
  ForeignMap(const char* what, ForeignStep its_callbacks, const std::vector<Shape>& state_parts,
             const std::vector<Input>& its_parameters);
  std::unique_ptr<Point> point(bool derivatives) const override;

  const ForeignStep callbacks;
};

}  // namespace onestep::detail
