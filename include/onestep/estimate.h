// Derivatives of what a solver converges to, by any of the paper's methods, and how wrong each can be.
#pragma once

#include <iosfwd>
#include <limits>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "onestep/solver.h"

namespace onestep {

/// The derivative of the last step alone, ∂F/∂θ at x_{k-1}: as cheap as a derivative can be. Its error is ρ‖B‖/(1-ρ) plus a
/// term that vanishes with the length of the last step; ρ is 0 for Newton and interior point methods.
///
///     Solution s = solve(fit, x0, w, OneStep{});
struct OneStep {};

/// The derivative of the last K steps: the error falls with ρ^K. Keeps the last K states. Of Newton's method those steps are
/// taken as full ones; where one of them cannot be made so, only those behind it count.
///
///     Solution s = solve(slow, x0, w, KStep{20});
struct KStep {
  int K = 1;
};

/// Implicit differentiation: a linear system with the derivative of the simplest equation the solver knows (∇f = 0, the KKT
/// system, else x - F = 0), at x_k. The factorisation of the last step is its preconditioner.
///
///     Solution s = solve(fit, x0, w, Implicit{.how = Implicit::matrix_free, .tolerance = 1e-13});
struct Implicit {
  /// dense: the matrix is formed and factored (n products). matrix_free: CG where it is symmetric, else GMRES. automatic:
  /// matrix_free with the solver's factorisation, or dense up to n = 200, else matrix_free.
  enum How { automatic, dense, matrix_free } how = automatic;
  /// The residual of the linear system, relative to its right-hand side. What could not be reached is a status of the
  /// derivative, see DerivativeReport.
  double tolerance = 1e-12;
  int max_iterations = 1000;
  /// Use x - F(x, θ) = 0 whatever the solver knows, as the paper's remark does for comparison.
  bool on_step = false;
  /// r ← M⁻¹ r (M⁻ᵀ r when transposed) for an M near the system's matrix; empty: the solver's factorisation, or none.
  std::function<void(std::span<double> r, bool transposed)> preconditioner = {};
};

/// The derivative of the iterates actually made, all of them, as automatic differentiation through the loop would give it.
///
///     Solution s = solve(slow, x0, w, Unrolled{.mode = Unrolled::reverse, .memory = 1 << 20});
struct Unrolled {
  /// forward carries dx/dθ·v along; reverse goes back over the states. automatic: jvp forward, vjp in reverse.
  enum Mode { automatic, forward, reverse } mode = automatic;
  /// Bytes for states. Reverse keeps as many as fit and recomputes the others from binomial checkpoints (Revolve).
  std::size_t memory = std::size_t{1} << 30;
};

/// One step where that meets the tolerance, else the linear system of implicit differentiation by a Krylov method, as
/// exactly as the tolerance asks for: decided at the call, where the direction is known. The tolerance is for the derivative
/// at x_k; how far that is from the solution is the solver's tolerance, and the certificate counts it. Where the tolerance
/// could not be met, DerivativeReport::met_tolerance says so.
///
///     Solution s = solve(slow, x0, w, Auto{.tolerance = 1e-8});
struct Auto {
  double tolerance = 1e-6;  ///< relative to the norm of what is returned
};

/// How a Solution differentiates. Where none is named it is OneStep for superlinear methods (Newton's, interior point),
/// whose last step has the derivative of the solution, and Auto for all others.
///
///     Estimator e = OneStep{}, by_the_method;
class Estimator {
 public:
  Estimator() : kind_(Auto{}), by_method_(true) {}
  using Kind = std::variant<OneStep, KStep, Implicit, Unrolled, Auto>;
  template <class T>
  requires std::is_constructible_v<Kind, T> Estimator(T kind) : kind_(std::move(kind)) {}
  const Kind& kind() const& { return kind_; }
  Kind kind() const&& { return kind_; }
  /// None was named: the method decides.
  bool by_method() const { return by_method_; }

