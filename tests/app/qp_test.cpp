// `onestep qp`: what it prints, how it ends, and what it says when something is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "app/run_command.h"

namespace onestep::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The point of x + y = 1, x - y <= 0.5 in the box [0, 10]² nearest to (2, -1), less a constant of 3: (0.75, 0.25).
const std::string nearest_point =
    "NAME nearest\nROWS\n N cost\n E sum\n L difference\nCOLUMNS\n x cost -2 sum 1\n x difference 1\n y cost 1 sum 1\n"
    " y difference -1\nRHS\n r cost 3 sum 1\n r difference 0.5\nBOUNDS\n UP b x 10\n UP b y 10\n"
    "QUADOBJ\n x x 1\n y y 1\nENDATA\n";

class Qp : public ::testing::Test {
 protected:
  Ended run(const std::string& text, std::vector<std::string> options = {}) {
    options.insert(options.begin(), {"qp", folder_.write("file.qps", text)});
    return run_command(options);
  }
  TemporaryFolder folder_;
};

std::vector<std::string> keys_of(const nlohmann::json& object) {
  std::vector<std::string> keys;
  for (const auto& item : object.items()) keys.push_back(item.key());
  return keys;
}

TEST_F(Qp, PrintsOneJsonDocument) {
  const Ended ended = run(nearest_point, {"--json"});
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.err, "");
  const nlohmann::json document = ended.json();
  EXPECT_THAT(keys_of(document),
              ::testing::UnorderedElementsAre("verb", "version", "command", "seed", "status", "usable", "message", "times",
                                              "memory", "notes", "name", "n", "equalities", "inequalities", "iterations",
                                              "objective", "primal_residual", "dual_residual", "gap", "absolute"));
  EXPECT_EQ(document["name"], "nearest");
  EXPECT_EQ(document["n"], 2);
  EXPECT_EQ(document["equalities"], 1);
  EXPECT_EQ(document["inequalities"], 1);
  EXPECT_EQ(document["status"], "converged");
  EXPECT_GT(document["iterations"], 0);
  EXPECT_GT(document["times"]["solve"], 0.0);
  EXPECT_NEAR(document["objective"], 0.5 * (0.75 * 0.75 + 0.25 * 0.25) - 2 * 0.75 + 0.25 - 3, 1e-8);
  for (const char* residual : {"primal_residual", "dual_residual", "gap"}) {
    EXPECT_LE(document[residual], 1e-9) << residual;
    EXPECT_LE(document["absolute"][residual], 1e-9) << residual;
  }
}

TEST_F(Qp, GivesTheSolutionWithMultipliersThatAddUpToZero) {
  const nlohmann::json document = run(nearest_point, {"--json", "--solution"}).json();
  const std::vector<double> x = document["x"], y = document["y"], z = document["z"], w = document["bound_multipliers"];
  ASSERT_EQ(x.size(), 2u);
  ASSERT_EQ(y.size(), 1u);
  ASSERT_EQ(z.size(), 1u);
  ASSERT_EQ(w.size(), 2u);
  EXPECT_NEAR(x[0], 0.75, 1e-8);
  EXPECT_NEAR(x[1], 0.25, 1e-8);
  EXPECT_NEAR(z[0], 1.25, 1e-8);
  EXPECT_NEAR(x[0] - 2 + y[0] + z[0] + w[0], 0.0, 1e-8);
  EXPECT_NEAR(x[1] + 1 + y[0] - z[0] + w[1], 0.0, 1e-8);
}

TEST_F(Qp, IsReadableWithoutJson) {
  const Ended ended = run(nearest_point, {"--solution"});
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.out, StartsWith("nearest: 2 variables, 1 equality, 1 inequality\nconverged in "));
  EXPECT_THAT(ended.out, HasSubstr("\nobjective  -3.9375\n"));
  EXPECT_THAT(ended.out, HasSubstr("primal residual"));
  EXPECT_THAT(ended.out, HasSubstr("\nvariable"));
  EXPECT_THAT(ended.out, HasSubstr("\ndifference"));
}

TEST_F(Qp, WritesTheDocumentIntoAFolder) {
  const std::filesystem::path out = folder_.path() / "new" / "folder";
  const Ended ended = run(nearest_point, {"--json", "--out", out.string()});
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(contents_of(out / "file.json"), ended.out);
  const Ended refused = run(nearest_point, {"--out", folder_.write("a_file", "")});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("the folder cannot be made: "));
  EXPECT_EQ(refused.out, "") << "nothing is solved whose result cannot be kept";
}

