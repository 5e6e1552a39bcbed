// One Newton step without each sample, for all of them from one inverse Hessian and their leverages.
#include "jobs/leave_one_out.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace onestep::app::jobs {

namespace {

// The first and second derivatives of the losses by the outputs of the model.
struct OutputDerivatives {
  Array first, second;  // (N, K), (N, K²)
};

OutputDerivatives output_derivatives(const Model& model, const Samples& samples, const Array& x) {
  const Array s = evaluate(traced([&](Expr at) { return matmul(samples.A, at); }, model.shape()), {x})[0];
  const auto N = static_cast<std::size_t>(samples.count());
  const std::size_t K = model.loss() == Loss::softmax ? static_cast<std::size_t>(model.shape()[1]) : 1;
  std::vector<double> first(N * K), second(N * K * K);
  const std::span<const double> out = s.values(), y = samples.y.values();
  if (model.loss() == Loss::softmax) {
    const Array p = model.probabilities(samples, x);
    for (std::size_t i = 0; i < N; ++i) {
      const std::span<const double> row = p.values().subspan(i * K, K);
      for (std::size_t k = 0; k < K; ++k) {
        first[i * K + k] = row[k] - (static_cast<std::size_t>(y[i]) == k ? 1 : 0);
        for (std::size_t l = 0; l < K; ++l) second[(i * K + k) * K + l] = row[k] * ((k == l ? 1 : 0) - row[l]);
      }
    }
  } else {
    for (std::size_t i = 0; i < N; ++i) {
      const double wrong = 1 / (1 + std::exp(y[i] * out[i]));
      first[i] = model.loss() == Loss::ridge ? out[i] - y[i] : -y[i] * wrong;
      second[i] = model.loss() == Loss::ridge ? 1 : wrong * (1 - wrong);
    }
  }
  const auto rows = static_cast<std::int64_t>(N), columns = static_cast<std::int64_t>(K);
  return {Array({rows, columns}, std::move(first)), Array({rows, columns * columns}, std::move(second))};
}

// Of refining steps: entries of A that are read, each for all outputs.
constexpr std::size_t budget = 100'000'000;

// Solves a small dense system in place by elimination with row exchanges; false where it is singular to rounding.
bool solve_small(std::vector<double>& matrix, std::span<double> b) {
  const std::size_t n = b.size();
  constexpr double negligible = 1e-10;
  for (std::size_t c = 0; c < n; ++c) {
    std::size_t pivot = c;
    for (std::size_t r = c + 1; r < n; ++r)
      if (std::fabs(matrix[r * n + c]) > std::fabs(matrix[pivot * n + c])) pivot = r;
    if (!(std::fabs(matrix[pivot * n + c]) > negligible)) return false;
    for (std::size_t j = 0; j < n; ++j) std::swap(matrix[c * n + j], matrix[pivot * n + j]);
    std::swap(b[c], b[pivot]);
    for (std::size_t r = c + 1; r < n; ++r) {
      const double factor = matrix[r * n + c] / matrix[c * n + c];
      for (std::size_t j = c; j < n; ++j) matrix[r * n + j] -= factor * matrix[c * n + j];
      b[r] -= factor * b[c];
    }
  }
  for (std::size_t c = n; c-- > 0;) {
    for (std::size_t j = c + 1; j < n; ++j) b[c] -= matrix[c * n + j] * b[j];
    b[c] /= matrix[c * n + c];
  }
  return true;
}

}  // namespace

Array sum_of_blocks(const Array& A, const Array& v, std::size_t outputs) {
  const auto n = static_cast<std::size_t>(A.shape()[1]), N = static_cast<std::size_t>(A.shape()[0]), m = n * outputs;
  std::vector<double> H(m * m), d(N), block(n * n);
  const Plan plan(traced([&](Expr w) { return gram(A, w); }, Shape{A.shape()[0]}));
  Workspace workspace = plan.workspace();
  for (std::size_t k = 0; k < outputs; ++k)
    for (std::size_t l = 0; l <= k; ++l) {
      for (std::size_t i = 0; i < N; ++i) d[i] = v.values()[(i * outputs + k) * outputs + l];
      plan.run(workspace, {Array::view(d)}, {block});
      for (std::size_t a = 0; a < n; ++a)
        for (std::size_t b = 0; b < n; ++b)
          H[(a * outputs + k) * m + b * outputs + l] = H[(a * outputs + l) * m + b * outputs + k] = block[a * n + b];
    }
  const auto size = static_cast<std::int64_t>(m);
  return {Shape{size, size}, std::move(H)};
}

