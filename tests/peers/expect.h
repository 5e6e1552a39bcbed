// What the peers' cases compare: every direction of a derivative with a matrix that is known.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "onestep/onestep.h"
#include "support/compare.h"
#include "support/dense.h"
#include "support/random.h"

namespace onestep::peers {

using test::flat;
using test::near;
using test::Random;

inline const SolveOptions exactly{.tolerance = 1e-14, .max_iterations = 100000};

/// The unit vectors of a shape.
inline std::vector<Array> directions(const Shape& shape) {
  std::vector<Array> all;
  for (std::int64_t i = 0; i < shape.size(); ++i) {
    std::vector<double> entries(static_cast<std::size_t>(shape.size()));
    entries[static_cast<std::size_t>(i)] = 1;
    all.emplace_back(shape, entries);
  }
  return all;
}

/// Column or row of a matrix, as a vector.
inline Array column(const Array& J, std::int64_t j) {
  return flat(test::product(J, directions({J.shape()[1]})[static_cast<std::size_t>(j)]));
}
inline Array row(const Array& J, std::int64_t i) { return column(test::transposed(J), i); }

/// The first part of the state is x, and its derivative by the first parameter J: by jvp, by vjp and by jacobian().
inline void expect_solution(const Solution& s, const Array& theta, const Array& x, const Array& J, double tolerance = 1e-10,
                            const std::string& what = "") {
  ASSERT_TRUE(is_solution(s.status())) << what << ' ' << s.message();
  EXPECT_TRUE(near(flat(s.x()), flat(x), tolerance)) << what;
  const double scale = test::largest_entry(J);
  const std::vector<Array> tangents = directions(theta.shape()), cotangents = directions(s.x().shape());
  for (std::size_t j = 0; j < tangents.size(); ++j)
    EXPECT_TRUE(near(flat(s.jvp(tangents[j])[0]), column(J, static_cast<std::int64_t>(j)), tolerance, scale))
        << what << " jvp";
  for (std::size_t i = 0; i < cotangents.size(); ++i)
    EXPECT_TRUE(near(flat(s.vjp(cotangents[i])[0]), row(J, static_cast<std::int64_t>(i)), tolerance, scale))
        << what << " vjp";
  const Array all = s.jacobian()[0];
  const std::vector<double> entries = test::entries_of(all);
  EXPECT_TRUE(near(Array(J.shape(), {entries.begin(), entries.begin() + J.size()}), J, tolerance)) << what << " jacobian";
}

/// The same of a number by a number.
inline void expect_solution(const Solution& s, double x, double derivative, double tolerance = 1e-10,
                            const std::string& what = "") {
  expect_solution(s, s.x().shape().rank() == 0 ? Array(0.0) : zeros(1), Array(x), Array({1, 1}, {derivative}), tolerance,
                  what);
}

/// Those that are right whatever the step's contraction factor is.
inline std::vector<std::pair<std::string, Estimator>> exact_estimators() {
  return {{"implicit", Implicit{}},
          {"matrix-free", Implicit{.how = Implicit::matrix_free}},
          {"unrolled", Unrolled{}},
          {"automatic", Auto{1e-12}}};
}

/// No number comes back, and the certificate gives no bound.
inline void expect_no_derivative(const Solution& s, const Array& theta) {
  const Array v = ones(theta.shape()), c = ones(s.x().shape());
  EXPECT_THROW(s.jvp(v), NoDerivativeError);
  EXPECT_THROW(s.vjp(c), NoDerivativeError);
  EXPECT_THROW(s.jacobian(), NoDerivativeError);
  try {
    EXPECT_EQ(s.certificate(c).basis, Certificate::Basis::refused);
  } catch (const NoDerivativeError&) {}
}

}  // namespace onestep::peers
