// `tune`: what it is worth on samples that it has not seen, what it is judged by, and going on after `kill -9`.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "app/run_command.h"
#include "jobs/journal.h"
#include "support/random.h"

namespace onestep::test {
namespace {

using ::testing::HasSubstr;

struct Made {
  std::string kind;  // logistic, ridge or softmax
  int samples = 0, features = 0, useful = 0;
  double noise = 0.5, unit = 1;  // unit: of the features
};

// A linear model of which only the first features are worth something. Header and target last.
std::string made_csv(std::uint64_t seed, const Made& how, int samples) {
  Random truth(seed), random(7 * seed + static_cast<std::uint64_t>(samples));
  std::vector<std::array<double, 2>> weights;
  for (int j = 0; j < how.features; ++j) {
    const double first = truth.uniform(-2, 2), second = truth.uniform(-2, 2);
    weights.push_back({first, second});
  }
  std::string text;
  for (int j = 0; j < how.features; ++j) text += fmt::format("f{},", j);
  text += "y\n";
  for (int i = 0; i < samples; ++i) {
    double first = how.noise * random.uniform(-2, 2), second = how.noise * random.uniform(-2, 2);
    for (int j = 0; j < how.features; ++j) {
      const double a = random.uniform(-1, 1);
      const auto [of_first, of_second] = weights[static_cast<std::size_t>(j)];
      if (j < how.useful) first += of_first * a, second += of_second * a;
      text += fmt::format("{:.17g},", how.unit * a);
    }
    if (how.kind == "ridge")
      text += fmt::format("{:.17g}\n", first);
    else if (how.kind == "logistic")
      text += first > 0 ? "1\n" : "0\n";
    else
      text += first > 0.5 ? "a\n" : second > 0 ? "b\n" : "c\n";
  }
  return text;
}

class Tune : public ::testing::Test {
 protected:
  nlohmann::json json(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "tune");
    arguments.emplace_back("--json");
    const Ended ended = run_command(arguments);
    EXPECT_EQ(ended.status, 0) << ended.err;
    return ended.json();
  }
  // The mean losses on samples that were set aside, with one penalty and with many.
  std::pair<nlohmann::json, nlohmann::json> shared_and_single(std::uint64_t seed, const Made& how) {
    const std::string train = folder_.write("train.csv", made_csv(seed, how, how.samples)),
                      test = folder_.write("test.csv", made_csv(seed, how, 400));
    std::vector<std::string> arguments{train, "--test", test, "--loss", how.kind, "--hyper", "l2"};
    const auto shared = json(arguments);
    arguments.back() = "l2-per-feature";
    return {shared, json(arguments)};
  }
  TemporaryFolder folder_;
};

TEST_F(Tune, PenaltiesOfSingleFeaturesAreClearlyBetterWhereFewFeaturesAreWorthSomething) {
  for (const Made& how : {Made{"ridge", 80, 20, 2}, Made{"logistic", 200, 20, 2}}) {
    const auto [shared, single] = shared_and_single(1, how);
    EXPECT_GT(single["spread"]["deviation"], 0) << how.kind;
    EXPECT_LT(single["test"]["loss"], 0.95 * shared["test"]["loss"].get<double>()) << how.kind;
    // A feature that is worth nothing is held down more than one that is worth something.
    const std::vector<double> penalties = single["hyperparameters"]["values"];
    for (std::size_t j = 2; j < penalties.size(); ++j) EXPECT_GT(penalties[j], std::min(penalties[0], penalties[1])) << j;
  }
}

// The heavy comparison, on real sets, is bench/peers; these twenty are small, few of them with anything to gain.
TEST_F(Tune, PenaltiesOfSingleFeaturesAreNeverWorseThanOneByMoreThanAStandardError) {
  int kept = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const char* kinds[] = {"ridge", "logistic"};
    const Made how{kinds[seed % 2], 40 + 5 * static_cast<int>(seed % 5), 6, static_cast<int>(seed % 7), 1};
    const auto [shared, single] = shared_and_single(seed, how);
    const double before = shared["test"]["loss"], after = single["test"]["loss"];
    // Where one penalty is kept it is the one that --hyper l2 finds, to the bit.
    if (single["spread"]["deviation"] == 0.0) {
      ++kept;
      EXPECT_EQ(before, after) << seed;
      EXPECT_EQ(shared["hyperparameters"]["values"][0], single["hyperparameters"]["values"][0]);
      continue;
    }
    // The standard error of the difference that nested folds saw, of fewer samples than the test has.
    const auto& tried = single["spread"]["tried"];
    double error = 0;
    for (const auto& one : tried)
      if (one["deviation"] == single["spread"]["deviation"]) error = one["gain_error"];
    EXPECT_LE(after, before + error) << seed << " " << how.kind;
  }
  EXPECT_GE(kept, 5);
  EXPECT_LT(kept, 20);
}

