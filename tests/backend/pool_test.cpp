// The pool of threads: every index once, nested and concurrent loops, and threads of the BLAS given back as found.
#include "parallel/pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "backend/cpu/blas.h"
#include "onestep/error.h"

extern "C" {
[[gnu::weak]] void openblas_set_num_threads(int n);
[[gnu::weak]] int openblas_get_num_threads();
}

namespace onestep::cpu {
namespace {

class PoolTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_threads(GetParam()); }
  void TearDown() override { set_threads(2); }
};
INSTANTIATE_TEST_SUITE_P(Threads, PoolTest, ::testing::Values(1, 2, 3, 5));

TEST_P(PoolTest, CallsEveryIndexExactlyOnceInConcurrentLoops) {
  for (const std::size_t count : {0u, 1u, 2u, 3u, 17u, 1000u}) {
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<std::atomic<int>> calls(count);
      parallel_for(count, [&](std::size_t i) { calls[i].fetch_add(1, std::memory_order_relaxed); });
      for (const auto& c : calls) ASSERT_EQ(c.load(), 1);
    }
  }
}

TEST_P(PoolTest, AConcurrentLoopThrowsWhatItsLowestIndexThrewAndLeavesOutOthersAboveIt) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::vector<std::atomic<int>> calls(1000);
    try {
      parallel_for_throwing(calls.size(), [&](std::size_t i) {
        calls[i].fetch_add(1, std::memory_order_relaxed);
        if (i == 7 || i == 10 || i == 500) throw std::runtime_error(std::to_string(i));
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& e) { EXPECT_STREQ(e.what(), "7"); }
    for (std::size_t i = 0; i <= 7; ++i) EXPECT_EQ(calls[i].load(), 1);
    if (GetParam() == 1) { EXPECT_EQ(calls[8].load(), 0); }
    for (const auto& c : calls) EXPECT_LE(c.load(), 1);
  }
}

TEST_P(PoolTest, WhatPiecesWroteIsVisibleAfterConcurrentLoops) {
  std::vector<std::size_t> out(200);
  for (std::size_t repeat = 0; repeat < 500; ++repeat) {
    parallel_for(out.size(), [&](std::size_t i) { out[i] = i * repeat; });
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], i * repeat);
  }
}

TEST_P(PoolTest, WorkersOfConcurrentLoopsStayBelowTheLimitAndNeverShareANumber) {
  for (const std::size_t most : {std::size_t{1}, std::size_t{2}, any_worker}) {
    std::vector<std::atomic<int>> inside(64);
    std::atomic<bool> shared{false}, above{false};
    parallel_for(300, most, [&](std::size_t, std::size_t worker) {
      if (worker >= std::min(most, static_cast<std::size_t>(GetParam()))) above = true;
      if (inside[worker].fetch_add(1) != 0) shared = true;
      for (int i = 0; i < 100; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
      inside[worker].fetch_sub(1);
    });
    EXPECT_FALSE(shared);
    EXPECT_FALSE(above);
  }
}

TEST_P(PoolTest, ANestedLoopRunsInlineInConcurrentPieces) {
  std::atomic<int> calls{0};
  std::atomic<bool> moved{false};
  parallel_for(20, [&](std::size_t) {
    const auto me = std::this_thread::get_id();
    parallel_for(10, [&](std::size_t) {
      if (std::this_thread::get_id() != me) moved = true;
      calls.fetch_add(1);
    });
  });
  EXPECT_EQ(calls, 200);
  EXPECT_FALSE(moved);
}

TEST_P(PoolTest, ConcurrentCallersEachGetTheirOwnResult) {
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (std::size_t caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&wrong, caller] {
      std::vector<std::size_t> out(100);
      for (std::size_t repeat = 0; repeat < 200; ++repeat) {
        parallel_for(out.size(), [&](std::size_t i) { out[i] = i + caller + repeat; });
        for (std::size_t i = 0; i < out.size(); ++i) wrong += out[i] != i + caller + repeat;
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(PoolTest, LongPiecesAndSleepingWorkersLoseNoIndexConcurrently) {
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::atomic<int> calls{0};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    parallel_for(4, [&](std::size_t i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(i == 3 ? 3 : 0));
      calls.fetch_add(1);
    });
    EXPECT_EQ(calls, 4);
  }
}

TEST(SetThreads, ResizesWhileConcurrentLoopsRun) {
  std::atomic<bool> stop{false};
  std::thread resizer([&] {
    for (int n = 0; !stop; n = (n + 1) % 4) set_threads(n + 1);
  });
  for (int repeat = 0; repeat < 300; ++repeat) {
    std::atomic<int> calls{0};
    parallel_for(50, [&](std::size_t) { calls.fetch_add(1, std::memory_order_relaxed); });
    ASSERT_EQ(calls, 50);
  }
  stop = true;
  resizer.join();
  set_threads(2);
}

TEST(SetThreads, InsideALoopTakesEffectAfterIt) {
  set_threads(2);
  parallel_for(4, [](std::size_t) { set_threads(3); });
  EXPECT_EQ(threads(), 3);
  std::atomic<int> calls{0};
  parallel_for(30, [&](std::size_t) { ++calls; });
  EXPECT_EQ(calls, 30);
  set_threads(2);
}

TEST(SetThreads, RefusesFewerThanOneAndSaysSo) {
  set_threads(2);
  for (const int n : {0, -1, 70000}) {
    try {
      set_threads(n);
      FAIL() << n;
    } catch (const MisuseError& e) {
      EXPECT_EQ(std::string(e.what()).rfind("[set_threads] ", 0), 0u) << e.what();
      EXPECT_NE(std::string(e.what()).find(std::to_string(n)), std::string::npos) << e.what();
    }
  }
  EXPECT_EQ(threads(), 2);
}

int blas_threads() { return openblas_get_num_threads == nullptr ? 1 : openblas_get_num_threads(); }

TEST(BlasSerial, HoldsOneThreadAndGivesBackWhatItFound) {
  if (openblas_set_num_threads == nullptr) GTEST_SKIP() << "not OpenBLAS";
  const int before = blas_threads();
  openblas_set_num_threads(2);
  const int found = blas_threads();
  {
    const BlasSerial outer;
    EXPECT_EQ(blas_threads(), 1);
    { const BlasSerial inner; }
    EXPECT_EQ(blas_threads(), 1);
  }
  EXPECT_EQ(blas_threads(), found);
  openblas_set_num_threads(before);
}

TEST(BlasSerial, HoldsOneThreadForConcurrentHolders) {
  const int before = blas_threads();
  std::vector<std::thread> holders;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) {
    holders.emplace_back([&] {
      for (int repeat = 0; repeat < 500; ++repeat) {
        const BlasSerial outer;
        const BlasSerial inner;
        wrong += blas_threads() != 1;
      }
    });
  }
  for (auto& holder : holders) holder.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(blas_threads(), before);
}

}  // namespace
}  // namespace onestep::cpu
