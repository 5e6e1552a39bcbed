// What jobs make of the columns and labels that users' files have, and what they say about it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "app/run_command.h"
#include "support/random.h"

namespace onestep::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class ReadingJobs : public ::testing::Test {
 protected:
  // A table of one feature that tells the labels apart, but for every tenth sample.
  std::string table(const std::vector<std::string>& labels, const std::string& header = "x,y", int count = 60) {
    Random random(11);
    std::string text = header.empty() ? "" : header + "\n";
    for (int i = 0; i < count; ++i) {
      const std::size_t k = static_cast<std::size_t>(i) % labels.size();
      text += fmt::format("{},{}\n", static_cast<double>(i % 10 == 0 ? 0 : k) + random.uniform(-0.6, 0.6), labels[k]);
    }
    return text;
  }
  std::string write(const std::string& name, const std::string& text) { return folder_.write(name, text); }
  std::string path(const std::string& name) { return (folder_.path() / name).string(); }
  std::string text_of(const std::vector<std::string>& arguments, int status = 0) {
    const Ended ended = run_command(arguments);
    EXPECT_EQ(ended.status, status) << ended.err << ended.out;
    return status == 0 ? ended.out : ended.err;
  }
  nlohmann::json json(std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    return nlohmann::json::parse(text_of(arguments));
  }
  TemporaryFolder folder_;
};

TEST_F(ReadingJobs, LabelsHaveAllTheirDigits) {
  const std::string file = write("a.csv", table({"1234567", "1234568", "7654321"})), model = path("m.json"), out = path("o");
  EXPECT_THAT(text_of({"fit", file, "--loss", "softmax", "--save", model}), HasSubstr("found 1234568"));
  text_of({"predict", model, file, "--csv", out});
  EXPECT_THAT(contents_of(out), HasSubstr("probability of 1234567,probability of 1234568,probability of 7654321\n1,"));
  EXPECT_THAT(contents_of(out), Not(HasSubstr("e+06")));
  for (const char* verb : {"clean", "influence"}) {
    EXPECT_THAT(text_of({verb, file, "--loss", "softmax", "--csv", out}), Not(HasSubstr("e+06"))) << verb;
    EXPECT_THAT(contents_of(out), AllOf(HasSubstr(",1234568,"), Not(HasSubstr("e+06")))) << verb;
  }
  std::string quantities = "x,y\n";
  for (int i = 0; i < 20; ++i) quantities += fmt::format("{},{}\n", i * i % 7, 1234567.125 + i);
  text_of({"influence", write("q.csv", quantities), "--csv", out});
  EXPECT_THAT(contents_of(out), HasSubstr(",1234567.125,"));
}

TEST_F(ReadingJobs, PredictDoesNotScoreByLabelsThatAreNotTheModels) {
  const std::string model = path("m.json");
  text_of({"fit", write("a.csv", table({"0", "1"})), "--save", model});
  EXPECT_GT(json({"predict", model, write("same.csv", table({"0", "1"}))})["scores"]["accuracy"], 0.5);
  for (const auto& labels : std::vector<std::vector<std::string>>{{"malignant", "benign"}, {"0", "benign"}, {"0", "3"}}) {
    const auto found = json({"predict", model, write("b.csv", table(labels))});
    EXPECT_FALSE(found.contains("scores"));
    EXPECT_EQ(found["label"].size(), 60U);
    EXPECT_THAT(found["notes"],
                Contains(AllOf(HasSubstr("not scored: the labels of b.csv in y are not those of the model, 0, "
                                         "1, but such as"),
                               HasSubstr(labels[1]))));
  }
  text_of({"fit", path("b.csv"), "--test", path("same.csv")}, 2);
  text_of({"fit", write("c.csv", table({"no", "yes"})), "--save", model});
  const auto found = json({"predict", model, write("d.csv", table({"no", "unclear"}))});
  EXPECT_FALSE(found.contains("scores"));
  EXPECT_THAT(found["notes"], Contains(HasSubstr("not those of the model, no, yes, but such as unclear")));
}

TEST_F(ReadingJobs, PredictSaysHowManySamplesItCannotScore) {
  const std::string model = path("m.json");
  text_of({"fit", write("a.csv", table({"no", "yes"})), "--save", model});
  const auto found = json({"predict", model, write("b.csv", table({"no", "yes", ""}))});
  EXPECT_EQ(found["scores"]["samples"], 40);
  EXPECT_THAT(found["notes"], Contains("20 of 60 samples lack the target, and are not scored"));
}

