// The CPU backend.
#pragma once

#include <memory>

#include "parallel/pool.h"
#include "plan/program.h"

namespace onestep::cpu {

/// Runs its loops on this pool; without one, on that of the thread which calls it.
std::shared_ptr<const detail::Backend> make_backend(std::shared_ptr<parallel::Pool> pool);

}  // namespace onestep::cpu
