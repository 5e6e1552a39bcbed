// The error of a derivative. With A, B at the point where the derivative was taken, Ā, B̄ at the solution, d the distance
// between them, u = (I - A)⁻ᵀ v and K = ‖(I - Ā)⁻¹‖:
//
//   Jᵀv - Bᵀv = Bᵀ(w + Aᵀw + …)                       the Neumann terms, w = Aᵀv: three are computed, the rest is bounded
//             + (B̄ - B)ᵀ(I - Ā)⁻ᵀ v                    at most L_J d K ‖v‖
//             + Bᵀ((I - Ā)⁻ᵀ - (I - A)⁻ᵀ) v             at most ‖B‖ L_A d K ‖u‖
//
// L_J and L_A are given, or zero, or observed between x_{k-1} and x_k with a safety factor. K and d follow from what is
// measured at the iterate, k = ‖(I - A)⁻¹‖ and the length of the step: with t = k² L_A step, K = k / √(1 - 2t) and d = 2 k
// step / (1 + √(1 - 2t)). For a superlinear method Ā = 0, unless its solution is degenerate, which is looked at: the middle
// line is left.
#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <cmath>

#include "estimate/certify.h"

namespace onestep {
namespace detail {
namespace {

constexpr int neumann_terms = 3;
constexpr double safety = 4;  // of constants observed along the last step
constexpr double epsilon = std::numeric_limits<double>::epsilon();

using Parameters = std::vector<std::vector<double>>;  // a vector for each parameter

double norm(const Parameters& p) {
  double sum = 0;
  for (const auto& part : p) sum += dot(part, part);
  return std::sqrt(sum);
}
void add_to(Parameters& to, const Parameters& what, double factor = 1) {
  for (std::size_t i = 0; i < to.size(); ++i) add(to[i], what[i], factor);
}

// Both directions in one: for vjp the operator is Aᵀ, what enters is v, and results are in the space of θ; for jvp it is A,
// what enters is Bv, and results are states.
class Certifier {
 public:
  explicit Certifier(SolutionState& s) : s_(s), n_(s.size()) {}

  Certificate vjp(ConstVector v) {
    if (!can(true)) return c_;
    const Parameters g = derivative_vjp(v);
    c_.value = norm(g);
    measure();
    if (unrolled()) return unrolled_vjp(v, g);
    if (s_.method->superlinear) return superlinear_vjp(v, g);
    // Where one step was taken, and after K steps: w = (Aᵀ)^K v.
    std::vector<double> w(v.begin(), v.end()), u = w, next(n_);
    const int K = steps();
    Point& p = point();
    for (int i = 0; i < K; ++i) {
      apply_transposed(p, w, next);
      if (i + 1 < K) add(u, w);
    }
    Parameters total = zero(), term = zero();
    double last = detail::norm(w);
    if (!implicit()) {
      for (int j = 0; j < neumann_terms; ++j) {
        add(u, w);
        vjp_theta(p, w, term);
        add_to(total, term);
        apply_transposed(p, w, next);
      }
      last = detail::norm(w);
      c_.estimate = norm(total);
    } else {
      c_.estimate = norms_.norm_B * norms_.inverse * s_.report.residual * detail::norm(v);
      last = s_.report.residual * detail::norm(v);  // Jᵀr: r stands where the next term would
    }
    const double size_u = implicit() ? norms_.inverse * detail::norm(v) : detail::norm(u) + norms_.inverse * last;
    const double rest = norms_.norm_B * norms_.inverse * last;
    finish((implicit() ? 0 : c_.estimate) + rest, v, size_u, true, {});
    return c_;
  }

