// How far the penalties of single features may lie apart: decided by samples that the search for them has not seen.
#pragma once

#include <string>
#include <vector>

#include "jobs/hyper.h"
#include "jobs/journal.h"
#include "jobs/search.h"

namespace onestep::app::jobs {

/// The standard deviation of the logarithms of penalties under the hyperprior, and what searches with it came to on samples
/// they had not seen. A deviation of 0 is one penalty for all.
struct SpreadScore {
  double deviation = 0;
  double loss = 0, loss_error = 0;  ///< mean over the unseen samples, and its standard error
  double score = 0;                 ///< accuracy or R2 there
  double gain = 0, gain_error = 0;  ///< the loss with one penalty for all less this one, and the standard error of that

  /// A standard error of five rounds is itself uncertain, and several deviations are tried: one is not enough.
  bool is_certain() const { return gain > 2 * gain_error; }
};

struct SpreadChoice {
  std::vector<SpreadScore> tried;  ///< the first has the deviation 0; empty where nothing could be judged
  std::size_t chosen = 0;
  std::string note;  ///< why nothing could be judged
  int solves = 0;

  bool is_shared() const { return tried.empty() || tried[chosen].deviation == 0; }
};

/// Of the mean over all samples. Those of a round share a model, so that they may vary together: where the means of the
/// rounds vary more than independent samples would, that counts.
double standard_error_of(const std::vector<std::vector<double>>& rounds);

/// Penalties of single features: a hyperprior draws them to the best one for all, and how strongly is judged in nested
/// rounds.
class SpreadSearch {
 public:
  /// `shared` and `single` are the hyperparameters l2 and l2-per-feature of the same samples and model, which outlive this.
  SpreadSearch(const JobData& job, const Model& model, const Hyper& shared, const Hyper& single, Journal& journal,
               Progress& progress)
      : job_(job), model_(model), shared_(shared), single_(single), journal_(journal), progress_(progress) {}

  /// Repeats the search in each round for one penalty for all and for growing deviations, as long as they do not do worse.
  /// Of those that gain more than two standard errors, the smallest deviation is chosen whose unseen loss is within a
  /// standard error of the least; without any, one penalty for all. `start` is a good one. Stops when a signal comes.
  SpreadChoice choose(const std::vector<Round>& rounds, double start);

  /// The hyperprior for a search with these folds, whose least loss with one penalty for all, `shared`, is `shared_loss`.
  Hyperprior prior(const std::vector<Fold>& folds, double deviation, double shared, double shared_loss) const;
  /// How closely such a search has to be critical: to a fraction of what one sample says.
  double tolerance(const std::vector<Fold>& folds, double shared_loss) const;

 private:
  struct Found;  // of one search in one round
  Found search(const Round& round, const std::string& name, double deviation, double start, const Found* before);
  SpreadScore scored(double deviation, const std::vector<Found>& found, const std::vector<Found>& shared) const;

  const JobData& job_;
  const Model& model_;
  const Hyper& shared_;
  const Hyper& single_;
  Journal& journal_;
  Progress& progress_;
};

/// The inner problems of a search, each weighed by how many samples it judges.
std::vector<Inner> inner_of(const Hyper& hyper, const std::vector<Fold>& folds, Hyperprior prior = {},
                            const SolveOptions& options = {});

/// For fits whose loss is compared and then forgotten: their coefficients have six digits, their loss twelve.
SolveOptions rough_fit();

}  // namespace onestep::app::jobs
