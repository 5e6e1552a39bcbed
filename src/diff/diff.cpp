// jvp is one loop forward over the graph, vjp one loop backward; gradient and Hessian products are made of them.
#include "onestep/diff.h"

#include <algorithm>

#include "diff/rules.h"
#include "graph/fail.h"

namespace onestep {
namespace {

using Exprs = std::span<const Expr>;

// All expressions of a call in one graph, with what has to be visited: the nodes on the way from an x to a y.
struct Scene {
  std::vector<Expr> ys, xs, vs;
  std::shared_ptr<Graph> graph;
  Indexed<bool> active;
};

// An x that is not an argument may have been removed from y by rewriting: 3 (2a) is 6a, which has no derivative by 2a. Where
// y depends on what x was made from, but not on x, a zero would be that of the rewriting.
void check_sources(const char* operation, const Scene& scene) {
  for (const Expr& x : scene.xs) {
    if (scene.active[id_of(x)] || is(x, Op::input)) continue;
    const Id id = id_of(x);
    std::vector<Id> arguments;
    for (const Id of_x : scene.graph->needed({&id, 1}))
      if (scene.graph->node(of_x).op == Op::input) arguments.push_back(of_x);
    const Indexed<bool> used = scene.graph->reachable(ids_of(scene.ys));
    if (std::ranges::any_of(arguments, [&](Id argument) { return used[argument]; }))
      fail(operation,
           "the result is not made from the expression it is to be differentiated by, or was simplified so that it is not; "
           "differentiate by an argument of a traced function");
  }
}

Scene prepare(const char* operation, Exprs ys, Exprs xs, Exprs vs, bool forwards) {
  const Exprs like = forwards ? xs : ys;
  const char *value = forwards ? "argument" : "result", *direction = forwards ? "tangent" : "cotangent";
  if (like.size() != vs.size()) fail(operation, "{} {}s but {} {}s", like.size(), value, vs.size(), direction);
  for (std::size_t i = 0; i < vs.size(); ++i)
    if (vs[i].shape() != like[i].shape())
      fail(operation, "{} {} has shape {}, its {} has {}", direction, i, vs[i].shape(), value, like[i].shape());
  std::vector<Expr> all;
  for (const Exprs part : {ys, xs, vs}) all.insert(all.end(), part.begin(), part.end());
  all = unify(operation, all);
  const auto x = all.begin() + std::ssize(ys), v = x + std::ssize(xs);
  Scene scene{{all.begin(), x}, {x, v}, {v, all.end()}, all.empty() ? std::make_shared<Graph>() : graph_of(all[0]), {}};
  scene.active = scene.graph->between(ids_of(scene.xs), ids_of(scene.ys));
  check_sources(operation, scene);
  return scene;
}

std::vector<Expr> read(const Indexed<Maybe>& found, Exprs of) {
  std::vector<Expr> result;
  for (const Expr& e : of) result.push_back(or_zero(found[id_of(e)], e.shape()));
  return result;
}

// The operation the user called is named in errors.
std::vector<Expr> push_forward(const char* operation, Exprs ys, Exprs xs, Exprs vs) {
  const Scene scene = prepare(operation, ys, xs, vs, true);
  Indexed<Maybe> tangent(scene.active.size());
  for (std::size_t i = 0; i < xs.size(); ++i) accumulate(tangent[id_of(scene.xs[i])], scene.vs[i]);
  sweep(*scene.graph, scene.active, tangent, forward);
  return read(tangent, scene.ys);
}

std::vector<Expr> pull_back(const char* operation, Exprs ys, Exprs xs, Exprs cs) {
  const Scene scene = prepare(operation, ys, xs, cs, false);
  Indexed<Maybe> cotangent(scene.active.size());
  Indexed<bool> is_source(scene.active.size());
  for (const Expr& x : scene.xs) is_source[id_of(x)] = true;
  for (std::size_t i = 0; i < ys.size(); ++i) accumulate(cotangent[id_of(scene.ys[i])], scene.vs[i]);
  for (Id id = static_cast<Id>(scene.active.size()) - 1; id >= 0; --id) {
    if (!scene.active[id] || !cotangent[id] || is_source[id]) continue;
    const Expr y = scene.graph->expr(id);
    const Site site = site_of(y);
    for (std::size_t i = 0; i < site.args.size(); ++i)
      if (const Id a = id_of(site[i]); scene.active[a])
        if (const Maybe term = backward(y, site, i, *cotangent[id])) accumulate(cotangent[a], *term);
  }
  return read(cotangent, scene.xs);
}

std::vector<Expr> gradient(const char* operation, const Expr& y, Exprs xs) {
  if (y.shape().rank() != 0)
    fail(operation, "the result has shape {}, not a number; use jacobian, or {} of its sum", y.shape(), operation);
  const Expr one = 1.0;
  return pull_back(operation, {&y, 1}, xs, {&one, 1});
}

}  // namespace

std::vector<Expr> jvp(Exprs ys, Exprs xs, Exprs vs) { return push_forward("jvp", ys, xs, vs); }
std::vector<Expr> vjp(Exprs ys, Exprs xs, Exprs cs) { return pull_back("vjp", ys, xs, cs); }
std::vector<Expr> grad(const Expr& y, Exprs xs) { return gradient("grad", y, xs); }
Expr jvp(const Expr& y, const Expr& x, const Expr& v) { return jvp({&y, 1}, {&x, 1}, {&v, 1}).front(); }
Expr vjp(const Expr& y, const Expr& x, const Expr& c) { return vjp({&y, 1}, {&x, 1}, {&c, 1}).front(); }
Expr grad(const Expr& y, const Expr& x) { return grad(y, {&x, 1}).front(); }
Expr hessian(const Expr& y, const Expr& x) { return jacobian(gradient("hessian", y, {&x, 1}).front(), x); }
Expr hvp(const Expr& y, const Expr& x, const Expr& v) {
  const Expr g = gradient("hvp", y, {&x, 1}).front();
  return push_forward("hvp", {&g, 1}, {&x, 1}, {&v, 1}).front();
}

}  // namespace onestep
