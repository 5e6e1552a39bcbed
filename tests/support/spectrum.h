// A minimiser with a Hessian as ill-conditioned as is wanted, whose derivative is known in closed form.
#pragma once

#include <cmath>
#include <vector>

#include "onestep/onestep.h"
#include "support/random.h"

namespace onestep::test {

/// Σ sᵢ (yᵢ²/2 + yᵢ⁴/4) - tᵢ θᵢ yᵢ with y = Qx and Q orthogonal: sᵢ (yᵢ + yᵢ³) = tᵢ θᵢ at the minimiser. The sᵢ go from 1
/// down to 1/condition; the tᵢ are 1, or sᵢ, so that derivatives by θ are large where the curvature is small, or not.
class Spectrum {
 public:
  using Numbers = std::vector<long double>;

  Spectrum(Random& random, std::int64_t n, double condition, bool even) : n_(static_cast<std::size_t>(n)), q_(n_ * n_) {
    for (std::size_t i = 0; i < n_; ++i) q_[i * n_ + i] = 1;
    for (int reflections = 0; reflections < 3; ++reflections) reflect(random.array({n}));
    std::vector<double> s(n_), t(n_), b(n_);
    for (std::size_t i = 0; i < n_; ++i) {
      const double part = n_ == 1 ? 0 : static_cast<double>(i) / static_cast<double>(n_ - 1);
      s[i] = std::pow(condition, -part);
      t[i] = even ? s[i] : 1;
      b[i] = random.uniform(-2, 2) * s[i] / t[i];
    }
    Q = Array({n, n}, {q_.begin(), q_.end()});
    s_ = Array({n}, s);
    t_ = Array({n}, t);
    theta = Array({n}, b);
    for (std::size_t i = 0; i < n_; ++i) {
      const long double right = static_cast<long double>(t[i]) * b[i] / s[i];
      long double y = 0;
      for (int k = 0; k < 60; ++k) y -= (y + y * y * y - right) / (1 + 3 * y * y);
      y_.push_back(y);
      scale_.push_back(t[i] / (s[i] * (1 + 3 * y * y)));
    }
  }

  auto objective() const {
    return [Q = Q, s = s_, t = t_](Expr x, Expr b) {
      const Expr y = matmul(Q, x);
      return sum(s * (0.5 * square(y) + 0.25 * square(square(y)))) - sum(t * b * y);
    };
  }
  Array start() const { return zeros({static_cast<std::int64_t>(n_)}); }

  Numbers x() const { return back(y_); }
  Numbers jvp(const Array& v) const {
    Numbers y;
    for (std::size_t i = 0; i < n_; ++i) y.push_back(scale_[i] * v.values()[i]);
    return back(y);
  }
  Numbers vjp(const Array& c) const {
    Numbers y = forth({c.values().begin(), c.values().end()});
    for (std::size_t i = 0; i < n_; ++i) y[i] *= scale_[i];
    return y;
  }

  Array theta;

 private:
  void reflect(const Array& normal) {
    long double square = 0;
    for (const double e : normal.values()) square += static_cast<long double>(e) * e;
    for (std::size_t i = 0; i < n_; ++i) {
      long double along = 0;
      for (std::size_t j = 0; j < n_; ++j) along += q_[i * n_ + j] * normal.values()[j];
      for (std::size_t j = 0; j < n_; ++j) q_[i * n_ + j] -= 2 * along / square * normal.values()[j];
    }
  }
  Numbers times(const Numbers& v, bool transposed) const {
    Numbers out(n_);
    for (std::size_t i = 0; i < n_; ++i)
      for (std::size_t j = 0; j < n_; ++j)
        out[i] += static_cast<long double>(Q.values()[transposed ? j * n_ + i : i * n_ + j]) * v[j];
    return out;
  }
  // Q⁻¹y and Q⁻ᵀc: Q was rounded, so that its transpose is not quite its inverse.
  Numbers back(const Numbers& y) const { return refined(y, true); }
  Numbers forth(const Numbers& c) const { return refined(c, false); }
  Numbers refined(const Numbers& right, bool transposed) const {
    Numbers x = times(right, transposed), rest = times(x, !transposed);
    for (std::size_t i = 0; i < n_; ++i) rest[i] = right[i] - rest[i];
    rest = times(rest, transposed);
    for (std::size_t i = 0; i < n_; ++i) x[i] += rest[i];
    return x;
  }

  std::size_t n_;
  Numbers q_, y_, scale_;
  Array Q, s_, t_;
};

/// ‖found - truth‖
inline double distance(const Array& found, const Spectrum::Numbers& truth) {
  long double sum = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) sum += (found.values()[i] - truth[i]) * (found.values()[i] - truth[i]);
  return static_cast<double>(std::sqrt(sum));
}

}  // namespace onestep::test
