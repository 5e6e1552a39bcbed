// The jobs `fit`, `influence`, `tune` and `clean`: their answers against other programs' and closed forms, and what they say
// when something is wrong.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "app/run_command.h"
#include "jobs/search.h"
#include "support/random.h"

namespace onestep::test {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAreArray;

// Sixty samples that scikit-learn saw too: numbers of three digits, and a quantity, two labels or three that depend on them.
std::string samples_text(const std::string& labels) {
  std::string text;
  const double truth[] = {1.5, -2, 0.5, 0};
  const auto three_digits = [](double v) { return std::nearbyint(1000 * v) / 1000; };
  for (int i = 0; i < 60; ++i) {
    double target = 0.25 + std::cos(5.0 * i);
    std::string features;
    for (int j = 0; j < 4; ++j) {
      const double a = three_digits(std::sin(1.3 * i + 2.1 * j + 0.7 * i * j));
      target += truth[j] * a;
      features += fmt::format(" {}:{:f}", j + 1, a);
    }
    const double label = labels == "two"     ? (target > 0 ? 1 : 0)
                         : labels == "three" ? (target < -0.8  ? 0
                                                : target < 0.8 ? 1
                                                               : 2)
                                             : three_digits(target);
    text += std::to_string(label) + features + "\n";
  }
  return text;
}

// Two classes around two centres, with labels from 1 to 2.
std::string cloud(std::uint64_t seed, int count, int features = 5, const std::string& separator = "", double apart = 1) {
  Random random(seed);
  std::string text;
  if (!separator.empty()) {
    for (int j = 0; j < features; ++j) text += fmt::format("f{}{}", j, separator);
    text += "label\n";
  }
  for (int i = 0; i < count; ++i) {
    const bool second = random.flip();
    std::string line = separator.empty() ? (second ? "2" : "1") : "";
    for (int j = 0; j < features; ++j) {
      const double a = random.uniform(-2, 2) + (second && j < 2 ? apart : 0.0);
      line += separator.empty() ? fmt::format(" {}:{:f}", j + 1, a) : fmt::format("{:f}{}", a, separator);
    }
    text += line + (separator.empty() ? "" : second ? "2" : "1") + "\n";
  }
  return text;
}

class Jobs : public ::testing::Test {
 protected:
  nlohmann::json json(std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    const Ended ended = run_command(arguments);
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(ended.err, "");
    return ended.json();
  }
  std::string misuse(const std::vector<std::string>& arguments) {
    const Ended ended = run_command(arguments);
    EXPECT_EQ(ended.status, 2) << ended.out << ended.err;
    EXPECT_EQ(ended.out, "");
    return ended.err;
  }
  TemporaryFolder folder_;
};

void expect_near(const nlohmann::json& found, const std::vector<double>& wanted, double tolerance) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], tolerance) << i;
}

// Without the notes on what was found in the samples.
std::vector<std::string> notes_on_files(const nlohmann::json& found) {
  std::vector<std::string> notes;
  for (const std::string note : found["notes"])
    if (!note.starts_with("the classes are linearly separable") && !note.starts_with("constant,")) notes.push_back(note);
  return notes;
}

// ---- fit ----

TEST_F(Jobs, FitHasTheOptimumOfScikitLearn) {
  // Version 1.9.1: newton-cholesky with C = 2 and tol = 1e-14, Ridge with alpha = 0.5.
  const auto logistic = json({"fit", folder_.write("two", samples_text("two")), "--l2", "0.5"});
  EXPECT_EQ(logistic["loss"], "logistic");
  expect_near(logistic["coefficients"], {3.10795450812, -2.13794333639, 0.153930681459, 0.408335199773}, 1e-8);
  EXPECT_NEAR(logistic["intercept"], 0.700589481176, 1e-8);
  const auto ridge = json({"fit", folder_.write("quantity", samples_text("quantity")), "--l2", "0.5"});
  EXPECT_EQ(ridge["loss"], "ridge");
  expect_near(ridge["coefficients"], {1.93631171371, -1.96573139236, 0.46783014917, -0.00153988681662}, 1e-8);
  EXPECT_NEAR(ridge["intercept"], 0.262132325966, 1e-8);
  const auto softmax = json({"fit", folder_.write("three", samples_text("three")), "--l2", "0.5"});
  EXPECT_EQ(softmax["loss"], "softmax");
  const std::vector<std::vector<double>> classes{{-2.22754961527, 2.62625833603, -0.297540184788, -0.131258076573},
                                                 {0.207653315921, -0.276857726733, 0.0247167595086, -0.00955586890283},
                                                 {2.01989629935, -2.3494006093, 0.272823425279, 0.140813945476}};
  for (std::size_t k = 0; k < 3; ++k)
    for (std::size_t j = 0; j < 4; ++j) EXPECT_NEAR(softmax["coefficients"][j][k], classes[k][j], 1e-7);
  expect_near(softmax["intercept"], {-0.781775016762, 0.620495655641, 0.161279361122}, 1e-7);
}

TEST_F(Jobs, StandardErrorsAreThoseOfTheInverseHessian) {
  const auto ols = json({"fit", folder_.write("quantity", samples_text("quantity")), "--l2", "0"});
  expect_near(ols["standard_errors"], {0.120593890069, 0.119900709989, 0.121346146482, 0.119700909146}, 1e-9);
  EXPECT_NEAR(ols["intercept_standard_error"], 0.0851551038077, 1e-9);
  const auto logistic = json({"fit", folder_.write("two", samples_text("two")), "--l2", "0.5"});
  expect_near(logistic["standard_errors"], {0.685047435663, 0.62157888581, 0.532740077063, 0.532671683036}, 1e-8);
  EXPECT_NEAR(logistic["intercept_standard_error"], 0.402507377706, 1e-8);
}

