// Sizes as BLAS and loops take them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "parallel/cut.h"

namespace onestep::cpu {

using namespace parallel;  // NOLINT(google-build-using-namespace): kernels hand out pieces in every second line
using std::size_t;

constexpr size_t size(std::int64_t n) { return static_cast<size_t>(n); }

}  // namespace onestep::cpu
