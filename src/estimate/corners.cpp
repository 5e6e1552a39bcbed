// Visits corners of a small cube around x, in pairs, where a switch of the step may lie within reach.
#include "estimate/corners.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "estimate/certify.h"
#include "linear/random.h"

namespace onestep::detail {
namespace {

constexpr int pairs = 3;
constexpr std::uint64_t seed_of_moves = 1;
constexpr double parameter_radius = 1e-13;  // relative to the largest entry
// An operation is far from its kink where what decides it changes by less than this, relative, between x and a corner.
constexpr double far_from_kink = 0.5;

// All entries the same way first, then each its own: of two that are equal one has to move away from the other.
std::vector<Array> corner_of(std::span<const Array> theta, double side, int pair) {
  const auto by = [&](std::size_t entry, double size) {
    const double way = pair == 0 ? 1 : random_entry(entry, seed_of_moves + static_cast<std::uint64_t>(pair));
    return side * parameter_radius * size * way;
  };
  return perturbed(theta, by).theta;
}

}  // namespace

Corners::Corners(SolutionState& s, const Map& map, ConstVector x)
    : s_(s), map_(map), x_(x), switches_(map.switches()), y_(x.size()) {
  if (switches_) here_ = switches_->at(x, s.theta, s.run.controls);
}

bool Corners::visit(double half_width, double noise, const std::function<void(Point&)>& look) {
  noise_ = noise;
  std::vector<double> corner(x_.size()), moves(x_.size());
  for (int pair = 0; pair < pairs; ++pair) {
    for (std::size_t i = 0; i < moves.size(); ++i)
      moves[i] = random_entry(i, seed_of_moves + static_cast<std::uint64_t>(pair));
    for (const double side : {1.0, -1.0}) {
      std::ranges::copy(x_, corner.begin());
      add(corner, moves, side * half_width);
      if (!visit_corner(corner, s_.theta, look)) return false;
    }
  }
  for (int pair = 0; pair < pairs; ++pair)
    for (const double side : {1.0, -1.0})
      if (!visit_corner(x_, corner_of(s_.theta, side, pair), look)) return false;
  return true;
}

bool Corners::visit_corner(ConstVector x, std::span<const Array> theta, const std::function<void(Point&)>& look) {
  if (switches_ && !may_switch(x, theta)) return true;
  if (!point_) {
    point_ = map_.point(true);
    point_->bind(s_.theta);
    next_.resize(y_.size());
    if (!point_->apply(x_, s_.run.controls, next_)) next_.assign(y_.size(), std::numeric_limits<double>::quiet_NaN());
  }
  point_->bind(theta);
  if (!point_->apply(x, s_.run.controls, y_) || !all_finite(y_) || jumps(x, theta)) return false;
  look(*point_);
  return true;
}

// Of F itself: derivatives of a step that is not continuous may be the same on both sides.
bool Corners::jumps(ConstVector x, std::span<const Array> theta) {
  constexpr double far_more = 1e3;
  std::vector<double> change = y_, by(x.begin(), x.end()), product(y_.size());
  add(change, next_, -1);
  add(by, x_, -1);
  const double size = norm(change), explained = norm(by) + noise_;
  if (size <= far_more * explained) return false;
  if (!map_.no_jvp.empty()) return theta.data() == s_.theta.data();
  point_->jvp_x(by, product);
  double steep = norm(product);
  if (theta.data() != s_.theta.data()) {
    std::vector<Array> by_theta;
    for (std::size_t i = 0; i < theta.size(); ++i) {
      const auto count = static_cast<std::size_t>(theta[i].size());
      std::vector<double> moved(count), here(count);
      flatten({&theta[i], 1}, moved);
      flatten({&s_.theta[i], 1}, here);
      for (std::size_t j = 0; j < count; ++j) moved[j] = moved[j] == here[j] ? 0 : moved[j] - here[j];
      by_theta.emplace_back(theta[i].shape(), std::move(moved));
    }
    point_->jvp_theta(by_theta, product);
    steep += norm(product);
  }
  return size > far_more * (explained + steep);
}

bool Corners::may_switch(ConstVector x, std::span<const Array> theta) {
  return detail::may_switch(here_, switches_->at(x, theta, s_.run.controls));
}

bool may_switch(ConstVector here, ConstVector there) {
  for (std::size_t i = 0; i < here.size(); ++i)
    if (there[i] != here[i] && !(std::fabs(there[i] - here[i]) <= far_from_kink * std::fabs(here[i]))) return true;
  return false;
}

}  // namespace onestep::detail
