// The error of a derivative, by comparison with a better one. For a vjp with cotangent v the better one is Bᵀu, u = (I -
// A)⁻ᵀv by GMRES, at a point x⁺ far nearer to the solution than x_k (refine.h); for a jvp it is g + z, (I - A)z = Ag + Bv -
// g there. Whatever estimator gave g, the bound is the sum of
//
//   ‖g - Bᵀu‖                                with a safety factor; nothing about the estimator enters
//   ‖(I - A)⁻¹‖ ‖B‖ times the residual       what GMRES left, with norms as it saw them
//   what is left of the way from x⁺ to x̄     extrapolated from how A and B, applied to u, changed on the way to x⁺, or
//                                            from how they change beside it (changes.h)
//   changes in corners around x⁺             where an operation of the step may switch (corners.h)
//   rounding                                 x⁺ is known to 4ε|x| ‖(I - A)⁻¹‖; superlinear methods: measured (rounding.cpp)
//
// All quantities are observed on u, because the error of the derivative depends on u, not on v.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "estimate/better.h"
#include "estimate/certify.h"
#include "estimate/changes.h"
#include "estimate/refine.h"
#include "linear/vector.h"

namespace onestep::detail {
namespace {

constexpr double difference_safety = 1.5;  // factor on the difference to the better derivative
// No bound is smaller, relative to the derivative: samples of rounding err by an order of magnitude now and then.
constexpr double newton_rounding = 2e-13, program_rounding = 2e-12;
// Change on the way, relative to the derivative, that is too much after a loose solve.
constexpr double far_derivative = 0.1;
constexpr double visible_kink = 0.1;  // change in a corner, relative to the derivative, above which there is no bound

class Certifier {
 public:
  explicit Certifier(SolutionState& s) : s_(s), map_(s.method->best_step()), n_(s.size()) {}

  void vjp(ConstVector v) {
    if (!check_possible(map_.no_vjp, "vjp")) return;
    const Parameters g = returned_vjp(s_, v, of_estimator_);
    c_.value = norm(g);
    if (!check_derivative_exists() || !refine()) return;
    if (AtSolution* const known = s_.loop->reference()) {
      SolutionPoint& knows = known->step();
      Parameters better = zero();
      vjp_theta(knows, v.first(s_.shown_size()), better);
      add_to(better, g, -1);
      return bound_by_error_terms(knows, norm(better));
    }
    const double size = detail::norm(v);
    if (size == 0) return finish(0, 0, 0, 0);
    Point& p = *s_.refinement->best().point;
    const auto transposed = [&](ConstVector w, Vector out) {
      p.vjp_x(w, out);
      ++c_.products;
      for (std::size_t i = 0; i < n_; ++i) out[i] = w[i] - out[i];
    };
    std::vector<double> u(v.begin(), v.end()), r(n_);
    if (!s_.method->superlinear) system_->note_size_of_b(size_of_b());  // what this direction sees of B may be far less
    const bool is_solved_already = has_arrived() || system_->begin(transposed, v, u, r) || s_.method->superlinear;
    if (s_.method->superlinear && !check_superlinear(detail::norm(r) / size)) return;
    Parameters better = zero(), difference_there = zero();
    const auto compare = [&] {
      p.vjp_theta(u, views_.of(better));
      system_->note_size_of_b(ratio(norm(better), detail::norm(u)));
      reference_ = norm(better);
      difference_there = better;
      add_to(difference_there, g, -1);
      return norm(difference_there);
    };
    const double to_better = system_->solve(true, transposed, v, u, r, is_solved_already, Changes::products(s_),
                                            [&compare] { return compare(); });
    if (!check_solved()) return;
    const double left = detail::norm(r);
    if (system_->matters(left, to_better) && system_->affords(Changes::products(s_))) {  // B may enlarge it more than u
      vjp_theta(p, r, difference_there);
      system_->note_size_of_b(norm(difference_there) / left);
    }
    JacobianProducts here{std::vector<double>(n_), better};
    for (std::size_t i = 0; i < n_; ++i) here.state[i] = r[i] - v[i] + u[i];  // Aᵀu
    changes_.emplace(s_, *system_, std::move(here), [&](Point& at) {
      JacobianProducts seen{std::vector<double>(n_), zero()};
      at.vjp_x(u, seen.state);
      vjp_theta(at, u, seen.theta);
      system_->note_size_of_b(ratio(norm(seen.theta), detail::norm(u)));
      return seen;
    });
    left_at_x_ = left_by_residual(system_->size_of_b() * size);
    if (s_.method->superlinear) c_.rounding = rounding_of_vjp(s_, v, better, c_.products);
    return finish(to_better, system_->tail(left, to_better), rounding_scale() * detail::norm(u), terms_of(detail::norm(u)));
  }