TEST_F(Jobs, StandardisedFeaturesAreReportedAsTheyWere) {
  for (const std::string labels : {"quantity", "two", "three"}) {
    const std::string file = folder_.write(labels, samples_text(labels));
    // Without a penalty the scale of the features does not matter (three classes need a little for a unique answer).
    const std::string l2 = labels == "three" ? "1e-9" : "0";
    const auto plain = json({"fit", file, "--l2", l2}), scaled = json({"fit", file, "--l2", l2, "--standardize"});
    EXPECT_NEAR(plain["objective"], scaled["objective"], 1e-6 * plain["objective"].get<double>());
    if (labels == "three") continue;
    expect_near(scaled["coefficients"], plain["coefficients"], 1e-7);
    EXPECT_NEAR(scaled["intercept"], plain["intercept"], 1e-7);
    expect_near(scaled["standard_errors"], plain["standard_errors"], 1e-7);
    EXPECT_NEAR(scaled["intercept_standard_error"], plain["intercept_standard_error"], 1e-7);
  }
}

TEST_F(Jobs, FitScoresTestSamplesThatHaveMoreFeaturesOrFewer) {
  const std::string train = folder_.write("train", "1 1:1 2:0.5\n-1 1:-1\n1 1:2 2:1\n-1 1:-2 2:-1\n");
  for (const char* text : {"1 1:1\n-1 1:-1\n", "1 1:1 7:3\n-1 1:-1\n"}) {
    const auto found = json({"fit", train, "--test", folder_.write("test", text)});
    EXPECT_EQ(found["test"]["accuracy"], 1.0);
  }
}

// ---- samples ----

TEST_F(Jobs, NotesSayWhichFeaturesAreMissing) {
  const std::string train = folder_.write("train", "1 1:1 2:0.5\n-1 1:-1\n1 1:2 2:1\n-1 1:-2 2:-1\n");
  const auto notes = [&](const std::string& text) {
    const std::string test = folder_.write("test", text);
    const auto found = json({"fit", train, "--test", test});
    for (const std::string note : found["notes"])
      EXPECT_THAT(run_command({"fit", train, "--test", test}).out, HasSubstr("\nNote: " + note + ".\n"));
    return notes_on_files(found);
  };
  EXPECT_TRUE(notes("1 2:1\n-1 1:-1\n").empty());
  EXPECT_EQ(notes("1 1:1\n-1 1:-1\n"),
            (std::vector<std::string>{"test has 1 features, train 2: zero stands for the last one"}));
  EXPECT_EQ(notes("1 1:1 7:3\n"),
            (std::vector<std::string>{"check the files: test has 7 features, train 2: no training sample has the last 5"}));
}

TEST_F(Jobs, NotesSayWhatIsTooOddToBeTheSameFeatures) {
  const auto odd = [&](int features, int of_test) {
    const std::string train = folder_.write("train", fmt::format("1 1:1 {}:1\n-1 1:-1\n1 1:2\n", features)),
                      test = folder_.write("test", fmt::format("1 1:1 {}:1\n", of_test));
    return json({"fit", train, "--test", test})["notes"][0].get<std::string>().starts_with("check the files: test has ");
  };
  EXPECT_FALSE(odd(20, 22));
  EXPECT_TRUE(odd(20, 23));
  EXPECT_FALSE(odd(20, 10));
  EXPECT_TRUE(odd(20, 9));
}

TEST_F(Jobs, FeaturesWithoutNamesHaveTheNumbersOfTheirColumns) {
  const std::string file = folder_.write("a.csv", "1,5,2,7,0\n2,3,1,8,1\n3,4,4,9,0\n4,1,3,7,1\n");
  EXPECT_EQ(json({"fit", file, "--drop", "2"})["names"], (std::vector<std::string>{"1", "3", "4"}));
  EXPECT_EQ(json({"fit", file, "--target", "1", "--drop", "3"})["names"], (std::vector<std::string>{"2", "4", "5"}));
}

TEST_F(Jobs, ColumnsOfOtherFilesAreFoundByTheirNames) {
  const std::string train = folder_.write("a.csv", "id,a,b,y\nx,1,2.5,0\ny,2,1,1\nz,1.5,2,0\nw,3,1.5,1\n"),
                    same = folder_.write("same.csv", "id,a,b,y\nx,1,2,0\ny,3,1,1\n"),
                    other = folder_.write("other.csv", "y,b,a\n0,2,1\n1,1,3\n"),
                    more = folder_.write("more.csv", "b,day,y,a,id\n2,Mon,0,1,x\n1,Tue,1,3,y\n");
  const auto scored = [&](const std::string& test) { return json({"fit", train, "--drop", "id", "--test", test}); };
  const auto wanted = scored(same);
  EXPECT_EQ(scored(other)["test"], wanted["test"]) << "in another order, without the column to drop";
  EXPECT_TRUE(notes_on_files(scored(other)).empty());
  EXPECT_EQ(scored(more)["test"], wanted["test"]);
  EXPECT_EQ(notes_on_files(scored(more)),
            (std::vector<std::string>{"more.csv has columns that a.csv has not, which are left out: day"}));
  EXPECT_EQ(json({"fit", train, "--drop", "1", "--target", "-1", "--test", other})["test"], wanted["test"])
      << "positions are those of the training file";
  for (const char* option : {"--valid", "--test"})
    EXPECT_THAT(misuse({"influence", train, "--drop", "id", option, folder_.write("c.csv", "a,c,d\n1,2,0\n")}),
                HasSubstr("c.csv: no column is called \"b\", \"y\"; there are \"a\", \"c\", \"d\""));
  EXPECT_THAT(misuse({"fit", other, "--drop", "id"}), HasSubstr("no column is called \"id\"")) << "training is strict";
  EXPECT_THAT(misuse({"fit", folder_.write("twice.csv", "a,a,y\n1,2,0\n2,1,1\n")}),
              HasSubstr("the columns 1 and 2 are both called \"a\"; rename one"));
}

