// The interior point method as a loop of traced steps, for derivatives that go over its iterates (unrolled, K steps). All
// sides of all constraints are one stack Cx + s = h, (rows up; rows down; bounds up; bounds down), s ≥ 0, λ ≥ 0. A step is
// Mehrotra's:
//
//   predictor   K (Δx, Δy) = -(residuals), s∘Δλ + λ∘Δs = -s∘λ
//   corrector   the same matrix, s∘Δλ + λ∘Δs = σμ - s∘λ - Δs∘Δλ
//
// with K = [Q + CᵀWC, Aᵀ; A, -δ], W = λ/s. σμ and the lengths of the step are controls: decided outside, not differentiated.
// The state is that of quadratic_program, and behind it s and λ. The native method (interior_point.h) cannot stand in: its
// scaling, its regularisation and its refinement of linear solves are decided by the data, so that its iterates are not a
// function that can be differentiated step by step. The optimum is the same; nothing else is shared but the data's checks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linear/vector.h"
#include "onestep/diff.h"
#include "qp/traced_program.h"
#include "solve/monitor.h"
#include "solve/recipe.h"
#include "solve/traced_map.h"

namespace onestep::detail {
namespace {

constexpr double equality_shift = 1e-13;  // keeps dependent equalities from making K singular
// Without scaling the residual of a large problem may stay above the tolerance: when it is this small and not halved any
// more, the loop ends.
constexpr double near_enough = 1e-6, slow = 0.5;
constexpr int user_parts = 4;          // x and the multipliers; behind them s and λ
constexpr int least_iterations = 200;  // to find out whether there is a solution

enum Extra : std::size_t { residuals, slack, multiplier, slack_step, multiplier_step, sides, side_residuals };
enum ControlAt : std::size_t { corrects, barrier, primal_length, dual_length };

class TracedIpMethod final : public Method {
 public:
  std::unique_ptr<Loop> loop() const override;
  std::shared_ptr<Method> with_data(const std::vector<Array>& data) const override {
    auto copy = std::make_shared<TracedIpMethod>(*this);
    copy->bind(data);
    copy->native = native->with_data(data);
    return copy;
  }
  Sizes sizes;
  std::shared_ptr<const Method> native;
};

// Controls as numbers.
Expr number(const Expr& control) { return reshape(control, {}); }

TracedStep trace_step(const TracedProgram& program, const Sizes& z, const Expr& w, std::span<const Expr> controls) {
  const std::vector<Expr> d = full_blocks(program, z);
  const Expr &Q = d[0], &q = d[1], &A = d[2], &b = d[3], &G = d[4];
  const std::int64_t n = z.n, m = z.m, p = z.p, all = 2 * p + 2 * n, at_s = n + m + p + n;
  const Expr x = slice(w, 0, n), y = slice(w, n, n + m), s = slice(w, at_s, at_s + all),
             l = slice(w, at_s + all, at_s + 2 * all);
  const Expr bound = concat({d[6], -d[5], d[8], -d[7]});
  // A side that is not there has s = 1, λ = 0 and moves neither.
  const Expr has = stop_gradient(less(abs(bound), infinity)), h = where(has, bound, 0.0);
  const auto stack = [&](const Expr& v) {
    const Expr rows = matmul(G, v);
    return concat({rows, -rows, v, -v});
  };
  const auto rows_of = [&](const Expr& v) { return slice(v, 0, p) - slice(v, p, 2 * p); };
  const auto bounds_of = [&](const Expr& v) { return slice(v, 2 * p, 2 * p + n) - slice(v, 2 * p + n, all); };
  const auto stack_transposed = [&](const Expr& v) { return matmul(transpose(G), rows_of(v)) + bounds_of(v); };

  const Expr Qs = 0.5 * (Q + transpose(Q));
  const Expr r_dual = matmul(Qs, x) + q + matmul(transpose(A), y) + stack_transposed(l), r_equal = matmul(A, x) - b;
  const Expr r_side = where(has, stack(x) + s - h, 0.0), W = where(has, l / s, 0.0);
  const auto both = [&](const Expr& v, std::int64_t begin, std::int64_t count) {
    return slice(v, begin, begin + count) + slice(v, begin + count, begin + 2 * count);
  };
  const Expr H = Qs + gram(G, both(W, 0, p)) + diag(both(W, 2 * p, n));
  const Expr K = m == 0 ? H : concat({concat({H, transpose(A)}, 1), concat({A, -equality_shift * eye(m)}, 1)}, 0);
  const Factor factor = ldlt(K);
  const auto top_of = [&](const Expr& v) { return slice(v, 0, n); };
  const auto bottom_of = [&](const Expr& v) { return slice(v, n, n + m); };
  // Large weights cost the factor digits; the residual of the system as it stands, without them summed up, wins them back.
  const auto solve_refined = [&](const Expr& r) {
    const Expr v = solve(factor, r), vx = top_of(v);
    const Expr top = matmul(Qs, vx) + stack_transposed(W * stack(vx)) + matmul(transpose(A), bottom_of(v));
    return v + solve(factor, r - (m == 0 ? top : concat({top, matmul(A, vx)})));
  };
  struct Direction {
    Expr x, y, s, l;
  };
  const auto solve_for = [&](const Expr& target) {
    const Expr known = where(has, (l * r_side - target) / s, 0.0);
    const Expr top = -(r_dual + stack_transposed(known));
    const Expr both_parts = solve_refined(m == 0 ? top : concat({top, -r_equal}));
    const Expr dx = top_of(both_parts), ds = where(has, -(r_side + stack(dx)), 0.0);
    return Direction{dx, bottom_of(both_parts), ds, known + W * stack(dx)};
  };
  const Direction affine = solve_for(s * l);
  const Direction full =
      solve_for(s * l + number(controls[corrects]) * affine.s * affine.l - number(controls[barrier]) * has);
  const Expr primal = number(controls[primal_length]), dual = number(controls[dual_length]);
  const Expr next_l = l + dual * full.l;
  const auto relative = [](const Expr& r, const std::vector<Expr>& terms) {
    Expr size = 0.0;
    for (const Expr& t : terms) size = maximum(size, maximum(max(abs(t)), 0.0));  // the largest of nothing is -∞
    return maximum(max(abs(r)), 0.0) / (1.0 + size);
  };
  const Expr worst = maximum(maximum(relative(r_dual, {matmul(Qs, x), q, stack_transposed(l)}), relative(r_equal, {b})),
                             relative(r_side, {h}));
  const Expr next =
      concat({x + primal * full.x, y + dual * full.y, rows_of(next_l), bounds_of(next_l), s + primal * full.s, next_l});
  return {next,
          {concat({reshape(worst, {1}), reshape(sum(x * (0.5 * matmul(Qs, x) + q)), {1})}), s, l, affine.s, affine.l, has,
           r_side},
          {}};
}

class TracedIpLoop final : public Loop {
 public:
  explicit TracedIpLoop(const TracedIpMethod& method)
      : method_(method),
        native_(method.native->loop()),
        point_(point_with_extras(*method.step)),
        next_(method.step->size()) {}

