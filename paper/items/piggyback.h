// The paper's forward recursion for the whole Jacobian, carried along with the iterates: x ← F(x, θ), J ← (∂F/∂x) J + ∂F/∂θ,
// both derivatives as matrices that the engine has made from F.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "onestep/plan.h"

namespace onestep::app::paper {

class Piggyback {
 public:
  using Step = std::function<Expr(const Expr& x, const Expr& theta)>;
  Piggyback(const Step& step, std::int64_t n, Array theta);

  /// From x with J = 0.
  void start(const Array& x);
  void run(int steps);
  Array x() const;
  Array jacobian() const;

  /// Multiply-adds of a step, without what depends on θ alone.
  double flops_a_step() const { return plan_.flops(2); }
  /// Of the workspace, the iterates and the Jacobians.
  std::size_t bytes() const;

 private:
  struct State {
    std::vector<double> x, J;
  };
  Array theta_;
  Plan plan_;
  Workspace workspace_;
  std::array<State, 2> states_;
  std::size_t now_ = 0;
  bool bound_ = false;
};

}  // namespace onestep::app::paper
