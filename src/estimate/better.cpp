// GMRES within a budget of products, and what its vectors show of the sizes of (I - A)⁻¹ and B.
#include "estimate/better.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "estimate/certify.h"
#include "estimate/units.h"
#include "linear/random.h"

namespace onestep::detail {
namespace {

constexpr double inverse_safety = 2;  // factor on ‖(I - A)⁻¹‖, which GMRES underestimates
// What the linear solve leaves may change the derivative by this fraction of what was found; a larger one counts for more.
constexpr double enough = 0.5, tail_safety = 4;
constexpr double looked_into = 0.05;
constexpr int most_products = 2000;  // of the linear solve to 1e-3
constexpr int most_beyond = 10;      // products beyond that, unless the step has kinks
// Up to this size a solve for a tangent is made to its end: the matrix of a step that is not normal may enlarge any residual
// that is left by far more than a few vectors show, and the tangent itself is the only part of J to compare with.
constexpr std::size_t solved_to_the_end = 16;

constexpr double far_apart = 1e-5;  // ratio of sizes of entries below which extra products test the effect of units

}  // namespace

BetterSystem::BetterSystem(SolutionState& s, int& products) : s_(s), products_(products) {
  inverse_ = std::max(s.refinement->inverse(), s.seen_inverse);
  if (!s.method->superlinear) inverse_ = std::max(inverse_, s.run.slowness);
}

double BetterSystem::inverse() const {
  const double given = s_.method->known.rho;
  const double seen = inverse_safety * inverse_;
  return given >= 0 && given < 1 ? std::min(seen, 1 / (1 - given)) : seen;
}

void BetterSystem::note_inverse(double seen) {
  inverse_ = std::max(inverse_, seen);
  if (!in_units_) s_.note_inverse(inverse_);
}
void BetterSystem::note_size_of_b(double seen) { size_of_b_ = std::max(size_of_b_, seen); }

bool BetterSystem::begin(const Product& M, ConstVector b, std::vector<double>& x, std::vector<double>& r) const {
  if (!s_.method->superlinear && s_.last_adjoint.is_of(b)) {
    x = s_.last_adjoint.u;
    M(x, r);
    const double along = dot(r, b), square = dot(r, r);
    const double factor = square > 0 ? along / square : 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] *= factor;
      r[i] = b[i] - factor * r[i];
    }
    if (norm(r) < 0.5 * norm(b)) return true;
    std::ranges::copy(b, x.begin());
  }
  M(x, r);
  for (std::size_t i = 0; i < x.size(); ++i) r[i] = b[i] - r[i];
  return false;
}

// Of a jvp, in the units of its entries; cotangents have others.
double BetterSystem::solve(bool transposed, const Product& M, ConstVector b, std::vector<double>& x, std::vector<double>& r,
                           bool is_solved_already, int to_come, const std::function<double()>& compare) {
  const bool has_factor = s_.differentiator->factor_of() == Differentiator::FactorOf::step;
  if (transposed || s_.method->superlinear || has_factor || !(StateUnits::differ(s_.run.x) || StateUnits::differ(x))) {
    const double difference = solve_as_it_is(transposed, M, b, x, r, is_solved_already, to_come, compare);
    left_ = norm(r);
    return difference;
  }
  const std::size_t n = x.size();
  std::vector<double> in_units(n), its_b(n), its_x(n), its_r(n);
  StateUnits units;
  units.find(s_.run, {x, b});
  units.divide(b, its_b);
  units.divide(x, its_x);
  units.divide(r, its_r);
  const Product its_M = [&](ConstVector v, Vector out) {
    units.multiply(v, in_units);
    M(in_units, out);
    units.divide(out, out);
  };
  in_units_ = true;
  const double difference = solve_as_it_is(transposed, its_M, its_b, its_x, its_r,
                                           is_solved_already && norm(its_r) <= 1e-3 * norm(its_b), to_come, [&] {
                                             units.multiply(its_x, x);
                                             return compare();
                                           });
  in_units_ = false;
  units.multiply(its_x, x);
  units.multiply(its_r, r);
  left_ = norm(its_r);
  return difference;
}

