// The gradient checker. Every derivative is traced as a function of (inputs, v, w, u), run by the plan and by the naive
// interpreter, and compared with extrapolated differences of the function one order below.
#include "onestep/check_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <ostream>
#include <random>

#include "backend/naive/interpret.h"
#include "check/differences.h"
#include "graph/graph.h"
#include "onestep/diff.h"
#include "onestep/plan.h"

namespace onestep {

bool GradientCheck::ok() const {
  return std::ranges::all_of(comparisons_, [](const GradientComparison& c) { return c.ok(); });
}

std::string GradientCheck::message() const {
  std::string text;
  for (const GradientComparison& c : comparisons_)
    text += fmt::format("{} {}: error {:.1e}, tolerance {:.1e}{}{}\n", c.ok() ? "ok    " : "FAILED", c.claim, c.error,
                        c.tolerance, c.detail.empty() ? "" : "; ", c.detail);
  return text;
}

std::ostream& operator<<(std::ostream& out, const GradientCheck& check) { return out << check.message(); }

namespace {

using Exprs = std::vector<Expr>;
using Arrays = std::vector<Array>;

// Several arrays as one vector.
Values flatten(std::span<const Array> arrays) {
  Values all;
  for (const Array& a : arrays) {
    const Array dense = a.contiguous();
    all.insert(all.end(), dense.values().begin(), dense.values().end());
  }
  return all;
}

// Of the finite entries: a scale for the others.
double largest(const Values& values) {
  double m = 0;
  for (const double v : values)
    if (std::isfinite(v)) m = std::max(m, std::fabs(v));
  return m;
}

double dot(const Values& a, const Values& b) {
  long double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) total += static_cast<long double>(a[i]) * b[i];
  return static_cast<double>(total);
}

double dot_of_sizes(const Values& a, const Values& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) total += std::fabs(a[i] * b[i]);
  return total;
}

Expr inner(const Exprs& a, const Exprs& b) {
  Expr total = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) total = total + sum(a[i] * b[i]);
  return total;
}

class Checker {
 public:
  Checker(const Function& f, std::span<const Array> inputs, const GradientCheckOptions& options);
  std::vector<GradientComparison> run();

 private:
  // The expressions a derivative may use.
  struct Scene {
    Exprs x, moving, v, w, u, y;
    Exprs vjp() const { return onestep::vjp(y, moving, u); }
    Exprs jvp() const { return onestep::jvp(y, moving, v); }
    // Σ uᵢ ∇²yᵢ v
    Exprs second() const { return onestep::jvp(vjp(), moving, v); }
    Exprs gradient(const Expr& e) const { return grad(e, moving); }
  };

  Function derivative(const std::function<Exprs(const Scene&)>& body) const;
  Arrays arguments(std::span<const Array> x, const Arrays& v, const Arrays& w) const;
  Arrays random_like(std::span<const Shape> shapes);
  Values moved(const Function& g, const Arrays& along, double t) const;

  // The planned run, after comparing it with the naive interpreter.
  Values value(const std::string& what, const Function& g, const Arrays& v, const Arrays& w);
  void compare(std::string claim, const Values& a, const Values& b, double floor, double tolerance);
  void compare_with_differences(const std::string& claim, const Values& a, const Function& g, const Arrays& along);
  void compare_numbers(std::string claim, double a, double b, double scale);

  void first_order();
  void second_order();
  void third_order();
  void errors();
  void expect_same_error(const std::string& claim, const std::function<Arrays(Arrays)>& spoil);

  const Function& f_;
  Arrays inputs_;
  GradientCheckOptions options_;
  std::mt19937_64 random_;
  std::vector<std::size_t> moving_;
  Arrays v_, w_, u_;
  std::vector<GradientComparison> found_;
  // Kept from one order to the next: the scale of the order below, and the functions differences are taken of.
  std::optional<Function> vjp_, jvp_, second_;
  Values gradient_, second_value_;
};

Checker::Checker(const Function& f, std::span<const Array> inputs, const GradientCheckOptions& options)
    : f_(f), inputs_(inputs.begin(), inputs.end()), options_(options), random_(options.seed) {
  if (options.order < 1 || options.order > 3)
    throw MisuseError(fmt::format("[check_gradients] order {} is not 1, 2 or 3", options.order));
  if (!(options.tolerance > 0) || !(options.rounding > 0))
    throw MisuseError(
        fmt::format("[check_gradients] tolerance {} and rounding {} must be above 0", options.tolerance, options.rounding));
  if (!options.differentiable.empty() && options.differentiable.size() != f.inputs().size())
    throw MisuseError(fmt::format("[check_gradients] {} entries of differentiable for {} inputs",
                                  options.differentiable.size(), f.inputs().size()));
  check_inputs("check_gradients", f.inputs(), inputs);
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (options.differentiable.empty() || options.differentiable[i]) {
      moving_.push_back(i);
      shapes.push_back(inputs[i].shape());
    }
  v_ = random_like(shapes);
  w_ = random_like(shapes);
  shapes.clear();
  for (const Expr& y : f.outputs()) shapes.push_back(y.shape());
  u_ = random_like(shapes);
}

