// Solvers: an iterative algorithm with its options, made from a traced lambda or from callbacks. A solver knows nothing of
// derivatives; estimate.h differentiates what it converges to.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "onestep/context.h"
#include "onestep/export.h"
#include "onestep/function.h"
#include "onestep/parts.h"
#include "onestep/quadratic_program.h"
#include "onestep/solve_options.h"
#include "onestep/status.h"
#include "onestep/traced_program.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// What is known about a map F(x, θ), for the bounds of certificates. Negative: not known. They are compared with what was
/// seen: where rho is 1 or more, or the last steps shrank by less than rho says, the certificate is refused.
/// gradient_descent without momentum or backtracking, given mu and L, knows its own rho.
///
///     Constants known{.rho = 0.9, .L_A = 0.0, .L_J = 0.0};
struct Constants {
  /// ‖∂F/∂x‖ is at most this: ‖(I - ∂F/∂x)⁻¹‖ is then at most 1/(1-rho), whatever GMRES saw.
  double rho = -1;
  /// Lipschitz constant of ∂F/∂x as a function of x. Where it is given together with L_J, the certificate uses both instead
  /// of extrapolating to the solution, and does not look for kinks.
  double L_A = -1;
  double L_J = -1;     ///< the same for ∂F/∂θ
  double norm_B = -1;  ///< ‖∂F/∂θ‖ is at most this; reported as Certificate::norm_B
};

class Estimator;
class Solver;
namespace detail {
struct ONESTEP_HIDDEN Recipe;
struct ONESTEP_HIDDEN SolverAccess;
Expr solve_node(const Solver& solver, std::span<const Expr> theta);

// A lambda of k expressions, k found by trying.
struct Body {
  std::function<std::vector<Expr>(std::span<const Expr>)> call;
  std::size_t arguments = 0;
};
template <class F, std::size_t... i> constexpr bool takes(std::index_sequence<i...>) {
  return std::is_invocable_v<const F&, decltype((void(i), std::declval<const Expr&>()))...>;
}
template <class F, std::size_t k = 1> constexpr std::size_t arity() {
  if constexpr (takes<F>(std::make_index_sequence<k>())) {
    return k;
  } else if constexpr (k < 16) {
    return arity<F, k + 1>();
  } else {
    static_assert(k < 16, "a step or an objective is a lambda of Exprs: the parts of the state, then the parameters");
    return k;
  }
}
template <class F> Body body_of(F f) {
  constexpr std::size_t k = arity<F>();
  return {[f = std::move(f)](std::span<const Expr> in) {
            return [&]<std::size_t... i>(std::index_sequence<i...>) { return results(f(in[i]...)); }
            (std::make_index_sequence<k>());
          },
          k};
}
inline Body body_of(Body body) { return body; }
}  // namespace detail

/// A step written by hand or differentiated by another library: any C++ code. The state is one vector (parts one behind the
/// other), parameters are arrays. Either derivative may be left out; an estimator that needs it then throws MisuseError
/// and names those that do not. Called from one thread at a time for each solution; give it no state, or state that may be
/// shared.
///
///     ForeignStep half{.apply = [](auto x, auto theta, auto next) { next[0] = 0.5 * (x[0] + theta[0](0) / x[0]); }};
struct ForeignStep {
  using Vector = std::span<double>;
  using ConstVector = std::span<const double>;
  using Thetas = std::span<const Array>;
  /// next = F(x, θ)
  std::function<void(ConstVector x, Thetas theta, Vector next)> apply;
  /// out = (∂F/∂x) dx + (∂F/∂θ) dθ; dx or dθ is empty where it is zero.
  std::function<void(ConstVector x, Thetas theta, ConstVector dx, Thetas dtheta, Vector out)> jvp = {};
  /// x_bar = (∂F/∂x)ᵀ c and theta_bar[i] = (∂F/∂θᵢ)ᵀ c; either is empty where it is not wanted.
  std::function<void(ConstVector x, Thetas theta, ConstVector c, Vector x_bar, std::span<const Vector> theta_bar)> vjp = {};
};

