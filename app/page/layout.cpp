// Ticks, margins, and the labels of curves, which are moved until they neither overlap nor leave the panel.
#include "page/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace onestep::app::page {

namespace {

constexpr double letters = 14, small_letters = 13, title_letters = 17;
constexpr double line_height = 1.22;  // in multiples of the letters' size
constexpr double gap = 8;

// As width_of, with the braces of the enhanced notation left out and the exponents smaller.
double width_of_tick(const Tick& tick) {
  const std::string& text = tick.text;
  const auto power = text.find("^{");
  if (tick.is_name || power == std::string::npos) return width_of(text);
  return width_of(text.substr(0, power)) + 0.8 * width_of(text.substr(power + 2, text.size() - power - 3));
}

Point place(const PanelLayout& layout, double x, double y) {
  return {layout.box.left + layout.x.place(x) * layout.box.width(),
          layout.box.bottom + layout.y.place(y) * layout.box.height()};
}

// Points that no line joins.
bool is_cloud(const Series& s) { return s.mark == "points" || s.mark == "bars"; }

struct EndLabel {
  std::vector<std::string> lines;
  const Colour* colour = &ink;
  Point end;
  double before = 0;  ///< how high the curve was before its end: decides between curves that meet there
  double height = 0, y = 0;
  std::vector<Point> others;  ///< where it may stand as well: any point of a cloud
};

// Labels one above the other, each as near to its wanted height as the others allow (pool adjacent violators).
void spread(std::vector<EndLabel>& labels, double bottom, double top) {
  std::ranges::stable_sort(labels, [](const EndLabel& a, const EndLabel& b) {
    return std::fabs(a.end.y - b.end.y) > 2 ? a.end.y < b.end.y : a.before < b.before;
  });
  struct Pool {
    std::size_t first, last;
    double wanted, height;  ///< the sum over its labels of where its middle should be; its height
    double bottom() const { return wanted / static_cast<double>(last - first + 1) - height / 2; }
  };
  std::vector<Pool> pools;
  const auto limited = [&](const Pool& pool) {
    return std::clamp(pool.bottom(), bottom, std::max(bottom, top - pool.height));
  };
  for (std::size_t i = 0; i < labels.size(); ++i) {
    pools.push_back({i, i, labels[i].end.y, labels[i].height});
    while (pools.size() > 1) {
      Pool& below = pools[pools.size() - 2];
      const Pool& above = pools.back();
      if (limited(below) + below.height <= limited(above)) break;
      below = {below.first, above.last, below.wanted + above.wanted, below.height + above.height};
      pools.pop_back();
    }
  }
  for (const Pool& pool : pools) {
    double y = limited(pool);
    for (std::size_t i = pool.first; i <= pool.last; ++i) {
      labels[i].y = y + labels[i].height / 2;
      y += labels[i].height;
    }
  }
}

void add_lines(PanelLayout& layout, const EndLabel& label, double x, double y, Align align) {
  const double step = letters * line_height;
  double at = y + step * (static_cast<double>(label.lines.size()) - 1) / 2;
  for (const std::string& line : label.lines) {
    layout.texts.push_back({{x, at}, line, letters, align, label.colour});
    at -= step;
  }
}

double pixel_width(const EndLabel& label) {
  double width = 0;
  for (const std::string& line : label.lines) width = std::max(width, width_of(line));
  return letters * width;
}

// For a curve that ends inside the panel: beside, above or below its end, where it covers least.
class InnerLabels {
 public:
  InnerLabels(const Panel& panel, PanelLayout& layout) : layout_(layout) {
    for (const Series& s : panel.series)
      for (const auto& run : visible_runs(s, layout))
        for (std::size_t i = 0; i < run.size(); ++i) {
          const Point to = place(layout, s.x[run[i]], s.y[run[i]]);
          const Point from = i == 0 || is_cloud(s) ? to : place(layout, s.x[run[i - 1]], s.y[run[i - 1]]);
          const int steps = std::max(1, static_cast<int>(std::hypot(to.x - from.x, to.y - from.y) / 3));
          for (int k = 1; k <= steps; ++k) {
            const double t = static_cast<double>(k) / steps;
            covered_.push_back({from.x + t * (to.x - from.x), from.y + t * (to.y - from.y)});
          }
        }
  }

