// The units of a state, by the sizes of its entries.
#include "estimate/units.h"

#include <algorithm>
#include <cmath>

#include "solve/run.h"

namespace onestep::detail {

bool StateUnits::differ(ConstVector v, double factor) {
  const double most = largest(v);
  return std::ranges::any_of(v, [&](double e) { return e != 0 && std::fabs(e) < factor * most; });
}

void StateUnits::find(const Run& run, std::initializer_list<ConstVector> vectors) {
  constexpr double settled = 100;   // of its last change: an entry that is not on its way to zero
  constexpr double least = 1e-100;  // whose inverse can be computed with
  const double of_x = largest(run.x);
  std::vector<double> sizes(run.x.size(), 0.0);
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (of_x > 0 && std::fabs(run.x[i]) > settled * std::fabs(run.x[i] - run.previous[i]))
      sizes[i] = std::fabs(run.x[i]) / of_x;
  for (const ConstVector v : vectors) {
    const double most = largest(v);
    if (!(most > 0 && std::isfinite(most))) continue;
    for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = std::max(sizes[i], std::fabs(v[i]) / most);
  }
  units_.assign(sizes.size(), 1.0);
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] > 0 && sizes[i] < apart) units_[i] = std::exp2(std::round(std::log2(std::max(sizes[i], least))));
}

void StateUnits::divide(ConstVector v, Vector out) const {
  for (std::size_t i = 0; i < v.size(); ++i) out[i] = v[i] / units_[i];
}
void StateUnits::multiply(ConstVector v, Vector out) const {
  for (std::size_t i = 0; i < v.size(); ++i) out[i] = v[i] * units_[i];
}

}  // namespace onestep::detail