/// An algorithm and its options, ready for any start and parameters. Cheap to copy; safe to share between threads.
///
/// Each solve() calls the solver's lambdas again (one thread at a time), so that data they capture by reference may change
/// between two solves. Plans are kept: where a lambda traces the same operations they serve again, with the arrays of this
/// call. So is the memory of a small problem, which the next solve uses again once its Solution is gone. A number is part of
/// the operations: where one changes from solve to solve, make it a parameter, or the solver plans anew. Prepared calls them
/// once, and is the promise that nothing they capture changes.
///
///     Solver fit = newton([&](Expr x, Expr w) { return sum(w * softplus(-y * matmul(A, x))) + 0.1 * sum(square(x)); });
class Solver {
 public:
  /// The same, starting from these arrays where no start is given.
  ///
  ///     Solution s = solve(fit.from(zeros(13)), w);
  Solver from(Parts x0) const;
  /// The same, starting from x₀(θ), a lambda of the parameters. Unrolled carries its derivative.
  ///
  ///     Solver warm = fit.from([](Expr w) { return 0.1 * slice(w, 0, 13); });
  template <class F>
  requires(!std::is_convertible_v<F, Parts>) Solver from(F start)
  const { return from_body(detail::body_of(std::move(start))); }
  /// The same, with other options.
  ///
  ///     Solver quick = fit.with({.tolerance = 1e-4, .max_iterations = 20});
  Solver with(SolveOptions options) const;
  /// The same, with constants for its certificates.
  ///
  ///     Solver contracting = slow.knowing({.rho = 0.9});
  Solver knowing(Constants constants) const;
  /// The same, differentiated by this estimator wherever none is named: by solve, Prepared and minimise, and inside traced
  /// functions.
  ///
  ///     Solver exact = slow.with(Implicit{.tolerance = 1e-13});
  Solver with(const Estimator& estimator) const;
  /// The same, with the equation G(x, θ) = 0 that implicit differentiation is to use instead of the solver's own.
  ///
  ///     Solver damped = fixed_point([](Expr x, Expr theta) { return 0.5 * (x + log(theta - x)); });
  ///     Solver halved = damped.equation([](Expr x, Expr theta) { return exp(x) + x - theta; });
  template <class F>
  requires(!std::is_same_v<F, ForeignStep>) Solver equation(F residual)
  const { return with_equation(detail::body_of(std::move(residual))); }
  /// The same for an equation that is not traced: `apply` writes G(x, θ), jvp and vjp are those of G.
  ///
  ///     ForeignStep G{.apply = [](auto x, auto theta, auto value) { value[0] = x[0] * x[0] - theta[0](0); }};
  ///     Solver with_root = slow.equation(G);
  Solver equation(ForeignStep residual) const;

  /// The same solver in a context: its solves, and the derivatives of their solutions, use the threads of that.
  ///
  ///     Solver on_two = fit.on(Context({.threads = 2}));
  Solver on(const Context& context) const;

  /// Inside a traced function: what the solver converges to, as a node. Its start must have been given with from(). A state
  /// of one part keeps its shape; several are one vector, one behind the other, as x, y, z and the bounds' multipliers of a
  /// quadratic program are: slice(project(c), 0, n) is its x. Where the solve fails the node is NaN, and so are its
  /// derivatives. How it is differentiated is said by with(). The default of newton and newton_root is KStep{2}, whose
  /// derivatives are right up to the third order; that of other superlinear methods is KStep{1}, and that of all others
  /// Auto. OneStep and KStep{1} are right to first derivatives only, the other estimators have no second ones.
  ///
  ///     Expr x = fit.from(zeros({13}))(w);
  template <class... Thetas> Expr operator()(const Thetas&... theta) const {
    const Expr all[] = {Expr(theta)...};
    return detail::solve_node(*this, all);
  }

