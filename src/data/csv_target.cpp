// The target while it is read: names become classes at the end, when all of them are known.
#include "data/csv_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/csv_words.h"

namespace onestep::data {

void Target::read() {
  const Cell cell = cells_.read(*columns_.target());
  values_.push_back(cell.missing ? NAN : value_of(cell));
}

// Its number, or that of the class it names. Which names there are, and whether they are any, is known at the end only:
// until then they count in the order they are found.
double Target::value_of(const Cell& cell) {
  if (!options_.label_names.empty()) return known_class(cell);
  if (cell.number) {
    has_codes_ = has_codes_ || is_code(cell.text);
    return *cell.number;
  }
  if (columns_.count() == 1)
    cells_.refuse(cell, "the first line has no comma, semicolon or tab: say what separates the fields", Remedy::separator);
  if (options_.target_optional) return note_unknown(cell);
  if (names_.text_rows.empty()) names_.first_text = cell.where;
  names_.text_rows.push_back(values_.size());
  return 0;
}

double Target::known_class(const Cell& cell) {
  const std::vector<std::string>& known = options_.label_names;
  const auto found = std::ranges::find(known, cell.text);
  if (found != known.end()) return static_cast<double>(found - known.begin());
  if (options_.target_optional) return note_unknown(cell);
  cells_.fail_at(cell, fmt::format("{} is {}, which is not among the classes that were learned from, {}; correct it, leave "
                                   "the sample out, or learn from samples that have it",
                                   cells_.title(*columns_.target()), quoted(cell.text), list_of(known)));
}

double Target::note_unknown(const Cell& cell) {
  if (unknown_.size() < most_levels && std::ranges::find(unknown_, cell.text) == unknown_.end())
    unknown_.emplace_back(cell.text);
  return NAN;
}

// Whether numbers such as 007 are names of classes: where they are no more than classes can be.
bool Target::decide_on_codes(const char* first_sample) {
  if (!has_codes_ || options_.target_optional) return false;
  const std::size_t target = *columns_.target();
  std::map<std::string, std::size_t> found;
  cells_.read_again(first_sample, target, [&](std::string_view text) {
    if (!text.empty() && found.size() <= most_levels) found.try_emplace(std::string(text), found.size());
  });
  const bool few = found.size() <= most_levels;
  const std::string name = quoted(columns_.name_of(target));
  note_ = fmt::format(
      "{} has numbers with leading zeros, or with more digits than numbers keep: {}", name,
      few ? "they are taken for the names of classes" : "they are too many to be classes, and are taken for a quantity");
  return few;
}

std::vector<std::string> Target::name_classes(const char* first_sample) {
  if (!options_.label_names.empty()) return options_.label_names;
  const std::size_t target = *columns_.target();
  if (names_.text_rows.empty()) {
    if (!decide_on_codes(first_sample)) return {};
  } else if (values_.size() > 2 * names_.text_rows.size()) {
    cells_.refuse_among_numbers(names_.first_text, target);
  }
  std::size_t row = 0;
  cells_.read_again(first_sample, target, [&](std::string_view text) {
    if (row == values_.size()) return;
    double& value = values_[row++];
    if (std::isnan(value)) return;
    if (names_.found.size() == most_levels && !names_.found.contains(std::string(text)))
      cells_.refuse_at(names_.first_text, target,
                       fmt::format("the column has more than {} different entries, too many to be classes", most_levels));
    value = static_cast<double>(names_.found.try_emplace(std::string(text), names_.found.size()).first->second);
  });
  return sorted_levels(names_, values_);
}

}  // namespace onestep::data
