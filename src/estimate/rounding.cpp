// Rounding in derivatives of superlinear steps, measured by residuals and by displacing x_k.
#include <algorithm>
#include <cmath>
#include <utility>

#include "estimate/certify.h"
#include "estimate/refine.h"
#include "linear/random.h"
#include "linear/vector.h"

namespace onestep::detail {
namespace {

constexpr double safety = 1.9;

// With H = ∂G/∂x, the derivative is -H⁻¹G_θ v or -G_θᵀH⁻ᵀv. Rounding enters by the linear system, the residual of which is
// seen, and by x_k, the error of which is seen from how much G(x + δ) - G(x) - Hδ differs from zero. Any single one may be
// small by luck, so that the sizes of the terms that are summed count, too, and signs are those that matter most.
class Rounding {
 public:
  Rounding(SolutionState& s, int& products)
      : s_(s),
        n_(s.size()),
        symmetric_(s.method->equation->symmetric),
        products_(products),
        at_(s.here()),
        inverse_(*at_.inverse()) {
    s.for_rounding.resize(most_vectors * n_);
  }

  // `g` is -G_θᵀH⁻ᵀv.
  double vjp(ConstVector v, const Parameters& g) {
    const Vector u = copy_of(v), image = vector(), r = vector(), other = vector(), e = vector();
    Parameters &rest = s_.rounding.rest, &moved = s_.rounding.moved;
    if (rest.empty()) rest = moved = memory_for(s_.method->step->parameters);
    precondition(true, u);
    product(s_.equation(), true, u, image);
    for (std::size_t i = 0; i < n_; ++i) r[i] = v[i] - image[i];
    raise_to_rounding(true, u, image, r);
    const ConstVector weak = seen().weak_right;
    double largest = 0;
    for (const Displacement by : displacements()) {
      // And how -G_θᵀu and Hᵀu change with x.
      const double share = displace(by);
      Point& beside = s_.beside();
      vjp_theta(beside, u, moved);
      if (inverse_.is_factored()) {
        add_to(moved, g, 1);
      } else {  // g was made of another u, which an iteration found
        vjp_theta(s_.equation(), u, rest);
        add_to(moved, rest, -1);
      }
      product(beside, true, u, other);
      add(other, image, -1);
      // Errors with the signs of u are enlarged as u was, those with the signs of a weak vector as much as can be: their sum
      // as both, with unequal weights, since equal ones would cancel where the signs disagree. What comes of x must not
      // cancel them by luck.
      for (std::size_t i = 0; i < n_; ++i) e[i] = std::copysign(r[i], u[i]);
      constexpr double of_u = 0.4, of_weak = 0.8;
      const double side = std::copysign(1, dot(e, weak));
      for (std::size_t i = 0; i < n_; ++i) e[i] = of_u * side * e[i] + of_weak * std::copysign(r[i], weak[i]);
      add(e, other, std::copysign(share, dot(e, weak) * dot(other, weak)));
      vjp_theta(at_, e, rest);
      largest = std::max(largest, norm(rest) + share * norm(moved));
    }
    return safety_of_solve() * largest;
  }

  double of_x() { return detail::norm(seen().of_x); }

  double jvp(std::span<const Array> v, ConstVector g) {
    const Vector b = vector(), image = vector(), r = vector(), next = vector();
    double solve_error = 0;
    s_.equation().jvp_theta(v, b);  // H g = -b
    product(s_.equation(), false, g, image);
    if (!inverse_.is_factored()) {
      solve_error = left_by_iteration(b, r);
    } else {
      for (std::size_t i = 0; i < n_; ++i) r[i] = -b[i] - image[i];
      raise_to_rounding(false, g, image, r);
      for (std::size_t i = 0; i < n_; ++i) r[i] = std::copysign(r[i], seen().weak_left[i]);
      precondition(false, r, roughly);
      solve_error = detail::norm(r);
    }
    // And how H g and G_θ v change with x.
    double of_x = 0;
    for (const Displacement by : displacements()) {
      const double share = displace(by);
      Point& beside = s_.beside();
      product(beside, false, g, r);
      add(r, image, -1);
      beside.jvp_theta(v, next);
      add(r, next);
      add(r, b, -1);
      precondition(false, r, roughly);
      products_ += 2;
      of_x = std::max(of_x, share * detail::norm(r));
    }
    return safety_of_solve() * (solve_error + of_x);
  }

 private:
  // An iteration is stopped where its residual is small: what it leaves may be larger elsewhere.
  double safety_of_solve() const { return inverse_.is_factored() ? safety : 8 * safety; }

  // Error estimates need few digits.
  static constexpr double roughly = 1e-3;
  void precondition(bool transposed, Vector r, double residual = 0) {
    inverse_.solve(transposed, r, residual);
    ++products_;
  }
  void product(Point& equation, bool transposed, ConstVector w, Vector out) {
    transposed && !symmetric_ ? equation.vjp_x(w, out) : equation.jvp_x(w, out);
    ++products_;
  }
  void vjp_theta(Point& p, ConstVector c, Parameters& out) {
    p.vjp_theta(c, views_.of(out));
    ++products_;
  }

