// The CSV reader where a table is not plain numbers below names: categories, missing values, decimal commas, headers of
// numbers, and what it says about what it guessed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "data/csv_words.h"
#include "data/parse.h"
#include "onestep/dataset.h"
#include "support/files.h"
#include "support/run.h"

namespace onestep::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Dataset parse_table(const std::string& text, const CsvOptions& options = {}) { return data::parse_csv(text, "F", options); }
std::string error_in_table(const std::string& text, const CsvOptions& options = {}) {
  return error_of([&] { parse_table(text, options); });
}

TEST(ReadCsvCategories, HaveAFeatureForEachLevelButTheReference) {
  const std::string text = "size,colour,y\n1,red,0\n2,blue,1\n3,red,1\n4,green,0\n5,blue,1\n7,green,0\n";
  const Dataset d = parse_table(text, {.categories = true});
  EXPECT_THAT(d.names, ElementsAre("size", "colour=green", "colour=red"));
  EXPECT_TRUE(near(d.A, Array{{1., 0., 1.}, {2., 0., 0.}, {3., 0., 1.}, {4., 1., 0.}, {5., 0., 0.}, {7., 1., 0.}}));
  EXPECT_THAT(d.columns, ElementsAre(1, 2, 2));
  EXPECT_THAT(d.notes, ElementsAre("\"colour\" is a category: \"green\", \"red\" compared with the reference \"blue\""));
  const Dataset red = parse_table(text, {.category = {"colour=red"}});
  EXPECT_THAT(red.encoding[1].levels, ElementsAre("red", "blue", "green"));
  EXPECT_THAT(error_in_table(text), HasSubstr("not a number; give categories numbers"));
  EXPECT_THAT(error_in_table(text, {.category = {"colour=pink"}}), HasSubstr("no sample has the level \"pink\""));
  EXPECT_THAT(error_in_table(text, {.category = {"y"}}), HasSubstr("is not a feature"));
}

TEST(ReadCsvCategories, MayBeNumbersWhereThatIsAskedFor) {
  const Dataset d = parse_table("zip,y\n10,1\n9,2\n10,3\n100,4\n", {.category = {"zip"}});
  EXPECT_THAT(d.encoding[0].levels, ElementsAre("9", "10", "100")) << "in the order of numbers";
  EXPECT_TRUE(near(d.A, Array{{1., 0.}, {0., 0.}, {1., 0.}, {0., 1.}}));
}

TEST(ReadCsvCategories, AreComparedAsTexts) {
  const CsvOptions asked{.category = {"code"}};
  const Dataset d = parse_table("code,y\n010,1\n10,2\n1.0,3\n12345678901234567,4\n12345678901234568,5\n", asked);
  EXPECT_THAT(d.encoding[0].levels, ElementsAre("1.0", "010", "10", "12345678901234567", "12345678901234568"));
  EXPECT_THAT(parse_table("zip,y\n01234,1\n50667,2\n", {.category = {"zip=50667"}}).encoding[0].levels,
              ElementsAre("50667", "01234"));
  const CsvOptions known{.target_name = "y", .encoding = d.encoding};
  EXPECT_TRUE(near(parse_table("code,y\n10,0\n", known).A, Array{{0., 1., 0., 0.}}));
  EXPECT_THAT(error_in_table("code,y\n10.0,0\n", known), HasSubstr("\"10.0\", a level that was not there"));
  const Dataset mixed = parse_table("code,y\n010,1\nA,2\n10,3\nA,4\n010,5\nA,6\n10,7\nA,8\n", {.categories = true});
  EXPECT_THAT(mixed.encoding[0].levels, ElementsAre("010", "10", "A"));
  EXPECT_TRUE(near(mixed.A, Array{{0., 0.}, {0., 1.}, {1., 0.}, {0., 1.}, {0., 0.}, {0., 1.}, {1., 0.}, {0., 1.}}));
}

