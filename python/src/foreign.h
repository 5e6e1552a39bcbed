// Steps that are not traced: functions of Python on NumPy's arrays, with derivatives of their own.
#pragma once

#include "common.h"

namespace onestep::python {

struct PyForeignStep {
  nb::object apply, jvp, vjp;
};

/// The step for the library. It borrows the functions: somebody keeps the PyForeignStep alive.
ForeignStep library_step(const PyForeignStep& step);

}  // namespace onestep::python
