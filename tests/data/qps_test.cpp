// The QPS reader: every section and bound, both formats, and an error with line and field for everything that is wrong.
#include "onestep/qps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "data/parse.h"
#include "support/files.h"
#include "support/run.h"

namespace onestep::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr std::size_t limit = std::size_t{1} << 24;

QpsFile parse(const std::string& text) { return data::parse_qps(text, "F", limit); }
std::string error_in(const std::string& text) {
  return error_of([&] { parse(text); });
}

const std::string rows_and_columns =
    "NAME          small\n"
    "ROWS\n"
    " N  cost\n"
    " E  sum\n"
    " L  most\n"
    " G  least\n"
    "COLUMNS\n"
    "    x         cost       1.0   sum        1.0\n"
    "    x         most       2.0\n"
    "    y         sum        1.0   least     -3.0\n"
    "    z         most       0.5\n";

// The file with these sections after COLUMNS.
std::string with(const std::string& sections) { return rows_and_columns + sections + "ENDATA\n"; }

QpsFile with_bounds(const std::string& lines) { return parse(with("BOUNDS\n" + lines)); }

TEST(ReadQps, MakesMatricesInTheOrderOfTheFile) {
  const QpsFile file = parse(with("RHS\n    rhs       sum        4.0   most       5.0\n    rhs       least     -6.0\n"));
  EXPECT_EQ(file.name, "small");
  EXPECT_FALSE(file.maximise);
  EXPECT_THAT(file.columns, ElementsAre("x", "y", "z"));
  EXPECT_THAT(file.equalities, ElementsAre("sum"));
  EXPECT_THAT(file.inequalities, ElementsAre("most", "least"));
  const QuadraticProgram& p = file.problem;
  EXPECT_TRUE(near(p.Q, zeros({3, 3})));
  EXPECT_TRUE(near(p.q, Array{1.0, 0.0, 0.0}));
  EXPECT_TRUE(near(p.A, Array{{1.0, 1.0, 0.0}}));
  EXPECT_TRUE(near(p.b, Array{4.0}));
  EXPECT_TRUE(near(p.G, Array{{2.0, 0.0, 0.5}, {0.0, -3.0, 0.0}}));
  EXPECT_TRUE(near(p.l, Array{-inf, -6.0}));
  EXPECT_TRUE(near(p.u, Array{5.0, inf}));
  EXPECT_TRUE(near(p.lo, zeros({3})));
  EXPECT_TRUE(near(p.hi, full({3}, inf)));
  EXPECT_EQ(p.constant, 0.0);
}

TEST(ReadQps, FreeFormatGivesTheSame) {
  const QpsFile fixed = parse(with("RHS\n    rhs       sum        4.0   most       5.0\n"));
  const QpsFile free = parse(
      "* split anywhere, names of any length, tabs, the ends of lines of another system\r\n"
      "NAME small_but_with_a_long_name\r\n\r\n"
      "ROWS\r\n N cost\r\n\tE the_sum_of_all\r\n L most\r\n G least\r\n"
      "COLUMNS\r\n x cost 1 the_sum_of_all 1\r\n x most 2.0\r\n y\tthe_sum_of_all +1.0D+00 least -3e0\r\n z most .5\r\n"
      "RHS\r\n rhs the_sum_of_all 4 most 5\r\nENDATA\r\nwhat follows is not read\r\n");
  EXPECT_EQ(free.name, "small_but_with_a_long_name");
  EXPECT_THAT(free.equalities, ElementsAre("the_sum_of_all"));
  EXPECT_TRUE(near(free.problem.q, fixed.problem.q));
  EXPECT_TRUE(near(free.problem.A, fixed.problem.A));
  EXPECT_TRUE(near(free.problem.G, fixed.problem.G));
  EXPECT_TRUE(near(free.problem.b, fixed.problem.b));
  EXPECT_TRUE(near(free.problem.u, fixed.problem.u));
}

