#include "jobs/label_noise.h"

#include <algorithm>
#include <numeric>

namespace onestep::app::jobs {

std::size_t best_other(const ClassProbabilities& p, std::size_t sample, std::size_t label) {
  const std::span<const double> row = p.row(sample);
  std::size_t best = label == 0 ? 1 : 0;
  for (std::size_t k = 0; k < p.classes; ++k)
    if (k != label && row[k] > row[best]) best = k;
  return best;
}

double confident_share(const ClassProbabilities& p, const ClassIndices& labels) {
  std::vector<double> usual(p.classes), size(p.classes);
  for (std::size_t i = 0; i < labels.size(); ++i) usual[labels[i]] += p.row(i)[labels[i]], size[labels[i]] += 1;
  std::size_t confident = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::span<const double> row = p.row(i);
    for (std::size_t k = 0; k < p.classes; ++k)
      if (k != labels[i] && size[k] > 0 && row[k] * size[k] >= usual[k] && row[k] > row[labels[i]]) {
        ++confident;
        break;
      }
  }
  return labels.empty() ? 0 : static_cast<double>(confident) / static_cast<double>(labels.size());
}

ClassProbabilities without_noise(const ClassProbabilities& p, double e) {
  const double K = static_cast<double>(p.classes), other = e / (K - 1);
  constexpr double least = 1e-6;  // a class is never impossible
  ClassProbabilities result = p;
  for (std::size_t i = 0; i < p.count(); ++i) {
    double sum = 0;
    // p = (1 - e) q + e / (K - 1) (1 - q), up to a factor that the sum takes out.
    for (double& entry : result.row(i)) sum += entry = std::max(entry - other, least);
    for (double& entry : result.row(i)) entry /= sum;
  }
  return result;
}

ClassProbabilities posterior(const ClassProbabilities& p, const ClassIndices& labels, double e) {
  const double other = e / (static_cast<double>(p.classes) - 1);
  ClassProbabilities result = p;
  for (std::size_t i = 0; i < p.count(); ++i) {
    double sum = 0;
    const std::span<double> row = result.row(i);
    for (std::size_t k = 0; k < p.classes; ++k) sum += row[k] *= k == labels[i] ? 1 - e : other;
    // Where all vanish, to rounding, nothing speaks against the label.
    for (std::size_t k = 0; k < p.classes; ++k) row[k] = sum > 0 ? row[k] / sum : (k == labels[i] ? 1.0 : 0.0);
  }
  return result;
}

std::vector<double> probably_right(const ClassProbabilities& p, const ClassIndices& labels, double e) {
  const ClassProbabilities all = posterior(p, labels, e);
  std::vector<double> right(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) right[i] = all.row(i)[labels[i]];
  return right;
}

double noise_share(const ClassProbabilities& p, const ClassIndices& labels, double guess, int steps) {
  constexpr double least = 1e-4, most = 0.9;
  double e = std::clamp(guess, least, most);
  for (int step = 0; step < steps && !labels.empty(); ++step) {
    const std::vector<double> right = probably_right(p, labels, e);
    e = std::clamp(1 - std::reduce(right.begin(), right.end()) / static_cast<double>(right.size()), least, most);
  }
  return e;
}

std::vector<bool> most_probably_wrong(std::span<const double> right) {
  std::vector<bool> wrong(right.size());
  std::vector<std::size_t> order(right.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return right[i]; });
  double expected = 0;
  for (const double r : right) expected += 1 - r;
  if (expected < 0.5) return wrong;
  double found = 0, best = 0;
  std::size_t size = 0;
  for (std::size_t k = 0; k < order.size(); ++k) {
    found += 1 - right[order[k]];
    const double f1 = 2 * found / (static_cast<double>(k + 1) + expected);
    if (f1 > best) best = f1, size = k + 1;
  }
  for (std::size_t k = 0; k < size; ++k) wrong[order[k]] = true;
  return wrong;
}

}  // namespace onestep::app::jobs
