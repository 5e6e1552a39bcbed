// A convex quadratic program as data, and its solution with everything that is known about it. Inside a traced function, and
// for derivatives with respect to parameters that the data depend on, see quadratic_program() in onestep/solver.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "onestep/array.h"
#include "onestep/export.h"
#include "onestep/status.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// Minimise ½xᵀQx + qᵀx + constant subject to A x = b, l ≤ G x ≤ u, lo ≤ x ≤ hi.
///
/// Q is symmetric (both triangles are given; they are read as their mean) and positive semidefinite. What a problem does not
/// have stays as it is made: without Q it is a linear program, without A or G (or with 0 rows) there are no such
/// constraints. Where a vector belongs a number stands for that number everywhere. Bounds may be infinite, so that a row or
/// a variable is free, bounded on one side or on both; l = u makes a row an equality, lo = hi fixes a variable.
///
///     QuadraticProgram p;                       // the point of the unit box nearest to (2, -1) with x0 + x1 = 1
///     p.Q = Array{{1.0, 0.0}, {0.0, 1.0}};
///     p.q = Array{-2.0, 1.0};
///     p.A = Array{{1.0, 1.0}};
///     p.b = 1.0;
///     p.lo = 0.0;
///     p.hi = 1.0;
struct QuadraticProgram {
  Array Q;                                              ///< (n, n)
  Array q;                                              ///< (n)
  Array A;                                              ///< (m, n)
  Array b;                                              ///< (m)
  Array G;                                              ///< (p, n)
  Array l = -std::numeric_limits<double>::infinity();   ///< (p)
  Array u = std::numeric_limits<double>::infinity();    ///< (p)
  Array lo = -std::numeric_limits<double>::infinity();  ///< (n)
  Array hi = std::numeric_limits<double>::infinity();   ///< (n)
  double constant = 0;                                  ///< added to the objective
};

/// The sizes of a quadratic program: variables, rows of A, rows of G.
///
///     QuadraticProgramSizes s = sizes_of(p);    // {2, 1, 0} for the program above
struct QuadraticProgramSizes {
  std::int64_t variables = 0, equalities = 0, inequalities = 0;
  bool operator==(const QuadraticProgramSizes&) const = default;
};

/// Checks that the shapes of all parts fit each other and returns them. Throws MisuseError naming the first part that does
/// not fit, or when no part says how many variables there are.
///
///     std::int64_t n = sizes_of(p).variables;
QuadraticProgramSizes sizes_of(const QuadraticProgram& program);

/// How far a point is from optimal in one respect. Absolute: the largest entry, in the units of the data. Relative: to the
/// largest term of the sums in the normalised problem, so that it does not depend on the units of the data.
///
///     double worst = solve(p).primal.relative;
struct ProgramResidual {
  double absolute = 0, relative = 0;
};

/// An iterate of the interior point method, for a callback.
///
///     ProgramOptions o{.callback = [](const ProgramIteration& i) { return i.gap.relative < 1e-3; }};
struct ProgramIteration {
  int number = 0;
  double objective = 0;
  ProgramResidual primal, dual, gap;
};

/// How a program is solved.
///
///     ProgramSolution s = solve(p, {.tolerance = 1e-6});
struct ProgramOptions {
  double tolerance = 1e-9;                                              ///< of the relative residuals
  double absolute_tolerance = std::numeric_limits<double>::infinity();  ///< of the absolute ones too, where it is finite
  int iteration_limit = 200;
  double time_limit = std::numeric_limits<double>::infinity();  ///< in seconds
  std::function<bool(const ProgramIteration&)> callback = {};   ///< called at each iterate; true cancels
};

/// Where the solution has no derivative, or there is more than one. Constraints are counted through: rows of A, rows of G,
/// then the variables (for their bounds).
///
///     bool is_smooth = solve(p).degeneracy().none();
struct ProgramDegeneracy {
  std::vector<std::size_t> undecided;   ///< constraints whose slack and multiplier both vanish: strict complementarity fails
  std::vector<std::size_t> dependent;   ///< active constraints with linearly dependent gradients: multipliers are not unique
  std::vector<std::size_t> not_unique;  ///< variables that may move without changing the objective
  double residual = 0;                  ///< relative residual of the linear system that derivatives solve
  bool is_solved = true;                ///< whether that is small enough
  bool none() const { return is_solved && undecided.empty() && dependent.empty() && not_unique.empty(); }
};

/// What the interior point method found. The multipliers have signs such that Qx + q + Aᵀy + Gᵀz + bound_multipliers = 0.
/// Copies share what derivatives are computed with; use them from one thread at a time.
///
///     ProgramSolution s = solve(p);
///     std::cout << s.status << ' ' << s.objective << ' ' << s.x << '\n';
class ProgramSolution {
 public:
  Status status = Status::not_finite;
  Array x, y, z, bound_multipliers;
  double objective = 0;
  ProgramResidual primal, dual, gap;
  int iterations = 0, factorisations = 0;
  double seconds = 0;

  /// Of an infeasible program: multipliers with Aᵀy + Gᵀz + bound_multipliers = 0 under which the constraints contradict
  /// each other, bᵀy + uᵀz⁺ - lᵀz⁻ + (the same of lo and hi) = -1. Empty where a lower bound is above its upper bound, or a
  /// row of zeros has to be another number: there `about` names it.
  struct Infeasibility {
    Array y = Array(Shape{0}, {}), z = y, bound_multipliers = y;
    bool is_empty() const { return bound_multipliers.size() == 0; }
  } infeasibility;
  /// Of an unbounded program: a direction v with Qv = 0, Av = 0, Gv and v within what finite bounds allow, qᵀv = -1.
  Array unbounded_direction = Array(Shape{0}, {});
  std::string about;  ///< the part of the data that the status is about, where there is one

  /// The derivative of the optimal value with respect to each part of the data, by the envelope theorem. A part that is a
  /// single number in the program is written out. Throws NotConvergedError unless there is a solution.
  ///
  ///     Array price_of_b = solve(p).gradient_of_objective().b;
  QuadraticProgram gradient_of_objective() const;

  /// Cotangents of all parts of the data for a cotangent of x: implicit differentiation of the optimality conditions at the
  /// solution. `residual`, where it is given, becomes the relative residual of the linear system. Throws NotConvergedError
  /// unless there is a solution, MisuseError for wrong shapes. Where degeneracy() is not none() it returns a finite number
  /// that is the derivative of one side, or between both.
  ///
  ///     ProgramSolution s = solve(p);
  ///     Array dq = s.vjp(s.x).q;                 // of |x|²/2
  QuadraticProgram vjp(const Array& x_bar, double* residual = nullptr) const;

  /// Whether the solution has a derivative, and why not. Throws NotConvergedError unless there is a solution.
  ProgramDegeneracy degeneracy() const;

 private:
  friend ProgramSolution solve(const QuadraticProgram& program, const ProgramOptions& options);
  struct ONESTEP_HIDDEN State;
  State& state(const char* who) const;
  std::shared_ptr<State> state_;
};

/// Solves the program by a primal-dual interior point method. Numerical trouble is a status; throws MisuseError for shapes
/// that do not fit each other and for options out of range.
///
///     ProgramSolution s = solve(p);
ProgramSolution solve(const QuadraticProgram& program, const ProgramOptions& options = {});

}  // namespace onestep
ONESTEP_EXPORT_END