TEST(ReadQps, NamesWithBlanksAreReadByColumns) {
  const QpsFile file = parse(
      "NAME          BLANKS\n"
      "ROWS\n"
      " N  COST\n"
      " E  ROW 1\n"
      " L  ROW 2\n"
      "COLUMNS\n"
      "    COL A     COST              1.     ROW 1              2.\n"
      "    COL B     ROW 2             3.                              a remark past the last column\n"
      "RHS\n"
      "    RHS 1     ROW 1             4.     ROW 2              5.\n"
      "              COST              9.\n"
      "BOUNDS\n"
      " UP BND 1     COL B             6.\n"
      "QUADOBJ\n"
      "    COL A     COL B             7.\n"
      "ENDATA\n");
  EXPECT_THAT(file.columns, ElementsAre("COL A", "COL B"));
  EXPECT_THAT(file.equalities, ElementsAre("ROW 1"));
  EXPECT_TRUE(near(file.problem.A, Array{{2.0, 0.0}}));
  EXPECT_TRUE(near(file.problem.G, Array{{0.0, 3.0}}));
  EXPECT_TRUE(near(file.problem.u, Array{5.0}));
  EXPECT_TRUE(near(file.problem.hi, Array{inf, 6.0}));
  EXPECT_TRUE(near(file.problem.Q, Array{{0.0, 7.0}, {7.0, 0.0}}));
  EXPECT_EQ(file.problem.constant, 0.0) << "of a second vector in RHS";
}

TEST(ReadQps, OneColumnNameWithBlanksIsEnough) {
  // Split at blanks the second line of COLUMNS has five words, as a line with two entries has.
  const QpsFile file = parse(
      "ROWS\n N  COST\n L  ROW\nCOLUMNS\n    X         COST              1.\n    A B C     ROW               2.\nENDATA\n");
  EXPECT_THAT(file.columns, ElementsAre("X", "A B C"));
  EXPECT_TRUE(near(file.problem.G, Array{{0.0, 2.0}}));
}

TEST(ReadQps, TheConstantIsMinusTheRightHandSideOfTheObjective) {
  EXPECT_EQ(parse(with("RHS\n    rhs       cost       2.5\n")).problem.constant, -2.5);
}

TEST(ReadQps, VectorsWithoutANameAndTheFirstOfSeveral) {
  const QpsFile unnamed = parse(with("RHS\n    sum  4.0   most  5.0\n    least  1.0\nBOUNDS\n UP x 3.0\n FR y\n MI z 0\n"));
  EXPECT_TRUE(near(unnamed.problem.b, Array{4.0}));
  EXPECT_TRUE(near(unnamed.problem.l, Array{-inf, 1.0}));
  EXPECT_TRUE(near(unnamed.problem.hi, Array{3.0, inf, inf}));
  EXPECT_TRUE(near(unnamed.problem.lo, Array{0.0, -inf, -inf}));
  const QpsFile several =
      parse(with("RHS\n    r1  sum  4.0\n    r2  sum  5.0\nRANGES\n    a  most  1.0\n    b  most  2.0\n"
                 "BOUNDS\n UP a x 1.0\n UP b x 2.0\n"));
  EXPECT_TRUE(near(several.problem.b, Array{4.0}));
  EXPECT_TRUE(near(several.problem.l, Array{-1.0, 0.0}));
  EXPECT_TRUE(near(several.problem.hi, Array{1.0, inf, inf}));
}

TEST(ReadQps, RangesGiveRowsTwoSides) {
  const std::string head = "ROWS\n N c\n E e1\n L l1\n G g1\n E e2\n L l2\n G g2\n E e3\nCOLUMNS\n";
  std::string columns;
  for (const char* row : {"e1", "l1", "g1", "e2", "l2", "g2", "e3"}) columns += std::string(" x ") + row + " 1\n";
  const QpsFile file = parse(head + columns + "RHS\n r e1 10 l1 10\n r g1 10 e2 10\n r l2 10 g2 10\n r e3 10\n" +
                             "RANGES\n r e1 2 l1 3\n r g1 4 e2 -2\n r l2 -3 g2 -4\n r e3 0\nENDATA\n");
  EXPECT_THAT(file.equalities, ElementsAre("e3"));
  EXPECT_THAT(file.inequalities, ElementsAre("e1", "l1", "g1", "e2", "l2", "g2"));
  EXPECT_TRUE(near(file.problem.l, Array{10.0, 7.0, 10.0, 8.0, 7.0, 10.0}));
  EXPECT_TRUE(near(file.problem.u, Array{12.0, 10.0, 14.0, 10.0, 10.0, 14.0}));
}

TEST(ReadQps, RangesMayComeBeforeTheRightHandSide) {
  const QpsFile file = parse(with("RANGES\n    r  most  3.0\nRHS\n    r  most  10.0\n"));
  EXPECT_TRUE(near(file.problem.l, Array{7.0, 0.0}));
  EXPECT_TRUE(near(file.problem.u, Array{10.0, inf}));
}

