// The jobs `clean` and `influence` and what they are made of: judging labels by probabilities, leaving samples out.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "app/run_command.h"
#include "jobs/cleaning.h"
#include "jobs/effects.h"
#include "jobs/influence_figures.h"
#include "jobs/label_noise.h"
#include "jobs/leave_one_out.h"
#include "jobs/sample_files.h"
#include "support/random.h"

namespace onestep::test {
namespace {

using namespace app::jobs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// ---- what probabilities say about labels ----

TEST(LabelNoise, IsTakenOutOfProbabilities) {
  const LabelNoise noise{3, {0.8, 0.2, 0, 0.05, 0.9, 0.05, 0, 0.1, 0.9}, 0.13};
  const ClassProbabilities clean{3, {0.7, 0.2, 0.1, 0.15, 0.6, 0.25}};
  ClassProbabilities noisy{3, std::vector<double>(6)};
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t k = 0; k < 3; ++k)
      for (std::size_t j = 0; j < 3; ++j) noisy.row(i)[j] += clean.row(i)[k] * noise.of(k, j);
  const ClassProbabilities found = without_noise(noisy, noise);
  for (std::size_t i = 0; i < clean.entries.size(); ++i) EXPECT_NEAR(found.entries[i], clean.entries[i], 1e-3) << i;
  // No right probabilities give these; what is found are probabilities nevertheless.
  const ClassProbabilities impossible = without_noise({3, {1, 0, 0}}, noise);
  EXPECT_NEAR(impossible.row(0)[0], 1, 1e-3);
  EXPECT_NEAR(impossible.row(0)[0] + impossible.row(0)[1] + impossible.row(0)[2], 1, 1e-12);
}

TEST(LabelNoise, PosteriorIsBayesFormula) {
  const ClassProbabilities p{3, {0.5, 0.3, 0.2}};
  const ClassProbabilities q = posterior(p, {1}, even_noise(3, 0.4));
  const double sum = 0.5 * 0.2 + 0.3 * 0.6 + 0.2 * 0.2;
  EXPECT_NEAR(q.row(0)[0], 0.5 * 0.2 / sum, 1e-15);
  EXPECT_NEAR(q.row(0)[1], 0.3 * 0.6 / sum, 1e-15);
  EXPECT_NEAR(probably_right(p, {1}, even_noise(3, 0.4))[0], 0.3 * 0.6 / sum, 1e-15);
  const LabelNoise none{2, {1, 0, 0, 1}, 0};
  EXPECT_EQ(posterior({2, {1, 0}}, {1}, none).row(0)[1], 1) << "nothing speaks against a label that all else excludes";
}

// Probabilities that are right for the true classes, and labels of which a share of each class is wrong.
struct Noisy {
  Noisy(std::uint64_t seed, std::vector<double> wrong, double sharpness) {
    Random random(seed);
    for (int i = 0; i < 4000; ++i) {
      const double second = 1 / (1 + std::exp(-sharpness * random.uniform(-1, 1)));
      p.entries.insert(p.entries.end(), {1 - second, second});
      const std::size_t truth = random.uniform(0, 1) < second ? 1 : 0;
      labels.push_back(random.uniform(0, 1) < wrong[truth] ? 1 - truth : truth);
    }
  }
  ClassProbabilities p{2, {}};
  ClassIndices labels;
};

TEST(LabelNoise, ShareIsFoundWhereProbabilitiesAreRight) {
  const Noisy noisy(5, {0.15, 0.15}, 20);
  for (const double guess : {0.4, 0.01}) {
    const LabelNoise found = estimate_noise(noisy.p, noisy.labels, even_noise(2, guess), 40);
    EXPECT_NEAR(found.share, 0.15, 0.02);
  }
}

TEST(LabelNoise, OfOneClassAloneIsFound) {
  const Noisy noisy(6, {0.35, 0}, 20);
  const LabelNoise found = estimate_noise(noisy.p, noisy.labels, even_noise(2, 0.1), 40);
  EXPECT_NEAR(found.of(0, 1), 0.35, 0.03);
  EXPECT_LT(found.of(1, 0), 0.02);
}

TEST(LabelNoise, IsNotSeenInClassesThatOverlapWhereAModelIsTooSure) {
  Noisy right(7, {0, 0}, 4);
  const ClassProbabilities sure = [&] {
    ClassProbabilities p = right.p;
    for (std::size_t i = 0; i < p.count(); ++i) {
      const double odds = std::pow(p.row(i)[1] / p.row(i)[0], 3);
      p.row(i)[0] = 1 / (1 + odds), p.row(i)[1] = odds / (1 + odds);
    }
    return p;
  }();
  EXPECT_GT(estimate_noise(sure, right.labels, even_noise(2, 0.1), 40).share, 0.1);
  const CalibratedNoise found = estimate_noise_and_power(sure, right.labels, even_noise(2, 0.1), 40);
  EXPECT_NEAR(found.power, 1.0 / 3, 0.05);
  EXPECT_LT(found.noise.share, 0.02);
}

TEST(LabelNoise, TheSetWithTheLargestExpectedF1IsChosen) {
  // Of the first one, two, three: 2·0.9/(1+2), 2·1.7/(2+2), 2·1.9/(3+2); all: 2·2/(4+2).
  EXPECT_THAT(most_probably_wrong(std::vector<double>{0.8, 0.1, 0.9, 0.2}), ElementsAre(false, true, false, true));
  EXPECT_THAT(most_probably_wrong(std::vector<double>{0.9, 0.8}), ElementsAre(false, false)) << "less than half a label";
}

TEST(LabelNoise, IsNotTakenForOverlapWhereAModelIsNotSureEnough) {
  Noisy right(8, {0.1, 0.1}, 20);
  ClassProbabilities unsure = right.p;
  for (std::size_t i = 0; i < unsure.count(); ++i) {
    const double odds = std::pow(unsure.row(i)[1] / unsure.row(i)[0], 0.4);
    unsure.row(i)[0] = 1 / (1 + odds), unsure.row(i)[1] = odds / (1 + odds);
  }
  EXPECT_LT(estimate_noise(unsure, right.labels, even_noise(2, 0.1), 40).share, 0.085);
  const CalibratedNoise found = estimate_noise_and_power(unsure, right.labels, even_noise(2, 0.1), 40);
  EXPECT_NEAR(found.power, 2.5, 0.4);
  EXPECT_NEAR(found.noise.share, 0.1, 0.02);
}

TEST(LabelNoise, PowerMakesLabelsMostProbable) {
  const Noisy right(9, {0, 0}, 4);
  EXPECT_NEAR(estimate_power(right.p, right.labels, 20), 1, 0.1);
  EXPECT_NEAR(estimate_power(tempered(right.p, 3), right.labels, 20), 1.0 / 3, 0.05);
  EXPECT_NEAR(estimate_power(tempered(right.p, 0.5), right.labels, 20), 2, 0.2);
}

// ---- leaving samples out ----

JobData made_job(Loss loss, std::uint64_t seed, std::int64_t count = 40, std::int64_t n = 3) {
  Random random(seed);
  JobData job;
  job.loss = loss;
  const std::size_t K = loss == Loss::softmax ? 3 : 2;
  for (std::size_t k = 0; k < K && loss != Loss::ridge; ++k) job.labels.push_back(static_cast<double>(k));
  for (std::int64_t j = 0; j < n; ++j) job.features.push_back(fmt::format("f{}", j));
  std::vector<double> a, y;
  for (std::int64_t i = 0; i < count; ++i) {
    double sum = random.uniform(-1, 1);
    for (std::int64_t j = 0; j < n; ++j) a.push_back(random.uniform(-2, 2)), sum += a.back() * (j == 0 ? 1 : 0.3);
    a.push_back(1);
    y.push_back(loss == Loss::ridge      ? sum
                : loss == Loss::logistic ? (sum > 0 ? 1 : -1)
                : sum < -0.8             ? 0
                : sum < 0.8              ? 1
                                         : 2);
    job.train.rows.push_back(static_cast<std::size_t>(i) + 1);
  }
  job.train.A = Array({count, n + 1}, a);
  job.train.y = Array({count}, y);
  if (loss == Loss::softmax) job.train.Y = one_hot({y.begin(), y.end()}, K);
  job.in_file = static_cast<std::size_t>(count);
  return job;
}

TEST(Effects, OfRemovalAreThoseOfTrainingAgain) {
  for (const Loss loss : {Loss::ridge, Loss::logistic, Loss::softmax}) {
    const JobData job = made_job(loss, 3);
    const Model model(job);
    Effects effects(job, model, 0.5, 4, 1, [](const std::string&) { return true; });
    effects.compute();
    for (const std::size_t i : {std::size_t{0}, std::size_t{7}, std::size_t{21}}) {
      const Retrained r = effects.retrain_without(i);
      // Steps end when they are a thousandth of the first.
      EXPECT_NEAR(r.removal, r.actual, 2e-3 * std::fabs(r.actual) + 1e-9) << name_of(loss) << " " << i;
      EXPECT_GT(effects.all()[i].standard_error, 0);
    }
  }
}

TEST(Effects, DoNotDependOnTheUnitsOfFeaturesWithoutAPenalty) {
  const JobData job = made_job(Loss::ridge, 4);
  JobData scaled = job;
  std::vector<double> a(job.train.A.values().begin(), job.train.A.values().end());
  for (std::size_t i = 0; i < a.size(); i += 4) a[i] *= 1e12, a[i + 1] *= 1e-12;
  scaled.train.A = Array(job.train.A.shape(), a);
  const auto removals = [](const JobData& of) {
    const Model model(of);
    Effects effects(of, model, 0, 4, 1, [](const std::string&) { return true; });
    effects.compute();
    std::vector<double> all;
    for (const Effect& e : effects.all()) all.push_back(e.removal.value());
    return all;
  };
  const std::vector<double> first = removals(job), second = removals(scaled);
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(second[i], first[i], 1e-6 * std::fabs(first[i])) << i;
}

TEST(Effects, AgreementIsThatOfALine) {
  const Agreement a = agreement({{0, 1, 2, 4}, {1, 2, -1, -2}, {2, 3, 0.5, 1}}, &Retrained::removal);
  EXPECT_NEAR(a.correlation, 1, 1e-12);
  EXPECT_NEAR(a.slope, 2, 1e-12);
  EXPECT_NEAR(a.median_error, 0.5, 1e-12);
  EXPECT_NEAR(bonferroni_errors(1), 1.959964, 1e-6);  // of the normal distribution
}

// Where labels have nothing to do with features there is nothing to gain. The rule allows one set in ten twice, for the
// loss and for the accuracy.
TEST(Cleaning, SeldomHelpsWhereLabelsAreRandom) {
  constexpr int sets = 120;
  int helps = 0;
  for (std::uint64_t seed = 1; seed <= sets; ++seed) {
    JobData job = made_job(Loss::logistic, seed, 90, 6);
    Random random(seed + 100);
    std::vector<double> y;
    for (std::int64_t i = 0; i < job.train.count(); ++i) y.push_back(random.flip() ? 1 : -1);
    job.train.y = Array({job.train.count()}, y);
    const Model model(job);
    app::CommonOptions quiet;
    quiet.quiet = true;
    app::Progress progress(quiet);
    Cleaner cleaner(job, model, nullptr, 1, seed, progress);
    const Judgement judgement = cleaner.judge();
    helps += std::ranges::count(judgement.suspects, true) > 0 && cleaner.compare().helps() ? 1 : 0;
  }
  EXPECT_LE(helps, 24);
}

// ---- the commands ----

// Two classes around two centres, as CSV with names.
std::string cloud_csv(std::uint64_t seed, int count, double apart, double scale = 1) {
  Random random(seed);
  std::string text = "a,b,c,kind\n";
  for (int i = 0; i < count; ++i) {
    const bool second = random.flip();
    for (int j = 0; j < 3; ++j) text += fmt::format("{},", scale * (random.uniform(-2, 2) + (second && j < 2 ? apart : 0)));
    text += second ? "ham\n" : "spam\n";
  }
  return text;
}

class LabelJobs : public ::testing::Test {
 protected:
  nlohmann::json json(std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    const Ended ended = run_command(arguments);
    EXPECT_EQ(ended.status, 0) << ended.err << ended.out;
    return ended.json();
  }
  TemporaryFolder folder_;
};

TEST_F(LabelJobs, InfluenceOfSamplesWithMuchLeverageIsWhatTrainingAgainFinds) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    Random random(seed);
    std::string text = "a,b,c,y\n";
    for (int i = 0; i < 80; ++i) {
      const double a = random.uniform(-1, 1), b = random.uniform(-1, 1), c = random.uniform(-1, 1);
      text += fmt::format("{},{},{},{}\n", a, b, c, a + 0.5 * b + 0.3 * random.uniform(-1, 1) > 0 ? 1 : 0);
    }
    text += "9,-4,6,0\n-8,3,5,1\n";  // far out and wrong: without them the Hessian is another one
    const auto found = json({"influence", folder_.write("a.csv", text), "--verify", "20", "--l2", "0.1"})["verify"];
    EXPECT_NEAR(found["slope"], 1, 1e-4) << seed;
    EXPECT_LT(found["largest_error"], 2e-3) << seed;
  }
}

