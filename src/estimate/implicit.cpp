// Implicit differentiation: G_xᵀ u = c and θ̄ = -G_θᵀ u, or G_x ẋ = -G_θ v, on the simplest equation there is. Without an
// equation of its own a step has x - F(x, θ) = 0.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "estimate/state.h"
#include "linear/krylov.h"
#include "linear/random.h"
#include "onestep/plan.h"

namespace onestep::detail {
namespace {

constexpr double hopeless = 1e-6;  // a relative residual above this is that of a singular system
constexpr double roughly = 1e-3;   // error estimates need few digits

class ImplicitDifferentiator final : public Differentiator {
 public:
  ImplicitDifferentiator(Implicit how, double goal) : how_(std::move(how)), goal_(goal) {
    if (!(how_.tolerance > 0 && how_.tolerance < 1))
      throw MisuseError(fmt::format("[Implicit] tolerance = {}: it must be positive and below 1", how_.tolerance));
    if (how_.max_iterations < 1) throw MisuseError(fmt::format("[Implicit] max_iterations = {}", how_.max_iterations));
  }
  const char* name() const override { return "implicit"; }
  const char* advice() const override { return "a smaller Implicit::tolerance leaves less out"; }
  bool needs_contraction() const override { return false; }
  void forget() override {
    dense_ready_ = false;
    singular_.reset();
  }

  FactorOf factor_of() const override {
    return !dense_ready_ ? FactorOf::nothing : factor_of_step_ ? FactorOf::step : FactorOf::equation;
  }
  void solve_by_factor(bool transposed, Vector r) override {
    solve_dense(transposed, r, right_);
    std::ranges::copy(right_, r.begin());
  }

  void vjp(SolutionState& s, ConstVector c, std::span<const Vector> out) override {
    const Map& map = on_step(s) ? *s.method->step : *s.method->equation;
    need_vjp(map, "Implicit");
    u_.resize(c.size());
    rest_.resize(map.parameters.size());
    for (std::size_t i = 0; i < rest_.size(); ++i) rest_[i].resize(out[i].size());
    solve(s, true, c, u_, [&](ConstVector u) {
      point(s).vjp_theta(u, std::vector<Vector>(rest_.begin(), rest_.end()));
      ++s.report.products;
      s.report.flops += map.costs.vjp_theta;
      return norm(rest_);
    });
    s.last_adjoint = {{c.begin(), c.end()}, u_};
    // θ̄ = Bᵀu for x - F, and -G_θᵀ u for G.
    if (!on_step(s))
      for (double& e : u_) e = -e;
    point(s).vjp_theta(u_, out);
    note_degeneracy(s);
    ++s.report.products;
    s.report.flops += map.costs.vjp_theta;
    note_inside(s);
  }

  void jvp(SolutionState& s, std::span<const Array> v, Vector out) override {
    const Map& map = on_step(s) ? *s.method->step : *s.method->equation;
    need_jvp(map, "Implicit");
    u_.resize(out.size());
    point(s).jvp_theta(v, u_);
    ++s.report.products;
    s.report.flops += map.costs.jvp_theta;
    if (!on_step(s))
      for (double& e : u_) e = -e;
    solve(s, false, u_, out, [](ConstVector x) { return norm(x); });
    note_degeneracy(s);
    note_inside(s);
  }

 private:
  // An equation may solve a linear system of its own.
  void note_inside(SolutionState& s) const {
    if (const InnerSolve* inside = point(s).inner_solve()) note_residual(s.report, inside->residual(), how_.tolerance);
  }
  bool on_step(const SolutionState& s) const { return how_.on_step || !s.method->equation; }
  Point& point(SolutionState& s) const { return on_step(s) ? s.here() : s.equation(); }

  // The matrix of the system, or its transpose, times v.
  void product(SolutionState& s, bool transposed, ConstVector v, Vector out) {
    Point& p = point(s);
    const bool symmetric = (on_step(s) ? *s.method->step : *s.method->equation).symmetric;
    const Map& map = on_step(s) ? *s.method->step : *s.method->equation;
    if (transposed && !(symmetric && !map.no_vjp.empty()))
      p.vjp_x(v, out);
    else
      p.jvp_x(v, out);
    if (on_step(s))
      for (std::size_t i = 0; i < v.size(); ++i) out[i] = v[i] - out[i];
  }

  /// The norm of the derivative that a solution of the linear system makes.
  using SizeOf = std::function<double(ConstVector)>;

