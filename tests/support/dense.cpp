// Plain loops, Gram and Schmidt, and elimination with pivots.
#include "support/dense.h"

#include <cmath>
#include <cstdlib>
#include <utility>

namespace onestep::test {
namespace {

struct Matrix {
  std::int64_t rows, columns;
  std::vector<double> entries;
  Matrix(std::int64_t m, std::int64_t n) : rows(m), columns(n), entries(static_cast<std::size_t>(m * n)) {}
  explicit Matrix(const Array& a) : Matrix(a.shape()[0], a.shape()[1]) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) (*this)(i, j) = a.data()[i * a.row_stride() + j * a.column_stride()];
  }
  double& operator()(std::int64_t i, std::int64_t j) { return entries[static_cast<std::size_t>(i * columns + j)]; }
  double operator()(std::int64_t i, std::int64_t j) const { return entries[static_cast<std::size_t>(i * columns + j)]; }
  Array array(const Shape& shape) const { return {shape, entries}; }
};

// a + factor b; the shape is a's.
Array sum_of(const Array& a, double factor, const Array& b) {
  Matrix m(a);
  const Matrix other(b);
  if (m.entries.size() != other.entries.size()) std::abort();
  for (std::size_t i = 0; i < m.entries.size(); ++i) m.entries[i] += factor * other.entries[i];
  return m.array(a.shape());
}

double column_dot(const Matrix& m, std::int64_t p, std::int64_t q) {
  double sum = 0;
  for (std::int64_t i = 0; i < m.rows; ++i) sum += m(i, p) * m(i, q);
  return sum;
}

// Columns made orthonormal, by Gram and Schmidt, twice.
void orthonormalise(Matrix& m) {
  for (std::int64_t j = 0; j < m.columns; ++j) {
    for (int twice = 0; twice < 2; ++twice)
      for (std::int64_t k = 0; k < j; ++k) {
        const double along = column_dot(m, j, k);
        for (std::int64_t i = 0; i < m.rows; ++i) m(i, j) -= along * m(i, k);
      }
    const double length = std::sqrt(column_dot(m, j, j));
    for (std::int64_t i = 0; i < m.rows; ++i) m(i, j) /= length;
  }
}

}  // namespace

Array plus(const Array& a, const Array& b) { return sum_of(a, 1, b); }
Array minus(const Array& a, const Array& b) { return sum_of(a, -1, b); }
Array times(double factor, const Array& a) {
  Matrix m(a);
  for (double& e : m.entries) e *= factor;
  return m.array(a.shape());
}

Array product(const Array& a, const Array& b) {
  const Matrix x(a), y(b);
  if (x.columns != y.rows) std::abort();
  Matrix z(x.rows, y.columns);
  for (std::int64_t i = 0; i < z.rows; ++i)
    for (std::int64_t k = 0; k < x.columns; ++k)
      for (std::int64_t j = 0; j < z.columns; ++j) z(i, j) += x(i, k) * y(k, j);
  return z.array(b.shape().rank() < 2 ? Shape{z.rows} : Shape{z.rows, z.columns});
}

Array transposed(const Array& a) {
  const Matrix x(a);
  Matrix t(x.columns, x.rows);
  for (std::int64_t i = 0; i < x.rows; ++i)
    for (std::int64_t j = 0; j < x.columns; ++j) t(j, i) = x(i, j);
  return t.array({t.rows, t.columns});
}

Array identity(std::int64_t n) {
  Matrix m(n, n);
  for (std::int64_t i = 0; i < n; ++i) m(i, i) = 1;
  return m.array({n, n});
}

Array inverse(const Array& a) { return solved(a, identity(a.shape()[0])); }

// Gaussian elimination with row exchanges.
Array solved(const Array& m, const Array& b) {
  Matrix a(m), x(b);
  const std::int64_t n = a.rows;
  for (std::int64_t k = 0; k < n; ++k) {
    std::int64_t pivot = k;
    for (std::int64_t i = k + 1; i < n; ++i)
      if (std::fabs(a(i, k)) > std::fabs(a(pivot, k))) pivot = i;
    for (std::int64_t j = 0; j < n; ++j) std::swap(a(k, j), a(pivot, j));
    for (std::int64_t j = 0; j < x.columns; ++j) std::swap(x(k, j), x(pivot, j));
    for (std::int64_t i = k + 1; i < n; ++i) {
      const double factor = a(i, k) / a(k, k);
      for (std::int64_t j = k; j < n; ++j) a(i, j) -= factor * a(k, j);
      for (std::int64_t j = 0; j < x.columns; ++j) x(i, j) -= factor * x(k, j);
    }
  }
  for (std::int64_t k = n - 1; k >= 0; --k)
    for (std::int64_t j = 0; j < x.columns; ++j) {
      for (std::int64_t i = k + 1; i < n; ++i) x(k, j) -= a(k, i) * x(i, j);
      x(k, j) /= a(k, k);
    }
  return x.array(b.shape());
}