TEST(ReadQps, EveryTypeOfBound) {
  EXPECT_TRUE(near(with_bounds(" LO b x -1.5\n").problem.lo, Array{-1.5, 0.0, 0.0}));
  EXPECT_TRUE(near(with_bounds(" UP b x 1.5\n").problem.hi, Array{1.5, inf, inf}));
  const QuadraticProgram fixed = with_bounds(" FX b y 2.0\n").problem;
  EXPECT_TRUE(near(fixed.lo, Array{0.0, 2.0, 0.0}));
  EXPECT_TRUE(near(fixed.hi, Array{inf, 2.0, inf}));
  EXPECT_TRUE(near(with_bounds(" FR b z\n").problem.lo, Array{0.0, 0.0, -inf}));
  EXPECT_TRUE(near(with_bounds(" MI b z\n").problem.lo, Array{0.0, 0.0, -inf}));
  EXPECT_TRUE(near(with_bounds(" UP b z 4\n MI b z\n").problem.hi, Array{inf, inf, 4.0}));
  EXPECT_TRUE(near(with_bounds(" UP b z 4\n PL b z\n").problem.hi, full({3}, inf)));
  EXPECT_TRUE(near(with_bounds(" FR b z 0.0\n").problem.lo, Array{0.0, 0.0, -inf}));
}

TEST(ReadQps, ANegativeUpperBoundTakesTheLowerBoundAway) {
  EXPECT_TRUE(near(with_bounds(" UP b x -1\n").problem.lo, Array{-inf, 0.0, 0.0}));
  EXPECT_TRUE(near(with_bounds(" UP b x 0\n").problem.lo, zeros({3})));
  EXPECT_TRUE(near(with_bounds(" LO b x -5\n UP b x -1\n").problem.lo, Array{-5.0, 0.0, 0.0}));
  EXPECT_TRUE(near(with_bounds(" UP b x -1\n LO b x -5\n").problem.lo, Array{-5.0, 0.0, 0.0}));
}

TEST(ReadQps, VeryLargeBoundsAreInfinite) {
  EXPECT_TRUE(near(with_bounds(" UP b x 1e20\n LO b y -1e30\n UP b z 9.9e19\n").problem.hi, Array{inf, inf, 9.9e19}));
  EXPECT_TRUE(near(with_bounds(" LO b y -inf\n").problem.lo, Array{0.0, -inf, 0.0}));
  const QpsFile free_row = parse(with("RHS\n    r  most  1e30\n"));
  EXPECT_THAT(free_row.inequalities, ElementsAre("most", "least"));
  EXPECT_TRUE(near(free_row.problem.l, Array{-inf, 0.0}));
  EXPECT_TRUE(near(free_row.problem.u, Array{inf, inf}));
}

TEST(ReadQps, QuadobjAndQsectionAreOneTriangleQmatrixBoth) {
  const Array Q{{2.0, -1.0, 0.0}, {-1.0, 4.0, 0.0}, {0.0, 0.0, 0.0}};
  const std::string one = "    x  x  2.0\n    x  y  -1.0\n    y  y  4.0\n";
  EXPECT_TRUE(near(parse(with("QUADOBJ\n" + one)).problem.Q, Q));
  EXPECT_TRUE(near(parse(with("QSECTION\n" + one)).problem.Q, Q));
  EXPECT_TRUE(near(parse(with("QSECTION      cost\n" + one)).problem.Q, Q));
  EXPECT_TRUE(near(parse(with("QUADOBJ\n    x  x  2.0  y  -1.0\n    y  y  4.0\n")).problem.Q, Q)) << "two entries in a line";
  EXPECT_TRUE(near(parse(with("QMATRIX\n" + one + "    y  x  -1.0\n")).problem.Q, Q));
}

TEST(ReadQps, MaximisingIsMinimisingTheOpposite) {
  for (const char* sense : {"OBJSENSE\n    MAX\n", "OBJSENSE MAXIMIZE\n", "OBJSENSE\n  max\n"}) {
    const QpsFile file = parse(sense + with("RHS\n    r  cost  3.0\nQUADOBJ\n    x  y  -1.0\n"));
    EXPECT_TRUE(file.maximise);
    EXPECT_TRUE(near(file.problem.q, Array{-1.0, 0.0, 0.0}));
    EXPECT_EQ(file.problem.Q(0, 1), 1.0);
    EXPECT_EQ(file.problem.Q(1, 0), 1.0);
    EXPECT_EQ(file.problem.constant, 3.0);
    EXPECT_TRUE(near(file.problem.A, Array{{1.0, 1.0, 0.0}}));
  }
  EXPECT_FALSE(parse("OBJSENSE MIN\n" + with("")).maximise);
}