  void solve(SolutionState& s, bool transposed, ConstVector b, Vector x, const SizeOf& size_of) {
    if (!on_step(s) && s.method->equation->identity) {
      std::ranges::copy(b, x.begin());
      return;
    }
    Inverse* const inverse = on_step(s) ? nullptr : s.last().inverse();
    const bool has_factor = inverse != nullptr && inverse->is_factored();
    const bool dense = how_.how == Implicit::dense ||
                       (how_.how == Implicit::automatic && !has_factor && !how_.preconditioner && b.size() <= dense_up_to);
    if (dense) {
      LinearResult result = make_and_solve_dense(s, transposed, b, x);
      judge(
          s, transposed, b, x, [&](Vector r) { solve_by_factor(transposed, r); }, size_of, result);
      note(s, result);
      if (workspace_->failed() || is_singular()) note_status(s.report, Status::singular);
      return;
    }
    LinearSystem system;
    system.product = [&](ConstVector v, Vector out) { product(s, transposed, v, out); };
    system.symmetric = (on_step(s) ? *s.method->step : *s.method->equation).symmetric;
    system.tolerance = has_factor ? how_.tolerance : std::max(how_.tolerance, 0.01 * goal_);
    system.max_iterations = how_.max_iterations;
    const InPlace by_inverse = [&](Vector r) { inverse->solve(transposed, r, has_factor ? 0 : roughly); };
    if (how_.preconditioner)
      system.precondition = [&](Vector r) { how_.preconditioner(r, transposed); };
    else if (has_factor)
      system.precondition = by_inverse;
    LinearResult result = linear_.solve(system, b, x);
    if (on_step(s) && !how_.preconditioner) s.note_inverse(result.inverse);
    const bool is_its_own = inverse != nullptr && !s.method->users_equation;
    if (is_its_own && (has_factor || goal_ > 0)) judge(s, transposed, b, x, by_inverse, size_of, result);
    note(s, result);
    s.report.flops +=
        result.products * (product_cost(s, transposed) + (has_factor ? s.method->step->costs.precondition : 0));
  }
  static void note(SolutionState& s, const LinearResult& result) {
    note_status(s.report, result.status);
    s.report.residual = std::max(s.report.residual, result.residual);
    s.report.products += result.products;
  }

  // The residual is a poor measure of the error when entries of the state have different units, or when the matrix enlarges
  // it little. The inverse converts it to an error of x and, by `size_of`, of the derivative, relative to which it is given.
  // Corrections that reduce this error are added to x.
  void judge(SolutionState& s, bool transposed, ConstVector b, Vector x, const InPlace& by_inverse, const SizeOf& size_of,
             LinearResult& result) {
    constexpr int most = 4;  // corrections
    if (goal_ == 0 && (result.status == Status::converged || result.status == Status::iteration_limit)) return;
    const std::size_t n = b.size();
    const double aim = std::max(how_.tolerance, 0.5 * goal_);
    const auto error_of = [&](ConstVector at) {
      residual_.resize(n);
      product(s, transposed, at, residual_);
      ++result.products;
      for (std::size_t i = 0; i < n; ++i) residual_[i] = b[i] - residual_[i];
      by_inverse(residual_);
      return size_of(residual_);
    };
    better_.resize(n);
    double error = error_of(x), size = size_of(x);
    if (!(error < size)) {  // nothing that the iteration found is left, or the derivative vanishes
      std::ranges::copy(b, better_.begin());
      by_inverse(better_);
      if (!all_finite(better_)) return;
      const double now = error_of(better_);
      if (now < error || !std::isfinite(error)) {
        std::ranges::copy(better_, x.begin());
        error = now;
        size = size_of(x);
      } else {
        error = error_of(x);
      }
    }
    if (!std::isfinite(error)) return;
    for (int k = 0; k < most && error > aim * size; ++k) {
      std::ranges::copy(x, better_.begin());
      add(better_, residual_);
      const double now = error_of(better_);
      if (!(now < error)) break;
      std::ranges::copy(better_, x.begin());
      const bool shrinks = now < 0.5 * error;
      error = now;
      if (!shrinks) break;
    }
    size = size_of(x);
    const double relative = error == 0 ? 0 : error / size;
    const bool is_solved = is_solution(result.status) || relative <= hopeless;
    result.status = relative <= aim ? Status::converged : is_solved ? Status::rounding_reached : Status::singular;
    result.residual = relative;
  }
  double product_cost(const SolutionState& s, bool transposed) const {
    const Costs& costs = (on_step(s) ? *s.method->step : *s.method->equation).costs;
    return transposed ? costs.vjp_x : costs.jvp_x;
  }

