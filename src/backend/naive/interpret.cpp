// One loop over the nodes; one short function for each kind of operation.
#include "backend/naive/interpret.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backend/naive/elimination.h"
#include "graph/graph.h"
#include "graph/rules.h"

namespace onestep::naive {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::size_t size_of(const Shape& shape) { return to_size(shape.size()); }

Values entries_of(const Array& array) {
  const Array dense = array.contiguous();
  return {dense.values().begin(), dense.values().end()};
}

// A shape as three extents around one axis: entry (o, k, i) lies at (o · length + k) · inner + i. Axis -1: all entries.
struct Around {
  std::size_t outer = 1;
  std::size_t length = 1;
  std::size_t inner = 1;
};
Around around(const Shape& shape, std::int64_t axis) {
  if (axis < 0 || shape.rank() < 2) return {1, size_of(shape), 1};
  if (axis == 0) return {1, to_size(shape[0]), to_size(shape[1])};
  return {to_size(shape[0]), to_size(shape[1]), 1};
}

// A shape as rows and columns when aligned at its last axis, as broadcasting does.
std::pair<std::size_t, std::size_t> rows_and_columns(const Shape& shape) {
  if (shape.rank() == 2) return {to_size(shape[0]), to_size(shape[1])};
  return {1, size_of(shape)};
}

class Interpreter {
 public:
  Interpreter(const Graph& graph, std::span<const Array> inputs)
      : graph_(graph), inputs_(inputs), values_(to_size(graph.size())) {}

  void run(Id id);
  const Values& value(Id id) const { return values_[to_size(id)]; }
  bool failed() const { return failed_; }

 private:
  const Node& node(Id id) const { return graph_.node(id); }
  Id arg(Id id, std::size_t i) const { return graph_.args(id)[i]; }
  const Values& arg_value(Id id, std::size_t i) const { return value(arg(id, i)); }
  const Shape& arg_shape(Id id, std::size_t i) const { return node(arg(id, i)).shape; }

  void elementwise(Id id, Values& y) const;
  void eye(Id id, Values& y) const;
  void matmul(Id id, Values& y) const;
  void gram(Id id, Values& y) const;
  void outer(Id id, Values& y) const;
  void transpose(Id id, Values& y) const;
  void diag(Id id, Values& y) const;
  void diagonal(Id id, Values& y) const;
  template <class Of> void reduce(Id id, Values& y, const Of& of) const;
  void sum(Id id, Values& y) const;
  void max(Id id, Values& y) const;
  void norm(Id id, Values& y) const;
  void cumsum(Id id, Values& y) const;
  void broadcast(Id id, Values& y) const;
  void concat(Id id, Values& y) const;
  void slice(Id id, Values& y) const;
  void pad(Id id, Values& y) const;
  void gather(Id id, Values& y) const;
  void scatter(Id id, Values& y) const;
  void factor(Id id, Values& y);
  void solve(Id id, Values& y) const;
  void logdet(Id id, Values& y) const;
  void det(Id id, Values& y) const;
  void call(Id id, Values& y) const;

