// One small pool of threads for the whole process. A loop is handed out index by index to whoever is free, so nothing that
// is computed may depend on who ran what: work is cut by its shape and never by the number of threads.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <type_traits>

#include "onestep/threads.h"

namespace onestep::cpu {

inline constexpr std::size_t any_worker = std::numeric_limits<std::size_t>::max();

using Piece = void (*)(void* context, std::size_t index, std::size_t worker);
void run_pieces(std::size_t count, std::size_t most_workers, Piece piece, void* context) noexcept;

/// Calls f(i), or f(i, worker), once for each i in [0, count) and returns when all are done. At most `most_workers` threads
/// take part, the caller being worker 0; `worker` < min(threads(), most_workers) names a place in per-worker scratch.
/// Serial, on the caller as worker 0, when the pool is in use (by another thread, or because this is a nested call), with
/// one thread, or with one index. f must not throw. Allocates nothing once start_threads() has run.
template <class F> void parallel_for(std::size_t count, std::size_t most_workers, F&& f) {
  using Function = std::remove_reference_t<F>;
  run_pieces(
      count, most_workers,
      [](void* context, std::size_t index, [[maybe_unused]] std::size_t worker) {
        Function& function = *static_cast<Function*>(context);
        if constexpr (std::is_invocable_v<Function&, std::size_t, std::size_t>) {
          function(index, worker);
        } else {
          function(index);
        }
      },
      const_cast<void*>(static_cast<const void*>(std::addressof(f))));
}

template <class F> void parallel_for(std::size_t count, F&& f) { parallel_for(count, any_worker, f); }

/// Starts the threads now, so that the first parallel_for after it neither allocates nor waits for them.
void start_threads();

}  // namespace onestep::cpu
