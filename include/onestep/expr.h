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
#include "onestep/export.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

class ONESTEP_HIDDEN Graph;
class Expr;

/// The entries [begin, end) along an axis; negative numbers count from the end.
///
///     Expr first = x[{0, 5}], all_but_the_last = x[{0, -1}], tail = x[Range::from(1)];
class Range {
 public:
  constexpr Range(std::int64_t begin, std::int64_t end) : begin_(begin), end_(end) {}
  static constexpr Range from(std::int64_t begin) { return {begin, open}; }
  static constexpr Range to(std::int64_t end) { return {0, end}; }
  constexpr std::int64_t begin() const { return begin_; }
  /// For an axis of n entries.
  constexpr std::int64_t end(std::int64_t n) const { return end_ == open ? n : end_; }

 private:
  static constexpr std::int64_t open = std::numeric_limits<std::int64_t>::max();
  std::int64_t begin_, end_;
};

/// A node of a traced expression: shape known, value not. Cheap to copy. Numbers and arrays convert to constants. One that
/// was moved from throws MisuseError where it is used. It has no value while the function is traced, so that no branch can
/// depend on it and no function of <cmath> can be applied to it: where(x < 0.0, a, b) chooses, sin(x) is the sine.
///
///     auto f = [&](Expr x, Expr w) { return sum(w * softplus(-y * matmul(A, x))) + 0.1 * sum(square(x)); };
class Expr {
 public:
  Expr() = default;
  /// A number.
  template <detail::Number Value> Expr(Value value) : literal_(static_cast<double>(value)) {}
  /// A constant with the entries of `array`, which are not copied (a view must stay valid as long as the function).
  Expr(const Array& array);

  Expr(const Expr&) = default;
  Expr& operator=(const Expr&) & = default;
  Expr(Expr&& other) noexcept
      : graph_(std::move(other.graph_)), id_(std::exchange(other.id_, moved_from)), literal_(other.literal_) {}
  Expr& operator=(Expr&& other) & noexcept {
    Expr taken(std::move(other));
    graph_.swap(taken.graph_);
    id_ = taken.id_;
    literal_ = taken.literal_;
    return *this;
  }
  ~Expr() = default;

  Shape shape() const;

  /// An entry of a vector, as a number, or a row of a matrix; a negative i counts from the end. For many entries a range or
  /// gather is one node.
  ///
  ///     Expr first = x[0], last = x[-1], row = A[2], corner = A[2][0];
  template <std::integral Index>
  requires(!std::same_as<Index, bool>) Expr operator[](Index i) const { return entry(checked(i)); }
  /// A range of entries, or of rows.
  ///
  ///     Expr penalised = x[{1, 13}], rows = A[Range::to(100)];
  Expr operator[](const Range& range) const;

  /// x = x + b, and so on: x is another node afterwards, and what was made of it stays as it was.
  ///
  ///     Expr total = sum(x);
  ///     total += 0.5 * sum(square(w));
  Expr& operator+=(const Expr& b) &;
  Expr& operator-=(const Expr& b) &;
  Expr& operator*=(const Expr& b) &;
  Expr& operator/=(const Expr& b) &;

  // What does not exist, and what to write instead.
  template <class Value> void operator=(const Value&) && { refuse_assignment<Value>(); }
  template <class Value> void operator+=(const Value&) && { refuse_assignment<Value>(); }
  template <class Value> void operator-=(const Value&) && { refuse_assignment<Value>(); }
  template <class Value> void operator*=(const Value&) && { refuse_assignment<Value>(); }
  template <class Value> void operator/=(const Value&) && { refuse_assignment<Value>(); }
  template <class Index>
  requires(std::floating_point<Index> || std::same_as<Index, bool> || std::same_as<Index, Expr>) Expr operator[](
      const Index&) const {
    static_assert(detail::never<Index>, "an index is a whole number known while tracing; where(condition, a, b) chooses");
    return {};
  }
  template <class Bool = bool> explicit operator Bool() const requires(std::same_as<Bool, bool>) {
    static_assert(detail::never<Bool>,
                  "an expression has no value while it is traced, so nothing can branch on it (nor combine conditions by && "
                  "or ||): where(condition, a, b) chooses");
    return false;
  }
  // What std::sin(x) and its like convert to. Not double, which would make `c ? x : 0.0` ambiguous.
  template <class Float> operator Float() const requires(std::same_as<Float, float>) {
    static_assert(
        detail::never<Float>,
        "an expression has no value while it is traced: call sin(x), exp(x), pow(x, y) without std::; evaluate() or "
        "a Plan gives values");
    return 0;
  }