  void add(const EndLabel& label) {
    struct Place {
      double dx, dy;
      Align align;
    };
    const double up = label.height / 2 + gap;
    EndLabel best = label;
    Place best_place{gap, 0, Align::left};
    double least = std::numeric_limits<double>::infinity();
    const auto try_at = [&](const Point& end) {
      EndLabel moved = label;
      moved.end = end;
      for (const Place& place : {Place{gap, 0, Align::left},
                                 {0, up, Align::centre},
                                 {0, -up, Align::centre},
                                 {gap, up, Align::left},
                                 {gap, -up, Align::left},
                                 {-gap, up, Align::right},
                                 {-gap, -up, Align::right},
                                 {0, 2 * up, Align::centre},
                                 {0, -2 * up, Align::centre}})
        if (const double bad = badness(box_of(moved, place.dx, place.dy, place.align)); bad < least) {
          least = bad;
          best = moved;
          best_place = place;
        }
    };
    try_at(label.end);
    for (const Point& other : label.others) try_at(other);
    taken_.push_back(box_of(best, best_place.dx, best_place.dy, best_place.align));
    add_lines(layout_, best, best.end.x + best_place.dx, best.end.y + best_place.dy, best_place.align);
  }

 private:
  static Box box_of(const EndLabel& label, double dx, double dy, Align align) {
    const double width = pixel_width(label), x = label.end.x + dx, y = label.end.y + dy;
    const double left = align == Align::left ? x : align == Align::right ? x - width : x - width / 2;
    return {left, y - label.height / 2, left + width, y + label.height / 2};
  }

  double badness(const Box& box) const {
    double bad = 0;
    for (const Point& p : covered_)
      if (p.x > box.left - 3 && p.x < box.right + 3 && p.y > box.bottom - 2 && p.y < box.top + 2) ++bad;
    for (const Box& other : taken_)
      if (box.left < other.right && other.left < box.right && box.bottom < other.top && other.bottom < box.top) bad += 100;
    const Box& frame = layout_.box;
    return bad + 100 * (std::max(0.0, frame.left - box.left) + std::max(0.0, box.right - frame.right) +
                        std::max(0.0, frame.bottom - box.bottom) + std::max(0.0, box.top - frame.top));
  }

  PanelLayout& layout_;
  std::vector<Point> covered_;
  std::vector<Box> taken_;
};

bool labelled_outside(const PanelLayout& layout, double last_x) { return layout.x.place(last_x) > 0.88; }

// Curves that reach the right end are labelled beside the panel, the others at their end. Series that share a label and a
// colour are labelled once.
void label_curves(const Panel& panel, PanelLayout& layout, double label_width) {
  std::vector<EndLabel> outer, inner;
  std::vector<const Series*> labelled;
  for (const Series& s : panel.series) {
    const auto runs = visible_runs(s, layout);
    if (s.label.empty() || runs.empty()) continue;
    if (std::ranges::any_of(labelled, [&](const Series* o) { return o->label == s.label && o->method == s.method; }))
      continue;
    labelled.push_back(&s);
    EndLabel label{wrap(s.label, label_width), &colour_of(s.method), {}, 0, 0, 0, {}};
    label.height = letters * line_height * static_cast<double>(label.lines.size());
    const std::size_t last = runs.back().back();
    label.end = place(layout, s.x[last], s.y[last]);
    if (is_cloud(s))
      for (const auto& run : runs)
        for (const std::size_t i : run) label.others.push_back(place(layout, s.x[i], s.y[i]));
    double sum = 0, count = 0;
    for (const auto& run : runs)
      for (const std::size_t i : run)
        if (const Point p = place(layout, s.x[i], s.y[i]); p.x > layout.box.left + 0.6 * layout.box.width()) {
          sum += p.y;
          ++count;
        }
    label.before = count > 0 ? sum / count : label.end.y;
    (labelled_outside(layout, s.x[last]) ? outer : inner).push_back(std::move(label));
  }

  spread(outer, layout.box.bottom - letters / 2, layout.box.top + letters / 2);
  const double x = layout.box.right + 1.5 * gap;
  for (const EndLabel& label : outer) {
    if (std::fabs(label.y - label.end.y) > 4 || label.end.x < layout.box.right - 3 * gap)
      layout.leaders.push_back({{label.end.x + gap / 2, label.end.y}, {x - 3, label.y}, label.colour});
    add_lines(layout, label, x, label.y, Align::left);
  }
  InnerLabels placed(panel, layout);
  for (const EndLabel& label : inner) placed.add(label);
}

// How wide the labels beside the panel may be before they are broken into lines.
constexpr double widest_label = 10.5;

double label_room(const Panel& panel) {
  PanelLayout layout;
  std::tie(layout.x, layout.y) = ranges_of(panel);
  layout.box = {0, 0, 1000, 1000};
  double width = 0;
  for (const Series& s : panel.series) {
    const auto runs = visible_runs(s, layout);
    if (runs.empty() || !labelled_outside(layout, s.x[runs.back().back()])) continue;
    for (const std::string& line : wrap(s.label, widest_label)) width = std::max(width, width_of(line));
  }
  return width > 0 ? letters * width + 2 * gap : gap;
}

}  // namespace