Arrays Checker::random_like(std::span<const Shape> shapes) {
  Arrays arrays;
  for (const Shape& shape : shapes) {
    Values entries(static_cast<std::size_t>(shape.size()));
    // Not std::uniform_real_distribution, whose numbers differ between standard libraries.
    for (double& e : entries) e = 2.0 * static_cast<double>(random_() >> 11) * 0x1p-53 - 1.0;
    arrays.emplace_back(shape, std::move(entries));
  }
  return arrays;
}

Function Checker::derivative(const std::function<Exprs(const Scene&)>& body) const {
  std::vector<Input> inputs(f_.inputs().begin(), f_.inputs().end());
  for (const char* name : {"v", "w"})
    for (const std::size_t i : moving_)
      inputs.emplace_back(fmt::format("{}_{}", name, f_.inputs()[i].name), inputs_[i].shape());
  for (std::size_t k = 0; k < u_.size(); ++k) inputs.emplace_back(fmt::format("u_{}", k), u_[k].shape());
  return Function(std::move(inputs), [&](std::span<const Expr> all) {
    const auto take = [&all](std::size_t n) {
      const Exprs taken(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n));
      all = all.subspan(n);
      return taken;
    };
    Scene scene;
    scene.x = take(inputs_.size());
    scene.v = take(moving_.size());
    scene.w = take(moving_.size());
    scene.u = take(u_.size());
    for (const std::size_t i : moving_) scene.moving.push_back(scene.x[i]);
    scene.y = f_(scene.x);
    return body(scene);
  });
}

Arrays Checker::arguments(std::span<const Array> x, const Arrays& v, const Arrays& w) const {
  Arrays all(x.begin(), x.end());
  for (const Arrays* more : {&v, &w, &u_}) all.insert(all.end(), more->begin(), more->end());
  return all;
}

// g at the inputs moved by t along the direction. The directions given to g itself stay v and w.
Values Checker::moved(const Function& g, const Arrays& along, double t) const {
  Arrays x = inputs_;
  for (std::size_t k = 0; k < moving_.size(); ++k) {
    Values entries = flatten({&x[moving_[k]], 1});
    const Values direction = flatten({&along[k], 1});
    for (std::size_t i = 0; i < entries.size(); ++i) entries[i] += t * direction[i];
    x[moving_[k]] = Array(x[moving_[k]].shape(), std::move(entries));
  }
  return flatten(naive::interpret(g, g.inputs().size() == x.size() ? x : arguments(x, v_, w_)));
}

// Relative to the larger of the two and to `floor`: a derivative far smaller than what it was computed from is known only up
// to the rounding of that.
void Checker::compare(std::string claim, const Values& a, const Values& b, double floor, double tolerance) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    const double error = same ? 0.0 : std::fabs(a[i] - b[i]);
    if (!(error <= worst)) worst = error;
  }
  const double scale = std::max({largest(a), largest(b), floor});
  GradientComparison c{std::move(claim), worst == 0 ? 0.0 : worst / scale, tolerance, ""};
  if (!c.ok())
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!(std::fabs(a[i] - b[i]) < worst)) {
        c.detail = fmt::format("at entry {} of {}: {} and {}", i, a.size(), a[i], b[i]);
        break;
      }
  found_.push_back(std::move(c));
}

void Checker::compare_with_differences(const std::string& claim, const Values& a, const Function& g, const Arrays& along) {
  const double floor = 1e-3 * largest(moved(g, along, 0.0));
  const Values differences = differentiate([&](double t) { return moved(g, along, t); });
  compare(claim, a, differences, floor, options_.tolerance);
  // Two NaNs agree where the plan is compared with the interpreter, but they are no derivative.
  if (!all_finite(a)) found_.back() = {claim, std::numeric_limits<double>::quiet_NaN(), options_.tolerance, "not finite"};
}

void Checker::compare_numbers(std::string claim, double a, double b, double scale) {
  GradientComparison c{std::move(claim), a == b ? 0.0 : std::fabs(a - b) / scale, options_.rounding, ""};
  if (!c.ok()) c.detail = fmt::format("{} and {}", a, b);
  found_.push_back(std::move(c));
}

Values Checker::value(const std::string& what, const Function& g, const Arrays& v, const Arrays& w) {
  const Arrays all = g.inputs().size() == inputs_.size() ? inputs_ : arguments(inputs_, v, w);
  Values planned = flatten(evaluate(g, all));
  compare(what + ": planned = interpreted", planned, flatten(naive::interpret(g, all)), 1e-2 * largest(gradient_),
          options_.rounding);
  return planned;
}

