// Derivatives of single operations from the table.
#include "diff/rules.h"

namespace onestep {

namespace {
// What a where let through: zero on the side not taken, whatever it is multiplied by later.
bool is_selected(const Expr& t) { return t.graph() && is(t, Op::where) && is_literal(arg(t, 2), 0.0); }
}  // namespace

void accumulate(std::optional<Expr>& total, const Expr& term) {
  if (total && is_selected(*total) && is_selected(term) && same(arg(*total, 0), arg(term, 0)))
    total = where(arg(term, 0), arg(*total, 1) + arg(term, 1), 0.0);
  else
    total = total ? *total + term : term;
}

bool is_selection(const Expr& derivative) {
  if (!derivative.graph()) return false;
  // Rewriting does the comparison before it is repeated or reshaped.
  Expr e = derivative;
  while (is(e, Op::broadcast) || is(e, Op::reshape)) e = arg(e, 0);
  return is_comparison(node(e).op);
}

Expr chain(const Expr& derivative, const Expr& t) {
  if (is_selection(derivative)) return where(derivative, t, 0.0);
  // The selection stays outside, so that an infinite derivative on the side not taken does not meet its zero.
  if (is_selected(t)) return where(arg(t, 0), derivative * arg(t, 1), 0.0);
  return derivative * t;
}

namespace {
bool is_linear_in(const Site& site, std::size_t which) {
  const unsigned linear = info(site.op).linear;
  return linear == 255U || (which < 8 && (linear >> which & 1U) != 0);
}
}  // namespace

std::optional<Expr> forward(const Expr& y, const Site& site, std::span<const std::optional<Expr>> tangents) {
  const OpInfo& op = info(site.op);
  // Joined pieces move together: absent ones are zero.
  if (site.op == Op::concat) {
    std::vector<Expr> parts;
    for (std::size_t i = 0; i < site.args.size(); ++i)
      parts.push_back(tangents[i] ? *tangents[i] : broadcast(0.0, site[i].shape()));
    return build(Op::concat, parts, site.attr);
  }
  std::optional<Expr> total;
  bool special = false;
  for (std::size_t i = 0; i < site.args.size(); ++i) {
    if (!tangents[i]) continue;
    if (op.elementwise) {
      if (const auto d = op.derivative(site, y, static_cast<int>(i))) accumulate(total, chain(*d, *tangents[i]));
    } else if (is_linear_in(site, i) && !(site.op == Op::solve && tangents[0])) {
      std::vector<Expr> moved = site.args;
      moved[i] = *tangents[i];
      accumulate(total, build(site.op, moved, site.attr, site.shape));
    } else {
      special = true;
    }
  }
  if (special)
    if (const auto rest = special_forward(y, site, tangents)) accumulate(total, *rest);
  return total;
}

void backward(const Expr& y, const Site& site, const Expr& cotangent, const std::vector<bool>& wanted,
              std::span<std::optional<Expr>> cotangents) {
  const OpInfo& op = info(site.op);
  for (std::size_t i = 0; i < site.args.size(); ++i) {
    if (!wanted[i]) continue;
    std::optional<Expr> term;
    if (op.elementwise) {
      if (const auto d = op.derivative(site, y, static_cast<int>(i))) term = chain(*d, cotangent);
    } else if (is_linear_in(site, i)) {
      term = op.transpose(site, static_cast<int>(i), cotangent);
    } else {
      term = special_backward(y, site, static_cast<int>(i), cotangent);
    }
    if (term) accumulate(cotangents[i], *term);
  }
}

}  // namespace onestep
