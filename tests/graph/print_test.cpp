// Graphs as text and for Graphviz.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onestep/diff.h"
#include "onestep/function.h"
#include "support/run.h"

namespace onestep::test {
namespace {

using ::testing::HasSubstr;

TEST(Print, TextHasALineForEachNodeAndKeepsTheNamesOfInputs) {
  const Function f = traced([](Expr x, Expr w) { return sum(w * exp(2.0 * x)); }, Input{"x", {3}}, Input{"weights", {3}});
  EXPECT_EQ(f.text(),
            "input x (3)\n"
            "input weights (3)\n"
            "%3 = broadcast(2)  (3)\n"
            "%4 = mul(%3, x)  (3)\n"
            "%5 = exp(%4)  (3)\n"
            "%6 = mul(weights, %5)  (3)\n"
            "%7 = sum(%6)  ()\n"
            "return %7\n");
}

TEST(Print, TextLeavesOutWhatTheResultsDoNotNeed) {
  const Function f = traced(
      [](Expr x, Expr unused) {
        (void)exp(unused);
        return tanh(x);
      },
      Input{"x", {3}}, Input{"unused", {3}});
  EXPECT_THAT(f.text(), ::testing::Not(HasSubstr("unused")));
  EXPECT_THAT(f.text(), ::testing::Not(HasSubstr("exp")));
}

TEST(Print, AttributesSayWhatTheOperationDoes) {
  const Function f = traced(
      [](Expr A, Expr x) {
        return std::tuple(matmul(transpose(A), matmul(A, x)), sum(A, 1), slice(x, 1, 3), pad(x, 1, 5), max(A, Axis{0}),
                          solve_transposed(lu(slice(A, 0, 3)), x), concat({x, x}), eye(2, 3, 1));
      },
      Input{"A", {4, 3}}, Input{"x", {3}});
  const std::string text = f.text();
  for (const char* part : {"matmul[AᵀB](A, ", "sum[axis 1](A)", "slice[axis 0 [1, 3)](x)", "pad[axis 0 at 1 of 5](x)",
                           "max[axis 0](A)", "solve[transposed](", "concat[axis 0](x, x)", "eye[offset 1]()"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(Print, AnExpressionPrintsByItself) {
  EXPECT_EQ(to_string(Expr(2.5)), "return 2.5\n");
  traced(
      [](Expr x) {
        EXPECT_EQ(to_string(exp(x)), "input x (2)\n%1 = exp(x)  (2)\nreturn %1\n");
        return x;
      },
      Input{"x", {2}});
}

TEST(Print, DotHasANodeForEachNodeAndAnEdgeForEachArgument) {
  const Function f = traced([](Expr x) { return std::pair(sum(exp(x)), x); }, Input{"x", {3}});
  EXPECT_EQ(f.dot(),
            "digraph onestep {\n"
            "  rankdir=TB;\n"
            "  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n"
            "  n0 [label=\"x\\n(3)\", style=\"rounded,filled\", fillcolor=lightblue];\n"
            "  n1 [label=\"exp\\n(3)\"];\n"
            "  n0 -> n1;\n"
            "  n2 [label=\"sum\\n()\"];\n"
            "  n1 -> n2;\n"
            "  result0 [shape=plaintext, label=\"result 0\"];\n"
            "  n2 -> result0;\n"
            "  result1 [shape=plaintext, label=\"result 1\"];\n"
            "  n0 -> result1;\n"
            "}\n");
}

TEST(Print, DotQuotesNames) {
  const Function f = traced([](Expr x) { return exp(x); }, Input{"the \"x\" \\ of it", {3}});
  EXPECT_THAT(f.dot(), HasSubstr("label=\"the \\\"x\\\" \\\\ of it\\n(3)\""));
}

TEST(Print, FunctionsWithoutResultsPrint) {
  const Function f = traced([](Expr) { return Exprs{}; }, Input{"x", {3}});
  EXPECT_EQ(f.text(), "return\n");
  EXPECT_THAT(f.dot(), HasSubstr("digraph"));
}

}  // namespace
}  // namespace onestep::test
