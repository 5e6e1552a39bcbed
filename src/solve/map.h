// The contract in which solvers, estimators and the certificate meet: a map F(x, θ) with its derivatives at a point. The
// state is one flat vector (its parts lie one behind the other), parameters are arrays. A step is a map; so is the residual
// of the equation it solves, and a start that depends on θ.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "linear/vector.h"
#include "onestep/function.h"

namespace onestep::detail {

/// The linear system M d = r that a step solves, of which M may precondition others: a factorisation, or an iteration.
class Inverse {
 public:
  virtual ~Inverse() = default;
  /// r ← M⁻¹r, or M⁻ᵀr, at the point of the last apply. An iterative inverse stops at this relative residual; 0 selects the
  /// accuracy of derivatives.
  virtual void solve(bool transposed, Vector r, double residual) = 0;
  /// Whether M is factored, so that a solve costs little; else it is solved by an iteration.
  virtual bool is_factored() const = 0;
};

/// Derivatives that solve a linear system of their own, by an iteration that may fall short.
class InnerSolve {
 public:
  virtual ~InnerSolve() = default;
  virtual double residual() const = 0;   ///< that the last derivative was solved to, relative
  virtual double tolerance() const = 0;  ///< a residual above it fell short
  /// From now on it is solved as exactly as rounding allows, for finding out how exact the others are; the step itself too,
  /// from the point of the last apply. Returns an upper estimate of the length of the exact step: its computed length and
  /// the error that its residual leaves; infinite where it could not be solved.
  virtual double solve_precisely() { return 0; }
};

/// How wrong a derivative can be, in the norm of what was returned: the sum of what the linear solve left, of x_k not being
/// the solution, and of rounding. Infinite where it cannot be told, with the reason.
struct ErrorTerms {
  double left_out = 0, from_distance = 0, rounding = 0;
  std::string reason;  ///< why there is no bound; empty: there is
};

/// What a point has done so far.
struct Work {
  int factorisations = 0;
  int products = 0;  ///< with the matrix of a linear system that is solved by an iteration
};

/// A place where a map is evaluated, with the memory for it: one for each thread. Keeps what the derivatives there need (a
/// factorisation above all), so that they cost no second evaluation.
class Point {
 public:
  virtual ~Point() = default;
  /// The parameters from now on. They are referenced, not copied: they must stay unchanged.
  virtual void bind(std::span<const Array> theta) = 0;
  /// y = F(x, θ). `controls` are what the solver decided for this step (its length, a shift); they are not differentiated.
  /// False when a factorisation failed: y is then NaN.
  virtual bool apply(ConstVector x, ConstVector controls, Vector y) = 0;
  /// The same with other controls at the point of the last apply; what does not depend on them is kept.
  virtual bool control(ConstVector controls, Vector y) = 0;

  // At the point of the last apply, A = ∂F/∂x and B = ∂F/∂θ. None allocates.
  virtual void jvp_x(ConstVector dx, Vector out) = 0;                      ///< A dx
  virtual void vjp_x(ConstVector c, Vector out) = 0;                       ///< Aᵀ c
  virtual void jvp_theta(std::span<const Array> dtheta, Vector out) = 0;   ///< B dθ
  virtual void vjp_theta(ConstVector c, std::span<const Vector> out) = 0;  ///< Bᵀ c, one for each parameter
  /// Where the last apply was; empty before the first.
  virtual ConstVector where() const = 0;

  // What only some points have; null where this one has not.
  virtual Inverse* inverse() { return nullptr; }
  virtual InnerSolve* inner_solve() { return nullptr; }
  virtual Work work() const { return {}; }
};

/// Steps taken together with their tangents, one after the other: what depends on θ and its direction alone is computed once
/// for all of them. One for each thread.
class ForwardPoint {
 public:
  virtual ~ForwardPoint() = default;
  /// The parameters and their direction from now on; referenced, not copied.
  virtual void bind(std::span<const Array> theta, std::span<const Array> dtheta) = 0;
  /// y = F(x, θ) and dy = A dx + B dθ. Neither may lie where x or dx does.
  virtual void step(ConstVector x, ConstVector controls, ConstVector dx, Vector y, Vector dy) = 0;
};

/// Functions that are zero where an operation of a map has a kink (event functions). One for each thread.
class Switches {
 public:
  virtual ~Switches() = default;
  /// The values of all of them.
  virtual std::vector<double> at(ConstVector x, std::span<const Array> theta, ConstVector controls) = 0;
};

/// Multiply-adds of one call of each kind.
struct Costs {
  double apply = 0, jvp_x = 0, vjp_x = 0, jvp_theta = 0, vjp_theta = 0, precondition = 0;
  double product = 0;  ///< with the matrix of a linear system inside; not included in the other counts
};

class Map {
 public:
  virtual ~Map() = default;
  virtual std::unique_ptr<Point> point(bool derivatives) const = 0;
  /// None where nothing is gained over apply, jvp_x and jvp_theta of a point.
  virtual std::unique_ptr<ForwardPoint> forward() const { return nullptr; }

  /// F as a graph of the flat x and the parameters, with these controls and its data as constants; none where it was not
  /// traced. For what is read off graphs: structure, sparsity, bounds.
  virtual std::optional<Function> graph(ConstVector /*controls*/) const { return std::nullopt; }

  /// None where kinks cannot be told from outside.
  virtual std::unique_ptr<Switches> switches() const { return nullptr; }

  /// The same map of other data (the arrays a traced lambda closed over), with the plans of this one; none where a map has
  /// no data.
  virtual std::shared_ptr<const Map> with_data(const std::vector<Array>&) const { return nullptr; }

  /// A constant the map was traced over that has a NaN or an infinity among its entries, in words; empty: none has.
  virtual std::string not_finite_constant() const { return {}; }

  std::vector<Shape> state;  ///< of the parts
  std::vector<Input> parameters;
  std::string no_jvp, no_vjp;        ///< why there is none; empty: there is
  bool infinite_parameters = false;  ///< bounds may be infinite
  bool symmetric = false;            ///< A = Aᵀ
  bool identity = false;             ///< of an equation: A = I
  bool smooth = true;                ///< no kink is to be expected
  bool affine = false;               ///< A does not depend on x
  bool constant_b = false;           ///< B does not depend on x
  bool is_constant() const { return affine && constant_b; }
  Costs costs;

  std::size_t size() const;  ///< of the flat state
};

/// The sum of the sizes, checked.
std::size_t flat_size(std::span<const Shape> parts);
/// Entries of all parts, one behind the other.
void flatten(std::span<const Array> parts, Vector flat);
std::vector<Array> unflatten(ConstVector flat, std::span<const Shape> parts);
/// Throws MisuseError, naming `who` and `what`, unless the arrays have these shapes.
void check_shapes(const char* who, const char* what, std::span<const Array> given, std::span<const Shape> wanted);

/// Arrays with each entry moved, and by how much.
struct Perturbed {
  std::vector<Array> theta, moves;
};
/// `by` returns the move of an entry; entries are counted through all arrays. `size` is the largest finite entry of its
/// array, 1 where all are zero.
Perturbed perturbed(std::span<const Array> theta, const std::function<double(std::size_t entry, double size)>& by);

/// The index of the first array with a NaN or an infinity, or -1.
int first_not_finite(std::span<const Array> arrays);

}  // namespace onestep::detail
