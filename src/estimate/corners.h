// Kinks between x_k and the solution, or in the parameters: looked for in corners of a small cube.
#pragma once

#include "estimate/state.h"

namespace onestep::detail {

/// Random corners of a cube around x and the opposite ones, and parameters perturbed by a few units in the last place.
class Corners {
 public:
  /// `map`: the step. It and x are looked at, not copied.
  Corners(SolutionState& s, const Map& map, ConstVector x);
  /// Calls `look` with the step in each corner of a cube of this half width, unless all operations of the step that have
  /// kinks are known to be far from them there. False where the step is not finite in a corner, or jumps on the way to it by
  /// far more than it is rounded, which is `noise`, and than its derivatives explain.
  bool visit(double half_width, double noise, const std::function<void(Point&)>& look);

 private:
  bool visit_corner(ConstVector x, std::span<const Array> theta, const std::function<void(Point&)>& look);
  bool jumps(ConstVector x, std::span<const Array> theta);
  bool may_switch(ConstVector x, std::span<const Array> theta);

  SolutionState& s_;
  const Map& map_;
  ConstVector x_;
  std::unique_ptr<Point> point_;
  std::unique_ptr<Switches> switches_;
  std::vector<double> here_, y_;
  std::vector<double> next_;  // F(x), once a corner is looked at
  double noise_ = 0;
};

/// Whether an operation may have another branch where the quantities that decide (see Switches) are `there` than `here`.
bool may_switch(ConstVector here, ConstVector there);

}  // namespace onestep::detail
