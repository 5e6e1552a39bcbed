// Scales features whose sizes differ by orders of magnitude, with factors of the penalty that undo it.
#include "jobs/inner_scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "jobs/dependence.h"

namespace onestep::app::jobs {

bool sizes_differ_much(const Array& A) {
  constexpr double much = 1e4;
  const Scaling unit = standardisation_with_ones(A);
  const auto [least, most] = std::ranges::minmax(unit.scale.values());
  return most > much * least;
}

namespace {

// A value that is so much larger than all others of its feature has been mistyped, most likely, and spoils every fit.
void note_lonely_values(JobData& job) {
  constexpr double much_larger = 1e8;
  constexpr std::size_t least_samples = 10;
  const std::size_t n = job.features.size(), width = n + 1;
  const std::span<const double> entries = job.train.A.values();
  const std::size_t N = entries.size() / width;
  if (N < least_samples) return;
  for (std::size_t j = 0; j < n; ++j) {
    double largest = 0, next = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < N; ++i) {
      const double size = std::fabs(entries[i * width + j]);
      if (size > largest)
        next = std::exchange(largest, size), at = i;
      else
        next = std::max(next, size);
    }
    if (next > 0 && largest > much_larger * next)
      job.notes.push_back(fmt::format(
          "sample {} has {} = {:.6g}, {:.1g} times the largest of the others: if that is an error, correct it or leave the "
          "sample out",
          job.train.rows[at], job.features[j], entries[at * width + j], largest / next));
  }
}

}  // namespace

void note_sizes(JobData& job) {
  if (job.scaling) return;
  note_lonely_values(job);
  constexpr double large = 1000;
  const Scaling s = standardisation(job.train.A);
  std::size_t least = 0, most = 0;
  const std::span<const double> size = s.scale.values().first(job.features.size());
  std::vector<bool> constant(size.size());
  for (const LeftOut& feature : constant_features(job)) constant[feature.place] = true;
  while (least + 1 < size.size() && constant[least]) ++least;
  most = least;
  for (std::size_t j = 0; j < size.size(); ++j) {
    if (constant[j]) continue;
    if (size[j] < size[least]) least = j;
    if (size[j] > size[most]) most = j;
  }
  if (size[most] > large * size[least])
    job.notes.push_back(fmt::format(
        "{} varies {:.2g} times as much as {}, and the penalty treats them alike: consider --standardise",
        job.features[most], std::min(size[most] / size[least], std::numeric_limits<double>::max()), job.features[least]));
}

void scale_inside(JobData& job) {
  constexpr std::size_t few_unknowns = 1000;
  const std::size_t unknowns = (job.features.size() + 1) * job.labels.size();
  if (job.scaling) return;
  if ((job.loss != Loss::softmax || unknowns >= few_unknowns) && !sizes_differ_much(job.train.A)) return;
  // Features below this size have coefficients of 0 to rounding; factors whose squares overflow would stall the iterations.
  constexpr double least_scale = 1e-15;
  job.scaling = standardisation_with_ones(job.train.A, least_scale);
  for (Samples* samples : {&job.train, job.valid ? &*job.valid : nullptr, job.test ? &*job.test : nullptr})
    if (samples != nullptr) samples->A = scaled(samples->A, *job.scaling);
  std::vector<double> factors;
  for (std::size_t j = 0; j < job.features.size(); ++j) factors.push_back(1 / std::pow(job.scaling->scale.values()[j], 2));
  job.penalty_factors = Array(Shape{job.n()}, std::move(factors));
}

}  // namespace onestep::app::jobs
