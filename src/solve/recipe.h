// A solver before shapes and data are known: what the user's call of newton(…) or fixed_point(…) made, and the methods it
// has become since.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "parallel/shared.h"
#include "solve/method.h"

namespace onestep::detail {

/// What a method is made of: the solver's lambda as a function of its arguments and its data, and the shapes. The parameters
/// of maps do not include the data; their bodies are given both, the data last.
struct Problem {
  Body lambda;
  std::vector<Array> data;
  std::vector<Shape> state;
  std::vector<Input> parameters;
  Context context;  ///< whose backend plans are made for
};

/// A solver before the shapes are known, and the methods it has become.
struct Recipe {
  /// Calls no lambda of the user.
  std::function<std::shared_ptr<Method>(const Problem&)> make;
  const char* name = "solve";  ///< of the solver, for messages about its lambda
  int orders = 1;              ///< how often a derivative of the solution differentiates the lambda: 2 for an objective
  Body lambda;                 ///< the step or the objective; none where there is nothing to trace
  /// Which parts of the state the lambda takes before the parameters; where this is empty, all.
  std::function<std::vector<Shape>(const std::vector<Shape>& state)> lambda_state;
  /// The shapes of the state, where a lambda that takes no part of it tells them by its results.
  std::function<std::vector<Shape>(std::span<const Expr> results)> state_of;
  /// The state is x and what x was before, part by part: a start may be x alone.
  bool remembers = false;
  SolveOptions options;
  Context context;
  std::optional<Parts> x0;
  Body start, equation;
  std::optional<ForeignStep> foreign_equation;
  std::shared_ptr<const Recipe> for_unrolling;  ///< to be used instead where estimators go over the steps; none: this one
  Constants known;
  std::shared_ptr<const Estimator> estimator;
  bool superlinear = false;  ///< as Method::superlinear, before there is one
  /// Default number of differentiated final steps when a solve is a node: two of Newton's give second derivatives too.
  int steps_in_node = 1;
  /// The undamped step in expressions of the flat state and the parameters, where it can be traced; else none.
  std::function<Expr(const std::vector<Shape>& state, const Expr& x, std::span<const Expr> theta)> undamped;

  struct Ready {
    std::shared_ptr<const Method> method;
    Parts start;             ///< the one given, else the recipe's, else zeros in the shape of the state
    bool has_views = false;  ///< data of the lambdas are memory of the caller, which may change
  };
  /// Calls each of the user's lambdas once, one thread at a time, and hands back the method: the one of the last call where
  /// graph and data are the same, its plans with other data where the graph is, else a new one. Throws MisuseError where
  /// shapes do not fit or there is no start. `theta` has the shapes of the parameters.
  Ready ready(const Parts* given, std::span<const Shape> theta) const;

  Recipe changed() const;  ///< a copy with a cache of its own
  /// The start it was given, or zeros in the shape of the state where parameters of these shapes tell it. Throws MisuseError
  /// otherwise.
  Parts start_for(std::span<const Shape> theta) const;
  /// The start with what the state remembers, where only x was given to a lambda of so many parameters.
  Parts completed(const Parts& given, std::size_t parameters) const;
  bool leaves_out_memory(std::size_t parts, std::size_t parameters) const;

  /// What the lambdas traced to.
  struct Traces {
    std::optional<Function> lambda, start, equation;
  };
  struct Entry {
    std::vector<Shape> shapes;  ///< of the state, the parameters behind it
    std::size_t state_parts = 0;
    Traces traces;                                ///< of the last call
    std::shared_ptr<const Method> first, latest;  ///< as it was made, and with the data of the last call
  };
  struct Cache {
    static constexpr std::size_t most_entries = 8;
    std::vector<Entry> entries;                       ///< the last used first
    std::vector<std::weak_ptr<const Foreign>> nodes;  ///< solves as nodes of traced functions (estimate/node.cpp)
  };
  std::shared_ptr<parallel::Shared<Cache>> cache = std::make_shared<parallel::Shared<Cache>>();
  /// Lambdas are called under this, so that one with state of its own is not called by two threads at once. Recursive: a
  /// lambda may solve.
  using Tracing = parallel::Shared<parallel::Nothing, std::recursive_mutex>;
  std::shared_ptr<Tracing> tracing = std::make_shared<Tracing>();

 private:
  std::shared_ptr<const Method> method_for(const std::vector<Shape>& state, const std::vector<Input>& parameters,
                                           Traces traces) const;
  std::shared_ptr<const Method> bound(const Entry& entry) const;
  Context context_of_plans() const;
};

/// Calls a user's lambda with the parts of the flat state and the parameters. Throws MisuseError, naming `who`, when their
/// number is not what it takes.
std::vector<Expr> call_body(const char* who, const Body& body, const Expr& x, std::span<const Shape> parts,
                            std::span<const Expr> theta);
/// The same for an objective: one number.
Expr call_objective(const char* who, const Body& body, const Expr& x, std::span<const Shape> parts,
                    std::span<const Expr> theta);

/// The lambda as a function of its own, traced here. Inside another function its arguments are slices and reshapes of a
/// state, which rewriting may remove from what is computed: a lambda that differentiates by its arguments would find
/// nothing.
Body traced_alone(const char* who, const Body& body, std::span<const Shape> parts, std::span<const Expr> theta);

/// What a Solver is made of.
struct SolverAccess {
  static Solver make(Recipe recipe) { return Solver(std::make_shared<const Recipe>(std::move(recipe))); }
  static const Recipe& recipe(const Solver& solver) {
    if (!solver.recipe_) fail_moved_from("Solver");
    return *solver.recipe_;
  }
};
inline Solver solver_of(Recipe recipe) { return SolverAccess::make(std::move(recipe)); }
inline const Recipe& recipe_of(const Solver& solver) { return SolverAccess::recipe(solver); }

}  // namespace onestep::detail
