// What an outer method moves: one vector u without units, from which the parameters follow entry by entry.
#pragma once

#include <span>
#include <vector>

#include "onestep/bilevel.h"

namespace onestep::detail {

class FreeParameters {
 public:
  /// Throws MisuseError, naming the parameter, for starts and bounds that do not go together.
  explicit FreeParameters(const std::vector<Parameter>& parameters);

  std::size_t size() const { return start_.size(); }
  const std::vector<double>& start() const { return start_; }
  const std::vector<double>& low() const { return low_; }
  const std::vector<double>& high() const { return high_; }

  Parts theta(std::span<const double> u) const;
  /// The entries of the parameters that are moved.
  std::vector<double> entries(std::span<const double> u) const;
  /// dθ/du times a gradient with respect to all parameters.
  std::vector<double> pulled_back(std::span<const double> u, const std::vector<std::vector<double>>& gradient) const;
  /// The largest |dθ/du|: how much longer a vector can become by it.
  double stretch(std::span<const double> u) const;

  /// Onto the bounds.
  void project(std::span<double> u) const;
  /// u + length * step, onto the bounds.
  std::vector<double> shifted(std::vector<double> u, std::span<const double> step, double length) const;
  /// Whether it is at a bound that the gradient pushes against.
  bool is_held(std::size_t i, std::span<const double> u, std::span<const double> gradient) const;
  /// The gradient without entries that are held.
  std::vector<double> free_gradient(std::span<const double> u, std::span<const double> gradient) const;
  /// Its largest entry, each times the size of what it belongs to, at least 1; infinite where one is not finite.
  double largest_free(std::span<const double> u, std::span<const double> gradient) const;

 private:
  // Calls f(entry of u, parameter, entry of the parameter) for each entry that is moved.
  template <class F> void for_each(const F& f) const;

  std::vector<Parameter> parameters_;
  std::vector<double> start_, low_, high_;
};

/// How much a function with this gradient changes on the way, to first order.
double slope(std::span<const double> gradient, std::span<const double> from, std::span<const double> to);

}  // namespace onestep::detail
