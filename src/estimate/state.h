// What a Solution consists of, and what an estimator is to it.
#pragma once

#include <algorithm>
#include <concepts>

#include "backend/context.h"
#include "onestep/estimate.h"
#include "solve/recipe.h"

namespace onestep::detail {

struct SolutionState;
class Refinement;

/// How a solution is differentiated. One for each solution: it may keep what several derivatives share.
class Differentiator {
 public:
  virtual ~Differentiator() = default;
  virtual const char* name() const = 0;
  /// Whether the estimator requires a contraction: elsewhere its result does not converge to the derivative of the solution.
  virtual bool needs_contraction() const { return true; }
  /// Called once, before the first solve: says which states of the trajectory to keep.
  virtual void prepare(SolutionState&) {}
  /// Called before each solve: drops what was kept of the last one.
  virtual void forget() {}
  virtual void vjp(SolutionState& s, ConstVector c, std::span<const Vector> out) = 0;
  virtual void jvp(SolutionState& s, std::span<const Array> v, Vector out) = 0;
  /// Advice for the certificate: what would leave less out.
  virtual const char* advice() const { return "Implicit{} leaves nothing out but what its tolerance allows"; }
  /// Which matrix at x_k a factor is at hand of: I - A, or that of the equation.
  enum class FactorOf : std::uint8_t { nothing, step, equation };
  virtual FactorOf factor_of() const { return FactorOf::nothing; }
  /// r = M⁻¹ r by that factor, or with the transpose.
  virtual void solve_by_factor(bool /*transposed*/, Vector /*r*/) {}
  /// Several directions at once, for those that can share work among them.
  virtual void vjps(SolutionState& s, std::span<const ConstVector> cs, std::span<const std::vector<Vector>> outs);
  virtual void jvps(SolutionState& s, std::span<const std::vector<Array>> vs, std::span<const Vector> outs);
};

/// Properties of an estimator that others need before there is a solution. Each is stated in the estimator's own file.
struct EstimatorFacts {
  int last_steps = 0;            ///< that it differentiates, where these are the last few; else 0
  bool goes_over_steps = false;  ///< needs a solver whose steps can be made again
  /// Whether a Jacobian is made row by row (by vjps), where the estimator does not leave that to the shapes.
  std::optional<bool> by_rows = std::nullopt;
};
EstimatorFacts facts_of(const OneStep&);
EstimatorFacts facts_of(const KStep&);
EstimatorFacts facts_of(const Implicit&);
EstimatorFacts facts_of(const Unrolled&);
EstimatorFacts facts_of(const Auto&);
/// Of any of them. A kind without a function of its own does not compile here: it must not become an Estimator once more.
EstimatorFacts facts_of(const std::same_as<Estimator> auto& estimator) {
  return std::visit([](const auto& kind) { return facts_of(kind); }, estimator.kind());
}
/// Its name, with those of its options that decide the derivative, not how much work it may take.
std::string text_of(const OneStep&);
std::string text_of(const KStep&);
std::string text_of(const Implicit&);
std::string text_of(const Unrolled&);
std::string text_of(const Auto&);
std::string text_of(const std::same_as<Estimator> auto& estimator) {
  return std::visit([](const auto& kind) { return text_of(kind); }, estimator.kind());
}

std::unique_ptr<Differentiator> make(const OneStep&);
std::unique_ptr<Differentiator> make(const KStep&);
std::unique_ptr<Differentiator> make(const Implicit&);
/// Implicit whose linear systems are solved until the error that they leave in the derivative is within this, relative: that
/// is the residual it reports, where the solver has an inverse that tells.
std::unique_ptr<Differentiator> make_aiming(double goal);
std::unique_ptr<Differentiator> make(const Unrolled&);
std::unique_ptr<Differentiator> make(const Auto&);

/// The solution of the estimator's last linear solve, for the certificate to start from: u with (I - A)ᵀu = c at x_k, up to
/// a factor.
struct LastAdjoint {
  std::vector<double> c, u;
  bool is_of(ConstVector other) const { return !c.empty() && std::ranges::equal(c, other); }
};

/// The derivative that was asked for last, for its certificate.
struct Returned {
  std::vector<double> cotangent, tangent;  ///< flat; empty where none was
  std::vector<std::vector<double>> vjp;
  std::vector<double> jvp;
  DerivativeReport of_vjp, of_jvp;
  bool allow_unconverged = false;  ///< of the Solution that asked
};

/// What rounding.cpp keeps for all directions: H⁻¹ times the rounding error of G, and vectors that H and Hᵀ shorten most.
struct RoundingSeen {
  bool is_known = false;      // of this solve
  bool terms_cancel = false;  // inside G: it is rounded by far more than H times the rounding of x
  std::vector<double> of_x, weak_right, weak_left;
  std::vector<std::vector<double>> rest, moved;  // memory for cotangents of the parameters
};

struct SolutionState {
  SolutionState() = default;
  SolutionState(const SolutionState&) = delete;
  SolutionState& operator=(const SolutionState&) = delete;
  ~SolutionState();

