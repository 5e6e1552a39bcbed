// The pool: threads that wait for loops, and who takes part in one.
#include "backend/cpu/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "backend/cpu/blas.h"
#include "onestep/array.h"

namespace onestep::cpu {
namespace {

constexpr int most_threads = 0xffff;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Spins until `ready`, for about as long as a sleep and a wake would cost.
template <class Ready> bool spin_until(Ready ready) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + std::chrono::microseconds(30);
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      relax();
    }
  } while (Clock::now() < end);
  return ready();
}

int default_threads() {
  if (const char* text = std::getenv("ONESTEP_NUM_THREADS")) {
    const char* end = text + std::strlen(text);
    int n = 0;
    const auto [stop, error] = std::from_chars(text, end, n);
    if (error == std::errc{} && stop == end && n >= 1) return std::min(n, most_threads);
  }
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, most_threads);
}

/// A worker takes part in a loop only by entering while the gate is open, and the caller closes it when no index is left: it
/// waits for the workers inside, never for one that the system has not woken yet.
class Pool {
 public:
  Pool() : wanted_(default_threads()) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() {
    wanted_.store(1, std::memory_order_relaxed);
    resize(1);
  }

  int wanted() const { return wanted_.load(std::memory_order_relaxed); }

  void want(int n) {
    wanted_.store(n, std::memory_order_relaxed);
    start();
  }

  /// Brings the number of threads to what is wanted; if a loop is running, the next loop does it.
  void start() {
    if (busy_.exchange(true, std::memory_order_acquire)) return;
    resize(wanted());
    busy_.store(false, std::memory_order_release);
  }

  void run(std::size_t count, std::size_t most_workers, Piece piece, void* context) {
    if (count <= 1 || wanted() <= 1 || most_workers <= 1 || busy_.exchange(true, std::memory_order_acquire)) {
      for (std::size_t i = 0; i < count; ++i) piece(context, i, 0);
      return;
    }
    if (const int n = wanted(); static_cast<int>(workers_.size()) + 1 != n) resize(n);
    piece_ = piece;
    context_ = context;
    count_ = count;
    most_workers_ = most_workers;
    next_.store(0, std::memory_order_relaxed);
    // seq_cst here and in sleep(): either the worker sees the gate open or we see that it sleeps.
    gate_.fetch_add(one_loop | open, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) wake(work_);
    take_pieces(0);
    gate_.fetch_and(~open, std::memory_order_acq_rel);
    const auto left = [this] { return (gate_.load(std::memory_order_acquire) & inside) == 0; };
    if (!spin_until(left)) {
      std::unique_lock lock(mutex_);
      caller_sleeps_.store(true, std::memory_order_seq_cst);
      done_.wait(lock, [this] { return (gate_.load(std::memory_order_seq_cst) & inside) == 0; });
      caller_sleeps_.store(false, std::memory_order_relaxed);
    }
    busy_.store(false, std::memory_order_release);
  }

 private:
  // gate_: the workers inside, whether more may enter, and above that the number of the loop.
  static constexpr std::uint64_t inside = 0xffff;
  static constexpr std::uint64_t open = 0x10000;
  static constexpr std::uint64_t one_loop = 0x20000;

  void take_pieces(std::size_t worker) {
    for (;;) {
      const std::size_t i = next_.fetch_add(1, std::memory_order_relaxed);
      if (i >= count_) return;
      piece_(context_, i, worker);
    }
  }

  void wake(std::condition_variable& sleeping) {
    { const std::lock_guard lock(mutex_); }
    sleeping.notify_all();
  }

  bool stopped(std::size_t worker) const { return worker > allowed_.load(std::memory_order_seq_cst); }

  void work(std::size_t worker) {
    keep_blas_serial_on_this_thread();
    std::uint64_t last = 0;
    const auto called = [&] {
      const std::uint64_t gate = gate_.load(std::memory_order_seq_cst);
      return stopped(worker) || ((gate & open) != 0 && gate / one_loop != last);
    };
    for (;;) {
      if (!spin_until(called)) {
        std::unique_lock lock(mutex_);
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        work_.wait(lock, called);
        sleepers_.fetch_sub(1, std::memory_order_relaxed);
      }
      if (stopped(worker)) return;
      std::uint64_t gate = gate_.load(std::memory_order_relaxed);
      while ((gate & open) != 0 && !gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) {}
      if ((gate & open) == 0) continue;
      last = gate / one_loop;
      if (worker < most_workers_) take_pieces(worker);
      const std::uint64_t before = gate_.fetch_sub(1, std::memory_order_seq_cst);
      if ((before & (inside | open)) == 1 && caller_sleeps_.load(std::memory_order_seq_cst)) wake(done_);
    }
  }

  /// Only while busy_ is ours. Where the system refuses more threads we go on with those there are.
  void resize(int n) {
    const std::size_t workers = static_cast<std::size_t>(n - 1);
    allowed_.store(workers, std::memory_order_seq_cst);
    if (workers < workers_.size()) {
      wake(work_);
      for (std::size_t i = workers; i < workers_.size(); ++i) workers_[i].join();
      workers_.resize(workers);
    }
    try {
      workers_.reserve(workers);
      while (workers_.size() < workers) workers_.emplace_back(&Pool::work, this, workers_.size() + 1);
    } catch (const std::exception&) {
      wanted_.store(static_cast<int>(workers_.size()) + 1, std::memory_order_relaxed);
      allowed_.store(workers_.size(), std::memory_order_seq_cst);
    }
  }

  std::atomic<int> wanted_;
  alignas(64) std::atomic<bool> busy_{false};
  alignas(64) std::atomic<std::uint64_t> gate_{0};
  alignas(64) std::atomic<std::size_t> next_{0};
  alignas(64) Piece piece_ = nullptr;
  void* context_ = nullptr;
  std::size_t count_ = 0;
  std::size_t most_workers_ = 0;
  std::atomic<std::size_t> allowed_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  std::vector<std::thread> workers_;
};

Pool& pool() {
  static Pool the_pool;
  return the_pool;
}

}  // namespace

void run_pieces(std::size_t count, std::size_t most_workers, Piece piece, void* context) noexcept {
  pool().run(count, most_workers, piece, context);
}

void start_threads() { pool().start(); }

}  // namespace onestep::cpu

namespace onestep {

void set_threads(int n) {
  if (n < 1 || n > cpu::most_threads)
    throw Error(fmt::format("[set_threads] the number of threads is 1 to {}, got {}", cpu::most_threads, n));
  cpu::pool().want(n);
}

int threads() { return cpu::pool().wanted(); }

}  // namespace onestep