  const Graph& graph_;
  std::span<const Array> inputs_;
  std::vector<Values> values_;
  bool failed_ = false;
};

void Interpreter::run(Id id) {
  Values y(size_of(node(id).shape));
  switch (node(id).op) {
    case Op::input: y = entries_of(inputs_[to_size(node(id).attr.i)]); break;
    case Op::constant: y = entries_of(graph_.constant(node(id).attr.i)); break;
    case Op::scalar: y = {node(id).attr.value()}; break;
    case Op::eye: eye(id, y); break;
    case Op::matmul: matmul(id, y); break;
    case Op::gram: gram(id, y); break;
    case Op::outer: outer(id, y); break;
    case Op::transpose: transpose(id, y); break;
    case Op::reshape: y = arg_value(id, 0); break;
    case Op::diag: diag(id, y); break;
    case Op::diagonal: diagonal(id, y); break;
    case Op::sum: sum(id, y); break;
    case Op::max: max(id, y); break;
    case Op::norm: norm(id, y); break;
    case Op::cumsum: cumsum(id, y); break;
    case Op::broadcast: broadcast(id, y); break;
    case Op::concat: concat(id, y); break;
    case Op::slice: slice(id, y); break;
    case Op::pad: pad(id, y); break;
    case Op::gather: gather(id, y); break;
    case Op::scatter: scatter(id, y); break;
    case Op::cholesky:
    case Op::lu:
    case Op::ldlt: factor(id, y); break;
    case Op::solve: solve(id, y); break;
    case Op::logdet: logdet(id, y); break;
    case Op::det: det(id, y); break;
    case Op::call: call(id, y); break;
#include "graph/elementwise_cases.inc"
      elementwise(id, y);
      break;
  }
  values_[to_size(id)] = std::move(y);
}

void Interpreter::elementwise(Id id, Values& y) const {
  const std::span<const Id> args = graph_.args(id);
  double entry[3] = {0, 0, 0};
  for (std::size_t k = 0; k < y.size(); ++k) {
    for (std::size_t a = 0; a < args.size(); ++a) entry[a] = value(args[a])[k];
    y[k] = info(node(id).op).value(entry);
  }
}

void Interpreter::eye(Id id, Values& y) const {
  const std::int64_t columns = node(id).shape[1];
  for (std::int64_t i = 0; i < node(id).shape[0]; ++i)
    for (std::int64_t j = 0; j < columns; ++j) y[to_size(i * columns + j)] = j == i + node(id).attr.i ? 1.0 : 0.0;
}

void Interpreter::matmul(Id id, Values& y) const {
  const Matrix a(arg_value(id, 0), arg_shape(id, 0), node(id).attr.i != 0);
  const Matrix b(arg_value(id, 1), arg_shape(id, 1), arg_shape(id, 1).rank() == 2 && node(id).attr.j != 0);
  for (std::size_t i = 0; i < a.rows; ++i)
    for (std::size_t j = 0; j < b.columns; ++j) {
      Real total = 0;
      for (std::size_t k = 0; k < a.columns; ++k) total += a(i, k) * b(k, j);
      y[i * b.columns + j] = static_cast<double>(total);
    }
}

void Interpreter::gram(Id id, Values& y) const {
  const Matrix a(arg_value(id, 0), arg_shape(id, 0));
  const Values& d = arg_value(id, 1);
  for (std::size_t i = 0; i < a.columns; ++i)
    for (std::size_t j = 0; j < a.columns; ++j) {
      Real total = 0;
      for (std::size_t k = 0; k < a.rows; ++k) total += a(k, i) * d[k] * a(k, j);
      y[i * a.columns + j] = static_cast<double>(total);
    }
}

void Interpreter::outer(Id id, Values& y) const {
  const Values &u = arg_value(id, 0), &v = arg_value(id, 1);
  for (std::size_t i = 0; i < u.size(); ++i)
    for (std::size_t j = 0; j < v.size(); ++j) y[i * v.size() + j] = u[i] * v[j];
}

void Interpreter::transpose(Id id, Values& y) const {
  const Matrix a(arg_value(id, 0), arg_shape(id, 0), true);
  for (std::size_t i = 0; i < a.rows; ++i)
    for (std::size_t j = 0; j < a.columns; ++j) y[i * a.columns + j] = static_cast<double>(a(i, j));
}

void Interpreter::diag(Id id, Values& y) const {
  const Values& d = arg_value(id, 0);
  for (std::size_t i = 0; i < d.size(); ++i) y[i * d.size() + i] = d[i];
}

void Interpreter::diagonal(Id id, Values& y) const {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = arg_value(id, 0)[i * y.size() + i];
}

// Each entry of y is `of` the entries along the axis, given as their number and a function of the position.
template <class Of> void Interpreter::reduce(Id id, Values& y, const Of& of) const {
  const Values& a = arg_value(id, 0);
  const Around s = around(arg_shape(id, 0), node(id).attr.i);
  for (std::size_t o = 0; o < s.outer; ++o)
    for (std::size_t i = 0; i < s.inner; ++i)
      y[o * s.inner + i] = of(s.length, [&](std::size_t k) { return a[(o * s.length + k) * s.inner + i]; });
}

void Interpreter::sum(Id id, Values& y) const {
  reduce(id, y, [](std::size_t length, const auto& entry) {
    Real total = 0;
    for (std::size_t k = 0; k < length; ++k) total += entry(k);
    return static_cast<double>(total);
  });
}

void Interpreter::max(Id id, Values& y) const {
  reduce(id, y, [](std::size_t length, const auto& entry) {
    double largest = -std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < length; ++k)
      if (entry(k) > largest || std::isnan(entry(k))) largest = entry(k);
    return largest;
  });
}

