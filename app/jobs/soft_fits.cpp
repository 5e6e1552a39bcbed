// L-BFGS with an approximate inverse Hessian that is made once, and Newton's method where fits must be exact.
#include "jobs/soft_fits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include "jobs/blocks.h"

namespace onestep::app::jobs {

namespace {

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// A step of the descent, and the change of the gradient along it.
struct Pair {
  std::vector<double> step, change;
  double curvature;  // their product
};

// The direction of L-BFGS (Nocedal, Wright, algorithm 7.4) with a given first inverse Hessian.
void apply_inverse(const std::deque<Pair>& pairs, const std::function<void(std::vector<double>&)>& first,
                   std::vector<double>& r) {
  std::vector<double> alpha(pairs.size());
  for (std::size_t i = pairs.size(); i-- > 0;) {
    alpha[i] = dot(pairs[i].step, r) / pairs[i].curvature;
    for (std::size_t u = 0; u < r.size(); ++u) r[u] -= alpha[i] * pairs[i].change[u];
  }
  first(r);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const double beta = dot(pairs[i].change, r) / pairs[i].curvature;
    for (std::size_t u = 0; u < r.size(); ++u) r[u] += (alpha[i] - beta) * pairs[i].step[u];
  }
}

}  // namespace

SoftFits::SoftFits(const Model& model, const Samples& samples, std::size_t classes, double l2)
    : classes_(classes), loss_(model.loss()), A_(samples.A), l2_(l2) {
  // Of logistic w are the targets of the first class, `targets` those of the second: each loss is computed without
  // cancellation. Of softmax w are the sums of the targets.
  const auto objective = [&model, A = A_, l2](Expr x, Expr w, Expr targets) {
    const Expr s = matmul(A, x);
    const Expr losses = model.loss() == Loss::logistic ? sum(w * softplus(s)) + sum(targets * softplus(-s))
                                                       : sum(w * log_sum_exp(s, 1) - sum(targets * s, 1));
    return losses + model.penalty(x, l2);
  };
  const std::int64_t count = samples.count();
  const Shape shape = loss_ == Loss::logistic ? Shape{count} : Shape{count, static_cast<std::int64_t>(classes)};
  constexpr std::int64_t most = std::int64_t{1} << 27;  // entries: a gigabyte
  const bool has_inverse = model.unknowns() * model.shape()[0] <= most;
  const auto precondition = [this](std::span<double> r) {
    std::vector<double> copy(r.begin(), r.end());
    inverse_(copy);
    std::ranges::copy(copy, r.begin());
  };
  const Solver solver = loss_ == Loss::softmax && has_inverse
                            ? newton_cg(objective, {.preconditioner = precondition}, stops_at_signals())
                            : model.solver(objective, stops_at_signals());
  prepared_ = std::make_unique<Prepared>(solver, model.start(), Parts{ones({count}), zeros(shape)}, OneStep{});
  if (!has_inverse) return;
  plan_ = std::make_unique<Plan>(traced(
      [&](Expr x, Expr w, Expr targets) {
        const Expr value = objective(x, w, targets);
        return std::pair{value, grad(value, x)};
      },
      model.shape(), Shape{count}, shape));
  workspace_ = std::make_unique<Workspace>(plan_->workspace());
  approximate_hessian(model.start());
}

void SoftFits::approximate_hessian(const Array& x) {
  if (loss_ == Loss::softmax) {
    inverse_ = [blocks = std::make_shared<const SoftmaxBlocks>(A_, x, l2_)](std::vector<double>& r) { (*blocks)(r); };
    return;
  }
  const std::int64_t n = A_.shape()[1];
  std::vector<double> penalties(static_cast<std::size_t>(n), l2_);
  penalties.back() = 0;
  const Plan plan(traced(
      [&](Expr at) {
        const Expr z = matmul(A_, at), p = 1.0 / (1.0 + exp(-z));
        return solve(cholesky(gram(A_, p * (1.0 - p)) + diag(Array({n}, penalties))), eye(n));
      },
      x.shape()));
  Workspace workspace = plan.workspace();
  auto entries = std::make_shared<std::vector<double>>(static_cast<std::size_t>(n * n));
  plan.run(workspace, {x}, {*entries});
  if (workspace.failed() || !std::ranges::all_of(*entries, [](double e) { return std::isfinite(e); })) {
    plan_.reset();  // so near to singular that only exact fits will do
    return;
  }
  inverse_ = [entries](std::vector<double>& r) {
    std::vector<double> product(r.size());
    for (std::size_t u = 0; u < r.size(); ++u)
      product[u] = std::inner_product(r.begin(), r.end(), entries->begin() + static_cast<std::ptrdiff_t>(u * r.size()), 0.0);
    r.swap(product);
  };
}

