// What the entries of a state are measured in. A residual that is small beside large entries is large beside small ones,
// which have their part in the large ones: linear systems of tangents are solved in these units.
#pragma once

#include <initializer_list>
#include <vector>

#include "linear/vector.h"

namespace onestep::detail {

struct Run;

class StateUnits {
 public:
  /// Whether entries are so different in size, by this factor, that they may have different units.
  static constexpr double apart = 0.03;
  static bool differ(ConstVector v, double factor = apart);

  /// The size of each entry relative to the largest, to a power of two: of x where its last change says that it is not on
  /// its way to zero, or of one of the vectors given, whichever is larger; 1 where all are alike.
  void find(const Run& run, std::initializer_list<ConstVector> vectors);

  /// v / units and v * units, entry by entry.
  void divide(ConstVector v, Vector out) const;
  void multiply(ConstVector v, Vector out) const;

 private:
  std::vector<double> units_;
};

}  // namespace onestep::detail
