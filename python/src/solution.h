// Solutions as Python has them.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include "tracing.h"

namespace onestep::python {

/// How many forks lie between this process and the one that imported the module.
int forks();

/// Lets one thread at a time have its turn.
class Turns {
 private:
  friend class Turn;
  std::mutex mutex_;
  std::atomic<std::thread::id> whose_;
  std::atomic<int> forks_ = forks();  ///< of the process whose turn it was last
};
class Turn {
 public:
  explicit Turn(Turns& turns) : turns_(turns) {
    if (turns.whose_ == std::this_thread::get_id())
      throw MisuseError("a callback asks for a solve or a derivative of the object whose computation calls it");
    if (turns.forks_ == forks())
      turns.mutex_.lock();
    else
      lock_in_child();
    turns.forks_ = forks();
    turns.whose_ = std::this_thread::get_id();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    turns_.whose_ = std::thread::id();
    turns_.mutex_.unlock();
  }

 private:
  // A thread of the parent may have the turn for ever, and may have left the computation unfinished; a thread of this
  // process that has only just taken it says so in a moment.
  void lock_in_child() {
    for (int i = 0; !turns_.mutex_.try_lock(); ++i) {
      if (turns_.forks_ == forks()) return turns_.mutex_.lock();
      if (i == 20)
        throw MisuseError(
            "when this process was forked, another thread was computing with this object, whose computation was cut off: "
            "solve again");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  Turns& turns_;
};

/// A Solution, with the Python objects that its derivatives may call. Copies share their memory, so that a derivative is
/// computed by one thread at a time.
struct PySolution {
  Solution solution;
  nb::object kept;
  std::shared_ptr<Turns> turns = std::make_shared<Turns>();

  PySolution(Solution its_solution, nb::object its_kept) : solution(std::move(its_solution)), kept(std::move(its_kept)) {}
};

/// For a class whose `kept` is a list of Python objects: cycles through them are found by Python's collector.
template <class T> int traverse_kept(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  PyObject* kept = nb::inst_ptr<T>(self)->kept.ptr();
  Py_VISIT(kept);
  return 0;
}
template <class T> int clear_kept(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<T>(self)->kept.reset();
  return 0;
}
template <class T> PyType_Slot* slots_of_kept() {
  static PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_kept<T>)},
                                {Py_tp_clear, reinterpret_cast<void*>(clear_kept<T>)},
                                {0, nullptr}};
  return slots;
}

/// Throws where Python's collector has taken apart what the object needs.
inline nb::list kept_of(const nb::object& kept) {
  if (!kept.is_valid()) throw MisuseError("this object is being collected: what it was made of is gone");
  return nb::borrow<nb::list>(kept);
}

/// Computes without the GIL, one thread at a time. Throws MisuseError where a Python function that the computation calls
/// asks for another one of the same object.
template <class Compute> auto without_gil(Turns& turns, const Compute& compute) {
  const WithoutGil no_gil;
  const Turn turn(turns);
  return compute();
}

}  // namespace onestep::python
