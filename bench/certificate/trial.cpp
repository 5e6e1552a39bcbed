// Draws start, estimator and tolerance of a problem, solves it, asks for derivatives and certificates, and judges them.
#include "certificate/trial.h"

#include <fmt/core.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <sstream>

namespace onestep::bench {
namespace {

Parts random_start(Random& random, const Problem& problem, const Truth& truth, std::string& text) {
  const std::size_t n = total_size(problem.start);
  const double size = static_cast<double>(norm_of(truth.x)), reference = size > 0 ? size : 1;
  const auto beside = [&](double distance) {
    std::vector<double> x(n), r = random.gaussians(n);
    double length = 0;
    for (const double e : r) length += e * e;
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<double>(truth.x[i]) + distance * r[i] / std::sqrt(length);
    return x;
  };
  switch (random.below(4)) {
    case 0: text = "near"; return in_shapes_of(problem.start, beside(1e-6 * reference));
    case 1: {
      text = "far";
      return in_shapes_of(problem.start, problem.far ? problem.far(random) : beside(10 * reference));
    }
    default: text = "usual"; return problem.start;
  }
}

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// Whether the number behind "error <=" is below the bound.
bool prints_low(const Certificate& certificate) {
  std::ostringstream out;
  out << certificate;
  const std::string text = out.str();
  const std::size_t at = text.find("<= ");
  if (at == std::string::npos) return false;
  return std::strtod(text.c_str() + at + 3, nullptr) < certificate.bound;
}

class Asker {
 public:
  // `auto_tolerance`: of Auto, else 0.
  Asker(const Problem& problem, const Truth& truth, const Solution& solution, double auto_tolerance, std::ostream* log)
      : problem_(problem), truth_(truth), solution_(solution), auto_tolerance_(auto_tolerance), log_(log) {
    if (auto_tolerance > 0 && problem.derivative_at) at_last_ = problem.derivative_at(flat(solution.state()));
  }

  Query ask(Random& random, bool forward, bool unit, bool again) const {
    Query q;
    q.forward = forward;
    q.unit = unit;
    const Parts state = solution_.state();
    const Parts& space = forward ? problem_.theta : state;
    const std::size_t n = total_size(space), seen = !forward && problem_.visible > 0 ? problem_.visible : n;
    std::vector<double> v(n);
    if (unit) {
      v[random.below(seen)] = 1;
    } else {
      for (std::size_t i = 0; i < seen; ++i) v[i] = random.gaussian();
    }
    const Parts direction = in_shapes_of(space, v);
    try {
      const Parts g = forward ? solution_.jvp(direction) : solution_.vjp(direction);
      // The certificate may take derivatives of its own.
      const DerivativeReport report = solution_.report();
      q.derivative_products = report.products;
      q.holds_u = report.method.find("mplicit") != std::string::npos;
      q.auto_claims = report.met_tolerance && report.status == Status::converged;
      const Certificate c = forward ? solution_.certificate_jvp(direction) : solution_.certificate(direction);
      q.products = c.products;
      q.products_again =
          again ? (forward ? solution_.certificate_jvp(direction) : solution_.certificate(direction)).products : -1;
      judge(q, v, g, c);
      if (log_ != nullptr) describe(q, v, c, report);
    } catch (const Error& problem) {
      q.kind = Query::Kind::threw;
      q.reason = one_line(problem.what());
      if (log_ != nullptr) fmt::print(*log_, "  {} threw: {}\n", forward ? "jvp" : "vjp", q.reason);
    }
    return q;
  }

 private:
  void judge(Query& q, const std::vector<double>& v, const Parts& g, const Certificate& c) const {
    const std::vector<Real> ours = flat(g);
    const std::vector<Real> right = times(truth_.J, v, q.forward);
    // Of a jvp the parts a cotangent may not see are not unique.
    const std::size_t counted = q.forward && problem_.visible > 0 ? problem_.visible : right.size();
    std::vector<Real> difference(counted);
    for (std::size_t i = 0; i < counted; ++i) difference[i] = ours[i] - right[i];
    Real size = 0;
    for (const double e : v) size += static_cast<Real>(e) * static_cast<Real>(e);
    const Real uncertain = truth_.uncertain * std::sqrt(size), error = norm_of(difference);
    q.error = static_cast<double>(error);
    q.value = static_cast<double>(norm_of(std::span(right).first(counted)));
    q.bound = c.bound;
    q.estimate = c.estimate;
    if (auto_tolerance_ > 0) judge_auto(q, v, ours);
    if (c.basis == Certificate::Basis::refused) {
      q.kind = Query::Kind::refused;
      q.reason = one_line(c.reason);
      return;
    }
    q.printed_low = prints_low(c);
    if (error > c.bound && error <= c.bound + uncertain) q.kind = Query::Kind::undecided;
  }

