// The text format of LIBSVM: one pass into a sparse matrix, which is then written out dense.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "data/number.h"
#include "data/parse.h"
#include "data/text.h"

namespace onestep {
namespace data {

namespace {

constexpr std::string_view reader = "read_libsvm";

using Column = std::uint32_t;

// The samples as they stand in the file; columns are its indices, from 0 or from 1.
struct Sparse {
  std::vector<double> labels;
  std::vector<std::size_t> ends;  // of the samples, in the next two
  std::vector<Column> columns;
  std::vector<double> values;
  std::int64_t first = 1;     // index of the first feature
  std::int64_t largest = -1;  // index found
};

constexpr std::array<bool, 256> word_ends = [] {
  std::array<bool, 256> table{};
  for (const char c : std::string_view(" \t\r\v\f\n#")) table[static_cast<unsigned char>(c)] = true;
  return table;
}();
bool ends_word(char c) { return word_ends[static_cast<unsigned char>(c)]; }

class LibsvmParser {
 public:
  LibsvmParser(const Source& source, const std::string& text, std::optional<std::int64_t> features, std::size_t memory_limit,
               std::optional<std::int64_t> first_index)
      : source_(source), text_(text), features_(features), memory_limit_(memory_limit), starts_at_one_(first_index == 1) {
    samples_.first = first_index.value_or(1);
  }

  Sparse parse() {
    reserve();
    while (at_ != end_) {
      skip_blanks();
      if (!at_line_end()) read_sample();
      // A comment, if anything.
      at_ = std::find(at_, end_, '\n');
      if (at_ != end_) ++at_;
    }
    if (samples_.labels.empty()) fail(source_, "there is no sample in it");
    if (samples_.first == 0 && last_feature_ != nullptr)
      wrong(last_feature_, fmt::format("index {} is above the {} features asked for; indices start at 0 in this file",
                                       *features_, *features_));
    return std::move(samples_);
  }

 private:
  // Room for as many entries as there will be if the text goes on as it begins, so that they are rarely moved.
  void reserve() {
    constexpr std::size_t beginning = 1 << 15;
    const std::string_view sample = std::string_view(text_).substr(0, beginning);
    const auto room = [&](char mark) {
      const auto found = static_cast<double>(std::count(sample.begin(), sample.end(), mark) + 1);
      const double share = found / static_cast<double>(std::max<std::size_t>(1, sample.size()));
      const double entries = 1.05 * share * static_cast<double>(text_.size()) + 1;
      return static_cast<std::size_t>(std::min(entries, static_cast<double>(memory_limit_) / sizeof(double)));
    };
    samples_.labels.reserve(room('\n'));
    samples_.ends.reserve(room('\n'));
    samples_.columns.reserve(room(':'));
    samples_.values.reserve(room(':'));
  }

  // Where something is wrong is counted only when something is.
  [[noreturn]] void wrong(const char* where, std::string_view what, Remedy remedy = Remedy::none) const {
    const char* line = text_.data();
    for (const char* end = line; (end = std::find(line, where, '\n')) != where;) line = end + 1;
    std::size_t field = 0;
    for (const char* c = line; c <= where; ++c)
      if (!is_blank(*c) && (c == line || is_blank(c[-1]))) ++field;
    fail(source_, 1 + static_cast<std::size_t>(std::count(text_.data(), where, '\n')), field, what, remedy);
  }

  // The text ends with a zero byte that is not part of it, so that *at_ may be looked at anywhere.
  bool at_word_end() const { return word_ends[static_cast<unsigned char>(*at_)] || at_ == end_; }
  bool at_line_end() const { return *at_ == '\n' || *at_ == '#' || at_ == end_; }
  void skip_blanks() {
    while (is_blank(*at_)) ++at_;
  }
  std::string_view word_from(const char* first) {
    while (!at_word_end()) ++at_;
    return {first, at_};
  }

