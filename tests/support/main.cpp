// The main() of all test programs. Property tests try 30 cases from a fixed seed, so that a run is the same everywhere, by
// ctest or by hand; RC_PARAMS asks for others (./run test --full draws a seed). What is used is printed.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

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
  for (const auto& [name, value] : {std::pair("seed=", "2023"), std::pair("max_success=", "30")})
    if (parameters.find(name) == std::string::npos) parameters += std::string(parameters.empty() ? "" : " ") + name + value;
  setenv("RC_PARAMS", parameters.c_str(), 1);
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::UnitTest::GetInstance()->listeners().Append(new PrintParameters);
  return RUN_ALL_TESTS();
}
