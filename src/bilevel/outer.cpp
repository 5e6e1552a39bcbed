// Gradient descent, Adam, and L-BFGS with bounds.
#include "bilevel/outer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linear/vector.h"

namespace onestep::detail {

namespace {

// The first step of a search: no entry moves by more than its size, or than 1 where it is smaller.
void scale_to_units(std::span<const double> u, std::span<double> step) {
  double longest = 0;
  for (std::size_t i = 0; i < u.size(); ++i)
    longest = std::max(longest, std::fabs(step[i]) / std::max(1.0, std::fabs(u[i])));
  if (longest > 0)
    for (double& s : step) s /= longest;
}

template <class Method> class Saved : public Outer {
 public:
  void save(Writer& w) override { static_cast<Method*>(this)->fields(w); }
  void load(Reader& r) override { static_cast<Method*>(this)->fields(r); }
};

class DescentMethod : public Saved<DescentMethod> {
 public:
  explicit DescentMethod(const Descent& how) : how_(how) {
    if (!(how.step >= 0 && std::isfinite(how.step)))
      throw MisuseError(fmt::format("[minimise] Descent::step = {}: a length, or 0 to search for one", how.step));
  }
  void direction(const FreeParameters& parameters, std::span<const double> u, std::span<const double> gradient,
                 std::span<double> step) override {
    const std::vector<double> free = parameters.free_gradient(u, gradient);
    for (std::size_t i = 0; i < u.size(); ++i) step[i] = -(searches() ? 1.0 : how_.step) * free[i];
    if (!searches()) return;
    if (last_ > 0)
      for (double& s : step) s *= last_;
    else
      scale_to_units(u, step);
    scale_ = norm(free) > 0 ? norm(step) / norm(free) : 1;
  }
  bool searches() const override { return how_.step == 0; }
  void learn_from_step(std::span<const double>, std::span<const double>, double length) override {
    last_ = 2 * length * scale_;
  }
  void reset() override { last_ = 0; }
  bool remembers() const override { return last_ > 0; }
  std::string text() const override { return fmt::format("Descent {}", how_.step); }
  template <class Archive> void fields(Archive& a) { a(last_), a(scale_); }

 private:
  Descent how_;
  double last_ = 0, scale_ = 1;  // lengths per gradient: the one to begin with, and that of the step proposed
};

class AdamMethod : public Saved<AdamMethod> {
 public:
  explicit AdamMethod(const Adam& how) : how_(how) {
    if (!(how.step > 0 && std::isfinite(how.step) && how.epsilon > 0 && how.beta1 >= 0 && how.beta1 < 1 && how.beta2 >= 0 &&
          how.beta2 < 1))
      throw MisuseError("[minimise] Adam needs step > 0, epsilon > 0 and 0 <= beta1, beta2 < 1");
  }
  void direction(const FreeParameters&, std::span<const double> u, std::span<const double> gradient,
                 std::span<double> step) override {
    first_.resize(u.size());
    second_.resize(u.size());
    ++count_;
    for (std::size_t i = 0; i < u.size(); ++i) {
      first_[i] = how_.beta1 * first_[i] + (1 - how_.beta1) * gradient[i];
      second_[i] = how_.beta2 * second_[i] + (1 - how_.beta2) * gradient[i] * gradient[i];
      const double m = first_[i] / (1 - std::pow(how_.beta1, count_)), v = second_[i] / (1 - std::pow(how_.beta2, count_));
      step[i] = -how_.step * m / (std::sqrt(v) + how_.epsilon);
    }
  }
  bool searches() const override { return false; }
  std::string text() const override {
    return fmt::format("Adam {} {} {} {}", how_.step, how_.beta1, how_.beta2, how_.epsilon);
  }
  template <class Archive> void fields(Archive& a) { a(first_), a(second_), a(count_); }

