// Calls, and the numbers that compiled programs know them by.
#include "calls.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <unordered_map>

namespace onestep::python {
namespace {

struct Registry {
  std::mutex mutex;
  std::unordered_map<std::int64_t, std::weak_ptr<Call>> calls;
  std::int64_t last;
  std::size_t next_sweep = 64;

  Registry() {
    // Not from 1: a program that was compiled in another process must not find a call of this one under its number.
    std::random_device bits;
    last = static_cast<std::int64_t>((std::uint64_t{bits()} << 31U) ^ bits());
  }
};

// Never destroyed: threads of a framework may still run while the process ends.
Registry& registry() {
  static Registry& only = *new Registry;
  return only;
}

Call::Dims dims_of(const Shape& shape, std::initializer_list<std::int64_t> in_front) {
  Call::Dims dims(in_front);
  for (int axis = 0; axis < shape.rank(); ++axis) dims.push_back(shape[axis]);
  return dims;
}

std::int64_t signed_of(std::size_t n) { return static_cast<std::int64_t>(n); }

Array view_of(const Shape& shape, const double* entries) {
  if (shape.rank() == 0) return Array(*entries);
  if (shape.rank() == 1) return Array::view(std::span(entries, static_cast<std::size_t>(shape.size())));
  return Array::view(MatrixView{entries, shape[0], shape[1], shape[1], 1});
}

}  // namespace

Evaluation::Evaluation(std::string name, const Function& function, std::size_t first, std::size_t directed, bool raises)
    : name_(std::move(name)), function_(function), plan_(function), first_(first), directed_(directed), raises_(raises) {}

void Evaluation::check_finite(std::span<const std::span<double>> results) const {
  for (const std::span<double> result : results)
    for (const double entry : result)
      if (!std::isfinite(entry))
        throw NoDerivativeError("[" + name_ + "] the second derivative is not finite: the solution may be degenerate",
                                "not finite", Status::not_finite);
}

bool Evaluation::is_zero_in(std::span<const Array> directions) const {
  const auto is_zero = [](const Array& direction) {
    return std::ranges::all_of(direction.values(), [](double entry) { return entry == 0; });
  };
  return std::ranges::all_of(directions.first(first_), is_zero) || std::ranges::all_of(directions.subspan(first_), is_zero);
}

Workspace Evaluation::take() {
  {
    const std::scoped_lock lock(mutex_);
    if (!idle_.empty()) {
      Workspace last = std::move(idle_.back());
      idle_.pop_back();
      return last;
    }
  }
  return plan_.workspace();
}

void Evaluation::run(const Layout& layout, std::size_t directions, Inputs inputs, Outputs out) {
  const std::span<const Input> arguments = function_.inputs();
  Workspace workspace = take();
  for (std::size_t d = 0; d < directions; ++d)
    for (std::size_t i = 0; i < layout.count; ++i) {
      std::vector<Array> values;
      for (std::size_t k = 0; k < arguments.size(); ++k) {
        const auto size = static_cast<std::size_t>(arguments[k].shape.size());
        std::size_t at = 0;
        if (k < directed_)
          at = d * layout.count + i;
        else if (layout.batched[k - directed_])
          at = i;
        values.push_back(view_of(arguments[k].shape, inputs[k] + at * size));
      }
      std::vector<std::span<double>> results;
      for (std::size_t r = 0; r < out.size(); ++r) {
        const auto size = static_cast<std::size_t>(function_.outputs()[r].shape().size());
        results.emplace_back(out[r] + (d * layout.count + i) * size, size);
      }
      if (is_zero_in(std::span(values).first(directed_))) {
        for (const std::span<double> result : results) std::ranges::fill(result, 0.0);
        continue;
      }
      plan_.run(workspace, values, results);
      if (raises_) check_finite(results);
    }
  const std::scoped_lock lock(mutex_);
  idle_.push_back(std::move(workspace));
}

std::shared_ptr<Call> Call::registered(std::shared_ptr<Call> call) {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  if (all.calls.size() >= all.next_sweep) {
    std::erase_if(all.calls, [](const auto& entry) { return entry.second.expired(); });
    all.next_sweep = 2 * all.calls.size() + 64;
  }
  call->number_ = ++all.last;
  all.calls.emplace(call->number_, call);
  return call;
}

std::shared_ptr<Call> Call::of(std::int64_t number) {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  const auto found = all.calls.find(number);
  return found == all.calls.end() ? nullptr : found->second.lock();
}

void Call::add_inputs_of_problems() {
  for (std::size_t i = 0; i < problems_->inputs(); ++i)
    inputs_.push_back(layout_.batched[i] ? dims_of(problems_->input(i), {signed_of(layout_.count)})
                                         : dims_of(problems_->input(i), {}));
}

void Call::add_directions(std::vector<Dims>& to) {
  const std::vector<Shape>& theta = problems_->shapes().theta;
  for (std::size_t k = 0; k < theta.size(); ++k) {
    if (!which_.given[k]) continue;
    const bool has_axis = layout_.batched[problems_->shapes().start.size() + k] || which_.apart[k];
    to.push_back(has_axis ? dims_of(theta[k], {signed_of(which_.count), signed_of(layout_.count)})
                          : dims_of(theta[k], {signed_of(which_.count)}));
  }
}

void Call::add_state(std::vector<Dims>& to, bool with_directions) {
  for (const Shape& part : problems_->shapes().state)
    to.push_back(with_directions ? dims_of(part, {signed_of(which_.count), signed_of(layout_.count)})
                                 : dims_of(part, {signed_of(layout_.count)}));
}

std::shared_ptr<Call> Call::solve(std::shared_ptr<Problems> problems, Layout layout) {
  std::shared_ptr<Call> call(new Call(Kind::solve, std::move(layout)));
  call->problems_ = std::move(problems);
  call->add_inputs_of_problems();
  call->add_state(call->outputs_, false);
  return registered(std::move(call));
}

std::shared_ptr<Call> Call::vjp(std::shared_ptr<Problems> problems, Layout layout, Directions which) {
  std::shared_ptr<Call> call(new Call(Kind::vjp, std::move(layout)));
  call->problems_ = std::move(problems);
  call->which_ = std::move(which);
  call->add_state(call->inputs_, true);
  call->add_inputs_of_problems();
  call->add_state(call->inputs_, false);
  call->add_directions(call->outputs_);
  return registered(std::move(call));
}

std::shared_ptr<Call> Call::jvp(std::shared_ptr<Problems> problems, Layout layout, Directions which) {
  std::shared_ptr<Call> call(new Call(Kind::jvp, std::move(layout)));
  call->problems_ = std::move(problems);
  call->which_ = std::move(which);
  call->add_directions(call->inputs_);
  call->add_inputs_of_problems();
  call->add_state(call->inputs_, false);
  call->add_state(call->outputs_, true);
  return registered(std::move(call));
}

std::shared_ptr<Call> Call::evaluate(std::shared_ptr<Evaluation> evaluation, Layout layout, std::size_t directions) {
  std::shared_ptr<Call> call(new Call(Kind::evaluate, std::move(layout)));
  call->which_.count = directions;
  call->evaluation_ = std::move(evaluation);
  const std::span<const Input> arguments = call->evaluation_->function().inputs();
  const std::int64_t count = signed_of(call->layout_.count);
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    const bool is_direction = k < call->evaluation_->directed();
    if (is_direction)
      call->inputs_.push_back(dims_of(arguments[k].shape, {signed_of(directions), count}));
    else if (call->layout_.batched[k - call->evaluation_->directed()])
      call->inputs_.push_back(dims_of(arguments[k].shape, {count}));
    else
      call->inputs_.push_back(dims_of(arguments[k].shape, {}));
  }
  for (const Expr& result : call->evaluation_->function().outputs())
    call->outputs_.push_back(dims_of(result.shape(), {signed_of(directions), count}));
  return registered(std::move(call));
}

void Call::run(Inputs inputs, Outputs outputs, std::int32_t* statuses) {
  const std::size_t starts_at = kind_ == Kind::vjp   ? problems_->shapes().state.size()
                                : kind_ == Kind::jvp ? inputs.size() - problems_->inputs() - problems_->shapes().state.size()
                                                     : 0;
  const auto rest = [&] { return inputs.subspan(starts_at); };
  switch (kind_) {
    case Kind::solve: return problems_->solve(layout_, inputs, outputs, statuses);
    case Kind::vjp:
      return problems_->vjp(layout_, which_, inputs.first(starts_at), rest().first(problems_->inputs()),
                            rest().subspan(problems_->inputs()), outputs);
    case Kind::jvp:
      return problems_->jvp(layout_, which_, inputs.first(starts_at), rest().first(problems_->inputs()),
                            rest().subspan(problems_->inputs()), outputs);
    case Kind::evaluate: return evaluation_->run(layout_, which_.count, inputs, outputs);
  }
}

}  // namespace onestep::python