SecondMoments second_moments(const Model& model, const Samples& samples, const Array& x) {
  const OutputDerivatives d = output_derivatives(model, samples, x);
  const auto K = static_cast<std::size_t>(d.first.shape()[1]);
  std::vector<double> products(d.second.values().size());
  for (std::size_t i = 0; i < static_cast<std::size_t>(samples.count()); ++i)
    for (std::size_t k = 0; k < K; ++k)
      for (std::size_t l = 0; l < K; ++l)
        products[(i * K + k) * K + l] = d.first.values()[i * K + k] * d.first.values()[i * K + l];
  const Array gradient =
      evaluate(traced([&](Expr r) { return matmul(transpose(samples.A), r); }, d.first.shape()), {d.first})[0];
  return {sum_of_blocks(samples.A, d.second, K), sum_of_blocks(samples.A, Array(d.second.shape(), std::move(products)), K),
          Array({gradient.size()}, std::vector<double>(gradient.values().begin(), gradient.values().end()))};
}

LeaveOneOut::LeaveOneOut(const Model& model, const Samples& train, const Array& x, double l2)
    : model_(model),
      train_(train),
      x_(x),
      l2_(l2),
      n_(static_cast<std::size_t>(train.A.shape()[1])),
      outputs_(model.loss() == Loss::softmax ? static_cast<std::size_t>(model.shape()[1]) : 1) {
  const OutputDerivatives d = output_derivatives(model, train, x);
  residuals_ = d.first, curvature_ = d.second;
  invert_hessian(l2);
  if (works()) find_directions();
}

void LeaveOneOut::invert_hessian(double l2) {
  const Array sum = sum_of_blocks(train_.A, curvature_, outputs_);
  std::vector<double> H(sum.values().begin(), sum.values().end());
  const std::size_t m = n_ * outputs_;
  const Array penalties = model_.penalties(Array(l2));
  for (std::size_t u = 0; u < m; ++u)
    for (std::size_t v = 0; v < m; ++v) {
      const bool same_feature = u / outputs_ == v / outputs_;
      if (same_feature && outputs_ > 1) H[u * m + v] += 1;  // as the model's penalty holds sums over the classes at zero
      if (u == v && u < m - outputs_) H[u * m + v] += penalties.values()[u / outputs_];
    }
  // To a unit diagonal, so that what is singular to rounding does not depend on the units of the features.
  std::vector<double> scale(m);
  for (std::size_t u = 0; u < m; ++u) scale[u] = H[u * m + u] > 0 ? 1 / std::sqrt(H[u * m + u]) : 0;
  if (std::ranges::any_of(scale, [](double s) { return !(s > 0) || !std::isfinite(s); })) return;
  for (std::size_t u = 0; u < m; ++u)
    for (std::size_t v = 0; v < m; ++v) H[u * m + v] *= scale[u] * scale[v];
  const auto size = static_cast<std::int64_t>(m);
  const Plan plan(traced([size](Expr matrix) { return solve(cholesky(matrix), eye(size)); }, Shape{size, size}));
  Workspace workspace = plan.workspace();
  std::vector<double> inverse(m * m);
  plan.run(workspace, {Array({size, size}, std::move(H))}, {inverse});
  constexpr double singular = 1e13;  // entries of the inverse of a matrix with a unit diagonal
  if (workspace.failed() || !std::ranges::all_of(inverse, [](double e) { return std::fabs(e) < singular; })) return;
  for (std::size_t u = 0; u < m; ++u)
    for (std::size_t v = 0; v < m; ++v) inverse[u * m + v] *= scale[u] * scale[v];
  inverse_ = std::move(inverse);
}