// The exponent of a long double has room for the squares of all doubles.
void Interpreter::norm(Id id, Values& y) const {
  reduce(id, y, [](std::size_t length, const auto& entry) {
    Real total = 0;
    for (std::size_t k = 0; k < length; ++k) total += Real{entry(k)} * entry(k);
    return static_cast<double>(std::sqrt(total));
  });
}

void Interpreter::cumsum(Id id, Values& y) const {
  const Values& a = arg_value(id, 0);
  const Around s = around(node(id).shape, node(id).attr.i);
  for (std::size_t o = 0; o < s.outer; ++o)
    for (std::size_t i = 0; i < s.inner; ++i) {
      Real total = 0;
      for (std::size_t k = 0; k < s.length; ++k) {
        const std::size_t at = (o * s.length + (node(id).attr.j != 0 ? s.length - 1 - k : k)) * s.inner + i;
        total += a[at];
        y[at] = static_cast<double>(total);
      }
    }
}

void Interpreter::broadcast(Id id, Values& y) const {
  const auto [rows, columns] = rows_and_columns(node(id).shape);
  const auto [from_rows, from_columns] = rows_and_columns(arg_shape(id, 0));
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      y[i * columns + j] = arg_value(id, 0)[(from_rows == 1 ? 0 : i) * from_columns + (from_columns == 1 ? 0 : j)];
}

void Interpreter::concat(Id id, Values& y) const {
  const Around whole = around(node(id).shape, node(id).attr.i);
  std::size_t at = 0;
  for (const Id part : graph_.args(id)) {
    const Around s = around(node(part).shape, node(id).attr.i);
    for (std::size_t o = 0; o < s.outer; ++o)
      for (std::size_t k = 0; k < s.length; ++k)
        for (std::size_t i = 0; i < s.inner; ++i)
          y[(o * whole.length + at + k) * s.inner + i] = value(part)[(o * s.length + k) * s.inner + i];
    at += s.length;
  }
}

void Interpreter::slice(Id id, Values& y) const {
  const Around s = around(node(id).shape, node(id).attr.i), whole = around(arg_shape(id, 0), node(id).attr.i);
  const std::size_t begin = to_size(node(id).attr.j);
  for (std::size_t o = 0; o < s.outer; ++o)
    for (std::size_t k = 0; k < s.length; ++k)
      for (std::size_t i = 0; i < s.inner; ++i)
        y[(o * s.length + k) * s.inner + i] = arg_value(id, 0)[(o * whole.length + begin + k) * s.inner + i];
}

void Interpreter::pad(Id id, Values& y) const {
  const Around s = around(arg_shape(id, 0), node(id).attr.i), whole = around(node(id).shape, node(id).attr.i);
  const std::size_t begin = to_size(node(id).attr.j);
  for (std::size_t o = 0; o < s.outer; ++o)
    for (std::size_t k = 0; k < s.length; ++k)
      for (std::size_t i = 0; i < s.inner; ++i)
        y[(o * whole.length + begin + k) * s.inner + i] = arg_value(id, 0)[(o * s.length + k) * s.inner + i];
}

void Interpreter::gather(Id id, Values& y) const {
  const Around s = around(node(id).shape, node(id).attr.i), whole = around(arg_shape(id, 0), node(id).attr.i);
  const Values& index = arg_value(id, 1);
  for (std::size_t o = 0; o < s.outer; ++o)
    for (std::size_t k = 0; k < s.length; ++k)
      for (std::size_t i = 0; i < s.inner; ++i)
        y[(o * s.length + k) * s.inner + i] =
            arg_value(id, 0)[(o * whole.length + static_cast<std::size_t>(index[k])) * s.inner + i];
}