 private:
  friend struct detail::Access;
  // Where the node lives. A number not yet used with anything else lives in no graph, an array in its own.
  Expr(std::shared_ptr<Graph> graph, std::int32_t id) : graph_(std::move(graph)), id_(id) {}
  template <class Index> static std::int64_t checked(Index i) {
    // -1 as an unsigned number is no index from the end.
    if (std::is_unsigned_v<Index> && i > static_cast<Index>(std::numeric_limits<Index>::max() / 2) && sizeof(i) >= 8)
      detail::fail_index(static_cast<std::uint64_t>(i));
    return static_cast<std::int64_t>(i);
  }
  Expr entry(std::int64_t i) const;
  template <class Value> static void refuse_assignment() {
    static_assert(detail::never<Value>,
                  "an entry of an expression cannot be changed: make the whole anew, with where, concat or stack");
  }
  static constexpr std::int32_t moved_from = -1;
  std::shared_ptr<Graph> graph_;
  std::int32_t id_ = 0;
  double literal_ = 0.0;
};

/// The elementwise operations, one function for each row of the table in operations.def: add, sub, mul, div, pow, maximum,
/// minimum, less … not_equal, where, hypot, atan2, neg, exp, expm1, log, log1p, sqrt, square, abs, sign, tanh, sigmoid,
/// softplus, erf, sin, cos, tan, asin, acos, atan, sinh, cosh, cbrt, stop_gradient, arbitrary. The table says what is chosen
/// where a derivative does not exist. `arbitrary` marks a choice that changes nothing, as a shift against overflow: it is
/// not differentiated, and its kinks are not kinks of the result.
///
///     Expr loss = softplus(-y * z), positive = maximum(x, 0.0), safe = where(x > 0.0, log(x), 0.0);
///     Expr p = exp(z - arbitrary(max(z))), softmax = p / sum(p);
#define ONESTEP_UNARY(name, kink, flops, meaning, ...) Expr name(const Expr& a);
#define ONESTEP_BINARY(name, kink, flops, meaning, ...) Expr name(const Expr& a, const Expr& b);
#define ONESTEP_TERNARY(name, kink, flops, meaning, ...) Expr name(const Expr& a, const Expr& b, const Expr& c);
#include "onestep/operations.def"

/// Operators are elementwise; a comparison is an expression, 1 where it holds and 0 elsewhere. Numbers have templates of
/// their own, so that nothing else is considered for them.
///
///     Expr r = 2.0 * x - 1, inside = (x > 0.0) * (x < 1.0), clipped = where(x < 0.0, 0.0, x);
#define ONESTEP_OPERATOR(symbol, name)                                                                                   \
  inline Expr operator symbol(const Expr& a, const Expr& b) { return name(a, b); }                                       \
  template <std::same_as<Expr> E, detail::Number Value> Expr operator symbol(const E& a, Value b) { return name(a, b); } \
  template <std::same_as<Expr> E, detail::Number Value> Expr operator symbol(Value a, const E& b) { return name(a, b); }
ONESTEP_OPERATOR(+, add)
ONESTEP_OPERATOR(-, sub)
ONESTEP_OPERATOR(*, mul)
ONESTEP_OPERATOR(/, div)
ONESTEP_OPERATOR(<, less)
ONESTEP_OPERATOR(<=, less_equal)
ONESTEP_OPERATOR(>, greater)
ONESTEP_OPERATOR(>=, greater_equal)
ONESTEP_OPERATOR(==, equal)
ONESTEP_OPERATOR(!=, not_equal)
#undef ONESTEP_OPERATOR
inline Expr operator-(const Expr& a) { return neg(a); }
inline Expr operator+(const Expr& a) { return a; }
inline Expr& Expr::operator+=(const Expr& b) & { return *this = *this + b; }
inline Expr& Expr::operator-=(const Expr& b) & { return *this = *this - b; }
inline Expr& Expr::operator*=(const Expr& b) & { return *this = *this * b; }
inline Expr& Expr::operator/=(const Expr& b) & { return *this = *this / b; }

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

