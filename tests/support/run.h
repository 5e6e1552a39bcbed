// Tracing, running and comparing in one line, for tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/naive/interpret.h"
#include "graph/graph.h"
#include "graph/rules.h"
#include "onestep/function.h"
#include "support/compare.h"

namespace onestep::test {

using Exprs = std::vector<Expr>;
using Arrays = std::vector<Array>;

inline Array vector_of(std::vector<double> entries) {
  const Shape shape{static_cast<std::int64_t>(entries.size())};
  return {shape, std::move(entries)};
}

/// A function of inputs with these shapes.
inline Function function_of(std::span<const Shape> shapes, const std::function<Exprs(const Exprs&)>& body) {
  return Function(std::vector<Input>(shapes.begin(), shapes.end()), [&](std::span<const Expr> x) {
    return body({x.begin(), x.end()});
  });
}

/// The value of expressions that need no input, or of those `body` makes from the given arrays.
inline Array value_of(const Expr& e) {
  return naive::interpret(Function({}, [&](std::span<const Expr>) { return Exprs{e}; }), {}).front();
}
inline Arrays values_of(const Arrays& inputs, const std::function<Exprs(const Exprs&)>& body) {
  std::vector<Shape> shapes;
  for (const Array& a : inputs) shapes.push_back(a.shape());
  return naive::interpret(function_of(shapes, body), inputs);
}
inline Array value_of(const Arrays& inputs, const std::function<Expr(const Exprs&)>& body) {
  return values_of(inputs, [&](const Exprs& x) { return Exprs{body(x)}; }).front();
}

/// How many nodes the results need that satisfy a condition.
inline int count_nodes(std::span<const Expr> results, const std::function<bool(const Expr&)>& wanted) {
  const std::vector<Expr> all = unify("count_nodes", results);
  Graph& graph = *graph_of(all.front());
  std::vector<Id> ids;
  for (const Expr& e : all) ids.push_back(id_of(e));
  const std::vector<bool> needed = graph.reachable(ids);
  int n = 0;
  for (Id id = 0; id < graph.size(); ++id)
    if (needed[static_cast<std::size_t>(id)] && wanted(graph.expr(id))) ++n;
  return n;
}
inline int count_nodes(const Expr& result, Op op) {
  return count_nodes({&result, 1}, [op](const Expr& e) { return is(e, op); });
}

}  // namespace onestep::test
