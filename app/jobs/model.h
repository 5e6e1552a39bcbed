// The models that jobs fit: linear ones with an intercept, by logistic, squared or softmax loss and a quadratic penalty.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/common.h"
#include "jobs/samples.h"
#include "onestep/onestep.h"

namespace onestep::app::jobs {

/// How good predictions are.
struct Score {
  double loss = 0;      ///< mean
  double score = 0;     ///< the share of right ones, or R², which is NaN where it is not defined
  double balanced = 0;  ///< of classes: the mean of the shares of right ones in each
};

/// Without a penalty there is no best fit.
class SeparableClasses : public Misuse {
 public:
  SeparableClasses()
      : Misuse(
            "the classes are linearly separable (but for samples on the separating plane): without a penalty the "
            "coefficients grow without bound; give --l2 above 0") {}
};

class Model {
 public:
  explicit Model(const JobData& job);

  /// Before solvers are made. Of large problems a rough fit tells where to start, and what makes solves near it quick.
  /// The penalty is a number or one for each feature, as `penalty` takes it. Throws Misuse when there is no best fit.
  void get_ready(const Samples& train, const Array& lambda);
  /// Throws SeparableClasses when there is none: without a penalty, where the classes are linearly separable.
  void require_a_best_fit(const Samples& train, double l2) const;

  /// From now on losses of softmax are computed by the margins of the other classes, log(1 + Σ exp(sₖ - s_label)): slower,
  /// but log Σ exp(sₖ) - s_label cancels where labels are nearly certain, as those of separable classes with a small
  /// penalty are, and then hides the last steps from a line search.
  void compute_by_margins() { by_margins_ = true; }

  Loss loss() const { return loss_; }
  /// Of the unknowns: (n + 1), or (n + 1, K) with a column for each class; the intercept is last.
  const Shape& shape() const { return shape_; }
  std::int64_t unknowns() const { return shape_.size(); }
  const Array& start() const { return start_; }

  /// The loss of each sample.
  Expr losses(const Samples& samples, const Expr& x) const;
  Expr mean_loss(const Samples& samples, const Expr& x) const;
  /// ½ Σ λⱼ xⱼ² without the intercept; λ is a number or one for each feature, in the units of the features as they were.
  Expr penalty(const Expr& x, const Expr& of_features) const;
  /// The λⱼ that the coefficients here have: one for each feature, with the factors of the job.
  Array penalties(const Array& lambda) const;

  /// Newton's method, or Newton-CG where the Hessian is too large to form, on an objective made of these.
  template <class F> Solver solver(F objective, const SolveOptions& options = {}) const {
    return by_products() ? newton_cg(std::move(objective), {.preconditioner = preconditioner_}, options)
                         : newton(std::move(objective), options);
  }
  /// By the inverse of blocks of the Hessian, which is good near one penalty only.
  bool is_preconditioned() const { return has_blocks_; }
  bool by_products() const { return loss_ == Loss::softmax || unknowns() > 3000; }

  /// "accuracy" or "R2".
  const char* score_name() const { return loss_ == Loss::ridge ? "R2" : "accuracy"; }
  /// The loss of each sample at given coefficients.
  std::vector<double> sample_losses(const Samples& samples, const Array& x) const;
  Score score(const Samples& samples, const Array& x) const;
  /// (N, K): of the classes, for each sample.
  Array probabilities(const Samples& samples, const Array& x) const;
  Json score_json(const Samples& samples, const Array& x) const;

 private:
  void scale_unknowns(const Samples& train, const Array& lambda);
  bool is_separating(const Samples& samples, const Array& from, const Array& to) const;

  Loss loss_;
  std::int64_t n_ = 0, classes_ = 1;
  bool by_margins_ = false, has_blocks_ = false;
  Shape shape_;
  Array start_;
  std::optional<Array> penalty_factors_;
  std::function<void(std::span<double> r)> preconditioner_;
};

/// For fits beside the search: they stop when a signal comes.
SolveOptions stops_at_signals();

/// The share of the variance of the targets that predictions explain; NaN where the targets are all the same.
double r_squared(std::span<const double> prediction, std::span<const double> y);
/// A score for people: four decimals, or that it is not defined.
std::string score_text(double score);

/// A number for people: six digits.
std::string shown(double value);
/// Seconds for people.
std::string seconds_text(double seconds);

}  // namespace onestep::app::jobs