  void solve(std::span<const Array> theta, const SolveOptions& options, Run& run) override {
    Monitor monitor(options, run);
    run_ = &run;
    if (!has_solution(theta, options, run)) return;
    point_->bind(theta);
    start(run);
    follow(options, run, monitor);
    const auto has_arrived = [&] { return is_solution(run.status) && reached_the_same(options, run); };
    const bool was_stopped = run.status == Status::cancelled || run.status == Status::time_limit;
    if (!was_stopped && !has_arrived() && is_solution(native_run_.status)) {
      // Any start will do, since none is differentiated.
      start_near_solution(run);
      monitor.start_again();
      follow(options, run, monitor);
    }
    if (is_solution(run.status) && !has_arrived())
      monitor.end(Status::line_search_failed,
                  "the steps that are differentiated did not reach the solution; OneStep and Implicit need no steps");
  }

  // Unscaled steps, whose tolerances are absolute for small data: their end is compared with the native solution. Where that
  // is 0, slacks say what is small.
  bool reached_the_same(const SolveOptions& options, const Run& run) const {
    return is_within(std::max(1e-4, 10 * options.tolerance), run);
  }
  bool is_within(double allowed, const Run& run) const {
    constexpr double is_zero = 1e-13, of_slacks = 1e-12;
    const ConstVector s = point_->extra(slack), has = point_->extra(sides);
    double off = 0, size = 0, largest_slack = 0;
    for (std::size_t i = 0; i < s.size(); ++i)
      if (has[i] != 0) largest_slack = std::max(largest_slack, s[i]);
    for (std::int64_t j = 0; j < method_.sizes.n; ++j) {
      const auto i = static_cast<std::size_t>(j);
      off = std::max(off, std::fabs(run.x[i] - native_run_.x[i]));
      size = std::max(size, std::fabs(native_run_.x[i]));
    }
    return off <= (size > is_zero * largest_slack ? allowed * size : of_slacks * largest_slack);
  }

