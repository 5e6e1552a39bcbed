// Derivatives of single operations, in the two directions, made from the table: elementwise rows give f′, linear rows their
// transpose, and the few that are neither are in special.cpp.
#pragma once

#include <optional>
#include <span>

#include "graph/rules.h"

namespace onestep {

/// Σ of what is there.
void accumulate(std::optional<Expr>& total, const Expr& term);

/// Whether a derivative is a comparison: 1 on the side taken and 0 on the other.
bool is_selection(const Expr& derivative);

/// f′ · t, where a derivative that is a comparison selects instead of multiplying.
Expr chain(const Expr& derivative, const Expr& t);

/// The tangent of the node `y` from those of its arguments (absent: zero). A factor's tangent is its matrix's.
std::optional<Expr> forward(const Expr& y, const Site& site, std::span<const std::optional<Expr>> tangents);

/// Adds to the cotangents of the arguments for which `wanted`, from that of `y`.
void backward(const Expr& y, const Site& site, const Expr& cotangent, const std::vector<bool>& wanted,
              std::span<std::optional<Expr>> cotangents);

// Operations that are neither elementwise nor linear: gram in its matrix, max, factors, solve in its factor, logdet, call.
std::optional<Expr> special_forward(const Expr& y, const Site& site, std::span<const std::optional<Expr>> tangents);
std::optional<Expr> special_backward(const Expr& y, const Site& site, int which, const Expr& cotangent);

}  // namespace onestep
