// Solutions as Python has them.
#pragma once

#include <memory>
#include <mutex>

#include "tracing.h"

namespace onestep::python {

/// A Solution, with the Python objects that its derivatives may call. Copies share their memory, so that a derivative is
/// computed by one thread at a time.
struct PySolution {
  Solution solution;
  nb::object kept;
  std::shared_ptr<std::mutex> one_at_a_time = std::make_shared<std::mutex>();

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

/// Computes without the GIL, one thread at a time.
template <class Compute> auto without_gil(std::mutex& one_at_a_time, const Compute& compute) {
  const nb::gil_scoped_release no_gil;
  const std::lock_guard lock(one_at_a_time);
  return compute();
}

}  // namespace onestep::python
