// What the fuzzers run and the corpus test replays: a reader gets any bytes, and either refuses them with an Error or
// returns something that holds together.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

#include "data/parse.h"
#include "data/text.h"

namespace onestep::test {

/// How many bytes a reader may use: small, so that what does not fit is refused and does not slow the fuzzer down.
constexpr std::size_t fuzz_memory = std::size_t{1} << 22;

inline void require(bool holds) {
  if (!holds) std::abort();
}

inline bool all_finite(const Array& a) {
  for (const double e : a.values())
    if (!std::isfinite(e)) return false;
  return true;
}

/// Returns whether the bytes were accepted.
inline bool fuzz_qps(std::string_view bytes) try {
  const QpsFile file = data::parse_qps(std::string(bytes), "fuzz", fuzz_memory);
  const auto n = static_cast<std::int64_t>(file.columns.size()), m = static_cast<std::int64_t>(file.equalities.size()),
             p = static_cast<std::int64_t>(file.inequalities.size());
  const QuadraticProgram& problem = file.problem;
  require(n > 0);
  require(problem.Q.shape() == Shape{n, n} && problem.q.shape() == Shape{n});
  require(problem.A.shape() == Shape{m, n} && problem.b.shape() == Shape{m});
  require(problem.G.shape() == Shape{p, n} && problem.l.shape() == Shape{p} && problem.u.shape() == Shape{p});
  require(problem.lo.shape() == Shape{n} && problem.hi.shape() == Shape{n});
  require(all_finite(problem.Q) && all_finite(problem.q) && all_finite(problem.A) && all_finite(problem.b) &&
          all_finite(problem.G) && std::isfinite(problem.constant));
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < n; ++i) {
    require(problem.lo(i) < inf && problem.hi(i) > -inf);
    for (std::int64_t j = 0; j < i; ++j) require(problem.Q(i, j) == problem.Q(j, i));
  }
  for (std::int64_t i = 0; i < p; ++i) require(problem.l(i) < inf && problem.u(i) > -inf && problem.l(i) <= problem.u(i));
  return true;
} catch (const Error&) { return false; }

/// What a reader of text gets.
inline std::string unpacked(std::string_view bytes) {
  return data::decompress({"fuzz", "fuzz"}, std::string(bytes), fuzz_memory);
}

inline void require_samples(const Dataset& set) {
  require(set.y.size() > 0 && set.A.shape() == Shape{set.y.size(), set.A.shape()[1]});
  require(all_finite(set.A) && all_finite(set.y));
}

inline bool fuzz_libsvm(std::string_view bytes) try {
  const std::string text = unpacked(bytes);
  const Dataset set = data::parse_libsvm(text, "fuzz", std::nullopt, fuzz_memory);
  require_samples(set);
  const Dataset again = data::parse_libsvm(text, "fuzz", set.A.shape()[1], fuzz_memory, set.first_index);
  require(std::ranges::equal(set.A.values(), again.A.values()));
  return true;
} catch (const Error&) { return false; }

/// With texts as categories and missing values replaced: the encoding gives the same features again.
inline void fuzz_encoding(const std::string& text) try {
  const CsvOptions options{.missing = CsvOptions::impute, .categories = true, .memory_limit = fuzz_memory};
  const Dataset set = data::parse_csv(text, "fuzz", options);
  require_samples(set);
  require(static_cast<std::int64_t>(feature_names(set.encoding).size()) == set.A.shape()[1]);
  if (set.names.empty()) return;
  CsvOptions known = options;
  known.encoding = set.encoding, known.target_name = set.target_name;
  const Dataset again = data::parse_csv(text, "fuzz", known);
  require(std::ranges::equal(set.A.values(), again.A.values()) && std::ranges::equal(set.y.values(), again.y.values()));
} catch (const Error&) {}

inline bool fuzz_csv(std::string_view bytes) try {
  const std::string text = unpacked(bytes);
  fuzz_encoding(text);
  const Dataset set = data::parse_csv(text, "fuzz", {.memory_limit = fuzz_memory});
  require_samples(set);
  require(set.names.empty() || static_cast<std::int64_t>(set.names.size()) == set.A.shape()[1]);
  require(static_cast<std::int64_t>(set.columns.size()) == set.A.shape()[1]);
  if (!set.names.empty()) {
    const Dataset same =
        data::parse_csv(text, "fuzz", {.names = set.names, .target_name = set.target_name, .memory_limit = fuzz_memory});
    require(std::ranges::equal(set.A.values(), same.A.values()) && std::ranges::equal(set.y.values(), same.y.values()));
  }
  if (set.label_names.empty() || set.A.size() == 0) return true;
  for (const double label : set.y.values())
    require(label >= 0 && label < static_cast<double>(set.label_names.size()) && label == std::floor(label));
  const Dataset again = data::parse_csv(text, "fuzz",
                                        {.label_names = set.label_names,
                                         .header = set.names.empty() ? CsvOptions::no : CsvOptions::yes,
                                         .memory_limit = fuzz_memory});
  require(std::ranges::equal(set.y.values(), again.y.values()));
  return true;
} catch (const Error&) { return false; }

inline bool fuzz_idx(std::string_view bytes) try {
  const Array array = data::parse_idx(unpacked(bytes), "fuzz", fuzz_memory);
  require(array.shape().rank() >= 1 && array.shape()[0] > 0 && all_finite(array));
  return true;
} catch (const Error&) { return false; }

}  // namespace onestep::test
