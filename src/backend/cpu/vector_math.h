// Elementwise operations and reductions on tiles: runs of entries short enough to stay in cache. One kernel for each
// elementwise row of the table of operations, compiled for several instruction sets and chosen for the CPU at run time.
#pragma once

#include <cstddef>

#include "graph/op.h"

namespace onestep::cpu {

// An argument of a tile kernel: n entries, or one that stands for all of them.
struct Operand {
  const double* data;
  bool scalar;
};

// out[i] = op(args[0][i], ...). Any n, no alignment asked for. `out` may be one of the non-scalar arguments itself; any
// other overlap is an error. NaN and infinities come out as the table's scalar value gives them.
using TileKernel = void (*)(const Operand* args, double* out, std::size_t n);

// The kernel of an elementwise operation for this CPU; nullptr for any other operation. Ask once, when planning.
TileKernel tile_kernel(Op op);

// The order of addition depends on n and the CPU alone, so that the same tile gives the same bits.
double tile_sum(const double* x, std::size_t n);
double tile_dot(const double* x, const double* y, std::size_t n);

// The largest entry; NaN if any is, -inf when there is none.
double tile_max(const double* x, std::size_t n);

// y += alpha x
void tile_axpy(double alpha, const double* x, double* y, std::size_t n);

}  // namespace onestep::cpu