  void jvp(std::span<const Array> v) {
    if (!check_possible(map_.no_jvp, "jvp")) return;
    const std::vector<double> g = returned_jvp(s_, v, of_estimator_);
    c_.value = shown_norm(g);
    if (n_ == 0) return conclude(0);
    if (!check_derivative_exists() || !refine()) return;
    if (AtSolution* const known = s_.loop->reference()) {
      SolutionPoint& knows = known->step();
      std::vector<double> better(s_.shown_size());
      knows.jvp_theta(v, better);
      ++c_.products;
      add(better, ConstVector(g).first(better.size()), -1);
      return bound_by_error_terms(knows, detail::norm(better));
    }
    Point& p = *s_.refinement->best().point;
    std::vector<double> h = g, b(n_), r(n_);
    p.jvp_theta(v, b);
    ++c_.products;
    const double size_v = detail::norm(flat_tangent(v));
    if (size_v == 0) return finish(0, 0, 0, 0);
    const auto product = [&](ConstVector w, Vector out) {
      p.jvp_x(w, out);
      ++c_.products;
      for (std::size_t i = 0; i < n_; ++i) out[i] = w[i] - out[i];
    };
    if (has_arrived()) {
      h = b;
    } else {
      product(g, r);
      if (s_.method->superlinear) {
        std::vector<double> image(n_);
        for (std::size_t i = 0; i < n_; ++i) image[i] = g[i] - r[i];
        if (!check_superlinear(ratio(detail::norm(image), detail::norm(g)))) return;
      }
      for (std::size_t i = 0; i < n_; ++i) r[i] = b[i] - r[i];
    }
    const auto compare = [&] {
      std::vector<double> z = h;
      reference_ = shown_norm(h);
      add(z, g, -1);
      return shown_norm(z);
    };
    system_->note_size_of_b(1);
    const bool is_solved_already = detail::norm(r) <= 1e-3 * detail::norm(b);
    const int to_come = Changes::products(s_) + (s_.method->superlinear || s_.size_of_b ? 0 : 1);
    const double to_better =
        system_->solve(false, product, b, h, r, is_solved_already, to_come, [&compare] { return compare(); });
    if (!check_solved()) return;
    JacobianProducts here{h, {}};  // A h + B v = h - (M h - b)
    add(here.state, r);
    changes_.emplace(s_, *system_, std::move(here), [&](Point& at) {
      JacobianProducts seen{std::vector<double>(n_), {}};
      std::vector<double> more(n_);
      at.jvp_x(h, seen.state);
      at.jvp_theta(v, more);
      ++c_.products;
      add(seen.state, more);
      return seen;
    });
    left_at_x_ = left_by_residual(detail::norm(b));
    if (s_.method->superlinear) c_.rounding = rounding_of_jvp(s_, v, g, c_.products);
    return finish(to_better, system_->tail(system_->left(), to_better),
                  detail::norm(h) + (s_.method->superlinear ? 0 : size_of_b() * size_v), terms_of(size_v));
  }

  /// Once; with the products for the derivative itself, where that was computed again.
  Certificate result() {
    c_.products += of_estimator_;
    return std::move(c_);
  }

 private:
  double shown_norm(ConstVector x) const { return detail::norm(x.first(s_.shown_size())); }
  Parameters zero() const { return memory_for(map_.parameters); }
  void vjp_theta(Point& p, ConstVector c, Parameters& out) {
    p.vjp_theta(c, views_.of(out));
    ++c_.products;
  }

  void refuse(std::string reason, std::string advice) {
    c_.basis = Certificate::Basis::refused;
    c_.bound = c_.relative = infinity;
    c_.reason = std::move(reason);
    c_.advice = std::move(advice);
  }

  // Whether there can be a certificate, and a derivative to certify.
  bool check_possible(const std::string& missing, const char* which) { return !refuse_if(why_not(s_, missing, which)); }
  bool check_derivative_exists() { return !refuse_if(why_no_derivative(s_, c_.value)); }
  bool refuse_if(std::optional<Refusal> why) {
    if (!why) return false;
    refuse(std::move(why->reason), std::move(why->advice));
    return true;
  }

  bool refine() {
    if (s_.loop->reference() != nullptr) return true;
    const bool is_new = !s_.refinement;
    if (is_new) s_.refinement = std::make_shared<Refinement>(s_);
    const Refinement& way = *s_.refinement;
    if (is_new) c_.products += way.products();
    system_.emplace(s_, c_.products);
    // Far less than rounding does.
    if (s_.method->superlinear) system_->set_negligible_error(0.05 * newton_rounding * c_.value);
    const double step = way.stages()[0].step;
    c_.rho = s_.run.last_step > 0 && step > way.noise() ? step / s_.run.last_step : 0;
    return !refuse_if(why_not_from_there(s_, way, c_.rho));
  }

