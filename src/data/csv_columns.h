// Which columns of comma-separated text are features, which is the target, and what they are called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text.h"
#include "onestep/dataset.h"

namespace onestep::data {

class Columns {
 public:
  enum class Kind : std::uint8_t { feature, target, dropped };

  /// `fields` are those of the first line, which are names where it is a header.
  Columns(const Source& source, const CsvOptions& options, std::vector<std::string> fields);

  /// Whether the first line has the names that are known of other samples.
  bool has_known_names() const;
  /// The column at a position that is given as a number, from 1, or from -1 backwards.
  std::optional<std::size_t> place_of(std::string_view wanted) const;
  /// Whether an option calls the target, or a column to drop, by a name that is no position.
  bool asks_for_a_name() const;

  /// Decides what each column is; the first line has been found to be a header, or not, with so many columns. Those in
  /// `empty` have neither names nor values, and are left out.
  void settle(bool header, std::size_t count, const std::vector<std::size_t>& empty);
  /// Whether other samples say what the columns are.
  bool are_known() const { return !known_names().empty(); }

  std::size_t count() const { return kinds_.size(); }
  Kind kind(std::size_t column) const { return column < kinds_.size() ? kinds_[column] : Kind::dropped; }
  /// Empty without a header.
  const std::vector<std::string>& names() const { return names_; }
  /// None where there need not be one.
  std::optional<std::size_t> target() const { return target_; }
  /// The columns of the features, in the order in which they are returned.
  const std::vector<std::size_t>& features() const { return features_; }
  /// Whether the first column has no name and was left out for it: pandas writes its index like this.
  bool leaves_out_index() const { return leaves_out_index_; }
  /// A column that an option names.
  std::size_t find(const std::string& wanted, std::string_view what_for) const;
  /// The name of a column, or its position from 1.
  std::string name_of(std::size_t column) const;

 private:
  std::vector<std::string> known_names() const;
  bool have_positions() const;
  std::map<std::string_view, std::size_t> places_of_names() const;
  void find_columns();
  void find_known_columns();
  void find_known_positions();
  void check_names() const;
  std::string called(std::size_t place) const;

  Source source_;
  const CsvOptions& options_;
  std::vector<std::string> names_;
  std::vector<Kind> kinds_;
  std::optional<std::size_t> target_;
  std::size_t last_ = 0;  // that is not empty
  std::vector<std::size_t> features_;
  bool leaves_out_index_ = false;
};

/// What is said about columns without names and values, of so many columns.
std::string note_on_empty(const std::vector<std::size_t>& columns, std::size_t count);

inline constexpr const char* note_on_index =
    "the first column has no name, is taken for an index and left out; give it a name to keep it";

}  // namespace onestep::data
