// The LIBSVM reader: values, errors with line and field, and the real data sets where they are there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "data/parse.h"
#include "onestep/dataset.h"
#include "onestep/onestep.h"
#include "support/files.h"
#include "support/run.h"

namespace onestep::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Dataset parse(const std::string& text, std::optional<std::int64_t> features = std::nullopt) {
  return data::parse_libsvm(text, "F", features, std::size_t{1} << 24);
}
std::string error_in(const std::string& text, std::optional<std::int64_t> features = std::nullopt) {
  return error_of([&] { parse(text, features); });
}

TEST(ReadLibsvm, ZerosAreFilledIn) {
  const Dataset d = parse("+1 1:0.5 3:-2\n-1 2:1e-3 # a remark\n\n# a line of remarks\n0.25\n");
  EXPECT_TRUE(near(d.A, Array{{0.5, 0.0, -2.0}, {0.0, 1e-3, 0.0}, {0.0, 0.0, 0.0}}));
  EXPECT_TRUE(near(d.y, Array{1.0, -1.0, 0.25}));
}

TEST(ReadLibsvm, TheNumberOfFeaturesMayBeGiven) {
  EXPECT_EQ(parse("1 1:1\n", 4).A.shape(), (Shape{1, 4}));
  EXPECT_EQ(parse("1\n2\n").A.shape(), (Shape{2, 0}));
  EXPECT_EQ(error_in("1 1:1\n1 1:1 5:2\n", 4), "[read_libsvm] F:2: field 3: index 5 is above the 4 features asked for");
  EXPECT_EQ(error_in("1 1:1\n", -1), "[read_libsvm] -1 features; there cannot be fewer than 0");
}

TEST(ReadLibsvm, IndicesMayStartAtZero) {
  EXPECT_TRUE(near(parse("1 1:5\n-1 0:1 2:3\n").A, Array{{0.0, 5.0, 0.0}, {1.0, 0.0, 3.0}})) << "wherever the 0 stands";
  EXPECT_EQ(parse("1 0:1\n", 4).A.shape(), (Shape{1, 4}));
  EXPECT_TRUE(near(parse("1 3:1\n2 0:5\n", 4).A, Array{{0.0, 0.0, 0.0, 1.0}, {5.0, 0.0, 0.0, 0.0}}));
  EXPECT_EQ(error_in("1 2:1 4:1\n2 0:5 4:1\n", 4),
            "[read_libsvm] F:1: field 3: index 4 is above the 4 features asked for; indices start at 0 in this file");
  EXPECT_EQ(error_in("1 0:1\n", 0),
            "[read_libsvm] F:1: field 2: index 0 is above the 0 features asked for; indices start at 0 in this file");
}

TEST(ReadLibsvm, WhereIndicesStartMayBeGiven) {
  const auto from = [](std::int64_t first, const std::string& text, std::optional<std::int64_t> features = std::nullopt) {
    return data::parse_libsvm(text, "F", features, std::size_t{1} << 24, first);
  };
  EXPECT_EQ(parse("1 0:1 2:3\n").first_index, 0);
  EXPECT_EQ(parse("1 1:1 2:3\n").first_index, 1);
  EXPECT_TRUE(near(from(0, "1 1:5 2:3\n").A, Array{{0.0, 5.0, 3.0}})) << "a feature that no sample has";
  EXPECT_EQ(from(0, "1 2:3\n").first_index, 0);
  EXPECT_EQ(from(0, "1\n").A.shape(), (Shape{1, 0}));
  EXPECT_TRUE(near(from(1, "1 1:5 2:3\n").A, Array{{5.0, 3.0}}));
  const auto error = [&](std::int64_t first, const std::string& text, std::optional<std::int64_t> features = std::nullopt) {
    return error_of([&] { from(first, text, features); });
  };
  EXPECT_EQ(error(1, "1 1:5\n1 0:1 1:2\n"),
            "[read_libsvm] F:2: field 2: index 0, but indices were said to start at 1; say 0, or nothing");
  EXPECT_EQ(error(0, "1 1:5 2:1\n", 3), "no error");
  EXPECT_EQ(error(0, "1 1:5 3:1\n", 3),
            "[read_libsvm] F:1: field 3: index 3 is above the 3 features asked for; indices start at 0 in this file");
  EXPECT_EQ(error(2, "1 1:5\n"), "[read_libsvm] indices start at 0 or at 1, not at 2");
}

