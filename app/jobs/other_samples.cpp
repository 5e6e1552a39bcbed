// Compares samples with those of training: features, labels, sizes of values, copies.
#include "jobs/other_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "jobs/sample_labels.h"

namespace onestep::app::jobs {

void take_notes(JobData& job, const Dataset& set, const std::string& file) {
  for (const std::string& note : set.notes) job.notes.push_back(fmt::format("{}: {}", short_name(file), note));
}

void check_features(const Dataset& train, const Dataset& other, const std::string& file, JobData& job) {
  const std::int64_t n = train.A.shape()[1], m = other.A.shape()[1];
  if (other.first_index < train.first_index)
    throw Misuse(fmt::format("{} has an index 0, {} has none: where they start at 0 in both, write 0:0 into a sample of {}",
                             file, job.name, job.name));
  if (n != m && !(train.open_ended && other.open_ended))
    throw Misuse(fmt::format("{} has {} features, {} has {}; they have to have the same columns", job.name, n, file, m));
  std::vector<std::string> unknown;
  for (const std::string& name : other.left_out)
    if (std::ranges::find(train.left_out, name) == train.left_out.end()) unknown.push_back(name);
  take_notes(job, other, file);
  if (!train.names.empty() && !unknown.empty())
    job.notes.push_back(fmt::format("{} has columns that {} has not, which are left out: {}", short_name(file), job.name,
                                    some_names(unknown)));
  if (n == m) return;
  const std::string last = std::abs(n - m) == 1 ? "one" : std::to_string(std::abs(n - m));
  const bool odd = 10 * m > 11 * n || 2 * m < n;  // to be samples of the same kind
  job.notes.push_back(fmt::format("{}{} has {} features, {} {}: {} the last {}", odd ? "check the files: " : "",
                                  short_name(file), m, job.name, n, n < m ? "no training sample has" : "zero stands for",
                                  last));
}

namespace {

// Times the largest value of training: squares of what is beyond may overflow.
constexpr double largest_ratio = 1e100;

std::size_t row_in_file(const Dataset& set, std::size_t i) { return set.rows.empty() ? i + 1 : set.rows[i]; }

[[noreturn]] void refuse_value(const Dataset& set, const std::string& file, std::size_t sample, const std::string& what,
                               double value, double largest, const JobData& job) {
  throw Misuse(
      fmt::format("{}: {} of sample {} is {}, too large for a prediction, as the values of {} reach {:.6g}; correct it, or "
                  "leave the sample out",
                  file, what, row_in_file(set, sample), value, job.name, largest));
}

// The largest magnitude in each column.
std::vector<double> magnitudes(const Array& A) {
  const auto n = static_cast<std::size_t>(A.shape()[1]);
  std::vector<double> largest(n);
  const std::span<const double> a = A.values();
  for (std::size_t e = 0; e < a.size(); ++e) largest[e % n] = std::max(largest[e % n], std::fabs(a[e]));
  return largest;
}

void refuse_values_too_large(const Dataset& train, const Dataset& other, const std::string& file, const JobData& job) {
  const auto is_too_large = [](double value, double largest) {
    return !(std::fabs(value) <= largest_ratio * (largest > 0 ? largest : 1));
  };
  std::vector<double> largest = magnitudes(train.A);
  const auto n = static_cast<std::size_t>(other.A.shape()[1]);
  largest.resize(std::max(largest.size(), n));
  const std::vector<std::string> names = feature_names(train.encoding);
  for (std::size_t e = 0; e < other.A.values().size(); ++e) {
    const std::size_t j = e % n;
    if (!is_too_large(other.A.values()[e], largest[j])) continue;
    refuse_value(other, file, e / n,
                 names.empty() ? fmt::format("feature {}", train.first_index + static_cast<std::int64_t>(j)) : names[j],
                 other.A.values()[e], largest[j], job);
  }
  if (job.loss != Loss::ridge) return;
  double most = 0;
  for (const double y : train.y.values()) most = std::max(most, std::fabs(y));
  for (std::size_t i = 0; i < other.y.values().size(); ++i)
    if (is_too_large(other.y.values()[i], most)) refuse_value(other, file, i, "the target", other.y.values()[i], most, job);
}

// Of features that are not zero, with their places, so that a format may leave the last ones out, and of the target.
std::vector<std::uint64_t> hashes_of(const Dataset& set) {
  const std::span<const double> a = set.A.values(), y = set.y.values();
  const auto n = static_cast<std::size_t>(set.A.shape()[1]);
  std::vector<std::uint64_t> hashes(y.size());
  const auto add = [](std::uint64_t& hash, double value, std::uint64_t place) {
    hash = (hash ^ ((std::bit_cast<std::uint64_t>(value + 0.0) + place) * 0x9e3779b97f4a7c15U)) * 0x100000001b3U +
           (hash >> 29U);
  };
  for (std::size_t i = 0; i < y.size(); ++i) {
    for (std::size_t j = 0; j < n; ++j)
      if (a[i * n + j] != 0) add(hashes[i], a[i * n + j], j + 1);
    add(hashes[i], y[i], 0);
  }
  return hashes;
}

// Samples of so few different features that they are alike by chance are no copies, as within one file.
bool may_be_alike_by_chance(const Dataset& train) {
  constexpr double hardly_by_chance = 100;
  const auto n = static_cast<std::size_t>(train.A.shape()[1]), samples = static_cast<std::size_t>(train.A.shape()[0]);
  const double enough = hardly_by_chance * static_cast<double>(samples);
  double combinations = static_cast<double>(std::set(train.y.values().begin(), train.y.values().end()).size());
  for (std::size_t j = 0; j < n && combinations < enough; ++j) {
    std::set<double> found;
    for (std::size_t i = 0; i < samples; ++i) found.insert(train.A.values()[i * n + j]);
    combinations *= static_cast<double>(found.size());
  }
  return combinations < enough;
}

void note_copies(const Dataset& train, const Dataset& other, const std::string& file, JobData& job) {
  constexpr std::size_t many = 5, share = 20;
  const std::vector<std::uint64_t> of_other = hashes_of(other);
  std::vector<std::uint64_t> known = hashes_of(train);
  std::ranges::sort(known);
  const auto copies = static_cast<std::size_t>(
      std::ranges::count_if(of_other, [&](std::uint64_t hash) { return std::ranges::binary_search(known, hash); }));
  if (copies < std::min(many, of_other.size()) || share * copies < of_other.size() || may_be_alike_by_chance(train)) return;
  job.notes.push_back(
      fmt::format("{} of {} samples of {} are copies of samples of {}: a model is judged too well by samples that it was "
                  "trained on; leave them out of one of the files",
                  copies, of_other.size(), short_name(file), job.name));
}

void note_single_class(const Dataset& other, const std::string& file, JobData& job) {
  const std::set<double> found(other.y.values().begin(), other.y.values().end());
  if (job.loss == Loss::ridge || found.size() != 1 || other.y.size() < 2) return;
  const auto place = static_cast<std::size_t>(std::ranges::lower_bound(job.labels, *found.begin()) - job.labels.begin());
  job.notes.push_back(
      fmt::format("all {} samples of {} have the label {}: how well the other classes are predicted cannot "
                  "be judged by them",
                  other.y.size(), short_name(file), job.label_text(job.y_of(place))));
}

}  // namespace

void check_samples(const Dataset& train, const Dataset& other, const std::string& file, JobData& job) {
  check_labels(other, file, job);
  refuse_values_too_large(train, other, file, job);
  note_copies(train, other, file, job);
  note_single_class(other, file, job);
}

}  // namespace onestep::app::jobs
