// Samples for validation, test or prediction that cannot be used, or that should not be trusted.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "app/run_command.h"
#include "jobs/scores.h"
#include "support/random.h"

namespace onestep::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* largest = "1.7976931348623157e308";

class BadSamples : public ::testing::Test {
 protected:
  // Lines of two features and a label, or a quantity; the features of the third sample are given.
  static std::string table(const std::string& kind, std::uint64_t seed, int count = 60, const std::string& third = "") {
    Random random(seed);
    std::string text = "a,b,t\n";
    for (int i = 0; i < count; ++i) {
      const double a = random.uniform(-2, 2), b = random.uniform(-2, 2), noise = random.uniform(-2, 2);
      const int k = i % 3;
      std::string target = fmt::format("{}", a - b + noise);
      if (kind == "logistic") target = a - b + noise > 0 ? "yes" : "no";
      if (kind == "softmax") target = std::string(1, "xyz"[static_cast<std::size_t>(k)]);
      const double shift = kind == "softmax" ? k : 0;
      text += (i == 2 && !third.empty() ? third : fmt::format("{:.6f},{:.6f}", a + shift, b - shift)) + "," + target + "\n";
    }
    return text;
  }
  std::string write(const std::string& name, const std::string& text) { return folder_.write(name, text); }
  std::string path(const std::string& name) { return (folder_.path() / name).string(); }
  static std::string without_target(std::string text) {
    std::string result;
    for (std::size_t end = 0; (end = text.find('\n')) != text.npos; text.erase(0, end + 1))
      result += text.substr(0, text.rfind(',', end)) + "\n";
    return result;
  }
  TemporaryFolder folder_;
};

TEST_F(BadSamples, PredictionsThatOverflowAreRefusedWithTheirSample) {
  for (const std::string kind : {"logistic", "softmax", "ridge"})
    for (const std::string& third : {fmt::format("{},0", largest), fmt::format("{},-{}", largest, largest)}) {
      const std::string model = path("m.json");
      ASSERT_EQ(run_command({"fit", write("train.csv", table(kind, 1)), "--save", model}).status, 0);
      const std::string bad = table(kind, 2, 60, third);
      for (const std::string& file : {write("bad.csv", bad), write("bare.csv", without_target(bad))}) {
        const Ended ended = run_command({"predict", model, file, "--json"});
        EXPECT_EQ(ended.status, 2) << kind << file << ended.out;
        EXPECT_EQ(ended.json()["usable"], false);
        EXPECT_THAT(ended.err, AllOf(ContainsRegex("the value of [ab] in sample 3 is too large"), Not(HasSubstr("nan"))));
      }
    }
}

TEST_F(BadSamples, ValuesFarBeyondThoseOfTrainingAreRefusedByEveryJob) {
  for (const std::string kind : {"logistic", "softmax", "ridge"}) {
    const std::string train = write("train.csv", table(kind, 1)),
                      bad = write("bad.csv", table(kind, 2, 60, std::string("0,-") + largest));
    std::vector<std::vector<std::string>> jobs{{"fit", train, "--test", bad},
                                               {"tune", train, "--test", bad},
                                               {"tune", train, "--valid", bad},
                                               {"influence", train, "--test", bad},
                                               {"influence", train, "--valid", bad}};
    if (kind != "ridge") jobs.insert(jobs.end(), {{"clean", train, "--test", bad}, {"clean", train, "--valid", bad}});
    for (std::vector<std::string>& job : jobs) {
      job.emplace_back("--json");
      const Ended ended = run_command(job);
      EXPECT_EQ(ended.status, 2) << job[0] << ended.out;
      EXPECT_EQ(ended.json()["usable"], false);
      EXPECT_THAT(ended.err, HasSubstr("bad.csv: b of sample 3 is -1.7976931348623157e+308, too large")) << job[0];
    }
  }
  const std::string target = "a,b,t\n1,2,1e300\n2,1,1\n";
  EXPECT_THAT(run_command({"fit", path("train.csv"), "--test", write("bad.csv", target)}).err,
              HasSubstr("bad.csv: the target of sample 1 is 1e+300, too large"));
}

TEST_F(BadSamples, ScoresOfNoNumbersEnd) { EXPECT_TRUE(app::jobs::auc_of({NAN, NAN, 1}, {true, false, true}).has_value()); }