TEST_F(Jobs, LabelsThatAreNotWholeAreAQuantity) {
  const std::string file = folder_.write("two", "1.5 1:1\n0.3 1:2\n1.5 1:3\n0.3 1:5\n");
  EXPECT_EQ(json({"fit", file})["loss"], "ridge");
  for (const char* loss : {"logistic", "softmax"})
    EXPECT_EQ(misuse({"fit", file, "--loss", loss}),
              fmt::format("onestep: two: --loss {} needs classes, but the label of sample 1 is 1.5; a quantity takes --loss "
                          "ridge\n",
                          loss));
}

TEST_F(Jobs, ReadersSpeakOfTheOptionsOfTheCommand) {
  const std::string file = folder_.write("a.csv", "id,a,y\nx,1,0\ny,2,1\n"), svm = folder_.write("s", "1 1:1 1000:1\n");
  EXPECT_THAT(misuse({"fit", file, "--memory", "1e-9"}), HasSubstr("give a larger --memory GIB"));
  EXPECT_THAT(misuse({"fit", svm, "--memory", "1e-7"}), HasSubstr("give a larger --memory GIB"));
  EXPECT_THAT(misuse({"fit", file}),
              HasSubstr("too many to be the levels of a category; drop the column (--drop COLUMN)\n"));
  EXPECT_THAT(misuse({"fit", file, "--target", "1", "--drop", "1"}),
              HasSubstr("the column \"id\" is the target and cannot be dropped; name another target (--target COLUMN)"));
}

