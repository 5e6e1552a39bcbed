// Bilevel optimisation: minimise g(x(θ), θ) over θ, where x(θ) is what a solver converges to.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <limits>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "onestep/estimate.h"
#include "onestep/export.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// A parameter of the inner problem that is optimised: where it starts, where it may lie, how it is moved.
///
///     Parameter weight = Parameter::positive(Array{1.0, 1.0}).within(1e-6, 1e6);
struct Parameter {
  enum class Kind : std::uint8_t {
    real,      ///< moved as it is
    positive,  ///< its logarithm is moved
    unit,      ///< in (0, 1): its logit, log θ/(1-θ), is moved
    fixed,     ///< not moved: the solver takes it, but it is given
  };
  Array start;
  Kind kind = Kind::real;
  double low = -std::numeric_limits<double>::infinity();  ///< no entry goes below
  double high = std::numeric_limits<double>::infinity();  ///< or above

  static Parameter real(Array start) { return {std::move(start), Kind::real}; }
  static Parameter positive(Array start) { return {std::move(start), Kind::positive}; }
  static Parameter unit(Array start) { return {std::move(start), Kind::unit}; }
  static Parameter fixed(Array value) { return {std::move(value), Kind::fixed}; }
  /// The same with bounds.
  Parameter within(double lowest, double highest) const { return {start, kind, lowest, highest}; }
};

/// An inner problem and what its solution is judged by: a solver, its start (none, as Parts(), where it needs none), and g
/// as a lambda of the parts of x, and of the parameters if it depends on them.
///
///     Inner inner(fit, zeros(13), [&](Expr x) { return sum(softplus(-valid.y * matmul(valid.A, x))); });
struct Inner {
  template <class F>
  Inner(Solver its_solver, Parts its_start, F g, Estimator its_estimator = {})
      : solver(std::move(its_solver)),
        start(std::move(its_start)),
        objective(detail::body_of(std::move(g))),
        estimator(std::move(its_estimator)) {}

  Solver solver;
  Parts start;
  detail::Body objective;
  Estimator estimator;
};

/// Steps against the hypergradient: u ← u - step · ∇, or with a length that is searched for (Armijo) where `step` is 0.
///
///     Outcome o = minimise({inner}, {Parameter::positive(1.0)}, Descent{.step = 0.1});
struct Descent {
  double step = 0;
};

/// Adam (Kingma and Ba 2015): for many parameters and hypergradients of changing size.
///
///     Outcome o = minimise({inner}, {Parameter::positive(1.0)}, Adam{.step = 0.05});
struct Adam {
  double step = 0.05;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
};

/// L-BFGS with bounds: parameters at a bound that the hypergradient pushes against stay there, the others follow the
/// quasi-Newton direction, and the search goes along its projection.
///
///     Outcome o = minimise({inner}, {Parameter::positive(1.0)}, Lbfgs{.memory = 20});
struct Lbfgs {
  int memory = 10;  ///< steps remembered
};

/// The method of the outer iteration.
///
///     OuterMethod how = Adam{.step = 0.1};
using OuterMethod = std::variant<Lbfgs, Descent, Adam>;

/// An outer iteration, as the callback and the history have it.
///
///     BilevelOptions impatient{.callback = [](const OuterIteration& i) { return i.seconds < 60; }};
struct OuterIteration {
  int number = 0;       ///< 0 for the start
  double value = 0;     ///< g
  double critical = 0;  ///< see BilevelOptions::tolerance
  double norm = 0;      ///< of the hypergradient with respect to what is moved, less what pushes against bounds
  double length = 0;    ///< of the step, relative to the full one
  double inner_tolerance = 0;
  int inner_iterations = 0;        ///< of all inner problems, since the start
  double seconds = 0;              ///< since the start, those before a resume included
  std::vector<double> theta = {};  ///< entries of all parameters that are moved, when asked for
};

/// When the outer iteration stops, how accurately inner problems are solved, and whom it tells.
///
///     BilevelOptions options{.tolerance = 1e-6, .checkpoint = "tune.checkpoint"};
struct BilevelOptions {
  /// Stop when no parameter can lower g by more than this share of it: the largest |∇ᵢ| max(1, |uᵢ|) is at most
  /// tolerance · |g|, with u what is moved (a logarithm, a logit, or the parameter) and ∇ the derivative by it. A relative
  /// test: it knows neither the unit of g nor how many samples it sums over. Where g falls below a millionth of its first
  /// value that is taken instead.
  double tolerance = 1e-5;
  int max_iterations = 200;
  /// Seconds, those before a resume included; looked at after each inner iteration.
  double time_limit = std::numeric_limits<double>::infinity();
  /// Called after each outer iteration; false cancels. What it throws goes through to the caller.
  std::function<bool(const OuterIteration&)> callback = {};
  /// Asked between inner iterations whether to stop, from several threads at once.
  std::function<bool()> cancelled = {};
  /// Inner problems start from their last answer, not from their start.
  bool warm = true;
  /// Inner tolerances follow the outer progress: a hundredth of what the stopping test has reached, never tighter than the
  /// solver's own, which is used before stopping. Otherwise the solver's own is used throughout.
  bool adaptive = true;
  /// Whether the inner problems' certificates bound the error of the last hypergradient, which costs as much as some solves.
  bool certified = true;
  /// Whether the history has the parameters.
  bool path = false;
  /// A file that the state is written to, atomically, so that a run which is killed goes on from there and ends with the
  /// same bits. An existing one is resumed from: it must be of the same problem, with the same parameters (the values of
  /// fixed ones too), estimators, inner tolerances and outer method. What may differ is how much is allowed: iterations,
  /// time, and Implicit::max_iterations. Empty: none.
  std::string checkpoint = {};
  /// Upper limit on the fraction of the run time spent writing checkpoints.
  double checkpoint_share = 0.01;
  /// What else tells this problem from others with the same shapes, such as the name of the data or the options of the
  /// inner solver: a checkpoint of another one is refused. Without it other data is noticed by the value of g alone.
  std::string identity = {};
};