int columns_for(std::size_t panels) {
  return panels <= 3 ? static_cast<int>(panels) : panels == 4 ? 2 : panels <= 6 ? 3 : 4;
}

std::vector<std::vector<std::size_t>> visible_runs(const Series& series, const PanelLayout& layout) {
  std::vector<std::vector<std::size_t>> runs;
  std::vector<std::size_t> column;  // the points of the last run that lie in one column of pixels
  double column_x = 0;
  const bool all_are_drawn = is_cloud(series) && series.x.size() <= 2000;
  const auto close_column = [&] {
    if (column.size() > 4 && !all_are_drawn) {
      const auto [low, high] = std::ranges::minmax(column, {}, [&](std::size_t i) { return series.y[i]; });
      column = {column.front(), std::min(low, high), std::max(low, high), column.back()};
      column.erase(std::unique(column.begin(), column.end()), column.end());
    }
    if (!column.empty()) runs.back().insert(runs.back().end(), column.begin(), column.end());
    column.clear();
  };
  bool broken = true;
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    if (!layout.x.shows(series.x[i]) || !layout.y.shows(series.y[i])) {
      broken = true;
      continue;
    }
    const double x = std::floor(layout.x.place(series.x[i]) * layout.box.width());
    if (broken || x != column_x) close_column();
    if (broken) runs.emplace_back();
    broken = false;
    column_x = x;
    column.push_back(i);
  }
  if (!runs.empty()) close_column();
  return runs;
}

