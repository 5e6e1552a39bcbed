// Files that jobs write about samples, or of them: CSV tables, and the training file without some of its samples.
#pragma once

#include <string>
#include <vector>

#include "jobs/samples.h"

namespace onestep::app::jobs {

/// A CSV table: fields with commas, quotation marks, line ends or blanks around them are quoted.
class CsvTable {
 public:
  explicit CsvTable(const std::vector<std::string>& columns) { add(columns); }
  void add(const std::vector<std::string>& fields);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// A number with all its digits.
std::string exact(double value);

struct SampleFile {
  std::string text;
  bool as_it_was = false;  ///< lines of the training file; else a CSV table of what was read from it
};

/// The training file without some of its samples, which are named by their numbers in it.
SampleFile file_without(const JobOptions& options, const JobData& job, const std::vector<std::size_t>& rows);

}  // namespace onestep::app::jobs
