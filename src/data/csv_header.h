// Whether the first line of comma-separated text has names, and what separates its fields and its decimals, where nobody
// said.
#pragma once

#include <string>
#include <vector>

#include "data/csv_columns.h"
#include "data/csv_records.h"

namespace onestep::data {

enum class FirstLine : std::uint8_t {
  names,
  sample,
  counts,  ///< as scikit-learn writes it: how many samples and features there are, and the names of the classes
};

/// What the first line is, whose fields are given; `records` is behind it. Throws FileError where it has numbers only and
/// may be either.
FirstLine first_line_of(const std::vector<std::string>& fields, const Columns& columns, const CsvOptions& options,
                        Records& records);

/// What is said about the first line where nobody told what it is.
std::vector<std::string> notes_on_header(FirstLine first, const std::vector<std::string>& fields, const Records& records);

/// Whether numbers have a comma before their decimals: where nothing else separates fields by commas, some fields are
/// numbers only in that reading, and none only in the other. Throws FileError where the commas may separate thousands.
bool guess_decimal_comma(Records& records);

}  // namespace onestep::data
