// Derivatives by differences, as exact as they get.
#pragma once

#include <functional>
#include <vector>

namespace onestep {

using Values = std::vector<double>;

/// φ'(0) by central differences with steps h, h/2, …, extrapolated to h → 0 (Richardson), for each entry the value of the
/// tableau whose neighbours agree best (Ridders). Steps at which φ is not finite are passed over.
Values differentiate(const std::function<Values(double)>& phi);

bool all_finite(const Values& values);

}  // namespace onestep