  Certificate jvp(std::span<const Array> v) {
    if (!can(false)) return c_;
    std::vector<double> g(n_), b(n_), next(n_);
    s_.report = {};
    s_.differentiator->jvp(s_, v, g);
    c_.value = detail::norm(g);
    measure();
    if (unrolled()) {
      // J satisfies J = A J + B at the solution: what is missing from that.
      Point& p = s_.here();
      p.jvp_x(g, next);
      p.jvp_theta(v, b);
      c_.products += 2;
      for (std::size_t i = 0; i < n_; ++i) b[i] += next[i] - g[i];
      c_.estimate = detail::norm(b) * norms_.inverse;
      return refuse(std::isfinite(norms_.inverse) ? "unrolled derivatives come with an estimate only" : norms_.reason);
    }
    if (s_.method->superlinear) {
      std::vector<double> other(n_), again(n_);
      reference().jvp_theta(v, other);
      s_.here().jvp_x(other, next);
      s_.here().jvp_x(next, again);
      c_.products += 3;
      const double size = detail::norm(other), once = detail::norm(next), twice = detail::norm(again);
      add(other, g, -1);
      // The solve of H ẋ = b again, for a b that is known to have ẋ as its solution.
      const double rounding = rounding_of_solve([&](Point& at, std::vector<double>& r) {
        const auto of_a_sample = [&](ConstVector sample) {
          s_.equation().jvp_x(sample, r);
          at.precondition(false, r);
          add(r, sample, -1);
          return detail::norm(r);
        };
        const double solve_error = s_.method->step->iterates ? left_by_iteration(at, v, r) : largest_sample(g, of_a_sample);
        // H ẋ = -G_θ v, both sides at another x.
        std::ranges::copy(g, r.begin());
        at.precondition(false, r);
        Point& beside = displaced(r);
        beside.jvp_x(g, r);
        s_.equation().jvp_x(g, next);
        add(r, next, -1);
        beside.jvp_theta(v, next);
        add(r, next);
        s_.equation().jvp_theta(v, next);
        add(r, next, -1);
        at.precondition(false, r);
        return solve_error + rounding_of_x(std::max(epsilon, ratio(solve_error, c_.value))) * detail::norm(r);
      });
      observed_change(detail::norm(other), once, std::max(ratio(once, size), ratio(twice, once)), rounding);
      return c_;
    }
    Point& p = point();
    p.jvp_theta(v, b);
    ++c_.products;
    std::vector<double> w = b, total(n_);
    for (int i = 0; i < steps(); ++i) apply(p, w, next);
    double last = 0;
    if (!implicit()) {
      for (int j = 0; j < neumann_terms; ++j) {
        add(total, w);
        apply(p, w, next);
      }
      last = norms_.inverse * detail::norm(w);
      c_.estimate = detail::norm(total);
    } else {
      // Whichever equation was solved: what g lacks of J = A J + B.
      p.jvp_x(g, next);
      ++c_.products;
      for (std::size_t i = 0; i < n_; ++i) next[i] += b[i] - g[i];
      c_.estimate = detail::norm(next);
      last = norms_.inverse * c_.estimate;
    }
    finish((implicit() ? 0 : c_.estimate) + last, g, c_.value + c_.estimate + last, false, v);
    return c_;
  }

 private:
  bool unrolled() const { return std::holds_alternative<Unrolled>(s_.estimator.kind()); }
  bool automatic() const { return std::holds_alternative<Auto>(s_.estimator.kind()); }
  // Auto says what it took when it has been asked for the derivative.
  bool implicit() const {
    return std::holds_alternative<Implicit>(s_.estimator.kind()) || (automatic() && s_.report.method == "implicit");
  }
  int steps() const {
    if (std::holds_alternative<KStep>(s_.estimator.kind())) return s_.run.trajectory.kept();
    return implicit() ? 0 : automatic() ? s_.report.terms + 1 : 1;
  }
  // The derivative is of x_{k-1} for one step and K steps, of x_k for implicit and the terms of Auto.
  Point& point() { return implicit() || (automatic() && !s_.method->superlinear) ? s_.here() : s_.last(); }

