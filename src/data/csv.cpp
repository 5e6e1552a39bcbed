// Tables of numbers as comma-separated text.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "data/number.h"
#include "data/parse.h"
#include "data/text.h"

namespace onestep {
namespace data {

namespace {

constexpr std::string_view reader = "read_csv";
constexpr std::size_t most_classes = 100;  // that texts may name

enum class Column : std::uint8_t { feature, target, dropped };

bool is_missing(std::string_view field) {
  constexpr std::array<std::string_view, 6> words{"", "?", "na", "n/a", "nan", "null"};
  std::string lower(field.substr(0, 8));
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return std::find(words.begin(), words.end(), lower) != words.end();
}

std::optional<std::int64_t> position_in(std::string_view text) {
  std::int64_t position = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), position);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return position;
}

std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t most = 10;
  std::string list;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i) {
    if (i > 0) list += ", ";
    list += quoted(names[i]);
  }
  return names.size() > most ? fmt::format("{} and {} more", list, names.size() - most) : list;
}

bool has_names(const std::vector<std::string>& fields) {
  bool numbers = false, words = false;
  for (const std::string& field : fields) {
    const bool number = parse_number(field).has_value();
    numbers = numbers || number;
    words = words || (!number && !is_missing(field));
  }
  return words || !numbers;
}

// Names such as 0, 1, 2.
bool count_columns(const std::vector<double>& names) {
  const auto breaks = [](double before, double after) { return after != before + 1; };
  return names.size() > 1 && (names[0] == 0 || names[0] == 1) && std::ranges::adjacent_find(names, breaks) == names.end();
}

bool names_class(const std::vector<std::string>& fields, std::size_t target) {
  if (target >= fields.size()) return false;
  const std::string_view label = trimmed(fields[target]);
  return !parse_number(label) && !is_missing(label);
}

class CsvParser {
 public:
  CsvParser(const Source& source, const std::string& text, const CsvOptions& options)
      : source_(source), text_(text), options_(options) {}

  Dataset parse() {
    constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
    if (text_.starts_with(byte_order_mark)) at_ += byte_order_mark.size();
    if (!find_record()) fail(source_, "there is no line in it");
    separator_ = options_.separator != '\0' ? options_.separator : likely_separator();
    const char* const beginning = at_;
    names_ = read_names();
    columns_.resize(names_.size());
    const bool header =
        options_.header == CsvOptions::yes ||
        (options_.header == CsvOptions::automatic && (has_known_names() || (has_names(names_) && !is_first_sample())));
    if (!header) {
      names_.clear();
      at_ = beginning;
    }
    find_columns();
    while (find_record()) read_sample();
    if (y_.empty())
      fail(source_, header
                        ? "there is no sample in it, only a line of names; if those are values, say that there is no header"
                        : "there is no sample in it");
    return dataset();
  }

 private:
  Dataset dataset() {
    const auto rows = static_cast<std::int64_t>(y_.size()), n = static_cast<std::int64_t>(features_.size());
    Dataset set;
    set.label_names = text_rows_.empty() ? options_.label_names : name_classes();
    set.A = Array(Shape{rows, n}, std::move(A_));
    set.y = Array(Shape{rows}, std::move(y_));
    for (const std::size_t place : features_) set.columns.push_back(static_cast<std::int64_t>(place) + 1);
    if (names_.empty()) return set;
    for (const std::size_t place : features_) set.names.push_back(names_[place]);
    set.target_name = names_[target_];
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (columns_[i] == Column::dropped) set.left_out.push_back(names_[i]);
    return set;
  }

  // `field` counts from 0.
  [[noreturn]] void wrong(const char* where, std::size_t field, std::string_view what) const {
    fail(source_, line_of(where), field + 1, what);
  }
  std::size_t line_of(const char* where) const {
    return 1 + static_cast<std::size_t>(std::count(text_.data(), where, '\n'));
  }
  std::string title(std::size_t field) const {
    return field < names_.size() ? fmt::format("the value of {}", quoted(names_[field])) : "the value";
  }

  // The text ends with a zero byte that is not part of it, so that *at_ may be looked at anywhere.
  bool is_padding(char c) const { return (c == ' ' || c == '\t') && c != separator_; }
  bool at_record_end() const { return at_ == end_ || *at_ == '\n' || (*at_ == '\r' && (at_ + 1 == end_ || at_[1] == '\n')); }
  bool at_field_end() const { return *at_ == separator_ || at_record_end(); }
  void skip_padding() {
    while (is_padding(*at_)) ++at_;
  }
  void end_record() {
    if (at_ != end_ && *at_ == '\r') ++at_;
    if (at_ != end_) ++at_;
  }
  // Goes to the next line that is not empty; false at the end.
  bool find_record() {
    for (; at_ != end_; end_record()) {
      const char* const line = at_;
      while (*at_ == ' ') ++at_;
      if (!at_record_end()) {
        at_ = line;
        return true;
      }
    }
    return false;
  }