TEST_F(LabelJobs, CleanFindsFlippedLabelsWithAndWithoutTrustedOnes) {
  const std::string train = folder_.write("train.csv", cloud_csv(1, 150, 3)),
                    test = folder_.write("t.csv", cloud_csv(2, 300, 3)),
                    trusted = folder_.write("v.csv", cloud_csv(3, 50, 3));
  for (const bool with : {false, true}) {
    std::vector<std::string> line{"clean", train, "--flip", "0.2", "--test", test};
    if (with) line.insert(line.end(), {"--valid", trusted});
    const auto found = json(line);
    EXPECT_EQ(found["found"]["flipped"], 30);
    EXPECT_GT(found["found"]["f1"], 0.8);
    EXPECT_GT(found["found"]["auc"], 0.95);
    EXPECT_EQ(found["quality"].size(), 150U);
    EXPECT_EQ(found["comparison"]["labels"], with ? "trusted" : "as they are");
    EXPECT_GE(found["scores"]["after"]["accuracy"].get<double>(),
              found["scores"]["before"]["accuracy"].get<double>() - 0.01);
    double last = 0;
    for (const auto& suspect : found["suspects"]) {
      EXPECT_NE(suspect["label"], suspect["likely"]);
      EXPECT_GE(suspect["quality"], last) << "the least probable label comes first";
      last = suspect["quality"];
    }
  }
}

