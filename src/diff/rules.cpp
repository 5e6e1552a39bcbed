// Derivatives of single operations from the table.
#include "diff/rules.h"

#include <algorithm>

namespace onestep {
namespace {

// What a where let through, repeated and reshaped or not: zero on the side not taken, whatever it is multiplied by later.
struct Selected {
  Expr mask, value;
};
std::optional<Selected> selected(const Expr& t) {
  if (is(t, Op::where) && is_literal(arg(t, 2), 0.0)) return Selected{arg(t, 0), arg(t, 1)};
  if (!is(t, Op::broadcast, Op::reshape)) return std::nullopt;
  auto found = selected(arg(t, 0));
  if (found)
    for (Expr* e : {&found->mask, &found->value}) *e = build(node(t).op, {*e}, {}, t.shape());
  return found;
}

bool is_linear_in(const Site& site, std::size_t which) {
  const unsigned linear = info(site.op).linear;
  return linear == 255U || (which < 8 && (linear >> which & 1U) != 0);
}

}  // namespace

void accumulate(Maybe& total, const Expr& term) {
  const auto a = total ? selected(*total) : std::nullopt, b = selected(term);
  if (a && b && same(a->mask, b->mask))
    total = where(a->mask, a->value + b->value, 0.0);
  else
    total = total ? *total + term : term;
}

std::vector<Expr> or_zeros(Tangents tangents, const Site& site) {
  std::vector<Expr> all;
  for (std::size_t i = 0; i < site.args.size(); ++i) all.push_back(or_zero(tangents[i], site[i].shape()));
  return all;
}

Expr chain(const Expr& derivative, const Expr& t) {
  // Rewriting does a comparison before it is repeated or reshaped.
  if (derivative.graph() && is_comparison(origin(derivative).op)) return where(derivative, t, 0.0);
  // The selection stays outside, so that an infinite derivative on the side not taken does not meet its zero.
  if (const auto s = selected(t)) return where(s->mask, derivative * s->value, 0.0);
  return derivative * t;
}

Maybe forward(const Expr& y, const Site& site, Tangents tangents) {
  // Joined pieces move together.
  if (site.op == Op::concat) return build(Op::concat, or_zeros(tangents, site), site.attr);
  Maybe total;
  bool special = false;
  for (std::size_t i = 0; i < site.args.size(); ++i) {
    if (!tangents[i]) continue;
    if (is_elementwise(site.op)) {
      if (const Maybe d = info(site.op).derivative(site, y, i)) accumulate(total, chain(*d, *tangents[i]));
    } else if (is_linear_in(site, i) && !(site.op == Op::solve && tangents[0])) {
      std::vector<Expr> moved = site.args;
      moved[i] = *tangents[i];
      accumulate(total, build(site.op, moved, site.attr, site.shape));
    } else {
      special = true;
    }
  }
  if (special)
    if (const Maybe rest = special_forward(y, site, tangents)) accumulate(total, *rest);
  return total;
}

Maybe backward(const Expr& y, const Site& site, std::size_t which, const Expr& cotangent) {
  if (is_linear_in(site, which)) return info(site.op).transposed(site, which, cotangent);
  if (!is_elementwise(site.op)) return special_backward(y, site, which, cotangent);
  const Maybe d = info(site.op).derivative(site, y, which);
  return d ? Maybe(chain(*d, cotangent)) : std::nullopt;
}

void sweep(Graph& graph, const Indexed<bool>& active, Indexed<Maybe>& tangents,
           const std::function<Maybe(const Expr&, const Site&, Tangents)>& rule) {
  std::vector<Maybe> of_args;
  for (Id id = 0; id < static_cast<Id>(active.size()); ++id) {
    if (!active[id] || tangents[id]) continue;
    of_args.clear();
    for (const Id a : graph.args(id)) of_args.push_back(tangents[a]);
    const Expr y = graph.expr(id);
    if (std::ranges::any_of(of_args, [](const Maybe& t) { return t.has_value(); }))
      tangents[id] = rule(y, site_of(y), of_args);
  }
}

}  // namespace onestep
