// Gives a share of the samples, drawn at random, another label.
#include "jobs/flip.h"

#include <cmath>
#include <random>

namespace onestep::app::jobs {

std::vector<bool> flip_labels(Samples& samples, const JobData& job, double share, std::uint64_t seed) {
  const auto count = static_cast<std::size_t>(samples.count());
  std::vector<bool> flipped(count);
  std::vector<double> y(samples.y.values().begin(), samples.y.values().end());
  const std::vector<std::size_t> order = shuffled(count, seed + 1);
  std::mt19937_64 engine(seed + 2);
  const std::size_t K = job.labels.size();
  for (std::size_t i = 0; i < static_cast<std::size_t>(std::llround(share * static_cast<double>(count))); ++i) {
    double& label = y[order[i]];
    flipped[order[i]] = true;
    label = job.loss == Loss::logistic ? -label
                                       : static_cast<double>((static_cast<std::size_t>(label) + 1 + engine() % (K - 1)) % K);
  }
  samples.y = Array({samples.count()}, y);
  if (job.loss == Loss::softmax) samples.Y = one_hot({y.begin(), y.end()}, K);
  return flipped;
}

}  // namespace onestep::app::jobs
