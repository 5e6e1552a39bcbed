// Categories as columns of zeros and ones, missing values as fills with an indicator, and notes on identifiers.
#include "data/encoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>

#include "data/csv_words.h"
#include "data/text.h"

namespace onestep {

std::vector<std::string> feature_names(const std::vector<ColumnEncoding>& encoding) {
  std::vector<std::string> names;
  for (const ColumnEncoding& column : encoding) {
    if (column.levels.empty()) names.push_back(column.name);
    for (std::size_t k = 1; k < column.levels.size(); ++k) names.push_back(column.name + "=" + column.levels[k]);
    if (column.indicator) names.push_back(column.name + " is missing");
  }
  return names;
}

namespace data {

std::vector<std::string> sorted_levels(const RawColumn& column, std::vector<double>& of) {
  std::vector<std::pair<std::string, std::size_t>> levels(column.found.begin(), column.found.end());
  const auto is_number = [](const auto& level) { return parse_number(level.first).has_value(); };
  if (std::ranges::all_of(levels, is_number))
    std::ranges::stable_sort(levels, {}, [](const auto& level) { return *parse_number(level.first); });
  const auto reference = std::ranges::find(levels, column.reference, &std::pair<std::string, std::size_t>::first);
  if (reference != levels.end()) std::rotate(levels.begin(), reference, reference + 1);
  std::vector<std::string> names;
  std::vector<double> rank(levels.size());
  for (const auto& [name, place] : levels) {
    rank[place] = static_cast<double>(names.size());
    names.push_back(name);
  }
  for (double& place : of)
    if (!std::isnan(place)) place = rank[static_cast<std::size_t>(place)];
  return names;
}

std::string note_on_left_out(std::size_t left_out, std::size_t without_target, std::size_t samples) {
  const char* const what = without_target == left_out ? "the target"
                           : without_target == 0      ? "a value"
                                                      : "a value or the target";
  return fmt::format("{} of {} samples {} {} and {} left out", left_out, samples, left_out == 1 ? "lacks" : "lack", what,
                     left_out == 1 ? "is" : "are");
}

namespace {

bool is_day(double value) {
  if (value != std::floor(value) || value < 18000101 || value > 22001231) return false;
  const auto day = static_cast<long>(value), month = day / 100 % 100;
  return month >= 1 && month <= 12 && day % 100 >= 1 && day % 100 <= 31;
}

// How many values there are, those that are missing taken for one.
std::size_t count_distinct(std::vector<double> values) {
  for (double& value : values)
    if (std::isnan(value)) value = INFINITY;
  std::ranges::sort(values);
  return static_cast<std::size_t>(std::ranges::unique(values).begin() - values.begin());
}

}  // namespace

std::optional<std::string> note_on_copies(const std::vector<std::vector<double>>& columns, const std::vector<double>& y) {
  constexpr std::size_t many = 5, share = 20, hardly_by_chance = 100;
  const std::size_t samples = columns.empty() ? 0 : columns[0].size();
  std::vector<const std::vector<double>*> all;
  for (const auto& column : columns) all.push_back(&column);
  if (!y.empty()) all.push_back(&y);
  std::vector<std::uint64_t> hashes(samples);
  for (const auto* column : all)
    for (std::size_t i = 0; i < samples; ++i)
      hashes[i] = (hashes[i] ^ (std::bit_cast<std::uint64_t>((*column)[i] + 0.0) * 0x9e3779b97f4a7c15U)) * 0x100000001b3U +
                  (hashes[i] >> 29U);
  std::ranges::sort(hashes);
  const auto distinct = static_cast<std::size_t>(std::ranges::unique(hashes).begin() - hashes.begin());
  const std::size_t copies = samples - distinct;
  if (copies < many || share * copies < samples) return std::nullopt;
  double combinations = 1;
  for (const auto* column : all) combinations *= static_cast<double>(count_distinct(*column));
  if (combinations < static_cast<double>(hardly_by_chance * samples)) return std::nullopt;
  return fmt::format(
      "{} of {} samples are copies of others: where a sample is trained on and its copy judges, scores are too "
      "good; keep one of each",
      copies, samples);
}

std::optional<std::string> note_on_identifier(const std::string& name, const std::vector<double>& values) {
  constexpr std::size_t enough = 6, enough_to_differ = 50;
  const auto breaks = [](double before, double after) { return after != before + 1; };
  const auto is_day_or_missing = [](double value) { return std::isnan(value) || is_day(value); };
  if (std::ranges::any_of(values, is_day) && std::ranges::all_of(values, is_day_or_missing))
    return fmt::format(
        "{} looks like dates, such as {:.0f}, and is taken for a number, in which days are not equally far "
        "apart: give the days since some day, or drop it",
        quoted(name), *std::ranges::find_if(values, is_day));
  if (values.size() < enough || !std::ranges::all_of(values, [](double v) { return v == std::floor(v); }))
    return std::nullopt;
  if (std::ranges::adjacent_find(values, breaks) == values.end())
    return fmt::format("{} counts the samples and may be an identifier, which says nothing about others: if so, drop it",
                       quoted(name));
  std::vector<double> sorted = values;
  std::ranges::sort(sorted);
  if (values.size() < enough_to_differ || std::ranges::adjacent_find(sorted) != sorted.end()) return std::nullopt;
  return fmt::format("{} is another whole number for each sample and may be an identifier: if so, drop it", quoted(name));
}

double fill_of(const std::vector<double>& values, bool category) {
  std::vector<double> known;
  for (const double value : values)
    if (!std::isnan(value)) known.push_back(value);
  if (known.empty()) return 0;
  if (!category) {  // a part of each, which does not overflow
    const double part = 1 / static_cast<double>(known.size());
    return std::accumulate(known.begin(), known.end(), 0.0, [part](double sum, double v) { return sum + part * v; });
  }
  std::vector<std::size_t> count(static_cast<std::size_t>(std::ranges::max(known)) + 1);
  for (const double place : known) ++count[static_cast<std::size_t>(place)];
  return static_cast<double>(std::ranges::max_element(count) - count.begin());
}

std::size_t features_of(const ColumnEncoding& column) {
  const std::size_t own = column.levels.empty() ? 1 : column.levels.size() - 1;
  return own + (column.indicator ? 1 : 0);
}

std::vector<double> encoded(const std::vector<std::vector<double>>& columns, const std::vector<ColumnEncoding>& encoding) {
  std::size_t n = 0;
  for (const ColumnEncoding& column : encoding) n += features_of(column);
  const std::size_t rows = columns.empty() ? 0 : columns[0].size();
  std::vector<double> entries(rows * n);
  std::size_t at = 0;
  for (std::size_t c = 0; c < encoding.size(); ++c) {
    const ColumnEncoding& column = encoding[c];
    const std::size_t width = features_of(column);
    for (std::size_t i = 0; i < rows; ++i) {
      double* const to = entries.data() + i * n + at;
      const bool missing = std::isnan(columns[c][i]);
      if (missing && column.indicator) to[width - 1] = 1;
      if (column.levels.empty()) {
        to[0] = missing ? column.fill : columns[c][i];
      } else if (!missing || !column.indicator) {  // a missing one with a feature of its own has no level
        const auto level = static_cast<std::size_t>(missing ? column.fill : columns[c][i]);
        if (level > 0) to[level - 1] = 1;
      }
    }
    at += width;
  }
  return entries;
}

std::string note_on_levels(const ColumnEncoding& category) {
  if (category.levels.size() < 2) return fmt::format("{} has one level only and gives no feature", quoted(category.name));
  return fmt::format("{} is a category: {} compared with the reference {}", quoted(category.name),
                     list_of({category.levels.begin() + 1, category.levels.end()}), quoted(category.levels[0]));
}

std::vector<std::string> notes_on_filled(const std::vector<std::vector<double>>& columns,
                                         const std::vector<ColumnEncoding>& encoding) {
  std::vector<std::string> notes;
  for (std::size_t j = 0; j < encoding.size(); ++j) {
    const auto lacking = std::ranges::count_if(columns[j], [](double v) { return std::isnan(v); });
    if (lacking == 0) continue;
    const ColumnEncoding& column = encoding[j];
    const bool category = !column.levels.empty();
    std::string how = category
                          ? fmt::format("{} stands for it", quoted(column.levels[static_cast<std::size_t>(column.fill)]))
                          : fmt::format("the mean {:.6g} stands for it", column.fill);
    if (column.indicator && category) how = "a feature says so";
    if (column.indicator && !category) how += ", and a feature says so";
    notes.push_back(fmt::format("{} of {} samples lack {}: {}", lacking, columns[j].size(), quoted(column.name), how));
  }
  return notes;
}

}  // namespace data
}  // namespace onestep
