// Data sets of any format that the readers know.
#include "onestep/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "data/parse.h"
#include "data/text.h"

namespace onestep {
namespace {

constexpr std::string_view reader = "read_dataset";

std::string_view without_compression(std::string_view path) {
  for (const std::string_view ending : {".gz", ".bz2"})
    if (path.ends_with(ending)) path.remove_suffix(ending.size());
  return path;
}

bool is_csv(std::string_view path, std::string_view text) {
  const std::string_view name = without_compression(path);
  if (name.ends_with(".csv") || name.ends_with(".tsv")) return true;
  if (name.ends_with(".libsvm") || name.ends_with(".svm")) return false;
  const std::string_view first = text.substr(0, text.find_first_of("\r\n"));
  return first.find_first_of(",;") != first.npos && first.find(':') == first.npos;
}

// What no reader takes although it has no magic number.
void refuse_other_texts(const data::Source& source, std::string_view text) {
  constexpr std::size_t looked_at = 4096, few = 20;  // a control character in so many is none of a text
  const std::string_view begin = text.substr(0, looked_at);
  const auto strange = std::ranges::count_if(
      begin, [](char c) { return static_cast<unsigned char>(c) < 0x20 && !data::is_blank(c) && c != '\n'; });
  if (static_cast<std::size_t>(strange) * few > begin.size())
    data::fail(source, "is no text file: give CSV, LIBSVM or IDX, plain or compressed by gzip or bzip2");
  data::Lines lines(text);
  std::string_view line;
  while (lines.next(line) && (data::trimmed(line).empty() || line.starts_with('%'))) {}
  std::string word(data::next_word(line));
  std::ranges::transform(word, word.begin(), [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  if (word == "@relation")
    data::fail(source,
               "is an ARFF file: make CSV of it, a line with the names of the attributes and then what follows @data");
}

// Whether the first line has several words, none of which is the index:value of LIBSVM.
bool has_words_only(std::string_view text) {
  data::Lines lines(text);
  std::string_view line;
  while (lines.next(line)) {
    line = line.substr(0, line.find_first_of("#\r"));
    if (data::trimmed(line).empty()) continue;
    data::next_word(line);
    return !data::trimmed(line).empty() && line.find(':') == line.npos;
  }
  return false;
}

// The usual names: train-images-idx3-ubyte and train-labels-idx1-ubyte.
std::string labels_beside(const data::Source& source) {
  std::string path(source.file);
  const std::size_t name = path.rfind('/') == path.npos ? 0 : path.rfind('/') + 1;
  const auto replace = [&](std::string_view from, std::string_view to) {
    const std::size_t at = path.rfind(from);
    if (at == path.npos || at < name) return false;
    path.replace(at, from.size(), to);
    return true;
  };
  if (!replace("images", "labels"))
    data::fail(source, "is an IDX file without \"images\" in its name; give the file of its labels");
  replace("idx3", "idx1");
  return path;
}

}  // namespace

Dataset read_dataset(const std::string& path, const DatasetOptions& options) {
  const data::Source source{reader, path};
  std::string text = data::read_text(source, options.memory_limit);
  const bool idx = data::is_idx(text), csv = !idx && (options.separator != '\0' || is_csv(path, text));
  if (!idx) refuse_other_texts(source, text);
  if (!csv && text.find_first_not_of(" \t\r\n") == text.npos) data::fail(source, "is empty: there is no sample in it");
  if (!csv && !options.target.empty())
    data::fail(source, fmt::format("is not CSV: there is no column {} to be the target", data::quoted(options.target)));
  if (!csv && !options.drop.empty())
    data::fail(source, fmt::format("is not CSV: there is no column {} to drop", data::quoted(options.drop.front())));
  if (!csv && !options.category.empty())
    data::fail(source, fmt::format("is not CSV: there is no column {} to be a category", data::quoted(options.category[0])));
  if (!csv && !options.label_names.empty())
    data::fail(source,
               fmt::format("is not CSV: its labels cannot be names such as {}", data::quoted(options.label_names.front())));
  if (!idx && !options.labels.empty()) data::fail(source, "is not an IDX file: it has its labels itself");
  if (!idx && !csv && has_words_only(text))
    data::fail(
        source,
        "what its first line has is not index:value, as LIBSVM's format has it; if the file is a table, say what separates "
        "its fields",
        FileError::Remedy::separator);
  if (!idx && !csv)
    return data::parse_libsvm(std::move(text), path, options.features, options.memory_limit, options.first_index);

  const auto read = [&] {
    if (csv)
      return data::parse_csv(text, path,
                             {.target = options.target,
                              .drop = options.drop,
                              .names = options.names,
                              .target_name = options.target_name,
                              .label_names = options.label_names,
                              .header = options.header,
                              .separator = options.separator,
                              .decimal = options.decimal,
                              .missing = options.missing,
                              .missing_texts = options.missing_texts,
                              .categories = options.categories,
                              .category = options.category,
                              .encoding = options.encoding,
                              .target_optional = options.target_optional,
                              .memory_limit = options.memory_limit});
    return data::with_labels(data::parse_idx(text, path, options.memory_limit), path,
                             options.labels.empty() ? labels_beside(source) : options.labels, options.memory_limit);
  };
  Dataset set = read();
  if (options.features && set.A.shape()[1] != *options.features)
    data::fail(source, fmt::format("has {} features, not {}", set.A.shape()[1], *options.features));
  return set;
}

std::string read_text(const std::string& path, std::size_t memory_limit) {
  return data::read_text({"read_text", path}, memory_limit);
}

}  // namespace onestep
