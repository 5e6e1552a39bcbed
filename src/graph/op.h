// The names of the operations, from the table in include/onestep/operations.def: to add an operation, add a row there.
#pragma once

#include <cstdint>

namespace onestep {

enum class Op : std::uint8_t {
#define ONESTEP_UNARY(name, ...) name,
#define ONESTEP_BINARY ONESTEP_UNARY
#define ONESTEP_TERNARY ONESTEP_UNARY
#define ONESTEP_STRUCTURAL ONESTEP_UNARY
#include "onestep/operations.def"
};

}  // namespace onestep
