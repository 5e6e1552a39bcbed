// Loops that more than one solver uses.
#pragma once

#include "solve/method.h"

namespace onestep::detail {

/// x ← F(x, θ) with the same controls in every step.
class FixedPointLoop : public Loop {
 public:
  FixedPointLoop(const Map& step, std::vector<double> controls);
  void solve(std::span<const Array> theta, const SolveOptions& options, Run& run) override;
  Point& last() override { return *point_; }
  Work work() const override { return point_->work(); }

 protected:
  std::vector<double> controls_;
  std::unique_ptr<Point> point_;

 private:
  std::vector<double> next_;
};

}  // namespace onestep::detail
