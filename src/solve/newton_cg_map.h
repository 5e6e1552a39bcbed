// The step of Newton's method with its linear system solved by conjugate gradients, and the derivatives of that step, which
// newton_cg.cpp goes along.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "linear/krylov.h"
#include "onestep/solver.h"
#include "solve/traced_map.h"

namespace onestep::detail {

constexpr double out_of_sight = 100;
// A derivative's linear system over the tolerance of the solve: the derivative of the step is no more exact than the step is
// short.
constexpr double derivatives_over_solve = 0.1, roughest_derivative = 0.01;
// What rounding leaves, about.
constexpr double as_exact_as_possible = 1e-15;

class NewtonCgMap final : public Map {
 public:
  std::unique_ptr<Point> point(bool derivatives) const override;
  std::string not_finite_constant() const override { return gradient->not_finite_constant(); }
  std::shared_ptr<const Map> with_data(const std::vector<Array>& data) const override { return with(data); }
  std::shared_ptr<const NewtonCgMap> with(const std::vector<Array>& data) const {
    auto copy = std::make_shared<NewtonCgMap>(*this);
    copy->gradient = gradient->with(data);
    copy->curvature = curvature->with(data);
    return copy;
  }

  std::shared_ptr<const TracedMap> gradient;   // g, with f beside it
  std::shared_ptr<const TracedMap> curvature;  // S; its last parameter is d
  NewtonCgOptions how;
};

/// The exact step at a point: g and products with H there, d as exactly as it has been solved for, and the derivatives.
class NewtonCgPoint final : public Point, private Inverse, private InnerSolve {
 public:
  explicit NewtonCgPoint(const NewtonCgMap& map)
      : map_(map),
        gradient_(point_with_extras(*map.gradient)),
        tolerance_(map.how.derivative_tolerance),
        g_(map.size()),
        d_(map.size()),
        u_(map.size()),
        w_(map.size()),
        rhs_(map.size()),
        with_d_(map.parameters.size() + 1) {
    system_.product = [this](ConstVector v, Vector out) { product(v, out); };
    system_.symmetric = true;
    system_.precondition = map.how.preconditioner;
    for (const Input& p : map.parameters) more_.emplace_back(static_cast<std::size_t>(p.shape.size()));
    more_spans_.assign(more_.begin(), more_.end());
    more_spans_.emplace_back();  // that of d is not wanted
  }

  void bind(std::span<const Array> theta) override {
    gradient_->bind(theta);
    std::ranges::copy(theta, with_d_.begin());
    forget();
  }

  // What the loop needs: f and g at x; then d with H d = g to so much, going on from what was reached.
  void evaluate(ConstVector x) {
    gradient_->apply(x, {}, g_);
    forget();
    began_ = exact_ = false;
  }
  double value() const { return gradient_->extra(0)[0]; }
  ConstVector gradient() const { return g_; }
  ConstVector direction() const { return d_; }

  /// False where H was found not to be positive definite: d is then what was found before that, or along g.
  bool solve_direction(double to) {
    const double size = norm(g_);
    if (size == 0) {
      fill(d_, 0);
      exact_ = true;
      return is_convex_somewhere();
    }
    if (!began_) cg_.begin(g_, d_);
    began_ = true;
    const auto ended = cg_.run(system_, to * size, map_.how.max_products, false, d_);
    left_ = cg_.residual() / size;
    forget();
    if (ended != ConjugateGradients::Ended::not_positive && ended != ConjugateGradients::Ended::broken) return true;
    if (cg_.products() > 1) return false;
    // Along g, as far as it would be if the curvature had the other sign, with its length limited where the curvature is
    // almost zero.
    const double farthest = out_of_sight * (1 + norm(where()));
    const double wanted = size * size * size / std::fabs(cg_.curvature());
    const double scale = (wanted < farthest ? wanted : farthest) / size;
    std::ranges::transform(g_, d_.begin(), [&](double e) { return e * scale; });
    return false;
  }

