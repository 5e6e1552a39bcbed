#include "jobs/sample_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/parse.h"
#include "data/text.h"

namespace onestep::app::jobs {

namespace {

std::string quoted_where_needed(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == field.npos && data::trimmed(field) == field) return field;
  std::string quoted = "\"";
  for (const char c : field) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

void CsvTable::add(const std::vector<std::string>& fields) {
  for (std::size_t j = 0; j < fields.size(); ++j) {
    if (j > 0) text_ += ',';
    text_ += quoted_where_needed(fields[j]);
  }
  text_ += '\n';
}

std::string exact(double value) { return fmt::format("{}", value); }

namespace {

// The lines of a text file but those of some samples; nothing where it is not certain that lines are samples one to one: a
// quoted text may have ends of lines in it, and a first line too many has to have the names of the columns.
std::string lines_without(const std::string& text, const JobData& job, const std::vector<bool>& left_out) {
  const bool is_csv = !job.encoding.empty();
  const auto is_empty = [&](std::string_view line) {
    const std::string_view rest = data::trimmed(line.substr(0, line.find('\n')));
    return rest.empty() || (!is_csv && rest.starts_with('#'));
  };
  const std::size_t samples = job.in_file;
  std::string_view line, first;
  std::size_t count = 0;
  for (data::Lines lines(text); lines.next(line);) {
    if (is_csv && std::ranges::count(line, '"') % 2 != 0) return "";
    if (is_empty(line)) continue;
    if (count++ == 0) first = line;
  }
  const auto is_there = [&](const ColumnEncoding& column) { return first.find(column.name) != std::string_view::npos; };
  const bool has_names = is_csv && count == samples + 1 && std::ranges::all_of(job.encoding, is_there);
  if (count != samples && !has_names) return "";
  std::size_t number = count == samples ? 1 : 0;  // of the next sample; 0 is the line of names
  std::string result;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    const std::string_view whole = std::string_view(text).substr(begin, end - begin);  // with its end, if it has one
    if (is_empty(whole) || !left_out[number++]) result += whole;
  }
  return result;
}

std::string table_without(const JobData& job, const std::vector<bool>& left_out) {
  std::vector<std::string> fields = job.features;
  fields.emplace_back("label");
  CsvTable table(fields);
  const auto n = static_cast<std::size_t>(job.n());
  for (std::size_t i = 0; i < job.train.rows.size(); ++i) {
    if (left_out[job.train.rows[i]]) continue;
    for (std::size_t j = 0; j < n; ++j) {
      double value = job.train.A.values()[i * (n + 1) + j];
      if (job.scaling) value = value * job.scaling->scale.values()[j] + job.scaling->mean.values()[j];
      fields[j] = exact(value);
    }
    fields[n] = job.label_text(job.train.y.values()[i]);
    table.add(fields);
  }
  return table.text();
}

}  // namespace

SampleFile file_without(const JobOptions& options, const JobData& job, const std::vector<std::size_t>& rows) {
  std::size_t last = job.in_file;
  for (const std::size_t row : job.train.rows) last = std::max(last, row);
  std::vector<bool> left_out(last + 2);
  for (const std::size_t row : rows) left_out[row] = true;
  if (!options.demo && options.file != "-" && last == job.in_file) {
    const auto limit = static_cast<std::size_t>(options.memory * 0x1p30);
    const std::string text = data::read_text({"clean", options.file}, limit);
    if (!data::is_idx(text))
      if (std::string kept = lines_without(text, job, left_out); !kept.empty()) return {std::move(kept), true};
  }
  return {table_without(job, left_out), false};
}

}  // namespace onestep::app::jobs