  void follow(const SolveOptions& options, Run& run, Monitor& monitor) {
    // A small complementarity gap leaves x far from the solution where the objective is flat: as long as steps gain much,
    // they go on until it is near.
    const double near_native = std::max(1e-8, 10 * options.tolerance);
    const int made = run.statistics.iterations;  // from another start
    run.controls.assign({1, 0, 1, 1});
    run.previous = run.x = run.start;
    std::array<double, 4> controls{};
    double last_error = infinity;
    for (int k = 1;; ++k) {
      // The predictor, and how far it can go.
      controls = {0, 0, 1, 1};
      const bool factored = point_->apply(run.x, controls, next_);
      ++run.statistics.evaluations;
      ++run.statistics.factorisations;
      const ConstVector s = point_->extra(slack), l = point_->extra(multiplier), has = point_->extra(sides);
      const double count = std::max(1.0, sum(has)), mu = product(s, l, has) / count;
      const double worst = point_->extra(residuals)[0], objective = point_->extra(residuals)[1];
      const double error = std::max(worst, mu / (1 + std::fabs(objective)));
      if (!std::isfinite(error))
        return monitor.end(k == 1 ? Status::not_finite : Status::diverged, fmt::format("in iteration {}", k));
      // One more step would use a nearly singular matrix without improving the residual.
      const bool gains = factored && error <= slow * last_error && !is_within(near_native, run);
      if (error <= options.tolerance && k > 1 && !gains) return monitor.end(Status::converged);
      if (k > 1 && error <= near_enough && error > slow * last_error)
        return monitor.end(Status::rounding_reached, fmt::format("the residual is {:.1e}", error));
      if (!factored) return monitor.end(Status::singular, fmt::format("in iteration {}", k));
      last_error = error;
      std::ranges::copy(run.x, run.previous.begin());
      const double affine_primal = longest(s, point_->extra(slack_step), has, 1),
                   affine_dual = longest(l, point_->extra(multiplier_step), has, 1);
      double reached = 0;
      for (std::size_t i = 0; i < s.size(); ++i)
        if (has[i] != 0)
          reached += (s[i] + affine_primal * point_->extra(slack_step)[i]) *
                     (l[i] + affine_dual * point_->extra(multiplier_step)[i]);
      const double sigma = mu > 0 ? std::pow(reached / count / mu, 3) : 0;
      // The corrector; the fraction to the boundary nears 1 with the end.
      controls = {1, sigma * mu, 1, 1};
      point_->control(controls, next_);
      const std::size_t at_s = next_.size() - 2 * s.size(), at_l = at_s + s.size();
      const auto step_of = [&](std::size_t at) {
        step_.assign(next_.begin() + static_cast<std::ptrdiff_t>(at),
                     next_.begin() + static_cast<std::ptrdiff_t>(at + s.size()));
        for (std::size_t i = 0; i < s.size(); ++i) step_[i] -= run.previous[at + i];
        return ConstVector(step_);
      };
      const double fraction = std::clamp(1 - mu, 0.99, 1 - 1e-10);
      controls[primal_length] = longest(s, step_of(at_s), has, fraction);
      controls[dual_length] = longest(l, step_of(at_l), has, fraction);
      point_->control(controls, run.x);
      run.trajectory.record(run.previous, controls);
      run.statistics.iterations = made + k;
      std::ranges::transform(run.x, run.previous, next_.begin(), std::minus<>());
      run.last_step = norm(next_);
      if (options.history) run.statistics.history.push_back(error);
      if (error <= options.tolerance && k == 1) return monitor.end(Status::converged);  // one step all the same
      if (tell(options, {made + k, run.last_step, 1, objective, std::min(controls[2], controls[3]), 0}))
        return monitor.end(Status::cancelled);
      if (monitor.seconds() > options.time_limit)
        return monitor.end(Status::time_limit, fmt::format("{} s, after {} iterations", options.time_limit, k));
      if (k >= options.max_iterations)  // from this start
        return monitor.end(Status::iteration_limit, fmt::format("{} iterations, the residual is {:.1e}", k, error));
    }
  }
  // The native method has solved the same program.
  AtSolution* reference() override { return native_->at_solution(); }
  // The loop ends at x_k; the last step was made at x_{k-1}.
  Point& last() override {
    if (!std::ranges::equal(point_->where(), run_->previous)) point_->apply(run_->previous, run_->controls, next_);
    return *point_;
  }