TEST_F(Jobs, TheTrainingFileSaysWhereIndicesStart) {
  const std::string train = folder_.write("train", "1 0:0.1 1:1\n-1 1:-1 2:0.1\n1 1:2\n-1 1:-2 2:-0.2\n"),
                    test = folder_.write("test", "1 1:1\n-1 1:-1\n1 1:3 2:0.1\n");
  const auto found = json({"fit", train, "--test", test});
  EXPECT_EQ(found["test"]["accuracy"], 1.0) << "feature 1 is feature 1";
  EXPECT_TRUE(notes_on_files(found).empty());
  EXPECT_EQ(found["names"], (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(json({"fit", test})["names"], (std::vector<std::string>{"1", "2"}));
  for (const char* option : {"--valid", "--test"})
    EXPECT_THAT(
        misuse({"influence", test, option, train}),
        HasSubstr("/train has an index 0, test has none: where they start at 0 in both, write 0:0 into a sample of"));
  const std::string said = folder_.write("said", contents_of(test) + "1 0:0 1:1\n");
  EXPECT_EQ(json({"fit", said, "--test", train})["test"]["accuracy"], 1.0) << "as the message advises";
}

// Classes with names, one around each corner of a triangle.
std::string flowers(std::uint64_t seed, const std::vector<std::string>& names, int each) {
  Random random(seed);
  std::string text = "id,width,length,species\n";
  for (int i = 0; i < each * static_cast<int>(names.size()); ++i) {
    const auto k = static_cast<std::size_t>(i) % names.size();
    const double width = random.uniform(-1, 1) + (k == 1 ? 2 : 0), length = random.uniform(-1, 1) + (k == 2 ? 2 : 0);
    text += fmt::format("n{},{:f},{:f},{}\n", i, width, length, names[k]);
  }
  return text;
}

TEST_F(Jobs, ClassesMayHaveNames) {
  const std::vector<std::string> three{"virginica", "setosa", "versicolor"}, two{"no", "yes"};
  const std::string file = folder_.write("iris.csv", flowers(20, three, 20)),
                    binary = folder_.write("b.csv", flowers(21, two, 20));
  const auto softmax = json({"fit", file, "--drop", "id"});
  EXPECT_EQ(softmax["loss"], "softmax");
  EXPECT_EQ(softmax["labels"], (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(softmax["label_names"], (std::vector<std::string>{"setosa", "versicolor", "virginica"}));
  EXPECT_EQ(softmax["features"], 2);
  EXPECT_THAT(run_command({"fit", file, "--drop", "id"}).out, HasSubstr("versicolor"));
  EXPECT_EQ(json({"fit", "--drop", "id", "--drop", "-2", file})["features"], 1) << "each takes one column";
  const auto logistic = json({"influence", binary, "--drop", "1"});
  EXPECT_EQ(logistic["loss"], "logistic");
  EXPECT_EQ(logistic["label_names"], two);
  EXPECT_THAT(two, ::testing::Contains(logistic["largest_own_losses"][0]["label"].get<std::string>()));
  EXPECT_THAT(run_command({"influence", binary, "--drop", "1"}).out, HasSubstr(" yes "));
  // Only the last class, and the numbers of the classes are those of training all the same.
  const std::string test = folder_.write("test.csv", flowers(22, {"virginica"}, 10));
  EXPECT_GT(json({"fit", file, "--drop", "id", "--test", test})["test"]["accuracy"], 0.5);
}

TEST_F(Jobs, ColumnsAndNamesThatAreNotThereAreMisuse) {
  const std::string file = folder_.write("iris.csv", flowers(23, {"b", "a"}, 10)),
                    other = folder_.write("other.csv", flowers(24, {"a", "rose"}, 10)),
                    numbers = folder_.write("numbers.csv", flowers(25, {"1", "2"}, 10));
  EXPECT_THAT(misuse({"fit", file}), HasSubstr("iris.csv:2: field 1: the value of \"id\" is \"n0\", not a number"));
  EXPECT_THAT(misuse({"fit", file, "--drop", "name"}),
              HasSubstr("no column is called \"name\"; there are \"id\", \"width\""));
  EXPECT_THAT(misuse({"fit", file, "--drop", "species"}), HasSubstr("is the target and cannot be dropped"));
  EXPECT_THAT(misuse({"fit", folder_.write("svm", cloud(15, 40)), "--drop", "1"}), HasSubstr("is not CSV"));
  EXPECT_THAT(misuse({"fit", file, "--drop", "id", "--loss", "ridge"}), HasSubstr("--loss ridge needs a quantity"));
  for (const char* option : {"--valid", "--test"}) {
    EXPECT_THAT(misuse({"influence", file, "--drop", "id", option, other}),
                HasSubstr("other.csv:3: field 4: the value of \"species\" is \"rose\", which is not among the classes that "
                          "were learned from, \"a\", \"b\""));
    EXPECT_THAT(misuse({"influence", numbers, "--drop", "id", option, file}),
                HasSubstr("iris.csv has names for labels, such as a, numbers.csv has numbers"));
    EXPECT_THAT(misuse({"influence", folder_.write("good", cloud(15, 40)), option, folder_.write("v", "1 1:1\n3 1:1\n")}),
                HasSubstr("/v: the label of sample 2 is 3, which no sample of good has"));
  }
}

TEST_F(Jobs, ASplitLeavesAClassItsOnlySample) {
  std::string text;
  for (int i = 0; i < 103; ++i) text += fmt::format("{} 1:{} 2:{}\n", i < 100 ? 0 : i - 99, i % 7, i % 11);
  const auto found = json({"influence", folder_.write("rare", text), "--split", "0.2"});
  EXPECT_EQ(found["samples"], 82);
  EXPECT_EQ(found["judging"]["samples"], 21);
}

TEST_F(Jobs, AFirstLineOfNumbersThatIsTakenForNamesIsSaid) {
  const auto found = json({"fit", folder_.write("n.csv", "0,1,kind\n3,5,a\n4,1,b\n2,2,a\n5,0,b\n1,3,b\n")});
  EXPECT_EQ(found["samples"], 5);
  EXPECT_EQ(found["notes"], (std::vector<std::string>{"n.csv: the first line was taken for names: \"0\", \"1\", \"kind\""}));
}

TEST_F(Jobs, EachClassIsSplitInTheSameShare) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += fmt::format("{} 1:{}\n", i % 10 == 0 ? 2 : i % 2, i % 7);
  const std::string file = folder_.write("classes", text);
  const auto found = json({"influence", file, "--loss", "softmax", "--split", "0.3", "--seed", "5"});
  EXPECT_EQ(found["samples"], 70);
  std::vector<int> classes(3);
  for (const int row : found["sample"]) ++classes[(row - 1) % 10 == 0 ? 2U : static_cast<std::size_t>((row - 1) % 2)];
  EXPECT_EQ(classes, (std::vector{28, 35, 7}));
  const std::string rare = folder_.write("rare", text + "3 1:1\n");
  EXPECT_EQ(json({"influence", rare, "--split", "0.3"})["samples"], 71);
  EXPECT_EQ(json({"influence", rare, "--split", "0.7"})["samples"], 30) << "the only sample of a class stays";
  EXPECT_THAT(misuse({"influence", rare, "--split", "0.98"}), HasSubstr("--split 0.98 leaves no sample with the label"));
  EXPECT_EQ(json({"tune", rare, "--folds", "3"})["folds"], 3) << "the only sample of a class is trained on in every fold";
}

TEST(Folds, HaveTheirShareOfEveryClassAndOfAllSamples) {
  app::jobs::JobData job;
  job.loss = app::jobs::Loss::softmax;
  job.labels = {0, 1, 2};
  std::vector<double> y;
  for (int i = 0; i < 103; ++i) {
    y.push_back(i % 10 == 0 ? 2 : i % 2);
    job.train.rows.push_back(static_cast<std::size_t>(i) + 1);
  }
  job.train.A = ones({103, 1});
  job.train.y = Array(Shape{103}, y);
  const auto folds = app::jobs::folds_of(job, 10, 1);
  std::vector<std::size_t> judged;
  for (const auto& fold : folds) {
    std::vector<std::int64_t> classes(3);
    for (const double k : fold.valid.y.values()) ++classes[static_cast<std::size_t>(k)];
    EXPECT_THAT(classes, ElementsAre(AnyOf(4, 5), AnyOf(5, 6), AnyOf(1, 2)));
    EXPECT_THAT(fold.valid.count(), AnyOf(10, 11));
    EXPECT_EQ(fold.train.count() + fold.valid.count(), 103);
    judged.insert(judged.end(), fold.valid.rows.begin(), fold.valid.rows.end());
  }
  EXPECT_THAT(judged, UnorderedElementsAreArray(job.train.rows)) << "each sample is judged once";
  EXPECT_EQ(app::jobs::folds_of(job, 10, 1)[0].valid.rows, folds[0].valid.rows);
  EXPECT_NE(app::jobs::folds_of(job, 10, 2)[0].valid.rows, folds[0].valid.rows);
}

// ---- influence ----

TEST_F(Jobs, InfluencePredictsWhatRetrainingFinds) {
  const auto found = json({"influence", folder_.write("cloud", cloud(1, 120)), "--verify", "20"});
  EXPECT_GT(found["verify"]["correlation"], 0.999);
  EXPECT_NEAR(found["verify"]["slope"], 1, 0.01);
  EXPECT_EQ(found["verify"]["count"], 20);
  EXPECT_EQ(found["influence"].size(), found["samples"]);
  EXPECT_LT(found["certificate"]["bound"], 1e-8);
  const auto judged =
      json({"influence", folder_.write("cloud", cloud(1, 120)), "--valid", folder_.write("v", cloud(2, 120))});
  EXPECT_LE(judged["most_harmful"][0]["removal"], judged["most_harmful"][1]["removal"]);
  EXPECT_GE(judged["most_helpful"][0]["removal"], judged["most_helpful"][1]["removal"]);
}

TEST_F(Jobs, InfluenceWorksForEveryLossAndForCsv) {
  for (const std::string labels : {"quantity", "three"}) {
    const auto found = json({"influence", folder_.write(labels, samples_text(labels)), "--verify", "10"});
    EXPECT_GT(found["verify"]["correlation"], 0.999) << labels;
  }
  const auto csv = json({"influence", folder_.write("a.csv", cloud(2, 80, 4, ",")), "--target", "label"});
  EXPECT_EQ(csv["features"], 4);
  EXPECT_EQ(csv["loss"], "logistic");
}

// ---- tune ----

TEST_F(Jobs, TuneIsAsGoodAsAGridOfEqualBudget) {
  const std::string file = folder_.write("cloud", cloud(3, 60, 10)), valid = folder_.write("valid", cloud(4, 200, 10));
  const auto one = json({"tune", file, "--valid", valid, "--compare", "grid"});
  EXPECT_EQ(one["search"]["status"], "converged");
  EXPECT_LE(one["compare"]["ratio"], 1 + 1e-3);
  EXPECT_EQ(one["hyperparameters"]["values"].size(), 1U);
  EXPECT_EQ(one["search"]["history"][0]["hyperparameters"].size(), 1U);
  const auto many = json({"tune", file, "--valid", valid, "--hyper", "l2-per-feature", "--compare", "grid"});
  EXPECT_LE(many["loss_minimised"], one["loss_minimised"]);
  EXPECT_EQ(many["compare"]["method"], "random");
  EXPECT_EQ(many["hyperparameters"]["names"].size(), 10U);
}

TEST_F(Jobs, TuneStartsWhereItIsTold) {
  const std::string file = folder_.write("cloud", cloud(3, 60, 10)), valid = folder_.write("valid", cloud(4, 200, 10));
  const auto probed = json({"tune", file, "--valid", valid}), told = json({"tune", file, "--valid", valid, "--l2", "30"});
  EXPECT_NEAR(told["search"]["history"][0]["hyperparameters"][0], 30, 1e-12);
  EXPECT_FALSE(told.contains("probes"));
  EXPECT_NEAR(told["search"]["loss"], probed["search"]["loss"], 1e-6);
  EXPECT_THAT(misuse({"tune", file, "--l2", "0"}), HasSubstr("penalties lie from"));
}

TEST(Search, IsUsableUnlessAFitFailedWhateverElseIsSaid) {
  using app::jobs::is_usable, app::jobs::message_of;
  Outcome o;
  o.value = 0.4, o.norm = 1e-3, o.bound = 2e-2;
  o.status = Status::iteration_limit;
  o.about = "the hypergradient changes from one solve of the inner problems to the next";
  EXPECT_TRUE(is_usable(o));
  EXPECT_THAT(message_of(o), HasSubstr("limit of --iterations"));
  o.inner_failed = true;
  for (const int fell_short : {0, 2}) {
    o.fell_short = fell_short;
    for (const Status status : {Status::iteration_limit, Status::singular}) {
      o.status = status;
      EXPECT_FALSE(is_usable(o)) << to_string(status) << " " << fell_short;
    }
  }
  o.inner_failed = false;
  EXPECT_TRUE(is_usable(o)) << "the linear system of the last gradient is singular, the fit is good";
  o.status = Status::converged;
  EXPECT_EQ(message_of(o), "");
  o.uncertain = true;
  EXPECT_THAT(message_of(o), HasSubstr("may be wrong by 0.02"));
}

TEST_F(Jobs, TuneGivesTheModelThatFitWouldFindWithItsAnswer) {
  const std::string file = folder_.write("cloud", cloud(5, 100));
  for (const std::vector<std::string>& how : {std::vector<std::string>{"--folds", "5"}, {"--valid", file}}) {
    std::vector<std::string> arguments{"tune", file, "--standardise"};
    arguments.insert(arguments.end(), how.begin(), how.end());
    const auto tuned = json(arguments);
    const double l2 = tuned["hyperparameters"]["values"][0];
    const auto fitted = json({"fit", file, "--standardise", "--l2", std::to_string(l2)});
    expect_near(tuned["model"]["coefficients"], fitted["coefficients"], 1e-5);
    EXPECT_NEAR(tuned["model"]["intercept"], fitted["intercept"], 1e-5);
    EXPECT_NEAR(tuned["train"]["loss"], fitted["train"]["loss"], 1e-6);
  }
}

TEST_F(Jobs, TuneByFoldsDoesNotDependOnThreads) {
  const std::string file = folder_.write("cloud", cloud(5, 100));
  const auto one = json({"tune", file, "--folds", "5", "--threads", "1"}),
             two = json({"tune", file, "--folds", "5", "--threads", "2"});
  EXPECT_EQ(one["search"]["status"], "converged");
  EXPECT_EQ(one["hyperparameters"], two["hyperparameters"]);
  EXPECT_EQ(one["search"]["loss"], two["search"]["loss"]);
}

TEST_F(Jobs, TuneWeighsClassesAndGroups) {
  const std::string file = folder_.write("cloud", cloud(6, 150)), valid = folder_.write("valid", cloud(7, 150));
  const auto classes = json({"tune", file, "--valid", valid, "--hyper", "class-weight"});
  EXPECT_EQ(classes["hyperparameters"]["names"], (std::vector<std::string>{"1", "2"}));
  EXPECT_LE(classes["search"]["loss"], classes["search"]["history"][0]["loss"]);
  EXPECT_TRUE(classes["balanced"]);
  EXPECT_TRUE(classes["valid"].contains("balanced_accuracy"));
  // The second half has nothing but noise for labels.
  Random random(8);
  std::string text = cloud(9, 100), groups;
  std::string noise = cloud(10, 100);
  for (std::size_t at = 0; at != std::string::npos; at = noise.find('\n', at)) {
    if (at > 0 && ++at >= noise.size()) break;
    noise[at] = random.flip() ? '1' : '2';
    if (at == 0) ++at;
  }
  for (int i = 0; i < 200; ++i) groups += i < 100 ? "0\n" : "1\n";
  // Many judge, so that what is gained is more than two standard errors.
  const std::string many = folder_.write("many", cloud(7, 800));
  const auto found = json({"tune", folder_.write("mixed", text + noise), "--valid", many, "--hyper", "sample-group-weight",
                           "--groups", folder_.write("groups", groups)});
  const double good = found["hyperparameters"]["values"][0], bad = found["hyperparameters"]["values"][1];
  EXPECT_FALSE(found["groups"]["equal_weights_kept"]);
  EXPECT_GT(good, 3 * bad);
  // Weights have the mean 1: the penalty is not changed behind the user's back.
  EXPECT_NEAR(good + bad, 2, 1e-12);
}

TEST_F(Jobs, TuneKeepsAPenaltyThatWantsToBeInfiniteWithinBounds) {
  // Labels that say nothing about the features: the penalty grows without limit.
  std::string text;
  Random random(11);
  for (int i = 0; i < 40; ++i) {
    text += random.flip() ? "1" : "-1";
    text += fmt::format(" 1:{:f}\n", random.uniform(-1, 1));
  }
  const auto found =
      json({"tune", folder_.write("noise", text), "--valid", folder_.write("valid", "1 1:1\n-1 1:1\n1 1:-1\n-1 1:-1\n")});
  // It ends where more of it changes nothing any more, or at the bound, which is said.
  const double l2 = found["hyperparameters"]["values"][0];
  EXPECT_GE(l2, 10);
  EXPECT_LE(l2, 1e7);
  EXPECT_EQ(found["at_bounds"].size(), l2 == 1e7 ? 1U : 0U);
}

TEST_F(Jobs, ATerminatedTuneGoesOnFromItsCheckpoint) {
  const std::string file = folder_.write("cloud", cloud(12, 300, 12)), checkpoint = (folder_.path() / "c").string();
  const std::vector<std::string> arguments{"tune", file, "--hyper", "l2-per-feature", "--checkpoint", checkpoint, "--json"};
  const RunningCommand running(arguments);
  // The file is there at once, and grows with the first step that ends.
  std::uintmax_t first = 0;
  for (int i = 0; i < 6000; ++i) {
    usleep(10000);
    const std::uintmax_t size = std::filesystem::exists(checkpoint) ? std::filesystem::file_size(checkpoint) : 0;
    if (first == 0) first = size;
    if (size > first) break;
  }
  kill(running.pid(), SIGTERM);
  const Ended stopped = running.wait();
  // It may have been faster than the signal.
  ASSERT_TRUE(stopped.status == 143 || stopped.status == 0) << stopped.err;
  if (stopped.status == 143) { EXPECT_EQ(stopped.json()["search"]["status"], "cancelled"); }
  const auto resumed = json({"tune", file, "--hyper", "l2-per-feature", "--checkpoint", checkpoint});
  const auto straight = json({"tune", file, "--hyper", "l2-per-feature"});
  EXPECT_TRUE(resumed["resumed"]);
  EXPECT_EQ(resumed["hyperparameters"], straight["hyperparameters"]);
  EXPECT_THAT(misuse({"tune", file, "--hyper", "l2", "--checkpoint", checkpoint}), HasSubstr("another problem"));
}

TEST_F(Jobs, AFullDiskAtACheckpointIsAFailureThatKeepsTheLastOne) {
  const std::string file = folder_.write("cloud", cloud(17, 100, 10)), checkpoint = (folder_.path() / "c").string();
  (void)json({"tune", file, "--hyper", "l2-per-feature", "--iterations", "1", "--checkpoint", checkpoint});
  const std::string good = contents_of(checkpoint);
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{500, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const Ended ended = run_command({"tune", file, "--hyper", "l2-per-feature", "--checkpoint", checkpoint});
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("the last one is kept"));
  EXPECT_TRUE(ended.err.starts_with("onestep: " + checkpoint)) << ended.err << "no name of a function of the library";
  EXPECT_EQ(contents_of(checkpoint), good);
}

// ---- clean ----

TEST_F(Jobs, CleanNamesFewSuspectsWhereLabelsAreRight) {
  const auto found = json({"clean", folder_.write("cloud", cloud(13, 200, 5, "", 3)), "--valid",
                           folder_.write("valid", cloud(14, 200, 5, "", 3))});
  EXPECT_LE(found["suspects"].size(), 10U);
}

// ---- all ----

TEST_F(Jobs, DemosWorkWithNoFileAtHand) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"fit", "--demo"},
                                                    {"fit", "--demo", "--loss", "ridge"},
                                                    {"influence", "--demo"},
                                                    {"tune", "--demo"},
                                                    {"clean", "--demo", "--flip", "0.2"}}) {
    const Ended ended = run_command(arguments);
    EXPECT_EQ(ended.status, 0) << arguments[0] << ": " << ended.err;
    EXPECT_THAT(ended.out, HasSubstr("made data")) << arguments[0];
  }
}

