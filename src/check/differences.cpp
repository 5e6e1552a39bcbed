// Central differences extrapolated by Romberg's scheme; of each entry the estimate that changed least counts.
#include "check/differences.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace onestep {

bool all_finite(const Values& values) {
  return std::ranges::all_of(values, [](double v) { return std::isfinite(v); });
}

Values differentiate(const std::function<Values(double)>& phi) {
  constexpr int levels = 9;
  constexpr double first_step = 0.125;
  std::vector<Values> row;  // the last row of the tableau: row[k] has error O(h^(2k+2))
  Values best, best_error;
  double h = first_step;
  for (int level = 0; level < levels; ++level, h /= 2) {
    Values difference = phi(h);
    const Values below = phi(-h);
    for (std::size_t i = 0; i < difference.size(); ++i) difference[i] = (difference[i] - below[i]) / (2 * h);
    if (best.empty()) {
      best.assign(difference.size(), std::numeric_limits<double>::quiet_NaN());
      best_error.assign(difference.size(), std::numeric_limits<double>::infinity());
    }
    if (!all_finite(difference)) {
      row.clear();
      continue;
    }
    std::vector<Values> next{difference};
    double power = 4;
    for (std::size_t k = 0; k < row.size(); ++k, power *= 4) {
      Values better(difference.size());
      for (std::size_t i = 0; i < better.size(); ++i) {
        better[i] = next[k][i] + (next[k][i] - row[k][i]) / (power - 1);
        const double error = std::max(std::fabs(better[i] - next[k][i]), std::fabs(better[i] - row[k][i]));
        if (error < best_error[i]) {
          best_error[i] = error;
          best[i] = better[i];
        }
      }
      next.push_back(std::move(better));
    }
    row = std::move(next);
  }
  return best;
}

}  // namespace onestep