TEST_F(ReadingJobs, PositionsAreNotTakenForNames) {
  const std::string model = path("m.json");
  text_of({"fit", write("a.csv", table({"0.5", "1.5"}, "")), "--save", model});
  const std::string body = table({"0.5", "1.5"}, "", 20);
  EXPECT_EQ(json({"predict", model, write("b.csv", body)})["prediction"].size(), 20U);
  // The model's only column is called 1, for its position; here that is the name of the second.
  EXPECT_THAT(text_of({"predict", model, write("c.csv", "0,1\n" + body), "--header", "yes"}, 2),
              HasSubstr("take the first line out of this file"));
  text_of({"predict", model, write("d.csv", "2,1\n" + body), "--header", "yes"}, 2);
  text_of({"fit", path("a.csv"), "--test", path("c.csv")}, 2);
}

TEST_F(ReadingJobs, CodesAreNotTakenForNumbersSilently) {
  std::string text = "zip,x,y\n";
  for (int i = 0; i < 40; ++i) text += fmt::format("{},{},{}\n", i % 2 == 0 ? "01234" : "50667", i % 7, i % 5 + 0.5);
  const std::string file = write("a.csv", text);
  EXPECT_THAT(json({"fit", file})["notes"],
              Contains(HasSubstr("is taken for a number; if it is a code, make it a category (--category zip) or drop it")));
  EXPECT_THAT(json({"fit", file, "--category", "zip"})["names"][0], "zip=50667");
  EXPECT_THAT(json({"fit", file, "--category", "zip=50667"})["names"][0], "zip=01234");
}

TEST_F(ReadingJobs, NamesAreShownAsTheyAreButForControlCharacters) {
  const std::string file = write("a.csv", table({"\"no\nway\"", "Köln", "ja\x1b[31m"}, "größe,y"));
  const std::string text = text_of({"fit", file});
  EXPECT_THAT(text, AllOf(HasSubstr("found no\\x0away"), HasSubstr("found Köln"), HasSubstr("found ja\\x1b[31m")));
  EXPECT_THAT(text, AllOf(HasSubstr("größe"), Not(HasSubstr("no\nway")), Not(HasSubstr("\\xc3")), Not(HasSubstr("\x1b"))));
  const std::string category = write("b.csv", "ort,x,y\nKöln,1,1.5\nBonn,2,2.5\nKöln,3,3.5\nBonn,4,5.5\n");
  EXPECT_THAT(json({"fit", category})["notes"].dump(), HasSubstr("Köln"));
}

TEST_F(ReadingJobs, AdviceNamesOptions) {
  EXPECT_THAT(text_of({"fit", write("a.csv", ",0,1,2,3\n0,0,1,1,1\n1,0,0,1,1\n2,1,1,0,1\n3,1,0,1,0\n")}, 2),
              HasSubstr("--header yes"));
  EXPECT_THAT(text_of({"fit", write("b.csv", "a,y\n1,2\n2,3\nunknown,4\n4,5\n5,6\n")}, 2),
              AllOf(HasSubstr("most values of this column are numbers"), HasSubstr("--missing")));
  const std::string spaces = write("c.txt", "1.5 2.5 0\n3.5 4.5 1\n1.2 3.4 0\n3.3 4.4 1\n");
  EXPECT_THAT(text_of({"fit", spaces}, 2), HasSubstr("--separator"));
  text_of({"fit", spaces, "--separator", "space"});
}

TEST_F(ReadingJobs, AnIdenticalColumnIsSaidToBeEqual) {
  std::string text = "a,copy,feet,y\n";
  for (int i = 0; i < 30; ++i) text += fmt::format("{0},{0},{1},{2}\n", i * i % 11, 3.5 * (i * i % 11), i % 7 + 0.5 * i);
  const std::string report = text_of({"fit", write("a.csv", text), "--l2", "0"});
  EXPECT_THAT(report, HasSubstr("copy is left out: it equals a."));
  EXPECT_THAT(report, HasSubstr("feet is left out: it is a in another unit."));
}

TEST_F(ReadingJobs, LabelsOfSingleSamplesAreNamedEach) {
  const std::string file = write("a.csv", table({"u", "v"}) + "1,p\n2,q\n");
  EXPECT_THAT(json({"tune", file})["notes"], Contains(HasSubstr("one sample only has each of the labels p, q")));
}

}  // namespace
}  // namespace onestep::test
