// Expectation maximisation for the probabilities of wrong labels, and the calibration of predicted probabilities.
#include "jobs/label_noise.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace onestep::app::jobs {

std::size_t best_other(const ClassProbabilities& p, std::size_t sample, std::size_t label) {
  const std::span<const double> row = p.row(sample);
  std::size_t best = label == 0 ? 1 : 0;
  for (std::size_t k = 0; k < p.classes; ++k)
    if (k != label && row[k] > row[best]) best = k;
  return best;
}

namespace {

// Counts of samples by class and label, which need not be whole, as probabilities that a prior draws to even noise.
LabelNoise noise_of_counts(const std::vector<double>& counts, std::size_t classes) {
  constexpr double prior = 20;  // samples of each class
  double all = 0, wrong = 0;
  for (std::size_t k = 0; k < classes; ++k)
    for (std::size_t j = 0; j < classes; ++j) {
      all += counts[k * classes + j];
      if (j != k) wrong += counts[k * classes + j];
    }
  LabelNoise result = even_noise(classes, all > 0 ? wrong / all : 0);
  for (std::size_t k = 0; k < classes; ++k) {
    const std::span<double> row = std::span(result.given).subspan(k * classes, classes);
    double size = 0;
    for (std::size_t j = 0; j < classes; ++j) size += counts[k * classes + j];
    for (std::size_t j = 0; j < classes; ++j) row[j] = (counts[k * classes + j] + prior * row[j]) / (size + prior);
  }
  return result;
}

}  // namespace

LabelNoise even_noise(std::size_t classes, double share) {
  constexpr double least = 1e-4, most = 0.9;
  const double wrong = std::clamp(share, least, most), other = wrong / (static_cast<double>(classes) - 1);
  LabelNoise result{classes, std::vector<double>(classes * classes, other), wrong};
  for (std::size_t k = 0; k < classes; ++k) result.given[k * classes + k] = 1 - wrong;
  return result;
}

LabelNoise confident_noise(const ClassProbabilities& p, const ClassIndices& labels) {
  const std::size_t K = p.classes;
  std::vector<double> usual(K), size(K), counts(K * K);
  for (std::size_t i = 0; i < labels.size(); ++i) usual[labels[i]] += p.row(i)[labels[i]], size[labels[i]] += 1;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::span<const double> row = p.row(i);
    std::size_t best = labels[i];
    for (std::size_t k = 0; k < K; ++k)
      if (size[k] > 0 && row[k] * size[k] >= usual[k] && row[k] > row[best]) best = k;
    counts[best * K + labels[i]] += 1;
  }
  return noise_of_counts(counts, K);
}

ClassProbabilities without_noise(const ClassProbabilities& p, const LabelNoise& noise) {
  const std::size_t K = p.classes;
  constexpr int steps = 20;  // of Richardson and Lucy's algorithm, which keeps signs and sums
  ClassProbabilities result = p;
  std::vector<double> mixed(K), factor(K), by_label(K * K);  // noise.given transposed: inner loops are along its rows
  for (std::size_t k = 0; k < K; ++k)
    for (std::size_t j = 0; j < K; ++j) by_label[j * K + k] = noise.of(k, j);
  for (std::size_t i = 0; i < p.count(); ++i) {
    const std::span<double> q = result.row(i);
    for (int step = 0; step < steps; ++step) {
      std::ranges::fill(mixed, 0.0), std::ranges::fill(factor, 0.0);
      for (std::size_t k = 0; k < K; ++k)
        for (std::size_t j = 0; j < K; ++j) mixed[j] += q[k] * noise.given[k * K + j];
      for (std::size_t j = 0; j < K; ++j) {
        const double ratio = mixed[j] > 0 ? p.row(i)[j] / mixed[j] : 0;
        for (std::size_t k = 0; k < K; ++k) factor[k] += by_label[j * K + k] * ratio;
      }
      for (std::size_t k = 0; k < K; ++k) q[k] *= factor[k];
    }
  }
  return result;
}

