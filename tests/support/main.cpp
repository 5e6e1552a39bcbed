// The main() of all test programs. Property tests take a fixed seed, so that a run is the same everywhere, by ctest or by
// hand; RC_PARAMS gives another (./run test --full draws one). What is used is printed.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

class PrintParameters : public ::testing::EmptyTestEventListener {
  void OnTestProgramStart(const ::testing::UnitTest&) override {
    std::printf("Property tests: RC_PARAMS=\"%s\"\n", std::getenv("RC_PARAMS"));
  }
};

}  // namespace

int main(int argc, char** argv) {
  const char* given = std::getenv("RC_PARAMS");
  std::string parameters = given != nullptr ? given : "";
  if (parameters.find("seed=") == std::string::npos)
    parameters += (parameters.empty() ? "seed=" : " seed=") + std::string("2023");
  setenv("RC_PARAMS", parameters.c_str(), 1);
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::UnitTest::GetInstance()->listeners().Append(new PrintParameters);
  return RUN_ALL_TESTS();
}
