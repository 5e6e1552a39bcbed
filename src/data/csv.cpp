// Tables of numbers as comma-separated text.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "data/number.h"
#include "data/parse.h"
#include "data/text.h"

namespace onestep {
namespace data {

namespace {

constexpr std::string_view reader = "read_csv";

bool is_missing(std::string_view field) {
  constexpr std::array<std::string_view, 6> words{"", "?", "na", "n/a", "nan", "null"};
  std::string lower(field.substr(0, 8));
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return std::find(words.begin(), words.end(), lower) != words.end();
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
    columns_ = names_.size();
    const bool header =
        options_.header == CsvOptions::yes || (options_.header == CsvOptions::automatic && has_names(names_));
    if (!header) {
      names_.clear();
      at_ = beginning;
    }
    target_ = find_target();
    while (find_record()) read_sample();
    if (y_.empty())
      fail(source_, header
                        ? "there is no sample in it, only a line of names; if those are values, say that there is no header"
                        : "there is no sample in it");
    if (header) names_.erase(names_.begin() + static_cast<std::ptrdiff_t>(target_));
    const auto rows = static_cast<std::int64_t>(y_.size()), features = static_cast<std::int64_t>(columns_) - 1;
    return {Array(Shape{rows, features}, std::move(A_)), Array(Shape{rows}, std::move(y_)), std::move(names_)};
  }

 private:
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

  std::size_t find_target() const {
    const std::string& wanted = options_.target;
    if (wanted.empty()) return columns_ - 1;
    const auto named = std::find(names_.begin(), names_.end(), wanted);
    if (named != names_.end()) {
      const auto again = std::find(named + 1, names_.end(), wanted);
      if (again != names_.end())
        fail(source_, fmt::format("the columns {} and {} are both called {}; give the target by its position",
                                  named - names_.begin() + 1, again - names_.begin() + 1, quoted(wanted)));
      return static_cast<std::size_t>(named - names_.begin());
    }
    std::int64_t position = 0;
    const auto [end, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), position);
    if (error != std::errc() || end != wanted.data() + wanted.size()) {
      if (names_.empty())
        fail(source_, fmt::format("there is no header to find the target {} in; give its position", quoted(wanted)));
      fail(source_, fmt::format("no column is called {}; there are {}", quoted(wanted), list_of_names()));
    }
    const auto count = static_cast<std::int64_t>(columns_);
    if (position == 0 || position > count || position < -count)
      fail(source_, fmt::format("there is no column {} for the target; there are {}, counted from 1, or from -1 at the end",
                                position, count));
    return static_cast<std::size_t>(position > 0 ? position - 1 : count + position);
  }

  std::string list_of_names() const {
    constexpr std::size_t most = 10;
    std::string list;
    for (std::size_t i = 0; i < std::min(most, names_.size()); ++i) {
      if (i > 0) list += ", ";
      list += quoted(names_[i]);
    }
    return names_.size() > most ? fmt::format("{} and {} more", list, names_.size() - most) : list;
  }

  void read_sample() {
    const char* const first = at_;
    std::size_t field = 0;
    for (;; ++at_) {
      if (field < columns_)
        (field == target_ ? y_ : A_).push_back(read_number(field));
      else
        read_field(field);
      ++field;
      if (at_record_end()) break;
    }
    if (field != columns_)
      fail(source_, line_of(first), fmt::format("has {} fields, the first line has {}", field, columns_));
    end_record();
    const std::size_t entries = A_.size() + y_.size();
    if (entries > options_.memory_limit / sizeof(double))
      check_memory(source_, fmt::format("the entries up to sample {} alone", y_.size()), static_cast<double>(entries),
                   options_.memory_limit);
  }

  double read_number(std::size_t field) {
    skip_padding();
    const char* const first = at_;
    double value = 0;
    if (const char* end = scan_number(at_, end_, value)) {
      at_ = end;
      skip_padding();
      if (at_field_end()) return value;
      at_ = first;
    }
    const std::string text = read_field(field);
    const std::optional<double> number = parse_number(trimmed(text));
    if (number && std::isfinite(*number)) return *number;
    if (is_missing(trimmed(text)))
      wrong(first, field, fmt::format("{} is missing; fill it in, or leave the sample out", title(field)));
    if (number) wrong(first, field, fmt::format("{} is {}, not finite", title(field), quoted(text)));
    wrong(first, field,
          fmt::format("{} is {}, not a number; {}", title(field), quoted(text),
                      columns_ == 1 ? "the first line has no comma, semicolon or tab: say what separates the fields"
                                    : "give classes and categories numbers"));
  }

  Source source_;
  const std::string& text_;
  const CsvOptions& options_;
  const char* at_ = text_.data();
  const char* end_ = text_.data() + text_.size();
  char separator_ = ',';
  std::vector<std::string> names_;  // empty without a header
  std::size_t columns_ = 0, target_ = 0;
  std::vector<double> A_, y_;
};

}  // namespace

Dataset parse_csv(const std::string& text, std::string_view file, const CsvOptions& options) {
  constexpr std::string_view unfit("\"\n\r");
  if (unfit.find(options.separator) != unfit.npos)
    throw Error(fmt::format("[{}] a quotation mark or the end of a line cannot separate fields", reader));
  return CsvParser({reader, file}, text, options).parse();
}

}  // namespace data

Dataset read_csv(const std::string& path, const CsvOptions& options) {
  return data::parse_csv(data::read_text({data::reader, path}, options.memory_limit), path, options);
}

}  // namespace onestep
