// Nothing is allocated in Plan::run. The address sanitizer tells of every malloc; without it the global operator new counts.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "onestep/onestep.h"
#include "support/random.h"

namespace {
std::atomic<std::size_t> allocations{0};
}  // namespace

#ifdef __SANITIZE_ADDRESS__

// Declared here: not every distribution ships the sanitizer's header.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*, std::size_t),
                                                         void (*free_hook)(const volatile void*));

namespace {
[[maybe_unused]] const int installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t) { ++allocations; }, [](const volatile void*) {});
}  // namespace

#else

namespace {
void* counted(std::size_t size, std::size_t alignment) {
  ++allocations;
  void* p = std::aligned_alloc(alignment, (size + alignment) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
}  // namespace

// Not inlined, or the compiler sees memory of aligned_alloc freed by delete and warns.
[[gnu::noinline]] void* operator new(std::size_t size) { return counted(size, alignof(std::max_align_t)); }
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t a) {
  return counted(size, static_cast<std::size_t>(a));
}
[[gnu::noinline]] void* operator new[](std::size_t size, std::align_val_t a) {
  return counted(size, static_cast<std::size_t>(a));
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }

#endif

namespace onestep {
namespace {

// A Newton step with its value and vjp: loops, products, a factor, solves.
Function newton_step(const Array& A, const Array& y, std::int64_t rows, std::int64_t n) {
  return trace(
      [&](Expr x, Expr w, Expr c) {
        const Expr f = sum(w * softplus(-y * matmul(A, x))) + 0.1 * sum(square(x));
        const Expr next = x - solve(cholesky(hessian(f, x)), grad(f, x));
        return std::tuple(f, next, vjp(next, w, c));
      },
      Input{"x", {n}}, Input{"w", {rows}}, Input{"c", {n}});
}

TEST(Allocation, TheCounterCounts) {
  const std::size_t before = allocations;
  const std::vector<double> v(100);
  EXPECT_GE(allocations - before, 1U + (v.empty() ? 1U : 0U));
}

TEST(Allocation, RunAllocatesNothingAtAnySize) {
  test::Random random(1);
  for (const auto& [rows, n] : {std::pair<std::int64_t, std::int64_t>{20, 3}, {5000, 40}, {1200, 450}}) {
    const Array A = random.array({rows, n}), y = random.array({rows});
    const Plan plan(newton_step(A, y, rows, n));
    Workspace workspace = plan.workspace();
    const std::vector<Array> inputs{random.array({n}), random.array({rows}, 0.5, 1.5), random.array({n})};
    double value = 0;
    std::vector<double> next(static_cast<std::size_t>(n)), influence(static_cast<std::size_t>(rows));
    const std::vector<std::span<double>> outputs{{&value, 1}, next, influence};
    plan.run(workspace, inputs, outputs);  // threads are started the first time
    const std::size_t before = allocations;
    for (int k = 0; k < 3; ++k) plan.run(workspace, inputs, outputs);
    EXPECT_EQ(allocations - before, 0U) << rows << " x " << n;
  }
}

TEST(Allocation, RunsThatStopBelowTheHighestLevelAllocateNothing) {
  test::Random random(2);
  const std::int64_t rows = 5000, n = 40;
  const Array A = random.array({rows, n}), y = random.array({rows});
  const Plan plan(newton_step(A, y, rows, n), {.levels = {2, 1, 3}, .loop = 2});
  Workspace workspace = plan.workspace();
  const std::vector<Array> inputs{random.array({n}), random.array({rows}, 0.5, 1.5), random.array({n})};
  double value = 0;
  std::vector<double> next(static_cast<std::size_t>(n)), influence(static_cast<std::size_t>(rows));
  const std::vector<std::span<double>> iteration{{&value, 1}, next, {}}, all{{&value, 1}, next, influence};
  const std::size_t before = allocations;
  for (int k = 0; k < 3; ++k) {
    plan.run(workspace, inputs, iteration, 2, 2);
    plan.run(workspace, inputs, all, 3);
  }
  EXPECT_EQ(allocations - before, 0U);
}

}  // namespace
}  // namespace onestep
