// Conjugate gradients and GMRES. Both are restarted from the true residual until it is small enough: what is reported was
// computed, not updated along the way.
#include "solve/linear.h"

#include <algorithm>
#include <cmath>

namespace onestep::detail {
namespace {

constexpr double good_enough_for_rounding = 1e-6;
// Curvature smaller than this, relative to the largest seen, is rounding.
constexpr double flat = 1e-15;

// x with M x ≈ r to `target`, from zero.
int gmres(const LinearSystem& system, ConstVector b, double target, int most, Vector x) {
  const std::size_t n = b.size();
  const std::size_t steps = std::min({krylov_restart, n, static_cast<std::size_t>(most)});
  std::vector<std::vector<double>> v{{b.begin(), b.end()}}, h;
  const double beta = norm(v[0]);
  std::ranges::fill(x, 0.0);
  if (beta == 0) return 0;
  for (double& e : v[0]) e /= beta;
  std::vector<double> g{beta}, cosine, sine, z(n);
  int products = 0;
  for (std::size_t k = 0; k < steps && std::fabs(g[k]) > target; ++k) {
    z = v[k];
    if (system.precondition) system.precondition(z);
    v.emplace_back(n);
    system.product(z, v.back());
    ++products;
    std::vector<double> column(k + 2);
    const double before = norm(v.back());
    for (int twice = 0; twice < 2; ++twice)
      for (std::size_t i = 0; i <= k; ++i) {
        const double along = dot(v[i], v.back());
        column[i] += along;
        for (std::size_t j = 0; j < n; ++j) v.back()[j] -= along * v[i][j];
      }
    column[k + 1] = norm(v.back());
    const bool exhausted = !(column[k + 1] > 1e-15 * before);
    if (!exhausted)
      for (double& e : v.back()) e /= column[k + 1];
    for (std::size_t i = 0; i < k; ++i) {
      const double a = column[i], c = column[i + 1];
      column[i] = cosine[i] * a + sine[i] * c;
      column[i + 1] = -sine[i] * a + cosine[i] * c;
    }
    const double length = std::hypot(column[k], column[k + 1]);
    if (!(length > 0) || !std::isfinite(length)) break;
    cosine.push_back(column[k] / length);
    sine.push_back(column[k + 1] / length);
    column[k] = length;
    g.push_back(-sine[k] * g[k]);
    g[k] *= cosine[k];
    h.push_back(std::move(column));
    if (exhausted) break;
  }
  std::vector<double> y(h.size());
  for (std::size_t i = h.size(); i-- > 0;) {
    y[i] = g[i];
    for (std::size_t j = i + 1; j < h.size(); ++j) y[i] -= h[j][i] * y[j];
    y[i] /= h[i][i];
  }
  for (std::size_t i = 0; i < h.size(); ++i)
    for (std::size_t j = 0; j < n; ++j) x[j] += y[i] * v[i][j];
  if (system.precondition) system.precondition(x);
  return products;
}

}  // namespace

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
      result.products += gmres(system, r_, target, left, dx_);
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