  void judge_auto(Query& q, const std::vector<double>& v, const std::vector<Real>& ours) const {
    const std::vector<Real> right = times(at_last_ ? *at_last_ : truth_.J, v, q.forward);
    const std::size_t counted = q.forward && problem_.visible > 0 ? problem_.visible : right.size();
    std::vector<Real> difference(counted);
    for (std::size_t i = 0; i < counted; ++i) difference[i] = ours[i] - right[i];
    // Where the entries of Jv cancel, no derivative in double is better than rounding of its terms.
    const RealMatrix& J = at_last_ ? *at_last_ : truth_.J;
    double along = 0;
    for (const double e : v) along += e * e;
    // A derivative that is zero altogether is told from rounding by the data, which are about 1.
    const Real scale = norm_of(J.entries) > 0 ? norm_of(J.entries) : Real(1);
    const Real rounding = Real(8) * std::numeric_limits<double>::epsilon() * scale * std::sqrt(static_cast<Real>(along));
    const Real size = norm_of(std::span(right).first(counted)), error = norm_of(difference);
    q.auto_error = error <= rounding ? 0 : static_cast<double>(error / size) / auto_tolerance_;
  }

  void describe(const Query& q, const std::vector<double>& v, const Certificate& c, const DerivativeReport& r) const {
    fmt::print(*log_, "  {} along ", q.forward ? "jvp" : "vjp");
    if (q.unit)
      fmt::print(*log_, "e{}", std::ranges::find(v, 1.0) - v.begin());
    else
      fmt::print(*log_, "a random direction");
    fmt::print(*log_, ", by {} ({}, residual {:.1e}, {} products{})\n", r.method, to_string(r.status), r.residual,
               q.derivative_products, r.met_tolerance ? "" : ", tolerance not met");
    fmt::print(*log_, "    error {:.3e}  bound {:.3e}{}  estimate {:.3e}  |g| {:.3e}  truth uncertain by {:.1e}\n", q.error,
               c.bound,
               q.kind == Query::Kind::bound && !(q.error <= q.bound) ? fmt::format("  FALSE by {:.3g}", q.factor()) : "",
               c.estimate, q.value, static_cast<double>(truth_.uncertain));
    if (q.auto_error >= 0)
      fmt::print(*log_, "    Auto: error relative to the derivative at x_k {:.3g} of its tolerance, {}\n", q.auto_error,
                 !q.auto_claims      ? "which it does not claim to meet"
                 : q.auto_error <= 1 ? "met"
                                     : "MISSED in silence");
    fmt::print(*log_, "    left out {:.2e}  from distance {:.2e}  rounding {:.2e}  rho {:.6g}  distance {:.2e}\n",
               c.left_out, c.from_distance, c.rounding, c.rho, c.distance);
    fmt::print(*log_, "    L_J {:.2e}  |B| {:.2e}  {} products, {} when asked again\n", c.L_J, c.norm_B, c.products,
               q.products_again);
    std::ostringstream text;
    text << c;
    fmt::print(*log_, "    {}\n    reason: {}\n    advice: {}\n", text.str(), c.reason, c.advice);
  }

