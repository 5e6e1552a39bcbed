// What the loops of gradient descent share: the method, and what curvatures tell of its ends.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "linear/lanczos.h"
#include "onestep/solver.h"
#include "solve/method.h"
#include "solve/run.h"
#include "solve/trial.h"

namespace onestep::detail {

class DescentMethod final : public Method {
 public:
  std::unique_ptr<Loop> loop() const override;
  std::shared_ptr<Method> with_data(const std::vector<Array>& data) const override {
    auto copy = std::make_shared<DescentMethod>(*this);
    copy->gradient = gradient.with_data(data);
    if (copy->objective) copy->objective->bind(data);
    copy->bind(data);
    if (equation && !users_equation) copy->equation = copy->gradient;
    return copy;
  }

  GradientStep size;
  LazyMap gradient;                        // ∇f of the first part alone
  std::optional<TrialFunction> objective;  // of the first part alone
};

/// The eigenvalues of the Hessian, by Lanczos' method.
class Curvature {
 public:
  explicit Curvature(const DescentMethod& method) : method_(method) {}
  void prepare();
  Extremes at_start(std::span<const Array> theta, const Run& run) { return at(theta, run.start); }
  Extremes at(std::span<const Array> theta, ConstVector x);

  /// Where a solve ended with its first step, of length zero, at a start that is no minimum: run.start is moved beside it,
  /// for another solve. A descent cannot tell a maximum or a saddle from a minimum by the gradient alone.
  bool leave_stationary_start(std::span<const Array> theta, Run& run);

  /// Where a solve ended with a step of zero at a point that is no solution: its steps are so short that they are lost in
  /// the rounding of x. The distance to a minimum is at least that of the gradient over the largest curvature.
  void refuse_lost_steps(std::span<const Array> theta, double tolerance, Run& run);

 private:
  void product(ConstVector v, Vector out);

  const DescentMethod& method_;
  std::unique_ptr<Point> gradient_;
  ConstVector at_;  // where the Hessian is taken
  std::vector<double> gradient_at_, beside_;
  LanczosMemory memory_;
};

/// After a solve from beside the start.
void note_left_start(Run& run);

/// α is halved until f decreases enough (Armijo), and doubled after each success.
std::unique_ptr<Loop> backtracking_descent(const DescentMethod& method);

}  // namespace onestep::detail
