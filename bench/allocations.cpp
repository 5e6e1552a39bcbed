#include "allocations.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace onestep::bench {
namespace {

std::atomic<std::size_t> count{0}, held{0}, most{0};

void* take(std::size_t size, std::size_t alignment) {
  void* const p = std::aligned_alloc(alignment, (std::max<std::size_t>(size, 1) + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  ++count;
  const std::size_t now = held += malloc_usable_size(p);
  std::size_t before = most;
  while (before < now && !most.compare_exchange_weak(before, now)) {}
  return p;
}

void give_back(void* p) {
  if (p == nullptr) return;
  held -= malloc_usable_size(p);
  std::free(p);
}

}  // namespace

std::size_t allocations() { return count; }
std::size_t allocated_bytes() { return held; }
std::size_t peak_bytes() { return most; }
void reset_peak() { most = held.load(); }

}  // namespace onestep::bench

// Not inlined, or the compiler sees memory of aligned_alloc freed by delete and warns. The array forms call these.
[[gnu::noinline]] void* operator new(std::size_t size) { return onestep::bench::take(size, alignof(std::max_align_t)); }
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  return onestep::bench::take(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* p) noexcept { onestep::bench::give_back(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { onestep::bench::give_back(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { onestep::bench::give_back(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { onestep::bench::give_back(p); }