TEST_F(Qp, AMaximumIsReportedAsTheFileCountsIt) {
  const nlohmann::json document =
      run("NAME m\nOBJSENSE MAX\nROWS\n N c\n L r\nCOLUMNS\n x c 2 r 1\nRHS\n v r 3 c -1\nENDATA\n", {"--json"}).json();
  EXPECT_NEAR(document["objective"], 7.0, 1e-8);
}

TEST_F(Qp, AFileWithoutANameGetsThatOfTheFile) {
  EXPECT_EQ(run("ROWS\n N c\nCOLUMNS\n x c 1\nENDATA\n", {"--json"}).json()["name"], "file");
}

TEST_F(Qp, NamesOfAnyBytesStillMakeJson) {
  const Ended ended = run("NAME \xff\"\\\nROWS\n N c\nCOLUMNS\n \xfe c 1\nENDATA\n", {"--json"});
  EXPECT_EQ(ended.status, 0);
  EXPECT_NO_THROW(ended.json());
}

TEST_F(Qp, WorkThatFailsStillSaysHow) {
  const std::string infeasible =
      "ROWS\n N c\n L most\n G least\nCOLUMNS\n x c 1 most 1\n x least 1\nRHS\n r most 1 least 2\nENDATA\n";
  const Ended ended = run(infeasible, {"--json"});
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(ended.json()["status"], "infeasible");
  EXPECT_THAT(run(infeasible).out, HasSubstr("infeasible in "));
  EXPECT_TRUE(run(infeasible, {"--json", "--solution"}).json()["proof"].contains("z"));

  const Ended unbounded = run("ROWS\n N c\nCOLUMNS\n x c -1\nENDATA\n", {"--json"});
  EXPECT_EQ(unbounded.status, 1);
  EXPECT_EQ(unbounded.json()["status"], "unbounded");

  const Ended not_convex = run("ROWS\n N c\nCOLUMNS\n x c -1\nBOUNDS\n UP b x 1\nQUADOBJ\n x x -1\nENDATA\n", {"--json"});
  EXPECT_EQ(not_convex.status, 1);
  EXPECT_EQ(not_convex.json()["status"], "not_convex");
  // What is not known is null, not 0.
  for (const nlohmann::json& document : {not_convex.json(), ended.json()})
    for (const char* member : {"objective", "primal_residual", "dual_residual", "gap"})
      EXPECT_TRUE(document[member].is_null()) << member;
  EXPECT_TRUE(run(infeasible, {"--json", "--solution"}).json()["x"].is_null());
  EXPECT_THAT(run(infeasible).out, ::testing::Not(HasSubstr("objective")));
}

// With x + y = b and x - y = d at the solution: |x|²/2 = (b² + d²)/4.
TEST_F(Qp, GivesTheGradientOfTheSolution) {
  const nlohmann::json gradient = run(nearest_point, {"--json", "--gradient-of", "half-norm"}).json()["gradient"];
  EXPECT_THAT(keys_of(gradient), ::testing::UnorderedElementsAre("of", "q", "b", "l", "u", "lo", "hi", "residual",
                                                                 "undecided", "dependent", "not_unique"));
  EXPECT_EQ(gradient["of"], "half-norm");
  EXPECT_NEAR(gradient["b"][0], 0.5, 1e-8);
  EXPECT_NEAR(gradient["u"][0], 0.25, 1e-8);
  for (const char* unused : {"q", "l", "lo", "hi"})
    for (const double entry : gradient[unused]) EXPECT_NEAR(entry, 0.0, 1e-8) << unused;
  EXPECT_LE(gradient["residual"], 1e-12);
  for (const char* list : {"undecided", "dependent", "not_unique"}) EXPECT_TRUE(gradient[list].empty()) << list;
}

TEST_F(Qp, GivesTheGradientOfTheOptimalValue) {
  const nlohmann::json document = run(nearest_point, {"--json", "--gradient-of", "objective", "--solution"}).json();
  const nlohmann::json& gradient = document["gradient"];
  const std::vector<double> x = document["x"];
  EXPECT_NEAR(gradient["b"][0], -static_cast<double>(document["y"][0]), 1e-12);
  EXPECT_NEAR(gradient["u"][0], -1.25, 1e-8);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(gradient["q"][i], x[i], 1e-12);
    EXPECT_NEAR(gradient["G"][0][i], 1.25 * x[i], 1e-8);
    for (std::size_t j = 0; j < 2; ++j) EXPECT_NEAR(gradient["Q"][i][j], 0.5 * x[i] * x[j], 1e-12);
  }
  EXPECT_EQ(gradient["A"].size(), 1u);
}

