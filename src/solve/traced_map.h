// Maps that were traced: value and all derivatives are one plan, so that they share what they compute, the factorisation
// above all.
#pragma once

#include <functional>
#include <mutex>
#include <optional>

#include "onestep/plan.h"
#include "solve/map.h"

namespace onestep::detail {

/// What a solver's step is, in expressions of the flat state x, the parameters and the controls.
struct TracedStep {
  Expr next;                     ///< F(x, θ), flat
  std::vector<Expr> extras;      ///< what the solver wants to know beside it
  std::optional<Factor> factor;  ///< kept for Point::precondition
};
using StepBody = std::function<TracedStep(const Expr& x, std::span<const Expr> theta, std::span<const Expr> controls)>;

/// How often a control changes; with it changes what is computed from it.
enum class Control { per_solve = 1, per_step = 2, within_step = 3 };

class TracedMap final : public Map, public std::enable_shared_from_this<TracedMap> {
 public:
  TracedMap(std::vector<Shape> state_parts, std::vector<Input> its_parameters, std::vector<Control> controls,
            const StepBody& body, bool is_symmetric);
  std::unique_ptr<Point> point(bool derivatives) const override;
  std::string not_finite_constant() const override;
  std::unique_ptr<ForwardPoint> forward() const override;

 private:
  friend class TracedPoint;
  friend class TracedForwardPoint;
  Plan plan_forward() const;
  Function trace_value(const StepBody& body) const;
  Function trace_family(const StepBody& body, bool with_vjp, bool with_jvp);

  std::vector<Control> controls_;
  std::vector<Shape> extras_;
  bool symmetric_factor_ = true;
  std::optional<Function> traced_;
  std::optional<Plan> value_;   // the step alone
  std::optional<Plan> family_;  // the step and its derivatives
  mutable std::once_flag forward_once_;
  mutable std::optional<Plan> forward_;  // the step and its tangent; made when first asked for
};

/// The parts of a flat state, as expressions.
std::vector<Expr> parts_of(const Expr& x, std::span<const Shape> parts);
/// One vector of all parts. Throws Error, naming `who`, unless they have these shapes.
Expr joined(const char* who, std::span<const Expr> parts, std::span<const Shape> shapes);

}  // namespace onestep::detail
