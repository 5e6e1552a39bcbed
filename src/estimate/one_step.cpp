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
    note_inner_solve(s.report, s.last());
    note_degeneracy(s);
  }
  void jvp(SolutionState& s, std::span<const Array> v, Vector out) override {
    need_jvp(*s.method->step, "OneStep");
    s.last().jvp_theta(v, out);
    ++s.report.products;
    s.report.flops += s.method->step->costs.jvp_theta;
    note_inner_solve(s.report, s.last());
    note_degeneracy(s);
  }
};

/// The last K steps, undamped; all but the last are made again at the states that were kept. Where the solve made fewer,
/// from a warm start, those that are missing are made behind x_k.
class KStepDifferentiator final : public Differentiator {
 public:
  explicit KStepDifferentiator(int K) : K_(K) {
    if (K < 1) throw MisuseError(fmt::format("[KStep] K = {}: at least one step is differentiated", K));
  }
  const char* name() const override { return "K steps"; }
  const char* advice() const override { return "more steps (KStep::K) leave less out, Implicit{} nothing"; }
  void prepare(SolutionState& s) override { s.run.trajectory.keep_last(static_cast<std::size_t>(K_)); }
  void forget() override { further_ = -1; }

  // θ̄ = Σ Bᵢᵀ w with w ← Aᵢᵀ w from the last step backwards.
  void vjp(SolutionState& s, ConstVector c, std::span<const Vector> out) override {
    need_vjp(*s.method->step, "KStep");
    w_.assign(c.begin(), c.end());
    next_.resize(w_.size());
    for (const Vector o : out) fill(o, 0);
    const Costs& costs = s.method->step->costs;
    const int count = steps(s);
    for (int i = count - 1; i >= 0; --i) {
      Point* const p = at(s, i);
      if (p == nullptr) break;
      s.add_vjp_theta(*p, w_, out);
      note_inner_solve(s.report, *p);
      ++s.report.products;
      s.report.flops += costs.vjp_theta;
      if (i == 0) break;
      p->vjp_x(w_, next_);
      w_.swap(next_);
      ++s.report.products;
      s.report.flops += costs.vjp_x;
    }
    if (norm(w_) > norm(c)) require_contraction(s);
    note_degeneracy(s);
  }

  // ẋ ← Aᵢ ẋ + Bᵢ v, from zero at the first of them.
  void jvp(SolutionState& s, std::span<const Array> v, Vector out) override {
    need_jvp(*s.method->step, "KStep");
    w_.resize(out.size());
    const Costs& costs = s.method->step->costs;
    const int count = steps(s);
    bool started = false, grew = false;
    for (int i = 0; i < count; ++i) {
      Point* const p = at(s, i);
      if (p == nullptr) {
        started = false;
        continue;
      }
      if (started) {
        p->jvp_x(out, w_);
        grew = norm(w_) > norm(out);
      }
      p->jvp_theta(v, out);
      note_inner_solve(s.report, *p);
      if (started) add(out, w_);
      s.report.products += started ? 2 : 1;
      s.report.flops += costs.jvp_theta + (started ? costs.jvp_x : 0);
      started = true;
    }
    if (grew) require_contraction(s);
    note_degeneracy(s);
  }

 private:
  // The steps to differentiate: those that were kept, and behind them the missing ones, which are made here.
  int steps(SolutionState& s) {
    const int kept = s.run.trajectory.kept();
    if (further_ < 0) {
      int made = 0;
      beyond_.clear();
      // Of a superlinear method more than a few add nothing.
      constexpr int of_superlinear = 3;
      const int wanted = s.method->superlinear ? std::min(K_, std::max(kept, of_superlinear)) : K_;
      const int missing = is_solution(s.run.status) ? wanted - kept : 0;
      if (missing > s.options.max_iterations)
        throw MisuseError(
            fmt::format("[KStep] K = {}: {} steps beyond those of the solve would be made, SolveOptions::max_iterations is "
                        "{}; fewer steps leave out little, Implicit{{}} nothing",
                        K_, missing, s.options.max_iterations));
      if (missing > 0) beyond_.insert(beyond_.end(), s.run.x.begin(), s.run.x.end());
      for (; made < missing; ++made) {
        const std::size_t n = s.size(), begin = static_cast<std::size_t>(made) * n;
        beyond_.resize(begin + 2 * n);
        const Vector all(beyond_);
        if (!s.scratch_point().apply(all.subspan(begin, n), s.run.controls, all.subspan(begin + n, n)) ||
            !all_finite(all.subspan(begin + n, n)))
          break;
      }
      further_ = made;
    }
    s.report.further += further_;
    return kept + further_;
  }

  // The i-th of these steps; null where the undamped step cannot be made, and the sum ends there.
  Point* at(SolutionState& s, int i) {
    const int kept = s.run.trajectory.kept(), first = s.run.trajectory.steps() - kept;
    if (i == kept - 1) return &s.last();
    Point& p = s.scratch_point();
    next_.resize(s.size());
    ++s.report.steps;
    s.report.flops += s.method->step->costs.apply;
    const ConstVector x = i < kept ? ConstVector(s.run.trajectory.state(first + i))
                                   : ConstVector(beyond_).subspan(static_cast<std::size_t>(i - kept) * s.size(), s.size());
    return p.apply(x, s.run.controls, next_) && all_finite(next_) ? &p : nullptr;
  }

  // Growth over K steps may be a transient, as with momentum; lasting growth makes the sum meaningless.
  static void require_contraction(SolutionState& s) {
    if (s.method->superlinear || s.allow_unconverged || !is_solution(s.run.status)) return;
    const double rate = growth(s);
    if (rate < 1) return;
    const std::string reason = fmt::format("the last step multiplies differences by {:.4g}", rate);
    throw NoDerivativeError(fmt::format("[KStep] {}, so that derivatives of steps do not converge to that of the "
                                        "solution; Implicit{{}} needs no contraction, or call even_if_unconverged() first",
                                        reason),
                            reason, Status::diverged);
  }

  int K_;
  int further_ = -1;  // steps made behind x_k; not yet known: -1
  std::vector<double> w_, next_, beyond_;
};

}  // namespace

std::unique_ptr<Differentiator> make(const OneStep&) { return std::make_unique<OneStepDifferentiator>(); }
std::unique_ptr<Differentiator> make(const KStep& k) { return std::make_unique<KStepDifferentiator>(k.K); }

EstimatorFacts facts_of(const OneStep&) { return {.last_steps = 1}; }
EstimatorFacts facts_of(const KStep& how) { return {.last_steps = how.K, .goes_over_steps = how.K > 1}; }

std::string text_of(const OneStep&) { return "OneStep"; }
std::string text_of(const KStep& how) { return fmt::format("KStep {}", how.K); }

}  // namespace onestep::detail
