// Chooses repetitions, takes turns, and prints and writes the rows.
#include "harness.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace onestep::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_now(Unit unit) {
  if (unit != Unit::MB_per_s) return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_of(const Contender& contender, int calls, Unit unit) {
  if (contender.before) contender.before();
  const double start = seconds_now(unit);
  for (int i = 0; i < calls; ++i) contender.run();
  return seconds_now(unit) - start;
}

double seconds_of_unit(const Contender& contender, int calls, Unit unit) {
  return seconds_of(contender, calls, unit) / (calls * contender.units);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// How often to call within one turn, so that the clock's own cost and resolution do not count. The best of three, since an
// interruption would pass for a long call; a call that is longer than any interruption is tried once.
int calls_per_turn(const Contender& contender, double turn, Unit unit) {
  int calls = 1;
  if (seconds_of(contender, 1, unit) > 100 * turn) return 1;
  for (;;) {
    const double taken = std::min(
        {seconds_of(contender, calls, unit), seconds_of(contender, calls, unit), seconds_of(contender, calls, unit)});
    if (taken >= turn || calls >= 1 << 24) return calls;
    const double wanted = taken > 0 ? 1.2 * turn / taken : 16.0;
    calls = static_cast<int>(std::ceil(calls * std::clamp(wanted, 1.1, 16.0)));
  }
}

const char* text(Unit unit) {
  switch (unit) {
    case Unit::us: return "us";
    case Unit::ms: return "ms";
    case Unit::MB: return "MB";
    case Unit::MB_per_s: return "MB/s";
    case Unit::count: return "count";
  }
  return "";
}

double in_unit(double seconds, Unit unit) {
  return unit == Unit::MB_per_s ? 1 / seconds : seconds * (unit == Unit::us ? 1e6 : 1e3);
}

// Four significant digits, without an exponent.
std::string number(double value) {
  const double size = std::fabs(value);
  const int decimals = !(size > 0) ? 0 : std::clamp(3 - static_cast<int>(std::floor(std::log10(size))), 0, 6);
  return fmt::format("{:.{}f}", value, decimals);
}

std::string number(const std::optional<double>& value) { return value ? number(*value) : "-"; }

bool is_amount(const Bar& bar) { return bar.kind == Bar::Kind::amount_at_most || bar.kind == Bar::Kind::amount_at_least; }

std::string text_of_bar(const Row& row) {
  if (!row.bar) return "-";
  const bool least = row.bar->kind == Bar::Kind::ratio_at_least || row.bar->kind == Bar::Kind::amount_at_least;
  const bool amount = is_amount(*row.bar);
  return fmt::format("{} {}{}", least ? ">=" : "<=", row.bar->value, amount ? fmt::format(" {}", text(row.unit)) : "");
}

}  // namespace

bool Row::holds() const {
  if (!bar) return true;
  switch (bar->kind) {
    case Bar::Kind::ratio_at_most: return ratio && *ratio <= bar->value;
    case Bar::Kind::ratio_at_least: return ratio && *ratio >= bar->value;
    case Bar::Kind::amount_at_most: return ours <= bar->value;
    case Bar::Kind::amount_at_least: return ours >= bar->value;
  }
  return false;
}

Suite::Suite(std::string name, Options options) : name_(std::move(name)), options_(std::move(options)) {}

bool Suite::wants(std::string_view row) const { return row.find(options_.filter) != std::string_view::npos; }