// max 2x - x²/8 for x <= 3, the derivatives as the file counts: 2·3 - 9/8, by the coefficient 3, by the limit 2 - 3/4.
TEST_F(Qp, GradientsOfAMaximumHaveTheSignsOfTheFile) {
  const std::string text = "OBJSENSE MAX\nROWS\n N c\n L r\nCOLUMNS\n x c 2 r 1\nRHS\n v r 3\nQUADOBJ\n x x -0.25\nENDATA\n";
  const nlohmann::json document = run(text, {"--json", "--gradient-of", "objective", "--solution"}).json();
  EXPECT_NEAR(document["objective"], 6 - 9.0 / 8, 1e-8);
  EXPECT_NEAR(document["gradient"]["q"][0], 3.0, 1e-8);
  EXPECT_NEAR(document["gradient"]["Q"][0][0], 4.5, 1e-8);
  EXPECT_NEAR(document["gradient"]["u"][0], 1.25, 1e-8);
  // Without the limit x = -q/Q: |x|²/2 moves by x/0.25 with q.
  const std::string inside = "OBJSENSE MAX\nROWS\n N c\nCOLUMNS\n x c 2\nQUADOBJ\n x x -0.25\nENDATA\n";
  EXPECT_NEAR(run(inside, {"--json", "--gradient-of", "half-norm"}).json()["gradient"]["q"][0], 8 / 0.25, 1e-6);
}

TEST_F(Qp, SaysWhereThereIsNoDerivative) {
  // x at its bound with a multiplier of zero.
  const nlohmann::json undecided =
      run("ROWS\n N c\nCOLUMNS\n x c 0\nQUADOBJ\n x x 1\nENDATA\n", {"--json", "--gradient-of", "half-norm"}).json();
  EXPECT_THAT(undecided["gradient"]["undecided"], ElementsAre("bounds of x"));
  const nlohmann::json infeasible =
      run("ROWS\n N c\nCOLUMNS\n x c 1\nBOUNDS\n LO b x 2\n UP b x 1\nENDATA\n", {"--json", "--gradient-of", "objective"})
          .json();
  EXPECT_EQ(infeasible["status"], "infeasible");
  EXPECT_FALSE(infeasible.contains("gradient"));
}

TEST_F(Qp, ShowsTheLargestDerivatives) {
  EXPECT_THAT(run(nearest_point, {"--gradient-of", "half-norm"}).out,
              HasSubstr("\nderivative of the half-norm with respect to\nb of sum"));
}

TEST_F(Qp, TheToleranceIsMetAndALooserOneTakesNoMoreIterations) {
  const nlohmann::json loose = run(nearest_point, {"--json", "--tol", "1e-2"}).json();
  const nlohmann::json tight = run(nearest_point, {"--json", "--tol", "1e-12"}).json();
  EXPECT_LE(loose["iterations"], tight["iterations"]);
  EXPECT_LE(tight["absolute"]["gap"], 1e-12);
}

TEST_F(Qp, TakesTheOptionsOfAllVerbs) {
  EXPECT_EQ(run(nearest_point, {"--threads", "1", "--seed", "7", "--quiet", "--json"}).status, 0);
}

// One line on standard error, nothing on standard output but what --json asks for, exit status 2.
void expect_misuse(const Ended& ended, const std::string& line) {
  EXPECT_EQ(ended.status, 2) << line;
  EXPECT_TRUE(ended.out.empty() || ended.json()["status"] == "refused") << line;
  EXPECT_EQ(ended.err, line + "\n");
}

TEST_F(Qp, BadInputIsOneLineThatSaysWhere) {
  const std::string file = (folder_.path() / "file.qps").string();
  expect_misuse(run("ROWS\n N c\nCOLUMNS\n x c 1.2.3\nENDATA\n", {"--json"}),
                "onestep: " + file + ":4: field 3: \"1.2.3\" is not a number");
  expect_misuse(run(""), "onestep: " + file + ": ends without ENDATA; is the file whole?");
  expect_misuse(run_command({"qp", "no/such/file"}), "onestep: no/such/file: cannot be opened: No such file or directory");
}

