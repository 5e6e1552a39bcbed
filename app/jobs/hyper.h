// What `tune` can tune: how it enters the fit, where it may lie, and what its entries are called.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "jobs/model.h"
#include "jobs/samples.h"
#include "onestep/onestep.h"

namespace onestep::app::jobs {

/// The group of each sample, as the file of --groups says it.
struct Groups {
  std::vector<double> names;    ///< ascending
  std::vector<std::size_t> of;  ///< by the sample's number in its file, from 0: which of them
};

/// Throws Misuse when the file cannot be read, has anything but numbers, or too few groups or too many.
Groups read_groups(const std::string& file);

/// What keeps the penalties of single features together: their logarithms are normal around a level, and the level is normal
/// around the best penalty for all. Half of weight · Σ (log λⱼ - level)² + level_weight · (level - log centre)², with the
/// mean for the level, is added to what is minimised. With the weight 0 there is none.
struct Hyperprior {
  double weight = 0, level_weight = 0, centre = 1;
};

/// Hyperparameters of one kind. Samples and model outlive it.
class Hyper {
 public:
  enum class Kind : std::uint8_t { l2, l2_per_feature, class_weight, group_weight };

  /// Weights are of classes or of groups; `l2` is the penalty beside them. Throws Misuse for what does not go together.
  Hyper(Kind kind, double l2, Groups groups, const JobData& job, const Model& model);

  bool is_penalty() const { return kind_ == Kind::l2 || kind_ == Kind::l2_per_feature; }
  /// No entry leaves these: what wants to is held there, and that is said. Penalties are in units of `unit()`.
  double low() const { return is_penalty() ? 1e-5 * least_unit_ : 1e-3; }
  double high() const { return is_penalty() ? 1e7 * unit_ : 1e3; }
  /// The variance of a typical feature, to a power of ten: a penalty means the same for features in other units, and for
  /// those that lie far from zero, as years do.
  double unit() const { return unit_; }
  /// Of the powers of ten, in units of `unit()`, that are tried for a start: lower where a feature is in far smaller units.
  double least_exponent() const { return std::round(std::log10(least_unit_ / unit_)) - 3; }

  /// With every entry at the same value.
  Parameter parameter(double value) const;
  std::vector<std::string> names() const;
  /// Values as they are reported. Weights have the mean 1 over the training samples, so that the penalty keeps its meaning:
  /// only their ratios are searched for.
  std::vector<double> values(const Array& found) const;

  /// The fit on some samples with this as its parameter.
  Solver solver(const Samples& train, const SolveOptions& options = {}) const;
  /// That fit judged by other samples; `share` weighs this problem among several. With weights of classes each class counts
  /// the same: by the plain mean the weights that were there would be about the best.
  Inner inner(const Samples& train, const Samples& valid, double share, Hyperprior prior = {},
              const SolveOptions& options = {}) const;
  /// What these samples are judged by, at given coefficients: their mean loss, with each class counted the same for weights
  /// of classes.
  double judged(const Samples& samples, const Array& x) const;
  const Groups& groups() const { return groups_; }
  bool is_of_groups() const { return kind_ == Kind::group_weight; }
  bool is_balanced() const { return kind_ == Kind::class_weight; }

 private:
  std::vector<std::size_t> membership(const Samples& samples) const;
  Array judging_weights(const Samples& valid) const;

  Kind kind_;
  double l2_, unit_ = 1, least_unit_ = 1;
  Groups groups_;
  const JobData& job_;
  const Model& model_;
};

}  // namespace onestep::app::jobs