  bool can(bool for_vjp) {
    if (!is_solution(s_.run.status)) {
      refuse(fmt::format("the solve ended with status {}", to_string(s_.run.status)));
      return false;
    }
    if (std::string why = s_.loop->degeneracy(); !why.empty()) {
      refuse(std::move(why));
      return false;
    }
    const Map& map = *s_.method->step;
    if (!(for_vjp ? map.no_vjp : map.no_jvp).empty()) {
      refuse(fmt::format("the bound is made of the {} that is missing", for_vjp ? "vjp" : "jvp"));
      return false;
    }
    return true;
  }

  void measure() {
    norms_ = measure_norms(*s_.method, point());
    c_.rho = norms_.rho;
    c_.power = norms_.power;
    c_.norm_B = norms_.norm_B;
    c_.products = norms_.products;
  }

  Certificate& refuse(std::string reason) {
    c_.basis = Certificate::Basis::refused;
    c_.bound = std::numeric_limits<double>::infinity();
    c_.reason = std::move(reason);
    return c_;
  }

  Parameters zero() const { return detail::memory_for(s_.method->step->parameters); }
  void vjp_theta(Point& p, ConstVector c, Parameters& out) {
    p.vjp_theta(c, std::vector<Vector>(out.begin(), out.end()));
    ++c_.products;
  }
  Parameters derivative_vjp(ConstVector v) {
    Parameters g = zero();
    s_.report = {};
    s_.differentiator->vjp(s_, v, std::vector<Vector>(g.begin(), g.end()));
    return g;
  }
  void apply_transposed(Point& p, std::vector<double>& w, std::vector<double>& next) {
    p.vjp_x(w, next);
    w.swap(next);
    ++c_.products;
  }
  void apply(Point& p, std::vector<double>& w, std::vector<double>& next) {
    p.jvp_x(w, next);
    w.swap(next);
    ++c_.products;
  }

  static double ratio(double a, double b) { return a == 0 ? 0 : a / b; }

  // Superlinear: the derivative at x_k is right up to a second order term, so the change over the last step is the error.
  Certificate superlinear_vjp(ConstVector v, const Parameters& g) {
    Parameters other = zero(), left_out = zero(), left_out_again = zero();
    vjp_theta(reference(), v, other);
    std::vector<double> w(v.begin(), v.end()), next(n_);
    apply_transposed(s_.here(), w, next);
    const double once = detail::norm(w);
    if (once > 0) vjp_theta(s_.here(), w, left_out);
    apply_transposed(s_.here(), w, next);
    add_to(other, g, -1);
    // What the solve of Hᵀu = v left of v, and what that is to θ.
    const double rounding = rounding_of_solve([&](Point& at, std::vector<double>& r) {
      std::vector<double> product(n_);
      double left = 0;
      const double solve_error = largest_sample(v, [&](ConstVector sample) {
        std::ranges::copy(sample, next.begin());
        at.precondition(true, next);
        s_.method->equation->symmetric ? s_.equation().jvp_x(next, product) : s_.equation().vjp_x(next, product);
        for (std::size_t i = 0; i < n_; ++i) r[i] = sample[i] - product[i];
        left = std::max(left, ratio(detail::norm(r), detail::norm(sample)));
        vjp_theta(at, r, left_out_again);
        return norm(left_out_again);
      });
      const double residual = std::max(epsilon, left);
      // -G_θᵀ u and Hᵀu = v at another x.
      Point& beside = displaced(next);
      Parameters moved = zero(), rest = zero();
      vjp_theta(beside, next, moved);
      vjp_theta(s_.equation(), next, rest);
      add_to(moved, rest, -1);
      s_.method->equation->symmetric ? beside.jvp_x(next, r) : beside.vjp_x(next, r);
      add(r, product, -1);
      vjp_theta(at, r, rest);
      add_to(moved, rest);
      return solve_error + rounding_of_x(residual) * norm(moved);
    });
    observed_change(norm(other), norm(left_out), std::max(ratio(once, detail::norm(v)), ratio(detail::norm(w), once)),
                    rounding);
    return c_;
  }
  // Another derivative than the one that is certified: that at x_k, or, where the solve itself is one linear system there,
  // that of the step before.
  Point& reference() {
    if (implicit() && s_.loop->here() != nullptr) return s_.last();
    // Where the step solves a linear system by an iteration, what that left shows in the change only if it was not left
    // here.
    step_here_ = s_.here().be_precise();
    return s_.here();
  }