 private:
  // What has no solution, or none that is a minimum, the solver that looks for proofs finds out.
  bool has_solution(std::span<const Array> theta, const SolveOptions& options, Run& run) {
    SolveOptions quietly;
    quietly.tolerance = options.tolerance;
    quietly.max_iterations = std::max(options.max_iterations, least_iterations);
    quietly.time_limit = options.time_limit;
    Run& found = native_run_;
    found.start.assign(method_.native->step->size(), 0.0);
    found.x.resize(found.start.size());
    native_->solve(theta, quietly, found);
    if (found.status != Status::infeasible && found.status != Status::unbounded && found.status != Status::not_convex &&
        found.status != Status::not_finite)
      return true;
    run.x = run.previous = run.start;
    std::ranges::copy(found.x, run.x.begin());
    run.proof = found.proof;
    run.status = found.status;
    run.about = found.about;
    run.statistics.iterations = 0;
    return false;
  }

  // s and λ as large as the residuals of x = 0, so that the first step has room.
  void start(Run& run) {
    fill_start(run.start, 1, 1);
    const std::array<double, 4> controls{0, 0, 1, 1};
    point_->apply(run.start, controls, next_);
    const ConstVector has = point_->extra(sides);
    const std::size_t count = has.size(), at_s = run.start.size() - 2 * count;
    const double size = std::clamp(point_->extra(residuals)[0] * 10, 1.0, 1e4);
    for (std::size_t i = 0; i < count; ++i) {
      run.start[at_s + i] = has[i] != 0 ? size : 1;
      run.start[at_s + count + i] = has[i] != 0 ? size : 0;
    }
  }
  // At the solution of the native method, with slacks and multipliers whose products are all the same.
  void start_near_solution(Run& run) {
    constexpr double share = 1e-4;  // of the largest product
    fill_start(run.start, 1, 0);
    std::ranges::copy(native_run_.x, run.start.begin());
    const std::array<double, 4> controls{0, 0, 1, 1};
    point_->apply(run.start, controls, next_);
    const ConstVector has = point_->extra(sides), residual = point_->extra(side_residuals);
    const auto n = static_cast<std::size_t>(method_.sizes.n), p = static_cast<std::size_t>(method_.sizes.p);
    const Vector s = Vector(run.start).last(2 * has.size()).first(has.size()), l = Vector(run.start).last(has.size());
    const double* const z = native_run_.x.data() + n + static_cast<std::size_t>(method_.sizes.m);
    for (std::size_t i = 0; i < has.size(); ++i) {
      if (has[i] == 0) continue;
      const std::size_t of_rows = i < p ? i : i - p, j = i - 2 * p;
      const double sign = (i < 2 * p ? i < p : j < n) ? 1 : -1;
      l[i] = std::max(0.0, sign * (i < 2 * p ? z[of_rows] : z[p + (j < n ? j : j - n)]));
      s[i] = std::max(0.0, 1 - residual[i]);
    }
    const auto or_one = [](double size) { return size > 0 && std::isfinite(size) ? size : 1; };
    const double size_x = or_one(largest(ConstVector(native_run_.x).first(n))), size_l = or_one(largest(l));
    const double product = share * size_x * size_l, root = std::sqrt(share);
    for (std::size_t i = 0; i < has.size(); ++i) {
      if (has[i] == 0) continue;
      if (s[i] / size_x >= l[i] / size_l)
        l[i] = product / (s[i] = std::max(s[i], root * size_x));
      else
        s[i] = product / (l[i] = std::max(l[i], root * size_l));
    }
  }
  void fill_start(std::vector<double>& w, double s, double l) const {
    const auto count = static_cast<std::size_t>(2 * method_.sizes.p + 2 * method_.sizes.n);
    std::ranges::fill(w, 0.0);
    std::fill_n(w.end() - static_cast<std::ptrdiff_t>(2 * count), count, s);
    std::fill_n(w.end() - static_cast<std::ptrdiff_t>(count), count, l);
  }
  static double sum(ConstVector v) {
    double total = 0;
    for (const double e : v) total += e;
    return total;
  }
  static double product(ConstVector a, ConstVector b, ConstVector has) {
    double total = 0;
    for (std::size_t i = 0; i < a.size(); ++i) total += has[i] * a[i] * b[i];
    return total;
  }
  // The longest step up to 1 that keeps v + step dv positive, but for a fraction of the way.
  static double longest(ConstVector v, ConstVector dv, ConstVector has, double fraction) {
    double most = 1;
    for (std::size_t i = 0; i < v.size(); ++i)
      if (has[i] != 0 && dv[i] < 0) most = std::min(most, -fraction * v[i] / dv[i]);
    return most;
  }

