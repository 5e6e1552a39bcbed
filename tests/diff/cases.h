// check_gradients on a function made at random, as a property test.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>

#include "onestep/check_gradients.h"
#include "support/random.h"
#include "support/run.h"

namespace onestep::test {

inline void require_gradients(const Function& f, const Arrays& point, const GradientCheckOptions& options = {}) {
  const GradientCheck check = check_gradients(f, point, options);
  RC_LOG(f.text());
  RC_LOG(check.message());
  RC_ASSERT(check.ok());
}

/// A function of arrays of these shapes.
struct Case {
  std::vector<Shape> shapes;
  std::function<Expr(const Exprs&)> result;
};

/// check_gradients at random points. The result is squared, so that linear operations have second derivatives too.
inline void check_structural(
    const std::function<Case(Random&)>& make, const std::function<Array(Random&, const Shape&)>& entries =
                                                  [](Random& r, const Shape& s) { return r.array(s, -1, 1); }) {
  EXPECT_TRUE(rc::check([&] {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    const Case c = make(random);
    Arrays point;
    for (const Shape& s : c.shapes) point.push_back(entries(random, s));
    require_gradients(function_of(c.shapes,
                                  [&](const Exprs& x) {
                                    const Expr y = c.result(x);
                                    return Exprs{square(y) + y};
                                  }),
                      point);
  }));
}

#define CASE(name)                                          \
  Case name(Random& random);                                \
  TEST(EveryModeAgreesOn, name) { check_structural(name); } \
  Case name(Random& random)

}  // namespace onestep::test