TEST_F(LabelJobs, CleanFindsLabelsThatAreWrongInOneClassAlone) {
  const std::string text = cloud_csv(4, 150, 3.5);
  std::string noisy;
  std::vector<bool> wrong;
  int ham = 0;
  for (std::size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = text.find('\n', begin);
    std::string line = text.substr(begin, end - begin);
    const bool changes = line.ends_with("ham") && ++ham % 3 == 0;
    if (changes) line.replace(line.size() - 3, 3, "spam");
    if (begin > 0) wrong.push_back(changes);
    noisy += line + "\n";
  }
  const auto found = json({"clean", folder_.write("a.csv", noisy)});
  double right = 0;
  for (const auto& suspect : found["suspects"]) right += wrong[suspect["sample"].get<std::size_t>() - 1] ? 1 : 0;
  const auto there = static_cast<double>(std::ranges::count(wrong, true));
  EXPECT_GT(2 * right / (there + static_cast<double>(found["suspects"].size())), 0.8) << right << " of " << there;
}

TEST_F(LabelJobs, CleanRemovesNothingWhereThatDoesNotHelp) {
  // Labels that have nothing to do with the features.
  Random random(9);
  std::string text = "a,b,y\n";
  for (int i = 0; i < 120; ++i)
    text += fmt::format("{},{},{}\n", random.uniform(0, 1), random.uniform(0, 1), random.flip() ? 1 : 0);
  const std::string file = folder_.write("noise.csv", text), kept = (folder_.path() / "kept.csv").string();
  const auto found = run_command({"clean", file, "--loss", "logistic", "--cleaned", kept, "--json"}).json();
  EXPECT_EQ(found["comparison"]["helps"], false);
  EXPECT_EQ(found["removed"], 0);
  EXPECT_EQ(contents_of(kept), text);
  EXPECT_THAT(run_command({"clean", file, "--loss", "logistic"}).out, HasSubstr("\nNothing can be said about the labels"));
}

