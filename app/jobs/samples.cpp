// Loads, splits and prepares the samples of a job, and notes what was guessed or left out.
#include "jobs/samples.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <set>

#include "jobs/demo.h"
#include "jobs/dependence.h"
#include "jobs/memory.h"
#include "jobs/other_samples.h"
#include "jobs/sample_labels.h"

namespace onestep::app::jobs {

namespace {

// With n features, zeros where there are fewer, and ones behind them.
Array with_ones(const Array& A, std::int64_t n) {
  const std::int64_t rows = A.shape()[0], has = A.shape()[1];
  std::vector<double> entries(static_cast<std::size_t>(rows * (n + 1)));
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto row = A.values().subspan(static_cast<std::size_t>(i * has), static_cast<std::size_t>(has));
    double* to = entries.data() + i * (n + 1);
    std::ranges::copy(row, to);
    to[n] = 1;
  }
  return {Shape{rows, n + 1}, std::move(entries)};
}

// Without a penalty a feature that says nothing of its own makes the fit ambiguous: it is left out. With one a constant
// feature has the coefficient 0, which is only said.
void note_features(JobData& job) {
  constexpr std::int64_t most_compared = 4000;  // whose Gram matrix is not too large
  if (!job.penalised && job.n() > most_compared) {
    job.notes.push_back(fmt::format("{} features are too many to look for linear combinations among them", job.n()));
    return leave_out(job, constant_features(job));
  }
  if (!job.penalised) return leave_out(job, dependent_features(job));
  std::vector<std::string> constant;
  for (const LeftOut& feature : constant_features(job)) constant.push_back(job.features[feature.place]);
  if (constant.size() == job.features.size())
    throw Misuse(
        fmt::format("{}: all features are constant, and say nothing about the target; name other columns, or check "
                    "--separator and --header",
                    job.name));
  if (!constant.empty() && job.image_side == 0)
    job.notes.push_back(fmt::format("constant, with a coefficient of 0: {}", some_names(constant)));
}

Array rows_of(const Array& A, const std::vector<std::size_t>& places) {
  const auto n = static_cast<std::size_t>(A.shape()[1]);
  std::vector<double> entries;
  entries.reserve(places.size() * n);
  for (const std::size_t i : places) {
    const auto row = A.values().subspan(i * n, n);
    entries.insert(entries.end(), row.begin(), row.end());
  }
  const auto count = static_cast<std::int64_t>(places.size());
  return {A.shape().rank() == 2 ? Shape{count, A.shape()[1]} : Shape{count}, std::move(entries)};
}

// The features at these places, and the ones behind them.
Array kept_columns(const Array& A, const std::vector<std::size_t>& places) {
  const auto n = static_cast<std::size_t>(A.shape()[1]);
  std::vector<double> entries;
  entries.reserve(static_cast<std::size_t>(A.shape()[0]) * (places.size() + 1));
  for (std::size_t first = 0; first < A.values().size(); first += n) {
    for (const std::size_t j : places) entries.push_back(A.values()[first + j]);
    entries.push_back(1);
  }
  return {Shape{A.shape()[0], static_cast<std::int64_t>(places.size()) + 1}, std::move(entries)};
}

// How many samples of each class are left out: the share of it, rounded so that they add up to the share of all.
std::vector<std::size_t> left_out_of(const std::vector<std::vector<std::size_t>>& classes, double share, std::size_t all) {
  std::vector<std::size_t> count, order(classes.size());
  std::vector<double> lost;
  for (const auto& places : classes) {
    const double wanted = share * static_cast<double>(places.size());
    count.push_back(static_cast<std::size_t>(wanted));
    lost.push_back(wanted - std::floor(wanted));
  }
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t k) { return lost[k]; });
  const std::size_t missing = all - std::reduce(count.begin(), count.end());
  // A class keeps a sample to train on while another has some to spare.
  std::size_t given = 0;
  for (const bool spare : {true, false})
    for (std::size_t before = given + 1; given < missing && before != given;) {
      before = given;
      for (const std::size_t k : order)
        if (given < missing && count[k] + (spare ? 1 : 0) < classes[k].size()) ++count[k], ++given;
    }
  return count;
}

}  // namespace

const char* name_of(Loss loss) {
  constexpr const char* names[] = {"logistic", "ridge", "softmax"};
  return names[static_cast<std::size_t>(loss)];
}

