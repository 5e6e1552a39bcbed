// Closed forms for the truth, and the library's own derivatives for each class.
#include "certificate/selftest.h"

#include <fmt/core.h>

#include <cmath>
#include <string_view>

#include "certificate/trial.h"

namespace onestep::bench {
namespace {

class Checker {
 public:
  void close(std::string_view what, Real value, Real expected, Real tolerance = 1e-17L) {
    ++checks_;
    if (std::fabs(value - expected) <= tolerance * (1 + std::fabs(expected))) return;
    ++failures_;
    fmt::print("FAIL {}: {} instead of {}\n", what, static_cast<double>(value), static_cast<double>(expected));
  }
  void holds(std::string_view what, bool condition) {
    ++checks_;
    if (condition) return;
    ++failures_;
    fmt::print("FAIL {}\n", what);
  }
  int end() const {
    fmt::print("{} of {} checks hold\n", checks_ - failures_, checks_);
    return failures_ == 0 ? 0 : 1;
  }

 private:
  int checks_ = 0, failures_ = 0;
};

void closed_forms(Checker& check) {
  // The root of a number: dx/dt = 1/(2x).
  const Truth root = find_root(root_functions([](auto x, auto t) { return square(x) - t; }), {Real(3)}, {Real(2)});
  check.holds("a root is found", root.reliable);
  check.close("the root of 2", root.x[0], std::sqrt(Real(2)));
  check.close("its derivative", root.J(0, 0), Real(0.5) / std::sqrt(Real(2)));

  // The pipeline: db/dt = 1/(1 - 0.8 cos b), da/dt = 0.3/0.7 db/dt.
  const double s = 0.8;
  const Truth pipeline = find_root(map_functions([s](auto x, auto t) {
                                     return join(0.25 * slice(x, 0, 1) + 0.5 * slice(x, 1, 2), s * sin(slice(x, 1, 2)) + t);
                                   }),
                                   {Real(0), Real(0)}, {Real(0.5)});
  check.holds("the pipeline's fixed point is found", pipeline.reliable);
  const Real b = pipeline.x[1], db = 1 / (1 - Real(s) * std::cos(b));
  check.close("the pipeline's fixed point", b, Real(s) * std::sin(b) + Real(0.5));
  check.close("the pipeline's second derivative", pipeline.J(1, 0), db);
  check.close("the pipeline's first derivative", pipeline.J(0, 0), Real(0.5) / Real(0.75) * db);
  check.close("the pipeline's radius", static_cast<Real>(pipeline.radius), std::max(Real(0.25), Real(s) * std::cos(b)),
              1e-2L);

  // Kepler's equation E = M + e sin E by its eccentricity: dE/de = sin E/(1 - e cos E).
  const Truth kepler = find_root(map_functions([](auto x, auto t) { return 1.0 + t * sin(x); }), {Real(1)}, {Real(0.5)});
  check.close("Kepler's equation", kepler.J(0, 0), std::sin(kepler.x[0]) / (1 - Real(0.5) * std::cos(kepler.x[0])));

  // The largest eigenvector of diag(2 + t, 1) stands still; of [[2, t], [t, 1]] it turns by 1/(2 - 1).
  const Truth turned = find_root(map_functions([](auto x, auto t) {
                                   const auto a = slice(x, 0, 1), c = slice(x, 1, 2);
                                   const auto y = join(2.0 * a + t * c, t * a + c);
                                   return y / sqrt(sum(square(y)));
                                 }),
                                 {Real(1), Real(0.1L)}, {Real(0)});
  check.close("a turning eigenvector", turned.J(1, 0), 1);
  check.close("across it", turned.J(0, 0), 0);
}

void operations(Checker& check) {
  // Each operation's derivative against a central difference, at a point in the domain of all.
  using F = Field<Tangent>;
  const auto difference = [&](std::string_view name, auto f) {
    const Real x = 0.37L, h = 1e-6L;
    const auto at = [&](Real v) { return f(Field<Real>(Shape{}, {v})).entries()[0]; };
    const F value = f(F(Shape{}, {Tangent(x, 1)}));
    check.close(name, value[0].d, (at(x + h) - at(x - h)) / (2 * h), 1e-10L);
    check.close(name, value[0].v, at(x));
  };
  difference("exp", [](auto x) { return exp(x); });
  difference("log", [](auto x) { return log(x); });
  difference("sqrt", [](auto x) { return sqrt(x); });
  difference("sin", [](auto x) { return sin(x); });
  difference("cos", [](auto x) { return cos(x); });
  difference("tanh", [](auto x) { return tanh(x); });
  difference("sigmoid", [](auto x) { return sigmoid(x); });
  difference("softplus", [](auto x) { return softplus(x); });
  difference("square", [](auto x) { return square(x); });
  difference("abs", [](auto x) { return abs(x); });
  difference("pow", [](auto x) { return pow(x, 2.3); });
  difference("division", [](auto x) { return (1.0 + x) / (2.0 - x * x); });
  difference("maximum", [](auto x) { return maximum(x, 0.1) - minimum(x, 0.2); });
}

void linear_algebra(Checker& check) {
  // Hilbert's matrix of order 6, condition 1.5e7, from a known solution.
  const std::size_t n = 6;
  RealMatrix H(n, n), b(n, 1);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) H(i, j) = 1 / static_cast<Real>(i + j + 1), b(i, 0) += H(i, j);
  Real condition = 0;
  const auto x = solve_dense(H, b, &condition);
  for (std::size_t i = 0; i < n; ++i) check.close("Hilbert's matrix", (*x)(i, 0), 1, 1e-11L);
  check.holds("its condition", condition > 1e7L && condition < 1e8L);
  check.close("its norm", static_cast<Real>(spectral_norm(H)), 1.61889985892434L, 1e-6L);
  RealMatrix nilpotent(2, 2);
  nilpotent(0, 1) = 5;
  check.close("norm of a nilpotent matrix", static_cast<Real>(spectral_norm(nilpotent)), 5, 1e-9L);
  check.close("radius of a nilpotent matrix", static_cast<Real>(spectral_radius(nilpotent)), 0, 1e-2L);
  check.holds("a singular matrix is told", !solve_dense(RealMatrix(2, 2), RealMatrix(2, 1)));
}

// The two ways a problem is written, traced and generic, and the state's order: Implicit of the library, after a tight
// solve, gives nearly the truth in most problems of each class.
void classes_agree(Checker& check) {
  for (const ProblemClass& kind : all_classes()) {
    if (kind.make == nullptr) continue;
    int agree = 0, tried = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      Random random = random_of(kind.name, 7, i);
      const Problem problem = kind.make(random);
      const Truth truth = problem.truth(flat(problem.start));
      if (!truth.reliable) continue;
      const Solver solver = problem.solver({.tolerance = 1e-12, .max_iterations = problem.max_iterations});
      try {
        const Solution s = problem.has_start ? solve(solver, problem.start, problem.theta, Implicit{})
                                             : solve(solver, problem.theta, Implicit{});
        if (!is_solution(s.status())) continue;
        ++tried;
        const Parts state = s.state();
        std::vector<double> c = random.gaussians(total_size(state));
        if (problem.visible > 0) std::fill(c.begin() + static_cast<std::ptrdiff_t>(problem.visible), c.end(), 0.0);
        const std::vector<Real> ours = flat(s.vjp(in_shapes_of(state, c))), right = times(truth.J, c, false);
        std::vector<Real> d(right.size());
        for (std::size_t j = 0; j < d.size(); ++j) d[j] = ours[j] - right[j];
        if (norm_of(d) <= Real(1e-5) * norm_of(right)) ++agree;
      } catch (const Error&) {}  // a derivative that does not exist: near a kink, say
    }
    check.holds(fmt::format("{}: {} of {} derivatives agree", kind.name, agree, tried), agree >= 3);
  }
}

}  // namespace

int run_selftest() {
  Checker check;
  closed_forms(check);
  operations(check);
  linear_algebra(check);
  classes_agree(check);
  return check.end();
}

}  // namespace onestep::bench
