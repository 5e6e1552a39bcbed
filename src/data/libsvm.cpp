// The text format of LIBSVM: one pass to learn the shape, a second one to fill the matrix.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "data/parse.h"
#include "data/text.h"
#include "onestep/dataset.h"

namespace onestep {
namespace data {

namespace {

constexpr std::string_view reader = "read_libsvm";

double finite_number(const Source& source, std::size_t line, std::size_t field, std::string_view text) {
  const std::optional<double> value = parse_number(text);
  if (!value) fail(source, line, field, fmt::format("{} is not a number", quoted(text)));
  if (!std::isfinite(*value)) fail(source, line, field, fmt::format("{} is not finite", quoted(text)));
  return *value;
}

// Calls sample(label), then feature(index, value) for each of its features, and checks everything on the way.
template <class Sample, class Feature>
void for_each_sample(const Source& source, std::string_view text, const Sample& sample, const Feature& feature) {
  Lines lines(text);
  for (std::string_view line; lines.next(line);) {
    line = line.substr(0, line.find('#'));
    std::string_view word = next_word(line);
    if (word.empty()) continue;
    sample(finite_number(source, lines.number(), 1, word));
    std::int64_t last = 0;
    for (std::size_t field = 2; !(word = next_word(line)).empty(); ++field) {
      const std::size_t colon = word.find(':');
      std::int64_t index = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + std::min(colon, word.size()), index);
      if (colon == word.npos || error != std::errc() || end != word.data() + colon)
        fail(source, lines.number(), field, fmt::format("{} is not index:value", quoted(word)));
      if (index < 1) fail(source, lines.number(), field, fmt::format("index {}; they start at 1", index));
      if (index <= last)
        fail(source, lines.number(), field, fmt::format("index {} after {}; they have to ascend", index, last));
      feature(lines.number(), field, index, finite_number(source, lines.number(), field, word.substr(colon + 1)));
      last = index;
    }
  }
}

}  // namespace

Dataset parse_libsvm(std::string bytes, std::string_view file, std::optional<std::int64_t> features,
                     std::size_t memory_limit) {
  const Source source{reader, file};
  if (features && *features < 0)
    throw Error(fmt::format("[{}] {} features; there cannot be fewer than 0", reader, *features));
  const std::string text = decompress(source, std::move(bytes), memory_limit);

  std::vector<double> labels;
  std::int64_t largest = 0;
  for_each_sample(
      source, text, [&](double label) { labels.push_back(label); },
      [&](std::size_t line, std::size_t field, std::int64_t index, double) {
        if (features && index > *features)
          fail(source, line, field, fmt::format("index {} is above the {} features asked for", index, *features));
        largest = std::max(largest, index);
      });
  if (labels.empty()) fail(source, "there is no sample in it");

  const auto samples = static_cast<std::int64_t>(labels.size());
  const std::int64_t columns = features.value_or(largest);
  check_memory(source, fmt::format("{} samples with {} features", samples, columns),
               static_cast<double>(samples) * static_cast<double>(columns), memory_limit);
  std::vector<double> entries(static_cast<std::size_t>(samples * columns));
  std::int64_t row = -1;
  for_each_sample(
      source, text, [&](double) { ++row; },
      [&](std::size_t, std::size_t, std::int64_t index, double value) {
        entries[static_cast<std::size_t>(row * columns + index - 1)] = value;
      });
  return {Array(Shape{samples, columns}, std::move(entries)), Array(Shape{samples}, std::move(labels))};
}

}  // namespace data

Dataset read_libsvm(const std::string& path, std::optional<std::int64_t> features, std::size_t memory_limit) {
  return data::parse_libsvm(data::read_bytes({data::reader, path}, memory_limit), path, features, memory_limit);
}

}  // namespace onestep