TEST(ReadLibsvm, QueriesAreSkipped) {
  EXPECT_TRUE(near(parse("3 qid:1 1:1\n2 qid:12 2:4\n1 qid:2\n").A, Array{{1.0, 0.0}, {0.0, 4.0}, {0.0, 0.0}}));
}

TEST(ReadLibsvm, MatricesAboveTheMemoryLimitAreRefusedWithTheirSize) {
  const auto within = [](const std::string& text, std::size_t limit) {
    return error_of([&] { data::parse_libsvm(text, "F", std::nullopt, limit); });
  };
  const std::string text = "1 1:1 1000:1\n-1 5:1\n";
  EXPECT_EQ(within(text, 8 * 2 * 1001), "no error");
  EXPECT_EQ(within(text, 8 * 2 * 1001 - 1),
            "[read_libsvm] F: 2 samples with 1000 features need 1.6e-05 GB as dense matrices, above the memory limit of "
            "1.6e-05 GB; raise memory_limit if the machine has it");
  EXPECT_THAT(within("1 1:1\n2 1:1\n", 24), HasSubstr("the entries up to sample 2 alone need 3.2e-08 GB"));
}

TEST(ReadLibsvm, TabsAndTheEndsOfLinesOfAnotherSystem) {
  EXPECT_TRUE(near(parse("1\t1:2\t2:3\r\n-1 2:4").A, Array{{2.0, 3.0}, {0.0, 4.0}}));
  EXPECT_TRUE(near(parse("1 1:2 2:3\r-1 2:4\r").A, Array{{2.0, 3.0}, {0.0, 4.0}}));
  EXPECT_EQ(error_in("1 1:1\rone 1:1\r"), "[read_libsvm] F:2: field 1: \"one\" is not a number");
}

TEST(ReadLibsvmErrors, SayLineAndField) {
  EXPECT_EQ(error_in("1 1:1\none 1:1\n"), "[read_libsvm] F:2: field 1: \"one\" is not a number");
  EXPECT_EQ(error_in("1 1:1 2:x\n"), "[read_libsvm] F:1: field 3: \"x\" is not a number");
  EXPECT_EQ(error_in("1 1:1 2:\n"), "[read_libsvm] F:1: field 3: \"\" is not a number");
  EXPECT_EQ(error_in("1 1:nan\n"), "[read_libsvm] F:1: field 2: \"nan\" is not a number");
  EXPECT_EQ(error_in("1 1:inf\n"), "[read_libsvm] F:1: field 2: \"inf\" is not finite");
  EXPECT_EQ(error_in("1 7\n"),
            "[read_libsvm] F:1: field 2: \"7\" is not index:value, as LIBSVM's format has it; if the file is a table, say "
            "what separates its columns");
  EXPECT_EQ(error_in("1 1.5:1\n"), "[read_libsvm] F:1: field 2: \"1.5:1\" is not index:value");
  EXPECT_EQ(error_in("1 -3:1\n"), "[read_libsvm] F:1: field 2: index -3; they start at 1, or at 0");
  EXPECT_EQ(error_in("1 2:1 1:1\n"), "[read_libsvm] F:1: field 3: index 1 after 2; they have to ascend");
  EXPECT_EQ(error_in("1 2:1 2:1\n"), "[read_libsvm] F:1: field 3: index 2 after 2; they have to ascend");
  EXPECT_EQ(error_in("# c\n\n  1  1:1   2:nan # c\n"), "[read_libsvm] F:3: field 3: \"nan\" is not a number");
  EXPECT_EQ(error_in("nan 1:1\n"), "[read_libsvm] F:1: field 1: \"nan\" is not a number");
  EXPECT_EQ(error_in("1 1:1e999\n"), "[read_libsvm] F:1: field 2: \"1e999\" is not a number");
  EXPECT_EQ(error_in("1 1:1 2: 3:1\n"), "[read_libsvm] F:1: field 3: \"\" is not a number");
  EXPECT_EQ(error_in("1 1:1 2:"), "[read_libsvm] F:1: field 3: \"\" is not a number");
}

