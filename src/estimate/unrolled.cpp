// Unrolling: the derivative of the iterates actually made, with their lengths, shifts and step sizes as they were.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "estimate/revolve.h"
#include "estimate/state.h"

namespace onestep::detail {
namespace {

class UnrolledDifferentiator final : public Differentiator {
 public:
  explicit UnrolledDifferentiator(const Unrolled& how) : how_(how) {}
  const char* name() const override { return "unrolled"; }

  void prepare(SolutionState& s) override {
    if (!s.method->not_unrolled.empty()) throw MisuseError(fmt::format("[Unrolled] {}", s.method->not_unrolled));
    snapshots_ = std::max<std::size_t>(1, how_.memory / std::max<std::size_t>(1, s.method->step->size() * sizeof(double)));
    s.run.trajectory.keep_first(how_.mode == Unrolled::forward ? 0 : snapshots_ * s.method->step->size());
  }

  void vjp(SolutionState& s, ConstVector c, std::span<const Vector> out) override {
    if (how_.mode == Unrolled::forward) return vjp_by_forward(s, c, out);
    outs_.resize(1);
    outs_[0].assign(out.begin(), out.end());
    vjps(s, {&c, 1}, outs_);
  }

  // The steps are made again once for all directions.
  void vjps(SolutionState& s, std::span<const ConstVector> cs, std::span<const std::vector<Vector>> outs) override {
    if (how_.mode == Unrolled::forward) return Differentiator::vjps(s, cs, outs);
    need_vjp(*s.method->step, "Unrolled");
    ws_.resize(cs.size());
    for (std::size_t d = 0; d < cs.size(); ++d) {
      ws_[d].assign(cs[d].begin(), cs[d].end());
      for (const Vector o : outs[d]) fill(o, 0);
    }
    go_back(s, outs);
    if (s.method->start) {
      Point& start = start_point(s);
      for (std::size_t d = 0; d < outs.size(); ++d) s.add_vjp_theta(start, ws_[d], outs[d]);
    } else if (goes_on(s)) {
      go_on_back(s, cs, outs);
    }
  }

  void jvp(SolutionState& s, std::span<const Array> v, Vector out) override {
    if (how_.mode == Unrolled::reverse) return jvp_by_reverse(s, v, out);
    need_jvp(*s.method->step, "Unrolled");
    if (!forward_) forward_ = s.method->step->forward();
    if (!forward_) {
      const std::vector<Array> direction(v.begin(), v.end());
      return jvps(s, {&direction, 1}, {&out, 1});
    }
    fill(out, 0);
    if (s.method->start) start_point(s).jvp_theta(v, out);
    w_.resize(out.size());
    next_.resize(out.size());
    forward_->bind(s.theta, v);
    const int last = s.run.trajectory.steps() - 1;
    bool converged = false;
    walk(s, [&](int i, ConstVector x) {
      forward_->step(x, s.run.trajectory.controls(i), out, next_, w_);
      if (i == last) converged = has_converged(s, out, w_);
      std::ranges::copy(w_, out.begin());
    });
    s.report.products += s.run.trajectory.steps();
    const Costs& costs = s.method->step->costs;
    s.report.flops += s.run.trajectory.steps() * (costs.apply + costs.jvp_x + costs.jvp_theta);
    if (!converged) go_on(s, v, out);
  }

  // The steps, and their factorisations, are made once for all directions.
  void jvps(SolutionState& s, std::span<const std::vector<Array>> vs, std::span<const Vector> outs) override {
    if (how_.mode == Unrolled::reverse) return Differentiator::jvps(s, vs, outs);
    need_jvp(*s.method->step, "Unrolled");
    w_.resize(s.size());
    next_.resize(s.size());
    for (std::size_t d = 0; d < vs.size(); ++d) {
      fill(outs[d], 0);
      if (s.method->start) start_point(s).jvp_theta(vs[d], outs[d]);
    }
    Point& p = s.scratch_point();
    std::vector<bool> converged(vs.size(), false);
    std::vector<double> before;
    const int last = s.run.trajectory.steps() - 1;
    walk(s, [&](int i, ConstVector x) {
      p.apply(x, s.run.trajectory.controls(i), next_);
      for (std::size_t d = 0; d < vs.size(); ++d) {
        if (i == last) before.assign(outs[d].begin(), outs[d].end());
        p.jvp_x(outs[d], w_);
        p.jvp_theta(vs[d], outs[d]);
        add(outs[d], w_);
        if (i == last) converged[d] = has_converged(s, before, outs[d]);
      }
    });
    s.report.products += 2 * s.run.trajectory.steps() * static_cast<int>(vs.size());
    const Costs& costs = s.method->step->costs;
    s.report.flops +=
        s.run.trajectory.steps() * (costs.apply + static_cast<double>(vs.size()) * (costs.jvp_x + costs.jvp_theta));
    for (std::size_t d = 0; d < vs.size(); ++d)
      if (!converged[d]) go_on(s, vs[d], outs[d]);
  }