 private:
  friend struct detail::SolverAccess;
  explicit Solver(std::shared_ptr<const detail::Recipe> recipe) : recipe_(std::move(recipe)) {}
  Solver from_body(detail::Body start) const;
  Solver with_equation(detail::Body residual) const;
  std::shared_ptr<const detail::Recipe> recipe_;
};

namespace detail {
Solver make_fixed_point(const Body& step, const SolveOptions& options);
Solver make_newton(const Body& objective, const SolveOptions& options);
Solver make_newton_root(const Body& residual, const SolveOptions& options);
}  // namespace detail

/// x ← F(x, θ) until it stands still. The lambda takes the parts of the state, then the parameters, and returns the parts.
///
///     Solver root = fixed_point([](Expr x, Expr theta) { return 0.5 * (x + theta / x); });
template <class F>
requires(!std::is_same_v<std::remove_cvref_t<F>, ForeignStep>) Solver fixed_point(F step, const SolveOptions& options = {}) {
  return detail::make_fixed_point(detail::body_of(std::move(step)), options);
}
/// The same for a step that is not traced.
///
///     ForeignStep half{.apply = [](auto x, auto theta, auto next) { next[0] = 0.5 * (x[0] + theta[0](0) / x[0]); }};
///     Solver root = fixed_point(half);
Solver fixed_point(ForeignStep step, const SolveOptions& options = {});

/// How long gradient descent's steps are.
///
///     GradientStep s = GradientStep::fixed(0.1), t = GradientStep::optimal(0.5, 4.0);
struct GradientStep {
  enum class Kind { fixed, inverse_smoothness, optimal, backtracking } kind = Kind::inverse_smoothness;
  double alpha = 0;      ///< fixed: the step; backtracking: the first one tried
  double mu = 0, L = 0;  ///< smallest and largest eigenvalue of the Hessian; 0: measured at the start by Lanczos' method

  static GradientStep fixed(double alpha) { return {Kind::fixed, alpha, 0, 0}; }
  /// 1/L. The contraction factor is 1 - μ/L.
  static GradientStep inverse_smoothness(double L = 0) { return {Kind::inverse_smoothness, 0, 0, L}; }
  /// 2/(μ + L), the fastest constant step for a quadratic: the contraction factor is (L - μ)/(L + μ).
  static GradientStep optimal(double mu = 0, double L = 0) { return {Kind::optimal, 0, mu, L}; }
  /// Halved until the objective decreases enough (Armijo), doubled after each success.
  static GradientStep backtracking(double first = 1) { return {Kind::backtracking, first, 0, 0}; }
};

/// How gradient descent remembers its last step. The state then has a second part, what x was before; a start may leave it
/// out.
///
///     Momentum m = Momentum::nesterov(0.9);
struct Momentum {
  enum class Kind { none, heavy_ball, nesterov } kind = Kind::none;
  double beta = 0;
  static Momentum none() { return {}; }
  /// x⁺ = x - α∇f(x) + β (x - x⁻)
  static Momentum heavy_ball(double beta) { return {Kind::heavy_ball, beta}; }
  /// x⁺ = y - α∇f(y) with y = x + β (x - x⁻)
  static Momentum nesterov(double beta) { return {Kind::nesterov, beta}; }
};

/// The variant of gradient descent: the lengths of its steps and its momentum.
///
///     GradientDescent accelerated{.step = GradientStep::fixed(0.1), .momentum = Momentum::nesterov(0.9)};
struct GradientDescent {
  GradientStep step = {};
  Momentum momentum = {};
};

namespace detail {
Solver make_gradient_descent(const Body& objective, const GradientDescent& how, const SolveOptions& options);
}  // namespace detail

