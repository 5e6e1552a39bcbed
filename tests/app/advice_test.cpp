// What jobs say where an answer would be of no use, or something is wrong that no reader can see.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "app/run_command.h"
#include "support/random.h"

namespace onestep::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class AdviceOfJobs : public ::testing::Test {
 protected:
  std::string quantity(int samples, double scale = 1) {
    Random random(3);
    std::string text = "a,b,y\n";
    for (int i = 0; i < samples; ++i) {
      const double a = random.uniform(-1, 1), b = random.uniform(-1, 1);
      text += fmt::format("{:.5f},{:.5f},{:.8g}\n", a, b, scale * (a - b + random.uniform(-1, 1)));
    }
    return text;
  }
  TemporaryFolder folder_;
};

TEST_F(AdviceOfJobs, TuneRefusesToBeJudgedByOneSample) {
  const Ended ended = run_command({"tune", folder_.write("three.csv", quantity(3)), "--header", "yes"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.err, HasSubstr("hyperparameters judged by 1 sample would be chance; it takes 2 at least"));
  EXPECT_EQ(run_command({"tune", folder_.write("twelve.csv", quantity(12)), "--header", "yes"}).status, 0);
}

TEST_F(AdviceOfJobs, TheGradientOfTheValidationLossIsSaidAsAShareOfTheLoss) {
  EXPECT_THAT(run_command({"tune", folder_.write("big.csv", quantity(60, 1e12))}).out, HasSubstr(" of that loss)"));
}

TEST_F(AdviceOfJobs, AValueThatIsFarLargerThanAllOthersIsNamed) {
  std::string text = "a,b,y\n";
  Random random(5);
  for (int i = 0; i < 60; ++i)
    text += fmt::format("{},{:.4f},{}\n", i == 41 ? "1e300" : fmt::format("{:.4f}", random.uniform(-1, 1)),
                        random.uniform(-1, 1), random.flip() ? 1 : 0);
  const auto found = run_command({"fit", folder_.write("a.csv", text), "--json"}).json();
  EXPECT_THAT(found["notes"], Contains(HasSubstr("sample 42 has a = 1e+300")));
}

TEST_F(AdviceOfJobs, StandardInputIsNotReadTwice) {
  const Ended ended = run_command({"fit", "-", "--test", "-"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.err, HasSubstr("- is given twice"));
}

TEST_F(AdviceOfJobs, HelpThatCannotBeWrittenIsAFailure) {
  for (const char* asked : {"--help", "--version", "help fit", "fit --help"}) {
    const int status = std::system(fmt::format("'{}' {} > /dev/full 2> /dev/null", ONESTEP_COMMAND, asked).c_str());
    EXPECT_EQ(WEXITSTATUS(status), 1) << asked;
  }
}

}  // namespace
}  // namespace onestep::test
