// Auto: one step where that is accurate enough, else the linear system by GMRES, as accurately as the tolerance asks for:
// each product costs what a further step would, and no norm has to be measured first. Reports when it missed the tolerance.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "estimate/certify.h"
#include "estimate/units.h"
#include "linear/krylov.h"
#include "linear/random.h"

namespace onestep::detail {
namespace {

constexpr double inverse_safety = 4;  // factor on the GMRES estimate of ‖(I - A)⁻¹‖, which is too small
constexpr double sought = 0.1;        // the estimated error that a solve aims at, as a fraction of the tolerance
constexpr double unsolved = 1e-6;     // a relative residual above this is that of a singular system
constexpr double share_of_b = 0.25;   // least amplification of the residual by B, relative to ‖B‖
constexpr int most_products = 1000;
// Products with which it is seen what becomes of a residual: where entries of the state have different units, and where A
// was seen to enlarge a vector, as a contraction does that is not normal.
constexpr int few = 4, some = 16;

class AutoDifferentiator final : public Differentiator {
 public:
  explicit AutoDifferentiator(const Auto& how)
      : tolerance_(how.tolerance), one_step_(make(OneStep{})), implicit_(make_aiming(tolerance_)) {
    if (!(tolerance_ > 0 && tolerance_ < 1))
      throw MisuseError(fmt::format("[Auto] tolerance = {}: it must be positive and below 1", tolerance_));
  }
  const char* name() const override { return "auto"; }
  const char* advice() const override { return "a smaller Auto::tolerance leaves less out"; }
  bool needs_contraction() const override { return false; }
  void prepare(SolutionState& s) override { implicit_->prepare(s); }
  FactorOf factor_of() const override { return implicit_->factor_of(); }
  void solve_by_factor(bool transposed, Vector r) override { implicit_->solve_by_factor(transposed, r); }
  void forget() override {
    implicit_->forget();
    rounding_.reset();
    is_measured_ = true;
    probed_ = {};
  }

  void vjp(SolutionState& s, ConstVector c, std::span<const Vector> out) override {
    const Map& map = *s.method->step;
    need_vjp(map, "Auto");
    if (s.method->superlinear) return superlinear_vjp(s, c, out);
    Point& p = s.here();
    const auto product = [&](ConstVector v, Vector to) {
      p.vjp_x(v, to);
      for (std::size_t i = 0; i < v.size(); ++i) to[i] = v[i] - to[i];
    };
    const auto apply_b = [&](ConstVector v, std::span<const Vector> to) {
      p.vjp_theta(v, to);
      ++s.report.products;
      s.report.flops += map.costs.vjp_theta;
    };
    const DerivativeReport before = s.report;
    solve(
        s, true, product, map.costs.vjp_x, c, u_,
        [&] {
          apply_b(u_, out);
          const double size = norm(out);
          // B may enlarge the residual more than u, where it depends on a part of the state only.
          rest_ = memory_for(map.parameters);
          const std::vector<Vector> spans(rest_.begin(), rest_.end());
          apply_b(r_, spans);
          const double of_u = norm(u_) > 0 ? size / norm(u_) : 0;
          return std::pair{size, std::max(norm(spans), std::max(of_u, share_of_b * norm_b(s)) * norm(r_))};
        },
        [&] { return norm_b(s) == 0 ? 0 : std::max(norm_b(s), usual_b(s)) * norm(u_); });
    if (take_back_failed_solve(s, before)) return implicit_->vjp(s, c, out), took_implicit(s);
    s.last_adjoint = {{c.begin(), c.end()}, u_};
  }

  void jvp(SolutionState& s, std::span<const Array> v, Vector out) override {
    const Map& map = *s.method->step;
    need_jvp(map, "Auto");
    if (s.method->superlinear) return superlinear_jvp(s, v, out);
    Point& p = s.here();
    std::vector<double> b(out.size());
    p.jvp_theta(v, b);
    ++s.report.products;
    s.report.flops += map.costs.jvp_theta;
    find_units(s, b);
    const auto product = [&](ConstVector w, Vector to) {  // of the state in its own units
      units_.multiply(w, in_units_);
      p.jvp_x(in_units_, to);
      units_.divide(to, to);
      for (std::size_t i = 0; i < w.size(); ++i) to[i] = w[i] - to[i];
    };
    if (norm(b) == 0 && !is_unique(s, product)) return fill(out, 0);
    const DerivativeReport before = s.report;
    units_.divide(b, b);
    solve(
        s, false, product, map.costs.jvp_x, b, u_,
        [&] {
          units_.multiply(u_, out);
          return std::pair{norm(out), norm(r_)};
        },
        [&] { return norm(b) == 0 ? 0 : std::max(norm(b), usual_b(s) * norm(flat_tangent(v))); });
    units_.multiply(u_, out);
    if (take_back_failed_solve(s, before)) return implicit_->jvp(s, v, out), took_implicit(s);
  }

