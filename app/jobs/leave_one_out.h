// What a fit would be without one of its samples, for each of them, without fitting again.
#pragma once

#include <optional>
#include <vector>

#include "jobs/model.h"

namespace onestep::app::jobs {

/// How the losses of judged samples change when one training sample is left out: the sum over them, and that of squares.
struct Change {
  double sum = 0, squares = 0;
};

/// How well all other samples predict a training sample.
struct OwnLoss {
  double loss = 0;  ///< its loss by the fit without it
  /// How strongly its own label pulls its prediction: the trace of C M, below 1 (softmax: the number of classes less 1).
  double leverage = 0;
};

/// Approximate leave-one-out: one Newton step from the solution for the objective without the sample. The Hessian without it
/// differs by a matrix of rank K (the number of outputs: classes of softmax, else one), so that one factorisation serves
/// all samples: x₋ⱼ - x = H⁻¹(aⱼ ⊗ tⱼ), tⱼ = (I - CⱼMⱼ)⁻¹rⱼ, with rⱼ the derivative of the sample's loss by its outputs, Cⱼ
/// the second derivative and Mⱼ = (aⱼᵀ ⊗ I) H⁻¹ (aⱼ ⊗ I) the leverage. Exact for ridge. For the samples with the largest
/// effects, as many as a budget of operations allows, further steps with the same matrix follow until they are short; where
/// they do not get shorter the model is fitted again without the sample, for as many as the budget allows.
class LeaveOneOut {
 public:
  /// Of the fit to `train` that ended at x.
  LeaveOneOut(const Model& model, const Samples& train, const Array& x, double l2);

  /// Whether the Hessian is positive definite to rounding; nothing else may be asked for when it is not.
  bool works() const { return !inverse_.empty(); }
  /// The changes of losses of `judged`, for each training sample. Nothing for a sample without which the fit is not unique.
  /// Losses are evaluated where they are few, else taken to second order (their squares to first).
  std::vector<std::optional<Change>> changes(const Samples& judged) const;

  /// The loss of each training sample by the fit without it; nothing for a sample without which the fit is not unique.
  /// (In own_losses.cpp.)
  std::vector<std::optional<OwnLoss>> own_losses() const;

  /// Largest number of unknowns for which the inverse of the Hessian is computed.
  static constexpr std::int64_t most_unknowns = 3000;

 private:
  void invert_hessian(double l2);
  void find_directions();
  Array steps(std::size_t begin, std::size_t end) const;
  void add_exact(const Samples& judged, const Array& steps, std::span<std::optional<Change>> to) const;
  void refine_largest(const Samples& judged, std::vector<std::optional<Change>>& changes) const;
  std::vector<std::size_t> as_many_as_affordable(std::vector<std::size_t> samples) const;
  std::vector<double> refined_steps(const std::vector<std::size_t>& samples) const;
  struct Refined {
    std::vector<double> step;
    bool converged = false;
  };
  Refined refined(std::size_t sample, const Function& gradient_at) const;
  std::vector<double> without(std::size_t sample, const std::vector<double>& g) const;
  std::vector<double> times_inverse(const std::vector<double>& v) const;
  std::vector<double> sample_gradient(std::size_t sample, const std::vector<double>& x) const;

  const Model& model_;
  Samples train_;
  Array x_;
  double l2_;
  std::size_t n_, outputs_;
  Array residuals_, curvature_;     // r: (N, K); C: (N, K, K), row by row
  std::vector<double> inverse_;     // H⁻¹, empty where there is none
  std::vector<double> directions_;  // t: (N, K)
  std::vector<double> leverages_;   // M: (N, K, K)
  std::vector<bool> unique_;
};

/// The Hessian of the sum of losses of samples, and the sum of the outer products of their gradients.
struct SecondMoments {
  Array hessian, gradients, gradient;
};
SecondMoments second_moments(const Model& model, const Samples& samples, const Array& x);

/// Σ aᵢaᵢᵀ ⊗ Vᵢ with symmetric Vᵢ, the rows of `v`: unknowns are ordered as those of the model, outputs within features.
Array sum_of_blocks(const Array& A, const Array& v, std::size_t outputs);

}  // namespace onestep::app::jobs
