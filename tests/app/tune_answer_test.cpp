// `tune`: what its answer is judged by, that its numbers agree with each other, and what to do with it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "app/run_command.h"
#include "support/random.h"

namespace onestep::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TuneAnswer : public ::testing::Test {
 protected:
  // Two classes, or a quantity, by the first two of four features.
  std::string file(std::uint64_t seed, int samples, bool quantity = false, const std::string& more = "") {
    Random random(seed);
    std::string text = "a,b,c,d,y\n";
    for (int i = 0; i < samples; ++i) {
      double y = random.uniform(-1, 1);
      for (int j = 0; j < 4; ++j) {
        const double a = random.uniform(-1, 1);
        y += j < 2 ? 1.5 * a : 0;
        text += fmt::format("{:.6f},", a);
      }
      text += quantity ? fmt::format("{:.6f}\n", y) : y > 0 ? "yes\n" : "no\n";
    }
    return folder_.write("data.csv", text + more);
  }
  static nlohmann::json json(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "tune");
    arguments.emplace_back("--json");
    const Ended ended = run_command(arguments);
    EXPECT_EQ(ended.status, 0) << ended.err << ended.out;
    return ended.json();
  }
  std::string path(const char* name) const { return (folder_.path() / name).string(); }
  TemporaryFolder folder_;
};

TEST_F(TuneAnswer, IsJudgedByFoldsThoughAClassHasOneSample) {
  const auto found = json({file(1, 60, false, "1,1,1,1,rare\n")});
  EXPECT_EQ(found["folds"], 5);
  EXPECT_THAT(found["notes"].dump(), HasSubstr("one sample only has the label rare: it is trained on in every fold"));
  EXPECT_EQ(found["cross_validation"]["folds"].size(), 5U);
}

TEST_F(TuneAnswer, OfMadeClassesIsJudgedByFolds) {
  const auto found = json({"--demo", "--loss", "softmax", "--l2", "10", "--iterations", "1"});
  if (found["file"] != "made data") GTEST_SKIP() << "images have validation samples of their own";
  EXPECT_EQ(found["folds"], 5);
  EXPECT_EQ(found["samples"], 400);
}

TEST_F(TuneAnswer, SaysWhyItIsNotJudgedByFolds) {
  const auto found = json({file(2, 9, true)});
  EXPECT_EQ(found["folds"], 0);
  EXPECT_THAT(found["notes"].dump(), HasSubstr("instead of 5 folds"));
}

TEST_F(TuneAnswer, IsSavedAsTheModelThatFitFindsWithIt) {
  const std::string data = file(3, 60), tuned = path("tuned.json"), fitted = path("fitted.json");
  for (const std::vector<std::string>& judge : {std::vector<std::string>{"--folds", "3"}, {"--split", "0.3"}}) {
    const auto found = json({data, "--save", tuned, judge[0], judge[1]});
    const double l2 = found["hyperparameters"]["values"][0];
    EXPECT_THAT(found["fit_command"].get<std::string>(), HasSubstr(fmt::format("onestep fit {} --l2 {}", data, l2)));
    EXPECT_EQ(run_command({"fit", data, "--l2", fmt::format("{}", l2), "--save", fitted, "--folds", "0"}).status, 0);
    const auto by_tune = run_command({"predict", tuned, data, "--json"}).json(),
               by_fit = run_command({"predict", fitted, data, "--json"}).json();
    EXPECT_THAT(by_tune["model"]["command"].get<std::string>(), HasSubstr("onestep tune"));
    ASSERT_EQ(by_tune["probabilities"].size(), 60U);
    for (std::size_t i = 0; i < 60; ++i)
      EXPECT_NEAR(by_tune["probabilities"][i][0].get<double>(), by_fit["probabilities"][i][0].get<double>(), 1e-6) << i;
  }
}

