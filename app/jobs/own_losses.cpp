// The loss of each sample by the fit without it: from its leverage, and for the largest by refined steps.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "jobs/leave_one_out.h"

namespace onestep::app::jobs {

namespace {

// The loss of a sample with the label y for which the model has these outputs.
double loss_of_outputs(Loss loss, std::span<const double> out, double y) {
  if (loss == Loss::ridge) return 0.5 * (out[0] - y) * (out[0] - y);
  if (loss == Loss::logistic) return std::max(0.0, -y * out[0]) + std::log1p(std::exp(-std::fabs(out[0])));
  const auto label = static_cast<std::size_t>(y);
  const double largest = std::ranges::max(out);
  double others = 0, sum = 0;  // in units of the largest: of the other classes, and of all
  for (std::size_t k = 0; k < out.size(); ++k) {
    const double e = std::exp(out[k] - largest);
    sum += e, others += k == label ? 0 : e;
  }
  // Where the label is nearly certain the logarithm of 1 + others would lose the digits of a small loss.
  return out[label] == largest ? std::log1p(others) : std::log(sum) + largest - out[label];
}

}  // namespace

std::vector<std::optional<OwnLoss>> LeaveOneOut::own_losses() const {
  const auto N = static_cast<std::size_t>(train_.count());
  const std::size_t K = outputs_, m = n_ * K;
  std::vector<std::optional<OwnLoss>> result(N);
  std::vector<double> out(K);
  // With `change` added to the outputs that the fit has for the sample.
  const auto loss_after = [&](std::size_t i, const auto& change) {
    const std::span<const double> a = train_.A.values().subspan(i * n_, n_), x = x_.values();
    for (std::size_t k = 0; k < K; ++k) {
      out[k] = change(k);
      for (std::size_t j = 0; j < n_; ++j) out[k] += a[j] * x[j * K + k];
    }
    return loss_of_outputs(model_.loss(), out, train_.y.values()[i]);
  };
  std::vector<std::size_t> largest;
  for (std::size_t i = 0; i < N; ++i) {
    if (!unique_[i]) continue;
    const double *M = &leverages_[i * K * K], *t = &directions_[i * K], *C = &curvature_.values()[i * K * K];
    const double loss = loss_after(i, [&](std::size_t k) { return std::inner_product(t, t + K, M + k * K, 0.0); });
    if (!std::isfinite(loss)) continue;
    result[i] = {.loss = loss, .leverage = std::inner_product(C, C + K * K, M, 0.0)};  // both are symmetric
    largest.push_back(i);
  }
  if (model_.loss() == Loss::ridge) return result;
  std::ranges::stable_sort(largest, std::greater{}, [&](std::size_t i) { return result[i]->loss; });
  largest = as_many_as_affordable(std::move(largest));
  const std::vector<double> steps = refined_steps(largest);
  for (std::size_t s = 0; s < largest.size(); ++s) {
    const std::size_t i = largest[s];
    const std::span<const double> a = train_.A.values().subspan(i * n_, n_);
    const double loss = loss_after(i, [&](std::size_t k) {
      double change = 0;
      for (std::size_t j = 0; j < n_; ++j) change += a[j] * steps[s * m + j * K + k];
      return change;
    });
    if (std::isfinite(loss)) result[i]->loss = loss;
  }
  return result;
}

}  // namespace onestep::app::jobs
