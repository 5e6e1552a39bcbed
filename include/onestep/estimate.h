// Derivatives of what a solver converges to, by any of the paper's methods, and how wrong each can be.
#pragma once

#include <functional>
#include <iosfwd>
#include <limits>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "onestep/export.h"
#include "onestep/solver.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// The derivative of the last step alone, ∂F/∂θ at x_{k-1}: as cheap as a derivative can be. Its error is ρ‖B‖/(1-ρ) plus a
/// term that vanishes with the length of the last step; ρ is 0 for Newton and interior point methods.
///
///     Solution s = solve(fit, x0, w, OneStep{});
struct OneStep {};

/// The derivative of the last K steps: the error falls with ρ^K. Keeps the last K states. Of Newton's method those steps are
/// taken as full ones; where one of them cannot be made so, only the later ones count. Steps that the solve did not make,
/// because a warm start began close to the solution, are made when the derivative is asked for (DerivativeReport::further).
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
/// After a warm start too few were made for their derivative to have converged: further steps are then made at x_k, until
/// what another one would add is within SolveOptions::tolerance (DerivativeReport::further). Of a solve that did not
/// converge, differentiated with even_if_unconverged(), it is the derivative of the iterates alone.
///
///     Solution s = solve(slow, x0, w, Unrolled{.mode = Unrolled::reverse, .memory = 1 << 20});
struct Unrolled {
  /// forward carries dx/dθ·v along; reverse goes back over the states. automatic: jvp forward, vjp in reverse.
  enum class Mode { automatic, forward, reverse };
  using enum Mode;
  Mode mode = automatic;
  /// Bytes for states. Reverse keeps as many as fit and recomputes the others from binomial checkpoints (Revolve).
  std::size_t memory = std::size_t{1} << 30;
};

/// One step where that meets the tolerance, else the linear system of implicit differentiation by a Krylov method (GMRES),
/// as exactly as the tolerance asks for: decided at each call, where the direction is known. The tolerance is for the
/// derivative at x_k; how far that is from the solution is the solver's tolerance, and the certificate counts it. Where the
/// tolerance could not be met, DerivativeReport::met_tolerance says so.
///
///     Solution s = solve(slow, x0, w, Auto{.tolerance = 1e-8});
struct Auto {
  double tolerance = 1e-6;  ///< relative to the norm of what is returned
};

/// How a Solution differentiates. Where none is named it is the solver's own (Solver::with); else OneStep for superlinear
/// methods (Newton's, interior point), whose last step has the derivative of the solution, and Auto for all others.
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
  /// No estimator was named: the solver or its method decides.
  bool by_method() const { return by_method_; }

 private:
  Kind kind_;
  bool by_method_ = false;
};

/// How the last derivative was computed, and what it cost.
///
///     s.vjp(c);
///     if (!s.report().met_tolerance) std::cerr << "relative residual " << s.report().residual << '\n';
struct DerivativeReport {
  std::string method;                 ///< the estimator that gave it; of Auto the one it chose
  Status status = Status::converged;  ///< of the linear solve; converged where there is none
  double residual = 0;                ///< reached by the linear solve, relative
  int products = 0;                   ///< derivatives of the step or the equation that were evaluated
  int factorisations = 0;             ///< made for it: none where that of the solve is used
  int steps = 0;                      ///< steps that were computed again
  int further = 0;                    ///< steps beyond those the solve made, after a warm start
  int terms = 0;                      ///< iterations of Auto's GMRES
  double flops = 0;                   ///< where the costs are known
  bool met_tolerance = true;          ///< of Auto: its estimate of the error is within its tolerance
};