  const Problem& problem_;
  const Truth& truth_;
  const Solution& solution_;
  double auto_tolerance_;
  std::optional<RealMatrix> at_last_;  // J at x_k
  std::ostream* log_;
};

double distance(const std::vector<Real>& a, const std::vector<Real>& b) {
  std::vector<Real> d(std::min(a.size(), b.size()));
  for (std::size_t i = 0; i < d.size(); ++i) d[i] = a[i] - b[i];
  return static_cast<double>(norm_of(d));
}

}  // namespace

ChosenEstimator random_estimator(Random& random) {
  switch (random.below(8)) {
    case 0: return {OneStep{}, "OneStep"};
    case 1: {
      const int K = std::array{2, 5, 20}[random.below(3)];
      return {KStep{K}, fmt::format("KStep {}", K)};
    }
    case 2:
    case 3: return {Implicit{}, "Implicit"};
    case 4:
    case 5: {
      const double tolerance = random.scale(1e-12, 1e-4);
      return {Implicit{.how = Implicit::matrix_free, .tolerance = tolerance},
              fmt::format("Implicit matrix-free {:.1e}", tolerance)};
    }
    default: {
      const double tolerance = random.scale(1e-10, 1e-3);
      return {Auto{tolerance}, fmt::format("Auto {:.1e}", tolerance), tolerance};
    }
  }
}

Parts in_shapes_of(const Parts& like, const std::vector<double>& entries) {
  std::vector<Array> parts;
  auto from = entries.begin();
  for (const Array& part : like) {
    parts.emplace_back(part.shape(), std::vector<double>(from, from + part.size()));
    from += part.size();
  }
  return Parts(std::move(parts));
}

std::size_t total_size(const Parts& parts) {
  std::size_t n = 0;
  for (const Array& part : parts) n += static_cast<std::size_t>(part.size());
  return n;
}

std::vector<Real> times(const RealMatrix& J, const std::vector<double>& v, bool forward) {
  std::vector<Real> result(forward ? J.rows : J.columns);
  for (std::size_t i = 0; i < J.rows; ++i)
    for (std::size_t j = 0; j < J.columns; ++j)
      (forward ? result[i] : result[j]) += J(i, j) * static_cast<Real>(v[forward ? j : i]);
  return result;
}

Random random_of(std::string_view name, std::uint64_t seed, std::size_t index) {
  std::uint64_t h = 0xcbf29ce484222325U ^ (seed * 0x9E3779B97F4A7C15U);
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return Random(h ^ (static_cast<std::uint64_t>(index + 1) * 0xD1B54A32D192ED03U));
}

double Query::factor() const { return bound > 0 ? error / bound : error > 0 ? INFINITY : 0; }
double Query::ratio() const { return bound / std::max(error, 1e-12 * value); }

Trial run_trial(const ProblemClass& kind, std::uint64_t seed, std::size_t index, std::ostream* log) {
  Random random = random_of(kind.name, seed, index);
  if (kind.run != nullptr) {
    if (log != nullptr) fmt::print(*log, "{} {}\n", kind.name, index);
    Trial trial = kind.run(random, log);
    trial.index = index;
    return trial;
  }
  const Problem problem = kind.make(random);
  Trial trial;
  trial.index = index;
  trial.family = problem.family;
  trial.parameters = total_size(problem.theta);
  Truth truth = problem.truth(flat(problem.start));
  if (log != nullptr) fmt::print(*log, "{} {}: {}\n", kind.name, index, problem.text);
  if (!truth.reliable) {
    if (log != nullptr) fmt::print(*log, "  no reliable truth\n");
    return trial;
  }
  trial.size = truth.x.size();
  std::string start_text;
  const Parts start = random_start(random, problem, truth, start_text);
  const ChosenEstimator chosen = random_estimator(random);
  trial.estimator = chosen.text;
  trial.tolerance = random.scale(1e-12, 1e-2);
  const Solver solver = problem.solver({.tolerance = trial.tolerance, .max_iterations = problem.max_iterations});
  const auto solved_by = [&](const Estimator& estimator) {
    return problem.has_start ? solve(solver, start, problem.theta, estimator) : solve(solver, problem.theta, estimator);
  };
  const Solution solution = solved_by(chosen.estimator);
  trial.status = to_string(solution.status());
  const std::vector<Real> found = flat(solution.state());
  double away = distance(found, truth.x);
  const double size = static_cast<double>(norm_of(truth.x));
  // Where the map has several fixed points the truth belongs to the one that was found.
  if (is_solution(solution.status()) && !(away <= (1e-3 + 10 * trial.tolerance) * size)) {
    const Truth other = problem.truth(found);
    if (other.reliable && distance(found, other.x) < away) truth = other;
    away = distance(found, truth.x);
  }
  trial.non_normal = problem.family == Family::smooth_map && truth.norm >= 1;
  trial.rho = trial.non_normal || problem.family != Family::smooth_map ? truth.radius : truth.norm;
  if (log != nullptr) {
    fmt::print(*log, "  n {}  parameters {}  |A| {:.6g}  radius {:.6g}  condition {:.1e}\n", trial.size, trial.parameters,
               truth.norm, truth.radius, static_cast<double>(truth.condition));
    fmt::print(*log, "  {}, tolerance {:.1e}, start {}: {} in {} iterations, |x - truth| {:.2e}, |x| {:.2e}\n",
               trial.estimator, trial.tolerance, start_text, trial.status, solution.statistics().iterations, away, size);
  }
  if (!is_solution(solution.status())) {
    trial.outcome = Trial::Outcome::not_solved;
    return trial;
  }
  trial.outcome = Trial::Outcome::done;
  const Asker asker(problem, truth, solution, chosen.tolerance, log);
  const std::size_t rounds = 2 + random.below(3);
  for (std::size_t i = 0; i < rounds; ++i) {
    trial.queries.push_back(asker.ask(random, false, random.chance(0.4), i == 0));
    if (problem.tangents) trial.queries.push_back(asker.ask(random, true, random.chance(0.4), false));
  }
  if (index % 8 == 0 && problem.family == Family::smooth_map) {
    try {
      const Solution reference = solved_by(Implicit{.how = Implicit::matrix_free, .tolerance = 1e-3});
      const Parts state = reference.state();
      static_cast<void>(reference.vjp(in_shapes_of(state, random.gaussians(total_size(state)))));
      trial.implicit_products = reference.report().products;
    } catch (const Error&) { trial.implicit_products = -1; }
  }
  return trial;
}

}  // namespace onestep::bench