TEST_F(Tune, FoldsAreTheDefaultForFewSamplesAndWhatIsMinimisedIsNotCalledUnseen) {
  const std::string file = folder_.write("a.csv", made_csv(3, {"logistic", 60, 4, 2}, 60));
  EXPECT_EQ(json({file})["folds"], 5);
  EXPECT_EQ(json({file, "--split", "0.3"})["folds"], 0);
  EXPECT_EQ(json({file, "--folds", "3"})["folds"], 3);
  const std::string one = run_command({"tune", file}).out,
                    many = run_command({"tune", file, "--hyper", "l2-per-feature"}).out;
  EXPECT_THAT(one, HasSubstr("folds, minimised"));
  EXPECT_THAT(one, ::testing::Not(HasSubstr("unseen")));
  EXPECT_THAT(many, HasSubstr("nested folds, unseen"));
  const auto split = json({file, "--split", "0.5", "--hyper", "l2-per-feature"});
  EXPECT_EQ(split["spread"]["tried"][0]["deviation"], 0);
  // Ten samples are too few for nested folds; that is said.
  const auto tiny = json({folder_.write("b.csv", made_csv(3, {"ridge", 12, 2, 1}, 12)), "--hyper", "l2-per-feature"});
  EXPECT_EQ(tiny["spread"]["tried"].size(), 0U);
  EXPECT_THAT(tiny["spread"]["note"], HasSubstr("too few samples"));
}

TEST_F(Tune, TheTableHasTheLossThatIsMinimised) {
  const std::string file = folder_.write("a.csv", made_csv(4, {"logistic", 90, 3, 1}, 90));
  const auto found = json({file, "--hyper", "class-weight", "--split", "0.4"});
  EXPECT_NEAR(found["valid"]["balanced_loss"], found["loss_minimised"], 1e-9);
  EXPECT_NEAR(found["search"]["loss"], found["loss_minimised"], 1e-9);
}

TEST_F(Tune, DoesNotDependOnTheUnitOfTheFeatures) {
  Made made{"logistic", 80, 5, 2};
  const auto written = [&](double unit) {
    made.unit = unit;
    return folder_.write(fmt::format("{}.csv", unit), made_csv(5, made, 80));
  };
  const auto plain = json({written(1)}), standardised = json({written(1), "--standardise"});
  for (const double unit : {1e7, 1e-4}) {
    const auto other = json({written(unit)});
    EXPECT_NEAR(other["loss_minimised"], plain["loss_minimised"], 1e-6) << unit;
    const double l2 = plain["hyperparameters"]["values"][0];
    EXPECT_NEAR(other["hyperparameters"]["values"][0].get<double>() / (unit * unit) / l2, 1, 1e-2) << unit;
  }
  for (const double unit : {1e12, 1e-12}) {
    EXPECT_NEAR(json({written(unit)})["loss_minimised"], plain["loss_minimised"], 1e-4) << unit;
    EXPECT_NEAR(json({written(unit), "--standardise"})["loss_minimised"], standardised["loss_minimised"], 1e-6) << unit;
  }
}

// A sample alone has no R2; all of them together have the one that fit gives.
TEST_F(Tune, R2OfFoldsIsThatOfAllTheirSamplesTogether) {
  const std::string file =
      folder_.write("t.csv", made_csv(1, {.kind = "ridge", .samples = 40, .features = 4, .useful = 2}, 40));
  for (const std::string folds : {"40", "20", "5"}) {
    const auto tuned = json({file, "--loss", "ridge", "--folds", folds, "--hyper", "l2-per-feature"});
    const std::string penalty = fmt::format("{}", tuned["best_shared"]["l2"].get<double>());
    const auto fitted = run_command({"fit", file, "--loss", "ridge", "--folds", folds, "--l2", penalty, "--json"}).json();
    const auto shared = json({file, "--loss", "ridge", "--folds", folds});
    EXPECT_NEAR(shared["cross_validation"]["R2"], fitted["cross_validation"]["R2"].get<double>(), 1e-4) << folds;
    if (folds == "40")  // nested searches leave out two samples at the least
      EXPECT_EQ(tuned["spread"]["tried"].size(), 0U);
    else
      EXPECT_GT(tuned["spread"]["tried"][0]["R2"], 0.3) << folds;
  }
}

