// What a solver is to the estimators: the step it repeats, the equation it solves, and a loop that runs.
#pragma once

#include <atomic>
#include <concepts>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "onestep/solver.h"
#include "solve/map.h"
#include "solve/run.h"
#include "solve/trial.h"

namespace onestep::detail {

/// A point that has the derivative of the solution itself and knows how wrong that can be.
class SolutionPoint : public Point {
 public:
  /// How far the last jvp_theta or vjp_theta can be from the derivative of the solution.
  virtual ErrorTerms error_terms() = 0;
};

/// Of loops that know the derivative of the solution itself, not of a step towards it, as a quadratic program does at its
/// active set. For its step ∂F/∂x = 0, for its equation ∂G/∂x is the identity.
class AtSolution {
 public:
  virtual ~AtSolution() = default;
  virtual SolutionPoint& step() = 0;
  virtual SolutionPoint& equation() = 0;
  /// Why no derivative exists at this solution (degenerate, not unique), or none that can be trusted; empty when nothing of
  /// the kind was detected.
  virtual std::string degeneracy() = 0;
  /// Decides on the active set with which all later derivatives are taken, so that the first one does not differ.
  virtual void settle() = 0;
};

/// One thread's memory for solving.
class Loop {
 public:
  virtual ~Loop() = default;
  /// From run.start. The loop writes x, previous, controls and trajectory; its Monitor status, statistics and the lengths of
  /// steps. Does not throw for numerical reasons.
  virtual void solve(std::span<const Array> theta, const SolveOptions& options, Run& run) = 0;
  /// Where the last step was made, with what it computed. The map differentiated is Method::step.
  virtual Point& last() = 0;
  virtual Work work() const { return {}; }
  /// The next solve computes anew what depends on the data of lambdas alone. False where the loop cannot.
  virtual bool read_data_again() { return false; }

  /// Null where the loop knows its steps alone.
  virtual AtSolution* at_solution() { return nullptr; }
  /// The reference for certificates: the derivative of the solution by this loop, or by another method for the same problem.
  virtual AtSolution* reference() { return at_solution(); }
};

/// Room for one loop that is not in use, for whichever thread asks first. A copy has none.
class SpareLoop {
 public:
  SpareLoop() = default;
  SpareLoop(const SpareLoop& /*other*/) {}
  SpareLoop& operator=(const SpareLoop&) = delete;
  ~SpareLoop() { put(nullptr); }
  std::unique_ptr<Loop> take() { return std::unique_ptr<Loop>(loop_.exchange(nullptr)); }
  void put(std::unique_ptr<Loop> loop) { const std::unique_ptr<Loop> old(loop_.exchange(loop.release())); }

 private:
  std::atomic<Loop*> loop_ = nullptr;
};

/// A map or a method that is made when it is first used, by whichever thread uses it first. Reads like a pointer to it.
template <class T> class Lazy {
 public:
  using Make = std::function<std::shared_ptr<const T>()>;
  Lazy() = default;
  template <std::derived_from<T> U> Lazy(std::shared_ptr<U> made) : state_(std::make_shared<State>()) {
    state_->make = [made = std::move(made)] { return made; };
  }
  explicit Lazy(Make make) : state_(std::make_shared<State>()) { state_->make = std::move(make); }
  explicit operator bool() const { return state_ != nullptr; }
  std::shared_ptr<const T> shared() const {
    if (!state_) return nullptr;
    std::call_once(state_->once, [&] {
      state_->made = state_->make();
      state_->make = nullptr;
    });
    return state_->made;
  }
  const T* get() const { return shared().get(); }
  const T& operator*() const { return *get(); }
  const T* operator->() const { return get(); }
  /// The same of other data of the lambda, where it has any (Map::with_data, Method::with_data).
  Lazy with_data(const std::vector<Array>& data) const {
    if (!state_) return {};
    return Lazy(Make([from = *this, data] {
      std::shared_ptr<const T> other = from->with_data(data);
      return other ? other : from.shared();
    }));
  }

 private:
  struct State {
    std::once_flag once;
    Make make;
    std::shared_ptr<const T> made;
  };
  std::shared_ptr<State> state_;
};
using LazyMap = Lazy<Map>;

/// A solver prepared for the shapes of its state and parameters, and for the data of its lambdas. Plans are made when they
/// are first used.
class Method {
 public:
  virtual ~Method() = default;
  virtual std::unique_ptr<Loop> loop() const = 0;
  /// A spare loop if one was given back, otherwise a new loop.
  std::unique_ptr<Loop> take_loop() const;
  void give_back(std::unique_ptr<Loop> loop) const;
  /// The same with other data of the solver's lambda, and with the plans of this one.
  virtual std::shared_ptr<Method> with_data(const std::vector<Array>& data) const = 0;

  std::shared_ptr<const Map> step;  ///< F
  LazyMap equation;                 ///< G, where G = 0 is simpler than x - F = 0; else none
  LazyMap start;                    ///< x₀(θ), where it depends on θ; else none
  bool users_equation = false;      ///< the equation is one the user gave
  /// Controls of the full, undamped step, with which it is differentiated; none: with_loop is not supported.
  std::optional<std::vector<double>> undamped;
  std::optional<TrialFunction> merit;  ///< merit function a user's loop may evaluate (with_loop); none: there is none
  bool superlinear = false;            ///< ∂F/∂x is zero at the solution, unless that is degenerate
  std::string not_unrolled;            ///< why its iterates cannot be differentiated one by one; empty: they can
  bool starts_itself = false;          ///< takes no start
  bool remembers = false;              ///< as Recipe::remembers
  bool keeps_loop = false;             ///< one that is given back waits for the next solve
  bool data_may_change = false;        ///< the data of lambdas are memory of the caller
  Lazy<Method> precise;                ///< the same with the solves inside its lambda made precisely; none: there are none
  std::string inside_left_out;  ///< what solves inside leave out of their derivatives even in `precise`; empty: nothing
  bool lacks_orders = false;    ///< a solve inside has not as many derivatives as that of the solution needs
  std::size_t shown = std::numeric_limits<std::size_t>::max();  ///< number of leading parts of the state that users see
  Constants known;

  /// The equation that the solution solves, its own or x - F = 0, as a graph of the flat x and the parameters; none where
  /// that was not traced.
  std::optional<Function> equation_graph() const;
  /// The step to compare with: where it contains solves, precisely made.
  const Map& best_step() const { return precise ? *precise->step : *step; }

 protected:
  /// For with_data: the step, the merit and the solver's own equation of a copy.
  void bind(const std::vector<Array>& data);

 private:
  mutable SpareLoop spare_;
};

}  // namespace onestep::detail
