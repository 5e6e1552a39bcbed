// What the CSV reader makes of files as people have them, and what it advises where it cannot read them: numbers with signs,
// words for missing values, separators at the ends of lines, other formats, names in any language, copies.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/csv_words.h"
#include "data/parse.h"
#include "data/text.h"
#include "onestep/dataset.h"
#include "support/files.h"
#include "support/run.h"

namespace onestep::test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Dataset parse_people(const std::string& text, const CsvOptions& options = {}) { return data::parse_csv(text, "F", options); }
std::string error_in_people(const std::string& text, const CsvOptions& options = {}) {
  return error_of([&] { parse_people(text, options); });
}

TEST(CsvAdvice, OnDressedNumbersWorksWhenTried) {
  const auto advice = [](const std::string& number, bool commas = false) {
    return data::advice_on_dressed_number(number, commas).text;
  };
  EXPECT_EQ(advice("18.9%"), "take out the per cent sign");
  EXPECT_EQ(advice("$18.9"), "take out the currency sign $");
  EXPECT_EQ(advice("1,891.00"), "take out the commas between thousands");
  EXPECT_EQ(advice("1 000"), "take out the blanks between thousands");
  EXPECT_EQ(advice("1.891,00"), "take out the points between thousands, and say that decimals have a comma");
  EXPECT_EQ(advice("1.891,00", true), "take out the points between thousands, and write a point instead of the comma");
  EXPECT_EQ(advice("18,9 %"), "take out the per cent sign, and say that decimals have a comma");
  EXPECT_EQ(advice("€ 1'234'567"), "take out the currency sign € and the apostrophes between thousands");
  EXPECT_THAT(advice("1,234", true), HasSubstr("take out the comma if it separates thousands; if it stands before decimals, "
                                               "write a point"));
  EXPECT_FALSE(data::advice_on_dressed_number("18,9", true).decimal_comma);
  EXPECT_TRUE(data::advice_on_dressed_number("18,9", false).decimal_comma);
  // As files, before and after.
  EXPECT_THAT(error_in_people("a;y\n1.891,00;1\n2.000,50;2\n"), HasSubstr("it looks like one: take out the points"));
  EXPECT_EQ(parse_people("a;y\n1891,00;1\n2000,50;2\n", {.decimal = CsvOptions::comma}).A(1, 0), 2000.5);
}

TEST(CsvAdvice, NumbersThatNoDoubleHoldsAreCalledThat) {
  std::string text = "a,y\n";
  for (int i = 0; i < 30; ++i) text += fmt::format("{},{}\n", i, i % 2);
  for (const std::string& number :
       {std::string("1e400"), std::string(400, '1'), std::string("-2e-400"), std::string("+1e999")}) {
    const std::string message = error_in_people(text + number + ",1\n");
    EXPECT_THAT(message, HasSubstr("a number of a size that no double holds")) << number;
    EXPECT_THAT(message, Not(HasSubstr("not a number"))) << number;
    EXPECT_THAT(message, HasSubstr("F:32: field 1")) << number;
  }
  EXPECT_EQ(error_in_people("a,y\n1e400,x\n2e400,x\n2e400,z\n1e400,z\n", {.categories = true}), "no error")
      << "levels may be such";
}

TEST(CsvAdvice, ACategoryWithTooManyValuesIsToldThat) {
  std::string text = "a,b,y\n";
  for (int i = 0; i < 300; ++i) text += fmt::format("{}.5,{},{}\n", i, i % 7, i % 2);
  const std::string message = error_in_people(text, {.categories = true, .category = {"a"}});
  EXPECT_THAT(message, HasSubstr("has more than 100 different values"));
  EXPECT_THAT(message, Not(HasSubstr("not a number")));
}

TEST(CsvAdvice, NamesOfMonthsMakeDates) {
  for (const char* date :
       {"Jan 1", "Feb 28", "1 Mar", "31-Dec", "January 5", "September 2024", "Mar 5, 2024", "5. May 2024", "Jan-24"})
    EXPECT_TRUE(data::is_date(date)) << date;
  for (const char* word :
       {"Mark 1", "Marble", "may", "Decor 22", "Jan", "Junior 1", "1 Maybe", "Sept", "model 12", "march-7"})
    EXPECT_FALSE(data::is_date(word)) << word;
}

TEST(CsvAdvice, ANameThatIsNearlyThatOfAColumnIsRecognised) {
  const std::string text = "quality,alcohol,id,y\n1,2,3,0\n2,3,1,1\n";
  EXPECT_THAT(error_in_people(text, {.target = "alcohl"}),
              HasSubstr("no column is called \"alcohl\"; did you mean \"alcohol\"?"));
  EXPECT_THAT(error_in_people(text, {.drop = {"Quality"}}), HasSubstr("did you mean \"quality\"?"));
  EXPECT_THAT(error_in_people(text, {.target = "price"}), Not(HasSubstr("did you mean")));
}

