// The gradient checker for steps: jvp against differences, jvp against vjp, parts against the whole.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "check/differences.h"
#include "onestep/check_gradients.h"
#include "onestep/estimate.h"
#include "solve/recipe.h"

namespace onestep {
namespace {

using Arrays = std::vector<Array>;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

/// What is checked, from callbacks or from a solver's step.
struct Callbacks {
  std::function<Values(const Values& x, const Arrays& theta)> apply;
  /// Empty dx or dθ: zero. None: there is no jvp.
  std::function<Values(const Values& dx, const Arrays& dtheta)> jvp;
  /// x̄ and θ̄ one behind the other, those that are wanted. None: there is no vjp.
  std::function<Values(const Values& c, bool of_x, bool of_theta)> vjp;
};

Values joined(const Arrays& arrays) {
  std::vector<Shape> shapes;
  for (const Array& a : arrays) shapes.push_back(a.shape());
  Values flat(detail::flat_size(shapes));
  detail::flatten(arrays, flat);
  return flat;
}

class StepChecker {
 public:
  StepChecker(const Callbacks& step, Values x, Arrays theta, const GradientCheckOptions& options)
      : step_(step), x_(std::move(x)), theta_(std::move(theta)), options_(options), random_(options.seed) {
    if (!(options.tolerance > 0) || !(options.rounding > 0))
      throw MisuseError(fmt::format("[check_gradients] tolerance {} and rounding {} must be above 0", options.tolerance,
                                    options.rounding));
    if (!step.jvp && !step.vjp) throw MisuseError("[check_gradients] the step has neither jvp nor vjp");
    dx_ = random_like(x_.size());
    for (const Array& t : theta_) dtheta_.emplace_back(t.shape(), random_like(static_cast<std::size_t>(t.size())));
    c_ = random_like(x_.size());
  }

  std::vector<GradientComparison> run() {
    const Values flat_dtheta = joined(dtheta_);
    const Values by_x = differentiate([&](double t) { return step_.apply(moved(x_, dx_, t), theta_); });
    const Values by_theta = differentiate([&](double t) { return step_.apply(x_, moved(theta_, t)); });
    const double floor = 1e-3 * largest(step_.apply(x_, theta_));
    if (step_.jvp) {
      const Values a = step_.jvp(dx_, {}), b = step_.jvp({}, dtheta_), both = step_.jvp(dx_, dtheta_);
      compare("jvp in x = differences", a, by_x, floor, options_.tolerance);
      compare("jvp in θ = differences", b, by_theta, floor, options_.tolerance);
      Values sum = a;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
      compare("jvp in x and θ = the sum of both", both, sum, floor, options_.rounding);
    }
    if (step_.vjp) {
      const Values x_bar = step_.vjp(c_, true, false), theta_bar = step_.vjp(c_, false, true);
      Values all = x_bar;
      all.insert(all.end(), theta_bar.begin(), theta_bar.end());
      compare("vjp in x and θ = each alone", step_.vjp(c_, true, true), all, 0, options_.rounding);
      const Values a = step_.jvp ? step_.jvp(dx_, {}) : by_x, b = step_.jvp ? step_.jvp({}, dtheta_) : by_theta;
      const double allowed = step_.jvp ? options_.rounding : options_.tolerance;
      const char* name = step_.jvp ? "jvp" : "differences";
      compare_products(fmt::format("⟨c, {} in x⟩ = ⟨vjp(c), dx⟩", name), c_, a, x_bar, dx_, floor, allowed);
      compare_products(fmt::format("⟨c, {} in θ⟩ = ⟨vjp(c), dθ⟩", name), c_, b, theta_bar, flat_dtheta, floor, allowed);
    }
    return std::move(found_);
  }

 private:
  Values random_like(std::size_t n) {
    Values entries(n);
    // Not std::uniform_real_distribution, whose numbers differ between standard libraries.
    for (double& e : entries) e = 2.0 * static_cast<double>(random_() >> 11) * 0x1p-53 - 1.0;
    return entries;
  }
  static Values moved(Values x, const Values& d, double t) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += t * d[i];
    return x;
  }
  Arrays moved(const Arrays& theta, double t) const {
    Arrays result;
    for (std::size_t i = 0; i < theta.size(); ++i)
      result.emplace_back(theta[i].shape(), moved(joined({theta[i]}), joined({dtheta_[i]}), t));
    return result;
  }
  static double largest(const Values& v) {
    double m = 0;
    for (const double e : v)
      if (std::isfinite(e)) m = std::max(m, std::fabs(e));
    return m;
  }
  void compare(std::string claim, const Values& a, const Values& b, double floor, double tolerance) {
    GradientComparison c{std::move(claim), 0, tolerance, ""};
    const double scale = std::max({largest(a), largest(b), floor, std::numeric_limits<double>::min()});
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double error = std::fabs(a[i] - b[i]) / scale;
      if (error <= c.error) continue;
      c.error = error;
      c.detail = fmt::format("at entry {} of {}: {} and {}", i, a.size(), a[i], b[i]);
      if (std::isnan(error)) break;
    }
    if (c.ok()) c.detail.clear();
    found_.push_back(std::move(c));
  }
  // ⟨c, a⟩ = ⟨b, d⟩, relative to the sum of what is added up.
  void compare_products(std::string claim, const Values& c, const Values& a, const Values& b, const Values& d, double floor,
                        double tolerance) {
    double left = 0, right = 0, scale = floor;
    for (std::size_t i = 0; i < c.size(); ++i) left += c[i] * a[i], scale += std::fabs(c[i] * a[i]);
    for (std::size_t i = 0; i < b.size(); ++i) right += b[i] * d[i], scale += std::fabs(b[i] * d[i]);
    GradientComparison found{std::move(claim), left == right ? 0.0 : std::fabs(left - right) / scale, tolerance, ""};
    if (!found.ok()) found.detail = fmt::format("{} and {}", left, right);
    found_.push_back(std::move(found));
  }

