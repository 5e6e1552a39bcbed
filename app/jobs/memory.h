// How much memory a job will need, before it takes it.
#pragma once

#include <cstdint>

#include "jobs/samples.h"

namespace onestep::app::jobs {

/// What is held at once where a job needs most. The counts were fitted to the peaks of runs on made samples, from thin
/// (150,000 by 10) to wide (5,000 by 300); on other shapes they are an estimate.
struct Need {
  double matrices = 0;   ///< of all samples: N by n + 1
  double vectors = 0;    ///< numbers for each sample
  double per_class = 0;  ///< of softmax: numbers for each sample and class
  double hessians = 0;   ///< matrices of all coefficients by all coefficients
};

Need need_of_loading(const JobOptions& options);
Need need_of_fit(Loss loss);
Need need_of_influence();
Need need_of_clean(Loss loss);
/// With folds, and the folds of each fold where penalties of single features are judged on unseen samples.
Need need_of_tune(Loss loss, double folds, bool nested);

/// How many samples, features and classes it is about.
struct Sizes {
  double samples = 0, features = 0, classes = 0;  ///< classes: of softmax, else 0
};
Sizes sizes_of(const JobData& job);

/// In bytes, with what the program needs without samples.
double bytes_of(const Need& need, const Sizes& sizes);

/// Throws Misuse when that, or what was needed for reading, is above --memory; else returns the larger of the two.
double require_memory(const JobOptions& options, const std::string& file, const Need& need, const Sizes& sizes);

}  // namespace onestep::app::jobs