  void read_sample() {
    samples_.labels.push_back(read_label());
    skip_blanks();
    if (*at_ == 'q') skip_query();
    for (std::int64_t last = -1;;) {
      last = read_usual_features(last);
      skip_blanks();
      if (at_line_end()) break;
      const char* const word = at_;
      const std::int64_t index = read_index();
      if (index <= last) wrong(word, fmt::format("index {} after {}; they have to ascend", index, last));
      last = index;
      samples_.columns.push_back(column(word, index));
      samples_.values.push_back(read_value());
    }
    samples_.ends.push_back(samples_.values.size());
    // Whatever follows, the dense matrix will have at least these entries.
    const std::size_t least = samples_.values.size() + samples_.labels.size();
    if (least > memory_limit_ / sizeof(double))
      check_memory(source_, fmt::format("the entries up to sample {} alone", samples_.labels.size()),
                   static_cast<double>(least), memory_limit_);
  }

  // The features up to the first that needs more care than nearly all do: a number that is long, an index above those seen
  // so far, something wrong. Returns the last index.
  std::int64_t read_usual_features(std::int64_t last) {
    constexpr std::ptrdiff_t short_enough = 9;
    const std::int64_t lowest = samples_.first, highest = samples_.largest;
    for (const char* at = at_;;) {
      while (*at == ' ') ++at;
      const char* const word = at_ = at;
      std::uint32_t digits = 0;
      for (; is_digit(*at); ++at) digits = 10 * digits + static_cast<std::uint32_t>(*at - '0');
      const std::int64_t index = digits;
      if (*at != ':' || at == word || at - word > short_enough || index <= last || index < lowest || index > highest)
        return last;
      ++at;
      double value = *at - '0';
      if (is_digit(*at) && ends_word(at[1])) {
        ++at;
      } else {
        at = scan_number(at, end_, value);
        if (at == nullptr || !ends_word(*at)) return last;
      }
      last = index;
      samples_.columns.push_back(digits);
      samples_.values.push_back(value);
    }
  }

  double read_label() {
    const char* first = at_;
    double value = 0;
    if (const char* end = scan_number(at_, end_, value)) at_ = end;
    if (at_ != first && at_word_end()) return value;
    const std::string_view word = word_from(first);
    if (word.find(':') != word.npos)
      wrong(first, fmt::format("{} stands where the label should; a line begins with its label", quoted(word)));
    if (word.find(',') != word.npos)
      wrong(first, fmt::format("{} is a list of labels; keep one for each sample", quoted(word)));
    return finite_number(first, word);
  }

  double read_value() {
    const char* first = at_;
    double value = 0;
    if (const char* end = scan_number(at_, end_, value)) at_ = end;
    if (at_ != first && at_word_end()) return value;
    return finite_number(first, word_from(first));
  }

  double finite_number(const char* first, std::string_view word) const {
    const std::optional<double> value = parse_number(word);
    if (!value) wrong(first, fmt::format("{} is not a number", quoted(word)));
    if (!std::isfinite(*value)) wrong(first, fmt::format("{} is not finite", quoted(word)));
    return *value;
  }

  // A query's number, which ranking has after the label.
  void skip_query() {
    const char* first = at_;
    std::string_view word = word_from(first);
    const std::string_view all = word;
    word.remove_prefix(std::min<std::size_t>(word.size(), 4));
    if (!all.starts_with("qid:") || word.empty() || !std::all_of(word.begin(), word.end(), is_digit))
      wrong(first, fmt::format("{} is not index:value", quoted(all)));
    skip_blanks();
  }

