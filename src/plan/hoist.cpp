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

  // The graph begins with its inputs; other nodes change as often as their arguments.
  int level(const Expr& e) {
    for (Id id = static_cast<Id>(level_.size()); id < graph_.size(); ++id) {
      level_.push_back(-1);
      for (const Id a : graph_.args(id)) level_[id] = std::max(level_[id], level_[a]);
    }
    return level_[e.id()];
  }

  bool decompose(const Expr& a, const Expr& e, const Expr& factor, Affine& out) {
    if (--out.budget < 0) return false;
    if (level(e) < loop_) {
      add_to(out.rest, factor * e);
      return true;
    }
    if (is(e, Op::matmul) && same(arg(e, 0), a) && node(e).attr.i == 0 && e.shape().rank() == 1) {
      add_to(out.terms.try_emplace(arg(e, 1).id(), Term{arg(e, 1), {}}).first->second.d, factor);
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

Function hoist_products(const Function& function, const Levels& levels) {
  return Function({function.inputs().begin(), function.inputs().end()}, [&](std::span<const Expr> inputs) {
    Graph& graph = *inputs.front().graph();
    Hoister hoister(graph, levels);
    return graph.import(*function.graph(), ids_of(function.outputs()), inputs, [&](const Site& s) {
      const bool candidate = s.op == Op::matmul && s.attr.i != 0 && s.shape.rank() == 1;
      const Maybe better = candidate ? hoister.transposed_product(s[0], s[1]) : std::nullopt;
      return better ? *better : s.make();
    });
  });
}

}  // namespace onestep::detail