  const TracedIpMethod& method_;
  std::unique_ptr<Loop> native_;
  Run native_run_;
  std::unique_ptr<ExtraPoint> point_;
  Run* run_ = nullptr;
  std::vector<double> next_, step_;
};

std::unique_ptr<Loop> TracedIpMethod::loop() const { return std::make_unique<TracedIpLoop>(*this); }

std::vector<Shape> state_shapes(const Sizes& s) {
  const std::int64_t all = 2 * s.p + 2 * s.n;
  return {{s.n}, {s.m}, {s.p}, {s.n}, {all}, {all}};
}

}  // namespace

Recipe traced_interior_point(const Recipe& native) {
  Recipe recipe;
  recipe.name = native.name;
  recipe.lambda = native.lambda;
  recipe.tracing = native.tracing;
  recipe.options = native.options;
  recipe.state_of = [](std::span<const Expr> given) { return state_shapes(sizes_of(program_of(given))); };
  recipe.make = [make_native = native.make](const Problem& problem) {
    auto method = std::make_shared<TracedIpMethod>();
    Problem of_native = problem;
    of_native.state.resize(user_parts);
    method->native = make_native(of_native);
    method->shown = user_parts;
    auto step = std::make_shared<TracedMap>(
        problem.state, problem.parameters, problem.data,
        std::vector<Control>{Control::within_step, Control::within_step, Control::within_step, Control::within_step},
        [&](const Expr& w, std::span<const Expr> theta, std::span<const Expr> controls) {
          const TracedProgram program = program_of(problem.lambda.call(theta));
          method->sizes = sizes_of(program);
          return trace_step(program, method->sizes, w, controls);
        },
        false, problem.context);
    step->infinite_parameters = true;
    method->step = step;
    method->superlinear = true;
    method->starts_itself = true;
    return method;
  };
  return recipe;
}

}  // namespace onestep::detail
