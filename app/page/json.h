// Structs to and from JSON by one list of members each: `members(m, value)` hands every member with its key to a Writer or
// a Reader. Lists of other namespaces are found where their structs are.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/common.h"
#include "page/figure.h"

namespace onestep::app::page {

template <class M> void members(M& m, Series& s) {
  m("label", s.label)("method", s.method)("mark", s.mark)("x", s.x)("y", s.y)("low", s.low)("high", s.high);
}
template <class M> void members(M& m, Axis& a) { m("label", a.label)("log", a.log).unless_empty("names", a.names); }
template <class M> void members(M& m, Panel& p) {
  m("title", p.title)("x", p.x)("y", p.y)("series", p.series)("notes", p.notes);
}
template <class M> void members(M& m, Figure& f) {
  m("id", f.id)("title", f.title)("caption", f.caption)("panels", f.panels);
}
template <class M> void members(M& m, Table& t) {
  m("id", t.id)("title", t.title)("caption", t.caption)("columns", t.columns)("rows", t.rows);
}

// ---- to JSON ----

inline Json json_of(const std::string& value) { return value; }
inline Json json_of(bool value) { return value; }
inline Json json_of(const Json& value) { return value; }
inline Json json_of(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

template <class T> Json json_of(const T& value);
template <class T> Json json_of(const std::vector<T>& values);

struct Writer {
  Json document = Json::object();
  template <class T> Writer& operator()(const char* key, T& value) {
    document[key] = json_of(value);
    return *this;
  }
  template <class T> Writer& unless_empty(const char* key, std::vector<T>& value) {
    return value.empty() ? *this : (*this)(key, value);
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

// ---- from JSON ----

/// Refuses a document, naming the place.
[[noreturn]] inline void wrong(const std::string& where, const char* what) {
  throw Misuse(fmt::format("this is not a results.json of onestep paper: {} {}", where, what));
}

inline void read(const Json& from, const std::string& where, std::string& to) {
  if (!from.is_string()) wrong(where, "is not text");
  to = from.get<std::string>();
}
inline void read(const Json& from, const std::string& where, bool& to) {
  if (!from.is_boolean()) wrong(where, "is neither true nor false");
  to = from.get<bool>();
}
inline void read(const Json& from, const std::string& where, double& to) {
  if (!from.is_number() && !from.is_null()) wrong(where, "is not a number");
  to = from.is_null() ? std::numeric_limits<double>::quiet_NaN() : from.get<double>();
}
inline void read(const Json& from, const std::string& where, Json& to) {
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
  template <class T> Reader& unless_empty(const char* key, std::vector<T>& value) {
    return document.contains(key) ? (*this)(key, value) : *this;
  }
};

template <class T> void read(const Json& from, const std::string& where, T& to) {
  if (!from.is_object()) wrong(where.empty() ? "the document" : where, "is not an object");
  Reader reader{from, where};
  members(reader, to);
}

template <class T> void read(const Json& from, const std::string& where, std::vector<T>& to) {
  if (!from.is_array()) wrong(where, "is not a list");
  to.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) read(from[i], fmt::format("{}[{}]", where, i), to[i]);
}

}  // namespace onestep::app::page
