// What `influence` draws, and how it says that predictions and trainings agree.
#pragma once

#include <string>
#include <vector>

#include "jobs/effects.h"
#include "page/figure.h"

namespace onestep::app::jobs {

/// The probability that a normal variable is more than two standard deviations from its mean.
constexpr double chance_beyond_two_errors = 0.0455;
/// Standard errors that the largest of so many effects, all of them 0, exceeds with a probability of at most 5 %.
double bonferroni_errors(std::size_t tests);

/// How predicted changes and those of training again agree.
struct Agreement {
  double correlation = 0;
  double slope = 0;                            ///< of actual changes by predicted ones, through the origin
  double median_error = 0, largest_error = 0;  ///< of predictions, relative to the actual change
};
Agreement agreement(const std::vector<Retrained>& all, double Retrained::*predicted);
std::string text_of(const Agreement& agreement);
Json json_of(const Agreement& agreement);
/// Null where there is none.
Json number_or_null(double value);

/// Effects from the most harmful to the most helpful, and the same in standard errors.
page::Figure ranking_figure(const std::vector<double>& removals, const std::vector<double>& certainties);
/// Own losses in descending order, and the leverages of the same samples, if there are such.
page::Figure own_loss_figure(const std::vector<double>& losses, const std::vector<double>& leverages);
page::Figure verification_figure(const std::vector<Retrained>& all);

}  // namespace onestep::app::jobs