TEST_F(LabelJobs, CleanWritesTheLinesThatAreKept) {
  std::string text = cloud_csv(1, 150, 4);
  // A label that is surely wrong, of the first sample in the file.
  const std::size_t begin = text.find('\n') + 1, end = text.find('\n', begin), comma = text.rfind(',', end);
  const std::string label = text.substr(comma + 1, end - comma - 1);
  text.replace(begin, end - begin, std::string(label == "ham" ? "-2,-2,0," : "6,6,0,") + label);
  for (int i = 0; i < 12; ++i) text += i % 2 == 0 ? "6.5,6,0.1,spam\n" : "-2,-1.5,0.1,ham\n";
  const std::string file = folder_.write("a.csv", text), kept = (folder_.path() / "kept.csv").string(),
                    table = (folder_.path() / "table.csv").string();
  const auto found = json({"clean", file, "--cleaned", kept, "--csv", table});
  ASSERT_EQ(found["comparison"]["helps"], true);
  const std::string rest = contents_of(kept);
  EXPECT_EQ(std::ranges::count(rest, '\n'), std::ranges::count(text, '\n') - static_cast<long>(found["suspects"].size()));
  EXPECT_THAT(rest, HasSubstr("a,b,c,kind\n"));
  EXPECT_THAT(rest, Not(HasSubstr("6.5,6,0.1,spam")));
  EXPECT_THAT(contents_of(table), HasSubstr("sample,label,more_probable,quality,wrong,suspect,removed\n"));
}

