// Derivatives of single operations, in the two directions, made from the table: elementwise rows give f′, linear rows their
// transpose.
#pragma once

#include <functional>

#include "graph/rules.h"

namespace onestep {

/// Of the arguments of a node; none where zero.
using Tangents = std::span<const Maybe>;

/// Σ of what is there.
void accumulate(Maybe& total, const Expr& term);
inline Expr or_zero(const Maybe& e, const Shape& shape) { return e ? *e : broadcast(0.0, shape); }
/// The tangents of all arguments.
std::vector<Expr> or_zeros(Tangents tangents, const Site& site);

/// f′ · t, where a derivative that is a comparison selects instead of multiplying.
Expr chain(const Expr& derivative, const Expr& t);

/// The tangent of the node `y` from those of its arguments. A factor's tangent is its matrix's.
Maybe forward(const Expr& y, const Site& site, Tangents tangents);
/// The cotangent of argument `which` from that of `y`.
Maybe backward(const Expr& y, const Site& site, std::size_t which, const Expr& cotangent);

/// Tangents of all nodes that are `active`, by `rule` (forward, or one for many directions at once), from those given.
void sweep(Graph& graph, const Indexed<bool>& active, Indexed<Maybe>& tangents,
           const std::function<Maybe(const Expr&, const Site&, Tangents)>& rule);

}  // namespace onestep
