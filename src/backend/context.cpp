// Contexts: which backend, on which threads. A new backend is a folder beside this file and a row of the table here.
#include <fmt/format.h>

#include "backend/context.h"
#include "backend/cpu/backend.h"
#include "onestep/context.h"
#include "onestep/error.h"
#include "onestep/threads.h"

namespace onestep {

namespace detail {

struct ContextState {
  std::string name;
  std::shared_ptr<parallel::Pool> pool;
  std::shared_ptr<const Backend> backend;
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

parallel::Pool* pool_of(const Context& context) { return context.state_ ? context.state_->pool.get() : nullptr; }

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

}  // namespace onestep
