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

/// Standard input is read once for the samples, and once more for file_without: what comes from a pipe is kept in a file.
void keep_standard_input();

/// The training file without some of its samples, which are named by their numbers in it: the records of a text file as they
/// were, of others (IDX, --demo) a CSV table. Throws Misuse where lines cannot be told to be samples.
std::string file_without(const JobOptions& options, const JobData& job, const std::vector<std::size_t>& rows);

}  // namespace onestep::app::jobs
