// The reference for everything else: a traced function run by plain loops straight over its nodes, one dense row-major
// vector of doubles each. Nothing is fused, blocked or kept. Sums, products and factorisations accumulate in long double, so
// that a disagreement is the other side's rounding.
#pragma once

#include <span>
#include <vector>

#include "onestep/function.h"

namespace onestep::naive {

/// The results of `f` for these inputs (any strides). Throws MisuseError when their number or a shape does not fit. A matrix
/// that cannot be factored gives NaN wherever it is used and sets `*failed`, which is cleared otherwise.
std::vector<Array> interpret(const Function& f, std::span<const Array> inputs, bool* failed = nullptr);

}  // namespace onestep::naive