  const Callbacks& step_;
  Values x_, dx_, c_;
  Arrays theta_, dtheta_;
  GradientCheckOptions options_;
  std::mt19937_64 random_;
  std::vector<GradientComparison> found_;
};

std::vector<detail::Vector> spans_of(std::vector<Values>& parts) { return {parts.begin(), parts.end()}; }

// Memory for θ̄, full of NaN: what is only added to, or not written, shows.
std::vector<Values> unwritten(const Arrays& theta) {
  std::vector<Values> memory;
  for (const Array& t : theta) memory.emplace_back(static_cast<std::size_t>(t.size()), nan_value);
  return memory;
}

}  // namespace

GradientCheck check_gradients(const ForeignStep& step, const Parts& x, const Parts& theta,
                              const GradientCheckOptions& options) {
  if (!step.apply) throw MisuseError("[check_gradients] a foreign step needs its apply callback");
  const Values at = joined({x.begin(), x.end()});
  const Arrays thetas(theta.begin(), theta.end());
  Callbacks callbacks;
  callbacks.apply = [&](const Values& from, const Arrays& t) {
    Values next(from.size(), nan_value);
    step.apply(from, t, next);
    return next;
  };
  if (step.jvp)
    callbacks.jvp = [&](const Values& dx, const Arrays& dtheta) {
      Values out(at.size(), nan_value);
      step.jvp(at, thetas, dx, dtheta, out);
      return out;
    };
  if (step.vjp)
    callbacks.vjp = [&](const Values& c, bool of_x, bool of_theta) {
      Values all(of_x ? at.size() : 0, nan_value);
      std::vector<Values> memory = of_theta ? unwritten(thetas) : std::vector<Values>();
      const std::vector<detail::Vector> spans = spans_of(memory);
      step.vjp(at, thetas, c, all, spans);
      for (const Values& part : memory) all.insert(all.end(), part.begin(), part.end());
      return all;
    };
  return GradientCheck(StepChecker(callbacks, at, thetas, options).run());
}

GradientCheck check_gradients(const Solver& solver, const Parts& x, const Parts& theta,
                              const GradientCheckOptions& options) {
  const Arrays parts(x.begin(), x.end()), thetas(theta.begin(), theta.end());
  std::vector<Shape> shapes;
  for (const Array& t : thetas) shapes.push_back(t.shape());
  const std::shared_ptr<const detail::Method> method = detail::recipe_of(solver).ready(&x, shapes).method;
  const detail::Map& map = *method->step;
  const Values at = joined(parts);
  // The controls are those of a solve that begins here.
  const std::unique_ptr<detail::Loop> loop = method->loop();
  detail::Run run;
  run.start = run.x = run.previous = at;
  SolveOptions one_step = detail::recipe_of(solver).options;
  one_step.max_iterations = 1;
  one_step.callback = nullptr;
  one_step.log = nullptr;
  loop->solve(thetas, one_step, run);
  const std::unique_ptr<detail::Point> point = map.point(true), other = map.point(false);
  Values next(at.size());
  point->bind(thetas);
  point->apply(at, run.controls, next);
  Callbacks callbacks;
  callbacks.apply = [&](const Values& from, const Arrays& t) {
    Values result(from.size());
    other->bind(t);
    other->apply(from, run.controls, result);
    return result;
  };
  if (map.no_jvp.empty())
    callbacks.jvp = [&](const Values& dx, const Arrays& dtheta) {
      Values out(at.size()), more(at.size());
      if (!dx.empty()) point->jvp_x(dx, out);
      if (!dtheta.empty()) point->jvp_theta(dtheta, more);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += more[i];
      return out;
    };
  if (map.no_vjp.empty())
    callbacks.vjp = [&](const Values& c, bool of_x, bool of_theta) {
      Values all(of_x ? at.size() : 0);
      if (of_x) point->vjp_x(c, all);
      if (!of_theta) return all;
      std::vector<Values> memory = unwritten(thetas);
      point->vjp_theta(c, spans_of(memory));
      for (const Values& part : memory) all.insert(all.end(), part.begin(), part.end());
      return all;
    };
  return GradientCheck(StepChecker(callbacks, at, thetas, options).run());
}

}  // namespace onestep
