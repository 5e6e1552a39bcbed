#include "jobs/inner_scaling.h"

#include <algorithm>
#include <cmath>

namespace onestep::app::jobs {

bool sizes_differ_much(const Array& A) {
  constexpr double much = 1e4;
  const Scaling unit = standardisation_with_ones(A);
  const auto [least, most] = std::ranges::minmax(unit.scale.values());
  return most > much * least;
}

void scale_inside(JobData& job) {
  constexpr std::size_t few_unknowns = 1000;
  const std::size_t unknowns = (job.features.size() + 1) * job.labels.size();
  if (job.loss != Loss::softmax || job.scaling) return;
  if (unknowns >= few_unknowns && !sizes_differ_much(job.train.A)) return;
  // Features below this size have coefficients of 0 to rounding; factors whose squares overflow would stall the iterations.
  constexpr double least_scale = 1e-15;
  const Scaling unit = standardisation_with_ones(job.train.A);
  std::vector<double> scale(unit.scale.values().begin(), unit.scale.values().end());
  for (double& s : scale) s = std::max(s, least_scale);
  job.scaling = Scaling{unit.mean, Array(unit.scale.shape(), std::move(scale))};
  for (Samples* samples : {&job.train, job.valid ? &*job.valid : nullptr, job.test ? &*job.test : nullptr})
    if (samples != nullptr) samples->A = scaled(samples->A, *job.scaling);
  std::vector<double> factors;
  for (std::size_t j = 0; j < job.features.size(); ++j) factors.push_back(1 / std::pow(job.scaling->scale.values()[j], 2));
  job.penalty_factors = Array(Shape{job.n()}, std::move(factors));
}

}  // namespace onestep::app::jobs
