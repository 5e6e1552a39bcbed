// The pool: threads that wait for loops, and who takes part in one.
#include "parallel/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "hwy/cache_control.h"
#include "onestep/array.h"
#include "parallel/blas_threads.h"
#include "parallel/shared.h"

#if __has_include(<pthread.h>)
#include <pthread.h>
#define ONESTEP_HAS_FORK
#endif

namespace onestep::parallel {
namespace {

/// Returns once `ready`, which `gate` going from one value to another makes true: spins for about as long as a sleep and a
/// wake would cost, then sleeps.
template <class Ready> void wait_until(const std::atomic<std::uint32_t>& gate, Ready ready) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + std::chrono::microseconds(30);
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready(gate.load())) return;
      hwy::Pause();
    }
  } while (Clock::now() < end);
  for (std::uint32_t seen = gate.load(); !ready(seen); seen = gate.load()) gate.wait(seen);
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

thread_local Pool* current = nullptr;  // of this thread; null: that of the process
thread_local bool is_inside = false;   // this thread runs a piece of a loop
std::atomic<int> forks_so_far{0};
#ifdef ONESTEP_HAS_FORK
[[maybe_unused]] const int counting_forks =
    pthread_atfork(nullptr, nullptr, [] { forks_so_far.fetch_add(1, std::memory_order_relaxed); });
#endif

// Threads of its parent that a child of fork() has handles of, which it can neither join nor detach: it keeps them.
struct Abandoned {
  std::vector<std::jthread> threads;
  Abandoned* next;
};
std::atomic<Abandoned*> abandoned{nullptr};
void abandon(std::vector<std::jthread> threads) {
  auto* kept = new Abandoned{std::move(threads), abandoned.load()};
  while (!abandoned.compare_exchange_weak(kept->next, kept)) {}
}

}  // namespace

int forks() noexcept { return forks_so_far.load(std::memory_order_relaxed); }

/// A worker takes part in a loop only by entering while the gate is open, and the caller closes it when no index is left: it
/// waits for the workers inside, never for one that the system has not woken yet.
class Pool {
 public:
  explicit Pool(int wanted) : wanted_(wanted) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() {
    if (is_of_this_process())
      resize(1);
    else
      abandon(std::move(workers_));
  }

  int wanted() const { return wanted_.load(std::memory_order_relaxed); }

  void set_wanted(int n) { wanted_.store(n, std::memory_order_relaxed); }
  void want(int n) {
    set_wanted(n);
    start();
  }

  /// Brings the number of threads to what is wanted; if a loop is running, the next loop does it.
  void start() {
    if (!is_of_this_process() || busy_.exchange(true, std::memory_order_acquire)) return;
    resize(wanted());
    busy_.store(false, std::memory_order_release);
  }

  void run(size_t count, size_t most_workers, Piece piece, const void* context) {
    if (count <= 1 || wanted() <= 1 || most_workers <= 1 || is_inside || !is_of_this_process() ||
        busy_.exchange(true, std::memory_order_acquire)) {
      for (size_t i = 0; i < count; ++i) piece(context, i, 0);
      return;
    }
    if (const int n = wanted(); static_cast<int>(workers_.size()) + 1 != n) resize(n);
    piece_ = piece;
    context_ = context;
    count_ = count;
    most_workers_ = most_workers;
    next_.store(0, std::memory_order_relaxed);
    gate_.fetch_add(one_loop | open);
    gate_.notify_all();
    take_pieces(0);
    gate_.fetch_and(~open);
    wait_until(gate_, [](std::uint32_t gate) { return (gate & inside) == 0; });
    busy_.store(false, std::memory_order_release);
  }

 private:
  // gate_: the workers inside, whether more may enter, and above that the number of the loop, which may begin again.
  static constexpr std::uint32_t inside = 0xffff, open = 0x10000, one_loop = 0x20000;

  /// A child of fork() has none of its parent's threads.
  bool is_of_this_process() const { return forks_ == forks(); }

  void take_pieces(size_t worker) {
    is_inside = true;
    for (size_t i = 0; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) piece_(context_, i, worker);
    is_inside = false;
  }

