// Guesses: whether the first line has names, by how it differs from the lines below, and whether decimals have a comma.
#include "data/csv_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/csv_words.h"
#include "data/number.h"

namespace onestep::data {

namespace {

using Fields = std::vector<std::string>;
constexpr std::size_t enough_records = 1000;  // to know what the lines below the first look like

bool is_whole(double value) { return value == std::floor(value); }

// Names such as 0, 1, 2.
bool count_columns(const std::vector<double>& names) {
  const auto breaks = [](double before, double after) { return after != before + 1; };
  return names.size() > 1 && (names[0] == 0 || names[0] == 1) && std::ranges::adjacent_find(names, breaks) == names.end();
}

// Names such as 2001, 2002 or 400, 410, 420.
bool is_sequence(const std::vector<double>& names, std::size_t at_least) {
  if (names.size() < at_least || names.size() < 2 || !std::ranges::all_of(names, is_whole)) return false;
  const double step = names[1] - names[0];
  const auto breaks = [step](double before, double after) { return after - before != step; };
  return step != 0 && std::ranges::adjacent_find(names, breaks) == names.end();
}

bool are_years(const std::vector<double>& names) {
  return is_sequence(names, 2) && names.front() >= 1800 && names.back() <= 2200 && names[1] == names[0] + 1;
}

bool is_text(const Records& records, std::string_view field) { return !is_missing(field) && !records.number_in(field); }

// What the lines below the first have in a column.
struct Below {
  double low = INFINITY, high = -INFINITY;
  bool fractions = false;
};

Below look_below(const Records& records, const std::vector<Fields>& rest, std::size_t column) {
  Below below;
  for (const Fields& fields : rest) {
    const std::optional<double> value = column < fields.size() ? records.number_in(fields[column]) : std::nullopt;
    if (!value) continue;
    below.low = std::min(below.low, *value);
    below.high = std::max(below.high, *value);
    below.fractions = below.fractions || !is_whole(*value);
  }
  return below;
}

[[noreturn]] void ask(const Records& records, const Fields& fields, std::string_view why) {
  fail(records.source(),
       fmt::format("the first line, {}, has numbers only, which may be names or a sample: {}; say whether "
                   "there is a header",
                   list_of(fields), why),
       Remedy::header);
}

// A first line of numbers. Names are sequences that do not look like the lines below; what is far from all of those may be
// a header or an outlier. What options say of columns does not count: a number in them may be a name or a position.
FirstLine of_numbers(const Fields& fields, const Records& records, const std::vector<Fields>& rest) {
  constexpr std::size_t long_sequence = 6, enough_lines = 3;
  std::vector<double> features, all;
  std::size_t strange = 0, far = 0;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (is_missing(fields[i])) continue;
    const double value = records.number_in(fields[i]).value_or(0);
    const Below below = look_below(records, rest, i);
    all.push_back(value);
    if (i + 1 == fields.size()) continue;  // the target, mostly
    features.push_back(value);
    const double reach = 10 * (below.high - below.low);
    strange += below.fractions || value < below.low || value > below.high ? 1 : 0;
    far += rest.size() >= enough_lines && reach > 0 && (value < below.low - reach || value > below.high + reach) ? 1 : 0;
  }
  if (rest.empty() || features.empty()) return FirstLine::sample;
  const bool sequence = is_sequence(features, 3), enough = rest.size() >= enough_lines;
  // Names that programs make of numbers have no decimals: 0.0 may be a value that happens to be whole.
  const bool decimals =
      std::ranges::any_of(fields, [](const auto& field) { return field.find_first_of(".,") != field.npos; });
  if (enough && sequence && 2 * strange >= features.size()) {
    if (!decimals) return FirstLine::names;
    ask(records, fields, "they count up");
  }
  const bool again = std::ranges::find(rest, fields) != rest.end();
  const bool counts = count_columns(all), from_0 = counts && all[0] == 0;
  const bool may_be_names = enough ? (sequence && features.size() >= long_sequence) || (counts && all.size() > 2) || from_0
                                   : from_0 && all.size() > 2;
  if (may_be_names && !again) ask(records, fields, counts ? "they count the columns" : "they count up");
  if (features.size() >= 2 && 2 * far > features.size()) ask(records, fields, "they lie far from all values below");
  return FirstLine::sample;
}

bool is_known_level(const CsvOptions& options, const std::string& text) {
  return std::ranges::any_of(options.encoding, [&](const ColumnEncoding& column) {
    return std::ranges::find(column.levels, text) != column.levels.end();
  });
}

// A first line with a text in it is a sample where its texts are found again below, or where its numbers are no names and
// the next line has its texts in the same columns.
FirstLine of_texts(const Fields& fields, const Columns& columns, const CsvOptions& options, const Records& records,
                   const std::vector<Fields>& rest) {
  if (columns.asks_for_a_name()) return FirstLine::names;
  std::vector<double> numbers;
  bool same_places = !rest.empty();
  std::size_t texts = 0, found_again = 0;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (const std::optional<double> number = records.number_in(fields[i])) {
      numbers.push_back(*number);
      continue;
    }
    if (i + 1 < fields.size() && fields[i].empty()) return FirstLine::names;  // a name may be missing
    if (is_missing(fields[i])) continue;
    if (std::ranges::find(options.label_names, fields[i]) != options.label_names.end()) return FirstLine::sample;
    if (is_known_level(options, fields[i])) return FirstLine::sample;
    same_places = same_places && i < rest[0].size() && is_text(records, rest[0][i]);
    const auto has_it = [&](const Fields& below) { return i < below.size() && below[i] == fields[i]; };
    ++texts;
    found_again += std::ranges::any_of(rest, has_it) ? 1 : 0;
  }
  if (texts > 0 && 2 * found_again >= texts) return FirstLine::sample;
  if (numbers.empty() || count_columns(numbers) || are_years(numbers)) return FirstLine::names;
  return same_places ? FirstLine::sample : FirstLine::names;
}

