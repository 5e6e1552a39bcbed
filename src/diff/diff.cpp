// jvp is one loop forward over the graph, vjp one loop backward; gradient and Hessian products are made of them.
#include "onestep/diff.h"

#include <fmt/format.h>

#include <algorithm>

#include "diff/rules.h"

namespace onestep {
namespace {

// All expressions of a call in one graph, with what has to be visited.
struct Scene {
  std::vector<Expr> ys, xs, vs;
  std::shared_ptr<Graph> graph;
  std::vector<bool> active;  // on the way from an x to a y
  Id last = 0;
};

Scene prepare(const char* operation, std::span<const Expr> ys, std::span<const Expr> xs, std::span<const Expr> vs,
              bool forward) {
  const std::span<const Expr> like = forward ? xs : ys;
  if (like.size() != vs.size())
    throw Error(fmt::format("[{}] {} {} but {} {}", operation, like.size(), forward ? "arguments" : "results", vs.size(),
                            forward ? "tangents" : "cotangents"));
  for (std::size_t i = 0; i < vs.size(); ++i)
    if (vs[i].shape() != like[i].shape())
      throw Error(fmt::format("[{}] {} {} has shape {}, its {} has {}", operation, forward ? "tangent" : "cotangent", i,
                              to_string(vs[i].shape()), forward ? "argument" : "result", to_string(like[i].shape())));
  std::vector<Expr> all(ys.begin(), ys.end());
  all.insert(all.end(), xs.begin(), xs.end());
  all.insert(all.end(), vs.begin(), vs.end());
  all = unify(operation, all);
  Scene scene;
  const auto at = [&](std::size_t from, std::size_t n) {
    return std::vector<Expr>(all.begin() + static_cast<std::ptrdiff_t>(from),
                             all.begin() + static_cast<std::ptrdiff_t>(from + n));
  };
  scene.ys = at(0, ys.size());
  scene.xs = at(ys.size(), xs.size());
  scene.vs = at(ys.size() + xs.size(), vs.size());
  if (all.empty()) return scene;
  scene.graph = all.front().graph();
  std::vector<Id> from, to;
  for (const Expr& e : scene.xs) from.push_back(e.id());
  for (const Expr& e : scene.ys) to.push_back(e.id());
  scene.last = to.empty() ? 0 : *std::ranges::max_element(to);
  scene.active = scene.graph->dependents(from, scene.last);
  const std::vector<bool> needed = scene.graph->reachable(to);
  for (std::size_t i = 0; i < needed.size(); ++i) scene.active[i] = scene.active[i] && needed[i];
  return scene;
}

std::size_t at(Id id) { return static_cast<std::size_t>(id); }

}  // namespace

std::vector<Expr> jvp(std::span<const Expr> ys, std::span<const Expr> xs, std::span<const Expr> vs) {
  const Scene scene = prepare("jvp", ys, xs, vs, true);
  std::vector<std::optional<Expr>> tangent(scene.active.size());
  std::vector<bool> is_source(scene.active.size());
  for (std::size_t i = 0; i < scene.xs.size(); ++i) {
    accumulate(tangent[at(scene.xs[i].id())], scene.vs[i]);
    is_source[at(scene.xs[i].id())] = true;
  }
  std::vector<std::optional<Expr>> of_args;
  for (Id id = 0; id <= scene.last && !scene.ys.empty(); ++id) {
    if (!scene.active[at(id)] || is_source[at(id)]) continue;
    of_args.clear();
    bool moves = false;
    for (const Id a : scene.graph->args(id)) {
      of_args.push_back(tangent[at(a)]);
      moves = moves || tangent[at(a)];
    }
    const Expr y = scene.graph->expr(id);
    if (moves) tangent[at(id)] = forward(y, site_of(y), of_args);
  }
  std::vector<Expr> result;
  for (const Expr& y : scene.ys) result.push_back(tangent[at(y.id())] ? *tangent[at(y.id())] : broadcast(0.0, y.shape()));
  return result;
}

std::vector<Expr> vjp(std::span<const Expr> ys, std::span<const Expr> xs, std::span<const Expr> cs) {
  const Scene scene = prepare("vjp", ys, xs, cs, false);
  std::vector<std::optional<Expr>> cotangent(scene.active.size());
  std::vector<bool> is_source(scene.active.size());
  for (const Expr& x : scene.xs) is_source[at(x.id())] = true;
  for (std::size_t i = 0; i < scene.ys.size(); ++i) accumulate(cotangent[at(scene.ys[i].id())], scene.vs[i]);
  std::vector<std::optional<Expr>> of_args;
  std::vector<bool> wanted;
  for (Id id = scene.last; id >= 0 && !scene.ys.empty(); --id) {
    if (!scene.active[at(id)] || !cotangent[at(id)] || is_source[at(id)]) continue;
    const Expr y = scene.graph->expr(id);
    const Site site = site_of(y);
    of_args.assign(site.args.size(), std::nullopt);
    wanted.clear();
    for (const Expr& a : site.args) wanted.push_back(scene.active[at(a.id())]);
    backward(y, site, *cotangent[at(id)], wanted, of_args);
    for (std::size_t i = 0; i < of_args.size(); ++i)
      if (of_args[i]) accumulate(cotangent[at(site[i].id())], *of_args[i]);
  }
  std::vector<Expr> result;
  for (const Expr& x : scene.xs)
    result.push_back(cotangent[at(x.id())] ? *cotangent[at(x.id())] : broadcast(0.0, x.shape()));
  return result;
}

Expr jvp(const Expr& y, const Expr& x, const Expr& v) { return jvp({&y, 1}, {&x, 1}, {&v, 1}).front(); }
Expr vjp(const Expr& y, const Expr& x, const Expr& c) { return vjp({&y, 1}, {&x, 1}, {&c, 1}).front(); }

std::vector<Expr> grad(const Expr& y, std::span<const Expr> xs) {
  if (y.shape().rank() != 0)
    throw Error(
        fmt::format("[grad] the result has shape {}, not a number; use jacobian, or grad of its sum", to_string(y.shape())));
  const Expr one = 1.0;
  return vjp({&y, 1}, xs, {&one, 1});
}
Expr grad(const Expr& y, const Expr& x) { return grad(y, {&x, 1}).front(); }

Expr hvp(const Expr& y, const Expr& x, const Expr& v) { return jvp(grad(y, x), x, v); }
Expr hessian(const Expr& y, const Expr& x) { return jacobian(grad(y, x), x); }

}  // namespace onestep
