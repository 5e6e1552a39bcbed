// Reads the rows of `./run bench peers` and adds them to figures as curves.
#include "paper/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "base/common.h"

namespace onestep::app::paper {

namespace {

std::string text_of(const Json& row, const char* key, const std::string& where) {
  const auto found = row.find(key);
  if (found == row.end()) throw Misuse(fmt::format("{}.{} is missing", where, key));
  if (!found->is_string()) throw Misuse(fmt::format("{}.{} is not text", where, key));
  return found->get<std::string>();
}

/// Positive; 0 for null, where that is allowed.
double number_of(const Json& row, const char* key, bool may_be_null, const std::string& where) {
  const auto found = row.find(key);
  if (found == row.end()) throw Misuse(fmt::format("{}.{} is missing", where, key));
  if (may_be_null && found->is_null()) return 0;
  if (!found->is_number() || !(found->get<double>() > 0))
    throw Misuse(fmt::format("{}.{} is not a positive number", where, key));
  return found->get<double>();
}

std::vector<PeerTime> times_of(const Json& document) {
  if (!document.is_array()) throw Misuse("it is not a list of rows");
  std::vector<PeerTime> times;
  for (std::size_t i = 0; i < document.size(); ++i) {
    const Json& row = document[i];
    const std::string where = fmt::format("row {}", i + 1);
    if (!row.is_object()) throw Misuse(fmt::format("{} is not an object", where));
    if (text_of(row, "suite", where) != "peers") continue;
    PeerTime time{
        text_of(row, "problem", where), text_of(row, "contender", where),           text_of(row, "method", where),
        text_of(row, "version", where), number_of(row, "parameters", false, where), number_of(row, "gradient", true, where)};
    if (time.contender != "onestep" && time.gradient > 0) times.push_back(std::move(time));
  }
  if (times.empty()) throw Misuse("it has no time of a peer; ./run bench peers --json makes such a file");
  return times;
}

}  // namespace

std::vector<PeerTime> read_peers(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) throw Misuse(fmt::format("--peers {}: the file cannot be read", file));
  try {
    return times_of(Json::parse(text.str()));
  } catch (const Json::exception& wrong) {
    throw Misuse(fmt::format("--peers {}: {}", file, wrong.what()));
  } catch (const Misuse& wrong) { throw Misuse(fmt::format("--peers {}: {}", file, wrong.what())); }
}

void add_peers(const std::vector<PeerTime>& peers, const std::string& problem, const std::string& differences, Item& item) {
  if (item.figures.empty() || item.figures.front().panels.empty()) return;
  // By peer and method, the times in the order of the sizes.
  std::map<std::string, std::map<std::string, std::map<double, const PeerTime*>>> times;
  for (const PeerTime& time : peers)
    if (time.problem == problem) times[time.contender][time.method][time.parameters] = &time;
  if (times.empty()) return;

  Figure& figure = item.figures.front();
  std::vector<std::string> names;
  item.data["peers"] = Json::array();
  for (const auto& [contender, methods] : times) {
    const auto best = std::ranges::min_element(methods, {}, [](const auto& method) {
      const auto& [largest, time] = *method.second.rbegin();
      return std::pair(-largest, time->gradient);
    });
    Series series{contender, contender, "line", {}, {}, {}, {}};
    for (const auto& [parameters, time] : best->second) {
      series.x.push_back(parameters);
      series.y.push_back(time->gradient);
    }
    const PeerTime& last = *best->second.rbegin()->second;
    names.push_back(fmt::format("{} {} ({})", contender, last.version, last.method));
    item.data["peers"].push_back(
        {{"contender", contender}, {"method", last.method}, {"version", last.version}, {"sizes", series.x.size()}});
    figure.panels.front().series.push_back(std::move(series));
  }
  figure.caption += fmt::format(
      " The thin curves are peers, each by its fastest method with a gradient, as ./run bench peers measured them{}: {}.",
      differences, fmt::join(names, ", "));
}

}  // namespace onestep::app::paper
