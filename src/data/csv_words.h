// What a field that is not a number may be: missing, a date, or a number with something around it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace onestep::data {

/// Empty, or one of NA, N/A, #N/A, NaN, null, missing, None, - and ?.
bool is_missing(std::string_view field);
/// Digits in the order of a date or a time of day: 2024-03-05, 5/3/2024, 5.3.24, 5-Mar-2024, Mar 5, 12:30.
bool is_date(std::string_view field);
/// A number with separators of thousands, a decimal comma, a currency or a per cent sign: 1,234 or 12 %.
bool is_dressed_number(std::string_view field);
/// What to do about such a number; whether it is to say that decimals have a comma. Where commas separate the fields they
/// cannot stand before decimals, too.
struct Advice {
  std::string text;
  bool decimal_comma = false;
};
Advice advice_on_dressed_number(std::string_view field, bool commas_separate_fields);
/// A whole number that says more than its value: with leading zeros, as 007, or with more digits than a double keeps.
bool is_code(std::string_view number);

/// The name that is nearest to what was typed, where one is near: a third of its letters may be wrong, large or small.
std::string nearest(std::string_view typed, const std::vector<std::string>& names);
/// The first names in quotation marks, and how many more there are.
std::string list_of(const std::vector<std::string>& names);

}  // namespace onestep::data
