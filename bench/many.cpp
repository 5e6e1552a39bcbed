// Many quadratic programs of one shape, all data their own: solve_many beside a loop over them on one thread, and the
// derivatives of all solutions with respect to all data.
#include "many.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "data.h"
#include "onestep/onestep.h"

namespace onestep::bench {
namespace {

struct Batch {
  std::size_t n, m, p, count;
};
constexpr std::array batches{Batch{100, 40, 100, 128}, Batch{50, 20, 50, 1024}, Batch{20, 8, 20, 4096}};

Array matrix_of(const std::vector<double>& entries, std::size_t rows, std::size_t columns) {
  return {Shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)}, entries};
}
Array vector_of(const std::vector<double>& entries) { return {Shape{static_cast<std::int64_t>(entries.size())}, entries}; }

// One parameter for each part of the data, each with an array for each problem: the program of bench/data.h with another q
// and another feasible b and h.
std::vector<Many> programs(const Batch& batch) {
  const DenseQp base = qp_data(batch.n, batch.m, batch.p);
  std::vector<std::vector<Array>> parts(9);
  for (std::size_t k = 0; k < batch.count; ++k) {
    DenseQp qp = base;
    const auto noise = [&](std::size_t i) { return 0.1 * gaussian(1000 + k, i); };
    for (std::size_t j = 0; j < qp.n; ++j) qp.q[j] += noise(j);
    std::vector<double> moved(qp.n);
    for (std::size_t j = 0; j < qp.n; ++j) moved[j] = noise(qp.n + j);
    for (std::size_t i = 0; i < qp.m; ++i)
      for (std::size_t j = 0; j < qp.n; ++j) qp.b[i] += qp.A[i * qp.n + j] * moved[j];
    for (std::size_t i = 0; i < qp.p; ++i)
      for (std::size_t j = 0; j < qp.n; ++j) qp.h[i] += qp.G[i * qp.n + j] * moved[j];
    const Parts all = parts_of({.Q = matrix_of(qp.Q, qp.n, qp.n),
                                .q = vector_of(qp.q),
                                .A = matrix_of(qp.A, qp.m, qp.n),
                                .b = vector_of(qp.b),
                                .G = matrix_of(qp.G, qp.p, qp.n),
                                .u = vector_of(qp.h)});
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i].push_back(all[i]);
  }
  return {parts.begin(), parts.end()};
}

// What is left of the optimality conditions of problem k, in the units of the data.
double residual(const std::vector<Many>& theta, const Solution& s, std::size_t k) {
  const Array &Q = theta[0][k], &q = theta[1][k], &A = theta[2][k], &b = theta[3][k], &G = theta[4][k], &u = theta[6][k];
  const Array x = s.x(0), y = s.x(1), z = s.x(2);
  double largest = 0;
  for (std::int64_t j = 0; j < x.size(); ++j) {
    double sum = q(j);
    for (std::int64_t i = 0; i < x.size(); ++i) sum += Q(j, i) * x(i);
    for (std::int64_t i = 0; i < y.size(); ++i) sum += A(i, j) * y(i);
    for (std::int64_t i = 0; i < z.size(); ++i) sum += G(i, j) * z(i);
    largest = std::max(largest, std::fabs(sum));
  }
  for (std::int64_t i = 0; i < y.size() + z.size(); ++i) {
    const bool is_equality = i < y.size();
    const Array& M = is_equality ? A : G;
    const std::int64_t row = is_equality ? i : i - y.size();
    double value = is_equality ? -b(row) : -u(row);
    for (std::int64_t j = 0; j < x.size(); ++j) value += M(row, j) * x(j);
    largest = std::max(largest, is_equality ? std::fabs(value) : value);
  }
  return largest;
}

}  // namespace

void run_many(Suite& suite) {
  for (const Batch& batch : batches) {
    const std::string text = fmt::format("({},{},{}) x {}", batch.n, batch.m, batch.p, batch.count);
    const std::string solve_row = "qp many " + text, backward_row = "qp many, backward by all data " + text;
    if (!suite.wants(solve_row) && !suite.wants(backward_row)) continue;
    const Solver solver = quadratic_program({.tolerance = 1e-8, .max_iterations = 200});
    const std::vector<Many> theta = programs(batch);
    PreparedMany many(solver, theta), alone(solver.on(Context({.threads = 1})), theta);
    const auto keep = [&](PreparedMany& prepared) {
      ManySolutions s = prepared.solve(theta);
      if (!s.failed().empty()) throw std::runtime_error(fmt::format("{}: problem {} was not solved", text, s.failed()[0]));
      for (std::size_t k = 0; k < s.size(); ++k)
        if (const double left = residual(theta, s[k], k); !(left <= 1e-8))
          throw std::runtime_error(fmt::format("{}: problem {} is solved to {:.1e} only", text, k, left));
      return s;
    };
    const std::vector<Many> c{keep(many).x()};
    // Twice as fast on two threads, as far as memory lets them.
    const double threads = onestep::threads();
    suite.time(solve_row, Unit::ms, {[&] { (void)many.solve(theta); }}, {{[&] { (void)alone.solve(theta); }}},
               at_least_ratio(0.9 * threads));
    if (!suite.wants(backward_row)) continue;
    const ManySolutions s = keep(many), one = keep(alone);
    suite.time(backward_row, Unit::ms, {[&] { (void)s.vjp(c); }}, {{[&] { (void)one.vjp(c); }}},
               at_least_ratio(0.9 * threads));
  }
}

}  // namespace onestep::bench
