// Rules of each operation, gathered into one table. Elementwise operations get theirs from the rows of operations.def, the
// others from Rules<Op::name> below; the table at the end does not compile when one is missing.
#include "graph/rules.h"

#include <fmt/format.h>

#include <cmath>

namespace onestep {

Shape Site::result_shape() const { return info(op).shape(*this); }

Expr Site::make(const Shape& result) const {
  std::vector<Id> ids;
  for (const Expr& a : args) ids.push_back(a.id());
  const std::shared_ptr<Graph> graph = args.empty() ? std::make_shared<Graph>() : args.front().graph();
  return graph->expr(graph->make(op, ids, attr, result));
}

Site site_of(const Expr& e) {
  Site site{node(e).op, {}, node(e).attr, node(e).shape};
  for (const Id a : e.graph()->args(e.id())) site.args.push_back(e.graph()->expr(a));
  return site;
}

Shape broadcast_shape(const char* operation, const Shape& a, const Shape& b) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  std::int64_t dims[2] = {1, 1};
  for (int axis = 0; axis < longer.rank(); ++axis) {
    const int there = axis - (longer.rank() - shorter.rank());
    const std::int64_t m = longer[axis];
    const std::int64_t n = there < 0 ? 1 : shorter[there];
    if (m != n && m != 1 && n != 1)
      throw Error(fmt::format("[{}] shapes do not fit: {} and {}; a size must be equal or 1, counted from the last axis",
                              operation, to_string(a), to_string(b)));
    dims[axis] = m == 1 ? n : m;
  }
  if (longer.rank() == 0) return {};
  return longer.rank() == 1 ? Shape{dims[0]} : Shape{dims[0], dims[1]};
}

