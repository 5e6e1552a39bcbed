// The verbs `fit` and `predict`: models that are saved, scores, standard errors, features that depend on each other, and how
// files are read and guessed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "app/run_command.h"
#include "jobs/model_file.h"
#include "jobs/scores.h"
#include "support/random.h"

namespace onestep::test {
namespace {

using namespace onestep::app::jobs;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class FitAndPredict : public ::testing::Test {
 protected:
  nlohmann::json json(std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    const Ended ended = run_command(arguments);
    EXPECT_EQ(ended.status, 0) << ended.err;
    return ended.status == 0 ? ended.json() : nlohmann::json::object();
  }
  std::string misuse(const std::vector<std::string>& arguments) {
    const Ended ended = run_command(arguments);
    EXPECT_EQ(ended.status, 2) << ended.out << ended.err;
    return ended.err;
  }
  std::string path(const std::string& name) { return (folder_.path() / name).string(); }
  TemporaryFolder folder_;
};

// Houses: two quantities, a category and a class or a quantity that depends on all three; some values are missing.
std::string houses(std::uint64_t seed, int count, const std::string& target, bool missing = false) {
  Random random(seed);
  const std::vector<std::string> towns{"Arles", "Bern", "Cork"};
  std::string text = "area,town,age,y\n";
  for (int i = 0; i < count; ++i) {
    const std::size_t town = random.flip() ? 0 : random.flip() ? 1 : 2;
    const double area = random.uniform(-1, 1), age = random.uniform(0, 50);
    const double value = 2 * area - 0.05 * age + static_cast<double>(town) + random.uniform(-1, 1);
    const std::string y = target == "two"     ? (value > 0 ? "dear" : "cheap")
                          : target == "three" ? (value < -0.7  ? "c"
                                                 : value < 0.5 ? "b"
                                                               : "a")
                                              : fmt::format("{:.6f}", value);
    text += fmt::format("{},{},{:.6f},{}\n", missing && i % 7 == 3 ? "" : fmt::format("{:.6f}", area), towns[town], age, y);
  }
  return text;
}

TEST_F(FitAndPredict, ASavedModelPredictsTheSameBits) {
  for (const std::string target : {"two", "three", "quantity"}) {
    const std::string train = folder_.write("train.csv", houses(1, 80, target, true));
    for (const std::string& scale : {std::string("--standardise"), std::string("--quiet")}) {
      const auto fitted = json({"fit", train, "--missing", "impute", scale, "--save", path("m.json")});
      const auto predicted = json({"predict", path("m.json"), train});
      auto scores = predicted["scores"];
      EXPECT_EQ(scores, fitted["train"]) << target << scale << ": not a bit differs";
      EXPECT_EQ(predicted["sample"].size(), 80U);
    }
  }
}

TEST_F(FitAndPredict, AModelFileIsReadAsItWasWritten) {
  (void)json({"fit", folder_.write("t.csv", houses(2, 60, "three", true)), "--missing", "impute", "--l2", "0.3", "--save",
              path("m.json")});
  const SavedModel model = read_model(path("m.json"));
  const SavedModel again = model_from(text_of(model), "again");
  EXPECT_TRUE(std::ranges::equal(model.x.values(), again.x.values()));
  EXPECT_EQ(text_of(again), contents_of(path("m.json")));
  EXPECT_THAT(model.job.features, ElementsAre("area", "area is missing", "town=Bern", "town=Cork", "age"));
  EXPECT_THAT(model.job.label_names, ElementsAre("a", "b", "c"));
  EXPECT_THAT(model.command, HasSubstr("--l2 0.3"));
}

TEST_F(FitAndPredict, PredictFindsColumnsByNameAndExplainsWhatItCannotUse) {
  const std::string train = folder_.write("t.csv", houses(3, 60, "two")), model = path("m.json");
  (void)json({"fit", train, "--save", model});
  const auto wanted = json({"predict", model, folder_.write("a.csv", "area,town,age\n0.5,Bern,10\n-0.5,Arles,20\n")});
  const auto found =
      json({"predict", model, folder_.write("b.csv", "town,note,age,area\nBern,x,10,0.5\nArles,y,20,-0.5\n")});
  EXPECT_EQ(found["probabilities"], wanted["probabilities"]);
  EXPECT_FALSE(found.contains("scores"));
  EXPECT_THAT(found["notes"], Contains("columns that the model does not know are left out: note"));
  EXPECT_EQ(found["labels"], (std::vector<std::string>{"cheap", "dear"}));
  EXPECT_THAT(misuse({"predict", model, folder_.write("c.csv", "area,town\n1,Bern\n")}),
              HasSubstr("no column is called \"age\""));
  EXPECT_THAT(misuse({"predict", model, folder_.write("d.csv", "area,town,age\n1,Paris,3\n")}),
              HasSubstr("d.csv:2: field 2: the value of \"town\" is \"Paris\", a level that was not there"));
  EXPECT_THAT(misuse({"predict", model, folder_.write("e.csv", "area,town,age\n,Bern,3\n")}), HasSubstr("is missing"));
  EXPECT_THAT(misuse({"predict", model, folder_.write("f.csv", "1,Bern,3\n2,Cork,3\n3,Bern,4\n1,Cork,4\n")}),
              HasSubstr("f.csv has no header; the model knows its features by their names"));
  EXPECT_THAT(misuse({"predict", model, folder_.write("g", "1 1:3\n")}), HasSubstr("is not CSV"));
  const std::string odd = folder_.write("h.csv", "area,town,age,y\n1,Bern,3,odd\n");
  EXPECT_THAT(json({"predict", model, odd})["notes"].dump(), HasSubstr("not scored: the labels of h.csv in y are not"));
}

TEST_F(FitAndPredict, PredictionsAreWrittenAsCsv) {
  const std::string train = folder_.write("t.csv", houses(4, 60, "two", true)), model = path("m.json");
  (void)json({"fit", train, "--missing", "drop", "--save", model});
  const Ended ended = run_command({"predict", model, train, "--csv", "-"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_TRUE(ended.out.starts_with("sample,label,probability of cheap,probability of dear\n1,"));
  EXPECT_EQ(std::ranges::count(ended.out, '\n'), 61) << "a line for each sample";
  EXPECT_THAT(ended.out, HasSubstr("\n4,,,\n")) << "which lacks a value";
  EXPECT_THAT(ended.err, HasSubstr("lack a value and are left out"));
  (void)json({"predict", model, train, "--csv", path("p.csv")});
  EXPECT_EQ(contents_of(path("p.csv")), ended.out);
}

TEST_F(FitAndPredict, FilesThatAreNoModelsAreRefused) {
  const std::string train = folder_.write("t.csv", houses(5, 40, "two")), model = path("m.json");
  (void)json({"fit", train, "--save", model});
  auto document = nlohmann::json::parse(contents_of(model));
  const auto refused = [&](const nlohmann::json& changed) {
    return misuse({"predict", folder_.write("changed.json", changed.dump()), train});
  };
  auto other = document;
  other["format_version"] = 2;
  EXPECT_THAT(refused(other), HasSubstr("has format 2 of models"));
  other = document;
  other["coefficients"].erase(0);
  EXPECT_THAT(refused(other), HasSubstr("is damaged: coefficients is not a list of 4 numbers"));
  other = document;
  other["coefficients"][0] = nullptr;
  EXPECT_THAT(refused(other), HasSubstr("is damaged: coefficients has null"));
  other = document;
  other.erase("input");
  EXPECT_THAT(refused(other), HasSubstr("is damaged: a member is missing"));
  EXPECT_THAT(misuse({"predict", train, train}),
              HasSubstr("is not a model that onestep fit --save or onestep tune --save wrote"));
  EXPECT_THAT(misuse({"predict", "/nowhere.json", train}), HasSubstr("/nowhere.json: cannot be opened"));
  EXPECT_THAT(misuse({"fit", train, "--save", "/no/such/m.json"}), HasSubstr("there is no folder /no/such"));
}

// ---- scores ----

TEST(JobScores, AreThoseOfTheirDefinitions) {
  JobData job;
  job.loss = Loss::logistic;
  job.labels = {0, 1};
  const Array z{-1.0, 0.5, 0.5, 2.0, -0.3}, y{-1.0, -1.0, 1.0, 1.0, 1.0};
  const Scores s = scores_of(job, z, y);
  EXPECT_DOUBLE_EQ(s.accuracy, 0.6);
  EXPECT_DOUBLE_EQ(s.balanced, (0.5 + 2.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(*s.auc, 4.5 / 6) << "six pairs, a tie and one in the wrong order";
  EXPECT_EQ(s.confusion, (std::vector<std::vector<std::size_t>>{{1, 1}, {1, 2}}));
  double brier = 0, loss = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    const double p = 1 / (1 + std::exp(-z.values()[i])), t = y.values()[i] > 0 ? 1 : 0;
    brier += (p - t) * (p - t) / 5;
    loss -= std::log(t > 0 ? p : 1 - p) / 5;
  }
  EXPECT_NEAR(s.brier, brier, 1e-15);
  EXPECT_NEAR(s.loss, loss, 1e-15);
  EXPECT_FALSE(scores_of(job, Array{1.0, 2.0}, Array{1.0, 1.0}).auc) << "one class only";
  job.loss = Loss::ridge;
  const Scores q = scores_of(job, Array{1.0, 2.0, 4.0}, Array{1.0, 3.0, 5.0});
  EXPECT_DOUBLE_EQ(q.r2, 1 - 2.0 / 8);
  EXPECT_DOUBLE_EQ(q.rmse, std::sqrt(2.0 / 3));
  EXPECT_DOUBLE_EQ(q.mae, 2.0 / 3);
}

TEST_F(FitAndPredict, FoldsJudgeWhatTheyHaveNotSeen) {
  // Labels that say nothing: what is learned looks good on the samples it was learned from and nowhere else.
  Random random(6);
  std::string text;
  for (int i = 0; i < 40; ++i) {
    text += random.flip() ? "1" : "2";
    for (int j = 0; j < 20; ++j) text += fmt::format(" {}:{:.6f}", j + 1, random.uniform(-1, 1));
    text += "\n";
  }
  const auto found = json({"fit", folder_.write("noise", text), "--l2", "0.01"});
  EXPECT_GT(found["train"]["accuracy"], 0.75);
  EXPECT_LT(found["cross_validation"]["accuracy"], 0.65);
  EXPECT_EQ(found["cross_validation"]["samples"], 40);
  EXPECT_EQ(found["cross_validation"]["folds"], 5);
  EXPECT_FALSE(json({"fit", path("noise"), "--folds", "0"}).contains("cross_validation"));
  EXPECT_THAT(misuse({"fit", path("noise"), "--folds", "41"}), HasSubstr("--folds 41"));
}

// ---- standard errors ----

// Sixty samples that statsmodels saw too.
std::string three_classes() {
  const double truth[] = {1.5, -2, 0.5, 0};
  std::string text;
  for (int i = 0; i < 60; ++i) {
    double target = 0.25 + std::cos(5.0 * i);
    std::string features;
    for (int j = 0; j < 4; ++j) {
      const double a = std::nearbyint(1000 * std::sin(1.3 * i + 2.1 * j + 0.7 * i * j)) / 1000;
      target += truth[j] * a;
      features += fmt::format(" {}:{:f}", j + 1, a);
    }
    text += fmt::format("{}{}\n", target < -0.8 ? 0 : target < 0.8 ? 1 : 2, features);
  }
  return text;
}

TEST_F(FitAndPredict, SoftmaxStandardErrorsAreThoseOfMnlogit) {
  // statsmodels' MNLogit by Newton's method to 1e-14; its contrasts with class 0, as differences from the mean of the
  // classes.
  const std::vector<std::vector<double>> wanted{{3.497678510483, 1.789456438219, 1.985436815387},
                                                {4.177717730433, 2.140450969365, 2.384284285687},
                                                {2.500275272898, 1.278015365083, 1.368382861338},
                                                {1.636600794491, 0.843667435734, 0.919674822385}};
  const std::vector<double> intercept{1.646662223902, 0.851796993451, 0.888423037929};
  const std::string file = folder_.write("three", three_classes());
  const auto found = json({"fit", file, "--l2", "0"}), little = json({"fit", file, "--l2", "1e-9"});
  EXPECT_EQ(found["standard_errors_of"], "estimate");
  EXPECT_EQ(little["standard_errors_of"], "posterior");
  EXPECT_NEAR(found["coefficients"][0][0], -7.597245845712, 1e-7);
  EXPECT_NEAR(found["intercept"][2], 0.807589314614, 1e-7);
  for (std::size_t k = 0; k < 3; ++k) {
    for (std::size_t j = 0; j < 4; ++j) EXPECT_NEAR(found["standard_errors"][j][k], wanted[j][k], 1e-6 * wanted[j][k]);
    for (std::size_t j = 0; j < 4; ++j) EXPECT_NEAR(little["standard_errors"][j][k], wanted[j][k], 1e-5 * wanted[j][k]);
    EXPECT_NEAR(found["intercept_standard_error"][k], intercept[k], 1e-6);
  }
}

// ---- features that say nothing of their own ----

TEST_F(FitAndPredict, DependentFeaturesAreNamedAndLeftOutWithoutAPenalty) {
  Random random(7);
  for (const double unit : {1.0, 1e12, 1e-12}) {
    std::string text = "a,b,same,sum,one,y\n";
    for (int i = 0; i < 40; ++i) {
      const double a = random.uniform(-1, 1), b = random.uniform(-1, 1) + 100;
      text += fmt::format("{},{},{},{},7,{}\n", a, b, unit * a, a * 1e-3 + 2 * b, a + b + random.uniform(-1, 1));
    }
    const std::string file = folder_.write("d.csv", text);
    const auto found = json({"fit", file, "--l2", "0", "--save", path("m.json")});
    EXPECT_EQ(found["names"], (std::vector<std::string>{"a", "b"})) << unit;
    EXPECT_THAT(found["notes"],
                Contains(unit == 1 ? "same is left out: it equals a" : "same is left out: it is a in another unit"));
    EXPECT_THAT(found["notes"], Contains("sum is left out: it is a linear combination of a, b"));
    EXPECT_THAT(found["notes"], Contains("one is left out: it is constant"));
    EXPECT_TRUE(found.contains("standard_errors"));
    EXPECT_LE(found["iterations"], 3);
    EXPECT_EQ(json({"predict", path("m.json"), file})["scores"], found["train"]) << "and predict knows";
  }
  EXPECT_THAT(misuse({"fit", folder_.write("wide", "1.5 1:1 2:2 3:1\n2 1:2 2:1 3:5\n3 1:1 2:1 3:4\n"), "--l2", "0"}),
              HasSubstr("3 samples do not determine 3 coefficients"));
}

TEST_F(FitAndPredict, TheFitDoesNotDependOnUnitsWithoutAPenalty) {
  Random random(8);
  std::string plain, scaled;
  for (int i = 0; i < 60; ++i) {
    const double a = random.uniform(-1, 1), b = random.uniform(-1, 1);
    const int y = a - b + 2 * random.uniform(-1, 1) > 0 ? 1 : 0;
    plain += fmt::format("{} 1:{:.9f} 2:{:.9f}\n", y, a, b);
    scaled += fmt::format("{} 1:{:.9f}e12 2:{:.9f}e-12\n", y, a, b);
  }
  const auto one = json({"fit", folder_.write("plain", plain), "--l2", "0"}),
             two = json({"fit", folder_.write("scaled", scaled), "--l2", "0"});
  EXPECT_NEAR(two["coefficients"][0].get<double>() * 1e12, one["coefficients"][0], 1e-8);
  EXPECT_NEAR(two["coefficients"][1].get<double>() * 1e-12, one["coefficients"][1], 1e-8);
  EXPECT_NEAR(two["standard_errors"][1].get<double>() * 1e-12, one["standard_errors"][1], 1e-8);
}

TEST_F(FitAndPredict, FeaturesOfVeryDifferentSizesAreSaidToBeSo) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += fmt::format("{} 1:{} 2:{}e4\n", 0.1 * (i % 5), i % 7, i % 3);
  const std::string file = folder_.write("sizes", text);
  EXPECT_THAT(json({"fit", file, "--folds", "0"})["notes"], ElementsAre(HasSubstr("the penalty treats them alike")));
  EXPECT_THAT(json({"fit", file, "--standardise", "--folds", "0"})["notes"], IsEmpty());
  EXPECT_THAT(json({"fit", file, "--l2", "0", "--folds", "0"})["notes"], IsEmpty());
}

TEST_F(FitAndPredict, ASmallPenaltyDoesNotMakeUnitsOrCopiesSlow) {
  Random random(9);
  std::string text = "a,b,copy,one,y\n";
  for (int i = 0; i < 60; ++i) {
    const double a = random.uniform(-1, 1), b = random.uniform(-1, 1);
    const double z = 2 * a - b + random.uniform(-2, 2);
    text += fmt::format("{},{}e5,{},1000,{}\n", a, b, 1.8 * a + 32, z < -0.5 ? "c" : z < 0.5 ? "b" : "a");
  }
  for (const char* l2 : {"1e-6", "1e-2"}) {
    const auto found = json({"fit", folder_.write("s.csv", text), "--l2", l2});
    EXPECT_LT(found["iterations"], 60) << l2;
    EXPECT_LT(found["gradient"], 1e-6) << l2;
    EXPECT_EQ(found["coefficients"][3][0], 0) << "of the constant";
  }
}

// 6/20 + 7/20 + 7/20 is less than 1 in double precision.
TEST_F(FitAndPredict, AllLabelsRightAreAnAccuracyOfOneAndSeparable) {
  std::string text = "a,b,kind\n";
  for (int i = 0; i < 20; ++i)
    text += fmt::format("{},{},{}\n", (i % 3 == 1 ? 9 : 0) + 0.01 * i, (i % 3 == 2 ? 9 : 0) - 0.02 * i,
                        i % 3 == 2   ? "a"
                        : i % 3 == 1 ? "b"
                                     : "c");
  const auto found = json({"fit", folder_.write("corners.csv", text), "--l2", "0.01"});
  EXPECT_EQ(found["train"]["accuracy"], 1.0);
  EXPECT_THAT(found["notes"].dump(), HasSubstr("the classes are linearly separable"));
}

TEST_F(FitAndPredict, SeparableClassesAreCalledSo) {
  const std::string file = folder_.write("apart", "0 1:1\n0 1:2\n1 1:3\n1 1:4\n");
  EXPECT_THAT(misuse({"fit", file, "--l2", "0"}), HasSubstr("linearly separable"));
  EXPECT_THAT(json({"fit", file})["notes"][0], HasSubstr("the classes are linearly separable"));
  // Three classes of which one is apart from the others, which are not apart from each other.
  std::string one_apart;
  for (int i = 0; i < 12; ++i)
    one_apart += fmt::format("{} 1:{} 2:{}\n", i % 3, i % 3 == 0 ? 9 + i : (i * 5) % 7, (i * 7) % 5);
  EXPECT_THAT(misuse({"fit", folder_.write("one", one_apart), "--l2", "0"}),
              HasSubstr("the class 0 is linearly separable from the others"));
  // A feature that only samples of one class have.
  std::string rare;
  for (int i = 0; i < 60; ++i) rare += fmt::format("{} 1:{}{}\n", i % 2, (i * 7) % 5, i % 20 == 3 ? " 2:1" : "");
  EXPECT_THAT(misuse({"fit", folder_.write("rare", rare), "--l2", "0"}),
              HasSubstr("(for instance, feature 2 has another value than 0 in samples with the label 1 only)"));
  EXPECT_THAT(json({"fit", folder_.write("not", "0 1:1\n1 1:2\n0 1:3\n1 1:4\n")})["notes"], IsEmpty());
}

// Samples of one town never have the label c, and else all labels overlap: the fit pushes one coefficient to infinity, and
// rounding lets that look like convergence.
TEST_F(FitAndPredict, ClassesThatAreSeparableButForTheRestAreCalledSo) {
  for (const bool two_labels : {false, true}) {
    Random random(4);
    std::string text = "a,b,town,y\n";
    for (int i = 0; i < 150; ++i) {
      const bool bern = i % 6 == 0;
      const char* const label = two_labels           ? (bern || random.flip() ? "a" : "c")
                                : i % 3 == 1 || bern ? "a"
                                : i % 3 == 2         ? "b"
                                                     : "c";
      text += fmt::format("{:.4f},{:.4f},{},{}\n", random.uniform(-1, 1), random.uniform(-1, 1), bern ? "Bern" : "Cork",
                          !two_labels && bern && i % 12 == 0 ? "b" : label);
    }
    const std::string file = folder_.write("t.csv", text);
    EXPECT_THAT(misuse({"fit", file, "--l2", "0"}), HasSubstr("linearly separable")) << two_labels;
    EXPECT_THAT(misuse({"influence", file, "--l2", "0"}), HasSubstr("linearly separable")) << two_labels;
    EXPECT_THAT(misuse({"tune", file, "--l2", "0", "--hyper", "class-weight"}), HasSubstr("linearly separable"));
    EXPECT_EQ(json({"fit", file, "--l2", "1e-6"})["status"], "converged");
  }
}

TEST_F(FitAndPredict, OneFoldWithoutWhichClassesAreSeparableHasNoScores) {
  Random random(6);
  std::string text = "a,town,y\n";
  for (int i = 0; i < 90; ++i) {
    const bool bern = i % 10 == 0;
    text += fmt::format("{:.4f},{},{}\n", random.uniform(-1, 1), bern ? "Bern" : "Cork",
                        (bern ? i == 0 : random.flip()) ? 1 : 0);
  }
  const auto found = json({"fit", folder_.write("t.csv", text), "--l2", "0"});
  EXPECT_EQ(found["cross_validation"].value("failure", ""), "without one of the folds the classes are linearly separable");
}

// Certain samples and coefficients that are hardly known do not make classes separable.
TEST_F(FitAndPredict, ClassesWithCertainSamplesAreNotCalledSeparable) {
  for (const bool softmax : {false, true}) {
    Random random(9);
    std::string text = "a,nearly_a,y\n";
    for (int i = 0; i < 120; ++i) {
      const int k = i % (softmax ? 3 : 2);
      const double a = random.uniform(-1, 1) + k + (i % 20 == 0 ? 40 * (k - 0.5) : 0);
      text += fmt::format("{:.9f},{:.9f},{}\n", a, a + 1e-5 * random.uniform(-1, 1), k);
    }
    const auto found = json({"fit", folder_.write("t.csv", text), "--l2", "0"});
    EXPECT_FALSE(found.contains("left_out"));
    EXPECT_LT(found["train"]["accuracy"], 1);
  }
}

// ---- what is guessed ----

// Labels are then certain to many digits, which a difference of a logarithm and a score would not show.
TEST_F(FitAndPredict, SeparablePixelsConvergeWhateverTheirUnit) {
  Random random(11);
  constexpr int classes = 6, pixels = 20;
  std::vector<double> means;
  for (int i = 0; i < classes * pixels; ++i) means.push_back(random.uniform(0, 255));
  std::string raw, scaled;
  for (int i = 0; i < 180; ++i) {
    const int k = i % classes;
    raw += fmt::format("{}", k), scaled += fmt::format("{}", k);
    for (int j = 0; j < pixels; ++j) {
      const double noisy = means[static_cast<std::size_t>(k * pixels + j)] + random.uniform(-60, 60);
      const double value = std::round(std::clamp(noisy, 0.0, 255.0));
      raw += fmt::format(" {}:{}", j + 1, value), scaled += fmt::format(" {}:{}", j + 1, value / 256);
    }
    raw += '\n', scaled += '\n';
  }
  const auto of = [&](const std::string& text, const std::string& l2) {
    return json({"fit", folder_.write("pixels", text), "--loss", "softmax", "--l2", l2, "--folds", "2"});
  };
  const auto first = of(raw, "0.0078125"), second = of(scaled, "1.1920928955078125e-07");  // 2⁻⁷, 2⁻²³
  double largest = 0, difference = 0;
  for (std::size_t j = 0; j < pixels; ++j)
    for (std::size_t k = 0; k < classes; ++k) {
      const double a = first["coefficients"][j][k], b = second["coefficients"][j][k];
      largest = std::max(largest, std::fabs(a)), difference = std::max(difference, std::fabs(a - b / 256));
    }
  EXPECT_LT(difference, 1e-11 * largest);
}

TEST_F(FitAndPredict, WholeNumbersAreClassesOnlyWhereTheyLookLikeThem) {
  const auto guess = [&](const std::vector<int>& labels) {
    std::string text;
    for (std::size_t i = 0; i < 3 * labels.size(); ++i)
      text += fmt::format("{} 1:{} 2:{}\n", labels[i % labels.size()], (i * 7) % 11, (i * 5) % 13);
    const auto found = json({"fit", folder_.write("labels", text)});
    const std::string loss = found["loss"];
    EXPECT_EQ(found["notes"].dump().find("--loss") == std::string::npos, labels.size() <= 2);
    if (labels.size() > 2) {
      EXPECT_THAT(found["notes"][0], HasSubstr(loss == "ridge" ? "--loss softmax" : "--loss ridge"));
    }
    return loss;
  };
  EXPECT_EQ(guess({2, 4}), "logistic");
  EXPECT_EQ(guess({0, 1, 2}), "softmax");
  EXPECT_EQ(guess({-1, 0, 1}), "softmax");
  EXPECT_EQ(guess({3, 4, 5, 6, 7, 8}), "ridge") << "marks of wines";
  EXPECT_EQ(guess({4, 6, 8}), "ridge") << "cylinders";
  EXPECT_EQ(guess({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}), "ridge");
}

TEST_F(FitAndPredict, WhatWasGuessedIsSaid) {
  const std::string file = folder_.write("g.csv", "1,5;rot;2,5\n2,5;blau;1\n0,5;rot;2\n3,5;blau;1\n4;rot;3\n");
  const Ended ended = run_command({"fit", file});
  EXPECT_EQ(ended.status, 0) << ended.err;
  for (const char* note :
       {"Note: g.csv: numbers have a comma before their decimals.", "Note: g.csv: semicolons separate the fields.",
        "Note: g.csv: there is no header: the first line was taken for a sample.",
        "\"2\" is a category: \"rot\" compared with the reference \"blau\"."})
    EXPECT_THAT(ended.out, HasSubstr(note));
  EXPECT_EQ(json({"fit", file, "--header", "no", "--separator", ";", "--decimal", "comma"})["notes"].size(), 1U);
  EXPECT_THAT(
      json({"fit", folder_.write("i.csv", "id,a,y\n1,5,2.5\n2,1,1.5\n3,2,1.7\n4,7,1.1\n5,1,2\n6,9,1.6\n")})["notes"],
      Contains(
          "i.csv: \"id\" counts the samples and may be an identifier, which says nothing about others: if so, drop it"));
  EXPECT_THAT(misuse({"fit", folder_.write("d.csv", "day,a,y\n2024-01-01,1,2.5\n2024-01-02,2,1.5\n")}),
              HasSubstr("looks like a date or a time, which a linear model cannot use as it is"));
  EXPECT_THAT(misuse({"fit", folder_.write("y.csv", "a,y\n1,2\n2,\n")}),
              HasSubstr("\"y\" is missing; fill in the target, or leave the sample out (--missing drop)\n"));
  EXPECT_THAT(misuse({"fit", folder_.write("n.csv", "a,y\n1,2\n,3\n")}),
              HasSubstr("onestep: " + path("n.csv") +
                        ":3: field 1: the value of \"a\" is missing; fill it in, or leave the sample "
                        "out (--missing drop), or replace such values (--missing impute)"));
}

// ---- the command line ----

TEST_F(FitAndPredict, WordsThatAreNearlyRightAreSuggested) {
  EXPECT_EQ(misuse({"fti", "a"}), "onestep: there is no verb fti; did you mean fit?; see onestep --help\n");
  EXPECT_THAT(misuse({"infl", "a"}), HasSubstr("did you mean influence?"));
  EXPECT_THAT(misuse({"xyz", "a"}), Not(HasSubstr("did you mean")));
  EXPECT_THAT(misuse({"fit", "a", "--standarize"}), HasSubstr("did you mean --standardize?"));
  EXPECT_THAT(misuse({"help", "fitt"}), HasSubstr("did you mean fit?"));
  EXPECT_EQ(run_command({"help", "fit"}).out, run_command({"fit", "--help"}).out);
  EXPECT_EQ(run_command({"help"}).out, run_command({"--help"}).out);
}

TEST_F(FitAndPredict, OneIterationIsNotSeveral) {
  const std::string file = folder_.write("q", "1.5 1:1\n2.5 1:2\n3.5 1:4\n1 1:3\n");
  const int iterations = json({"fit", file})["iterations"];
  EXPECT_THAT(run_command({"fit", file}).out,
              HasSubstr(fmt::format(" in {} iteration{},", iterations, iterations == 1 ? "" : "s")));
  EXPECT_EQ(app::counted(0, "iteration"), "0 iterations");
  EXPECT_EQ(app::counted(1, "iteration"), "1 iteration");
  EXPECT_EQ(app::counted(21, "iteration"), "21 iterations");
}

// ---- what is not defined is not 0 ----

TEST_F(FitAndPredict, ATargetThatIsConstantHasNoR2) {
  // The mean of these is not 0.1 to the bit.
  const std::string constant = folder_.write("c.csv", "a,y\n1,0.1\n2,0.1\n4,0.1\n3,0.1\n5,0.1\n7,0.1\n6,0.1\n9,0.1\n"),
                    varies = folder_.write("v.csv", "a,y\n1,0.1\n2,0.3\n4,0.4\n3,0.2\n5,0.55\n7,0.7\n6,0.6\n9,0.8\n"),
                    model = path("model.json");
  const auto fitted = json({"fit", constant, "--loss", "ridge"});
  EXPECT_TRUE(fitted["train"]["R2"].is_null()) << fitted["train"];
  EXPECT_EQ(fitted["train"]["rmse"].get<double>() < 1e-12, true);
  EXPECT_THAT(run_command({"fit", constant, "--loss", "ridge"}).out, HasSubstr("R2 not defined: the target is constant"));
  json({"fit", varies, "--save", model});
  EXPECT_TRUE(json({"predict", model, constant})["scores"]["R2"].is_null());
  EXPECT_TRUE(json({"influence", varies, "--test", constant})["test"]["R2"].is_null());
  EXPECT_TRUE(json({"tune", varies, "--folds", "2", "--test", constant})["test"]["R2"].is_null());
}

// ---- every refusal has a way out ----

TEST_F(FitAndPredict, RefusalsNameTheThingAndTheWayOut) {
  const std::string two = folder_.write("two.csv", "a,b,y\n1,2,u\n2,1,v\n3,3,u\n4,5,v\n"),
                    numbers = folder_.write("n.csv", "1,2,0\n2,1,1\n3,3,0\n4,5,1\n"), model = path("model.json");
  EXPECT_THAT(misuse({"fit", two, "--test", folder_.write("t.csv", "a,b,y\n1,2,w\n")}),
              HasSubstr("is \"w\", which is not among the classes that were learned from, \"u\", \"v\"; correct it, leave "
                        "the sample out, or learn from samples that have it"));
  EXPECT_THAT(misuse({"fit", folder_.write("s", "1 1:1\n-1 1:2\n1 1:3\n"), "--test", folder_.write("t", "3 1:1\n")}),
              HasSubstr("t: the label of sample 1 is 3, which no sample of s has; correct it, leave the sample out"));
  EXPECT_THAT(misuse({"fit", numbers, "--header", "no", "--test", folder_.write("m.csv", "1,2,u\n"), "--loss", "logistic"}),
              HasSubstr("write them in the same way in both"));
  EXPECT_THAT(misuse({"tune", folder_.write("q.csv", "a,y\n1,0.5\n2,1.5\n3,2.5\n4,1\n"), "--hyper", "class-weight"}),
              HasSubstr("the target of q.csv is a quantity; if it has classes: --loss softmax"));
  EXPECT_THAT(misuse({"fit", folder_.write("h.csv", "a,y\n1,0.5\n2,1\n3,0\n"), "--loss", "logistic"}),
              HasSubstr("the label of sample 1 is 0.5; a quantity takes --loss ridge"));
  // What predict advises, predict has.
  json({"fit", two, "--save", model});
  const std::string lacks = folder_.write("l.csv", "a,b\n1,\n");
  EXPECT_THAT(misuse({"predict", model, lacks}),
              HasSubstr("is missing; fill it in, or leave the sample out (onestep fit --missing impute makes a model"));
  EXPECT_THAT(misuse({"fit", folder_.write("e.csv", "a,b,y\n")}), HasSubstr("say that there is no header (--header no)\n"));
  EXPECT_THAT(misuse({"fit", folder_.write("f.csv", "a,b,y\n1,2,3\n"), "--drop", "y", "--target", "y"}),
              HasSubstr("name another target (--target COLUMN)\n"));
}

// One feature of three values: there are three probabilities, in whatever order the samples stand.
TEST_F(FitAndPredict, SamplesWithTheSameProbabilityAreOneGroupOfTheCalibration) {
  std::vector<std::string> rows;
  for (int i = 0; i < 120; ++i) rows.push_back(fmt::format("{},{}\n", i % 3, i % 7 < 1 + 2 * (i % 3) ? "yes" : "no"));
  const auto scores = [&](const std::string& name) {
    std::string text = "a,y\n";
    for (const std::string& row : rows) text += row;
    return json({"fit", folder_.write(name, text), "--l2", "0.1"})["train"];
  };
  const nlohmann::json as_is = scores("as_is.csv");
  std::ranges::sort(rows);
  const nlohmann::json sorted = scores("sorted.csv");
  ASSERT_EQ(as_is["calibration"].size(), 3U);
  std::size_t samples = 0;
  for (const nlohmann::json& group : as_is["calibration"]) samples += group["count"].get<std::size_t>();
  EXPECT_EQ(samples, 120U);
  EXPECT_NEAR(as_is["calibration_error"], sorted["calibration_error"], 1e-12);
  // Three groups of 40, observed shares 1/7, 3/7 and 5/7 but for whole samples.
  double error = 0;
  for (const nlohmann::json& group : sorted["calibration"])
    error += std::fabs(group["predicted"].get<double>() - group["observed"].get<double>()) / 3;
  EXPECT_NEAR(sorted["calibration_error"], error, 1e-12);
}

TEST_F(FitAndPredict, AModelThatSomebodyEditedIsRefusedWhereItContradictsItself) {
  const std::string data = folder_.write("h.csv", houses(3, 60, "two")), model = path("m.json");
  ASSERT_EQ(run_command({"fit", data, "--save", model}).status, 0);
  const std::string text = contents_of(model);
  const auto edited = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    const std::size_t at = other.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    other.replace(at, from.size(), to);
    return misuse({"predict", folder_.write("other.json", other), data});
  };
  EXPECT_THAT(edited(R"("features": ["area","town=Bern")", R"("features": ["town=Bern","area")"),
              HasSubstr("its feature 1"));
  EXPECT_THAT(edited(R"(["Arles","Bern","Cork"])", R"(["Arles","Cork","Bern"])"), HasSubstr("by its columns"));
  EXPECT_THAT(edited(R"("reference":"Arles")", R"("reference":"Ulm")"), HasSubstr("lacks a level"));
  EXPECT_THAT(edited(R"("loss": "logistic")", R"("loss": "ridge")"), HasSubstr("has no classes"));
  EXPECT_THAT(edited(R"("loss": "logistic")", R"("loss": "hinge")"), HasSubstr("no loss hinge"));
  EXPECT_THAT(edited(R"("samples": 60)", R"("samples": -1)"), HasSubstr("no samples"));
  EXPECT_THAT(edited(R"("missing":"refuse")", R"("missing":"foo")"), HasSubstr("called foo"));
  EXPECT_THAT(edited(R"("names":["cheap","dear"])", R"("names":["dear","dear"])"), HasSubstr("one name"));
  EXPECT_THAT(edited(R"("intercept":)", R"("intercept": 3, "intercept":)"), HasSubstr("intercept stands twice"));
  EXPECT_THAT(edited(R"("l2": 1)", R"("l2": -1)"), HasSubstr("l2"));
}

}  // namespace
}  // namespace onestep::test
