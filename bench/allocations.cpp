// Replaces operator new and delete by counting ones.
#include "allocations.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace onestep::bench {
namespace {

std::atomic<bool> is_counting{false};
std::atomic<std::size_t> taken{0};
std::atomic<std::int64_t> held{0}, most{0};

std::int64_t size_of(void* p) { return static_cast<std::int64_t>(malloc_usable_size(p)); }

void* noted(void* p) {
  if (p == nullptr) throw std::bad_alloc();
  if (!is_counting.load(std::memory_order_relaxed)) return p;
  ++taken;
  const std::int64_t now = held += size_of(p);
  std::int64_t before = most;
  while (before < now && !most.compare_exchange_weak(before, now)) {}
  return p;
}

void give_back(void* p) {
  if (p != nullptr && is_counting.load(std::memory_order_relaxed)) held -= size_of(p);
  std::free(p);
}

}  // namespace

CountedAllocations::CountedAllocations() {
  taken = 0;
  held = most = 0;
  is_counting = true;
}
CountedAllocations::~CountedAllocations() { is_counting = false; }
std::size_t CountedAllocations::count() const { return taken; }
std::int64_t CountedAllocations::peak_bytes() const { return most; }

}  // namespace onestep::bench

// Not inlined, or the compiler sees memory of malloc freed by delete and warns. The array forms call these.
[[gnu::noinline]] void* operator new(std::size_t size) {
  return onestep::bench::noted(std::malloc(std::max<std::size_t>(size, 1)));
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto a = static_cast<std::size_t>(alignment);
  return onestep::bench::noted(std::aligned_alloc(a, (std::max<std::size_t>(size, 1) + a - 1) / a * a));
}
[[gnu::noinline]] void operator delete(void* p) noexcept { onestep::bench::give_back(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { onestep::bench::give_back(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { onestep::bench::give_back(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { onestep::bench::give_back(p); }