/// Gradient descent on f(x, θ), given as a lambda of the parts of x and the parameters that returns a number. It ends at a
/// stationary point; a start that is one, and no minimum by the Hessian there, is left by a displacement of 1e-8 relative to
/// |x| (Statistics::restarts).
///
///     Solver slow = gradient_descent([](Expr x, Expr t) { return sum(square(x - t)); },
///                                    {.step = GradientStep::fixed(0.1)});
template <class F>
Solver gradient_descent(F objective, const GradientDescent& method = {}, const SolveOptions& options = {}) {
  return detail::make_gradient_descent(detail::body_of(std::move(objective)), method, options);
}

/// Newton's method for a minimiser of f(x, θ): Armijo backtracking, full steps near the solution, and a shift of the Hessian
/// where it is not positive definite (Statistics::shifts says how often). Stops on the length of its step.
///
///     Solver fit = newton([&](Expr x, Expr w) { return sum(w * softplus(-y * matmul(A, x))) + 0.1 * sum(square(x)); });
template <class F> Solver newton(F objective, const SolveOptions& options = {}) {
  return detail::make_newton(detail::body_of(std::move(objective)), options);
}
/// Newton's method for a root of G(x, θ) = 0, with as many equations as unknowns; the line search is on ‖G‖²/2. Where that
/// ends at a minimum of ‖G‖ that is not a root, or at a singular Jacobian, the method starts again farther out along the
/// last direction, at most 16 times (Statistics::restarts); where all of them end like this so does the solve, with the
/// status line_search_failed or singular.
///
///     Solver circle = newton_root([](Expr x, Expr r) { return sum(square(x)) - square(r); });
template <class F> Solver newton_root(F residual, const SolveOptions& options = {}) {
  return detail::make_newton_root(detail::body_of(std::move(residual)), options);
}

/// How newton_cg solves its linear systems.
///
///     NewtonCgOptions how{.derivative_tolerance = 1e-12};
struct NewtonCgOptions {
  /// The residual of the linear system in a derivative of the exact Newton step, relative to its right-hand side. The error
  /// of the derivative is at most this times the condition of the Hessian, and about this where cotangents are spread over
  /// its eigenvectors, as those of a validation loss are. A tenth of the digits costs a tenth of the products: looser where
  /// a descent direction is all that is wanted, tighter down to about 1e-14. The certificate counts what was left.
  /// Where the solve itself is less exact than ten times this (SolveOptions::tolerance), so is the linear system.
  double derivative_tolerance = 1e-10;
  /// The first step of a solve needs no more than a direction; a factor 10 smaller saves an iteration where evaluating the
  /// objective costs more than a few products with the Hessian. Later steps are solved as exactly as they will be good for
  /// (Eisenstat and Walker's second choice).
  double first_residual = 0.5;
  /// Of one linear system: where the Hessian is so near to singular that more are needed, the step is what was reached by
  /// then, and a derivative has the status rounding_reached, or singular where its residual is above 1e-6.
  int max_products = 5000;
  /// r ← M⁻¹ r for a symmetric positive definite M near the Hessian: fewer products by as much as M is near. Called from
  /// several threads at once where solves are. None by default.
  std::function<void(std::span<double> r)> preconditioner = {};
};

namespace detail {
Solver make_newton_cg(const Body& objective, const NewtonCgOptions& how, const SolveOptions& options);
}  // namespace detail

