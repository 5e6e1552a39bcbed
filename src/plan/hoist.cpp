// The rewriting that pays only in a loop, of what changes less often than the iterate x: Aᵀ(d∘(Ax) + c) becomes (AᵀDA)x +
// Aᵀc, and an iteration costs n² instead of 2Nn, after Nn²/2 each time d changes; c₁(c₂e) becomes (c₁c₂)e and -(ce) becomes
// (-c)e. A product that only branches read is repeated in each, where their own walk over its matrix can make it too.
#include <algorithm>
#include <map>

#include "graph/rules.h"
#include "plan/program.h"
#include "plan/schedule.h"

namespace onestep::detail {
namespace {

// Levels begin with those of the inputs, as graphs do; other nodes change as often as their arguments.
const Indexed<int>& find_levels(const Graph& graph, Indexed<int>& level) {
  for (Id id = static_cast<Id>(level.size()); id < graph.size(); ++id) {
    level.push_back(-1);
    for (const Id a : graph.args(id)) level[id] = std::max(level[id], level[a]);
  }
  return level;
}

class Hoister {
 public:
  Hoister(Graph& graph, const Levels& levels)
      : graph_(graph), level_(levels.inputs.begin(), levels.inputs.end()), loop_(levels.loop) {}

  // Aᵀe as products with n x n matrices kept between runs, if e is affine in products with A.
  Maybe transposed_product(const Expr& a, const Expr& e) {
    const std::int64_t rows = a.shape()[0], n = a.shape()[1];
    if (8 * n > rows || level(a) >= loop_ || level(e) < loop_) return std::nullopt;
    Affine affine;
    if (!decompose(a, e, 1.0, affine) || affine.terms.empty()) return std::nullopt;
    Maybe total;
    for (const auto& [id, term] : affine.terms)
      add_to(total, build_as_is(Op::matmul, {gram(a, broadcast(*term.d, {rows})), term.v}));
    if (affine.rest) add_to(total, matmul(transpose(a), broadcast(*affine.rest, {rows})));
    return total;
  }

  // The factors of the product a b, or of its negative, that change less often than the rest: as one factor.
  Maybe product(const Expr& a, const Expr& b) {
    if (level(a) >= loop_ || !is(b, Op::mul) || !may_move(a)) return std::nullopt;
    for (const int i : {0, 1})
      if (level(arg(b, i)) < loop_ && level(arg(b, 1 - i)) >= loop_ && may_move(arg(b, i)))
        return build_as_is(Op::mul, {a * arg(b, i), arg(b, 1 - i)});
    return std::nullopt;
  }

 private:
  // e = Σ d∘(A v) + rest, with every d and the rest of a lower level than the loop.
  struct Term {
    Expr v;
    Maybe d;
  };
  struct Affine {
    std::map<Id, Term> terms;  // by v
    Maybe rest;
    int budget = 64;  // nodes to look at
  };

  static void add_to(Maybe& total, const Expr& term) { total = total ? *total + term : term; }

  int level(const Expr& e) { return find_levels(graph_, level_)[id_of(e)]; }

  bool decompose(const Expr& a, const Expr& e, const Expr& factor, Affine& out) {
    if (--out.budget < 0) return false;
    if (level(e) < loop_) {
      add_to(out.rest, factor * e);
      return true;
    }
    if (is(e, Op::matmul) && same(arg(e, 0), a) && node(e).attr.i == 0 && e.shape().rank() == 1) {
      add_to(out.terms.try_emplace(id_of(arg(e, 1)), Term{arg(e, 1), {}}).first->second.d, factor);
      return true;
    }
    if (is(e, Op::add, Op::sub))
      return decompose(a, arg(e, 0), factor, out) && decompose(a, arg(e, 1), is(e, Op::add) ? factor : -factor, out);
    if (is(e, Op::neg)) return decompose(a, arg(e, 0), -factor, out);
    if (is(e, Op::mul))
      for (const int i : {0, 1})
        if (level(arg(e, i)) < loop_) return decompose(a, arg(e, 1 - i), factor * arg(e, i), out);
    return false;
  }

  Graph& graph_;
  Indexed<int> level_;  // of each node so far
  int loop_;            // its level, and that of what is run after it
};

}  // namespace

Function hoist_products(const Function& function, const Levels& levels, const Limits& limits) {
  const Graph& from = *graph_of(function);
  Indexed<int> level(levels.inputs.begin(), levels.inputs.end());
  find_levels(from, level);
  Indexed<bool> repeated(level.size());  // walks over large matrices for what only branches read
  for (Id id = 0; id < from.size(); ++id) {
    repeated[id] = level[id] >= levels.loop && is_long_walk(from, id, limits);
    for (const Id a : from.args(id)) repeated[a] = repeated[a] && level[id] >= levels.branches;
  }
  for (const Expr& e : function.outputs()) repeated[id_of(e)] = false;
  return Function({function.inputs().begin(), function.inputs().end()}, [&](std::span<const Expr> inputs) {
    Graph& graph = *graph_of(inputs.front());
    Hoister hoister(graph, levels);
    std::map<std::pair<Id, int>, Expr> copies;  // by what is copied and branch
    return graph.import(from, ids_of(function.outputs()), inputs, [&](Site s, Id id) {
      for (std::size_t k = 0; k < s.args.size(); ++k)
        if (const Id a = from.args(id)[k]; repeated[a]) {
          Expr& copy = copies[{a, level[id]}];
          if (!graph_of(copy)) copy = graph.expr(graph.repeat(id_of(s[k])));
          s.args[k] = copy;
        }
      Maybe better;
      if (s.op == Op::matmul && s.attr.i != 0 && s.shape.rank() == 1) better = hoister.transposed_product(s[0], s[1]);
      if (s.op == Op::neg) better = hoister.product(broadcast(-1.0, s.shape), s[0]);
      if (s.op == Op::mul) better = hoister.product(s[0], s[1]);
      if (s.op == Op::mul && !better) better = hoister.product(s[1], s[0]);
      return better ? *better : s.make();
    });
  });
}

}  // namespace onestep::detail
