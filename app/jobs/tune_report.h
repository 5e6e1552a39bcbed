// What `tune` says: the hyperparameters found, what they are worth, and how sure that is.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "jobs/group_weights.h"
#include "jobs/hyper.h"
#include "jobs/model.h"
#include "jobs/report.h"
#include "jobs/samples.h"
#include "jobs/search.h"
#include "jobs/spread.h"
#include "jobs/tune_figures.h"
#include "jobs/tune_options.h"

namespace onestep::app::jobs {

/// What came out of all phases.
struct TuneFindings {
  std::string stopped_in;            ///< the phase that a signal cut short; empty when none did
  std::vector<Tried> probes;         ///< of one penalty for all
  std::optional<Tried> shared;       ///< the best one, and its loss, where penalties of single features were asked for
  SpreadChoice spread;               ///< how far these may lie apart
  GroupChoice groups;                ///< whether weights of groups are worth having
  Outcome search;                    ///< the last one, with the hyperprior in its values
  bool found = false;                ///< whether its end can be used
  std::vector<double> values;        ///< of the hyperparameters
  double loss = 0;                   ///< of validation at the end, which the search minimised, without the hyperprior
  std::optional<double> begun_loss;  ///< and where it began
  std::optional<Array> x, begun_x;   ///< coefficients: with what was found, and with what it began
  Status fit_status = Status::converged;
  std::vector<Tried> compared;  ///< a grid or random points, by the first hyperparameter
  double best_compared = 0;
  std::vector<double> best_compared_at;
  bool went_on_from_compared = false;  ///< as the best of these was better than where the search ended
  std::int64_t saved_samples = 0;      ///< that the model which was saved is fitted on; 0: none was
  int solves_before = 0;               ///< the last search
  double seconds = 0;                  ///< all phases, those before a resume included
  bool resumed = false;

  /// Whether there is an answer, and a model with it. One whose last hypergradient is unknown may be any point on the way.
  bool is_usable() const {
    return found && is_solution(fit_status) && search.status != Status::singular && std::isfinite(search.norm);
  }
  int solves() const { return search.evaluations + solves_before; }
};

/// `hyper` is what was asked for.
Report report_of(const TuneOptions& options, const JobData& job, const Model& model, const Hyper& hyper,
                 const std::vector<Fold>& folds, const TuneFindings& findings);

}  // namespace onestep::app::jobs
