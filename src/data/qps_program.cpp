// From the entries of a QPS file to dense matrices.
#include "data/qps_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace onestep::data {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Array vector_of(std::vector<double> entries) {
  const Shape shape{static_cast<std::int64_t>(entries.size())};
  return {shape, std::move(entries)};
}

Array matrix_of(std::size_t rows, std::size_t columns, std::vector<double> entries) {
  return {Shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)}, std::move(entries)};
}

// No entry twice; in one triangle (i, j) and (j, i) are the same.
void check_quadratic(QpsContent& content, const Source& source) {
  const auto place = [&](const QuadraticEntry& e) {
    return content.both_triangles || e.row < e.column ? std::pair(e.row, e.column) : std::pair(e.column, e.row);
  };
  std::vector<QuadraticEntry>& all = content.quadratic;
  std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  const auto twice =
      std::adjacent_find(all.begin(), all.end(), [&](const auto& a, const auto& b) { return place(a) == place(b); });
  if (twice == all.end()) return;
  const QuadraticEntry& second = *std::next(twice);
  fail(source, second.line,
       fmt::format("a second entry of Q for columns {} and {}, after line {}{}", quoted(content.columns[second.row].name),
                   quoted(content.columns[second.column].name), twice->line,
                   content.both_triangles ? "" : "; QUADOBJ and QSECTION have one triangle, QMATRIX both"));
}

void make_objective(QpsContent& content, const Source& source, QuadraticProgram& problem) {
  const std::size_t n = content.columns.size();
  const double sign = content.maximise ? -1.0 : 1.0;
  std::vector<double> q(n);
  for (const Entry& e : content.entries)
    if (e.row == content.objective) q[e.column] = sign * e.value;
  if (content.objective) problem.constant = 0.0 - sign * content.rows[*content.objective].rhs.value_or(0.0);
  problem.q = vector_of(std::move(q));

  check_quadratic(content, source);
  std::vector<double> Q(n * n);
  for (const QuadraticEntry& e : content.quadratic) Q[e.row * n + e.column] = sign * e.value;
  for (const QuadraticEntry& e : content.quadratic) {
    double& mirrored = Q[e.column * n + e.row];
    if (!content.both_triangles) mirrored = sign * e.value;
    if (mirrored != sign * e.value)
      fail(source, e.line,
           fmt::format("QMATRIX has {} for columns {} and {}, but {} for the two exchanged; it has to be symmetric", e.value,
                       quoted(content.columns[e.row].name), quoted(content.columns[e.column].name), sign * mirrored));
  }
  problem.Q = matrix_of(n, n, std::move(Q));
}

bool is_equality(const Row& r) { return r.kind == 'E' && r.range.value_or(0.0) == 0.0; }

std::pair<double, double> sides(const Row& r, const Source& source) {
  const double rhs = r.rhs.value_or(0.0), width = std::fabs(r.range.value_or(infinity));
  if (!std::isfinite(rhs)) {
    if (r.range) fail(source, fmt::format("the row {} has a range and an infinite right-hand side", quoted(r.name)));
    return {-infinity, infinity};
  }
  const bool downwards = r.kind == 'L' || (r.kind == 'E' && *r.range < 0);
  return downwards ? std::pair(rhs - width, rhs) : std::pair(rhs, rhs + width);
}

void make_constraints(const QpsContent& content, const Source& source, QpsFile& file) {
  const std::size_t n = content.columns.size();
  std::vector<Index> place(content.rows.size());
  std::vector<double> b, l, u;
  for (std::size_t i = 0; i < content.rows.size(); ++i) {
    const Row& r = content.rows[i];
    if (r.kind == 'N') continue;
    if (is_equality(r)) {
      place[i] = b.size();
      b.push_back(r.rhs.value_or(0.0));
      file.equalities.emplace_back(r.name);
    } else {
      const auto [low, high] = sides(r, source);
      place[i] = l.size();
      l.push_back(low);
      u.push_back(high);
      file.inequalities.emplace_back(r.name);
    }
  }
  std::vector<double> A(b.size() * n), G(l.size() * n);
  for (const Entry& e : content.entries) {
    const Row& r = content.rows[e.row];
    if (r.kind != 'N') (is_equality(r) ? A : G)[place[e.row] * n + e.column] = e.value;
  }
  file.problem.A = matrix_of(b.size(), n, std::move(A));
  file.problem.G = matrix_of(l.size(), n, std::move(G));
  file.problem.b = vector_of(std::move(b));
  file.problem.l = vector_of(std::move(l));
  file.problem.u = vector_of(std::move(u));
}

}  // namespace

void check_size(const QpsContent& content, const Source& source, std::size_t memory_limit) {
  const double n = static_cast<double>(content.columns.size()), m = static_cast<double>(content.rows.size());
  const double entries = n * (n + m) + 3 * (n + m);
  if (entries * sizeof(double) <= static_cast<double>(memory_limit)) return;
  check_memory(source, fmt::format("{} rows and the first {} columns", content.rows.size(), content.columns.size()), entries,
               memory_limit);
}

QpsFile make_program(QpsContent content, const Source& source, std::size_t memory_limit) {
  if (content.columns.empty()) fail(source, "has no columns");
  check_size(content, source, memory_limit);
  QpsFile file;
  file.name = content.name;
  file.maximise = content.maximise;
  std::vector<double> lo, hi;
  for (const Column& c : content.columns) {
    file.columns.emplace_back(c.name);
    lo.push_back(c.lower);
    hi.push_back(c.upper);
  }
  file.problem.lo = vector_of(std::move(lo));
  file.problem.hi = vector_of(std::move(hi));
  make_objective(content, source, file.problem);
  make_constraints(content, source, file);
  return file;
}

}  // namespace onestep::data
