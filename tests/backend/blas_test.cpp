// The advice about the BLAS in use.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "onestep/threads.h"

namespace onestep {
namespace {

TEST(BlasAdvice, IsEmptyOrNamesTheVariableToSet) {
  const std::string advice = blas_advice();
  EXPECT_EQ(advice.empty(), better_blas_kernels().empty());
  if (advice.empty()) GTEST_SKIP() << "the BLAS here knows this CPU";
  EXPECT_NE(advice.find("set OPENBLAS_CORETYPE=" + better_blas_kernels() + " "), std::string::npos) << advice;
  EXPECT_EQ(std::getenv("OPENBLAS_CORETYPE"), nullptr) << "advice not to be followed: it was";
}

}  // namespace
}  // namespace onestep
