// Parsers of text in memory, which read_* and the fuzzers use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "onestep/dataset.h"
#include "onestep/qps.h"

namespace onestep::data {

// `file` is the name that errors give.

/// From bytes as they stand in a file, compressed or not.
QpsFile parse_qps(std::string bytes, std::string_view file, std::size_t memory_limit);

// From what is in the file when it is not compressed.

Dataset parse_libsvm(std::string text, std::string_view file, std::optional<std::int64_t> features, std::size_t memory_limit,
                     std::optional<std::int64_t> first_index = std::nullopt);
Dataset parse_csv(const std::string& text, std::string_view file, const CsvOptions& options);
Array parse_idx(const std::string& bytes, std::string_view file, std::size_t memory_limit);

/// Images with their labels, which the second file has.
Dataset with_labels(Array images, std::string_view file, const std::string& labels, std::size_t memory_limit);
/// Whether the bytes begin as an IDX file does.
bool is_idx(std::string_view bytes);

}  // namespace onestep::data
