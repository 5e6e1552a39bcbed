// Checks the derivatives of a traced function at a point, in every mode and up to third order, and those of a step: what the
// library uses on itself, for functions of your own and for foreign code you gave derivatives to.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "onestep/export.h"
#include "onestep/function.h"
#include "onestep/solver.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// What check_gradients looks at, and how closely.
///
///     GradientCheckOptions options;
///     options.order = 1;                        // a foreign function has first derivatives only
///     options.differentiable = {true, false};   // the second input is data
struct GradientCheckOptions {
  /// Derivatives up to this order, 1 to 3. Each order differentiates the one below it both ways.
  int order = 3;
  /// Relative error allowed between a derivative and differences of what it is the derivative of. The differences are
  /// extrapolated from several step sizes and mostly good for 1e-9; a function that bends sharply near the point needs more.
  double tolerance = 1e-7;
  /// Relative error allowed where two computations differ by rounding alone: the planned run against the naive interpreter,
  /// ⟨u, jvp(v)⟩ against ⟨vjp(u), v⟩, and the several ways to one second or third derivative. Ill-conditioned solves need
  /// more.
  double rounding = 1e-11;
  /// Where the random directions come from; the same seed gives the same check.
  std::uint64_t seed = 1;
  /// Which inputs to differentiate by, all of them jointly; empty: all. Leave out data, and inputs the function is not
  /// smooth in.
  std::vector<bool> differentiable;
};

/// One comparison: what was claimed, how far off it was and how far it may be.
///
///     for (const GradientComparison& c : check.comparisons()) std::cout << c.claim << ": " << c.error << '\n';
struct GradientComparison {
  std::string claim;  ///< `jvp = differences of the value`
  double error = 0;   ///< relative to the scale of what is compared
  double tolerance = 0;
  std::string detail;  ///< more about a comparison that failed
  /// Whether the claim holds; an error that is not a number does not.
  bool ok() const { return error <= tolerance; }
};

/// What check_gradients found: true when every comparison holds; prints as a list of them.
///
///     GradientCheck check = check_gradients(f, std::vector<Array>{x, w});
///     if (!check) std::cerr << check << '\n';
class GradientCheck {
 public:
  explicit GradientCheck(std::vector<GradientComparison> comparisons) : comparisons_(std::move(comparisons)) {}

  /// Whether every comparison holds.
  bool ok() const;
  explicit operator bool() const { return ok(); }
  /// A line for each comparison with its error and tolerance.
  ///
  ///     if (!check.ok()) std::cerr << check.message();
  std::string message() const;
  std::span<const GradientComparison> comparisons() const& { return comparisons_; }
  std::vector<GradientComparison> comparisons() const&& { return comparisons_; }

 private:
  std::vector<GradientComparison> comparisons_;
};

std::ostream& operator<<(std::ostream& out, const GradientCheck& check);

/// Compares, at the point `inputs` and along random directions v and w, with random weights u on the results:
///
/// - the planned run with the naive interpreter, for the function and for each derivative below,
/// - order 1: jvp(v) with differences; ⟨u, jvp(v)⟩ with ⟨vjp(u), v⟩,
/// - order 2: the jvp of the vjp with differences of the vjp, with the vjp of the jvp and the vjp of the vjp; its symmetry,
/// - order 3: the jvp of that with differences of it, with the gradient of ⟨w, second derivative v⟩; its symmetry,
/// - the errors for a missing input and for one of the wrong shape, which must be the same in every mode.
///
/// The point should not be on a kink (a tie of maximum, 0 for abs), where a derivative is a choice and differences have
/// nothing to say. A matrix that goes into cholesky or ldlt must be symmetric in every direction: write such a function in
/// terms of what the matrix is made from. Throws MisuseError when the inputs do not fit or an option is out of range.
///
///     Function f = traced([](Expr x) { return sum(softplus(x)); }, Shape{3});
///     GradientCheck check = check_gradients(f, {Array{0.1, -2.0, 3.0}});
GradientCheck check_gradients(const Function& f, std::span<const Array> inputs, const GradientCheckOptions& options = {});
inline GradientCheck check_gradients(const Function& f, std::initializer_list<Array> inputs,
                                     const GradientCheckOptions& options = {}) {
  return check_gradients(f, std::span(inputs.begin(), inputs.size()), options);
}

/// The same for a step that is not traced: its jvp with differences of apply, ⟨c, jvp(d)⟩ with ⟨vjp(c), d⟩, for x and for θ,
/// alone and together; that what is left out counts as zero; and that outputs are written, not added to. Of the options
/// only tolerance, rounding and seed are looked at.
///
///     ForeignStep half{.apply = [](auto x, auto theta, auto next) { next[0] = 0.5 * (x[0] + theta[0](0) / x[0]); },
///                      .jvp = [](auto x, auto theta, auto dx, auto dtheta, auto out) {
///                        const double a = theta[0](0), by_x = dx.empty() ? 0 : 0.5 * (1 - a / (x[0] * x[0])) * dx[0];
///                        out[0] = by_x + (dtheta.empty() ? 0 : 0.5 / x[0] * dtheta[0](0));
///                      }};
///     GradientCheck check = check_gradients(half, Array{1.5}, Array{2.0});
GradientCheck check_gradients(const ForeignStep& step, const Parts& x, const Parts& theta,
                              const GradientCheckOptions& options = {});
/// The same for the step of a solver (undamped; with the step size it has for a start at x).
///
///     GradientCheck check = check_gradients(fit, x, w);
GradientCheck check_gradients(const Solver& solver, const Parts& x, const Parts& theta,
                              const GradientCheckOptions& options = {});

}  // namespace onestep
ONESTEP_EXPORT_END
