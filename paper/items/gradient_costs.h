// What the iterations x ← W sin(x) + Cθ and the gradient of ‖x‖²/2 by each method cost: multiply-adds, time and memory.
#pragma once

#include <array>
#include <cstdint>

namespace onestep::app::paper {

/// Iterations, unknowns and parameters.
struct GradientSize {
  std::int64_t k, n, m;
};
struct GradientCost {
  double flops = 0, seconds = 0, bytes = 0;
};

/// Runs that the median time is taken of.
constexpr int gradient_repetitions = 3;

/// By piggyback, reverse mode, implicit differentiation, one step, and of the algorithm alone.
std::array<GradientCost, 5> gradient_costs(std::uint64_t seed, const GradientSize& size);
/// C_F: n² + nm, and n sines.
double step_flops(std::uint64_t seed, const GradientSize& size);
/// With which power of n the memory of implicit differentiation grows when its matrix is not formed.
double matrix_free_memory(std::uint64_t seed, const GradientSize& smaller, const GradientSize& larger);

}  // namespace onestep::app::paper
