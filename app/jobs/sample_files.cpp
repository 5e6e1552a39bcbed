// Finds the records of a text as the readers do, and writes those that are kept, byte by byte.
#include "jobs/sample_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "onestep/data.h"

namespace onestep::app::jobs {

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\v\f";
  const std::size_t begin = text.find_first_not_of(blanks);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

// Finds where records of CSV end: quotation marks count where a field begins with one, elsewhere they are text.
class QuotedFields {
 public:
  explicit QuotedFields(char separator) : separator_(separator) {}
  // The next character; whether it is part of a quoted text, where an end of a line ends no record.
  bool take(char c) {
    const bool is_quote = c == '"';
    if (inside_) {
      inside_ = !is_quote;
      closed_ = is_quote;
      return inside_;
    }
    inside_ = is_quote && (begins_ || closed_);  // behind a closing one: a quotation mark in the text
    closed_ = false;
    begins_ = c == separator_ || (begins_ && (c == ' ' || c == '\t'));
    return inside_;
  }

 private:
  char separator_;
  bool begins_ = true, inside_ = false, closed_ = false;
};

// Calls f with each record of the text, its end included where it has one: a line (that a carriage return ends where there
// is nothing else), or in a CSV file several lines where a quoted text has ends of lines in it.
template <class F> void for_each_record(std::string_view text, const JobData& job, const F& f) {
  const bool is_csv = job.separator != '\0';
  const char end = text.find('\n') == text.npos ? '\r' : '\n';
  while (!text.empty()) {
    QuotedFields fields(job.separator);
    std::size_t size = is_csv && text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0;
    while (size < text.size()) {
      const char c = text[size++];
      const bool inside = is_csv && fields.take(c);
      if (c == end && !inside) break;
    }
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

// The records of a text file but those of some samples; nothing where it is not certain that records are samples one to one,
// but for the line of names.
std::string records_without(const std::string& text, const JobData& job, const std::vector<bool>& left_out) {
  const bool is_csv = job.separator != '\0';
  const auto is_empty = [&](std::string_view record) {
    if (is_csv) return record.find_first_not_of(" \r\n") == record.npos;
    const std::string_view rest = trimmed(record.substr(0, record.find('\n')));
    return rest.empty() || rest.starts_with('#');
  };
  const auto is_separator_line = [&](std::string_view record) {  // sep=; as Excel writes it
    if (record.starts_with(byte_order_mark)) record.remove_prefix(byte_order_mark.size());
    return is_csv && record.starts_with("sep=") && record.find_first_of("\r\n") == 5;
  };
  std::size_t count = 0;
  bool begins_with_separator = false;
  for_each_record(text, job, [&](std::string_view record) {
    begins_with_separator = begins_with_separator || (count == 0 && is_separator_line(record));
    count += is_empty(record) ? 0 : 1;
  });
  const std::size_t before = (job.has_names ? 1 : 0) + (begins_with_separator ? 1 : 0);  // records that are no samples
  if (count != job.in_file + before) return "";
  std::size_t number = 0;
  std::string result;
  for_each_record(text, job, [&](std::string_view record) {
    if (is_empty(record) || number++ < before || !left_out[number - before]) result += record;
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

void keep_standard_input() {
  if (lseek(STDIN_FILENO, 0, SEEK_CUR) >= 0) return;
  std::FILE* copy = std::tmpfile();
  const auto fail = [] { throw Misuse("standard input cannot be kept for --cleaned: name a file instead of -"); };
  if (copy == nullptr) fail();
  std::vector<char> block(std::size_t{1} << 16);
  for (ssize_t got = 0; (got = read(STDIN_FILENO, block.data(), block.size())) != 0;)
    if (got < 0 || std::fwrite(block.data(), 1, static_cast<std::size_t>(got), copy) != static_cast<std::size_t>(got))
      fail();
  if (std::fflush(copy) != 0 || dup2(fileno(copy), STDIN_FILENO) < 0) fail();
  std::fclose(copy);
  std::rewind(stdin);
}

std::string file_without(const JobOptions& options, const JobData& job, const std::vector<std::size_t>& rows) {
  std::size_t last = job.in_file;
  for (const std::size_t row : job.train.rows) last = std::max(last, row);
  std::vector<bool> left_out(last + 2);
  for (const std::size_t row : rows) left_out[row] = true;
  if (options.demo) return table_without(job, left_out);
  if (options.file == "-") std::rewind(stdin);
  const std::string text = read_text(options.file, static_cast<std::size_t>(options.memory * 0x1p30));
  if (is_binary(text)) return table_without(job, left_out);
  if (std::string kept = last == job.in_file ? records_without(text, job, left_out) : ""; !kept.empty()) return kept;
  throw Misuse(fmt::format(
      "--cleaned: it is not certain which lines of {} are which of its {}, as it has other lines, too; write the "
      "file without these, or take --csv, which has the numbers of the suspects",
      job.name, counted(static_cast<std::int64_t>(job.in_file), "sample")));
}

}  // namespace onestep::app::jobs
