// How much memory a job will need, before it takes it.
#pragma once

#include <string>
#include <vector>

#include "jobs/samples.h"

namespace onestep::app::jobs {

/// What is held at once where a phase of a job needs most. The counts were fitted to the peaks of runs on 22 files, thin
/// (300,000 by 8) and wide (3,000 by 784); docs/jobs.md has those of others.
struct Need {
  double matrices = 0;             ///< of all samples: N by n + 1
  double vectors = 0;              ///< numbers for each sample
  double per_class = 0;            ///< of softmax: numbers for each sample and class
  double per_pair_of_classes = 0;  ///< of softmax: for each sample and two classes
  double per_coefficient = 0;      ///< of softmax: for each sample and coefficient
  double blocks = 0;               ///< matrices of all features by all features
  double hessians = 0;             ///< matrices of all coefficients by all coefficients
};
/// Of phases one after another: the largest counts.
using Needs = std::vector<Need>;

/// How many samples, features and classes it is about.
struct Sizes {
  double samples = 0, features = 0, classes = 0;  ///< classes: of softmax, else 0
};

Needs needs_of_loading(const JobOptions& options);
Needs needs_of_fit(Loss loss, const Sizes& sizes);
Needs needs_of_influence(Loss loss, const Sizes& sizes);
Needs needs_of_clean(Loss loss);
/// With folds, and the folds of each fold where penalties of single features are judged on unseen samples.
Needs needs_of_tune(Loss loss, const Sizes& sizes, double folds, bool nested);
/// Whether the model scales features, and whether there will be a JSON document and a CSV table of all samples.
Needs needs_of_predict(bool scales, bool document, bool table);

Sizes sizes_of(const JobData& job);

/// In bytes, with what the program needs without samples.
double bytes_of(const Need& need, const Sizes& sizes);

/// Throws Misuse when that, or what was needed for reading, is above --memory; else returns the larger of the two.
double require_memory(const JobOptions& options, const std::string& file, const Needs& needs, const Sizes& sizes);

}  // namespace onestep::app::jobs
