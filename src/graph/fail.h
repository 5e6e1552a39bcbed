// How misuse is reported: a MisuseError that begins with the operation, shapes printed as users write them.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "onestep/array.h"

template <> struct fmt::formatter<onestep::Shape> : fmt::formatter<std::string> {
  auto format(const onestep::Shape& shape, fmt::format_context& context) const {
    return fmt::formatter<std::string>::format(to_string(shape), context);
  }
};

namespace onestep {

/// Throws MisuseError with the text `[operation] what`.
template <class... T> [[noreturn]] void fail(const char* operation, fmt::format_string<T...> what, T&&... values) {
  throw MisuseError(fmt::format("[{}] {}", operation, fmt::format(what, std::forward<T>(values)...)));
}

}  // namespace onestep
