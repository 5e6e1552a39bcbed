// Exceptions of the module that the C++ library does not have.
#pragma once

#include "common.h"

namespace onestep::python {

/// An expression, or an object that is no array of real numbers, was used in a way that cannot be traced.
/// onestep.TracingError in Python, a TypeError.
class TracingError : public MisuseError {
 public:
  using MisuseError::MisuseError;
};

}  // namespace onestep::python
