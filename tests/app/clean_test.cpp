// `clean`: what it says where the model is no judge of labels, where cleaning changes little, and where there is no suspect.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "app/run_command.h"
#include "jobs/clean_report.h"
#include "support/random.h"

namespace onestep::test {
namespace {

using app::jobs::Comparison;
using ::testing::HasSubstr;
using ::testing::Not;

class Clean : public ::testing::Test {
 protected:
  // Eight features; the classes lie apart along the first of them.
  std::string file(std::uint64_t seed, int samples, int classes, double apart) {
    Random random(seed);
    std::string text = "a,b,c,d,e,f,g,h,y\n";
    for (int i = 0; i < samples; ++i) {
      const auto k = random.integer(0, classes - 1);
      for (int j = 0; j < 8; ++j)
        text += fmt::format("{:.6f},", random.uniform(-1, 1) + (j == 0 ? apart * static_cast<double>(k) : 0));
      text += fmt::format("{}\n", k);
    }
    return folder_.write("data.csv", text);
  }
  TemporaryFolder folder_;
};

TEST_F(Clean, NothingIsSaidAboutLabelsThatHaveNothingToDoWithTheFeatures) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const std::string table = (folder_.path() / "table.csv").string();
    const Ended e = run_command({"clean", file(seed, 90, 2, 0), "--loss", "logistic", "--csv", table, "--json"});
    const nlohmann::json found = e.json();
    EXPECT_EQ(e.status, 1) << seed;
    EXPECT_EQ(found["status"], "undecided") << seed;
    EXPECT_EQ(found["usable"], false);
    EXPECT_THAT(found["message"].get<std::string>(), HasSubstr("no"));
    for (const char* member : {"wrong", "quality", "suspects", "noise"}) EXPECT_FALSE(found.contains(member)) << member;
    EXPECT_THAT(contents_of(table), HasSubstr("\n1,")) << "in the order of the file";
    EXPECT_THAT(contents_of(table), HasSubstr(",,,,0,0\n"));
  }
  const std::string said = run_command({"clean", file(1, 90, 3, 0), "--loss", "softmax"}).out;
  EXPECT_THAT(said, HasSubstr("\nNothing can be said about the labels: on 90 held-out samples"));
  EXPECT_THAT(said, Not(HasSubstr("probably wrong")));
}

TEST_F(Clean, LabelsThatFollowTheFeaturesAreJudged) {
  const nlohmann::json found = run_command({"clean", file(1, 60, 2, 1), "--loss", "logistic", "--json"}).json();
  EXPECT_EQ(found["status"], "converged");
  EXPECT_GT(found["comparison"]["class_frequencies"]["association"], 0);
}

TEST(Comparison, DoesHarmOnlyBeyondTwoStandardErrors) {
  Comparison c;
  c.loss = {0.0925, 0.0887, 0.004};
  c.accuracy = {0.9754, 0.9719, 0.0025};
  EXPECT_FALSE(c.harms());
  EXPECT_THAT(app::jobs::suspects_sentence(c, 9, 569, false), HasSubstr("Cleaning does not help here"));
  c.accuracy.after = 0.97;
  EXPECT_TRUE(c.harms());
  EXPECT_THAT(app::jobs::suspects_sentence(c, 9, 569, false), HasSubstr("Cleaning does harm here"));
}

TEST_F(Clean, WithoutSuspectsThereIsNoModelWithoutThem) {
  const std::string data = file(2, 40, 2, 5);
  const nlohmann::json found = run_command({"clean", data, "--loss", "logistic", "--test", data, "--json"}).json();
  ASSERT_EQ(found["suspects"].size(), 0U);
  EXPECT_FALSE(found["comparison"].contains("loss"));
  EXPECT_EQ(found["scores"]["before"], found["scores"]["without_suspects"]);
  const std::string said = run_command({"clean", data, "--loss", "logistic"}).out;
  EXPECT_THAT(said, HasSubstr("None of 40 samples is a suspect"));
  EXPECT_THAT(said, Not(HasSubstr("all but the suspects")));
}

}  // namespace
}  // namespace onestep::test
