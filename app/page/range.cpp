// What the axes of a panel show, and where their ticks are.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "page/layout.h"
#include "page/text.h"

namespace onestep::app::page {

namespace {

// 20000, 0.25, 2·10^{-7}
std::string number(double value) {
  const double size = std::fabs(value);
  if (size == 0 || (size >= 1e-3 && size < 1e5)) return fmt::format("{:.6g}", value);
  const double power = std::floor(std::log10(size) + 1e-9);
  return fmt::format("{:.3g}·10^{{{:.0f}}}", value / std::pow(10, power), power);
}

std::vector<Tick> linear_ticks(double low, double high, int most) {
  const double rough = (high - low) / most, power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power >= rough) step = factor * power;
  std::vector<Tick> ticks;
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; ++k)
    ticks.push_back({k * step, number(k == 0 ? 0 : k * step)});  // not -0
  return ticks;
}

std::vector<Tick> log_ticks(double low, double high, int most) {
  const int first = static_cast<int>(std::ceil(std::log10(low) - 1e-9)),
            last = static_cast<int>(std::floor(std::log10(high) + 1e-9));
  std::vector<Tick> ticks;
  if (last - first >= 1) {
    int step = 1;
    for (const int wider : {2, 3, 4, 5, 10, 20, 50, 100})
      if ((last - first) / step + 1 > most) step = wider;
    for (int k = first; k <= last; ++k)
      if (k % step == 0) ticks.push_back({std::pow(10, k), fmt::format("10^{{{}}}", k)});
    if (ticks.size() > 1) return ticks;
  }
  ticks.clear();
  for (int k = first - 1; k <= last + 1; ++k)
    for (const double factor : {1.0, 2.0, 5.0})
      if (const double value = factor * std::pow(10, k); value >= low && value <= high)
        ticks.push_back({value, number(value)});
  return ticks.size() > 1 ? ticks : linear_ticks(low, high, most);
}

// The whole range of the values with a little room around it.
Range range_of(const std::vector<const std::vector<double>*>& values, const Axis& axis, int most_ticks, double room) {
  Range range;
  range.log = axis.log;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const auto* list : values)
    for (const double value : *list) {
      if (!std::isfinite(value) || (axis.log && value <= 0)) continue;
      const double v = axis.log ? std::log10(value) : value;
      low = std::min(low, v);
      high = std::max(high, v);
    }
  if (low > high) low = high = 0;
  if (!axis.log && low > 0 && low < 0.4 * high) low = 0;
  const double space = high > low ? room * (high - low) : axis.log ? 0.5 : std::max(std::fabs(low) / 2, 0.5);
  const bool from_zero = !axis.log && low == 0 && high > 0;
  low -= from_zero ? 0 : space;
  high += space;
  range.low = axis.log ? std::pow(10, low) : low;
  range.high = axis.log ? std::pow(10, high) : high;
  range.ticks = axis.log ? log_ticks(range.low, range.high, most_ticks) : linear_ticks(low, high, most_ticks);
  return range;
}

Range rows_of(const std::vector<std::string>& names) {
  Range range;
  range.low = 0.3;
  range.high = static_cast<double>(names.size()) + 0.7;
  range.from_the_top = true;
  constexpr std::size_t most_letters = 22;
  for (std::size_t i = 0; i < names.size(); ++i)
    range.ticks.push_back({static_cast<double>(i + 1), shortened(names[i], most_letters), true});
  return range;
}

}  // namespace

std::pair<Range, Range> ranges_of(const Panel& panel) {
  std::vector<const std::vector<double>*> x, y;
  bool points = false;
  for (const Series& s : panel.series) {
    x.push_back(&s.x);
    y.push_back(&s.y);
    for (const auto* list : {&s.low, &s.high}) (s.mark == "bars" ? x : y).push_back(list);
    points = points || s.mark == "points" || s.mark == "bars" || s.x.size() < 40;
  }
  return {range_of(x, panel.x, 7, points ? 0.02 : 0),
          panel.y.names.empty() ? range_of(y, panel.y, 6, 0.04) : rows_of(panel.y.names)};
}

bool Range::shows(double value) const { return std::isfinite(value) && (!log || value > 0); }

double Range::place(double value) const {
  const double share = log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  return from_the_top ? 1 - share : share;
}

}  // namespace onestep::app::page
