// Auto: one step, then Neumann terms at x_k one by one until the bound meets the tolerance, until they would cost more than
// implicit differentiation; then that.
#include <fmt/format.h>

#include <cmath>

#include "estimate/certify.h"
#include "solve/linear.h"

namespace onestep::detail {
namespace {

class AutoDifferentiator final : public Differentiator {
 public:
  explicit AutoDifferentiator(const Auto& how)
      : tolerance_(how.tolerance), one_step_(make(OneStep{})), implicit_(make(Implicit{})) {
    if (!(tolerance_ > 0)) throw MisuseError(fmt::format("[Auto] tolerance = {}: it must be positive", tolerance_));
  }
  const char* name() const override { return "auto"; }
  void prepare(SolutionState& s) override { implicit_->prepare(s); }
  void forget() override {
    implicit_->forget();
    norms_.reset();
  }

  void vjp(SolutionState& s, ConstVector c, std::span<const Vector> out) override {
    const Map& map = *s.method->step;
    need_vjp(map, "Auto");
    if (s.method->superlinear) {
      one_step_->vjp(s, c, out);
      s.report.method = one_step_->name();
      // What is left out is BᵀAᵀc and less: nothing where the method is as fast as it should be.
      next_.resize(c.size());
      s.last().vjp_x(c, next_);
      ++s.report.products;
      const double left_out = norm(next_);
      if (left_out == 0) return;
      rest_ = memory_for(map.parameters);
      const std::vector<Vector> spans(rest_.begin(), rest_.end());
      s.last().vjp_theta(next_, spans);
      ++s.report.products;
      if (left_out <= superlinear_rate * norm(c) && size_of(spans) <= tolerance_ * size_of(out)) return;
      return implicit_vjp(s, c, out);
    }
    Point& p = s.here();
    const Norms& norms = measured(s, p);
    if (!std::isfinite(norms.inverse)) return implicit_vjp(s, c, out);
    // Σ Bᵀ(Aᵀ)ʲ c; what is left after it is at most ‖B‖ ‖(I - A)⁻¹‖ ‖(Aᵀ)ʲ⁺¹c‖. B is applied once, to the sum.
    std::vector<double> w(c.begin(), c.end()), u = w, next(w.size());
    double cost = 0;
    for (int terms = 0;; s.report.terms = ++terms) {
      if (cost + map.costs.vjp_x + map.costs.vjp_theta > implicit_cost(s)) {
        s.report.flops = cost;
        return implicit_vjp(s, c, out);
      }
      if (terms > 0) add(u, w);
      p.vjp_x(w, next);
      w.swap(next);
      ++s.report.products;
      cost += map.costs.vjp_x;
      const double rest = norms.norm_B * norms.inverse * norm(w);
      // Bᵀu is needed to know what the tolerance is relative to: only when it may be met.
      if (rest > tolerance_ * norms.norm_B * norm(u)) continue;
      p.vjp_theta(u, out);
      ++s.report.products;
      cost += map.costs.vjp_theta;
      if (rest > tolerance_ * size_of(out)) continue;
      s.report.method = terms == 0 ? "one step" : "Neumann terms";
      s.report.flops = cost;
      return;
    }
  }

  void jvp(SolutionState& s, std::span<const Array> v, Vector out) override {
    const Map& map = *s.method->step;
    need_jvp(map, "Auto");
    if (s.method->superlinear) {
      one_step_->jvp(s, v, out);
      s.report.method = one_step_->name();
      next_.resize(out.size());
      s.last().jvp_x(out, next_);
      ++s.report.products;
      if (norm(next_) <= std::min(superlinear_rate, tolerance_) * norm(out)) return;
      return implicit_jvp(s, v, out);
    }
    Point& p = s.here();
    const Norms& norms = measured(s, p);
    std::vector<double> w(out.size()), next(out.size());
    p.jvp_theta(v, w);
    ++s.report.products;
    std::ranges::copy(w, out.begin());
    double cost = map.costs.jvp_theta;
    for (int terms = 0;; s.report.terms = ++terms) {
      if (!std::isfinite(norms.inverse) || cost + map.costs.jvp_x > implicit_cost(s)) {
        s.report.flops = cost;
        return implicit_jvp(s, v, out);
      }
      p.jvp_x(w, next);
      w.swap(next);
      ++s.report.products;
      cost += map.costs.jvp_x;
      if (norms.inverse * norm(w) <= tolerance_ * norm(out)) {
        s.report.method = terms == 0 ? "one step" : "Neumann terms";
        s.report.flops = cost;
        return;
      }
      add(out, w);
    }
  }

 private:
  const Norms& measured(SolutionState& s, Point& p) {
    if (!norms_) norms_ = measure_norms(*s.method, p);
    return *norms_;
  }
  // n products and a factorisation, or as many products as Krylov's method takes in the worst case that is not yet hopeless.
  static double implicit_cost(const SolutionState& s) {
    const Map& map = s.method->equation ? *s.method->equation : *s.method->step;
    const auto n = static_cast<double>(map.size());
    const double product = map.costs.vjp_x;
    return map.costs.vjp_theta + (map.size() <= dense_up_to ? n * product + n * n * n / 3 : krylov_restart * product);
  }
  void implicit_vjp(SolutionState& s, ConstVector c, std::span<const Vector> out) {
    implicit_->vjp(s, c, out);
    s.report.method = "implicit";
  }
  void implicit_jvp(SolutionState& s, std::span<const Array> v, Vector out) {
    implicit_->jvp(s, v, out);
    s.report.method = "implicit";
  }
  static double size_of(std::span<const Vector> parts) {
    double sum = 0;
    for (const Vector p : parts) sum += dot(p, p);
    return std::sqrt(sum);
  }

  double tolerance_;
  std::unique_ptr<Differentiator> one_step_, implicit_;
  std::optional<Norms> norms_;
  std::vector<double> next_;
  std::vector<std::vector<double>> rest_;
};

}  // namespace

std::unique_ptr<Differentiator> make(const Auto& how) { return std::make_unique<AutoDifferentiator>(how); }

}  // namespace onestep::detail