TEST(CsvAdvice, NamesThatAreEmptyOrNotUtf8AreNoted) {
  EXPECT_THAT(parse_people("a,,y\n1,2,0\n2,1,1\n3,3,1\n").notes, Contains(HasSubstr("column 2 has no name")));
  EXPECT_THAT(parse_people("gr\xf6\xdf"
                           "e,b,y\n1,2,0\n2,1,1\n3,3,1\n")
                  .notes,
              Contains(HasSubstr("\"gr\\xf6\\xdfe\" is not UTF-8")));
  EXPECT_THAT(parse_people("größe,b,y\n1,2,0\n2,1,1\n3,3,1\n").notes, Not(Contains(HasSubstr("UTF-8"))));
}

TEST(CsvAdvice, TextsThatAreNoSamplesAreCalledWhatTheyAre) {
  const TemporaryFolder folder;
  const auto error_in = [&](const std::string& name, const std::string& text) {
    return error_of([file = folder.write(name, text)] { (void)read_dataset(file); });
  };
  EXPECT_THAT(error_in("a.arff", "% made\n@RELATION x\n@attribute a numeric\n@data\n1,2\n"), HasSubstr("is an ARFF file"));
  EXPECT_THAT(error_in("a.csv", "@relation x\n@attribute a numeric\n@data\n1,2\n"), HasSubstr("is an ARFF file"));
  std::string bytes;
  for (int i = 0; i < 3000; ++i) bytes += static_cast<char>((i * i * 7 + i / 3) % 256);
  for (const char* name : {"a.bin", "a.csv"}) EXPECT_THAT(error_in(name, "H" + bytes), HasSubstr("is no text file"));
  for (const char* table : {"a  b  y\n1.5  2  1\n2.5  1  0\n", "1 2 3\n4 5 6\n", "a\tb\ty\n1\t2\t0\n"})
    EXPECT_THAT(error_in("table.txt", table), HasSubstr("say what separates its fields")) << table;
  EXPECT_EQ(error_in("labels.txt", "1\n2\n 1 1:2\n"), "no error") << "samples without entries";
}

TEST(CsvAdvice, WordsForMissingValuesAreKnown) {
  for (const char* word : {"#N/A", "#n/a", "None", "-", "missing", "Missing", "NA", "?", ""})
    EXPECT_TRUE(data::is_missing(word)) << word;
  for (const char* word : {"none", "--", "-1", "missing values", "no"}) EXPECT_FALSE(data::is_missing(word)) << word;
  const Dataset d = parse_people("a,y\n1,1\n-,2\n#N/A,3\n4,4\nNone,5\nmissing,6\n", {.missing = CsvOptions::drop_sample});
  EXPECT_THAT(d.rows, ElementsAre(1, 4));
}

TEST(CsvAdvice, AMissingValueInAFirstLineMayBeThatOfAHeader) {
  EXPECT_THAT(error_in_people(",5,9\n1,2,3\n4,5,6\n"), HasSubstr("say that there is a header"));
  EXPECT_THAT(error_in_people(",5,9\n1,2,3\n4,5,6\n", {.header = CsvOptions::no}), HasSubstr("fill it in"));
  EXPECT_THAT(error_in_people("1,kind\n2,5\n3,kind\n4,6\n5,7\n6,8\n7,9\n"),
              HasSubstr("most values of this column are numbers; where the first line has the names"));
}

TEST(CsvAdvice, ColumnsWithoutNamesAndValuesAreLeftOut) {
  const Dataset d = parse_people("a;b;y;\n1;2;3;\n4;5;6;\n");
  EXPECT_TRUE(near(d.A, Array{{1., 2.}, {4., 5.}}));
  EXPECT_TRUE(near(d.y, Array{3., 6.}));
  EXPECT_THAT(d.notes, Contains("the last column has neither a name nor a value, and is left out"));
  const Dataset bare = parse_people("1.5,2,3,,\n4.5,5,6,,\n");
  EXPECT_TRUE(near(bare.y, Array{3., 6.}));
  EXPECT_THAT(bare.notes, Contains("the columns 4, 5 have neither names nor values, and are left out"));
  const Dataset index = parse_people(",a,y,\n7,1,2,\n8,3,4,\n");
  EXPECT_TRUE(near(index.A, Array(Shape{2, 1}, std::vector<double>{1, 3}))) << "the index, too";
  EXPECT_THAT(error_in_people("a;b;\n1;2;\n3;4;5\n"), HasSubstr("missing")) << "it has a value";
}

