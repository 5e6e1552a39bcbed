// One panel of the ridge item: gradient descent on weighted ridge regression with one condition number and one step, and the
// errors of its iterates and of their whole Jacobian by each method.
#pragma once

#include <string>
#include <vector>

#include "onestep/array.h"
#include "paper/items.h"

namespace onestep::app::paper {

struct RidgeData {
  Array A, y;
  std::string text;
};

struct RidgeSetting {
  double kappa;
  bool large_step;
};

/// In both views, with what is claimed about it.
struct RidgePanel {
  Panel by_iteration, by_time;
  RidgeSetting setting{};
  int K = 0, peak_at = 0;
  double rho = 0, size = 0;                                                 // ‖A‖ and ‖J̄‖
  double one_step = 0, k_step = 0, unrolled = 0, implicit = 0;              // errors at the end, relative
  double peak = 0;                                                          // of the unrolled error, relative to ‖J̄‖
  double unrolled_seconds = 0, one_step_seconds = 0, implicit_seconds = 0;  // at the end
  int end = 0, ahead_from = 0;  // the last iteration, and that from which on implicit is nearer than unrolled
  bool complete = false;
};

/// λ is chosen for the condition number of the setting; `spectrum` is that of AᵀA, in ascending order.
RidgePanel measure_ridge(const RidgeData& data, const std::vector<double>& spectrum, const RidgeSetting& setting,
                         const Watch& watch);

/// How far the recursion that draws the curves is from Unrolled and KStep of the library, after a few steps.
double recursion_difference(const RidgeData& data, double lambda, double alpha);

}  // namespace onestep::app::paper
