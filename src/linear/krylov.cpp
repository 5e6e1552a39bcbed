// Conjugate gradients and GMRES. Both are restarted from the true residual until it is small enough: what is reported was
// computed, not updated along the way.
#include "linear/krylov.h"

#include <algorithm>
#include <cmath>

namespace onestep::detail {
namespace {

constexpr double good_enough_for_rounding = 1e-6;
// Curvature smaller than this, relative to the largest seen, is rounding.
constexpr double flat = 1e-15;

// Back substitution with the upper triangular matrix whose columns are `r`; with its transpose, forward substitution.
void solve_triangular(const std::vector<std::vector<double>>& r, std::vector<double>& y) {
  for (std::size_t i = y.size(); i-- > 0;) {
    for (std::size_t j = i + 1; j < y.size(); ++j) y[i] -= r[j][i] * y[j];
    y[i] /= r[i][i];
  }
}
void solve_triangular_transposed(const std::vector<std::vector<double>>& r, std::vector<double>& y) {
  for (std::size_t i = 0; i < y.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) y[i] -= r[i][j] * y[j];
    y[i] /= r[i][i];
  }
}

}  // namespace

void Gmres::begin(ConstVector b) {
  r_.clear();
  cosine_.clear();
  sine_.clear();
  if (basis_.empty()) basis_.emplace_back();
  basis_[0].assign(b.begin(), b.end());
  const double size = norm(b);
  g_.assign({size});
  exhausted_ = !(size > 0) || !std::isfinite(size);
  if (!exhausted_)
    for (double& e : basis_[0]) e /= size;
}

// Arnoldi's method, orthogonalised twice; Givens rotations keep the least squares problem triangular.
int Gmres::run(const LinearSystem& system, double target, int most) {
  const std::size_t n = basis_[0].size(), memory = std::min(krylov_restart, n);
  std::vector<double> z(n);
  int products = 0;
  while (!exhausted_ && residual() > target && products < most) {
    const std::size_t k = r_.size();
    z = basis_[k];
    if (system.precondition) system.precondition(z);
    if (basis_.size() <= k + 1) basis_.emplace_back();
    std::vector<double>& next = basis_[k + 1];
    next.resize(n);
    system.product(z, next);
    ++products;
    std::vector<double> column(k + 2);
    const double before = norm(next);
    for (int twice = 0; twice < 2; ++twice)
      for (std::size_t i = 0; i <= k; ++i) {
        const double along = dot(basis_[i], next);
        column[i] += along;
        for (std::size_t j = 0; j < n; ++j) next[j] -= along * basis_[i][j];
      }
    column[k + 1] = norm(next);
    const bool complete = !(column[k + 1] > 1e-15 * before);
    if (!complete)
      for (double& e : next) e /= column[k + 1];
    for (std::size_t i = 0; i < k; ++i) {
      const double a = column[i], c = column[i + 1];
      column[i] = cosine_[i] * a + sine_[i] * c;
      column[i + 1] = -sine_[i] * a + cosine_[i] * c;
    }
    const double length = std::hypot(column[k], column[k + 1]);
    exhausted_ = complete || k + 1 >= memory || !(length > 0) || !std::isfinite(length);
    if (!(length > 0) || !std::isfinite(length)) break;
    cosine_.push_back(column[k] / length);
    sine_.push_back(column[k + 1] / length);
    column[k] = length;
    column.resize(k + 1);
    g_.push_back(-sine_[k] * g_[k]);
    g_[k] *= cosine_[k];
    r_.push_back(std::move(column));
  }
  return products;
}

void Gmres::solution(const LinearSystem& system, Vector x) const {
  std::vector<double> y(g_.begin(), g_.begin() + static_cast<std::ptrdiff_t>(r_.size()));
  solve_triangular(r_, y);
  std::ranges::fill(x, 0.0);
  for (std::size_t i = 0; i < y.size(); ++i)
    for (std::size_t j = 0; j < x.size(); ++j) x[j] += y[i] * basis_[i][j];
  if (system.precondition) system.precondition(x);
}

// The rotations before the last make Arnoldi's square matrix triangular: its diagonal is that of R, which is positive, but
// for the last entry, which has the sign of the last cosine. So has the determinant.
bool Gmres::has_negative_eigenvalue() const {
  constexpr double settled = 0.5;  // of the residual after the last product over that before
  return !cosine_.empty() && cosine_.back() < 0 && std::fabs(sine_.back()) < settled;
}