  // n products make the matrix; it is factored once for all directions.
  LinearResult make_and_solve_dense(SolutionState& s, bool transposed, ConstVector b, Vector x) {
    const std::size_t n = b.size();
    const auto rows = static_cast<std::int64_t>(n);
    if (!plan_) {
      plan_.emplace(traced(
                        [](Expr m, Expr r, Expr t) {
                          return std::pair{onestep::solve(lu(m), r), solve_transposed(lu(m), t)};
                        },
                        Shape{rows, rows}, Shape{rows}, Shape{rows}),
                    PlanOptions{.levels = {1, 3, 4}, .loop = 1, .branches = 3});
      workspace_.emplace(plan_->workspace());
    }
    if (!dense_ready_) {
      std::vector<double> unit(n), column(n);
      matrix_.assign(n * n, 0);
      const Map& map = on_step(s) ? *s.method->step : *s.method->equation;
      const bool by_rows = !map.no_jvp.empty();
      for (std::size_t j = 0; j < n; ++j) {
        unit[j] = 1;
        product(s, by_rows, unit, column);
        unit[j] = 0;
        for (std::size_t i = 0; i < n; ++i) matrix_[by_rows ? j * n + i : i * n + j] = column[i];
      }
      s.report.products += static_cast<int>(n);
      ++s.report.factorisations;
      const auto size = static_cast<double>(n);
      s.report.flops += size * product_cost(s, by_rows) + size * size * size / 3;
    }
    solve_dense(transposed, b, x);
    dense_ready_ = true;
    factor_of_step_ = on_step(s);
    // What came out, checked with the operator itself.
    residual_.resize(n);
    product(s, transposed, x, residual_);
    for (std::size_t i = 0; i < n; ++i) residual_[i] -= b[i];
    const double size = norm(b), residual = size > 0 ? norm(residual_) / size : 0;
    const Status status = !(residual <= std::max(hopeless, how_.tolerance)) ? Status::singular
                          : residual > how_.tolerance                       ? Status::rounding_reached
                                                                            : Status::converged;
    return {.status = status, .residual = residual, .products = 1};
  }

  // Whether rounding alone may have made the matrix M regular: a right-hand side within its range has a small residual then,
  // too. There is a y with entries of My that are but rounding of their sums, found by power iteration with the inverse.
  bool is_singular() {
    constexpr int iterations = 3;
    if (singular_) return *singular_;
    const std::size_t n = u_.size();
    const double rounding = 4 * std::numeric_limits<double>::epsilon() * std::sqrt(static_cast<double>(n));
    std::vector<double> y(n), next(n);
    fill_random(y);
    for (int k = 0; k < iterations; ++k) {
      const double size = norm(y);
      for (double& e : y) e /= size;
      solve_dense(k % 2 == 1, y, next);
      y.swap(next);
    }
    singular_ = n > 0;
    for (std::size_t i = 0; i < n; ++i) {
      double sum = 0, size = 0;
      for (std::size_t j = 0; j < n; ++j) {
        sum += matrix_[i * n + j] * y[j];
        size += std::fabs(matrix_[i * n + j] * y[j]);
      }
      if (std::fabs(sum) > rounding * size) singular_ = false;
    }
    return *singular_;
  }

  // By the factor, which the first one makes.
  void solve_dense(bool transposed, ConstVector b, std::span<double> x) {
    const auto rows = static_cast<std::int64_t>(b.size());
    const Array inputs[] = {Array::view(MatrixView{matrix_.data(), rows, rows, rows, 1}), Array::view(b), Array::view(b)};
    right_.resize(b.size());
    const Vector outputs[] = {transposed ? Vector() : x, transposed ? x : Vector()};
    if (rows > 0) plan_->run(*workspace_, inputs, outputs, dense_ready_ ? 3 : 1, transposed ? 4 : 3);
  }

  Implicit how_;
  double goal_;  // error of the derivative that is aimed at; 0: `tolerance` is all that counts
  std::vector<double> u_, matrix_, residual_, right_, better_;
  Parameters rest_;
  LinearSolver linear_;
  std::optional<Plan> plan_;
  std::optional<Workspace> workspace_;
  bool dense_ready_ = false, factor_of_step_ = false;
  std::optional<bool> singular_;
};

}  // namespace

std::unique_ptr<Differentiator> make(const Implicit& how) { return std::make_unique<ImplicitDifferentiator>(how, 0); }
std::unique_ptr<Differentiator> make_aiming(double goal) {
  return std::make_unique<ImplicitDifferentiator>(Implicit{.tolerance = goal > 1e-11 ? 1e-12 : std::max(1e-15, 0.1 * goal)},
                                                  goal);
}

EstimatorFacts facts_of(const Implicit&) { return {}; }
std::string text_of(const Implicit& how) {
  return fmt::format("Implicit {} {}{}{}", static_cast<int>(how.how), how.tolerance, how.on_step ? " on the step" : "",
                     how.preconditioner ? " preconditioned" : "");
}

}  // namespace onestep::detail
