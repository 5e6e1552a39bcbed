// The lines of a QPS file: its sections, and how a line is split into fields.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace onestep::data {

enum class Section { none, objsense, rows, columns, rhs, ranges, bounds, quadobj, qmatrix };

/// The section that begins with this word; QSECTION is another word for QUADOBJ. Nothing for NAME and ENDATA, which hold no
/// lines.
std::optional<Section> section_of(std::string_view word);

bool is_comment(std::string_view line);
/// Whether a line that is no comment begins a section.
bool is_header(std::string_view line);

enum class BoundType { lower, upper, fixed, free, minus_infinity, plus_infinity };

std::optional<BoundType> bound_type(std::string_view word);
bool has_value(BoundType type);

/// The fields of a line that are there, in their order; more than six only where the line is wrong.
struct Fields {
  std::array<std::string_view, 7> text;
  std::size_t count = 0;

  std::string_view operator[](std::size_t i) const { return text[i]; }
};

/// Whether the line begins or ends a group of integer variables.
bool is_marker(const Fields& fields);

using Splitter = Fields(std::string_view line);

Fields split_at_blanks(std::string_view line);
/// At the columns of the fixed format; a field without text is left out.
Fields split_by_columns(std::string_view line);

/// Whether there is nothing between the columns of the fixed format.
bool keeps_to_columns(std::string_view line);

/// The way to split the lines of this file: at blanks, unless more lines make sense by columns (names have blanks in them).
Splitter* how_to_split(std::string_view text);

}  // namespace onestep::data
