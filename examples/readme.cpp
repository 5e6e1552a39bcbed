// The example of README.md, which shows it from the first #include on; `./run demo` runs it.
#include <onestep/onestep.h>

#include <iostream>
using namespace onestep;

int main() {
  const Array A{{1.0, 0.5}, {1.0, -1.5}, {1.0, 2.0}, {1.0, -0.3}}, y{1.0, -1.0, 1.0, -1.0};
  const Function newton = trace(
      [&](Expr x, Expr w) {  // logistic regression with weights w on the samples
        const Expr f = sum(w * softplus(-y * matmul(A, x))) + 0.1 * sum(square(x));
        const Expr next = x - solve(cholesky(hessian(f, x)), grad(f, x));
        return std::pair{next, vjp(next, w, next)};  // one Newton step; how the weights move ‖next‖²/2
      },
      Input{"x", {2}}, Input{"w", {4}});

  Array x = zeros({2}), influence;
  for (int k = 0; k < 8; ++k) {
    const std::vector<Array> results = evaluate(newton, {x, ones({4})});
    x = results[0], influence = results[1];
  }
  std::cout << "x = " << x << "\nd(|x|²/2)/dw = " << influence << '\n' << newton.text();
}
