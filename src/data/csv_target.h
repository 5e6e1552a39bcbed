// The target of comma-separated text: numbers, or names of classes, which other samples may give an order.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "data/csv_cells.h"
#include "data/encoding.h"

namespace onestep::data {

class Target {
 public:
  Target(Cells& cells, const Columns& columns, const CsvOptions& options)
      : cells_(cells), columns_(columns), options_(options) {}

  /// The target of the next sample, at its field.
  void read();
  /// All samples have been read: the names of the classes that the values count, empty where they are numbers.
  std::vector<std::string> name_classes(const char* first_sample);

  /// Of each sample; NaN where it is missing or no class that is known.
  std::vector<double>& values() { return values_; }
  /// Texts that are none of the classes that other samples have, where the target is optional.
  std::vector<std::string> take_unknown() { return std::move(unknown_); }
  /// What was made of numbers that may be codes; empty where there are none.
  const std::string& note() const { return note_; }

 private:
  double value_of(const Cell& cell);
  double known_class(const Cell& cell);
  double note_unknown(const Cell& cell);
  bool decide_on_codes(const char* first_sample);

  Cells& cells_;
  const Columns& columns_;
  const CsvOptions& options_;
  std::vector<double> values_;
  RawColumn names_;
  bool has_codes_ = false;
  std::vector<std::string> unknown_;
  std::string note_;
};

}  // namespace onestep::data
