// The recursion as one traced function, run by a plan from one state to the next.
#include "paper/items/piggyback.h"

#include "onestep/diff.h"

namespace onestep::app::paper {
namespace {

Function recursion(const Piggyback::Step& step, std::int64_t n, const Shape& theta) {
  return traced(
      [&](Expr x, Expr J, Expr t) {
        const Expr next = step(x, t);
        return std::pair{next, matmul(onestep::jacobian(next, x), J) + onestep::jacobian(next, t)};
      },
      Shape{n}, Shape{n, theta.size()}, theta);
}

}  // namespace

Piggyback::Piggyback(const Step& step, std::int64_t n, Array theta)
    : theta_(std::move(theta)),
      plan_(recursion(step, n, theta_.shape()), {.levels = {2, 2, 1}}),
      workspace_(plan_.workspace()) {
  for (State& s : states_) {
    s.x.resize(static_cast<std::size_t>(n));
    s.J.resize(static_cast<std::size_t>(n * theta_.size()));
  }
}

void Piggyback::start(const Array& x) {
  x.copy_to(states_[now_].x);
  states_[now_].J.assign(states_[now_].J.size(), 0.0);
}

void Piggyback::run(int steps) {
  const auto n = static_cast<std::int64_t>(states_[0].x.size());
  for (int i = 0; i < steps; ++i) {
    const State& from = states_[now_];
    State& to = states_[1 - now_];
    plan_.run(workspace_,
              {Array::view(from.x), Array::view(MatrixView{from.J.data(), n, theta_.size(), theta_.size(), 1}), theta_},
              {to.x, to.J}, bound_ ? 2 : 0);
    bound_ = true;
    now_ = 1 - now_;
  }
}

Array Piggyback::x() const { return {{static_cast<std::int64_t>(states_[now_].x.size())}, states_[now_].x}; }
Array Piggyback::jacobian() const {
  return {{static_cast<std::int64_t>(states_[now_].x.size()), theta_.size()}, states_[now_].J};
}

std::size_t Piggyback::bytes() const {
  return workspace_.bytes() + 2 * sizeof(double) * (states_[0].x.size() + states_[0].J.size());
}

}  // namespace onestep::app::paper
