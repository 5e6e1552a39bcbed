// The inverse of the Hessian's block of each class, made once and applied to residuals.
#include "jobs/blocks.h"

#include <algorithm>
#include <cmath>

#include "onestep/onestep.h"

namespace onestep::app::jobs {

namespace {

// Of AᵀWA; a column of zeros takes the mean of the others.
std::vector<double> diagonal_of_gram(const Array& A, std::span<const double> weights) {
  const auto n = static_cast<std::size_t>(A.shape()[1]);
  std::vector<double> diagonal(n);
  for (std::size_t i = 0; i < weights.size(); ++i)
    for (std::size_t j = 0; j < n; ++j) diagonal[j] += weights[i] * A.values()[i * n + j] * A.values()[i * n + j];
  double sum = 0;
  for (const double entry : diagonal) sum += entry / static_cast<double>(n);
  for (double& entry : diagonal)
    if (!(entry > 0)) entry = sum;
  return diagonal;
}

}  // namespace

SoftmaxBlocks::SoftmaxBlocks(const Array& A, const Array& x, const Array& penalty)
    : n_(static_cast<std::size_t>(x.shape()[0])),
      classes_(static_cast<std::size_t>(x.shape()[1])),
      inverses_(classes_ * n_ * n_),
      product_(traced([](Expr M, Expr c) { return matmul(M, c); }, Shape{x.shape()[0], x.shape()[0]}, Shape{x.shape()[0]})) {
  const std::int64_t n = x.shape()[0], count = A.shape()[0];
  const Function weights_at = traced(
      [&](Expr at) {
        const Expr s = matmul(A, at);
        const Expr p = exp(s - reshape(log_sum_exp(s, 1), {count, 1}));
        return transpose(p * (1.0 - p));
      },
      x.shape());
  const Array weights = evaluate(weights_at, {x})[0];
  const Plan plan(
      traced([&](Expr v, Expr added) { return solve(cholesky(gram(A, v) + diag(added)), eye(n)); }, Shape{count}, Shape{n}));
  Workspace workspace = plan.workspace();
  const auto rows = static_cast<std::size_t>(count);
  std::vector<double> l2(n_, penalty.shape().rank() == 0 ? penalty.item() : 0.0);
  for (std::size_t i = 0; penalty.shape().rank() > 0 && i + 1 < n_; ++i) l2[i] = penalty.values()[i];
  together_.assign(n_, 0.0);
  for (std::size_t k = 0; k < classes_; ++k) {
    const std::span<double> inverse = std::span(inverses_).subspan(k * n_ * n_, n_ * n_);
    const std::span<const double> weight = weights.values().subspan(k * rows, rows);
    const std::vector<double> diagonal = diagonal_of_gram(A, weight);
    std::vector<double> little(n_), added(n_);
    // Without a penalty there may be nothing that holds a coefficient: a share of its own diagonal does, in whatever unit
    // its feature is.
    const auto inverts = [&](double share) {
      for (std::size_t i = 0; i < n_; ++i) little[i] = share * diagonal[i], added[i] = l2[i] + little[i];
      plan.run(workspace, {Array::view(weight), Array::view(added)}, {inverse});
      return !workspace.failed() && std::ranges::all_of(inverse, [](double e) { return std::isfinite(e); });
    };
    if (!inverts(1e-6) && !inverts(1e-3) && !inverts(1)) {
      // Nothing is known of this class: as if only the penalty curved it.
      std::ranges::fill(little, 0.0);
      std::ranges::fill(inverse, 0.0);
      for (std::size_t i = 0; i < n_; ++i) inverse[i * n_ + i] = l2[i] > 0 ? 1 / l2[i] : 1;
    }
    for (std::size_t i = 0; i < n_; ++i) together_[i] = std::max({together_[i], l2[i], little[i]});
  }
  for (double& curvature : together_)
    if (!(curvature > 0) || !std::isfinite(curvature)) curvature = 1;
}

void SoftmaxBlocks::operator()(std::span<double> r) const {
  thread_local std::vector<double> columns, products, means;
  columns.resize(r.size());
  products.resize(r.size());
  means.resize(n_);
  const auto K = static_cast<double>(classes_);
  for (std::size_t i = 0; i < n_; ++i) {
    means[i] = 0;
    for (std::size_t k = 0; k < classes_; ++k) means[i] += r[i * classes_ + k] / K;
    for (std::size_t k = 0; k < classes_; ++k) columns[k * n_ + i] = r[i * classes_ + k] - means[i];
  }
  Workspace workspace = product_.workspace();
  const auto n = static_cast<std::int64_t>(n_);
  for (std::size_t k = 0; k < classes_; ++k)
    product_.run(workspace,
                 {Array::view(MatrixView{inverses_.data() + k * n_ * n_, n, n, n, 1}),
                  Array::view(std::span(columns).subspan(k * n_, n_))},
                 {std::span(products).subspan(k * n_, n_)});
  for (std::size_t i = 0; i < n_; ++i) {
    double mean = 0;
    for (std::size_t k = 0; k < classes_; ++k) mean += products[k * n_ + i] / K;
    const double curvature = K + (i + 1 < n_ ? together_[i] : 0);
    for (std::size_t k = 0; k < classes_; ++k) r[i * classes_ + k] = products[k * n_ + i] - mean + means[i] / curvature;
  }
}

}  // namespace onestep::app::jobs
