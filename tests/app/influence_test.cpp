// `influence` without independent samples: what it says, what it does not say, and what own losses are worth.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
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

using Json = nlohmann::json;

struct Mislabelled {
  std::string text;
  std::vector<bool> wrong;
};

// Labels that follow the features with noise, or a quantity; of a share of them the label is another one.
Mislabelled mislabelled(std::uint64_t seed, int samples, int features, int classes, double share_wrong) {
  Random random(seed);
  std::vector<double> truth;
  for (int u = 0; u < features * std::max(1, classes); ++u) truth.push_back(random.uniform(-1.5, 1.5));
  Mislabelled all;
  for (int j = 0; j < features; ++j) all.text += fmt::format("f{},", j);
  all.text += "y\n";
  for (int i = 0; i < samples; ++i) {
    std::vector<double> a, out(static_cast<std::size_t>(std::max(1, classes)));
    for (int j = 0; j < features; ++j) a.push_back(random.uniform(-1.7, 1.7));
    for (std::size_t k = 0; k < out.size(); ++k) {
      out[k] = classes > 0 ? -std::log(-std::log(random.uniform(1e-9, 1))) : random.uniform(-1, 1);
      for (std::size_t j = 0; j < a.size(); ++j) out[k] += a[j] * truth[j * out.size() + k];
    }
    const bool wrong = random.uniform(0, 1) < share_wrong;
    all.wrong.push_back(wrong);
    for (const double value : a) all.text += fmt::format("{:.6f},", value);
    auto label = std::ranges::max_element(out) - out.begin();
    if (wrong && classes > 0) label = (label + random.integer(1, classes - 1)) % classes;
    all.text +=
        classes > 0 ? fmt::format("c{}\n", label) : fmt::format("{:.6f}\n", out[0] + (wrong ? random.uniform(3, 9) : 0));
  }
  return all;
}

// The probability that a wrong one has more than a right one.
double area(const std::vector<bool>& wrong, const std::vector<double>& values) {
  double more = 0, pairs = 0;
  for (std::size_t i = 0; i < wrong.size(); ++i)
    for (std::size_t j = 0; j < wrong.size(); ++j) {
      if (!wrong[i] || wrong[j]) continue;
      pairs += 1, more += values[i] > values[j] ? 1 : values[i] == values[j] ? 0.5 : 0;
    }
  return more / pairs;
}

class Influence : public ::testing::Test {
 protected:
  Json found(const Mislabelled& samples, std::vector<std::string> more = {}) {
    std::vector<std::string> line{"influence", folder_.write("a.csv", samples.text), "--json"};
    line.insert(line.end(), more.begin(), more.end());
    const Ended ended = run_command(line);
    EXPECT_EQ(ended.status, 0) << ended.err;
    return ended.json();
  }
  TemporaryFolder folder_;
};

TEST_F(Influence, OwnLossFindsWrongLabelsBetterThanRemovalDoes) {
  struct Case {
    int samples, features, classes;
  };
  for (const Case& c : {Case{200, 8, 2}, Case{100, 15, 2}, Case{200, 8, 4}, Case{200, 8, 0}}) {
    double own = 0, by_folds = 0, removal = 0;
    constexpr int seeds = 3;
    for (int seed = 1; seed <= seeds; ++seed) {
      const Mislabelled samples = mislabelled(static_cast<std::uint64_t>(seed), c.samples, c.features, c.classes, 0.1);
      const Json all = found(samples);
      std::vector<double> harm = all["removal"];
      for (double& h : harm) h = -h;
      own += area(samples.wrong, all["own_loss"]) / seeds;
      by_folds += area(samples.wrong, all["losses"]) / seeds;
      removal += area(samples.wrong, harm) / seeds;
    }
    const std::string name =
        fmt::format("{} samples, {} features, {} classes: own loss {:.3f}, by folds {:.3f}, removal {:.3f}", c.samples,
                    c.features, c.classes, own, by_folds, removal);
    RecordProperty("area", name);
    EXPECT_GT(own, removal + 0.03) << name;
    EXPECT_GT(own, by_folds - 0.01) << name;
    EXPECT_GT(own, c.features > 8 ? 0.7 : 0.8) << name;
  }
}

