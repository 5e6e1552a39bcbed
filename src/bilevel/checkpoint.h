// The state of a run as bytes, for its checkpoint (onestep/checkpoint.h).
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "onestep/array.h"
#include "onestep/checkpoint.h"

namespace onestep::detail {

/// CRC-32: of bytes, and of an array's entries by rows.
std::uint32_t checksum(std::string_view bytes);
std::uint32_t checksum(const Array& values);

/// Writes fields one behind the other. What Reader reads in the same order is what was written, to the bit.
class Writer {
 public:
  template <class T>
  requires std::is_arithmetic_v<T>
  void operator()(const T& value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void operator()(const std::string& text) { list(text); }
  template <class T> void operator()(const std::vector<T>& all) { list(all); }
  template <class T>
  requires requires(T& t, Writer& w) { t.fields(w); }
  void operator()(T& object) { object.fields(*this); }

  std::string&& take() { return std::move(bytes_); }

 private:
  template <class List> void list(List& all) {
    (*this)(static_cast<std::uint64_t>(all.size()));
    for (auto& one : all) (*this)(const_cast<std::remove_cvref_t<decltype(one)>&>(one));
  }
  std::string bytes_;
};

/// Throws Error where the bytes end too early.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  requires std::is_arithmetic_v<T>
  void operator()(T& value) {
    if (rest_.size() < sizeof value) throw Error("it ends too early");
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
  }
  void operator()(std::string& text) { list(text); }
  template <class T> void operator()(std::vector<T>& all) { list(all); }
  template <class T>
  requires requires(T& t, Reader& r) { t.fields(r); }
  void operator()(T& object) { object.fields(*this); }

  bool at_end() const { return rest_.empty(); }

 private:
  template <class List> void list(List& all) {
    std::uint64_t size = 0;
    (*this)(size);
    if (size > rest_.size()) throw Error("it ends too early");
    all.resize(size);
    for (auto& one : all) (*this)(one);
  }
  std::string_view rest_;
};

}  // namespace onestep::detail
