// A solver the library does not have: Halley's method for G(x, θ) = 0, of third order. It is written as a map, and gets
// every estimator and the certificate.
#include <onestep/onestep.h>

#include <cmath>
#include <iostream>
using namespace onestep;

// x - (J - ½ J'[J⁻¹G])⁻¹ G, with J = ∂G/∂x and J'[s] its derivative along s.
template <class G> Solver halley(G residual) {
  return fixed_point([residual](Expr x, Expr theta) {
           const Expr g = residual(x, theta), J = jacobian(g, x), s = solve(lu(J), g);
           return x - solve(lu(J - 0.5 * jvp(J, x, s)), g);
         })
      .equation(residual);  // simpler than x - F(x, θ) = 0: what implicit differentiation solves
}

int main() {
  // Two circles of radii √θ around (0, 0) and (1, 0): they meet at x = (1 + θ₀ - θ₁)/2.
  const auto circles = [](Expr x, Expr theta) {
    const Array centre{1.0, 0.0};
    return concat({reshape(sum(square(x)), {1}), reshape(sum(square(x - centre)), {1})}) - theta;
  };
  const Array theta{1.5, 1.0}, c{1.0, 0.0};
  const std::pair<const char*, Estimator> estimators[] = {{"one step", OneStep{}},
                                                          {"two steps", KStep{2}},
                                                          {"implicit", Implicit{}},
                                                          {"unrolled", Unrolled{}},
                                                          {"auto", Auto{.tolerance = 1e-9}}};
  bool right = true;
  for (const auto& [name, estimator] : estimators) {
    const Solution s = solve(halley(circles), Array{1.0, 1.0}, theta, estimator);
    const Array g = s.vjp(c);  // (1/2, -1/2)
    std::cout << name << ": x = " << s.x() << " in " << s.statistics().iterations << " steps, dx₀/dθ = " << g << "\n  "
              << s.certificate(c) << '\n';
    right = right && std::abs(g(0) - 0.5) < 1e-9 && std::abs(g(1) + 0.5) < 1e-9;
  }
  return right ? 0 : 1;
}
