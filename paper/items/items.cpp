// The list of all items.
#include "paper/items.h"

#include <array>

#include "paper/items/kinds.h"

namespace onestep::app::paper {

std::span<const ItemKind> item_kinds() {
  static constexpr std::array all{
      ItemKind{"newton", "Newton's quadratic convergence", compute_newton},
      ItemKind{"qp", "Timing: interior point method for quadratic programs", compute_qp},
      ItemKind{"logistic", "Timing: Newton's method for logistic regression", compute_logistic},
      ItemKind{"ridge", "Gradient descent on weighted ridge regression", compute_ridge},
      ItemKind{"complexity", "What a gradient costs", compute_complexity},
      ItemKind{"equation", "Implicit differentiation: on which equation?", compute_equation},
      ItemKind{"bounds", "The bounds", compute_bounds},
      ItemKind{"certificate", "How wrong a derivative is, and what Auto takes", compute_certificate},
  };
  return all;
}

}  // namespace onestep::app::paper