  // `left_out`: the next Neumann term at x_k; `rate`: by how much the terms shrink, about; `rounding`: of a solve.
  void observed_change(double change, double left_out, double rate, double rounding) {
    c_.rho = rate;
    // From x_k on the next step is as long as the distance, but for a term of second order; where x_k is known to rounding
    // only, both are rounding, of one size.
    c_.distance = std::max(s_.run.last_step, safety * step_here_) + 4 * epsilon * detail::norm(s_.run.x);
    c_.estimate = change + left_out;
    const double floor = rounding + (32 * epsilon * std::sqrt(static_cast<double>(n_)) + 10 * s_.report.residual) * c_.value;
    c_.L_J = s_.run.last_step > 0 ? change / s_.run.last_step : 0;
    if (!(rate <= superlinear_rate)) {
      refuse(
          fmt::format("the step multiplies errors by {:.2g} where a superlinear method should by almost 0: the solution is "
                      "degenerate, or not yet near",
                      rate));
      return;
    }
    if (!std::isfinite(step_here_)) {
      refuse("how far the solution is was not found: the linear system of the step there was not solved exactly enough");
      return;
    }
    if (s_.report.status == Status::singular || s_.report.status == Status::iteration_limit) {
      refuse(fmt::format("the linear system of the derivative was solved to {:.1e} only", s_.report.residual));
      return;
    }
    c_.bound = 2 * change + left_out / (1 - superlinear_rate) + floor;
    c_.basis = Certificate::Basis::observed;
    c_.reason = "a superlinear method: the change of the derivative over the last step, twice, and rounding";
    if (!std::isfinite(c_.bound)) refuse("the derivative is not finite");
  }
  // How exactly the factorisation, or the iteration, solves, in the norm of what is certified: `error` of one solve at a
  // point that has the equation, measured where there is one.
  template <class Error> double rounding_of_solve(const Error& error) {
    constexpr double rounding_safety = 4;
    const Map& step = *s_.method->step;
    if (!s_.method->equation || !(step.preconditions || step.iterates) || !s_.method->equation->no_jvp.empty()) return 0;
    std::vector<double> r(n_);
    return rounding_safety * error(s_.here(), r);
  }

  // Rounding is as if by chance: what it leaves of one right-hand side may be far smaller than of the next. The same one
  // times a few numbers rounds differently; it comes last itself. Where each solve is an iteration, one has to do.
  template <class Error> double largest_sample(ConstVector of, const Error& error) {
    constexpr double factors[] = {1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 11, 1};
    double largest = 0;
    std::vector<double> sample(of.size());
    for (const double factor : factors) {
      if (factor != 1 && s_.method->step->iterates) continue;
      std::ranges::transform(of, sample.begin(), [&](double e) { return factor * e; });
      largest = std::max(largest, error(sample) / factor);
      ++c_.products;
    }
    return largest;
  }

  // What an iteration leaves of the solution of H z = q = G_θ v, by a second solve for the residual. (It leaves out of H z
  // what it left out of z, so that a right-hand side made of a solution tells nothing.) q itself was rounded: what came out,
  // f, lies where H⁻¹ is large, so that an error of q which does not cancel there becomes ‖f‖ Σ |fᵢ| ε|qᵢ| / fᵀHf.
  double left_by_iteration(Point& at, std::span<const Array> v, std::vector<double>& f) {
    std::vector<double> q(n_), z(n_), product(n_);
    s_.equation().jvp_theta(v, q);
    z = q;
    at.precondition(false, z);
    s_.equation().jvp_x(z, product);
    for (std::size_t i = 0; i < n_; ++i) f[i] = q[i] * (1 + (i % 2 == 0 ? epsilon : -epsilon)) - product[i];
    at.precondition(false, f);
    s_.equation().jvp_x(f, product);
    c_.products += 3;
    const double length = detail::norm(f), curvature = dot(f, product);
    double against = 0;
    for (std::size_t i = 0; i < n_; ++i) against += std::fabs(f[i]) * epsilon * std::fabs(q[i]);
    return length + (curvature > 0 ? length * against / curvature : 0);
  }

