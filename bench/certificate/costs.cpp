// Times prepared problems, solve and derivative in turns.
#include "certificate/costs.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <optional>

#include "certificate/trial.h"

namespace onestep::bench {
namespace {

constexpr int repetitions = 7;

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// A problem prepared once and solved again for each repetition, so that no linear system or norm is left from the last.
class Timed {
 public:
  Timed(const Problem& problem, const Solver& solver, const Estimator& estimator)
      : problem_(problem),
        prepared_(problem.has_start ? Prepared(solver, problem.start, problem.theta, estimator)
                                    : Prepared(solver, problem.theta, estimator)) {}
  const Solution& solve() {
    return problem_.has_start ? prepared_.solve(problem_.start, problem_.theta) : prepared_.solve(problem_.theta);
  }

 private:
  const Problem& problem_;
  Prepared prepared_;
};

// The time of the certificate over that of the solve. Nothing where there is no derivative.
std::optional<double> certificate_over_solve(const Problem& problem, const Solver& solver, const Estimator& estimator,
                                             const std::vector<double>& direction) {
  Timed timed(problem, solver, estimator);
  std::vector<double> solves, certificates;
  for (int i = 0; i < repetitions; ++i) {
    solves.push_back(seconds_of([&] { timed.solve(); }));
    const Solution& s = timed.solve();
    if (!is_solution(s.status())) return std::nullopt;
    const Parts c = in_shapes_of(s.state(), direction);
    static_cast<void>(s.vjp(c));
    certificates.push_back(seconds_of([&] { static_cast<void>(s.certificate(c)); }));
  }
  return median(certificates) / median(solves);
}

struct Derivative {
  double seconds = std::numeric_limits<double>::infinity();
  double error = std::numeric_limits<double>::infinity();  // relative to the derivative at x_k
};

Derivative derivative_by(const Problem& problem, const Solver& solver, const Estimator& estimator, const Truth& truth,
                         const std::vector<double>& direction) {
  Derivative result;
  try {
    Timed timed(problem, solver, estimator);
    std::vector<double> times_taken;
    std::vector<Real> ours;
    std::optional<RealMatrix> at_last;
    for (int i = 0; i < repetitions; ++i) {
      const Solution& s = timed.solve();
      if (!is_solution(s.status())) return result;
      const Parts c = in_shapes_of(s.state(), direction);
      Parts g;
      times_taken.push_back(seconds_of([&] { g = s.vjp(c); }));
      ours = flat(g);
      if (i == 0 && problem.derivative_at) at_last = problem.derivative_at(flat(s.state()));
    }
    const std::vector<Real> right = times(at_last ? *at_last : truth.J, direction, false);
    std::vector<Real> difference(right.size());
    for (std::size_t i = 0; i < right.size(); ++i) difference[i] = ours[i] - right[i];
    result.error = static_cast<double>(norm_of(difference) / norm_of(right));
    result.seconds = median(times_taken);
  } catch (const Error&) { result = {}; }
  return result;
}

// Auto's time over that of the fastest fixed estimator that meets the tolerance; nothing where none does, or Auto does not.
std::optional<double> auto_over_best(const Problem& problem, const Solver& solver, const Truth& truth,
                                     const std::vector<double>& direction, double tolerance) {
  double best = std::numeric_limits<double>::infinity();
  for (const Estimator& fixed :
       {Estimator(OneStep{}), Estimator(KStep{5}), Estimator(KStep{20}), Estimator(Implicit{.how = Implicit::dense}),
        Estimator(Implicit{.how = Implicit::matrix_free, .tolerance = tolerance}),
        Estimator(Implicit{.how = Implicit::matrix_free, .tolerance = 0.1 * tolerance})}) {
    const Derivative d = derivative_by(problem, solver, fixed, truth, direction);
    if (d.error <= tolerance) best = std::min(best, d.seconds);
  }
  const Derivative ours = derivative_by(problem, solver, Auto{tolerance}, truth, direction);
  if (!(ours.error <= tolerance) || !(best < std::numeric_limits<double>::infinity())) return std::nullopt;
  return ours.seconds / best;
}

}  // namespace

void add_costs(Suite& suite, std::uint64_t seed, std::size_t count, const std::vector<ProblemClass>& classes) {
  std::vector<double> newton, programs, automatic;
  const auto row = [&](const std::string& name, const std::vector<double>& values, std::optional<Bar> bar) {
    if (!values.empty()) suite.amount(name, Unit::count, median(values), bar);
  };
  for (const ProblemClass& kind : classes) {
    if (kind.make == nullptr) continue;
    std::vector<double> of_class;
    for (std::size_t i = 0; i < count; ++i) {
      // Indices that no trial has.
      Random random = random_of(kind.name, seed, (std::size_t{1} << 40) + i);
      const Problem problem = kind.make(random);
      const Truth truth = problem.truth(flat(problem.start));
      if (!truth.reliable) continue;
      std::vector<double> direction = random.gaussians(truth.x.size());
      if (problem.visible > 0)
        std::fill(direction.begin() + static_cast<std::ptrdiff_t>(problem.visible), direction.end(), 0.0);
      const bool is_program = problem.family == Family::program;
      const SolveOptions options{.tolerance = is_program ? 1e-9 : 1e-12, .max_iterations = problem.max_iterations};
      const Solver solver = problem.solver(options);
      try {
        if (is_program || problem.family == Family::newton) {
          const Estimator estimator = i % 2 == 0 ? Estimator(OneStep{}) : Estimator(Implicit{});
          if (const auto ratio = certificate_over_solve(problem, solver, estimator, direction)) {
            of_class.push_back(*ratio);
            (is_program ? programs : newton).push_back(*ratio);
          }
        }
      } catch (const Error&) {}  // no derivative, so no certificate: the table counts those
      const bool regular = problem.family == Family::smooth_map || problem.family == Family::newton || is_program;
      if (!regular) continue;
      if (const auto ratio = auto_over_best(problem, solver, truth, direction, random.scale(1e-10, 1e-3)))
        automatic.push_back(*ratio);
    }
    row("time of a certificate over its solve, median, " + std::string(kind.name), of_class, std::nullopt);
  }
  row("time of a certificate over its solve, median, newton", newton, at_most(1));
  row("time of a certificate over its solve, median, programs", programs, at_most(1));
  row("time of Auto over the best fixed choice, median", automatic, at_most(2));
}

}  // namespace onestep::bench
