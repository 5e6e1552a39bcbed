// Solutions: solving, and asking for derivatives.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "estimate/certify.h"
#include "estimate/direction.h"
#include "estimate/state.h"
#include "linear/random.h"
#include "solve/monitor.h"

namespace onestep {

namespace {

using detail::ConstVector;
using detail::memory_for;
using detail::SolutionState;
using detail::Vector;

void require_solution(const SolutionState& state, const char* what) {
  const Status status = state.run.status;
  if (is_solution(status)) return;
  const bool has_point = status != Status::infeasible && status != Status::unbounded && status != Status::not_convex;
  const std::string ended = fmt::format("[{}] the solve ended with status {}{}", what, to_string(status),
                                        state.run.about.empty() ? "" : fmt::format(" ({})", state.run.about));
  const auto refuse = [&](const char* why) {
    throw NotConvergedError(ended + why, status, state.run.statistics.iterations);
  };
  if (!has_point) refuse(": there is no solution to differentiate");
  if (!state.allow_unconverged) refuse("; call even_if_unconverged() first if its derivative is wanted all the same");
  if (state.run.statistics.iterations == 0) refuse(" before its first step: no step was made that could be differentiated");
}

void require_contraction(SolutionState& state, const char* what) {
  if (const std::string why = detail::no_contraction(state); !why.empty())
    throw NoDerivativeError(fmt::format("[{}] {}, or call even_if_unconverged() first", what, why), why, Status::diverged);
}

void check_cotangent(const char* who, std::size_t part, ConstVector c) {
  if (!detail::all_finite(c)) detail::check_finite(who, fmt::format("the cotangent of part {}", part), c);
}

// Cotangents of the parts as one vector; those left out are zero.
std::vector<double> flat_cotangent(const char* who, const SolutionState& state, const Parts& c) {
  const std::span<const Shape> parts = state.parts();
  if (c.size() > parts.size())
    throw MisuseError(fmt::format("[{}] {} cotangents for a state of {} parts", who, c.size(), parts.size()));
  std::vector<double> flat(state.size());
  std::size_t at = 0;
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].shape() != parts[i])
      throw MisuseError(fmt::format("[{}] the cotangent of part {} has shape {}, the part {}", who, i,
                                    to_string(c[i].shape()), to_string(parts[i])));
    const auto count = static_cast<std::size_t>(parts[i].size());
    detail::flatten({&c[i], 1}, Vector(flat).subspan(at, count));
    check_cotangent(who, i, Vector(flat).subspan(at, count));
    at += count;
  }
  return flat;
}

void check_tangents(const char* who, const SolutionState& state, std::span<const Array> v) {
  const std::vector<Input>& parameters = state.method->step->parameters;
  if (v.size() != parameters.size())
    throw MisuseError(fmt::format("[{}] {} tangents for {} parameters", who, v.size(), parameters.size()));
  for (std::size_t i = 0; i < v.size(); ++i)
    if (v[i].shape() != parameters[i].shape)
      throw MisuseError(fmt::format("[{}] the tangent of {} has shape {}, the parameter {}", who, parameters[i].name,
                                    to_string(v[i].shape()), to_string(parameters[i].shape)));
  if (const int bad = detail::first_not_finite(v); bad >= 0) {
    const auto i = static_cast<std::size_t>(bad);
    detail::check_finite(who, "the tangent of " + parameters[i].name, v[i]);
  }
}
std::vector<Array> checked_tangents(const char* who, const SolutionState& state, const Parts& v) {
  std::vector<Array> tangents(v.begin(), v.end());
  check_tangents(who, state, tangents);
  return tangents;
}

void require_orders(const SolutionState& state, const char* what) {
  if (state.method->lacks_orders)
    throw MisuseError(
        fmt::format("[{}] the solve inside is differentiated by one step, which has the right first derivative alone, and "
                    "the derivative of this solution needs the second: give it KStep{{2}}, by Solver::with, or no estimator",
                    what));
}

template <class Work> void run_derivative(SolutionState& state, const char* what, const Work& work) {
  const parallel::UsePool use = state.on_its_threads();
  require_solution(state, what);
  require_orders(state, what);
  require_contraction(state, what);
  state.report = {};
  state.report.method = state.differentiator->name();
  const detail::Work before = state.work();
  work();
  const detail::Work now = state.work();
  state.report.factorisations += now.factorisations - before.factorisations;
  const int inside = now.products - before.products;
  state.report.products += inside;
  state.report.flops += inside * state.method->step->costs.product;
}

