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
}

// pandas calls columns 0, 1, 2, … where nobody named them.
TEST(ReadCsv, ANumberThatIsANameAndAnotherPositionIsRefused) {
  const std::string text = "id,0,1,y\n7,1,2,3\n9,4,5,6\n";
  for (const CsvOptions& how : {CsvOptions{.target = "1"}, CsvOptions{.drop = {"1"}}})
    EXPECT_THAT(error_in(text, how), HasSubstr("1 is the name of column 3 and the position of another; give the position of "
                                               "the one"));
  EXPECT_THAT(error_in(text, {.drop = {"1"}}), HasSubstr("-2 for the one of this name, -4 for the one at this position"));
  EXPECT_EQ(parse(text, {.drop = {"-2"}}).names, (Names{"id", "0"}));
  EXPECT_EQ(parse(text, {.drop = {"-4"}}).names, (Names{"0", "1"}));
  EXPECT_EQ(parse(text, {.drop = {"3"}}).names, (Names{"id", "0"})) << "a position alone";
  EXPECT_EQ(parse("1,2,y\n7,1,2\n", {.drop = {"1"}, .header = CsvOptions::yes}).names, (Names{"2"})) << "both are one";
}

TEST(ReadCsv, AFirstColumnWithoutANameIsAnIndex) {
  const std::string text = ",a,b,y\n10,1,2,3\n12,4,5,6\n";
  const Dataset d = parse(text);
  EXPECT_EQ(d.names, (Names{"a", "b"}));
  EXPECT_TRUE(near(d.A, Array{{1.0, 2.0}, {4.0, 5.0}}));
  EXPECT_THAT(d.notes, ::testing::Contains(HasSubstr("has no name, is taken for an index and left out")));
  EXPECT_TRUE(d.left_out.empty());
  EXPECT_TRUE(near(parse(text, {.target = "1"}).y, Array{10.0, 12.0})) << "asked for";
  EXPECT_TRUE(parse(text, {.drop = {"1"}}).notes.empty()) << "said already";
  EXPECT_EQ(parse("i,a,b,y\n10,1,2,3\n12,4,5,6\n").names, (Names{"i", "a", "b"}));
}

