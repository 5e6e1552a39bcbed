// How the derivative changes on the way to the solution, as far as a certificate sees it: on the way to the point nearest to
// the solution, beside that, and in corners around it.
#pragma once

#include <functional>

#include "estimate/better.h"
#include "estimate/refine.h"

namespace onestep::detail {

/// The derivative at some point, as far as it matters for what is certified: A and B applied to it.
struct JacobianProducts {
  std::vector<double> state;
  Parameters theta;
};

class Changes {
 public:
  /// Half width of the cube in whose corners kinks are looked for, over the distance to the solution.
  static constexpr double corner_radius = 4;

  /// `look` says what is seen at a point; `best`: at that nearest to the solution.
  Changes(SolutionState& s, const BetterSystem& system, JacobianProducts best, std::function<JacobianProducts(Point&)> look);

  /// Looks at x_k and at the last points on the way from it, once, before anything else is asked.
  void follow();
  /// What that and rate() will cost, and one product with a residual.
  static int products(const SolutionState& s);
  /// From x_k to the best point.
  double on_the_way() const { return on_the_way_; }
  /// From the best point to the solution, extrapolated geometrically from how changes shrank on the way to it, so that
  /// derivatives which are only Hölder continuous are followed too.
  double beyond() const { return beyond_; }
  /// Change of the derivative per unit of x in a random direction: along the refinement path it may hardly change.
  double rate();
  /// The difference itself, where each entry of x is displaced by so much.
  double beside(double displacement);
  /// The largest, in corners of a cube that should contain the solution, which is at this distance.
  double in_corners(double distance);

 private:
  static constexpr std::size_t looked_at = 3;  // the best point not counted

  double difference(const JacobianProducts& a, const JacobianProducts& b) const;
  double extrapolated();
  Point& scratch_point();

  SolutionState& s_;
  const Map& map_;
  const BetterSystem& system_;
  std::function<JacobianProducts(Point&)> look_;
  JacobianProducts best_;
  std::vector<JacobianProducts> seen_;  // at stages of the refinement: the first, and the last three
  double on_the_way_ = 0, beyond_ = 0;
  std::unique_ptr<Point> scratch_point_;  // of a step with solves inside
};

}  // namespace onestep::detail
