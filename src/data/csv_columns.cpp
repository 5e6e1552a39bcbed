// Columns found by name or position: the target, those that are dropped, and those that other samples have.
#include "data/csv_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "data/csv_words.h"

namespace onestep::data {

namespace {

std::optional<std::int64_t> position_in(std::string_view text) {
  std::int64_t position = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), position);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return position;
}

}  // namespace

Columns::Columns(const Source& source, const CsvOptions& options, std::vector<std::string> fields)
    : source_(source), options_(options), names_(std::move(fields)), kinds_(names_.size()) {}

std::vector<std::string> Columns::known_names() const {
  if (options_.encoding.empty()) return options_.names;
  std::vector<std::string> names;
  for (const ColumnEncoding& column : options_.encoding) names.push_back(column.name);
  return names;
}

bool Columns::have_positions() const { return !options_.encoding.empty() && options_.encoding[0].unnamed; }

bool Columns::has_known_names() const {
  const std::vector<std::string> known = known_names();
  if (known.empty() || have_positions()) return false;
  const std::map<std::string_view, std::size_t> places = places_of_names();
  return std::ranges::all_of(known, [&](const std::string& name) { return places.contains(name); });
}

std::optional<std::size_t> Columns::place_of(std::string_view wanted) const {
  const std::optional<std::int64_t> position = position_in(wanted);
  const auto count = static_cast<std::int64_t>(kinds_.size());
  if (!position || *position == 0 || *position > count || *position < -count) return std::nullopt;
  return static_cast<std::size_t>(*position > 0 ? *position - 1 : count + *position);
}

bool Columns::asks_for_a_name() const {
  const auto is_name = [](const std::string& column) { return !column.empty() && !position_in(column); };
  return is_name(options_.target) || std::ranges::any_of(options_.drop, is_name);
}

void Columns::settle(bool header, std::size_t count, const std::vector<std::size_t>& empty) {
  kinds_.assign(count, Kind::feature);
  for (const std::size_t column : empty) kinds_[column] = Kind::dropped;
  last_ = count - 1;
  while (last_ > 0 && kinds_[last_] == Kind::dropped) --last_;
  if (!header) names_.clear();
  find_columns();
}

// The first of each name that is not dropped.
std::map<std::string_view, std::size_t> Columns::places_of_names() const {
  std::map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (kinds_[i] != Kind::dropped) places.try_emplace(names_[i], i);
  return places;
}

void Columns::find_columns() {
  const std::vector<std::string> known = known_names();
  if (have_positions() && !names_.empty())
    fail(source_,
         fmt::format("has a header, {}, but the samples that were learned from had none, so that their columns are known by "
                     "their positions only; take the first line out of this file, or give those samples a header, too",
                     list_of(names_)));
  if (!known.empty() && !names_.empty()) return find_known_columns();
  if (!known.empty() && options_.target_optional) return find_known_positions();
  for (const std::string& name : options_.drop) kinds_[find(name, "to drop")] = Kind::dropped;
  // The index of a table as pandas writes it. Alone beside the target it would be all there is.
  if (names_.size() > 2 && names_[0].empty() && kinds_[0] != Kind::dropped &&
      (options_.target.empty() || find(options_.target, "for the target") != 0)) {
    std::size_t unnamed = 0;
    for (std::size_t i = 0; i < names_.size(); ++i) unnamed += names_[i].empty() && kinds_[i] != Kind::dropped ? 1 : 0;
    leaves_out_index_ = unnamed == 1;
    if (leaves_out_index_) kinds_[0] = Kind::dropped;
  }
  check_names();
  target_ = options_.target.empty() ? last_ : find(options_.target, "for the target");
  if (kinds_[*target_] == Kind::dropped)
    fail(source_, fmt::format("the column {} is the target and cannot be dropped; name another target", called(*target_)),
         Remedy::target);
  kinds_[*target_] = Kind::target;
  for (std::size_t i = 0; i < kinds_.size(); ++i)
    if (kinds_[i] == Kind::feature) features_.push_back(i);
}

// Without names the columns stand as they stood in the other samples, the target among them, or are the features alone.
void Columns::find_known_positions() {
  const std::vector<std::string> known = known_names();
  const bool features_alone = known.size() == kinds_.size();
  if (!features_alone && !have_positions())
    fail(source_,
         fmt::format("has no header, but its columns are known by their names, {}; put a line with the names of its "
                     "{} columns before the samples",
                     list_of(known), kinds_.size()));
  std::ranges::fill(kinds_, Kind::dropped);
  for (std::size_t i = 0; i < known.size(); ++i) {
    const std::optional<std::size_t> place = features_alone ? i : place_of(known[i]);
    if (!place || kinds_[*place] != Kind::dropped)
      fail(source_,
           fmt::format("has {} columns without names; with {} they would be the features alone, and the column {} is "
                       "not among them",
                       kinds_.size(), known.size(), quoted(known[i])));
    features_.push_back(*place);
    kinds_[*place] = Kind::feature;
  }
  if (features_alone) return;
  target_ = options_.target.empty() ? kinds_.size() - 1 : place_of(options_.target);
  if (!target_ || kinds_[*target_] == Kind::feature)
    fail(source_,
         fmt::format("has {} columns without names, which are neither the {} features alone nor have the target where "
                     "it was",
                     kinds_.size(), known.size()));
  kinds_[*target_] = Kind::target;
}