/// What is known about the error of a derivative; the norm is Euclidean, in the space of what was returned.
///
/// An observed bound compares the derivative with a better one, computed by GMRES at a point nearer to the solution. It is
/// the difference, plus an extrapolation from that point to the solution, plus rounding, with safety factors: a heuristic
/// like the error estimate of an ODE solver, and no proof. It is printed rounded up:
///
///     std::cout << s.certificate(s.x()) << '\n';   // error <= 3.1e-13 (observed), 2.2e-13 of the derivative; ...
///
/// A refused one has a reason and advice instead, printed as `no bound: REASON; ADVICE`:
///
///     const Certificate c = s.certificate(s.x());
///     if (c.basis == Certificate::Basis::refused) std::cerr << c.reason << '\n';
///     else if (c.dominant == Certificate::Term::distance) std::cerr << c.advice << '\n';
struct Certificate {
  enum class Basis {
    proven,    ///< a rigorous enclosure; reserved: no bound of this version is one
    observed,  ///< a heuristic with safety factors: what was seen at and near the last iterate
    refused,   ///< no bound: `reason` says why
  } basis = Basis::refused;
  /// The bound is the sum of three terms; `dominant` is the largest.
  enum class Term {
    left_out,  ///< what the estimator does not compute: later Neumann terms, the residual of a linear system
    distance,  ///< the derivative is taken at an iterate, not at the solution
    rounding,  ///< of the iterate and of the derivative
  } dominant = Term::rounding;
  double bound = std::numeric_limits<double>::infinity();      ///< on the error; infinite where refused
  double relative = std::numeric_limits<double>::infinity();   ///< the bound over the norm of the derivative
  double estimate = std::numeric_limits<double>::quiet_NaN();  ///< what the error most likely is; NaN: cannot be told
  double value = 0;                                            ///< norm of the derivative it is about
  double left_out = 0, from_distance = 0, rounding = 0;        ///< the terms; their sum is the bound
  double rho = 0;       ///< contraction: the length of the next step over that of the last; Constants::rho where given
  double distance = 0;  ///< from x_k to the solution, at most, as observed
  double L_J = 0;       ///< change of the derivative over change of x, as observed
  double norm_B = 0;    ///< ‖∂F/∂θ‖ as observed on what was certified; Constants::norm_B where given
  int products = 0;     ///< vjps or jvps of the step that it cost; by x and by θ at one point is one
  std::string reason;   ///< why there is no bound, or what the bound is based on
  std::string advice;   ///< what would lower the bound, or give one
  /// One JSON object.
  ///
  ///     std::string line = s.certificate(s.x()).json();
  std::string json() const;
};
std::ostream& operator<<(std::ostream& out, const Certificate& certificate);

namespace detail {
struct ONESTEP_HIDDEN SolutionState;
struct ONESTEP_HIDDEN SolutionAccess;
}  // namespace detail

/// What a solver converged to, and its derivatives. Cheap to copy; copies share their memory and must not be used from two
/// threads at once. Before the first solve of a Prepared it is empty: everything but copying throws MisuseError.
///
///     Solution s = solve(fit, zeros({13}), w, OneStep{});
///     Array g = s.vjp(s.x());   // ∇θ of ‖x(θ)‖²/2
class Solution {
 public:
  /// A part of the state; throws MisuseError where there is none of that number.
  ///
  ///     Array x = s.x(), multipliers = s.x(1);
  Array x(std::size_t part = 0) const;
  /// The entries of all parts one behind the other, without a copy. They stay until the next solve of the Prepared that this
  /// came from, or until the last copy of this Solution is gone.
  ///
  ///     std::span<const double> all = s.entries();
  std::span<const double> entries() const&;
  std::span<const double> entries() const&& = delete;
  /// All parts.
  ///
  ///     Solution again = solve(fit, s.state(), other_w);  // a warm start
  Parts state() const;
  /// How the solve ended.
  ///
  ///     if (!is_solution(s.status())) std::cerr << s.message() << '\n';
  Status status() const;
  /// Of an infeasible quadratic program: multipliers, in the places of the state's, with Aᵀy + Gᵀz + w = 0 whose sum with
  /// the bounds is -1. Of an unbounded one: a direction x along which the objective is unbounded below. Throws MisuseError
  /// otherwise.
  ///
  ///     if (s.status() == Status::infeasible) std::cout << s.proof()[1] << '\n';
  Parts proof() const;
  /// What the status is about, an array or an iteration for example; empty where there is nothing more to say.
  ///
  ///     if (s.status() == Status::not_finite) std::cerr << "look at: " << s.about() << '\n';
  std::string about() const;
  /// The status in a sentence, with what it is about, and what proof() has where there is one.
  ///
  ///     std::cerr << s.message() << '\n';
  std::string message() const;
  /// What the solve cost.
  ///
  ///     int iterations = s.statistics().iterations;
  const Statistics& statistics() const&;
  Statistics statistics() const&&;

