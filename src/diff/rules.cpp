// Derivatives of single operations, from the table where it has them.
#include "diff/rules.h"

#include <algorithm>

#include "graph/fail.h"

namespace onestep {
namespace {

// What a where let through, also when repeated, reshaped or summed since: zero on the side not taken, whatever it is
// multiplied by later.
struct Selected {
  Expr mask, value;
};
std::optional<Selected> selected(const Expr& t) {
  if (is(t, Op::where) && is_literal(arg(t, 2), 0.0)) return Selected{arg(t, 0), arg(t, 1)};
  if (!is(t, Op::broadcast, Op::reshape, Op::sum)) return std::nullopt;
  auto found = selected(arg(t, 0));
  if (found && is(t, Op::sum)) return Selected{build(Op::max, {not_equal(found->mask, 0.0)}, node(t).attr), t};
  if (found)
    for (Expr* e : {&found->mask, &found->value}) *e = build(node(t).op, {*e}, {}, t.shape());
  return found;
}

bool is_linear_in(const Site& site, std::size_t which) {
  const unsigned linear = info(site.op).linear;
  return linear == linear_in::every || (which < 8 && (linear >> which & 1U) != 0);
}

// Along the axis of a reduction: repeated to its argument's shape, and summed.
Expr along(const Site& s, const Expr& e) { return s.attr.i == 1 ? by_row(e, s[0].shape()) : broadcast(e, s[0].shape()); }
Expr reduce(const Site& s, const Expr& e) { return build(Op::sum, {e}, s.attr); }

// max along an axis: the entries that attain it share the derivative. 1 where they do, and one over how many there are.
struct Ties {
  Expr mask, weight;
  Ties(const Expr& y, const Site& s) : mask(equal(s[0], along(s, y))), weight(1.0 / reduce(s, mask)) {}
};

// x / |x|, the derivative of a norm; zero at zero, to all orders.
Expr unit_vector(const Expr& y, const Site& s) {
  const Expr at_zero = equal(y, 0.0), length = where(at_zero, 1.0, y);
  return where(along(s, at_zero), 0.0, s[0] / along(s, length));
}

Expr solve_like(const Site& s, const Expr& b, bool transposed) { return build(Op::solve, {s[0], b}, {.i = transposed}); }
Expr inverse_transposed(const Expr& factor) { return transpose(build(Op::solve, {factor, eye(factor.shape()[0])})); }

// A derivative of a foreign function: 1 the jvp, 2 + i the vjp for argument i.
Expr derivative_call(const Site& s, std::vector<Expr> extra, std::int64_t kind, const Shape& shape) {
  const Foreign& f = *graph_of(s[0])->foreign(s.attr.i);
  if (s.attr.j != 0)
    fail("call",
         "the derivative of {} cannot be differentiated again. A foreign function can be traced instead; of a solve, "
         "newton, newton_root and quadratic_program have second derivatives, and fixed_point with KStep, where K steps "
         "leave out little",
         f.name());
  if (kind == 1 ? !f.has_jvp() : !f.has_vjp())
    fail("call", "{0} has no {1}; override {1} and has_{1}, or differentiate {2}", f.name(), kind == 1 ? "jvp" : "vjp",
         kind == 1 ? "in reverse" : "forward");
  extra.insert(extra.begin(), s.args.begin(), s.args.end());
  return build(Op::call, extra, {.i = s.attr.i, .j = kind}, shape);
}

// The operations with an argument they are not linear in: the tangent of the result, and the cotangent of that argument. One
// that is forgotten does not compile: the table below asks for it.
template <Op> struct OwnRule;

template <> struct OwnRule<Op::gram> {
  static Maybe forward(const Expr&, const Site& s, Tangents t) {  // ȦᵀDA + AᵀDȦ
    const Expr half = matmul(transpose(*t[0]), by_row(s[1], s[0].shape()) * s[0]);
    // The transpose of a product would be rewritten to a second product.
    return half + (is(half, Op::matmul) ? build_as_is(Op::transpose, {half}) : transpose(half));
  }
  static Maybe backward(const Expr&, const Site& s, std::size_t, const Expr& c) {
    return by_row(s[1], s[0].shape()) * matmul(s[0], c + transpose(c));
  }
};

template <> struct OwnRule<Op::max> {
  static Maybe forward(const Expr& y, const Site& s, Tangents t) {
    if (s[0].shape().size() == 0) return std::nullopt;  // minus infinity, which does not move
    const Ties ties(y, s);
    return ties.weight * reduce(s, where(ties.mask, *t[0], 0.0));
  }
  static Maybe backward(const Expr& y, const Site& s, std::size_t, const Expr& c) {
    const Ties ties(y, s);
    return along(s, ties.weight) * where(ties.mask, along(s, c), 0.0);  // a NaN has no ties: its weight is infinite
  }
};

template <> struct OwnRule<Op::norm> {
  static Maybe forward(const Expr& y, const Site& s, Tangents t) { return reduce(s, unit_vector(y, s) * *t[0]); }
  static Maybe backward(const Expr& y, const Site& s, std::size_t, const Expr& c) { return unit_vector(y, s) * along(s, c); }
};

template <> struct OwnRule<Op::solve> {
  static Maybe forward(const Expr& y, const Site& s, Tangents t) {  // ẋ = M⁻¹(ḃ - Ṁ x): one solve for both
    const Expr moved = matmul(s.attr.i != 0 ? transpose(*t[0]) : *t[0], y);
    return solve_like(s, t[1] ? *t[1] - moved : -moved, s.attr.i != 0);
  }
  // M̄ = -w xᵀ with Mᵀ w = x̄, kept as an outer product
  static Maybe backward(const Expr& y, const Site& s, std::size_t, const Expr& c) {
    const bool transposed = s.attr.i != 0;
    const Expr w = solve_like(s, c, !transposed), left = transposed ? y : w, right = transposed ? w : y;
    return -(y.shape().rank() == 1 ? outer(left, right) : matmul(left, transpose(right)));
  }
};

template <> struct OwnRule<Op::logdet> {
  static Maybe forward(const Expr&, const Site& s, Tangents t) { return sum(inverse_transposed(s[0]) * *t[0]); }
  static Maybe backward(const Expr&, const Site& s, std::size_t, const Expr& c) { return c * inverse_transposed(s[0]); }
};
template <> struct OwnRule<Op::det> {
  static Maybe forward(const Expr& y, const Site& s, Tangents t) {
    return y * sum(inverse_transposed(node_of(lu(s[0]))) * *t[0]);
  }
  static Maybe backward(const Expr& y, const Site& s, std::size_t, const Expr& c) {
    return c * y * inverse_transposed(node_of(lu(s[0])));
  }
};

template <> struct OwnRule<Op::call> {
  static Maybe forward(const Expr& y, const Site& s, Tangents t) { return derivative_call(s, or_zeros(t, s), 1, y.shape()); }
  static Maybe backward(const Expr&, const Site& s, std::size_t which, const Expr& c) {
    return derivative_call(s, {c}, 2 + static_cast<std::int64_t>(which), s[which].shape());
  }
};

struct OfItsMatrix {  // what a factor's tangent and cotangent are
  static Maybe forward(const Expr&, const Site&, Tangents t) { return t[0]; }
  static Maybe backward(const Expr&, const Site&, std::size_t, const Expr& c) { return c; }
};
template <> struct OwnRule<Op::cholesky> : OfItsMatrix {};
template <> struct OwnRule<Op::lu> : OfItsMatrix {};
template <> struct OwnRule<Op::ldlt> : OfItsMatrix {};

struct OwnRules {
  Maybe (*forward)(const Expr&, const Site&, Tangents) = nullptr;
  Maybe (*backward)(const Expr&, const Site&, std::size_t, const Expr&) = nullptr;
};
template <Op op, unsigned linear> constexpr OwnRules own_rules() {
  if constexpr (linear == linear_in::none || linear == linear_in::second)
    return {OwnRule<op>::forward, OwnRule<op>::backward};
  else
    return {};  // linear in all that moves
}
constexpr OwnRules own_rules_of_all[] = {
#define ONESTEP_UNARY(name, ...) OwnRules{},
#define ONESTEP_BINARY ONESTEP_UNARY
#define ONESTEP_TERNARY ONESTEP_UNARY
#define ONESTEP_STRUCTURAL(name, kink, linear, ...) own_rules<Op::name, linear_in::linear>(),
#include "onestep/operations.def"
};
const OwnRules& own_rule(Op op) { return own_rules_of_all[static_cast<std::size_t>(op)]; }

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
  if (graph_of(derivative) && is_comparison(origin(derivative).op)) return where(derivative, t, 0.0);
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
    if (const Maybe rest = own_rule(site.op).forward(y, site, tangents)) accumulate(total, *rest);
  return total;
}

Maybe backward(const Expr& y, const Site& site, std::size_t which, const Expr& cotangent) {
  if (is_linear_in(site, which)) return info(site.op).transposed(site, which, cotangent);
  if (!is_elementwise(site.op)) return own_rule(site.op).backward(y, site, which, cotangent);
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