void Suite::progress(std::string_view text) const {
  if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\033[K{}", text);
}

void Suite::time(const std::string& row, Unit unit, const Contender& ours, const std::optional<Contender>& floor,
                 std::optional<Bar> bar) {
  if (!wants(row)) return;
  // A turn of 0.3 ms is far above the clock's resolution and shorter than what the scheduler gives: on a machine that others
  // use too, most turns are then not interrupted, and the median is one of those.
  const double turn = 3e-4;                            // seconds of one turn, at least
  const double total = options_.quick ? 0.2 : 2.0;     // seconds of all turns, at least
  const double patience = options_.quick ? 1.0 : 6.0;  // seconds after which a few turns are enough
  const std::size_t fewest = options_.quick ? 3 : 11, few = options_.quick ? 1 : 5, most = 3001;  // turns
  progress(row);
  const int ours_calls = calls_per_turn(ours, turn, unit);
  const int floor_calls = floor ? calls_per_turn(*floor, turn, unit) : 0;
  std::vector<double> ours_seconds, floor_seconds, ratios;
  const bool speed_up = bar && bar->kind == Bar::Kind::ratio_at_least;
  const auto start = Clock::now();
  const auto enough = [&] {
    const double taken = std::chrono::duration<double>(Clock::now() - start).count();
    const std::size_t turns = ours_seconds.size();
    return turns >= most || (turns >= fewest && taken >= total) || (turns >= few && taken >= patience);
  };
  while (!enough()) {
    // Who goes first alternates: the second finds what the first left in the caches.
    double floor_time = 0;
    const bool floor_first = floor && ours_seconds.size() % 2 == 1;
    if (floor_first) floor_time = seconds_of_unit(*floor, floor_calls, unit);
    const double ours_time = seconds_of_unit(ours, ours_calls, unit);
    if (floor && !floor_first) floor_time = seconds_of_unit(*floor, floor_calls, unit);
    ours_seconds.push_back(ours_time);
    if (!floor) continue;
    floor_seconds.push_back(floor_time);
    ratios.push_back(speed_up ? floor_time / ours_time : ours_time / floor_time);
  }
  Row result{row, unit, in_unit(median(ours_seconds), unit), std::nullopt, std::nullopt, bar, std::nullopt};
  if (floor) {
    result.floor = in_unit(median(floor_seconds), unit);
    result.ratio = median(ratios);
  }
  rows_.push_back(result);
  progress("");
}

void Suite::amount(const std::string& row, Unit unit, double ours, std::optional<Bar> bar, std::optional<double> floor) {
  if (!wants(row)) return;
  rows_.push_back({row, unit, ours, floor, floor ? std::optional(ours / *floor) : std::nullopt, bar, std::nullopt});
}

void Suite::ended_at(const std::string& row, double gradient) {
  for (Row& one : rows_)
    if (one.name == row) one.gradient = gradient;
}

void Suite::note(std::string text) {
  if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) notes_.push_back(std::move(text));
}

void Suite::print() const {
  std::size_t width = 3;
  for (const Row& row : rows_) width = std::max(width, row.name.size());
  fmt::print("{:<{}}  {:>9}  {:>9}  {:>7}  {:>11}  {:<4}  {}\n", name_, width, "ours", "floor", "ratio", "bar", "", "unit");
  for (const Row& row : rows_) {
    fmt::print("{:<{}}  {:>9}  {:>9}  {:>7}  {:>11}  {:<4}  {}\n", row.name, width, number(row.ours), number(row.floor),
               number(row.ratio), text_of_bar(row),
               !row.bar      ? ""
               : row.holds() ? "pass"
                             : "FAIL",
               text(row.unit));
  }
  for (const std::string& line : notes_) fmt::print("{}\n", line);
  const auto bars = std::count_if(rows_.begin(), rows_.end(), [](const Row& row) { return row.bar.has_value(); });
  const auto missed = std::count_if(rows_.begin(), rows_.end(), [](const Row& row) { return !row.holds(); });
  fmt::print("{} of {} bars hold\n", bars - missed, bars);
}

void write_json(const std::string& file, const std::vector<Suite>& suites) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Suite& suite : suites) {
    for (const Row& row : suite.rows()) {
      nlohmann::ordered_json entry;
      entry["suite"] = suite.name();
      entry["row"] = row.name;
      entry["ours"] = row.ours;
      entry["floor"] = row.floor ? nlohmann::ordered_json(*row.floor) : nlohmann::ordered_json();
      entry["ratio"] = row.ratio ? nlohmann::ordered_json(*row.ratio) : nlohmann::ordered_json();
      if (row.bar && is_amount(*row.bar)) entry["limit"] = row.bar->value;
      if (row.bar) entry["holds"] = row.holds();
      if (row.gradient) entry["gradient"] = *row.gradient;
      entry["unit"] = text(row.unit);
      list.push_back(std::move(entry));
    }
  }
  std::ofstream out(file);
  out << list.dump(2) << '\n';
  out.close();
  if (!out) throw std::runtime_error(fmt::format("cannot write {}", file));
}

}  // namespace onestep::bench
