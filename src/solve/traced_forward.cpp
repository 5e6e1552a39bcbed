// Steps of a traced map with their tangents: one plan for both.
#include <algorithm>
#include <array>

#include "onestep/diff.h"
#include "solve/traced_map.h"

namespace onestep::detail {

const Plan& TracedMap::forward_plan() const {
  return shared_->forward_plan.made([&] {
    const Shape n = vector_shape(size());
    const std::size_t thetas = parameters.size();
    std::vector<Input> inputs = step_inputs();
    const std::size_t of_step = inputs.size();
    inputs.emplace_back("d_x", n);
    for (const Input& p : parameters) inputs.emplace_back("d_" + p.name, p.shape);
    std::vector<int> levels = step_levels();
    for (int& level : levels) level = std::min(level, x_level);
    levels.push_back(x_level);
    levels.resize(inputs.size(), theta_level);
    const Function function(inputs, [&](std::span<const Expr> in) {
      std::vector<Expr> all(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(of_step));
      all.resize(of_step + 2, broadcast(0.0, n));
      const Expr next = (*shared_->step)(all).front();
      return std::vector<Expr>{next, jvp({&next, 1}, in.first(1 + thetas), in.subspan(of_step)).front()};
    });
    return Plan(function, {.levels = levels, .loop = x_level, .context = shared_->context});
  });
}

/// One thread's memory for steps with tangents.
class TracedForwardPoint final : public ForwardPoint {
 public:
  explicit TracedForwardPoint(std::shared_ptr<const TracedMap> map)
      : map_(std::move(map)),
        plan_(map_->forward_plan()),
        workspace_(plan_.workspace()),
        memory_(2 * map_->size() + map_->shared_->controls.size()),
        x_(Vector(memory_).first(map_->size())),
        dx_(Vector(memory_).subspan(map_->size(), map_->size())),
        controls_(Vector(memory_).subspan(2 * map_->size())) {
    inputs_.push_back(Array::view(x_));
    for (const Input& p : map_->parameters) inputs_.push_back(zeros(p.shape));
    inputs_.insert(inputs_.end(), map_->data_.begin(), map_->data_.end());
    for (std::size_t i = 0; i < controls_.size(); ++i) inputs_.push_back(Array::view(controls_.subspan(i, 1)));
    inputs_.push_back(Array::view(dx_));
    for (const Input& p : map_->parameters) inputs_.push_back(zeros(p.shape));
  }

  void bind(std::span<const Array> theta, std::span<const Array> dtheta) override {
    std::ranges::copy(theta, inputs_.begin() + 1);
    std::ranges::copy(dtheta, inputs_.end() - static_cast<std::ptrdiff_t>(dtheta.size()));
    changed_ = theta_level;
  }
  void step(ConstVector x, ConstVector controls, ConstVector dx, Vector y, Vector dy) override {
    std::ranges::copy(x, x_.begin());
    std::ranges::copy(dx, dx_.begin());
    for (std::size_t i = 0; i < controls.size(); ++i)
      if (controls_[i] != controls[i] && map_->shared_->controls[i] == Control::per_solve) changed_ = theta_level;
    std::ranges::copy(controls, controls_.begin());
    const std::array outputs{y, dy};
    plan_.run(workspace_, inputs_, outputs, changed_);
    changed_ = x_level;
  }

 private:
  std::shared_ptr<const TracedMap> map_;
  const Plan& plan_;
  Workspace workspace_;
  std::vector<double> memory_;
  Vector x_, dx_, controls_;
  std::vector<Array> inputs_;
  int changed_ = theta_level;
};

std::unique_ptr<ForwardPoint> TracedMap::forward() const {
  if (!no_jvp.empty()) return nullptr;
  return std::make_unique<TracedForwardPoint>(shared_from_this());
}

}  // namespace onestep::detail