void LeaveOneOut::find_directions() {
  const auto N = static_cast<std::size_t>(train_.count());
  const std::size_t K = outputs_, m = n_ * K;
  // M: leverages, K × K for each sample, from the blocks of the inverse.
  std::vector<double>& M = leverages_;
  M.resize(N * K * K);
  std::vector<double> block(n_ * n_), found(N);
  const auto width = static_cast<std::int64_t>(n_);
  const Plan plan(traced([&](Expr B) { return sum(matmul(train_.A, B) * train_.A, 1); }, Shape{width, width}));
  Workspace workspace = plan.workspace();
  for (std::size_t k = 0; k < K; ++k)
    for (std::size_t l = 0; l < K; ++l) {
      for (std::size_t a = 0; a < n_; ++a)
        for (std::size_t b = 0; b < n_; ++b) block[a * n_ + b] = inverse_[(a * K + k) * m + b * K + l];
      plan.run(workspace, {Array::view(MatrixView{block.data(), width, width, width, 1})}, {found});
      for (std::size_t i = 0; i < N; ++i) M[(i * K + k) * K + l] = found[i];
    }
  directions_.assign(residuals_.values().begin(), residuals_.values().end());
  unique_.assign(N, true);
  std::vector<double> matrix(K * K);
  for (std::size_t i = 0; i < N; ++i) {
    const std::span<const double> C = curvature_.values().subspan(i * K * K, K * K);
    for (std::size_t k = 0; k < K; ++k)
      for (std::size_t l = 0; l < K; ++l) {
        matrix[k * K + l] = k == l ? 1 : 0;
        for (std::size_t j = 0; j < K; ++j) matrix[k * K + l] -= C[k * K + j] * M[(i * K + j) * K + l];
      }
    unique_[i] = solve_small(matrix, std::span(directions_).subspan(i * K, K));
  }
}

// H⁻¹(aⱼ ⊗ tⱼ) for some of the samples: a row for each.
Array LeaveOneOut::steps(std::size_t begin, std::size_t end) const {
  const std::size_t K = outputs_, m = n_ * K;
  std::vector<double> products((end - begin) * m);
  for (std::size_t i = begin; i < end; ++i)
    for (std::size_t j = 0; j < n_; ++j)
      for (std::size_t k = 0; k < K; ++k)
        products[(i - begin) * m + j * K + k] = train_.A.values()[i * n_ + j] * directions_[i * K + k];
  const auto rows = static_cast<std::int64_t>(end - begin), size = static_cast<std::int64_t>(m);
  const Array inverse = Array::view(MatrixView{inverse_.data(), size, size, size, 1});
  return evaluate(traced([&](Expr P) { return matmul(P, inverse); }, Shape{rows, size}),
                  {Array({rows, size}, std::move(products))})[0];
}

std::vector<std::optional<Change>> LeaveOneOut::changes(const Samples& judged) const {
  const auto N = static_cast<std::size_t>(train_.count()), count = static_cast<std::size_t>(judged.count());
  std::vector<std::optional<Change>> result(N);
  constexpr std::size_t few_losses = 20'000'000, at_once = 256;
  const bool exact_losses = N * count * outputs_ <= few_losses;
  SecondMoments moments;
  if (!exact_losses) moments = second_moments(model_, judged, x_);
  for (std::size_t begin = 0; begin < N; begin += at_once) {
    const std::size_t end = std::min(N, begin + at_once);
    const Array some = steps(begin, end);
    if (exact_losses) {
      add_exact(judged, some, std::span(result).subspan(begin, end - begin));
    } else {
      const std::vector<Array> forms =
          evaluate(traced(
                       [&](Expr D) {
                         return std::pair{matmul(D, moments.gradient) + 0.5 * sum(matmul(D, moments.hessian) * D, 1),
                                          sum(matmul(D, moments.gradients) * D, 1)};
                       },
                       some.shape()),
                   {some});
      for (std::size_t i = begin; i < end; ++i)
        result[i] = Change{forms[0].values()[i - begin], forms[1].values()[i - begin]};
    }
  }
  for (std::size_t i = 0; i < N; ++i)
    if (!unique_[i] || !std::isfinite(result[i]->sum)) result[i].reset();
  if (model_.loss() != Loss::ridge) refine_largest(judged, result);
  return result;
}

