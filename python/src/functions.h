// Traced functions as Python has them.
#pragma once

#include "solution.h"

namespace onestep::python {

/// A traced function of Python, with what it must keep alive.
struct TracedFunction {
  Function function;
  nb::object kept;
};

/// Calls the function with expressions of these shapes.
TracedFunction traced_python(nb::handle function, const nb::args& shapes);

}  // namespace onestep::python
