// Contexts: which backend, on which threads. A new backend is a folder beside this file and a row of the table here.
#include <fmt/format.h>

#include "backend/context.h"
#include "backend/cpu/backend.h"
#include "onestep/context.h"
#include "onestep/error.h"
#include "onestep/plan.h"
#include "onestep/threads.h"

namespace onestep {

namespace detail {

struct ContextState {
  std::string name;
  std::shared_ptr<parallel::Pool> pool;
  std::shared_ptr<const Backend> backend;

  static const ContextState* of(const Context& context) { return context.state_.get(); }
};

namespace {

struct Row {
  const char* name;
  std::shared_ptr<const Backend> (*make)(std::shared_ptr<parallel::Pool> pool);
};
constexpr Row backends[] = {{"cpu", cpu::make_backend}};

}  // namespace

std::shared_ptr<const Backend> backend_of(const Context& context) {
  static const std::shared_ptr<const Backend> standard = cpu::make_backend(nullptr);
  return context.state_ ? context.state_->backend : standard;
}

std::shared_ptr<parallel::Pool> pool_of(const Context& context) {
  const ContextState* state = ContextState::of(context);
  return state != nullptr ? state->pool : nullptr;
}

}  // namespace detail

Context::Context(const ContextOptions& options) {
  if (options.threads < 1 || options.threads > parallel::most_threads)
    throw MisuseError(
        fmt::format("[Context] the number of threads is 1 to {}, got {}", parallel::most_threads, options.threads));
  auto state = std::make_shared<detail::ContextState>();
  std::string known;
  for (const detail::Row& row : detail::backends) {
    known += (known.empty() ? "" : ", ") + std::string(row.name);
    if (options.backend != row.name) continue;
    state->name = row.name;
    state->pool = parallel::make_pool(options.threads);
    state->backend = row.make(state->pool);
  }
  if (!state->backend)
    throw MisuseError(fmt::format("[Context] there is no backend called {}; this version has {}", options.backend, known));
  state_ = std::move(state);
}

int Context::threads() const { return state_ ? parallel::threads_of(*state_->pool) : onestep::threads(); }
std::string Context::backend() const { return state_ ? state_->name : "cpu"; }

std::vector<Array> evaluate(const Function& function, std::span<const Array> inputs) {
  check_inputs("evaluate", function.inputs(), inputs);
  const Plan plan(function);
  Workspace workspace = plan.workspace();
  std::vector<std::vector<double>> values;
  for (const Expr& e : function.outputs()) values.emplace_back(static_cast<std::size_t>(e.shape().size()));
  plan.run(workspace, inputs, std::vector<std::span<double>>(values.begin(), values.end()));
  std::vector<Array> result;
  for (std::size_t i = 0; i < values.size(); ++i) result.emplace_back(function.outputs()[i].shape(), std::move(values[i]));
  return result;
}

Array evaluate(const Expr& expression) {
  return evaluate(Function({}, [&](std::span<const Expr>) { return std::vector{expression}; }), std::span<const Array>())
      .front();
}

}  // namespace onestep
