// The records of comma-separated text, field by field, with their quotation marks undone.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text.h"

namespace onestep::data {

/// A place in the text, and what separates its fields. The text ends with a zero byte that is not part of it, so that the
/// character at the place may be looked at anywhere.
class Records {
 public:
  Records(const Source& source, const std::string& text);

  const Source& source() const { return source_; }
  void set_separator(char separator) { separator_ = separator; }
  void set_decimal_comma(bool comma) { decimal_comma_ = comma; }
  char separator() const { return separator_; }
  bool decimal_comma() const { return decimal_comma_; }

  const char* here() const { return at_; }
  void go_to(const char* place) { at_ = place; }

  /// Goes over a first line `sep=;`, by which Excel is told what separates the fields, and returns the character; 0 where
  /// there is no such line.
  char take_separator_line();
  /// Goes to the next line that is not empty; false at the end.
  bool find();
  /// Goes over a separator to the next field; false at the end of a record, which is then over.
  bool next_field();
  /// The field here, up to the separator or the end of the line; `number` counts it from 0, for messages.
  std::string read_field(std::size_t number);
  /// A plain number that is the whole field; false when it is something else, which is then still to be read.
  bool scan_field(double& value);
  /// How the number that was scanned last is written.
  std::string_view scanned() const { return scanned_; }
  /// All fields of this record.
  std::vector<std::string> read();
  /// The fields of up to `most` records from here on, which are still to be read; fewer where one is malformed.
  std::vector<std::vector<std::string>> peek(std::size_t most);

  /// A number as it is written in this text.
  std::optional<double> number_in(std::string_view text) const;

  /// Tab, semicolon or comma: the first that all of the next lines have as often, else the one that the line here has most
  /// of.
  char likely_separator() const;

  /// Throws FileError with the line of the place, and the field, which counts from 0.
  [[noreturn]] void fail_at(const char* where, std::size_t field, std::string_view what, Remedy remedy = Remedy::none) const;
  std::size_t line_of(const char* where) const;

 private:
  bool is_padding(char c) const { return (c == ' ' || c == '\t') && c != separator_; }
  bool at_record_end() const { return at_ == end_ || *at_ == '\n' || (*at_ == '\r' && (at_ + 1 == end_ || at_[1] == '\n')); }
  bool at_field_end() const { return *at_ == separator_ || at_record_end(); }
  void skip_padding() {
    while (is_padding(*at_)) ++at_;
  }
  void end_record();

  Source source_;
  const std::string& text_;
  const char* at_;
  const char* end_;
  std::string_view scanned_;
  char separator_ = ',';
  bool decimal_comma_ = false;
};

}  // namespace onestep::data
