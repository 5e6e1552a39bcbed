// The binary format of MNIST: two zero bytes, the type, the rank, the sizes, and the numbers, all big-endian.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "data/parse.h"
#include "data/text.h"

namespace onestep {
namespace data {

namespace {

constexpr std::string_view reader = "read_idx";
constexpr std::size_t magic_bytes = 4;

// Of a type's code, as it stands in the file; 0 for none.
std::size_t bytes_of_type(char code) {
  switch (code) {
    case 0x08:
    case 0x09: return 1;
    case 0x0b: return 2;
    case 0x0c:
    case 0x0d: return 4;
    case 0x0e: return 8;
    default: return 0;
  }
}

template <class Bits> Bits big_endian(const char* from) {
  Bits value = 0;
  for (std::size_t i = 0; i < sizeof(Bits); ++i) value = static_cast<Bits>(value << 8 | static_cast<unsigned char>(from[i]));
  return value;
}

template <class Byte> std::vector<double> bytes_from(const char* from, std::size_t count) {
  static_assert(sizeof(Byte) == 1);
  const auto* const first = reinterpret_cast<const Byte*>(from);
  return {first, first + count};
}

template <class Bits, class Number> std::vector<double> numbers_from(const char* from, std::size_t count) {
  static_assert(sizeof(Bits) == sizeof(Number));
  std::vector<double> numbers;
  numbers.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    numbers.push_back(static_cast<double>(std::bit_cast<Number>(big_endian<Bits>(from + i * sizeof(Bits)))));
  return numbers;
}

std::vector<double> entries_from(const char* from, std::size_t count, char type) {
  switch (type) {
    case 0x08: return bytes_from<unsigned char>(from, count);
    case 0x09: return bytes_from<signed char>(from, count);
    case 0x0b: return numbers_from<std::uint16_t, std::int16_t>(from, count);
    case 0x0c: return numbers_from<std::uint32_t, std::int32_t>(from, count);
    case 0x0d: return numbers_from<std::uint32_t, float>(from, count);
    default: return numbers_from<std::uint64_t, double>(from, count);
  }
}

}  // namespace

bool is_idx(std::string_view bytes) {
  return bytes.size() >= magic_bytes && bytes[0] == 0 && bytes[1] == 0 && bytes_of_type(bytes[2]) != 0 && bytes[3] != 0;
}

Array parse_idx(const std::string& bytes, std::string_view file, std::size_t memory_limit) {
  const Source source{reader, file};
  if (!is_idx(bytes))
    fail(source, fmt::format("begins with {}, not as an IDX file: two zero bytes, a type and a rank of at least 1",
                             quoted(std::string_view(bytes).substr(0, magic_bytes))));
  const char type = bytes[2];
  const auto rank = static_cast<unsigned char>(bytes[3]);
  const std::size_t begin = magic_bytes + 4 * std::size_t{rank};
  if (bytes.size() < begin) fail(source, fmt::format("ends within its {} sizes; is the file whole?", rank));

  // As doubles, which do not overflow; exact wherever the file can be as long as they say.
  double sizes = 1;
  const double rows = big_endian<std::uint32_t>(bytes.data() + magic_bytes);
  for (std::size_t axis = 1; axis < rank; ++axis) sizes *= big_endian<std::uint32_t>(bytes.data() + magic_bytes + 4 * axis);
  const double wanted = rows * sizes * static_cast<double>(bytes_of_type(type));
  const std::size_t there = bytes.size() - begin;
  if (static_cast<double>(there) != wanted)
    fail(source, fmt::format("has {} bytes after its sizes, which make {:.17g}; is the file whole?", there, wanted));
  if (rows == 0) fail(source, "there is no sample in it");
  check_memory(source, fmt::format("{} samples of {} numbers", rows, sizes), rows * sizes, memory_limit);

  const std::size_t count = there / bytes_of_type(type);
  std::vector<double> entries = entries_from(bytes.data() + begin, count, type);
  const auto odd = std::find_if_not(entries.begin(), entries.end(), [](double e) { return std::isfinite(e); });
  if (odd != entries.end()) fail(source, fmt::format("number {} is {}, not finite", odd - entries.begin() + 1, *odd));
  const auto N = static_cast<std::int64_t>(rows);
  return rank == 1 ? Array(Shape{N}, std::move(entries))
                   : Array(Shape{N, static_cast<std::int64_t>(sizes)}, std::move(entries));
}

Dataset with_labels(Array images, std::string_view file, const std::string& labels, std::size_t memory_limit) {
  const Source source{reader, file};
  if (images.shape().rank() != 2) fail(source, "has one number for each sample; are these the labels, not the images?");
  Array y = read_idx(labels, memory_limit);
  if (y.shape().rank() != 1)
    fail({reader, labels}, fmt::format("has {} numbers for each sample; labels are one", y.shape()[1]));
  if (y.size() != images.shape()[0])
    fail(source, fmt::format("has {} samples, but {} has {} labels", images.shape()[0], labels, y.size()));
  return {std::move(images), std::move(y)};
}

}  // namespace data

Array read_idx(const std::string& path, std::size_t memory_limit) {
  return data::parse_idx(data::read_text({data::reader, path}, memory_limit), path, memory_limit);
}

Dataset read_idx(const std::string& images, const std::string& labels, std::size_t memory_limit) {
  return data::with_labels(read_idx(images, memory_limit), images, labels, memory_limit);
}

}  // namespace onestep
