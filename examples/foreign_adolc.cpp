// A step differentiated by another AD library, ADOL-C: it records what the step does and runs that forwards for jvp,
// backwards for vjp. Any library fits that gives one of the two.
#include <adolc/adolc.h>
#include <onestep/onestep.h>

#include <cmath>
#include <iostream>
using namespace onestep;

namespace {

// Equilibrium prices: each of three goods becomes dearer while the demand for it exceeds its supply θ.
template <class T> void adjust(const std::vector<T>& price, const std::vector<T>& supply, std::vector<T>& next) {
  T total = 0;
  for (const T& p : price) total += p;
  for (std::size_t i = 0; i < price.size(); ++i) {
    const T demand = exp(-price[i]) + 0.1 * (total - price[i]);
    next[i] = price[i] + 0.4 * (demand - supply[i]);
  }
}

constexpr short tape = 1;  // ADOL-C's tapes are global: one thread at a time

// Records the step at (x, θ) and returns that point, the arguments of the recorded function. It is recorded anew at each
// point, so the step may branch.
std::vector<double> record(std::span<const double> x, std::span<const Array> theta) {
  const std::size_t n = x.size();
  std::vector<double> point(x.begin(), x.end());
  for (const double t : theta[0].values()) point.push_back(t);
  trace_on(tape, 1);  // 1: keep the values a reverse sweep needs
  std::vector<adouble> price(n), supply(n), next(n);
  for (std::size_t i = 0; i < n; ++i) price[i] <<= point[i];
  for (std::size_t i = 0; i < n; ++i) supply[i] <<= point[n + i];
  adjust(price, supply, next);
  double value = 0;
  for (adouble& e : next) e >>= value;
  trace_off();
  return point;
}

const ForeignStep step{.apply =
                           [](auto x, auto theta, auto next) {
                             const std::vector<double> price(x.begin(), x.end());
                             const std::vector<double> supply(theta[0].values().begin(), theta[0].values().end());
                             std::vector<double> result(x.size());
                             adjust(price, supply, result);
                             std::ranges::copy(result, next.begin());
                           },
                       .jvp =
                           [](auto x, auto theta, auto dx, auto dtheta, auto out) {
                             std::vector<double> point = record(x, theta), direction(point.size()), value(x.size());
                             std::ranges::copy(dx, direction.begin());
                             if (!dtheta.empty())
                               std::ranges::copy(dtheta[0].values(), direction.begin() + static_cast<int>(x.size()));
                             const int n = static_cast<int>(x.size());
                             fos_forward(tape, n, 2 * n, 0, point.data(), direction.data(), value.data(), out.data());
                           },
                       .vjp =
                           [](auto x, auto theta, auto c, auto x_bar, auto theta_bar) {
                             std::vector<double> weights(c.begin(), c.end()), gradient(record(x, theta).size());
                             const int n = static_cast<int>(x.size());
                             fos_reverse(tape, n, 2 * n, weights.data(), gradient.data());
                             std::copy_n(gradient.begin(), x_bar.size(), x_bar.begin());
                             if (!theta_bar.empty()) std::copy_n(gradient.begin() + n, n, theta_bar[0].begin());
                           }};

}  // namespace

int main() {
  const Array supply{0.6, 0.5, 0.7}, c{1.0, 0.0, 0.0};
  const Solution s = solve(fixed_point(step), ones(3), supply, Auto{.tolerance = 1e-9});
  const Array g = s.vjp(c);
  std::cout << s.status() << " in " << s.statistics().iterations << " steps: prices " << s.x() << '\n'
            << "the first price by the supplies: " << g << " by " << s.report().method << '\n'
            << s.certificate(c) << '\n';

  // The same market traced, differentiated by solving its equation.
  const Solver traced = newton_root([](Expr p, Expr t) { return exp(-p) + 0.1 * (sum(p) - p) - t; });
  const Array expected = solve(traced, ones(3), supply, Implicit{}).vjp(c);
  for (std::int64_t i = 0; i < 3; ++i)
    if (!(std::abs(g(i) - expected(i)) < 1e-8 * std::abs(expected(i)))) return 1;
}