  void work(const std::stop_token& stop, size_t worker) {
    keep_blas_serial_on_this_thread();
    std::uint32_t last = 0;
    const auto called = [&](std::uint32_t gate) {
      return stop.stop_requested() || ((gate & open) != 0 && gate / one_loop != last);
    };
    for (wait_until(gate_, called); !stop.stop_requested(); wait_until(gate_, called)) {
      std::uint32_t gate = gate_.load();
      while ((gate & open) != 0 && !gate_.compare_exchange_weak(gate, gate + 1)) {}
      if ((gate & open) == 0) continue;
      last = gate / one_loop;
      if (worker < most_workers_) take_pieces(worker);
      if ((gate_.fetch_sub(1) & (inside | open)) == 1) gate_.notify_all();
    }
  }

  /// Only while busy_ is ours. Where the system refuses more threads we go on with those there are.
  void resize(int n) {
    const size_t workers = static_cast<size_t>(n - 1);
    for (size_t i = workers; i < workers_.size(); ++i) workers_[i].request_stop();
    gate_.fetch_add(one_loop);
    gate_.notify_all();
    try {
      workers_.resize(std::min(workers, workers_.size()));
      while (workers_.size() < workers) workers_.emplace_back(std::bind_front(&Pool::work, this), workers_.size() + 1);
    } catch (const std::exception&) { wanted_.store(static_cast<int>(workers_.size()) + 1, std::memory_order_relaxed); }
  }

  std::atomic<int> wanted_;
  const int forks_ = forks();
  alignas(64) std::atomic<bool> busy_{false};
  alignas(64) std::atomic<std::uint32_t> gate_{0};
  alignas(64) std::atomic<size_t> next_{0};
  alignas(64) Piece piece_ = nullptr;
  const void* context_ = nullptr;
  size_t count_ = 0, most_workers_ = 0;
  std::vector<std::jthread> workers_;
};

namespace {

/// The pool of this process. A child of fork() has handles of its parent's threads, which it cannot join: it gives up the
/// parent's pool as it stands and begins one of its own.
class PoolOfProcess {
 public:
  PoolOfProcess() : pool_(new Pool(default_threads())) {
#ifdef ONESTEP_HAS_FORK
    pthread_atfork(nullptr, nullptr, [] { the().begin_in_child(); });
#endif
  }
  PoolOfProcess(const PoolOfProcess&) = delete;
  PoolOfProcess& operator=(const PoolOfProcess&) = delete;
  // Threads that compute while the process ends go on with the pool, which stays, but without its threads.
  ~PoolOfProcess() { pool_->want(1); }
  static PoolOfProcess& the() {
    static PoolOfProcess one;
    return one;
  }
  Pool& pool() { return *pool_; }

 private:
  void begin_in_child() {
    const int wanted = pool_->wanted();
    abandoned_ = pool_;
    pool_ = new Pool(default_threads());
    pool_->set_wanted(wanted);
  }
  Pool* pool_;                 // never destroyed
  Pool* abandoned_ = nullptr;  // in a child: that of the parent
};

Pool& pool() { return PoolOfProcess::the().pool(); }
Pool& pool_here() { return current != nullptr ? *current : pool(); }

}  // namespace

void run_pieces(size_t count, size_t most_workers, Piece piece, const void* context) noexcept {
  pool_here().run(count, most_workers, piece, context);
}

void start_threads() { pool_here().start(); }

std::shared_ptr<Pool> make_pool(int threads) {
  (void)pool();  // which is told of fork()
  return std::make_shared<Pool>(threads);
}
int threads_of(const Pool& pool) { return pool.wanted(); }
int threads_here() { return pool_here().wanted(); }

UsePool::UsePool(Pool* pool) noexcept : before_(current) {
  if (pool != nullptr) current = pool;
}
UsePool::~UsePool() { current = before_; }

}  // namespace onestep::parallel

namespace onestep {

void set_threads(int n) {
  if (n < 1 || n > parallel::most_threads)
    throw MisuseError(fmt::format("[set_threads] the number of threads is 1 to {}, got {}", parallel::most_threads, n));
  parallel::pool().want(n);
}

int threads() { return parallel::pool().wanted(); }

}  // namespace onestep
