// Tangents and cotangents: checked for being finite, and brought to a size of which squares neither overflow nor underflow.
// Derivatives are linear in their direction, so that a power of two is taken out of it and put back into the result.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "onestep/array.h"
#include "solve/map.h"

namespace onestep::detail {

/// Throws MisuseError, naming `who`, the entry and `what` it is one of, where an entry is NaN or infinite.
void check_finite(const char* who, const std::string& what, ConstVector entries);
void check_finite(const char* who, const std::string& what, const Array& entries);

/// The exponent of the power of two to take out of a direction; 0 where squares of its largest entry are in range.
int exponent_of(ConstVector direction);
int exponent_of(std::span<const Array> direction);

/// v ← 2^exponent v.
void multiply(Vector v, int exponent);
std::vector<Array> multiplied(std::span<const Array> arrays, int exponent);

}  // namespace onestep::detail