  /// Makes a further iteration on what is left of g. Returns how far that led, or would where H is too flat to be told from
  /// singular.
  double go_on() {
    if (!began_ || cg_.residual() == 0) return 0;
    const double before = norm(d_), left = cg_.residual();
    w_.assign(d_.begin(), d_.end());
    const auto ended = cg_.run(system_, 0, 1, false, d_);
    forget();
    if (ended == ConjugateGradients::Ended::not_positive || ended == ConjugateGradients::Ended::broken)
      return cg_.curvature() > 0 ? left * left * left / cg_.curvature() : before;
    left_ = cg_.residual() / norm(g_);
    for (std::size_t i = 0; i < w_.size(); ++i) w_[i] -= d_[i];
    return norm(w_);
  }

  bool apply(ConstVector x, ConstVector, Vector y) override {
    evaluate(x);
    return control({}, y);
  }
  // The exact step. How exact d is matters only as much as the step is long.
  bool control(ConstVector, Vector y) override {
    const ConstVector x = gradient_->where();
    const double length = norm(d_);
    exact_ = exact_ || (began_ && left_ * length <= tolerance_ * std::max(length, norm(x)));
    if (!exact_) {
      linear(g_, d_, tolerance_);
      began_ = false;
      exact_ = true;
      forget();
    }
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i] - d_[i];
    return all_finite(y);
  }
  ConstVector where() const override { return gradient_->where(); }

  void jvp_x(ConstVector dx, Vector out) override {
    if (!has_curvature()) return fill(out, 0);
    curvature_->jvp_x(dx, w_);
    solve(w_, out);
  }
  void vjp_x(ConstVector c, Vector out) override {
    if (!has_curvature()) return fill(out, 0);
    solve(c, w_);
    curvature_->vjp_x(w_, out);
  }
  void jvp_theta(std::span<const Array> dtheta, Vector out) override {
    gradient_->jvp_theta(dtheta, w_);
    if (has_curvature()) {
      std::ranges::copy(dtheta, d_theta_.begin());
      curvature_->jvp_theta(d_theta_, out);
      for (std::size_t i = 0; i < w_.size(); ++i) w_[i] -= out[i];
    }
    for (double& e : w_) e = -e;
    solve(w_, out);
  }
  void vjp_theta(ConstVector c, std::span<const Vector> out) override {
    solve(c, w_);
    gradient_->vjp_theta(w_, out);
    const bool more = has_curvature();
    if (more) curvature_->vjp_theta(w_, more_spans_);
    for (std::size_t p = 0; p < out.size(); ++p)
      for (std::size_t i = 0; i < out[p].size(); ++i) out[p][i] = (more ? more_[p][i] : 0) - out[p][i];
  }

  Inverse* inverse() override { return this; }
  InnerSolve* inner_solve() override { return this; }
  Work work() const override { return {.products = products_}; }

  void solve(bool, Vector r, double residual) override {
    if (residual == 0) return solve(r, r);
    solved_ = false;
    std::ranges::copy(r, rhs_.begin());
    linear(rhs_, u_, residual);
    std::ranges::copy(u_, r.begin());
  }
  bool is_factored() const override { return false; }
  double residual() const override { return residual_; }
  double tolerance() const override { return tolerance_; }
  // A small residual says little about d where H is ill-conditioned. What a second solve makes of the residual is seen to be
  // small beside d, and added to it; the rest shrinks as it did. The residual is spread over the directions that matter, so
  // that the second solve may be rough.
  double solve_precisely() override {
    constexpr double trusted = 0.5, rough = 1e-3;
    tolerance_ = as_exact_as_possible;
    const Status first = linear(g_, d_, tolerance_).status;
    product(d_, w_);
    for (std::size_t i = 0; i < w_.size(); ++i) w_[i] = g_[i] - w_[i];
    const Status second = linear(w_, u_, rough).status;
    for (std::size_t i = 0; i < d_.size(); ++i) d_[i] += u_[i];
    began_ = false;
    exact_ = true;
    forget();
    const double length = norm(d_), correction = norm(u_);
    if (norm(w_) == 0) return length;
    return is_solution(first) && is_solution(second) && correction <= trusted * length
               ? length + correction / (1 - correction / length)
               : std::numeric_limits<double>::infinity();
  }