 private:
  Adam how_;
  std::vector<double> first_, second_;  // moments of the gradient
  int count_ = 0;
};

// Two-metric projection (Bertsekas 1982): entries held at a bound stay, the rest move by the two-loop recursion with what
// the remembered pairs say of them.
class LbfgsMethod : public Saved<LbfgsMethod> {
 public:
  explicit LbfgsMethod(const Lbfgs& how) : how_(how) {
    if (how.memory < 1) throw MisuseError(fmt::format("[minimise] Lbfgs::memory = {}: at least 1", how.memory));
  }
  void direction(const FreeParameters& parameters, std::span<const double> u, std::span<const double> gradient,
                 std::span<double> step) override {
    const std::size_t n = u.size();
    std::vector<bool> held(n);
    for (std::size_t i = 0; i < n; ++i) held[i] = parameters.is_held(i, u, gradient);
    const auto inner = [&](std::span<const double> a, std::span<const double> b) {
      double sum = 0;
      for (std::size_t i = 0; i < n; ++i)
        if (!held[i]) sum += a[i] * b[i];
      return sum;
    };
    for (std::size_t i = 0; i < n; ++i) step[i] = held[i] ? 0 : -gradient[i];
    std::vector<double> alpha(steps_.size()), curvature(steps_.size());
    double gamma = 0;
    for (std::size_t k = steps_.size(); k-- > 0;) {
      curvature[k] = inner(steps_[k], changes_[k]);
      if (!(curvature[k] > 1e-10 * inner(steps_[k], steps_[k]))) continue;
      if (gamma == 0) gamma = curvature[k] / inner(changes_[k], changes_[k]);
      alpha[k] = inner(steps_[k], step) / curvature[k];
      for (std::size_t i = 0; i < n; ++i) step[i] -= alpha[k] * changes_[k][i];
    }
    if (gamma == 0) {
      for (std::size_t i = 0; i < n; ++i) step[i] = held[i] ? 0 : -gradient[i];
      return scale_to_units(u, step);
    }
    for (double& s : step) s *= gamma;
    for (std::size_t k = 0; k < steps_.size(); ++k) {
      if (!(curvature[k] > 1e-10 * inner(steps_[k], steps_[k]))) continue;
      const double beta = inner(changes_[k], step) / curvature[k];
      for (std::size_t i = 0; i < n; ++i) step[i] += (alpha[k] - beta) * steps_[k][i];
    }
    for (std::size_t i = 0; i < n; ++i)
      if (held[i]) step[i] = 0;
  }
  void learn_from_step(std::span<const double> step, std::span<const double> change, double) override {
    if (!(dot(step, change) > 0)) return;  // no curvature to learn from
    if (steps_.size() == static_cast<std::size_t>(how_.memory)) {
      steps_.erase(steps_.begin());
      changes_.erase(changes_.begin());
    }
    steps_.emplace_back(step.begin(), step.end());
    changes_.emplace_back(change.begin(), change.end());
  }
  void reset() override {
    steps_.clear();
    changes_.clear();
  }
  bool remembers() const override { return !steps_.empty(); }
  std::string text() const override { return fmt::format("Lbfgs {}", how_.memory); }
  template <class Archive> void fields(Archive& a) { a(steps_), a(changes_); }

 private:
  Lbfgs how_;
  std::vector<std::vector<double>> steps_, changes_;
};

std::unique_ptr<Outer> make(const Descent& how) { return std::make_unique<DescentMethod>(how); }
std::unique_ptr<Outer> make(const Adam& how) { return std::make_unique<AdamMethod>(how); }
std::unique_ptr<Outer> make(const Lbfgs& how) { return std::make_unique<LbfgsMethod>(how); }

}  // namespace

std::unique_ptr<Outer> make_outer(const OuterMethod& method) {
  return std::visit([](const auto& how) { return make(how); }, method);
}

void verify(const BilevelOptions& options) {
  if (!(options.tolerance >= 0 && std::isfinite(options.tolerance)))
    throw MisuseError(fmt::format("[minimise] tolerance = {}: zero or more", options.tolerance));
  if (options.max_iterations < 0)
    throw MisuseError(fmt::format("[minimise] max_iterations = {}: zero or more", options.max_iterations));
  if (!(options.time_limit > 0))
    throw MisuseError(fmt::format("[minimise] time_limit = {}: above zero", options.time_limit));
  if (!(options.checkpoint_share > 0 && options.checkpoint_share <= 1))
    throw MisuseError(fmt::format("[minimise] checkpoint_share = {}: above 0, at most 1", options.checkpoint_share));
}

}  // namespace onestep::detail
