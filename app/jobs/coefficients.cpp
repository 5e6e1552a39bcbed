// Undoes the scaling of the features in the coefficients, and writes them as JSON.
#include "jobs/coefficients.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace onestep::app::jobs {

LinearModel raw(const JobData& job, const Model& model, const Array& x) {
  const std::int64_t n = job.n(), K = model.loss() == Loss::softmax ? model.shape()[1] : 0;
  const auto entries = x.values();
  const auto count = static_cast<std::size_t>(n * std::max<std::int64_t>(1, K));
  const std::vector<double> first(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(count)),
      last(entries.begin() + static_cast<std::ptrdiff_t>(count), entries.end());
  LinearModel result{K > 0 ? Array({n, K}, first) : Array({n}, first), K > 0 ? Array({K}, last) : Array(last[0])};
  if (!job.scaling) return result;
  const auto first_n = [n](const Array& a) {
    return evaluate(traced([n](Expr v) { return slice(v, 0, n); }, a.shape()), {a})[0];
  };
  return unscaled(result, {first_n(job.scaling->mean), first_n(job.scaling->scale)});
}

Json rows_to_json(std::span<const double> entries, std::int64_t columns) {
  if (columns == 0) return std::vector<double>(entries.begin(), entries.end());
  Json rows = Json::array();
  const auto width = static_cast<std::size_t>(columns);
  for (std::size_t i = 0; i + width <= entries.size(); i += width)
    rows.push_back(std::vector<double>(entries.begin() + static_cast<std::ptrdiff_t>(i),
                                       entries.begin() + static_cast<std::ptrdiff_t>(i + width)));
  return rows;
}

Json json_of(const JobData& job, const LinearModel& model) {
  const std::int64_t K = model.x.shape().rank() == 2 ? model.x.shape()[1] : 0;
  return {{"names", job.features},
          {"coefficients", rows_to_json(model.x.values(), K)},
          {"intercept", K > 0 ? rows_to_json(model.intercept.values(), 0) : Json(model.intercept.item())}};
}

}  // namespace onestep::app::jobs
