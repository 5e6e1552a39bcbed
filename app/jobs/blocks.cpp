#include "jobs/blocks.h"

#include <algorithm>
#include <cmath>

#include "onestep/onestep.h"

namespace onestep::app::jobs {

SoftmaxBlocks::SoftmaxBlocks(const Array& A, const Array& x, double l2)
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
  // Without a penalty there may be nothing that holds a coefficient: a little does, relative to the mean of the diagonal.
  const Plan plan(traced(
      [&](Expr v, Expr share) {
        const Expr M = gram(A, v), little = share * sum(diagonal(M)) / static_cast<double>(n);
        return std::pair{solve(cholesky(M + (l2 + little) * eye(n)), eye(n)), little};
      },
      Shape{count}, Shape{}));
  Workspace workspace = plan.workspace();
  const auto rows = static_cast<std::size_t>(count);
  for (std::size_t k = 0; k < classes_; ++k) {
    const std::span<double> inverse = std::span(inverses_).subspan(k * n_ * n_, n_ * n_);
    double little = 0;
    const auto inverts = [&](double share) {
      plan.run(workspace, {Array::view(weights.values().subspan(k * rows, rows)), Array(share)},
               {inverse, std::span(&little, 1)});
      return !workspace.failed() && std::ranges::all_of(inverse, [](double e) { return std::isfinite(e); });
    };
    if (!inverts(1e-6) && !inverts(1e-3) && !inverts(1)) {
      // Nothing is known of this class: as if only the penalty curved it.
      little = 0;
      std::ranges::fill(inverse, 0.0);
      for (std::size_t i = 0; i < n_; ++i) inverse[i * n_ + i] = l2 > 0 ? 1 / l2 : 1;
    }
    together_ = std::max({together_, l2, little});
  }
  if (!(together_ > 0)) together_ = 1;
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
    const double curvature = i + 1 < n_ ? together_ : K;
    for (std::size_t k = 0; k < classes_; ++k) r[i * classes_ + k] = products[k * n_ + i] - mean + means[i] / curvature;
  }
}

}  // namespace onestep::app::jobs
