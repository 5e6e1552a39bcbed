// What `influence` says: the effects of samples, or their own losses, and how far both can be trusted.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "jobs/effects.h"
#include "jobs/model.h"
#include "jobs/report.h"
#include "jobs/samples.h"

namespace onestep::app::jobs {

/// What came out of all phases.
struct InfluenceFindings {
  const Effects& effects;
  std::size_t folds = 0;  ///< 0: judged by validation samples
  /// Whether the samples that judge had no part in the fit, nor in choosing it: only such tell what new samples gain or
  /// lose.
  bool independent = false;
  std::vector<std::size_t> order = {};  ///< the most harmful sample first; unless independent the largest own loss first
  bool verified = false;                ///< whether samples were to be left out and trained again
  std::vector<Retrained> retrained = {};
  std::size_t not_retrained = 0, not_reached = 0;  ///< how many of these failed, and how many a signal cut off
  Array test = {};                                 ///< the model that scores test samples

  /// 0 where it cannot be predicted.
  double removal(std::size_t i) const;
  /// By the fit without the sample; where there are no leverages, by the one without its fold.
  std::optional<double> own_loss(std::size_t i) const;
  std::optional<double> leverage(std::size_t i) const;
};

/// What was asked, before anything is known.
Report opening_of(double l2, const JobData& job, const Model& model, const InfluenceFindings& findings);
Report report_of(double l2, const JobData& job, const Model& model, const InfluenceFindings& findings);
/// CSV, in the order of the findings.
std::string table_of_samples(const JobData& job, const InfluenceFindings& findings);

}  // namespace onestep::app::jobs