  std::shared_ptr<const Method> method;
  std::unique_ptr<Loop> loop;
  SolveOptions options;
  Context context;
  Estimator estimator = OneStep{};
  bool estimator_is_named = true;  ///< by the caller or the solver; not: by the method alone
  std::unique_ptr<Differentiator> differentiator;
  std::vector<Array> theta;
  Run run;
  DerivativeReport report;
  bool solved = false;                     ///< a solve has ended
  bool allow_unconverged = false;          ///< of the Solution that asks for a derivative
  bool contracts = false;                  ///< the step of this solve was found to contract
  std::vector<double> cotangent, tangent;  ///< memory for vjp_into and jvp_into
  std::vector<double> power, next_power;   ///< and for growth()
  LastAdjoint last_adjoint;
  Returned returned;
  std::shared_ptr<Refinement> refinement;             ///< made when a certificate first asks for it
  std::vector<std::unique_ptr<Point>> of_refinement;  ///< its points, which serve every solve
  double seen_inverse = 1;                            ///< ‖(I - A)⁻¹‖, as linear solves saw it
  bool probed = false;                                ///< see probe_inverse
  bool repels = false;                                ///< linear solves saw an eigenvalue of A above 1
  std::optional<double> size_of_b;                    ///< see norm_b
  std::optional<bool> degenerate;                     ///< see is_degenerate
  RoundingSeen rounding;                              ///< of a superlinear method, see certify.h
  std::vector<double> for_rounding;                   ///< memory

  void note_inverse(double seen) { seen_inverse = std::max(seen_inverse, seen); }
  std::size_t size() const { return run.x.size(); }
  /// The parts the user knows, and their entries, which are the first of the state.
  std::span<const Shape> parts() const;
  std::size_t shown_size() const { return flat_size(parts()); }
  void solve(std::span<const Array> x0, std::span<const Array> its_theta);
  /// To be held while anything is computed.
  parallel::UsePool on_its_threads() const { return parallel::UsePool(pool_of(context)); }

  /// The step at x_{k-1}, as the last iteration left it, undamped.
  Point& last();
  /// The step at x_k, and F(x_k); and the equation there, where the method has one, and its residual.
  Point& here();
  ConstVector next();
  Point& equation();
  ConstVector residual();
  /// The step at other states, and the method's equation: apply it first.
  Point& scratch_point();
  Point& beside();

  /// Of the loop and of the points above, so far.
  Work work() const;

  /// Sum of Bᵀc over what is wanted, with memory for one more of them.
  void add_vjp_theta(Point& p, ConstVector c, std::span<const Vector> out);

