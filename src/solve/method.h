// What a solver is to the estimators: the step it repeats, the equation it solves, and a loop that runs. And what a loop
// hands back, with as much of its way as an estimator asked for.
#pragma once

#include <array>
#include <concepts>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "onestep/plan.h"
#include "onestep/solver.h"
#include "solve/map.h"

namespace onestep::detail {

/// The states a solve went through, as far as they are wanted: the last few, or the first ones within a budget.
class Trajectory {
 public:
  /// The last `count` states; none by default.
  void keep_last(std::size_t count);
  /// The first states that fit in so many doubles (none for 0), and the controls of all steps.
  void keep_first(std::size_t entries);
  void clear(std::size_t n);
  /// A step from x, with these controls, is being made.
  void record(ConstVector x, ConstVector controls);

  int steps() const { return steps_; }
  int kept() const { return kept_; }
  bool keeps(int step) const;
  Vector state(int step);
  ConstVector controls(int step) const;
  /// Gives the memory of the states back.
  void release();

 private:
  Vector place(std::size_t index);
  std::size_t last_ = 0, first_entries_ = 0, n_ = 0, control_count_ = 0;
  bool keeps_controls_ = false;
  int steps_ = 0, kept_ = 0;
  std::vector<std::vector<double>> chunks_;
  std::vector<double> controls_;    // each time they changed
  std::vector<int> controls_from_;  // the first step with them
};

/// What a solver hands back.
struct Run {
  Status status = Status::iteration_limit;
  std::string about;  ///< what the status is about, where there is more to say
  Statistics statistics;
  std::vector<double> start, previous, x;  ///< x_0, x_{k-1}, x_k
  double last_step = 0;                    ///< ‖x_k - x_{k-1}‖
  double step_before = 0;                  ///< the length of the step before that; 0: there was none
  double slowness = 0;                     ///< 1/(1 - ρ), ρ being the rate at which steps became shorter; 0: not seen
  std::vector<double> controls;            ///< with which the last step is differentiated: undamped
  std::vector<double> proof;               ///< of an infeasible or unbounded problem, in the form of a state
  std::vector<double> anchor, scratch;     ///< the monitor's
  Trajectory trajectory;
};

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
  bool remembers = false;           ///< as Recipe::remembers
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

/// What a method is made of: the solver's lambda as a function of its arguments and its data, and the shapes. The parameters
/// of maps do not include the data; their bodies are given both, the data last.
struct Problem {
  Body lambda;
  std::vector<Array> data;
  std::vector<Shape> state;
  std::vector<Input> parameters;
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
  std::optional<Parts> x0;
  Body start, equation;
  std::optional<ForeignStep> foreign_equation;
  std::shared_ptr<const Recipe> by_steps;  ///< to be used instead where estimators go over the steps; none: this one
  Constants known;
  std::shared_ptr<const Estimator> estimator;
  bool superlinear = false;  ///< as Method::superlinear, before there is one
  /// Of the steps that a solve ends with as a node, where none are named: two of Newton's give second derivatives too.
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

  /// The start with what the state remembers, where only x was given to a lambda of so many parameters.
  Parts completed(const Parts& start, std::size_t parameters) const;
  bool leaves_out_memory(std::size_t parts, std::size_t parameters) const;
  Recipe changed() const;  ///< a copy with a cache of its own
  /// The start it was given, or zeros in the shape of the state where parameters of these shapes tell it. Throws MisuseError
  /// otherwise.
  Parts start_for(std::span<const Shape> theta) const;

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
    std::mutex mutex;
    std::vector<Entry> entries;                       ///< the last used first
    std::vector<std::weak_ptr<const Foreign>> nodes;  ///< solves as nodes of traced functions (estimate/node.cpp)
  };
  std::shared_ptr<Cache> cache = std::make_shared<Cache>();
  /// Lambdas are called under this, so that one with state of its own is not called by two threads at once. Recursive: a
  /// lambda may solve.
  std::shared_ptr<std::recursive_mutex> tracing = std::make_shared<std::recursive_mutex>();

 private:
  std::shared_ptr<const Method> method_for(const std::vector<Shape>& state, const std::vector<Input>& parameters,
                                           Traces traces) const;
  std::shared_ptr<const Method> bound(const Entry& entry) const;
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

/// Writes an iteration to the log and calls the callback. True when it wants to stop.
bool tell(const SolveOptions& options, const Iteration& iteration);

/// Seconds, by a clock that never goes back.
double now();

/// Throws MisuseError for options out of range.
void check(const SolveOptions& options);

/// The stopping tests, the callback, the log and the clock: the same for all loops.
///
/// A step is short when it is within the tolerance of |x| at its ends. A short step ends the solve only where the steps
/// contract: of a linearly convergent loop where the distance left, extrapolated from the rate of the last steps, is small
/// too; of a Newton iteration where its full step is a fraction of the last one and the matrix did not become much stiffer
/// on the way, as it does next to a barrier.
class Monitor {
 public:
  Monitor(const SolveOptions& options, Run& run);
  /// Evaluates F at some x, for measuring its rounding level; false where it cannot.
  using Evaluate = std::function<bool(ConstVector x, Vector next)>;
  void evaluate_with(Evaluate evaluate) { evaluate_ = std::move(evaluate); }