 private:
  Kind kind_;
  bool by_method_ = false;
};

/// How the last derivative came about.
struct DerivativeReport {
  std::string method;                 ///< the estimator that gave it: Auto says here what it took
  Status status = Status::converged;  ///< of the linear solve; converged where there is none
  double residual = 0;                ///< reached by the linear solve, relative
  int products = 0;                   ///< derivatives of the step or the equation that were evaluated
  int factorisations = 0;             ///< made for it: none where that of the solve does
  int steps = 0;                      ///< steps that were computed again
  int further = 0;                    ///< steps beyond those the solve made (a warm start makes few)
  int terms = 0;                      ///< of the Neumann series
  double flops = 0;                   ///< where the costs are known
  bool met_tolerance = true;          ///< of Auto: its estimate of the error is within its tolerance
};

/// What is known about the error of a derivative; the norm is Euclidean, in the space of what was returned.
///
///     std::cout << s.certificate(s.x()) << '\n';   // error <= 3.1e-13 (observed), 2.2e-13 of the derivative; ...
struct Certificate {
  enum class Basis {
    proven,    ///< a rigorous enclosure; nothing in this version says it
    observed,  ///< a heuristic: measured at the iterates, with safety factors. No probability is claimed
    refused,   ///< no bound: `reason` says why
  } basis = Basis::refused;
  /// What the bound is the sum of.
  enum class Term {
    left_out,  ///< what the estimator does not compute: later Neumann terms, the residual of a linear system
    distance,  ///< the derivative is taken at an iterate, not at the solution
    rounding,  ///< of the iterate and of the derivative
  } dominant = Term::rounding;
  double bound = std::numeric_limits<double>::infinity();      ///< the error is at most this
  double relative = std::numeric_limits<double>::infinity();   ///< the bound over the norm of the derivative
  double estimate = std::numeric_limits<double>::quiet_NaN();  ///< what the error most likely is; NaN: cannot be told
  double value = 0;                                            ///< norm of the derivative it is about
  double left_out = 0, from_distance = 0, rounding = 0;        ///< the terms; their sum is the bound
  double rho = 0;       ///< the next step over the last one: the contraction that was seen
  double distance = 0;  ///< from x_k to the solution, at most
  double L_J = 0;       ///< how fast the derivative changes with x, as it was seen
  double norm_B = 0;    ///< ‖∂F/∂θ‖ on what was certified
  int products = 0;     ///< vjps or jvps of the step for it; by x and by θ at one point is one
  std::string reason;   ///< why there is no bound, or what it rests on
  std::string advice;   ///< what would lower the bound, or give one
  /// One JSON object.
  ///
  ///     std::string line = s.certificate(s.x()).json();
  std::string json() const;
};
std::ostream& operator<<(std::ostream& out, const Certificate& certificate);

namespace detail {
struct SolutionState;
}

/// What a solver converged to, and its derivatives. Cheap to copy; copies share their memory and must not be used from two
/// threads at once. Before the first solve of a Prepared there is nothing in it: everything but copying throws MisuseError.
///
///     Solution s = solve(fit, zeros({13}), w, OneStep{});
///     Array g = s.vjp(s.x());   // ∇θ of ‖x(θ)‖²/2
class Solution {
 public:
  /// A part of the state.
  Array x(std::size_t part = 0) const;
  /// All parts.
  Parts state() const;
  Status status() const;
  /// Of an infeasible quadratic program: multipliers, in the places of the state's, with Aᵀy + Gᵀz + w = 0 whose sum with
  /// the bounds is -1. Of an unbounded one: a direction x along which the objective falls for ever. Throws Error otherwise.
  ///
  ///     if (s.status() == Status::infeasible) std::cout << s.proof()[1] << '\n';
  Parts proof() const;
  /// The status in a sentence, with what it is about.
  std::string message() const;
  const Statistics& statistics() const&;
  Statistics statistics() const&&;

  /// (dx/dθ)ᵀ c: one cotangent for each part of the state (those left out are zero), one array for each parameter. Throws
  /// Error when the solve did not converge, or when its step is seen not to contract where derivatives of steps are taken,
  /// unless even_if_unconverged() was called.
  Parts vjp(const Parts& c) const;
  /// (dx/dθ) v: one tangent for each parameter, one array for each part of the state.
  Parts jvp(const Parts& v) const;
  /// dx/dθ: a matrix for each parameter, with a row for each entry of the state and a column for each of the parameter.
  /// Takes whichever side has fewer directions.
  Parts jacobian() const;
  /// The same without allocating (but for Implicit, whose linear solvers do): `out` has memory for each parameter, or for
  /// all parts one behind the other.
  void vjp_into(std::span<const std::span<const double>> c, std::span<const std::span<double>> out) const;
  void jvp_into(std::span<const Array> v, std::span<double> out) const;
  /// How the last derivative came about.
  const DerivativeReport& report() const&;
  DerivativeReport report() const&&;

