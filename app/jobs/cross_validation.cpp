// Fits once for each fold and collects the predictions of the samples held out.
#include "jobs/cross_validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "jobs/folds.h"
#include "jobs/scores.h"
#include "jobs/separating_direction.h"
#include "onestep/onestep.h"

namespace onestep::app::jobs {

CrossValidation cross_validate(const Model& model, const JobData& job, const Array& penalty, std::size_t folds,
                               std::uint64_t seed, const Array& x, Progress& progress) {
  CrossValidation found{.folds = folds, .prediction = {}, .failure = {}};
  const std::vector<std::size_t> fold = deal_out(class_of_each(job, job.train), folds, seed);
  const std::int64_t N = job.train.count();
  if (const auto alone = std::ranges::find(fold, no_fold); alone != fold.end()) {
    const double y = job.train.y.values()[static_cast<std::size_t>(alone - fold.begin())];
    found.failure = fmt::format("one sample only has the label {}", job.label_text(y));
    return found;
  }
  // Samples of the fold have weight 0, so that one trace serves all.
  const Solver solver =
      model.solver([&](Expr at, Expr w) { return sum(w * model.losses(job.train, at)) + model.penalty(at, penalty); },
                   stops_at_signals());
  Prepared prepared(solver, x, ones({N}));
  const std::size_t width = static_cast<std::size_t>(model.loss() == Loss::softmax ? model.shape()[1] : 1);
  std::vector<double> all(static_cast<std::size_t>(N) * width);
  for (std::size_t k = 0; k < folds; ++k) {
    progress.begin(fmt::format("fit: cross-validation, fold {} of {}", k + 1, folds));
    std::vector<double> w;
    for (const std::size_t f : fold) w.push_back(f == k ? 0 : 1);
    const Solution& s = prepared.solve(x, Array(Shape{N}, w));
    const Array z = linear_prediction(job.train.A, s.x());
    std::vector<std::size_t> rest;
    for (std::size_t i = 0; i < w.size(); ++i) {
      if (w[i] > 0) rest.push_back(i);
      for (std::size_t c = 0; w[i] == 0 && c < width; ++c) all[i * width + c] = z.values()[i * width + c];
    }
    if (!is_solution(s.status())) found.failure = fmt::format("without fold {} the fit did not converge", k + 1);
    if (!std::ranges::all_of(all, [](double prediction) { return std::isfinite(prediction); }))
      found.failure = fmt::format("predictions of fold {} overflow", k + 1);
    if (!job.penalised && s.statistics().shifts > 0)
      found.failure = "without one of the folds features depend on each other";
    if (job.loss != Loss::ridge && !job.penalised) {
      const Samples trained = some_of(job.train, rest);
      const double loss = model.score(trained, s.x()).loss * static_cast<double>(rest.size());
      if (loss < std::numbers::ln2 || are_separated_at(model, trained, s.x().contiguous()).value_or(false))
        found.failure = "without one of the folds the classes are linearly separable";
    }
    if (stop_signal() != 0) found.failure = "stopped";
    if (!found.failure.empty()) return found;
  }
  found.prediction = Array(width > 1 ? Shape{N, static_cast<std::int64_t>(width)} : Shape{N}, std::move(all));
  return found;
}

}  // namespace onestep::app::jobs
