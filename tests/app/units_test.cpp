// Softmax fits in whatever units the columns are: the answer is that of the problem as it was given.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "app/run_command.h"
#include "support/random.h"

namespace onestep::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t features = 3, classes = 3;

struct Drawn {
  std::vector<std::vector<double>> a;  // the features of each sample
  std::vector<std::size_t> label;
};

// Three classes around centres of their own, the first linearly separable by the last two columns, with the columns in given
// units.
Drawn drawn(std::uint64_t seed, int count, const std::vector<double>& units) {
  Random random(seed);
  Drawn all;
  for (int i = 0; i < count; ++i) {
    const auto k = static_cast<std::size_t>(i) % classes;
    std::vector<double> row;
    for (std::size_t j = 0; j < features; ++j)
      row.push_back(units[j] * (random.uniform(-1, 1) + (k == 0 && j > 0 ? 4.0 : k == j ? 0.8 : 0.0)));
    all.a.push_back(row);
    all.label.push_back(k);
  }
  return all;
}

std::string csv_of(const Drawn& all) {
  std::string text = "a,b,c,kind\n";
  for (std::size_t i = 0; i < all.a.size(); ++i) {
    for (const double value : all.a[i]) text += fmt::format("{:.17g},", value);
    text += fmt::format("{}\n", all.label[i]);
  }
  return text;
}

// The largest entry of the gradient of what `fit` minimises, each relative to the sum of the terms it is made of.
double relative_gradient(const Drawn& all, const nlohmann::json& document, double l2) {
  const auto x = document.at("coefficients").get<std::vector<std::vector<double>>>();
  const auto intercept = document.at("intercept").get<std::vector<double>>();
  double worst = 0;
  for (std::size_t j = 0; j <= features; ++j)
    for (std::size_t k = 0; k < classes; ++k) {
      double sum = j < features ? l2 * x[j][k] : 0, size = std::fabs(sum);
      for (std::size_t i = 0; i < all.a.size(); ++i) {
        double total = 0, own = 0;
        for (std::size_t l = 0; l < classes; ++l) {
          double s = intercept[l];
          for (std::size_t m = 0; m < features; ++m) s += all.a[i][m] * x[m][l];
          total += std::exp(s);
          if (l == k) own = std::exp(s);
        }
        const double a = j < features ? all.a[i][j] : 1, term = a * (own / total - (all.label[i] == k ? 1 : 0));
        sum += term, size += std::fabs(a);
      }
      constexpr double nothing = 1e-20;  // a column this small changes no prediction
      worst = std::max(worst, std::fabs(sum) / std::max(size, nothing));
    }
  return worst;
}

class Units : public ::testing::Test {
 protected:
  std::string file(const Drawn& all) { return folder_.write("data.csv", csv_of(all)); }
  TemporaryFolder folder_;
};

TEST_F(Units, SoftmaxIsFittedWhateverTheUnitOfOneColumn) {
  for (const double unit : {1e-150, 1e-12, 1e-8, 1e8, 1e10, 1e150}) {
    const Drawn all = drawn(1, 60, {unit, 1, 1});
    const Ended e = run_command({"fit", file(all), "--loss", "softmax", "--folds", "0", "--json"});
    EXPECT_EQ(e.status, 0) << unit << e.out;
    EXPECT_LT(relative_gradient(all, e.json(), 1), 1e-9) << unit;
  }
}

// Squares of such columns underflow, and their inverses overflow.
TEST_F(Units, ColumnsOfTinyNumbersHaveNoSayAndBreakNothing) {
  for (const double unit : {1e-155, 1e-200, 1e-310})
    for (const char* loss : {"softmax", "ridge"}) {
      const std::string all = file(drawn(1, 60, {unit, 1, 1}));
      const Ended e = run_command({"fit", all, "--loss", loss, "--folds", "0", "--json"});
      ASSERT_EQ(e.status, 0) << unit << e.out;
      const double expected =
          run_command({"fit", all, "--loss", loss, "--drop", "1", "--folds", "0", "--json"}).json().at("objective");
      EXPECT_NEAR(e.json().at("objective").get<double>(), expected, 1e-9 * expected) << unit << loss;
      const Ended tuned = run_command({"tune", all, "--loss", loss, "--json"});
      EXPECT_EQ(tuned.status, 0) << unit << tuned.out;
      EXPECT_LT(tuned.json().at("probes").size(), 100U) << unit;
    }
}

TEST_F(Units, ClassesAreNotCalledSeparableWhereThePenaltyIsLarge) {
  const Ended e =
      run_command({"fit", file(drawn(1, 60, {1e-12, 1, 1})), "--loss", "softmax", "--l2", "100", "--folds", "0"});
  EXPECT_EQ(e.status, 0) << e.out;
  EXPECT_THAT(e.out, Not(HasSubstr("give a larger --l2")));
}

// With all columns in another unit, and the penalty in that unit squared, it is the same problem.
TEST_F(Units, SoftmaxInfluenceIsTheSameInOtherUnits) {
  const auto removal = [&](double unit, const char* l2) {
    const std::vector<std::string> line{"influence", file(drawn(2, 60, {unit, unit, unit})), "--loss", "softmax", "--l2", l2,
                                        "--json"};
    const Ended e = run_command(line);
    EXPECT_EQ(e.status, 0) << e.out;
    return e.json().at("removal").get<std::vector<double>>();
  };
  const std::vector<double> small = removal(1, "1"), large = removal(1e8, "1e16");
  double largest = 0;
  for (const double r : small) largest = std::max(largest, std::fabs(r));
  for (std::size_t i = 0; i < small.size(); ++i) EXPECT_NEAR(large[i], small[i], 1e-6 * largest) << i;
}

TEST_F(Units, SoftmaxInfluenceIsThatOfTrainingAgainForOneColumnInAnotherUnit) {
  for (const double unit : {1e-12, 1e8}) {
    const std::vector<std::string> line{"influence", file(drawn(2, 60, {unit, 1, 1})), "--loss", "softmax", "--verify", "3",
                                        "--json"};
    const Ended e = run_command(line);
    ASSERT_EQ(e.status, 0) << unit << e.out;
    EXPECT_LT(e.json().at("verify").at("largest_error").get<double>(), 1e-3) << unit;
  }
}

TEST_F(Units, SoftmaxIsTunedToTheSameModelInOtherUnits) {
  const auto tuned = [&](double unit) {
    const Ended e = run_command({"tune", file(drawn(3, 60, {unit, unit, unit})), "--loss", "softmax", "--json"});
    EXPECT_EQ(e.status, 0) << e.out << e.err;
    return e.json();
  };
  const nlohmann::json one = tuned(1), other = tuned(1e9);
  const double loss = one.at("loss_minimised");
  EXPECT_NEAR(other.at("loss_minimised").get<double>(), loss, 1e-6 * loss);
}

}  // namespace
}  // namespace onestep::test
