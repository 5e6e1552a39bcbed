// Labels as classes and signs, features standardised, and the way back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <vector>

#include "onestep/dataset.h"
#include "support/random.h"
#include "support/run.h"

namespace onestep::test {
namespace {

using ::testing::HasSubstr;

TEST(SignsOf, AnyTwoLabels) {
  EXPECT_TRUE(near(signs_of({0.0, 1.0, 0.0}), Array{-1.0, 1.0, -1.0}));
  EXPECT_TRUE(near(signs_of({2.0, 1.0}), Array{1.0, -1.0}));
  EXPECT_TRUE(near(signs_of({-1.0, 1.0}), Array{-1.0, 1.0}));
  EXPECT_TRUE(near(signs_of({4.5, -7.0}), Array{1.0, -1.0}));
  const std::vector<double> two{1.0, 2.0};
  EXPECT_TRUE(near(signs_of({2.0, 2.0}, two), Array{1.0, 1.0})) << "a validation set may have only one";
}

TEST(SignsOf, OtherNumbersOfClassesAreRefusedWithTheLabelsFound) {
  EXPECT_EQ(error_of([] { signs_of({1.0, 1.0}); }), "[signs_of] every label is 1; two classes are needed");
  EXPECT_EQ(error_of([] { signs_of({1.0, 0.0, 2.5}); }), "[signs_of] the labels are 0, 1 and 2.5; there have to be two");
  EXPECT_EQ(error_of([] {
              signs_of({1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0});
            }),
            "[signs_of] the labels are 1, 2, 3, 4, 5 and more; there have to be two");
  EXPECT_EQ(error_of([] { signs_of(zeros(0)); }), "[signs_of] there is no label");
  EXPECT_EQ(error_of([] { signs_of(zeros({2, 2})); }), "[signs_of] labels are a vector, not of shape (2, 2)");
  EXPECT_EQ(error_of([] {
              signs_of({0.0, std::numeric_limits<double>::quiet_NaN()});
            }),
            "[signs_of] the label of sample 2 is nan");
  const std::vector<double> two{1.0, 2.0}, three{1.0, 2.0, 3.0}, descending{2.0, 1.0};
  EXPECT_EQ(error_of([&] {
              signs_of({1.0, 3.0}, two);
            }),
            "[signs_of] the label of sample 2 is 3, which is not among 1 and 2");
  EXPECT_EQ(error_of([&] { signs_of({1.0}, three); }), "[signs_of] 3 labels to choose from; there have to be two");
  EXPECT_THAT(error_of([&] { signs_of({1.0}, descending); }), HasSubstr("have to ascend"));
}

TEST(ClassesOf, AreNumberedInTheOrderOfTheirLabels) {
  const Classes c = classes_of({7.0, -1.0, 3.0, 7.0});
  EXPECT_EQ(c.values, (std::vector<double>{-1, 3, 7}));
  EXPECT_TRUE(near(c.index, Array{2.0, 0.0, 1.0, 2.0}));
  EXPECT_TRUE(near(class_index({3.0, 3.0}, c.values), Array{1.0, 1.0}));
  EXPECT_EQ(error_of([&] {
              class_index({3.0, 4.0}, c.values);
            }),
            "[class_index] the label of sample 2 is 4, which is not among -1, 3 and 7");
}

TEST(ClassesOf, QuantitiesAreRefused) {
  EXPECT_EQ(error_of([] {
              classes_of({1.0, 0.25});
            }),
            "[classes_of] the label of sample 2 is 0.25; classes are whole numbers, a quantity is for regression");
  EXPECT_EQ(error_of([] {
              classes_of({1.0, 2.0, 3.0}, 2);
            }),
            "[classes_of] there are more than 2 different labels; a quantity is for regression");
  EXPECT_EQ(error_of([] { classes_of({1.0, 2.0}, 2); }), "no error");
}

TEST(Standardisation, MeansAndDeviations) {
  const Array A{{1.0, 5.0, 1e200}, {3.0, 5.0, -1e200}};
  const Scaling s = standardisation(A);
  EXPECT_TRUE(near(s.mean, Array{2.0, 5.0, 0.0}));
  EXPECT_EQ(entries_of(s.scale), (std::vector<double>{1.0, 1.0, 1e200})) << "1 for a constant feature";
  EXPECT_TRUE(near(scaled(A, s), Array{{-1.0, 0.0, 1.0}, {1.0, 0.0, -1.0}}));
  EXPECT_TRUE(near(scaled(Array{{3.0, 7.0, 0.0}}, s), Array{{1.0, 2.0, 0.0}})) << "other samples, by the same scaling";
}

TEST(Standardisation, ConstantFeaturesAreExactlyConstant) {
  const Scaling s = standardisation(full({49, 1}, 0.1));
  EXPECT_EQ(s.mean(0), 0.1);
  EXPECT_EQ(s.scale(0), 1.0);
}

TEST(StandardisationErrors, ShapesAndNumbersThatAreNotFinite) {
  EXPECT_EQ(error_of([] { standardisation(zeros(3)); }),
            "[standardisation] features are a matrix with a row for each sample, not of shape (3)");
  EXPECT_THAT(error_of([] { standardisation(zeros({0, 3})); }), HasSubstr("not of shape (0, 3)"));
  EXPECT_THAT(error_of([] {
                standardisation(Array{{0.0, 1.0}, {0.0, std::numeric_limits<double>::quiet_NaN()}});
              }),
              HasSubstr("feature 2 has values that are not finite"));
  const Scaling s = standardisation(Array{{1.0, 2.0}, {3.0, 4.0}});
  EXPECT_EQ(error_of([&] { scaled(zeros({1, 3}), s); }), "[scaled] 3 features, but means and scales of shape (2) and (2)");
  EXPECT_THAT(error_of([&] { unscaled({zeros(3), 0.0}, s); }), HasSubstr("[unscaled] 3 features"));
  EXPECT_THAT(error_of([&] {
                unscaled({zeros({2, 4}), zeros(3)}, s);
              }),
              HasSubstr("shape (2, 4) with intercepts of shape (3)"));
}

RC_GTEST_PROP(Standardisation, UnscaledModelsPredictTheSame, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  const std::int64_t N = random.integer(1, 20), n = random.integer(0, 6), K = random.integer(1, 3);
  const Array A = random.flip() ? random.array({N, n}, -1, 9) : random.array({n, N}, -1, 9).transposed();
  const Scaling s = standardisation(A);
  const auto agree = [&](const LinearModel& model) {
    const LinearModel raw = unscaled(model, s);
    const auto predictions = [](const Array& features, const LinearModel& m) {
      return value_of({features, m.x, m.intercept}, [](const Exprs& e) { return matmul(e[0], e[1]) + e[2]; });
    };
    return near(predictions(scaled(A, s), model), predictions(A, raw), 1e-10, 10);
  };
  RC_ASSERT(agree({random.array({n}), random.array({})}));
  RC_ASSERT(agree({random.array({n, K}), random.array({K})}));
}

}  // namespace
}  // namespace onestep::test
