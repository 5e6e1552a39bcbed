// The readers without the file: from bytes in memory, as they stand in a file. What the tests and fuzzers feed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "onestep/dataset.h"
#include "onestep/qps.h"

namespace onestep::data {

/// `file` is the name that errors give.
QpsFile parse_qps(std::string bytes, std::string_view file, std::size_t memory_limit);
Dataset parse_libsvm(std::string bytes, std::string_view file, std::optional<std::int64_t> features,
                     std::size_t memory_limit);

}  // namespace onestep::data