Parts SoftFits::parameters_of(const ClassProbabilities& targets) const {
  std::vector<double> entries = targets.entries, of_class(classes_), weights(targets.count());
  for (std::size_t i = 0; i < weights.size(); ++i)
    for (std::size_t k = 0; k < classes_; ++k) of_class[k] += targets.row(i)[k], weights[i] += targets.row(i)[k];
  // A class without any sample would send its intercept, which has no penalty, to minus infinity.
  constexpr double very_rare = 1e-6;
  for (std::size_t k = 0; k < classes_; ++k)
    for (std::size_t i = 0; of_class[k] <= 0 && i < weights.size(); ++i) entries[i * classes_ + k] = very_rare * weights[i];
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = std::reduce(entries.begin() + static_cast<std::ptrdiff_t>(i * classes_),
                             entries.begin() + static_cast<std::ptrdiff_t>((i + 1) * classes_));
  const auto count = static_cast<std::int64_t>(weights.size());
  if (loss_ == Loss::softmax)
    return {Array({count}, std::move(weights)), Array({count, static_cast<std::int64_t>(classes_)}, std::move(entries))};
  std::vector<double> first(weights.size()), second(weights.size());
  for (std::size_t i = 0; i < second.size(); ++i) first[i] = entries[2 * i], second[i] = entries[2 * i + 1];
  return {Array({count}, std::move(first)), Array({count}, std::move(second))};
}

// Whether what is left to gain is below what a sum of losses can show.
bool SoftFits::is_at_rounding(const Parts& parameters, const Array& x) {
  if (plan_ == nullptr) return false;
  std::vector<double> at(x.values().begin(), x.values().end()), g(at.size());
  const double value = evaluate_at(parameters, at, g);
  std::vector<double> d = g;
  inverse_(d);
  constexpr double invisible = 1e-12;
  return std::isfinite(value) && dot(g, d) <= invisible * std::max(1.0, std::fabs(value));
}

Array SoftFits::exact(const Parts& parameters, const Array& start) {
  const Solution& s = prepared_->solve(start, parameters);
  const bool solved =
      is_solution(s.status()) || (s.status() == Status::line_search_failed && is_at_rounding(parameters, s.x()));
  if (!solved) throw FitFailed(s.status(), s.message());
  return s.x();
}

double SoftFits::evaluate_at(const Parts& parameters, std::vector<double>& x, std::vector<double>& gradient) {
  const auto columns = static_cast<std::int64_t>(classes_), rows = static_cast<std::int64_t>(x.size()) / columns;
  const Array at = loss_ == Loss::logistic ? Array::view(x) : Array::view(MatrixView{x.data(), rows, columns, columns, 1});
  double value = 0;
  plan_->run(*workspace_, {at, parameters[0], parameters[1]}, {std::span(&value, 1), gradient});
  return value;
}

Array SoftFits::fit(const ClassProbabilities& targets, const Array& start) { return fit_to(1e-4, targets, start); }

Array SoftFits::fit_closely(const ClassProbabilities& targets, const Array& start) {
  return fit_to(std::max(0.1, 0.001 * static_cast<double>(start.values().size())) * closeness(), targets, start);
}

Array SoftFits::fit_roughly(const ClassProbabilities& targets, const Array& start) {
  return fit_to(std::max(0.1, 0.01 * static_cast<double>(start.values().size())) * closeness(), targets, start);
}

double SoftFits::closeness() const {
  constexpr std::int64_t enough_samples = 5;  // for each feature
  constexpr double close = 1e-3;
  return A_.shape()[0] >= enough_samples * A_.shape()[1] ? 1 : close;
}

Array SoftFits::fit_to(double close, const ClassProbabilities& targets, const Array& start) {
  const Parts parameters = parameters_of(targets);
  if (plan_ == nullptr) return exact(parameters, start);
  const std::optional<Array> found = descend(parameters, start, close);
  if (stop_signal() != 0) throw FitFailed(Status::cancelled, "stopped");
  return found ? *found : exact(parameters, start);
}

// L-BFGS; nothing where it stalls.
std::optional<Array> SoftFits::descend(const Parts& parameters, const Array& start, double close) {
  constexpr int most_iterations = 200, most_halvings = 30;
  constexpr std::size_t memory = 10;
  constexpr double enough_decrease = 1e-4;
  std::vector<double> x(start.values().begin(), start.values().end()), g(x.size()), next(x.size()), next_g(x.size());
  std::deque<Pair> pairs;
  double value = evaluate_at(parameters, x, g);
  for (int iteration = 0; iteration < most_iterations && stop_signal() == 0; ++iteration) {
    std::vector<double> d = g;
    apply_inverse(pairs, inverse_, d);
    const double decrement = dot(g, d);  // twice what a quadratic function would still fall by
    if (!std::isfinite(value) || !(decrement >= 0)) return std::nullopt;
    if (decrement <= close) return Array(start.shape(), std::move(x));
    double length = 1, next_value = 0;
    for (int halving = 0;; ++halving, length /= 2) {
      if (halving == most_halvings) return std::nullopt;
      for (std::size_t u = 0; u < x.size(); ++u) next[u] = x[u] - length * d[u];
      next_value = evaluate_at(parameters, next, next_g);
      if (next_value <= value - enough_decrease * length * decrement) break;
    }
    Pair pair{std::vector<double>(x.size()), std::vector<double>(x.size()), 0};
    for (std::size_t u = 0; u < x.size(); ++u) pair.step[u] = next[u] - x[u], pair.change[u] = next_g[u] - g[u];
    pair.curvature = dot(pair.step, pair.change);
    if (pair.curvature > 0) pairs.push_back(std::move(pair));
    if (pairs.size() > memory) pairs.pop_front();
    x.swap(next), g.swap(next_g), value = next_value;
  }
  return std::nullopt;
}

}  // namespace onestep::app::jobs