// By power iteration on (RᵀR)⁻¹.
double Gmres::inverse() const {
  constexpr int iterations = 8;
  std::vector<double> y(r_.size());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = 1 + 0.5 * std::sin(static_cast<double>(i) + 1);
  double size = norm(y), largest = 0;
  for (int k = 0; k < iterations && size > 0 && std::isfinite(size); ++k) {
    for (double& e : y) e /= size;
    solve_triangular_transposed(r_, y);
    largest = std::max(largest, norm(y));
    solve_triangular(r_, y);
    size = norm(y);
  }
  return largest;
}

void ConjugateGradients::begin(ConstVector b, Vector x) {
  r_.assign(b.begin(), b.end());
  for (std::vector<double>* v : {&z_, &p_, &mp_}) v->resize(b.size());
  std::ranges::fill(x, 0.0);
  products_ = 0;
  steepest_ = 0;
}

double ConjugateGradients::residual() const { return norm(r_); }

ConjugateGradients::Ended ConjugateGradients::run(const LinearSystem& system, double target, int most, bool through_any,
                                                  Vector x) {
  const std::size_t n = r_.size();
  for (; norm(r_) > target; --most) {
    if (most <= 0) return Ended::at_the_limit;
    std::ranges::copy(r_, z_.begin());
    if (system.precondition) system.precondition(z_);
    const double next = dot(r_, z_);
    if (!std::isfinite(next) || next == 0) return Ended::broken;
    const double beta = products_ == 0 ? 0 : next / rz_;
    rz_ = next;
    for (std::size_t i = 0; i < n; ++i) p_[i] = z_[i] + beta * p_[i];
    system.product(p_, mp_);
    ++products_;
    curvature_ = dot(p_, mp_);
    if (!std::isfinite(curvature_)) return Ended::broken;
    const double square = dot(p_, p_);
    steepest_ = std::max(steepest_, std::fabs(curvature_) / square);
    if (!through_any && !(curvature_ > flat * steepest_ * square)) return Ended::not_positive;
    if (curvature_ == 0) return Ended::broken;
    const double alpha = rz_ / curvature_;
    for (std::size_t i = 0; i < n; ++i) {
      x[i] += alpha * p_[i];
      r_[i] -= alpha * mp_[i];
    }
  }
  return std::isfinite(norm(r_)) ? Ended::reached : Ended::broken;
}

LinearResult LinearSolver::solve(const LinearSystem& system, ConstVector b, Vector x) {
  const std::size_t n = b.size();
  std::ranges::fill(x, 0.0);
  LinearResult result;
  const double size = norm(b);
  if (size == 0 || n == 0) return result;
  r_.assign(b.begin(), b.end());
  dx_.resize(n);
  best_.assign(n, 0.0);
  double reached = 1;
  int stalls = 0;
  result.residual = 1;
  while (true) {
    const double target = std::max(system.tolerance * size, 0.1 * std::numeric_limits<double>::epsilon() * size);
    const int left = system.max_iterations - result.products;
    if (left <= 0) {
      result.status = Status::iteration_limit;
      break;
    }
    if (system.symmetric) {
      cg_.begin(r_, dx_);
      cg_.run(system, target, left, true, dx_);
      result.products += cg_.products();
    } else {
      gmres_.begin(r_);
      result.products += gmres_.run(system, target, left);
      gmres_.solution(system, dx_);
      result.inverse = std::max(result.inverse, gmres_.inverse());
    }
    for (std::size_t i = 0; i < n; ++i) x[i] += dx_[i];
    system.product(x, r_);
    ++result.products;
    for (std::size_t i = 0; i < n; ++i) r_[i] = b[i] - r_[i];
    reached = norm(r_) / size;
    if (std::isfinite(reached) && reached < result.residual) {
      stalls = reached > 0.5 * result.residual ? stalls + 1 : 0;
      result.residual = reached;
      std::ranges::copy(x, best_.begin());
    } else {
      stalls = 3;
    }
    if (result.residual <= system.tolerance) break;
    if (stalls >= 3) {
      result.status = result.residual <= good_enough_for_rounding ? Status::rounding_reached : Status::singular;
      break;
    }
  }
  std::ranges::copy(best_, x.begin());
  return result;
}

}  // namespace onestep::detail
