// Pools of threads: one for the process, and one for each context that has its own (onestep/context.h). A loop is handed out
// index by index to whoever is free, so nothing that is computed may depend on who ran what: work is cut by its shape and
// never by the number of threads.
#pragma once

#include <atomic>
#include <exception>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "onestep/threads.h"
#include "parallel/cut.h"

namespace onestep::parallel {

inline constexpr size_t any_worker = std::numeric_limits<size_t>::max();

using Piece = void (*)(const void* context, size_t index, size_t worker);
void run_pieces(size_t count, size_t most_workers, Piece piece, const void* context) noexcept;

/// Calls f(i), or f(i, worker), once for each i in [0, count) and returns when all are done. At most `most_workers` threads
/// take part, the caller being worker 0; `worker` < min(threads(), most_workers) names a place in per-worker scratch.
/// Serial, on the caller as worker 0, when the pool is in use (by another thread, or because this is a nested call), with
/// one thread, or with one index. f must not throw. Allocates nothing once start_threads() has run.
template <class F> void parallel_for(size_t count, size_t most_workers, const F& f) {
  const auto call = [](const void* context, size_t index, [[maybe_unused]] size_t worker) {
    const F& function = *static_cast<const F*>(context);
    if constexpr (std::is_invocable_v<const F&, size_t, size_t>)
      function(index, worker);
    else
      function(index);
  };
  if (count == 1)
    call(&f, 0, 0);
  else
    run_pieces(count, most_workers, call, &f);
}

template <class F> void parallel_for(size_t count, const F& f) { parallel_for(count, any_worker, f); }

/// The same for an f that may throw: the exception of the lowest index that throws is thrown, once all that were begun are
/// over. Indices above one that threw are left out, so that a loop which is interrupted ends soon.
template <class F> void parallel_for_throwing(size_t count, const F& f) {
  std::vector<std::exception_ptr> thrown(count);
  std::atomic<size_t> lowest = count;
  parallel_for(count, [&](size_t i) {
    if (i > lowest) return;
    try {
      f(i);
    } catch (...) {
      thrown[i] = std::current_exception();
      for (size_t known = lowest; i < known && !lowest.compare_exchange_weak(known, i);) {}
    }
  });
  for (const std::exception_ptr& one : thrown)
    if (one) std::rethrow_exception(one);
}

/// Threads of its own. Loops of different pools run side by side.
class Pool;
inline constexpr int most_threads = 0xffff;
std::shared_ptr<Pool> make_pool(int threads);
int threads_of(const Pool& pool);

/// While this lives, parallel_for on this thread uses that pool; null changes nothing.
class UsePool {
 public:
  explicit UsePool(Pool* pool) noexcept;
  ~UsePool();
  UsePool(const UsePool&) = delete;
  UsePool& operator=(const UsePool&) = delete;

 private:
  Pool* before_;
};
/// Of the pool that parallel_for on this thread uses.
int threads_here();

/// Starts the threads now, so that the first parallel_for after it neither allocates nor waits for them.
void start_threads();

}  // namespace onestep::parallel