  // Whether a superlinear method is at its solution up to rounding, and was seen to be superlinear in its last steps: A,
  // which is proportional to the next step, moves the derivative less then than rounding of x_k does, which is measured.
  bool has_arrived() const {
    constexpr double fell = 1e-2 * superlinear_rate;
    const Refinement& way = *s_.refinement;
    const Run& run = s_.run;
    const bool is_fast = way.best().step <= fell * run.last_step || run.last_step <= fell * run.step_before;
    return s_.method->superlinear && map_.smooth && !s_.method->precise && measures_rounding(s_) && is_fast &&
           way.stages().size() == 1 && way.best().step <= way.noise();
  }

  bool check_superlinear(double rate) {
    if (rate <= superlinear_rate) return true;
    c_.rho = rate;
    return !refuse_if(why_not_superlinear(rate));
  }

  bool check_solved() {
    if (!system_->trouble().empty()) {
      refuse(system_->trouble(), "regularise the problem, or use a step that contracts");
      return false;
    }
    return !refuse_if(why_not_here(s_));
  }

  double size_of_b() {
    if (!s_.size_of_b) ++c_.products;
    return norm_b(s_);
  }

  // ‖B‖ where rounding is not measured: entries of B that do not matter in this direction are rounded, too, and their errors
  // do matter.
  double rounding_scale() {
    const double seen = system_->size_of_b();
    return s_.method->superlinear ? seen : std::max(seen, size_of_b());
  }

  // The size of terms that may cancel inside a step, of what B is applied to: usually ‖x‖/‖θ‖; more where F is seen to be
  // rounded by more than x is. Superlinear methods measure their rounding.
  double terms_of(double size) const {
    if (s_.method->superlinear || reference_ == 0) return 0;
    const Refinement& way = *s_.refinement;
    const double more = way.noise_is_large() && way.noise_is_measured() ? way.noise() / (4 * epsilon * way.scale()) : 1;
    return more * usual_b(s_) * size;
  }

  // What the estimator left of the derivative at x_k itself, where it solved the linear system there and says what residual
  // that has, relative to a right-hand side (times ‖B‖, for a vjp) of this size. Else that is not known.
  double left_by_residual(double size) const {
    const bool is_known = !s_.method->superlinear && s_.report.method == "implicit" && !map_.is_constant();
    return is_known ? system_->inverse() * s_.report.residual * size : infinity;
  }

  // From the best point to the solution.
  double way_left() const {
    const Refinement& way = *s_.refinement;
    return system_->inverse() * std::max(way.best().step, way.noise());
  }

  // `left`: error of the better derivative from its linear solve; `size`: ‖B‖ ‖u‖, which rounding is relative to, or to the
  // terms that cancel, where they are larger.
  void finish(double difference_to_better, double left, double size, double terms) {
    const Refinement& way = *s_.refinement;
    const Constants& known = s_.method->known;
    c_.distance = way.distance();
    c_.norm_B = known.norm_B >= 0 ? known.norm_B : system_->size_of_b();
    if (known.rho >= 0) c_.rho = known.rho;
    const double rest = way_left();
    double on_the_way = 0, beyond = 0, of_rounding = 0;
    if ((!map_.is_constant() || !map_.smooth) && changes_) {
      const bool are_given = known.L_A >= 0 && known.L_J >= 0;
      changes_->follow();
      beyond = changes_->beyond();
      on_the_way = changes_->on_the_way();
      if (way.covered() > 0) c_.L_J = on_the_way / way.covered();
      if (are_given)
        beyond = (known.L_J + system_->inverse() * system_->size_of_b() * known.L_A) * rest * size /
                 std::max(system_->size_of_b(), 1e-300);
      const bool measured = s_.method->superlinear && c_.rounding > 0 && way.noise_is_measured();
      // Rounding of x does not matter where the error is larger by far.
      const bool shows = difference_to_better <= 1e-6 * c_.value;
      // Steps that did not become shorter may be rounding, or slow components that the steps towards x⁺ left.
      const bool is_exact = s_.method->superlinear || (way.best().step <= way.noise() && way.noise_is_measured());
      if (is_exact ? !measured && shows : !are_given) {
        const double rate = changes_->rate();
        const double moved = system_->inverse() * way.noise() / std::sqrt(static_cast<double>(n_));  // each entry of x
        of_rounding = 2 * rate * moved;
        // Such a rate tells little where terms that cancel make steep functions of differences that are rounded.
        if (way.noise_is_large()) of_rounding = std::max(of_rounding, 2 * changes_->beside(moved));
        if (!is_exact) beyond = std::max(beyond, rate * rest);
      }
      if (!map_.smooth && !are_given) {
        const double corners = changes_->in_corners(rest);
        if (!(corners <= visible_kink * std::max(reference_, c_.value)))
          return refuse(
              fmt::format("within {:.1e} of x the step has a kink, or another branch", Changes::corner_radius * rest),
              "at a kink the solution has no derivative; near one, solve with a smaller tolerance");
        beyond += corners;
      }
    }
    if (s_.method->superlinear) c_.rounding += newton_rounding * c_.value;
    c_.rounding +=
        of_rounding + 8 * epsilon * std::sqrt(static_cast<double>(n_)) * system_->inverse() * std::max(size, terms);
    const double whole = difference_safety * difference_to_better;
    const double seen_of_distance = std::min(whole, on_the_way);
    // What is more than the estimator left at x_k comes of the distance, too: a residual near the solution that the products
    // did not suffice to solve for is then that of A⁺ - A.
    const double of_distance = std::max(seen_of_distance, whole + left - difference_safety * left_at_x_);
    c_.from_distance = of_distance + beyond;
    c_.left_out = whole + left - of_distance;
    // If the derivative changes this much on the way after a loose solve, no bound is given.
    if (s_.options.tolerance > loose_tolerance && !map_.is_constant() &&
        seen_of_distance + beyond > far_derivative * std::max(reference_, c_.value))
      return refuse(
          fmt::format("on the way from x_k to the solution the derivative changes by {:.1e}, its own size is {:.1e}",
                      seen_of_distance + beyond, c_.value),
          "solve with a smaller SolveOptions::tolerance");
    const bool can_tell = difference_to_better > c_.rounding + left;
    return conclude(can_tell ? difference_to_better : std::numeric_limits<double>::quiet_NaN());
  }

