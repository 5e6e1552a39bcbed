// The first example of README.md, which shows it from the first #include on; `./run demo [FILE]` runs it.
#include <onestep/data.h>
#include <onestep/onestep.h>

#include <iostream>
using namespace onestep;

int main(int argc, char** argv) {
  const Dataset d = argc > 1 ? read_libsvm(argv[1])
                             : Dataset{.A = {{1.0, 0.5}, {1.0, -1.5}, {1.0, 2.0}, {1.0, -0.3}}, .y = {1.0, -1.0, 1.0, -1.0}};
  auto fit = newton([&](Expr x, Expr w) {  // f(x, θ): weights θ on the samples
    return sum(w * softplus(-d.y * matmul(d.A, x))) + 0.1 * sum(square(x));
  });
  Solution s = solve(fit, zeros(d.A.shape()[1]), ones(d.y.size()), OneStep{});
  Array g = s.vjp(s.x());  // ∇θ ‖x(θ)‖²/2
  std::cout << s.status() << " in " << s.statistics().iterations << " steps\n" << s.certificate(s.x()) << '\n';
  std::cout << "x = " << s.x() << "\nwhat each sample does to |x|²/2: " << g << '\n';
}
