// Which labels are wrong, judged by the probabilities that fits without the sample give to the classes. Each class has its
// own probabilities of being given each label, whatever the features.
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

/// How often samples of each class are given each label.
struct LabelNoise {
  std::size_t classes = 0;
  std::vector<double> given;  ///< P(label | class), a row for each class
  double share = 0;           ///< of all labels, those that are wrong

  double of(std::size_t of_class, std::size_t label) const { return given[of_class * classes + label]; }
};

/// A share of wrong labels in each class, all other labels alike.
LabelNoise even_noise(std::size_t classes, double share);

/// The first guess, by confident learning (Northcutt, Jiang, Chuang 2021): a sample counts for the most probable of the
/// classes that are as probable as they are on average for samples with that label, and more probable than its own; else for
/// its own. It does not need calibrated probabilities.
LabelNoise confident_noise(const ClassProbabilities& p, const ClassIndices& labels);

/// Fits to noisy labels give probabilities that are mixed with noise; this takes it out again, as well as is possible with
/// no probability below 0.
ClassProbabilities without_noise(const ClassProbabilities& p, const LabelNoise& noise);

/// P(class | features, label): rows sum to 1.
ClassProbabilities posterior(const ClassProbabilities& p, const ClassIndices& labels, const LabelNoise& noise);
/// The entries of the posterior at the labels: how probable it is that each label is right.
std::vector<double> probably_right(const ClassProbabilities& p, const ClassIndices& labels, const LabelNoise& noise);

/// The most probable noise: some steps of expectation maximisation from a guess. As if 20 more samples of each class had
/// noise that is the same for all classes, so that classes with few samples take the noise of all.
LabelNoise estimate_noise(const ClassProbabilities& p, const ClassIndices& labels, const LabelNoise& guess, int steps);

/// Probabilities to a power, rows summing to 1 again: below 1 less sure of themselves, above 1 more.
ClassProbabilities tempered(const ClassProbabilities& p, double power);
/// The power that makes the labels as they stand most probable.
double estimate_power(const ClassProbabilities& p, const ClassIndices& labels, int steps);
/// The noise together with the power that makes the probabilities those of right labels. A fit without samples that speak
/// against it is too sure of itself, and what it is too sure of would be taken for noise where classes overlap; a penalised
/// fit to few samples is not sure enough, and wrong labels would be taken for classes that overlap.
struct CalibratedNoise {
  LabelNoise noise;
  double power = 1;
};
CalibratedNoise estimate_noise_and_power(const ClassProbabilities& p, const ClassIndices& labels, const LabelNoise& guess,
                                         int steps);

/// The set of samples with the least probability to be right whose expected F1 score, against the labels that are wrong, is
/// largest. Empty where less than half a wrong label is expected.
std::vector<bool> most_probably_wrong(std::span<const double> right);

}  // namespace onestep::app::jobs