TEST(ReadCsvCategories, AColumnOfNumbersThatMayBeCodesIsNamed) {
  const Dataset d = parse_table("zip,n,id,y\n01234,0,12345678901234567,1\n50667,-5,2,0.5\n");
  EXPECT_THAT(d.codes, ElementsAre("zip", "id"));
  EXPECT_EQ(d.A(0, 0), 1234);
  EXPECT_THAT(parse_table("zip,y\n01234,1\n50667,2\n", {.category = {"zip"}}).codes, IsEmpty());
  for (const char* number : {"0", "-0", "0.5", "00.5", "1e3", "9007199254740992", "-12"})
    EXPECT_FALSE(data::is_code(number));
  for (const char* number : {"00", "-01", "007", "9007199254740993"}) EXPECT_TRUE(data::is_code(number)) << number;
}

TEST(ReadCsvCategories, OfOtherSamplesAreTheSameFeatures) {
  const Dataset train = parse_table("a,colour,y\n1,red,0\n2,blue,1\n3,red,1\n4,blue,0\n", {.categories = true});
  const CsvOptions known{.target_name = "y", .encoding = train.encoding};
  const Dataset other = parse_table("colour,y,more,a\nred,1,x,7\n", known);
  EXPECT_TRUE(near(other.A, Array{{7., 1.}}));
  EXPECT_THAT(other.left_out, ElementsAre("more"));
  EXPECT_EQ(error_in_table("a,colour,y\n1,red,0\n1,mauve,0\n", known),
            "[read_csv] F:3: field 2: the value of \"colour\" is \"mauve\", a level that was not there to learn from, which "
            "were \"blue\", \"red\"; leave the sample out, or fit again with samples that have it");
  EXPECT_THAT(error_in_table("a,colour,y\nx,red,0\n", known), HasSubstr("it was a number in the samples"));
}

TEST(ReadCsvCategories, AreNotMadeOfIdentifiersDatesOrMistakes) {
  const CsvOptions categories{.categories = true};
  EXPECT_THAT(error_in_table("id,a,y\nu1,1,0\nu2,2,1\nu3,3,0\n", categories),
              HasSubstr("3 of 3 samples have a text of their own"));
  for (const char* date : {"2024-03-05", "5/3/2024", "05.03.24", "5-Mar-2024", "2024-03-05T12:30:00Z", "12:30", "2024-03"})
    EXPECT_THAT(error_in_table(std::string("d,y\n") + date + ",0\n" + date + ",1\n", categories),
                HasSubstr("looks like a date"))
        << date;
  for (const char* text : {"3+", "10-20", "a-b-c", "1-2-3-4", "v1.2", "2:1 mix", "march-7"})
    EXPECT_FALSE(data::is_date(text) && !std::string(text).starts_with("2:1")) << text;
  for (const char* number : {"\"1,234\"", "12%", "$5", "1 000"})
    EXPECT_THAT(error_in_table(std::string("d,y\n") + number + ",0\n" + number + ",1\n", categories),
                HasSubstr("it looks like one"))
        << number;
  EXPECT_THAT(error_in_table("a,y\n1,0\n2,1\nx,0\n4,1\n5,0\n", categories), HasSubstr("F:4: field 1"));
  std::string many = "d,y\n";
  for (int i = 0; i < 303; ++i) many += "t" + std::to_string(i % 101) + ",1\n";
  EXPECT_THAT(error_in_table(many, categories), HasSubstr("more than 100 different texts"));
}

