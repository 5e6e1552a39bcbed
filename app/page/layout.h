// Where everything on a panel goes, in pixels with the origin at the lower left: axes with their ticks, and a label at the
// end of each curve that neither covers another label nor, where it can be helped, a curve.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "page/figure.h"
#include "page/palette.h"

namespace onestep::app::page {

struct Point {
  double x = 0, y = 0;
};

struct Box {
  double left = 0, bottom = 0, right = 0, top = 0;
  double width() const { return right - left; }
  double height() const { return top - bottom; }
};

struct Tick {
  double value = 0;
  std::string text;      ///< in gnuplot's notation: 10^{3}
  bool is_name = false;  ///< as it is, and without a line across the panel
};

/// One axis: the range shown, in the data's unit, and its ticks.
struct Range {
  double low = 0, high = 1;
  bool log = false;
  bool from_the_top = false;  ///< of rows, the first of which is the highest
  std::vector<Tick> ticks;

  bool shows(double value) const;
  /// 0 at the left or the bottom, 1 at the right or the top.
  double place(double value) const;
};

/// The axes of a panel, x and y.
std::pair<Range, Range> ranges_of(const Panel& panel);

enum class Align { left, centre, right };

struct Text {
  Point at;  ///< half the height of the letters
  std::string text;
  double size = 14;
  Align align = Align::left;
  const Colour* colour = &ink;
  bool bold = false;
  bool enhanced = false;  ///< in gnuplot's notation for exponents; otherwise as it is
};

/// From the end of a curve to its label, where that had to move away.
struct Leader {
  Point from, to;
  const Colour* colour = &ink;
};

struct PanelLayout {
  Box box;  ///< what the axes enclose
  Range x, y;
  std::vector<Text> texts;
  std::vector<Leader> leaders;
};

struct FigureLayout {
  double width = 0, height = 0;
  std::vector<Text> texts;  ///< the figure's title
  std::vector<PanelLayout> panels;
};

/// A panel's size and what is written on it; letters of 14 pixels.
struct PanelStyle {
  double width = 640, height = 420;
  bool titles = true;  ///< the figure's title and the notes as well, for a picture that stands alone
};

/// Panels side by side, as many in a row as `columns_for` says.
FigureLayout lay_out(const Figure& figure, const PanelStyle& usual);
/// One panel alone.
FigureLayout lay_out(const Panel& panel, const PanelStyle& usual);

int columns_for(std::size_t panels);

/// A curve's points that the panel shows, in runs between those that it does not (not finite, or not positive on a
/// logarithmic axis), at most a few for each pixel.
std::vector<std::vector<std::size_t>> visible_runs(const Series& series, const PanelLayout& layout);

/// About how wide a text is, in multiples of its letters' size; never less than it is in the usual sans-serif fonts.
double width_of(std::string_view text);

/// The text in lines of at most this width, in the same unit, broken at spaces.
std::vector<std::string> wrap(const std::string& text, double width);

}  // namespace onestep::app::page