TEST_F(Jobs, HelpHasAnExample) {
  for (const char* verb : {"fit", "influence", "tune", "clean"}) {
    const Ended ended = run_command({verb, "--help"});
    EXPECT_EQ(ended.status, 0);
    EXPECT_THAT(ended.out, HasSubstr(std::string("Example: onestep ") + verb + " --demo"));
  }
}

TEST_F(Jobs, HelpSaysWhatMayBeGiven) {
  const std::string help = run_command({"tune", "--help"}).out;
  for (const char* row :
       {"--loss LOSS:{logistic,ridge,softmax}", "--hyper WHAT:{l2,l2-per-feature,class-weight,sample-group-weight}",
        "--compare SEARCH:{grid}", "seed of everything random (default 0)", "--standardise,--standardize", "--drop COLUMN ",
        "LIBSVM, CSV or IDX, told by name (.csv)"})
    EXPECT_THAT(help, HasSubstr(row));
  EXPECT_THAT(help, Not(HasSubstr("--drop COLUMN ..."))) << "it takes one each time";
}

TEST_F(Jobs, WordsThatAreNoOptionsAreNamed) {
  EXPECT_EQ(misuse({"tune", "a", "b", "--foo", "3", "--bar"}),
            "onestep: there is no option --foo in onestep tune; see onestep tune --help\n");
  EXPECT_EQ(misuse({"fit", "--foo=3", "a"}), "onestep: there is no option --foo in onestep fit; see onestep fit --help\n");
  EXPECT_EQ(misuse({"fit", "a", "b", "c"}), "onestep: b is one argument too many for onestep fit; see onestep fit --help\n");
  EXPECT_THAT(misuse({"tune", "a", "--folds", "3", "--split", "0.2"}), HasSubstr("--split excludes --folds"));
  // Before the verb, too, and behind two dashes.
  EXPECT_THAT(misuse({"--foo", "fit", "a"}), HasSubstr("there is no option --foo"));
  EXPECT_THAT(misuse({"--foo=3", "fit", "a"}), HasSubstr("there is no option --foo"));
  EXPECT_THAT(misuse({"foo", "fit", "a"}), HasSubstr("foo is one argument too many for onestep fit"));
  EXPECT_THAT(misuse({"-x", "fit"}), HasSubstr("there is no option -x"));
  EXPECT_THAT(misuse({"fit", "a", "--", "x", "y"}), HasSubstr("x is one argument too many for onestep fit"));
}

