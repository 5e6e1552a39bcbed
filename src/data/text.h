// What every reader needs: the text of a file, plain or compressed, its lines, its numbers, and errors that say where.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "onestep/error.h"

namespace onestep::data {

/// Who reads what, for the messages of errors: `[read_qps] HS21.QPS`.
struct Source {
  std::string_view reader, file;
};

using Remedy = FileError::Remedy;

/// Throws FileError: `[read_qps] HS21.QPS: what`.
[[noreturn]] void fail(const Source& source, std::string_view what, Remedy remedy = Remedy::none);
/// The same at a line, and at its field where there is one, both counted from 1: `[read_qps] HS21.QPS:12: field 3: what`.
[[noreturn]] void fail(const Source& source, std::size_t line, std::string_view what);
[[noreturn]] void fail(const Source& source, std::size_t line, std::size_t field, std::string_view what,
                       Remedy remedy = Remedy::none);

/// The bytes of the source's file, of standard input when it is called "-". Throws FileError when it cannot be read, or has
/// more than `limit` bytes.
std::string read_bytes(const Source& source, std::size_t limit);

/// What gzip or bzip2 made of a text, recognised by its first bytes; any other text is returned as it is. A file may consist
/// of several compressed pieces one after another. Throws FileError when the data are damaged, or have more than `limit`
/// bytes.
std::string decompress(const Source& source, std::string bytes, std::size_t limit);

/// The bytes of the source's file, decompressed.
std::string read_text(const Source& source, std::size_t limit);

/// Throws FileError when matrices with so many entries need more than `limit` bytes. `what` begins the sentence:
/// `3 rows and 100000 columns`. The number of entries is a double so that it cannot overflow.
void check_memory(const Source& source, std::string_view what, double entries, std::size_t limit);

/// A number, the whole of the text: 1, -.5, +2e3, Fortran's 1.0D+02, inf. Nothing for any other text, for NaN and for what
/// no double can hold.
std::optional<double> parse_number(std::string_view text);

/// Whether it is a number, but of a size that no double has: 1e400, or 1e-400.
bool is_beyond_double(std::string_view text);

/// How many bytes the character has that the text begins with; 0 for a control character and for what is not UTF-8.
std::size_t character_size(std::string_view text);

/// Whether every byte above those of ASCII is part of a character of UTF-8.
bool is_utf8(std::string_view text);

/// The text in quotation marks, shortened and with unprintable bytes written as \x00: fit for a message.
std::string quoted(std::string_view text);

inline bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }
std::string_view trimmed(std::string_view text);

/// Takes the first word, up to a blank, off the text; empty when there is none.
std::string_view next_word(std::string_view& text);

/// Whether lines end with a carriage return alone, as they did before Mac OS X and as spreadsheets still write them.
bool ends_lines_with_returns(std::string_view text);
/// The text with its line ends as the readers know them: \n where a carriage return alone ends lines.
std::string with_newlines(std::string text);

/// The lines of a text one after another, without their ends (\n or \r\n).
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  bool next(std::string_view& line);
  /// The number of the line last given, from 1.
  std::size_t number() const { return number_; }

 private:
  std::string_view rest_;
  std::size_t number_ = 0;
};

}  // namespace onestep::data
