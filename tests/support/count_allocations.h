// Counts allocations: the address sanitizer tells of every malloc; without it the global operator new counts. To be included
// by one source file of a program only.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>

namespace onestep::test {
inline std::atomic<std::size_t> allocations{0};

/// Waits for threads that have just been started, once: they allocate on their own account, on a busy machine late.
inline void settle() {
  static const bool done = [] {
    for (int quiet = 0; quiet < 4;) {
      const std::size_t before = allocations;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      quiet = allocations == before ? quiet + 1 : 0;
    }
    return true;
  }();
  (void)done;
}
}  // namespace onestep::test

#ifdef __SANITIZE_ADDRESS__

// Declared here: not every distribution ships the sanitizer's header.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*, std::size_t),
                                                         void (*free_hook)(const volatile void*));

namespace onestep::test {
[[maybe_unused]] inline const int installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t) { ++allocations; }, [](const volatile void*) {});
}  // namespace onestep::test

#else

namespace onestep::test {
inline void* counted(std::size_t size, std::size_t alignment) {
  ++allocations;
  void* p = std::aligned_alloc(alignment, (size + alignment) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
}  // namespace onestep::test

// Not inlined, or the compiler sees memory of aligned_alloc freed by delete and warns.
[[gnu::noinline]] void* operator new(std::size_t size) { return onestep::test::counted(size, alignof(std::max_align_t)); }
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t a) {
  return onestep::test::counted(size, static_cast<std::size_t>(a));
}
[[gnu::noinline]] void* operator new[](std::size_t size, std::align_val_t a) {
  return onestep::test::counted(size, static_cast<std::size_t>(a));
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }

#endif
