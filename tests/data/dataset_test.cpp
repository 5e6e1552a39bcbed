// Any format by one call, from files and from standard input; and what is written comes back bit for bit.
#include "onestep/dataset.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <string>
#include <vector>

#include "data/parse.h"
#include "support/files.h"
#include "support/random.h"
#include "support/run.h"

namespace onestep::test {
namespace {

using ::testing::HasSubstr;

const std::string idx_images{0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 1, 'a', 'b'}, idx_labels{0, 0, 8, 1, 0, 0, 0, 2, 1, 2};

TEST(ReadDataset, TellsTheFormats) {
  const TemporaryFolder folder;
  const auto y = [&](const std::string& name, const std::string& text, const DatasetOptions& options = {}) {
    return read_dataset(folder.write(name, text), options).y;
  };
  EXPECT_TRUE(near(y("samples", "5 1:2 2:3\n"), Array{5.0}));
  EXPECT_TRUE(near(y("table.csv", "5,2\n"), Array{2.0}));
  EXPECT_TRUE(near(y("table.tsv", "5\t2\n"), Array{2.0}));
  EXPECT_TRUE(near(y("table.csv.gz", "time 10:30;y\n5;2\n"), Array{2.0})) << "the name says it, compressed or not";
  EXPECT_TRUE(near(y("table", "a;y\n5;2\n"), Array{2.0})) << "so does the first line";
  EXPECT_TRUE(near(y("table.txt", "a,b\n5,2\n", {.target = "a"}), Array{5.0}));
  folder.write("train-labels-idx1-ubyte", idx_labels);
  EXPECT_TRUE(near(y("train-images-idx3-ubyte", idx_images), Array{1.0, 2.0})) << "the labels are beside the images";
  EXPECT_TRUE(near(y("other", idx_images, {.labels = folder.write("l", idx_labels)}), Array{1.0, 2.0}));
}

TEST(ReadDatasetErrors, OtherFeaturesAndOptionsOfOtherFormats) {
  const TemporaryFolder folder;
  const std::string csv = folder.write("t.csv", "a,b,y\n1,2,3\n"), svm = folder.write("s", "1 1:2 4:3\n"),
                    idx = folder.write("x", idx_images), labels = folder.write("l", idx_labels);
  const auto error = [](const std::string& path, const DatasetOptions& options) {
    return error_of([&] { read_dataset(path, options); });
  };
  EXPECT_EQ(error(csv, {.features = 2}), "no error");
  EXPECT_EQ(error(csv, {.features = 3}), fmt::format("[read_dataset] {}: has 2 features, not 3", csv));
  EXPECT_EQ(error(idx, {.features = 2, .labels = labels}), fmt::format("[read_dataset] {}: has 1 features, not 2", idx));
  EXPECT_THAT(error(svm, {.features = 3}), HasSubstr("index 4 is above the 3 features asked for"));
  EXPECT_THAT(error(svm, {.target = "y"}), HasSubstr("is not CSV: there is no column \"y\" to be the target"));
  EXPECT_THAT(error(svm, {.drop = {"y"}}), HasSubstr("is not CSV: there is no column \"y\" to drop"));
  EXPECT_THAT(error(svm, {.label_names = {"no", "yes"}}),
              HasSubstr("is not CSV: its labels cannot be names such as \"no\""));
  EXPECT_THAT(error(csv, {.labels = labels}), HasSubstr("is not an IDX file: it has its labels itself"));
  EXPECT_THAT(error(idx, {}), HasSubstr("give the file of its labels"));
  EXPECT_THAT(error(folder.write("empty", ""), {}), HasSubstr("there is no sample in it"));
  EXPECT_THAT(error(folder.path().string(), {}), HasSubstr("cannot be read: Is a directory"));
}

// Standard input is a file for as long as this lives.
class StandardInput {
 public:
  explicit StandardInput(const std::string& path) : before_(dup(STDIN_FILENO)) { become(open(path.c_str(), O_RDONLY)); }
  ~StandardInput() { become(before_); }
  StandardInput(const StandardInput&) = delete;
  StandardInput& operator=(const StandardInput&) = delete;

