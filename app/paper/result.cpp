#include "paper/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "common.h"

namespace onestep::app::paper {

namespace {

// One member list for each struct, read and written by the same function: `m` is a Writer or a Reader.
template <class M> void members(M& m, Series& s) {
  m("label", s.label)("method", s.method)("mark", s.mark)("x", s.x)("y", s.y)("low", s.low)("high", s.high);
}
template <class M> void members(M& m, Axis& a) { m("label", a.label)("log", a.log); }
template <class M> void members(M& m, Panel& p) {
  m("title", p.title)("x", p.x)("y", p.y)("series", p.series)("notes", p.notes);
}
template <class M> void members(M& m, Figure& f) {
  m("id", f.id)("title", f.title)("caption", f.caption)("panels", f.panels);
}
template <class M> void members(M& m, Table& t) {
  m("id", t.id)("title", t.title)("caption", t.caption)("columns", t.columns)("rows", t.rows);
}
template <class M> void members(M& m, Claim& c) {
  m("says", c.says)("measured", c.measured)("verdict", c.verdict)("whose", c.whose);
}
template <class M> void members(M& m, Item& i) {
  m("name", i.name)("title", i.title)("status", i.status)("reason", i.reason)("seconds", i.seconds);
  m("figures", i.figures)("tables", i.tables)("claims", i.claims)("data", i.data);
}
template <class M> void members(M& m, Results& r) {
  m("version", r.version)("date", r.date)("machine", r.machine)("options", r.options)("items", r.items);
}

Json json_of(const std::string& value) { return value; }
Json json_of(bool value) { return value; }
Json json_of(const Json& value) { return value; }
Json json_of(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

template <class T> Json json_of(const T& value);
template <class T> Json json_of(const std::vector<T>& values);

struct Writer {
  Json document = Json::object();
  template <class T> Writer& operator()(const char* key, T& value) {
    document[key] = json_of(value);
    return *this;
  }
};

template <class T> Json json_of(const T& value) {
  Writer writer;
  members(writer, const_cast<T&>(value));  // a Writer changes nothing
  return std::move(writer.document);
}

template <class T> Json json_of(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(json_of(value));
  return list;
}

[[noreturn]] void wrong(const std::string& where, const char* what) {
  throw Misuse(fmt::format("this is not a results.json of onestep paper: {} {}", where, what));
}

void read(const Json& from, const std::string& where, std::string& to) {
  if (!from.is_string()) wrong(where, "is not text");
  to = from.get<std::string>();
}
void read(const Json& from, const std::string& where, bool& to) {
  if (!from.is_boolean()) wrong(where, "is neither true nor false");
  to = from.get<bool>();
}
void read(const Json& from, const std::string& where, double& to) {
  if (!from.is_number() && !from.is_null()) wrong(where, "is not a number");
  to = from.is_null() ? std::numeric_limits<double>::quiet_NaN() : from.get<double>();
}
void read(const Json& from, const std::string& where, Json& to) {
  if (!from.is_object()) wrong(where, "is not an object");
  to = from;
}

template <class T> void read(const Json& from, const std::string& where, T& to);
template <class T> void read(const Json& from, const std::string& where, std::vector<T>& to);

struct Reader {
  const Json& document;
  const std::string& where;
  template <class T> Reader& operator()(const char* key, T& value) {
    const std::string place = where.empty() ? key : fmt::format("{}.{}", where, key);
    const auto found = document.find(key);
    if (found == document.end()) wrong(place, "is missing");
    read(*found, place, value);
    return *this;
  }
};

template <class T> void read(const Json& from, const std::string& where, T& to) {
  if (!from.is_object()) wrong(where.empty() ? "the document" : where, "is not an object");
  Reader reader{from, where};
  members(reader, to);
}

// Files from before there were three verdicts say whether a claim holds.
void read(const Json& from, const std::string& where, Claim& to) {
  Json now = from;
  if (from.is_object() && from.contains("holds") && !from.contains("verdict")) {
    bool holds = false;
    read(from["holds"], where + ".holds", holds);
    now["verdict"] = yes_if(holds);
    now["whose"] = from.value("says", "").starts_with("Ours: ") ? "ours" : "paper";
  }
  read<Claim>(now, where, to);
}

template <class T> void read(const Json& from, const std::string& where, std::vector<T>& to) {
  if (!from.is_array()) wrong(where, "is not a list");
  to.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) read(from[i], fmt::format("{}[{}]", where, i), to[i]);
}

// What drawing relies on and the types do not say.
void check(const Results& results) {
  std::set<std::string> figures, tables;
  const auto check_id = [](const std::string& id, std::set<std::string>& ids) {
    const bool good = !id.empty() && std::ranges::all_of(id, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    });
    if (!good) wrong(fmt::format("the id '{}'", id), "has other characters than letters, digits, - and _");
    if (!ids.insert(id).second) wrong(fmt::format("the id '{}'", id), "is there twice");
  };
  for (const Item& item : results.items) {
    if (item.status != "done" && item.status != "failed" && item.status != "cancelled")
      wrong(fmt::format("the status of {}", item.name), "is none of done, failed and cancelled");
    for (const Claim& claim : item.claims) {
      if (claim.verdict != "yes" && claim.verdict != "no" && claim.verdict != "differs")
        wrong(fmt::format("the verdict on '{}'", claim.says), "is none of yes, no and differs");
      if (claim.whose != "paper" && claim.whose != "ours")
        wrong(fmt::format("whose claim '{}' is", claim.says), "is neither paper nor ours");
    }
    for (const Figure& figure : item.figures) {
      check_id(figure.id, figures);
      for (const Panel& panel : figure.panels)
        for (const Series& s : panel.series) {
          const std::string where = fmt::format("the curve '{}' of {}", s.label, figure.id);
          if (s.x.size() != s.y.size()) wrong(where, "has not as many x as y");
          if (s.low.size() != s.high.size() || (!s.low.empty() && s.low.size() != s.y.size()))
            wrong(where, "has a band of another length");
        }
    }
    for (const Table& table : item.tables) {
      check_id(table.id, tables);
      for (const auto& row : table.rows)
        if (row.size() != table.columns.size())
          wrong(fmt::format("a row of {}", table.id), "has not as many cells as columns");
    }
  }
}

}  // namespace

std::string tally_of(const Results& results) {
  std::string text;
  for (const auto& [whose, words] : {std::pair{"paper", "the paper's"}, {"ours", "our"}}) {
    int all = 0, hold = 0, differ = 0;
    for (const Item& item : results.items)
      for (const Claim& claim : item.claims)
        if (claim.whose == whose) {
          ++all;
          hold += claim.verdict == "yes" ? 1 : 0;
          differ += claim.verdict == "differs" ? 1 : 0;
        }
    if (all == 0) continue;
    text += fmt::format("{}{} of {} {} claims hold", text.empty() ? "" : "; ", hold, words, all);
    if (differ > 0) text += fmt::format(", {} differ{} for the reason given", differ, differ == 1 ? "s" : "");
    if (const int fail = all - hold - differ; fail > 0) text += fmt::format(", {} do{} not", fail, fail == 1 ? "es" : "");
  }
  return text;
}

Json to_json(const Results& results) { return json_of(results); }

Results from_json(const Json& document) {
  Results results;
  read(document, "", results);
  check(results);
  return results;
}

}  // namespace onestep::app::paper