// A derivative that does not exist is not returned as NaN, nor as the result of a linear solve that failed.
void require_derivative(const SolutionState& state, const char* what, bool is_finite) {
  const DerivativeReport& report = state.report;
  // Steps of a degenerate solve are differentiated where somebody asked for just them: the report says so.
  const bool is_wanted =
      state.degenerate.value_or(false) && state.estimator_is_named && state.differentiator->needs_contraction();
  // A linear solve that was stopped early is a status.
  const bool failed = report.status == Status::singular && !is_wanted;
  if ((is_finite && !failed) || state.allow_unconverged) return;
  const std::string reason =
      is_finite && state.degenerate.value_or(false)
          ? "the method converges only linearly there: the matrix of its linear system is singular at the solution"
          : "the linear system of the derivative is singular, or nearly so: " +
                (is_finite ? fmt::format("relative residual {:.1e}", report.residual) : "the derivative is not finite");
  throw NoDerivativeError(fmt::format("[{}] {}. The solution may not be unique there; even_if_unconverged() returns what "
                                      "was computed",
                                      what, reason),
                          reason, is_finite ? report.status : Status::singular, report.residual);
}
bool are_finite(std::span<const Vector> parts) {
  return std::ranges::all_of(parts, [](const Vector& p) { return detail::all_finite(p); });
}

// The derivative in the direction itself, from that in the direction over a power of two.
void scale_back(const SolutionState& state, const char* what, std::span<const Vector> out, int exponent) {
  if (exponent == 0) return;
  for (const Vector o : out) detail::multiply(o, exponent);
  if (are_finite(out) || state.allow_unconverged) return;
  const std::string reason = "the derivative in this direction is larger than the largest number there is";
  throw NoDerivativeError(fmt::format("[{}] {}; scale the direction down", what, reason), reason, Status::not_finite);
}

// The cotangent is scaled where it lies.
void run_vjp(SolutionState& state, Vector c, std::span<const Vector> out) {
  const int exponent = detail::exponent_of(c);
  if (exponent != 0) detail::multiply(c, -exponent);
  run_derivative(state, "vjp", [&] { state.differentiator->vjp(state, c, out); });
  require_derivative(state, "vjp", are_finite(out));
  scale_back(state, "vjp", out, exponent);
}
void run_jvp(SolutionState& state, std::span<const Array> v, Vector out) {
  const int exponent = detail::exponent_of(v);
  const std::vector<Array> scaled = exponent != 0 ? detail::multiplied(v, -exponent) : std::vector<Array>{};
  run_derivative(state, "jvp", [&] { state.differentiator->jvp(state, exponent != 0 ? std::span(scaled) : v, out); });
  require_derivative(state, "jvp", detail::all_finite(out));
  scale_back(state, "jvp", {&out, 1}, exponent);
}

// With the other permission derivatives may be others: what was kept of them in the other mode is not.
void keep_for_certificate(SolutionState& state, std::vector<double>& other_direction) {
  if (state.returned.allow_unconverged != state.allow_unconverged) other_direction.clear();
  state.returned.allow_unconverged = state.allow_unconverged;
}

// A certificate of the derivative in the direction itself, likewise: everything in it that is linear in the direction.
Certificate scaled_back(Certificate c, int exponent) {
  if (exponent == 0) return c;
  for (double* const number : {&c.bound, &c.estimate, &c.value, &c.left_out, &c.from_distance, &c.rounding, &c.L_J})
    *number = std::scalbn(*number, exponent);
  if (c.basis == Certificate::Basis::observed && !(std::isfinite(c.bound) && std::isfinite(c.value))) {
    c.basis = Certificate::Basis::refused;
    c.bound = c.relative = std::numeric_limits<double>::infinity();
    c.reason = "the derivative in this direction is beyond the range of numbers";
    c.advice = "ask for a shorter direction: derivatives are linear in it";
  }
  return c;
}

constexpr std::size_t directions_at_once = 32;

using Matrices = std::vector<std::vector<double>>;  // of n rows, one for each parameter

void fill_rows(SolutionState& state, std::size_t n, Matrices& matrices, const std::function<void()>& between) {
  Matrices units(std::min(n, directions_at_once), std::vector<double>(state.size()));
  for (std::size_t begin = 0; begin < n; begin += units.size()) {
    if (between) between();
    const std::size_t count = std::min(units.size(), n - begin);
    std::vector<ConstVector> cs(units.begin(), units.begin() + static_cast<std::ptrdiff_t>(count));
    std::vector<std::vector<Vector>> rows(count);
    for (std::size_t d = 0; d < count; ++d) {
      units[d][begin + d] = 1;
      for (std::vector<double>& m : matrices)
        rows[d].push_back(Vector(m).subspan((begin + d) * (m.size() / n), m.size() / n));
    }
    state.differentiator->vjps(state, cs, rows);
    for (std::size_t d = 0; d < count; ++d) units[d][begin + d] = 0;
  }
}