TEST_F(LabelJobs, CleanKeepsTheEndsOfLinesAsTheyAre) {
  const std::string text = cloud_csv(1, 150, 4) + "6.5,6,0.1,spam\n-2,-1.5,0.1,ham\n6,6,0.2,spam\n5,6,0.1,ham\n";
  const auto with_crlf = [](const std::string& plain) {
    std::string all;
    for (const char c : plain) all += c == '\n' ? std::string("\r\n") : std::string(1, c);
    return all;
  };
  const std::string kept = (folder_.path() / "kept.csv").string();
  const auto kept_of = [&](const std::string& contents) {
    EXPECT_EQ(run_command({"clean", folder_.write("a.csv", contents), "--cleaned", kept}).status, 0);
    return contents_of(kept);
  };
  const std::string plain = kept_of(text), without_end = text.substr(0, text.size() - 1);
  ASSERT_LT(plain.size(), text.size());
  ASSERT_TRUE(plain.ends_with("ham\n")) << "the last line is kept";
  EXPECT_EQ(kept_of(with_crlf(text)), with_crlf(plain));
  EXPECT_EQ(kept_of(without_end), plain.substr(0, plain.size() - 1));
  const auto with_returns = [](std::string all) {
    std::ranges::replace(all, '\n', '\r');
    return all;
  };
  EXPECT_EQ(kept_of(with_returns(text)), with_returns(plain));
  EXPECT_EQ(kept_of("\xef\xbb\xbf" + with_crlf(without_end)), "\xef\xbb\xbf" + with_crlf(plain.substr(0, plain.size() - 1)));
}

TEST_F(LabelJobs, CleanDoesItsWorkWhateverTheUnits) {
  const std::string plain = folder_.write("1.csv", cloud_csv(6, 100, 3)),
                    large = folder_.write("2.csv", cloud_csv(6, 100, 3, 1e12)),
                    small = folder_.write("3.csv", cloud_csv(6, 100, 3, 1e-12));
  const auto of = [&](const std::string& file) { return json({"clean", file, "--flip", "0.2", "--loss", "logistic"}); };
  const auto suspects = [](const nlohmann::json& found) {
    std::vector<int> samples;
    for (const auto& suspect : found["suspects"]) samples.push_back(suspect["sample"]);
    return samples;
  };
  const auto expected = of(plain);
  for (const std::string& file : {large, small}) {
    const auto found = of(file);
    EXPECT_EQ(suspects(found), suspects(expected)) << file;
    EXPECT_EQ(found["comparison"]["helps"], expected["comparison"]["helps"]) << file;
    EXPECT_NEAR(found["noise"], expected["noise"], 1e-6) << file;
  }
  EXPECT_GT(expected["found"]["f1"], 0.75);
}

