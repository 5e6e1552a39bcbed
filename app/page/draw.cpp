// Writes a gnuplot script for each figure from its layout, and runs it.
#include "page/draw.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "page/layout.h"
#include "page/palette.h"

namespace onestep::app::page {

namespace {

constexpr PanelStyle alone{640, 420, true};
constexpr PanelStyle on_page{480, 345, false};

// In gnuplot's single quotes nothing is special but the quote itself; what is no printable text becomes a space.
std::string in_quotes(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') result += c;
    result += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
  }
  return result + "'";
}

// gnuplot misreads a text that begins with a quote, and this one looks better anyway.
std::string in_quotes_with_apostrophes(std::string_view text) {
  std::string result;
  for (const char c : text) result += c == '\'' ? "’" : std::string(1, c);
  return in_quotes(result);
}

// #rrggbb with transparency: gnuplot has the alpha channel first, 255 for invisible.
std::string faint(const char* colour, double opacity) {
  return fmt::format("'#{:02x}{}'", static_cast<int>(255 * (1 - opacity)), colour + 1);
}

// Curves that coincide are told apart by the wider one showing on both sides, and by the shapes of their points.
struct Pen {
  const char* method;
  double width;
  int point;
  double size;
};
constexpr std::array pens{Pen{"implicit", 4.0, 7, 1.0}, Pen{"unrolled", 2.8, 9, 0.9}, Pen{"k_step", 2.3, 13, 0.9},
                          Pen{"none", 1.9, 5, 0.6},     Pen{"bound", 1.9, 11, 0.8},   Pen{"auto", 1.9, 7, 1.2},
                          Pen{"", 1.7, 7, 0.6}};

// Peers stay in the background.
constexpr Pen pen_of_peers{"", 1.1, 7, 0.35};

const Pen& pen_of(const Series& series) {
  if (is_peer(series.method)) return pen_of_peers;
  const auto* found = std::ranges::find_if(pens, [&](const Pen& pen) { return series.method == pen.method; });
  return found != pens.end() ? *found : pens.back();
}

// The points of so few are drawn: more markers would overlap.
constexpr std::size_t most_points = 26;

std::string data_of(const Series& series, const PanelLayout& layout) {
  const bool band = !series.low.empty();
  const Range& along = series.mark == "bars" ? layout.x : layout.y;
  std::string text;
  for (const auto& run : visible_runs(series, layout)) {
    for (const std::size_t i : run) {
      double low = series.mark == "bars" ? series.x[i] : series.y[i], high = low;
      if (band && along.shows(series.low[i])) low = series.low[i];
      if (band && along.shows(series.high[i])) high = series.high[i];
      text += fmt::format("{:.12g} {:.12g} {:.12g} {:.12g}\n", series.x[i], series.y[i], low, high);
    }
    text += "\n";
  }
  return text;
}

class Script {
 public:
  Script(const FigureLayout& layout, double point_size) : layout_(layout), point_size_(point_size) {}

  void add(const Text& t) {
    const char* align = t.align == Align::left ? "left" : t.align == Align::right ? "right" : "center";
    text_ += fmt::format("set label {} at screen {:.6f},{:.6f} {} font 'Helvetica{},{}' tc rgb '{}' {} front\n",
                         in_quotes_with_apostrophes(t.text), t.at.x / layout_.width, t.at.y / layout_.height, align,
                         t.bold ? ":Bold" : "", t.size, t.colour->text, t.enhanced ? "enhanced" : "noenhanced");
  }

  void add(const Panel& panel, const PanelLayout& p, const std::vector<Text>& more) {
    text_ += "reset\nset encoding utf8\nset key off\nunset ytics\n";
    text_ += fmt::format("set border 1 lt 1 lw 1 lc rgb '{}'\n", soft.line);
    text_ += fmt::format("set lmargin at screen {:.6f}\nset rmargin at screen {:.6f}\n", p.box.left / layout_.width,
                         p.box.right / layout_.width);
    text_ += fmt::format("set bmargin at screen {:.6f}\nset tmargin at screen {:.6f}\n", p.box.bottom / layout_.height,
                         p.box.top / layout_.height);
    add_axes(p);
    text_ += "set errorbars 0\n";
    for (const Text& t : p.texts) add(t);
    for (const Text& t : more) add(t);
    for (const Leader& l : p.leaders)
      text_ += fmt::format("set arrow from screen {:.6f},{:.6f} to screen {:.6f},{:.6f} nohead lw 1 lc rgb {}\n",
                           l.from.x / layout_.width, l.from.y / layout_.height, l.to.x / layout_.width,
                           l.to.y / layout_.height, faint(l.colour->line, 0.55));
    add_curves(panel, p);
  }