  // x_k itself is known to rounding only, and where the matrix is nearly singular not even that. What an error of x is to
  // the derivative is seen at a point beside x_k, in a direction in which the inverse is large.
  static constexpr double displacement = 1e-5;  // relative to x
  Point& displaced(ConstVector direction) {
    beside_ = s_.method->equation->point(true);
    beside_->bind(s_.theta);
    std::vector<double> x = s_.run.x, y(n_);
    const double size = detail::norm(direction);
    if (size > 0) add(x, direction, displacement * detail::norm(s_.run.x) / size);
    beside_->apply(x, {}, y);
    c_.products += 4;
    return *beside_;
  }
  // The gradient is a sum of terms larger than what a product with the matrix adds up.
  static double rounding_of_x(double relative) { return 8 * relative / displacement; }

  Certificate unrolled_vjp(ConstVector v, const Parameters& g) {
    // What one more step at x_k would make of it: Bᵀv + Jᵀ Aᵀv.
    Point& p = s_.here();
    std::vector<double> w(v.begin(), v.end()), next(n_);
    Parameters again = zero();
    vjp_theta(p, w, again);
    apply_transposed(p, w, next);
    add_to(again, derivative_vjp(w));
    add_to(again, g, -1);
    c_.estimate = norm(again) * norms_.inverse;
    return refuse(std::isfinite(norms_.inverse) ? "unrolled derivatives come with an estimate only" : norms_.reason);
  }

  // The terms that come from not being at the solution, and rounding. `direction` is what A and B are applied to, `size_u` a
  // bound of ‖(I - A)⁻ᵀ v‖ (or of ‖J v‖).
  void finish(double neumann, ConstVector direction, double size_u, bool transposed, std::span<const Array> theta) {
    if (!std::isfinite(norms_.inverse)) {
      refuse(norms_.reason);
      return;
    }
    const Map& map = *s_.method->step;
    const double step = s_.run.last_step;
    const bool exact_point = step == 0;
    bool observed = false;
    const auto constant = [&](double given, bool zero_known, double seen) {
      if (given >= 0) return given;
      if (zero_known || exact_point) return 0.0;
      observed = true;
      return safety * seen;
    };
    double seen_a = 0, seen_j = 0;
    if (!exact_point && !(map.affine && map.constant_b)) observe(direction, transposed, theta, step, seen_a, seen_j);
    c_.L_A = constant(s_.method->known.L_A, map.affine, seen_a);
    c_.L_J = constant(s_.method->known.L_J, map.constant_b, seen_j);
    // A contraction factor that was given holds everywhere.
    const bool everywhere = s_.method->known.rho >= 0;
    const double t = everywhere ? 0 : norms_.inverse * norms_.inverse * c_.L_A * step;
    if (!(2 * t < 1)) {
      refuse(fmt::format("the last step, {:.1e}, is too long for how fast the derivatives change", step));
      return;
    }
    const double root = std::sqrt(1 - 2 * t), inverse = norms_.inverse / root;
    c_.distance = 2 * norms_.inverse * step / (1 + root);
    const double d = c_.distance;
    const bool vouched_for = s_.method->known.L_A >= 0 && s_.method->known.L_J >= 0;
    if (!map.smooth && !vouched_for && has_kink_within(d, direction, transposed, theta)) {
      refuse(fmt::format("within {:.1e} of x the step has a kink, or another branch", kink_radius(d)));
      return;
    }
    const double size_v = transposed ? detail::norm(direction) : 1;
    const double from_b = transposed ? c_.L_J * d * inverse * size_v : c_.L_J * d * inverse * theta_norm(theta);
    const double from_a = (transposed ? norms_.norm_B : 1) * c_.L_A * d * inverse * size_u;
    const double floor =
        32 * epsilon * std::sqrt(static_cast<double>(n_)) * inverse * (transposed ? norms_.norm_B * size_u : size_u);
    const double of_steps = earlier_steps(d) * (transposed ? size_v : theta_norm(theta));
    c_.bound = neumann + from_b + from_a + floor + of_steps;
    c_.basis = Certificate::Basis::observed;
    c_.reason =
        observed ? "Lipschitz constants were observed along the last step" : "norms were bounded by Dixon's inequality";
    if (!std::isfinite(c_.bound)) refuse("the derivative is not finite");
  }

