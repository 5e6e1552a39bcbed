// Splitting the lines of a QPS file.
#include "data/qps_lines.h"

#include "data/text.h"

namespace onestep::data {

Fields split_at_blanks(std::string_view line) {
  Fields fields;
  while (fields.count < fields.text.size()) {
    const std::string_view word = next_word(line);
    if (word.empty()) break;
    fields.text[fields.count++] = word;
  }
  return fields;
}

namespace {

struct Columns {
  std::size_t first, last;  // counted from 1
};
constexpr std::array<Columns, 6> fixed_columns{{{2, 3}, {5, 12}, {15, 22}, {25, 36}, {40, 47}, {50, 61}}};

}  // namespace

Fields split_by_columns(std::string_view line) {
  Fields fields;
  for (const auto [first, last] : fixed_columns) {
    if (line.size() < first) break;
    const std::string_view field = trimmed(line.substr(first - 1, last - first + 1));
    if (!field.empty()) fields.text[fields.count++] = field;
  }
  return fields;
}

bool keeps_to_columns(std::string_view line) {
  std::size_t between = 1;
  for (const auto [first, last] : fixed_columns) {
    for (; between < first; ++between)
      if (between <= line.size() && line[between - 1] != ' ') return false;
    between = last + 1;
  }
  return line.substr(0, fixed_columns.back().last).find('\t') == line.npos;
}

namespace {

struct Header {
  std::string_view word;
  Section section;
};
constexpr std::array<Header, 9> headers{{{"OBJSENSE", Section::objsense},
                                         {"ROWS", Section::rows},
                                         {"COLUMNS", Section::columns},
                                         {"RHS", Section::rhs},
                                         {"RANGES", Section::ranges},
                                         {"BOUNDS", Section::bounds},
                                         {"QUADOBJ", Section::quadobj},
                                         {"QSECTION", Section::quadobj},
                                         {"QMATRIX", Section::qmatrix}}};

}  // namespace

std::optional<Section> section_of(std::string_view word) {
  for (const Header& header : headers)
    if (header.word == word) return header.section;
  return std::nullopt;
}

bool is_comment(std::string_view line) { return line.starts_with('*') || trimmed(line).empty(); }
bool is_header(std::string_view line) { return !is_blank(line.front()); }

std::optional<BoundType> bound_type(std::string_view word) {
  if (word == "LO") return BoundType::lower;
  if (word == "UP") return BoundType::upper;
  if (word == "FX") return BoundType::fixed;
  if (word == "FR") return BoundType::free;
  if (word == "MI") return BoundType::minus_infinity;
  if (word == "PL") return BoundType::plus_infinity;
  return std::nullopt;
}

bool has_value(BoundType type) { return type == BoundType::lower || type == BoundType::upper || type == BoundType::fixed; }

bool is_marker(const Fields& fields) { return fields.count >= 3 && fields[1] == "'MARKER'"; }

namespace {

// Whether the fields are what a line of the section may have: how many there are, and numbers where they belong.
bool suits(Section section, const Fields& fields) {
  const auto pairs_from = [&](std::size_t first) {  // name and number, once or twice
    if (fields.count != first + 2 && fields.count != first + 4) return false;
    for (std::size_t i = first + 1; i < fields.count; i += 2)
      if (!parse_number(fields[i])) return false;
    return true;
  };
  switch (section) {
    case Section::rows: return fields.count == 2;
    case Section::columns: return pairs_from(1) || is_marker(fields);
    case Section::quadobj:
    case Section::qmatrix: return pairs_from(1);
    case Section::rhs:
    case Section::ranges: return pairs_from(fields.count % 2);
    case Section::bounds: {
      const std::optional<BoundType> type = bound_type(fields[0]);
      if (type && has_value(*type))
        return (fields.count == 3 || fields.count == 4) && parse_number(fields[fields.count - 1]);
      return fields.count >= 2 && fields.count <= 4;
    }
    case Section::none:
    case Section::objsense: return true;
  }
  return true;
}

}  // namespace

Splitter* how_to_split(std::string_view text) {
  std::size_t wrong_at_blanks = 0, wrong_by_columns = 0;
  Section section = Section::none;
  Lines lines(text);
  for (std::string_view line; lines.next(line);) {
    if (is_comment(line)) continue;
    if (is_header(line)) {
      const std::string_view word = next_word(line);
      if (word == "ENDATA") break;
      section = section_of(word).value_or(Section::none);
      continue;
    }
    if (!suits(section, split_at_blanks(line))) ++wrong_at_blanks;
    if (!keeps_to_columns(line) || !suits(section, split_by_columns(line))) ++wrong_by_columns;
  }
  return wrong_by_columns < wrong_at_blanks ? split_by_columns : split_at_blanks;
}

}  // namespace onestep::data
