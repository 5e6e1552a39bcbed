// Real problems with published optima: the bars the solver is held to.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "onestep/qps.h"
#include "solve/interior_point.h"
#include "solve/program_data.h"
#include "support/files.h"
#include "support/random_qp.h"

namespace onestep::detail {
namespace {

/// Names and optima.
std::map<std::string, double> references(const std::filesystem::path& table) {
  std::ifstream in(table);
  std::string line;
  std::getline(in, line);
  std::map<std::string, double> all;
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::string name, field;
    std::getline(fields, name, ',');
    while (std::getline(fields, field, ',')) {}
    all[name] = std::stod(field);
  }
  return all;
}

test::Qp copy_of(const QpData& d) {
  test::Qp qp(d.n, d.m, d.p);
  std::copy_n(d.Q, d.n * d.n, qp.Q.data());
  std::copy_n(d.q, d.n, qp.q.data());
  std::copy_n(d.A, d.m * d.n, qp.A.data());
  std::copy_n(d.b, d.m, qp.b.data());
  std::copy_n(d.G, d.p * d.n, qp.G.data());
  std::copy_n(d.l, d.p, qp.l.data());
  std::copy_n(d.u, d.p, qp.u.data());
  std::copy_n(d.lo, d.n, qp.lo.data());
  std::copy_n(d.hi, d.n, qp.hi.data());
  qp.constant = d.constant;
  return qp;
}

TEST(MarosMeszaros, AreSolvedToTheBars) {
  ONESTEP_NEEDS_DATA("maros_meszaros");
  const std::filesystem::path folder = test::shared_data("maros_meszaros");
  int count = 0, relative = 0, absolute_six = 0, absolute_nine = 0;
  for (const auto& [name, optimum] : references(folder / "reference_optima.csv")) {
    const ProgramData program(read_qps((folder / (name + ".QPS")).string()).problem);
    const QpData& data = program.data();
    InteriorPoint solver(data.n, data.m, data.p);
    const QpSolution& s = solver.solve(data);
    EXPECT_TRUE(is_solution(s.status)) << name << ": " << s.status;
    // The table has eight digits.
    EXPECT_NEAR(s.objective, optimum, 1e-7 * (1 + std::fabs(optimum))) << name;
    const test::Optimality o = optimality(copy_of(data), s);
    ++count;
    relative += o.worst_relative() <= 1e-9;
    absolute_six += o.worst() <= 1e-6;
    absolute_nine += o.worst() <= 1e-9;
    EXPECT_LE(o.worst_relative(), 1e-9) << name;
  }
  EXPECT_EQ(relative, count);
  EXPECT_GE(absolute_six, count - 1);
  EXPECT_GE(absolute_nine, count - 6);
  RecordProperty("absolute_nine", absolute_nine);
}

}  // namespace
}  // namespace onestep::detail