ClassProbabilities posterior(const ClassProbabilities& p, const ClassIndices& labels, const LabelNoise& noise) {
  ClassProbabilities result = p;
  for (std::size_t i = 0; i < p.count(); ++i) {
    double sum = 0;
    const std::span<double> row = result.row(i);
    for (std::size_t k = 0; k < p.classes; ++k) sum += row[k] *= noise.of(k, labels[i]);
    // Where all vanish, to rounding, nothing speaks against the label.
    for (std::size_t k = 0; k < p.classes; ++k) row[k] = sum > 0 ? row[k] / sum : (k == labels[i] ? 1.0 : 0.0);
  }
  return result;
}

std::vector<double> probably_right(const ClassProbabilities& p, const ClassIndices& labels, const LabelNoise& noise) {
  const ClassProbabilities all = posterior(p, labels, noise);
  std::vector<double> right(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) right[i] = all.row(i)[labels[i]];
  return right;
}

namespace {

constexpr double least_probability = 1e-12;  // a class is never impossible

std::vector<double> counts_by_class_and_label(const ClassProbabilities& posterior, const ClassIndices& labels) {
  const std::size_t K = posterior.classes;
  std::vector<double> counts(K * K);
  for (std::size_t i = 0; i < labels.size(); ++i)
    for (std::size_t k = 0; k < K; ++k) counts[k * K + labels[i]] += posterior.row(i)[k];
  return counts;
}

// Newton's step for the power whose probabilities q are likeliest, given the posterior r of the classes.
double next_power(double power, const ClassProbabilities& p, const ClassProbabilities& q, const ClassProbabilities& r) {
  constexpr double least = 0.1, most = 4;
  double slope = 0, curvature = 0;
  for (std::size_t i = 0; i < p.count(); ++i) {
    double mean = 0, square = 0;
    for (std::size_t k = 0; k < p.classes; ++k) {
      const double z = std::log(std::max(p.row(i)[k], least_probability));
      mean += q.row(i)[k] * z, square += q.row(i)[k] * z * z, slope += r.row(i)[k] * z;
    }
    slope -= mean, curvature += square - mean * mean;
  }
  return curvature > 0 ? std::clamp(power + slope / curvature, least, most) : power;
}

}  // namespace

LabelNoise estimate_noise(const ClassProbabilities& p, const ClassIndices& labels, const LabelNoise& guess, int steps) {
  LabelNoise noise = guess;
  for (int step = 0; step < steps && !labels.empty(); ++step)
    noise = noise_of_counts(counts_by_class_and_label(posterior(p, labels, noise), labels), p.classes);
  return noise;
}

ClassProbabilities tempered(const ClassProbabilities& p, double power) {
  ClassProbabilities result = p;
  for (std::size_t i = 0; i < p.count(); ++i) {
    double sum = 0;
    for (double& entry : result.row(i)) sum += entry = std::pow(std::max(entry, least_probability), power);
    for (double& entry : result.row(i)) entry /= sum;
  }
  return result;
}

double estimate_power(const ClassProbabilities& p, const ClassIndices& labels, int steps) {
  ClassProbabilities r{p.classes, std::vector<double>(p.entries.size())};
  for (std::size_t i = 0; i < labels.size(); ++i) r.row(i)[labels[i]] = 1;
  double power = 1;
  for (int step = 0; step < steps && !labels.empty(); ++step) power = next_power(power, p, tempered(p, power), r);
  return power;
}

CalibratedNoise estimate_noise_and_power(const ClassProbabilities& p, const ClassIndices& labels, const LabelNoise& guess,
                                         int steps) {
  CalibratedNoise result{guess, 1};
  for (int step = 0; step < steps && !labels.empty(); ++step) {
    const ClassProbabilities q = tempered(p, result.power), r = posterior(q, labels, result.noise);
    result = {noise_of_counts(counts_by_class_and_label(r, labels), p.classes), next_power(result.power, p, q, r)};
  }
  return result;
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