TEST_F(Jobs, ACheckpointThatCannotBeWrittenIsMisuseBeforeAnyWork) {
  for (const char* verb : {"tune"}) {
    EXPECT_EQ(misuse({verb, "/nowhere", "--checkpoint", "/no/such/c"}),
              "onestep: --checkpoint /no/such/c: there is no folder /no/such\n");
    EXPECT_THAT(misuse({verb, "/nowhere", "--checkpoint", folder_.path().string()}), HasSubstr("is a folder, not a file"));
    EXPECT_THAT(misuse({verb, "/nowhere", "--checkpoint", folder_.write("plain", "") + "/c"}),
                HasSubstr("there is no folder"));
    if (geteuid() == 0) continue;  // who may write anywhere
    EXPECT_THAT(misuse({verb, "/nowhere", "--checkpoint", "/c"}), HasSubstr("the folder / cannot be written to"));
  }
}

TEST_F(Jobs, BadInputIsOneLineThatSaysWhatAndWhere) {
  const std::string good = folder_.write("good", cloud(15, 40));
  EXPECT_THAT(misuse({"fit"}), HasSubstr("--demo"));
  EXPECT_THAT(misuse({"fit", folder_.write("empty", "")}), HasSubstr("no sample"));
  EXPECT_THAT(misuse({"fit", "/nowhere"}), HasSubstr("/nowhere"));
  EXPECT_THAT(misuse({"fit", folder_.write("one", "1 1:1\n1 1:2\n"), "--loss", "logistic"}),
              HasSubstr("all samples have the label 1"));
  EXPECT_THAT(misuse({"fit", folder_.write("three", "1 1:1\n2 1:2\n3 1:4\n"), "--loss", "logistic"}),
              HasSubstr("--loss softmax"));
  EXPECT_THAT(misuse({"fit", folder_.write("half", "0.5 1:1\n2 1:2\n3 1:4\n"), "--loss", "softmax"}),
              HasSubstr("the label of sample 1 is 0.5; a quantity takes --loss ridge"));
  EXPECT_THAT(misuse({"fit", folder_.write("twice", "1 1:1 1:2\n")}), HasSubstr("twice:1: "));
  EXPECT_THAT(misuse({"fit", folder_.write("not", "1 1:nan\n-1 1:2\n")}), HasSubstr("nan"));
  EXPECT_THAT(misuse({"fit", good, "--memory", "1e-9"}), HasSubstr("--memory"));
  EXPECT_THAT(misuse({"fit", good, "--l2", "-1"}), HasSubstr("--l2"));
  EXPECT_THAT(misuse({"fit", good, "--separator", ",", "--decimal", "comma"}),
              HasSubstr("--separator , and --decimal comma: commas cannot separate"));
  for (const std::string seed : {"-1", "1.5", "x", "18446744073709551616"})
    EXPECT_THAT(misuse({"fit", good, "--seed", seed}), HasSubstr(seed + " is not a whole number from 0"));
  EXPECT_THAT(misuse({"influence", good, "--split", "0.001"}), HasSubstr("--split"));
  EXPECT_THAT(misuse({"influence", good, "--valid", folder_.write("v", "3 1:1\n")}),
              HasSubstr("the label of sample 1 is 3, which no sample of good has"));
  EXPECT_THAT(misuse({"influence", folder_.write("a.csv", "a,b,y\n1,2,0\n2,1,1\n"), "--valid",
                      folder_.write("b.csv", "a,c,y\n1,2,0\n")}),
              HasSubstr("no column is called \"b\""));
  EXPECT_THAT(misuse({"influence", folder_.write("a.csv", "a,b,y\n1,2,0\n2,1,1\n"), "--valid",
                      folder_.write("b.csv", "a,y\n1,0\n")}),
              HasSubstr("no column is called \"b\""));
  EXPECT_THAT(misuse({"influence", folder_.write("a.csv", "1,2,0\n2,1,1\n"), "--valid", folder_.write("b.csv", "1,0\n")}),
              HasSubstr("b.csv: has 1 columns of features, the samples that were learned from had 2"));
  EXPECT_THAT(misuse({"influence", good, "--split", "20"}), HasSubstr("a share below 1"));
  EXPECT_THAT(misuse({"tune", "--demo", "--valid", good}), HasSubstr("--demo"));
  EXPECT_THAT(misuse({"tune", good, "--folds", "0.5"}), HasSubstr("whole number"));
  EXPECT_THAT(misuse({"tune", good, "--iterations", "1e10"}), HasSubstr("whole number"));
  EXPECT_THAT(misuse({"tune", good, "--folds", "1"}), HasSubstr("--folds 1: at least 2"));
  EXPECT_THAT(misuse({"tune", good, "--hyper", "sample-group-weight"}), HasSubstr("--groups"));
  EXPECT_THAT(misuse({"tune", good, "--hyper", "sample-group-weight", "--groups", folder_.write("g", "1\n2\n")}),
              HasSubstr("2 numbers"));
  EXPECT_THAT(misuse({"tune", folder_.write("q", samples_text("quantity")), "--hyper", "class-weight"}),
              HasSubstr("--hyper class-weight needs classes"));
  EXPECT_THAT(misuse({"clean", folder_.write("q", samples_text("quantity"))}), HasSubstr("influence"));
  EXPECT_THAT(misuse({"clean", good, "--flip", "1.5"}), HasSubstr("--flip"));
  EXPECT_THAT(misuse({"clean", good, "--flip", "0.001"}), HasSubstr("is none"));
  EXPECT_THAT(misuse({"tune", good, "--groups", good}), HasSubstr("--hyper sample-group-weight"));
  EXPECT_THAT(misuse({"tune", good, "--checkpoint", folder_.write("other", samples_text("two"))}),
              HasSubstr("no checkpoint of onestep"));
}