TEST(CsvAdvice, TheLineOfExcelThatNamesTheSeparatorIsHonoured) {
  for (const char* text : {"sep=;\na;y\n1,5;2\n", "\xef\xbb\xbfsep=;\r\na;y\r\n1,5;2\r\n", "sep=|\na|y\n1,5|2\n"}) {
    const Dataset d = parse_people(text, {.decimal = CsvOptions::comma});
    EXPECT_EQ(d.names.size(), 1U) << text;
    EXPECT_EQ(d.A(0, 0), 1.5);
  }
  EXPECT_EQ(parse_people("sep=a,y\n1,2\n").names[0], "sep=a");
  EXPECT_NE(error_in_people("sep=\n\n1,2\n"), "no error") << "nothing is named";
}

TEST(CsvAdvice, ColumnsMayBeLinedUpBySpaces) {
  const Dataset d = parse_people("  a    b  y\n 1.5   2  3 \n10.5  20 30\n", {.separator = ' '});
  EXPECT_THAT(d.names, ElementsAre("a", "b"));
  EXPECT_TRUE(near(d.A, Array{{1.5, 2.}, {10.5, 20.}}));
  EXPECT_TRUE(near(d.y, Array{3., 30.}));
}

TEST(CsvAdvice, ASeparatorThatIsGivenMeansCsv) {
  const TemporaryFolder folder;
  const std::string file = folder.write("savetxt.txt", "1.5 2.5 0\n3.5 4.5 1\n");
  EXPECT_EQ(read_dataset(file, {.separator = ' '}).A.shape(), (Shape{2, 2}));
  EXPECT_THAT(error_of([&] { read_dataset(file); }),
              HasSubstr("is not index:value, as LIBSVM's format has it; if the file is a table, say what separates"));
}

TEST(CsvAdvice, FilesOfOtherKindsAreRecognised) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& bytes) {
    const std::string file = folder.write("a.csv", bytes);
    return error_of([&] { read_dataset(file); });
  };
  EXPECT_THAT(error(std::string("\xfd"
                                "7zXZ\0\0",
                                7)),
              HasSubstr("is compressed by xz: decompress it"));
  EXPECT_THAT(error("PAR1\x15\x04 and so on PAR1"), HasSubstr("is a Parquet file"));
  EXPECT_EQ(read_dataset(folder.write("b.csv", "PAR1,PAR2,y\n1,2,3\n4,5,7\n")).A.shape(), (Shape{2, 2}));
  EXPECT_THAT(error("PK\x03\x04 and so on"), HasSubstr("is a zip archive, as a spreadsheet (.xlsx, .ods) is, too"));
  EXPECT_THAT(error(std::string("\xff\xfe"
                                "a\0,\0",
                                6)),
              HasSubstr("is UTF-16: save it as UTF-8"));
  EXPECT_THAT(error(std::string("\xfe\xff\0a\0,", 6)), HasSubstr("is UTF-16"));
}

TEST(CsvAdvice, LettersOfAnyLanguageAreShown) {
  EXPECT_EQ(data::quoted("Köln"), "\"Köln\"");
  EXPECT_EQ(data::quoted("日本 €"), "\"日本 €\"");
  EXPECT_EQ(data::quoted("K\xf6ln"), "\"K\\xf6ln\"") << "Latin-1";
  EXPECT_EQ(data::quoted("a\nb\x1b[0m"), "\"a\\x0ab\\x1b[0m\"");
  for (const char* wrong : {"\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\xc2\x85", "\x80"})
    EXPECT_EQ(printable(wrong).find(wrong), std::string::npos) << printable(wrong);
  std::string umlauts;
  for (int i = 0; i < 40; ++i) umlauts += "ü";
  EXPECT_EQ(data::quoted(umlauts), "\"" + umlauts.substr(0, 64) + "…\"") << "no character is cut in two";
}

TEST(CsvAdvice, NumbersThatLookLikeDatesAreNoted) {
  EXPECT_THAT(parse_people("day,y\n20240131,1\n20240228,2\n20231224,4\n").notes,
              ElementsAre(HasSubstr("\"day\" looks like dates, such as 20240131, and is taken for a number")));
  EXPECT_THAT(parse_people("n,y\n20240131,1\n20249928,2\n").notes, IsEmpty());
}

TEST(CsvAdvice, ManyCopiesAreNotedWhereChanceDoesNotMakeThem) {
  std::string text = "a,b,y\n", binary = text;
  for (int i = 0; i < 100; ++i) {
    text += fmt::format("{},{},{}\n", 0.37 * (i % 80), 0.11 * (i % 80) * (i % 80), i % 80);
    binary += fmt::format("{},{},{}\n", i % 2, i / 2 % 2, i / 4 % 2);
  }
  EXPECT_THAT(parse_people(text).notes, Contains(HasSubstr("20 of 100 samples are copies of others")));
  EXPECT_THAT(parse_people(binary).notes, Not(Contains(HasSubstr("copies"))));
}

}  // namespace
}  // namespace onestep::test
