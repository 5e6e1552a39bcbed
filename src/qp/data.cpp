// One plan evaluates the data, pulls cotangents of them back to θ and pushes tangents of θ forward.
#include "qp/data.h"

#include <algorithm>
#include <cmath>

#include "linear/random.h"

namespace onestep::detail {

QpDataAt::QpDataAt(const QpDataPlan& data)
    : plan_(*data.plan),
      workspace_(plan_.workspace()),
      moves_(data.moves),
      smooth_(data.smooth),
      thetas_(data.parameters.size()) {
  const std::array<Shape, blocks> shapes = shapes_of(data.sizes);
  for (const Input& p : data.parameters) inputs_.push_back(zeros(p.shape));
  for (std::size_t i = 0; i < blocks; ++i) {
    const auto size = static_cast<std::size_t>(shapes[i].size());
    values_.emplace_back(size);
    bars_.emplace_back(moves_[i] ? size : 0);
    tangents_.emplace_back(moves_[i] ? size : 0);
    if (!moves_[i]) continue;
    inputs_.push_back(shapes[i].rank() == 2
                          ? Array::view(MatrixView{bars_[i].data(), shapes[i][0], shapes[i][1], shapes[i][1], 1})
                          : Array::view(bars_[i]));
  }
  dtheta_ = static_cast<std::ptrdiff_t>(inputs_.size());
  for (const Input& p : data.parameters) inputs_.push_back(zeros(p.shape));
  inputs_.insert(inputs_.end(), data.constants.begin(), data.constants.end());
  outputs_.resize(blocks + thetas_ + static_cast<std::size_t>(std::ranges::count(moves_, true)));
  std::ranges::copy(values_, outputs_.begin());
  data_.n = static_cast<std::size_t>(data.sizes.n);
  data_.m = static_cast<std::size_t>(data.sizes.m);
  data_.p = static_cast<std::size_t>(data.sizes.p);
  data_ = view(values_);
}

const QpData& QpDataAt::bind(std::span<const Array> theta) {
  std::ranges::copy(theta, inputs_.begin());
  for (std::size_t i = 0; i < blocks; ++i)
    if (moves_[i]) outputs_[i] = values_[i];
  plan_.run(workspace_, inputs_, outputs_, QpDataPlan::theta_level, QpDataPlan::theta_level);
  std::fill_n(outputs_.begin(), blocks, Vector{});
  return data_;
}

QpCotangents QpDataAt::view_of(std::vector<std::vector<double>>& memory) {
  const auto at = [&](std::size_t i) { return memory[i].empty() ? nullptr : memory[i].data(); };
  return {at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8)};
}

QpData QpDataAt::view(const std::vector<std::vector<double>>& memory) const {
  QpData d = data_;
  const auto at = [&](std::size_t i) { return memory[i].empty() ? nullptr : memory[i].data(); };
  d.Q = at(0), d.q = at(1), d.A = at(2), d.b = at(3), d.G = at(4), d.l = at(5), d.u = at(6), d.lo = at(7), d.hi = at(8);
  return d;
}

void QpDataAt::pull_back(std::span<const Vector> out) {
  std::ranges::copy(out, outputs_.begin() + blocks);
  plan_.run(workspace_, inputs_, outputs_, QpDataPlan::pull_back_branch, QpDataPlan::pull_back_branch);
  std::fill_n(outputs_.begin() + blocks, thetas_, Vector{});
}

std::vector<double> QpDataAt::pulled_back() {
  std::size_t size = 0;
  for (std::size_t i = 0; i < thetas_; ++i) size += static_cast<std::size_t>(inputs_[i].size());
  std::vector<double> all(size);
  std::vector<Vector> parts;
  Vector rest = all;
  for (std::size_t i = 0; i < thetas_; ++i) {
    parts.push_back(rest.first(static_cast<std::size_t>(inputs_[i].size())));
    rest = rest.subspan(parts.back().size());
  }
  pull_back(parts);
  return all;
}

QpData QpDataAt::push_forward(std::span<const Array> dtheta) {
  std::ranges::copy(dtheta, inputs_.begin() + dtheta_);
  auto to = outputs_.begin() + static_cast<std::ptrdiff_t>(blocks + thetas_);
  for (std::size_t i = 0; i < blocks; ++i)
    if (moves_[i]) *to++ = tangents_[i];
  plan_.run(workspace_, inputs_, outputs_, QpDataPlan::push_forward_branch, QpDataPlan::push_forward_branch);
  std::fill(outputs_.begin() + static_cast<std::ptrdiff_t>(blocks + thetas_), outputs_.end(), Vector{});
  return view(tangents_);
}

std::vector<Array> QpDataAt::direction() const {
  const auto first = inputs_.begin() + dtheta_;
  return {first, first + static_cast<std::ptrdiff_t>(thetas_)};
}

bool QpDataAt::visit_corners(const std::function<void()>& look) {
  constexpr double radius = 1e-13;  // relative to the largest entry of a parameter
  // The first moves all entries the same way, the others each its own: of two that are equal one moves away from the other.
  constexpr std::uint64_t pairs = 4;
  const std::vector<Array> theta(inputs_.begin(), inputs_.begin() + static_cast<std::ptrdiff_t>(thetas_));
  const std::vector<std::vector<double>> here = values_;
  bool jumps = false;
  for (std::uint64_t pair = 0; pair < pairs && !jumps; ++pair) {
    for (const double side : {radius, -radius}) {
      const Perturbed corner = perturbed(
          theta, [&](std::size_t entry, double size) { return side * (pair > 0 ? random_entry(entry, pair) : 1) * size; });
      bind(corner.theta);
      push_forward(corner.moves);
      jumps = jumps || jumped_from(here);
      if (!jumps) look();
    }
  }
  bind(theta);
  owner = nullptr;
  return !jumps;
}

/// By more than a step of this length does to data that are smooth on one side of it.
bool QpDataAt::jumped_from(const std::vector<std::vector<double>>& before) const {
  constexpr double rounding = 1e-9;
  for (std::size_t i = 0; i < blocks; ++i) {
    if (!moves_[i]) continue;
    double size = 0, change = 0, slope = 0;
    for (std::size_t k = 0; k < before[i].size(); ++k) {
      if (before[i][k] == values_[i][k]) continue;  // infinite bounds among them
      if (!std::isfinite(before[i][k]) || !std::isfinite(values_[i][k])) return true;
      size = std::max(size, std::fabs(before[i][k]));
      change = std::max(change, std::fabs(values_[i][k] - before[i][k]));
      slope = std::max(slope, std::fabs(tangents_[i][k]));
    }
    if (!(change <= rounding * size + 4 * slope)) return true;
  }
  return false;
}

}  // namespace onestep::detail