TEST_F(LabelJobs, CleanDoesNotJudgeTheOnlySampleOfAClass) {
  const std::string file = folder_.write("a.csv", cloud_csv(6, 60, 3) + "9,9,9,rare\n");
  const auto found = json({"clean", file});
  for (const auto& suspect : found["suspects"]) EXPECT_NE(suspect["label"], "rare");
  EXPECT_THAT(run_command({"clean", file}).out, HasSubstr("1 sample is the only one with its label: not judged"));
  const Ended few = run_command({"clean", folder_.write("few.csv", "a,y\n1,x\n2,z\n"), "--header", "yes"});
  EXPECT_EQ(few.status, 2);
  EXPECT_THAT(few.err, HasSubstr("two labels with two samples each"));
  const Ended tiny = run_command({"clean", folder_.write("tiny.csv", "a,y\n1,x\n2,z\n3,x\n4,z\n"), "--header", "yes"});
  EXPECT_EQ(tiny.status, 2);
  EXPECT_THAT(tiny.err, HasSubstr("4 samples are too few"));
}

TEST_F(LabelJobs, InfluenceSaysWhatCannotBeToldFromChance) {
  const std::string file = folder_.write("a.csv", cloud_csv(8, 80, 1)), table = (folder_.path() / "t.csv").string(),
                    valid = folder_.write("v.csv", cloud_csv(9, 80, 1));
  const auto found = json({"influence", file, "--valid", valid, "--verify", "8", "--csv", table, "--test", file});
  EXPECT_GT(found["verify"]["correlation"], 0.999);
  EXPECT_NEAR(found["verify"]["slope"], 1, 0.01);
  EXPECT_GT(found["verify"]["derivative"]["median_error"], found["verify"]["median_error"]);
  EXPECT_EQ(found["removal"].size(), 80U);
  EXPECT_EQ(found["judging"]["samples"], 80);
  EXPECT_TRUE(found["test"].contains("accuracy"));
  std::size_t harm = 0;
  for (std::size_t i = 0; i < 80; ++i)
    harm += found["removal"][i].get<double>() < -2 * found["standard_error"][i].get<double>() ? 1 : 0;
  EXPECT_EQ(found["beyond_two_standard_errors"]["harm"], harm);
  EXPECT_THAT(contents_of(table), HasSubstr("sample,label,removal,standard_error,influence,loss,own_loss,leverage\n"));
  EXPECT_THAT(run_command({"influence", file, "--valid", valid}).out, HasSubstr("by chance alone"));
}

TEST_F(LabelJobs, InfluenceLeavesOutWhatMakesTheFitNotUnique) {
  std::string text = "a,b,y\n";
  for (int i = 0; i < 30; ++i) text += fmt::format("{},3,{}\n", std::sin(i), std::cos(2.0 * i) + std::sin(i));
  const std::string file = folder_.write("constant.csv", text);
  const auto with = json({"influence", file, "--l2", "0"}), without = json({"influence", file, "--l2", "0", "--drop", "b"});
  EXPECT_THAT(with["notes"].dump(), HasSubstr("b is left out"));
  ASSERT_EQ(with["removal"].size(), 30U);
  EXPECT_EQ(with["removal"], without["removal"]);
  const Ended penalised = run_command({"influence", file});
  EXPECT_EQ(penalised.status, 0);
  EXPECT_THAT(penalised.out, Not(HasSubstr("nan")));
}

TEST_F(LabelJobs, InfluenceNeedsSamplesThatJudge) {
  const Ended none = run_command({"influence", folder_.write("two", "0 1:1\n1 1:2\n")});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("--valid FILE"));
}

