// The truth of softmax regression by its dense Hessian.
#include "support/softmax.h"

#include <algorithm>
#include <cmath>

namespace onestep::test {
namespace {

using Real = long double;
using Vector = std::vector<Real>;

// m x = b by elimination with pivots.
Vector solved(std::vector<Vector> m, Vector b) {
  const std::size_t n = b.size();
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k + 1; i < n; ++i)
      if (std::fabs(m[i][k]) > std::fabs(m[pivot][k])) pivot = i;
    std::swap(m[k], m[pivot]);
    std::swap(b[k], b[pivot]);
    for (std::size_t i = k + 1; i < n; ++i) {
      const Real factor = m[i][k] / m[k][k];
      for (std::size_t j = k; j < n; ++j) m[i][j] -= factor * m[k][j];
      b[i] -= factor * b[k];
    }
  }
  for (std::size_t k = n; k-- > 0;) {
    for (std::size_t j = k + 1; j < n; ++j) b[k] -= m[k][j] * b[j];
    b[k] /= m[k][k];
  }
  return b;
}

}  // namespace

Softmax::Truth Softmax::truth(const Array& w, double l2, const Array& c, const Array& dw, double dl2) const {
  const auto rows = static_cast<std::size_t>(A.shape()[0]), n = static_cast<std::size_t>(A.shape()[1]),
             classes = static_cast<std::size_t>(Y.shape()[1]), m = n * classes;
  const auto a = [&](std::size_t i, std::size_t j) { return Real(A.values()[i * n + j]); };
  std::vector<Vector> p(rows, Vector(classes)), hessian;
  Vector x(m);
  const auto entry_by_weight = [&](std::size_t i, std::size_t k) {  // of ∂g/∂wᵢ
    return a(i, k / classes) * (p[i][k % classes] - Real(Y.values()[i * classes + k % classes]));
  };
  for (int iteration = 0; iteration < 60; ++iteration) {
    Vector g(m);
    hessian.assign(m, Vector(m));
    for (std::size_t k = 0; k < m; ++k) g[k] = Real(l2) * x[k], hessian[k][k] = Real(l2);
    for (std::size_t i = 0; i < rows; ++i) {
      Real total = 0;
      for (std::size_t k = 0; k < classes; ++k) {
        Real score = 0;
        for (std::size_t j = 0; j < n; ++j) score += a(i, j) * x[j * classes + k];
        total += p[i][k] = std::exp(score);
      }
      for (Real& e : p[i]) e /= total;
      const Real weight = w.values()[i];
      for (std::size_t r = 0; r < m; ++r) {
        g[r] += weight * entry_by_weight(i, r);
        for (std::size_t s = 0; s < m; ++s)
          hessian[r][s] += weight * a(i, r / classes) * a(i, s / classes) * p[i][r % classes] *
                           (Real(r % classes == s % classes ? 1 : 0) - p[i][s % classes]);
      }
    }
    const Vector d = solved(hessian, g);
    Real size = 0;
    for (const Real e : d) size = std::max(size, std::fabs(e));
    for (std::size_t k = 0; k < m; ++k) x[k] -= d[k] / std::max(Real(1), size);
  }
  Truth result;
  const Vector u = solved(hessian, Vector(c.values().begin(), c.values().end()));
  Vector right(m);
  for (std::size_t k = 0; k < m; ++k) result.vjp_l2 -= u[k] * x[k], right[k] = -Real(dl2) * x[k];
  for (std::size_t i = 0; i < rows; ++i) {
    Real along = 0;
    for (std::size_t k = 0; k < m; ++k) {
      along -= entry_by_weight(i, k) * u[k];
      right[k] -= Real(dw.values()[i]) * entry_by_weight(i, k);
    }
    result.vjp_w.push_back(along);
  }
  result.jvp = solved(hessian, right);
  return result;
}

}  // namespace onestep::test
