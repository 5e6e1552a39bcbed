// Functions: a graph with its arguments and results, made by tracing C++ code once.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "onestep/export.h"
#include "onestep/operations.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// An argument of a traced function: its shape and a name for printing and errors.
///
///     Input x{"x", {13}};
struct Input {
  Input(const Shape& its_shape) : shape(its_shape) {}
  Input(std::string its_name, const Shape& its_shape) : name(std::move(its_name)), shape(its_shape) {}
  std::string name;
  Shape shape;
};

/// A traced function: arguments, results, and the graph between them. Const and cheap to copy; share it across threads. One
/// that was moved from has no arguments and no results; everything else throws MisuseError.
///
///     Function f = traced([&](Expr x, Expr w) { return sum(w * square(x)); }, Input{"x", {3}}, Input{"w", {3}});
class Function {
 public:
  using Body = std::function<std::vector<Expr>(std::span<const Expr>)>;
  /// Calls `body` once with an expression for each input. `traced` below is the comfortable way.
  Function(std::vector<Input> inputs, const Body& body);

  std::span<const Input> inputs() const& { return inputs_; }
  std::vector<Input> inputs() const&& { return inputs_; }
  std::span<const Expr> outputs() const& { return outputs_; }
  std::vector<Expr> outputs() const&& { return outputs_; }

  /// The function's results as expressions of other arguments: how one traced function is used inside another. Throws
  /// MisuseError when number or shapes do not fit.
  ///
  ///     Expr y = f(std::vector<Expr>{x, w}).front();
  std::vector<Expr> operator()(std::span<const Expr> arguments) const;

  /// Readable text, a line for each node; names of inputs are kept.
  ///
  ///     std::cout << f.text();
  std::string text() const;
  /// The same for Graphviz: `dot -Tsvg`.
  ///
  ///     std::cout << f.dot();
  std::string dot() const;
  /// Multiply-adds (and elementwise operations) of one evaluation; nodes used twice count once.
  ///
  ///     double cost = f.flops();
  double flops() const;

 private:
  friend struct detail::Access;
  const std::shared_ptr<const Graph>& graph() const {
    if (!graph_) detail::fail_moved_from("Function");
    return graph_;
  }
  std::vector<Input> inputs_;
  std::vector<Expr> outputs_;
  std::shared_ptr<const Graph> graph_;
};

/// Multiply-adds (and elementwise operations) to compute these from the inputs; nodes used twice count once.
///
///     Function h = traced([](Expr x) {
///       std::cout << flops(hessian(sum(exp(x)), x)) << '\n';
///       return x;
///     }, Shape{13});
double flops(const Expr& e);
double flops(std::span<const Expr> results);

/// Readable text of an expression, a line for each node.
///
///     traced([](Expr x) {
///       std::cout << to_string(grad(sum(exp(x)), x));
///       return x;
///     }, Shape{13});
std::string to_string(const Expr& e);

namespace detail {

inline void append(std::vector<Input>& all, const Input& one) { all.push_back(one); }
inline void append(std::vector<Input>& all, const std::vector<Input>& tuple) {
  all.insert(all.end(), tuple.begin(), tuple.end());
}

inline Expr take(const Input&, std::span<const Expr>& rest) {
  const Expr first = rest.front();
  rest = rest.subspan(1);
  return first;
}
inline std::vector<Expr> take(const std::vector<Input>& tuple, std::span<const Expr>& rest) {
  const std::span<const Expr> mine = rest.first(tuple.size());
  rest = rest.subspan(tuple.size());
  return {mine.begin(), mine.end()};
}

inline std::vector<Expr> results(const Expr& one) { return {one}; }
inline std::vector<Expr> results(std::vector<Expr> all) { return all; }
template <std::size_t n> std::vector<Expr> results(const std::array<Expr, n>& all) { return {all.begin(), all.end()}; }
template <class... T> std::vector<Expr> results(const std::tuple<T...>& all) {
  return std::apply([](const auto&... e) { return std::vector<Expr>{Expr(e)...}; }, all);
}
template <class A, class B> std::vector<Expr> results(const std::pair<A, B>& both) {
  return {Expr(both.first), Expr(both.second)};
}

// What a body returns, as a list of expressions.
template <class Call> std::vector<Expr> results_of(Call&& call) {
  using Result = decltype(call());
  if constexpr (requires(Result(*make)()) { results(make()); }) {
    return results(call());
  } else {
    static_assert(never<Result>, "a traced function returns an Expr, or several as a pair, tuple, array or vector");
    return {};
  }
}

// A list of inputs is one argument, a tuple of arrays; anything else is an Input.
template <class T>
using Spec = std::conditional_t<std::is_convertible_v<const T&, std::vector<Input>>, std::vector<Input>, Input>;

}  // namespace detail

/// Calls `f` once with expressions and keeps what it did. Each spec is a Shape, an Input{name, shape}, or a
/// std::vector<Input> for an argument that is a tuple of arrays (f then gets a std::vector<Expr>). f returns an Expr, or
/// several as a pair, tuple, array or vector. Arrays f closes over become constants, without a copy.
///
///     Function f = traced([&](Expr x, Expr w) { return sum(w * softplus(-y * matmul(A, x))); },
///                         Shape{13}, Input{"w", {270}});
template <class F, class... Specs> Function traced(F&& f, const Specs&... specs) {
  const std::tuple<detail::Spec<Specs>...> given(specs...);
  std::vector<Input> inputs;
  std::apply([&](const auto&... spec) { (detail::append(inputs, spec), ...); }, given);
  return Function(std::move(inputs), [&](std::span<const Expr> arguments) {
    std::span<const Expr> rest = arguments;
    return std::apply(
        [&](const auto&... spec) {
          // Braces: arguments are taken in order.
          std::tuple<decltype(detail::take(spec, rest))...> taken{detail::take(spec, rest)...};
          return detail::results_of([&] { return std::apply(f, std::move(taken)); });
        },
        given);
  });
}

/// The name this had before trace(A) became the trace of a matrix.
template <class F, class... Specs>
requires(!std::is_convertible_v<F, Expr>)
    [[deprecated("a lambda is traced by traced(f, shapes...); trace(A) is the trace of a matrix")]] Function
    trace(F&& f, const Specs&... specs) {
  return traced(std::forward<F>(f), specs...);
}

}  // namespace onestep
ONESTEP_EXPORT_END
