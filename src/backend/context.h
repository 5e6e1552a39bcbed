// What a context stands for inside the library: threads.
#pragma once

#include "onestep/context.h"
#include "parallel/pool.h"

namespace onestep::detail {

/// The threads of a context; none for the default one, which uses those of whoever calls.
parallel::Pool* pool_of(const Context& context);

}  // namespace onestep::detail