void split_off(JobData& job, double share, std::uint64_t seed) {
  if (share >= 1) throw Misuse(fmt::format("--split {}: a share below 1", share));
  const auto count = static_cast<std::size_t>(job.train.count());
  const auto left_out = static_cast<std::size_t>(std::llround(share * static_cast<double>(count)));
  if (left_out < 1 || left_out >= count)
    throw Misuse(
        fmt::format("--split {} leaves {} of {} samples for validation and {} for training; give another share, "
                    "--valid FILE, or more samples",
                    share, left_out, count, count - left_out));
  const auto classes = shuffled_classes(job, seed);
  const std::vector<std::size_t> left_out_each = left_out_of(classes, share, left_out);
  std::vector<std::size_t> stay, out;
  for (std::size_t k = 0; k < classes.size(); ++k) {
    const std::vector<std::size_t>& places = classes[k];
    if (left_out_each[k] == places.size())
      throw Misuse(fmt::format("--split {} leaves no sample with the label {} for training; {} has {} of them", share,
                               job.label_text(job.train.y.values()[places[0]]), job.name, places.size()));
    const auto middle = places.end() - static_cast<std::ptrdiff_t>(left_out_each[k]);
    stay.insert(stay.end(), places.begin(), middle);
    out.insert(out.end(), middle, places.end());
  }
  std::ranges::sort(stay);
  std::ranges::sort(out);
  job.valid = some_of(job.train, out);
  job.train = some_of(job.train, stay);
}

Array one_hot(const std::vector<std::size_t>& columns, std::size_t count) {
  std::vector<double> entries(columns.size() * count);
  for (std::size_t i = 0; i < columns.size(); ++i) entries[i * count + columns[i]] = 1;
  return {Shape{static_cast<std::int64_t>(columns.size()), static_cast<std::int64_t>(count)}, std::move(entries)};
}

std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 engine(seed);
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[engine() % i]);
  return order;
}

std::vector<std::vector<std::size_t>> shuffled_classes(const JobData& job, std::uint64_t seed) {
  std::vector<std::vector<std::size_t>> classes(job.loss == Loss::ridge ? 1 : job.labels.size());
  for (const std::size_t i : shuffled(static_cast<std::size_t>(job.train.count()), seed))
    classes[job.class_of(job.train.y.values()[i])].push_back(i);
  return classes;
}

std::vector<std::size_t> class_of_each(const JobData& job, const Samples& samples) {
  std::vector<std::size_t> classes;
  classes.reserve(samples.y.values().size());
  for (const double y : samples.y.values()) classes.push_back(job.class_of(y));
  return classes;
}

Samples some_of(const Samples& all, const std::vector<std::size_t>& places) {
  Samples s;
  s.A = rows_of(all.A, places);
  s.y = rows_of(all.y, places);
  if (all.Y.shape().rank() == 2) s.Y = rows_of(all.Y, places);
  for (const std::size_t i : places) s.rows.push_back(all.rows[i]);
  return s;
}

Scaling standardisation_with_ones(const Array& A, double least_scale) {
  const Scaling s = standardisation(A);
  std::vector<double> mean(s.mean.values().begin(), s.mean.values().end()), scale;
  mean.back() = 0;
  for (const double each : s.scale.values()) scale.push_back(std::max(each, least_scale));
  return {Array(s.mean.shape(), std::move(mean)), Array(s.scale.shape(), std::move(scale))};
}

Samples samples_of(const Dataset& d, const JobData& job) {
  Samples s;
  std::vector<std::size_t> kept = job.kept;
  const auto has = static_cast<std::size_t>(d.A.shape()[1]), wanted = job.features.size();
  if (kept.empty() && has > wanted)  // features that no training sample has
    for (std::size_t j = 0; j < wanted; ++j) kept.push_back(j);
  s.A = with_ones(d.A, static_cast<std::int64_t>(std::max(has, kept.empty() ? wanted : kept.back() + 1)));
  if (!kept.empty()) s.A = kept_columns(s.A, kept);
  if (job.scaling) s.A = scaled(s.A, *job.scaling);
  s.rows = d.rows;
  if (s.rows.empty()) {
    s.rows.resize(static_cast<std::size_t>(s.count()));
    std::iota(s.rows.begin(), s.rows.end(), std::size_t{1});
  }
  s.y = d.y;
  if (d.y.size() == 0) return s;
  if (job.loss == Loss::logistic) s.y = signs_of(d.y, job.labels);
  if (job.loss == Loss::softmax) {
    s.y = class_index(d.y, job.labels);
    s.Y = one_hot({s.y.values().begin(), s.y.values().end()}, job.labels.size());
  }
  return s;
}

