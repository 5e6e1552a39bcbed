// A plan of the objective alone, with its memory.
#include "solve/trial.h"

#include <algorithm>

namespace onestep::detail {

TrialFunction::TrialFunction(std::size_t n, std::vector<Input> parameters, std::vector<Array> data, const Context& context,
                             Value value)
    : shared_(std::make_shared<Shared>()), data_(std::move(data)) {
  shared_->inputs.emplace_back("x", Shape{static_cast<std::int64_t>(n)});
  shared_->levels.push_back(2);
  for (Input& p : parameters) shared_->inputs.push_back(std::move(p));
  shared_->levels.resize(shared_->inputs.size(), 1);
  for (const Array& a : data_) shared_->inputs.emplace_back("data", a.shape());
  shared_->levels.resize(shared_->inputs.size(), 0);
  shared_->context = context;
  shared_->value = std::move(value);
}
const Plan& TrialFunction::plan() const {
  std::call_once(shared_->once, [&] {
    const Function function(
        shared_->inputs, [&](std::span<const Expr> in) { return std::vector<Expr>{shared_->value(in[0], in.subspan(1))}; });
    shared_->plan.emplace(function, PlanOptions{.levels = shared_->levels, .context = shared_->context});
  });
  return *shared_->plan;
}

Trial::Trial(const TrialFunction& function, std::size_t n, const std::vector<Input>& parameters)
    : plan_(function.plan()), workspace_(plan_.workspace()), x_(n), inputs_{Array::view(x_)} {
  for (const Input& p : parameters) inputs_.push_back(zeros(p.shape));
  inputs_.insert(inputs_.end(), function.data().begin(), function.data().end());
}
void Trial::bind(std::span<const Array> theta) {
  std::ranges::copy(theta, inputs_.begin() + 1);
  changed_ = std::min(changed_, 1);
}
double Trial::operator()(ConstVector x) {
  std::ranges::copy(x, x_.begin());
  double value = 0;
  const Vector out(&value, 1);
  plan_.run(workspace_, inputs_, {&out, 1}, changed_);
  changed_ = 2;
  return value;
}

}  // namespace onestep::detail