  /// (dx/dθ)ᵀ c: one cotangent for each part of the state (those left out are zero), one array for each parameter.
  ///
  /// This and the other derivatives throw
  /// - NotConvergedError when the solve did not end at a solution,
  /// - NoDerivativeError when the derivative does not exist or could not be computed: the linear system is singular, the
  ///   result is not finite, or the step does not contract although the estimator differentiates steps,
  /// - MisuseError when shapes do not fit, or when the step lacks the derivative that the estimator needs.
  ///
  /// even_if_unconverged() permits the first two, where there is anything to return.
  ///
  ///     try {
  ///       Array g = s.vjp(s.x());
  ///     } catch (const NotConvergedError& e) {
  ///       std::cerr << explain(e.status) << '\n';
  ///     } catch (const NoDerivativeError& e) {
  ///       std::cerr << e.reason << '\n';
  ///     }
  Parts vjp(const Parts& c) const;
  /// (dx/dθ) v: one tangent for each parameter, one array for each part of the state. Throws as vjp does.
  ///
  ///     Array dx = s.jvp(w);
  Parts jvp(const Parts& v) const;
  /// dx/dθ: a matrix for each parameter, with a row for each entry of the state and a column for each of the parameter.
  /// Takes whichever side has fewer directions, up to 32 of them together; `between` is called before each of these groups,
  /// and what it throws goes through to the caller. Throws as vjp does.
  ///
  ///     Array J = s.jacobian();
  Parts jacobian(const std::function<void()>& between = {}) const;
  /// The same without allocating (but for Implicit, whose linear solvers do): `out` has memory for each parameter, or for
  /// all parts one behind the other.
  ///
  ///     const std::span<const double> cotangents[] = {value};
  ///     const std::span<double> results[] = {gradient};
  ///     s.vjp_into(cotangents, results);
  void vjp_into(std::span<const std::span<const double>> c, std::span<const std::span<double>> out) const;
  void jvp_into(std::span<const Array> v, std::span<double> out) const;
  /// How the last derivative was computed.
  ///
  ///     int products = s.report().products;
  const DerivativeReport& report() const&;
  DerivativeReport report() const&&;

  /// How wrong vjp(c) can be. Goes to a point nearer to the solution, solves the linear system there, and compares: what
  /// vjp(c) returned, or that derivative computed again where another one was asked for last. For a superlinear method that
  /// costs a few iterations of the solve; for others at most ten vjps beyond a matrix-free Implicit solve to 1e-3, which is
  /// not made where Implicit or Auto left its solution, and more only next to a kink. Certificate::products says how much.
  /// Certificates of one Solution share the nearer point. Throws MisuseError for shapes that do not fit; whatever else is
  /// wrong is a refusal, with its reason.
  ///
  ///     Certificate how_wrong = s.certificate(s.x());
  Certificate certificate(const Parts& c) const;
  /// The same for jvp(v).
  ///
  ///     Certificate how_wrong = s.certificate_jvp(w);
  Certificate certificate_jvp(const Parts& v) const;

  /// A copy whose derivatives are returned even if the solve did not converge, the linear system is singular or the step
  /// does not contract. This object and its other copies still throw.
  ///
  ///     Array g = s.even_if_unconverged().vjp(s.x());
  Solution even_if_unconverged() const;

 private:
  friend struct detail::SolutionAccess;
  friend class Prepared;
  explicit Solution(std::shared_ptr<detail::SolutionState> state) : state_(std::move(state)) {}
  detail::SolutionState& internals() const {
    if (!state_) detail::fail_moved_from("Solution");
    return *state_;
  }
  bool is_shared() const;  ///< whether there are copies
  /// Throws MisuseError, naming `who`, before the first solve.
  detail::SolutionState& solved(const char* who) const;
  /// The same, with this copy's permission to differentiate what did not converge.
  detail::SolutionState& to_differentiate(const char* who) const;
  std::shared_ptr<detail::SolutionState> state_;
  bool even_if_unconverged_ = false;
};

/// Solves and returns a Solution that differentiates as `estimator` says, see Estimator for the default. Calls the solver's
/// lambdas, so that data they capture may have changed since the last solve. Throws MisuseError for shapes or options that
/// do not fit; numerical trouble is a status.
///
///     Solution s = solve(fit, zeros({13}), {w, 0.1}, Implicit{});
Solution solve(const Solver& solver, const Parts& x0, const Parts& theta, const Estimator& estimator = {});
/// From the start the solver was given with Solver::from.
///
///     Solution s = solve(fit.from(zeros(13)), w);
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
  ///                      zeros(3));
  ///     Array x = project.solve(Array{2.0, 0.5, -1.0}).x();
  const Solution& solve(const Parts& theta) &;
  Solution solve(const Parts& theta) && { return solve(theta); }
  /// What the next solves stop on, and whom they tell. Checked by the next solve, which throws MisuseError for a value out
  /// of range.
  ///
  ///     Prepared again(fit, x0, w);
  ///     again.options().tolerance = 1e-4;
  SolveOptions& options() & { return options_; }
  /// The last Solution; before the first solve it is empty, and its members throw MisuseError.
  const Solution& solution() const&;
  Solution solution() const&&;

 private:
  friend struct detail::SolutionAccess;
  /// What is solved from x0 is the problem of `made`.
  Prepared(Parts x0, Solution made);
  Parts x0_;
  SolveOptions options_;
  Solution solution_;
};

}  // namespace onestep
ONESTEP_EXPORT_END