 private:
  static void become(int file) {
    dup2(file, STDIN_FILENO);
    close(file);
    std::clearerr(stdin);
  }
  int before_;
};

TEST(ReadDataset, FromStandardInput) {
  const TemporaryFolder folder;
  const auto given = [&](const std::string& text) { return StandardInput(folder.write("input", text)); };
  {
    const StandardInput input = given("1 1:2\n");
    EXPECT_TRUE(near(read_libsvm("-").A, full({1, 1}, 2.0)));
  }
  {
    const StandardInput input = given("a,y\n1,2\n");
    EXPECT_TRUE(near(read_dataset("-").A, ones({1, 1})));
  }
  {
    const StandardInput input = given("1 1:x\n");
    EXPECT_EQ(error_of([] { read_dataset("-"); }), "[read_libsvm] standard input:1: field 2: \"x\" is not a number");
  }
}

// Values of all sizes and lengths as text, zeros among them.
double entry(Random& random) {
  switch (random.integer(0, 5)) {
    case 0: return 0;
    case 1: return static_cast<double>(random.integer(-1000, 1000));
    case 2: return static_cast<double>(random.integer(-1000000, 1000000)) / 1e6;
    case 3: return std::ldexp(random.uniform(-1, 1), static_cast<int>(random.integer(-1000, 1000)));
    default: return random.uniform(-1, 1);
  }
}

::testing::AssertionResult identical(const Array& a, const Array& b) {
  if (a.shape() != b.shape()) return ::testing::AssertionFailure() << a.shape() << " and " << b.shape();
  for (std::size_t i = 0; i < a.values().size(); ++i)
    if (std::bit_cast<std::uint64_t>(a.values()[i]) != std::bit_cast<std::uint64_t>(b.values()[i]))
      return ::testing::AssertionFailure() << fmt::format("entry {}: {} and {}", i, a.values()[i], b.values()[i]);
  return ::testing::AssertionSuccess();
}

Dataset random_set(Random& random) {
  const std::int64_t N = random.integer(1, 30), n = random.integer(0, 8);
  std::vector<double> A(static_cast<std::size_t>(N * n)), y(static_cast<std::size_t>(N));
  for (double& e : A) e = entry(random);
  for (double& e : y) e = entry(random);
  return {Array(Shape{N, n}, std::move(A)), Array(Shape{N}, std::move(y))};
}

RC_GTEST_PROP(RoundTrip, LibsvmTextComesBackBitForBit, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  const Dataset d = random_set(random);
  const std::int64_t first = random.integer(0, 1);
  bool found_zero = false;
  std::string text;
  for (std::int64_t i = 0; i < d.A.shape()[0]; ++i) {
    text += random.flip() ? fmt::format("{}", d.y(i)) : fmt::format("  {} qid:{}", d.y(i), i);
    for (std::int64_t j = 0; j < d.A.shape()[1]; ++j) {
      if (d.A(i, j) == 0 && (j > 0 || i > 0)) continue;
      found_zero = found_zero || j + first == 0;
      text += fmt::format("{}{}:{}", random.flip() ? " " : "\t  ", j + first, d.A(i, j));
    }
    text += random.one_of(std::vector<std::string>{"\n", " \r\n", " # remark 1:1\n", "#1\n\n"});
  }
  const Dataset back = data::parse_libsvm(text, "F", d.A.shape()[1], std::size_t{1} << 24);
  RC_ASSERT(found_zero || first == 1 || d.A.shape()[1] == 0);
  RC_ASSERT(identical(back.A, d.A));
  RC_ASSERT(identical(back.y, d.y));
}

RC_GTEST_PROP(RoundTrip, CsvTextComesBackBitForBit, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  const Dataset d = random_set(random);
  const std::int64_t n = d.A.shape()[1], target = random.integer(0, n);
  const char separator = random.one_of(std::vector<char>{',', ';', '\t'});
  const std::string end = random.flip() ? "\n" : "\r\n";
  std::string text;
  std::vector<std::string> names;
  if (random.flip()) {
    for (std::int64_t j = 0; j <= n; ++j) {
      text += fmt::format("{}\"c \"\"{}\"\"\n{}\"", j > 0 ? std::string(1, separator) : "", j, separator);
      if (j != target) names.push_back(fmt::format("c \"{}\"\n{}", j, separator));
    }
    text += end;
  }
  for (std::int64_t i = 0; i < d.A.shape()[0]; ++i) {
    for (std::int64_t j = 0; j <= n; ++j) {
      const double value = j == target ? d.y(i) : d.A(i, j < target ? j : j - 1);
      text += j > 0 ? std::string(1, separator) : "";
      text += random.integer(0, 4) == 0 ? fmt::format("\"{}\"", value) : fmt::format("{} ", value);
    }
    text += end;
  }
  const Dataset back = data::parse_csv(text, "F", {.target = fmt::format("{}", target + 1)});
  RC_ASSERT(identical(back.A, d.A));
  RC_ASSERT(identical(back.y, d.y));
  RC_ASSERT(back.names == names);
}

RC_GTEST_PROP(RoundTrip, NamesOfClassesComeBack, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  const std::vector<std::string> names{"12", "a \"quote\"", "semi;colon", "two\nlines", "\xc3\xa9"};
  std::string text = "a,y\n";
  std::vector<std::string> wanted;
  for (std::int64_t i = 0, count = random.integer(1, 30); i < count; ++i) {
    wanted.push_back(random.one_of(names));
    std::string quoted;
    for (const char c : wanted.back()) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    text += fmt::format("{},\"{}\"\n", i, quoted);
  }
  RC_PRE(2 * std::ranges::count(wanted, "12") <= std::ssize(wanted));
  const Dataset back = data::parse_csv(text, "F", {});
  RC_ASSERT(std::ranges::is_sorted(back.label_names));
  for (std::size_t i = 0; i < wanted.size(); ++i)
    RC_ASSERT(back.label_names[static_cast<std::size_t>(back.y.values()[i])] == wanted[i]);
}

RC_GTEST_PROP(RoundTrip, IdxDoublesComeBackBitForBit, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  const Dataset d = random_set(random);
  std::string bytes{0, 0, 0x0e, 2};
  const auto add = [&](std::uint64_t bits, int size) {
    for (int shift = 8 * size - 8; shift >= 0; shift -= 8)
      bytes += static_cast<char>(static_cast<unsigned char>(bits >> shift));
  };
  add(static_cast<std::uint64_t>(d.A.shape()[0]), 4);
  add(static_cast<std::uint64_t>(d.A.shape()[1]), 4);
  for (const double e : d.A.values()) add(std::bit_cast<std::uint64_t>(e), 8);
  RC_ASSERT(identical(data::parse_idx(bytes, "F", std::size_t{1} << 24), d.A));
}

}  // namespace
}  // namespace onestep::test