TEST(ReadCsv, WholeNumbersThatAllDifferMayBeAnIdentifier) {
  std::string text = "code,count,y\n";
  for (int i = 0; i < 60; ++i) text += fmt::format("{},{},{}\n", 100 + (i * 37) % 60 * 5, i % 9, i % 2);
  EXPECT_THAT(parse(text).notes, ::testing::ElementsAre(HasSubstr("\"code\" is another whole number for each sample")));
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

TEST(ReadCsv, CarriageReturnsAloneEndLines) {
  const Dataset d = parse("a,b,y\r1,2,3\r\r4,5,6\r");
  EXPECT_EQ(d.names, (Names{"a", "b"}));
  EXPECT_TRUE(near(d.A, Array{{1.0, 2.0}, {4.0, 5.0}}));
  EXPECT_TRUE(near(d.y, Array{3.0, 6.0}));
  EXPECT_THAT(error_in("a,b,y\r1,2,3\r4,x,6\r5,6,7"), HasSubstr("F:3: field 2: "));
}

TEST(ReadCsv, QuotedFieldsMayHaveAnythingInThem) {
  const Dataset d = parse("\"a, \"\"b\"\"\",\"two\nlines\",y\r\n\"1\",  2 ,\" 3 \"\r\n\r\n4,\"5\" ,6");
  EXPECT_EQ(d.names, (Names{"a, \"b\"", "two\nlines"}));
  EXPECT_TRUE(near(d.A, Array{{1.0, 2.0}, {4.0, 5.0}}));
  EXPECT_TRUE(near(d.y, Array{3.0, 6.0}));
  EXPECT_EQ(error_in("\"a\nb\",y\n\"x\ny\",1\nx,\n"),
            "[read_csv] F:3: field 1: the value of \"a\\x0ab\" is \"x\\x0ay\", not a number; give categories numbers, drop "
            "the column, or make it the target")
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

TEST(ReadCsv, TextInTheTargetNamesClasses) {
  const Dataset d = parse("a,species\n1,virginica\n2, setosa \n3,\"virginica\"\n4,\"blue, or so\"\n");
  EXPECT_EQ(d.label_names, (Names{"blue, or so", "setosa", "virginica"}));
  EXPECT_TRUE(near(d.y, Array{2.0, 1.0, 2.0, 0.0}));
  EXPECT_TRUE(near(d.A, Array(Shape{4, 1}, std::vector<double>{1, 2, 3, 4})));
  EXPECT_TRUE(parse("a,y\n1,2\n").label_names.empty());
  const Dataset first = parse("y,a\nyes,1\nno,2\n", {.target = "y"});
  EXPECT_EQ(first.label_names, (Names{"no", "yes"}));
  EXPECT_TRUE(near(first.y, Array{1.0, 0.0}));
}

TEST(ReadCsv, NumbersAmongTextsAreNamesToo) {
  const Dataset d = parse("a,y\n1,2\n1,3+\n1,1\n1,3+\n1,2.0\n1,3+\n");
  EXPECT_EQ(d.label_names, (Names{"1", "2", "2.0", "3+"})) << "as they are written";
  EXPECT_TRUE(near(d.y, Array{1.0, 3.0, 0.0, 3.0, 2.0, 3.0}));
}

TEST(ReadCsv, OtherSamplesHaveTheSameClasses) {
  const Names known{"1", "setosa", "virginica"};
  const Dataset d = parse("a,y\n1,virginica\n2,virginica\n3,1\n", {.label_names = known});
  EXPECT_TRUE(near(d.y, Array{2.0, 2.0, 0.0}));
  EXPECT_EQ(d.label_names, known);
  EXPECT_EQ(error_in("a,y\n1,setosa\n2,rose\n", {.label_names = known}),
            "[read_csv] F:3: field 2: the value of \"y\" is \"rose\", which is not among the classes that were learned "
            "from, \"1\", "
            "\"setosa\", \"virginica\"; correct it, leave the sample out, or learn from samples that have it");
  EXPECT_THAT(error_in("a,y\n1,2\n", {.label_names = known}), HasSubstr("F:2: field 2: the value of \"y\" is \"2\", which"));
}

TEST(ReadCsv, AFirstLineWithALabelIsASample) {
  const Dataset d = parse("5.1,3.5,setosa\n4.9,3.0,virginica\n");
  EXPECT_EQ(d.A.shape(), (Shape{2, 2}));
  EXPECT_TRUE(d.names.empty());
  EXPECT_EQ(d.label_names, (Names{"setosa", "virginica"}));
  EXPECT_EQ(parse("M,5.1,no\nF,4.9,yes\n", {.drop = {"1"}}).y.size(), 2);
  EXPECT_EQ(parse("M,5.1,2\nF,4.9,3\n", {.drop = {"1"}}).y.size(), 2);
  EXPECT_EQ(parse("1,2,setosa\n", {.label_names = {"setosa"}}).y.size(), 1) << "a label that is known";
  EXPECT_EQ(parse("1,setosa\n2,virginica\n").y.size(), 2) << "one number does not count";
  EXPECT_EQ(parse("0,1,species\n4.9,3.0,virginica\n").names, (Names{"0", "1"})) << "numbers that count are names";
  EXPECT_EQ(parse("a,,species\n1,3.0,virginica\n").names, (Names{"a", ""})) << "names may be missing";
  EXPECT_EQ(parse("5.1,setosa\n4.9,virginica\n", {.target = "setosa"}).names, (Names{"5.1"})) << "it was called a name";
  EXPECT_THAT(error_in("NA,3.5,setosa\n4.9,3.0,virginica\n"), HasSubstr("missing")) << "a value, not a name";
}

TEST(ReadCsv, DroppedColumnsMayHaveAnythingInThem) {
  const std::string text = "id,a,note,y\nx1,1,\"fine, \",2\n,3,?,4\n";
  for (const Names& drop : {Names{"id", "note"}, Names{"1", "-2"}, Names{"note", "id", "1"}}) {
    const Dataset d = parse(text, {.drop = drop});
    EXPECT_TRUE(near(d.A, Array(Shape{2, 1}, std::vector<double>{1, 3})));
    EXPECT_TRUE(near(d.y, Array{2.0, 4.0}));
    EXPECT_EQ(d.names, (Names{"a"}));
  }
  EXPECT_EQ(error_in(text, {.drop = {"name"}}),
            "[read_csv] F: no column is called \"name\"; there are \"id\", \"a\", \"note\", \"y\"");
  EXPECT_THAT(error_in(text, {.drop = {"5"}}), HasSubstr("there is no column 5 to drop; there are 4"));
  const char* message = "[read_csv] F: the column \"y\" is the target and cannot be dropped; name another target";
  EXPECT_EQ(error_in(text, {.drop = {"y"}}), message);
  EXPECT_EQ(error_in(text, {.target = "y", .drop = {"-1"}}), message) << "it has a name";
  EXPECT_THAT(error_in("1,2\n", {.target = "1", .drop = {"1"}}), HasSubstr("the column 1 is the target"));
}

TEST(ReadCsv, FeaturesKnowTheirColumns) {
  EXPECT_EQ(parse("1,2,3,4,5\n", {.target = "2", .drop = {"4"}}).columns, (std::vector<std::int64_t>{1, 3, 5}));
  const Dataset d = parse("a,b,c,y\n1,2,3,4\n", {.drop = {"b"}});
  EXPECT_EQ(d.columns, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(d.target_name, "y");
  EXPECT_EQ(d.left_out, (Names{"b"}));
}

TEST(ReadCsv, OtherSamplesHaveTheSameColumnsInAnyOrder) {
  const auto read = [](const std::string& text, const CsvOptions& options = {}) {
    CsvOptions known = options;
    known.names = {"a", "b", "c"};
    known.target_name = "y";
    return parse(text, known);
  };
  const Dataset d = read("y,c,note,a,b\n9,3,fine,1,2\n8,6,?,4,5\n", {.target = "-1", .drop = {"id", "2"}});
  EXPECT_TRUE(near(d.A, Array{{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}}));
  EXPECT_TRUE(near(d.y, Array{9.0, 8.0}));
  EXPECT_EQ(d.names, (Names{"a", "b", "c"}));
  EXPECT_EQ(d.columns, (std::vector<std::int64_t>{4, 5, 2}));
  EXPECT_EQ(d.left_out, (Names{"note"}));
  EXPECT_TRUE(near(read("a,b,c,y\n1,2,3,4\n").A, Array{{1.0, 2.0, 3.0}}));
  EXPECT_TRUE(near(read("1,2,3,4\n5,6,7,8\n", {.target = "1"}).A, Array{{2.0, 3.0, 4.0}, {6.0, 7.0, 8.0}}))
      << "by position where there is no header";
  EXPECT_TRUE(near(parse("2,1\n5,6\n", {.names = {"1"}, .target_name = "2"}).A, full({1, 1}, 6.0)))
      << "names that are known";
  const auto error = [&](const std::string& text) { return error_of([&] { read(text); }); };
  EXPECT_EQ(error("a,d,y\n1,2,3\n"), "[read_csv] F: no column is called \"b\", \"c\"; there are \"a\", \"d\", \"y\"");
  EXPECT_EQ(error("a,b,c\n1,2,3\n"), "[read_csv] F: no column is called \"y\"; there are \"a\", \"b\", \"c\"");
  EXPECT_THAT(error("a,b,c,b,y\n1,2,3,4,5\n"), HasSubstr("the columns 2 and 4 are both called \"b\""));
  EXPECT_EQ(error("a,b,d,c,d,y\n1,2,3,4,5,6\n"), "no error") << "twice is fine where it is left out";
  EXPECT_THAT(error_in("a,y\n1,2\n", {.names = {"a", "y"}, .target_name = "y"}), HasSubstr("a column is asked for twice"));
  EXPECT_THAT(error_in("a,y\n1,2\n", {.names = {"a", "a"}, .target_name = "y"}), HasSubstr("a column is asked for twice"));
}

TEST(ReadCsvErrors, ATextAmongNumbersIsNoClass) {
  EXPECT_EQ(error_in("a,y\n1,2.5\n1,3.5\n1,4,5\n"), "[read_csv] F:4: has 3 fields, the first line has 2");
  EXPECT_EQ(error_in("a,y\n1,2.5\n1,4.S\n1,5.5\n"),
            "[read_csv] F:3: field 2: the value of \"y\" is \"4.S\", not a number; most values of this column are numbers");
  std::string many = "a,y\n", numbers = many;
  for (int i = 0; i < 101; ++i) {
    many += fmt::format("1,n{}\n1,n0\n", i);
    numbers += fmt::format("1,n0\n1,{}\n", i);
  }
  const std::string message =
      "[read_csv] F:2: field 2: the value of \"y\" is \"n0\", not a number; the column has more than 100 "
      "different entries, too many to be classes";
  EXPECT_EQ(error_in(many), message);
  EXPECT_EQ(error_in(numbers), message);
  EXPECT_THAT(error_in("a,y\n1,no\n1,\n"), HasSubstr("F:3: field 2: the value of \"y\" is missing"));
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
  EXPECT_EQ(error_in("a,b\n1,inf\n"),
            "[read_csv] F:2: field 2: the value of \"b\" is \"inf\", not finite; correct it, or leave the sample out");
  EXPECT_EQ(
      error_in("a,b\nred,1\n", {.target = "b"}),
      "[read_csv] F:2: field 1: the value of \"a\" is \"red\", not a number; give categories numbers, or drop the column");
  EXPECT_THAT(error_in("a,b\nred,1\n"), HasSubstr("give categories numbers, drop the column, or make it the target"));
  EXPECT_EQ(error_in("a,b\n1,\"2\n"), "[read_csv] F:2: field 2: the quotation mark that opens here is never closed");
  EXPECT_EQ(error_in("a,b\n1,\"2\"3\n"), "[read_csv] F:2: field 2: there is text after the closing quotation mark");
  EXPECT_THAT(error_in("1 2\n3 4\n"), HasSubstr("say what separates the fields"));
}

TEST(ReadCsvErrors, TargetsThatAreNotThere) {
  EXPECT_EQ(error_in("a,b\n1,2\n", {.target = "c"}), "[read_csv] F: no column is called \"c\"; there are \"a\", \"b\"");
  EXPECT_EQ(error_in("1,2\n", {.target = "c"}),
            "[read_csv] F: there is no header to find the column \"c\" in; give its position");
  for (const char* target : {"0", "3", "-3"})
    EXPECT_THAT(error_in("a,b\n1,2\n", {.target = target}),
                HasSubstr(fmt::format("there is no column {} for the target; there are 2", target)));
}

TEST(ReadCsvErrors, NamesThatStandForTwoColumns) {
  const std::string twice = "a,y,b,y\n1,2,3,4\n";
  for (const char* target : {"", "y", "4", "a"})
    EXPECT_EQ(error_in(twice, {.target = target}),
              "[read_csv] F: the columns 2 and 4 are both called \"y\"; rename one, or drop it by its position");
  EXPECT_EQ(error_in(twice, {.drop = {"y"}}),
            "[read_csv] F: the columns 2 and 4 are both called \"y\"; give the position of the one to drop");
  EXPECT_TRUE(near(parse(twice, {.target = "y", .drop = {"2"}}).y, Array{4.0}));
  EXPECT_THAT(error_in("a,b,a,b,c,c\n1,2,3,4,5,6\n"),
              HasSubstr("1 and 3 are both called \"a\" (and so on: \"b\", \"c\"); rename"));
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
