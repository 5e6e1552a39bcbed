// Which labels are wrong, judged by the probabilities that fits without the sample give to the classes. Labels are taken as
// right with probability 1 - e and else as any of the other classes, all alike.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace onestep::app::jobs {

/// Probabilities of `classes` classes, a row for each sample.
struct ClassProbabilities {
  std::size_t classes = 0;
  std::vector<double> entries;

  std::size_t count() const { return entries.size() / classes; }
  std::span<const double> row(std::size_t i) const { return std::span(entries).subspan(i * classes, classes); }
  std::span<double> row(std::size_t i) { return std::span(entries).subspan(i * classes, classes); }
};

using ClassIndices = std::vector<std::size_t>;

/// The most probable class of those that are not the sample's label.
std::size_t best_other(const ClassProbabilities& p, std::size_t sample, std::size_t label);

/// The share of samples for which another class is as probable as it is on average for samples with that label, and more
/// probable than their own: the first guess of confident learning (Northcutt, Jiang, Chuang 2021) at e. It does not need
/// calibrated probabilities.
double confident_share(const ClassProbabilities& p, const ClassIndices& labels);

/// Fits to labels of which a share e is wrong give probabilities that are mixed with noise; this takes it out again.
ClassProbabilities without_noise(const ClassProbabilities& p, double e);

/// P(class | features, label): rows sum to 1.
ClassProbabilities posterior(const ClassProbabilities& p, const ClassIndices& labels, double e);
/// The entries of the posterior at the labels: how probable it is that each label is right.
std::vector<double> probably_right(const ClassProbabilities& p, const ClassIndices& labels, double e);

/// The most likely e: some steps of expectation maximisation from a guess.
double noise_share(const ClassProbabilities& p, const ClassIndices& labels, double guess, int steps);

/// The set of samples with the least probability to be right whose expected F1 score, against the labels that are wrong, is
/// largest. Empty where less than half a wrong label is expected.
std::vector<bool> most_probably_wrong(std::span<const double> right);

}  // namespace onestep::app::jobs