  // Many directions share one factorisation.
  void vjps(SolutionState& s, std::span<const ConstVector> cs, std::span<const std::vector<Vector>> outs) override {
    if (!shares(s, cs.size())) return Differentiator::vjps(s, cs, outs);
    implicit_->vjps(s, cs, outs);
    took_implicit(s);
  }
  void jvps(SolutionState& s, std::span<const std::vector<Array>> vs, std::span<const Vector> outs) override {
    if (!shares(s, vs.size())) return Differentiator::jvps(s, vs, outs);
    implicit_->jvps(s, vs, outs);
    took_implicit(s);
  }

 private:
  static bool shares(const SolutionState& s, std::size_t directions) {
    return !s.method->superlinear && s.size() <= dense_up_to && 8 * directions >= s.size();
  }
  // Where GMRES failed, as it does where entries of the state have very different units, a small matrix is factored, and
  // what the failed solve wrote into the report is taken back, but for the costs.
  static bool take_back_failed_solve(SolutionState& s, const DerivativeReport& before) {
    if (s.report.status != Status::singular || before.status == Status::singular || s.size() > dense_up_to) return false;
    s.report.status = before.status;
    s.report.residual = before.residual;
    s.report.met_tolerance = before.met_tolerance;
    return true;
  }
  void took_implicit(SolutionState& s) const {
    s.report.method = "implicit";
    s.report.met_tolerance = s.report.met_tolerance && s.report.residual <= tolerance_;
  }

  // M u = b from u = b, that is, from one step. `judge` returns the norm of the derivative from u_ and the error that the
  // residual r_ causes in it, up to ‖(I - A)⁻¹‖; `rounding_scale` is what rounding is relative to.
  template <class Product, class Judge, class Scale>
  void solve(SolutionState& s, bool transposed, const Product& M, double cost, ConstVector b, std::vector<double>& u,
             const Judge& judge, const Scale& rounding_scale) {
    LinearSystem system;
    bool enlarges = false;
    system.product = [&](ConstVector v, Vector to) {
      M(v, to);
      ++s.report.products;
      s.report.flops += cost;
      double of_v = 0, of_image = 0;  // squares
      for (std::size_t i = 0; i < v.size(); ++i) of_v += v[i] * v[i], of_image += (v[i] - to[i]) * (v[i] - to[i]);
      enlarges = enlarges || of_image > of_v;
    };
    const std::size_t n = b.size();
    const int before = s.report.products;  // of other directions
    const auto spent = [&] { return s.report.products - before; };
    const double size = norm(b), rounding = 1e-15 * size;
    u.assign(b.begin(), b.end());
    r_.resize(n);
    z_.resize(n);
    const auto update_residual = [&] {
      system.product(u, r_);
      for (std::size_t i = 0; i < n; ++i) r_[i] = b[i] - r_[i];
      return norm(r_);
    };
    double inverse = inverse_from_solve(s, system, transposed), last = update_residual(),
           target = sought * tolerance_ * size;
    const bool starts_near = last <= target;
    s.report.method = starts_near ? "one step" : "implicit";
    for (bool first = true;; first = false) {
      if (!(first && starts_near) && last > rounding) {
        gmres_.begin(r_);
        s.report.terms += gmres_.run(system, target, most_products - spent());
        gmres_.solution(system, z_);
        inverse = std::max(inverse, gmres_.inverse());
        if (!are_in_units(transposed)) s.note_inverse(inverse);
        add(u, z_);
        s.report.method = "implicit";
      }
      const double left = first && starts_near ? last : update_residual();
      const auto [derivative, rest] = judge();
      inverse = std::max(inverse, size > 0 ? norm(u) / size : 0);
      const double rounding_error = 4 * std::numeric_limits<double>::epsilon() * rounding_scale();
      const double error = inverse_safety * inverse * (rest + rounding_error);
      const bool is_unsure = are_in_units(transposed) || enlarges;
      if (is_unsure && error <= tolerance_ * derivative && left > rounding && spent() < most_products) {
        const double seen = growth_of_residual(s, system, left, enlarges ? some : few);
        if (inverse_safety * seen * rest > tolerance_ * derivative) {
          inverse = std::max(inverse, seen);
          add(u, z_);
          last = update_residual();
          target = last * sought;
          s.report.method = "implicit";
          continue;
        }
      }
      // A residual in the null space of Bᵀ causes no error, but does not show that the system is solved.
      const bool is_met = error <= tolerance_ * derivative && left <= std::max(unsolved, tolerance_) * size;
      const bool stalls = !(first && starts_near) && !(left < 0.5 * last);
      if (is_met || left <= rounding || stalls || spent() >= most_products || !std::isfinite(left)) {
        s.report.residual = std::max(s.report.residual, size > 0 ? left / size : 0);
        if (is_met) return;
        s.report.met_tolerance = false;
        note_status(s.report, !(left <= unsolved * size) ? Status::singular
                              : spent() >= most_products ? Status::iteration_limit
                                                         : Status::rounding_reached);
        return;
      }
      // Not accurate enough: the residual that is needed is known now.
      last = left;
      target = left * std::clamp(sought * tolerance_ * derivative / error, 1e-6, 0.5);
    }
  }

