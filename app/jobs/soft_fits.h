// Fits of one model to the same samples, again and again with other labels: right ones, probable ones, or none for samples
// that are left out.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>

#include "jobs/label_noise.h"
#include "jobs/model.h"

namespace onestep::app::jobs {

/// A fit that did not end at a solution.
class FitFailed : public std::runtime_error {
 public:
  FitFailed(Status why, const std::string& what) : std::runtime_error(what), status(why) {}
  Status status;
};

class SoftFits {
 public:
  /// The model is of two classes or more, and outlives this.
  SoftFits(const Model& model, const Samples& samples, std::size_t classes, double l2);
  SoftFits(const SoftFits&) = delete;
  SoftFits& operator=(const SoftFits&) = delete;

  /// The coefficients for targets: a row of weights of the classes for each sample, all 0 for a sample that is left out.
  /// The sum of all losses is within about 1e-4 of the least, which no mean of losses shows. All throw FitFailed.
  Array fit(const ClassProbabilities& targets, const Array& start);
  /// Good enough to compare by: within about a tenth, or a thousandth for each coefficient, while a standard error of one
  /// coefficient changes the sum by a half. With fewer than five samples for each feature it is a thousand times closer: the
  /// Hessian at 0, which measures the distance, is then far above the one at the solution.
  Array fit_closely(const ClassProbabilities& targets, const Array& start);
  /// Good enough to judge samples by: within about a hundredth for each coefficient. Some of the start remains.
  Array fit_roughly(const ClassProbabilities& targets, const Array& start);

 private:
  Parts parameters_of(const ClassProbabilities& targets) const;
  Array exact(const Parts& parameters, const Array& start);
  /// At 0, which knows no label: fits that end early depend on it, and must not know what they are to judge.
  void approximate_hessian(const Array& x);
  double closeness() const;
  bool is_at_rounding(const Parts& parameters, const Array& x);
  Array fit_to(double close, const ClassProbabilities& targets, const Array& start);
  std::optional<Array> descend(const Parts& parameters, const Array& start, double close);
  double evaluate_at(const Parts& parameters, std::vector<double>& x, std::vector<double>& gradient);

  std::size_t classes_;
  Loss loss_;
  Array A_;
  double l2_;
  std::unique_ptr<Prepared> prepared_;
  // The objective with its gradient, and r ← M⁻¹r with an M near the Hessian; empty for problems too large for one.
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Workspace> workspace_;
  std::function<void(std::vector<double>& r)> inverse_;
};

}  // namespace onestep::app::jobs