  double kink_radius(double distance) const {
    double largest = 0;
    for (const double e : s_.run.x) largest = std::max(largest, std::fabs(e));
    return std::max(2 * distance, 1e-12 * (1 + largest));
  }
  // Where a step may have kinks its derivatives are looked at around x, in the corners of the cube that could hold the
  // solution: those of a smooth piece hardly change over so short a way.
  bool has_kink_within(double distance, ConstVector direction, bool transposed, std::span<const Array> theta) {
    constexpr double visible = 1e-3;
    const double radius = kink_radius(distance);
    std::vector<double> corner(n_), y(n_), here(n_), there(n_);
    const auto derivatives = [&](Point& at, std::vector<double>& by_x, Parameters& by_theta) {
      transposed ? at.vjp_x(direction, by_x) : at.jvp_x(direction, by_x);
      if (transposed)
        at.vjp_theta(direction, std::vector<Vector>(by_theta.begin(), by_theta.end()));
      else
        at.jvp_theta(theta, by_theta.emplace_back(n_));
      c_.products += 2;
    };
    // Relative to what A and B make of such a direction, not to what may have vanished.
    const double size_v = transposed ? detail::norm(direction) : theta_norm(theta);
    const Parameters none = transposed ? zero() : Parameters{};
    Parameters p = none;
    derivatives(s_.here(), here, p);
    const double scale_x = std::max(detail::norm(here), detail::norm(direction)),
                 scale_theta = std::max(norm(p), norms_.norm_B * size_v);
    for (const int pattern : {0, 1, 2, 3}) {
      for (std::size_t i = 0; i < n_; ++i)
        corner[i] = s_.run.x[i] + ((pattern & 1) != 0 ? radius : -radius) * (pattern >= 2 && i % 2 != 0 ? -1 : 1);
      Parameters q = none;
      Point& other = s_.walker();
      other.apply(corner, s_.run.controls, y);
      derivatives(other, there, q);
      add(there, here, -1);
      add_to(q, p, -1);
      if (detail::norm(there) > visible * scale_x || norm(q) > visible * scale_theta) return true;
    }
    return false;
  }

  // K steps: what comes of the earlier ones being farther from the solution, at most so far after the last. The j-th before
  // it enters through j factors, each ρ + L_A d_i at most; p bounds their product, q its distance from that at the solution.
  double earlier_steps(double distance) {
    Trajectory& way = s_.run.trajectory;
    if (!std::holds_alternative<KStep>(s_.estimator.kind()) || way.kept() < 2) return 0;
    const double rho = norms_.power == 1 ? norms_.rho : norms_.inverse;
    double p = rho + c_.L_A * distance, q = c_.L_A * distance, sum = 0, d = distance;
    std::vector<double> after(s_.run.previous), difference(n_);
    for (int i = way.steps() - 2; i >= way.steps() - way.kept(); --i) {
      const ConstVector x = way.state(i);
      for (std::size_t k = 0; k < n_; ++k) difference[k] = after[k] - x[k];
      after.assign(x.begin(), x.end());
      d += detail::norm(difference);
      sum += c_.L_J * d * p + norms_.norm_B * q;
      q = q * (rho + c_.L_A * distance) + p * c_.L_A * d;
      p *= rho + c_.L_A * d;
    }
    return sum;
  }

