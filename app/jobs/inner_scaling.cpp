#include "jobs/inner_scaling.h"

#include <algorithm>
#include <cmath>

namespace onestep::app::jobs {

void scale_inside(JobData& job) {
  constexpr std::size_t most_unknowns = 1000;  // above it a rough fit is made first, and solves depend on it
  const std::size_t unknowns = (job.features.size() + 1) * job.labels.size();
  if (job.loss != Loss::softmax || job.scaling || unknowns >= most_unknowns) return;
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
