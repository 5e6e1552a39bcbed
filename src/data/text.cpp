// Files, decompression, numbers and messages for the readers.
#include "data/text.h"

#include <bzlib.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>

#include "data/number.h"
#include "onestep/dataset.h"
#include "onestep/error.h"

namespace onestep {

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t size = data::character_size(text);
    result += size > 0 ? std::string(text.substr(0, size)) : fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    text.remove_prefix(std::max<std::size_t>(1, size));
  }
  return result;
}

namespace data {

namespace {

constexpr std::string_view standard_input = "-";

std::string_view name_of(const Source& source) { return source.file == standard_input ? "standard input" : source.file; }

[[noreturn]] void fail_at(const Source& source, std::size_t line, std::size_t field, std::string problem, Remedy remedy) {
  const std::string_view advice = remedy == Remedy::memory_limit ? "; raise memory_limit if the machine has it" : "";
  throw FileError(fmt::format("[{}] {}{}", source.reader, problem, advice), std::string(source.file), line, field, problem,
                  remedy);
}

}  // namespace

void fail(const Source& source, std::string_view what, Remedy remedy) {
  fail_at(source, 0, 0, fmt::format("{}: {}", name_of(source), what), remedy);
}

void fail(const Source& source, std::size_t line, std::string_view what) {
  fail_at(source, line, 0, fmt::format("{}:{}: {}", name_of(source), line, what), Remedy::none);
}

void fail(const Source& source, std::size_t line, std::size_t field, std::string_view what, Remedy remedy) {
  fail_at(source, line, field, fmt::format("{}:{}: field {}: {}", name_of(source), line, field, what), remedy);
}

namespace {

constexpr std::size_t piece = 1 << 16;  // bytes read or decompressed at a time

[[noreturn]] void fail_above_limit(const Source& source, std::size_t limit) {
  fail(source, fmt::format("has more than {} bytes, above the memory limit", limit), Remedy::memory_limit);
}

// `to` grows by what one piece holds; the decompressors below say how much of it they filled.
void grow(std::string& to, std::size_t used) {
  if (to.size() < used + piece) to.resize(std::max(used + piece, 2 * used));
}

struct Inflate : z_stream {
  Inflate() : z_stream{} {
    constexpr int gzip_only = 16 + MAX_WBITS;
    if (inflateInit2(this, gzip_only) != Z_OK) throw std::bad_alloc();
  }
  ~Inflate() { inflateEnd(this); }
  Inflate(const Inflate&) = delete;
  Inflate& operator=(const Inflate&) = delete;
};

struct Bunzip2 : bz_stream {
  Bunzip2() : bz_stream{} {
    if (BZ2_bzDecompressInit(this, 0, 0) != BZ_OK) throw std::bad_alloc();
  }
  ~Bunzip2() { BZ2_bzDecompressEnd(this); }
  Bunzip2(const Bunzip2&) = delete;
  Bunzip2& operator=(const Bunzip2&) = delete;
};

// What a file begins with that no reader takes, what it is, and the way out.
struct OtherKind {
  std::string_view magic, what;
};
constexpr std::string_view parquet = "PAR1";  // at both ends: a name in a header may begin like this
constexpr std::array<OtherKind, 9> other_kinds{{
    {{"\xfd"
      "7zXZ\0",
      6},
     "is compressed by xz: decompress it (xz -d), or compress it by gzip or bzip2"},
    {"\x28\xb5\x2f\xfd", "is compressed by zstd: decompress it (zstd -d), or compress it by gzip or bzip2"},
    {"7z\xbc\xaf\x27\x1c", "is a 7z archive: unpack it"},
    {"PK\x03\x04", "is a zip archive, as a spreadsheet (.xlsx, .ods) is, too: unpack it, or save the table as CSV"},
    {"\xd0\xcf\x11\xe0", "is an old spreadsheet (.xls): save the table as CSV"},
    {parquet, "is a Parquet file: write the table as CSV"},
    {"\x89HDF", "is an HDF5 file: write the table as CSV"},
    {"\xff\xfe", "is UTF-16: save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"},
    {"\xfe\xff", "is UTF-16: save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"},
}};

void refuse_other_kinds(const Source& source, std::string_view bytes) {
  for (const OtherKind& kind : other_kinds)
    if (bytes.starts_with(kind.magic) && (kind.magic != parquet || bytes.ends_with(parquet))) fail(source, kind.what);
}

constexpr std::string_view gzip_magic = "\x1f\x8b", bzip2_magic = "BZh";

// Both libraries count in unsigned int, so a large input is handed over in parts.
unsigned part(std::size_t n) { return static_cast<unsigned>(std::min<std::size_t>(n, 1 << 30)); }

// Inflates one compressed piece, adding to `to`; `from` is left at what follows it.
void gunzip(const Source& source, std::string_view& from, std::string& to, std::size_t& used, std::size_t limit) {
  Inflate stream;
  for (int state = Z_OK; state != Z_STREAM_END;) {
    grow(to, used);
    const unsigned given = part(from.size()), room = part(to.size() - used);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(from.data()));  // zlib only reads it
    stream.avail_in = given;
    stream.next_out = reinterpret_cast<Bytef*>(to.data() + used);
    stream.avail_out = room;
    state = inflate(&stream, Z_NO_FLUSH);
    from.remove_prefix(given - stream.avail_in);
    used += room - stream.avail_out;
    if (state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR)
      fail(source, fmt::format("the gzip data are damaged: {}", stream.msg != nullptr ? stream.msg : "unknown error"));
    if (used > limit) fail_above_limit(source, limit);
    if (state != Z_STREAM_END && from.empty() && stream.avail_out > 0)
      fail(source, "the gzip data end early; is the file whole?");
  }
}

void bunzip2(const Source& source, std::string_view& from, std::string& to, std::size_t& used, std::size_t limit) {
  Bunzip2 stream;
  for (int state = BZ_OK; state != BZ_STREAM_END;) {
    grow(to, used);
    const unsigned given = part(from.size()), room = part(to.size() - used);
    stream.next_in = const_cast<char*>(from.data());  // bzip2 only reads it
    stream.avail_in = given;
    stream.next_out = to.data() + used;
    stream.avail_out = room;
    state = BZ2_bzDecompress(&stream);
    from.remove_prefix(given - stream.avail_in);
    used += room - stream.avail_out;
    if (state != BZ_OK && state != BZ_STREAM_END) fail(source, fmt::format("the bzip2 data are damaged (error {})", state));
    if (used > limit) fail_above_limit(source, limit);
    if (state != BZ_STREAM_END && from.empty() && stream.avail_out > 0)
      fail(source, "the bzip2 data end early; is the file whole?");
  }
}

}  // namespace

