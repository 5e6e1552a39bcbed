// What a solver is to the estimators: the step it repeats, the equation it solves, and a loop that runs.
#pragma once

#include <concepts>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "onestep/solver.h"
#include "solve/map.h"
#include "solve/run.h"

namespace onestep::detail {

/// One thread's memory for solving.
class Loop {
 public:
  virtual ~Loop() = default;
  /// From run.start; everything else in `run` is written. Does not throw for numerical reasons.
  virtual void solve(std::span<const Array> theta, const SolveOptions& options, Run& run) = 0;
  /// Where the last step was made, with what it computed. The map differentiated is Method::step.
  virtual Point& last() = 0;
  /// The step and the equation at x_k, where the loop has them; otherwise the estimators make a point of their own.
  virtual Point* here() { return nullptr; }
  /// A point that has the derivative of the solution itself and knows how wrong that can be (Point::doubt), of the parts the
  /// user knows; none where there is no such thing.
  virtual Point* reference() { return nullptr; }
  virtual Point* equation() { return nullptr; }
  /// Why the solution has no derivative, is none of several, or nothing is known about it; else empty.
  virtual std::string degeneracy() { return ""; }
  /// Factorisations so far.
  virtual int factorisations() const { return 0; }
  /// Products with the matrix of a linear system inside the step so far.
  virtual int products() const { return 0; }
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
  /// The same with other data of the solver's lambda, and with the plans of this one.
  virtual std::shared_ptr<Method> with_data(const std::vector<Array>& data) const = 0;

  std::shared_ptr<const Map> step;  ///< F
  LazyMap equation;                 ///< G, where G = 0 is simpler than x - F = 0; else none
  LazyMap start;                    ///< x₀(θ), where it depends on θ; else none
  bool users_equation = false;      ///< the equation is one the user gave
  bool superlinear = false;         ///< ∂F/∂x is zero at the solution, unless that is degenerate
  std::string not_unrolled;         ///< why its iterates cannot be differentiated one by one; empty: they can
  bool starts_itself = false;       ///< takes no start
  Lazy<Method> precise;             ///< the same with the solves inside its lambda made precisely; none: there are none
  std::string inside_left_out;      ///< what `precise` does not see of the solves inside; empty: nothing
  bool lacks_orders = false;        ///< a solve inside has not as many derivatives as that of the solution needs
  std::size_t shown = std::numeric_limits<std::size_t>::max();  ///< parts of the state that are the user's, first
  Constants known;

  /// The step to compare with: where it contains solves, precisely made.
  const Map& best_step() const { return precise ? *precise->step : *step; }

 protected:
  /// For with_data: the step and the solver's own equation of a copy.
  void bind(const std::vector<Array>& data);
};

}  // namespace onestep::detail
