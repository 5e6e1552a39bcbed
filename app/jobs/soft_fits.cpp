#include "jobs/soft_fits.h"

#include <fmt/format.h>

#include <algorithm>

namespace onestep::app::jobs {

SoftFits::SoftFits(const Model& model, const Samples& samples, std::size_t classes, double l2)
    : classes_(classes), loss_(model.loss()) {
  // With weights w and targets T both losses are Σ w log Σ exp(s) - Σ T s; of two classes s is (0, z).
  const auto objective = [&model, A = samples.A, l2](Expr x, Expr w, Expr targets) {
    const Expr s = matmul(A, x);
    const Expr normaliser = model.loss() == Loss::logistic ? softplus(s) : log_sum_exp(s, 1);
    return sum(w * normaliser) - sum(targets * s) + model.penalty(x, l2);
  };
  const std::int64_t count = samples.count();
  const Shape shape = loss_ == Loss::logistic ? Shape{count} : Shape{count, static_cast<std::int64_t>(classes)};
  prepared_ = std::make_unique<Prepared>(model.solver(objective, stops_at_signals()), model.start(),
                                         Parts{ones({count}), zeros(shape)}, OneStep{});
}

Array SoftFits::fit(const ClassProbabilities& targets, const Array& start, double tolerance) {
  std::vector<double> entries = targets.entries, of_class(classes_), weights(targets.count());
  for (std::size_t i = 0; i < targets.count(); ++i)
    for (std::size_t k = 0; k < classes_; ++k) {
      of_class[k] += targets.row(i)[k];
      weights[i] += targets.row(i)[k];
    }
  // A class without any sample would send its intercept, which has no penalty, to minus infinity.
  constexpr double very_rare = 1e-6;
  for (std::size_t k = 0; k < classes_; ++k)
    for (std::size_t i = 0; of_class[k] <= 0 && i < weights.size(); ++i) {
      entries[i * classes_ + k] = very_rare * weights[i];
    }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = 0;
    for (std::size_t k = 0; k < classes_; ++k) weights[i] += entries[i * classes_ + k];
  }
  const auto count = static_cast<std::int64_t>(weights.size());
  Array of_targets;
  if (loss_ == Loss::logistic) {
    std::vector<double> second(weights.size());
    for (std::size_t i = 0; i < second.size(); ++i) second[i] = entries[2 * i + 1];
    of_targets = Array({count}, std::move(second));
  } else {
    of_targets = Array({count, static_cast<std::int64_t>(classes_)}, std::move(entries));
  }
  prepared_->options().tolerance = tolerance;
  const Solution& s = prepared_->solve(start, Parts{Array({count}, std::move(weights)), of_targets});
  if (!is_solution(s.status())) throw FitFailed(s.status(), s.message());
  return s.x();
}

}  // namespace onestep::app::jobs
