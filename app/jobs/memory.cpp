// Counts the arrays that each phase of a job holds, as a function of the sizes of the samples.
#include "jobs/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json_document.h"
#include "jobs/leave_one_out.h"
#include "jobs/standard_errors.h"

namespace onestep::app::jobs {

namespace {

// A plan keeps a transposed copy of a matrix with so few columns, each plan one of its own.
bool is_narrow(const Sizes& sizes) {
  constexpr double few_columns = 24;
  return sizes.features + 1 <= few_columns;
}

}  // namespace

// The samples as they were read and with a column of ones; another copy to scale them; and without a penalty those in which
// features that depend on others are looked for and left out.
Needs needs_of_loading(const JobOptions& options) {
  if (options.l2() == 0) return {{.matrices = 5.3, .vectors = 9}};
  return {{.matrices = options.standardise ? 3.0 : 2.0, .vectors = 4}};
}

Needs needs_of_fit(Loss loss, const Sizes& sizes) {
  const bool has_errors = (sizes.features + 1) * sizes.classes <= static_cast<double>(most_with_standard_errors);
  if (loss == Loss::softmax) return {{.matrices = 2.4, .per_class = 5.8, .blocks = 9, .hessians = has_errors ? 2.6 : 0}};
  if (is_narrow(sizes)) return {{.matrices = 2.7, .vectors = loss == Loss::ridge ? 10.0 : 19.0}};
  return {{.matrices = 1, .vectors = 38, .blocks = 4}};
}

// First the samples without a fold, and their products with the inverse of the Hessian; then many numbers for each sample,
// five lists in the document and in its text.
Needs needs_of_influence(Loss loss, const Sizes& sizes) {
  const double classes = std::max(1.0, sizes.classes);
  const Need report{.matrices = 1, .vectors = 180, .per_class = 30};
  if ((sizes.features + 1) * classes > static_cast<double>(LeaveOneOut::most_unknowns))
    return {report, {.matrices = 2.5, .vectors = 20, .per_class = 30, .blocks = 10}};
  if (loss != Loss::softmax && is_narrow(sizes))
    return {{.matrices = loss == Loss::ridge ? 6.8 : 7.4, .vectors = loss == Loss::ridge ? 106.0 : 126.0}};
  if (loss != Loss::softmax) return {report, {.matrices = 4.75, .vectors = 60, .blocks = 24}};
  return {
      report,
      {.matrices = 3.9, .vectors = 20, .per_class = 12, .per_pair_of_classes = 3.3, .per_coefficient = 0.4, .hessians = 5}};
}

Needs needs_of_clean(Loss loss) {
  if (loss == Loss::softmax) return {{.matrices = 2.45, .vectors = 72, .per_class = 8.2, .blocks = 18}};
  return {{.matrices = 1, .vectors = 98, .blocks = 30}};
}

// Each fold is a copy of the samples, with the workspace of its solver; nested ones are copies again.
Needs needs_of_tune(Loss loss, const Sizes& sizes, double folds, bool nested) {
  const double parts = std::max(1.0, folds), nested_copies = nested ? folds * std::max(0.0, folds - 1) : 0;
  if (loss == Loss::softmax)
    return {{.matrices = 1.9 + folds + nested_copies,
             .vectors = 40 * parts,
             .per_class = (nested ? 28.5 : 26) * parts,
             .blocks = 50 + 10 * parts}};
  if (is_narrow(sizes) && folds == 0) {
    const double more = nested ? 10 : 0;
    return {{.matrices = loss == Loss::ridge ? 5.0 : 5.2, .vectors = (loss == Loss::ridge ? 12 : 24) + more}};
  }
  return {{.matrices = 1 + folds + nested_copies,
           .vectors = (nested ? 74 : 64) * parts,
           .blocks = (loss == Loss::ridge ? 30 : 20) * parts}};
}

// The samples as they were read, with a column of ones, and scaled where the model is; then the document and the table.
Needs needs_of_predict(bool scales, bool document, bool table) {
  const Need report{.matrices = 1,
                    .vectors = 12 + (document ? 24.0 : 0.0) + (table ? 4.0 : 0.0),
                    .per_class = 2 + (document ? 17.5 : 0) + (table ? 2.5 : 0)};
  return {report, {.matrices = scales ? 3.6 : 2.2}};
}

Sizes sizes_of(const JobData& job) {
  double samples = static_cast<double>(job.train.count());
  for (const std::optional<Samples>* more : {&job.valid, &job.test})
    if (*more) samples += static_cast<double>((*more)->count());
  return {samples, static_cast<double>(job.n()), job.loss == Loss::softmax ? static_cast<double>(job.labels.size()) : 0};
}

double bytes_of(const Need& need, const Sizes& sizes) {
  constexpr double program = 12e6, number = sizeof(double);
  const double columns = sizes.features + 1, unknowns = columns * std::max(1.0, sizes.classes);
  const double of_a_sample = need.matrices * columns + need.vectors + need.per_class * sizes.classes +
                             need.per_pair_of_classes * sizes.classes * sizes.classes +
                             need.per_coefficient * columns * sizes.classes;
  return program +
         number * (of_a_sample * sizes.samples + need.blocks * columns * columns + need.hessians * unknowns * unknowns);
}

double require_memory(const JobOptions& options, const std::string& file, const Needs& needs, const Sizes& sizes) {
  auto bytes = static_cast<double>(peak_memory());
  for (const Need& need : needs) bytes = std::max(bytes, bytes_of(need, sizes));
  if (bytes <= options.memory * 0x1p30) return bytes;
  // Two digits, rounded up, so that what is advised suffices.
  const double gibibytes = bytes / 0x1p30, unit = std::pow(10, std::floor(std::log10(gibibytes)) - 1);
  throw Misuse(fmt::format(
      "{}: {} of {:.0f} samples with {:.0f} features needs about {:.2g} GiB of memory, above the {:g} GiB that are allowed; "
      "give --memory {:.2g} if the machine has it, or fewer samples or features",
      file, options.verb, sizes.samples, sizes.features, gibibytes, options.memory, unit * std::ceil(gibibytes / unit)));
}

}  // namespace onestep::app::jobs
