// Fields read as numbers, texts or missing values, and the refusals of what is neither.
#include "data/csv_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/csv_words.h"

namespace onestep::data {

namespace {

// Behind "is missing": users may not expect that a text says so.
std::string reason_for_missing(std::string_view text) {
  return text.empty() ? "" : fmt::format(", as {} stands for no value unless you say which texts do", quoted(text));
}

}  // namespace

Cell Cells::read(std::size_t column) {
  Cell cell{.where = records_.here(), .column = column};
  double value = 0;
  if (records_.scan_field(value)) {
    cell.text = records_.scanned();
    if (options_.missing_texts.empty() || !means_missing(cell.text)) {
      cell.number = value;
      return cell;
    }
    text_ = cell.text;
  } else {
    text_ = trimmed(records_.read_field(column));
  }
  cell.text = text_;
  cell.number = number_in(cell);
  cell.missing = !cell.number && means_missing(cell.text);
  if (cell.missing && !cell.text.empty()) ++missing_texts_[column][text_];
  return cell;
}

void Cells::read_again(const char* first_sample, std::size_t column,
                       const std::function<void(std::string_view text)>& each) {
  const char* const before = records_.here();
  records_.go_to(first_sample);
  while (records_.find()) {
    std::size_t at = 0;
    do {
      const std::string field = records_.read_field(at);
      const std::string_view text = trimmed(field);
      if (at++ == column) each(means_missing(text) ? std::string_view() : text);
    } while (records_.next_field());
  }
  records_.go_to(before);
}

std::vector<std::string> Cells::notes_on_missing_texts() const {
  constexpr std::size_t most = 5;
  std::vector<std::string> notes;
  for (const auto& [column, texts] : missing_texts_) {
    std::vector<std::string> found;
    for (const auto& [text, count] : texts)
      if (found.size() < most) found.push_back(fmt::format("{} ({} of them)", quoted(text), count));
    notes.push_back(
        fmt::format("texts that are taken for missing values of {}: {}; where one is a level or a class, say "
                    "which texts are missing values",
                    quoted(columns_.name_of(column)), fmt::join(found, ", ")));
  }
  return notes;
}

bool Cells::means_missing(std::string_view text) const {
  const std::vector<std::string>& said = options_.missing_texts;
  return said.empty() ? is_missing(text) : text.empty() || std::ranges::find(said, text) != said.end();
}

std::string Cells::title(std::size_t column) const {
  return column < columns_.names().size() ? fmt::format("the value of {}", quoted(columns_.names()[column])) : "the value";
}

void Cells::refuse(const Cell& cell, std::string_view advice, Remedy remedy) const {
  fail_at(cell, fmt::format("{} is {}, not a number; {}", title(cell.column), quoted(cell.text), advice), remedy);
}

void Cells::refuse_beyond_double(const Cell& cell) const {
  if (is_beyond_double(cell.text))
    fail_at(cell,
            fmt::format("{} is {}, a number of a size that no double holds (above 1.8e308, or nearer to 0 than 1e-308); "
                        "correct it, or leave the sample out",
                        title(cell.column), quoted(cell.text)));
}

void Cells::refuse_dressed(const Cell& cell) const {
  refuse_beyond_double(cell);
  const Advice advice = advice_on_dressed_number(cell.text, records_.separator() == ',');
  refuse(cell, "it looks like one: " + advice.text, advice.decimal_comma ? Remedy::decimal : Remedy::none);
}

void Cells::refuse_at(const char* where, std::size_t column, std::string_view advice, Remedy remedy) const {
  records_.go_to(where);
  const std::string text = records_.read_field(column);
  const Cell cell{.where = where, .column = column, .text = text};
  refuse_beyond_double(cell);
  if (is_dressed_number(text)) refuse_dressed(cell);
  refuse(cell, advice, remedy);
}

void Cells::refuse_among_numbers(const char* where, std::size_t column) const {
  if (may_be_header(where))
    refuse_at(where, column,
              "most values of this column are numbers; where the first line has the names of the columns, say that there is "
              "a header",
              Remedy::header);
  refuse_at(where, column, "most values of this column are numbers", Remedy::missing_text);
}

// Whether it stands in a first line that was taken for a sample, which was a guess.
bool Cells::may_be_header(const char* where) const {
  return columns_.names().empty() && options_.header == CsvOptions::automatic && records_.line_of(where) == 1;
}

void Cells::fail_at(const Cell& cell, std::string_view what, Remedy remedy) const {
  records_.fail_at(cell.where, cell.column, what, remedy);
}

// Nothing for text; what is infinite is refused, and what is missing where that is not provided for.
std::optional<double> Cells::number_in(const Cell& cell) const {
  const std::optional<double> number = records_.number_in(cell.text);
  const bool missing = means_missing(cell.text);
  if (number && std::isfinite(*number) && !missing) return number;
  const bool is_target = columns_.target() == cell.column;
  const bool provided_for = options_.missing != CsvOptions::refuse || (is_target && options_.target_optional);
  if (missing && !provided_for && may_be_header(cell.where))
    fail_at(
        cell,
        fmt::format("{} is missing{}; where the first line has the names of the columns, say that there is a header; where "
                    "it has a sample, that there is none",
                    title(cell.column), reason_for_missing(cell.text)),
        Remedy::header);
  if (missing && !provided_for)
    fail_at(cell,
            fmt::format("{} is missing{}; {}, or leave the sample out", title(cell.column), reason_for_missing(cell.text),
                        is_target ? "fill in the target" : "fill it in"),
            is_target ? Remedy::missing_target : Remedy::missing_value);
  if (number && !missing)
    fail_at(cell,
            fmt::format("{} is {}, not finite; correct it, or leave the sample out", title(cell.column), quoted(cell.text)));
  return std::nullopt;
}

}  // namespace onestep::data
