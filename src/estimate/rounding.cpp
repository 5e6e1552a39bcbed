// Rounding in derivatives of superlinear steps, measured by solves with known answers and by displacing x_k.
#include <algorithm>
#include <cmath>

#include "estimate/certify.h"

namespace onestep::detail {
namespace {

constexpr double epsilon = std::numeric_limits<double>::epsilon();
constexpr double safety = 4;
constexpr double displacement = 1e-5;  // relative to x

double ratio(double a, double b) { return a == 0 ? 0 : a / b; }

class Rounding {
 public:
  Rounding(SolutionState& s, int& products) : s_(s), n_(s.size()), products_(products), at_(s.here()) {}

  static bool is_measured(const SolutionState& s) {
    const Map& step = *s.method->step;
    return s.method->equation && !s.method->users_equation && (step.preconditions || step.iterates) &&
           s.method->equation->no_jvp.empty();
  }

  // The residual of Hᵀu = v and its effect on the derivative by θ; then how -G_θᵀu and Hᵀu change when x is displaced.
  double vjp(ConstVector v) {
    const bool symmetric = s_.method->equation->symmetric;
    std::vector<double> u(n_), r(n_), product(n_);
    Parameters rest = memory_for(s_.method->step->parameters), moved = rest;
    double left = 0;
    const double solve_error = largest_sample(v, [&](ConstVector sample) {
      std::ranges::copy(sample, u.begin());
      at_.precondition(true, u);
      symmetric ? s_.equation().jvp_x(u, product) : s_.equation().vjp_x(u, product);
      for (std::size_t i = 0; i < n_; ++i) r[i] = sample[i] - product[i];
      left = std::max(left, ratio(detail::norm(r), detail::norm(sample)));
      vjp_theta(at_, r, rest);
      return norm(rest);
    });
    Point& beside = displaced(u);
    vjp_theta(beside, u, moved);
    vjp_theta(s_.equation(), u, rest);
    add_to(moved, rest, -1);
    symmetric ? beside.jvp_x(u, r) : beside.vjp_x(u, r);
    add(r, product, -1);
    vjp_theta(at_, r, rest);
    add_to(moved, rest);
    return safety_of_solve() * (solve_error + rounding_of_x(std::max(epsilon, left)) * norm(moved));
  }

  // The error of a solve of H ẋ = b with b made from a known ẋ; then how H ẋ and G_θ v change when x is displaced.
  double jvp(std::span<const Array> v, ConstVector g) {
    std::vector<double> r(n_), next(n_);
    const auto of_a_sample = [&](ConstVector sample) {
      s_.equation().jvp_x(sample, r);
      at_.precondition(false, r);
      add(r, sample, -1);
      return detail::norm(r);
    };
    const double solve_error = s_.method->step->iterates ? left_by_iteration(v, r) : largest_sample(g, of_a_sample);
    std::ranges::copy(g, r.begin());
    at_.precondition(false, r);
    Point& beside = displaced(r);
    beside.jvp_x(g, r);
    s_.equation().jvp_x(g, next);
    add(r, next, -1);
    beside.jvp_theta(v, next);
    add(r, next);
    s_.equation().jvp_theta(v, next);
    add(r, next, -1);
    at_.precondition(false, r);
    const double relative = std::max(epsilon, ratio(solve_error, detail::norm(g)));
    return safety_of_solve() * (solve_error + rounding_of_x(relative) * detail::norm(r));
  }

 private:
  // An iteration is sampled once only.
  double safety_of_solve() const { return s_.method->step->iterates ? 4 * safety : safety; }

  void vjp_theta(Point& p, ConstVector c, Parameters& out) {
    p.vjp_theta(c, std::vector<Vector>(out.begin(), out.end()));
    ++products_;
  }

  // Rounding errors of a single solve may be small by luck. The same right-hand side times a few factors rounds differently
  // each time; the largest error counts, and the factor 1 comes last. Where each solve is an iteration, one has to suffice.
  template <class Error> double largest_sample(ConstVector of, const Error& error) {
    constexpr double factors[] = {1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 11, 1};
    double largest = 0;
    std::vector<double> sample(of.size());
    for (const double factor : factors) {
      if (factor != 1 && s_.method->step->iterates) continue;
      std::ranges::transform(of, sample.begin(), [&](double e) { return factor * e; });
      largest = std::max(largest, error(sample) / factor);
      ++products_;
    }
    return largest;
  }

  // The error of an iterative solve of H z = q = G_θ v, by a second solve for the residual. (A right-hand side made from a
  // known solution tells nothing: the iteration misses the same components of both.) q itself was rounded: the correction f
  // lies where H⁻¹ is large, so that an error of q which does not cancel there becomes ‖f‖ Σ |fᵢ| ε|qᵢ| / fᵀHf.
  double left_by_iteration(std::span<const Array> v, std::vector<double>& f) {
    std::vector<double> q(n_), z(n_), product(n_);
    s_.equation().jvp_theta(v, q);
    z = q;
    at_.precondition(false, z);
    s_.equation().jvp_x(z, product);
    for (std::size_t i = 0; i < n_; ++i) f[i] = q[i] * (1 + (i % 2 == 0 ? epsilon : -epsilon)) - product[i];
    at_.precondition(false, f);
    s_.equation().jvp_x(f, product);
    products_ += 3;
    const double length = detail::norm(f), curvature = dot(f, product);
    double against = 0;
    for (std::size_t i = 0; i < n_; ++i) against += std::fabs(f[i]) * epsilon * std::fabs(q[i]);
    return length + (curvature > 0 ? length * against / curvature : 0);
  }

  // The effect of an error of x on the derivative is observed by displacing x_k along a direction in which H⁻¹ is large.
  Point& displaced(ConstVector direction) {
    beside_ = s_.method->equation->point(true);
    beside_->bind(s_.theta);
    std::vector<double> x = s_.run.x, y(n_);
    const double size = detail::norm(direction);
    if (size > 0) add(x, direction, displacement * detail::norm(s_.run.x) / size);
    beside_->apply(x, {}, y);
    products_ += 4;
    return *beside_;
  }
  // The factor 8: the gradient sums larger terms than a product with the matrix does, and is rounded accordingly.
  static double rounding_of_x(double relative) { return 8 * relative / displacement; }

  SolutionState& s_;
  std::size_t n_;
  int& products_;
  Point& at_;
  std::unique_ptr<Point> beside_;
};

}  // namespace

double norm(const Parameters& p) {
  double size = 0;
  for (const auto& part : p) size = std::hypot(size, detail::norm(ConstVector(part)));
  return size;
}
void add_to(Parameters& to, const Parameters& what, double factor) {
  for (std::size_t i = 0; i < to.size(); ++i) add(to[i], what[i], factor);
}

double rounding_of_vjp(SolutionState& s, ConstVector v, int& products) {
  return Rounding::is_measured(s) ? Rounding(s, products).vjp(v) : 0;
}
double rounding_of_jvp(SolutionState& s, std::span<const Array> v, ConstVector g, int& products) {
  return Rounding::is_measured(s) ? Rounding(s, products).jvp(v, g) : 0;
}

}  // namespace onestep::detail