TEST(ReadLibsvmErrors, SayWhatElseTheFileMayBe) {
  EXPECT_EQ(error_in("1,3 1:1\n"), "[read_libsvm] F:1: field 1: \"1,3\" is a list of labels; keep one for each sample");
  EXPECT_EQ(error_in("1 1:1\n1:1 2:1\n"),
            "[read_libsvm] F:2: field 1: \"1:1\" stands where the label should; a line begins with its label");
  EXPECT_EQ(error_in("1 1:1 qid:7\n"), "[read_libsvm] F:1: field 3: \"qid:7\" is not index:value");
  EXPECT_EQ(error_in("1 qid:a 1:1\n"), "[read_libsvm] F:1: field 2: \"qid:a\" is not index:value");
  EXPECT_EQ(error_in("1 qid: 1:1\n"), "[read_libsvm] F:1: field 2: \"qid:\" is not index:value");
}

TEST(ReadLibsvmErrors, EmptyBinaryAndHostileFiles) {
  EXPECT_EQ(error_in(""), "[read_libsvm] F: there is no sample in it");
  EXPECT_EQ(error_in("# nothing\n\n"), "[read_libsvm] F: there is no sample in it");
  EXPECT_THAT(error_in(std::string("\x00\x01\xff", 3)),
              StartsWith("[read_libsvm] F:1: field 1: \"\\x00\\x01\\xff\" is not"));
  EXPECT_THAT(error_in("1 9223372036854775807:1\n"), HasSubstr("as dense matrices, above the memory limit of 0.0168 GB"));
  EXPECT_THAT(error_in("1 99999999999999999999:1\n"), HasSubstr("is not index:value"));
  EXPECT_EQ(error_of([] { read_libsvm("no/such/file"); }),
            "[read_libsvm] no/such/file: cannot be opened: No such file or directory");
}

TEST(ReadLibsvm, RealDataSetsHaveTheirShapes) {
  ONESTEP_NEEDS_DATA("classification");
  const auto shape_of = [](const std::string& name) { return read_libsvm(shared_data(name)).A.shape(); };
  EXPECT_EQ(shape_of("classification/heart_scale"), (Shape{270, 13}));
  EXPECT_EQ(shape_of("classification/german.numer_scale"), (Shape{1000, 24}));
  EXPECT_EQ(shape_of("classification/breast-cancer"), (Shape{683, 10}));
  EXPECT_EQ(shape_of("classification/ijcnn1.trn.bz2"), (Shape{49990, 22}));
  EXPECT_EQ(read_libsvm(shared_data("classification/a1a"), 123).A.shape(), (Shape{1605, 123}));
  EXPECT_EQ(shape_of("classification/a1a.t"), (Shape{30956, 123}));
  EXPECT_EQ(shape_of("classification/a9a"), (Shape{32561, 123}));
  EXPECT_EQ(read_libsvm(shared_data("classification/a9a.t"), 123).A.shape(), (Shape{16281, 123}));
  EXPECT_EQ(shape_of("classification/ijcnn1.tst.bz2"), (Shape{91701, 22}));

  const Dataset cpu = read_libsvm(shared_data("cpusmall/cpusmall.txt"));
  EXPECT_EQ(cpu.A.shape(), (Shape{8192, 12}));
  double total = 0;
  for (const double target : cpu.y.values()) total += target;
  EXPECT_NEAR(total / 8192, 83.969, 5e-4);
}

TEST(ReadLibsvm, IsUsedInExpressions) {
  const Dataset d = parse("1 1:1 2:2\n-1 1:3\n");
  const Function loss = traced([&](Expr x) { return sum(softplus(-d.y * matmul(d.A, x))); }, Input{"x", {2}});
  const double at_zero = evaluate(loss, std::vector<Array>{zeros({2})}).front().item();
  EXPECT_NEAR(at_zero, 2 * std::log(2.0), 1e-14);
}

}  // namespace
}  // namespace onestep::test
