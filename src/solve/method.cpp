// Loops that are kept for the next solve, and the equation as a graph.
#include "solve/method.h"

namespace onestep::detail {

std::unique_ptr<Loop> Method::take_loop() const {
  std::unique_ptr<Loop> spare = spare_.take();
  const bool is_usable = spare && (!data_may_change || spare->read_data_again());
  return is_usable ? std::move(spare) : loop();
}
void Method::give_back(std::unique_ptr<Loop> loop) const {
  if (keeps_loop) spare_.put(std::move(loop));
}

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