  char likely_separator() const {
    constexpr std::array<char, 3> known{',', ';', '\t'};
    std::array<std::ptrdiff_t, 3> count{};
    bool inside = false;
    for (const char* c = at_; c != end_ && (inside || *c != '\n'); ++c) {
      if (*c == '"') inside = !inside;
      for (std::size_t i = 0; i < known.size(); ++i) count[i] += !inside && *c == known[i] ? 1 : 0;
    }
    return known[static_cast<std::size_t>(std::max_element(count.begin(), count.end()) - count.begin())];
  }

  // A field with its quotation marks, if any, undone; ends at the separator or at the end of the line.
  std::string read_field(std::size_t number) {
    skip_padding();
    if (*at_ != '"') {
      const char* const first = at_;
      while (!at_field_end()) ++at_;
      return std::string(trimmed({first, at_}));
    }
    const char* const opening = at_;
    std::string content;
    for (++at_;; ++at_) {
      const char* const quote = std::find(at_, end_, '"');
      if (quote == end_) wrong(opening, number, "the quotation mark that opens here is never closed");
      content.append(at_, quote);
      at_ = quote + 1;
      if (*at_ != '"') break;
      content += '"';
    }
    skip_padding();
    if (!at_field_end()) wrong(opening, number, "there is text after the closing quotation mark");
    return content;
  }

  std::vector<std::string> read_names() {
    std::vector<std::string> fields;
    for (;; ++at_) {
      fields.push_back(read_field(fields.size()));
      if (at_record_end()) break;
    }
    end_record();
    return fields;
  }

