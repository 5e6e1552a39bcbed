// The state of a run in a file: written atomically, versioned, with a checksum, and one run's at a time.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onestep/array.h"

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

/// A checkpoint's file, held by this process until the object is gone; also when the process is killed. Throws FileError
/// when another holds it.
class CheckpointFile {
 public:
  explicit CheckpointFile(std::string path);
  ~CheckpointFile();
  CheckpointFile(const CheckpointFile&) = delete;
  CheckpointFile& operator=(const CheckpointFile&) = delete;

  /// What was last written; nothing where there is no file. Throws FileError, and leaves the file alone, when it is no
  /// checkpoint, of another version, or damaged.
  std::optional<std::string> read() const;
  /// Throws FileError when that fails; the file is then as it was.
  void write(std::string_view contents);
  /// Throws FileError: the file, and what is wrong with it.
  [[noreturn]] void refuse(std::string_view why) const;

 private:
  std::string path_, lock_path_;
  int lock_ = -1;
};

}  // namespace onestep::detail
