// The state of a solution: the solve, and the points its derivatives are taken at.
#include "estimate/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "linear/random.h"

namespace onestep::detail {

void need_jvp(const Map& map, const char* estimator) {
  if (!map.no_jvp.empty() && !map.no_vjp.empty())
    throw MisuseError(fmt::format("[{}] jvp is missing: {}, and vjp is missing too", estimator, map.no_jvp));
  if (!map.no_jvp.empty())
    throw MisuseError(
        fmt::format("[{}] jvp is missing: {}. Without it there is vjp with every estimator, and jvp with "
                    "Unrolled{{.mode = Unrolled::reverse}}",
                    estimator, map.no_jvp));
}
void need_vjp(const Map& map, const char* estimator) {
  if (!map.no_jvp.empty() && !map.no_vjp.empty())
    throw MisuseError(fmt::format("[{}] vjp is missing: {}, and jvp is missing too", estimator, map.no_vjp));
  if (!map.no_vjp.empty())
    throw MisuseError(
        fmt::format("[{}] vjp is missing: {}. Without it there is jvp with every estimator, and vjp with "
                    "Unrolled{{.mode = Unrolled::forward}}",
                    estimator, map.no_vjp));
}

Parameters memory_for(const std::vector<Input>& parameters) {
  Parameters memory;
  for (const Input& p : parameters) memory.emplace_back(static_cast<std::size_t>(p.shape.size()));
  return memory;
}

double norm(const Parameters& p) {
  double size = 0;
  for (const auto& part : p) size = std::hypot(size, norm(ConstVector(part)));
  return size;
}
void add_to(Parameters& to, const Parameters& what, double factor) {
  for (std::size_t i = 0; i < to.size(); ++i) add(to[i], what[i], factor);
}

std::vector<double> flat_tangent(std::span<const Array> v) {
  std::size_t size = 0;
  for (const Array& a : v) size += static_cast<std::size_t>(a.size());
  std::vector<double> flat(size);
  flatten(v, flat);
  return flat;
}

void Differentiator::vjps(SolutionState& s, std::span<const ConstVector> cs, std::span<const std::vector<Vector>> outs) {
  for (std::size_t d = 0; d < cs.size(); ++d) vjp(s, cs[d], outs[d]);
}
void Differentiator::jvps(SolutionState& s, std::span<const std::vector<Array>> vs, std::span<const Vector> outs) {
  for (std::size_t d = 0; d < vs.size(); ++d) jvp(s, vs[d], outs[d]);
}

void note_status(DerivativeReport& report, Status status) { report.status = std::max(report.status, status); }

void note_inner_solve(DerivativeReport& report, Point& point) {
  if (const InnerSolve* inside = point.inner_solve()) note_residual(report, inside->residual(), inside->tolerance());
}

void note_residual(DerivativeReport& report, double residual, double tolerance) {
  constexpr double hopeless = 1e-6;
  report.residual = std::max(report.residual, residual);
  if (!(residual <= std::max(hopeless, tolerance)))
    note_status(report, Status::singular);
  else if (residual > tolerance)
    note_status(report, Status::rounding_reached);
}

bool is_degenerate(SolutionState& state) {
  constexpr double linear = 0.45;      // Newton's method contracts by ½ at a double root, and less at others
  constexpr double plainly_not = 0.3;  // as steps became shorter
  if (state.degenerate) return *state.degenerate;
  const Run& run = state.run;
  const bool can_be = state.method->superlinear && state.loop->at_solution() == nullptr && run.last_step > 0 &&
                      state.method->step->no_jvp.empty() &&
                      !(run.step_before > 0 && run.last_step <= plainly_not * run.step_before);
  state.degenerate = state.method->superlinear && run.steps_vanish;
  if (*state.degenerate || !can_be) return *state.degenerate;
  std::vector<double> last(state.size()), image(state.size());
  for (std::size_t i = 0; i < last.size(); ++i) last[i] = run.x[i] - run.previous[i];
  state.last().jvp_x(last, image);
  ++state.report.products;
  state.degenerate = norm(image) > linear * norm(last);
  return *state.degenerate;
}

void note_degeneracy(SolutionState& state) {
  if (is_degenerate(state)) note_status(state.report, Status::singular);
}

// Of a random vector on the side of B that has fewer entries: what few random numbers sum up to may be small by luck.
double norm_b(SolutionState& state) {
  if (state.size_of_b) return *state.size_of_b;
  const Map& step = *state.method->step;
  if (!step.no_vjp.empty()) return 0;
  std::mt19937_64 random(state.size());
  std::normal_distribution<double> gaussian;
  Parameters out = memory_for(step.parameters);
  const std::size_t entries = std::accumulate(out.begin(), out.end(), std::size_t{0},
                                              [](std::size_t sum, const auto& part) { return sum + part.size(); });
  if (entries < state.size() && step.no_jvp.empty()) {
    std::vector<Array> signs;
    std::uint64_t entry = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      for (double& e : out[i]) e = random_sign(entry++);
      signs.emplace_back(step.parameters[i].shape, out[i]);
    }
    std::vector<double> image(state.size());
    state.here().jvp_theta(signs, image);
    state.size_of_b = norm(image);
  } else {
    std::vector<double> p(state.size());
    for (double& e : p) e = gaussian(random);
    state.here().vjp_theta(p, std::vector<Vector>(out.begin(), out.end()));
    state.size_of_b = norm(out);
  }
  ++state.report.products;
  return *state.size_of_b;
}

