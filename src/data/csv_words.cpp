// Recognises missing values, dates, and numbers that are written with currencies, per cent or thousands.
#include "data/csv_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "data/number.h"
#include "data/text.h"

namespace onestep::data {

namespace {

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return lower;
}

// How long the name of a month is that the text begins with: in full where a blank or the end follows, else its first three
// letters (march-7 is a name of its own); 0 where there is none.
std::size_t longest_month(std::string_view text) {
  constexpr std::array<std::string_view, 12> months{"january", "february", "march",     "april",   "may",      "june",
                                                    "july",    "august",   "september", "october", "november", "december"};
  for (const std::string_view month : months) {
    const std::string_view behind = text.substr(std::min(month.size(), text.size()));
    if (text.starts_with(month) && (behind.empty() || behind[0] == ' ')) return month.size();
    if (text.starts_with(month.substr(0, 3))) return 3;
  }
  return 0;
}

// The text with each run of digits as its length, and the name of a month, short or not, as M: 2024-03-05 is 4-2-2.
std::string pattern_of(std::string_view text) {
  const std::string lower = lower_case(text);
  std::string pattern;
  for (std::size_t i = 0; i < lower.size();) {
    const std::size_t first = i;
    while (i < lower.size() && is_digit(lower[i])) ++i;
    if (i > first) {
      pattern += i - first < 10 ? static_cast<char>('0' + (i - first)) : '*';
    } else if (const std::size_t month = longest_month(std::string_view(lower).substr(i)); month > 0) {
      pattern += 'M';
      i += month;
    } else {
      pattern += lower[i++];
    }
  }
  return pattern;
}

}  // namespace

bool is_missing(std::string_view field) {
  constexpr std::array<std::string_view, 9> words{"", "?", "-", "na", "n/a", "#n/a", "nan", "null", "missing"};
  return field == "None" || std::ranges::find(words, lower_case(field.substr(0, 8))) != words.end();
}

bool is_date(std::string_view field) {
  constexpr std::array<std::string_view, 20> month_patterns{"M 1",    "M 2",   "1 M",   "2 M",   "M-1",   "M-2",   "1-M",
                                                            "2-M",    "M 4",   "4 M",   "M-4",   "4-M",   "M/4",   "M 1, 4",
                                                            "M 2, 4", "M 1 4", "M 2 4", "1 M 4", "2 M 4", "1. M 4"};
  constexpr std::size_t longest = 40;
  if (field.size() > longest) return false;
  const std::string pattern = pattern_of(field);
  const std::string_view day = std::string_view(pattern).substr(0, pattern.find_first_of("t "));
  const auto is_number = [](char c) { return c == '1' || c == '2' || c == '4'; };
  if (day.size() == 5 && day[1] == day[3] && (day[1] == '-' || day[1] == '/' || day[1] == '.'))
    return is_number(day[0]) && (is_number(day[2]) || day[2] == 'M') && is_number(day[4]) &&
           (day[0] == '4' || day[4] != '1');
  const std::string_view clock = std::string_view(pattern).substr(0, 3);
  if (std::ranges::find(month_patterns, pattern) != month_patterns.end()) return true;
  return pattern == "4-2" || pattern == "4/2" || clock == "1:2" || clock == "2:2";
}

namespace {

// Takes currencies and the per cent sign off a number, and says what they were.
std::string take_signs(std::string_view& field) {
  constexpr std::array<std::string_view, 4> currencies{"$", "€", "£", "¥"};
  std::string signs;
  field = trimmed(field);
  for (const std::string_view currency : currencies) {
    const std::size_t before = field.size();
    if (field.starts_with(currency)) field.remove_prefix(currency.size());
    if (field.ends_with(currency)) field.remove_suffix(currency.size());
    if (field.size() < before) signs = fmt::format("the currency sign {}", currency);
  }
  if (field.ends_with('%')) {
    field.remove_suffix(1);
    signs = "the per cent sign";
  }
  field = trimmed(field);
  return signs;
}

}  // namespace

bool is_dressed_number(std::string_view field) {
  if (!take_signs(field).empty() && parse_number(field)) return true;
  const bool marks_only = field.find_first_not_of("+-0123456789., '") == field.npos;
  const bool begins = !field.empty() && (is_digit(field.front()) || field.front() == '-' || field.front() == '+');
  const std::string_view inner = field.substr(std::min<std::size_t>(1, field.size()));
  return marks_only && begins && inner.find_first_of("+-") == inner.npos && is_digit(field.back());
}

Advice advice_on_dressed_number(std::string_view field, bool commas_separate_fields) {
  std::vector<std::string> out;
  if (std::string signs = take_signs(field); !signs.empty()) out.push_back(std::move(signs));
  const auto count = [&](char mark) { return std::ranges::count(field, mark); };
  const auto thousands = [&](std::string_view marks) { out.push_back(fmt::format("the {} between thousands", marks)); };
  if (count(' ') > 0) thousands("blanks");
  if (count('\'') > 0) thousands("apostrophes");
  const std::size_t comma = field.rfind(','), point = field.rfind('.');
  const bool both = comma != field.npos && point != field.npos;
  const bool decimal_comma = comma != field.npos && count(',') == 1 && (!both || comma > point);
  if (point != field.npos && (count('.') > 1 || (both && decimal_comma))) thousands("points");
  if (comma != field.npos && !decimal_comma) thousands("commas");
  Advice advice;
  if (!out.empty()) advice.text = fmt::format("take out {}", fmt::join(out, " and "));
  if (!decimal_comma) return advice;
  const bool may_be_thousands = !both && field.size() - comma == 4;
  if (!advice.text.empty()) advice.text += ", and ";
  if (may_be_thousands) advice.text += "take out the comma if it separates thousands; if it stands before decimals, ";
  advice.text += commas_separate_fields ? "write a point instead of the comma" : "say that decimals have a comma";
  advice.decimal_comma = !commas_separate_fields;
  return advice;
}

bool is_code(std::string_view number) {
  constexpr std::size_t always_kept = 15;  // digits
  const std::string_view sign = number.substr(0, number.starts_with('-') || number.starts_with('+') ? 1 : 0);
  number.remove_prefix(sign.size());
  const bool leading_zero = number.size() > 1 && number.front() == '0';
  if ((!leading_zero && number.size() <= always_kept) || !std::ranges::all_of(number, is_digit)) return false;
  return leading_zero || fmt::format("{:.0f}", parse_number(number).value_or(0)) != number;
}

std::string nearest(std::string_view typed, const std::vector<std::string>& names) {
  const std::string wanted = lower_case(typed);
  std::string best;
  std::size_t least = std::max<std::size_t>(1, wanted.size() / 3) + 1;
  for (const std::string& name : names) {
    const std::string other = lower_case(name);
    // Insertions, deletions and exchanges of letters that make one of the other, row by row.
    std::vector<std::size_t> row(other.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      std::size_t diagonal = std::exchange(row[0], i + 1);
      for (std::size_t j = 0; j < other.size(); ++j) {
        const std::size_t exchanged = diagonal + (wanted[i] == other[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({exchanged, row[j] + 1, diagonal + 1});
      }
    }
    if (!other.empty() && row.back() < std::min(least, other.size())) best = name, least = row.back();
  }
  return best;
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

}  // namespace onestep::data