TEST(ReadQps, FurtherNRowsAreIgnored) {
  const QpsFile file = parse(
      "ROWS\n N first\n E row\n N second\nCOLUMNS\n x first 1 row 1\n x second 5\nRHS\n r second 3 row 2\n"
      "RANGES\n r second 1\nENDATA\n");
  EXPECT_TRUE(near(file.problem.q, Array{1.0}));
  EXPECT_EQ(file.problem.A(0, 0), 1.0);
  EXPECT_EQ(file.problem.G.shape(), (Shape{0, 1}));
  EXPECT_EQ(file.problem.constant, 0.0);
}

TEST(ReadQps, WithoutRowsItIsABoundConstrainedProgram) {
  const QpsFile file = parse("ROWS\n N cost\nCOLUMNS\n x cost 1\n y cost -1\nENDATA\n");
  EXPECT_EQ(sizes_of(file.problem), (QuadraticProgramSizes{2, 0, 0}));
}

TEST(ReadQpsErrors, SayLineAndField) {
  EXPECT_EQ(error_in(with("RHS\n    rhs       sum        1.2.3\n")), "[read_qps] F:13: field 3: \"1.2.3\" is not a number");
  EXPECT_EQ(error_in(with("RHS\n    rhs       summ       1.0\n")), "[read_qps] F:13: field 2: there is no row \"summ\"");
  EXPECT_EQ(error_in(with("BOUNDS\n UP b w 1\n")), "[read_qps] F:13: field 3: there is no column \"w\"");
  EXPECT_EQ(error_in(with("BOUNDS\n FR b w\n")), "[read_qps] F:13: field 3: there is no column \"w\"");
  EXPECT_EQ(error_in(with("QUADOBJ\n    x  w  1\n")), "[read_qps] F:13: field 2: there is no column \"w\"");
  EXPECT_EQ(error_in(with("RANGES\n    r  most\n")), "[read_qps] F:13: field 1: there is no row \"r\"");
  EXPECT_EQ(error_in(with("    z  least  nan\n")), "[read_qps] F:12: field 3: \"nan\" is not a number");
  EXPECT_EQ(error_in(with("    z  least  inf\n")), "[read_qps] F:12: field 3: \"inf\" is not finite");
  EXPECT_EQ(error_in(with("    z  least  1e999\n")), "[read_qps] F:12: field 3: \"1e999\" is not a number");
  EXPECT_EQ(error_in(with("    z  least  1  cost  x\n")), "[read_qps] F:12: field 5: \"x\" is not a number");
}

TEST(ReadQpsErrors, InFilesReadByColumnsToo) {
  EXPECT_EQ(error_in("ROWS\n N  COST\n E  ROW 1\nCOLUMNS\n    COL A     ROW 1           1.2.3\nENDATA\n"),
            "[read_qps] F:5: field 3: \"1.2.3\" is not a number");
  EXPECT_EQ(error_in("ROWS\n N  COST\n E  ROW 1\nCOLUMNS\n    COL A     ROW 2           1.2\nENDATA\n"),
            "[read_qps] F:5: field 2: there is no row \"ROW 2\"");
  EXPECT_THAT(error_in("ROWS\n N  COST\n E  ROW 1\n E  ROW 2\nCOLUMNS\n    COLUMN A1  ROW 2          1.2\nENDATA\n"),
              StartsWith("[read_qps] F:6: text between the columns 2-3, 5-12,"));
}

