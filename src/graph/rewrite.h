// Structure-keeping rewriting, at construction: local rules that lower the number of flops or nodes whatever loop is around
// them.
#pragma once

#include <optional>

#include "graph/rules.h"

namespace onestep {

/// A simpler expression for the same value, if a rule applies.
std::optional<Expr> rewrite(const Site& site, const Shape& result);

}  // namespace onestep
