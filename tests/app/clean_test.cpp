// `clean`: what it says where the model is no judge of labels, where cleaning changes little, and where there is no suspect.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "app/run_command.h"
#include "jobs/clean_report.h"
#include "support/random.h"

namespace onestep::test {
namespace {

using app::jobs::Comparison;
using ::testing::AllOf;
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

// Normal features, of which the first ten follow the right labels; the labels' numbers are random.
struct Wide {
  std::string text;
  std::vector<bool> wrong;
};

Wide wide(std::uint64_t seed, int samples, int features, double apart, double share_wrong) {
  Random random(seed);
  Wide made;
  for (int j = 0; j < features; ++j) made.text += fmt::format("g{},", j);
  made.text += "y\n";
  for (int i = 0; i < samples; ++i) {
    const bool second = random.flip(), wrong = random.uniform(0, 1) < share_wrong;
    for (int j = 0; j < features; ++j) {
      double sum = 0;  // of uniform numbers: nearly normal, of variance 1
      for (int u = 0; u < 12; ++u) sum += random.uniform(-0.5, 0.5);
      made.text += fmt::format("{:.5f},", sum + (j < 10 ? (second ? apart : -apart) : 0));
    }
    made.text += second != wrong ? "b\n" : "a\n";
    made.wrong.push_back(wrong);
  }
  return made;
}

// Features outnumber samples: a label that reached a fit by any way would be found again.
TEST_F(Clean, NothingIsSaidAboutRandomLabelsOfMoreFeaturesThanSamples) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const std::string data = folder_.write("wide.csv", wide(seed, 60, 300, 0, 0).text);
    const nlohmann::json found = run_command({"clean", data, "--json"}).json();
    EXPECT_EQ(found["status"], "undecided") << seed;
    EXPECT_LT(found["comparison"]["class_frequencies"]["accuracy"]["after"], 0.75) << seed;
  }
}

TEST_F(Clean, WrongLabelsAreFoundWhereFeaturesOutnumberSamples) {
  const Wide made = wide(1, 100, 200, 1.2, 0.2);
  const nlohmann::json found = run_command({"clean", folder_.write("wide.csv", made.text), "--json"}).json();
  ASSERT_EQ(found["status"], "converged");
  double right = 0;
  for (const auto& suspect : found["suspects"]) right += made.wrong[suspect["sample"].get<std::size_t>() - 1] ? 1 : 0;
  const auto there = static_cast<double>(std::ranges::count(made.wrong, true));
  EXPECT_GT(2 * right / (there + static_cast<double>(found["suspects"].size())), 0.7);
}

TEST_F(Clean, RecordsThatSpanLinesAreKeptAsTheyWere) {
  Random random(3);
  std::string text = "id,\"a\nnote\",a,b,y\n";
  for (int i = 0; i < 120; ++i) {
    const bool second = i % 2 == 0, wrong = i % 11 == 3;
    text += fmt::format("{},\"said \"\"{}\"\",\nthen left\",{:.4f},{:.4f},{}\n", 1000 + i, i,
                        random.uniform(-1, 1) + (second ? 4 : 0), random.uniform(-1, 1), second != wrong ? "ham" : "spam");
  }
  const std::string file = folder_.write("records.csv", text), kept = (folder_.path() / "kept.csv").string();
  const std::vector<std::string> line{"--target", "y",        "--drop", "a\nnote",   "--drop",
                                      "id",       "--header", "yes",    "--cleaned", kept};
  std::vector<std::string> of_file{"clean", file};
  of_file.insert(of_file.end(), line.begin(), line.end());
  of_file.emplace_back("--json");
  const Ended ended = run_command(of_file);
  ASSERT_EQ(ended.status, 0) << ended.err;
  const nlohmann::json found = ended.json();
  ASSERT_GT(found["removed"], 0);
  std::string expected = text;
  for (const auto& suspect : found["suspects"]) {
    const std::string begin = fmt::format("\n{},", 999 + suspect["sample"].get<int>());
    const std::size_t at = expected.find(begin), end = expected.find("\n1", at + 1);
    expected.erase(at, (end == expected.npos ? expected.size() - 1 : end) - at);
  }
  EXPECT_EQ(contents_of(kept), expected);
  std::string shell = fmt::format("cat '{}' | {} clean -", file, ONESTEP_COMMAND);
  for (const std::string& word : line) shell += fmt::format(" '{}'", word);
  ASSERT_EQ(std::system((shell + " > /dev/null").c_str()), 0);
  EXPECT_EQ(contents_of(kept), expected) << "standard input";
}

TEST(Comparison, DoesHarmOnlyByTrustedLabelsAndBeyondTwoStandardErrors) {
  Comparison c;
  c.trusted = true;
  c.loss = {0.0925, 0.0887, 0.004};
  c.accuracy = {0.9754, 0.9719, 0.0025};
  EXPECT_FALSE(c.harms());
  EXPECT_THAT(app::jobs::suspects_sentence(c, 9, 569, false), HasSubstr("Cleaning does not help here"));
  c.accuracy.after = 0.97;
  EXPECT_TRUE(c.harms());
  EXPECT_THAT(app::jobs::suspects_sentence(c, 9, 569, false), HasSubstr("Cleaning does harm here"));
  c.trusted = false;
  EXPECT_FALSE(c.harms());
  EXPECT_THAT(app::jobs::suspects_sentence(c, 9, 569, false), AllOf(HasSubstr("Cleaning cannot be shown to help here"),
                                                                    HasSubstr("--valid"), HasSubstr("--remove-suspects")));
}

// Noise that follows the class: two fifths of one class have the label of the other. Right labels are then worse by the
// labels as they stand.
TEST_F(Clean, NothingIsSaidToDoHarmByLabelsThatMayBeWrongThemselves) {
  std::size_t not_shown = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    Random random(seed);
    std::string text = "a,b,c,y\n";
    std::vector<bool> wrong;
    for (int i = 0; i < 300; ++i) {
      const bool second = random.flip();
      wrong.push_back(second && random.uniform(0, 1) < 0.45);
      text += fmt::format("{:.5f},{:.5f},{:.5f},{}\n", random.uniform(-1, 1) + (second ? 1.1 : 0), random.uniform(-1, 1),
                          random.uniform(-1, 1), second != wrong.back() ? "b" : "a");
    }
    const std::string data = folder_.write("by_class.csv", text), kept = (folder_.path() / "kept.csv").string();
    const nlohmann::json found = run_command({"clean", data, "--json"}).json();
    if (found["status"] == "undecided" || found["suspects"].empty() || found["comparison"]["helps"] == true) continue;
    ++not_shown;
    EXPECT_EQ(found["comparison"]["verdict"], "cannot be shown to help");
    EXPECT_EQ(found["removed"], 0);
    EXPECT_THAT(run_command({"clean", data}).out,
                AllOf(HasSubstr("cannot be shown to help"), HasSubstr("(--valid FILE)"), Not(HasSubstr("harm"))));
    const nlohmann::json removed = run_command({"clean", data, "--remove-suspects", "--cleaned", kept, "--json"}).json();
    EXPECT_EQ(removed["removed"], found["suspects"].size());
    const std::string rest = contents_of(kept);
    EXPECT_EQ(std::ranges::count(rest, '\n'), 301 - static_cast<long>(found["suspects"].size()));
  }
  EXPECT_GT(not_shown, 0U);
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