TEST(ReadQpsErrors, WhatIsGivenTwice) {
  EXPECT_EQ(error_in("ROWS\n E a\n E a\n"), "[read_qps] F:3: field 2: a second row \"a\"");
  EXPECT_EQ(error_in(with("    z  most  1\n")), "[read_qps] F:12: field 2: a second entry of column \"z\" in row \"most\"");
  EXPECT_EQ(error_in(with("    x  least  1\n")),
            "[read_qps] F:12: field 1: column \"x\" again; its lines have to follow each other");
  EXPECT_EQ(error_in(with("RHS\n    r  sum  1  sum  2\n")),
            "[read_qps] F:13: field 4: a second right-hand side of row \"sum\"");
  EXPECT_EQ(error_in(with("RANGES\n    r  most  1\n    r  most  2\n")),
            "[read_qps] F:14: field 2: a second range of row \"most\"");
  EXPECT_EQ(error_in(with("RHS\nRHS\n")), "[read_qps] F:13: a second section RHS");
  EXPECT_EQ(error_in(with("QUADOBJ\nQMATRIX\n")), "[read_qps] F:13: a second section QMATRIX");
  EXPECT_EQ(error_in(with("QUADOBJ\n    x  y  1\n    z  z  1\n    y  x  1\n")),
            "[read_qps] F:15: a second entry of Q for columns \"y\" and \"x\", after line 13; QUADOBJ and QSECTION have one "
            "triangle, QMATRIX both");
}

TEST(ReadQpsErrors, WhatIsNotSupportedIsRefusedWithAWayOut) {
  EXPECT_THAT(error_in(with("    MARKER                 'MARKER'                 'INTORG'\n")),
              StartsWith("[read_qps] F:12: integer variables (MARKER) are not supported; without"));
  for (const char* type : {"BV", "LI", "UI", "SC", "SI"})
    EXPECT_THAT(error_in(with(std::string("BOUNDS\n ") + type + " b x 1\n")),
                StartsWith(std::string("[read_qps] F:13: field 1: integer and semicontinuous variables (") + type + ")"));
  EXPECT_THAT(error_in(with("QCMATRIX most\n")), StartsWith("[read_qps] F:12: quadratic constraints"));
  EXPECT_THAT(error_in(with("QSECTION most\n")), StartsWith("[read_qps] F:12: field 2: \"most\" is not the objective row"));
  EXPECT_THAT(error_in(with("SOS\n")), StartsWith("[read_qps] F:12: \"SOS\" is not a section (NAME, OBJSENSE,"));
}

TEST(ReadQpsErrors, WhatMakesNoSense) {
  EXPECT_THAT(error_in("ROWS\n X a\n"), StartsWith("[read_qps] F:2: field 1: \"X\" is not a type of row"));
  EXPECT_THAT(error_in("ROWS\n E\n"), StartsWith("[read_qps] F:2: 1 fields; a row has"));
  EXPECT_THAT(error_in(with("BOUNDS\n XX b x 1\n")), StartsWith("[read_qps] F:13: field 1: \"XX\" is not a type of bound"));
  EXPECT_THAT(error_in(with("BOUNDS\n UP x\n")), StartsWith("[read_qps] F:13: 2 fields; a bound has"));
  EXPECT_THAT(error_in(with("BOUNDS\n UP b x -inf\n")), StartsWith("[read_qps] F:13: field 4: -inf cannot be the UP bound"));
  EXPECT_THAT(error_in(with("BOUNDS\n FX b x 1e20\n")), StartsWith("[read_qps] F:13: field 4: inf cannot be the FX bound"));
  EXPECT_THAT(error_in(with("RHS\n r sum 1e20\n")),
              StartsWith("[read_qps] F:13: field 3: inf cannot be the right-hand side"));
  EXPECT_THAT(error_in(with("RHS\n r most -inf\n")), StartsWith("[read_qps] F:13: field 3: -inf cannot be"));
  EXPECT_THAT(error_in(with("RHS\n r most inf\nRANGES\n r most 1\n")), HasSubstr("a range and an infinite right-hand side"));
  EXPECT_THAT(error_in(with("QMATRIX\n x y 1\n y x 2\n")), StartsWith("[read_qps] F:13: QMATRIX has 1 for columns"));
  EXPECT_THAT(error_in(with("QMATRIX\n x y 1\n")), StartsWith("[read_qps] F:13: QMATRIX has 1 for columns"));
  EXPECT_THAT(error_in("OBJSENSE\n  up\n"), StartsWith("[read_qps] F:2: field 1: \"up\" is neither MIN nor MAX"));
  EXPECT_THAT(error_in(" x y 1\n"), StartsWith("[read_qps] F:1: a data line before the first section"));
}

