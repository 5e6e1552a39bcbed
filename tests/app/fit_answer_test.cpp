// What fit says of its answer: how many digits hold, whether classes are separable, whether it beats no model at all.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "app/run_command.h"
#include "support/random.h"

namespace onestep::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class FitAnswer : public ::testing::Test {
 protected:
  static nlohmann::json json(std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    const Ended ended = run_command(arguments);
    EXPECT_EQ(ended.status, 0) << ended.err << ended.out;
    return ended.json();
  }
  TemporaryFolder folder_;
};

// All values are exact in binary, and so is y = a + 2b + 3c.
TEST_F(FitAnswer, CoefficientsOfColumnsThatNearlyDependAreRight) {
  for (const int bits : {20, 21, 22}) {
    Random random(3);
    std::string text = "a,b,c,y\n";
    for (int i = 0; i < 200; ++i) {
      const auto part = [&] { return static_cast<double>(random.integer(-4096, 4096)) / 1024; };
      const double a = part(), b = part(), c = a + std::ldexp(part(), -bits);
      text += fmt::format("{:.17g},{:.17g},{:.17g},{:.17g}\n", a, b, c, a + 2 * b + 3 * c);
    }
    const nlohmann::json found = json({"fit", folder_.write("near.csv", text), "--loss", "ridge", "--l2", "0"});
    ASSERT_EQ(found["coefficients"].size(), 3U) << found["notes"];
    for (std::size_t j = 0; j < 3; ++j)
      EXPECT_NEAR(found["coefficients"][j], static_cast<double>(j + 1), 1e-7) << bits << " " << found["status"];
  }
}

TEST_F(FitAnswer, SeparableClassesAreNotedWhereThePenalisedFitDoesNotSeparateThem) {
  for (const bool separable : {true, false}) {
    std::string text = "a,b,y\n";
    Random random(7);
    for (int i = 0; i < 60; ++i) {
      const double a = random.uniform(-1, 1), b = random.uniform(-1, 1), side = a + 0.1 * b;
      text += fmt::format("{},{},{}\n", a, b, (side > 0) == (separable || i % 20 > 0) ? "yes" : "no");
    }
    const std::string file = folder_.write("classes.csv", text);
    const nlohmann::json found = json({"fit", file, "--l2", "10"});
    EXPECT_LT(found["train"]["accuracy"], 1);
    const auto note = Contains(HasSubstr("the classes are linearly separable"));
    EXPECT_EQ(::testing::Value(found["notes"], note), separable);
    EXPECT_EQ(run_command({"fit", file, "--l2", "0"}).status, separable ? 2 : 0);
  }
}

TEST_F(FitAnswer, ModelsOfNoiseAreSaidToBeNoBetterThanNone) {
  for (const bool quantity : {false, true})
    for (const bool noise : {true, false}) {
      std::string text = "a,b,c,y\n";
      Random random(5);
      for (int i = 0; i < 80; ++i) {
        const double a = random.uniform(-1, 1), b = random.uniform(-1, 1), c = random.uniform(-1, 1);
        const double y = (noise ? 0.0 : 3 * a) + random.uniform(-1, 1);
        text += quantity ? fmt::format("{},{},{},{}\n", a, b, c, y)
                         : fmt::format("{},{},{},{}\n", a, b, c, y > 0 ? "yes" : "no");
      }
      const std::string file = folder_.write("noise.csv", text);
      const auto note = Contains(HasSubstr(quantity ? "than the mean of the target does" : "than the class frequencies do"));
      for (const char* verb : {"fit", "tune"}) {
        const nlohmann::json notes = json({verb, file})["notes"];
        EXPECT_EQ(::testing::Value(notes, note), noise) << verb << quantity << notes;
      }
    }
}

TEST_F(FitAnswer, HowAFeatureRepeatsAnotherIsSaid) {
  Random random(9);
  std::string text = "a,unit,shifted,near,y\n";
  for (int i = 0; i < 60; ++i) {
    const double a = random.uniform(-1, 1);
    text += fmt::format("{:.17g},{:.17g},{:.17g},{:.17g},{}\n", a, -2.5 * a, a + 4, a + 1e-9 * random.uniform(-1, 1),
                        a + random.uniform(-1, 1));
  }
  const std::string notes = json({"fit", folder_.write("copies.csv", text), "--l2", "0"})["notes"].dump();
  EXPECT_THAT(notes, HasSubstr("unit is left out: it is a in another unit"));
  EXPECT_THAT(notes, HasSubstr("shifted is left out: it is a plus a constant, 4"));
  EXPECT_THAT(notes, HasSubstr("near is left out: it equals a but for differences that are tiny"));
}

}  // namespace
}  // namespace onestep::test
