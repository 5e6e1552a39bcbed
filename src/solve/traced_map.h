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
  std::optional<Factor> factor;  ///< kept for Point::inverse
};
/// `theta` has the parameters, and behind them the data of the map.
using StepBody = std::function<TracedStep(const Expr& x, std::span<const Expr> theta, std::span<const Expr> controls)>;

/// How often a control changes; with it changes what is computed from it.
enum class Control { per_solve = 1, per_step = 2, within_step = 3 };

/// How often inputs of the plans change: what a plan is told.
constexpr int data_level = 0, theta_level = 1, x_level = 2, step_level = 3, point_level = 4;
/// The branches of the plan of a step with its derivatives, in the order of their inputs and results.
enum Branch : int {
  vjp_theta_branch = point_level + 1,
  vjp_x_branch,
  jvp_theta_branch,
  jvp_x_branch,
  solve_branch,
  solve_transposed_branch
};

class TracedMap final : public Map, public std::enable_shared_from_this<TracedMap> {
 public:
  /// `body` is called once; plans are for the backend of the context. Where derivatives are not sure to be asked for, they
  /// are planned when they are: `costs` are then not known.
  enum class Derivatives { planned, when_asked };
  TracedMap(std::vector<Shape> state_parts, std::vector<Input> its_parameters, std::vector<Array> data,
            std::vector<Control> controls, const StepBody& body, bool is_symmetric, const Context& context,
            Derivatives derivatives = Derivatives::planned);
  std::unique_ptr<Point> point(bool derivatives) const override;
  std::string not_finite_constant() const override;
  std::unique_ptr<ForwardPoint> forward() const override;
  std::optional<Function> graph(ConstVector controls) const override;
  std::unique_ptr<Switches> switches() const override;
  std::shared_ptr<const Map> with_data(const std::vector<Array>& data) const override { return with(data); }
  std::shared_ptr<const TracedMap> with(const std::vector<Array>& data) const;

 private:
  friend class TracedPoint;
  friend class TracedForwardPoint;
  friend class TracedSwitches;
  /// A plan that is made when it is first asked for, by whichever thread asks first.
  struct LazyPlan {
    template <class Make> const Plan& made(const Make& make) {
      std::call_once(once, [&] { plan.emplace(make()); });
      return *plan;
    }
    std::once_flag once;
    std::optional<Plan> plan;
  };
  /// What maps that differ in their data alone have in common.
  struct Shared {
    Context context;
    std::vector<Control> controls;
    std::vector<Shape> extras;
    bool has_factor = false, symmetric_factor = true;
    std::optional<Function> step;    ///< x, θ, data, controls and two right-hand sides to next, extras and solves
    std::optional<Function> family;  ///< the same, and its derivatives
    LazyPlan value_plan, family_plan, forward_plan, switches_plan;
    std::size_t switch_count = 0;  ///< once that plan is made
  };
  std::vector<Input> step_inputs() const;
  std::vector<int> step_levels() const;
  Function differentiate(bool with_vjp, bool with_jvp) const;
  void note_structure(bool with_vjp, bool with_jvp);
  const Plan& value_plan() const;
  const Plan& family_plan() const;
  const Plan& forward_plan() const;

  std::shared_ptr<Shared> shared_;
  std::vector<Array> data_;
};

/// A point that also has what its solver asked to know beside F(x, θ), such as the value of the objective.
class ExtraPoint : public Point {
 public:
  virtual ConstVector extra(std::size_t i) const = 0;  ///< in the order of TracedStep::extras
  /// The next apply computes anew what depends on the data of the lambda alone.
  virtual void read_data_again() = 0;
};
/// Of a map that was traced, with its derivatives.
std::unique_ptr<ExtraPoint> point_with_extras(const Map& map);

inline Shape vector_shape(std::size_t n) { return {static_cast<std::int64_t>(n)}; }
/// The parts of a flat state, as expressions.
std::vector<Expr> parts_of(const Expr& x, std::span<const Shape> parts);
/// Throws MisuseError, naming `who`, unless a function that returns arrays of these shapes returns a state.
void check_parts(const char* who, std::span<const Shape> returned, std::span<const Shape> state);
/// One vector of all parts; checked as above.
Expr joined(const char* who, std::span<const Expr> parts, std::span<const Shape> shapes);

}  // namespace onestep::detail
