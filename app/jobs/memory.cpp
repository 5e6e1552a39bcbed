#include "jobs/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json_document.h"

namespace onestep::app::jobs {

// The samples as they were read and with a column of ones; another copy to scale them; and without a penalty those in which
// features that depend on others are looked for and left out.
Need need_of_loading(const JobOptions& options) {
  const bool unpenalised = options.l2() == 0;
  return {.matrices = unpenalised ? 5.1 : options.standardise ? 3.0 : 2.0, .vectors = 4};
}

Need need_of_fit(Loss loss) {
  if (loss == Loss::softmax) return {.matrices = 2, .vectors = 5, .per_class = 11.5};
  return {.matrices = 2, .vectors = 28, .hessians = 4};
}

// Many numbers for each sample: five lists in the document and in its text, and effects over the folds.
Need need_of_influence() { return {.matrices = 3.95, .vectors = 125, .per_class = 35, .hessians = 12}; }

Need need_of_clean(Loss loss) {
  return {.matrices = 2, .vectors = loss == Loss::softmax ? 55.0 : 86.0, .per_class = 15.5, .hessians = 2};
}

// Each fold is a copy of the samples, with the workspace of its solver; nested ones are copies again.
Need need_of_tune(Loss loss, double folds, bool nested) {
  const double parts = std::max(1.0, folds), nested_copies = nested ? folds * std::max(0.0, folds - 1) : 0;
  const bool by_products = loss == Loss::softmax;
  return {.matrices = 1 + folds + nested_copies,
          .vectors = (by_products ? 40.0 : 64.0) * parts,
          .per_class = 24 * parts,
          .hessians = by_products ? 0 : 20 * parts};
}

Sizes sizes_of(const JobData& job) {
  double samples = static_cast<double>(job.train.count());
  for (const std::optional<Samples>* more : {&job.valid, &job.test})
    if (*more) samples += static_cast<double>((*more)->count());
  return {samples, static_cast<double>(job.n()), job.loss == Loss::softmax ? static_cast<double>(job.labels.size()) : 0};
}

double bytes_of(const Need& need, const Sizes& sizes) {
  constexpr double program = 16e6, number = sizeof(double);
  const double unknowns = (sizes.features + 1) * std::max(1.0, sizes.classes);
  return program + number * (need.matrices * sizes.samples * (sizes.features + 1) + need.vectors * sizes.samples +
                             need.per_class * sizes.samples * sizes.classes + need.hessians * unknowns * unknowns);
}

double require_memory(const JobOptions& options, const std::string& file, const Need& need, const Sizes& sizes) {
  // Lists of all samples in the document, and the text that it becomes.
  Need whole = need;
  if (options.json || !options.out.empty())
    whole.vectors += options.verb == "influence" ? 28 : options.verb == "clean" ? 15 : 0;
  const double bytes = std::max(bytes_of(whole, sizes), static_cast<double>(peak_memory()));
  if (bytes <= options.memory * 0x1p30) return bytes;
  // Two digits, rounded up, so that what is advised suffices.
  const double gibibytes = bytes / 0x1p30, unit = std::pow(10, std::floor(std::log10(gibibytes)) - 1);
  throw Misuse(fmt::format(
      "{}: {} of {:.0f} samples with {:.0f} features needs about {:.2g} GiB of memory, above the {:g} GiB that are allowed; "
      "give --memory {:.2g} if the machine has it, or fewer samples or features",
      file, options.verb, sizes.samples, sizes.features, gibibytes, options.memory, unit * std::ceil(gibibytes / unit)));
}

}  // namespace onestep::app::jobs