// A comment is no sample, and a quoted line break no end of one.
TEST_F(LabelJobs, CleanRemovesTheSamplesItNamesWhateverTheLines) {
  std::string text, with_comment;
  for (int i = 0; i < 200; ++i) {
    const int side = i % 2 == 0 ? 1 : -1, wrong = i % 11 == 3;
    const std::string line =
        fmt::format("{} 1:{} 2:{}\n", wrong ? -side : side, side * (wrong ? 6 : 2) + 2 * std::sin(i * i), std::cos(i));
    text += line;
    with_comment += line;
    if (i == 20) with_comment += "# half of them\n";
  }
  const std::string kept = (folder_.path() / "kept").string();
  const auto kept_of = [&](const std::string& name, const std::string& contents) {
    EXPECT_EQ(run_command({"clean", folder_.write(name, contents), "--cleaned", kept}).status, 0);
    return contents_of(kept);
  };
  const std::string plain = kept_of("plain", text), commented = kept_of("commented", with_comment);
  EXPECT_LT(plain.size(), text.size());
  std::string without_comment = commented;
  const auto at = without_comment.find("# half of them\n");
  if (at != std::string::npos) without_comment.erase(at, std::string("# half of them\n").size());
  EXPECT_EQ(without_comment, plain);
}

// Within a field a quotation mark is text, and the line goes on to its end only: of two such lines none joins the other.
TEST_F(LabelJobs, CleanRemovesTheSamplesItNamesWhateverTheQuotationMarks) {
  for (const std::string& first : {std::string("size,a,y\n"), std::string("\xef\xbb\xbfsep=,\nsize,a,y\n"), std::string()}) {
    Random random(1);
    std::vector<std::string> lines;
    for (int i = 0; i < 80; ++i) {
      const int y = (i % 2 + (i % 13 == 4 ? 1 : 0)) % 2;
      const char* const size = i == 70 || i == 71 ? "5\" pipe" : i % 9 == 0 ? "\"6\"\" pipe,\nlong\"" : " flat";
      lines.push_back(fmt::format("{},{:.4f},{}\n", size, random.uniform(-1, 1) + 3 * (i % 2), y));
    }
    const std::string file = folder_.write("pipes.csv", first + fmt::format("{}", fmt::join(lines, "")));
    const std::string kept = (folder_.path() / "kept.csv").string();
    const Ended ended = run_command({"clean", file, "--cleaned", kept, "--json"});
    ASSERT_EQ(ended.status, 0) << ended.err;
    const nlohmann::json document = ended.json();
    EXPECT_GT(document["removed"], 3);
    std::vector<bool> removed(lines.size());
    for (const auto& suspect : document["suspects"]) removed[suspect["sample"].get<std::size_t>() - 1] = true;
    std::string expected = first;
    for (std::size_t i = 0; i < lines.size(); ++i) expected += removed[i] ? "" : lines[i];
    EXPECT_EQ(contents_of(kept), expected);
  }
}

TEST_F(LabelJobs, TheOneClassThatIsSeparableIsNamed) {
  std::string text = "a,b,y\n";
  Random random(3);
  for (int i = 0; i < 90; ++i)
    text += fmt::format("{},{},{}\n", random.uniform(0, 1) + (i % 3 == 0 ? 5 : 0), random.uniform(0, 1),
                        i % 3 == 0   ? "apart"
                        : i % 3 == 1 ? "one"
                                     : "two");
  const std::string file = folder_.write("a.csv", text);
  for (const char* verb : {"fit", "influence"}) {
    const Ended ended = run_command({verb, file, "--l2", "0"});
    EXPECT_EQ(ended.status, 2) << verb;
    EXPECT_THAT(ended.err, HasSubstr("the class apart is linearly separable from the others")) << verb;
    EXPECT_THAT(ended.err, Not(HasSubstr("the classes are linearly separable"))) << verb;
  }
}

TEST_F(LabelJobs, InfluenceDoesNotDependOnUnitsThatLieFarApart) {
  Random random(5);
  std::string plain = "a,b,y\n", far = plain;
  for (int i = 0; i < 80; ++i) {
    const double a = random.uniform(-1, 1), b = random.uniform(-1, 1);
    const char* y = a + b + random.uniform(-1, 1) > 0 ? "u" : "v";
    plain += fmt::format("{},{},{}\n", a, b, y), far += fmt::format("{},{},{}\n", 1e-12 * a, 1e16 * b, y);
  }
  const auto removal = [&](const std::string& text) {
    return json({"influence", folder_.write("a.csv", text), "--l2", "0"})["removal"].get<std::vector<double>>();
  };
  const std::vector<double> expected = removal(plain), found = removal(far);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << i;
  EXPECT_EQ(run_command({"influence", folder_.write("far.csv", far)}).status, 0);
}

}  // namespace
}  // namespace onestep::test