 private:
  // A solve that began near its solution made too few steps for its derivative to have converged. Further ones are made at
  // x_k until what another would add is within the solver's tolerance.
  bool goes_on(const SolutionState& s) const {
    return is_solution(s.run.status) && !s.method->superlinear && !s.allow_unconverged && !s.method->start;
  }
  // Over the last step; a superlinear method squares what is left.
  static bool has_converged(const SolutionState& s, ConstVector before, ConstVector after) {
    const double allowed = s.method->superlinear ? std::sqrt(tolerance(s)) : tolerance(s);
    double change = 0;
    for (std::size_t i = 0; i < after.size(); ++i) change = std::hypot(change, after[i] - before[i]);
    return change <= allowed * norm(after);
  }
  static double tolerance(const SolutionState& s) {
    return std::max(s.options.tolerance, 4 * std::numeric_limits<double>::epsilon());
  }

  // All steps that were made, backwards.
  void go_back(SolutionState& s, std::span<const std::vector<Vector>> outs) {
    next_.resize(s.size());
    Trajectory& way = s.run.trajectory;
    if (way.kept() == way.steps()) {
      for (int i = way.steps() - 1; i >= 0; --i) back(s, i, way.state(i), outs);
    } else {
      const auto most = static_cast<int>(std::min<std::size_t>(snapshots_, static_cast<std::size_t>(way.steps())));
      constexpr std::int64_t endless = 1'000'000'000;
      if (const std::int64_t again = least_recomputation(way.steps(), most); again > endless)
        throw MisuseError(fmt::format(
            "[Unrolled] memory = {}: with {} of {} states kept, {} steps would have to be made again; allow more "
            "memory, or take Implicit{{}}",
            how_.memory, most, way.steps(), again));
      way.release();
      std::ranges::copy(s.run.start, way.state(0).begin());
      reverse(s, 0, way.steps(), most, 0, outs);
    }
  }

  // What is left of a cotangent behind all steps tells whether there were too few. Where it is small, the further steps are
  // those before them, as if the start had been x_k. Else, after few steps, or where x_k depends on a start that was far
  // away, they are those behind them, and the steps that were made follow in turn.
  void go_on_back(SolutionState& s, std::span<const ConstVector> cs, std::span<const std::vector<Vector>> outs) {
    const double small = 10 * tolerance(s);
    bool again = false;
    for (std::size_t d = 0; d < outs.size(); ++d) {
      const double size = norm(cs[d]);
      const bool is_large = norm(ws_[d]) > small * size;
      if (is_large) {
        ws_[d].assign(cs[d].begin(), cs[d].end());
        for (const Vector o : outs[d]) fill(o, 0);
      }
      go_further_back(s, size, ws_[d], outs[d]);
      if (!is_large) fill(ws_[d], 0);
      again = again || is_large;
    }
    if (again) go_back(s, outs);
  }
  void go_further_back(SolutionState& s, double size, std::vector<double>& w, const std::vector<Vector>& out) {
    constexpr double beyond_hope = 1e6;
    int count = 0;
    for (; norm(w) > tolerance(s) * size; ++count) {
      if (count >= s.options.max_iterations || norm(w) > beyond_hope * size) return give_up(s, count);
      Point& p = s.here();
      s.add_vjp_theta(p, w, out);
      p.vjp_x(w, next_);
      w.swap(next_);
    }
    note_further(s, count);
  }
  void go_on(SolutionState& s, std::span<const Array> v, Vector dx) {
    constexpr double beyond_hope = 1e6;
    if (!goes_on(s)) return;
    int count = 0;
    double first = norm(dx);
    w_.resize(dx.size());
    next_.resize(dx.size());
    for (bool converged = false; !converged; ++count) {
      Point& p = s.here();
      p.jvp_x(dx, w_);
      p.jvp_theta(v, next_);
      add(w_, next_);
      first = std::max(first, count == 0 ? norm(w_) : 0);
      if (count >= s.options.max_iterations || norm(w_) > beyond_hope * first) return give_up(s, count);
      converged = has_converged(s, dx, w_);
      std::ranges::copy(w_, dx.begin());
    }
    note_further(s, count);
  }
  static void note_further(SolutionState& s, int count) {
    s.report.further += count;
    s.report.products += 2 * count;
    s.report.flops += count * (s.method->step->costs.vjp_x + s.method->step->costs.vjp_theta);
  }
  static void give_up(SolutionState& s, int count) {
    note_further(s, count);
    if (s.allow_unconverged) return;
    const std::string reason = fmt::format("the derivative did not converge within {} further steps at the solution", count);
    throw NoDerivativeError(
        fmt::format("[Unrolled] {}: the step does not contract there; Implicit{{}} needs no contraction, or "
                    "call even_if_unconverged() first",
                    reason),
        reason, Status::diverged);
  }

