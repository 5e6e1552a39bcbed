// Looks for the class or the feature that separates, and says it.
#include "jobs/separation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "jobs/model.h"
#include "jobs/scores.h"

namespace onestep::app::jobs {

bool is_separable(const JobData& job) {
  try {
    Model(job).require_a_best_fit(job.train, 0);
  } catch (const SeparableClasses&) { return true; }
  return false;
}

std::string separable_class(const JobData& job) {
  for (std::size_t k = 0; job.loss == Loss::softmax && k < job.labels.size(); ++k) {
    JobData two;
    two.loss = Loss::logistic;
    two.labels = {0, 1};
    two.train = job.train;
    std::vector<double> signs;
    for (const double y : job.train.y.values()) signs.push_back(y == static_cast<double>(k) ? 1 : -1);
    two.train.y = Array(job.train.y.shape(), std::move(signs));
    if (is_separable(two)) return job.label_text(static_cast<double>(k));
  }
  return "";
}

bool has_certain_samples(const JobData& job, const Array& prediction) {
  const Array p = class_probabilities(job.loss, prediction);
  const std::size_t K = job.labels.size();
  for (std::size_t i = 0; i < job.train.y.values().size(); ++i)
    if (p.values()[i * K + job.class_of(job.train.y.values()[i])] > 1 - 1e-10) return true;
  return false;
}

namespace {

// Of two classes, for the end of a message.
std::string what_separates(const JobData& job) {
  if (job.loss != Loss::logistic) return "";
  const auto n = static_cast<std::size_t>(job.n());
  const std::span<const double> a = job.train.A.values(), y = job.train.y.values();
  for (std::size_t j = 0; j < n; ++j) {
    double low = a[j], high = a[j];
    for (std::size_t i = 0; i < y.size(); ++i) {
      low = std::min(low, a[i * (n + 1) + j]);
      high = std::max(high, a[i * (n + 1) + j]);
    }
    for (const double most : {low, high}) {
      bool first = false, second = false;
      for (std::size_t i = 0; i < y.size(); ++i)
        if (a[i * (n + 1) + j] != most) (y[i] > 0 ? second : first) = true;
      if (first == second) continue;
      const double mean = job.scaling->mean.values()[j], value = most * job.scaling->scale.values()[j] + mean;
      return fmt::format(" (for instance, feature {} has another value than {:.6g} in samples with the label {} only)",
                         job.features[j], std::fabs(value) > 1e-12 * std::fabs(mean) ? value : 0.0,
                         job.label_text(first ? -1 : 1));
    }
  }
  return "";
}

}  // namespace

std::string why_no_best_fit(const JobData& job) {
  if (const std::string name = separable_class(job); !name.empty())
    return fmt::format(
        "the class {} is linearly separable from the others: without a penalty its coefficients grow without bound; give "
        "--l2 above 0",
        name);
  return SeparableClasses().what() + what_separates(job);
}

}  // namespace onestep::app::jobs