TEST(ReadQpsErrors, TruncatedEmptyAndBinaryFiles) {
  const std::string whole = with("RHS\n    rhs       sum        4.0\nQUADOBJ\n    x  y  1\n");
  for (std::size_t length = 0; length < whole.size() - std::string("\n").size(); ++length)
    EXPECT_NE(error_in(whole.substr(0, length)), "no error") << length;
  EXPECT_EQ(error_in(rows_and_columns), "[read_qps] F: ends without ENDATA; is the file whole?");
  EXPECT_EQ(error_in(""), "[read_qps] F: ends without ENDATA; is the file whole?");
  EXPECT_EQ(error_in("ENDATA\n"), "[read_qps] F: has no columns");
  EXPECT_EQ(error_in("ROWS\n N c\nENDATA\n"), "[read_qps] F: has no columns");
  EXPECT_THAT(error_in(std::string("\x7f"
                                   "ELF\x02\x01\x01\x00\x00",
                                   9)),
              StartsWith("[read_qps] F:1: \"\\x7fELF\\x02\\x01\\x01\\x00\\x00\" is not a section"));
}

TEST(ReadQpsErrors, NoFile) {
  EXPECT_EQ(error_of([] { read_qps("no/such/file"); }),
            "[read_qps] no/such/file: cannot be opened: No such file or directory");
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { read_qps(folder.path()); }), HasSubstr("cannot be read: Is a directory"));
}

TEST(ReadQpsErrors, WhatDoesNotFitInMemoryIsAnErrorBeforeItIsAllocated) {
  std::string text = "ROWS\n N c\nCOLUMNS\n";
  for (int i = 0; i < 100000; ++i) text += " x" + std::to_string(i) + " c 1\n";
  text += "ENDATA\n";
  EXPECT_EQ(error_of([&] { data::parse_qps(text, "F", std::size_t{100} << 20); }),
            "[read_qps] F: 1 rows and the first 3619 columns need 0.105 GB as dense matrices, above the memory limit of "
            "0.105 GB; raise memory_limit if the machine has it");
  EXPECT_EQ(error_of([&] { data::parse_qps(std::string(200, '*'), "F", 160); }),
            "[read_qps] F: ends without ENDATA; is the file whole?");
}

TEST(ReadQps, TimeGrowsWithTheLengthOfTheFile) {
  // 200,000 lines of what could go wrong quadratically: names, duplicates, entries out of order. A second of CPU; the limit
  // is CPU time too, which other work on the machine does not use up.
  std::string text = "ROWS\n N c\n";
  for (int i = 0; i < 50000; ++i) text += " G row" + std::to_string(i) + "\n";
  text += "COLUMNS\n";
  for (int i = 49999; i >= 0; --i) text += " x row" + std::to_string(i) + " 1\n";
  text += " y c 1\nQUADOBJ\n";
  for (int i = 0; i < 100000; ++i) text += " x y 1\n";
  text += "ENDATA\n";
  const std::clock_t start = std::clock();
  EXPECT_THAT(error_of([&] { data::parse_qps(text, "F", std::size_t{1} << 30); }), HasSubstr("a second entry of Q"));
  EXPECT_LT(std::clock() - start, 20 * CLOCKS_PER_SEC);
}

TEST(ReadQps, MarosMeszarosProblemsHaveThePublishedSizes) {
  ONESTEP_NEEDS_DATA("maros_meszaros");
  ASSERT_EQ(reference_problems().size(), 36u);
  for (const ReferenceProblem& expected : reference_problems()) {
    const QpsFile file = read_qps(shared_data("maros_meszaros/" + expected.name + ".QPS"));
    const QuadraticProgramSizes sizes = sizes_of(file.problem);
    EXPECT_EQ(sizes.variables, expected.columns) << expected.name;
    EXPECT_EQ(sizes.equalities + sizes.inequalities, expected.rows) << expected.name;
    EXPECT_EQ(static_cast<std::int64_t>(file.equalities.size()), sizes.equalities) << expected.name;
    EXPECT_EQ(static_cast<std::int64_t>(file.inequalities.size()), sizes.inequalities) << expected.name;
  }
}

TEST(ReadQps, NamesWithBlanksOfTheCollection) {
  ONESTEP_NEEDS_DATA("maros_meszaros");
  const QpsFile file = read_qps(shared_data("maros_meszaros/QFORPLAN.QPS"));
  EXPECT_EQ(file.name, "FORPLAN");
  EXPECT_EQ(file.columns.front(), "DEDO3 11");
  EXPECT_THAT(file.equalities, ::testing::Contains("DEDO3 1R"));
}

}  // namespace
}  // namespace onestep::test