double usual_b(const SolutionState& state) {
  double theta = 0;
  for (const Array& a : state.theta) theta = std::hypot(theta, norm(a.contiguous().values()));
  return theta > 0 && std::isfinite(theta) ? norm(state.run.x) / theta : 0;
}

std::span<const Shape> SolutionState::parts() const {
  const std::vector<Shape>& all = method->step->state;
  return std::span(all).first(std::min(all.size(), method->shown));
}

// A loop whose solve threw may have stopped anywhere.
SolutionState::~SolutionState() {
  if (solved) method->give_back(std::move(loop));
}

void SolutionState::solve(std::span<const Array> x0, std::span<const Array> its_theta) {
  solved = false;
  theta.assign(its_theta.begin(), its_theta.end());
  last_ready_ = here_ready_ = equation_ready_ = scratch_point_ready_ = beside_ready_ = contracts = false;
  next_.clear();
  residual_.clear();
  differentiator->forget();
  refinement.reset();
  seen_inverse = 1;
  probed = repels = false;
  size_of_b.reset();
  degenerate.reset();
  rounding.is_known = false;
  last_adjoint.c.clear();
  returned = {};
  run.start.resize(method->step->size());
  run.x.resize(run.start.size());
  run.previous.resize(run.start.size());
  if (method->start) {
    if (!start_) start_ = method->start->point(false);
    start_->bind(theta);
    fill(run.x, 0);
    start_->apply(run.x, {}, run.start);
  } else if (!method->starts_itself) {
    flatten(x0, run.start);
  }
  const int bad_theta = method->step->infinite_parameters ? -1 : first_not_finite(theta);
  if (bad_theta >= 0 || !all_finite(run.start)) {
    run.x = run.previous = run.start;
    run.status = Status::not_finite;
    run.statistics = {};
    const std::string name = bad_theta >= 0 ? method->step->parameters[static_cast<std::size_t>(bad_theta)].name : "x0";
    run.about = fmt::format("in {}", name);
    solved = true;
    return;
  }
  const parallel::UsePool use = on_its_threads();
  loop->solve(theta, options, run);
  run.statistics.step_flops = method->step->costs.apply;
  solved = true;
  if (run.status != Status::not_finite) return;
  if (const std::string constant = method->step->not_finite_constant(); !constant.empty())
    run.about += fmt::format("{}a {} holds a NaN or an infinity", run.about.empty() ? "" : "; ", constant);
}

Point& SolutionState::last() {
  Point& p = loop->last();
  if (!last_ready_) {
    scratch_.resize(size());
    p.control(run.controls, scratch_);
    last_ready_ = true;
  }
  return p;
}

Point& SolutionState::here() {
  if (AtSolution* const known = loop->at_solution()) return known->step();
  if (!here_) here_ = method->step->point(true);
  if (!here_ready_) {
    next_.resize(size());
    here_->bind(theta);
    here_->apply(run.x, run.controls, next_);
    here_ready_ = true;
  }
  return *here_;
}

ConstVector SolutionState::next() {
  Point& p = here();
  if (next_.empty()) {
    next_.resize(size());
    p.control(run.controls, next_);
  }
  return next_;
}

Point& SolutionState::equation() {
  if (AtSolution* const known = method->users_equation ? nullptr : loop->at_solution()) return known->equation();
  if (!equation_) equation_ = method->equation->point(true);
  if (!equation_ready_) {
    residual_.resize(size());
    equation_->bind(theta);
    equation_->apply(run.x, {}, residual_);
    equation_ready_ = true;
  }
  return *equation_;
}

ConstVector SolutionState::residual() {
  Point& p = equation();
  if (residual_.empty()) {
    residual_.resize(size());
    p.control({}, residual_);
  }
  return residual_;
}

Point& SolutionState::scratch_point() {
  if (!scratch_point_) scratch_point_ = method->step->point(true);
  if (!scratch_point_ready_) scratch_point_->bind(theta);
  scratch_point_ready_ = true;
  return *scratch_point_;
}

Point& SolutionState::beside() {
  if (!beside_) beside_ = method->equation->point(true);
  if (!beside_ready_) beside_->bind(theta);
  beside_ready_ = true;
  return *beside_;
}

Work SolutionState::work() const {
  Work total = loop->work();
  const auto count = [&](const Point* p) {
    if (p == nullptr) return;
    const Work its = p->work();
    total.factorisations += its.factorisations;
    total.products += its.products;
  };
  for (const Point* p : {here_.get(), equation_.get(), scratch_point_.get(), beside_.get()}) count(p);
  for (const auto& p : of_refinement) count(p.get());
  return total;
}

void SolutionState::add_vjp_theta(Point& p, ConstVector c, std::span<const Vector> out) {
  if (parts_.empty()) {
    for (const Vector o : out) parts_.emplace_back(o.size());
    part_spans_.assign(parts_.begin(), parts_.end());
  }
  p.vjp_theta(c, part_spans_);
  for (std::size_t i = 0; i < out.size(); ++i) add(out[i], parts_[i]);
}

}  // namespace onestep::detail
