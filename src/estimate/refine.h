// Points nearer to the solution than x_k: the certificate compares the derivative that was returned with the one there.
#pragma once

#include "estimate/state.h"
#include "linear/krylov.h"

namespace onestep::detail {

/// From x_k by Newton's method on x - F(x, θ) = 0, its linear systems solved roughly by GMRES. A solve that has settled into
/// its slowest direction needs one or two products for each of them. Made once for each solve.
class Refinement {
 public:
  explicit Refinement(SolutionState& s);

  struct Stage {
    Point* point = nullptr;
    std::vector<double> x;
    double step = 0;   ///< ‖F(x) - x‖
    double moved = 0;  ///< ‖x - x before‖; 0 for x_k itself
  };
  /// x_k first; the last one is the best.
  std::span<const Stage> stages() const { return stages_; }
  const Stage& best() const { return stages_.back(); }
  /// Length below which a step is rounding.
  double noise() const { return noise_; }
  /// Whether `noise()` is a rounding estimate rather than the length of the last step that could not be reduced.
  bool noise_is_measured() const { return noise_is_measured_; }
  /// Whether that is far more than rounding of x alone: terms cancel inside the step, and in its derivatives, too.
  bool noise_is_large() const;
  double scale() const { return scale_; }
  /// ‖(I - A)⁻¹‖ as the linear solves saw it.
  double inverse() const { return inverse_; }
  /// Why no nearer point was found although x_k is not accurate to rounding; empty when nothing is wrong.
  const std::string& trouble() const { return trouble_; }
  /// Length of the way from x_k to the best point.
  double covered() const;
  /// Estimate of the distance from x_k to the solution: the way covered so far, and the rest.
  double distance() const;
  int products() const { return products_; }

 private:
  Point& new_point();
  void look_below(double rounding);
  void measure_noise();
  bool advance(std::vector<double> x, double most_step);
  bool evaluate(Point& p, ConstVector x, std::vector<double>& step);
  std::vector<double> newton_step(Stage& from, int most);

  SolutionState& s_;
  const Map& map_;  // the step, with solves inside it made precisely
  std::vector<Stage> stages_;
  std::size_t used_ = 0;      // of SolutionState::of_refinement
  std::vector<double> step_;  // F(x) - x at the best point
  double noise_ = 0, scale_ = 0, inverse_ = 1;
  double left_ = 0;  // residual of the last linear system
  bool noise_is_measured_ = true;
  bool slow_ = false;  // the last Newton step led less far than it should have
  int products_ = 0;
  std::string trouble_;
  Gmres gmres_;
};

}  // namespace onestep::detail
