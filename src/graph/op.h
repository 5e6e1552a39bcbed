// The names of the operations as an enum, generated from the table in include/onestep/operations.def: to add an operation,
// add a row there.
#pragma once

#include <cstdint>

namespace onestep {

enum class Op : std::uint8_t {
#define ONESTEP_UNARY(name, ...) name,
#define ONESTEP_BINARY(name, ...) name,
#define ONESTEP_TERNARY(name, ...) name,
#define ONESTEP_STRUCTURAL(name, ...) name,
#include "onestep/operations.def"
};

inline constexpr int op_count = 0
#define ONESTEP_UNARY(name, ...) +1
#define ONESTEP_BINARY(name, ...) +1
#define ONESTEP_TERNARY(name, ...) +1
#define ONESTEP_STRUCTURAL(name, ...) +1
#include "onestep/operations.def"
    ;

}  // namespace onestep