std::string note_on_empty(const std::vector<std::size_t>& columns, std::size_t count) {
  std::vector<std::size_t> places;
  for (const std::size_t column : columns) places.push_back(column + 1);
  if (places.size() > 1)
    return fmt::format("the columns {} have neither names nor values, and are left out", fmt::join(places, ", "));
  return fmt::format("{} has neither a name nor a value, and is left out",
                     places[0] == count ? "the last column" : fmt::format("column {}", places[0]));
}

// Those that other samples have, by their names.
void Columns::find_known_columns() {
  const std::map<std::string_view, std::size_t> places = places_of_names();
  std::vector<std::string> missing;
  const auto place = [&](const std::string& name) {
    const auto found = places.find(name);
    if (found == places.end()) missing.push_back(name);
    return found == places.end() ? 0 : found->second;
  };
  for (const std::string& name : known_names()) features_.push_back(place(name));
  if (!options_.target_optional || places.contains(options_.target_name)) target_ = place(options_.target_name);
  if (!missing.empty())
    fail(source_, fmt::format("no column is called {}; there are {}", list_of(missing), list_of(names_)));
  std::vector<Kind> wanted(kinds_.size(), Kind::dropped);
  for (const std::size_t i : features_) wanted[i] = Kind::feature;
  if (target_) wanted[*target_] = Kind::target;
  for (std::size_t i = 0; i < kinds_.size(); ++i)  // a name may stand twice where it is not wanted
    if (wanted[i] == Kind::dropped && wanted[places.at(names_[i])] == Kind::dropped) kinds_[i] = Kind::dropped;
  check_names();
  kinds_ = std::move(wanted);
  if (static_cast<std::size_t>(std::ranges::count(kinds_, Kind::feature)) != features_.size())
    fail(source_, "a column is asked for twice: the names of the features and of the target have to differ");
}

// Columns that are not dropped are called differently.
void Columns::check_names() const {
  const std::map<std::string_view, std::size_t> places = places_of_names();
  std::string first;
  std::vector<std::string> others;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (kinds_[i] == Kind::dropped || places.at(names_[i]) == i) continue;
    if (first.empty())
      first = fmt::format("the columns {} and {} are both called {}", places.at(names_[i]) + 1, i + 1, quoted(names_[i]));
    else
      others.push_back(names_[i]);
  }
  if (first.empty()) return;
  fail(source_,
       fmt::format("{}{}; rename one, or drop it by its position", first,
                   others.empty() ? "" : fmt::format(" (and so on: {})", list_of(others))),
       Remedy::drop);
}

std::string Columns::called(std::size_t place) const {
  return names_.empty() ? fmt::format("{}", place + 1) : quoted(names_[place]);
}

std::string Columns::name_of(std::size_t column) const {
  return names_.empty() ? fmt::format("{}", column + 1) : names_[column];
}

std::size_t Columns::find(const std::string& wanted, std::string_view what_for) const {
  std::vector<std::size_t> named, kept;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (names_[i] != wanted) continue;
    named.push_back(i);
    if (kinds_[i] != Kind::dropped) kept.push_back(i);
  }
  if (kept.size() > 1)
    fail(source_, fmt::format("the columns {} and {} are both called {}; give the position of the one {}", kept[0] + 1,
                              kept[1] + 1, quoted(wanted), what_for));
  const std::optional<std::size_t> at = place_of(wanted);
  if (at && kept.size() == 1 && kept[0] != *at) {
    const auto from_end = [&](std::size_t place) { return kinds_.size() - place; };
    const bool guessed = options_.header == CsvOptions::automatic &&
                         std::ranges::all_of(names_, [](const auto& n) { return n.empty() || position_in(n); });
    fail(
        source_,
        fmt::format("{} is the name of column {} and the position of another; give the position of the one {} from the end: "
                    "-{} for the one of this name, -{} for the one at this position{}",
                    wanted, kept[0] + 1, what_for, from_end(kept[0]), from_end(*at),
                    guessed ? "; or say that there is no header, if the first line is a sample" : ""),
        guessed ? Remedy::no_header : Remedy::none);
  }
  if (!named.empty()) return kept.empty() ? named[0] : kept[0];
  if (const std::optional<std::size_t> place = place_of(wanted)) return *place;
  if (position_in(wanted))
    fail(source_, fmt::format("there is no column {} {}; there are {}, counted from 1, or from -1 at the end", wanted,
                              what_for, kinds_.size()));
  if (names_.empty())
    fail(source_, fmt::format("there is no header to find the column {} in; give its position", quoted(wanted)));
  const std::string near = nearest(wanted, names_);
  fail(source_, fmt::format("no column is called {}; {}there are {}", quoted(wanted),
                            near.empty() ? "" : fmt::format("did you mean {}? ", quoted(near)), list_of(names_)));
}

}  // namespace onestep::data
