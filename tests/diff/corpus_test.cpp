// Claims about derivatives that hold for every function of the corpus.
#include "diff/corpus.h"

#include <gtest/gtest.h>

#include "onestep/check_gradients.h"

namespace onestep::test {
namespace {

class Corpus : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Corpus, DerivativesUpToThirdOrderAgreeInEveryMode) {
  const CorpusEntry entry = corpus()[GetParam()];
  const GradientCheck check = check_gradients(entry.function, entry.point);
  EXPECT_TRUE(check.ok()) << entry.name << '\n' << check;
}

// Counted as the flops of value and gradient together, what they share once, over those of the value alone.
TEST_P(Corpus, ValueAndGradientCostAtMostFiveTimesTheValue) {
  for (const std::int64_t n : {4, 10, 40}) {
    const CorpusEntry entry = corpus(n)[GetParam()];
    const std::span<const Input> inputs = entry.function.inputs();
    const Function both({inputs.begin(), inputs.end()}, [&](std::span<const Expr> x) {
      const Expr value = entry.function(x).front();
      std::vector<Expr> all = grad(value, x);
      all.push_back(value);
      return all;
    });
    EXPECT_LE(both.flops(), 5 * entry.function.flops()) << entry.name << " n = " << n;
  }
}

std::string name_of(const ::testing::TestParamInfo<std::size_t>& info) {
  std::string name = corpus()[info.param].name;
  for (char& c : name)
    if (c == ' ' || c == '-') c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, Corpus, ::testing::Range<std::size_t>(0, corpus().size()), name_of);

}  // namespace
}  // namespace onestep::test
