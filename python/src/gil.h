// Letting go of the GIL, and taking it.
#pragma once

#include <cxxabi.h>
#include <unistd.h>

#include <chrono>
#include <type_traits>

#include "common.h"

namespace onestep::python {

/// Computes what takes the GIL. While the interpreter shuts down no thread but the main one gets it: up to version 3.13
/// Python then ends a thread that asks, by unwinding its stack, and the process is aborted where that meets a function that
/// is noexcept; once the interpreter is gone, it crashes. Such a thread waits here for the end of the process instead, as
/// later versions have it.
template <class Compute> decltype(auto) or_wait_for_the_end(const Compute& compute) {
  try {
    while (!Py_IsInitialized() && gettid() != getpid()) pause();
    return compute();
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
}

/// When this thread looks for signals: every 50 ms, from when it let go of the GIL. A computation that is over before leaves
/// them to the interpreter; one of many short parts is one computation. The library's own threads, which never had the GIL,
/// do not look: Python hands signals to its main thread alone.
class SignalClock {
 public:
  static bool is_due() { return last_ != never && Clock::now() - last_ >= std::chrono::milliseconds(50); }
  static void restart() { last_ = Clock::now(); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::time_point never{};
  inline static thread_local Clock::time_point last_ = never;
};

class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) { SignalClock::restart(); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;
  ~WithoutGil() {
    or_wait_for_the_end([&] { PyEval_RestoreThread(state_); });
  }

 private:
  PyThreadState* state_;
};

/// Computes with the GIL. What is thrown passes once the GIL is given back.
template <class Compute> auto with_gil(const Compute& compute) {
  return or_wait_for_the_end([&] {
    const PyGILState_STATE before = PyGILState_Ensure();
    try {
      if constexpr (std::is_void_v<decltype(compute())>) {
        compute();
        PyGILState_Release(before);
      } else {
        auto result = compute();
        PyGILState_Release(before);
        return result;
      }
    } catch (const abi::__forced_unwind&) {
      throw;  // without the GIL, which this thread has not got any more
    } catch (...) {
      PyGILState_Release(before);
      throw;
    }
  });
}

}  // namespace onestep::python