  /// Derivatives from now on: as exact as was asked for, but not more than a tenth of what the step's length is to be.
  void follow(double tolerance) {
    const double wanted =
        std::max(map_.how.derivative_tolerance, std::min(derivatives_over_solve * tolerance, roughest_derivative));
    if (wanted != tolerance_) forget();
    tolerance_ = wanted;
  }

  void product(ConstVector v, Vector out) {
    ++products_;
    if (map_.gradient->no_jvp.empty())
      gradient_->jvp_x(v, out);
    else
      gradient_->vjp_x(v, out);
  }

 private:
  // x or d is another: what was derived from it is not valid any more.
  void forget() {
    solved_ = false;
    curvature_ready_ = false;
  }

  LinearResult linear(ConstVector b, Vector x, double tolerance) {
    system_.tolerance = tolerance;
    system_.max_iterations = map_.how.max_products;
    return linear_.solve(system_, b, x);
  }

  // H⁻¹b. Of one cotangent several derivatives are asked for: the last system is kept.
  void solve(ConstVector b, Vector out) {
    if (!solved_ || !std::ranges::equal(b, rhs_)) {
      std::ranges::copy(b, rhs_.begin());
      residual_ = linear(rhs_, u_, tolerance_).residual;
      solved_ = true;
    }
    std::ranges::copy(u_, out.begin());
  }

  // S at x with this d; false where d is zero, and S with it.
  bool has_curvature() {
    if (!curvature_) {
      curvature_ = map_.curvature->point(true);
      for (const Input& p : map_.parameters) d_theta_.push_back(zeros(p.shape));
      d_theta_.push_back(zeros({static_cast<std::int64_t>(d_.size())}));
      with_d_.back() = Array::view(d_);
      at_.resize(d_.size());
    }
    if (!curvature_ready_) {
      curved_ = std::ranges::any_of(d_, [](double e) { return e != 0; });
      if (curved_) {
        curvature_->bind(with_d_);
        curvature_->apply(gradient_->where(), {}, at_);
      }
      curvature_ready_ = true;
    }
    return curved_;
  }

  // Where the gradient is zero it says nothing about H: a direction with a part of every eigenvector does.
  bool is_convex_somewhere() {
    constexpr int enough = 100;
    constexpr double seen_all = 1e-8;  // a looser solve may stop before it detects a negative eigenvalue
    fill_random(rhs_);
    solved_ = false;
    began_ = false;
    cg_.begin(rhs_, u_);
    const auto ended = cg_.run(system_, seen_all * norm(rhs_), enough, false, u_);
    return ended == ConjugateGradients::Ended::reached || ended == ConjugateGradients::Ended::at_the_limit;
  }

  const NewtonCgMap& map_;
  std::unique_ptr<ExtraPoint> gradient_;
  std::unique_ptr<Point> curvature_;
  double tolerance_, left_ = 1, residual_ = 0;
  bool began_ = false, exact_ = false;  // cg_ is at d_; d_ is as exact as the derivatives need it
  bool solved_ = false, curvature_ready_ = false, curved_ = false;
  int products_ = 0;
  LinearSystem system_;
  ConjugateGradients cg_;
  LinearSolver linear_;
  std::vector<double> g_, d_, u_, w_, rhs_, at_;  // H u = rhs when solved_
  std::vector<Array> with_d_, d_theta_;
  std::vector<std::vector<double>> more_;
  std::vector<Vector> more_spans_;
};

inline std::unique_ptr<Point> NewtonCgMap::point(bool) const { return std::make_unique<NewtonCgPoint>(*this); }

}  // namespace onestep::detail