  std::string take() { return std::move(text_); }

 private:
  // Only the marks of x are gnuplot's: its ticks stand elsewhere in each of its terminals, and those of y leave a dot where
  // they have no length.
  void add_axes(const PanelLayout& p) {
    for (const auto& [name, range] : {std::pair<const char*, const Range&>{"x", p.x}, {"y", p.y}}) {
      text_ += fmt::format("set {}range [{:.12g}:{:.12g}]\n", name, range.from_the_top ? range.high : range.low,
                           range.from_the_top ? range.low : range.high);
      if (range.log) text_ += fmt::format("set logscale {}\n", name);
    }
    text_ += "set xtics nomirror scale 0.5,0 out (";
    for (std::size_t i = 0; i < p.x.ticks.size(); ++i)
      text_ += fmt::format("{}'' {:.12g}", i == 0 ? "" : ", ", p.x.ticks[i].value);
    text_ += ")\n";
    for (const Tick& tick : p.y.ticks)
      text_ += fmt::format("set arrow from graph 0,first {0:.12g} to graph 1,first {0:.12g} nohead back lw 1 lc rgb '{1}'\n",
                           tick.value, grid.line);
  }

  // Bands lie under all curves, wider curves under narrower ones.
  void add_curves(const Panel& panel, const PanelLayout& p) {
    std::vector<std::string> bands;
    std::vector<std::pair<double, std::string>> curves;
    for (std::size_t i = 0; i < panel.series.size(); ++i) {
      const Series& s = panel.series[i];
      const std::string data = data_of(s, p);
      if (data.empty()) continue;
      text_ += fmt::format("$d{} << END\n{}END\n", i, data);
      const char* colour = colour_of(s.method).line;
      const std::string name = in_quotes_with_apostrophes(s.label);
      const Pen& pen = pen_of(s);
      if (s.mark == "bars") {
        curves.emplace_back(
            pen.width, fmt::format("$d{} using 1:2:3:4 with xerrorbars lw {} pt 7 ps {} lc rgb '{}' title {}", i, pen.width,
                                   point_size_ * pen.size, colour, name));
        continue;
      }
      if (!s.low.empty())
        bands.push_back(fmt::format("$d{} using 1:3:4 with filledcurves fc rgb {} title {}", i, faint(colour, 0.2), name));
      const bool dots = s.mark == "points", rule = s.mark == "rule", few = s.x.size() <= most_points && !rule;
      const char* dashes = s.mark == "dotted" ? "(0.1,6)" : s.mark == "dashed" || rule ? "(7,5)" : "solid";
      // Dots as wide as the line lie on a dotted curve whatever its method.
      const double width = s.mark == "line" ? pen.width : std::min(pen.width, rule ? 1.3 : 2.4);
      curves.emplace_back(width, fmt::format("$d{} using 1:2 with {} lw {} dt {} pt {} ps {} lc rgb '{}' title {}", i,
                                             dots  ? "points"
                                             : few ? "linespoints"
                                                   : "lines",
                                             width, dashes, pen.point, point_size_ * pen.size, colour, name));
    }
    std::ranges::stable_sort(curves, std::greater<>(), [](const auto& curve) { return curve.first; });
    for (auto& curve : curves) bands.push_back(std::move(curve.second));
    // Without a curve the axes alone are drawn, by one that lies outside.
    text_ += fmt::format("plot {}\n", bands.empty() ? "NaN notitle" : fmt::format("{}", fmt::join(bands, ", ")));
  }