  // ‖(I - A)⁻¹‖ as the solve's steps tell it, or a random vector where they were too few. What other directions and
  // certificates have seen of it is left out: the same direction gives the same derivative, whatever was asked before.
  double inverse_from_solve(SolutionState& s, const LinearSystem& system, bool transposed) {
    if (s.run.slowness > 0) return std::max(1.0, s.run.slowness);
    std::optional<double> in_units;
    std::optional<double>& probed = are_in_units(transposed) ? in_units : probed_[transposed ? 1 : 0];
    if (!probed) probed = std::max(1.0, probe_inverse(s, system, few));
    return *probed;
  }

  // Where entries of the state have different units, steps that shrink do not tell how much larger than the residual the
  // error is: a part in a small unit may be enlarged by the ratio of the units; nor do they where the matrix of the step is
  // not normal. A few products of a solve for it show that.
  double growth_of_residual(SolutionState& s, const LinearSystem& system, double left, int most) {
    constexpr double roughly = 0.1;
    gmres_.begin(r_);
    s.report.terms += gmres_.run(system, roughly * left, std::min(most, static_cast<int>(s.size())));
    gmres_.solution(system, z_);
    return norm(z_) / left;
  }

  // The units in which tangents are solved for. Those of entries that are zero in x and b follow from A b.
  void find_units(SolutionState& s, ConstVector b) {
    units_differ_ = StateUnits::differ(s.run.x) || StateUnits::differ(b);
    in_units_.resize(b.size());
    std::vector<double> moved;
    if (units_differ_) {
      moved.resize(b.size());
      s.here().jvp_x(b, moved);
      ++s.report.products;
      s.report.flops += s.method->step->costs.jvp_x;
    }
    units_.find(s.run, {b, moved});
  }
  bool are_in_units(bool transposed) const { return units_differ_ && !transposed; }

  // Where θ does not move the step, the system has no right-hand side to tell whether its solution, zero, is the only one:
  // one that has a part of every eigenvector does.
  template <class Product> bool is_unique(SolutionState& s, const Product& M) {
    LinearSystem system;
    system.product = M;
    system.tolerance = unsolved;
    std::vector<double> b(s.size()), x(s.size());
    fill_random(b);
    const LinearResult result = LinearSolver().solve(system, b, x);
    s.report.products += result.products;
    s.report.residual = std::max(s.report.residual, result.residual);
    note_status(s.report, result.status);
    s.report.met_tolerance = s.report.met_tolerance && is_solution(result.status);
    return is_solution(result.status);
  }

