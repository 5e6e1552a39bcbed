// Expressions: what a traced function computes with. An operation on expressions computes nothing; it adds a node to a
// graph, with its shape, and throws MisuseError when the shapes do not fit. Names and rules are NumPy's: `*` is elementwise,
// `matmul` is the product, a shape of size 1 along an axis is repeated.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "onestep/array.h"

namespace onestep {

class Graph;

/// A node of a traced expression: shape known, value not. Cheap to copy. Numbers and arrays convert to constants. One that
/// was moved from throws MisuseError where it is used.
///
///     auto f = [&](Expr x, Expr w) { return sum(w * softplus(-y * matmul(A, x))) + 0.1 * sum(square(x)); };
class Expr {
 public:
  Expr() = default;
  /// A number.
  Expr(double value) : literal_(value) {}
  /// A constant with the entries of `array`, which are not copied (a view must stay valid as long as the function).
  Expr(const Array& array);

  Expr(const Expr&) = default;
  Expr& operator=(const Expr&) = default;
  Expr(Expr&& other) noexcept
      : graph_(std::move(other.graph_)), id_(std::exchange(other.id_, moved_from)), literal_(other.literal_) {}
  Expr& operator=(Expr&& other) noexcept {
    Expr taken(std::move(other));
    graph_.swap(taken.graph_);
    id_ = taken.id_;
    literal_ = taken.literal_;
    return *this;
  }
  ~Expr() = default;

  Shape shape() const;

  // For the library: where the node lives. A number not yet used with anything else lives in no graph, an array in its own.
  Expr(std::shared_ptr<Graph> graph, std::int32_t id) : graph_(std::move(graph)), id_(id) {}
  const std::shared_ptr<Graph>& graph() const { return graph_; }
  std::int32_t id() const { return id_; }
  double literal() const {
    if (id_ == moved_from) detail::fail_moved_from("Expr");
    return literal_;
  }