// The intercept takes up where a feature lies: the year 2000 asks for the penalty that the year 0 does.
TEST_F(Tune, DoesNotDependOnWhereTheFeaturesLie) {
  std::vector<nlohmann::json> found;
  for (const double origin : {0.0, 2000.0}) {
    Random random(2);
    std::string text = "year,y\n";
    for (int i = 0; i < 30; ++i) text += fmt::format("{},{:.6f}\n", origin + 0.25 * i, 3 * i + random.uniform(-4, 4));
    found.push_back(json({folder_.write("years.csv", text)}));
  }
  const auto penalty = [&](std::size_t k) { return found[k]["hyperparameters"]["values"][0].get<double>(); };
  EXPECT_NEAR(penalty(1), penalty(0), 1e-3 * penalty(0));
  EXPECT_NEAR(found[1]["loss_minimised"], found[0]["loss_minimised"].get<double>(), 1e-6);
  EXPECT_TRUE(found[1]["at_bounds"].empty());
}

TEST_F(Tune, ConstantAndDuplicateColumnsAreNoTrouble) {
  std::string text = "a,b,c,d,y\n";
  Random random(6);
  for (int i = 0; i < 60; ++i) {
    const double a = random.uniform(-1, 1), b = random.uniform(-1, 1);
    text += fmt::format("{0},{0},3,{1},{2}\n", a, b, a + 0.3 * random.uniform(-1, 1) > 0 ? 1 : 0);
  }
  const auto found = json({folder_.write("a.csv", text), "--hyper", "l2-per-feature"});
  for (const double value : found["hyperparameters"]["values"].get<std::vector<double>>()) EXPECT_TRUE(std::isfinite(value));
  EXPECT_TRUE(std::isfinite(found["train"]["loss"].get<double>()));
}

TEST_F(Tune, SmallClassesLeaveNoNestedFoldsWhichIsSaid) {
  // Two samples of each of ten classes: a fold leaves one of each, which cannot be held out again.
  std::string text = "a,b,y\n";
  Random random(9);
  for (int i = 0; i < 20; ++i)
    text += fmt::format("{},{},k{}\n", i % 10 + 0.1 * random.uniform(-1, 1), random.uniform(-1, 1), i % 10);
  const std::string file = folder_.write("a.csv", text);
  const auto by_folds = json({file, "--hyper", "l2-per-feature", "--folds", "2"}),
             by_split = json({file, "--hyper", "l2-per-feature", "--split", "0.5"});
  EXPECT_THAT(by_folds["spread"]["note"], HasSubstr("too few of most classes"));
  EXPECT_EQ(by_folds["spread"]["tried"].size(), 0U);
  EXPECT_THAT(by_split["spread"]["note"], HasSubstr("too few samples"));
}

// Whether the file of a checkpoint has a step, by its name.
bool has_step(const std::string& file, const std::string& step) {
  std::error_code none;
  return std::filesystem::exists(file, none) && contents_of(file).find(step) != std::string::npos;
}

TEST_F(Tune, KilledInAnyPhaseItGoesOnAndEndsWithTheSameBits) {
  const std::string file = folder_.write("a.csv", made_csv(8, {"logistic", 300, 25, 2}, 300)),
                    checkpoint = (folder_.path() / "c").string();
  const auto straight = json({file, "--hyper", "l2-per-feature"});
  ASSERT_GT(straight["probes"].size(), 3U);
  // Killed once in each phase, as soon as the step before it is in the file; at last when the search has its own.
  const std::vector<std::string> phases{"", "trying l2", "one l2 for all features", "nested round 3 of 5, one penalty",
                                        "nested round 2 of 5, penalties of deviation 1"};
  int killed = 0;
  for (std::size_t phase = 0; phase <= phases.size(); ++phase) {
    const RunningCommand running({"tune", file, "--hyper", "l2-per-feature", "--checkpoint", checkpoint});
    const auto begun = [&] {
      return phase < phases.size() ? has_step(checkpoint, phases[phase]) : std::filesystem::exists(checkpoint + ".search");
    };
    for (int i = 0; i < 100000 && !begun() && kill(running.pid(), 0) == 0; ++i) usleep(300);
    kill(running.pid(), SIGKILL);
    const int status = running.wait().status;
    killed += status == 128 + SIGKILL ? 1 : 0;
    EXPECT_TRUE(begun()) << "phase " << phase;
    if (status != 128 + SIGKILL) break;  // it was faster
  }
  EXPECT_GE(killed, 5);
  const auto resumed = json({file, "--hyper", "l2-per-feature", "--checkpoint", checkpoint});
  EXPECT_EQ(resumed["resumed"], true);
  for (const char* member : {"probes", "best_shared", "spread", "hyperparameters", "model", "loss_minimised", "train"})
    EXPECT_EQ(resumed[member], straight[member]) << member;
}

