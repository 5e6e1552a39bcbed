// Contexts: which backend, on which threads. A new backend is a folder beside this file and a row of the table here, or is
// added at run time.
#include <fmt/format.h>

#include <mutex>
#include <utility>
#include <vector>

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

struct Registry {
  std::mutex mutex;
  std::vector<std::pair<std::string, MakeBackend>> rows{{"cpu", cpu::make_backend}};
};
Registry& registry() {
  static Registry all;
  return all;
}

}  // namespace

void add_backend(const std::string& name, MakeBackend make) {
  const std::lock_guard lock(registry().mutex);
  for (const auto& row : registry().rows)
    if (row.first == name) throw MisuseError(fmt::format("[add_backend] there is a backend called {} already", name));
  registry().rows.emplace_back(name, std::move(make));
}

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
  const std::lock_guard lock(detail::registry().mutex);
  for (const auto& [name, make] : detail::registry().rows) {
    known += (known.empty() ? "" : ", ") + name;
    if (options.backend != name) continue;
    state->name = name;
    state->pool = parallel::make_pool(options.threads);
    state->backend = make(state->pool);
  }
  if (!state->backend)
    throw MisuseError(fmt::format("[Context] there is no backend called {}; this version has {}", options.backend, known));
  state_ = std::move(state);
}

int Context::threads() const { return state_ ? parallel::threads_of(*state_->pool) : onestep::threads(); }
std::string Context::backend() const { return state_ ? state_->name : "cpu"; }

}  // namespace onestep
