#include "jobs/sample_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "onestep/data.h"

namespace onestep::app::jobs {

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\v\f";
  const std::size_t begin = text.find_first_not_of(blanks);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// Calls f with each line of the text, its end included where it has one: a carriage return where there is nothing else.
template <class F> void for_each_line(std::string_view text, const F& f) {
  const char end = text.find('\n') == text.npos ? '\r' : '\n';
  while (!text.empty()) {
    const std::size_t size = std::min(text.find(end), text.size() - 1) + 1;
    f(text.substr(0, size));
    text.remove_prefix(size);
  }
}

bool is_binary(std::string_view text) { return text.starts_with('\0'); }  // as an IDX file is

std::string quoted_where_needed(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == field.npos && trimmed(field) == field) return field;
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
    const std::string_view rest = trimmed(line.substr(0, line.find('\n')));
    return rest.empty() || (!is_csv && rest.starts_with('#'));
  };
  const std::size_t samples = job.in_file;
  std::string_view first;
  std::size_t count = 0;
  bool spans_lines = false;
  for_each_line(text, [&](std::string_view line) {
    spans_lines = spans_lines || (is_csv && std::ranges::count(line, '"') % 2 != 0);
    if (is_empty(line)) return;
    if (count++ == 0) first = line;
  });
  if (spans_lines) return "";
  const auto is_there = [&](const ColumnEncoding& column) { return first.find(column.name) != std::string_view::npos; };
  const bool has_names = is_csv && count == samples + 1 && std::ranges::all_of(job.encoding, is_there);
  if (count != samples && !has_names) return "";
  std::size_t number = count == samples ? 1 : 0;  // of the next sample; 0 is the line of names
  std::string result;
  for_each_line(text, [&](std::string_view line) {
    if (is_empty(line) || !left_out[number++]) result += line;
  });
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
    const std::string text = read_text(options.file, limit);
    if (!is_binary(text))
      if (std::string kept = lines_without(text, job, left_out); !kept.empty()) return {std::move(kept), true};
  }
  return {table_without(job, left_out), false};
}

}  // namespace onestep::app::jobs
