// Fits of one model to the same samples, again and again with other labels: right ones, probable ones, or none for samples
// that are left out.
#pragma once

#include <memory>
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

  /// The coefficients for targets: a row of weights of the classes for each sample, all 0 for a sample that is left out.
  /// `tolerance` is relative. Throws FitFailed.
  Array fit(const ClassProbabilities& targets, const Array& start, double tolerance);

 private:
  std::size_t classes_;
  Loss loss_;
  std::unique_ptr<Prepared> prepared_;
};

}  // namespace onestep::app::jobs
