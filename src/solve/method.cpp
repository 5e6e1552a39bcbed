#include "solve/method.h"

namespace onestep::detail {

void Method::bind(const std::vector<Array>& data) {
  if (const std::shared_ptr<const Map> other = step->with_data(data)) step = other;
  if (!users_equation) equation = equation.with_data(data);
  if (merit) merit->bind(data);
}

std::optional<Function> Method::equation_graph() const {
  if (equation) return equation->graph({});
  const std::optional<Function> next = undamped ? step->graph(*undamped) : std::nullopt;
  if (!next) return std::nullopt;
  return Function({next->inputs().begin(), next->inputs().end()},
                  [&](std::span<const Expr> in) { return std::vector<Expr>{in.front() - (*next)(in).front()}; });
}

}  // namespace onestep::detail