TEST_F(BadSamples, CopiesOfTrainingSamplesAndSingleClassesAreNoted) {
  const std::string train = write("train.csv", table("logistic", 1)), other = write("other.csv", table("logistic", 2));
  const auto notes_of = [](std::vector<std::string> job) {
    job.emplace_back("--json");
    const Ended ended = run_command(job);
    EXPECT_EQ(ended.status, 0) << ended.err;
    return ended.json()["notes"];
  };
  const auto copies = HasSubstr("60 of 60 samples of same.csv are copies of samples of train.csv");
  const std::string same = write("same.csv", table("logistic", 1));
  for (const std::vector<std::string>& job : {std::vector<std::string>{"fit", train, "--test", same},
                                              {"tune", train, "--test", same},
                                              {"influence", train, "--valid", same}}) {
    EXPECT_THAT(notes_of(job), Contains(copies)) << job[0];
    std::vector<std::string> others = job;
    others.back() = other;
    EXPECT_THAT(notes_of(others), Not(Contains(HasSubstr("copies")))) << job[0];
    EXPECT_THAT(notes_of(others), Not(Contains(HasSubstr("have the label")))) << job[0];
  }
  const std::string single = write("single.csv", "a,b,t\n0.25,0.5,yes\n0.5,-1,yes\n1,1.5,yes\n");
  const auto label = HasSubstr("all 3 samples of single.csv have the label yes");
  EXPECT_THAT(notes_of({"influence", train, "--valid", single}), Contains(label));
  EXPECT_THAT(notes_of({"fit", train, "--test", single}), Contains(label));
}

TEST_F(BadSamples, TextsThatAreTakenForMissingValuesAreNamed) {
  std::string text = "a,cat,t\n";
  for (int i = 0; i < 60; ++i)
    text += fmt::format("{},{},{}\n", i % 7,
                        i % 3 == 0   ? "red"
                        : i % 3 == 1 ? "None"
                                     : "NA",
                        i % 5 == 0 ? "None"
                        : i % 2    ? "x"
                                   : "y");
  const std::string file = write("words.csv", text);
  EXPECT_THAT(run_command({"fit", file}).err, HasSubstr("words.csv:2: field 3: the value of \"t\" is missing, as \"None\" "
                                                        "stands for no value unless you say which texts do; fill in"));
  const Ended ended = run_command({"fit", file, "--missing", "impute", "--json"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.json()["notes"],
              Contains(HasSubstr("missing values of \"cat\": \"NA\" (20 of them), \"None\" (20 of them);")));
  EXPECT_THAT(ended.json()["notes"], Contains(HasSubstr("missing values of \"t\": \"None\" (12 of them);")));
}

TEST_F(BadSamples, WhichTextsAreMissingValuesCanBeSaidAndIsKeptInTheModel) {
  std::string text = "a,cat,t\n";
  for (int i = 0; i < 60; ++i)
    text += fmt::format("{},{},{}\n", i % 10 == 3 ? -999 : i % 7,
                        i % 3 == 0   ? "red"
                        : i % 3 == 1 ? "None"
                                     : "blue",
                        i % 5 < 2 ? "None" : "x");
  const std::string file = write("words.csv", text), model = path("m.json");
  EXPECT_THAT(run_command({"fit", file, "--target", "a"}).err, HasSubstr("--missing-text"));
  EXPECT_THAT(run_command({"fit", file, "--missing-text", "-999"}).err,
              HasSubstr("words.csv:5: field 1: the value of \"a\" is missing, as \"-999\" stands for no value"));
  const std::vector<std::string> how{"--missing", "impute", "--missing-text", "-999", "--json"};
  std::vector<std::string> line{"fit", file, "--save", model};
  line.insert(line.end(), how.begin(), how.end());
  const Ended ended = run_command(line);
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.json()["names"].dump(), AllOf(HasSubstr("\"a is missing\""), HasSubstr("\"cat=blue\"")));
  EXPECT_THAT(ended.json()["label_names"].dump(), HasSubstr("None"));
  const nlohmann::json predicted = run_command({"predict", model, file, "--json"}).json();
  EXPECT_EQ(predicted["scores"]["samples"], 60);
  EXPECT_EQ(predicted["scores"]["loss"], ended.json()["train"]["loss"]);
  std::vector<std::string> tune{"tune", file};
  tune.insert(tune.end(), how.begin(), how.end());
  EXPECT_THAT(run_command(tune).json()["fit_command"].dump(), HasSubstr("--missing-text -999"));
}

TEST_F(BadSamples, PredictSaysWhatAFileWithoutSamplesOrWithoutNamesLacks) {
  const std::string model = path("m.json");
  ASSERT_EQ(run_command({"fit", write("train.csv", table("logistic", 1)), "--save", model}).status, 0);
  EXPECT_THAT(run_command({"predict", model, "-"}).err, HasSubstr("standard input: is empty: there is no sample in it"));
  EXPECT_THAT(run_command({"predict", model, write("bare.csv", "1.5,2,yes\n0.5,1,no\n")}).err,
              HasSubstr("has no header, but its columns are known by their names, \"a\", \"b\"; put a line with the names"));
}

}  // namespace
}  // namespace onestep::test
