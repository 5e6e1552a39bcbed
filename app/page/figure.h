// What a page shows: figures, tables and galleries of small pictures. Drawing reads nothing else, so that what is saved can
// be drawn again without computing.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace onestep::app::page {

using Json = nlohmann::ordered_json;

/// One curve. `method` decides its colour, the same on every figure: none, unrolled, implicit, one_step, k_step, iterates,
/// bound, estimate, auto, exact, or a peer's name.
struct Series {
  std::string label, method;
  /// line, dotted, dashed, points, bars (points with a bar along x), or rule: thin, to compare with.
  std::string mark = "line";
  std::vector<double> x = {}, y = {};
  std::vector<double> low = {}, high = {};  ///< a band around y, or the ends of bars along x; empty: none
};

struct Axis {
  std::string label;
  bool log = false;
  std::vector<std::string> names = {};  ///< of rows: what stands at 1, 2, … of a y axis, from the top
};

struct Panel {
  std::string title;
  Axis x, y;
  std::vector<Series> series = {};
  std::vector<std::string> notes = {};  ///< said under the panel, such as where a curve stops and why
};

struct Figure {
  std::string id, title;
  std::string caption;  ///< what was run, on what, and what came out, with the numbers of this run
  std::vector<Panel> panels = {};
};

struct Table {
  std::string id, title, caption;
  std::vector<std::string> columns = {};
  std::vector<std::vector<std::string>> rows = {};
  bool is_matrix = false;  ///< its columns are read against each other: it scrolls where a screen is narrow
};

/// A small picture in shades of grey, with a few lines of text under it.
struct Picture {
  std::vector<std::uint8_t> pixels;  ///< row by row; as many rows as columns
  std::vector<std::string> lines;
  bool marked = false;  ///< stands out from the others
};

struct Gallery {
  std::string id, title, caption;
  std::vector<Picture> pictures = {};
};

Json to_json(const std::vector<Figure>& figures);

}  // namespace onestep::app::page