  // For a point that knows the error of its own derivative: the difference to what was returned is added to that.
  void bound_by_error_terms(SolutionPoint& knows, double difference_to_better) {
    const ErrorTerms terms = knows.error_terms();
    c_.distance = s_.run.last_step;
    if (!terms.reason.empty())
      return refuse(terms.reason, "solve with a smaller tolerance, or change the data that make the program degenerate");
    c_.left_out = difference_safety * difference_to_better + terms.left_out;
    c_.from_distance = terms.from_distance;
    c_.rounding = terms.rounding + program_rounding * c_.value;
    const double known = c_.from_distance + c_.rounding + terms.left_out;
    return conclude(difference_to_better > known ? difference_to_better : std::numeric_limits<double>::quiet_NaN());
  }

  void conclude(double estimate) {
    c_.bound = c_.left_out + c_.from_distance + c_.rounding;
    c_.estimate = estimate;
    if (!std::isfinite(c_.bound))
      return refuse("the derivative is not finite near the solution", "check the step for NaN and infinities there");
    c_.basis = Certificate::Basis::observed;
    c_.relative = c_.value > 0 ? c_.bound / c_.value : c_.bound > 0 ? infinity : 0;
    using Term = Certificate::Term;
    c_.dominant = c_.left_out >= std::max(c_.from_distance, c_.rounding) ? Term::left_out
                  : c_.from_distance >= c_.rounding                      ? Term::distance
                                                                         : Term::rounding;
    c_.reason = "compared with a derivative computed nearer to the solution";
    switch (c_.dominant) {
      case Term::left_out: c_.advice = s_.differentiator->advice(); break;
      case Term::distance:
        c_.advice = s_.method->precise ? "solve with a smaller SolveOptions::tolerance, here or in the solves inside"
                                       : "solve with a smaller SolveOptions::tolerance";
        break;
      case Term::rounding: c_.advice = "nothing in double precision: only rounding is left"; break;
    }
  }

  SolutionState& s_;
  const Map& map_;
  std::size_t n_;
  Certificate c_;
  std::optional<BetterSystem> system_;  // once there is a refinement
  double reference_ = 0;                // norm of the better derivative
  double left_at_x_ = infinity;         // see left_by_residual
  int of_estimator_ = 0;
  Views views_;
  std::optional<Changes> changes_;  // once the system is solved
};

template <class Certify> Certificate certified(SolutionState& s, const Certify& certify) {
  struct KeptReport {
    SolutionState& s;
    DerivativeReport report;
    ~KeptReport() { s.report = std::move(report); }
  } const kept{s, s.report};
  const int products = s.work().products;
  Certificate certificate;
  try {
    Certifier certifier(s);
    certify(certifier);
    certificate = certifier.result();
  } catch (const NoDerivativeError& none) {
    certificate.reason = none.reason;
    certificate.advice = "take Implicit{}, which needs no contraction";
  }
  certificate.products += s.work().products - products;
  return certificate;
}

}  // namespace

Certificate certify_vjp(SolutionState& s, ConstVector c) {
  return certified(s, [&](Certifier& certifier) { certifier.vjp(c); });
}
Certificate certify_jvp(SolutionState& s, std::span<const Array> v) {
  return certified(s, [&](Certifier& certifier) { certifier.jvp(v); });
}

}  // namespace onestep::detail
