// Newton's method as its loop (newton_loop.cpp) needs it from what is solved (newton.cpp).
#pragma once

#include "solve/method.h"

namespace onestep::detail {

/// The step has the controls {length, shift} and the extras {value, slope}: f or ‖G‖²/2, and how fast it falls along the
/// full step.
class NewtonMethod final : public Method {
 public:
  std::unique_ptr<Loop> loop() const override;
  std::shared_ptr<Method> with_data(const std::vector<Array>& data) const override {
    auto copy = std::make_shared<NewtonMethod>(*this);
    copy->bind(data);
    copy->residual = residual.with_data(data);
    if (copy->hessian_scale) copy->hessian_scale->bind(data);
    return copy;
  }

  LazyMap residual;                            ///< ∇f or G, whatever equation the user gave
  std::optional<TrialFunction> hessian_scale;  ///< the largest entry of H; none for roots, which are not shifted
};

}  // namespace onestep::detail