  // Makes each entry of r, an error of H w or Hᵀw, as large as the sum in there is rounded: with other signs of w the same
  // terms are summed, of which then fewer may cancel. The signs of r are lost.
  void raise_to_rounding(bool transposed, ConstVector w, ConstVector image, Vector r) {
    const Vector other = copy_of(w), sizes = vector();
    change_signs(other);
    product(s_.equation(), transposed, other, sizes);
    for (std::size_t i = 0; i < n_; ++i) sizes[i] = std::max(std::fabs(sizes[i]), std::fabs(image[i]));
    enlarge(sizes, r);
  }
  static void enlarge(ConstVector sizes, Vector r) {
    for (std::size_t i = 0; i < r.size(); ++i) r[i] = std::max(std::fabs(r[i]), epsilon * std::fabs(sizes[i]));
  }
  // Also an error of G by the sums over θ, which is the same at every x.
  void raise_to_rounding_of_theta(Vector r) {
    std::vector<Array> other;
    for (const Array& a : s_.theta) {
      std::vector<double> entries(static_cast<std::size_t>(a.size()));
      flatten({&a, 1}, entries);
      change_signs(entries);
      for (double& e : entries) e = std::isfinite(e) ? e : 0;
      other.emplace_back(a.shape(), std::move(entries));
    }
    const Vector sizes = vector();
    s_.equation().jvp_theta(other, sizes);
    ++products_;
    enlarge(sizes, r);
  }
  // Random signs, but the two largest entries get opposite ones, so that the signs are not all equal.
  static void change_signs(Vector w) {
    std::size_t first = 0, second = 0;
    for (std::size_t i = 1; i < w.size(); ++i) {
      if (std::fabs(w[i]) > std::fabs(w[first]))
        second = std::exchange(first, i);
      else if (second == first || std::fabs(w[i]) > std::fabs(w[second]))
        second = i;
    }
    for (std::size_t i = 0; i < w.size(); ++i) w[i] *= i == first ? -1 : i == second ? 1 : random_sign(i);
  }

  // The error of an iterative solve of H z = q, by a second solve for the residual. (A right-hand side made from a known
  // solution tells nothing: the iteration misses the same components of both.) q itself was rounded: the correction f lies
  // where H⁻¹ is large, so that an error of q which does not cancel there becomes ‖f‖ Σ |fᵢ| ε|qᵢ| / fᵀHf.
  double left_by_iteration(ConstVector q, Vector f) {
    const Vector z = copy_of(q), image = vector();
    precondition(false, z);
    product(s_.equation(), false, z, image);
    for (std::size_t i = 0; i < n_; ++i) f[i] = q[i] * (1 + (i % 2 == 0 ? epsilon : -epsilon)) - image[i];
    precondition(false, f, roughly);
    product(s_.equation(), false, f, image);
    const double length = detail::norm(f), along_f = enlarged(f, image, 0, q);
    // The residual may have less than its rounding along the vector that H shortens most, where no solve of it would look.
    const ConstVector weak = seen().weak_right;
    const Vector left = copy_of(q);
    product(s_.equation(), false, z, image);
    add(left, image, -1);
    product(s_.equation(), false, weak, image);
    return length + std::max(along_f, enlarged(weak, image, dot(weak, left), q));
  }
  // What an error of q by its rounding, and by `more` along w, becomes in H⁻¹q along w.
  static double enlarged(ConstVector w, ConstVector Hw, double more, ConstVector q) {
    const double curvature = dot(w, Hw);
    double against = std::fabs(more);
    for (std::size_t i = 0; i < w.size(); ++i) against += std::fabs(w[i]) * epsilon * std::fabs(q[i]);
    return curvature > 0 ? detail::norm(w) * against / curvature : 0;
  }

  // What does not depend on a direction, once for each solve.
  const RoundingSeen& seen() {
    RoundingSeen& seen = s_.rounding;
    if (seen.is_known) return seen;
    find_weak(seen);
    const ConstVector of_g = seen_beside_x();
    seen.of_x.assign(of_g.begin(), of_g.end());
    for (std::size_t i = 0; i < n_; ++i) seen.of_x[i] = std::copysign(seen.of_x[i], seen.weak_left[i]);
    precondition(false, seen.of_x, roughly);
    seen.is_known = true;
    return seen;
  }