TEST(ReadCsvMissing, SamplesAreLeftOutOrValuesReplaced) {
  const std::string text = "a,colour,y\n1,red,0\n,blue,1\n3,,1\n4,blue,0\n5,red,\n6,red,1\n";
  const Dataset dropped = parse_table(text, {.missing = CsvOptions::drop_sample, .categories = true});
  EXPECT_THAT(dropped.rows, ElementsAre(1, 4, 6));
  EXPECT_EQ(dropped.in_file, 6U);
  EXPECT_TRUE(near(dropped.A, Array{{1., 1.}, {4., 0.}, {6., 1.}}));
  EXPECT_THAT(dropped.notes, ::testing::Contains("3 of 6 samples lack a value or the target and are left out"));
  const Dataset filled = parse_table(text, {.missing = CsvOptions::impute, .categories = true});
  EXPECT_THAT(filled.names, ElementsAre("a", "a is missing", "colour=red", "colour is missing"));
  EXPECT_THAT(filled.rows, ElementsAre(1, 2, 3, 4, 6)) << "a target cannot be replaced";
  EXPECT_TRUE(
      near(filled.A, Array{{1., 0., 1., 0.}, {3.5, 1., 0., 0.}, {3., 0., 0., 1.}, {4., 0., 0., 0.}, {6., 0., 1., 0.}}));
  // Other samples take the mean of these, and the most frequent level where nothing says that it is missing.
  const Dataset train = parse_table("a,colour,y\n1,red,0\n2,blue,1\n6,red,1\n3,blue,1\n3,red,1\n",
                                    {.missing = CsvOptions::impute, .categories = true});
  const Dataset other =
      parse_table("a,colour,y\n,,1\n", {.target_name = "y", .missing = CsvOptions::impute, .encoding = train.encoding});
  EXPECT_TRUE(near(other.A, Array{{3., 1.}}));
  EXPECT_THAT(other.notes, ElementsAre("1 of 1 samples lack \"a\": the mean 3 stands for it",
                                       "1 of 1 samples lack \"colour\": \"red\" stands for it"));
  EXPECT_THAT(error_in_table("a,b,y\n1,,0\n2,,1\n", {.missing = CsvOptions::impute}),
              HasSubstr("no sample has a value of \"b\"; drop the column"));
  EXPECT_THAT(error_in_table("a,b,y\n1,,0\n2,,1\n", {.missing = CsvOptions::drop_sample}), HasSubstr("every sample lacks"));
}

TEST(ReadCsvDecimals, AreFoundOrGiven) {
  const Dataset d = parse_table("a;y\n1,5;2\n-0,25;3,5\n");
  EXPECT_TRUE(near(d.A, Array(Shape{2, 1}, std::vector<double>{1.5, -0.25})));
  EXPECT_TRUE(near(d.y, Array{2.0, 3.5}));
  EXPECT_THAT(d.notes, ElementsAre("numbers have a comma before their decimals", "semicolons separate the fields"));
  EXPECT_TRUE(near(parse_table("1,5;2,5\n2,5;3,5\n").y, Array{2.5, 3.5})) << "more commas than semicolons";
  EXPECT_TRUE(near(parse_table("a;y\n1,5;2\n", {.decimal = CsvOptions::comma}).A, full({1, 1}, 1.5)));
  EXPECT_THAT(error_in_table("a;y\n1,234;2\n5,678;3\n"), HasSubstr("may separate decimals or thousands"));
  EXPECT_TRUE(near(parse_table("a;y\n1,234;2\n", {.decimal = CsvOptions::comma}).A, full({1, 1}, 1.234)));
  EXPECT_THAT(error_in_table("a;y\n1,5;2.5\n"), HasSubstr("\"1,5\", not a number")) << "points and commas";
  EXPECT_THAT(error_in_table("a,y\n1,2\n", {.separator = ',', .decimal = CsvOptions::comma}), HasSubstr("cannot separate"));
}

TEST(ReadCsvHeader, OfNumbersIsRecognisedOrAskedAbout) {
  const std::string pandas = "0,1,2,3\n0.5,0.25,0.125,1\n0.75,0.5,0.25,0\n0.5,0.1,0.2,1\n";
  EXPECT_EQ(parse_table(pandas).y.size(), 3);
  EXPECT_THAT(parse_table(pandas).notes, ElementsAre("the first line was taken for names: \"0\", \"1\", \"2\", \"3\""));
  EXPECT_EQ(parse_table("2001,2002,2003,2004\n5,7,3,1\n2,3,9,0\n5,1,2,1\n").y.size(), 3) << "years";
  EXPECT_EQ(parse_table("1,2,3,0\n2,1,3,1\n1,3,2,0\n3,1,1,1\n").y.size(), 4) << "small whole numbers like those below";
  EXPECT_THAT(error_in_table("1,2,3,4,5,6,0\n6,1,3,9,5,7,1\n0,3,2,1,5,3,0\n3,1,7,7,4,9,1\n"),
              HasSubstr("say whether there is a header"));
  EXPECT_THAT(error_in_table("0,1\n0.5,0.3\n0.2,0.9\n0.1,0.7\n"), HasSubstr("say whether there is a header"));
  EXPECT_EQ(parse_table("0,1\n0.5,0.3\n0.2,0.9\n0.1,0.7\n", {.header = CsvOptions::no}).y.size(), 4);
  EXPECT_THAT(error_in_table("517,203,9\n0.5,0.3,1\n0.2,0.9,2\n0.1,0.7,1\n"), HasSubstr("lie far from all values below"));
}

