// Dense quadratic programs with each estimator, and real ones where their files are.
#include "solve_programs.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "onestep/data.h"
#include "qp/interior_point.h"
#include "qp/program_data.h"
#include "reference.h"
#include "samples.h"
#include "solve_rows.h"

namespace onestep::bench {

Solver paper_program(const DenseQp& qp) {
  const Array Q = matrix(qp.Q, qp.n, qp.n), q = Array::view(qp.q), A = matrix(qp.A, qp.m, qp.n),
              G = matrix(qp.G, qp.p, qp.n), h = Array::view(qp.h);
  return quadratic_program([=](Expr b) { return TracedProgram{.Q = Q, .q = q, .A = A, .b = b, .G = G, .u = h}; },
                           {.tolerance = 1e-9, .max_iterations = 200});
}

Parts cold_start(const DenseQp& qp) {
  return {zeros(vector_shape(qp.n)), zeros(vector_shape(qp.m)), zeros(vector_shape(qp.p)), zeros(vector_shape(qp.n))};
}

namespace {

// ---- dense quadratic programs, the right-hand side of the equalities as parameter ----

struct QpSize {
  std::size_t n, m, p;
};
constexpr std::array qp_sizes{QpSize{5, 2, 5},      QpSize{10, 4, 10},     QpSize{50, 20, 50},
                              QpSize{100, 40, 100}, QpSize{300, 100, 300}, QpSize{1000, 300, 1000}};

// How far the derivative of the last step may be from the truth after a solve to 1e-9, for a mistake to be told from it.
constexpr double one_step_error = 1e-2;

Parts all_data(const DenseQp& qp) {
  return parts_of({.Q = matrix(qp.Q, qp.n, qp.n),
                   .q = Array::view(qp.q),
                   .A = matrix(qp.A, qp.m, qp.n),
                   .b = Array::view(qp.b),
                   .G = matrix(qp.G, qp.p, qp.n),
                   .u = Array::view(qp.h)});
}

void qp_rows(Suite& suite, const QpSize& size) {
  const std::string text = fmt::format("({},{},{})", size.n, size.m, size.p);
  const std::string solve_row = "qp solve " + text, one_row = "qp solve + one-step over solve " + text,
                    implicit_row = "qp solve + implicit over solve " + text,
                    unrolled_row = "qp solve + unrolled over solve " + text,
                    one_alone_row = "qp one-step backward by all data " + text,
                    implicit_alone_row = "qp implicit backward by all data " + text;
  const std::array rows{solve_row, one_row, implicit_row, unrolled_row, one_alone_row, implicit_alone_row};
  if (std::ranges::none_of(rows, [&](const std::string& row) { return suite.wants(row); })) return;
  const DenseQp qp = qp_data(size.n, size.m, size.p);
  const Solver solver = paper_program(qp);
  const Parts x0 = cold_start(qp);
  const Array b = Array::view(qp.b);
  const Unit unit = size.n < 100 ? Unit::us : Unit::ms;

  Ours one_step(solver, x0, b, OneStep{}), implicit(solver, x0, b, Implicit{});
  const std::span<const double> found = one_step.state();
  must_solve(qp, found.first(size.n), found.subspan(size.n, size.m), found.subspan(size.n + size.m, size.p), 2e-9);
  implicit.vjp();
  one_step.vjp();
  suite.note(fmt::format("qp {}: one-step differs from implicit by {:.1e} of its largest entry, after {} iterations", text,
                         difference(one_step.bar(), implicit.bar()), one_step.solution().statistics().iterations));

  suite.time(solve_row, unit, {[&] { one_step.solve(); }}, std::nullopt, std::nullopt);
  over_solve(suite, one_row, unit, one_step, one_step, implicit, one_step_error, at_most_ratio(size.n < 100 ? 1.15 : 1.03));
  over_solve(suite, implicit_row, unit, implicit, one_step, implicit, 0, std::nullopt);
  if (suite.wants(unrolled_row)) {
    try {
      Ours unrolled(solver, x0, b, Unrolled{});
      over_solve(suite, unrolled_row, unit, unrolled, one_step, implicit, one_step_error, std::nullopt);
    } catch (const std::exception& problem) { suite.note(fmt::format("no row {}: {}", unrolled_row, problem.what())); }
  }
  const auto alone = [&](const std::string& row, const Estimator& estimator) {
    if (!suite.wants(row)) return;
    Ours by_all(quadratic_program({.tolerance = 1e-9, .max_iterations = 200}), x0, all_data(qp), estimator);
    by_all.vjp();
    must_agree(row, by_all.bar(3), implicit.bar(), one_step_error);
    suite.time(row, unit, {[&] { by_all.vjp(); }}, std::nullopt, std::nullopt);
  };
  alone(one_alone_row, OneStep{});
  alone(implicit_alone_row, Implicit{});
}

// ---- real quadratic programs, where their files are ----

// Solves to 1e-9, absolute, set-up included; the geometric mean of the medians.
void collection_row(Suite& suite) {
  const std::string row = "qp Maros-Meszaros, geometric mean";
  if (!suite.wants(row)) return;
  const char* const folder = std::getenv("ONESTEP_DATA");
  const std::filesystem::path files =
      std::filesystem::path(folder != nullptr ? folder : "../shared/data") / "maros_meszaros";
  if (!std::filesystem::is_directory(files))
    return suite.note(fmt::format("no row {}: ONESTEP_DATA names no folder with maros_meszaros in it", row));
  double log_sum = 0;
  int problems = 0;
  for (const auto& file : std::filesystem::directory_iterator(files)) {
    if (file.path().extension() != ".QPS") continue;
    const QpsFile qp = read_qps(file.path());
    const detail::ProgramData program(qp.problem);
    const detail::QpData& data = program.data();
    std::array<double, 3> seconds{};
    for (double& taken : seconds) {
      const auto begin = std::chrono::steady_clock::now();
      detail::InteriorPoint solver(data.n, data.m, data.p);
      const Status status = solver.solve(data).status;
      taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (!is_solution(status)) throw std::runtime_error(file.path().stem().string() + ": " + to_string(status));
    }
    std::ranges::sort(seconds);
    log_sum += std::log(seconds[1]);
    ++problems;
  }
  suite.amount(row, Unit::ms, 1e3 * std::exp(log_sum / std::max(problems, 1)), std::nullopt);
}

}  // namespace

void run_programs(Suite& suite) {
  for (const QpSize& size : qp_sizes) qp_rows(suite, size);
  collection_row(suite);
}

}  // namespace onestep::bench
