// How good predictions are: losses, shares of right ones, AUC, confusion and calibration of classes; errors of quantities.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "jobs/samples.h"
#include "page/figure.h"

namespace onestep::app::jobs {

/// What a linear model with the unknowns x says of each sample: (N), or (N, K) for softmax. The order of summation is fixed,
/// so that a model that was saved says the same to the last bit.
Array linear_prediction(const Array& A, const Array& x);
/// Throws Misuse where a prediction overflows, or is so large that its square might: names the sample of the file and the
/// feature. What follows here takes predictions that have passed this.
void require_finite(const JobData& job, const Samples& samples, const Array& x, const Array& prediction,
                    const std::string& file);
/// (N, K): of the classes, for each sample.
Array class_probabilities(Loss loss, const Array& prediction);
/// The likeliest class of each sample.
std::vector<std::size_t> likeliest_classes(Loss loss, const Array& prediction);

/// The loss of each sample; `y` as Samples have it.
std::vector<double> losses_of(Loss loss, const Array& prediction, const Array& y);

/// The area under the ROC curve: the probability that a sample of the class has a larger value than one of the rest; ties
/// count half. Values are numbers. None where there are none of the class, or no others.
std::optional<double> auc_of(const std::vector<double>& values, const std::vector<bool>& in_class);

/// Samples with similar predicted probabilities: how large they were on average, and how often it came true.
struct CalibrationGroup {
  std::size_t count = 0;
  double predicted = 0, observed = 0;
};

struct Scores {
  std::size_t samples = 0;
  double loss = 0, loss_error = 0;  ///< mean, and its standard error
  // Of classes.
  double accuracy = 0, balanced = 0;
  double brier = 0;                ///< mean squared error of the probabilities, summed over more than two classes
  std::optional<double> auc = {};  ///< mean over the classes against the rest; none with one class only
  std::vector<std::vector<std::size_t>> confusion = {};  ///< a row for each class that samples have, a column for each found
  /// Up to ten groups of about the same size, by the probability of the second of two classes, or of the likeliest of
  /// several.
  std::vector<CalibrationGroup> calibration = {};
  double calibration_error = 0;  ///< mean distance of predicted and observed
  // Of quantities.
  double r2 = 0;  ///< NaN where the targets are all the same
  double rmse = 0, mae = 0;
};

/// `y` as Samples have it. Throws Misuse where a prediction is not finite.
Scores scores_of(const JobData& job, const Array& prediction, const Array& y);

/// With "samples", "loss", and "accuracy" or "R2", which all jobs have, before the rest.
Json json_of(const JobData& job, const Scores& scores);

/// A row of the table for each.
struct NamedScores {
  std::string name;
  Scores scores;
};
page::Table score_table(const JobData& job, const std::vector<NamedScores>& all);
/// None where there are too many classes to be read.
std::optional<page::Table> confusion_table(const JobData& job, const NamedScores& scores);
page::Figure calibration_figure(const JobData& job, const NamedScores& scores);

}  // namespace onestep::app::jobs
