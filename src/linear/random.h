// Numbers that belong to nothing in particular, the same in every run: no probability is claimed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "linear/vector.h"

namespace onestep::detail {

/// 1 or -1. Others for other seeds.
double random_sign(std::size_t i, std::uint64_t seed = 20231123);

/// Of a size between ½ and 1, which is another one for each i. Others for other seeds.
double random_entry(std::size_t i, std::uint64_t seed);

/// A vector that is orthogonal to nothing in particular.
void fill_random(Vector v);

}  // namespace onestep::detail
