// The pieces that pages are made of: one HTML file that needs nothing beside it, for any width, light and dark.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "page/draw.h"
#include "page/figure.h"

namespace onestep::app::page {

/// What came of drawing: pictures by the figure's id, and for those that could not be drawn the reason.
struct Pictures {
  std::map<std::string, Drawn> drawn;
  std::map<std::string, std::string> failed;
  std::string missing;  ///< why nothing at all could be drawn; empty when it could
};

/// With nothing in it that HTML takes for its own.
std::string escaped(std::string_view text);
/// Sentences and cells, escaped: x_{k-1} and 1.2e-13 as people write them, and never broken into two lines.
std::string prose(std::string_view text);

/// All before <body>.
std::string head(std::string_view title);

std::string html_of(const Figure& figure, const Pictures& pictures);
/// What stands in cells besides numbers: formulas (x_k), or names of data, which are left as they are and cut in the middle
/// where they are long.
enum class Cells : std::uint8_t { formulas, names };
std::string html_of(const Table& table, Cells contents = Cells::formulas);
std::string html_of(const Gallery& gallery);

/// The end of the page: lines of facts, and the name of the file with every number.
std::string foot(const Json& facts, std::string_view file);

/// Whether a cell is one of numbers, which are set to the right: digits at the front, perhaps after a sign.
bool is_number(std::string_view text);

}  // namespace onestep::app::page
