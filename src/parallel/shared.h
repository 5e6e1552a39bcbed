// What threads share under a mutex, so that a child of fork() is not left waiting for a thread that it does not have.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

namespace onestep::parallel {

/// How many forks lie between this process and the one that the library was loaded into.
int forks() noexcept;

/// A value that one thread at a time has. A child of fork() begins anew where a thread of its parent had the value: that
/// thread would never give it back, and may have left it half changed.
template <class T, class Mutex = std::mutex> class Shared {
 public:
  Shared() : state_(new State) {}
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { delete state_.load(); }

  class Guard {
   public:
    T& operator*() const { return *value_; }
    T* operator->() const { return value_; }

   private:
    friend Shared;
    Guard(Mutex& mutex, T& value) : lock_(mutex), value_(&value) {}
    std::lock_guard<Mutex> lock_;
    T* value_;
  };
  Guard hold() const {
    State* state = state_.load();
    if (state->forks != forks()) state = in_child(state);
    return {state->mutex, state->value};
  }

 private:
  struct State {
    Mutex mutex;
    T value{};
    const int forks = parallel::forks();
  };
  // What the parent had is never given back: its mutex may be locked for ever. Where two threads come here at once, one of
  // them may find the mutex locked by the other, and begin anew without need.
  State* in_child(State* parents) const {
    auto fresh = std::make_unique<State>();
    if (parents->mutex.try_lock()) {
      fresh->value = std::move(parents->value);
      parents->mutex.unlock();
    }
    return state_.compare_exchange_strong(parents, fresh.get()) ? fresh.release() : parents;
  }
  mutable std::atomic<State*> state_;
};

/// For a mutex that guards nothing but itself.
struct Nothing {};

}  // namespace onestep::parallel