  // Whether the first line looks like names only because of its label, or because of texts that are dropped.
  bool is_first_sample() {
    const std::optional<std::size_t> target = options_.target.empty() ? names_.size() - 1 : place_of(options_.target);
    if (!target) return false;  // it has a name
    std::vector<bool> dropped(names_.size());
    for (const std::string& column : options_.drop) {
      const std::optional<std::size_t> place = place_of(column);
      if (!place) return false;
      dropped[*place] = true;
    }
    std::vector<double> numbers;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (dropped[i]) continue;
      if (const std::optional<double> number = parse_number(names_[i]))
        numbers.push_back(*number);
      else if (i != *target && (names_[i].empty() || !is_missing(names_[i])))
        return false;
    }
    const std::string& label = names_[*target];
    if (std::ranges::find(options_.label_names, label) != options_.label_names.end()) return true;
    if (numbers.empty() || count_columns(numbers)) return false;
    return parse_number(label) || names_class(next_record(), *target);
  }
  // The fields of the record at which we are, which is still to be read.
  std::vector<std::string> next_record() {
    const char* const here = at_;
    std::vector<std::string> fields;
    if (find_record()) fields = read_names();
    at_ = here;
    return fields;
  }

  // The column at a position that is given as a number, from 1, or from -1 backwards.
  std::optional<std::size_t> place_of(std::string_view wanted) const {
    const std::optional<std::int64_t> position = position_in(wanted);
    const auto count = static_cast<std::int64_t>(columns_.size());
    if (!position || *position == 0 || *position > count || *position < -count) return std::nullopt;
    return static_cast<std::size_t>(*position > 0 ? *position - 1 : count + *position);
  }

  bool has_known_names() const {
    if (options_.names.empty()) return false;
    const std::map<std::string_view, std::size_t> places = places_of_names();
    return std::ranges::all_of(options_.names, [&](const std::string& name) { return places.contains(name); });
  }
  // The first of each name that is not dropped.
  std::map<std::string_view, std::size_t> places_of_names() const {
    std::map<std::string_view, std::size_t> places;
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (columns_[i] != Column::dropped) places.try_emplace(names_[i], i);
    return places;
  }

  void find_columns() {
    if (!names_.empty() && !options_.names.empty()) return find_known_columns();
    for (const std::string& name : options_.drop) columns_[find_column(name, "to drop")] = Column::dropped;
    check_names();
    target_ = options_.target.empty() ? columns_.size() - 1 : find_column(options_.target, "for the target");
    if (columns_[target_] == Column::dropped)
      fail(source_, fmt::format("the column {} is the target and cannot be dropped; name another target", called(target_)));
    columns_[target_] = Column::target;
    for (std::size_t i = 0; i < columns_.size(); ++i)
      if (columns_[i] == Column::feature) features_.push_back(i);
  }

  // Those that other samples have, by their names.
  void find_known_columns() {
    const std::map<std::string_view, std::size_t> places = places_of_names();
    std::vector<std::string> missing;
    const auto find = [&](const std::string& name) {
      const auto found = places.find(name);
      if (found == places.end()) missing.push_back(name);
      return found == places.end() ? 0 : found->second;
    };
    for (const std::string& name : options_.names) features_.push_back(find(name));
    target_ = find(options_.target_name);
    if (!missing.empty())
      fail(source_, fmt::format("no column is called {}; there are {}", list_of(missing), list_of(names_)));
    std::vector<Column> wanted(columns_.size(), Column::dropped);
    for (const std::size_t place : features_) wanted[place] = Column::feature;
    wanted[target_] = Column::target;
    for (std::size_t i = 0; i < columns_.size(); ++i)  // a name may stand twice where it is not wanted
      if (wanted[i] == Column::dropped && wanted[places.at(names_[i])] == Column::dropped) columns_[i] = Column::dropped;
    check_names();
    columns_ = std::move(wanted);
    if (static_cast<std::size_t>(std::ranges::count(columns_, Column::feature)) != features_.size())
      fail(source_, "a column is asked for twice: the names of the features and of the target have to differ");
    if (std::ranges::is_sorted(features_)) return;
    std::vector<std::size_t> rank(columns_.size());
    for (std::size_t i = 0, next = 0; i < columns_.size(); ++i)
      if (columns_[i] == Column::feature) rank[i] = next++;
    for (const std::size_t place : features_) order_.push_back(rank[place]);
  }

  // Columns that are not dropped are called differently.
  void check_names() const {
    const std::map<std::string_view, std::size_t> places = places_of_names();
    std::string first;
    std::vector<std::string> others;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (columns_[i] == Column::dropped || places.at(names_[i]) == i) continue;
      if (first.empty())
        first = fmt::format("the columns {} and {} are both called {}", places.at(names_[i]) + 1, i + 1, quoted(names_[i]));
      else
        others.push_back(names_[i]);
    }
    if (first.empty()) return;
    fail(source_, fmt::format("{}{}; rename one, or drop it by its position", first,
                              others.empty() ? "" : fmt::format(" (and so on: {})", list_of(others))));
  }

  std::string called(std::size_t place) const {
    return names_.empty() ? fmt::format("{}", place + 1) : quoted(names_[place]);
  }

  std::size_t find_column(const std::string& wanted, std::string_view what_for) const {
    std::vector<std::size_t> named, kept;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] != wanted) continue;
      named.push_back(i);
      if (columns_[i] != Column::dropped) kept.push_back(i);
    }
    if (kept.size() > 1)
      fail(source_, fmt::format("the columns {} and {} are both called {}; give the position of the one {}", kept[0] + 1,
                                kept[1] + 1, quoted(wanted), what_for));
    if (!named.empty()) return kept.empty() ? named[0] : kept[0];
    if (const std::optional<std::size_t> place = place_of(wanted)) return *place;
    if (position_in(wanted))
      fail(source_, fmt::format("there is no column {} {}; there are {}, counted from 1, or from -1 at the end", wanted,
                                what_for, columns_.size()));
    if (names_.empty())
      fail(source_, fmt::format("there is no header to find the column {} in; give its position", quoted(wanted)));
    fail(source_, fmt::format("no column is called {}; there are {}", quoted(wanted), list_of(names_)));
  }

  void read_sample() {
    const char* const first = at_;
    std::size_t field = 0;
    for (;; ++at_) {
      if (field >= columns_.size() || columns_[field] == Column::dropped)
        read_field(field);
      else if (columns_[field] == Column::feature)
        A_.push_back(read_number(field));
      else
        y_.push_back(read_label());
      ++field;
      if (at_record_end()) break;
    }
    if (field != columns_.size())
      fail(source_, line_of(first), fmt::format("has {} fields, the first line has {}", field, columns_.size()));
    end_record();
    if (!order_.empty()) reorder(A_.data() + (A_.size() - order_.size()));
    const std::size_t entries = A_.size() + y_.size();
    if (entries > options_.memory_limit / sizeof(double))
      check_memory(source_, fmt::format("the entries up to sample {} alone", y_.size()), static_cast<double>(entries),
                   options_.memory_limit);
  }

  // The features of a sample, into the order that is asked for.
  void reorder(double* sample) {
    const std::vector<double> before(sample, sample + order_.size());
    for (std::size_t j = 0; j < order_.size(); ++j) sample[j] = before[order_[j]];
  }

  // A plain number, the whole field; false when it is something else, which is then still to be read.
  bool scan_field(double& value) {
    skip_padding();
    const char* const first = at_;
    const char* const end = scan_number(at_, end_, value);
    if (end == nullptr) return false;
    at_ = end;
    skip_padding();
    if (at_field_end()) return true;
    at_ = first;
    return false;
  }

  double read_number(std::size_t field) {
    double value = 0;
    if (scan_field(value)) return value;
    const char* const first = at_;
    const std::string text = read_field(field);
    if (const std::optional<double> number = number_in(text, first, field)) return *number;
    const bool may_be_target = field == 0 && options_.target.empty() && options_.names.empty();
    refuse(first, field, text,
           columns_.size() == 1 ? "the first line has no comma, semicolon or tab: say what separates the fields"
           : may_be_target      ? "give categories numbers, drop the column, or make it the target"
                                : "give categories numbers, or drop the column");
  }

  // The target's number, or that of the class it names. Which names there are, and whether they are any, is known at the end
  // only: until then they count in the order they are found.
  double read_label() {
    if (columns_.size() == 1) return read_number(target_);
    skip_padding();
    const char* const first = at_;
    double value = 0;
    std::string text;
    std::optional<double> number;
    if (scan_field(value)) {
      number = value;
    } else {
      text = trimmed(read_field(target_));
      number = number_in(text, first, target_);
    }
    if (!options_.label_names.empty()) return known_class(first, number ? fmt::format("{}", *number) : text);
    if (number) return *number;
    if (text_rows_.empty()) first_text_ = first;
    text_rows_.push_back(y_.size());
    return count_class(text);
  }

  // Nothing for text; what is missing or infinite is refused.
  std::optional<double> number_in(std::string_view text, const char* where, std::size_t field) const {
    const std::optional<double> number = parse_number(trimmed(text));
    if (number && std::isfinite(*number)) return number;
    if (is_missing(trimmed(text)))
      wrong(where, field, fmt::format("{} is missing; fill it in, or leave the sample out", title(field)));
    if (number) wrong(where, field, fmt::format("{} is {}, not finite", title(field), quoted(text)));
    return std::nullopt;
  }

  [[noreturn]] void refuse(const char* where, std::size_t field, std::string_view text, std::string_view advice) const {
    wrong(where, field, fmt::format("{} is {}, not a number; {}", title(field), quoted(text), advice));
  }
  [[noreturn]] void refuse_first_text(std::string_view advice) {
    at_ = first_text_;
    refuse(first_text_, target_, read_field(target_), advice);
  }

  double known_class(const char* where, const std::string& name) const {
    const std::vector<std::string>& known = options_.label_names;
    const auto found = std::find(known.begin(), known.end(), name);
    if (found == known.end())
      wrong(where, target_, fmt::format("{} is {}, which is not among {}", title(target_), quoted(name), list_of(known)));
    return static_cast<double>(found - known.begin());
  }

  double count_class(const std::string& name) {
    const std::size_t next = classes_.size();
    if (next == most_classes && !classes_.contains(name))
      refuse_first_text(fmt::format("the column has more than {} different entries, too many to be classes", most_classes));
    return static_cast<double>(classes_.try_emplace(name, next).first->second);
  }

  // The target names classes: from here on they count in the order of their names, which are returned.
  std::vector<std::string> name_classes() {
    if (y_.size() > 2 * text_rows_.size()) refuse_first_text("most of this column are numbers");
    auto text_row = text_rows_.begin();
    for (std::size_t i = 0; i < y_.size(); ++i)
      if (text_row != text_rows_.end() && *text_row == i)
        ++text_row;
      else
        y_[i] = count_class(fmt::format("{}", y_[i]));
    std::vector<std::string> names;
    std::vector<double> rank(classes_.size());
    for (const auto& [name, place] : classes_) {
      rank[place] = static_cast<double>(names.size());
      names.push_back(name);
    }
    for (double& label : y_) label = rank[static_cast<std::size_t>(label)];
    return names;
  }

  Source source_;
  const std::string& text_;
  const CsvOptions& options_;
  const char* at_ = text_.data();
  const char* end_ = text_.data() + text_.size();
  char separator_ = ',';
  std::vector<std::string> names_;  // empty without a header
  std::vector<Column> columns_;
  std::size_t target_ = 0;
  std::vector<std::size_t> features_;  // their columns, in their order
  std::vector<std::size_t> order_;     // which of the features in the file each is; empty: they stand in their order
  std::vector<double> A_, y_;
  std::map<std::string, std::size_t> classes_;  // that the target names, in the order they were found
  std::vector<std::size_t> text_rows_;          // the samples whose target is a text
  const char* first_text_ = nullptr;            // where the first of them is
};

}  // namespace

Dataset parse_csv(const std::string& text, std::string_view file, const CsvOptions& options) {
  constexpr std::string_view unfit("\"\n\r");
  if (unfit.find(options.separator) != unfit.npos)
    throw MisuseError(fmt::format("[{}] a quotation mark or the end of a line cannot separate fields", reader));
  return CsvParser({reader, file}, text, options).parse();
}

}  // namespace data

Dataset read_csv(const std::string& path, const CsvOptions& options) {
  return data::parse_csv(data::read_text({data::reader, path}, options.memory_limit), path, options);
}

}  // namespace onestep
