// Mislabelled samples without a look at them: every label is judged by fits that did not see it.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "jobs/label_noise.h"
#include "jobs/samples.h"
#include "jobs/soft_fits.h"

namespace onestep::app::jobs {

/// What fits that did not see a sample say about its label. Entries are for the training samples.
struct Judgement {
  std::vector<double> quality;     ///< probability of the label under a model of the samples that are no suspects
  std::vector<double> right;       ///< probability that the label is right, the share of wrong labels taken into account
  std::vector<std::size_t> other;  ///< the most probable class that is not the label
  std::vector<bool> suspects;
  std::vector<bool> judged;  ///< not the only one of its class
  double noise = 0;          ///< the share of labels that are estimated to be wrong
  LabelNoise label_noise;    ///< the same by class
  double power = 1;          ///< that makes the probabilities of a fit without suspects those of right labels
  double plain_power = 1;    ///< that makes the probabilities of a plain fit those of the labels as they stand
};

/// A mean over samples, before and after the suspects are left out.
struct BeforeAndAfter {
  double before = 0, after = 0, standard_error = 0;  ///< the standard error is that of the difference

  double difference() const { return after - before; }
};

/// The model without the suspects beside the one of all samples, on samples that neither saw and that had no part in
/// choosing the suspects.
struct Comparison {
  std::size_t samples = 0;
  BeforeAndAfter accuracy;
  /// Minus the log probability of the labels as they stand: the model without suspects speaks of right labels, of which a
  /// share is taken to be wrong, as it was estimated without the held-out samples. Both models are calibrated without these,
  /// too: to allow for noise makes a model less sure, which is a gain for any that overfits, and no gain of cleaning. Of
  /// trusted labels none is wrong, and models are compared as they are.
  BeforeAndAfter loss;
  bool trusted = false;  ///< whether the labels they are compared by are trusted ones
  /// The class frequencies alone (before) beside the model of all samples as they are (after), by the same samples.
  BeforeAndAfter accuracy_of_model, loss_of_model;

  /// How much more probable that model finds a label than one that is drawn by the class frequencies, as the mean of the
  /// difference of log probabilities. It is 0 but for chance where labels have nothing to do with features, and does not
  /// depend on how well the model is calibrated, which with many wrong labels it is not.
  BeforeAndAfter association;

  /// Whether the model of all samples predicts held-out labels better than the class frequencies do, by more than chance
  /// gives. One that does not is no judge of labels.
  bool tells_labels() const { return association.after > enough_errors * association.standard_error; }
  /// Standard errors. Fits of different folds share most samples, so that chance gives more than three one or two times in a
  /// hundred, and more than 2.33 one time in twenty (480 sets with random labels).
  static constexpr double enough_errors = 3;
  /// Worse without the suspects by more than two standard errors. Only trusted labels can tell: where labels of one class
  /// are wrong more often than those of another, a model of right labels is worse by the labels as they stand.
  bool harms() const {
    if (!trusted) return false;
    return loss.difference() > 2 * loss.standard_error || accuracy.difference() < -2 * accuracy.standard_error;
  }

  /// Whether cleaning helps. Labels as they stand cannot show that it does not: without trusted ones that is never said.
  const char* verdict() const {
    if (helps()) return "helps";
    return !trusted ? "cannot be shown to help" : harms() ? "does harm" : "does not help";
  }

  /// Better in one by more than chance gives one time in ten, and in the other not worse by a standard error.
  bool helps() const {
    constexpr double errors = 1.28;
    const double more = accuracy.difference(), less = -loss.difference();
    return (more > errors * accuracy.standard_error && less >= -loss.standard_error) ||
           (less > errors * loss.standard_error && more >= -accuracy.standard_error);
  }
};

/// Every sample is judged by fits that its label did not reach by any way: neither as a sample, nor through what was thought
/// of the labels of others, nor through where a fit started. So fits are nested. Plain fits without three of five folds
/// judge one of these for fits without the other two, which leave out what is unlikely, at most half of each class. These
/// judge one fold for the fit without the other, and that leaves out the suspects and judges its fold. How often each class
/// is mislabelled is estimated along the way, at first by confident learning. Samples with trusted labels join every fit but
/// those without their fold.
class Cleaner {
 public:
  /// `trusted` may be null. The model is ready to solve, and outlives this.
  Cleaner(const JobData& job, const Model& model, const Samples* trusted, double l2, std::uint64_t seed, Progress& progress);

  Judgement judge();
  /// By the same fits: each fold of the trusted samples where there are some, else of the training samples, whose labels may
  /// be wrong, scored by the models of the rest with and without the suspects among it.
  Comparison compare();
  /// The model of all training samples (and the trusted ones) but some.
  Array fit_without(const std::vector<bool>& left_out);
  int fits() const { return fits_; }

 private:
  using Mask = std::vector<bool>;
  using FoldSet = unsigned;                    // a bit for each fold
  using Solutions = std::map<FoldSet, Array>;  // of fits without these folds
  enum class Precision { rough, close };
  // Training samples, with the probabilities of fits without them.
  struct Unseen {
    std::vector<std::size_t> members;
    ClassIndices labels;
    ClassProbabilities p;
  };
  // What is known without a fold.
  struct OneFold {
    Judgement judgement;  // of the rest
    Array after;          // without its suspects
  };
  Array fit_without_folds(FoldSet held_out, const Mask& used, const Array& start, Precision precision);
  Unseen unseen(FoldSet held_out, const Solutions& solutions) const;
  Judgement judgement_of(const Unseen& unseen, const LabelNoise& guess) const;
  void write_mean_probabilities(const Solutions& solutions, FoldSet fold, std::size_t sample, std::span<double> to) const;
  std::vector<double> class_frequencies(const Mask& used) const;
  ClassProbabilities labels_as_they_are(const Mask& used) const;
  void write_probabilities(const Array& x, std::size_t sample, std::span<double> to) const;
  Mask unlikely(const std::vector<std::size_t>& members, const ClassProbabilities& p) const;
  void keep_every_class(ClassProbabilities& targets, const Mask& allowed) const;
  void count_fit();

  const JobData& job_;
  const Model& model_;
  Progress& progress_;
  Samples all_;            // training samples, then trusted ones
  std::size_t train_ = 0;  // how many of them are training samples
  std::size_t classes_ = 0;
  ClassIndices labels_;
  std::vector<std::size_t> fold_;  // of each of all; no_fold: never held out
  Mask judged_;
  SoftFits fits_of_all_;
  Solutions plain_;
  Solutions without_unlikely_;  // or, with one fold held out, without suspects
  std::map<FoldSet, OneFold> one_fold_;
  int fits_ = 0;
};

}  // namespace onestep::app::jobs
