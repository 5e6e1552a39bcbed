// A step with derivatives written by hand: Kepler's equation E - e sin E = M by the oldest iteration for it, E ← M + e sin
// E.
#include <onestep/onestep.h>

#include <cmath>
#include <iostream>
using namespace onestep;

int main() {
  // The state is E, the parameters are the anomaly M and the eccentricity e, both numbers.
  const ForeignStep kepler{
      .apply = [](auto x, auto theta, auto next) { next[0] = theta[0].item() + theta[1].item() * std::sin(x[0]); },
      // Either of dx and dtheta may be empty: it is then zero.
      .jvp =
          [](auto x, auto theta, auto dx, auto dtheta, auto out) {
            out[0] = 0;
            if (!dx.empty()) out[0] += theta[1].item() * std::cos(x[0]) * dx[0];
            if (!dtheta.empty()) out[0] += dtheta[0].item() + std::sin(x[0]) * dtheta[1].item();
          },
      // Either of x_bar and theta_bar may be empty: it is then not wanted.
      .vjp =
          [](auto x, auto theta, auto c, auto x_bar, auto theta_bar) {
            if (!x_bar.empty()) x_bar[0] = theta[1].item() * std::cos(x[0]) * c[0];
            if (!theta_bar.empty()) theta_bar[0][0] = c[0], theta_bar[1][0] = std::sin(x[0]) * c[0];
          }};

  const double M = 1.0, e = 0.3;
  const Solution s = solve(fixed_point(kepler), zeros(1), {Array(M), Array(e)}, Auto{.tolerance = 1e-10});
  const Parts g = s.vjp(ones(1));
  const double E = s.x()(0), exact = 1 / (1 - e * std::cos(E));
  std::cout << "E = " << E << ", dE/dM = " << g[0] << ", dE/de = " << g[1] << " by " << s.report().method << '\n'
            << s.certificate(ones(1)) << '\n';
  return std::abs(g[0].item() - exact) < 1e-9 && std::abs(g[1].item() - exact * std::sin(E)) < 1e-9 ? 0 : 1;
}
