// A scanner of records: separators, quotation marks, ends of lines, and numbers read in place.
#include "data/csv_records.h"

#include <algorithm>
#include <array>

#include "data/number.h"
#include "onestep/error.h"

namespace onestep::data {

Records::Records(const Source& source, const std::string& text)
    : source_(source), text_(text), at_(text.data()), end_(text.data() + text.size()) {
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  if (text_.starts_with(byte_order_mark)) at_ += byte_order_mark.size();
}

void Records::fail_at(const char* where, std::size_t field, std::string_view what, Remedy remedy) const {
  fail(source_, line_of(where), field + 1, what, remedy);
}

std::size_t Records::line_of(const char* where) const {
  return 1 + static_cast<std::size_t>(std::count(text_.data(), where, '\n'));
}

void Records::end_record() {
  if (at_ != end_ && *at_ == '\r') ++at_;
  if (at_ != end_) ++at_;
}

char Records::take_separator_line() {
  const std::string_view rest(at_, static_cast<std::size_t>(end_ - at_));
  constexpr std::size_t size = 5;  // of sep=;
  if (!rest.starts_with("sep=") || rest.size() <= size || (rest[size] != '\n' && rest[size] != '\r')) return '\0';
  if (std::string_view("\"\r\n").find(rest[size - 1]) != std::string_view::npos) return '\0';
  at_ += size;
  end_record();
  return rest[size - 1];
}

bool Records::find() {
  for (; at_ != end_; end_record()) {
    const char* const line = at_;
    while (*at_ == ' ') ++at_;
    if (!at_record_end()) {
      if (separator_ != ' ') at_ = line;
      return true;
    }
  }
  return false;
}

bool Records::next_field() {
  const char* const field_end = at_;
  if (separator_ == ' ') {  // one or several, as columns of numbers are lined up
    while (*at_ == ' ') ++at_;
    if (!at_record_end() && at_ != field_end) --at_;
  }
  const bool ended = at_record_end();
  if (ended)
    end_record();
  else
    ++at_;
  return !ended;
}

std::string Records::read_field(std::size_t number) {
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
    if (quote == end_) fail_at(opening, number, "the quotation mark that opens here is never closed");
    content.append(at_, quote);
    at_ = quote + 1;
    if (*at_ != '"') break;
    content += '"';
  }
  skip_padding();
  if (!at_field_end()) fail_at(opening, number, "there is text after the closing quotation mark");
  return content;
}

bool Records::scan_field(double& value) {
  if (decimal_comma_) return false;
  skip_padding();
  const char* const first = at_;
  const char* const end = scan_number(at_, end_, value);
  if (end == nullptr) return false;
  scanned_ = {first, end};
  at_ = end;
  skip_padding();
  if (at_field_end()) return true;
  at_ = first;
  return false;
}

std::vector<std::string> Records::read() {
  std::vector<std::string> fields;
  do fields.push_back(read_field(fields.size()));
  while (next_field());
  return fields;
}

std::vector<std::vector<std::string>> Records::peek(std::size_t most) {
  const char* const before = at_;
  std::vector<std::vector<std::string>> records;
  try {
    while (records.size() < most && find()) records.push_back(read());
  } catch (const FileError&) {  // what is wrong there is said when it is read
  }
  at_ = before;
  return records;
}

std::optional<double> Records::number_in(std::string_view text) const {
  text = trimmed(text);
  if (!decimal_comma_ || text.find(',') == text.npos) return parse_number(text);
  std::string with_point(text);
  if (std::count(with_point.begin(), with_point.end(), ',') > 1 || with_point.find('.') != with_point.npos)
    return std::nullopt;
  std::replace(with_point.begin(), with_point.end(), ',', '.');
  return parse_number(with_point);
}

char Records::likely_separator() const {
  constexpr std::array<char, 3> known{'\t', ';', ','};  // commas last: they may be those of decimals
  constexpr int enough_lines = 20;
  std::array<std::ptrdiff_t, 3> first{}, count{};
  std::array<bool, 3> same{true, true, true};
  bool inside = false;
  int lines = 0;
  for (const char* c = at_; c != end_ && lines < enough_lines; ++c) {
    if (*c == '"') inside = !inside;
    for (std::size_t i = 0; i < known.size(); ++i) count[i] += !inside && *c == known[i] ? 1 : 0;
    if (inside || (*c != '\n' && c + 1 != end_)) continue;
    if (lines == 0) first = count;
    const bool blank = count == std::array<std::ptrdiff_t, 3>{};
    for (std::size_t i = 0; i < known.size(); ++i) same[i] = same[i] && (blank || count[i] == first[i]);
    count = {};
    ++lines;
  }
  for (std::size_t i = 0; i < known.size(); ++i)
    if (same[i] && first[i] > 0) return known[i];
  const auto most = std::max_element(first.rbegin(), first.rend());
  return *most > 0 ? known[static_cast<std::size_t>(first.rend() - most) - 1] : ',';
}

}  // namespace onestep::data