TEST(Command, MisuseIsOneLineWithAWayOut) {
  expect_misuse(run_command({}), "onestep: a verb is missing, such as qp; see onestep --help");
  expect_misuse(run_command({"solve"}), "onestep: there is no verb solve; see onestep --help");
  expect_misuse(run_command({"qp"}), "onestep: FILE is required; see onestep qp --help");
  expect_misuse(run_command({"qp", "f", "--fast"}),
                "onestep: there is no option --fast in onestep qp; see onestep qp --help");
  expect_misuse(run_command({"qp", "f", "--tol", "0"}), "onestep: --tol: 0 is not a positive number; see onestep qp --help");
  expect_misuse(run_command({"qp", "f", "--tol", "inf"}),
                "onestep: --tol: inf is not a positive number; see onestep qp --help");
  expect_misuse(run_command({"qp", "f", "--gradient-of", "x"}),
                "onestep: --gradient-of: x not in {objective,half-norm}; see onestep qp --help");
  expect_misuse(run_command({"qp", "f", "--threads", "0"}),
                "onestep: --threads: Value 0 not in range 1 to 65535; see onestep qp --help");
}

TEST(Command, KnowsItsVersionAndHelps) {
  const Ended version = run_command({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_EQ(version.out, "onestep " ONESTEP_VERSION "\n");
  const Ended help = run_command({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, HasSubstr("\n  qp "));
  const Ended of_verb = run_command({"qp", "--help"});
  EXPECT_EQ(of_verb.status, 0);
  EXPECT_THAT(of_verb.out, HasSubstr("\nExample: onestep qp "));
  for (const char* option : {"--json", "--out", "--seed", "--threads", "--quiet", "--tol", "--gradient-of", "--solution"})
    EXPECT_THAT(of_verb.out, HasSubstr(option));
}

// The command waits for its file in a pipe; the signal comes before the solve, and the solver's first look finds it.
TEST_F(Qp, ASignalStopsItCleanly) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string pipe = (folder_.path() / ("pipe" + std::to_string(signal))).string();
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    const RunningCommand command({"qp", pipe, "--json"});
    {
      std::ofstream file(pipe);  // opens when the command reads
      ASSERT_EQ(kill(command.pid(), signal), 0);
      file << nearest_point;
    }
    const Ended ended = command.wait();
    EXPECT_EQ(ended.status, 128 + signal);
    EXPECT_EQ(ended.json()["status"], "cancelled");
  }
}

// max 2x + y - x² - y² under x + y = 1 and x ≤ 0.6: the file's own Q and q give the conditions of optimality.
TEST_F(Qp, MultipliersAreForTheSenseOfTheFile) {
  const Ended ended = run(
      "NAME m\nOBJSENSE\n    MAX\nROWS\n N cost\n E sum\nCOLUMNS\n x cost 2 sum 1\n y cost 1 sum 1\nRHS\n r sum 1\nBOUNDS\n"
      " UP b x 0.6\nQUADOBJ\n x x -2\n y y -2\nENDATA\n",
      {"--solution", "--gradient-of", "objective", "--json"});
  const nlohmann::json found = ended.json();
  const double x = found["x"][0], y = found["x"][1], of_sum = found["y"][0];
  EXPECT_NEAR(x, 0.6, 1e-6);
  EXPECT_NEAR(-2 * x + 2 + of_sum + found["bound_multipliers"][0].get<double>(), 0, 1e-6);
  EXPECT_NEAR(-2 * y + 1 + of_sum + found["bound_multipliers"][1].get<double>(), 0, 1e-6);
  EXPECT_NEAR(found["gradient"]["b"][0], -of_sum, 1e-6);
}

TEST_F(Qp, HowANegativeUpperBoundAloneIsReadIsSaid) {
  const std::string begin = "NAME u\nROWS\n N cost\n G sum\nCOLUMNS\n x cost 1 sum 1\nRHS\n r sum 1\nBOUNDS\n",
                    up = " UP b x -2\n", end = "QUADOBJ\n x x 1\nENDATA\n";
  const Ended read = run(begin + up + end);
  EXPECT_EQ(read.status, 1);
  EXPECT_THAT(read.out,
              HasSubstr("The variable x is at most -2 without a lower bound: that is how a negative UP bound is read"));
  const Ended given = run(begin + " LO b x -3\n" + up + end);
  EXPECT_EQ(given.status, 1);
  EXPECT_THAT(given.out, ::testing::Not(HasSubstr("UP bound")));
}

}  // namespace
}  // namespace onestep::test