TEST_F(TuneAnswer, IsSavedWithEveryKindOfHyperparameter) {
  const std::string data = file(4, 40), model = path("model.json");
  std::string groups;
  for (int i = 0; i < 40; ++i) groups += fmt::format("{}\n", i % 2);
  const std::string of_groups = folder_.write("groups", groups);
  const std::vector<std::vector<std::string>> kinds{
      {"l2-per-feature"}, {"class-weight"}, {"sample-group-weight", "--groups", of_groups}};
  for (std::vector<std::string> arguments : kinds) {
    const std::string hyper = arguments[0];
    arguments.insert(arguments.begin(), {data, "--iterations", "5", "--save", model, "--hyper"});
    const auto found = json(arguments);
    const auto saved = nlohmann::json::parse(contents_of(model));
    EXPECT_EQ(saved["hyperparameters"]["hyper"], hyper);
    EXPECT_EQ(saved["hyperparameters"]["values"], found["hyperparameters"]["values"]);
    EXPECT_EQ(saved["samples"], 40);
    EXPECT_EQ(run_command({"predict", model, data}).status, 0) << hyper;
  }
}

TEST_F(TuneAnswer, SaysWhatToDoNext) {
  const std::string data = file(3, 60), said = run_command({"tune", data}).out;
  EXPECT_THAT(said, HasSubstr(fmt::format("onestep fit {} --l2 ", data)));
  EXPECT_THAT(said, HasSubstr("--save MODEL"));
  EXPECT_THAT(run_command({"tune", "--help"}).out, HasSubstr("--save FILE"));
}

TEST_F(TuneAnswer, HasTheSameLossesInTheHeadlineAndTheFigure) {
  const std::string page = path("page");
  const Ended e = run_command({"tune", file(8, 60), "--hyper", "l2-per-feature", "--out", page});
  ASSERT_EQ(e.status, 0) << e.out;
  ASSERT_THAT(e.out, HasSubstr("One penalty for all features is kept"));
  const std::size_t from = e.out.find("validation loss ") + 16, middle = e.out.find(" (from ", from),
                    end = e.out.find(')', middle);
  const std::string last = e.out.substr(from, middle - from), first = e.out.substr(middle + 7, end - middle - 7);
  EXPECT_THAT(contents_of(page + "/tune.json"), HasSubstr(fmt::format("The loss went from {} to {}.", first, last)));
}

TEST_F(TuneAnswer, OfOneFeatureIsNotDifferentWithAPenaltyOfItsOwn) {
  Random random(7);
  std::string text = "a,y\n";
  for (int i = 0; i < 40; ++i) {
    const double a = random.uniform(-1, 1);
    text += fmt::format("{:.6f},{:.6f}\n", a, a + random.uniform(-1, 1));
  }
  const std::string said = run_command({"tune", folder_.write("one.csv", text), "--hyper", "l2-per-feature"}).out;
  EXPECT_THAT(said, HasSubstr("make no difference"));
  EXPECT_THAT(said, HasSubstr("not different"));
  EXPECT_THAT(said, Not(HasSubstr("-0 ")));
}

TEST_F(TuneAnswer, IsNotWorseThanAGridThatItLookedAt) {
  const auto found = json({file(6, 80), "--l2", "10000", "--iterations", "1", "--compare", "grid"});
  EXPECT_LE(found["loss_minimised"].get<double>(), found["compare"]["loss"].get<double>() * (1 + 1e-9));
}

TEST_F(TuneAnswer, HasNoEmptyLinesOnNarrowPages) {
  const std::string page = path("page");
  ASSERT_EQ(run_command({"tune", file(5, 60), "--hyper", "l2-per-feature", "--out", page}).status, 0);
  const std::string html = contents_of(page + "/index.html");
  EXPECT_THAT(html, Not(HasSubstr("data-column=\"\"")));
  EXPECT_THAT(html, HasSubstr("td:empty { display: none; }"));
  EXPECT_THAT(html, HasSubstr("td.number:first-child::before"));
}

}  // namespace
}  // namespace onestep::test
