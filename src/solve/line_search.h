// Armijo's rule: how far Newton's methods go along their direction.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace onestep::detail {

/// Steps shorter than this, relative to x, change f by less than a double may tell where its terms cancel. They are good
/// enough where the gradient became half as long.
inline constexpr double hides_change = 1e-6;

/// Armijo's rule of sufficient decrease: f(x - td) ≤ f(x) - c t slope, with slope = gᵀd.
class Armijo {
 public:
  /// At the start of the step: f, and how fast it falls along the full step.
  Armijo(double value, double slope) : value_(value), slope_(slope) {}

  bool enough(double length, double reached) const {
    constexpr double share = 1e-4;
    // A decrease that is too small by no more than the rounding error of f is accepted.
    constexpr double slack = 16 * std::numeric_limits<double>::epsilon();
    return std::isfinite(reached) &&
           reached <= value_ - share * length * slope_ + slack * std::max(std::fabs(value_), std::fabs(reached));
  }

  /// Halves the length until it is enough; `at` goes there and returns f. Where the matrix almost vanishes, as far out on a
  /// plateau, steps are far too long: they are shortened faster in the end. False when they become too short to matter.
  template <class At> bool shorten(double& length, double& reached, const At& at) const {
    constexpr double far_too_long = 0x1p-40, faster = 0x1p-8, shortest = 0x1p-1060;
    while (!enough(length, reached)) {
      length *= length > far_too_long ? 0.5 : faster;
      if (length < shortest) return false;
      reached = at(length);
    }
    return true;
  }

 private:
  double value_, slope_;
};

}  // namespace onestep::detail
