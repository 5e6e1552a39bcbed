// Messages of the library, which name things as C++ does, in the names of Python.
#pragma once

#include <string>

#include "common.h"

namespace onestep::python {

std::string in_python_words(std::string text);
Certificate in_python_words(Certificate certificate);

}  // namespace onestep::python