  // The sizes of the rounding errors of G, seen at a point beside x_k. The displacement is x_k with other signs, made
  // smaller, so that H times it tells the sizes of the terms as well.
  ConstVector seen_beside_x() {
    constexpr double nearby = 1e-9, least = 1e-3, far_more = 4;
    const std::vector<double>& x_k = s_.run.x;
    const double smallest = least * detail::norm(x_k) / std::sqrt(static_cast<double>(n_));
    const Vector by = copy_of(x_k), x = vector(), e = vector(), image = vector(), again = vector();
    for (double& entry : by) entry = nearby * std::copysign(std::max(std::fabs(entry), smallest), entry);
    change_signs(by);
    for (std::size_t i = 0; i < n_; ++i) x[i] = x_k[i] + by[i], by[i] = x[i] - x_k[i];
    product(s_.equation(), false, by, image);
    const auto see = [&](double times, Vector seen) {
      for (std::size_t i = 0; i < n_; ++i) x[i] = x_k[i] + times * by[i];
      s_.beside().apply(x, {}, seen);
      add(seen, s_.residual(), -1);
      add(seen, image, -times);
    };
    see(1, e);
    // Where terms cancel inside G, one sample is not relied upon: for a few unknowns it may be small by luck.
    s_.rounding.terms_cancel = detail::norm(e) > far_more * epsilon / nearby * detail::norm(image);
    if (s_.rounding.terms_cancel)
      for (const double times : {-2.0, 4.0}) {
        see(times, again);
        for (std::size_t i = 0; i < n_; ++i) e[i] = std::max(std::fabs(e[i]), std::fabs(again[i]));
      }
    for (double& entry : image) entry /= nearby;
    enlarge(image, e);
    raise_to_rounding_of_theta(e);
    return e;
  }

  // Vectors that H and Hᵀ shorten most.
  void find_weak(RoundingSeen& seen) {
    seen.weak_right.resize(n_);
    fill_random(seen.weak_right);
    precondition(false, seen.weak_right, roughly);
    seen.weak_left = seen.weak_right;
    if (!symmetric_) precondition(true, seen.weak_left, roughly);
  }

  // How the equation is looked at where x is off. By as much as it may be: by what rounding of G makes of it, by rounding of
  // its own entries, with signs that leave differences of large entries no accuracy either, and by the next step, which may
  // be shorter than rounding in the entries that rounding moves most, and longer in others; where derivatives are steep, a
  // longer displacement would leave the range in which they are, and tell nothing about them. But where terms cancel inside
  // the equation, their rounding may hide displacements of that size: then by far more, too, and by extrapolation.
  enum class Displacement : std::uint8_t { as_it_may_be, far };
  static constexpr Displacement both[] = {Displacement::as_it_may_be, Displacement::far};
  std::span<const Displacement> displacements() {
    constexpr double usual = 1e-13;  // relative to x
    const bool may_hide = seen().terms_cancel && detail::norm(seen().of_x) > usual * detail::norm(s_.run.x);
    return std::span(both).first(may_hide ? 2 : 1);
  }
  // Returns the share of what is seen there that x may be off by.
  double displace(Displacement by) {
    constexpr double own = 4 * epsilon, samples = 2;  // of rounding, which may be small by luck
    constexpr double far = 1e-5;                      // relative to x
    if (beside_x_.empty()) beside_x_ = vector(), beside_G_ = vector();
    const Vector x = beside_x_;
    const std::vector<double>&x_k = s_.run.x, &of_x = seen().of_x;
    const double size = detail::norm(of_x), length = far * detail::norm(x_k);
    std::ranges::copy(x_k, x.begin());
    double share = 1;
    if (by == Displacement::far) {
      if (size > 0 && std::isfinite(size)) add(x, of_x, length / size);
      share = size / length;
    } else {
      change_signs(x);
      for (std::size_t i = 0; i < n_; ++i) x[i] = x_k[i] + own * x[i];
      if (std::isfinite(size)) add(x, of_x, samples);
      if (s_.refinement && s_.refinement->stages().size() == 1) {
        add(x, s_.next());
        add(x, x_k, -1);
      }
    }
    s_.beside().apply(x, {}, beside_G_);
    products_ += 2;
    return share;
  }

  // Memory that is kept from one measurement to the next.
  Vector vector() { return Vector(s_.for_rounding).subspan(n_ * used_++, n_); }
  Vector copy_of(ConstVector v) {
    const Vector copy = vector();
    std::ranges::copy(v, copy.begin());
    return copy;
  }
  static constexpr std::size_t most_vectors = 20;

  SolutionState& s_;
  std::size_t n_, used_ = 0;
  bool symmetric_;
  int& products_;
  Point& at_;
  Inverse& inverse_;
  Vector beside_x_, beside_G_;
  Views views_;
};

}  // namespace

bool measures_rounding(const SolutionState& s) {
  return s.method->equation && !s.method->users_equation && s.loop->last().inverse() != nullptr &&
         s.method->equation->no_jvp.empty();
}
double rounding_of_x(SolutionState& s, int& products) { return Rounding(s, products).of_x(); }
double rounding_of_vjp(SolutionState& s, ConstVector v, const Parameters& g, int& products) {
  return measures_rounding(s) ? Rounding(s, products).vjp(v, g) : 0;
}
double rounding_of_jvp(SolutionState& s, std::span<const Array> v, ConstVector g, int& products) {
  return measures_rounding(s) ? Rounding(s, products).jvp(v, g) : 0;
}

}  // namespace onestep::detail
