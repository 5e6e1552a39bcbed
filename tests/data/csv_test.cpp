// The CSV reader: headers, targets, quotes, and errors with line and field.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/parse.h"
#include "onestep/dataset.h"
#include "support/files.h"
#include "support/run.h"

namespace onestep::test {
namespace {

using ::testing::HasSubstr;
using Names = std::vector<std::string>;

Dataset parse(const std::string& text, const CsvOptions& options = {}) { return data::parse_csv(text, "F", options); }
std::string error_in(const std::string& text, const CsvOptions& options = {}) {
  return error_of([&] { parse(text, options); });
}

TEST(ReadCsv, TheLastColumnIsTheTarget) {
  const Dataset d = parse("a,b,y\n1,2,3\n-4.5,6e-1,+7\n");
  EXPECT_TRUE(near(d.A, Array{{1.0, 2.0}, {-4.5, 0.6}}));
  EXPECT_TRUE(near(d.y, Array{3.0, 7.0}));
  EXPECT_EQ(d.names, (Names{"a", "b"}));
}

TEST(ReadCsv, TheTargetIsGivenByNameOrPosition) {
  const std::string text = "a,b,c\n1,2,3\n4,5,6\n";
  for (const char* target : {"b", "2", "-2"}) {
    const Dataset d = parse(text, {.target = target});
    EXPECT_TRUE(near(d.y, Array{2.0, 5.0})) << target;
    EXPECT_TRUE(near(d.A, Array{{1.0, 3.0}, {4.0, 6.0}})) << target;
    EXPECT_EQ(d.names, (Names{"a", "c"}));
  }
  EXPECT_TRUE(near(parse("2,1\n5,6\n", {.target = "2", .header = CsvOptions::yes}).y, Array{5.0})) << "names come first";
}

TEST(ReadCsv, AHeaderIsALineWithANameInIt) {
  EXPECT_EQ(parse("1,2\n3,4\n").A.shape(), (Shape{2, 1}));
  EXPECT_TRUE(parse("1,2\n3,4\n").names.empty());
  EXPECT_EQ(parse("0,1,target\n3,4,5\n").names, (Names{"0", "1"}));
  EXPECT_EQ(parse("1,2\n3,4\n", {.header = CsvOptions::yes}).names, (Names{"1"}));
  EXPECT_THAT(error_in("a,b\n3,4\n", {.header = CsvOptions::no}),
              HasSubstr("F:1: field 1: the value is \"a\", not a number"));
  EXPECT_THAT(error_in("1,,3\n4,5,6\n"), HasSubstr("F:1: field 2: the value is missing")) << "not a header with two numbers";
}

TEST(ReadCsv, QuotedFieldsMayHaveAnythingInThem) {
  const Dataset d = parse("\"a, \"\"b\"\"\",\"two\nlines\",y\r\n\"1\",  2 ,\" 3 \"\r\n\r\n4,\"5\" ,6");
  EXPECT_EQ(d.names, (Names{"a, \"b\"", "two\nlines"}));
  EXPECT_TRUE(near(d.A, Array{{1.0, 2.0}, {4.0, 5.0}}));
  EXPECT_TRUE(near(d.y, Array{3.0, 6.0}));
  EXPECT_EQ(error_in("\"a\nb\",y\n1,x\n"),
            "[read_csv] F:3: field 2: the value of \"y\" is \"x\", not a number; give classes and categories numbers")
      << "lines are counted within quotes";
}

TEST(ReadCsv, TheSeparatorIsFoundOrGiven) {
  EXPECT_TRUE(near(parse("1;2\n3;4\n").y, Array{2.0, 4.0}));
  EXPECT_TRUE(near(parse("1\t2\n3\t4\n").y, Array{2.0, 4.0}));
  EXPECT_TRUE(near(parse("\"a,b,c\";y\n1;2\n").y, Array{2.0})) << "what is quoted does not count";
  EXPECT_TRUE(near(parse("a|y\n1 | 2\n", {.separator = '|'}).y, Array{2.0}));
  EXPECT_TRUE(near(parse("1 2\n3 4\n", {.separator = ' '}).y, Array{2.0, 4.0}));
  EXPECT_THAT(error_in("1,2\n", {.separator = '"'}), HasSubstr("cannot separate fields"));
}

TEST(ReadCsv, OneColumnIsATargetWithoutFeatures) {
  const Dataset d = parse("y\n1\n2\n");
  EXPECT_EQ(d.A.shape(), (Shape{2, 0}));
  EXPECT_TRUE(near(d.y, Array{1.0, 2.0}));
}

TEST(ReadCsv, AByteOrderMarkIsNoPartOfAName) {
  EXPECT_EQ(parse("\xef\xbb\xbf"
                  "a,y\n1,2\n")
                .names,
            (Names{"a"}));
}

TEST(ReadCsvErrors, MissingValuesSayLineAndColumn) {
  EXPECT_EQ(error_in("a,age,y\n1,2,3\n1,,3\n"),
            "[read_csv] F:3: field 2: the value of \"age\" is missing; fill it in, or leave the sample out");
  for (const char* missing : {"NA", "nan", "NaN", "null", "?", " ", "\"\"", "n/a"})
    EXPECT_THAT(error_in(fmt::format("1,2\n{},3\n", missing)), HasSubstr("F:2: field 1: the value is missing")) << missing;
}

TEST(ReadCsvErrors, SayLineAndField) {
  EXPECT_EQ(error_in("a,b\n1,2\n1,2,3\n"), "[read_csv] F:3: has 3 fields, the first line has 2");
  EXPECT_EQ(error_in("a,b\n1\n"), "[read_csv] F:2: has 1 fields, the first line has 2");
  EXPECT_EQ(error_in("a,b\n1,inf\n"), "[read_csv] F:2: field 2: the value of \"b\" is \"inf\", not finite");
  EXPECT_EQ(error_in("a,b\n1,red\n"),
            "[read_csv] F:2: field 2: the value of \"b\" is \"red\", not a number; give classes and categories numbers");
  EXPECT_EQ(error_in("a,b\n1,\"2\n"), "[read_csv] F:2: field 2: the quotation mark that opens here is never closed");
  EXPECT_EQ(error_in("a,b\n1,\"2\"3\n"), "[read_csv] F:2: field 2: there is text after the closing quotation mark");
  EXPECT_THAT(error_in("1 2\n3 4\n"), HasSubstr("say what separates the fields"));
}

TEST(ReadCsvErrors, TargetsThatAreNotThere) {
  EXPECT_EQ(error_in("a,b\n1,2\n", {.target = "c"}), "[read_csv] F: no column is called \"c\"; there are \"a\", \"b\"");
  EXPECT_EQ(error_in("1,2\n", {.target = "c"}),
            "[read_csv] F: there is no header to find the target \"c\" in; give its position");
  for (const char* target : {"0", "3", "-3"})
    EXPECT_THAT(error_in("a,b\n1,2\n", {.target = target}),
                HasSubstr(fmt::format("there is no column {} for the target; there are 2", target)));
  const std::string twice = "a,y,b,y\n1,2,3,4\n";
  EXPECT_EQ(error_in(twice, {.target = "y"}),
            "[read_csv] F: the columns 2 and 4 are both called \"y\"; give the target by its position");
  EXPECT_TRUE(near(parse(twice, {.target = "4"}).y, Array{4.0})) << "twice is fine where it is not asked for";
}

TEST(ReadCsvErrors, EmptyBinaryAndLargeFiles) {
  EXPECT_EQ(error_in(""), "[read_csv] F: there is no line in it");
  EXPECT_EQ(error_in("\n \n\r\n"), "[read_csv] F: there is no line in it");
  EXPECT_THAT(error_in("a,b\n"), HasSubstr("there is no sample in it, only a line of names"));
  EXPECT_THAT(error_in(std::string("\x00\x01\xff\n\x00\n", 6)), HasSubstr("F:2: field 1: the value of"));
  EXPECT_EQ(error_in("1,2\n3,4\n", {.memory_limit = 32}), "no error");
  EXPECT_THAT(error_in("1,2\n3,4\n", {.memory_limit = 31}),
              HasSubstr("the entries up to sample 2 alone need 3.2e-08 GB as dense matrices, above the memory limit"));
  EXPECT_EQ(error_of([] { read_csv("no/such/file"); }),
            "[read_csv] no/such/file: cannot be opened: No such file or directory");
}

}  // namespace
}  // namespace onestep::test