void fill_columns(SolutionState& state, std::size_t n, Matrices& matrices, const std::function<void()>& between) {
  const std::vector<Input>& parameters = state.method->step->parameters;
  std::vector<Array> zero;
  for (const Input& p : parameters) zero.push_back(zeros(p.shape));
  Matrices columns(directions_at_once, std::vector<double>(state.size()));
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const auto width = static_cast<std::size_t>(parameters[p].shape.size());
    for (std::size_t begin = 0; begin < width; begin += directions_at_once) {
      if (between) between();
      const std::size_t count = std::min(directions_at_once, width - begin);
      std::vector<std::vector<Array>> vs(count, zero);
      for (std::size_t d = 0; d < count; ++d) {
        std::vector<double> unit(width);
        unit[begin + d] = 1;
        vs[d][p] = Array(parameters[p].shape, std::move(unit));
      }
      state.differentiator->jvps(state, vs,
                                 std::vector<Vector>(columns.begin(), columns.begin() + static_cast<std::ptrdiff_t>(count)));
      for (std::size_t d = 0; d < count; ++d)
        for (std::size_t i = 0; i < n; ++i) matrices[p][i * width + begin + d] = columns[d][i];
    }
  }
}

}  // namespace

SolutionState& Solution::solved(const char* who) const {
  if (!internals().solved)
    throw MisuseError(fmt::format("[{}] nothing was solved yet; call solve() of the Prepared first", who));
  return *state_;
}
bool Solution::is_shared() const {
  const bool shared = state_.use_count() > 1;
  std::atomic_thread_fence(std::memory_order_acquire);  // what another thread did with a copy it dropped is over
  return shared;
}
SolutionState& Solution::to_differentiate(const char* who) const {
  SolutionState& state = solved(who);
  state.allow_unconverged = even_if_unconverged_;
  return state;
}

std::span<const double> Solution::entries() const& {
  const SolutionState& s = solved("entries");
  return std::span<const double>(s.run.x).first(s.shown_size());
}

Array Solution::x(std::size_t part) const {
  const std::size_t parts = solved("x").parts().size();
  if (part >= parts)
    throw MisuseError(fmt::format("[x] part {} of a state that has {} part{}", part, parts, parts == 1 ? "" : "s"));
  return state()[part];
}
Parts Solution::state() const {
  const SolutionState& s = solved("state");
  return detail::unflatten(s.run.x, s.parts());
}
Parts Solution::proof() const {
  const SolutionState& s = solved("proof");
  if (status() != Status::infeasible && status() != Status::unbounded)
    throw MisuseError(
        fmt::format("[proof] there is one of an infeasible or unbounded problem; this one is {}", to_string(status())));
  if (s.run.proof.empty()) throw MisuseError("[proof] a lower bound is above its upper bound: " + s.run.about);
  return detail::unflatten(s.run.proof, s.parts());
}
Status Solution::status() const { return solved("status").run.status; }
std::string Solution::about() const { return solved("about").run.about; }
std::string Solution::message() const {
  const detail::Run& run = solved("message").run;
  std::string text = explain(run.status);
  if (!run.proof.empty())
    text += run.status == Status::infeasible ? " Solution::proof() says which of them contradict each other."
                                             : " Solution::proof() has the ray.";
  return run.about.empty() ? text : fmt::format("{} [{}]", text, run.about);
}
const Statistics& Solution::statistics() const& { return solved("statistics").run.statistics; }
Statistics Solution::statistics() const&& { return solved("statistics").run.statistics; }
const DerivativeReport& Solution::report() const& { return solved("report").report; }
DerivativeReport Solution::report() const&& { return solved("report").report; }
Solution Solution::even_if_unconverged() const {
  Solution copy = *this;
  copy.even_if_unconverged_ = true;
  return copy;
}

Parts Solution::vjp(const Parts& c) const {
  SolutionState& s = to_differentiate("vjp");
  std::vector<double> flat = flat_cotangent("vjp", s, c);
  const std::vector<Input>& parameters = s.method->step->parameters;
  std::vector<std::vector<double>> memory = memory_for(parameters);
  const bool is_scaled = detail::exponent_of(flat) != 0;
  run_vjp(s, flat, std::vector<Vector>(memory.begin(), memory.end()));
  s.returned.cotangent = is_scaled ? std::vector<double>() : flat;
  keep_for_certificate(s, s.returned.tangent);
  s.returned.vjp = memory;
  s.returned.of_vjp = s.report;
  std::vector<Array> result;
  for (std::size_t i = 0; i < memory.size(); ++i) result.emplace_back(parameters[i].shape, std::move(memory[i]));
  return result;
}

