// The random problems whose derivatives are bounded: each has a solver, the library's side, and its truth.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "certificate/truth.h"
#include "onestep/onestep.h"

namespace onestep::bench {

// Numbers that depend on nothing but the seed, the class and the index: splitmix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // Uniform in the logarithm.
  double scale(double low, double high) { return std::exp(uniform(std::log(low), std::log(high))); }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(bits() % n); }
  bool chance(double probability) { return uniform() < probability; }
  double gaussian() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }
  std::vector<double> gaussians(std::size_t n, double size = 1) {
    std::vector<double> v(n);
    for (double& e : v) e = size * gaussian();
    return v;
  }
  Array vector(std::size_t n, double size = 1) { return Array(Shape{static_cast<std::int64_t>(n)}, gaussians(n, size)); }
  Array matrix(std::size_t m, std::size_t n, double size = 1) {
    return Array(Shape{static_cast<std::int64_t>(m), static_cast<std::int64_t>(n)}, gaussians(m * n, size));
  }

 private:
  std::uint64_t state_;
};

// What a problem is for the bars. Smooth maps are told apart by ‖A‖ at the solution: contractions, and non-normal maps.
enum class Family { smooth_map, kinked_map, steep_map, newton, rough, program, degenerate_program, foreign, bilevel };

struct Problem {
  std::string text;  // what it is, for one who looks into a violation
  Family family = Family::smooth_map;
  std::function<Solver(const SolveOptions&)> solver;
  Parts start, theta;
  int max_iterations = 20000;
  // The truth for the solution that iterating leads to from here (all parts, one behind the other).
  std::function<Truth(const std::vector<Real>& from)> truth;
  // J at this x, which need not be the solution; empty: the truth's is meant.
  std::function<std::optional<RealMatrix>(const std::vector<Real>& x)> derivative_at = {};
  // A start that is far away, where not every x will do; else ten times the size of x̄ away from it.
  std::function<std::vector<double>(Random&)> far = {};
  // Quadratic programs choose their start themselves.
  bool has_start = true;
  // How many entries at the front of the state a cotangent may see, and whether tangents may be asked for: with redundant
  // rows the multipliers are not unique.
  std::size_t visible = 0;  // 0: all
  bool tangents = true;
};

struct Trial;
struct ProblemClass {
  std::string_view name;
  double share;  // of the problems, relative to the other classes
  Problem (*make)(Random&);
  // Instead of make, where it is not one solve that is looked at.
  Trial (*run)(Random&, std::ostream* log) = nullptr;
};

// By subject, one file each.
std::vector<ProblemClass> map_classes();
std::vector<ProblemClass> pipeline_classes();
std::vector<ProblemClass> network_classes();
std::vector<ProblemClass> statistics_classes();
std::vector<ProblemClass> kinked_classes();
std::vector<ProblemClass> newton_classes();
std::vector<ProblemClass> program_classes();
std::vector<ProblemClass> bilevel_classes();
const std::vector<ProblemClass>& all_classes();

// ---- for those who make problems ----

// Mostly small, now and then above 64, where norms are estimated iteratively.
std::size_t random_size(Random& random, std::size_t most = 32, double large_share = 0.04);
std::vector<Real> flat(const Parts& parts);
// An orthogonal matrix, row by row; and Q diag(d) Qᵀ.
std::vector<double> random_orthogonal(Random& random, std::size_t n);
Array symmetric_with(Random& random, const std::vector<double>& eigenvalues);
// `matrix` scaled to spectral norm `norm`.
Array scaled_to_norm(const Array& matrix, double norm);
Array scaled_to_radius(const Array& matrix, double radius);
inline std::int64_t as_size(std::size_t n) { return static_cast<std::int64_t>(n); }
inline Array array_of(std::vector<double> v) {
  const auto n = static_cast<std::int64_t>(v.size());
  return Array(Shape{n}, std::move(v));
}

// The truth of R(x, θ) = 0 or x = F(x, θ) for a problem whose θ is there.
void set_truth(Problem& problem, const RootFunctions& functions);

// A fixed point of `step`, a generic lambda of a vector and θ, from `start`.
template <class F> Problem map_problem(std::string text, F step, const Array& start, const Array& theta) {
  Problem p;
  p.text = std::move(text);
  p.solver = [step](const SolveOptions& options) { return fixed_point(step, options); };
  p.start = start;
  p.theta = theta;
  set_truth(p, map_functions(step));
  return p;
}

// A contraction factor: mostly moderate, now and then slow.
inline double random_rho(Random& random) {
  return random.chance(0.15) ? 1 - random.scale(1e-3, 1e-2) : random.uniform(0.02, 0.97);
}

}  // namespace onestep::bench
