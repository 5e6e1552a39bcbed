// The door through which XLA's compiled programs come in; there where the module was built with the headers of jaxlib.
#pragma once

namespace onestep::python {

/// The handler of XLA's foreign function interface, or nothing.
void* xla_handler();
/// The version of the interface it was built for, as "0.3"; empty where it was not.
const char* xla_version();

}  // namespace onestep::python
