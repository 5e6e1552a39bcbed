// One step and K steps: the last terms of the recursion J ← A J + B, the earlier ones dropped.
#include <fmt/format.h>

#include <algorithm>

#include "estimate/state.h"

namespace onestep::detail {
namespace {

/// J = B(x_{k-1}), with the factorisation the last step made.
class OneStepDifferentiator final : public Differentiator {
 public:
  const char* name() const override { return "one step"; }
  void vjp(SolutionState& s, ConstVector c, std::span<const Vector> out) override {
    need_vjp(*s.method->step, "OneStep");
    s.last().vjp_theta(c, out);
    ++s.report.products;
    s.report.flops += s.method->step->costs.vjp_theta;
    note_residual(s.report, s.last().residual(), s.last().solved_to());
  }
  void jvp(SolutionState& s, std::span<const Array> v, Vector out) override {
    need_jvp(*s.method->step, "OneStep");
    s.last().jvp_theta(v, out);
    ++s.report.products;
    s.report.flops += s.method->step->costs.jvp_theta;
    note_residual(s.report, s.last().residual(), s.last().solved_to());
  }
};

/// The last K steps, undamped; all but the last are made again at the states that were kept.
class KStepDifferentiator final : public Differentiator {
 public:
  explicit KStepDifferentiator(int K) : K_(K) {
    if (K < 1) throw MisuseError(fmt::format("[KStep] K = {}: at least one step is differentiated", K));
  }
  const char* name() const override { return "K steps"; }
  void prepare(SolutionState& s) override { s.run.trajectory.keep_last(static_cast<std::size_t>(K_)); }

  // θ̄ = Σ Bᵢᵀ w with w ← Aᵢᵀ w from the last step backwards.
  void vjp(SolutionState& s, ConstVector c, std::span<const Vector> out) override {
    need_vjp(*s.method->step, "KStep");
    w_.assign(c.begin(), c.end());
    next_.resize(w_.size());
    for (const Vector o : out) fill(o, 0);
    const Costs& costs = s.method->step->costs;
    const int last = s.run.trajectory.steps() - 1, first = last + 1 - s.run.trajectory.kept();
    for (int i = last; i >= first; --i) {
      Point* const p = at(s, i, last);
      if (p == nullptr) break;
      s.add_vjp_theta(*p, w_, out);
      note_residual(s.report, p->residual(), p->solved_to());
      ++s.report.products;
      s.report.flops += costs.vjp_theta;
      if (i == first) break;
      p->vjp_x(w_, next_);
      w_.swap(next_);
      ++s.report.products;
      s.report.flops += costs.vjp_x;
    }
  }

  // ẋ ← Aᵢ ẋ + Bᵢ v, from zero at the first of them.
  void jvp(SolutionState& s, std::span<const Array> v, Vector out) override {
    need_jvp(*s.method->step, "KStep");
    w_.resize(out.size());
    const Costs& costs = s.method->step->costs;
    const int last = s.run.trajectory.steps() - 1, first = last + 1 - s.run.trajectory.kept();
    bool started = false;
    for (int i = first; i <= last; ++i) {
      Point* const p = at(s, i, last);
      if (p == nullptr) {
        started = false;
        continue;
      }
      if (started) p->jvp_x(out, w_);
      p->jvp_theta(v, out);
      note_residual(s.report, p->residual(), p->solved_to());
      if (started) add(out, w_);
      s.report.products += started ? 2 : 1;
      s.report.flops += costs.jvp_theta + (started ? costs.jvp_x : 0);
      started = true;
    }
  }

 private:
  // None where the undamped step cannot be made: the sum ends behind it.
  Point* at(SolutionState& s, int step, int last) {
    if (step == last) return &s.last();
    Point& p = s.walker();
    next_.resize(s.size());
    ++s.report.steps;
    s.report.flops += s.method->step->costs.apply;
    return p.apply(s.run.trajectory.state(step), s.run.controls, next_) && all_finite(next_) ? &p : nullptr;
  }

  int K_;
  std::vector<double> w_, next_;
};

}  // namespace

std::unique_ptr<Differentiator> make(const OneStep&) { return std::make_unique<OneStepDifferentiator>(); }
std::unique_ptr<Differentiator> make(const KStep& k) { return std::make_unique<KStepDifferentiator>(k.K); }

}  // namespace onestep::detail
