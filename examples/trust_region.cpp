// A trust-region Newton method, written outside the library: the loop decides how far a step may go, the library makes the
// steps and differentiates what the loop finds, by every estimator and with a certificate.
#include <onestep/onestep.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <vector>
using namespace onestep;

namespace {

double distance(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

/// Steps x - (H + shift I)⁻¹g that stay within a radius, which grows where the quadratic model foretells f well and shrinks
/// where it does not.
class TrustRegion {
 public:
  void operator()(Iterates& at) {
    next_.resize(at.x().size());
    double radius = 1, shift = 0;
    while (!at.is_over()) {
      shift = shift_for(at, radius, shift);
      if (!(shift < 1e30)) return at.end(Status::not_convex, "no shift makes the Hessian positive definite");
      const double length = distance(at.x(), next_), value = at.value();
      const double foretold = 0.5 * (at.slope() + shift * length * length), fell = value - at.value_at(next_);
      // Near the solution rounding hides what f gains by a short full step.
      const bool is_short = shift == 0 && foretold <= 1e-12 * std::fabs(value);
      const double quality = is_short ? 1 : fell / foretold;
      if (quality > 0.75 && shift > 0) radius = std::max(radius, 2 * length);
      if (!(quality > 0.25)) radius = 0.25 * length;
      if (radius < 1e-14) return at.end(Status::line_search_failed, "the trust region vanished");
      if (quality > 0.1) at.accept();
    }
  }

 private:
  /// The smallest shift, of a sequence that begins with 0, for which H + shift I is positive definite and the step is not
  /// longer than the radius. The step is left in next_.
  double shift_for(Iterates& at, double radius, double last) {
    const auto fits = [&](double shift) { return at.propose({1.0, shift}, next_) && distance(at.x(), next_) <= radius; };
    if (fits(0)) return 0;
    double shift = last > 0 ? last / 16 : 1e-6;
    while (!fits(shift) && shift < 1e30) shift *= 4;
    return shift;
  }

  std::vector<double> next_;
};

}  // namespace

int main() {
  // Rosenbrock's valley, whose Hessian is indefinite on the way; the solution is (a, a²), and moves with a.
  const Solver solver = with_loop(newton([](Expr x, Expr a) {
                                    const Expr x0 = slice(x, 0, 1), x1 = slice(x, 1, 2);
                                    return sum(square(a - x0) + 100.0 * square(x1 - square(x0)));
                                  }),
                                  [] { return TrustRegion(); });
  const double a = 1.5;
  bool all_right = true;
  for (const Estimator& how : std::vector<Estimator>{OneStep{}, KStep{2}, Implicit{}, Auto{}, Unrolled{}}) {
    const Solution s = solve(solver, Array{-1.2, 1.0}, a, how);
    const Array g = s.vjp(Array{0.0, 1.0});  // d(a²)/da
    const Certificate c = s.certificate(Array{0.0, 1.0});
    std::cout << s.status() << " in " << s.statistics().iterations << " steps to " << s.x() << ", d x1/da = " << g << "; "
              << c << '\n';
    all_right = all_right && s.status() == Status::converged && std::fabs(g.item() - 2 * a) <= std::max(c.bound, 1e-12);
  }
  return all_right ? 0 : 1;
}
