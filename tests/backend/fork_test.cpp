// A child of fork() has none of the pool's threads: it computes with threads of its own, and it can exit.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "backend/cpu/blas.h"
#include "parallel/pool.h"
#include "parallel/shared.h"

namespace onestep::cpu {
namespace {

int sum_in_parallel() {
  std::atomic<int> sum = 0;
  parallel_for(1000, [&](size_t i) { sum += static_cast<int>(i); });
  return sum;
}

// The status a child ends with that runs this and then exits; -1 where it does not end within a minute.
template <class Work> int status_of_child(const Work& work) {
  // The address sanitizer's allocator, unlike glibc's, does not survive a fork while another thread is in it: threads that
  // were just started must have come to rest.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const bool right = work();
    std::exit(right ? 0 : 1);  // with its destructors
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Fork, AChildThatOnlyExitsDoesExit) {
  set_threads(4);
  ASSERT_EQ(sum_in_parallel(), 499500);
  EXPECT_EQ(status_of_child([] { return true; }), 0);
  EXPECT_EQ(sum_in_parallel(), 499500) << "the parent goes on";
}

TEST(Fork, AChildComputesWithThreadsOfItsOwn) {
  set_threads(4);
  ASSERT_EQ(sum_in_parallel(), 499500);
  EXPECT_EQ(status_of_child([] {
              const BlasSerial guard;
              for (int i = 0; i < 100; ++i)
                if (sum_in_parallel() != 499500) return false;
              set_threads(2);
              return threads() == 2 && sum_in_parallel() == 499500;
            }),
            0);
  EXPECT_EQ(threads(), 4);
}

TEST(Fork, AGrandchildToo) {
  set_threads(3);
  ASSERT_EQ(sum_in_parallel(), 499500);
  EXPECT_EQ(status_of_child([] {
              return sum_in_parallel() == 499500 && status_of_child([] { return sum_in_parallel() == 499500; }) == 0;
            }),
            0);
}

// A child's loops in a context of its parent run on the thread that calls.
TEST(Fork, AChildUsesAndDropsAContextOfItsParent) {
  auto pool = parallel::make_pool(3);
  const auto sum_in_pool = [&] {
    const parallel::UsePool use(pool.get());
    return sum_in_parallel();
  };
  ASSERT_EQ(sum_in_pool(), 499500);
  EXPECT_EQ(status_of_child([&] {
              if (sum_in_pool() != 499500) return false;
              pool.reset();
              pool = parallel::make_pool(2);
              return sum_in_pool() == 499500;
            }),
            0);
  EXPECT_EQ(sum_in_pool(), 499500) << "the parent goes on";
}

// The thread is none of the child's, so that nobody would give back what it holds.
TEST(Fork, AChildBeginsAnewWithWhatAThreadOfItsParentHeld) {
  parallel::Shared<int> shared;
  *shared.hold() = 7;
  std::atomic<bool> is_held = false, may_end = false;
  std::thread holder([&] {
    const auto held = shared.hold();
    is_held = true;
    is_held.notify_all();
    may_end.wait(false);
  });
  is_held.wait(false);
  const auto value = [&] { return *shared.hold(); };
  EXPECT_EQ(status_of_child([&] { return value() == 0 && value() == 0; }), 0);
  may_end = true;
  may_end.notify_all();
  holder.join();
  EXPECT_EQ(value(), 7) << "the parent goes on";
  EXPECT_EQ(status_of_child([&] { return value() == 7; }), 0) << "nobody held it";
}

}  // namespace
}  // namespace onestep::cpu