// 150,4,setosa,versicolor,virginica above 150 lines of 5 fields.
bool are_counts(const Fields& fields, Records& records, const std::vector<Fields>& rest) {
  if (fields.size() < 2 || rest.empty()) return false;
  const std::optional<double> samples = records.number_in(fields[0]), features = records.number_in(fields[1]);
  if (!samples || !features || static_cast<double>(rest[0].size()) != *features + 1) return false;
  const auto words = std::ranges::count_if(fields, [&](const std::string& field) { return is_text(records, field); });
  if (words == 0 && fields.size() == rest[0].size()) return false;
  constexpr double most = 1e9;
  return *samples >= 1 && *samples < most &&
         static_cast<double>(records.peek(static_cast<std::size_t>(*samples) + 1).size()) == *samples;
}

}  // namespace

FirstLine first_line_of(const Fields& fields, const Columns& columns, const CsvOptions& options, Records& records) {
  if (options.header != CsvOptions::automatic)
    return options.header == CsvOptions::yes ? FirstLine::names : FirstLine::sample;
  if (columns.has_known_names()) return FirstLine::names;
  const std::vector<Fields> rest = records.peek(enough_records);
  if (are_counts(fields, records, rest)) return FirstLine::counts;
  bool numbers = false, words = false;
  for (const std::string& field : fields) {
    numbers = numbers || records.number_in(field).has_value();
    words = words || is_text(records, field);
  }
  if (numbers && !words) return of_numbers(fields, records, rest);
  return of_texts(fields, columns, options, records, rest);
}

std::vector<std::string> notes_on_header(FirstLine first, const Fields& fields, const Records& records) {
  const auto is_number = [&](const std::string& field) { return records.number_in(field).has_value(); };
  switch (first) {
    case FirstLine::sample: return {"there is no header: the first line was taken for a sample"};
    case FirstLine::counts:
      return {fmt::format("the first line counts samples and features and was skipped; behind the counts it has {}",
                          fields.size() > 2 ? list_of({fields.begin() + 2, fields.end()}) : "nothing")};
    case FirstLine::names:
      if (std::ranges::any_of(fields, is_number))
        return {fmt::format("the first line was taken for names: {}", list_of(fields))};
  }
  return {};
}

bool guess_decimal_comma(Records& records) {
  if (records.separator() == ',') return false;
  bool comma = false, only_thousands = true;
  std::string example;
  for (const Fields& fields : records.peek(enough_records))
    for (const std::string& field : fields) {
      const std::string_view text = trimmed(field);
      if (text.find(',') == text.npos) {
        if (text.find('.') != text.npos && records.number_in(text)) return false;
        continue;
      }
      records.set_decimal_comma(true);
      const bool number = records.number_in(text).has_value();
      records.set_decimal_comma(false);
      if (!number) continue;
      comma = true;
      example = text;
      const std::size_t behind = text.size() - text.find(',') - 1;
      only_thousands = only_thousands && behind == 3 && text.front() != '0' && text.front() != ',' && text.find(',') <= 3;
    }
  if (comma && only_thousands)
    fail(records.source(),
         fmt::format("the comma in {} may separate decimals or thousands; say that decimals have a comma, or take it out",
                     quoted(example)),
         Remedy::decimal);
  return comma;
}

}  // namespace onestep::data