std::string read_bytes(const Source& source, std::size_t limit) {
  const auto close = [](std::FILE* f) {
    if (f != stdin) std::fclose(f);
  };
  const std::unique_ptr<std::FILE, decltype(close)> file(
      source.file == standard_input ? stdin : std::fopen(std::string(source.file).c_str(), "rb"), close);
  const auto reason = [] { return std::generic_category().message(errno); };
  if (!file) fail(source, fmt::format("cannot be opened: {}", reason()));
  std::string bytes;
  std::error_code unknown;  // of a pipe, say
  const std::uintmax_t size = std::filesystem::file_size(std::filesystem::path(source.file), unknown);
  if (!unknown && size <= limit) bytes.resize(static_cast<std::size_t>(size) + 1);  // one more: the end is then found
  for (std::size_t used = 0;;) {
    if (used == bytes.size()) grow(bytes, used);
    const std::size_t got = std::fread(bytes.data() + used, 1, bytes.size() - used, file.get());
    used += got;
    if (std::ferror(file.get()) != 0) fail(source, fmt::format("cannot be read: {}", reason()));
    if (used > limit) fail_above_limit(source, limit);
    if (got == 0) {
      bytes.resize(used);
      return bytes;
    }
  }
}

std::string decompress(const Source& source, std::string bytes, std::size_t limit) {
  const bool gzip = bytes.starts_with(gzip_magic);
  if (!gzip && !bytes.starts_with(bzip2_magic)) return bytes;
  const std::string_view magic = gzip ? gzip_magic : bzip2_magic;
  std::string text;
  std::size_t used = 0;
  // What follows the last piece and is not another one is padding, as gzip itself has it.
  for (std::string_view rest = bytes; rest.starts_with(magic);) (gzip ? gunzip : bunzip2)(source, rest, text, used, limit);
  text.resize(used);
  return text;
}