 private:
  std::unique_ptr<Point> start_, here_, equation_, scratch_point_, beside_;
  bool last_ready_ = false, here_ready_ = false, equation_ready_ = false, scratch_point_ready_ = false,
       beside_ready_ = false;
  std::vector<double> scratch_, next_, residual_;  // the last two: empty where they are not known
  std::vector<std::vector<double>> parts_;
  std::vector<Vector> part_spans_;
};

/// The solver's method and start for these parameters; of a solver with other steps for estimators that go over them, those.
Recipe::Ready ready(const Recipe& recipe, const Parts* x0, std::span<const Shape> theta, const Estimator& estimator);

/// A solver that has become a method for given shapes, and what its solutions are made with.
struct Settled {
  std::shared_ptr<const Method> method;
  Parts start;  ///< the one given, else the solver's own
  SolveOptions options;
  Context context;
  Estimator estimator;
  bool estimator_is_named = true;  ///< by the caller or the solver; not: by the method alone
  Solution make() const;           ///< nothing is solved yet
};
Settled settle(const Solver& solver, const Parts* start, const Parts& theta, const Estimator& named);
/// Throws MisuseError unless start and parameters have the shapes that the method was made for.
void check_shapes(const SolutionState& state, const Parts& x0, const Parts& theta);

/// Implicit differentiation makes the matrix and factors it up to this size when it may choose.
inline constexpr std::size_t dense_up_to = 200;

/// Throws MisuseError unless the map has the derivative; names the estimators that do without it.
void need_jvp(const Map& map, const char* estimator);
void need_vjp(const Map& map, const char* estimator);

/// Growth factor of the step at x_k for each application, once transients have died out: an estimate of the spectral radius
/// of A.
double growth(SolutionState& state);

/// The reason, if the estimator requires a contraction and the step does not contract; else empty.
std::string no_contraction(SolutionState& state);

/// Reports a degenerate solution as singular.
void note_degeneracy(SolutionState& state);

/// Whether a superlinear method converged only linearly: the matrix of its equation is singular at the solution then. What
/// is computed with it at x_k, where it is not, means nothing. Observed along the last step, once for each solve.
bool is_degenerate(SolutionState& state);

/// Estimate of the Frobenius norm of B = ∂F/∂θ at x_k, from one random cotangent, once for each solve. Rounding of B is
/// relative to it, whatever the direction. 0 where there is no vjp.
double norm_b(SolutionState& state);
/// The usual size of B, ‖x‖/‖θ‖: terms of that size may cancel inside a step, and leave their rounding in a B that is far
/// smaller.
double usual_b(const SolutionState& state);

/// The status of one of several directions: the worst of them is reported.
void note_status(DerivativeReport& report, Status status);
/// Records the relative residual of a linear solve in the report, and sets its status where that is above `tolerance`.
void note_residual(DerivativeReport& report, double residual, double tolerance);
/// The same of a linear system that the last derivative at the point solved inside, where there is one.
void note_inner_solve(DerivativeReport& report, Point& point);

/// Entries of all tangents, one behind the other.
std::vector<double> flat_tangent(std::span<const Array> v);

using Parameters = std::vector<std::vector<double>>;  ///< a vector for each parameter

/// The same as memory that results are put in.
class Views {
 public:
  std::span<const Vector> of(Parameters& p) { return all_.assign(p.begin(), p.end()), all_; }

 private:
  std::vector<Vector> all_;
};

/// Zeros for one cotangent of each parameter.
Parameters memory_for(const std::vector<Input>& parameters);
double norm(const Parameters& p);
void add_to(Parameters& to, const Parameters& what, double factor = 1);

/// What a Solution is made of.
struct SolutionAccess {
  static Solution make(std::shared_ptr<SolutionState> state) { return Solution(std::move(state)); }
  static SolutionState& state(const Solution& solution) { return solution.internals(); }
  static bool is_shared(const Solution& solution) { return solution.is_shared(); }
  static Prepared prepared(Parts x0, Solution made) { return {std::move(x0), std::move(made)}; }
};
inline SolutionState& state_of(const Solution& solution) { return SolutionAccess::state(solution); }

}  // namespace onestep::detail