/// Newton's method for a minimiser of f(x, θ) with thousands of unknowns: the Hessian is never formed. Each step solves
/// Newton's equation by conjugate gradients, from products with the Hessian that cost about two gradients, as exactly as is
/// useful so far from the solution; where the Hessian is not positive definite it goes along what was found by then
/// (Statistics::shifts says how often). Armijo backtracking, full steps near the solution, stops on the length of its step.
///
/// OneStep and KStep differentiate exact Newton steps, J = -H⁻¹ ∂(∇f - Hd)/∂θ with d the step, constant: one more linear
/// system, solved by conjugate gradients to NewtonCgOptions::derivative_tolerance, and two products. Implicit solves on
/// ∇f = 0 at x_k to its own tolerance (with the whole matrix up to 200 unknowns). Unrolled is refused: a step that was cut
/// short has no derivative of its own. Where the Hessian is singular x is one of several minimisers, the derivative has the
/// status singular and its certificate refuses.
///
///     Solver fit = newton_cg([&](Expr x, Expr w, Expr l2) {
///       Expr s = matmul(A, x);
///       return sum(w * (log_sum_exp(s, 1) - sum(Y * s, 1))) + 0.5 * l2 * sum(square(x));
///     });
template <class F> Solver newton_cg(F objective, const NewtonCgOptions& how = {}, const SolveOptions& options = {}) {
  return detail::make_newton_cg(detail::body_of(std::move(objective)), how, options);
}

namespace detail {
struct ProgramBody {
  std::function<TracedProgram(std::span<const Expr>)> call;
  std::size_t arguments = 0;
};
Solver make_quadratic_program(const ProgramBody& program, const SolveOptions& options);
}  // namespace detail

/// The tolerance of a quadratic program is that of its residuals and of its gap, each relative to the largest of its terms.
///
///     SolveOptions tighter = quadratic_program_options();
///     tighter.tolerance = 1e-11;
inline SolveOptions quadratic_program_options() { return {.tolerance = 1e-9, .max_iterations = 200}; }

/// Solves quadratic programs by a primal-dual interior point method, with dense matrices: to some thousand variables. The
/// lambda takes the parameters and returns the program; the state has four parts: x, the multipliers y of the equalities, z
/// of the rows, and those of the bounds, signed so that Qx + q + Aᵀy + Gᵀz + bounds = 0. It needs no start (one that is
/// given is where it begins, unless the estimator goes over its steps, which begin by themselves).
///
///     Solver project = quadratic_program([](Expr c) { return TracedProgram{.Q = eye(3), .q = -c, .lo = 0.0, .hi = 1.0}; });
///     Array on_box = solve(project, Array{2.0, 0.5, -1.0}).x();
template <class F>
requires(!std::is_convertible_v<F, SolveOptions>) Solver
    quadratic_program(F program, const SolveOptions& options = quadratic_program_options()) {
  constexpr std::size_t k = detail::arity<F>();
  return detail::make_quadratic_program({[program = std::move(program)](std::span<const Expr> in) {
                                           return [&]<std::size_t... i>(std::index_sequence<i...>)->TracedProgram {
                                             return program(in[i]...);
                                           }
                                           (std::make_index_sequence<k>());
                                         },
                                         k},
                                        options);
}
/// The same with all data as parameters, in the order of QuadraticProgram: Q, q, A, b, G, l, u, lo, hi.
///
///     Solution s = solve(quadratic_program(), parts_of(p), Implicit{});
///     Array of_b = s.vjp(s.x())[3];
Solver quadratic_program(const SolveOptions& options = quadratic_program_options());

/// The nine arrays of a program, each in its full shape.
///
///     Parts data = parts_of(p);
Parts parts_of(const QuadraticProgram& program);

/// The equation G(x, θ) = 0 that the solution of a solver solves, as a graph of the flat state (its parts one behind the
/// other) and the parameters: the gradient for newton, newton_cg and gradient_descent, G for newton_root, x - F(x, θ) for
/// fixed_point, the solver's own where it was given one with Solver::equation; the same for a solver with a loop of yours.
/// What the lambdas capture are constants of it. Throws MisuseError where the equation was not traced: of a ForeignStep, a
/// quadratic program, or gradient descent with momentum.
///
///     Function G = equation_of(fit, x0, w);
///     Array residual = evaluate(G, std::vector<Array>{solve(fit, x0, w).x(), w})[0];
Function equation_of(const Solver& solver, const Parts& x0, const Parts& theta);

}  // namespace onestep
ONESTEP_EXPORT_END
