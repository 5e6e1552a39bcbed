// Plans: a traced function made ready to run any number of times without allocating.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "onestep/context.h"
#include "onestep/export.h"
#include "onestep/function.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

namespace detail {
struct ONESTEP_HIDDEN Program;
struct ONESTEP_HIDDEN WorkspaceState;
class ONESTEP_HIDDEN BoundPlan;
}  // namespace detail

/// The memory a plan runs in: one for each thread that runs it. It keeps what was computed from inputs that have not
/// changed.
///
///     Workspace workspace = plan.workspace();
class Workspace {
 public:
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;
  ~Workspace();

  /// Whether a factorisation that the last run made, or took as kept, failed: a matrix not positive definite for cholesky,
  /// singular for lu and ldlt. What was computed from it is NaN.
  ///
  ///     plan.run(workspace, {x, w}, {next});
  ///     if (workspace.failed()) std::cerr << "the Hessian is not positive definite\n";
  bool failed() const;
  /// The memory held, in bytes.
  ///
  ///     std::size_t held = workspace.bytes();
  std::size_t bytes() const;
  /// Fills the memory with NaN and forgets what was kept: for tests that nothing is read before it is written.
  ///
  ///     workspace.poison();
  void poison();

 private:
  friend class Plan;
  friend class detail::BoundPlan;
  explicit Workspace(std::shared_ptr<const detail::Program> program);
  detail::WorkspaceState& state() const;
  std::unique_ptr<detail::WorkspaceState> state_;
};

/// What a plan may assume.
///
///     Plan plan(step, {.levels = {2, 1}});                  // x changes in each iteration, w less often
///     plan.run(workspace, {x, w}, {next});                  // computes all
///     plan.run(workspace, {x, w}, {next}, 2);               // only x has changed
///     plan.run(workspace, {x, other_w}, {next}, 1);         // w too
///
/// What is wanted only when a loop has ended has a level above it:
///
///     Plan plan(step_and_vjp, {.levels = {2, 1, 3}, .loop = 2});      // x, w and the cotangent of the result
///     plan.run(workspace, {x, w, c}, {next, {}}, 2, 2);               // an iteration: up to level 2 only
///     plan.run(workspace, {x, w, c}, {next, influence}, 3);           // the vjp, with the last iteration's factorisation
struct PlanOptions {
  /// How often each input changes, relative to the others: 0 for data, larger for what changes more often (parameters 1,
  /// iterates 2). Values that depend only on inputs of lower levels are kept between runs, see Plan::run. Empty: everything
  /// is computed in each run, except what depends on constants alone.
  std::vector<int> levels = {};
  /// The level of the loop, which is to be cheap; the highest unless given. What only results of higher levels need is not
  /// computed in it. Products that pay in it are made for it: Aᵀ(d∘(Ax - y)) with d of a lower level than the loop and x of
  /// its level or above becomes (AᵀDA)x - Aᵀ(d∘y), so that an iteration costs n² instead of 2Nn.
  std::optional<int> loop = std::nullopt;
  /// Levels from this one on are independent of each other: a run up to one of them skips the others. A branch is for what
  /// is wanted now and then, such as one of several derivatives at the point the loop has reached; what branches need of
  /// that point, and the loop does not, is computed once, at the level below them. Results for which no memory is given are
  /// not wanted then.
  ///
  ///     Plan plan(step_and_derivatives, {.levels = {2, 1, 4, 5}, .loop = 2, .branches = 4});
  std::optional<int> branches = std::nullopt;
  /// Where it runs, see Context.
  Context context = {};
};

/// A function made ready to run: order, kept values, fused loops, buffers. Const and safe to share: run it from several
/// threads with one workspace each. Results do not depend on the number of threads.
///
///     Plan plan(f);
///     Workspace workspace = plan.workspace();
///     plan.run(workspace, {x, w}, {value, gradient});
class Plan {
 public:
  static constexpr int highest = std::numeric_limits<int>::max();

  explicit Plan(const Function& function, const PlanOptions& options = {})
      : Plan(function, options, detail::backend_of(options.context)) {}

  Workspace workspace() const;

  /// Runs once. `inputs` has an array for each input of the function, `outputs` the memory for each result, row by row.
  /// Allocates nothing (a strided input is copied, into memory allocated the first time). Throws MisuseError when number or
  /// shapes do not fit; numerical trouble never throws: NaN is carried, and Workspace::failed says whether a factorisation
  /// failed.
  ///
  /// `changed` is the lowest level among the inputs that changed since the last run with this workspace; what depends only
  /// on lower levels is taken as kept. 0, the default, computes all but constants again. What was not computed yet is,
  /// whatever is said, and so is the highest level in every run. An output may lie where an input does.
  ///
  /// `last` is the highest level that is run. Results of higher levels are not computed, and no memory need be given for
  /// them.
  void run(Workspace& workspace, std::span<const Array> inputs, std::span<const std::span<double>> outputs, int changed = 0,
           int last = highest) const;
  /// The same with lists: plan.run(workspace, {x, w}, {value, gradient}).
  void run(Workspace& workspace, std::initializer_list<Array> inputs, std::initializer_list<std::span<double>> outputs,
           int changed = 0, int last = highest) const {
    run(workspace, std::span(inputs.begin(), inputs.size()), std::span(outputs.begin(), outputs.size()), changed, last);
  }

  /// Bytes a workspace holds.
  ///
  ///     std::size_t needed = plan.workspace_bytes();
  std::size_t workspace_bytes() const;
  /// Multiply-adds (and elementwise operations) of a run with these arguments; of everything, constants included, without
  /// one.
  ///
  ///     double once = plan.flops(), an_iteration = plan.flops(2);
  double flops() const;
  double flops(int changed, int last = highest) const;
  /// What is run, a line for each instruction.
  ///
  ///     std::cout << plan.text();
  std::string text() const;

 private:
  friend class detail::BoundPlan;
  Plan(const Function& function, const PlanOptions& options, std::shared_ptr<const detail::Backend> backend);
  const detail::Program& program() const;  ///< throws MisuseError where the plan was moved from
  std::shared_ptr<const detail::Program> program_;
};

/// Plans and runs once: for trying things out.
///
/// A factorisation that fails shows as NaN in the results; Workspace::failed of a run of your own says more.
///
///     Array y = evaluate(f, {x, w}).front();
std::vector<Array> evaluate(const Function& function, std::span<const Array> inputs);
inline std::vector<Array> evaluate(const Function& function, std::initializer_list<Array> inputs) {
  return evaluate(function, std::span(inputs.begin(), inputs.size()));
}
/// The value of an expression of arrays and numbers alone. Throws MisuseError inside a traced function for what depends on
/// its arguments: that has no value yet.
///
///     double distance = evaluate(norm(a - b)).item();
Array evaluate(const Expr& expression);

}  // namespace onestep
ONESTEP_EXPORT_END