namespace {

struct Rooms {
  double left = 0, right = 0;
  std::size_t title_lines = 0, note_lines = 0;
};

double text_width(const PanelStyle& style) { return style.width - 3 * gap; }

std::vector<std::string> note_lines(const Panel& panel, const PanelStyle& style) {
  std::vector<std::string> lines;
  if (style.titles)
    for (const std::string& note : panel.notes)
      for (const std::string& line : wrap(note, text_width(style) / small_letters)) lines.push_back(line);
  return lines;
}

// Rows need a line each.
PanelStyle tall_enough(const Panel& panel, PanelStyle style) {
  style.height = std::max(style.height, 120 + small_letters * 1.5 * static_cast<double>(panel.y.names.size()));
  return style;
}

Rooms rooms_for(const Panel& panel, const PanelStyle& style) {
  Rooms rooms;
  for (const Tick& tick : ranges_of(panel).second.ticks) rooms.left = std::max(rooms.left, letters * width_of_tick(tick));
  rooms.left += 2 * gap;
  rooms.right = std::min(label_room(panel), 0.35 * style.width);
  rooms.title_lines = wrap(panel.title, text_width(style) / letters * 0.92).size();
  rooms.note_lines = note_lines(panel, style).size();
  return rooms;
}

PanelLayout lay_out(const Panel& panel, const PanelStyle& style, const Rooms& rooms, Point corner) {
  PanelLayout layout;
  std::tie(layout.x, layout.y) = ranges_of(panel);
  const double line = letters * line_height, small_line = small_letters * line_height;

  double y = corner.y + style.height - gap - line / 2;
  const double left = corner.x + gap;
  std::size_t used = 0;
  for (const std::string& text : wrap(panel.title, text_width(style) / letters * 0.92)) {
    layout.texts.push_back({{left, y}, text, letters, Align::left, &ink, true});
    y -= line;
    ++used;
  }
  y -= line * static_cast<double>(rooms.title_lines - used) + (rooms.title_lines > 0 ? 3 : 0);
  if (!panel.y.label.empty()) layout.texts.push_back({{left, y}, panel.y.label, small_letters, Align::left, &soft});

  const double notes = rooms.note_lines > 0 ? static_cast<double>(rooms.note_lines) * small_line + gap : 0;
  layout.box = {corner.x + rooms.left, corner.y + notes + 2.9 * line, corner.x + style.width - rooms.right - gap,
                y - 0.95 * line};
  if (!panel.x.label.empty())
    layout.texts.push_back({{(layout.box.left + layout.box.right) / 2, corner.y + notes + 0.85 * line},
                            panel.x.label,
                            small_letters,
                            Align::centre,
                            &soft});
  double note_y = corner.y + notes - 0.6 * line;
  for (const std::string& text : note_lines(panel, style)) {
    layout.texts.push_back({{left, note_y}, text, small_letters, Align::left, &soft});
    note_y -= small_line;
  }
  for (const Tick& tick : layout.x.ticks)
    layout.texts.push_back(
        {{layout.box.left + layout.x.place(tick.value) * layout.box.width(), layout.box.bottom - 1.05 * line},
         tick.text,
         small_letters,
         Align::centre,
         &ink,
         false,
         true});
  for (const Tick& tick : layout.y.ticks)
    layout.texts.push_back({{layout.box.left - gap, layout.box.bottom + layout.y.place(tick.value) * layout.box.height()},
                            tick.text,
                            small_letters,
                            Align::right,
                            &ink,
                            false,
                            !tick.is_name});
  label_curves(panel, layout, rooms.right < label_room(panel) ? (rooms.right - 2 * gap) / letters : widest_label);
  return layout;
}

}  // namespace

FigureLayout lay_out(const Panel& panel, const PanelStyle& usual) {
  const PanelStyle style = tall_enough(panel, usual);
  return {style.width, style.height, {}, {lay_out(panel, style, rooms_for(panel, style), {0, 0})}};
}

FigureLayout lay_out(const Figure& figure, const PanelStyle& usual) {
  PanelStyle style = usual;
  for (const Panel& panel : figure.panels) style = tall_enough(panel, style);
  Rooms rooms;  // the largest needed, so that panels are alike
  for (const Panel& panel : figure.panels) {
    const Rooms own = rooms_for(panel, style);
    rooms = {std::max(rooms.left, own.left), std::max(rooms.right, own.right), std::max(rooms.title_lines, own.title_lines),
             std::max(rooms.note_lines, own.note_lines)};
  }
  PanelStyle taller = style;
  taller.height += static_cast<double>(rooms.note_lines) * small_letters * line_height + gap;
  const auto columns = static_cast<std::size_t>(std::max(1, columns_for(figure.panels.size())));
  const std::size_t rows = (figure.panels.size() + columns - 1) / columns;
  FigureLayout layout;
  layout.width = style.width * static_cast<double>(columns);
  const auto title =
      style.titles ? wrap(figure.title, (layout.width - 2 * gap) / title_letters * 0.92) : std::vector<std::string>();
  const double title_line = title_letters * line_height;
  const double title_height = title.empty() ? 0 : title_line * static_cast<double>(title.size()) + 2 * gap;
  layout.height = taller.height * static_cast<double>(rows) + title_height;
  double y = layout.height - gap - title_line / 2;
  for (const std::string& text : title) {
    layout.texts.push_back({{gap, y}, text, title_letters, Align::left, &ink, true});
    y -= title_line;
  }
  for (std::size_t i = 0; i < figure.panels.size(); ++i) {
    const std::size_t column = i % columns, row = i / columns;
    const Point corner{static_cast<double>(column) * style.width, static_cast<double>(rows - 1 - row) * taller.height};
    layout.panels.push_back(lay_out(figure.panels[i], taller, rooms, corner));
  }
  return layout;
}

}  // namespace onestep::app::page
