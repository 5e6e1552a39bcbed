// Comparing arrays and messages in one line, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <ostream>
#include <string>
#include <vector>

#include "onestep/array.h"

namespace onestep::test {

inline std::vector<double> entries_of(const Array& a) {
  const Array dense = a.contiguous();
  return {dense.values().begin(), dense.values().end()};
}

inline double largest_entry(const Array& a) {
  double m = 0;
  for (const double e : entries_of(a)) m = std::max(m, std::fabs(e));
  return m;
}

/// Equal shapes, and entries within `tolerance` of the largest entry (or of `scale`); NaN equals NaN.
inline ::testing::AssertionResult near(const Array& a, const Array& b, double tolerance = 1e-13, double scale = 0) {
  if (a.shape() != b.shape()) return ::testing::AssertionFailure() << "shapes " << a.shape() << " and " << b.shape();
  const std::vector<double> x = entries_of(a), y = entries_of(b);
  const double allowed = tolerance * std::max({largest_entry(a), largest_entry(b), scale});
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    if (!(std::fabs(x[i] - y[i]) <= allowed))
      return ::testing::AssertionFailure()
             << "entry " << i << ": " << x[i] << " and " << y[i] << ", allowed " << allowed << "\n"
             << a << "\n"
             << b;
  }
  return ::testing::AssertionSuccess();
}

/// What Error says when `work` is done; "no error" when it is not thrown.
inline std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) { return e.what(); }
  return "no error";
}

/// Whether all the words are in the text.
inline ::testing::AssertionResult says(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words)
    if (text.find(word) == std::string::npos)
      return ::testing::AssertionFailure() << "\"" << word << "\" is not in \"" << text << "\"";
  return ::testing::AssertionSuccess();
}

}  // namespace onestep::test