double BetterSystem::solve_as_it_is(bool transposed, const Product& M, ConstVector b, std::vector<double>& x,
                                    std::vector<double>& r, bool is_solved_already, int to_come,
                                    const std::function<double()>& compare) {
  constexpr double first = 1e-3;
  const double size = norm(b), rounding = 1e-15 * (size + norm(x));
  LinearSystem system;
  system.product = M;
  const bool has_factor = look_for_inverse(system, to_come) == Differentiator::FactorOf::step;
  if (has_factor) system.precondition = [&](Vector w) { s_.differentiator->solve_by_factor(transposed, w); };
  double left = norm(r), difference = is_solved_already || left <= rounding ? compare() : 0;
  bool is_rough = !is_solved_already;
  // A residual in one unit may be enlarged in another by their ratio: a few products at the end tell.
  constexpr int few = 3;
  constexpr double roughly = 0.1;
  const bool looks_at_units =
      !s_.method->superlinear && (StateUnits::differ(s_.run.x, far_apart) || StateUnits::differ(x, far_apart));
  if (looks_at_units) to_come += few;
  constexpr int of_superlinear = 2;  // A is almost zero: one product leaves its square
  int spare = s_.method->superlinear ? of_superlinear : most_beyond - products_ - to_come;
  if (!transposed && !s_.method->superlinear && x.size() <= solved_to_the_end)
    spare = std::max(spare, static_cast<int>(x.size()) + 1);
  int most = most_products;
  Gmres gmres;
  std::vector<double> base, z(x.size());
  for (bool goes_on = false; left > rounding;) {
    const double effect = effect_of(left);
    if (!is_rough && (effect <= std::max(enough * difference, negligible_) || spare < 2)) break;
    const double target = is_rough ? first * size : left * std::clamp(0.5 * enough * ratio(difference, effect), 1e-4, 0.3);
    if (!goes_on) {
      gmres.begin(r);
      base = x;
    }
    const int made = gmres.run(system, target, is_rough ? most : spare - 1);
    if (!has_factor) {
      note_inverse(gmres.inverse());
      s_.repels = s_.repels || gmres.has_negative_eigenvalue();
    }
    gmres.solution(system, z);
    x = base;
    add(x, z);
    M(x, r);
    for (std::size_t i = 0; i < x.size(); ++i) r[i] = b[i] - r[i];
    const double before = std::exchange(left, norm(r));
    difference = compare();
    most -= made + 1;
    if (!is_rough) spare -= made + 1;
    is_rough = is_rough && left > first * size && most > 0;
    goes_on = !gmres.exhausted() && left <= 2 * gmres.residual();
    if (!goes_on && !(left < 0.5 * before)) break;
  }
  const int for_units = std::min(few, most_beyond - products_ - to_come + few);
  if (looks_at_units && left > rounding && for_units > 0) {
    gmres.begin(r);
    gmres.run(system, roughly * left, for_units);
    gmres.solution(system, z);
    if (all_finite(z)) note_inverse(norm(z) / left);
  }
  if (!s_.method->superlinear && !(left <= 0.1 * size || left <= 1e3 * rounding))
    trouble_ = fmt::format(
        "the linear system with I - A was solved to a relative residual of {:.1e} only: the solution may not be unique",
        left / size);
  note_inverse(ratio(norm(x), size));
  return difference;
}

bool BetterSystem::matters(double left, double difference) const {
  return effect_of(left) > std::max(looked_into * difference, negligible_);
}

bool BetterSystem::affords(int to_come) const { return s_.method->superlinear || products_ + to_come <= most_beyond; }

// Where the products did not suffice to make it small, what they told about ‖(I - A)⁻¹‖ is not worth much.
double BetterSystem::tail(double left, double difference) const {
  const double effect = effect_of(left);
  return effect <= enough * difference ? effect : tail_safety * effect;
}

// ‖(I - A)⁻¹‖ as far as the direction that is certified does not tell: by power iteration with the estimator's factor; that
// of the equation leads to a vector which I - A shortens too. Else by a few products with a random vector.
Differentiator::FactorOf BetterSystem::look_for_inverse(const LinearSystem& system, int to_come) {
  using FactorOf = Differentiator::FactorOf;
  constexpr int iterations = 7;
  if (s_.method->superlinear) return FactorOf::nothing;
  const FactorOf of = s_.differentiator->factor_of();
  if (of == FactorOf::nothing) {
    // The solve tells, unless it made too few steps. A small state is seen in all its directions.
    constexpr int few = 4, needed = 2;
    const int spare = most_beyond - products_ - to_come - needed;
    if ((in_units_ || !s_.probed) && (s_.run.slowness == 0 || s_.size() <= few)) {
      const double seen = s_.seen_inverse;
      const bool probed = s_.probed;
      inverse_ = std::max(inverse_, probe_inverse(s_, system, std::min(few, spare)));
      if (in_units_) s_.seen_inverse = seen, s_.probed = probed;  // other directions have other units
    }
    inverse_ = std::max(inverse_, s_.seen_inverse);
    return of;
  }
  std::vector<double> y(s_.size()), image(s_.size());
  fill_random(y);
  for (int k = 0; k < iterations; ++k) {
    const double size = norm(y);
    if (!(size > 0 && std::isfinite(size))) break;
    for (double& e : y) e /= size;
    s_.differentiator->solve_by_factor(k % 2 == 1, y);
    if (of == FactorOf::step) note_inverse(norm(y));
  }
  if (of == FactorOf::step) {
    constexpr int solves = 12;
    LinearSystem of_inverse;
    of_inverse.product = [&](ConstVector v, Vector out) {
      std::ranges::copy(v, out.begin());
      s_.differentiator->solve_by_factor(false, out);
    };
    Gmres gmres;
    fill_random(y);
    gmres.begin(y);
    gmres.run(of_inverse, 0.1 * norm(y), solves);
    s_.repels = s_.repels || gmres.has_negative_eigenvalue();
  }
  if (of == FactorOf::equation && all_finite(y)) {
    system.product(y, image);
    note_inverse(ratio(norm(y), norm(image)));
  }
  return of;
}

}  // namespace onestep::detail
