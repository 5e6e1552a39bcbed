// The figures of `tune`: the validation loss against a hyperparameter, or many hyperparameters beside each other.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "onestep/bilevel.h"
#include "page/figure.h"

namespace onestep::app::jobs {

/// A hyperparameter that was tried and the validation loss there, infinite where the fit failed.
using Tried = std::pair<double, double>;

/// The places of the values, the smallest first.
std::vector<std::size_t> ascending(const std::vector<double>& values);

/// Validation loss against the only hyperparameter: what was tried before the search, where the search went, and a grid.
page::Figure curve_figure(const std::string& hyper, const Outcome& search, const std::vector<Tried>& before,
                          const std::vector<Tried>& grid);

/// Many of them, all of which started from the same value: by name while there is room, else only their sizes.
page::Figure values_figure(const std::string& hyper, const std::vector<std::string>& names,
                           const std::vector<double>& values, double start);

}  // namespace onestep::app::jobs
