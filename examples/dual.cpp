// A step in plain C++, with branches, differentiated by running it with dual numbers. Write
// it as a template of the number type and hand it to dual_step.
#include <onestep/onestep.h>

#include <iostream>
using namespace onestep;

namespace {

// Heat in a rod of cells between two walls, the right one at θ₁ degrees. In each cell a heater is on in proportion to how
// far the cell is below θ₀, and saturates at 10; the rod conducts worse where it is hot.
struct Rod {
  template <class T> void operator()(std::span<const T> x, std::span<const ArrayOf<T>> theta, std::span<T> next) const {
    const T &wanted = theta[0](0), &wall = theta[0](1);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const T left = i > 0 ? x[i - 1] : T(0), right = i + 1 < x.size() ? x[i + 1] : wall;
      T heat = 0;
      if (x[i] < wanted) heat = min(2 * (wanted - x[i]), 10);
      const T conductivity = 1 / (1 + 0.01 * abs(x[i]));
      next[i] = x[i] + 0.3 * (conductivity * (left - 2 * x[i] + right) + heat);
    }
  }
};

}  // namespace

int main() {
  const Solver rod = fixed_point(dual_step(Rod()));
  const Solution s = solve(rod, zeros(10), Array{20.0, 5.0}, Implicit{});
  const Parts sensitivity = s.jacobian();
  std::cout << s.status() << " in " << s.statistics().iterations << " steps: x = " << s.x() << '\n';
  std::cout << "by the temperature wanted and by that of the wall:\n" << sensitivity[0] << '\n';
  std::cout << s.certificate(full(10, 0.1)) << " (of the mean)\n";
  return s.status() == Status::converged ? 0 : 1;
}
