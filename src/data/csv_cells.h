// The fields of the samples of comma-separated text: numbers, texts or missing, and what is said about those that cannot be
// used.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/csv_columns.h"
#include "data/csv_records.h"

namespace onestep::data {

/// A field of a sample.
struct Cell {
  const char* where = nullptr;        ///< it begins
  std::size_t column = 0;             ///< counts from 0
  std::optional<double> number = {};  ///< that it is, finite
  bool missing = false;               ///< what is neither is a text
  std::string_view text = {};         ///< as it is written, until the next one is read
};

/// Reads fields of the columns that have been settled.
class Cells {
 public:
  Cells(Records& records, const Columns& columns, const CsvOptions& options)
      : records_(records), columns_(columns), options_(options) {}

  /// The field here. Throws FileError for what is infinite, and for what is missing where that is not provided for.
  Cell read(std::size_t column);
  /// The texts of one column, sample by sample from a place on; empty where they are missing.
  void read_again(const char* first_sample, std::size_t column, const std::function<void(std::string_view text)>& each);

  /// Texts of the fields read so far that were taken for missing values, for each column that has them.
  std::vector<std::string> notes_on_missing_texts() const;

  /// How messages call the value of a column.
  std::string title(std::size_t column) const;
  /// Throws FileError: the text is not a number.
  [[noreturn]] void refuse(const Cell& cell, std::string_view advice, Remedy remedy = Remedy::none) const;
  /// The same of a number with signs or separators of thousands.
  [[noreturn]] void refuse_dressed(const Cell& cell) const;
  /// The same of a number that no double holds, if it is one.
  void refuse_beyond_double(const Cell& cell) const;
  /// The same of a text that was read before.
  [[noreturn]] void refuse_at(const char* where, std::size_t column, std::string_view advice,
                              Remedy remedy = Remedy::none) const;
  /// The same of a text in a column of numbers.
  [[noreturn]] void refuse_among_numbers(const char* where, std::size_t column) const;
  /// Throws FileError for whatever is wrong with the field.
  [[noreturn]] void fail_at(const Cell& cell, std::string_view what, Remedy remedy = Remedy::none) const;

 private:
  std::optional<double> number_in(const Cell& cell) const;
  bool means_missing(std::string_view text) const;
  bool may_be_header(const char* where) const;

  Records& records_;
  const Columns& columns_;
  const CsvOptions& options_;
  std::map<std::size_t, std::map<std::string, std::size_t>> missing_texts_;  // of each column, with their number
  std::string text_;                                                         // of the field that was read last
};

}  // namespace onestep::data
