// h(θ) = Σ gᵢ(xᵢ(θ), θ): the inner problems, solved in parallel, and the derivative of the sum.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onestep/bilevel.h"
#include "onestep/plan.h"

namespace onestep::detail {

using States = std::vector<std::vector<double>>;  ///< the flat state of each inner problem

/// What inner solves and derivatives took.
struct InnerWork {
  int evaluations = 0, hypergradients = 0, fell_short = 0, iterations = 0, factorisations = 0;
  double solving = 0, differentiating = 0;  ///< seconds

  template <class Archive> void fields(Archive& a) {
    a(evaluations), a(hypergradients), a(fell_short), a(iterations), a(factorisations), a(solving), a(differentiating);
  }
};

class Objective {
 public:
  /// Throws MisuseError when a g does not fit its solver.
  Objective(const std::vector<Inner>& inner, const Parts& theta, const std::function<bool()>& cancelled);
  ~Objective();

  /// The tightest tolerance of the inner solvers: with that they are as accurate as they were asked to be.
  double tightest() const;
  States starts() const;
  /// The states' shapes, the estimators and the solvers' tolerances: what a checkpoint must agree in. What a solver is made
  /// of, and its data, is not told.
  std::string text() const;

  /// Solves from `starts`, to this tolerance or the solver's own where that is looser. Converged, or the status of the first
  /// inner problem that was not solved, diverged where its steps do not contract and the estimator needs that they do.
  Status solve(const Parts& theta, const States& starts, double tolerance);
  // Of the last solve:
  std::string about() const;
  double value() const;
  /// How far the value can be off for the inner problems' tolerance, roughly: what a line search must not ask to gain.
  double noise() const;
  States states() const;
  /// States with the shapes of their parts.
  std::vector<Parts> parts_of(const States& states) const;
  /// The hypergradient: a vector for each parameter.
  std::vector<std::vector<double>> gradient();
  /// Converged, or the status of the first inner problem whose linear system fell short of its tolerance, and what to try.
  std::pair<Status, std::string> gradient_status() const;
  /// How far that can be from the truth, in norm, and what this rests on; infinity and why otherwise.
  std::pair<double, std::string> gradient_bound();

  InnerWork work;

 private:
  class Problem;
  std::vector<std::unique_ptr<Problem>> problems_;
  Parts theta_;
};

}  // namespace onestep::detail
