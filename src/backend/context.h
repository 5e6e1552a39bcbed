// The threads of a context, and which backends a context can have.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "onestep/context.h"
#include "parallel/pool.h"

namespace onestep::detail {

/// The threads of a context; none for the default one, which uses those of whoever calls.
parallel::Pool* pool_of(const Context& context);

/// A backend on the threads of a context. It is shared by all plans of the context, which run in several threads at once.
using MakeBackend = std::function<std::shared_ptr<const Backend>(std::shared_ptr<parallel::Pool> pool)>;
/// From here on ContextOptions::backend may be this name. Throws MisuseError where one has it already.
void add_backend(const std::string& name, MakeBackend make);

}  // namespace onestep::detail