Parts Solution::jvp(const Parts& v) const {
  SolutionState& s = to_differentiate("jvp");
  std::vector<double> out(s.size());
  const std::vector<Array> tangents = checked_tangents("jvp", s, v);
  run_jvp(s, tangents, out);
  s.returned.tangent = detail::flat_tangent(tangents);
  keep_for_certificate(s, s.returned.cotangent);
  s.returned.jvp = out;
  s.returned.of_jvp = s.report;
  return detail::unflatten(out, s.parts());
}

void Solution::vjp_into(std::span<const std::span<const double>> c, std::span<const std::span<double>> out) const {
  SolutionState& s = to_differentiate("vjp_into");
  const detail::Map& step = *s.method->step;
  std::vector<double>& flat = s.cotangent;
  flat.resize(s.size());
  std::size_t at = 0;
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (i >= s.parts().size() || static_cast<std::int64_t>(c[i].size()) != step.state[i].size())
      throw MisuseError(
          fmt::format("[vjp_into] cotangent {} has {} entries, which no part of the state has there", i, c[i].size()));
    check_cotangent("vjp_into", i, c[i]);
    std::ranges::copy(c[i], flat.begin() + static_cast<std::ptrdiff_t>(at));
    at += c[i].size();
  }
  std::fill(flat.begin() + static_cast<std::ptrdiff_t>(at), flat.end(), 0.0);
  if (out.size() != step.parameters.size())
    throw MisuseError(fmt::format("[vjp_into] memory for {} parameters, there are {}", out.size(), step.parameters.size()));
  for (std::size_t i = 0; i < out.size(); ++i)
    if (static_cast<std::int64_t>(out[i].size()) != step.parameters[i].shape.size())
      throw MisuseError(fmt::format("[vjp_into] memory for {} entries, {} has {}", out[i].size(), step.parameters[i].name,
                                    step.parameters[i].shape.size()));
  run_vjp(s, flat, out);
}

void Solution::jvp_into(std::span<const Array> v, std::span<double> out) const {
  SolutionState& s = to_differentiate("jvp_into");
  if (out.size() != s.shown_size())
    throw MisuseError(fmt::format("[jvp_into] memory for {} entries, the state has {}", out.size(), s.shown_size()));
  check_tangents("jvp_into", s, v);
  if (out.size() == s.size()) return run_jvp(s, v, out);
  s.tangent.resize(s.size());
  run_jvp(s, v, s.tangent);
  std::copy_n(s.tangent.begin(), out.size(), out.begin());
}

Parts Solution::jacobian(const std::function<void()>& between) const {
  SolutionState& s = to_differentiate("jacobian");
  const std::vector<Input>& parameters = s.method->step->parameters;
  const std::size_t n = s.shown_size();
  std::size_t m = 0;
  for (const Input& p : parameters) m += static_cast<std::size_t>(p.shape.size());
  std::vector<std::vector<double>> matrices;
  for (const Input& p : parameters) matrices.emplace_back(n * static_cast<std::size_t>(p.shape.size()));
  const detail::Map& step = *s.method->step;
  const bool wants_rows = detail::facts_of(s.estimator).by_rows.value_or(n <= m);
  const bool by_rows = step.no_vjp.empty() && (wants_rows || !step.no_jvp.empty());
  run_derivative(s, "jacobian",
                 [&] { by_rows ? fill_rows(s, n, matrices, between) : fill_columns(s, n, matrices, between); });
  require_derivative(s, "jacobian",
                     std::ranges::all_of(matrices, [](const auto& of_one) { return detail::all_finite(of_one); }));
  std::vector<Array> result;
  for (std::size_t p = 0; p < matrices.size(); ++p)
    result.emplace_back(Shape{static_cast<std::int64_t>(n), parameters[p].shape.size()}, std::move(matrices[p]));
  return result;
}

Certificate Solution::certificate(const Parts& c) const {
  SolutionState& s = to_differentiate("certificate");
  std::vector<double> flat = flat_cotangent("certificate", s, c);
  const int exponent = detail::exponent_of(flat);
  if (exponent != 0) detail::multiply(flat, -exponent);
  const parallel::UsePool use = s.on_its_threads();
  return scaled_back(detail::certify_vjp(s, flat), exponent);
}
Certificate Solution::certificate_jvp(const Parts& v) const {
  SolutionState& s = to_differentiate("certificate_jvp");
  std::vector<Array> tangents = checked_tangents("certificate_jvp", s, v);
  const int exponent = detail::exponent_of(tangents);
  if (exponent != 0) tangents = detail::multiplied(tangents, -exponent);
  const parallel::UsePool use = s.on_its_threads();
  return scaled_back(detail::certify_jvp(s, tangents), exponent);
}

}  // namespace onestep