 private:
  static constexpr std::int32_t moved_from = -1;
  std::shared_ptr<Graph> graph_;
  std::int32_t id_ = 0;
  double literal_ = 0.0;
};

/// The elementwise operations, one function for each row of the table in operations.def: add, sub, mul, div, pow, maximum,
/// minimum, less … not_equal, where, neg, exp, expm1, log, log1p, sqrt, square, abs, sign, tanh, sigmoid, softplus, erf,
/// sin, cos, atan, stop_gradient.
///
///     Expr loss = softplus(-y * z), positive = maximum(x, 0.0), safe = where(greater(x, 0.0), log(x), 0.0);
#define ONESTEP_UNARY(name, kink, flops, meaning, ...) Expr name(const Expr& a);
#define ONESTEP_BINARY(name, kink, flops, meaning, ...) Expr name(const Expr& a, const Expr& b);
#define ONESTEP_TERNARY(name, kink, flops, meaning, ...) Expr name(const Expr& a, const Expr& b, const Expr& c);
#include "onestep/operations.def"

inline Expr operator+(const Expr& a, const Expr& b) { return add(a, b); }
inline Expr operator-(const Expr& a, const Expr& b) { return sub(a, b); }
inline Expr operator*(const Expr& a, const Expr& b) { return mul(a, b); }
inline Expr operator/(const Expr& a, const Expr& b) { return div(a, b); }
inline Expr operator-(const Expr& a) { return neg(a); }
inline Expr operator+(const Expr& a) { return a; }

/// The matrix product: matrix-matrix, matrix-vector, vector-matrix, or the dot product of two vectors.
///
///     Expr z = matmul(A, x), g = matmul(transpose(A), r), d = matmul(u, v);
Expr matmul(const Expr& a, const Expr& b);
/// AᵀDA with D = diag(d), as one symmetric product; d may have either sign.
///
///     Expr H = gram(A, w);
Expr gram(const Expr& a, const Expr& d);
/// u vᵀ. It is kept as such: products with it do not form the matrix.
///
///     Expr M = outer(u, v);
Expr outer(const Expr& u, const Expr& v);

/// Rows and columns exchanged; a vector stays as it is. Products take it as a flag: nothing is moved.
///
///     Expr g = matmul(transpose(A), r);
Expr transpose(const Expr& a);
/// The same entries, row by row, in another shape of the same size.
///
///     Expr W = reshape(w, {10, 13});
Expr reshape(const Expr& a, const Shape& shape);
/// Repeated to a larger shape by NumPy's rule: shapes are aligned at their last axis, sizes 1 and missing axes are repeated.
///
///     Expr B = broadcast(b, {270, 13});   // b (13) in every row
Expr broadcast(const Expr& a, const Shape& shape);
/// The matrix with this diagonal, and the diagonal of a matrix.
///
///     Expr H = matmul(transpose(A), A) + diag(lambda), d = diagonal(H);
Expr diag(const Expr& a);
Expr diagonal(const Expr& a);
/// The identity, or ones where column = row + offset.
///
///     Expr I = eye(13);
Expr eye(std::int64_t n);
Expr eye(std::int64_t rows, std::int64_t columns, std::int64_t offset = 0);
/// Joined along an axis.
///
///     Expr all = concat({u, v});
Expr concat(std::span<const Expr> parts, int axis = 0);
Expr concat(std::initializer_list<Expr> parts, int axis = 0);
/// The range [begin, end) along an axis; a negative begin, end or axis counts from the end.
///
///     Expr penalised = slice(x, 1, 13), all_but_the_last = slice(x, 0, -1);
Expr slice(const Expr& a, std::int64_t begin, std::int64_t end, int axis = 0);
/// The opposite of slice: `a` at [begin, begin + its size) of an axis of the given size, zero elsewhere.
///
///     Expr p = pad(slice(x, 1, 13), 1, 13);
Expr pad(const Expr& a, std::int64_t begin, std::int64_t size, int axis = 0);

/// An axis, where a bare number would read as a value: 0 goes down the columns, 1 along the rows; negative ones count from
/// the end.
///
///     Expr largest_per_row = max(a, Axis{1});
struct Axis {
  int number = 0;
};

/// The sum of all entries, or along an axis (0: down the columns, 1: along the rows; negative ones count from the end). The
/// sum of nothing is 0.
///
///     Expr total = sum(a), per_row = sum(a, 1), per_column = sum(a, -2);
Expr sum(const Expr& a);
Expr sum(const Expr& a, int axis);
inline Expr sum(const Expr& a, Axis axis) { return sum(a, axis.number); }
template <std::floating_point Number> Expr sum(const Expr& a, Number axis) = delete;  // an axis is a whole number
/// The largest entry of all, or along an axis; NaN if any is. The largest of nothing is minus infinity.
///
///     Expr shift = max(logits, Axis{1});
Expr max(const Expr& a);
Expr max(const Expr& a, Axis axis);
/// Of two values the larger is maximum(a, b), whatever the type of the number: max(x, 0) does not compile.
template <class Value>
requires(std::is_arithmetic_v<Value> || std::same_as<Value, Expr> || std::same_as<Value, Array>) Expr
    max(const Expr&, const Value&) {
  static_assert(!std::same_as<Value, Value>,
                "use maximum(a, b) for the larger of two values; the largest entry along an axis is max(a, Axis{1})");
  return {};
}

/// log Σ exp(a) along an axis, without overflow: entries of ±700 and of minus infinity are fine. Its gradient is softmax.
///
///     Expr loss = sum(log_sum_exp(scores, 1) - sum(Y * scores, 1));   // of softmax regression, Y one-hot
template <std::floating_point Number> Expr log_sum_exp(const Expr& a, Number axis) = delete;  // as for sum
inline Expr log_sum_exp(const Expr& a, int axis) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const Expr largest = max(a, Axis{axis});
  const Expr shift = stop_gradient(where(less(abs(largest), infinity), largest, 0.0));
  const bool along_rows = a.shape().rank() == 2 && (axis == 1 || axis == -1);
  return shift + log(sum(exp(a - (along_rows ? reshape(shift, {a.shape()[0], 1}) : shift)), axis));
}
inline Expr log_sum_exp(const Expr& a, Axis axis) { return log_sum_exp(a, axis.number); }