TEST(ReadCsvHeader, IsTheSameWhateverColumnsAreAskedFor) {
  const std::string text = "0,1,2,3,4\n5.1,3.5,1.4,0.2,0\n4.9,3.0,1.4,0.2,1\n4.7,3.2,1.3,0.2,0\n4.6,3.1,1.5,0.2,1\n";
  const std::string both = "4 is the name of column 5 and the position of another";
  EXPECT_THAT(error_in_table(text, {.target = "4"}), HasSubstr(both));
  EXPECT_THAT(error_in_table(text, {.target = "4"}), HasSubstr("or say that there is no header"));
  EXPECT_THAT(error_in_table(text, {.target = "4", .header = CsvOptions::yes}), HasSubstr(both));
  EXPECT_THAT(error_in_table(text, {.drop = {"3"}}), HasSubstr("3 is the name of column 4"));
  EXPECT_EQ(parse_table(text, {.target = "-1"}).y.size(), 4);
  EXPECT_EQ(parse_table(text, {.drop = {"-2"}}).names.size(), 3U);
  EXPECT_EQ(parse_table(text, {.target = "0"}).target_name, "0") << "a name alone";
  EXPECT_EQ(parse_table(text, {.target = "4", .header = CsvOptions::no}).y.size(), 5) << "a position alone";
  const std::string named = "0,1,2,kind\n5.1,3.5,1.4,a\n4.9,3.0,1.4,b\n4.7,3.2,1.3,a\n";
  EXPECT_THAT(error_in_table(named, {.drop = {"2"}}), HasSubstr("2 is the name of column 3 and the position of another"));
  EXPECT_EQ(parse_table(named, {.drop = {"-2"}}).y.size(), 3);
}

TEST(ReadCsvHeader, OfNumbersThatCountTheColumnsIsAskedAboutAboveSmallWholeNumbers) {
  const std::string binary = "0,1,2,3\n1,1,1,0\n0,0,0,0\n0,1,1,1\n1,0,1,1\n";
  const std::string question = "they count the columns; say whether there is a header";
  EXPECT_THAT(error_in_table(binary), HasSubstr(question));
  EXPECT_EQ(parse_table(binary, {.header = CsvOptions::yes}).y.size(), 4);
  EXPECT_THAT(error_in_table("1,2,3,4\n4,5,2,7\n0,4,2,7\n8,1,1,9\n"), HasSubstr(question));
  EXPECT_THAT(error_in_table(",0,1,2,3\n0,0,1,1,1\n1,0,0,1,1\n2,1,1,0,1\n"), HasSubstr(question)) << "with an index";
  EXPECT_THAT(error_in_table("0,1,2\n0.5,1.5,2.5\n"), HasSubstr(question)) << "a single sample";
  EXPECT_EQ(parse_table("0,1\n1,1\n0,0\n0,1\n1,0\n").y.size(), 5) << "found again below";
  EXPECT_THAT(error_in_table("0.0,1.0,2.0,3.0\n0.5,0.2,0.1,1.5\n0.7,0.5,0.2,0.3\n0.5,0.1,0.2,1.2\n"),
              HasSubstr("say whether there is a header"))
      << "values, perhaps";
}

TEST(ReadCsvHeader, IsNoHeaderWhereItsTextsAreFoundBelow) {
  const Dataset d = parse_table("p,x,s\ne,x,y\np,b,s\ne,b,y\n", {.categories = true});
  EXPECT_EQ(d.y.size(), 4);
  EXPECT_THAT(d.notes[0], HasSubstr("no header"));
  EXPECT_EQ(parse_table("M,5.1,no\nF,4.9,yes\nM,4.1,no\nF,4.5,no\n", {.categories = true}).y.size(), 4);
  EXPECT_EQ(parse_table("sex,2019,2020,kind\nM,1,2,a\nF,3,4,b\nM,1,2,a\nF,3,4,b\n", {.categories = true}).y.size(), 4)
      << "years";
}