TEST_F(Influence, OwnLossIsThatOfAFitWithoutTheSample) {
  for (const int classes : {2, 3, 0}) {
    const Mislabelled samples = mislabelled(7, 60, 5, classes, 0.1);
    for (const std::string l2 : {"0.05", "1"}) {
      const Json all = found(samples, {"--l2", l2});
      for (const std::size_t i : {0U, 17U, 42U, all["largest_own_losses"][0]["sample"].get<unsigned>() - 1}) {
        std::vector<std::string> lines;
        for (std::size_t begin = 0, end; begin < samples.text.size(); begin = end + 1) {
          end = samples.text.find('\n', begin);
          lines.push_back(samples.text.substr(begin, end - begin + 1));
        }
        const std::string one = folder_.write("one.csv", lines[0] + lines[i + 1]);
        lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        const std::string rest = folder_.write("rest.csv", std::accumulate(lines.begin(), lines.end(), std::string()));
        const Json fitted =
            run_command({"fit", rest, "--test", one, "--l2", l2, "--folds", "0", "--header", "yes", "--json"}).json();
        const double expected = fitted["test"]["loss"];
        constexpr double last_step = 1e-4;  // of the change, where further steps end
        EXPECT_NEAR(all["own_loss"][i], expected, last_step * (1 + expected)) << classes << " classes, sample " << i + 1;
      }
      double trace = 0;  // of what the labels do to the predictions: the effective number of coefficients
      for (const Json& leverage : all["leverage"]) {
        EXPECT_GE(leverage, 0);
        EXPECT_LT(leverage, std::max(1, classes - 1));
        trace += leverage.get<double>();
      }
      EXPECT_LT(trace, 6.0 * std::max(1, classes - 1));
      EXPECT_GT(trace, 1);
    }
  }
}

TEST_F(Influence, NobodyIsCalledHarmfulWithoutIndependentSamples) {
  Mislabelled samples = mislabelled(3, 400, 5, 2, 0.1);
  const std::size_t header = samples.text.find('\n') + 1, half = samples.text.find('\n', samples.text.size() / 2) + 1;
  const std::string valid = folder_.write("v.csv", samples.text.substr(0, header) + samples.text.substr(half));
  samples.text.resize(half);
  const auto count = static_cast<std::size_t>(std::ranges::count(samples.text, '\n') - 1);
  const std::string file = folder_.write("a.csv", samples.text), table = (folder_.path() / "t.csv").string();
  for (const std::vector<std::string>& how : {std::vector<std::string>{"--folds", "5"}, {"--split", "0.3"}}) {
    const Json all = found(samples, how);
    for (const char* member : {"harmful", "beyond_two_standard_errors", "most_harmful", "most_helpful"})
      EXPECT_FALSE(all.contains(member)) << member;
    EXPECT_EQ(all["judging"]["independent"], false);
    EXPECT_THAT(all["notes"], Contains(AllOf(HasSubstr("effects of removal are on the"), HasSubstr("--valid FILE"))));
    ASSERT_EQ(all["largest_own_losses"].size(), 10U);
    EXPECT_GE(all["largest_own_losses"][0]["own_loss"], all["largest_own_losses"][1]["own_loss"]);
    const std::string said = run_command({"influence", file, how[0], how[1], "--csv", table}).out;
    EXPECT_THAT(said, AllOf(HasSubstr("give independent samples by --valid FILE"), HasSubstr("Largest own losses")));
    for (const char* word : {"harmful\n", "do harm", "does harm", "is harm", "helpful", "cautious", "by chance"})
      EXPECT_THAT(said, Not(HasSubstr(word)));
    EXPECT_THAT(contents_of(table), HasSubstr("sample,label,removal,standard_error,influence,loss,own_loss,leverage\n" +
                                              all["largest_own_losses"][0]["sample"].dump() + ","));
  }
  const Json all = found(samples, {"--valid", valid});
  EXPECT_EQ(all["judging"]["independent"], true);
  EXPECT_FALSE(all.contains("largest_own_losses"));
  EXPECT_TRUE(all.contains("most_harmful"));
  EXPECT_EQ(all["own_loss"].size(), count);
  EXPECT_THAT(run_command({"influence", file, "--valid", valid}).out,
              AllOf(HasSubstr("harm and"), HasSubstr("Most harmful")));
}

TEST_F(Influence, TheOnlySampleOfAClassHasNoOwnLoss) {
  Mislabelled samples = mislabelled(5, 60, 3, 2, 0);
  samples.text += "0.1,0.2,0.3,rare\n";
  const Json all = found(samples);
  EXPECT_TRUE(all["own_loss"][60].is_null());
  EXPECT_TRUE(all["leverage"][60].is_null());
  EXPECT_FALSE(all["own_loss"][59].is_null());
}

}  // namespace
}  // namespace onestep::test
