// Traced functions as Python has them.
#pragma once

#include "tracing.h"

namespace onestep::python {

/// A traced function of Python, with what it must keep alive.
struct TracedFunction {
  Function function;
  nb::list kept;
};

}  // namespace onestep::python