  const FigureLayout& layout_;
  double point_size_;
  std::string text_;
};

// Points of one size are larger in gnuplot's SVG than in its PNG.
constexpr double svg_points = 0.75;

std::string svg_terminal(const FigureLayout& layout, const std::string& path, const char* background) {
  return fmt::format("set terminal svg size {:.0f},{:.0f} dynamic rounded enhanced font 'Helvetica,14' {}\nset output {}\n",
                     layout.width, layout.height, background, in_quotes(path));
}

// Twice the size, for screens and projectors that show more pixels. The cairo terminal counts letters in points, of which
// three make four pixels.
std::string png_terminal(const FigureLayout& layout, const std::string& path) {
  return fmt::format(
      "set terminal pngcairo size {:.0f},{:.0f} rounded enhanced font 'Helvetica,14' fontscale 1.5 linewidth 2 pointscale 2 "
      "background rgb '#ffffff'\nset output {}\n",
      2 * layout.width, 2 * layout.height, in_quotes(path));
}

std::string panels_of(const Figure& figure, const FigureLayout& layout, double point_size) {
  Script script(layout, point_size);
  for (std::size_t i = 0; i < figure.panels.size(); ++i)
    script.add(figure.panels[i], layout.panels[i], i == 0 ? layout.texts : std::vector<Text>());
  return "set multiplot\n" + script.take() + "unset multiplot\nunset output\n";
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "onestep-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      throw std::runtime_error(fmt::format("a temporary folder like {} cannot be made: {}", pattern, std::strerror(errno)));
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Without a shell, without the user's settings, and in a process group of its own: Ctrl-C is for us, who then still want
// what is computed drawn.
int run_gnuplot(const std::string& script, const std::string& errors) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::string program = "gnuplot", option = "--default-settings", file = script;
  std::array<char*, 4> arguments{program.data(), option.data(), file.data(), nullptr};
  pid_t process = 0;
  const int problem = posix_spawnp(&process, program.c_str(), &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (problem == ENOENT || problem == EACCES) throw NoGnuplot();
  if (problem != 0) throw std::runtime_error(fmt::format("gnuplot cannot be started: {}", std::strerror(problem)));
  int state = 0;
  while (waitpid(process, &state, 0) < 0 && errno == EINTR) {}
  return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

// gnuplot names fonts its own way, and calls every picture the same.
std::string finished_svg(std::string svg, const std::string& title) {
  const auto replace_all = [&](std::string_view from, const std::string& to) {
    for (std::size_t at = 0; (at = svg.find(from, at)) != svg.npos; at += to.size()) svg.replace(at, from.size(), to);
  };
  std::string escaped;
  for (const char c : title) escaped += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  const std::string family = "font-family=\"Helvetica, Arial, sans-serif\"";
  replace_all("font-family=\"Helvetica:Bold\"", family + " font-weight=\"bold\"");
  replace_all("font-family=\"Helvetica\"", family);
  replace_all("<title>Gnuplot</title>", "<title>" + escaped + "</title>");
  return svg;
}

bool is_complete_svg(std::string_view svg) {
  while (svg.ends_with('\n')) svg.remove_suffix(1);
  return svg.ends_with("</svg>");
}

}  // namespace

NoGnuplot::NoGnuplot()
    : std::runtime_error(
          "gnuplot, which draws the figures, is not installed; on Debian and Ubuntu: apt-get install gnuplot-nox") {}

Drawn draw(const Figure& figure) {
  const TemporaryFolder folder;
  std::string script;
  std::vector<std::string> panels;
  for (const Panel& panel : figure.panels) {
    panels.push_back(folder / fmt::format("panel{}.svg", panels.size()));
    const FigureLayout layout = lay_out(panel, on_page);
    Script one(layout, svg_points);
    one.add(panel, layout.panels.front(), {});
    script += svg_terminal(layout, panels.back(), "") + one.take() + "unset output\n";
  }
  // Last, since gnuplot keeps a background once it is given.
  const FigureLayout whole = lay_out(figure, alone);
  const std::string svg = folder / "figure.svg", png = folder / "figure.png";
  script += svg_terminal(whole, svg, "background rgb '#ffffff'") + panels_of(figure, whole, svg_points);
  script += png_terminal(whole, png) + panels_of(figure, whole, 1);

  const std::string path = folder / "figure.gp", errors = folder / "errors";
  std::ofstream file(path, std::ios::binary);
  file << script;
  file.close();
  if (!file) throw std::runtime_error(fmt::format("{} could not be written", path));

  const int status = run_gnuplot(path, errors);
  Drawn drawn{finished_svg(contents_of(svg), figure.title), contents_of(png), {}};
  bool complete = is_complete_svg(drawn.svg) && drawn.png.find("IEND") != drawn.png.npos;
  for (std::size_t i = 0; i < panels.size(); ++i) {
    drawn.panels.push_back(finished_svg(contents_of(panels[i]), figure.panels[i].title));
    complete = complete && is_complete_svg(drawn.panels.back());
  }
  if (status != 0 || !complete) {
    std::string said = contents_of(errors).substr(0, 400);
    std::ranges::replace(said, '\n', ' ');
    throw std::runtime_error(fmt::format("gnuplot could not draw {} (status {}): {}", figure.id, status, said));
  }
  return drawn;
}

}  // namespace onestep::app::page
