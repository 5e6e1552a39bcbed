// Problems of one shape, one or many of them, on plain memory: what compiled programs of other frameworks call. Nothing here
// knows Python; nothing is kept that a result depends on.
#pragma once

#include <onestep/onestep.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace onestep::python {

/// What happens to problems that do not end at a solution: an exception, NaN, or whatever there is.
enum class OnError { raise, nan, keep };

/// How many problems there are, and which inputs have one array for each of them along a first axis. The others are shared.
struct Layout {
  std::vector<bool> batched;
  std::size_t count = 1;
  auto operator<=>(const Layout&) const = default;
};

/// Which parameters have a direction (a tangent, or a cotangent that is wanted), and which of these directions have an axis
/// of problems: those of batched parameters have, that of a shared one has where it is `apart`, else it is summed over them.
struct Directions {
  std::size_t count = 1;
  std::vector<bool> given, apart;
};

using Inputs = std::span<const double* const>;
using Outputs = std::span<double* const>;

/// A solver for parameters of given shapes. Any number of threads may call it at once.
///
/// All memory is row by row. Inputs are the parts of the start and then the parameters. A batched one has a first axis of
/// problems; parts of the state always have it. Directions have an axis of directions before that.
class Problems {
 public:
  struct Shapes {
    std::vector<Shape> start, theta, state;
  };
  /// Held while the solver's functions may be called.
  using Scope = std::function<std::shared_ptr<void>()>;
  Problems(std::string name, Solver solver, Estimator estimator, OnError on_error, Shapes shapes, Scope scope);
  Problems(const Problems&) = delete;
  Problems& operator=(const Problems&) = delete;
  ~Problems();

  const Shapes& shapes() const { return shapes_; }
  std::size_t inputs() const { return shapes_.start.size() + shapes_.theta.size(); }
  const Shape& input(std::size_t i) const {
    return i < shapes_.start.size() ? shapes_.start[i] : shapes_.theta[i - shapes_.start.size()];
  }

  /// Writes the parts of the state and the statuses.
  void solve(const Layout& layout, Inputs inputs, Outputs state, std::int32_t* statuses);
  /// (dx/dtheta)^T c for the parameters that are given. Inputs and state are those of a solve: where the last one had the
  /// same bits its solution is differentiated, else they are solved again; the derivative has the same bits.
  void vjp(const Layout& layout, const Directions& which, Inputs c, Inputs inputs, Inputs state, Outputs out);
  /// (dx/dtheta) v, for tangents of the parameters that are given.
  void jvp(const Layout& layout, const Directions& which, Inputs v, Inputs inputs, Inputs state, Outputs out);

 private:
  class Slot;
  class Turn;
  friend class Derivation;
  std::unique_ptr<Slot> take(const Layout& layout);
  std::unique_ptr<Slot> take_solved(const Layout& layout, Inputs inputs, Inputs state);
  std::unique_ptr<Slot> made(const Layout& layout) const;
  void give_back(const Layout& layout, std::unique_ptr<Slot> slot);
  void solve_again(Slot& slot, Inputs inputs, Inputs state);
  NotConvergedError not_converged(const Slot& slot, const std::vector<std::size_t>& failed, std::size_t count) const;

  std::string name_;
  Solver solver_;
  Estimator estimator_;
  OnError on_error_;
  Shapes shapes_;
  Scope scope_;
  std::mutex mutex_;
  std::map<Layout, std::vector<std::unique_ptr<Slot>>> idle_;
};

}  // namespace onestep::python
