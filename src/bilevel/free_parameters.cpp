// Parameters to and from the vector that an outer method moves: logarithms of positive ones, bounds, and slopes.
#include "bilevel/free_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace onestep::detail {

namespace {

using Kind = Parameter::Kind;

double to_moved(Kind kind, double theta) {
  return kind == Kind::positive ? std::log(theta) : kind == Kind::unit ? std::log(theta) - std::log1p(-theta) : theta;
}
double to_theta(Kind kind, double u) {
  return kind == Kind::positive ? std::exp(u) : kind == Kind::unit ? 1 / (1 + std::exp(-u)) : u;
}
double derivative_of_theta(Kind kind, double u) {
  const double theta = to_theta(kind, u);
  return kind == Kind::positive ? theta : kind == Kind::unit ? theta / (1 + std::exp(u)) : 1.0;
}

}  // namespace

FreeParameters::FreeParameters(const std::vector<Parameter>& parameters) : parameters_(parameters) {
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    Parameter& parameter = parameters_[p];
    parameter.start = parameter.start.contiguous();
    if (parameter.kind == Kind::fixed) continue;
    const double least = parameter.kind == Kind::real ? -std::numeric_limits<double>::infinity() : 0.0;
    const double most = parameter.kind == Kind::unit ? 1.0 : std::numeric_limits<double>::infinity();
    parameter.low = std::max(parameter.low, least);
    parameter.high = std::min(parameter.high, most);
    if (!(parameter.low <= parameter.high))
      throw MisuseError(
          fmt::format("[minimise] parameter {}: no number is at least {} and at most {}", p, parameter.low, parameter.high));
    for (const double theta : parameter.start.values()) {
      if (!std::isfinite(theta) || theta < parameter.low || theta > parameter.high)
        throw MisuseError(fmt::format("[minimise] parameter {} starts at {}, outside of [{}, {}]", p, theta, parameter.low,
                                      parameter.high));
      const double u = to_moved(parameter.kind, theta);
      if (!std::isfinite(u))
        throw MisuseError(fmt::format("[minimise] parameter {} starts at {}, from where its {} cannot move; start inside", p,
                                      theta, parameter.kind == Kind::positive ? "logarithm" : "logit"));
      start_.push_back(u);
      low_.push_back(to_moved(parameter.kind, parameter.low));
      high_.push_back(to_moved(parameter.kind, parameter.high));
    }
  }
  if (start_.empty()) throw MisuseError("[minimise] no parameter is moved: there is none, or all are fixed");
}

template <class F> void FreeParameters::for_each(const F& f) const {
  std::size_t i = 0;
  for (std::size_t p = 0; p < parameters_.size(); ++p)
    if (parameters_[p].kind != Kind::fixed)
      for (std::size_t e = 0; e < static_cast<std::size_t>(parameters_[p].start.size()); ++e) f(i++, p, e);
}

Parts FreeParameters::theta(std::span<const double> u) const {
  std::vector<std::vector<double>> entries;
  for (const Parameter& p : parameters_) entries.emplace_back(p.start.values().begin(), p.start.values().end());
  // At a bound it is the bound, not what a logarithm and back make of it.
  for_each([&](std::size_t i, std::size_t p, std::size_t e) {
    const Parameter& parameter = parameters_[p];
    entries[p][e] = u[i] <= low_[i]    ? parameter.low
                    : u[i] >= high_[i] ? parameter.high
                                       : std::clamp(to_theta(parameter.kind, u[i]), parameter.low, parameter.high);
  });
  std::vector<Array> all;
  for (std::size_t p = 0; p < parameters_.size(); ++p) all.emplace_back(parameters_[p].start.shape(), std::move(entries[p]));
  return all;
}

std::vector<double> FreeParameters::entries(std::span<const double> u) const {
  const Parts all = theta(u);
  std::vector<double> result(size());
  for_each([&](std::size_t i, std::size_t p, std::size_t e) { result[i] = all[p].values()[e]; });
  return result;
}

std::vector<double> FreeParameters::pulled_back(std::span<const double> u,
                                                const std::vector<std::vector<double>>& gradient) const {
  std::vector<double> result(size());
  for_each([&](std::size_t i, std::size_t p, std::size_t e) {
    result[i] = derivative_of_theta(parameters_[p].kind, u[i]) * gradient[p][e];
  });
  return result;
}

double FreeParameters::stretch(std::span<const double> u) const {
  double largest = 0;
  for_each([&](std::size_t i, std::size_t p, std::size_t) {
    largest = std::max(largest, derivative_of_theta(parameters_[p].kind, u[i]));
  });
  return largest;
}

void FreeParameters::project(std::span<double> u) const {
  for (std::size_t i = 0; i < size(); ++i) u[i] = std::clamp(u[i], low_[i], high_[i]);
}

std::vector<double> FreeParameters::shifted(std::vector<double> u, std::span<const double> step, double length) const {
  for (std::size_t i = 0; i < size(); ++i) u[i] += length * step[i];
  project(u);
  return u;
}

double slope(std::span<const double> gradient, std::span<const double> from, std::span<const double> to) {
  double sum = 0;
  for (std::size_t i = 0; i < to.size(); ++i) sum += gradient[i] * (to[i] - from[i]);
  return sum;
}

bool FreeParameters::is_held(std::size_t i, std::span<const double> u, std::span<const double> gradient) const {
  return (u[i] <= low_[i] && gradient[i] > 0) || (u[i] >= high_[i] && gradient[i] < 0);
}

std::vector<double> FreeParameters::free_gradient(std::span<const double> u, std::span<const double> gradient) const {
  std::vector<double> result(gradient.begin(), gradient.end());
  for (std::size_t i = 0; i < size(); ++i)
    if (is_held(i, u, gradient)) result[i] = 0;
  return result;
}

double FreeParameters::largest_free(std::span<const double> u, std::span<const double> gradient) const {
  double largest = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    if (is_held(i, u, gradient)) continue;
    if (!std::isfinite(gradient[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::fabs(gradient[i]) * std::max(1.0, std::fabs(u[i])));
  }
  return largest;
}

}  // namespace onestep::detail