/// What `minimise` ended with.
///
///     Outcome o = minimise({inner}, {Parameter::positive(1.0)});
///     std::cout << o << '\n';
struct Outcome {
  Status status = Status::iteration_limit;
  std::string about;          ///< what the status is about, where there is more to say
  bool inner_failed = false;  ///< the status is that of an inner problem
  bool uncertain = false;     ///< converged, but the bound on the hypergradient's error is far above its norm
  Parts theta;                ///< all parameters
  std::vector<Parts> x;       ///< the states of the inner problems
  double value = 0;           ///< g
  Parts hypergradient;        ///< with respect to the parameters
  double critical = 0;        ///< see BilevelOptions::tolerance; NaN like `norm` where the last hypergradient fell short
  /// The hypergradient with respect to what is moved, less what pushes against bounds: its norm, and a bound on its error,
  /// as the certificates of the inner problems observed it. The norm of the true hypergradient is at most `norm + bound`.
  double norm = 0;
  double bound = std::numeric_limits<double>::infinity();
  std::string bound_rests_on;                ///< `observed`; or why there is no bound (refused)
  std::vector<std::size_t> at_low, at_high;  ///< entries of what is moved, one behind the other, that ended at a bound
  int iterations = 0, evaluations = 0;       ///< evaluations: of g, each a solve of all inner problems
  int hypergradients = 0;
  /// Of these, where the linear system of an inner problem's derivative was not solved (DerivativeReport::status: at its
  /// limit of iterations, or singular, with a residual above 1e-6). Such a hypergradient is still a direction to search
  /// along, and the run goes on; but where the last one is of them `norm` and `critical` are NaN, the status is that of the
  /// linear system, never `converged`, and `about` says what to try.
  int fell_short = 0;
  int inner_iterations = 0, inner_factorisations = 0;
  double seconds = 0, inner_seconds = 0, hypergradient_seconds = 0;  ///< all; in inner solves; in derivatives
  double checkpoint_seconds = 0;  ///< in writing checkpoints, since the start or the last resume
  bool resumed = false;
  std::vector<OuterIteration> history;

  /// The status in a sentence, with what it is about.
  std::string message() const;
};
/// `converged in 12 iterations: 0.3417, hypergradient 2.1e-09, wrong by at most 3e-12 (observed)`
std::ostream& operator<<(std::ostream& out, const Outcome& outcome);

/// Σ gᵢ(xᵢ(θ), θ) at given parameters, without a derivative: what a search over a grid needs. Each call starts from the
/// solutions of the last one that was solved. One for each thread; inner problems are solved in parallel.
///
///     OuterValue loss({inner}, Parts(1.0));
///     double at_two = loss(Parts(2.0));
class OuterValue {
 public:
  /// `theta` has the shapes of the parameters. `cancelled` is asked between inner iterations, from several threads at once.
  /// Throws MisuseError for shapes that do not fit.
  OuterValue(const std::vector<Inner>& inner, const Parts& theta, const std::function<bool()>& cancelled = {});
  ~OuterValue();
  OuterValue(OuterValue&&) noexcept;
  OuterValue& operator=(OuterValue&&) noexcept;

  /// The value; infinity where an inner problem has no solution there, and status() says why.
  double operator()(const Parts& theta);
  /// The next call starts from the starts of the inner problems: its bits do not depend on what was asked before.
  void forget();
  /// Of the last call: converged, or the status of the first inner problem that was not solved.
  Status status() const;

 private:
  struct ONESTEP_HIDDEN State;
  std::unique_ptr<State> state_;
};

/// Minimises Σ gᵢ(xᵢ(θ), θ) over θ, where xᵢ(θ) is what the solver of the i-th inner problem converges to. Inner problems,
/// such as the folds of a cross-validation, are solved in parallel; results have the same bits for any number of threads.
/// Throws MisuseError for shapes and options that do not fit, FileError for a checkpoint of another problem, one in use or
/// one that cannot be written; numerical trouble is a status. Where the hypergradient is exactly zero, its values beside
/// that point tell whether g has a kink there (line_search_failed) or falls away from it. Where an inner problem cannot be
/// solved, or its step is seen not to contract although the estimator differentiates steps (`diverged`), a search takes a
/// shorter step; at the start, or where the length is given, the run ends.
///
///     Outcome o = minimise({inner}, {Parameter::positive(1.0)}, Lbfgs{}, {.tolerance = 1e-6});
Outcome minimise(const std::vector<Inner>& inner, const std::vector<Parameter>& parameters,
                 const OuterMethod& method = Lbfgs{}, const BilevelOptions& options = {});

}  // namespace onestep
ONESTEP_EXPORT_END