void LeaveOneOut::add_exact(const Samples& judged, const Array& steps, std::span<std::optional<Change>> to) const {
  const Function losses_at = traced([&](Expr at) { return model_.losses(judged, at); }, model_.shape());
  const Plan plan(losses_at);
  Workspace workspace = plan.workspace();
  const auto count = static_cast<std::size_t>(judged.count());
  const std::size_t m = n_ * outputs_;
  std::vector<double> before(count), after(count), moved(m);
  plan.run(workspace, {x_}, {before});
  for (std::size_t i = 0; i < to.size(); ++i) {
    for (std::size_t u = 0; u < m; ++u) moved[u] = x_.values()[u] + steps.values()[i * m + u];
    plan.run(workspace, {Array(model_.shape(), moved)}, {after});
    Change change;
    for (std::size_t k = 0; k < count; ++k) {
      change.sum += after[k] - before[k];
      change.squares += (after[k] - before[k]) * (after[k] - before[k]);
    }
    to[i] = change;
  }
}

void LeaveOneOut::refine_largest(const Samples& judged, std::vector<std::optional<Change>>& changes) const {
  std::vector<std::size_t> largest;
  for (std::size_t i = 0; i < changes.size(); ++i)
    if (changes[i]) largest.push_back(i);
  std::ranges::stable_sort(largest, std::greater{}, [&](std::size_t i) { return std::fabs(changes[i]->sum); });
  largest = as_many_as_affordable(std::move(largest));
  if (largest.empty()) return;
  const auto rows = static_cast<std::int64_t>(largest.size()), columns = static_cast<std::int64_t>(n_ * outputs_);
  std::vector<std::optional<Change>> found(largest.size());
  add_exact(judged, Array({rows, columns}, refined_steps(largest)), found);
  for (std::size_t k = 0; k < largest.size(); ++k)
    if (std::isfinite(found[k]->sum)) changes[largest[k]] = found[k];
}

std::vector<std::size_t> LeaveOneOut::as_many_as_affordable(std::vector<std::size_t> samples) const {
  samples.resize(std::min(samples.size(), budget / (static_cast<std::size_t>(train_.count()) * n_ * outputs_)));
  return samples;
}

// x₋ⱼ - x of these samples, a row for each.
std::vector<double> LeaveOneOut::refined_steps(const std::vector<std::size_t>& samples) const {
  const auto N = static_cast<std::size_t>(train_.count());
  const Function gradient_at =
      traced([&](Expr x) { return grad(sum(model_.losses(train_, x)) + model_.penalty(x, l2_), x); }, model_.shape());
  const std::size_t m = n_ * outputs_;
  std::vector<double> steps(samples.size() * m);
  // Where the steps do not contract, as the Hessian without the sample is another one, the model is fitted again.
  const std::size_t cost_of_fit = N * n_ * outputs_ * std::max<std::size_t>(50, 6 * n_);
  std::size_t fits_left = budget / cost_of_fit;
  std::optional<Prepared> fits;
  for (std::size_t k = 0; k < samples.size(); ++k) {
    Refined found = refined(samples[k], gradient_at);
    if (!found.converged && fits_left > 0) {
      --fits_left;
      if (!fits)
        fits.emplace(
            model_.solver([&](Expr x, Expr w) { return sum(w * model_.losses(train_, x)) + model_.penalty(x, l2_); },
                          stops_at_signals()),
            x_, ones({train_.count()}));
      std::vector<double> weights(N, 1.0);
      weights[samples[k]] = 0;
      const Solution& s = fits->solve(x_, Array(Shape{train_.count()}, std::move(weights)));
      if (is_solution(s.status())) {
        const Array at = s.x().contiguous();
        for (std::size_t u = 0; u < m; ++u) found.step[u] = at.values()[u] - x_.values()[u];
      }
    }
    std::ranges::copy(found.step, steps.begin() + static_cast<std::ptrdiff_t>(k * m));
  }
  return steps;
}