/// A factorisation of a matrix, as a node of its own: value, jvp, vjp and every later solve share it. A matrix that cannot
/// be factored sets a flag in the workspace (Workspace::failed) and gives NaN; nothing is thrown from a run. Cholesky and
/// LDLᵀ take the matrix as symmetric and read its lower triangle.
///
///     Factor F = cholesky(H);
///     Expr step = solve(F, g), half_evidence = 0.5 * logdet(F);
class Factor {
 public:
  // For the library. Throws MisuseError unless the node is a factorisation: make one with cholesky, lu or ldlt.
  explicit Factor(Expr node);
  const Expr& node() const { return node_; }

 private:
  Expr node_;
};
Factor cholesky(const Expr& h);
Factor lu(const Expr& m);
Factor ldlt(const Expr& h);
/// x with M x = b (or Mᵀ x = b) for a vector or for each column of a matrix.
///
///     Factor F = lu(M);
///     Expr x = solve(F, b), left = solve_transposed(F, b);
Expr solve(const Factor& factor, const Expr& b);
Expr solve_transposed(const Factor& factor, const Expr& b);
/// log |det M|.
///
///     Expr l = logdet(cholesky(H));
Expr logdet(const Factor& factor);

/// A function the graph cannot see into: any C++ code, given as an object. jvp and vjp may be left out; differentiating
/// through the missing one throws MisuseError. The object must be safe to call from several threads if the plan is run from
/// several.
///
///     struct Cube : Foreign {
///       std::string name() const override { return "cube"; }
///       Shape shape(std::span<const Shape> of) const override { return of[0]; }
///       void apply(std::span<const std::span<const double>> a, std::span<double> y) const override {
///         for (std::size_t i = 0; i < y.size(); ++i) y[i] = a[0][i] * a[0][i] * a[0][i];
///       }
///       bool has_vjp() const override { return true; }
///       void vjp(std::span<const std::span<const double>> a, std::span<const double> c, std::size_t,
///                std::span<double> result) const override {
///         for (std::size_t i = 0; i < c.size(); ++i) result[i] = 3 * a[0][i] * a[0][i] * c[i];
///       }
///     };
///     Expr y = call(std::make_shared<Cube>(), {x});
class Foreign {
 public:
  virtual ~Foreign() = default;
  /// For printing and errors.
  virtual std::string name() const = 0;
  /// The shape of the result; throw MisuseError when the arguments do not fit.
  virtual Shape shape(std::span<const Shape> arguments) const = 0;
  /// Entries are row by row.
  virtual void apply(std::span<const std::span<const double>> arguments, std::span<double> result) const = 0;
  virtual bool has_jvp() const { return false; }
  /// result = Σᵢ (∂f/∂argumentᵢ) tangentᵢ; all tangents are given, zero where an argument does not move.
  virtual void jvp(std::span<const std::span<const double>> arguments, std::span<const std::span<const double>> tangents,
                   std::span<double> result) const;
  virtual bool has_vjp() const { return false; }
  /// result = (∂f/∂argument_which)ᵀ cotangent.
  virtual void vjp(std::span<const std::span<const double>> arguments, std::span<const double> cotangent, std::size_t which,
                   std::span<double> result) const;
};
Expr call(std::shared_ptr<const Foreign> function, std::span<const Expr> arguments);
Expr call(std::shared_ptr<const Foreign> function, std::initializer_list<Expr> arguments);

}  // namespace onestep