TEST_F(Tune, ClassesThatAreAllTheSameAndValuesThatAreNoNumbersAreRefused) {
  EXPECT_EQ(run_command({"tune", folder_.write("a.csv", "a,y\n1,0\n2,0\n3,0\n"), "--loss", "logistic"}).status, 2);
  EXPECT_EQ(run_command({"tune", folder_.write("b.csv", "a,y\n1,0\nnan,1\n3,0\n4,1\n")}).status, 2);
  EXPECT_EQ(run_command({"tune", folder_.write("c.csv", "")}).status, 2);
}

TEST(Journal, KeepsWhatStepsFoundToTheBitAndRefusesThatOfOtherWork) {
  TemporaryFolder folder;
  const std::string file = (folder.path() / "journal").string();
  const std::vector<double> found{1.0 / 3, std::numeric_limits<double>::infinity(), -0.0};
  {
    app::jobs::Journal journal(file, "this work");
    EXPECT_TRUE(std::filesystem::exists(file));
    EXPECT_FALSE(journal.resumed());
    EXPECT_EQ(journal.find("step"), nullptr);
    journal.keep("step", found);
    EXPECT_THROW(app::jobs::Journal(file, "this work"), FileError);  // in use
  }
  EXPECT_THROW(app::jobs::Journal(file, "other work"), FileError);
  const app::jobs::Journal again(file, "this work");
  EXPECT_TRUE(again.resumed());
  ASSERT_NE(again.find("step"), nullptr);
  EXPECT_EQ(*again.find("step"), found);
}

TEST_F(Tune, WeightsOfGroupsThatSayNothingStayEqual) {
  const std::string file = folder_.write("a.csv", made_csv(6, {"logistic", 120, 3, 1}, 120));
  std::string groups;
  for (int i = 0; i < 120; ++i) groups += fmt::format("{}\n", i * 7 % 5);
  const auto found = json({file, "--hyper", "sample-group-weight", "--groups", folder_.write("groups", groups)});
  EXPECT_EQ(found["groups"]["equal_weights_kept"], true);
  EXPECT_LE(found["groups"]["gain"].get<double>(), 2 * found["groups"]["gain_error"].get<double>());
  for (const double value : found["hyperparameters"]["values"]) EXPECT_EQ(value, 1);
  EXPECT_EQ(found["train"], found["start"]["train"]) << "the model is that of equal weights";
}

TEST_F(Tune, FeaturesInFarSmallerUnitsThanOthersHaveTheirPenalty) {
  Random random(4);
  std::string text = "x,c,y\n";
  for (int i = 0; i < 120; ++i) {
    const double x = random.uniform(-1, 1), c = random.uniform(-1, 1);
    text += fmt::format("{},{},{}\n", x, 1e10 * c, 3 * x + 3 * c + random.uniform(-1, 1) > 0 ? "a" : "b");
  }
  const auto found = json({folder_.write("u.csv", text)});
  EXPECT_LT(found["loss_minimised"], 0.4);
  EXPECT_THAT(found["notes"].dump(), HasSubstr("consider --standardise"));
}

TEST_F(Tune, ARefusalNamesWhatWouldDo) {
  std::string wide;
  for (int j = 0; j < 400; ++j) wide += fmt::format("f{},", j);
  wide += "y\n";
  Random random(8);
  for (int i = 0; i < 60; ++i) {
    for (int j = 0; j < 400; ++j) wide += fmt::format("{:.3f},", random.uniform(-1, 1));
    wide += i % 2 == 0 ? "a\n" : "b\n";
  }
  const Ended too_large = run_command({"tune", folder_.write("wide.csv", wide), "--memory", "0.1"});
  EXPECT_EQ(too_large.status, 2);
  EXPECT_THAT(too_large.err, HasSubstr("--folds 2"));
  const Ended alone = run_command({"tune", folder_.write("alone.csv", "a,y\n1,x\n2,z\n3,w\n"), "--header", "yes"});
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(alone.err, Not(HasSubstr("--split")));
  EXPECT_THAT(alone.err, HasSubstr("two samples of a label"));
}

TEST_F(Tune, TheTerminalSpeaksOfTheGradientOfTheValidationLoss) {
  const Ended said =
      run_command({"tune", folder_.write("a.csv", made_csv(3, {"logistic", 60, 4, 1}, 60)), "--compare", "grid"});
  EXPECT_THAT(said.out, HasSubstr("Gradient of the validation loss"));
  for (const char* word : {"ypergradient", "nner solve", "riticality"}) EXPECT_THAT(said.out, Not(HasSubstr(word)));
}

}  // namespace
}  // namespace onestep::test
