// Coefficients as a table, a figure and pictures.
#pragma once

#include <optional>
#include <vector>

#include "jobs/samples.h"
#include "page/figure.h"

namespace onestep::app::jobs {

/// The coefficients that are surest not to be zero, or without standard errors the largest; and all intercepts.
page::Table coefficient_table(const JobData& job, const LinearModel& m, const std::optional<std::vector<double>>& errors);
page::Figure coefficient_figure(const JobData& job, const LinearModel& m, const std::optional<std::vector<double>>& errors);
/// A picture for each class, where features are pixels.
page::Gallery coefficient_gallery(const JobData& job, const LinearModel& m);

}  // namespace onestep::app::jobs