TEST(ReadCsvHeader, CountsOfScikitLearnAreSkipped) {
  const Dataset d = parse_table("3,2,no,yes\n5.1,3.5,0\n4.9,3.0,1\n4.7,3.2,0\n");
  EXPECT_EQ(d.A.shape(), (Shape{3, 2}));
  EXPECT_THAT(d.notes[0],
              HasSubstr("counts samples and features and was skipped; behind the counts it has \"no\", \"yes\""));
  EXPECT_THAT(error_in_table("4,2,no,yes\n5.1,3.5,0\n4.9,3.0,1\n4.7,3.2,0\n"),
              HasSubstr("has 3 fields, the first line has 4"));
}

TEST(ReadCsvTarget, NumbersThatAreCodesNameClasses) {
  const Dataset d = parse_table("a,zip\n1,01234\n2,50667\n3,1234\n4,\n5,01234\n", {.missing = CsvOptions::drop_sample});
  EXPECT_THAT(d.label_names, ElementsAre("01234", "1234", "50667"));
  EXPECT_TRUE(near(d.y, Array{0., 2., 1., 0.}));
  EXPECT_THAT(d.notes, ::testing::Contains(HasSubstr("\"zip\" has numbers with leading zeros")));
  EXPECT_THAT(parse_table("a,id\n1,12345678901234567\n2,12345678901234568\n").label_names,
              ElementsAre("12345678901234567", "12345678901234568"));
  std::string many = "a,y\n";
  for (int i = 0; i < 101; ++i) many += "1,00" + std::to_string(i) + "\n";
  EXPECT_THAT(parse_table(many).label_names, IsEmpty()) << "a quantity";
  EXPECT_THAT(parse_table(many).notes, ::testing::Contains(HasSubstr("too many to be classes")));
}

TEST(ReadCsvTarget, LabelsOfNoKnownClassAreToldApartForPrediction) {
  const Dataset train = parse_table("a,y\n1,0\n2,1\n");
  const CsvOptions numbers{.target_name = "y", .encoding = train.encoding, .target_optional = true};
  const Dataset names = parse_table("a,y\n1,malignant\n2,benign\n3,malignant\n", numbers);
  EXPECT_THAT(names.unknown_labels, ElementsAre("malignant", "benign"));
  EXPECT_THAT(names.label_names, IsEmpty());
  EXPECT_TRUE(std::isnan(names.y(0)));
  CsvOptions known = numbers;
  known.label_names = {"benign", "malignant"};
  const Dataset other = parse_table("a,y\n1,malignant\n2,unclear\n", known);
  EXPECT_EQ(other.y(0), 1);
  EXPECT_THAT(other.unknown_labels, ElementsAre("unclear"));
}

TEST(ReadCsvTarget, MayBeAbsentForPrediction) {
  const Dataset train = parse_table("a,b,y\n1,2,3\n4,5,6\n");
  const CsvOptions known{.target_name = "y", .encoding = train.encoding, .target_optional = true};
  EXPECT_EQ(parse_table("b,a\n2,1\n", known).y.size(), 0);
  EXPECT_TRUE(near(parse_table("b,a\n2,1\n", known).A, Array{{1., 2.}}));
  const Dataset some = parse_table("b,y,a\n2,,1\n3,7,2\n", known);
  EXPECT_TRUE(std::isnan(some.y(0)));
  EXPECT_EQ(some.y(1), 7);
  const Dataset bare = parse_table("1.5,2,3\n4,5.5,6\n");
  const CsvOptions positions{.target = "3", .header = CsvOptions::no, .encoding = bare.encoding, .target_optional = true};
  EXPECT_EQ(parse_table("1,2\n", positions).y.size(), 0);
  EXPECT_EQ(parse_table("1,2,9\n", positions).y(0), 9);
  for (const char* header : {"a,b,y", "0,1,2", "2,1,3"})
    EXPECT_THAT(
        error_in_table(std::string(header) + "\n1,2,9\n",
                       {.target = "3", .header = CsvOptions::yes, .encoding = bare.encoding, .target_optional = true}),
        HasSubstr("their columns are known by their positions only; take the first line out of this file"))
        << header;
  EXPECT_THAT(error_in_table("1\n", positions), HasSubstr("has 1 columns without names"));
}

}  // namespace
}  // namespace onestep::test