namespace {

double count(const Shape& shape) { return static_cast<double>(shape.size()); }
double extent(const Shape& shape, int axis) { return static_cast<double>(shape[axis]); }

[[noreturn]] void fail(Op op, const std::string& what) { throw Error(fmt::format("[{}] {}", name(op), what)); }

void require_rank(const Site& s, std::size_t which, int rank, const char* what) {
  if (s[which].shape().rank() != rank) fail(s.op, fmt::format("needs {}, got shape {}", what, to_string(s[which].shape())));
}
void require_axis(const Site& s, std::int64_t axis) {
  if (axis < 0 || axis >= s[0].shape().rank())
    fail(s.op, fmt::format("axis {} of shape {}, which has rank {}", axis, to_string(s[0].shape()), s[0].shape().rank()));
}
Shape with_extent(const Shape& shape, std::int64_t axis, std::int64_t size) {
  if (shape.rank() == 1) return {size};
  return axis == 0 ? Shape{size, shape[1]} : Shape{shape[0], size};
}
Shape without_axis(const Shape& shape, std::int64_t axis) {
  if (axis < 0 || shape.rank() == 1) return {};
  return {shape[axis == 0 ? 1 : 0]};
}

template <Op> struct Rules;

// What most operations share; each still states the rest.
struct NoAttributes {
  static std::string attributes(const Site&, const Shape&) { return ""; }
};
struct NotLinear {
  static Expr transpose(const Site& s, int, const Expr&) { fail(s.op, "is not linear"); }
};
struct Free {
  static double flops(const Site&, const Shape&) { return 0; }
};
struct Leaf : NoAttributes, NotLinear, Free {
  static Shape shape(const Site& s) { return s.shape; }
};

template <> struct Rules<Op::input> : Leaf {};
template <> struct Rules<Op::constant> : Leaf {};
template <> struct Rules<Op::scalar> : Leaf {
  static std::string attributes(const Site& s, const Shape&) { return fmt::format("{}", s.attr.value); }
};
template <> struct Rules<Op::eye> : Leaf {
  static std::string attributes(const Site& s, const Shape&) {
    return s.attr.i == 0 ? "" : fmt::format("offset {}", s.attr.i);
  }
};

template <> struct Rules<Op::matmul> {
  static Shape shape(const Site& s) {
    const Shape a = s[0].shape(), b = s[1].shape();
    const bool ta = s.attr.i != 0, tb = s.attr.j != 0;
    const std::int64_t k = a[ta ? 0 : 1];
    const std::int64_t m = a[ta ? 1 : 0];
    if (a.rank() != 2 || b.rank() < 1)
      fail(s.op, fmt::format("needs a matrix or vector, got {} and {}", to_string(a), to_string(b)));
    if (k != (b.rank() == 2 ? b[tb ? 1 : 0] : b[0]))
      fail(s.op,
           fmt::format("inner dimensions differ: {}{} and {}{}", to_string(a), ta ? "ᵀ" : "", to_string(b), tb ? "ᵀ" : ""));
    return b.rank() == 1 ? Shape{m} : Shape{m, b[tb ? 0 : 1]};
  }
  static double flops(const Site& s, const Shape& y) { return count(y) * extent(s[0].shape(), s.attr.i != 0 ? 0 : 1); }
  static std::string attributes(const Site& s, const Shape&) {
    return s.attr.i != 0 && s.attr.j != 0 ? "AᵀBᵀ" : s.attr.i != 0 ? "AᵀB" : s.attr.j != 0 ? "ABᵀ" : "";
  }
  // y = op(A) op(B):  op(A) gets ȳ op(B)ᵀ, op(B) gets op(A)ᵀ ȳ.
  static Expr transpose(const Site& s, int which, const Expr& c) {
    const bool ta = s.attr.i != 0, tb = s.attr.j != 0;
    if (which == 1) {
      const Expr b = build(Op::matmul, {s[0], c}, {.i = ta ? 0 : 1});
      return tb ? onestep::transpose(b) : b;
    }
    if (s[1].shape().rank() == 1) return ta ? outer(s[1], c) : outer(c, s[1]);
    if (ta) return build(Op::matmul, {s[1], c}, {.i = tb ? 1 : 0, .j = 1});
    return build(Op::matmul, {c, s[1]}, {.j = tb ? 0 : 1});
  }
};

template <> struct Rules<Op::gram> : NoAttributes {
  static Shape shape(const Site& s) {
    require_rank(s, 0, 2, "a matrix");
    require_rank(s, 1, 1, "a vector of weights");
    if (s[0].shape()[0] != s[1].shape()[0])
      fail(s.op, fmt::format("{} weights for {} rows: {} and {}", s[1].shape()[0], s[0].shape()[0], to_string(s[0].shape()),
                             to_string(s[1].shape())));
    return {s[0].shape()[1], s[0].shape()[1]};
  }
  // One triangle, and the rows scaled.
  static double flops(const Site& s, const Shape& y) {
    const double rows = extent(s[0].shape(), 0), n = extent(y, 0);
    return rows * n * (n + 1) / 2 + rows * n;
  }
  // d̄ᵢ = aᵢᵀ M aᵢ
  static Expr transpose(const Site& s, int, const Expr& c) { return sum(matmul(s[0], c) * s[0], 1); }
};

template <> struct Rules<Op::outer> : NoAttributes {
  static Shape shape(const Site& s) {
    require_rank(s, 0, 1, "two vectors");
    require_rank(s, 1, 1, "two vectors");
    return {s[0].shape()[0], s[1].shape()[0]};
  }
  static double flops(const Site&, const Shape& y) { return count(y); }
  static Expr transpose(const Site& s, int which, const Expr& c) {
    return which == 0 ? matmul(c, s[1]) : matmul(onestep::transpose(c), s[0]);
  }
};

template <> struct Rules<Op::transpose> : NoAttributes, Free {
  static Shape shape(const Site& s) {
    require_rank(s, 0, 2, "a matrix");
    return {s[0].shape()[1], s[0].shape()[0]};
  }
  static Expr transpose(const Site&, int, const Expr& c) { return onestep::transpose(c); }
};

template <> struct Rules<Op::reshape> : NoAttributes, Free {
  static Shape shape(const Site& s) {
    if (s[0].shape().size() != s.shape.size())
      fail(s.op, fmt::format("{} has {} entries, {} has {}", to_string(s[0].shape()), s[0].shape().size(),
                             to_string(s.shape), s.shape.size()));
    return s.shape;
  }
  static Expr transpose(const Site& s, int, const Expr& c) { return onestep::reshape(c, s[0].shape()); }
};

template <> struct Rules<Op::diag> : NoAttributes, Free {
  static Shape shape(const Site& s) {
    require_rank(s, 0, 1, "a vector");
    return {s[0].shape()[0], s[0].shape()[0]};
  }
  static Expr transpose(const Site&, int, const Expr& c) { return diagonal(c); }
};

template <> struct Rules<Op::diagonal> : NoAttributes, Free {
  static Shape shape(const Site& s) {
    require_rank(s, 0, 2, "a square matrix");
    if (s[0].shape()[0] != s[0].shape()[1])
      fail(s.op, fmt::format("needs a square matrix, got {}", to_string(s[0].shape())));
    return {s[0].shape()[0]};
  }
  static Expr transpose(const Site&, int, const Expr& c) { return onestep::diag(c); }
};

struct Reduction {
  static Shape shape(const Site& s) {
    if (s.attr.i >= 0) require_axis(s, s.attr.i);
    return without_axis(s[0].shape(), s.attr.i);
  }
  static double flops(const Site& s, const Shape&) { return count(s[0].shape()); }
  static std::string attributes(const Site& s, const Shape&) { return s.attr.i < 0 ? "" : fmt::format("axis {}", s.attr.i); }
};
template <> struct Rules<Op::sum> : Reduction {
  static Expr transpose(const Site& s, int, const Expr& c) {
    const Shape to = s[0].shape();
    return broadcast(s.attr.i == 1 ? onestep::reshape(c, {to[0], 1}) : c, to);
  }
};
template <> struct Rules<Op::max> : Reduction, NotLinear {};

template <> struct Rules<Op::broadcast> : NoAttributes, Free {
  static Shape shape(const Site& s) {
    if (s[0].shape().rank() > s.shape.rank() || broadcast_shape("broadcast", s[0].shape(), s.shape) != s.shape)
      fail(s.op, fmt::format("{} cannot be repeated to {}", to_string(s[0].shape()), to_string(s.shape)));
    return s.shape;
  }
  // Sums over the axes that were repeated.
  static Expr transpose(const Site& s, int, const Expr& c) {
    const Shape from = s[0].shape(), to = s.shape;
    Expr r = c;
    if (from.size() == 1 && from.rank() < 2)
      r = sum(c);
    else if (to.rank() == 2) {
      const bool rows = from.rank() == 1 || (from[0] == 1 && to[0] != 1);
      const bool columns = (from.rank() == 2 ? from[1] : from[0]) == 1 && to[1] != 1;
      r = rows && columns ? sum(c) : rows ? sum(c, 0) : columns ? sum(c, 1) : c;
    }
    return onestep::reshape(r, from);
  }
};

template <> struct Rules<Op::concat> : Free {
  static Shape shape(const Site& s) {
    if (s.args.empty()) fail(s.op, "nothing to join");
    require_axis(s, s.attr.i);
    const int axis = static_cast<int>(s.attr.i);
    Shape total = with_extent(s[0].shape(), axis, 0);
    const int other = s.attr.i == 0 ? 1 : 0;
    for (const Expr& a : s.args) {
      if (a.shape().rank() != s[0].shape().rank() || (a.shape().rank() == 2 && a.shape()[other] != s[0].shape()[other]))
        fail(s.op, fmt::format("along axis {}: {} and {} differ elsewhere", s.attr.i, to_string(s[0].shape()),
                               to_string(a.shape())));
      total = with_extent(total, axis, total[axis] + a.shape()[axis]);  // throws before it overflows
    }
    return total;
  }
  static std::string attributes(const Site& s, const Shape&) { return fmt::format("axis {}", s.attr.i); }
  static Expr transpose(const Site& s, int which, const Expr& c) {
    const int axis = static_cast<int>(s.attr.i);
    std::int64_t begin = 0;
    for (int k = 0; k < which; ++k) begin += s[static_cast<std::size_t>(k)].shape()[axis];
    return onestep::slice(c, begin, begin + s[static_cast<std::size_t>(which)].shape()[axis], axis);
  }
};

// slice and pad: attr.i is the axis, attr.j where the range begins, the wanted shape says where it ends.
template <> struct Rules<Op::slice> : Free {
  static Shape shape(const Site& s) {
    require_axis(s, s.attr.i);
    const std::int64_t n = s[0].shape()[static_cast<int>(s.attr.i)];
    const std::int64_t end = s.attr.j + s.shape[static_cast<int>(s.attr.i)];
    if (s.attr.j < 0 || end > n)
      fail(s.op, fmt::format("[{}, {}) is outside axis {} of {}", s.attr.j, end, s.attr.i, to_string(s[0].shape())));
    return with_extent(s[0].shape(), s.attr.i, end - s.attr.j);
  }
  static std::string attributes(const Site& s, const Shape& y) {
    return fmt::format("axis {} [{}, {})", s.attr.i, s.attr.j, s.attr.j + y[static_cast<int>(s.attr.i)]);
  }
  static Expr transpose(const Site& s, int, const Expr& c) {
    return onestep::pad(c, s.attr.j, s[0].shape()[static_cast<int>(s.attr.i)], static_cast<int>(s.attr.i));
  }
};
template <> struct Rules<Op::pad> : Free {
  static Shape shape(const Site& s) {
    require_axis(s, s.attr.i);
    const std::int64_t size = s.shape[static_cast<int>(s.attr.i)];
    if (s.attr.j < 0 || s.attr.j > size - s[0].shape()[static_cast<int>(s.attr.i)])
      fail(s.op,
           fmt::format("{} at {} does not fit in {} along axis {}", to_string(s[0].shape()), s.attr.j, size, s.attr.i));
    return with_extent(s[0].shape(), s.attr.i, size);
  }
  static std::string attributes(const Site& s, const Shape& y) {
    return fmt::format("axis {} at {} of {}", s.attr.i, s.attr.j, y[static_cast<int>(s.attr.i)]);
  }
  static Expr transpose(const Site& s, int, const Expr& c) {
    const int axis = static_cast<int>(s.attr.i);
    return onestep::slice(c, s.attr.j, s.attr.j + s[0].shape()[axis], axis);
  }
};

template <int divisor>  // n³ / divisor multiply-adds
struct Factorisation : NoAttributes, NotLinear {
  static Shape shape(const Site& s) {
    if (s[0].shape().rank() != 2 || s[0].shape()[0] != s[0].shape()[1])
      fail(s.op, fmt::format("needs a square matrix, got {}", to_string(s[0].shape())));
    return s[0].shape();
  }
  static double flops(const Site&, const Shape& y) { return count(y) * extent(y, 0) / divisor; }
};
template <> struct Rules<Op::cholesky> : Factorisation<6> {};
template <> struct Rules<Op::ldlt> : Factorisation<6> {};
template <> struct Rules<Op::lu> : Factorisation<3> {};

template <> struct Rules<Op::solve> {
  static Shape shape(const Site& s) {
    if (s[1].shape().rank() < 1 || s[1].shape()[0] != s[0].shape()[0])
      fail(s.op,
           fmt::format("matrix {} and right-hand side {} do not fit", to_string(s[0].shape()), to_string(s[1].shape())));
    return s[1].shape();
  }
  static double flops(const Site& s, const Shape& y) { return count(y) * extent(s[0].shape(), 0); }
  static std::string attributes(const Site& s, const Shape&) { return s.attr.i != 0 ? "transposed" : ""; }
  static Expr transpose(const Site& s, int, const Expr& c) {
    return s.attr.i != 0 ? onestep::solve(Factor(s[0]), c) : solve_transposed(Factor(s[0]), c);
  }
};

template <> struct Rules<Op::logdet> : NoAttributes, NotLinear {
  static Shape shape(const Site&) { return {}; }
  static double flops(const Site& s, const Shape&) { return extent(s[0].shape(), 0); }
};

// attr.j: 0 the value; 1 the jvp (arguments, then tangents); 2 + i the vjp for argument i (arguments, then the cotangent).
template <> struct Rules<Op::call> : NotLinear {
  static Shape shape(const Site& s) { return s.shape; }
  static double flops(const Site&, const Shape& y) { return count(y); }
  static std::string attributes(const Site& s, const Shape&) {
    const std::string f = s[0].graph()->foreign(s.attr.i)->name();
    return s.attr.j == 0 ? f : s.attr.j == 1 ? f + " jvp" : fmt::format("{} vjp {}", f, s.attr.j - 2);
  }
};

// Elementwise: everything but the row's formulas is the same for all.
Shape elementwise_shape(const Site& s) {
  for (const Expr& a : s.args)
    if (a.shape() != s[0].shape())
      fail(s.op, fmt::format("shapes differ: {} and {}", to_string(s[0].shape()), to_string(a.shape())));
  return s[0].shape();
}
double elementwise_flops(const Site& s, const Shape& y) {
  // Adding a diagonal touches the diagonal only.
  if (s.op == Op::add && (is(s[0], Op::diag) || is(s[1], Op::diag))) return extent(y, 0);
  return info(s.op).entry_flops * count(y);
}
std::string no_attributes(const Site&, const Shape&) { return ""; }
std::optional<Expr> no_derivative(const Site&, const Expr&, int) { return std::nullopt; }
Expr no_transpose(const Site& s, int, const Expr&) { fail(s.op, "is elementwise"); }

constexpr std::nullopt_t nothing = std::nullopt;

// Not every row's formula uses every name in scope.
#define ONESTEP_UNARY(op_name, flops, meaning, formula, da)                                       \
  double value_##op_name([[maybe_unused]] const double* v) {                                      \
    [[maybe_unused]] const double a = v[0];                                                       \
    return formula;                                                                               \
  }                                                                                               \
  std::optional<Expr> derivative_##op_name([[maybe_unused]] const Site& s, const Expr& y_, int) { \
    [[maybe_unused]] const Expr one = 1.0, zero = 0.0, a = s[0], y = y_;                          \
    return da;                                                                                    \
  }