// x₋ⱼ - x by Newton-like steps, all with the Hessian at x less the sample's part: a step is taken as long as each is much
// shorter, in the norm of that matrix, than the one before.
LeaveOneOut::Refined LeaveOneOut::refined(std::size_t sample, const Function& gradient_at) const {
  constexpr int most_steps = 25;
  constexpr double contraction = 0.9, short_step = 1e-9;  // of squares
  const std::size_t m = n_ * outputs_;
  std::vector<double> at(x_.values().begin(), x_.values().end()), moved(m);
  std::vector<double> g = sample_gradient(sample, at);
  for (double& e : g) e = -e;
  double first = 0, last = std::numeric_limits<double>::infinity();
  for (int step = 0; step < most_steps; ++step) {
    const std::vector<double> s = without(sample, g);
    const double length = std::inner_product(s.begin(), s.end(), g.begin(), 0.0);  // squared
    if (step == 0) first = length;
    if (!(length < contraction * last)) break;
    for (std::size_t u = 0; u < m; ++u) moved[u] -= s[u], at[u] -= s[u];
    if (length <= short_step * first) return {std::move(moved), true};
    last = length;
    const Array all = evaluate(gradient_at, {Array(model_.shape(), at)})[0];
    g = sample_gradient(sample, at);
    for (std::size_t u = 0; u < m; ++u) g[u] = all.values()[u] - g[u];
  }
  return {std::move(moved), false};
}

// (H - U C Uᵀ)⁻¹ g with U = a ⊗ I, by Woodbury's formula.
std::vector<double> LeaveOneOut::without(std::size_t sample, const std::vector<double>& g) const {
  const std::size_t K = outputs_;
  const std::span<const double> a = train_.A.values().subspan(sample * n_, n_),
                                C = curvature_.values().subspan(sample * K * K, K * K),
                                M = std::span(leverages_).subspan(sample * K * K, K * K);
  const std::vector<double> v = times_inverse(g);
  std::vector<double> u(K), q(K), matrix(K * K), sum = g;
  for (std::size_t j = 0; j < n_; ++j)
    for (std::size_t k = 0; k < K; ++k) u[k] += a[j] * v[j * K + k];
  for (std::size_t k = 0; k < K; ++k)
    for (std::size_t l = 0; l < K; ++l) {
      q[k] += C[k * K + l] * u[l];
      matrix[k * K + l] = k == l ? 1 : 0;
      for (std::size_t j = 0; j < K; ++j) matrix[k * K + l] -= C[k * K + j] * M[j * K + l];
    }
  if (!solve_small(matrix, q)) return v;
  for (std::size_t j = 0; j < n_; ++j)
    for (std::size_t k = 0; k < K; ++k) sum[j * K + k] += a[j] * q[k];
  return times_inverse(sum);
}

std::vector<double> LeaveOneOut::times_inverse(const std::vector<double>& v) const {
  std::vector<double> result(v.size());
  for (std::size_t u = 0; u < v.size(); ++u)
    result[u] = std::inner_product(v.begin(), v.end(), inverse_.begin() + static_cast<std::ptrdiff_t>(u * v.size()), 0.0);
  return result;
}

// Of the loss of one sample.
std::vector<double> LeaveOneOut::sample_gradient(std::size_t sample, const std::vector<double>& x) const {
  const std::size_t K = outputs_;
  const std::span<const double> a = train_.A.values().subspan(sample * n_, n_);
  const double y = train_.y.values()[sample];
  std::vector<double> out(K), result(x.size());
  for (std::size_t j = 0; j < n_; ++j)
    for (std::size_t k = 0; k < K; ++k) out[k] += a[j] * x[j * K + k];
  if (K > 1) {
    const double largest = std::ranges::max(out);
    double sum = 0;
    for (double& e : out) sum += e = std::exp(e - largest);
    for (std::size_t k = 0; k < K; ++k) out[k] = out[k] / sum - (static_cast<std::size_t>(y) == k ? 1 : 0);
  } else {
    out[0] = model_.loss() == Loss::ridge ? out[0] - y : -y / (1 + std::exp(y * out[0]));
  }
  for (std::size_t j = 0; j < n_; ++j)
    for (std::size_t k = 0; k < K; ++k) result[j * K + k] = a[j] * out[k];
  return result;
}

}  // namespace onestep::app::jobs
