// The rewriting that pays only in a loop: Aᵀ(d∘(Ax) + c) becomes (AᵀDA)x + Aᵀc where A, d and c change less often than x. An
// iteration then costs n² instead of 2Nn, after Nn²/2 each time d changes.
#include <algorithm>
#include <map>

#include "graph/rules.h"
#include "plan/program.h"

namespace onestep::detail {
namespace {

class Hoister {
 public:
  Hoister(Graph& graph, std::vector<int> level, int loop) : graph_(graph), level_(std::move(level)), loop_(loop) {}

  // Aᵀe as products with n x n matrices kept between runs, if e is affine in products with A.
  std::optional<Expr> transposed_product(const Expr& a, const Expr& e) {
    const std::int64_t rows = a.shape()[0], n = a.shape()[1];
    if (8 * n > rows || level(a) >= loop_ || level(e) < loop_) return std::nullopt;
    Affine affine;
    int budget = 64;
    if (!decompose(a, e, 1.0, affine, budget) || affine.terms.empty()) return std::nullopt;
    std::optional<Expr> total;
    const auto accumulate = [&](const Expr& term) { total = total ? *total + term : term; };
    for (const auto& [id, term] : affine.terms)
      accumulate(build_as_is(Op::matmul, {gram(a, broadcast(term.d, {rows})), term.v}));
    if (affine.rest) accumulate(matmul(transpose(a), broadcast(*affine.rest, {rows})));
    return total;
  }

 private:
  // e = Σ d∘(A v) + rest, with every d and the rest of a lower level than the loop.
  struct Term {
    Expr v, d;
  };
  struct Affine {
    std::map<Id, Term> terms;  // by v
    std::optional<Expr> rest;
  };

  int level(const Expr& e) {
    // Nodes made on the way change as often as their arguments.
    for (Id id = static_cast<Id>(level_.size()); id < graph_.size(); ++id) {
      int l = -1;
      for (const Id a : graph_.args(id)) l = std::max(l, level_[static_cast<std::size_t>(a)]);
      level_.push_back(l);
    }
    return level_[static_cast<std::size_t>(e.id())];
  }

  bool decompose(const Expr& a, const Expr& e, const Expr& factor, Affine& out, int& budget) {
    if (--budget < 0) return false;
    if (level(e) < loop_) {
      const Expr term = factor * e;
      out.rest = out.rest ? *out.rest + term : term;
      return true;
    }
    const Op op = node(e).op;
    if (op == Op::matmul && same(arg(e, 0), a) && node(e).attr.i == 0 && e.shape().rank() == 1) {
      const auto [at, is_new] = out.terms.try_emplace(arg(e, 1).id(), Term{arg(e, 1), factor});
      if (!is_new) at->second.d = at->second.d + factor;
      return true;
    }
    if (op == Op::add || op == Op::sub)
      return decompose(a, arg(e, 0), factor, out, budget) &&
             decompose(a, arg(e, 1), op == Op::add ? factor : -factor, out, budget);
    if (op == Op::neg) return decompose(a, arg(e, 0), -factor, out, budget);
    if (op == Op::mul)
      for (const int i : {0, 1})
        if (level(arg(e, i)) < loop_) return decompose(a, arg(e, 1 - i), factor * arg(e, i), out, budget);
    return false;
  }

  Graph& graph_;
  std::vector<int> level_;
  int loop_;  // the level of the loop, and of what is run after it
};

}  // namespace

Function hoist_products(const Function& function, const std::vector<int>& levels, int loop) {
  if (levels.empty()) return function;
  const Graph& source = *function.graph();
  return Function({function.inputs().begin(), function.inputs().end()}, [&](std::span<const Expr> inputs) {
    // A copy of the graph, node by node, in which matching products are replaced.
    std::vector<Id> results;
    for (const Expr& e : function.outputs()) results.push_back(e.id());
    const std::vector<bool> needed = source.reachable(results);
    Graph& graph = *inputs.front().graph();
    std::vector<int> known(static_cast<std::size_t>(graph.size()), -1);
    for (std::size_t i = 0; i < inputs.size(); ++i) known[static_cast<std::size_t>(inputs[i].id())] = levels[i];
    Hoister hoister(graph, std::move(known), loop);
    std::vector<Expr> image(static_cast<std::size_t>(source.size()));
    for (Id id = 0; id < source.size(); ++id) {
      if (!needed[static_cast<std::size_t>(id)]) continue;
      const Node& n = source.node(id);
      Expr& to = image[static_cast<std::size_t>(id)];
      std::vector<Id> args;
      for (const Id a : source.args(id)) args.push_back(image[static_cast<std::size_t>(a)].id());
      if (n.op == Op::input)
        to = inputs[static_cast<std::size_t>(n.attr.i)];
      else if (n.op == Op::constant)
        to = graph.expr(graph.add_constant(source.constant(n.attr.i)));
      else if (n.op == Op::matmul && n.attr.i != 0 && n.shape.rank() == 1) {
        const auto better = hoister.transposed_product(graph.expr(args[0]), graph.expr(args[1]));
        to = better ? *better : graph.expr(graph.make(n.op, args, n.attr, n.shape));
      } else {
        Attr attr = n.attr;
        if (n.op == Op::call) attr.i = graph.add_foreign(source.foreign(n.attr.i));
        to = graph.expr(graph.make(n.op, args, attr, n.shape));
      }
    }
    std::vector<Expr> outputs;
    for (const Id id : results) outputs.push_back(image[static_cast<std::size_t>(id)]);
    return outputs;
  });
}

}  // namespace onestep::detail
