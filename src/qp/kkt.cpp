// Assembles and factors the condensed or the augmented system, and refines its solutions.
#include "qp/kkt.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/dense.h"
#include "backend/cpu/tile_kernels.h"
#include "linear/vector.h"
#include "parallel/pool.h"

namespace onestep::detail {
namespace {

constexpr std::size_t threads_from = 400;

}  // namespace

void Kkt::prepare(std::size_t n, std::size_t rows, std::size_t equalities) {
  n_ = n;
  rows_ = rows;
  equalities_ = equalities;
  factor_.assign(n * n, 0.0);
  if (n > cpu::max_small_n && equalities > 0) equality_gram_.assign(n * n, 0.0);
  cholesky_scratch_.assign(cpu::factor_scratch(Op::cholesky, n), 0.0);
  diagonal_.assign(n, 0.0);
  weight_.assign(rows, 0.0);
  t_.assign(n, 0.0);
  product_.assign(rows, 0.0);
  correction_.assign(rows, 0.0);
  kept_rows_.reserve(std::max(n, rows));
}

void Kkt::begin(const RowMatrix& Q, const RowMatrix& C) {
  Q_ = &Q;
  C_ = &C;
  factorisations_ = 0;
  scratch_.resize(C.gram_scratch());
  gram_kept_ = !equality_gram_.empty() && !C.is_sparse();
  if (!gram_kept_) return;
  std::fill(equality_gram_.begin(), equality_gram_.end(), 0.0);
  std::fill_n(weight_.begin(), equalities_, 1.0);
  std::fill(weight_.begin() + static_cast<std::ptrdiff_t>(equalities_), weight_.end(), 0.0);
  C.add_gram(0, equalities_, weight_.data(), equality_gram_.data(), scratch_.data());
}

/// Variables that no off-diagonal entry touches need only a diagonal that is not negative; of the others a shifted Cholesky
/// factor must exist.
bool Kkt::is_convex() {
  constexpr double shift = 1e-10, of_all = 1e-14;  // of a variable's own curvature; of the largest
  const double* Q = Q_->entries();
  const double size = largest({Q, n_ * n_});
  std::size_t coupled = 0;
  kept_rows_.clear();
  for (std::size_t i = 0; i < n_; ++i) {
    const double* row = Q + i * n_;
    if (row[i] < -of_all * size) return false;
    if (std::any_of(row, row + i, [](double x) { return x != 0; }) ||
        std::any_of(row + i + 1, row + n_, [](double x) { return x != 0; })) {
      kept_rows_.push_back(i);
      ++coupled;
    }
  }
  double* h = factor_.data();
  for (std::size_t a = 0; a < coupled; ++a) {
    const double* row = Q + kept_rows_[a] * n_;
    for (std::size_t b = 0; b <= a; ++b) h[a * coupled + b] = row[kept_rows_[b]];
    h[a * coupled + a] += of_all * size + shift * std::fabs(row[kept_rows_[a]]);
  }
  return cpu::factor(Op::cholesky, coupled, h, nullptr, cholesky_scratch_.data());
}

void Kkt::assemble(double equality_weight) {
  Q_->copy_lower(factor_.data());
  if (gram_kept_) {
    const parallel::Cut cut = parallel::cut_into(n_, n_ < threads_from ? 1 : 16, 1);
    parallel::parallel_for(cut.count, [&](std::size_t p) {
      for (std::size_t i = cut.begin(p); i < cut.end(p); ++i) {
        const double* from = equality_gram_.data() + i * n_;
        double* to = factor_.data() + i * n_;
        for (std::size_t j = 0; j <= i; ++j) to[j] += equality_weight * from[j];
      }
    });
  }
  const std::size_t first = gram_kept_ ? equalities_ : 0;
  C_->add_gram(first, rows_, weight_.data(), factor_.data(), scratch_.data());
  for (std::size_t i = 0; i < n_; ++i) factor_[i * n_ + i] += diagonal_[i];
}

bool Kkt::factor(const double* diagonal, const double* weight, bool augmented) {
  ++factorisations_;
  augmented_ = augmented;
  std::copy_n(diagonal, n_, diagonal_.data());
  std::copy_n(weight, rows_, weight_.data());
  return augmented ? factor_augmented() : factor_condensed();
}

bool Kkt::factor_condensed() {
  assemble(equalities_ > 0 ? weight_[0] : 0);
  return cpu::factor(Op::cholesky, n_, factor_.data(), nullptr, cholesky_scratch_.data());
}

// [Q + diag + Σ small weights, Cᵀ; C, -1/weight] over the rows that are kept.
bool Kkt::factor_augmented() {
  constexpr double kept_from = 1;
  kept_rows_.clear();
  for (std::size_t i = 0; i < rows_; ++i) {
    if (weight_[i] >= kept_from) kept_rows_.push_back(i);
    correction_[i] = weight_[i] >= kept_from ? 0 : weight_[i];
  }
  const std::size_t size = n_ + kept_rows_.size();
  augmented_factor_.resize(std::max(augmented_factor_.size(), size * size));
  augmented_scratch_.resize(std::max(augmented_scratch_.size(), cpu::factor_scratch(Op::ldlt, size)));
  pivots_.resize(std::max(pivots_.size(), size));
  Q_->copy_lower(factor_.data());
  C_->add_gram(0, rows_, correction_.data(), factor_.data(), scratch_.data());
  for (std::size_t i = 0; i < n_; ++i) factor_[i * n_ + i] += diagonal_[i];
  for (std::size_t i = 0; i < n_; ++i) std::copy_n(factor_.data() + i * n_, i + 1, augmented_factor_.data() + i * size);
  for (std::size_t k = 0; k < kept_rows_.size(); ++k) {
    double* row = augmented_factor_.data() + (n_ + k) * size;
    std::copy_n(C_->entries() + kept_rows_[k] * n_, n_, row);
    std::fill_n(row + n_, k, 0.0);
    row[n_ + k] = -1 / weight_[kept_rows_[k]];
  }
  return cpu::factor(Op::ldlt, size, augmented_factor_.data(), pivots_.data(), augmented_scratch_.data());
}

void Kkt::apply_inverse(double* t) const { cpu::solve(Op::cholesky, false, n_, factor_.data(), nullptr, t, 1); }

double Kkt::solve(const double* r, const double* h, const KktDirection& d, double tolerance, int most_sweeps) {
  return augmented_ ? solve_augmented(r, h, d, tolerance, most_sweeps) : solve_condensed(r, h, d, tolerance, most_sweeps);
}

double Kkt::solve_condensed(const double* r, const double* h, const KktDirection& d, double tolerance, int most_sweeps) {
  for (std::size_t i = 0; i < rows_; ++i) product_[i] = -h[i];
  std::copy_n(r, n_, t_.data());
  C_->add_transposed(product_.data(), t_.data());
  apply_inverse(t_.data());
  std::copy_n(t_.data(), n_, d.dx);
  C_->multiply(d.dx, d.Cdx);
  for (std::size_t i = 0; i < rows_; ++i) d.dlambda[i] = weight_[i] * d.Cdx[i] + h[i];
  if (most_sweeps == no_refinement) return 0;
  Q_->multiply(d.dx, d.Qdx);
  std::fill_n(d.Ctdl, n_, 0.0);
  C_->add_transposed(d.dlambda, d.Ctdl);
  double last = 0;
  for (int sweep = 0;; ++sweep) {
    for (std::size_t j = 0; j < n_; ++j) t_[j] = r[j] - d.Qdx[j] - diagonal_[j] * d.dx[j] - d.Ctdl[j];
    const double reached = largest({t_.data(), n_});
    if (reached <= tolerance || sweep == most_sweeps || (sweep > 0 && reached > 0.5 * last)) return reached;
    last = reached;
    apply_inverse(t_.data());
    for (std::size_t j = 0; j < n_; ++j) d.dx[j] += t_[j];
    C_->multiply(t_.data(), product_.data());
    for (std::size_t i = 0; i < rows_; ++i) {
      d.Cdx[i] += product_[i];
      d.dlambda[i] += weight_[i] * product_[i];
    }
    Q_->multiply(d.dx, d.Qdx);
    std::fill_n(d.Ctdl, n_, 0.0);
    C_->add_transposed(d.dlambda, d.Ctdl);
  }
}

double Kkt::solve_augmented(const double* r, const double* h, const KktDirection& d, double tolerance, int most_sweeps) {
  const std::size_t kept = kept_rows_.size();
  std::fill_n(d.dx, n_, 0.0);
  std::fill_n(d.Cdx, rows_, 0.0);
  std::fill_n(d.Qdx, n_, 0.0);
  std::fill_n(d.Ctdl, n_, 0.0);
  std::copy_n(h, rows_, d.dlambda);
  for (const std::size_t i : kept_rows_) d.dlambda[i] = 0;
  C_->add_transposed(d.dlambda, d.Ctdl);
  system_.resize(std::max(system_.size(), n_ + rows_));
  double last = 0;
  for (int sweep = 0;; ++sweep) {
    for (std::size_t j = 0; j < n_; ++j) t_[j] = system_[j] = r[j] - d.Qdx[j] - diagonal_[j] * d.dx[j] - d.Ctdl[j];
    for (std::size_t k = 0; k < kept; ++k) {
      const std::size_t i = kept_rows_[k];
      system_[n_ + k] = (d.dlambda[i] - h[i]) / weight_[i] - d.Cdx[i];
    }
    const double reached = largest({t_.data(), n_});
    if (sweep > 0 && (reached <= tolerance || sweep > most_sweeps || (sweep > 1 && reached > 0.5 * last))) {
      for (const std::size_t i : kept_rows_) d.Cdx[i] = (d.dlambda[i] - h[i]) / weight_[i];
      return reached;
    }
    last = reached;
    cpu::solve(Op::ldlt, false, n_ + kept, augmented_factor_.data(), pivots_.data(), system_.data(), 1);
    for (std::size_t j = 0; j < n_; ++j) d.dx[j] += system_[j];
    for (std::size_t k = 0; k < kept; ++k) d.dlambda[kept_rows_[k]] += system_[n_ + k];
    C_->multiply(d.dx, d.Cdx);
    for (std::size_t i = 0; i < rows_; ++i) product_[i] = weight_[i] * d.Cdx[i] + h[i];
    for (const std::size_t i : kept_rows_) product_[i] = d.dlambda[i];
    std::copy_n(product_.data(), rows_, d.dlambda);
    Q_->multiply(d.dx, d.Qdx);
    std::fill_n(d.Ctdl, n_, 0.0);
    C_->add_transposed(d.dlambda, d.Ctdl);
  }
}

}  // namespace onestep::detail
