// Maps of callbacks: the point remembers where it is, the callbacks do the rest.
#include "solve/foreign_map.h"

#include <fmt/format.h>

namespace onestep::detail {
namespace {

class ForeignPoint final : public Point {
 public:
  explicit ForeignPoint(std::shared_ptr<const ForeignMap> map) : map_(std::move(map)) { x_.reserve(map_->size()); }
  void bind(std::span<const Array> theta) override {
    theta_.assign(theta.begin(), theta.end());
    x_.clear();
  }
  bool apply(ConstVector x, ConstVector, Vector y) override {
    x_.assign(x.begin(), x.end());
    map_->callbacks.apply(x_, theta_, y);
    return true;
  }
  bool control(ConstVector, Vector y) override {
    map_->callbacks.apply(x_, theta_, y);
    return true;
  }
  ConstVector where() const override { return x_; }
  void jvp_x(ConstVector dx, Vector out) override { map_->callbacks.jvp(x_, theta_, dx, {}, out); }
  void vjp_x(ConstVector c, Vector out) override { map_->callbacks.vjp(x_, theta_, c, out, {}); }
  void jvp_theta(std::span<const Array> dtheta, Vector out) override { map_->callbacks.jvp(x_, theta_, {}, dtheta, out); }
  void vjp_theta(ConstVector c, std::span<const Vector> out) override { map_->callbacks.vjp(x_, theta_, c, {}, out); }

 private:
  std::shared_ptr<const ForeignMap> map_;
  std::vector<double> x_;
  std::vector<Array> theta_;
};

}  // namespace

ForeignMap::ForeignMap(const char* what, ForeignStep its_callbacks, const std::vector<Shape>& state_parts,
                       const std::vector<Input>& its_parameters)
    : callbacks(std::move(its_callbacks)) {
  state = state_parts;
  parameters = its_parameters;
  smooth = false;  // plain C++ may have branches
  if (!callbacks.jvp) no_jvp = fmt::format("the {} has no jvp callback", what);
  if (!callbacks.vjp) no_vjp = fmt::format("the {} has no vjp callback", what);
  // Not known: taken to be those of dense matrices, so that Auto weighs terms against a factorisation.
  const auto n = static_cast<double>(size());
  double m = 0;
  for (const Input& p : parameters) m += static_cast<double>(p.shape.size());
  costs = {.apply = n * n, .jvp_x = n * n, .vjp_x = n * n, .jvp_theta = n * m, .vjp_theta = n * m, .precondition = 0};
}

std::unique_ptr<Point> ForeignMap::point(bool) const { return std::make_unique<ForeignPoint>(shared_from_this()); }

}  // namespace onestep::detail