std::string JobData::identity() const {
  unsigned long sum = crc32_z(0, nullptr, 0);
  const auto add = [&](const Array& a) {
    sum = crc32_z(sum, reinterpret_cast<const unsigned char*>(a.values().data()), a.values().size_bytes());
  };
  for (const Samples* s : {&train, valid ? &*valid : nullptr})
    if (s != nullptr) add(s->A), add(s->y);
  return fmt::format("{} {} samples {:08x}", name_of(loss), train.count(), sum);
}

JobData load(const JobOptions& options, bool with_validation, Progress& progress) {
  if (options.file.empty() && !options.demo) throw Misuse("name a FILE with samples, or try --demo");
  progress.enter("reading");
  JobData job;
  Dataset train, valid, test;
  const auto read = [&](const std::string& file) {
    DatasetOptions how = reading_options(options);
    if (train.first_index == 0) how.first_index = 0;  // where training has no index 0, others may not have one either
    how.label_names = train.label_names, how.target_name = train.target_name;
    if (!train.encoding.empty()) how.encoding = train.encoding, how.category.clear();
    try {
      return read_dataset(file, how);
    } catch (const FileError& wrong) { throw Misuse(in_words_of_the_command(wrong, options.verb)); }
  };
  bool has_valid = !options.valid.empty(), has_test = !options.test.empty();
  if (options.demo) {
    Demo demo = make_demo(options.loss, options.seed, with_validation);
    job.name = demo.name;
    job.image_side = demo.image_side;
    job.label_names = std::move(demo.label_names);
    train = std::move(demo.train), test = std::move(demo.test), has_test = true;
    if (demo.valid) valid = std::move(*demo.valid), has_valid = true;
  } else {
    job.name = short_name(options.file);
    train = read(options.file);
    take_notes(job, train, job.name);
    for (const std::string& name : train.codes)
      job.notes.push_back(
          fmt::format("{}: \"{}\" has numbers with leading zeros, or with more digits than numbers keep, and is taken for a "
                      "number; if it is a code, make it a category (--category {}) or drop it (--drop {})",
                      job.name, name, shell_word(name), shell_word(name)));
    if (has_valid) check_features(train, valid = read(options.valid), options.valid, job);
    if (has_test) check_features(train, test = read(options.test), options.test, job);
    const std::int64_t n = train.A.shape()[1];
    const auto side = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(n))));
    if (job.name.find("idx3") != std::string::npos && side * side == n) job.image_side = side;
  }
  if (train.A.shape()[1] == 0)
    throw Misuse(fmt::format("{}: its samples have no features; a column beside the target has to be left", job.name));
  if (train.A.shape()[0] < 2) throw Misuse(fmt::format("{}: one sample is not enough to learn from; add others", job.name));
  job.loss = chosen_loss(options, train, job.notes);
  find_labels(job, train);
  if (!options.valid.empty()) check_samples(train, valid, options.valid, job);
  if (!options.test.empty()) check_samples(train, test, options.test, job);
  job.features = feature_names(train.encoding);
  job.encoding = train.encoding;
  job.has_names = !train.names.empty();
  job.separator = train.separator;
  job.target_name = train.target_name;
  job.target_column = train.target_column;
  job.first_index = train.first_index;
  std::int64_t n = train.A.shape()[1];
  if (has_valid) n = std::max(n, valid.A.shape()[1]);
  if (has_test) n = std::max(n, test.A.shape()[1]);
  if (job.features.empty())
    for (std::int64_t j = 0; j < n; ++j) job.features.push_back(std::to_string(train.first_index + j));
  double samples = static_cast<double>(train.A.shape()[0]);
  if (has_valid) samples += static_cast<double>(valid.A.shape()[0]);
  if (has_test) samples += static_cast<double>(test.A.shape()[0]);
  const double classes = job.loss == Loss::softmax ? static_cast<double>(job.labels.size()) : 0;
  job.memory_needed =
      require_memory(options, job.name, needs_of_loading(options), {samples, static_cast<double>(n), classes});
  job.standardised = options.standardise;
  job.penalised = options.l2() > 0;
  if (options.standardise || !job.penalised) job.scaling = standardisation_with_ones(with_ones(train.A, n));
  job.train = samples_of(train, job);
  if (has_valid) job.valid = samples_of(valid, job);
  if (has_test) job.test = samples_of(test, job);
  job.in_file = std::max(train.in_file, job.train.rows.size());
  note_features(job);
  if (with_validation && !job.valid) split_off(job, options.split, options.seed);
  return job;
}

}  // namespace onestep::app::jobs
