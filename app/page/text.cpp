// Columns as wide as their entries, numbers to the right.
#include "page/text.h"

#include <fmt/format.h>

#include <algorithm>

#include "onestep/dataset.h"
#include "page/html.h"

namespace onestep::app::page {

std::size_t columns_of(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0U) == 0x80) continue;  // a further byte of a letter
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
    const bool combines = byte == 0xCC || (byte == 0xCD && next < 0xB0);  // U+0300 to U+036F
    count += combines ? 0 : 1;
  }
  return count;
}

std::string shortened(std::string_view text, std::size_t most) {
  std::vector<std::size_t> begins;  // of letters
  for (std::size_t i = 0; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80) begins.push_back(i);
  if (begins.size() <= most || most < 3) return std::string(text);
  const std::size_t end = (most - 1) / 2, begin = most - 1 - end;
  return fmt::format("{}…{}", text.substr(0, begins[begin]), text.substr(begins[begins.size() - end]));
}

std::string padded(const std::string& text, std::size_t width, bool to_the_right) {
  const std::size_t columns = columns_of(text);
  const std::string spaces(columns < width ? width - columns : 0, ' ');
  return to_the_right ? spaces + text : text + spaces;
}

std::string text_of(const Table& table) {
  const auto shown_row = [](const std::vector<std::string>& row) {  // names in files may have ends of lines in them
    std::vector<std::string> shown;
    for (const std::string& cell : row) shown.push_back(printable(cell));
    return shown;
  };
  const std::vector<std::string> columns = shown_row(table.columns);
  std::vector<std::vector<std::string>> rows;
  for (const auto& row : table.rows) rows.push_back(shown_row(row));
  std::vector<std::size_t> widths;
  for (const std::string& column : columns) widths.push_back(columns_of(column));
  std::vector<bool> numbers(widths.size(), true);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], columns_of(row[i]));
      numbers[i] = numbers[i] && (row[i].empty() || is_number(row[i]));
    }
  std::string text = fmt::format("{}\n", printable(table.title));
  const auto append = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("  {}", padded(row[i], widths[i], numbers[i]));
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  append(columns);
  for (const auto& row : rows) append(row);
  return text;
}

}  // namespace onestep::app::page
