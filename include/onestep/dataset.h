// Samples with features and labels, from files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "onestep/array.h"

namespace onestep {

/// N samples with n features each: the rows of A and the entries of y belong together.
///
///     Dataset d = read_libsvm("heart_scale");
///     Function loss = trace([&](Expr x) { return sum(softplus(-d.y * matmul(d.A, x))); }, Input{"x", {d.A.shape()[1]}});
struct Dataset {
  Array A;  ///< (N, n), the features
  Array y;  ///< (N), the labels or the target
};

/// Reads the text format of LIBSVM, plain or compressed by gzip or bzip2 (told by its first bytes). A line is a sample: its
/// label, then `index:value` for the features that are not zero, indices from 1 in ascending order; `#` begins a comment.
///
/// The largest index found is the number of features, unless `features` says it: a test set may lack the last ones. The
/// matrix is dense. Throws Error when it needs more than `memory_limit` bytes, when the file cannot be read or has no
/// sample, and for everything that is wrong in it, with line and field: `[read_libsvm] FILE:3: field 2: "7" is not
/// index:value`.
///
///     Dataset train = read_libsvm("a1a");
///     Dataset test = read_libsvm("a1a.t", train.A.shape()[1]);
Dataset read_libsvm(const std::string& path, std::optional<std::int64_t> features = std::nullopt,
                    std::size_t memory_limit = std::size_t{4} << 30);

}  // namespace onestep