/// The entries of a vector with these numbers, or rows (axis 0) or columns (axis 1) of a matrix, in this order; a number may
/// come more than once, and a negative one counts from the end. The derivative adds up where a number comes again.
///
///     Expr chosen = gather(x, {2, 0, 2}), columns = gather(A, {0, -1}, 1);
Expr gather(const Expr& a, std::span<const std::int64_t> indices, int axis = 0);
Expr gather(const Expr& a, std::initializer_list<std::int64_t> indices, int axis = 0);
/// In the opposite order along an axis.
///
///     Expr backwards = reverse(x);
Expr reverse(const Expr& a, int axis = 0);

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
/// The running sums a₀, a₀ + a₁, … of a vector, or along an axis of a matrix.
///
///     Expr path = cumsum(x), down_the_columns = cumsum(A, 0);
Expr cumsum(const Expr& a);
Expr cumsum(const Expr& a, int axis);
inline Expr cumsum(const Expr& a, Axis axis) { return cumsum(a, axis.number); }
template <std::floating_point Number> Expr cumsum(const Expr& a, Number axis) = delete;  // an axis is a whole number
/// The largest and the smallest entry of all, or along an axis; NaN if any is. The largest of nothing is minus infinity, the
/// smallest of nothing infinity. Entries that attain it share the derivative equally.
///
///     Expr shift = max(logits, Axis{1}), least = min(x);
Expr max(const Expr& a);
Expr max(const Expr& a, Axis axis);
Expr min(const Expr& a);
Expr min(const Expr& a, Axis axis);
/// Of two values the larger is maximum(a, b) and the smaller minimum(a, b), whatever the type of the number: max(x, 0) does
/// not compile.
template <class Value>
requires(detail::Number<Value> || std::same_as<Value, Expr> || std::same_as<Value, Array>) Expr
    max(const Expr&, const Value&) {
  static_assert(detail::never<Value>,
                "use maximum(a, b) for the larger of two values; the largest entry along an axis is max(a, Axis{1})");
  return {};
}
template <class Value>
requires(detail::Number<Value> || std::same_as<Value, Expr> || std::same_as<Value, Array>) Expr
    min(const Expr&, const Value&) {
  static_assert(detail::never<Value>,
                "use minimum(a, b) for the smaller of two values; the smallest entry along an axis is min(a, Axis{1})");
  return {};
}
/// The Euclidean norm of all entries, or along an axis, without overflow or underflow of squares. Its derivative at zero,
/// where there is none, is zero, to all orders.
///
///     Expr length = norm(x), of_rows = norm(A, Axis{1});
Expr norm(const Expr& a);
Expr norm(const Expr& a, Axis axis);
template <detail::Number Order> Expr norm(const Expr&, Order) {
  static_assert(detail::never<Order>,
                "norm is the Euclidean norm, along an axis norm(a, Axis{1}); other norms are sum(abs(a)) and max(abs(a))");
  return {};
}

/// A factorisation of a matrix, as a node of its own: value, jvp, vjp and every later solve share it. A matrix that cannot
/// be factored sets a flag in the workspace (Workspace::failed) and gives NaN; nothing is thrown from a run. Cholesky and
/// LDLᵀ take the matrix as symmetric and read its lower triangle.
///
///     Factor F = cholesky(H);
///     Expr step = solve(F, g), half_evidence = 0.5 * logdet(F);
class Factor {
  friend struct detail::Access;
  // Throws MisuseError unless the node is a factorisation.
  explicit Factor(Expr node);
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
template <class Matrix>
requires(std::same_as<Matrix, Expr> || std::same_as<Matrix, Array>) Expr solve(const Matrix&, const Expr&) {
  static_assert(
      detail::never<Matrix>,
      "solve takes a factorisation: solve(cholesky(H), b) where H is positive definite, solve(lu(M), b) elsewhere");
  return {};
}
/// log |det M|.
///
///     Expr l = logdet(cholesky(H));
Expr logdet(const Factor& factor);
/// The determinant of a square matrix, 0 where it is exactly singular. There its derivative, which goes through the inverse,
/// is that of a matrix that cannot be factored: NaN, with the flag set.
///
///     Expr volume = det(M);
Expr det(const Expr& m);

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
ONESTEP_EXPORT_END