std::string read_text(const Source& source, std::size_t limit) {
  std::string text = decompress(source, read_bytes(source, limit), limit);
  refuse_other_kinds(source, text);
  return text;
}

void check_memory(const Source& source, std::string_view what, double entries, std::size_t limit) {
  const double bytes = entries * static_cast<double>(sizeof(double));
  if (bytes <= static_cast<double>(limit)) return;
  const auto gigabytes = [](double b) { return fmt::format("{:.3g} GB", b / 1e9); };
  fail(source,
       fmt::format("{} need {} as dense matrices, above the memory limit of {}", what, gigabytes(bytes),
                   gigabytes(static_cast<double>(limit))),
       Remedy::memory_limit);
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const char* simple_end = scan_number(text.data(), text.data() + text.size(), value);
  if (simple_end != nullptr && simple_end == text.data() + text.size()) return value;

  std::array<char, 64> copy;  // of what from_chars does not know: Fortran's exponent
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  if (const std::size_t d = text.find_first_of("dD"); d != text.npos && text.size() <= copy.size()) {
    std::copy(text.begin(), text.end(), copy.begin());
    copy[d] = 'e';
    text = {copy.data(), text.size()};
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || std::isnan(value)) return std::nullopt;
  return value;
}

bool is_beyond_double(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc::result_out_of_range && end == text.data() + text.size();
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const bool ascii = static_cast<unsigned char>(text[0]) < 0x80;
    const std::size_t size = ascii ? 1 : character_size(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::size_t character_size(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(0);
  if (first < 0x80) return first < 0x20 || first == 0x7f ? 0 : 1;
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  unsigned code = first & (0x7fU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
    code = (code << 6U) | (byte(i) & 0x3fU);
  }
  const bool overlong = code < (size == 4 ? 0x10000U : size == 3 ? 0x800U : 0x80U);
  const bool control = code < 0xa0, surrogate = code >= 0xd800 && code < 0xe000,
             separator = code == 0x2028 || code == 0x2029;
  return overlong || control || surrogate || separator || code > 0x10ffff ? 0 : size;
}

std::string quoted(std::string_view text) {
  constexpr int most = 32;
  std::string_view rest = text;
  for (int count = 0; count < most && !rest.empty(); ++count)
    rest.remove_prefix(std::max<std::size_t>(1, character_size(rest)));
  return "\"" + printable(text.substr(0, text.size() - rest.size())) + (rest.empty() ? "\"" : "…\"");
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string_view next_word(std::string_view& text) {
  const auto begin = std::find_if_not(text.begin(), text.end(), is_blank);
  const auto end = std::find_if(begin, text.end(), is_blank);
  text = {end, text.end()};
  return {begin, end};
}

bool ends_lines_with_returns(std::string_view text) { return text.find('\n') == text.npos && text.find('\r') != text.npos; }

std::string with_newlines(std::string text) {
  if (ends_lines_with_returns(text)) std::replace(text.begin(), text.end(), '\r', '\n');
  return text;
}

bool Lines::next(std::string_view& line) {
  if (rest_.empty()) return false;
  const std::size_t end = rest_.find('\n');
  line = rest_.substr(0, end);
  rest_.remove_prefix(end == rest_.npos ? rest_.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  ++number_;
  return true;
}

}  // namespace data
}  // namespace onestep