  /// Whether a step as long as this, to an x as large as that, is within the tolerance.
  bool is_short(double step, double size) const { return step <= options_.tolerance * scale(size); }

  /// The same, or at the rounding of x.
  bool is_negligible(double step, double size) const;
  /// Whether a step is about as short as the last places of x: a line search that shortens one to that has found nothing.
  bool is_lost(double step, double size) const;

  /// Who decides whether the step that is recorded was the last.
  enum class Converged {
    by_steps,  ///< the monitor, from the lengths of the steps: loops that converge linearly
    yes,       ///< the loop: it was
    no,        ///< the loop: it was not
  };
  /// After each step, with run.x where it ended. True when the loop is to end, with run.status set.
  bool record_and_check(double step, double size, double value, double length, Converged converged = Converged::by_steps);
  /// Whether F was evaluated elsewhere since this was asked last: what the loop has at its point is then to be made again.
  bool has_left_point() { return std::exchange(left_point_, false); }

  /// A full Newton step before it is made. Its stiffness is a norm of the matrix along the step.
  struct NewtonStep {
    double step = 0, size = 0, stiffness = 0;
  };
  /// Whether it leads to the solution: it is short, and was seen to contract. (Newton's method may converge only linearly
  /// there, where the matrix is singular at the solution.)
  bool is_last(const NewtonStep& newton) const;
  /// Which share of it was then made.
  void took(const NewtonStep& newton, double length);

  /// Whether a step as long as this is within the rounding of x, or of F at run.x, seen by evaluating F around it.
  bool is_rounding(double step);
  /// Ends because steps as long as this are: converged where they are within the tolerance too.
  void end_at_rounding(double step, double within);
  /// The loop goes on from run.start, which is another point: what was seen of the steps so far is forgotten.
  void start_again();

  /// Ends for a reason of the solver's own, or because a solver within says so.
  void end(Status status, std::string about = {});
  double seconds() const;  ///< since the start

 private:
  double scale(double size) const;
  void observe(double step, double scale);
  bool is_near(double step, double within) const;
  bool reached_rounding(double step, double scale, double value, double length);

  const SolveOptions& options_;
  Run& run_;
  Evaluate evaluate_;
  bool left_point_ = false;
  double begin_, first_size_, size_before_, largest_ = 0, smallest_ = std::numeric_limits<double>::infinity();
  // Ratios of the lengths of successive steps, how they creep towards 1, and how many iterations the length takes to halve:
  // the last three times.
  double step_before_ = 0, ratio_ = 0, ratio_before_ = 0, creep_ = 0, creep_before_ = 0;
  bool sees_creep_ = false;  // or rounding hides it
  int contractions_ = 0, since_halving_ = 0;
  double halved_from_ = 0;
  std::array<double, 3> halving_times_{};
  // The last full Newton step, and how many in a row were between a third and nine tenths of the one before.
  NewtonStep newton_before_;
  bool was_full_ = false;
  int linear_ = 0;
  // Iterations in which no step was half as long as the shortest before them.
  double stall_from_ = 0, stall_longest_ = 0, path_ = 0, value_before_ = 0;
  int stalled_ = 0, window_ = 0;
  bool values_stand_still_ = false;
};

/// One number as a function of x and θ, planned when it is first used.
class TrialFunction {
 public:
  using Value = std::function<Expr(const Expr& x, std::span<const Expr> theta)>;
  /// `theta` has the parameters, and behind them the data.
  TrialFunction(std::size_t n, std::vector<Input> parameters, std::vector<Array> data, Value value);
  const Plan& plan() const;
  const std::vector<Array>& data() const { return data_; }
  void bind(const std::vector<Array>& data) { data_ = data; }

 private:
  struct Shared {
    std::vector<Input> inputs;  // x, parameters, data
    std::vector<int> levels;
    Value value;
    std::once_flag once;
    std::optional<Plan> plan;
  };
  std::shared_ptr<Shared> shared_;
  std::vector<Array> data_;
};

/// Its value at trial points: what line searches ask for.
class Trial {
 public:
  Trial(const TrialFunction& function, std::size_t n, const std::vector<Input>& parameters);
  void bind(std::span<const Array> theta);
  double operator()(ConstVector x);

 private:
  const Plan& plan_;
  Workspace workspace_;
  std::vector<double> x_;
  std::vector<Array> inputs_;
  int changed_ = 1;
};

}  // namespace onestep::detail
