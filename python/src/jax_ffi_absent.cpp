// Where the module was built without the headers of jaxlib: onestep.jax then comes in through Python.
#include "jax_ffi.h"

namespace onestep::python {

void* xla_handler() { return nullptr; }
const char* xla_version() { return ""; }

}  // namespace onestep::python
