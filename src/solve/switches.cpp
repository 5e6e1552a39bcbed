// Where the operations of a traced step that have kinks switch from one branch to the other.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "graph/rules.h"
#include "solve/traced_map.h"

namespace onestep::detail {
namespace {

// An expression that is zero where the operation, which has a kink, switches.
Expr switch_of(const Node& node, const Expr& y, std::span<const Expr> args) {
  switch (node.op) {
#include "graph/elementwise_cases.inc"
    return *info(node.op).kink(Site{node.op, {args.begin(), args.end()}, node.attr, node.shape}, y);
    case Op::max: return args[0] - (node.attr.i == 1 ? by_row(y, args[0].shape()) : broadcast(y, args[0].shape()));
    case Op::norm: return y;
    case Op::call:  // foreign code, or a solve: its kinks are unknown
    case Op::input:
    case Op::constant:
    case Op::scalar:
    case Op::eye:
    case Op::matmul:
    case Op::gram:
    case Op::outer:
    case Op::transpose:
    case Op::reshape:
    case Op::diag:
    case Op::diagonal:
    case Op::sum:
    case Op::cumsum:
    case Op::broadcast:
    case Op::concat:
    case Op::slice:
    case Op::pad:
    case Op::gather:
    case Op::scatter:
    case Op::cholesky:
    case Op::lu:
    case Op::ldlt:
    case Op::solve:
    case Op::logdet:
    case Op::det: break;
  }
  throw MisuseError(fmt::format("[certificate] nothing says where {} has its kink", name(node.op)));
}

/// The switches of a step as a function of its inputs, of which the first `moving` move; none where some are hidden.
std::optional<Function> switches_of(const Function& step, std::size_t moving) {
  const Graph& graph = *graph_of(step);
  const Id next = id_of(step.outputs().front());
  std::vector<Id> inputs(moving);  // a graph begins with its inputs
  std::iota(inputs.begin(), inputs.end(), Id{0});
  const std::vector<Id> kinked = graph.kinks_between(inputs, {&next, 1});
  std::vector<Id> needed;
  for (const Id id : kinked) {
    if (graph.node(id).op == Op::call) return std::nullopt;
    const std::span<const Id> args = graph.args(id);
    needed.push_back(id);
    needed.insert(needed.end(), args.begin(), args.end());
  }
  if (kinked.empty()) return std::nullopt;
  return Function(std::vector<Input>(step.inputs().begin(), step.inputs().end()), [&](std::span<const Expr> in) {
    const std::vector<Expr> images = graph_of(in.front())->import(graph, needed, in);
    std::vector<Expr> result;
    std::span<const Expr> rest = images;
    for (const Id id : kinked) {
      const std::size_t count = graph.args(id).size();
      const Expr place = switch_of(graph.node(id), rest[0], rest.subspan(1, count));
      result.push_back(reshape(place, {place.shape().size()}));
      rest = rest.subspan(1 + count);
    }
    return std::vector<Expr>{result.size() == 1 ? result.front() : concat(result)};
  });
}

}  // namespace

/// One thread's memory for the switches of a traced map.
class TracedSwitches final : public Switches {
 public:
  TracedSwitches(std::shared_ptr<const TracedMap> map, const Plan& plan)
      : map_(std::move(map)), plan_(plan), workspace_(plan.workspace()), memory_(map_->size() * 3) {
    const Vector all(memory_);
    const std::size_t n = map_->size();
    inputs_.push_back(Array::view(all.first(n)));
    for (const Input& p : map_->parameters) inputs_.push_back(zeros(p.shape));
    inputs_.insert(inputs_.end(), map_->data_.begin(), map_->data_.end());
    controls_.resize(map_->shared_->controls.size());
    for (std::size_t i = 0; i < controls_.size(); ++i) inputs_.push_back(Array::view(Vector(controls_).subspan(i, 1)));
    inputs_.push_back(Array::view(all.subspan(n, n)));
    inputs_.push_back(Array::view(all.subspan(2 * n, n)));
    places_.resize(map_->shared_->switch_count);
  }

  std::vector<double> at(ConstVector x, std::span<const Array> theta, ConstVector controls) override {
    std::ranges::copy(x, memory_.begin());
    std::ranges::copy(theta, inputs_.begin() + 1);
    std::ranges::copy(controls, controls_.begin());
    const Vector out(places_);
    plan_.run(workspace_, inputs_, {&out, 1});
    return places_;
  }

 private:
  std::shared_ptr<const TracedMap> map_;
  const Plan& plan_;
  Workspace workspace_;
  std::vector<double> memory_, controls_, places_;
  std::vector<Array> inputs_;
};

std::unique_ptr<Switches> TracedMap::switches() const {
  LazyPlan& lazy = shared_->switches_plan;
  std::call_once(lazy.once, [&] {
    const std::optional<Function> function = switches_of(*shared_->step, 1 + parameters.size());
    if (!function) return;
    shared_->switch_count = static_cast<std::size_t>(function->outputs().front().shape().size());
    lazy.plan.emplace(*function, PlanOptions{.context = shared_->context});
  });
  if (!lazy.plan) return nullptr;
  return std::make_unique<TracedSwitches>(shared_from_this(), *lazy.plan);
}

}  // namespace onestep::detail