  // Calls step(i, x_i) for all steps from the first; it leaves x_{i+1} in next_.
  template <class Step> void walk(SolutionState& s, const Step& step) {
    Trajectory& way = s.run.trajectory;
    state_.assign(s.run.start.begin(), s.run.start.end());
    for (int i = 0; i < way.steps(); ++i) {
      step(i, way.keeps(i) ? ConstVector(way.state(i)) : ConstVector(state_));
      state_.swap(next_);
    }
    s.report.steps += way.steps();
  }

  // One step backwards: θ̄ += Bᵢᵀ w, w ← Aᵢᵀ w.
  void back(SolutionState& s, int step, ConstVector x, std::span<const std::vector<Vector>> outs) {
    Point& p = s.scratch_point();
    p.apply(x, s.run.trajectory.controls(step), next_);
    for (std::size_t d = 0; d < outs.size(); ++d) {
      s.add_vjp_theta(p, ws_[d], outs[d]);
      p.vjp_x(ws_[d], next_);
      ws_[d].swap(next_);
    }
    ++s.report.steps;
    s.report.products += 2 * static_cast<int>(outs.size());
    const Costs& costs = s.method->step->costs;
    s.report.flops += costs.apply + static_cast<double>(outs.size()) * (costs.vjp_theta + costs.vjp_x);
  }

  // Steps [first, last) backwards; the state of `first` is in `slot`, slots behind it are free.
  void reverse(SolutionState& s, int first, int last, int snapshots, int slot, std::span<const std::vector<Vector>> outs) {
    Trajectory& way = s.run.trajectory;
    while (last - first > 1) {
      const int middle = snapshots > 1 ? first + static_cast<int>(best_advance(last - first, snapshots)) : last - 1;
      state_.assign(way.state(slot).begin(), way.state(slot).end());
      for (int i = first; i < middle; ++i) {
        s.scratch_point().apply(state_, way.controls(i), next_);
        state_.swap(next_);
        ++s.report.steps;
        s.report.flops += s.method->step->costs.apply;
      }
      if (snapshots > 1) {
        std::ranges::copy(state_, way.state(slot + 1).begin());
        reverse(s, middle, last, snapshots - 1, slot + 1, outs);
      } else {
        back(s, middle, state_, outs);
      }
      last = middle;
    }
    back(s, first, way.state(slot), outs);
  }

  // The other direction by as many derivatives as there are entries on that side: for steps that have only one of them.
  void vjp_by_forward(SolutionState& s, ConstVector c, std::span<const Vector> out) {
    for (const Vector o : out) fill(o, 0);
    const std::vector<Input>& parameters = s.method->step->parameters;
    std::vector<Array> v;
    for (const Input& p : parameters) v.push_back(zeros(p.shape));
    std::vector<double> dx(s.size());
    for (std::size_t p = 0; p < out.size(); ++p) {
      for (std::size_t j = 0; j < out[p].size(); ++j) {
        std::vector<double> unit(out[p].size());
        unit[j] = 1;
        v[p] = Array(parameters[p].shape, std::move(unit));
        jvp(s, v, dx);
        out[p][j] = dot(c, dx);
      }
      v[p] = zeros(parameters[p].shape);
    }
  }
  void jvp_by_reverse(SolutionState& s, std::span<const Array> v, Vector out) {
    std::vector<std::vector<double>> memory, tangents;
    for (const Array& a : v) {
      memory.emplace_back(static_cast<std::size_t>(a.size()));
      tangents.emplace_back(static_cast<std::size_t>(a.size()));
      flatten({&a, 1}, tangents.back());
    }
    const std::vector<Vector> spans(memory.begin(), memory.end());
    std::vector<double> c(s.size());
    for (std::size_t i = 0; i < c.size(); ++i) {
      c[i] = 1;
      vjp(s, c, spans);
      c[i] = 0;
      out[i] = 0;
      for (std::size_t p = 0; p < v.size(); ++p) out[i] += dot(memory[p], tangents[p]);
    }
  }

  Point& start_point(SolutionState& s) {
    if (!start_) start_ = s.method->start->point(true);
    next_.resize(s.size());
    start_->bind(s.theta);
    start_->apply(s.run.start, {}, next_);
    return *start_;
  }
  Unrolled how_;
  std::size_t snapshots_ = 1;
  std::unique_ptr<Point> start_;
  std::unique_ptr<ForwardPoint> forward_;
  std::vector<double> w_, next_, state_;
  std::vector<std::vector<double>> ws_;  // a cotangent for each direction
  std::vector<std::vector<Vector>> outs_;
};

}  // namespace

std::unique_ptr<Differentiator> make(const Unrolled& how) { return std::make_unique<UnrolledDifferentiator>(how); }

EstimatorFacts facts_of(const Unrolled& how) {
  EstimatorFacts facts{.goes_over_steps = true};
  if (how.mode != Unrolled::automatic) facts.by_rows = how.mode == Unrolled::reverse;
  return facts;
}
std::string text_of(const Unrolled& how) { return fmt::format("Unrolled {}", static_cast<int>(how.mode)); }

}  // namespace onestep::detail
