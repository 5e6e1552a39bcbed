// The blocks of a traced quadratic program in their full shapes.
#pragma once

#include <array>

#include <span>

#include "onestep/solver.h"
#include "solve/recipe.h"

namespace onestep::detail {

inline constexpr std::size_t blocks = 9;  // Q, q, A, b, G, l, u, lo, hi
inline constexpr std::array<const char*, blocks> block_names{"Q", "q", "A", "b", "G", "l", "u", "lo", "hi"};

/// Variables, equalities, rows.
struct Sizes {
  std::int64_t n = 0, m = 0, p = 0;
};

/// The user's lambda as one that returns the blocks, as they were given; and the program of such blocks.
Body body_of(const ProgramBody& program);
TracedProgram program_of(std::span<const Expr> given);
/// Throws MisuseError when nothing says how many variables there are.
Sizes sizes_of(const TracedProgram& t);
std::array<Shape, blocks> shapes_of(const Sizes& s);
/// Every block in its full shape; what is not there as zeros, a number repeated. Throws MisuseError when shapes do not fit.
std::vector<Expr> full_blocks(const TracedProgram& t, const Sizes& s);

/// Of the native method's loop, after a solve: the methods of InteriorPoint of these names.
class NativeSolution {
 public:
  virtual ~NativeSolution() = default;
  virtual void measure_units(std::span<double> values, std::span<double> multipliers) = 0;
  virtual void write_optimum(std::span<double> state) = 0;
};

/// The same solver as a loop of traced steps, which can be unrolled: predictor and corrector by one factorisation
/// (traced_interior_point.cpp). `native` is asked first whether there is a solution, and what it is measured in.
struct Recipe;
Recipe traced_interior_point(const Recipe& native);

/// The state (x and the multipliers of equalities, rows and bounds) as the solution of the linear system of the constraints
/// that are active at the state w, a solution; an expression whose derivatives of every order are those of the solution map.
Expr solve_active_set(const TracedProgram& program, const Sizes& z, const Expr& w);

}  // namespace onestep::detail