  static double theta_norm(std::span<const Array> theta) {
    double sum = 0;
    for (const Array& a : theta) {
      std::vector<double> flat(static_cast<std::size_t>(a.size()));
      flatten({&a, 1}, flat);
      sum += dot(flat, flat);
    }
    return std::sqrt(sum);
  }

  // How A and B change between x_{k-1} and x_k, on the direction at hand.
  void observe(ConstVector direction, bool transposed, std::span<const Array> theta, double step, double& seen_a,
               double& seen_j) {
    Point &before = s_.last(), &after = s_.here();
    const double size = detail::norm(direction);
    std::vector<double> a(n_), b(n_);
    if (size > 0) {
      transposed ? before.vjp_x(direction, a) : before.jvp_x(direction, a);
      transposed ? after.vjp_x(direction, b) : after.jvp_x(direction, b);
      c_.products += 2;
      add(b, a, -1);
      seen_a = (detail::norm(b) + 8 * epsilon * detail::norm(a)) / (step * size);
    }
    if (transposed && size > 0) {
      Parameters p = zero(), q = zero();
      vjp_theta(before, direction, p);
      vjp_theta(after, direction, q);
      add_to(q, p, -1);
      seen_j = (norm(q) + 8 * epsilon * norm(p)) / (step * size);
    } else if (!transposed) {
      before.jvp_theta(theta, a);
      after.jvp_theta(theta, b);
      c_.products += 2;
      add(b, a, -1);
      const double size_theta = theta_norm(theta);
      if (size_theta > 0) seen_j = (detail::norm(b) + 8 * epsilon * detail::norm(a)) / (step * size_theta);
    }
  }

  SolutionState& s_;
  std::size_t n_;
  Norms norms_;
  Certificate c_;
  double step_here_ = 0;  // the length of the step from x_k, where its linear system is solved by an iteration
  std::unique_ptr<Point> beside_;
};

}  // namespace

Certificate certify_vjp(SolutionState& s, ConstVector c) {
  const DerivativeReport of_last = s.report;
  const int products = s.products();
  Certificate certificate = Certifier(s).vjp(c);
  certificate.products += s.products() - products;
  s.report = of_last;
  return certificate;
}
Certificate certify_jvp(SolutionState& s, std::span<const Array> v) {
  const DerivativeReport of_last = s.report;
  const int products = s.products();
  Certificate certificate = Certifier(s).jvp(v);
  certificate.products += s.products() - products;
  s.report = of_last;
  return certificate;
}

}  // namespace detail

namespace {
const char* basis_name(Certificate::Basis basis) {
  switch (basis) {
    case Certificate::Basis::proven: return "proven";
    case Certificate::Basis::observed: return "observed";
    case Certificate::Basis::refused: break;
  }
  return "refused";
}
std::string json_number(double x) { return std::isfinite(x) ? fmt::format("{:.17g}", x) : "null"; }
}  // namespace

std::ostream& operator<<(std::ostream& out, const Certificate& c) {
  if (c.basis == Certificate::Basis::refused)
    fmt::print(out, "no bound: {}{}", c.reason,
               std::isfinite(c.estimate) ? fmt::format("; estimated error {:.1e}", c.estimate) : "");
  else
    fmt::print(out, "error <= {:.1e} ({}); estimated {:.1e}, derivative {:.3e}", c.bound, basis_name(c.basis), c.estimate,
               c.value);
  return out;
}

std::string Certificate::json() const {
  std::string escaped;
  for (const char ch : reason) {
    if (ch == '"' || ch == '\\') escaped += '\\';
    escaped += ch;
  }
  return fmt::format(
      R"({{"basis": "{}", "bound": {}, "estimate": {}, "value": {}, "rho": {}, "power": {}, "distance": {}, "L_A": {}, "L_J": {}, "norm_B": {}, "products": {}, "reason": "{}"}})",
      basis_name(basis), json_number(bound), json_number(estimate), json_number(value), json_number(rho), power,
      json_number(distance), json_number(L_A), json_number(L_J), json_number(norm_B), products, escaped);
}

}  // namespace onestep