  // The index before a colon, and the colon.
  std::int64_t read_index() {
    constexpr std::ptrdiff_t short_enough = 18;
    const char* first = at_;
    std::int64_t index = 0;
    for (; is_digit(*at_) && at_ - first < short_enough; ++at_) index = 10 * index + (*at_ - '0');
    if (at_ != first && *at_ == ':') {
      ++at_;
      return index;
    }
    const std::string_view word = word_from(first);
    const std::size_t colon = word.find(':');
    const auto [end, error] = std::from_chars(word.data(), word.data() + std::min(colon, word.size()), index);
    if (colon == word.npos && samples_.ends.empty() && samples_.values.empty())
      wrong(first,
            fmt::format("{} is not index:value, as LIBSVM's format has it; if the file is a table, say what separates its "
                        "columns",
                        quoted(word)),
            Remedy::separator);
    if (colon == word.npos || error != std::errc() || end != word.data() + colon)
      wrong(first, fmt::format("{} is not index:value", quoted(word)));
    if (index < 0) wrong(first, fmt::format("index {}; they start at 1, or at 0", index));
    at_ = first + colon + 1;
    return index;
  }

  Column column(const char* where, std::int64_t index) {
    if (index == 0 && starts_at_one_) wrong(where, "index 0, but indices were said to start at 1; say 0, or nothing");
    if (index == 0) samples_.first = 0;
    if (index > samples_.largest) {
      if (features_ && index > *features_)
        wrong(where, fmt::format("index {} is above the {} features asked for", index, *features_));
      if (features_ && index == *features_) last_feature_ = where;
      check_memory(source_, fmt::format("index {} makes features that", index), static_cast<double>(index), memory_limit_);
      if (index >= std::numeric_limits<Column>::max()) wrong(where, fmt::format("index {} is too large", index));
      samples_.largest = index;
    }
    return static_cast<Column>(index);
  }

  Source source_;
  const std::string& text_;
  const char* at_ = text_.data();
  const char* end_ = text_.data() + text_.size();
  std::optional<std::int64_t> features_;
  std::size_t memory_limit_;
  bool starts_at_one_;  // that was said
  Sparse samples_;
  const char* last_feature_ = nullptr;  // where the index `features` stands first: one too many if they start at 0
};

Dataset densified(Sparse samples, std::int64_t features) {
  const auto rows = static_cast<std::int64_t>(samples.labels.size());
  const auto width = static_cast<std::size_t>(features);
  const auto first = static_cast<Column>(samples.first);
  std::vector<double> entries;
  entries.reserve(samples.labels.size() * width);
  for (std::size_t row = 0, k = 0; row < samples.labels.size(); ++row) {
    entries.resize(entries.size() + width);  // a row at a time: it is still in cache when its entries come
    double* const to = entries.data() + row * width;
    for (; k < samples.ends[row]; ++k) to[samples.columns[k] - first] = samples.values[k];
  }
  return {.A = Array(Shape{rows, features}, std::move(entries)),
          .y = Array(Shape{rows}, std::move(samples.labels)),
          .open_ended = true,
          .first_index = samples.first};
}

}  // namespace

Dataset parse_libsvm(std::string text, std::string_view file, std::optional<std::int64_t> features, std::size_t memory_limit,
                     std::optional<std::int64_t> first_index) {
  const Source source{reader, file};
  if (features && *features < 0)
    throw MisuseError(fmt::format("[{}] {} features; there cannot be fewer than 0", reader, *features));
  if (first_index && *first_index != 0 && *first_index != 1)
    throw MisuseError(fmt::format("[{}] indices start at 0 or at 1, not at {}", reader, *first_index));
  text = with_newlines(std::move(text));
  Sparse samples = LibsvmParser(source, text, features, memory_limit, first_index).parse();
  text = std::string();  // its memory is wanted for the matrix
  const std::int64_t columns = features.value_or(samples.values.empty() ? 0 : samples.largest - samples.first + 1);
  check_memory(source, fmt::format("{} samples with {} features", samples.labels.size(), columns),
               static_cast<double>(samples.labels.size()) * (static_cast<double>(columns) + 1), memory_limit);
  return densified(std::move(samples), columns);
}

}  // namespace data

Dataset read_libsvm(const std::string& path, std::optional<std::int64_t> features, std::size_t memory_limit,
                    std::optional<std::int64_t> first_index) {
  return data::parse_libsvm(data::read_text({data::reader, path}, memory_limit), path, features, memory_limit, first_index);
}

}  // namespace onestep
