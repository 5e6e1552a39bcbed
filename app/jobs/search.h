// Validation loss as a function of hyperparameters: inner problems for `minimise`, and plain evaluations for comparison.
#pragma once

#include <functional>
#include <vector>

#include "jobs/model.h"
#include "onestep/onestep.h"
#include "page/figure.h"

namespace onestep::app::jobs {

/// Samples to fit on, and samples to judge by.
struct Fold {
  Samples train, valid;
};

/// The folds of a cross-validation: each training sample is judged once, and each fold has its share of every class. The
/// only sample of a class is trained on in every fold and judged in none.
std::vector<Fold> folds_of(const JobData& job, std::size_t count, std::uint64_t seed);

/// How many samples folds judge, all of them together.
std::int64_t count_judged(const std::vector<Fold>& folds);
/// R² of predictions of all of them together, from their mean loss, half the squared error; NaN where they are all the same.
double r_squared(double mean_loss, const std::vector<Fold>& folds);

/// A search of its own, and samples that neither its fits nor its judgement have seen.
struct Round {
  std::vector<Fold> folds;  ///< what it searches with
  Samples fit;              ///< what the model is fitted on in the end
  Samples unseen;
};

/// Of folds: each is left out once, and the search is repeated with folds of the rest. Of one split: the validation samples
/// are cut into five parts, each is left out once, and the search is judged by the others. None where there are too few
/// samples, or too few of most classes, for that to tell anything.
std::vector<Round> nested_rounds(const JobData& job, const std::vector<Fold>& folds, std::uint64_t seed);

/// What `minimise` is told in every job: it listens to signals and shows its progress.
BilevelOptions bilevel_options(const JobOptions& options, const JobData& job, Progress& progress, const std::string& verb);

/// Whether its point is worth reporting. Limits are ends of a search like any other: it is then the best there was.
bool is_usable(const Outcome& outcome);
/// The status in a sentence, with the options of the command.
std::string message_of(const Outcome& outcome);
/// How a search ended, in iterations and seconds; without a point that is worth it why, and how it can go on.
std::string ended_text(const JobOptions& options, const Outcome& outcome);

/// The way of an outer iteration, and its certificate.
Json json_of(const Outcome& outcome);
/// How critical the point is, how sure that is, and what the hypergradients cost.
std::vector<std::string> accuracy_of(const Outcome& outcome);

/// The loss that it is judged by, and criticality, along the search. `minimised` is what the caption calls that loss.
page::Figure path_figure(const Outcome& outcome, const std::string& judged_by, const std::string& minimised);

}  // namespace onestep::app::jobs