void Interpreter::scatter(Id id, Values& y) const {
  const Around s = around(arg_shape(id, 0), node(id).attr.i), whole = around(node(id).shape, node(id).attr.i);
  const Values& index = arg_value(id, 1);
  std::vector<Real> total(y.size());
  for (std::size_t o = 0; o < s.outer; ++o)
    for (std::size_t k = 0; k < s.length; ++k)
      for (std::size_t i = 0; i < s.inner; ++i)
        total[(o * whole.length + static_cast<std::size_t>(index[k])) * s.inner + i] +=
            arg_value(id, 0)[(o * s.length + k) * s.inner + i];
  std::ranges::transform(total, y.begin(), [](Real t) { return static_cast<double>(t); });
}

// The value of a factor is its matrix: symmetric from the lower triangle except for LU, all NaN when it cannot be factored.
void Interpreter::factor(Id id, Values& y) {
  y = arg_value(id, 0);
  const std::size_t n = to_size(node(id).shape[0]);
  if (node(id).op != Op::lu)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = i + 1; j < n; ++j) y[i * n + j] = y[j * n + i];
  std::vector<Real> nothing;
  const bool good =
      node(id).op == Op::cholesky ? is_positive_definite(y, n) : eliminate({y, node(id).shape}, nothing, 0).has_value();
  if (good) return;
  failed_ = true;
  std::ranges::fill(y, nan);
}

void Interpreter::solve(Id id, Values& y) const {
  const Values& b = arg_value(id, 1);
  std::vector<Real> x(b.begin(), b.end());
  const Matrix matrix(arg_value(id, 0), arg_shape(id, 0), node(id).attr.i != 0);
  const bool solved = eliminate(matrix, x, to_size(arg_shape(id, 1)[1])).has_value();
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = solved ? static_cast<double>(x[i]) : nan;
}

void Interpreter::logdet(Id id, Values& y) const {
  std::vector<Real> nothing;
  y[0] = static_cast<double>(eliminate({arg_value(id, 0), arg_shape(id, 0)}, nothing, 0).value_or(nan));
}

void Interpreter::det(Id id, Values& y) const {
  std::vector<Real> nothing;
  bool negative = false;
  const Values& a = arg_value(id, 0);
  const auto log_determinant = eliminate({a, arg_shape(id, 0)}, nothing, 0, &negative);
  const bool finite = std::ranges::all_of(a, [](double e) { return std::isfinite(e); });
  const Real size = log_determinant ? std::exp(*log_determinant) : finite ? 0 : nan;
  y[0] = static_cast<double>(negative ? -size : size);
}

void Interpreter::call(Id id, Values& y) const {
  const Foreign& f = *graph_.foreign(node(id).attr.i);
  const std::int64_t kind = node(id).attr.j;
  std::vector<std::span<const double>> all;
  for (const Id a : graph_.args(id)) all.emplace_back(value(a));
  const std::span<const std::span<const double>> given(all);
  if (kind == 0)
    f.apply(given, y);
  else if (kind == 1)
    f.jvp(given.first(all.size() / 2), given.last(all.size() / 2), y);
  else
    f.vjp(given.first(all.size() - 1), all.back(), to_size(kind - 2), y);
}

}  // namespace

std::vector<Array> interpret(const Function& f, std::span<const Array> inputs, bool* failed) {
  check_inputs("evaluate", f.inputs(), inputs);
  Interpreter interpreter(*graph_of(f), inputs);
  for (const Id id : graph_of(f)->needed(ids_of(f.outputs()))) interpreter.run(id);
  if (failed != nullptr) *failed = interpreter.failed();
  std::vector<Array> results;
  for (const Expr& e : f.outputs()) results.emplace_back(e.shape(), interpreter.value(id_of(e)));
  return results;
}

}  // namespace onestep::naive