double norm(const Array& a) {
  double sum = 0;
  for (const double e : Matrix(a).entries) sum += e * e;
  return std::sqrt(sum);
}

// One-sided Jacobi: columns are rotated against each other until they are orthogonal; their lengths are the singular values.
double spectral_norm(const Array& a) {
  Matrix m(a.shape()[0] < a.shape()[1] ? transposed(a) : a);
  for (int sweep = 0; sweep < 60; ++sweep) {
    double worst = 0;
    for (std::int64_t p = 0; p < m.columns; ++p)
      for (std::int64_t q = p + 1; q < m.columns; ++q) {
        const double pp = column_dot(m, p, p), qq = column_dot(m, q, q), pq = column_dot(m, p, q);
        if (!(std::fabs(pq) > 1e-16 * std::sqrt(pp * qq))) continue;
        worst = std::max(worst, std::fabs(pq) / std::sqrt(pp * qq));
        const double z = (qq - pp) / (2 * pq), t = (z < 0 ? -1 : 1) / (std::fabs(z) + std::sqrt(1 + z * z));
        const double c = 1 / std::sqrt(1 + t * t), s = c * t;
        for (std::int64_t i = 0; i < m.rows; ++i) {
          const double u = m(i, p), v = m(i, q);
          m(i, p) = c * u - s * v;
          m(i, q) = s * u + c * v;
        }
      }
    if (worst < 1e-15) break;
  }
  double largest = 0;
  for (std::int64_t j = 0; j < m.columns; ++j) largest = std::max(largest, column_dot(m, j, j));
  return std::sqrt(largest);
}

double relative_error(const Array& a, const Array& b) { return norm(minus(a, b)) / norm(b); }

Array with_eigenvalues(Random& random, const std::vector<double>& eigenvalues) {
  const auto n = static_cast<std::int64_t>(eigenvalues.size());
  Matrix q(random.array({n, n}));
  orthonormalise(q);
  Matrix m(n, n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j <= i; ++j) {
      for (std::int64_t k = 0; k < n; ++k) m(i, j) += q(i, k) * eigenvalues[static_cast<std::size_t>(k)] * q(j, k);
      m(j, i) = m(i, j);
    }
  return m.array({n, n});
}

Array with_norm(Random& random, std::int64_t rows, std::int64_t columns, double wanted) {
  const Array m = random.array({rows, columns});
  return times(wanted / spectral_norm(m), m);
}

std::vector<double> spread(double low, double high, std::int64_t n) {
  std::vector<double> all;
  for (std::int64_t i = 0; i < n; ++i)
    all.push_back(low + (high - low) * static_cast<double>(i) / static_cast<double>(std::max<std::int64_t>(n - 1, 1)));
  return all;
}

Array flat(const Parts& parts) {
  std::vector<double> all;
  for (const Array& a : parts) {
    const Matrix m(a);
    all.insert(all.end(), m.entries.begin(), m.entries.end());
  }
  const Shape shape{static_cast<std::int64_t>(all.size())};
  return {shape, std::move(all)};
}

Array orthogonal_part(const Array& a, const Array& v) {
  Matrix q(a), rest(v);
  orthonormalise(q);
  for (int twice = 0; twice < 2; ++twice)
    for (std::int64_t j = 0; j < q.columns; ++j) {
      double along = 0;
      for (std::int64_t i = 0; i < q.rows; ++i) along += q(i, j) * rest(i, 0);
      for (std::int64_t i = 0; i < q.rows; ++i) rest(i, 0) -= along * q(i, j);
    }
  return rest.array(v.shape());
}

Array differences(const std::function<Array(double)>& f, double h) {
  const auto central = [&](double t) { return times(1 / (2 * t), minus(f(t), f(-t))); };
  // b + (b - a) / (4^order - 1)
  const auto better = [](const Array& a, const Array& b, double power) {
    return plus(b, times(1 / (power - 1), minus(b, a)));
  };
  const Array a = central(h), b = central(h / 2), c = central(h / 4);
  return better(better(a, b, 4), better(b, c, 4), 16);
}

}  // namespace onestep::test
