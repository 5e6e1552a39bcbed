// Inverts the Hessian, scaled, and where classes share a null direction held in that.
#include "jobs/standard_errors.h"

#include <algorithm>
#include <cmath>

#include "onestep/onestep.h"

namespace onestep::app::jobs {

namespace {

// The Hessian row by row; by products where x is a matrix.
std::vector<double> hessian_at(const Model& model, const JobData& job, const Array& penalty, const Array& x) {
  const auto f = [&](const Expr& at) { return sum(model.losses(job.train, at)) + model.penalty(at, penalty); };
  if (model.loss() != Loss::softmax) {
    const Array H = evaluate(traced([&](Expr at) { return hessian(f(at), at); }, model.shape()), {x})[0].contiguous();
    return {H.values().begin(), H.values().end()};
  }
  const Plan plan(traced([&](Expr at, Expr v) { return hvp(f(at), at, v); }, model.shape(), model.shape()),
                  {.levels = {1, 2}});
  Workspace workspace = plan.workspace();
  const auto size = static_cast<std::size_t>(model.unknowns());
  std::vector<double> unit(size), rows(size * size);
  for (std::size_t i = 0; i < size; ++i) {
    unit[i] = 1;
    const Array v = Array::view(MatrixView{unit.data(), model.shape()[0], model.shape()[1], model.shape()[1], 1});
    plan.run(workspace, {x, v}, {std::span(rows).subspan(i * size, size)}, i == 0 ? 0 : 2);
    unit[i] = 0;
  }
  return rows;
}

// Coefficients that move together over all classes change no prediction, so that the Hessian of the losses is singular in
// that direction. Curvature s is added to it, for each feature as much as it has elsewhere; the variance that this direction
// then has, 1 / ((l2 + s K) K) in each entry, is returned to be taken off again.
std::vector<double> hold_sums_of_classes(std::vector<double>& H, std::size_t n, std::size_t K, const Array& penalty) {
  const std::size_t size = (n + 1) * K;
  std::vector<double> variance(n + 1);
  variance[n] = 1 / static_cast<double>(K * K);  // of the intercepts, whose sum the model itself holds at zero
  for (std::size_t j = 0; j < n; ++j) {
    double s = 0;
    for (std::size_t k = 0; k < K; ++k) s += H[(j * K + k) * size + j * K + k] / static_cast<double>(K);
    if (!(s > 0)) s = 1;
    for (std::size_t k = 0; k < K; ++k)
      for (std::size_t l = 0; l < K; ++l) H[(j * K + k) * size + j * K + l] += s;
    s += 1;  // which the model itself adds
    variance[j] = 1 / ((penalty.values()[j] + s * static_cast<double>(K)) * static_cast<double>(K));
  }
  return variance;
}

// Of the residuals: their squares over the degrees of freedom that the penalty leaves.
double residual_variance(const Model& model, const JobData& job, const Array& penalty, const Array& x, const Array& C) {
  const auto N = static_cast<double>(job.train.count());
  double used = static_cast<double>(job.n() + 1);
  for (std::int64_t j = 0; j < job.n(); ++j) used -= penalty(j) * C(j, j);
  const double squares = 2 * model.score(job.train, x).loss * N;
  return N - used > 1e-6 * N ? squares / (N - used) : NAN;
}

}  // namespace

Array inverse_of(std::vector<double> H, std::int64_t size) {
  const auto n = static_cast<std::size_t>(size);
  std::vector<double> scale(n);
  for (std::size_t i = 0; i < n; ++i) scale[i] = std::sqrt(H[i * n + i]);
  for (std::size_t i = 0; i < H.size(); ++i) H[i] /= scale[i / n] * scale[i % n];
  const Array unit(Shape{size, size}, std::move(H));
  const Array inverse =
      evaluate(traced([size](Expr h) { return solve(cholesky(h), eye(size)); }, unit.shape()), {unit})[0].contiguous();
  std::vector<double> entries(inverse.values().begin(), inverse.values().end());
  for (std::size_t i = 0; i < entries.size(); ++i) entries[i] /= scale[i / n] * scale[i % n];
  return {Shape{size, size}, std::move(entries)};
}

std::optional<std::vector<double>> standard_errors(const Model& model, const JobData& job, const Array& penalty,
                                                   const Array& x) {
  const std::int64_t size = model.unknowns(), n = job.n(), K = model.loss() == Loss::softmax ? model.shape()[1] : 1;
  if (size > most_with_standard_errors) return std::nullopt;
  std::vector<double> H = hessian_at(model, job, penalty, x), together(static_cast<std::size_t>(n + 1));
  if (K > 1) together = hold_sums_of_classes(H, static_cast<std::size_t>(n), static_cast<std::size_t>(K), penalty);
  const Array C = inverse_of(std::move(H), size);
  const double variance = model.loss() == Loss::ridge ? residual_variance(model, job, penalty, x, C) : 1;
  // The diagonal of T C Tᵀ, with T from coefficients of standardised features to those of the features as they were.
  std::vector<double> errors(static_cast<std::size_t>(size));
  for (std::int64_t k = 0; k < K; ++k) {
    const auto entry = [&](std::int64_t i, std::int64_t j) {
      return C(i * K + k, j * K + k) - (i == j ? together[static_cast<std::size_t>(i)] : 0);
    };
    double intercept = entry(n, n);
    if (job.scaling)
      for (std::int64_t i = 0; i < n; ++i) {
        const double t = job.scaling->mean(i) / job.scaling->scale(i);
        intercept -= 2 * t * entry(i, n);
        for (std::int64_t j = 0; j < n; ++j) intercept += t * entry(i, j) * job.scaling->mean(j) / job.scaling->scale(j);
      }
    for (std::int64_t i = 0; i < n; ++i)
      errors[static_cast<std::size_t>(i * K + k)] =
          std::sqrt(variance * entry(i, i)) / (job.scaling ? job.scaling->scale(i) : 1.0);
    errors[static_cast<std::size_t>(n * K + k)] = std::sqrt(variance * intercept);
  }
  if (!std::ranges::all_of(errors, [](double e) { return std::isfinite(e); })) return std::nullopt;
  return errors;
}

}  // namespace onestep::app::jobs