  // What one step of a superlinear method leaves out is BᵀAᵀc to first order: (I - A)J = B.
  void superlinear_vjp(SolutionState& s, ConstVector c, std::span<const Vector> out) {
    if (AtSolution* const known = s.loop->at_solution()) {
      known->settle();
      implicit_->vjp(s, c, out);
      return judge_by_error_terms(s, norm(out));
    }
    const double of_others = std::exchange(s.report.residual, 0);  // of other directions
    const bool is_iterated = solves_by_iteration(s);
    if (is_iterated) {
      implicit_->vjp(s, c, out);
      took_implicit(s);
    } else {
      one_step_->vjp(s, c, out);
      s.report.method = one_step_->name();
      z_.resize(c.size());
      s.last().vjp_x(c, z_);
      ++s.report.products;
      const double left_out = norm(z_), size = norm(out);
      double error = 0;
      if (left_out > 0) {
        rest_ = memory_for(s.method->step->parameters);
        const std::vector<Vector> spans(rest_.begin(), rest_.end());
        s.last().vjp_theta(z_, spans);
        ++s.report.products;
        error = 2 * norm(spans);
      }
      if (!(left_out <= superlinear_rate * norm(c) && error <= tolerance_ * size)) {
        s.report.residual = 0;
        implicit_->vjp(s, c, out);
        took_implicit(s);
      }
    }
    s.report.residual = std::max(s.report.residual, of_others);
    if (rounding(s) > tolerance_) s.report.met_tolerance = false;
    if ((is_iterated || !is_measured_) && s.report.met_tolerance) {
      Parameters g;
      for (const Vector part : out) g.emplace_back(part.begin(), part.end());
      s.report.met_tolerance = rounding_of_vjp(s, c, g, s.report.products) <= tolerance_ * norm(out);
    }
  }
  void superlinear_jvp(SolutionState& s, std::span<const Array> v, Vector out) {
    if (AtSolution* const known = s.loop->at_solution()) {
      known->settle();
      implicit_->jvp(s, v, out);
      return judge_by_error_terms(s, norm(out));
    }
    const double of_others = std::exchange(s.report.residual, 0);
    const bool is_iterated = solves_by_iteration(s);
    if (is_iterated) {
      implicit_->jvp(s, v, out);
      took_implicit(s);
    } else {
      one_step_->jvp(s, v, out);
      s.report.method = one_step_->name();
      z_.resize(out.size());
      s.last().jvp_x(out, z_);
      ++s.report.products;
      if (!(2 * norm(z_) <= std::min(superlinear_rate, tolerance_) * norm(out))) {
        s.report.residual = 0;
        implicit_->jvp(s, v, out);
        took_implicit(s);
      }
    }
    s.report.residual = std::max(s.report.residual, of_others);
    if (rounding(s) > tolerance_) s.report.met_tolerance = false;
    if ((is_iterated || !is_measured_) && s.report.met_tolerance &&
        rounding_of_jvp(s, v, out, s.report.products) > tolerance_ * norm(out))
      s.report.met_tolerance = false;
  }
  // Whether linear systems are solved by an iteration. Its residual says little about the error of what it returns, which
  // only the judgement of a system with the equation tells.
  static bool solves_by_iteration(SolutionState& s) {
    Inverse* const inverse = s.last().inverse();
    return inverse != nullptr && !inverse->is_factored() && s.method->equation;
  }
  void judge_by_error_terms(SolutionState& s, double size) const {
    took_implicit(s);
    if (s.method->users_equation) return;  // which is where the derivative was taken
    const ErrorTerms terms = s.loop->at_solution()->equation().error_terms();
    const double error = terms.left_out + terms.rounding;  // the distance is the solver's tolerance
    s.report.met_tolerance = terms.reason.empty() && error <= tolerance_ * size;
  }

  // The relative error of a linear solve with the last step's matrix, measured once for each solve: no derivative is more
  // accurate than that.
  double rounding(SolutionState& s) {
    if (rounding_) return *rounding_;
    Inverse* const inverse = s.last().inverse();
    if (inverse == nullptr || !inverse->is_factored() || !s.method->equation || s.method->users_equation ||
        !s.method->equation->no_jvp.empty()) {
      rounding_ = 0;
      return 0;
    }
    const std::size_t n = s.size();
    std::vector<double> x(n), y(n);
    fill_random(x);
    y = x;
    inverse->solve(false, y, 0);  // large where the inverse is
    std::vector<double> image(n);
    s.equation().jvp_x(y, image);
    inverse->solve(false, image, 0);
    s.report.products += 3;
    const double size = norm(y);
    for (std::size_t i = 0; i < n; ++i) image[i] -= y[i];
    // The factor belongs to x_{k-1}, the product to x_k: the difference between those is not rounding.
    const double of_step = norm(s.run.x) > 0 ? s.run.last_step / norm(s.run.x) : 0;
    const double relative = size > 0 ? norm(image) / size : 0;
    is_measured_ = relative > 100 * of_step || relative <= tolerance_ || !measures_rounding(s);
    rounding_ = relative > 100 * of_step ? relative : 0;
    return *rounding_;
  }

  double tolerance_;
  std::unique_ptr<Differentiator> one_step_, implicit_;
  std::optional<double> rounding_;
  bool is_measured_ = true;                      // else that is not known from one linear solve
  std::array<std::optional<double>, 2> probed_;  // of I - A and of its transpose
  bool units_differ_ = false;
  Gmres gmres_;
  StateUnits units_;  // of tangents
  std::vector<double> u_, r_, z_, in_units_;
  std::vector<std::vector<double>> rest_;
};

}  // namespace

std::unique_ptr<Differentiator> make(const Auto& how) { return std::make_unique<AutoDifferentiator>(how); }

EstimatorFacts facts_of(const Auto&) { return {}; }
std::string text_of(const Auto& how) { return fmt::format("Auto {}", how.tolerance); }

}  // namespace onestep::detail