TEST_F(Jobs, ConstantFeaturesAndMoreFeaturesThanSamplesAreFine) {
  const auto constant =
      json({"fit", folder_.write("constant", "1 1:5 2:1\n-1 1:5 2:-1\n1 1:5 2:0.5\n-1 1:5 2:-2\n"), "--standardise"});
  EXPECT_EQ(constant["status"], "converged");
  EXPECT_NEAR(constant["coefficients"][0], 0, 1e-12);
  const auto wide = json({"fit", folder_.write("wide", cloud(16, 8, 30))});
  EXPECT_EQ(wide["status"], "converged");
}

TEST_F(Jobs, APenaltyIsNeededWhereFoldsOrWeightsLeaveClassesApart) {
  EXPECT_THAT(misuse({"clean", folder_.write("mixed", cloud(18, 60)), "--l2", "0"}), HasSubstr("--l2 above 0"));
  // Without the two samples on the wrong side of one fold there are none.
  std::string text;
  for (int i = 0; i < 30; ++i) text += fmt::format("{} 1:{}\n", i % 2, (i % 2 == 0 ? -1 : 1) * (1 + i));
  text += "1 1:-2\n0 1:2\n";
  const std::string file = folder_.write("nearly", text);
  EXPECT_EQ(json({"fit", file, "--l2", "0"})["status"], "converged");
  EXPECT_THAT(misuse({"tune", file, "--l2", "0", "--hyper", "class-weight", "--folds", "2", "--seed", "1"}),
              HasSubstr("--l2 above 0"));
}