#define ONESTEP_BINARY(op_name, flops, meaning, formula, da, db)                       \
  double value_##op_name(const double* v) {                                            \
    const double a = v[0], b = v[1];                                                   \
    return formula;                                                                    \
  }                                                                                    \
  std::optional<Expr> derivative_##op_name(const Site& s, const Expr& y_, int which) { \
    [[maybe_unused]] const Expr one = 1.0, zero = 0.0, a = s[0], b = s[1], y = y_;     \
    if (which == 0) return da;                                                         \
    return db;                                                                         \
  }
#define ONESTEP_TERNARY(op_name, flops, meaning, formula, da, db, dc)                        \
  double value_##op_name(const double* v) {                                                  \
    const double a = v[0], b = v[1], c = v[2];                                               \
    return formula;                                                                          \
  }                                                                                          \
  std::optional<Expr> derivative_##op_name(const Site& s, const Expr& y_, int which) {       \
    [[maybe_unused]] const Expr one = 1.0, zero = 0.0, a = s[0], b = s[1], c = s[2], y = y_; \
    if (which == 0) return da;                                                               \
    if (which == 1) return db;                                                               \
    return dc;                                                                               \
  }
#include "onestep/operations.def"

template <Op op> constexpr OpInfo structural(const char* op_name, const char* meaning, unsigned linear) {
  using R = Rules<op>;
  return {op_name, meaning, false, linear, 0, R::shape, R::flops, R::attributes, no_derivative, R::transpose, nullptr};
}
constexpr OpInfo elementwise(const char* op_name, const char* meaning, double flops, decltype(OpInfo::derivative) derivative,
                             decltype(OpInfo::value) value) {
  return {op_name,       meaning,    true,         0,    flops, elementwise_shape, elementwise_flops,
          no_attributes, derivative, no_transpose, value};
}

constexpr OpInfo table[op_count] = {
#define ONESTEP_UNARY(op_name, flops, meaning, ...) \
  elementwise(#op_name, meaning, flops, derivative_##op_name, value_##op_name),
#define ONESTEP_BINARY ONESTEP_UNARY
#define ONESTEP_TERNARY ONESTEP_UNARY
#define ONESTEP_STRUCTURAL(op_name, linear, meaning) structural<Op::op_name>(#op_name, meaning, linear),
#include "onestep/operations.def"
};

}  // namespace

const OpInfo& info(Op op) { return table[static_cast<std::size_t>(op)]; }

}  // namespace onestep
