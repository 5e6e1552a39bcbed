// Each hyperparameter as a parameter of `minimise`: its bounds, its units, its names, and the solver that it enters.
#include "jobs/hyper.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <utility>

namespace onestep::app::jobs {

Groups read_groups(const std::string& file) {
  Groups groups;
  std::vector<double> each;
  std::ifstream stream(file);
  if (!stream) throw Misuse(fmt::format("--groups {}: the file cannot be read", file));
  for (double group = 0; stream >> group;) each.push_back(group);
  if (!stream.eof()) throw Misuse(fmt::format("--groups {}: entry {} is not a number", file, each.size() + 1));
  groups.names = each;
  std::ranges::sort(groups.names);
  groups.names.erase(std::unique(groups.names.begin(), groups.names.end()), groups.names.end());
  if (groups.names.size() < 2 || groups.names.size() > 10000)
    throw Misuse(fmt::format("--groups {}: {} groups; there have to be 2 to 10000", file, groups.names.size()));
  for (const double group : each)
    groups.of.push_back(static_cast<std::size_t>(std::ranges::lower_bound(groups.names, group) - groups.names.begin()));
  return groups;
}

namespace {

// Of a feature that is not constant.
struct FeatureSize {
  std::size_t feature = 0;
  double largest = 0, log_variance = 0;  // to base 10
};

// Of the features that the penalty is for: as they were before they were scaled inside.
std::vector<FeatureSize> feature_sizes(const JobData& job) {
  const Samples& samples = job.train;
  std::vector<double> a(samples.A.values().begin(), samples.A.values().end());
  const auto columns = static_cast<std::size_t>(samples.A.shape()[1]), features = columns - 1;
  for (std::size_t e = 0; job.penalty_factors && e < a.size(); ++e)
    a[e] = a[e] * job.scaling->scale.values()[e % columns] + job.scaling->mean.values()[e % columns];
  const auto count = static_cast<double>(samples.count());
  std::vector<double> largest(features), mean(features), variance(features);  // of a feature divided by its largest value
  for (std::size_t i = 0; i < a.size(); i += columns)
    for (std::size_t j = 0; j < features; ++j) largest[j] = std::max(largest[j], std::fabs(a[i + j]));
  for (std::size_t i = 0; i < a.size(); i += columns)
    for (std::size_t j = 0; j < features; ++j)
      if (largest[j] > 0) mean[j] += a[i + j] / largest[j] / count;
  for (std::size_t i = 0; i < a.size(); i += columns)
    for (std::size_t j = 0; j < features; ++j)
      if (largest[j] > 0) variance[j] += std::pow(a[i + j] / largest[j] - mean[j], 2) / count;
  constexpr double rounding = 1e-30;
  std::vector<FeatureSize> all;
  for (std::size_t j = 0; j < features; ++j)
    if (variance[j] > rounding) all.push_back({j, largest[j], 2 * std::log10(largest[j]) + std::log10(variance[j])});
  return all;
}

struct UnitOfPenalties {
  double typical = 1, least = 1;  // least: of features in far smaller units than a typical one
};

// The geometric mean over the features, to a power of ten, without those in far larger or smaller units than most. Next to
// an intercept of about 1 fits do not resolve the coefficients of features in extreme units (tried: 1e-7 and 1e12), unless
// they are scaled inside.
UnitOfPenalties unit_of_penalties(const JobData& job) {
  constexpr double too_small = 1e-5, too_large = 1e8;
  constexpr double usual = 6;  // orders of magnitude of the variance from the median
  const std::vector<FeatureSize> all = feature_sizes(job);
  std::vector<double> sizes;
  for (const FeatureSize& one : all) {
    if (!job.penalty_factors && !(one.largest > too_small && one.largest < too_large))
      throw Misuse(
          fmt::format("the feature {} of {} has values up to {:.2g}, and fits would not resolve its coefficient "
                      "beside the intercept; give --standardise",
                      job.features[one.feature], job.name, one.largest));
    sizes.push_back(one.log_variance);
  }
  if (sizes.empty()) return {};
  std::ranges::sort(sizes);
  const double median = sizes[sizes.size() / 2];
  const double least = sizes.front();
  std::erase_if(sizes, [&](double size) { return std::fabs(size - median) > usual; });
  const double unit = std::round(std::reduce(sizes.begin(), sizes.end()) / static_cast<double>(sizes.size()));
  constexpr double furthest = 60;  // a feature in smaller units than that has no share in predictions
  const double smallest = std::max(std::round(least), unit - furthest);
  return {std::pow(10.0, unit), std::pow(10.0, job.penalty_factors && least < unit - usual ? smallest : unit)};
}

}  // namespace

Hyper::Hyper(Kind kind, double l2, Groups groups, const JobData& job, const Model& model)
    : kind_(kind), l2_(l2), groups_(std::move(groups)), job_(job), model_(model) {
  if (is_penalty()) {
    const UnitOfPenalties found = unit_of_penalties(job);
    unit_ = found.typical, least_unit_ = found.least;
  }
  if (kind == Kind::class_weight && job.loss == Loss::ridge)
    throw Misuse(fmt::format(
        "--hyper class-weight needs classes, but the target of {} is a quantity; if it has classes: --loss softmax",
        job.name));
  if (kind == Kind::group_weight && groups_.of.size() != job.in_file)
    throw Misuse(fmt::format("--groups: {} numbers, but {} has {} samples; write one for each, in the order of the file",
                             groups_.of.size(), job.name, job.in_file));
}

Parameter Hyper::parameter(double value) const {
  const Array start = kind_ == Kind::l2 ? Array(value) : full({static_cast<std::int64_t>(names().size())}, value);
  return Parameter::positive(start).within(low(), high());
}

std::vector<std::string> Hyper::names() const {
  if (kind_ == Kind::l2) return {"l2"};
  if (kind_ == Kind::l2_per_feature) return job_.features;
  std::vector<std::string> all;
  if (kind_ == Kind::group_weight)
    for (const double group : groups_.names) all.push_back(fmt::format("{}", group));
  else
    for (std::size_t k = 0; k < job_.labels.size(); ++k) all.push_back(job_.label_text(job_.y_of(k)));
  return all;
}

std::vector<double> Hyper::values(const Array& found) const {
  std::vector<double> all(found.values().begin(), found.values().end());
  if (is_penalty()) return all;
  double sum = 0;
  for (const std::size_t k : membership(job_.train)) sum += all[k];
  for (double& value : all) value *= static_cast<double>(job_.train.count()) / sum;
  return all;
}

Solver Hyper::solver(const Samples& train, const SolveOptions& options) const {
  if (is_penalty())
    return model_.solver(
        [&model = model_, train](Expr x, Expr l2) { return sum(model.losses(train, x)) + model.penalty(x, l2); }, options);
  const Array member = one_hot(membership(train), names().size());
  return model_.solver(
      [&model = model_, train, member, l2 = l2_](Expr x, Expr weight) {
        const Expr each = matmul(member, weight);
        const Expr mean = sum(each) / static_cast<double>(train.count());
        return sum(each / mean * model.losses(train, x)) + model.penalty(x, l2);
      },
      options);
}

Inner Hyper::inner(const Samples& train, const Samples& valid, double share, Hyperprior prior,
                   const SolveOptions& options) const {
  const auto loss = [&model = model_, valid, share, weights = judging_weights(valid)](const Expr& x) {
    return share * sum(weights * model.losses(valid, x));
  };
  if (prior.weight == 0) return Inner(solver(train, options), model_.start(), [loss](Expr x) { return loss(x); });
  const auto count = static_cast<double>(names().size());
  return Inner(solver(train, options), model_.start(), [loss, count, share, prior](Expr x, Expr l2) {
    const Expr each = log(l2), level = sum(each) / count;
    return loss(x) +
           0.5 * share *
               (prior.weight * sum(square(each - level)) + prior.level_weight * square(level - std::log(prior.centre)));
  });
}

double Hyper::judged(const Samples& samples, const Array& x) const {
  const std::vector<double> losses = model_.sample_losses(samples, x);
  const Array weights = judging_weights(samples);
  double sum = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) sum += weights.values()[i] * losses[i];
  return sum;
}

std::vector<std::size_t> Hyper::membership(const Samples& samples) const {
  std::vector<std::size_t> of;
  if (kind_ == Kind::class_weight)
    for (const double y : samples.y.values()) of.push_back(job_.class_of(y));
  else
    for (const std::size_t row : samples.rows) of.push_back(groups_.of[row - 1]);
  return of;
}

// They sum to 1.
Array Hyper::judging_weights(const Samples& valid) const {
  const auto count = static_cast<std::size_t>(valid.count());
  std::vector<double> weights(count, 1.0 / static_cast<double>(count));
  if (is_balanced()) {
    const std::vector<std::size_t> of = membership(valid);
    std::vector<double> sizes(job_.labels.size());
    for (const std::size_t k : of) sizes[k] += 1;
    const auto present = static_cast<double>(std::ranges::count_if(sizes, [](double s) { return s > 0; }));
    for (std::size_t i = 0; i < count; ++i) weights[i] = 1 / (present * sizes[of[i]]);
  }
  return {Shape{valid.count()}, std::move(weights)};
}

}  // namespace onestep::app::jobs