TEST_F(Jobs, ClassesThatAPlaneTellsApartNeedAPenalty) {
  const std::string two = folder_.write("two", cloud(18, 60, 5, "", 9)),
                    three = folder_.write("three", "1 1:1\n2 1:1 2:3\n3 1:4 2:-1\n1 1:1.5\n2 1:1 2:4\n3 1:5 2:-2\n");
  EXPECT_THAT(misuse({"fit", two, "--l2", "0"}), HasSubstr("--l2 above 0"));
  EXPECT_THAT(misuse({"influence", two, "--l2", "0"}), HasSubstr("--l2 above 0"));
  EXPECT_THAT(misuse({"clean", two, "--l2", "0"}), HasSubstr("--l2 above 0"));
  EXPECT_THAT(misuse({"fit", three, "--l2", "0"}), HasSubstr("--l2 above 0"));
  // Apart but for samples on the plane.
  EXPECT_THAT(misuse({"fit", folder_.write("on", "1 1:1\n-1 1:-1\n1 1:0\n-1 1:0\n"), "--l2", "0"}), HasSubstr("above 0"));
  EXPECT_EQ(json({"fit", two, "--l2", "0.001"})["status"], "converged");
  // Not apart: without a penalty there is a best fit.
  EXPECT_EQ(json({"fit", folder_.write("mixed", cloud(18, 60)), "--l2", "0"})["status"], "converged");
}

}  // namespace
}  // namespace onestep::test
