// Where and with what a computation runs. Nothing of it is global but the default.
#pragma once

#include <memory>
#include <string>

#include "onestep/export.h"

namespace onestep::parallel {
class Pool;
}

ONESTEP_EXPORT_BEGIN
namespace onestep {

class Context;
namespace detail {
class ONESTEP_HIDDEN Backend;
struct ONESTEP_HIDDEN ContextState;
std::shared_ptr<const Backend> backend_of(const Context& context);
ONESTEP_HIDDEN parallel::Pool* pool_of(const Context& context);
}  // namespace detail

/// What a Context is made of.
///
///     Context two({.threads = 2});
struct ContextOptions {
  int threads = 1;              ///< that computations may use, the calling one included: 1 to 65535
  std::string backend = "cpu";  ///< what executes plans; this version has "cpu"
};

/// Threads of its own, and the backend that executes plans. Give it to a solver (Solver::on) or to a plan
/// (PlanOptions::context); what is not given one runs in the default context, whose threads set_threads (onestep/threads.h)
/// changes. Contexts do not wait for each other: two threads that compute in two contexts run side by side, each with the
/// threads of its own. Inside a loop that is already spread over threads (solve_many, the inner problems of minimise)
/// further loops run on the thread they are called from, whatever their context. Results have the same bits in all of them.
///
/// A handle: copies are the same context, and its threads end with the last of them.
///
///     Context two({.threads = 2});
///     Solution s = solve(fit.on(two), x0, w);
class Context {
 public:
  /// The default context, which all of the process shares.
  Context() = default;
  /// Throws MisuseError for a number of threads out of range and for a backend that there is not, naming those there are.
  explicit Context(const ContextOptions& options);

  int threads() const;
  std::string backend() const;
  bool is_default() const { return state_ == nullptr; }

 private:
  friend parallel::Pool* detail::pool_of(const Context& context);
  friend std::shared_ptr<const detail::Backend> detail::backend_of(const Context& context);
  std::shared_ptr<const detail::ContextState> state_;
};

}  // namespace onestep
ONESTEP_EXPORT_END