  /// How wrong vjp(c) can be. Costs about three vjps, and what it takes to measure the constants that are not given.
  Certificate certificate(const Parts& c) const;
  /// The same for jvp(v).
  Certificate certificate_jvp(const Parts& v) const;

  /// The same solution, whose derivatives are given even if the solve did not converge, or its step does not contract. This
  /// one and its other copies still refuse.
  ///
  ///     Array g = s.even_if_unconverged().vjp(s.x());
  Solution even_if_unconverged() const;

  // For the library.
  explicit Solution(std::shared_ptr<detail::SolutionState> state) : state_(std::move(state)) {}
  detail::SolutionState& internals() const { return *state_; }
  bool is_shared() const;  ///< whether there are copies

 private:
  /// Throws MisuseError, naming `who`, before the first solve.
  detail::SolutionState& solved(const char* who) const;
  /// The same, with this copy's permission to differentiate what did not converge.
  detail::SolutionState& to_differentiate(const char* who) const;
  std::shared_ptr<detail::SolutionState> state_;
  bool even_if_unconverged_ = false;
};

/// Solves and hands back a Solution that differentiates as `estimator` says. Throws Error for shapes or options that do not
/// fit; numerical trouble is a status.
///
///     Solution s = solve(fit, zeros({13}), {w, 0.1}, Implicit{});
Solution solve(const Solver& solver, const Parts& x0, const Parts& theta, const Estimator& estimator = {});
/// From the start the solver was given with Solver::from.
Solution solve(const Solver& solver, const Parts& theta, const Estimator& estimator = {});

/// A solver prepared for given shapes: solves again and again without tracing, planning or allocating. One for each thread.
///
/// It is the promise that nothing the solver's lambdas capture changes: they are called when it is made, never again, and
/// what depends on their data alone is computed once. Where data change, call solve(), or make another Prepared.
///
///     Prepared again(fit, x0, w, OneStep{});
///     Array x = again.solve(x0, other_w).x();
class Prepared {
 public:
  Prepared(const Solver& solver, const Parts& x0, const Parts& theta, const Estimator& estimator = {});
  /// With the start the solver was given with Solver::from, or none where it needs none.
  Prepared(const Solver& solver, const Parts& theta, const Estimator& estimator = {});
  /// The reference is to the last Solution and changes with the next solve; a copy of it does not (the next solve then
  /// allocates memory of its own).
  ///
  ///     Prepared fast(fit, x0, w); Solution a = fast.solve(x0, w), b = fast.solve(x0, other_w);
  const Solution& solve(const Parts& x0, const Parts& theta) &;
  Solution solve(const Parts& x0, const Parts& theta) && { return solve(x0, theta); }
  /// From the start it was prepared with.
  ///
  ///     Prepared project(quadratic_program([](Expr t) { return TracedProgram{.Q = eye(3), .q = -t, .lo = 0.0}; }),
  ///     zeros(3)); Array x = project.solve(Array{2.0, 0.5, -1.0}).x();
  const Solution& solve(const Parts& theta) &;
  Solution solve(const Parts& theta) && { return solve(theta); }
  /// What the next solves stop on, and whom they tell. Checked by the next solve, which throws MisuseError for a value out
  /// of range.
  ///
  ///     Prepared again(fit, x0, w);
  ///     again.options().tolerance = 1e-4;
  SolveOptions& options() & { return options_; }
  /// The last Solution; before the first solve there is nothing in it, and it throws MisuseError.
  const Solution& solution() const&;
  Solution solution() const&&;

  // For the library: what is solved from x0 is the problem of `made`.
  Prepared(Parts x0, Solution made);

 private:
  Parts x0_;
  SolveOptions options_;
  Solution solution_;
};

}  // namespace onestep