void Checker::first_order() {
  const Values y = value("value", f_, v_, w_);
  jvp_ = derivative([](const Scene& s) { return s.jvp(); });
  vjp_ = derivative([](const Scene& s) { return s.vjp(); });
  const Values forward = value("jvp", *jvp_, v_, w_);
  const Values backward = value("vjp", *vjp_, v_, w_);
  compare_with_differences("jvp = differences of the value", forward, f_, v_);
  const Values u = flatten(u_), v = flatten(v_);
  compare_numbers("⟨u, jvp(v)⟩ = ⟨vjp(u), v⟩", dot(u, forward), dot(backward, v),
                  dot_of_sizes(u, forward) + dot_of_sizes(backward, v) + 1e-2 * dot_of_sizes(u, y));
  gradient_ = backward;
}

void Checker::second_order() {
  second_ = derivative([](const Scene& s) { return s.second(); });
  second_value_ = value("jvp of vjp", *second_, v_, w_);
  compare_with_differences("jvp of vjp = differences of the vjp", second_value_, *vjp_, v_);
  const double floor = 1e-2 * largest(gradient_);
  const Function reverse = derivative([](const Scene& s) { return s.gradient(inner(s.u, s.jvp())); });
  compare("vjp of jvp = jvp of vjp", value("vjp of jvp", reverse, v_, w_), second_value_, floor, options_.rounding);
  const Function twice = derivative([](const Scene& s) { return s.gradient(inner(s.v, s.vjp())); });
  compare("vjp of vjp = jvp of vjp", value("vjp of vjp", twice, v_, w_), second_value_, floor, options_.rounding);
  const Values v = flatten(v_), w = flatten(w_);
  const Values other = flatten(evaluate(*second_, arguments(inputs_, w_, v_)));
  compare_numbers("the second derivative is symmetric", dot(w, second_value_), dot(v, other),
                  dot_of_sizes(w, second_value_) + dot_of_sizes(v, other) + floor);
}

void Checker::third_order() {
  const Function third = derivative([](const Scene& s) { return jvp(s.second(), s.moving, s.w); });
  const Values along_w = value("jvp of jvp of vjp", third, v_, w_);
  compare_with_differences("third derivative = differences of the second", along_w, *second_, w_);
  const double floor = 1e-2 * std::max(largest(gradient_), largest(second_value_));
  compare("the third derivative is symmetric", flatten(evaluate(third, arguments(inputs_, w_, v_))), along_w, floor,
          options_.rounding);
  const Function reverse = derivative([](const Scene& s) { return s.gradient(inner(s.w, s.second())); });
  compare("vjp of jvp of vjp = jvp of jvp of vjp", value("vjp of jvp of vjp", reverse, v_, w_), along_w, floor,
          options_.rounding);
}

// What each mode says to the same bad input; they must all throw Error, and about an input's shape in the same words.
void Checker::expect_same_error(const std::string& claim, const std::function<Arrays(Arrays)>& spoil) {
  const Arrays bad = spoil(inputs_), bad_all = spoil(arguments(inputs_, v_, w_));
  const auto message = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const Error& e) { return e.what(); }
    return "no error";
  };
  const std::array<std::pair<const char*, std::string>, 4> said{{
      {"naive", message([&] { naive::interpret(f_, bad); })},
      {"plan", message([&] { evaluate(f_, bad); })},
      {"jvp", message([&] { evaluate(*jvp_, bad_all); })},
      {"vjp", message([&] { evaluate(*vjp_, bad_all); })},
  }};
  // An input too few is told with the number of inputs, which is not the same for a derivative.
  const bool by_words = bad.size() == inputs_.size();
  GradientComparison c{claim, 0.0, 0.0, ""};
  for (const auto& [mode, words] : said)
    if (words == "no error" || (by_words && words != said[0].second)) {
      c.error = 1;
      c.detail += fmt::format("{}{}: {}", c.detail.empty() ? "" : ", ", mode, words);
    }
  if (!c.ok() && by_words) c.detail += fmt::format(", naive: {}", said[0].second);
  found_.push_back(std::move(c));
}

void Checker::errors() {
  if (inputs_.empty()) return;
  expect_same_error("a missing input is an error in every mode", [](Arrays all) {
    all.pop_back();
    return all;
  });
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    expect_same_error(fmt::format("a wrong shape of {} is the same error in every mode", f_.inputs()[i].name),
                      [&](Arrays all) {
                        const Shape s = all[i].shape();
                        all[i] = zeros(s.rank() == 0 ? Shape{2} : s.rank() == 1 ? Shape{s[0] + 1} : Shape{s[0] + 1, s[1]});
                        return all;
                      });
}

std::vector<GradientComparison> Checker::run() {
  first_order();
  if (options_.order >= 2) second_order();
  if (options_.order >= 3) third_order();
  errors();
  return std::move(found_);
}

}  // namespace

GradientCheck check_gradients(const Function& f, std::span<const Array> inputs, const GradientCheckOptions& options) {
  return GradientCheck(Checker(f, inputs, options).run());
}

}  // namespace onestep
